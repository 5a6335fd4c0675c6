//! `landfall serve`: the services that every stack of protocols once had, for whatever
//! wants to talk to one of ours.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the options, what the three services do, and the run until somebody ends it |
//! | `ledger` | who came, what was moved, and what is said about it |
//! | `http` | files by HTTP, over queue pairs |
//! | `tasks` | what servers have in common that are made of tasks, `http` and `landfall proxy` |
//! | `qpip` | over queue pairs: TCP and UDP, for any socket program |
//! | `stp` | over the Scheduled Transfer Protocol |
//! | `clan` | over shared memory with tripwires, as calls between hosts |
//! | `shared` | the same within this host, as byte streams |

mod clan;
mod http;
pub(crate) mod ledger;
mod qpip;
mod shared;
mod stp;
pub(crate) mod tasks;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use landfall_services::simple::{PERIOD, answers_anything, characters};
use landfall_transport::signals::Endings;
use serde::Serialize;

use crate::adapter::LinkArgs;
use crate::{leaving, style};
use landfall_lab::exporter::Exporter;
use ledger::Ledger;
use tasks::RunArgs;

const EXAMPLES: &str = "\
Examples:
  sudo landfall serve echo -v                     a cable to this machine's kernel; then: nc 10.9.0.2 7
  sudo landfall serve http --dir public           files; then: curl http://10.9.0.2/
  sudo landfall serve source --interface eth0 --address 192.168.1.77/24
                                                  a station of its own, for others on that network
  landfall serve echo --tunnel 127.0.0.1:8118     without privileges: frames inside of UDP
  landfall serve discard --over stp               Transfers over UDP, port 8181 of this host
  landfall serve echo --over clan --once --json   calls over UDP, port 8182; ends after one client
  landfall serve echo --over clan --shared /run/user/1000
                                                  byte streams through memory, for this host;
                                                  then: cargo run --example talk -- clan:///run/user/1000#echo

echo (RFC 862) sends back what comes, discard (RFC 863) throws it away, source (RFC 864,
`chargen`) sends characters without end. Over QPIP each serves TCP and UDP, and the other
side may be any program with sockets. UDP from ports of such services is not answered:
two of them would answer each other for ever.

It runs until SIGINT or SIGTERM (or for as long as --seconds says), and leaves nothing
behind. A second signal ends it at once.";

/// What `landfall serve` serves.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Serve {
    #[command(subcommand)]
    files: Option<Files>,
    #[command(flatten)]
    args: Args,
}

#[derive(Debug, Subcommand)]
enum Files {
    /// The files of a directory by HTTP/1.1 or HTTPS, over queue pairs
    Http(Box<http::Args>),
}

impl Serve {
    /// Serves until it is told to end.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match (&self.files, self.args.named) {
            (Some(Files::Http(args)), _) => http::run(args),
            (None, Some(service)) => run(&Args { service, ..self.args.clone() }),
            (None, None) => bail!("say what to serve: echo, discard, source or http"),
        }
    }
}

/// Options of a service that is known at a port of its own.
#[derive(Clone, Debug, clap::Args)]
struct Args {
    /// What is done with whatever comes
    #[arg(value_enum, value_name = "SERVICE", required = true)]
    named: Option<Service>,
    /// The same, once it is known that it is none of the subcommands.
    #[arg(skip = Service::Echo)]
    service: Service,
    /// What carries it
    #[arg(long, value_enum, default_value = "qpip")]
    over: Protocol,
    #[command(flatten)]
    link: LinkArgs,
    /// The address that clients talk to: over QPIP with the length of its prefix
    /// [default: 10.9.0.2/24 on a TAP interface or in a tunnel]; over STP and CLAN the UDP
    /// address of this host [default: 0.0.0.0, port 8181 or 8182]
    #[arg(long, value_name = "ADDRESS[/PREFIX|:PORT]")]
    address: Option<String>,
    /// The port of TCP and UDP, of STP or of CLAN [default: 7, 9 or 19]
    #[arg(long)]
    port: Option<u16>,
    /// Serve processes of this user on this host, over CLAN, through memory that both have:
    /// they meet in this folder, where the service has its name
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["interface", "tap", "tunnel", "address", "port", "host"])]
    shared: Option<PathBuf>,
    /// The number of this host, over CLAN
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..4096))]
    host: u16,
    /// Serve this many clients at a time; over QPIP others wait for a place: anyone who is silent
    /// for ten seconds, or of a host that has more than three quarters of them, makes room
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// End when the first client has gone
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    /// Queue pairs on TCP, UDP and IP of their own
    Qpip,
    /// The Scheduled Transfer Protocol
    Stp,
    /// Shared memory with tripwires
    Clan,
}

impl Args {
    fn port(&self) -> u16 {
        self.port.unwrap_or_else(|| self.service.port())
    }

