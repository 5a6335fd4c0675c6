//! The commands and their options.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use landfall_lab::workload::clan::process;
use landfall_lab::{connections, demo, doctor, papers, perf, reproduce};
use landfall_storage::files::command::Files;

use crate::transfer::{receive, send};
use crate::{
    bigmtu, bigmtu_ask, capture, carry, clan_ip, decrypt, files, install, leaving, nbd, proxy, run,
    scsi, serve,
};

const EXAMPLES: &str = "\
Examples:
  landfall doctor                     what this machine can do
  landfall demo                       no privileges, under half a minute
  landfall receive --dir incoming     prints a code, and takes files from who knows it
  landfall send file.iso host.example
  landfall perf local                 drivers against kernel TCP and UDP
  sudo landfall perf local --veth     the same between two namespaces
  landfall perf server                on one machine, and `landfall perf client HOST` on another
  landfall decrypt --help             captures of encrypted connections, with a key log
  sudo landfall serve echo            a service for `nc` and other socket programs
  sudo landfall serve http --dir .    files, for curl and browsers
  landfall proxy --help               connections of this machine's TCP over queue pairs, and back
  landfall run -- redis-server        a program as it is, over shared memory
  landfall ss                         the connections of such programs, and why some stay TCP
  landfall carry --help               the same between hosts, by STP or by queue pairs
  landfall nbd serve --help           block devices for nbdcopy, qemu, fio and the kernel
  landfall scsi serve --help          the same for initiators of iSCSI
  landfall files serve --help         a directory for other hosts to mount
  sudo landfall bigmtu --lower eth1   a large MTU above an ordinary link
  landfall paper stp                  the tables of a paper, live, ours beside its own
  sudo landfall paper qpip            the figure of another: a file system on a block device
  landfall paper defrag               the tables of a paper, ours beside its own
  landfall paper clan                 the figures of another, the kernel's sockets beside
  landfall reproduce --out papers     all of their tables and figures from a model, as a page

Exit codes:
  0  done
  1  something failed, and stderr says what
  2  the arguments make no sense
  3  `doctor --require`: a required feature is missing
  130, 143  ended by SIGINT (Ctrl-C) or SIGTERM in the middle of its work
`run` ends as its program does";

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
    /// Echo, discard, source or files by HTTP, for any socket program or others of this family
    Serve(Box<serve::Serve>),
    /// Pass connections on: from this machine's TCP to queue pairs, or back
    Proxy(proxy::Args),
    /// Record what goes over an interface, or what a command sends and receives, as pcapng
    Capture(capture::Args),
    /// Open a capture of encrypted connections with a key log
    Decrypt(decrypt::Args),
    /// Send files and folders to a machine where `landfall receive` runs
    Send(send::Args),
    /// Receive files and folders from anyone who knows the code
    Receive(receive::Args),
    /// Run a program as it is: its TCP connections within this host become shared memory
    Run(run::Args),
    /// Carry what programs under `run` say to other hosts, by STP or by queue pairs
    Carry(carry::Args),
    /// The connections of programs under `run`: how their bytes go, and why
    Ss(connections::Args),
    /// The same again and again, with rates; or for Prometheus
    Top(connections::top::Args),
    /// An interface with an MTU of up to 64 KiB above an ordinary link
    Bigmtu(bigmtu::Args),
    /// Ask for a fast stream through such an interface
    BigmtuAsk(bigmtu_ask::Args),
    /// An interface whose packets travel by DMA into memory of other hosts
    ClanIp(clan_ip::Args),
    /// Network block devices: serve them to any client, copy, look and measure
    #[command(subcommand)]
    Nbd(nbd::Nbd),
    /// Block devices as logical units of a target of iSCSI
    #[command(subcommand)]
    Scsi(scsi::Scsi),
    /// A directory for other hosts and processes: serve it, mount it
    #[command(subcommand)]
    Files(Files),
    /// The figures of the papers, ours beside theirs
    #[command(subcommand)]
    Paper(Paper),
    /// Every table and figure of the papers, from the model of their adapters
    Reproduce(reproduce::Args),
    /// Print completions for a shell
    Completions(install::CompletionsArgs),
    /// Write pages for `man`
    Man(install::ManArgs),
    /// The other process of a measurement: started by this program, not by people
    #[command(hide = true)]
    Peer(process::Args),
    /// The other process of the demonstration, likewise
    #[command(hide = true)]
    DemoPeer,
}

