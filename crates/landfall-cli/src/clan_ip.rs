//! `landfall clan-ip`: an interface of the kernel whose packets travel by DMA into
//! memory of other hosts: the options, the run until somebody ends it, and what was done, in
//! a line for each second and at the end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall::clan::ip::{ClanIp, ClanIpStats, MTU_MAX, Neighbour};
use landfall::clan::network::{HostId, Peer, Transport, read_preshared_key};
use landfall_transport::signals::Endings;
use landfall_transport::udp::UdpConfig;

use crate::style;

const EXAMPLES: &str = "\
Examples, at two hosts:
  landfall clan-ip --host 1 --bind 192.0.2.1:7100 --neighbour 2=192.0.2.2:7100 --address 10.7.0.1/24
  landfall clan-ip --host 2 --bind 192.0.2.2:7100 --neighbour 1=192.0.2.1:7100 --address 10.7.0.2/24

Directly on Ethernet (0x88b5), without IP below:
  landfall clan-ip --host 1 --interface eth1 --neighbour 2=02:00:00:00:00:02 --address 10.7.0.1/24

What leaves the host is encrypted, with the identity of the user; with a key file (head -c 32
/dev/urandom > clan.key && chmod 600 clan.key) that all hosts have nobody else takes part.

It needs CAP_NET_ADMIN, runs until SIGINT or SIGTERM (or for as long as --seconds says),
and leaves nothing behind. Any number of hosts can be neighbours; connections are made at
the first packet. MTU and buffers have to be the same at all of them.";

/// Options of `landfall clan-ip`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The number of this host, 0 to 16383, different at each
    #[arg(long, value_parser = host)]
    host: HostId,
    /// The UDP address of this host
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        required_unless_present = "interface",
        conflicts_with = "interface"
    )]
    bind: Option<SocketAddr>,
    /// The MTU of the network that the UDP address is on
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u32).range(1280..=65_536))]
    lower_mtu: u32,
    /// The Ethernet interface of this host, instead of UDP
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// Another host: its number, and its UDP or Ethernet address
    #[arg(long, value_name = "HOST=ADDRESS", required = true)]
    neighbour: Vec<Neighbour>,
    /// The name of the new interface
    #[arg(long, default_value = "clan0")]
    name: String,
    /// Its MTU: 1280 to 65521, or `max`
    #[arg(long, default_value = "16384", value_parser = mtu)]
    mtu: u32,
    /// An address for it, with the length of its subnet's prefix; `ip address add` gives it more
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = crate::bigmtu::address)]
    address: Option<(IpAddr, u8)>,
    /// Buffers of 64 KiB for each host that sends to this one
    #[arg(long, default_value_t = 128)]
    buffers: u32,
    /// A file of 32 random bytes that all hosts have, readable by its owner alone
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A line of statistics every this many seconds; 0: only at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    stats: u64,
    /// End by itself after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
}

fn mtu(text: &str) -> Result<u32, String> {
    match text {
        "max" => Ok(MTU_MAX),
        _ => text.parse().map_err(|_| format!("{text:?} is no number of bytes")),
    }
}

fn host(text: &str) -> Result<HostId, String> {
    let host = text.parse().ok().and_then(HostId::new);
    host.ok_or_else(|| format!("{text:?} is no host: 0 to {} are", HostId::MAX))
}

fn transport(args: &Args) -> Result<Transport> {
    let is_udp = |neighbour: &&Neighbour| matches!(neighbour.peer, Peer::Socket(_));
    let on_udp = args.neighbour.iter().filter(is_udp).count();
    match (args.bind, &args.interface) {
        (Some(address), None) => {
            ensure!(on_udp == args.neighbour.len(), "with --bind, neighbours have UDP addresses");
            Ok(Transport::udp_with(UdpConfig::new(address, args.lower_mtu)))
        }
        (None, Some(interface)) => {
            ensure!(on_udp == 0, "with --interface, neighbours have Ethernet addresses");
            Ok(Transport::ethernet(interface.as_str()))
        }
        _ => bail!("one of --bind and --interface is needed"),
    }
}

