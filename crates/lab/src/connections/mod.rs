//! `landfall ss` and `landfall top`: the connections of this host under the library that
//! `landfall run` preloads, how their bytes go, and why.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | which connections, and all of them once |
//! | `rows` | what is shown of a connection, as text and as JSON |
//! | `top` | again and again, with rates |
//! | `metrics` | for Prometheus |

mod metrics;
mod rows;
pub mod top;

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use landfall_socket_status::Transport;
use landfall_socket_status::read::{Connection, Process, Reader, View};
use rows::Report;

use crate::printable::printable;
use crate::style;

const EXAMPLES: &str = "\
Examples:
  landfall ss
  landfall ss --program 'redis-*' --transport tcp     which of its connections stay TCP, and why
  landfall ss --port 6379 --json | jq '.connections[].why'
  sudo landfall ss                                    those of all users

Bytes are those of programs, and of TCP those that the kernel has counted. A `-` is a number
that nobody says: of a connection that is about to close, or in another network namespace.";

/// Options of `landfall ss`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Which connections.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Selection {
    /// Only those of programs of this name; `*` stands for any letters
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Only those with this port at one of their ends
    #[arg(long, value_name = "NUMBER")]
    port: Option<u16>,
    /// Only those of this process
    #[arg(long, value_name = "NUMBER")]
    pid: Option<u32>,
    /// Only those whose bytes go so
    #[arg(long, value_name = "TRANSPORT", value_enum)]
    transport: Option<By>,
}

/// How the bytes of a connection go.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Through memory that both ends have
    Memory,
    /// By the kernel's TCP
    Tcp,
    /// To another host by the Scheduled Transfer Protocol
    Stp,
    /// To another host by queue pairs
    Qpip,
}

impl By {
    const fn transport(self) -> Transport {
        match self {
            Self::Memory => Transport::Memory,
            Self::Tcp => Transport::Tcp,
            Self::Stp => Transport::Stp,
            Self::Qpip => Transport::Qpip,
        }
    }
}

impl Selection {
    fn has(&self, process: &Process, connection: &Connection) -> bool {
        let has_port =
            |port| connection.connector().port() == port || connection.acceptor().port() == port;
        self.program.as_ref().is_none_or(|name| fits(name.as_bytes(), process.program.as_bytes()))
            && self.port.is_none_or(has_port)
            && self.pid.is_none_or(|pid| process.name.process == pid)
            && self.transport.is_none_or(|by| by.transport() == connection.record.transport)
    }

    fn is_any(&self) -> bool {
        self.program.is_some()
            || self.port.is_some()
            || self.pid.is_some()
            || self.transport.is_some()
    }
}

/// Whether a name is of a pattern in which `*` stands for any letters. Each star is tried again
/// from the last alone, so a long pattern takes no longer than both are long.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_pattern, mut last_star) = (0, 0, None);
    while at < name.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                last_star = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(letter) if *letter == name[at] => (at, in_pattern) = (at + 1, in_pattern + 1),
            _ => match last_star {
                None => return false,
                Some((star, from)) => {
                    last_star = Some((star, from + 1));
                    (at, in_pattern) = (from + 1, star + 1);
                }
            },
        }
    }
    pattern[in_pattern..].iter().all(|letter| *letter == b'*')
}

/// Shows all connections once.
pub fn run(args: &Args) -> Result<ExitCode> {
    let view = look(&reader()?)?;
    let report = Report::of(&view, &args.selection);
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&report.describe(args.selection.is_any()))?;
        complain(&view);
    }
    Ok(ExitCode::SUCCESS)
}

fn reader() -> Result<Reader> {
    Reader::new().context("cannot find out in which namespaces this is: is /proc mounted?")
}

fn look(reader: &Reader) -> Result<View> {
    match reader.look() {
        // Nobody has shared memory, so nobody shares any.
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(View::default()),
        other => other.context("cannot look into /dev/shm"),
    }
}

fn complain(view: &View) {
    for fault in &view.faults {
        eprintln!("landfall: {}", printable(fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_what_it_says() {
        for (pattern, name, is_so) in [
            ("redis-*", "redis-server", true),
            ("*server", "redis-server", true),
            ("r*s*r", "redis-server", true),
            ("*", "", true),
            ("redis", "redis-server", false),
            ("*cli", "redis-server", false),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), is_so, "{pattern} {name}");
        }
        let stars = "*a".repeat(200);
        assert!(!fits(stars.as_bytes(), "a".repeat(199).as_bytes()));
    }
}
