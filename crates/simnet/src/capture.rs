//! Captures of what crossed the ends of links, as pcapng for Wireshark.
//!
//! The end of a link that is captured is one interface. A frame is recorded
//! when its last bit leaves (outbound), when it arrives (inbound), and where
//! it is lost, with the reason as its comment.
//! Frames of protocols that run on UDP get made-up headers of Ethernet, IPv4 and UDP, so
//! that Wireshark shows them.
//!
//! Blocks of the pcapng format (draft-ietf-opsawg-pcapng), little-endian: for captures of
//! this simulator, and for those who records real frames.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use landfall_inet::{Envelope, ipv4, protocol, udp};
use landfall_placement::{Instant, Peer};

use crate::frame::Frame;
use crate::node::NodeId;
use crate::stats::DropReason;

/// What the captured bytes look like to anyone who opens the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// The frames are Ethernet frames.
    Ethernet,
    /// The frames are of a private kind, 0 to 15: `LINKTYPE_USER0` and on. A
    /// dissector is chosen for it in Wireshark's preferences.
    User(u8),
    /// The frames are put behind headers of Ethernet, IPv4 and UDP to and from
    /// this port, made up from the nodes that they are from and for.
    Udp {
        /// The UDP port.
        port: u16,
    },
}

/// Where the bytes of a capture go.
pub enum Sink {
    /// Into memory, up to a number of bytes; what comes later is counted.
    Memory {
        /// The most bytes that are kept.
        limit: usize,
    },
    /// To a function, block by block.
    Stream(Writer),
}

/// A function that takes the blocks of a capture.
pub type Writer = Box<dyn FnMut(&[u8])>;

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { limit } => f.debug_struct("Memory").field("limit", limit).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// Names an end of a link in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceId(u32);

/// One end of a link that is captured.
#[derive(Clone, Copy, Debug)]
struct Interface {
    encapsulation: Encapsulation,
    here: NodeId,
    there: NodeId,
}

/// A capture under way.
#[derive(Debug)]
pub(crate) struct Capture {
    sink: Sink,
    kept: Vec<u8>,
    missed: u64,
    interfaces: Vec<Interface>,
    /// The block that is being made, kept for its room.
    block: Vec<u8>,
}

impl Capture {
    pub(crate) fn new(sink: Sink) -> Self {
        let mut capture =
            Self { sink, kept: Vec::new(), missed: 0, interfaces: Vec::new(), block: Vec::new() };
        section_header(&mut capture.block, "landfall-simnet");
        capture.flush();
        capture
    }

    /// Begins to capture the end of a link at the node `here`.
    pub(crate) fn add_interface(
        &mut self,
        name: &str,
        encapsulation: Encapsulation,
        here: NodeId,
        there: NodeId,
    ) -> InterfaceId {
        self.interfaces.push(Interface { encapsulation, here, there });
        interface(&mut self.block, encapsulation.link_type(), SNAP_LEN, name);
        self.flush();
        InterfaceId((self.interfaces.len() - 1) as u32)
    }

    /// The bytes kept in memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.kept
    }

    /// How many blocks did not fit into memory.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    pub(crate) fn left(&mut self, tap: InterfaceId, at: Instant, frame: &Frame) {
        self.packet(tap, at, frame, Direction::Outbound, None);
    }

    pub(crate) fn arrived(&mut self, tap: InterfaceId, at: Instant, frame: &Frame) {
        self.packet(tap, at, frame, Direction::Inbound, None);
    }

    pub(crate) fn lost(&mut self, tap: InterfaceId, at: Instant, frame: &Frame, why: DropReason) {
        self.packet(tap, at, frame, Direction::Outbound, Some(why));
    }

    fn packet(
        &mut self,
        InterfaceId(interface): InterfaceId,
        at: Instant,
        frame: &Frame,
        direction: Direction,
        lost: Option<DropReason>,
    ) {
        let end = self.interfaces[interface as usize];
        let between = match direction {
            Direction::Outbound => (end.here, end.there),
            Direction::Inbound => (end.there, end.here),
        };
        let headers = match end.encapsulation {
            Encapsulation::Udp { port } => udp(frame, between, port),
            Encapsulation::Ethernet | Encapsulation::User(_) => Vec::new(),
        };
        let comment = lost.map_or_else(String::new, |why| alloc::format!("dropped: {why}"));
        let len = headers.len() + frame.bytes.len();
        let packet = Packet { interface, at, direction, len, comment: &comment };
        self::packet(&mut self.block, &packet, &headers, &frame.bytes);
        self.flush();
    }

    /// Hands the block on.
    fn flush(&mut self) {
        match &mut self.sink {
            Sink::Memory { limit } => {
                if self.missed == 0 && self.kept.len() + self.block.len() <= *limit {
                    self.kept.extend_from_slice(&self.block);
                } else {
                    self.missed += 1;
                }
            }
            Sink::Stream(write) => write(&self.block),
        }
        self.block.clear();
    }
}

impl Encapsulation {
    /// The number in the registry of link types.
    fn link_type(self) -> u16 {
        match self {
            Self::Ethernet | Self::Udp { .. } => 1,
            Self::User(n) => 147 + u16::from(n.min(15)),
        }
    }
}

