//! Frames that lie somewhere already (in a ring that is shared with the kernel, in the memory
//! of a device), and packets that are lent as lists of where their pieces lie.
//!
//! A list takes pieces in any order and from any number of bunches. It is given up, and its
//! pieces go the conventional way, when one contradicts the others or repeats one, when it
//! waits longer than the patience, and when others need its place. So a list changes what a
//! packet costs, and never what comes out.

use alloc::vec::Vec;

use landfall_inet::reassembly::Piece;
use landfall_placement::{Ecn, Instant, Span, Spans};

use super::misplaced::First;
use super::{Lend, Receiver};
use crate::conventional;
use crate::memory::{
    Body, Bunch, Head, ListId, MappedFrame, Memory, Packet, Pieces, ReassemblyPath,
};
use crate::wire::{self, Key, Parsed};

/// The most lists that are not complete: where others begin, the oldest goes the conventional way.
pub(super) const MOST_OPEN: usize = 64;

/// A packet of which some pieces came, and none that contradicts another.
#[derive(Debug)]
pub(super) struct Gathered {
    key: Key,
    ecn: Ecn,
    since: Instant,
    /// What the headers of the first piece say, and its head up to the end of the transport
    /// header, once it came.
    first: Option<(Parsed, Head)>,
    /// In the order of the packet.
    pieces: Vec<Fragment>,
    /// How many bytes they are together.
    filled: u32,
    /// How long the packet is, once its last piece came.
    total: Option<u32>,
}

/// A piece where it lies.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    piece: Piece,
    /// The whole frame.
    at: Span,
    payload_at: u16,
    bunch: u64,
}

impl Fragment {
    /// The payload behind its first `skip` bytes.
    fn payload(&self, skip: u32) -> Span {
        let (_, behind) = self.at.split_at(u32::from(self.payload_at) + skip);
        behind.split_at(self.piece.len().saturating_sub(skip)).0
    }
}

impl Gathered {
    /// Where a piece belongs among the others; `None` if it contradicts or repeats one.
    fn place(&self, piece: Piece, ecn: Ecn) -> Option<usize> {
        let later = self.pieces.iter().rev().take_while(|other| other.piece.start >= piece.end);
        let at = self.pieces.len() - later.count();
        let is_behind = at.checked_sub(1).is_none_or(|n| self.pieces[n].piece.end <= piece.start);
        let fits = match self.total {
            Some(total) => !piece.is_last && piece.end <= total,
            None => !piece.is_last || at == self.pieces.len(),
        };
        let has_room = self.pieces.len() < Spans::CAPACITY;
        (is_behind && fits && has_room && ecn == self.ecn).then_some(at)
    }

    fn is_complete(&self) -> bool {
        self.first.is_some() && self.total == Some(self.filled)
    }
}

/// Lists that are not complete.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    open: Vec<Gathered>,
    /// Which of them took the last piece.
    recent: usize,
    /// Memory of lists that are over, to be used again.
    spare: Vec<Vec<Fragment>>,
}

impl Gathering {
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<usize> {
        if self.open.get(self.recent).is_some_and(|recent| recent.key == *key) {
            return Some(self.recent);
        }
        self.open.iter().position(|other| other.key == *key)
    }

    fn remove(&mut self, at: usize) -> Gathered {
        self.open.swap_remove(at)
    }

    /// Which of them waits for the longest time.
    fn oldest(&self) -> Option<usize> {
        let ages = self.open.iter().enumerate().map(|(at, gathered)| (gathered.since, at));
        ages.min().map(|(_, at)| at)
    }

    /// Since when.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.open.iter().map(|gathered| gathered.since).min()
    }

    fn keep_memory(&mut self, mut pieces: Vec<Fragment>) {
        pieces.clear();
        if self.spare.len() < MOST_OPEN {
            self.spare.push(pieces);
        }
    }
}

/// Lists that were lent, by number.
#[derive(Debug)]
pub(super) struct Lists {
    lists: Vec<Slot>,
    free: Vec<u32>,
    most: usize,
}

#[derive(Debug)]
struct Slot {
    /// Odd while lent.
    generation: u32,
    spans: Spans,
    /// The bunches that they lie in, each once.
    bunches: Vec<u64>,
}

