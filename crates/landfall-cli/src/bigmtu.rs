//! `landfall bigmtu`: an interface with a large MTU above a link with an ordinary one: the
//! options, the run until somebody ends it, and what was done, in a line for each second and
//! at the end.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use landfall::defrag::bigmtu::{Amount, BigMtu, BigMtuStats, MTU_MAX, TcpMode};
use landfall::defrag::{Prediction, Technique, read_preshared_key};
use landfall_transport::signals::Endings;

use crate::style;

const EXAMPLES: &str = "\
Examples, at both ends of a link whose interface has no address:
  landfall bigmtu --lower eth1 --mtu 9000 --address 10.9.0.1/24
  landfall bigmtu --lower eth1 --name big0 --stats 1

It runs until SIGINT or SIGTERM (or for as long as --seconds says), and leaves nothing
behind. What arrives at the lower interface is kept from the kernel meanwhile (nft). The
other end may be an ordinary kernel: its IP joins what is cut here.";

/// Options of `landfall bigmtu`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface below, without an address, whose MTU is too small
    #[arg(long, value_name = "INTERFACE")]
    lower: String,
    /// The name of the new interface
    #[arg(long, default_value = "big0")]
    name: String,
    /// Its MTU: 4096 to 65521, or `max`; 65535 and 65536 mean the same as `max`
    #[arg(long, default_value = "max", value_parser = mtu)]
    mtu: u32,
    /// An address for it, with the length of its subnet's prefix; `ip address add` gives it more
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = address)]
    address: Option<(IpAddr, u8)>,
    /// How TCP that comes here crosses the link
    #[arg(long, value_enum, default_value = "segments")]
    tcp: Tcp,
    /// Ask each station before much is sent to it in packets that are cut, and let one at a time
    /// send them fast; keys are the identities of the users, or in a file that all have
    #[arg(long, value_name = "identity|clear|FILE", value_parser = protection)]
    admission: Option<Protection>,
    /// A socket at this path, for `landfall bigmtu-ask`
    #[arg(long, value_name = "PATH", requires = "admission")]
    control: Option<PathBuf>,
    /// Queues, each with a thread each way: one for each two processors, up to 4, if not said
    #[arg(long, value_name = "COUNT")]
    queues: Option<u16>,
    /// How frames come in
    #[arg(long, value_enum, default_value = "packet")]
    technique: ReceiveDriver,
    /// Guess nothing: join by copying, for comparison
    #[arg(long)]
    conventional: bool,
    /// A line of statistics every this many seconds; 0: only at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    stats: u64,
    /// End by itself after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tcp {
    /// In segments that fit its frames: the kernel passes them
    Segments,
    /// In segments of the large MTU, cut and joined
    Fragments,
}

/// What protects the requests of admission control.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Protection {
    Identity,
    Clear,
    Key(PathBuf),
}