/// The headers for a frame that crosses between two nodes. Where its addresses
/// are not known they are those of the nodes.
fn udp(frame: &Frame, between: (NodeId, NodeId), port: u16) -> Vec<u8> {
    let ends = [(frame.from, between.0), (frame.to, between.1)]
        .map(|(peer, node)| Station::of(peer, node));
    let [from, to] = ends;
    // A frame that is longer than UDP allows keeps its bytes; its headers say less.
    let most = ipv4::PACKET_MAX as usize - ipv4::LEN;
    let udp_len = (udp::LEN + frame.len()).min(most) as u16;
    let envelope = Envelope {
        traffic_class: frame.ecn as u8,
        ..Envelope::new((from.mac, from.ip.into()), (to.mac, to.ip.into()), protocol::UDP)
    };
    let header = udp::Header {
        source: from.port.unwrap_or(port).into(),
        destination: to.port.unwrap_or(port).into(),
        len: udp_len.into(),
        sum: 0.into(), // None (RFC 768).
    };
    let mut headers = alloc::vec![0; envelope.header_len() + udp::LEN];
    let udp_at = envelope.write(&mut headers, udp_len.into());
    let written = udp_at.and_then(|at| header.write(&mut headers[at..]));
    debug_assert_eq!(written, Some(udp::LEN), "there is room, and no packet is too long");
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

/// Which way a packet crossed its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It came in.
    Inbound = 1,
    /// It went out.
    Outbound = 2,
}

/// What is said of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Which interface, in the order in which they were described.
    pub interface: u32,
    /// When; of real frames since the beginning of 1970.
    pub at: Instant,
    /// Which way.
    pub direction: Direction,
    /// How long it was, where not all of it is here.
    pub len: usize,
    /// Empty: none.
    pub comment: &'a str,
}

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;

/// The longest packet that readers take: libpcap's `MAXIMUM_SNAPLEN`.
pub const SNAP_LEN: u32 = 262_144;

/// The block that a capture starts with, and who made it.
pub fn section_header(out: &mut Vec<u8>, application: &str) {
    const USER_APPLICATION: u16 = 4;
    block(out, 0x0a0d_0d0a, |out| {
        word(out, 0x1a2b_3c4d); // Tells readers our byte order.
        word(out, 1); // Version 1.0.
        out.extend_from_slice(&u64::MAX.to_le_bytes()); // The length is not known.
        option(out, USER_APPLICATION, application.as_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Describes an interface, of whose packets at most this many bytes are kept; the first is
/// number 0. Frames of Ethernet are of link type 1.
pub fn interface(out: &mut Vec<u8>, link_type: u16, snap_len: u32, name: &str) {
    const NAME: u16 = 2;
    const TIME_RESOLUTION: u16 = 9;
    block(out, 1, |out| {
        word(out, u32::from(link_type));
        word(out, snap_len);
        option(out, NAME, name.as_bytes());
        option(out, TIME_RESOLUTION, &[9]); // Nanoseconds.
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// A packet: made-up headers, if any, and its bytes.
pub fn packet(out: &mut Vec<u8>, packet: &Packet<'_>, headers: &[u8], bytes: &[u8]) {
    const FLAGS: u16 = 2;
    let here = headers.len() + bytes.len();
    let captured = here.min(SNAP_LEN as usize);
    let nanos = packet.at.as_nanos();
    block(out, 6, |out| {
        word(out, packet.interface);
        word(out, (nanos >> 32) as u32);
        word(out, nanos as u32);
        word(out, captured as u32);
        word(out, u32::try_from(packet.len.max(here)).unwrap_or(u32::MAX));
        out.extend_from_slice(headers);
        out.extend_from_slice(&bytes[..captured - headers.len()]);
        pad(out);
        if !packet.comment.is_empty() {
            option(out, COMMENT, packet.comment.as_bytes());
        }
        option(out, FLAGS, &(packet.direction as u32).to_le_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// A block: its type, its length before and behind its body.
/// `out` is empty or ends with a block, so that padding counts from its start.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let len = (out.len() + 4 - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    word(out, len);
}

/// An option, cut to the length that its 16-bit field can say.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out);
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

/// Everything in a block starts at a multiple of four bytes.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_laid_out_as_the_format_says() {
        let mut out = Vec::new();
        interface(&mut out, 1, SNAP_LEN, "a:0");
        assert_eq!(
            out,
            [
                1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4,
                0, // head, link type, snap length
                2, 0, 3, 0, b'a', b':', b'0', 0, 9, 0, 1, 0, 9, 0, 0, 0, // name, resolution
                0, 0, 0, 0, 40, 0, 0, 0 // end of options, length
            ]
        );
    }

    #[test]
    fn a_packet_of_any_length_fits_its_block() {
        let most = SNAP_LEN as usize;
        for len in [0, 1, 2, 3, 4, 5, most, most + 9] {
            let bytes = alloc::vec![7; len];
            let about = Packet {
                interface: 0,
                at: Instant::from_nanos(1 << 40 | 5),
                direction: Direction::Inbound,
                len: len + 3,
                comment: "why",
            };
            let mut out = Vec::new();
            packet(&mut out, &about, &[], &bytes);
            let field =
                |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap()) as usize;
            assert_eq!((field(4), field(out.len() - 4)), (out.len(), out.len()));
            assert_eq!((field(12), field(16)), (1 << 8, 5), "time");
            assert_eq!((field(20), field(24)), (len.min(most), len + 3));
            assert!(out.len().is_multiple_of(4));
        }
    }
}
