//! `landfall`: what this machine can do, a demonstration, and measurements.
//!
//! | module | what it is |
//! | --- | --- |
//! | `cli` | the commands and their options |
//! | `doctor` | what this machine can do, and what to do about the rest |
//! | `perf` | drivers against kernel TCP and UDP, interleaved |
//! | `defrag` | the tables of a paper, from simulated traffic |
//! | `bigmtu` | an interface with a large MTU above a link with an ordinary one |
//! | `clan_ip` | an interface whose packets travel by DMA |
//! | `demo` | what the family does, in under half a minute |
//! | `lane` | an engine at each end of a path, and work for both |
//! | `machine`, `style` | facts about this machine; words and colours |

#![forbid(unsafe_code)]

mod bigmtu;
mod clan_ip;
mod cli;
mod defrag;
mod demo;
mod doctor;
mod lane;
mod machine;
mod perf;
mod style;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("landfall: {error:#}");
            ExitCode::FAILURE
        }
    }
}
