//! `landfall run`: a program as it is, whose TCP connections within this host become shared
//! memory where both ends run so.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the options, and the program in this one's place |
//! | `library` | where the library to preload lies |
//! | `program` | which file a name means, and what the library can't do for it |

mod library;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use landfall_socket_rules::{Rules, group_number};

use crate::style;

const EXAMPLES: &str = "\
Examples:
  landfall run -- redis-server --port 6379
  landfall run --log connections.log -- redis-benchmark -p 6379
  landfall run --log errors.log --log-level errors -- nginx -g 'daemon off;'
  landfall run --rules landfall.rules -- postgres -D data
  landfall run --group web -- gunicorn app:application     (nginx under --group web, too)

The program takes the place of this one: its exit code and its signals are its own. Where it
cannot be started the exit code is 127 (not found), 126 (no program), or 125 (anything else).

A connection goes through memory where both ends run so, on one host and as one user (or with one
--group); else it is TCP, as ever. A rule is `memory`, `tcp`, or for other hosts `stp` or `qpip`
(see `landfall carry`), with program=, port= and address=; the first that fits decides. LANDFALL_SOCKETS=off switches
all off. While a program runs, a file does so for its new connections: /run/landfall/sockets-off for the
host, /dev/shm/landfall-sockets-off-UID for one user. `landfall ss` shows what became of each
connection. The library is looked for in LANDFALL_PRELOAD, beside this program, and where libraries
are. More: docs/sockets.md and docs/operate.md";

/// Options of `landfall run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Rules: which connections may go through memory
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Share memory with programs of other users who are in this group, by name or number: its
    /// members trust each other then as the programs of one user do
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Write there for each connection what it uses, and why
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// How much that is
    #[arg(long, value_name = "LEVEL", value_enum, requires = "log")]
    log_level: Option<LogLevel>,
    /// Do not say what the library cannot do for this program
    #[arg(long)]
    quiet: bool,
    /// The program and its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// What `LANDFALL_LOG_LEVEL` says.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogLevel {
    /// What should be mended
    Errors,
    /// A line for each end of a connection, too
    Connections,
    /// Also when it ends, with its bytes
    All,
}

/// Of a failure that is not the program's, as `env` and `nohup` say it.
const FAILED: u8 = 125;
const NO_PROGRAM: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Becomes the program. Comes back only if that failed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    Ok(match prepare(args) {
        Ok(mut command) => {
            let why = command.exec();
            let name = &args.words[0];
            // `exec` says that it may not, where it may not look into a folder on its way.
            let code = match why.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ if !program::is_there(name) => NOT_FOUND,
                _ => NO_PROGRAM,
            };
            eprintln!("landfall: {}: {why}", name.display());
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("landfall: {}", style::causes(&error));
            ExitCode::from(FAILED)
        }
    })
}

fn prepare(args: &Args) -> Result<Command> {
    let mut command = Command::new(&args.words[0]);
    command.args(&args.words[1..]);
    command.env("LD_PRELOAD", library_before_all_others()?);
    if let Some(rules) = &args.rules {
        command.env("LANDFALL_RULES", checked_rules(rules)?);
    }
    if let Some(group) = &args.group {
        command.env("LANDFALL_GROUP", number_of(group)?.to_string());
    }
    if let Some(log) = &args.log {
        command.env("LANDFALL_LOG", writable(log)?);
    }
    if let Some(level) = args.log_level.and_then(|level| level.to_possible_value()) {
        command.env("LANDFALL_LOG_LEVEL", level.get_name());
    }
    if !args.quiet
        && let Some(file) = program::find(&args.words[0])
        && let Some(why) = program::why_not(&file)
    {
        eprintln!("landfall: {} {why}: its connections stay TCP", file.display());
    }
    Ok(command)
}

/// What to preload: the library, wherever it lies, and what is to be preloaded anyway.
pub(crate) fn library_before_all_others() -> Result<OsString> {
    preload(&library::find()?)
}

/// The library before all others that are to be preloaded.
fn preload(library: &Path) -> Result<OsString> {
    let mut value = library.as_os_str().to_owned();
    ensure!(
        !value.as_bytes().iter().any(|byte| b" :".contains(byte)),
        "{}: a path with a space or a colon can't be preloaded: set LANDFALL_PRELOAD to another",
        library.display()
    );
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    Ok(value)
}

/// The file as it is called from everywhere; what is wrong with it is said here.
fn checked_rules(path: &Path) -> Result<PathBuf> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse::<Rules>().with_context(|| path.display().to_string())?;
    Ok(fs::canonicalize(path)?)
}

/// The number of a group that this user is in, or may become: the superuser's programs change their
/// groups later.
fn number_of(group: &str) -> Result<u32> {
    let number =
        group_number(group).with_context(|| format!("there is no group called {group}"))?;
    let is_in = rustix::process::geteuid().is_root()
        || rustix::process::getegid().as_raw() == number
        || rustix::process::getgroups()?.iter().any(|group| group.as_raw() == number);
    ensure!(
        is_in,
        "this user is not in group {group} (usermod -aG; it holds from the next login on)"
    );
    Ok(number)
}

/// A log as it is called from everywhere.
pub(crate) fn writable(path: &Path) -> Result<PathBuf> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::canonicalize(path)?)
}
