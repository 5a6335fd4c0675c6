//! Captures, and what tshark with `docs/wireshark/stp.lua` says of them.

use std::collections::BTreeMap;
use std::path::Path;

use landfall_placement::{Refusal, checksum};
use landfall_testkit::tshark::{Dissected, Dissector};
use stp_core::wire::carrier::{ETHERTYPE, IP_PROTOCOL, UDP_PORT};

/// What carries a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Ethernet,
    Ipv4,
    Ipv6,
    Udp { port: u16 },
}

impl Carrier {
    pub const ALL: [Self; 4] =
        [Self::Ethernet, Self::Ipv4, Self::Ipv6, Self::Udp { port: UDP_PORT }];

    /// The Ethernet frame around a packet, filled up as Ethernet does.
    pub fn frame(self, packet: &[u8]) -> Vec<u8> {
        const SHORTEST: usize = 60;
        let (ethertype, inside) = match self {
            Self::Ethernet => (ETHERTYPE, packet.to_vec()),
            Self::Ipv4 => (0x0800, ipv4(IP_PROTOCOL, packet)),
            Self::Ipv6 => (0x86dd, ipv6(IP_PROTOCOL, packet)),
            Self::Udp { port } => (0x0800, ipv4(17, &udp(port, packet))),
        };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(inside);
        frame.resize(frame.len().max(SHORTEST), 0);
        frame
    }
}

fn ipv4(protocol: u8, packet: &[u8]) -> Vec<u8> {
    let len = 20 + packet.len() as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum::checksum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    [&bytes[..], packet].concat()
}

fn ipv6(next_header: u8, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((packet.len() as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    for last in [1, 2] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&bytes[..], packet].concat()
}

fn udp(port: u16, packet: &[u8]) -> Vec<u8> {
    let fields = [port, port, 8 + packet.len() as u16, 0];
    [&fields.map(u16::to_be_bytes).concat(), packet].concat()
}

/// `docs/wireshark/stp.lua`.
pub const ST: Dissector<'_> = Dissector {
    script: "stp",
    protocol: "st",
    fields: &["op", "cksum.status"],
    marks: &[Refusal::Truncated, Refusal::Unsupported, Refusal::Malformed, Refusal::BadChecksum],
};

/// The number of the operation, where the packet was taken for one of ours.
pub fn op(packet: &Dissected) -> Option<u8> {
    packet.number_in(0)
}

/// "Bad", "Good", "Unverified" and "Absent" by their numbers.
pub fn checksum(packet: &Dissected) -> Option<u8> {
    packet.number_in(1)
}

/// Checks the capture of a run: every packet on one of the carriers of STP (of
/// UDP: on any port) must be dissected, and none be malformed. What else there
/// is, like ARP, does not matter. Where super-packets were captured that the
/// device would have segmented, that is not so: switch segmentation off.
///
/// Returns how often each operation was seen, by its number; `None`, and a
/// line that says so, where there is no tshark.
///
/// # Panics
/// Where a packet was not dissected, or is malformed, or there is none.
pub fn check_capture(path: &Path) -> Option<BTreeMap<u8, usize>> {
    let filter = format!(
        "eth.type == {ETHERTYPE} || ip.proto == {IP_PROTOCOL} || ipv6.nxt == {IP_PROTOCOL} || udp"
    );
    let packets = ST.read(path, &filter, &[])?;
    assert!(!packets.is_empty(), "{}: no packet of STP in it", path.display());
    let mut seen = BTreeMap::new();
    for packet in &packets {
        let op = op(packet).unwrap_or_else(|| panic!("not dissected: {packet:?}"));
        assert_eq!(packet.marks, [], "{packet:?}");
        *seen.entry(op).or_default() += 1;
    }
    Some(seen)
}
