//! The frames by which a host finds its own addresses: questions whether somebody has one, for
//! routers, and for servers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::IntoBytes;

use super::{Host, Host6, arp_frame, discovery, seal};
use crate::wire::arp::{self, Arp};
use crate::wire::ndp::{self, Solicitation};
use crate::wire::{Envelope, Mac, checksum, ethernet, router, udp};

/// Has somebody `address`, which is to be ours? Nobody shall learn from it that we have
/// (RFC 5227, section 2.1.1; RFC 4862, section 5.4.2).
pub fn probe(mac: Mac, address: IpAddr, into: &mut [u8]) -> Option<usize> {
    match address {
        IpAddr::V4(target) => {
            let sender = Ipv4Addr::UNSPECIFIED;
            let operation = arp::Operation::Request;
            let arp = Arp { operation, sender_mac: mac, sender, target_mac: [0; 6], target };
            arp_frame(&arp, ethernet::BROADCAST, into)
        }
        IpAddr::V6(target) => {
            let group = ndp::solicited_node(target);
            let to = Host6 { mac: ndp::group_mac(group), address: group };
            let asked = Solicitation { target, station: None };
            let envelope = discovery(Host6 { mac, address: Ipv6Addr::UNSPECIFIED }, to);
            seal(&envelope, asked.message_len(), into, |message, pseudo| {
                asked.write(message, pseudo)
            })
        }
    }
}

/// Which routers are there? Who has no address yet does not say which station it is.
pub fn router_solicitation(us: Host, into: &mut [u8]) -> Option<usize> {
    let IpAddr::V6(address) = us.address else { return None };
    let to = Host6 { mac: ndp::group_mac(router::ALL_ROUTERS), address: router::ALL_ROUTERS };
    let station = (!address.is_unspecified()).then_some(us.mac);
    let len = if station.is_some() { 16 } else { 8 };
    let envelope = discovery(Host6 { mac: us.mac, address }, to);
    seal(&envelope, len, into, |message, pseudo| {
        router::write_solicitation(station, message, pseudo)
    })
}

/// A datagram in this envelope, whose payload `write` writes.
pub fn datagram(
    envelope: &Envelope,
    ports: [u16; 2],
    into: &mut [u8],
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let at = envelope.header_len();
    let len = udp::LEN + write(into.get_mut(at + udp::LEN..)?)?;
    envelope.write(into, len as u32)?;
    let mut header = udp::Header {
        source: ports[0].into(),
        destination: ports[1].into(),
        len: (len as u16).into(),
        sum: envelope.pseudo(len as u32).into(),
    };
    let datagram = into.get_mut(at..at + len)?;
    header.write(datagram)?;
    header.sum = udp::Header::sum_field(checksum::checksum(datagram)).into();
    header.write_to_prefix(datagram).ok()?;
    Some(at + len)
}
