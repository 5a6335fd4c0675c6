//! The naive reassembler: what comes out of these frames, by the letter of the RFCs. Clear, not
//! fast, and without bounds; a frame, read in the most naive way: a second opinion on `wire`, with
//! which it shares no line.

use alloc::vec::Vec;

use landfall_placement::{Duration, Instant};

const NOT_CAPABLE: u8 = 0;
const CONGESTION: u8 = 3;

/// Frames in, packets out.
#[derive(Clone, Debug)]
pub struct Naive {
    lifetime: Duration,
    strict: Option<Strict>,
    packets: Vec<Gathering>,
}

/// What a reassembler in the network adds to the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strict {
    /// The most pieces of a packet.
    pub(super) most: usize,
}

/// A packet of which something came.
#[derive(Clone, Debug)]
struct Gathering {
    name: Name,
    started: Instant,
    /// In the order in which they came.
    pieces: Vec<Piece>,
    /// Its pieces contradict each other: nothing comes of it any more (RFC 5722).
    is_refused: bool,
}

/// A packet whose time is over, and whose first piece came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The frame of that piece, without padding.
    pub frame: Vec<u8>,
}

impl Naive {
    /// Packets are waited for this long, from their first piece on.
    #[must_use]
    pub const fn new(lifetime: Duration) -> Self {
        Self { lifetime, strict: None, packets: Vec::new() }
    }

    /// The same, with more rules: a repetition has the same bytes, a first piece has all headers,
    /// and pieces are bounded.
    pub(super) const fn strict(lifetime: Duration, most: usize) -> Self {
        Self { lifetime, strict: Some(Strict { most }), packets: Vec::new() }
    }

    /// A frame came: the packet that comes out, if one does.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) -> Option<Vec<u8>> {
        self.take(now, frame, read(frame))
    }

    /// The same of a frame that was read already.
    pub(super) fn take(&mut self, now: Instant, frame: &[u8], reading: Reading) -> Option<Vec<u8>> {
        match reading {
            Reading::Whole => Some(frame.to_vec()),
            Reading::Bad => None,
            Reading::Piece(piece) if self.strict.is_some() && lacks_headers(&piece) => None,
            // RFC 6946: whatever else has its name.
            Reading::Piece(piece) if piece.offset == 0 && !piece.more => {
                whole(&piece.head, piece.ecn, &piece.bytes)
            }
            Reading::Piece(piece) => self.gather(now, piece),
        }
    }

    /// Time passed: the packets that were given up.
    pub fn pass(&mut self, now: Instant) -> Vec<Expired> {
        let lifetime = self.lifetime;
        if self.packets.iter().all(|packet| now.since(packet.started) < lifetime) {
            return Vec::new();
        }
        let (old, young) = core::mem::take(&mut self.packets)
            .into_iter()
            .partition(|packet| now.since(packet.started) >= lifetime);
        self.packets = young;
        let first = |packet: &Gathering| packet.pieces.iter().find(|p| p.offset == 0).cloned();
        let old: Vec<Gathering> = old;
        old.iter().filter_map(first).map(|piece| Expired { frame: piece.frame }).collect()
    }

    /// Whether more pieces of this packet are waited for.
    pub(super) fn waits_for(&self, name: &Name) -> bool {
        self.packets.iter().any(|packet| packet.name == *name && !packet.is_refused)
    }

    /// How many packets are waited for, refused ones among them.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether nothing is waited for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn gather(&mut self, now: Instant, piece: Piece) -> Option<Vec<u8>> {
        let known = self.packets.iter().position(|packet| packet.name == piece.name);
        let at = known.unwrap_or_else(|| {
            let name = piece.name.clone();
            self.packets.push(Gathering {
                name,
                started: now,
                pieces: Vec::new(),
                is_refused: false,
            });
            self.packets.len() - 1
        });
        self.packets[at].take(piece, self.strict);
        if !self.packets[at].is_complete() {
            return None;
        }
        let joined = self.packets[at].join();
        if joined.is_some() {
            self.packets.remove(at);
        } else {
            self.packets[at].refuse();
        }
        joined
    }
}

