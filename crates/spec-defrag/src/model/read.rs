//! A frame, read in the most naive way: a second opinion on `wire`, with which it
//! shares no line.

use alloc::vec::Vec;

/// Where the IP header begins.
pub(super) const ETHERNET: usize = 14;
/// The longest head that the engine adapts.
pub(super) const LONGEST_HEAD: usize = 192;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Which packet a piece is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Source and destination address.
    pub addresses: Vec<u8>,
    /// The identification.
    pub id: u32,
    /// The protocol, where it is part of the name: in IPv4.
    pub protocol: Option<u8>,
}

/// A piece of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which packet it is of.
    pub name: Name,
    /// Where it belongs in the payload of the packet.
    pub offset: usize,
    /// Whether others follow it.
    pub more: bool,
    /// The congestion mark of its header.
    pub ecn: u8,
    /// What is in front of the payload: of the whole packet, but for its length.
    pub head: Vec<u8>,
    /// Its part of the payload.
    pub bytes: Vec<u8>,
    /// The frame that it came in, without padding.
    pub frame: Vec<u8>,
}

impl Piece {
    /// The first offset behind it.
    #[must_use]
    pub fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// What a frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No piece of anything: whoever is above sees it as it came.
    Whole,
    /// A piece of a packet.
    Piece(Piece),
    /// A piece that a standard receiver throws away.
    Bad,
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The Internet checksum of RFC 1071, word by word.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(high) << 8 | u32::from(low),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads a whole frame.
#[must_use]
pub fn read(frame: &[u8]) -> Reading {
    let reading = match word(frame, 12) {
        Some(IPV4) => read_v4(frame),
        Some(IPV6) => read_v6(frame),
        _ => None,
    };
    reading.unwrap_or(Reading::Whole)
}

fn read_v4(frame: &[u8]) -> Option<Reading> {
    let ip = &frame[ETHERNET..];
    let flags = word(ip, 6)?;
    let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
    let is_whole = offset == 0 && !more;
    if ip.len() < 20 || ip[0] >> 4 != 4 || is_whole {
        return None;
    }
    let header = usize::from(ip[0] & 15) * 4;
    let total = usize::from(word(ip, 2)?);
    if header < 20 || total < header || total > ip.len() || checksum(&ip[..header]) != 0 {
        return Some(Reading::Bad);
    }
    let mut head = frame[..ETHERNET + header].to_vec();
    // What stays of the flags: "do not fragment", and the bit that means nothing.
    head[20] = ip[6] & 0xc0;
    head[21] = 0;
    let name =
        Name { addresses: ip[12..20].to_vec(), id: u32::from(word(ip, 4)?), protocol: Some(ip[9]) };
    let (bytes, frame) = (ip[header..total].to_vec(), frame[..ETHERNET + total].to_vec());
    // The shortest header takes 20 of the bytes that a packet may have.
    Some(checked(Piece { name, offset, more, ecn: ip[1] & 3, head, bytes, frame }, 65_535 - 20))
}

fn read_v6(frame: &[u8]) -> Option<Reading> {
    let ip = &frame[ETHERNET..];
    let has_length = word(ip, 4)? != 0;
    if ip.len() < 40 || ip[0] >> 4 != 6 || !has_length {
        return None;
    }
    // Where the number of the next header is, and where that header is.
    let (mut says, mut at) = (6, 40);
    while ip[says] != FRAGMENT {
        let kind = ip[says];
        let header = ip.get(at..at + 8)?;
        let is_on_its_way = kind == ROUTING && header[3] != 0;
        let len = (usize::from(header[1]) + 1) * 8;
        let is_known = matches!(kind, HOP_BY_HOP | ROUTING | DESTINATION);
        if !is_known || is_on_its_way || ETHERNET + at + len > LONGEST_HEAD {
            return None;
        }
        (says, at) = (at, at + len);
    }
    let behind = at + 8;
    let total = 40 + usize::from(word(ip, 4)?);
    if total < behind || total > ip.len() {
        return Some(Reading::Bad);
    }
    let flags = word(ip, at + 2)?;
    let mut head = frame[..ETHERNET + at].to_vec();
    head[ETHERNET + says] = ip[at];
    let name = Name { addresses: ip[8..40].to_vec(), id: number(ip, at + 4)?, protocol: None };
    let (offset, more) = (usize::from(flags & 0xfff8), flags & 1 != 0);
    let (bytes, frame) = (ip[behind..total].to_vec(), frame[..ETHERNET + total].to_vec());
    Some(checked(Piece { name, offset, more, ecn: ip[1] >> 4 & 3, head, bytes, frame }, 65_535))
}

/// Whether a packet of IPv6 has stations of a routing header still before it: its pieces
/// are joined at the last one, not here.
pub(super) fn is_on_its_way(frame: &[u8]) -> bool {
    let Some(ip) = frame.get(ETHERNET..).filter(|_| word(frame, 12) == Some(IPV6)) else {
        return false;
    };
    let (mut kind, mut at) = (ip.get(6).copied(), 40);
    while let (Some(HOP_BY_HOP | DESTINATION | ROUTING), Some(header)) = (kind, ip.get(at..at + 4))
    {
        if kind == Some(ROUTING) && header[3] != 0 {
            return true;
        }
        kind = Some(header[0]);
        at += (usize::from(header[1]) + 1) * 8;
    }
    false
}

fn checked(piece: Piece, longest: usize) -> Reading {
    let is_uneven = piece.more && !piece.bytes.len().is_multiple_of(8);
    let is_atomic = piece.offset == 0 && !piece.more;
    let is_empty = piece.bytes.is_empty() && !is_atomic;
    if is_uneven || is_empty || piece.end() > longest {
        return Reading::Bad;
    }
    Reading::Piece(piece)
}

/// The whole packet: a head for so much payload, and the payload. `None` if it is
/// longer than packets can be.
pub(super) fn whole(head: &[u8], ecn: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let mut packet = head_for(head, ecn, payload.len())?;
    packet.extend_from_slice(payload);
    Some(packet)
}

/// The head of a packet with so much payload, of which this is a head but for the length.
pub(super) fn head_for(head: &[u8], ecn: u8, payload: usize) -> Option<Vec<u8>> {
    let mut head = head.to_vec();
    if head[ETHERNET] >> 4 == 4 {
        let total = u16::try_from(head.len() - ETHERNET + payload).ok()?;
        head[16..18].copy_from_slice(&total.to_be_bytes());
        head[15] = head[15] & !3 | ecn;
        head[24..26].fill(0);
        let sum = checksum(&head[ETHERNET..]);
        head[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        let len = u16::try_from(head.len() - ETHERNET - 40 + payload).ok()?;
        head[18..20].copy_from_slice(&len.to_be_bytes());
        head[15] = head[15] & !0x30 | ecn << 4;
    }
    Some(head)
}
