//! A pair of virtual Ethernet interfaces between two namespaces: a cable.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::netlink::{Netlink, NewVeth};

/// Smallest MTU on which IPv6 works at all (RFC 8200, section 5).
const LEAST_MTU: u32 = 1280;
/// `ETH_MAX_MTU` of `linux/if_ether.h`.
const LARGEST_MTU: u32 = 65_535;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What a veth pair should be like.
#[derive(Clone, Copy, Debug)]
pub struct VethConfig {
    /// Largest IP packet, 1280 to 65,535 bytes.
    pub mtu: u32,
    /// Number of the cable: pairs between the same two namespaces need
    /// different ones. It is part of interface names and addresses.
    pub cable: u8,
    /// Whether each side knows the other's hardware address from the start,
    /// so that no ARP or neighbour discovery crosses the link.
    pub static_neighbours: bool,
    /// How many queues each end has, each way.
    pub queues: u32,
}

impl Default for VethConfig {
    fn default() -> Self {
        Self { mtu: 1500, cable: 0, static_neighbours: true, queues: 1 }
    }
}

/// One end of a pair: an interface in a namespace.
#[derive(Clone, Debug)]
pub struct VethEnd {
    /// The namespace that the interface is in.
    pub namespace: Namespace,
    /// The interface's name there.
    pub name: String,
    /// The interface's index there.
    pub index: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// Its IPv4 address, in a /24 with the other end.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address, in a /64 with the other end.
    pub ipv6: Ipv6Addr,
}

/// Two interfaces joined by a cable, which goes when this is dropped.
#[derive(Debug)]
pub struct VethPair {
    /// The one end; by custom the sender's.
    pub a: VethEnd,
    /// The other end; by custom the receiver's.
    pub b: VethEnd,
}

impl VethPair {
    /// Makes two namespaces and a pair between them.
    pub fn new(config: VethConfig) -> Result<Self, Error> {
        Self::between(&Namespace::new()?, &Namespace::new()?, config)
    }

    /// Makes a pair between two namespaces, which may already share others.
    pub fn between(a: &Namespace, b: &Namespace, config: VethConfig) -> Result<Self, Error> {
        check_mtu(config.mtu)?;
        if a == b {
            // Both ends would own both addresses, and nothing would ever
            // cross the cable.
            return Err(Error::BadRequest("both ends of a veth pair in one namespace".into()));
        }
        let end = |side, namespace| End::new(config.cable, side, namespace);
        let (near, far) = (end(1, a), end(2, b));
        let a_index = a.enter(|| {
            let netlink = Netlink::open()?;
            netlink.add_veth(near.new_veth(), far.new_veth(), b.as_fd(), config)?;
            netlink.index_of(&near.name)
        })??;
        // From here on dropping the pair removes what was made, on error too.
        let mut pair = Self { a: near.with_index(a_index), b: far.with_index(0) };
        pair.b.index = b.enter(|| Netlink::open()?.index_of(&pair.b.name))??;
        pair.a.configure(&pair.b, config)?;
        pair.b.configure(&pair.a, config)?;
        Ok(pair)
    }

    /// Both ends.
    #[must_use]
    pub fn ends(&self) -> [&VethEnd; 2] {
        [&self.a, &self.b]
    }

    /// Changes the largest packet of both ends.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), Error> {
        check_mtu(mtu)?;
        self.ends().into_iter().try_for_each(|end| end.with_netlink(|n| n.set_mtu(end.index, mtu)))
    }
}

impl Drop for VethPair {
    /// Takes the cable away, though the namespaces may live on in clones.
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the kernel takes the
        // pair with the first of its namespaces anyway.
        let _ = self.a.with_netlink(|netlink| netlink.remove(self.a.index));
    }
}

impl VethEnd {
    /// Switches the interface on or off; off, the other end loses its
    /// carrier, and this one its IPv6 address (the kernel's own rule).
    pub fn set_up(&self, up: bool) -> Result<(), Error> {
        self.with_netlink(|netlink| match up {
            true => netlink.set_up(self.index),
            false => netlink.set_down(self.index),
        })
    }

