//! `landfall`: what this machine can do, a demonstration, and measurements.
//!
//! | module | what it is |
//! | --- | --- |
//! | `cli` | the commands and their options |
//! | `run` | a program as it is, over shared memory |
//! | `carry` | what such programs say to other hosts, by STP or by queue pairs |
//! | `bigmtu` | an interface with a large MTU above a link with an ordinary one |
//! | `bigmtu_ask` | requests for a fast stream through that |
//! | `clan_ip` | an interface whose packets travel by DMA |
//! | `nbd` | network block devices, served and used |
//! | `scsi` | block devices for initiators of iSCSI |
//! | `serve` | echo, discard, source and files by HTTP, for whatever wants to talk to our protocols |
//! | `proxy` | connections of a kernel's TCP passed on to queue pairs, and back |
//! | `adapter` | the adapter and the link that such services have of their own |
//! | `endpoint` | the endpoint of STP likewise, and how it is encrypted |
//! | `capture` | frames of an interface, or of a command's own network, as pcapng |
//! | `decrypt` | captures of encrypted connections, opened with a key log |
//! | `install` | completions for shells, and pages for `man` |
//! | `transfer` | files and folders, sent and received |
//!
//! What measures and reproduces is the laboratory, `landfall-lab`: `doctor`, `demo`, `perf`, `paper` and
//! `reproduce` are commands of it. So is what both print by: `style`, `machine`, `printable`,
//! and `leaving`, what is taken away however the program ends.

#![forbid(unsafe_code)]

mod adapter;
mod bigmtu;
mod bigmtu_ask;
mod capture;
mod carry;
mod clan_ip;
mod cli;
mod decrypt;
mod endpoint;
mod files;
mod install;
mod nbd;
mod proxy;
mod run;
mod scsi;
mod serve;
#[cfg(test)]
mod stale;
mod transfer;

use std::process::ExitCode;

use clap::Parser;
use landfall_lab::{leaving, printable, style};

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let ended = cli.run();
    leaving::leave_the_end_to_signals();
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("landfall: {}", printable::printable_lines(&style::causes(&error)));
            ExitCode::FAILURE
        }
    }
}