impl Gathering {
    fn take(&mut self, piece: Piece, strict: Option<Strict>) {
        let same = |known: &Piece| {
            (known.offset, known.end(), known.more) == (piece.offset, piece.end(), piece.more)
        };
        if self.is_refused {
            return;
        }
        if let Some(known) = self.pieces.iter().find(|known| same(known)) {
            if strict.is_some() && known.bytes != piece.bytes {
                self.refuse();
            }
            return;
        }
        let is_full = strict.is_some_and(|strict| self.pieces.len() >= strict.most);
        if is_full || self.pieces.iter().any(|known| contradict(known, &piece)) {
            return self.refuse();
        }
        self.pieces.push(piece);
    }

    fn refuse(&mut self) {
        self.is_refused = true;
        self.pieces.clear();
    }

    fn is_complete(&self) -> bool {
        let last = self.pieces.iter().find(|piece| !piece.more);
        let have: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        // They do not overlap: as many bytes as there are to be is all of them.
        last.is_some_and(|last| have == last.end())
    }

    /// All pieces are there.
    fn join(&mut self) -> Option<Vec<u8>> {
        self.pieces.sort_by_key(|piece| piece.offset);
        let payload = self.pieces.iter().map(|piece| &piece.bytes[..]).collect::<Vec<_>>().concat();
        let marks = |mark| self.pieces.iter().any(|piece| piece.ecn == mark);
        // RFC 3168, 5.3: congestion is told, but to nobody who does not understand it.
        // Pieces of which some understand it and others do not are no sender's.
        let first = &self.pieces[0];
        let is_mixed = marks(NOT_CAPABLE) && self.pieces.iter().any(|p| p.ecn != NOT_CAPABLE);
        let ecn = if marks(CONGESTION) { CONGESTION } else { first.ecn };
        if is_mixed { None } else { whole(&first.head, ecn, &payload) }
    }
}

/// A first piece without all headers up to the transport's, or another one that begins within
/// that of TCP.
fn lacks_headers(piece: &Piece) -> bool {
    const TCP: u8 = 6;
    let is_v4 = piece.name.protocol.is_some();
    // In IPv6 the fragment header says it, which stands behind what is the head of the whole.
    let mut kind = piece.name.protocol.unwrap_or_else(|| piece.frame[piece.head.len()]);
    if piece.offset > 0 {
        return kind == TCP && piece.offset < 20;
    }
    let mut at = 0;
    while !is_v4 && [HOP_BY_HOP, ROUTING, FRAGMENT, 51, DESTINATION, 135].contains(&kind) {
        let Some(header) = piece.bytes.get(at..at + 2) else { return true };
        at += match kind {
            FRAGMENT => 8,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        kind = header[0];
        if at > piece.bytes.len() {
            return true;
        }
    }
    let rest = &piece.bytes[at..];
    let needed = match kind {
        TCP => 20.max(rest.get(12).map_or(0, |words| usize::from(words >> 4) * 4)),
        17 | 1 | 58 => 8,
        _ => 0,
    };
    rest.len() < needed
}

/// Two pieces that cannot be of one packet: they overlap, or one lies behind what
/// the other says is the end.
fn contradict(a: &Piece, b: &Piece) -> bool {
    let overlap = a.offset < b.end() && b.offset < a.end();
    let behind = |last: &Piece, other: &Piece| !last.more && other.end() > last.end();
    let two_ends = !a.more && !b.more;
    overlap || two_ends || behind(a, b) || behind(b, a)
}

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
    /// No piece of anything: anyone who is above sees it as it came.
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
    read_within(frame, LONGEST_HEAD)
}