    /// Packets and bytes that the interface sent and received.
    pub fn counters(&self) -> Result<LinkCounters, Error> {
        // `/proc/net` would show the namespace of the process, not of the
        // thread that reads it.
        let text = self.namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        let text = text.map_err(|source| Error::system("read interface counters", source))?;
        LinkCounters::parse(&text, &self.name)
            .ok_or_else(|| Error::Unsupported(format!("counters of interface {}", self.name)))
    }

    fn with_netlink(
        &self,
        work: impl FnOnce(&Netlink) -> Result<(), Error> + Send,
    ) -> Result<(), Error> {
        self.namespace.enter(|| work(&Netlink::open()?))?
    }

    /// Addresses, neighbours, and up.
    fn configure(&self, other: &Self, config: VethConfig) -> Result<(), Error> {
        self.with_netlink(|netlink| {
            netlink.add_address(self.index, self.ipv4.into(), 24)?;
            netlink.add_address(self.index, self.ipv6.into(), 64)?;
            netlink.set_up(self.index)?;
            if config.static_neighbours {
                for address in [IpAddr::from(other.ipv4), other.ipv6.into()] {
                    netlink.add_neighbour(self.index, address, other.mac)?;
                }
            }
            Ok(())
        })
    }
}

/// What an interface counted (`/proc/net/dev`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received; a super-packet counts as one.
    pub received_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent; a super-packet counts as one.
    pub sent_packets: u64,
}

impl LinkCounters {
    fn parse(text: &str, name: &str) -> Option<Self> {
        let row = text.lines().find_map(|line| {
            let (label, row) = line.split_once(':')?;
            (label.trim() == name).then_some(row)
        })?;
        let mut columns = row.split_ascii_whitespace().map(str::parse);
        let mut column = |nth| columns.nth(nth)?.ok();
        Some(Self {
            received_bytes: column(0)?,
            received_packets: column(0)?,
            sent_bytes: column(6)?,
            sent_packets: column(0)?,
        })
    }
}

/// An end before it exists.
struct End {
    namespace: Namespace,
    name: String,
    mac: Mac,
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
}

impl End {
    /// The namespaces are ours alone, so fixed addresses cannot clash.
    fn new(cable: u8, side: u8, namespace: &Namespace) -> Self {
        Self {
            namespace: namespace.clone(),
            name: format!("veth{cable}{}", if side == 1 { 'a' } else { 'b' }),
            // 0x02: locally administered, unicast.
            mac: Mac([0x02, b'l', b'f', 0, cable, side]),
            ipv4: Ipv4Addr::new(10, 77, cable, side),
            ipv6: Ipv6Addr::new(0xfd00, 0x77, u16::from(cable), 0, 0, 0, 0, u16::from(side)),
        }
    }

    fn new_veth(&self) -> NewVeth<'_> {
        NewVeth { name: &self.name, mac: self.mac }
    }

    fn with_index(self, index: u32) -> VethEnd {
        let Self { namespace, name, mac, ipv4, ipv6 } = self;
        VethEnd { namespace, name, index, mac, ipv4, ipv6 }
    }
}

fn check_mtu(mtu: u32) -> Result<(), Error> {
    if (LEAST_MTU..=LARGEST_MTU).contains(&mtu) {
        return Ok(());
    }
    Err(Error::BadRequest(format!(
        "an MTU of {mtu} bytes; {LEAST_MTU} to {LARGEST_MTU} are possible"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_exact_name() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n\
                    veth00a: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n\
                      veth0a: 10 2 0 0 0 0 0 0 30 4 0 0 0 0 0 0\n";
        let counters = LinkCounters::parse(text, "veth0a").unwrap();
        let expected = LinkCounters {
            received_bytes: 10,
            received_packets: 2,
            sent_bytes: 30,
            sent_packets: 4,
        };
        assert_eq!(counters, expected);
        assert_eq!(LinkCounters::parse(text, "veth0"), None);
    }

    #[test]
    fn impossible_requests_are_refused_before_anything_is_made() {
        for mtu in [0, 1279, 65_536] {
            assert!(matches!(check_mtu(mtu), Err(Error::BadRequest(_))));
        }
        assert_eq!(Mac([2, 0x6c, 0x66, 0, 1, 2]).to_string(), "02:6c:66:00:01:02");
    }
}
