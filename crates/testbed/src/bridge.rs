//! A local network of several namespaces: cables that end at one bridge, as at a switch.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::Error;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::veth::{VethConfig, VethEnd, VethPair};

/// Namespaces on one Ethernet. The bridge is in a namespace of its own, and hands what is for
/// a group of stations to all.
#[derive(Debug)]
pub struct BridgedNetwork {
    cables: Vec<VethPair>,
    /// The ends away from the bridge, with addresses of one network.
    ends: Vec<VethEnd>,
}

impl BridgedNetwork {
    /// This many namespaces, up to 200. End `n` has the addresses `10.78.0.n` and `fd00:78::n`,
    /// from 1 on.
    pub fn new(ends: u8) -> Result<Self, Error> {
        let hub = Namespace::new()?;
        let bridge = hub.enter(|| {
            let netlink = Netlink::open()?;
            netlink.add_bridge("bridge")?;
            let index = netlink.index_of("bridge")?;
            netlink.set_up(index)?;
            Ok::<_, Error>(index)
        })??;
        let mut network = Self { cables: Vec::new(), ends: Vec::new() };
        for nth in 1..=ends {
            let config = VethConfig { cable: nth, ..VethConfig::default() };
            let cable = VethPair::between(&hub, &Namespace::new()?, config)?;
            hub.enter(|| Netlink::open()?.set_master(cable.a.index, bridge))??;
            let mut end = cable.b.clone();
            end.ipv4 = Ipv4Addr::new(10, 78, 0, nth);
            end.ipv6 = Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0, 0, 0, nth.into());
            end.namespace.enter(|| {
                let netlink = Netlink::open()?;
                netlink.add_address(end.index, end.ipv4.into(), 24)?;
                netlink.add_address(end.index, end.ipv6.into(), 64)
            })??;
            network.cables.push(cable);
            network.ends.push(end);
        }
        Ok(network)
    }

    /// The interfaces of the network.
    #[must_use]
    pub fn ends(&self) -> &[VethEnd] {
        &self.ends
    }

    /// The cable of an end: `a` is at the bridge.
    #[must_use]
    pub fn cable(&self, nth: usize) -> Option<&VethPair> {
        self.cables.get(nth)
    }
}
