//! `landfall perf`: STP, QPIP, speculative defragmentation and CLAN through the public API of
//! `landfall`, against kernel TCP and UDP, interleaved.
//!
//! | file | what it is |
//! | --- | --- |
//! | `options` | what to measure and how |
//! | `local` | both ends on this machine; candidates that are compared: one link, one setting |
//! | `net` | one end in another program, perhaps on another machine: `server` and `client` |
//! | `row` | one row of the result, with the documented fields; what could not be measured, and why |
//! | `rivals` | the kernel's own |
//! | `stp` | the Scheduled Transfer Protocol, over each of its encapsulations |
//! | `qpip` | queue pairs, to each other and to sockets |
//! | `clan` | shared memory with tripwires, between processes and over a network |
//! | `defrag` | pages over a wire that carries less, joined by us or by the kernel |
//! | `nbd` | reads of a network block device |
//! | `chosen` | messages of one length, many connections, loss, what happens to the bytes |
//! | `report` | rows as a table, and as a picture |

pub(crate) mod chosen;
pub(crate) mod clan;
mod defrag;
pub mod local;
mod nbd;
pub mod net;
mod options;
pub(crate) mod qpip;
mod report;
pub(crate) mod rivals;
pub(crate) mod row;
pub(crate) mod stp;

use std::process::ExitCode;

use anyhow::Result;
use io_uring::IoUring;
use serde::Serialize;

pub(crate) use options::Protocol;

use crate::machine::{Interface, Machine};
use crate::style::{self, Style};
use options::Options;
use row::{Absent, Row};

const NEEDS_CABLE: &str = "needs a cable: run `sudo landfall perf local --veth`";

fn why_no_ring() -> Option<String> {
    let error = IoUring::new(8).err()?;
    Some(format!("io_uring: {error}; `landfall doctor` says what to do"))
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    machine: MachineAndSettings,
    rows: Vec<Row>,
}

/// What the figures are worth nothing without.
#[derive(Debug, Serialize)]
struct MachineAndSettings {
    #[serde(flatten)]
    machine: Machine,
    link: &'static str,
    /// What this end's packets went through, and the other's; where it is another process.
    interface: Option<Interface>,
    server_interface: Option<Interface>,
    /// The machine at the other end, where it is another process.
    server: Option<serde_json::Value>,
    pinned: bool,
    rounds: u16,
    seconds: f64,
    absent: Vec<Absent>,
}

/// What was measured so far.
#[derive(Debug)]
struct Results {
    rows: Vec<Row>,
    absent: Vec<Absent>,
    pinned: bool,
}

impl Default for Results {
    fn default() -> Self {
        Self { rows: Vec::new(), absent: Vec::new(), pinned: true }
    }
}

impl Results {
    fn add(&mut self, (rows, absent): (Vec<Row>, Vec<Absent>)) {
        self.rows.extend(rows);
        self.absent.extend(absent);
    }
}

impl Report {
    /// Of what was measured on this machine alone.
    fn new(options: &Options, results: Results, link: &'static str) -> Self {
        let Results { rows, absent, pinned } = results;
        let machine = MachineAndSettings {
            machine: Machine::read(),
            link,
            interface: None,
            server_interface: None,
            server: None,
            pinned,
            rounds: options.rounds,
            seconds: options.seconds.as_secs_f64(),
            absent,
        };
        Self { machine, rows }
    }

    /// Prints, draws, and says whether all that was tried went well.
    fn present(&self, options: &Options) -> Result<ExitCode> {
        let absent = &self.machine.absent;
        for line in row::lines_of_absent(absent) {
            eprintln!("{line}");
        }
        if let Some(path) = &options.plot {
            report::write(path, self)?;
        }
        if options.json {
            style::print_json(self)?;
        } else {
            style::print(&report::describe(self, Style::of_stdout()))?;
        }
        let failed = absent.iter().any(|absent| absent.failed);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