/// Runs until it is told to end.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let mut builder = ClanIp::builder(args.host, transport(args)?)
        .name(args.name.as_str())
        .mtu(args.mtu)
        .buffers(args.buffers);
    if let Some((address, prefix)) = args.address {
        builder = builder.address(address, prefix);
    }
    for Neighbour { host, peer } in &args.neighbour {
        builder = builder.neighbour(*host, *peer);
    }
    if let Some(file) = &args.key_file {
        let key = read_preshared_key(file)?;
        builder = builder.node(|node| node.preshared_key(key));
    }
    let clan = builder.start()?;
    let key = clan.fingerprint().map_or_else(String::new, |key| format!(", key {key}"));
    let (name, host, mtu, others) = (clan.name(), args.host, clan.mtu(), args.neighbour.len());
    style::print(&format!("{name} is up: {host}, MTU {mtu}, neighbours: {others}{key}\n"))?;
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut last = (Instant::now(), clan.stats());
    let mut is_over = false;
    while !is_over && clan.is_running() {
        is_over = endings.wait(crate::bigmtu::pause(args.stats, last.0, until))?;
        is_over |= until.is_some_and(|until| Instant::now() >= until);
        if args.stats > 0 && last.0.elapsed() >= Duration::from_secs(args.stats) {
            let now = (Instant::now(), clan.stats());
            style::print(&line(&last.1, &now.1, now.0 - last.0))?;
            last = now;
        }
    }
    let name = clan.name().to_owned();
    let stats = clan.stop().context("it broke")?;
    style::print(&total(&name, &stats))?;
    Ok(ExitCode::SUCCESS)
}

/// What happened since the line before.
fn line(last: &ClanIpStats, now: &ClanIpStats, time: Duration) -> String {
    let rate = |last: u64, now: u64| (now - last) as f64 / time.as_secs_f64();
    format!(
        "out {:8.0} packets/s {:7.1} MB/s   in {:8.0} packets/s {:7.1} MB/s   waited for a \
         cookie {:4.1} %   dropped {}\n",
        rate(last.sent, now.sent),
        rate(last.sent_bytes, now.sent_bytes) / 1e6,
        rate(last.received, now.received),
        rate(last.received_bytes, now.received_bytes) / 1e6,
        share(now.waited - last.waited, now.sent - last.sent),
        now.dropped - last.dropped,
    )
}

/// What happened altogether.
fn total(name: &str, stats: &ClanIpStats) -> String {
    let ClanIpStats { sent, sent_bytes, received, received_bytes, waited, .. } = *stats;
    let ClanIpStats { dropped, not_taken, connections, misbehaved, without_keys, .. } = *stats;
    format!(
        "{name} is gone. Out: {sent} packets, {:.1} MB, of which {waited} ({:.1} %) found no cookie \
         at once. In: {received} packets, {:.1} MB. Dropped: {dropped}; not taken by the kernel: \
         {not_taken}. Connections: {connections}; ended because the other side misbehaved: \
         {misbehaved}; not made, for the other side has no key that is known: {without_keys}.\n",
        sent_bytes as f64 / 1e6,
        share(waited, sent),
        received_bytes as f64 / 1e6,
    )
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_understood() {
        assert!(host("16383").is_ok() && host("16384").is_err() && host("-1").is_err());
    }

    #[test]
    fn nothing_sent_is_no_division_by_nothing() {
        let none = ClanIpStats::default();
        assert!(line(&none, &none, Duration::from_secs(1)).contains("0.0 %"));
        let some = ClanIpStats { sent: 200, waited: 5, received: 7, ..none };
        assert!(line(&none, &some, Duration::from_secs(2)).contains("2.5 %"));
        assert!(total("clan0", &some).contains("In: 7 packets"));
    }
}
