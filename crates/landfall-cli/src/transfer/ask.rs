//! From where the code comes: not from the command line, which everybody can read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use landfall_transport::signals::Endings;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use super::code::Code;
use super::{LOOK, Waited};

/// The environment variable that may have the code.
const VARIABLE: &str = "LANDFALL_CODE";
/// No line with a code is longer.
const MOST: u64 = 1024;

/// Options about the code, of both commands.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct CodeArgs {
    /// Read the code from the first line of this file, which nobody else may read
    #[arg(long, value_name = "FILE")]
    code_file: Option<PathBuf>,
    /// Read the code from the first line of standard input; from a terminal without echo
    #[arg(long)]
    code_stdin: bool,
    /// The code itself. Better not: every user of this machine can read it in the list of
    /// processes (`ps`), and it stays in the shell's history
    #[arg(long, value_parser = Code::given)]
    code: Option<Code>,
}

impl CodeArgs {
    /// Does it come by standard input?
    pub(crate) const fn is_stdin(&self) -> bool {
        self.code_stdin
    }

    /// The code that was given by an option or in the environment, if there is one.
    pub(crate) fn find(&self, endings: &Endings) -> Result<Waited<Option<Code>>> {
        if let Some(code) = &self.code {
            return Ok(Waited::Done(Some(code.clone())));
        }
        if let Some(path) = &self.code_file {
            let line = line_of_file(path)
                .with_context(|| format!("cannot read the code from {}", path.display()))?;
            return Ok(Waited::Done(Some(code_of(&line)?)));
        }
        if self.code_stdin {
            return Ok(match ask(Input::Standard, endings)? {
                Waited::Done(code) => Waited::Done(Some(code)),
                Waited::Interrupted => Waited::Interrupted,
            });
        }
        match std::env::var(VARIABLE) {
            Ok(text) => {
                let code = code_of(&text).with_context(|| format!("the code in {VARIABLE}"))?;
                Ok(Waited::Done(Some(code)))
            }
            Err(std::env::VarError::NotPresent) => Ok(Waited::Done(None)),
            Err(error) => bail!("{VARIABLE}: {error}"),
        }
    }

    /// The same; where there is none, anyone who is at the terminal is asked.
    pub(crate) fn find_or_ask(&self, endings: &Endings) -> Result<Waited<Code>> {
        match self.find(endings)? {
            Waited::Done(Some(code)) => return Ok(Waited::Done(code)),
            Waited::Interrupted => return Ok(Waited::Interrupted),
            Waited::Done(None) => {}
        }
        let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else {
            bail!(
                "the receiver's code is missing, and there is no terminal to ask at: give the one \
                 that `landfall receive` printed in the environment variable {VARIABLE}, by \
                 --code-file FILE or by --code-stdin"
            );
        };
        ask(Input::Terminal(terminal), endings)
    }
}

fn code_of(line: &str) -> Result<Code> {
    Code::given(line).map_err(anyhow::Error::msg)
}

/// Nobody else may read it, for what everybody knows is no secret.
fn line_of_file(path: &Path) -> Result<String> {
    let file = File::options().read(true).custom_flags(libc::O_CLOEXEC).open(path)?;
    let mode = file.metadata()?.mode();
    ensure!(
        mode & 0o077 == 0,
        "others may read it (its mode is {:03o}): `chmod 600` it, or give another one",
        mode & 0o777
    );
    first_line(&mut BufReader::new(file))
}

fn first_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    from.take(MOST).read_until(b'\n', &mut line)?;
    String::from_utf8(line).map_err(|_| anyhow!("it is no text"))
}

/// Where somebody is asked.
enum Input {
    Standard,
    Terminal(File),
}

/// Asks for the code: without echo, where that is a terminal.
fn ask(input: Input, endings: &Endings) -> Result<Waited<Code>> {
    let quiet = match &input {
        Input::Standard => Quiet::of(&io::stdin())?,
        Input::Terminal(terminal) => Quiet::of(terminal)?,
    };
    if quiet.is_some() {
        eprint!("code: ");
        let _ = io::stderr().flush();
    }
    // A signal is heard meanwhile: the terminal is to have its echo again.
    let (to, line) = sync_channel(1);
    let read = move || {
        let line = match input {
            Input::Standard => first_line(&mut io::stdin().lock()),
            Input::Terminal(terminal) => first_line(&mut BufReader::new(terminal)),
        };
        // The command may have been interrupted: nobody waits then.
        let _ = to.send(line);
    };
    std::thread::Builder::new().name("landfall-ask".into()).spawn(read)?;
    let line = loop {
        match line.recv_timeout(LOOK) {
            Ok(line) => break line.context("cannot read the code")?,
            Err(RecvTimeoutError::Disconnected) => bail!("the code was not read"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if endings.wait(Duration::ZERO).context("cannot wait for signals")? {
            return Ok(Waited::Interrupted);
        }
    };
    drop(quiet);
    Ok(Waited::Done(code_of(&line)?))
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Quiet {
    terminal: std::os::fd::OwnedFd,
    before: Termios,
}

impl Quiet {
    /// Nothing where that is no terminal.
    fn of(input: &impl std::os::fd::AsFd) -> Result<Option<Self>> {
        if !termios::isatty(input) {
            return Ok(None);
        }
        let before = termios::tcgetattr(input).context("cannot ask the terminal")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        termios::tcsetattr(input, OptionalActions::Flush, &silent)
            .context("cannot switch off the echo of the terminal")?;
        Ok(Some(Self { terminal: input.as_fd().try_clone_to_owned()?, before }))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone needs no echo.
        let _ = termios::tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
