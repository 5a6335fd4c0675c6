//! Made-up headers of Ethernet, IPv4 and UDP, so that Wireshark shows frames of
//! protocols that run on UDP.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use landfall_placement::{Peer, checksum};

use crate::frame::Frame;
use crate::node::NodeId;

/// The headers for a frame that crosses between two nodes. Where its addresses
/// are not known they are those of the nodes.
pub(super) fn udp(frame: &Frame, between: (NodeId, NodeId), port: u16) -> Vec<u8> {
    const IP_AND_UDP: usize = 20 + 8;
    let ends = [(frame.from, between.0), (frame.to, between.1)]
        .map(|(peer, node)| Station::of(peer, node));
    let [from, to] = ends;
    let ports = [from.port.unwrap_or(port), to.port.unwrap_or(port)];
    // A frame that is longer than UDP allows keeps its bytes; its headers say less.
    let ip_len = u16::try_from(frame.len() + IP_AND_UDP).unwrap_or(u16::MAX);
    let udp_len = ip_len - 20;

    let mut headers = Vec::with_capacity(14 + IP_AND_UDP);
    headers.extend_from_slice(&to.mac);
    headers.extend_from_slice(&from.mac);
    headers.extend_from_slice(&[0x08, 0x00]);
    let ip = headers.len();
    headers.extend_from_slice(&[0x45, frame.ecn as u8]);
    headers.extend_from_slice(&ip_len.to_be_bytes());
    headers.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]); // Don't fragment, TTL 64, UDP.
    headers.extend_from_slice(&from.ip.octets());
    headers.extend_from_slice(&to.ip.octets());
    let sum = checksum::checksum(&headers[ip..]);
    headers[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    for field in [ports[0], ports[1], udp_len, 0] {
        headers.extend_from_slice(&field.to_be_bytes()); // Checksum 0: none (RFC 768).
    }
    headers
}

struct Station {
    mac: [u8; 6],
    ip: Ipv4Addr,
    port: Option<u16>,
}

impl Station {
    fn of(peer: Peer, node: NodeId) -> Self {
        let number = if let Peer::Node(number) = peer { number } else { node.0 };
        let [a, b, c, d] = number.to_be_bytes();
        // Locally administered; 10.0.0.0/8.
        let made_up = Self { mac: [2, 0, a, b, c, d], ip: Ipv4Addr::new(10, b, c, d), port: None };
        match peer {
            Peer::Ethernet(mac) => Self { mac, ..made_up },
            Peer::Ip(IpAddr::V4(ip)) => Self { ip, ..made_up },
            Peer::Socket(socket) => {
                let port = Some(socket.port());
                match socket.ip() {
                    IpAddr::V4(ip) => Self { ip, port, ..made_up },
                    IpAddr::V6(_) => Self { port, ..made_up },
                }
            }
            Peer::Unaddressed | Peer::Node(_) | Peer::Ip(IpAddr::V6(_)) => made_up,
        }
    }
}