impl Lists {
    pub(super) fn new(most: usize) -> Self {
        Self { lists: Vec::new(), free: Vec::new(), most }
    }

    /// A list with these pieces, each with its bunch; `None` at the bound, or for too many.
    pub(super) fn lend(&mut self, pieces: impl Iterator<Item = (Span, u64)>) -> Option<ListId> {
        if self.free.is_empty() {
            if self.lists.len() == self.most {
                return None;
            }
            self.free.push(self.lists.len() as u32);
            self.lists.push(Slot { generation: 0, spans: Spans::new(), bunches: Vec::new() });
        }
        let index = *self.free.last()?;
        let slot = &mut self.lists[index as usize];
        slot.spans.clear();
        slot.bunches.clear();
        for (piece, bunch) in pieces {
            slot.spans.push(piece).ok()?;
            if slot.bunches.last() != Some(&bunch) && !slot.bunches.contains(&bunch) {
                slot.bunches.push(bunch);
            }
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.pop();
        Some(ListId { index, generation: slot.generation })
    }

    fn slot(&self, id: ListId) -> Option<&Slot> {
        let slot = self.lists.get(id.index as usize)?;
        (slot.generation == id.generation && id.generation & 1 == 1).then_some(slot)
    }

    pub(super) fn get(&self, id: ListId) -> Option<&[Span]> {
        self.slot(id).map(|slot| slot.spans.as_slice())
    }

    pub(super) fn give_back(&mut self, id: ListId) -> bool {
        if self.get(id).is_none() {
            return false;
        }
        let slot = &mut self.lists[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }
}

impl Receiver {
    /// Frames lie there. When this returns, all that was not lent has been read, and
    /// the memory of the others is the driver's again.
    ///
    /// Only between bursts, as for `handle_timeout`.
    pub fn take<M: Memory>(&mut self, now: Instant, frames: &[MappedFrame<'_>], memory: &mut M) {
        self.take_all(now, &Bunch { number: 0, frames, lend: self.config.lend }, memory);
        self.give_up_lists(memory);
    }

    /// Frames lie there, and stay there as long as [`holds_bunch`](Self::holds_bunch) says so or a
    /// packet that lies there is lent: packets that are not complete wait where they lie, for
    /// the patience that was configured.
    ///
    /// Numbers of bunches that are held differ. A bunch that is not to be lent from gives up all
    /// lists that are not complete, whatever bunch they lie in; it may have no frames.
    pub fn take_bunch<M: Memory>(&mut self, now: Instant, bunch: &Bunch<'_>, memory: &mut M) {
        if bunch.lend == Lend::List && self.config.lend == Lend::List {
            return self.take_all(now, bunch, memory);
        }
        self.give_up_lists(memory);
        let copied = self.stats.conventional;
        self.take_all(now, &Bunch { lend: Lend::Copy, ..*bunch }, memory);
        if self.config.lend == Lend::List {
            self.stats.at_bound += self.stats.conventional - copied;
        }
    }

    /// Whether pieces of a packet that is not complete lie in this bunch.
    #[must_use]
    pub fn holds_bunch(&self, number: u64) -> bool {
        let mut pieces = self.gathering.open.iter().flat_map(|gathered| &gathered.pieces);
        pieces.any(|lying| lying.bunch == number)
    }

    /// The pieces of a packet that was lent, in order: its body, behind the head.
    #[must_use]
    pub fn lent(&self, list: ListId) -> Option<&[Span]> {
        self.lists.get(list)
    }

    /// The bunches that the pieces of a packet lie in: all of them, each once.
    #[must_use]
    pub fn lent_from(&self, list: ListId) -> Option<&[u64]> {
        self.lists.slot(list).map(|slot| slot.bunches.as_slice())
    }

    /// The pieces of a packet are needed no longer. False if they were given back
    /// before. That their memory may be used again is between driver and user.
    pub fn release_list(&mut self, list: ListId) -> bool {
        self.lists.give_back(list)
    }

    /// All lists that are not complete go the conventional way.
    pub(super) fn give_up_lists<M: Memory>(&mut self, memory: &mut M) {
        while !self.gathering.open.is_empty() {
            self.give_up(0, memory);
        }
    }

    /// So does that of one packet.
    #[inline]
    pub(super) fn give_up_list_of<M: Memory>(&mut self, key: &Key, memory: &mut M) {
        if let Some(at) = self.gathering.find(key) {
            self.give_up(at, memory);
        }
    }

    /// And those that have waited long enough.
    pub(super) fn give_up_overdue<M: Memory>(&mut self, now: Instant, memory: &mut M) {
        let patience = self.patience();
        while let Some(at) = self.gathering.oldest()
            && self.gathering.open[at].since + patience <= now
        {
            self.give_up(at, memory);
        }
    }

    fn take_all<M: Memory>(&mut self, now: Instant, bunch: &Bunch<'_>, memory: &mut M) {
        self.stats.frames += bunch.frames.len() as u64;
        for frame in bunch.frames {
            self.take_one(now, bunch, frame, memory);
        }
    }

    fn take_one<M: Memory>(
        &mut self,
        now: Instant,
        bunch: &Bunch<'_>,
        lying: &MappedFrame<'_>,
        memory: &mut M,
    ) {
        // Nearly always what is shown is enough, and no byte of it is copied.
        if bunch.lend == Lend::List
            && let Ok(parsed) = wire::parse(lying.head, lying.at.len)
            && parsed.fragment.is_some()
        {
            self.withdraw_page(now, &parsed.key, memory);
            if self.gather(now, bunch.number, lying, &parsed, memory) {
                return;
            }
        }
        let frame = Pieces::one(lying.at);
        let mut first = First::new(lying.head);
        let parsed = match first.parse(&frame, lying.at.len, memory) {
            Ok(parsed) if parsed.fragment.is_some() => parsed,
            other => return self.not_a_fragment(None, &other, &first, &frame, memory),
        };
        self.withdraw_page(now, &parsed.key, memory);
        self.give_up_list_of(&parsed.key, memory);
        self.fragment(now, None, &mut first, &parsed, &frame, memory);
    }

    /// A page waits for pieces of its packet by guess alone.
    #[inline]
    fn withdraw_page<M: Memory>(&mut self, now: Instant, key: &Key, memory: &mut M) {
        while let Some(page) = self.speculator.withdraw(|begin, _| begin.key() == *key) {
            self.stats.broken += 1;
            self.adopt(now, &page, page.page, memory);
        }
    }

    /// Whether this piece went to a list. Where it did not, it has to go the conventional way,
    /// behind the others of its packet.
    fn gather<M: Memory>(
        &mut self,
        now: Instant,
        bunch: u64,
        lying: &MappedFrame<'_>,
        parsed: &Parsed,
        memory: &mut M,
    ) -> bool {
        // A piece that cannot be is missing here: it is refused, and counted, on the other way.
        let Ok(piece) = conventional::piece_of(parsed) else { return false };
        if piece.start == 0 && piece.is_last {
            return false; // whole, and nothing to be joined
        }
        let mut first = None;
        if piece.start == 0 {
            // Its head is longer than what is shown: it is copied.
            let Some(head) = head_of(lying.head, parsed, piece) else { return false };
            first = Some((*parsed, head));
        }
        let at = match self.gathering.find(&parsed.key) {
            Some(at) => at,
            None => {
                if !self.reassembly.is_empty() && self.reassembly.contains(&parsed.key) {
                    return false;
                }
                self.open_list(now, parsed, memory)
            }
        };
        let gathered = &mut self.gathering.open[at];
        // It contradicts another one, or repeats it: what comes of that is said on the other way.
        let Some(place) = gathered.place(piece, parsed.ecn) else { return false };
        let payload_at = parsed.payload_at;
        gathered.pieces.insert(place, Fragment { piece, at: lying.at, payload_at, bunch });
        gathered.filled += piece.len();
        gathered.first = first.or(gathered.first.take());
        if piece.is_last {
            gathered.total = Some(piece.end);
        }
        self.gathering.recent = at;
        if gathered.is_complete() {
            self.lend(at, memory);
        }
        true
    }

    /// Begins a list; where there are too many, the oldest goes.
    fn open_list<M: Memory>(&mut self, now: Instant, parsed: &Parsed, memory: &mut M) -> usize {
        if self.gathering.open.len() == MOST_OPEN
            && let Some(oldest) = self.gathering.oldest()
        {
            self.give_up(oldest, memory);
        }
        let pieces = self.gathering.spare.pop().unwrap_or_default();
        self.gathering.open.push(Gathered {
            key: parsed.key,
            ecn: parsed.ecn,
            since: now,
            first: None,
            pieces,
            filled: 0,
            total: None,
        });
        self.gathering.open.len() - 1
    }

    /// All pieces of a packet lie there.
    fn lend<M: Memory>(&mut self, at: usize, memory: &mut M) {
        let gathered = &self.gathering.open[at];
        let made = gathered.first.as_ref().and_then(|(parsed, head)| {
            let (network, transport) =
                head.split_at(usize::from(parsed.payload_at).min(head.len()));
            let skip = transport.len() as u32;
            let mut head = wire::whole_head(network, parsed, gathered.filled, gathered.ecn).ok()?;
            if !head.push(transport) {
                return None;
            }
            let pieces = gathered.pieces.iter().enumerate();
            let spans = pieces
                .map(|(n, lying)| (lying.payload(if n == 0 { skip } else { 0 }), lying.bunch));
            let body = Body::Lent(self.lists.lend(spans)?);
            let (body_len, path) = (gathered.filled - skip, ReassemblyPath::Lent);
            Some(Packet { head, body, body_len, path })
        });
        // Too long a head, or as many lists as may be: it goes the conventional way.
        let Some(packet) = made else { return self.give_up(at, memory) };
        let pieces = self.gathering.remove(at).pieces;
        self.gathering.keep_memory(pieces);
        self.deliver(packet);
    }

    /// What was gathered goes the conventional way.
    fn give_up<M: Memory>(&mut self, at: usize, memory: &mut M) {
        let gathered = self.gathering.remove(at);
        self.stats.lists_given_up += 1;
        for lying in &gathered.pieces {
            let frame = Pieces::one(lying.at);
            let mut first = First::new(&[]);
            first.reach(usize::from(lying.payload_at), &frame, memory);
            let Ok(parsed) = first.parse(&frame, lying.at.len, memory) else {
                debug_assert!(false, "it was read before, and lies where it lay");
                continue;
            };
            // Its lifetime runs from when its first piece came, and this ends none before.
            self.fragment(gathered.since, None, &mut first, &parsed, &frame, memory);
        }
        self.gathering.keep_memory(gathered.pieces);
    }
}

/// The head of a first piece up to the end of its transport header. `None` where it is longer
/// than what is shown, or than a head.
fn head_of(shown: &[u8], parsed: &Parsed, piece: Piece) -> Option<Head> {
    let at = usize::from(parsed.payload_at);
    let payload = shown.get(at..)?;
    let payload = payload.get(..piece.len() as usize).unwrap_or(payload);
    let transport = wire::transport_len(parsed.protocol, payload).map_or(0, usize::from);
    shown.get(..at + transport.min(payload.len())).and_then(Head::from_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;

    #[test]
    fn invariant_7_a_stale_list_names_nothing() {
        let mut lists = Lists::new(2);
        let piece = RegionId::new(1, 1).span(0, 8);
        let lend = |lists: &mut Lists, bunch| lists.lend([(piece, bunch)].into_iter());
        let first = lend(&mut lists, 1).unwrap();
        assert_eq!(lists.get(first), Some([piece].as_slice()));
        assert!(lists.give_back(first) && !lists.give_back(first));
        assert_eq!(lists.get(first), None);
        let again = lend(&mut lists, 2).unwrap();
        assert!(lend(&mut lists, 3).is_some() && again.index == first.index);
        assert_eq!(lists.slot(again).unwrap().bunches, [2]);
        assert!(lend(&mut lists, 4).is_none(), "at the bound");
        let many = core::iter::repeat_n((piece, 5), Spans::CAPACITY + 1);
        assert!(lists.give_back(again) && lists.lend(many).is_none());
        assert!(lend(&mut lists, 6).is_some(), "a list that failed is not lost");
    }

    #[test]
    fn each_bunch_of_a_list_is_named_once() {
        let mut lists = Lists::new(1);
        let piece = RegionId::new(1, 1).span(0, 8);
        let list = lists.lend([1, 2, 1, 1, 3].map(|bunch| (piece, bunch)).into_iter()).unwrap();
        assert_eq!(lists.get(list), Some([piece; 5].as_slice()));
        assert_eq!(lists.slot(list).unwrap().bunches, [1, 2, 3]);
    }

    /// A packet of which nothing has come.
    fn nothing_gathered(since: Instant) -> Gathered {
        Gathered {
            key: Key { source: 1, destination: 2, id: 3, protocol: 17 },
            ecn: Ecn::NotCapable,
            since,
            first: None,
            pieces: Vec::new(),
            filled: 0,
            total: None,
        }
    }

    #[test]
    fn a_list_has_room_for_as_many_pieces_as_can_be_lent() {
        let mut gathered = nothing_gathered(Instant::ZERO);
        for n in 0..Spans::CAPACITY {
            let start = 8 * n as u32;
            let piece = Piece { start, end: start + 8, is_last: false };
            assert_eq!(gathered.place(piece, Ecn::NotCapable), Some(n));
            let lying = Fragment { piece, at: Span::default(), payload_at: 34, bunch: 0 };
            gathered.pieces.push(lying);
        }
        let start = 8 * Spans::CAPACITY as u32;
        let one_more = Piece { start, end: start + 8, is_last: true };
        assert_eq!(gathered.place(one_more, Ecn::NotCapable), None);
    }

    #[test]
    fn the_oldest_list_is_the_one_that_began_first_wherever_it_is() {
        let mut gathering = Gathering::default();
        assert_eq!((gathering.oldest(), gathering.waits_since()), (None, None));
        gathering.open = [5, 3, 2, 4].map(|at| nothing_gathered(Instant::from_millis(at))).into();
        assert_eq!(gathering.oldest(), Some(2));
        assert_eq!(gathering.waits_since(), Some(Instant::from_millis(2)));
    }

    #[test]
    fn memory_is_kept_for_as_many_lists_as_may_be_open() {
        let mut gathering = Gathering::default();
        for n in 1..=65 {
            gathering.keep_memory(Vec::with_capacity(8));
            assert_eq!(gathering.spare.len(), n.min(64));
        }
    }

    #[test]
    fn a_piece_has_one_place_among_the_others_or_none() {
        let mut gathered = nothing_gathered(Instant::ZERO);
        let piece = |start, end, is_last| Piece { start, end, is_last };
        for (start, end) in [(16, 24), (0, 8), (24, 32)] {
            let piece = piece(start, end, false);
            let at = gathered.place(piece, Ecn::NotCapable).unwrap();
            let lying = Fragment { piece, at: Span::default(), payload_at: 34, bunch: 0 };
            gathered.pieces.insert(at, lying);
        }
        let starts = |gathered: &Gathered| -> Vec<u32> {
            gathered.pieces.iter().map(|lying| lying.piece.start).collect()
        };
        assert_eq!(starts(&gathered), [0, 16, 24]);
        let ask = |gathered: &Gathered, piece| gathered.place(piece, Ecn::NotCapable);
        assert_eq!(ask(&gathered, piece(8, 16, false)), Some(1));
        assert_eq!(
            gathered.place(piece(8, 16, false), Ecn::CongestionExperienced),
            None,
            "another mark"
        );
        for (start, end) in [(0, 8), (8, 24), (4, 12), (28, 36), (0, 40)] {
            assert_eq!(ask(&gathered, piece(start, end, false)), None, "{start} to {end}");
        }
        assert_eq!(ask(&gathered, piece(8, 16, true)), None, "an end before others");
        assert_eq!(ask(&gathered, piece(40, 41, true)), Some(3));
        gathered.total = Some(41);
        assert_eq!(ask(&gathered, piece(32, 40, false)), Some(3));
        assert_eq!(ask(&gathered, piece(40, 48, false)), None, "behind the end");
        assert_eq!(ask(&gathered, piece(32, 41, true)), None, "another end");
    }
}
