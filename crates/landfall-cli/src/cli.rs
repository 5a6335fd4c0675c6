//! The commands and their options.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::lane::clan::process;
use crate::{bigmtu, clan_ip, defrag, demo, doctor, perf};

const EXAMPLES: &str = "\
Examples:
  landfall doctor                     what this machine can do
  landfall demo                       no privileges, under half a minute
  landfall perf local                 drivers against kernel TCP and UDP
  sudo landfall perf local --veth     the same between two namespaces
  sudo landfall bigmtu --lower eth1   a large MTU above an ordinary link
  landfall paper defrag               the tables of a paper, ours beside its own

Exit codes:
  0  done
  1  something failed, and stderr says what
  2  the arguments make no sense
  3  `doctor --require`: a required feature is missing";

/// Every byte has its place before it arrives.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What this machine can do, and for each missing thing what to do about it
    Doctor(doctor::Args),
    /// Measure transports beside the kernel's own
    #[command(subcommand)]
    Perf(Perf),
    /// See it work: no privileges, under half a minute
    Demo(demo::Args),
    /// An interface with an MTU of up to 64 KiB above an ordinary link
    Bigmtu(bigmtu::Args),
    /// An interface whose packets travel by DMA into memory of other hosts
    ClanIp(clan_ip::Args),
    /// The figures of the papers, ours beside theirs
    #[command(subcommand)]
    Paper(Paper),
    /// The other process of a measurement: started by this program, not by people
    #[command(hide = true)]
    Peer(process::Args),
}

#[derive(Debug, Subcommand)]
enum Perf {
    /// Both ends on this machine, interleaved with kernel TCP and UDP
    Local(perf::Args),
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// Speculative defragmentation: Tables 1 and 2
    Defrag(defrag::Args),
}

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Doctor(args) => doctor::run(&args),
            Command::Perf(Perf::Local(args)) => perf::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Bigmtu(args) => bigmtu::run(&args),
            Command::ClanIp(args) => clan_ip::run(&args),
            Command::Paper(Paper::Defrag(args)) => defrag::run(&args),
            Command::Peer(args) => process::answer(&args).map(|()| ExitCode::SUCCESS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_fit_together() {
        Cli::command().debug_assert();
    }
}
