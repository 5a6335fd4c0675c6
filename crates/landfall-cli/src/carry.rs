//! `landfall carry`: this host's part of connections between hosts whose programs run under
//! `landfall run`.
//!
//! What it does is done by the library that is preloaded into programs, so that both have
//! one idea of the memory between them: this checks what was said, and becomes itself once
//! more, with the library in it, which then carries.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::run;

const EXAMPLES: &str = "\
Examples:
  head -c 32 /dev/urandom > carriers.key && chmod 600 carriers.key
  landfall carry --over stp --listen 10.0.0.1:8183 --key-file carriers.key
  landfall carry --over qpip --listen 10.0.0.1:8184 --peer 10.0.0.2:8184 --key-file carriers.key

One is started on each host, for each user whose programs shall use it, with the same key.
Programs run by `landfall run` with a rule such as `stp address=10.0.0.0/8` at both ends then
exchange their bytes by way of the carriers; the TCP connection below stays. What is carried is
encrypted with keys that the key file gives; the words before both ends have found each other go by
TCP, in clear. More: docs/sockets.md

It runs until SIGINT or SIGTERM: connections may take --drain seconds to end, new ones are left to
TCP. A second signal ends it at once.";

/// Options of `landfall carry`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What carries the bytes between hosts
    #[arg(long, value_enum, default_value = "stp")]
    over: CarriedOver,
    /// This host's address and port of UDP, where other carriers reach it
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The port of UDP of other hosts' carriers [the same as this one's]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Another host's carrier; queue pairs need to be told of all
    #[arg(long = "peer", value_name = "ADDRESS:PORT")]
    peers: Vec<SocketAddr>,
    /// A secret that all carriers share, readable by its owner alone
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// How many connections are carried at a time; others are TCP
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    connections: usize,
    /// After a signal connections may take this long to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u32,
    /// Write there what becomes of each connection
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarriedOver {
    /// The Scheduled Transfer Protocol, by UDP
    Stp,
    /// Queue pairs, by frames within UDP
    Qpip,
}

const VARIABLE: &str = "LANDFALL_CARRY";

/// Becomes the carrier. Comes back only if that failed.
pub(crate) fn carry(args: &Args) -> Result<ExitCode> {
    ensure!(
        env::var_os(VARIABLE).is_none(),
        "the library that was found is of another version and cannot carry: see LANDFALL_PRELOAD"
    );
    let said = words(args)?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(VARIABLE, said);
    command.env("LD_PRELOAD", run::library_before_all_others()?).env_remove("LANDFALL_RULES");
    if let Some(log) = &args.log {
        command.env("LANDFALL_LOG", run::writable(log)?);
    }
    Err(command.exec()).context("the carrier cannot be started")
}

/// What was said, as the library reads it: a word and its value in each line.
fn words(args: &Args) -> Result<OsString> {
    let over = match args.over {
        CarriedOver::Stp => "stp",
        CarriedOver::Qpip => "qpip",
    };
    ensure!(
        !args.listen.ip().is_unspecified(),
        "--listen {}: say the address by which other hosts know this one",
        args.listen
    );
    if args.over == CarriedOver::Qpip && args.peers.is_empty() {
        bail!("queue pairs have to know the carriers of the other hosts: name each with --peer");
    }
    let mut text = format!("over={over}\nlisten={}\nmost={}\n", args.listen, args.connections);
    writeln!(text, "drain={}", args.drain)?;
    for peer in &args.peers {
        writeln!(text, "peer={peer}")?;
    }
    if let Some(port) = args.port {
        writeln!(text, "port={port}")?;
    }
    let mut text = OsString::from(text);
    text.push("key=");
    text.push(key_file(&args.key_file)?);
    Ok(text)
}

/// The file as it is called from everywhere.
fn key_file(path: &Path) -> Result<PathBuf> {
    let path = fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        path.to_str().is_some() && !path.as_os_str().as_bytes().contains(&b'\n'),
        "{}: a name with a line feed, or that is no text, cannot be handed on",
        path.display()
    );
    Ok(path)
}