impl Command {
    /// It runs until it is told to end, and takes down itself what it has set up; or it
    /// becomes another program, which shall find signals as they were.
    const fn waits_for_signals(&self) -> bool {
        if let Self::Nbd(command) = self {
            return command.waits_for_signals();
        }
        matches!(
            self,
            Self::Perf(Perf::Server(_))
                | Self::Serve(_)
                | Self::Scsi(_)
                | Self::Files(_)
                | Self::Proxy(_)
                | Self::Capture(_)
                | Self::Send(_)
                | Self::Receive(_)
                | Self::Run(_)
                | Self::Carry(_)
                | Self::Top(_)
                | Self::Bigmtu(_)
                | Self::ClanIp(_)
                | Self::Peer(_)
                | Self::DemoPeer
        )
    }
}

#[derive(Debug, Subcommand)]
enum Perf {
    /// The other end of `client`
    Server(perf::net::server::Args),
    /// The other end in another program, perhaps on another machine, by `server` there
    Client(perf::net::client::Args),
    /// Measure with a server, and write a page of it to send in
    Report(perf::net::page::Args),
    /// Both ends on this machine, interleaved with kernel TCP and UDP
    Local(perf::local::Args),
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// STP: Tables 1 and 2
    Stp(papers::stp::Args),
    /// QPIP: Figure 7, a file system on a network block device
    Qpip(papers::qpip::Args),
    /// Speculative defragmentation: Tables 1 and 2
    Defrag(papers::defrag::Args),
    /// CLAN: Figures 7 to 10, Table 1 and the event-driven server
    Clan(papers::clan::Args),
}

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if !self.command.waits_for_signals() {
            leaving::clean_up_at_signals()?;
        }
        match self.command {
            Command::Doctor(args) => doctor::run(&args),
            Command::Perf(Perf::Server(args)) => perf::net::server::run(&args),
            Command::Perf(Perf::Client(args)) => perf::net::client::run(&args),
            Command::Perf(Perf::Report(args)) => perf::net::page::run(&args),
            Command::Perf(Perf::Local(args)) => perf::local::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Serve(serve) => serve.run(),
            Command::Proxy(args) => proxy::run(&args),
            Command::Capture(args) => capture::run(&args),
            Command::Decrypt(args) => decrypt::run(&args),
            Command::Send(args) => send::run(&args),
            Command::Receive(args) => receive::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Carry(args) => carry::carry(&args),
            Command::Ss(args) => connections::run(&args),
            Command::Top(args) => connections::top::run(&args),
            Command::Bigmtu(args) => bigmtu::run(&args),
            Command::BigmtuAsk(args) => bigmtu_ask::run(&args),
            Command::ClanIp(args) => clan_ip::run(&args),
            Command::Nbd(command) => command.run(),
            Command::Scsi(command) => command.run(),
            Command::Files(command) => files::run(&command),
            Command::Paper(Paper::Stp(args)) => papers::stp::run(&args),
            Command::Paper(Paper::Qpip(args)) => papers::qpip::run(&args),
            Command::Paper(Paper::Defrag(args)) => papers::defrag::run(&args),
            Command::Paper(Paper::Clan(args)) => papers::clan::run(&args),
            Command::Reproduce(args) => reproduce::run(&args),
            Command::Completions(args) => install::completions(&args),
            Command::Man(args) => install::man(&args),
            Command::DemoPeer => demo::answer().map(|()| ExitCode::SUCCESS),
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
