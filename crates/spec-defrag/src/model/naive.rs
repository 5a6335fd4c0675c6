//! The naive reassembler: what comes out of these frames, by the letter of the
//! RFCs. Clear, not fast, and without bounds.

use alloc::vec::Vec;

use landfall_placement::{Duration, Instant};

use super::read::{Name, Piece, Reading, read, whole};

const NOT_CAPABLE: u8 = 0;
const CONGESTION: u8 = 3;

/// Frames in, packets out.
#[derive(Clone, Debug)]
pub struct Naive {
    lifetime: Duration,
    packets: Vec<Gathering>,
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
        Self { lifetime, packets: Vec::new() }
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
        self.packets[at].take(piece);
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
    fn take(&mut self, piece: Piece) {
        let same = |known: &Piece| {
            (known.offset, known.end(), known.more) == (piece.offset, piece.end(), piece.more)
        };
        if self.is_refused || self.pieces.iter().any(same) {
            return;
        }
        if self.pieces.iter().any(|known| contradict(known, &piece)) {
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

/// Two pieces that cannot be of one packet: they overlap, or one lies behind what
/// the other says is the end.
fn contradict(a: &Piece, b: &Piece) -> bool {
    let overlap = a.offset < b.end() && b.offset < a.end();
    let behind = |last: &Piece, other: &Piece| !last.more && other.end() > last.end();
    let two_ends = !a.more && !b.more;
    overlap || two_ends || behind(a, b) || behind(b, a)
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
