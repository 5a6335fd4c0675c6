//! Where packets leave: one port for a host, a set of ports for a group.

use alloc::vec;
use alloc::vec::Vec;

use super::PortId;
use crate::address::{Address, HostId, Kind};

/// Nobody's port.
const NONE: u8 = u8::MAX;
const HOSTS: usize = HostId::MAX as usize + 1;

/// A set of ports: one bit for each.
pub(super) type Ports = u64;

#[derive(Debug)]
pub(super) struct Routes {
    hosts: Vec<u8>,
    groups: Vec<Ports>,
}

/// Where a packet is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Port(PortId),
    /// To all of these.
    Group(Ports),
    Nowhere,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self { hosts: vec![NONE; HOSTS], groups: vec![0; HOSTS] }
    }

    pub(super) fn set(&mut self, host: HostId, port: Option<PortId>) {
        self.hosts[usize::from(host.number())] = port.map_or(NONE, |port| port.0);
    }

    pub(super) fn join(&mut self, group: HostId, port: PortId) {
        self.groups[usize::from(group.number())] |= 1 << port.0;
    }

    pub(super) fn leave(&mut self, group: HostId, port: PortId) {
        if port.0 < 64 {
            self.groups[usize::from(group.number())] &= !(1 << port.0);
        }
    }

    /// The way of a packet that came in at port `from`: a multicast does not go
    /// back to where it came from.
    pub(super) fn way(&self, from: usize, address: &Address) -> Way {
        let host = usize::from(address.host.number());
        if address.kind == Kind::Multicast {
            let members = self.groups[host] & !(1 << from);
            return if members == 0 { Way::Nowhere } else { Way::Group(members) };
        }
        match self.hosts[host] {
            NONE => Way::Nowhere,
            port => Way::Port(PortId(port)),
        }
    }
}
