//! Transport checksums that a peer on the same machine left to its device to finish.
//!
//! Over a virtual link the device never does, since the bytes leave no memory. Such a
//! packet has the sum of its pseudo-header where the checksum belongs
//! (`CHECKSUM_PARTIAL` of `linux/skbuff.h`). A packet that comes over a wire with just
//! this number there by chance keeps the right checksum if it had it: it is the same.

use landfall_placement::InternetSum;

use super::super::packet::Packet;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where a packet lacks its checksum, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    at: usize,
    sum: [u8; 2],
}

/// Where the transport part of a packet is.
struct Transport {
    protocol: u8,
    start: usize,
    len: usize,
    addresses: InternetSum,
}

impl Unfinished {
    /// None where the checksum is there.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let mut first = [0; ETHERNET + 60];
        let len = packet.copy_out(0, &mut first);
        let transport = Transport::of(&first[..len])?;
        let Transport { protocol, start, len, mut addresses } = transport;
        if start + len > packet.len() {
            return None;
        }
        let at = start + if protocol == TCP { 16 } else { 6 };
        let mut there = [0; 2];
        if packet.copy_out(at, &mut there) < 2 {
            return None;
        }
        addresses.add_word(protocol.into());
        addresses.add(&(len as u32).to_be_bytes());
        if u16::from_be_bytes(there) != addresses.sum() {
            return None;
        }
        let mut sum = InternetSum::new();
        packet.part(start..start + len).for_each(|piece| sum.add(piece));
        let sum = match (sum.checksum(), protocol) {
            // Zero says that there is none (RFC 768).
            (0, UDP) => 0xffff,
            (sum, _) => sum,
        };
        Some(Self { at, sum: sum.to_be_bytes() })
    }

    /// The packet with the checksum in its place.
    pub(super) fn around<'a>(
        &'a self,
        packet: &'a Packet,
    ) -> (impl Iterator<Item = &'a [u8]>, &'a [u8], impl Iterator<Item = &'a [u8]>) {
        (packet.part(0..self.at), &self.sum, packet.part(self.at + 2..packet.len()))
    }
}

impl Transport {
    /// Of TCP and UDP, not behind extension headers.
    fn of(first: &[u8]) -> Option<Self> {
        let (ethertype, network) = (first.get(12..ETHERNET)?, first.get(ETHERNET..)?);
        let word = |at: usize| {
            Some(usize::from(u16::from_be_bytes([*network.get(at)?, *network.get(at + 1)?])))
        };
        let (protocol, header, len, addresses) = match (ethertype, network.first()? >> 4) {
            ([0x08, 0x00], 4) => {
                let header = usize::from(network[0] & 0xf) * 4;
                let is_piece = word(6)? & 0x3fff != 0;
                let len = word(2)?.checked_sub(header.max(IPV4)).filter(|_| !is_piece)?;
                (*network.get(9)?, header, len, network.get(12..20)?)
            }
            ([0x86, 0xdd], 6) => (*network.get(6)?, IPV6, word(4)?, network.get(8..40)?),
            _ => return None,
        };
        if !matches!(protocol, TCP | UDP) || len < 8 {
            return None;
        }
        let mut sum = InternetSum::new();
        sum.add(addresses);
        Some(Self { protocol, start: ETHERNET + header, len, addresses: sum })
    }
}
