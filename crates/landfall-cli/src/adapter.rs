//! The adapter that a service has of its own, and the link that it is on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::qpip::{Adapter, Config, KeepAlive, Link, TapConfig, TcpConfig};

use crate::bigmtu;

/// Where a service is, if nothing else is said.
const USUAL_ADDRESS: &str = "10.9.0.2/24";
const USUAL_TAP: &str = "landfall0";

/// Which link, and what is on it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LinkArgs {
    /// Use this Ethernet interface, as a station of its own
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["tap", "tunnel"])]
    pub(crate) interface: Option<String>,
    /// Use a new TAP interface of this name: a cable to this machine's kernel (what
    /// QPIP does if nothing else is said, as landfall0)
    #[arg(long, value_name = "NAME", conflicts_with = "tunnel")]
    pub(crate) tap: Option<String>,
    /// Use frames inside of UDP at this address, for other queue pairs: needs no privileges
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) tunnel: Option<SocketAddr>,
    /// The other end of the tunnel [default: anyone who sends to this one]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "tunnel")]
    pub(crate) peer: Vec<SocketAddr>,
    /// The address of this machine's kernel on the TAP interface [default: the first of the
    /// subnet that is free]
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = bigmtu::address)]
    pub(crate) kernel: Option<(IpAddr, u8)>,
    /// Who forwards to other networks, over QPIP
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gateway: Option<IpAddr>,
}

impl LinkArgs {
    /// One of the options that somebody gave.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--tap", self.tap.is_some()),
            ("--tunnel", self.tunnel.is_some()),
            ("--kernel", self.kernel.is_some()),
            ("--gateway", self.gateway.is_some()),
            ("--interface", self.interface.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// The adapter, and its address: this one, with the length of its prefix.
    pub(crate) fn open(&self, address: Option<&str>) -> Result<(Adapter, IpAddr)> {
        let text = match (address, &self.interface) {
            (Some(address), _) => address,
            (None, None) => USUAL_ADDRESS,
            (None, Some(interface)) => bail!(
                "on {interface} an address of its own is needed, which no other host has: such as \
                 --address 192.168.1.77/24"
            ),
        };
        let (address, prefix) =
            bigmtu::address(text).map_err(anyhow::Error::msg).context("--address")?;
        let link = match (&self.interface, self.tunnel) {
            (Some(interface), _) => Link::packet(interface.as_str()),
            (None, Some(here)) => Link::tunnel(here, self.peer.iter().copied()),
            (None, None) => {
                let name = self.tap.as_deref().unwrap_or(USUAL_TAP);
                let kernel = self.kernel.or_else(|| Some((first_free(address, prefix)?, prefix)));
                let kernel_address = Some(kernel.with_context(|| {
                    format!(
                        "{text} has no room for this machine's kernel: give it one with --kernel"
                    )
                })?);
                Link::tap_with(TapConfig { kernel_address, ..TapConfig::new(name) })
            }
        };
        // Clients that went without a word leave their places to others.
        let keep_alive = KeepAlive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            probes: 6,
        };
        let tcp = TcpConfig { keep_alive: Some(keep_alive), ..TcpConfig::default() };
        let builder = Adapter::builder().link(link).address(text).mac(station(address));
        let builder = builder.config(Config { tcp, ..Config::default() });
        let builder = match self.gateway {
            Some(gateway) => builder.gateway(gateway.to_string()),
            None => builder,
        };
        let adapter = builder.open().context(
            "without privileges --tunnel works; else run as root, or with CAP_NET_ADMIN (TAP) or \
             CAP_NET_RAW (an interface)",
        )?;
        Ok((adapter, address))
    }
}

/// The address of the adapter of a server that listens there, with the length of a prefix.
pub(crate) fn listening_at(at: SocketAddr) -> String {
    format!("{}/{}", at.ip(), if at.is_ipv4() { 24 } else { 64 })
}

/// Why the link carries nothing any more, if it does not.
pub(crate) fn broken(adapter: &Adapter) -> Option<String> {
    adapter.links().into_iter().find_map(|link| link.broken)
}

/// Gives the last bytes of connections time to be sent and acknowledged: the adapter sends for as
/// long as something is to be sent again or came meanwhile.
pub(crate) fn see_off(adapter: &Adapter) {
    const QUIET: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(2);
    let until = Instant::now() + LONGEST;
    let mut before = None;
    while Instant::now() < until {
        let now = adapter.stats().segments_sent;
        if before.replace(now) == Some(now) {
            return;
        }
        thread::sleep(QUIET);
    }
}

/// A station address for an IP address: the same whenever it is served, for others
/// remember where they found it; locally administered, and nobody else's on a network
/// where nobody else has the IP address.
fn station(address: IpAddr) -> [u8; 6] {
    let bits = match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => address
            .octets()
            .as_chunks::<4>()
            .0
            .iter()
            .fold(0u32, |bits, word| bits.rotate_left(8) ^ u32::from_be_bytes(*word)),
    };
    let [a, b, c, d] = bits.to_be_bytes();
    [0x02, b'L', a, b, c, d]
}

/// The first address of a subnet that is not this one.
fn first_free(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    // The first is the network's name, the last is for all.
    let host_bits = u32::from(width - prefix.min(width));
    if host_bits < 2 {
        return None;
    }
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    let free = (1..=2).map(|nth| bits & mask | nth).find(|free| *free != bits)?;
    Some(match address {
        IpAddr::V4(_) => Ipv4Addr::from_bits(free as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(free).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_keeps_its_address_and_shares_it_with_nobody() {
        let of = |text: &str| station(text.parse().unwrap());
        assert_eq!(of("10.9.0.2"), [2, b'L', 10, 9, 0, 2]);
        let all = ["10.9.0.2", "10.9.0.3", "fd00::2", "fd00::3", "fd00:1::2"].map(of);
        for (nth, one) in all.iter().enumerate() {
            assert!(one[0] & 3 == 2 && !all[nth + 1..].contains(one), "{one:x?}");
        }
    }

    #[test]
    fn the_kernel_gets_an_address_that_is_free() {
        let first = |address: &str, prefix| {
            first_free(address.parse().unwrap(), prefix).map(|free| free.to_string())
        };
        assert_eq!(first("10.9.0.2", 24).as_deref(), Some("10.9.0.1"));
        assert_eq!(first("10.9.0.1", 24).as_deref(), Some("10.9.0.2"));
        assert_eq!(first("10.9.7.2", 16).as_deref(), Some("10.9.0.1"));
        assert_eq!(first("fd00::1", 64).as_deref(), Some("fd00::2"));
        assert_eq!(first("10.9.0.2", 31), None);
        assert_eq!(first("10.9.0.2", 32), None);
        assert_eq!(first("0.0.0.9", 0).as_deref(), Some("0.0.0.1"));
    }
}
