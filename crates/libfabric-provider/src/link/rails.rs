//! Several rails: the side that was connected to says where it is reached beside the address that
//! it was connected at, and the other side adds these links. STP stripes all over them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use landfall::stp::{Connection, PathId, Peer};

use super::transmit::Outgoing;
use super::{Link, nonsense};
use crate::completion::Failure;
use crate::core::EndpointState;
use crate::record::{HEADER, Kind, Record};

/// An address takes this many bytes: of IPv6, and a port.
pub(super) const ADDRESS: usize = 18;
/// The most that are told of.
const MOST: usize = 63;

impl Link {
    /// This side was connected to: it says which further rails it has.
    pub(super) fn tell_rails(&mut self, core: &EndpointState) {
        let rails = further(core);
        if !rails.is_empty() {
            let told = rails.iter().take(MOST).flat_map(encode).collect();
            self.outgoing.push_back(Outgoing::Control(Kind::Rails, told));
        }
    }

    /// This side has connected over its second rail: it says what it is known by.
    pub(super) fn tell_name(&mut self, core: &EndpointState) {
        let path = self.wire.connection().map(Connection::path);
        if path.is_some_and(|path| path != PathId(0)) {
            let told = encode(&core.name).to_vec();
            self.outgoing.push_front(Outgoing::Control(Kind::Name, told));
        }
    }

    /// The other side has connected over its second rail, and says what it is known by, before
    /// anything else.
    pub(super) fn rename(
        &mut self,
        core: &mut EndpointState,
        record: &Record,
    ) -> Result<(), Failure> {
        let path = self.wire.connection().map(Connection::path);
        // Only one that was connected to may add no rails from the start.
        let is_right = self.heard.is_none()
            && !self.may_add_rails
            && record.position == 0
            && record.len as usize == ADDRESS
            && path.is_some_and(|path| path != PathId(0));
        if !is_right {
            return Err(nonsense("it says its name where it may not"));
        }
        let mut told = [0; ADDRESS];
        self.wire.copy_out(self.receive.consumed + HEADER as u64, &mut told)?;
        self.is_known_as(core, decode(&told, &core.name));
        Ok(())
    }

    /// The other side is the peer with this address.
    pub(super) fn is_known_as(&mut self, core: &mut EndpointState, address: SocketAddr) {
        let known = core.peer(address);
        let before = std::mem::replace(&mut self.peer, known);
        let before = &mut core.peers[before].link;
        if *before == Some(self.number) {
            *before = None;
        }
        let link = &mut core.peers[known].link;
        *link = link.or(Some(self.number));
    }

    /// The other side has said which rails it has: each of ours leads to the one of theirs with
    /// the same place in the order. One that is down is left out; those that are there do.
    pub(super) fn add_rails(
        &mut self,
        core: &EndpointState,
        record: &Record,
    ) -> Result<(), Failure> {
        let len = record.len as usize;
        let is_right = len.is_multiple_of(ADDRESS) && (1..=MOST).contains(&(len / ADDRESS));
        let (true, true, Some(connection)) = (self.may_add_rails, is_right, self.wire.connection())
        else {
            return Err(nonsense("it speaks of rails where it may not"));
        };
        let mut told = vec![0; len];
        self.wire.copy_out(self.receive.consumed + HEADER as u64, &mut told)?;
        let paths = core.network.stp()?.as_async().paths();
        let ours = further(core);
        let pairs = ours.iter().zip(told.as_chunks().0).zip(paths.into_iter().skip(1));
        for ((own, theirs), path) in pairs {
            // Where it fails the path is down, or no path of ours is of that version of IP.
            let _ = connection.add_link(path, Peer::Socket(decode(theirs, own)));
        }
        self.may_add_rails = false;
        Ok(())
    }
}

/// The addresses of an endpoint beside its first.
fn further(core: &EndpointState) -> Vec<SocketAddr> {
    let Ok(stp) = core.network.stp() else { return Vec::new() };
    let stp = stp.as_async();
    let address = |path| match stp.local_of(path) {
        Some(Peer::Socket(address)) => Some(address),
        _ => None,
    };
    stp.paths().into_iter().skip(1).filter_map(address).collect()
}

pub(super) fn encode(address: &SocketAddr) -> [u8; ADDRESS] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

/// As it is reached from an address of ours: an interface has another number at each host.
pub(super) fn decode(bytes: &[u8; ADDRESS], own: &SocketAddr) -> SocketAddr {
    let [ip @ .., low, high] = *bytes;
    let port = u16::from_le_bytes([low, high]);
    match (Ipv6Addr::from(ip).to_canonical(), own) {
        (IpAddr::V6(ip), SocketAddr::V6(own)) => {
            SocketAddrV6::new(ip, port, 0, own.scope_id()).into()
        }
        (ip, _) => SocketAddr::new(ip, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_told() {
        for text in ["192.0.2.7:8181", "[2001:db8::7]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(&address), &address), address);
        }
        let own = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 3).into();
        let theirs = SocketAddrV6::new("fe80::2".parse().unwrap(), 8, 0, 9).into();
        let reached = SocketAddrV6::new("fe80::2".parse().unwrap(), 8, 0, 3).into();
        assert_eq!(decode(&encode(&theirs), &own), reached);
    }
}