    /// The UDP address of STP and CLAN, where the port may be left out.
    fn socket(&self, usual_port: u16) -> Result<SocketAddr> {
        let Some(text) = self.address.as_deref() else {
            return Ok(SocketAddr::from(([0, 0, 0, 0], usual_port)));
        };
        let parsed: Result<SocketAddr, _> = text.parse();
        let with_port = || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, usual_port));
        parsed.ok().or_else(with_port).with_context(|| {
            format!("`{text}` is no UDP address: 127.0.0.1 or 127.0.0.1:{usual_port} would be")
        })
    }

    /// Options that mean nothing with what carries it are no wish that was fulfilled.
    fn check(&self) -> Result<()> {
        if self.shared.is_some() && self.over != Protocol::Clan {
            bail!("--shared means nothing here: leave it out, or use --over clan");
        }
        if self.over == Protocol::Qpip {
            return Ok(());
        }
        match self.link.first_given() {
            // STP and CLAN go by an interface, too, which has an address already.
            Some("--interface") if self.address.is_none() => Ok(()),
            Some(name) => {
                let beside = if name == "--interface" { " beside --address" } else { "" };
                bail!("{name}{beside} means nothing here: leave it out, or use --over qpip")
            }
            None => Ok(()),
        }
    }
}

/// How often a server looks whether it shall end, while nothing comes.
const TICK: Duration = Duration::from_millis(20);

fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    args.check()?;
    let exporter = args.run.metrics.clone().map(Exporter::listen).transpose()?;
    let ledger = Ledger::new(args.run.verbose, args.run.json, args.once).exporting(exporter);
    let ledger = Arc::new(ledger);
    let (started, serving) = (Instant::now(), Arc::clone(&ledger));
    let (options, body) = (
        args.clone(),
        match (args.over, &args.shared) {
            (Protocol::Qpip, _) => qpip::serve,
            (Protocol::Stp, _) => stp::serve,
            (Protocol::Clan, None) => clan::serve,
            (Protocol::Clan, Some(_)) => shared::serve,
        },
    );
    let serve = move || body(&options, &serving);
    let ended = supervise(&endings, &ledger, args.run.seconds, serve)?;
    let summary = Summary {
        service: args.service,
        over: args.over,
        port: args.shared.is_none().then(|| args.port()),
        seconds: started.elapsed().as_secs_f64(),
        ended,
        counts: ledger.counts(),
    };
    if args.run.json {
        style::print_json(&summary)?;
    } else {
        style::print(&summary.describe())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a server in a thread of its own until it ends or somebody ends it; says why it did.
pub(crate) fn supervise(
    endings: &Endings,
    ledger: &Ledger,
    seconds: Option<u64>,
    body: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<&'static str> {
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let server = thread::Builder::new().name("landfall-serve".into()).spawn(body)?;
    let mut ended = "the first client has gone";
    while !server.is_finished() {
        if endings.wait(TICK)? {
            leaving::end_at_next_signal(endings)?;
            ended = "a signal";
            break;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            ended = "the time is over";
            break;
        }
    }
    ledger.end();
    match server.join() {
        Ok(outcome) => outcome.map(|()| ended),
        Err(_) => bail!("the serving thread panicked"),
    }
}

#[derive(Debug, Serialize)]
struct Summary {
    service: Service,
    over: Protocol,
    /// Within this host services have names.
    port: Option<u16>,
    seconds: f64,
    ended: &'static str,
    #[serde(flatten)]
    counts: ledger::Counts,
}

impl Summary {
    fn describe(&self) -> String {
        let ledger::Counts { clients, most_at_once, turned_away, .. } = self.counts;
        let mut text = format!(
            "ended after {:.1} s: {}; {clients} clients, {most_at_once} at a time at most, \
             {turned_away} turned away; {} came, {} went",
            self.seconds,
            self.ended,
            style::bytes(self.counts.received_bytes),
            style::bytes(self.counts.sent_bytes),
        );
        if self.over == Protocol::Qpip {
            let ledger::Counts { datagrams_received, datagrams_sent, .. } = self.counts;
            text += &format!("; {datagrams_received} datagrams came, {datagrams_sent} went");
        }
        text + "\n"
    }
}

/// What is done with whatever comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Service {
    /// Send back what comes (RFC 862)
    Echo,
    /// Throw away what comes (RFC 863)
    Discard,
    /// Send characters, whatever comes (RFC 864)
    Source,
}

impl Service {
    /// The port that it is known at.
    const fn port(self) -> u16 {
        match self {
            Self::Echo => 7,
            Self::Discard => 9,
            Self::Source => 19,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Discard => "discard",
            Self::Source => "source",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct LogLine {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        let args = LogLine::try_parse_from(line.split(' ')).unwrap().args;
        Args { service: args.named.unwrap(), ..args }
    }

    #[test]
    fn ports_are_those_of_the_services_unless_another_is_wanted() {
        assert_eq!(args("serve echo").port(), 7);
        assert_eq!(args("serve discard").port(), 9);
        assert_eq!(args("serve source").port(), 19);
        assert_eq!(args("serve source --port 1900").port(), 1900);
    }

    #[test]
    fn a_udp_address_may_leave_its_port_out() {
        let socket = |line: &str| args(line).socket(8181).map(|socket| socket.to_string());
        assert_eq!(socket("serve echo").unwrap(), "0.0.0.0:8181");
        assert_eq!(socket("serve echo --address 127.0.0.1").unwrap(), "127.0.0.1:8181");
        assert_eq!(socket("serve echo --address ::1").unwrap(), "[::1]:8181");
        assert_eq!(socket("serve echo --address 127.0.0.1:9").unwrap(), "127.0.0.1:9");
        assert!(socket("serve echo --address 10.0.0.1/24").is_err());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for line in ["--over stp --tap x", "--over clan --tunnel 127.0.0.1:1", "--shared /tmp"] {
            assert!(args(&format!("serve echo {line}")).check().is_err(), "{line}");
        }
        args("serve echo --over stp --address 127.0.0.1:0").check().unwrap();
    }
}