/// The same where headers of up to this many bytes, the header of the link among them, are looked through.
pub(super) fn read_within(frame: &[u8], longest_head: usize) -> Reading {
    let reading = match word(frame, 12) {
        Some(IPV4) => read_v4(frame),
        Some(IPV6) => read_v6(frame, longest_head),
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

fn read_v6(frame: &[u8], longest_head: usize) -> Option<Reading> {
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
        if !is_known || is_on_its_way || ETHERNET + at + len > longest_head {
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::forge;
    use super::super::traffic::{Flow, Shape, cut};
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(30);

    fn packet(flow: u8, ecn: u8) -> (Vec<u8>, Vec<Vec<u8>>) {
        let shape = Shape { len: 4096, id: 9, ecn, content: 1, ..Shape::default() };
        let packet = Flow(flow).packet(&shape);
        let pieces = cut(&packet, 1500, 9);
        (packet, pieces)
    }

    fn come(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut naive = Naive::new(LIFETIME);
        frames.iter().filter_map(|frame| naive.receive(Instant::ZERO, frame)).collect()
    }

    #[test]
    fn repetitions_are_ignored_and_other_overlaps_refuse_the_packet() {
        for flow in 0..2 {
            let (whole, pieces) = packet(flow, 0);
            let mut twin = pieces[1].clone();
            forge::invert_bytes(&mut twin);
            let [a, b, c] = [0, 1, 2].map(|n| pieces[n].clone());
            assert_eq!(come(&[a.clone(), b.clone(), twin.clone(), c.clone()]), [whole]);
            forge::shorten(&mut twin, 3);
            assert_eq!(come(&[a.clone(), b.clone(), twin.clone(), c.clone()]), [[0; 0]; 0]);
            assert_eq!(come(&[a, twin, b, c.clone(), c]), [[0; 0]; 0]);
        }
    }

    #[test]
    fn an_end_holds_for_all_pieces() {
        let (_, pieces) = packet(0, 0);
        let [a, b, c] = [0, 1, 2].map(|n| pieces[n].clone());
        let mut early = b.clone();
        forge::set_offset(&mut early, 185, false);
        assert_eq!(come(&[c.clone(), early, a.clone(), b.clone()]), [[0; 0]; 0]);
        let mut beyond = b.clone();
        forge::set_offset(&mut beyond, 1000, true);
        assert_eq!(come(&[c.clone(), beyond, a, b]), [[0; 0]; 0]);
    }

    #[test]
    fn congestion_is_told_to_those_who_understand_it() {
        for flow in 0..2 {
            let (whole, mut pieces) = packet(flow, 2);
            forge::mark(&mut pieces[2], 3);
            let came = come(&pieces);
            let at = if flow == 0 { 0 } else { 4 };
            assert_eq!(came[0][15] >> at & 3, 3);
            assert_eq!(came[0][60..], whole[60..]);
            forge::mark(&mut pieces[1], 0);
            assert_eq!(come(&pieces), [[0; 0]; 0]);
        }
    }

    #[test]
    fn time_ends_what_is_not_whole() {
        let (whole, pieces) = packet(0, 0);
        let mut naive = Naive::new(LIFETIME);
        let later = Instant::ZERO + LIFETIME;
        for piece in &pieces[1..] {
            assert_eq!(naive.receive(Instant::ZERO, piece), None);
        }
        assert_eq!(naive.pass(later), [], "the first piece did not come");
        assert_eq!(naive.receive(later, &pieces[0]), None);
        assert_eq!(naive.len(), 1);
        let [expired] = &naive.pass(later + LIFETIME)[..] else { panic!() };
        assert_eq!(expired.frame, pieces[0]);
        assert_eq!(expired.frame[34..], whole[34..34 + 1480]);
        assert!(naive.is_empty());
    }

    #[test]
    fn a_whole_packet_behind_a_fragment_header_is_alone() {
        let (_, pieces) = packet(1, 0);
        let mut atomic = pieces[0].clone();
        forge::set_offset(&mut atomic, 0, false);
        let came = come(&[pieces[0].clone(), atomic, pieces[1].clone(), pieces[2].clone()]);
        assert_eq!(came.len(), 2);
        assert_eq!(came[0].len(), pieces[0].len() - 8);
    }

    #[test]
    fn padding_is_no_part_of_a_piece() {
        let (whole, mut pieces) = packet(0, 0);
        pieces[2].extend_from_slice(&[7; 20]);
        let foreign = vec![1; 60];
        pieces.push(foreign.clone());
        assert_eq!(come(&pieces), [whole, foreign]);
    }
}