fn protection(text: &str) -> Result<Protection, String> {
    match text {
        "identity" => Ok(Protection::Identity),
        "clear" => Ok(Protection::Clear),
        "" => Err("give a file with a key, or `identity`, or `clear`".to_owned()),
        file => Ok(Protection::Key(file.into())),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReceiveDriver {
    /// One call takes a burst, each frame into its place
    Packet,
    /// The same by way of io_uring
    PacketUring,
    /// Frames lie in a mapped ring: less CPU, a millisecond more delay
    PacketRing,
    /// AF_XDP
    Xdp,
}

impl From<ReceiveDriver> for Technique {
    fn from(by: ReceiveDriver) -> Self {
        match by {
            ReceiveDriver::Packet => Self::Packet,
            ReceiveDriver::PacketUring => Self::PacketUring,
            ReceiveDriver::PacketRing => Self::PacketRing,
            ReceiveDriver::Xdp => Self::Xdp,
        }
    }
}

fn mtu(text: &str) -> Result<u32, String> {
    match text {
        "max" | "64k" | "65535" | "65536" => Ok(MTU_MAX),
        _ => text.parse().map_err(|_| format!("{text:?} is no number of bytes")),
    }
}

/// An address and the length of its subnet's prefix.
pub(crate) fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let parse = || {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
    };
    parse().ok_or_else(|| format!("{text:?} is none: 10.9.0.1/24 or fd00::1/64 would be"))
}

/// Runs until it is told to end.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let mut builder = BigMtu::builder(args.lower.as_str())
        .name(args.name.as_str())
        .mtu(args.mtu)
        .tcp(match args.tcp {
            Tcp::Segments => TcpMode::Segments,
            Tcp::Fragments => TcpMode::Fragments,
        })
        .technique(args.technique.into());
    if let Some((address, prefix)) = args.address {
        builder = builder.address(address, prefix);
    }
    builder = args.queues.into_iter().fold(builder, |builder, count| builder.queues(count));
    if args.conventional {
        builder = builder.prediction(Prediction::Off);
    }
    builder = match &args.admission {
        None => builder,
        Some(Protection::Identity) => builder.admission(),
        Some(Protection::Clear) => builder.admission().plaintext(),
        Some(Protection::Key(file)) => builder.admission().preshared_key(read_preshared_key(file)?),
    };
    if let Some(path) = &args.control {
        builder = builder.control_socket(path);
    }
    let big = builder.start()?;
    let passing = match (args.tcp, big.is_passed_by_kernel()) {
        (Tcp::Segments, true) => "; what fits is passed by the kernel",
        (Tcp::Segments, false) => "; the kernel cannot pass what fits (TCX, Linux 6.6)",
        (Tcp::Fragments, _) => "",
    };
    style::print(&format!(
        "{} is up: MTU {} above {} with {}; frames come by {}{passing}\n",
        big.name(),
        big.mtu(),
        args.lower,
        big.lower_mtu(),
        big.chosen().technique
    ))?;
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut last = (Instant::now(), big.stats());
    let mut is_over = false;
    while !is_over && big.is_running() {
        is_over = endings.wait(pause(args.stats, last.0, until))?;
        is_over |= until.is_some_and(|until| Instant::now() >= until);
        if args.stats > 0 && last.0.elapsed() >= Duration::from_secs(args.stats) {
            let now = (Instant::now(), big.stats());
            style::print(&line(&last.1, &now.1, now.0 - last.0))?;
            last = now;
        }
    }
    let name = big.name().to_owned();
    let stats = big.stop().context("the link broke")?;
    style::print(&format!("{name} is gone.\n{stats}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Until something is to be done; never long, so that a broken link is noticed.
pub(crate) fn pause(stats: u64, last: Instant, until: Option<Instant>) -> Duration {
    const LONGEST: Duration = Duration::from_millis(200);
    let line = (stats > 0).then(|| last + Duration::from_secs(stats));
    let now = Instant::now();
    let next = [line, until].into_iter().flatten().min();
    next.map_or(LONGEST, |next| next.saturating_duration_since(now).min(LONGEST))
}

/// What was done between two moments.
fn line(before: &BigMtuStats, now: &BigMtuStats, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let rate = |now: Amount, before: Amount| {
        let (packets, bytes) = (now.packets - before.packets, now.bytes - before.bytes);
        format!(
            "{:.3} GB/s, {:.0} packets/s",
            bytes as f64 / 1e9 / seconds,
            packets as f64 / seconds
        )
    };
    let (joined, earlier) = (&now.joined.joined, &before.joined.joined);
    let (into, out) = (
        rate(now.to_kernel + now.passed_up, before.to_kernel + before.passed_up),
        rate(now.from_kernel + now.passed_down, before.from_kernel + before.passed_down),
    );
    format!(
        "in {into}; out {out}; joined in place {}, by copying {}, passed as they came {}\n",
        joined.speculated - earlier.speculated,
        joined.conventional - earlier.conventional,
        joined.whole - earlier.whole,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_addresses_are_understood() {
        assert_eq!(mtu("max"), Ok(MTU_MAX));
        assert_eq!(mtu("65536"), Ok(MTU_MAX));
        assert_eq!(mtu("9000"), Ok(9000));
        assert!(mtu("much").is_err());
        assert_eq!(protection("big.key"), Ok(Protection::Key("big.key".into())));
        assert_eq!(protection("clear"), Ok(Protection::Clear));
        assert_eq!(address("10.9.0.1/24"), Ok(([10, 9, 0, 1].into(), 24)));
        assert!(address("fd00::1/64").is_ok());
        for bad in ["10.9.0.1", "10.9.0.1/33", "x/8", "fd00::1/129"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
