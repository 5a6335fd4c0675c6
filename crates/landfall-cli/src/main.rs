//! `landfall`: what this machine can do, a demonstration, and measurements.
//!
//! | module | what it is |
//! | --- | --- |
//! | `cli` | the commands and their options |
//! | `doctor` | what this machine can do, and what to do about the rest |
//! | `perf` | drivers against kernel TCP and UDP, interleaved |
//! | `stp_paper`, `defrag`, `clan_paper` | the tables and figures of papers, ours beside them |
//! | `reproduce` | all tables and figures of the papers, from the model of their adapters |
//! | `run` | a program as it is, over shared memory |
//! | `carry` | what such programs say to other hosts, by STP or by queue pairs |
//! | `bigmtu` | an interface with a large MTU above a link with an ordinary one |
//! | `clan_ip` | an interface whose packets travel by DMA |
//! | `serve` | echo, discard and source, for whatever wants to talk to our protocols |
//! | `capture` | frames of an interface, or of a command's own network, as pcapng |
//! | `demo` | what the family does, in under half a minute |
//! | `install` | completions for shells, and pages for `man` |
//! | `leaving` | what is taken away however the program ends |
//! | `transfer` | files and folders, sent and received |
//! | `lane` | an engine at each end of a path, and work for both |
//! | `machine`, `style` | facts about this machine; words and colours |
//! | `printable` | what others say, safe to print |

#![forbid(unsafe_code)]

mod bigmtu;
mod capture;
mod carry;
mod clan_ip;
mod clan_paper;
mod cli;
mod defrag;
mod demo;
mod doctor;
mod install;
mod lane;
mod leaving;
mod machine;
mod perf;
mod printable;
mod reproduce;
mod run;
mod serve;
#[cfg(test)]
mod stale;
mod stp_paper;
mod style;
mod transfer;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("landfall: {}", printable::printable_lines(&style::causes(&error)));
            ExitCode::FAILURE
        }
    }
}
