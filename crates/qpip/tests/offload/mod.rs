//! The offload seam by itself, in arrays that the caller owns.

mod misses;
mod model;

use std::net::{IpAddr, SocketAddr};

use landfall_placement::{InternetSum, PathId};
use qpip::offload::{Incoming, OwnAddress};

// Frames, byte by byte: what a peer would send, but for what is wrong.

pub(crate) const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PATH: PathId = PathId(3);

/// Our addresses on the path.
pub(crate) fn addresses() -> [OwnAddress; 3] {
    let parse = |text: &str| text.parse().unwrap();
    [
        OwnAddress::new(parse("10.0.0.1"), 8),
        OwnAddress::new(parse("fd00::1"), 64),
        OwnAddress::new(parse("10.0.0.9"), 8),
    ]
}

/// A frame as a peer sends it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) station: [u8; 6],
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) is_tcp: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) traffic_class: u8,
    pub(crate) len: u32,
    pub(crate) has_sum: bool,
    /// Bytes behind the packet that do not belong to it.
    pub(crate) padding: u32,
}

impl Frame {
    pub(crate) fn new(from: SocketAddr, to: SocketAddr, is_tcp: bool, len: u32) -> Self {
        Self {
            station: STATION,
            from,
            to,
            is_tcp,
            seq: 0,
            ack: 0,
            flags: 0x10,
            window: 77,
            options: Vec::new(),
            traffic_class: 0,
            len,
            has_sum: true,
            padding: 0,
        }
    }

    /// A timestamp as everybody lays it out.
    pub(crate) fn stamped(mut self, value: u32, echo: u32) -> Self {
        self.options = [1, 1, 8, 10].into();
        self.options.extend(value.to_be_bytes());
        self.options.extend(echo.to_be_bytes());
        self
    }

    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.from.port().to_be_bytes());
        out.extend(self.to.port().to_be_bytes());
        if self.is_tcp {
            out.extend(self.seq.to_be_bytes());
            out.extend(self.ack.to_be_bytes());
            out.push(((20 + self.options.len()) / 4) as u8 * 16);
            out.push(self.flags);
            out.extend(self.window.to_be_bytes());
            out.extend([0xab, 0xcd, 0, 0]);
            out.extend(&self.options);
        } else {
            out.extend((8 + self.len as u16).to_be_bytes());
            out.extend(if self.has_sum { [0xab, 0xcd] } else { [0, 0] });
        }
        out
    }

    /// How long IP's payload is.
    pub(crate) fn carried(&self) -> u32 {
        self.header().len() as u32 + self.len
    }

    /// The headers, without the payload.
    pub(crate) fn head(&self) -> Vec<u8> {
        let header = self.header();
        let carried = self.carried() as u16;
        let protocol = if self.is_tcp { 6 } else { 17 };
        let mut out = Vec::new();
        out.extend(self.station);
        out.extend([2, 0, 0, 0, 0, 2]);
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend([8, 0, 0x45, self.traffic_class]);
                out.extend((20 + carried).to_be_bytes());
                out.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
                out.extend(from.octets());
                out.extend(to.octets());
                seal(&mut out);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                out.extend([0x86, 0xdd, 0x60 | self.traffic_class >> 4, self.traffic_class << 4]);
                out.extend([0, 0]);
                out.extend(carried.to_be_bytes());
                out.extend([protocol, 64]);
                out.extend(from.octets());
                out.extend(to.octets());
            }
            _ => unreachable!("both are of one version"),
        }
        out.extend(header);
        out
    }

    /// The length of the whole frame.
    pub(crate) fn unit_len(&self) -> u32 {
        self.head().len() as u32 + self.len + self.padding
    }

    /// The sum over its pseudo-header.
    pub(crate) fn pseudo(&self) -> u16 {
        let mut sum = InternetSum::new();
        for end in [self.from, self.to] {
            match end.ip() {
                IpAddr::V4(address) => sum.add(&address.octets()),
                IpAddr::V6(address) => sum.add(&address.octets()),
            }
        }
        sum.add_word(if self.is_tcp { 6 } else { 17 });
        sum.add_word(self.carried() as u16);
        sum.sum()
    }
}

/// Fills in the checksum of the IPv4 header behind that of Ethernet.
pub(crate) fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let mut sum = InternetSum::new();
    sum.add(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.checksum().to_be_bytes());
}

/// A unit as a driver hands it over.
pub(crate) fn incoming<'a>(
    head: &'a [u8],
    len: u32,
    addresses: &'a [OwnAddress],
    likely: Option<u32>,
) -> Incoming<'a> {
    Incoming { path: PATH, station: STATION, addresses, likely, head, len }
}
