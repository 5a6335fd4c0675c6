//! The arithmetic of headers: a packet is split at any word, and what lies
//! behind one another is one packet again (section 2.2 of the paper).
//!
//! A [`Burst`] is a header together with how many words follow it. The wire does
//! not say how many: a link knows when the packet ends. So nothing but the
//! address has to be computed anew where a packet is cut, and nothing is lost
//! where two become one.
//!
//! Here is, too, what of a packet belongs into memory of this host ([`admit`]).
//!
//! What does not live here: the words themselves (see [`Fifo`](super::Fifo)), and who decides
//! where to cut (see [`switch`](crate::native::switch)).
//!
//! [`Fifo`]: a few words on their way, as the packets that they make up.

use alloc::collections::VecDeque;

use landfall_placement::{Refusal, Serial32};

use crate::address::{Address, Kind, WORD};
use crate::cookie::Rights;
use crate::native::wire::Symbol;
use crate::offload::{Apertures, Destination};

/// What a header costs, in words: it takes as much of a link and of a FIFO as two.
pub const HEADER_WORDS: u32 = Address::LEN as u32 / WORD;

/// The most words of a packet that cannot be split: the 96 bytes that a command
/// may have.
pub const MOST_INDIVISIBLE: u32 = 96 / WORD;

/// A header, and how many words follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    address: Address,
    words: u32,
}

impl Burst {
    /// `words` words to `address` and behind it.
    ///
    /// `None` for what is no packet: without a word, beyond the last offset
    /// there is, more than one word where only some bytes of it are meant, or
    /// a command with more or fewer words than its parameters take.
    #[must_use]
    pub const fn new(address: Address, words: u32) -> Option<Self> {
        let is_packet = match address.kind {
            Kind::Command => {
                address.mask == crate::address::WHOLE
                    && words <= MOST_INDIVISIBLE
                    && words == command_words(address.word)
            }
            _ if address.is_burst() => words > 0 && address.advanced(words - 1).is_some(),
            _ => words == 1,
        };
        if is_packet { Some(Self { address, words }) } else { None }
    }

    /// Where its first word belongs.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// How many words follow the header.
    #[must_use]
    pub const fn words(&self) -> u32 {
        self.words
    }

    /// What it takes of a link, in words, with its header.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.words.saturating_add(HEADER_WORDS)
    }

    /// The fewest words that may travel without the rest.
    #[must_use]
    pub const fn least(&self) -> u32 {
        if self.address.is_burst() { 1 } else { self.words }
    }

    /// The first `words` words as a packet of their own, and the rest as another.
    /// `None` where one of the two would be empty, and for what cannot be split.
    #[must_use]
    pub const fn split_at(self, words: u32) -> Option<(Self, Self)> {
        if !self.address.is_burst() || words == 0 || words >= self.words {
            return None;
        }
        match self.address.advanced(words) {
            Some(address) => {
                Some((Self { words, ..self }, Self { address, words: self.words - words }))
            }
            None => None,
        }
    }

    /// The two as one packet, if `next` goes on where this ends.
    #[must_use]
    pub fn joined(self, next: Self) -> Option<Self> {
        let goes_on = self.address.is_burst()
            && next.address.is_burst()
            && self.address.advanced(self.words) == Some(next.address);
        if !goes_on {
            return None;
        }
        // Both lie within 2^32 offsets, one behind the other; all of them would
        // be one word more than the number can say.
        let words = self.words.checked_add(next.words)?;
        Some(Self { words, ..self })
    }
}

/// How many words this many bytes of parameters take.
/// A packet has a word, even if nothing needs to be said.
const fn command_words(bytes: u32) -> u32 {
    if bytes == 0 { 1 } else { bytes.div_ceil(WORD) }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What is accepted, and where it belongs.
    pub taken: Option<(Burst, Destination)>,
    /// What is refused, and why.
    pub refused: Option<(Burst, Refusal)>,
}

/// Checks a packet of writes, word by word in effect: what begins inside of an
/// aperture and ends outside of it is accepted up to the end.
///
/// So it makes no difference whether a packet was joined with others on its way
/// or came alone, and nobody loses what was right because of what somebody
/// joined to it.
#[must_use]
pub fn admit(apertures: &Apertures<'_>, burst: Burst) -> Admitted {
    let check = |burst: &Burst| apertures.check(&burst.address(), burst.words(), Rights::Write);
    let refusal = match check(&burst) {
        Ok(spot) => return Admitted { taken: Some((burst, spot)), refused: None },
        Err(refusal) => refusal,
    };
    let none = Admitted { taken: None, refused: Some((burst, refusal)) };
    if refusal != Refusal::OutOfBounds {
        return none;
    }
    // How many words fit: what is shorter than something that fits, fits.
    let fits = |words: u32| burst.split_at(words).is_some_and(|(first, _)| check(&first).is_ok());
    let (mut most, mut least) = (burst.words(), 0);
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        if fits(middle) {
            least = middle;
        } else {
            most = middle;
        }
    }
    match burst.split_at(least) {
        Some((first, rest)) => Admitted {
            taken: check(&first).ok().map(|spot| (first, spot)),
            refused: Some((rest, refusal)),
        },
        None => none,
    }
}

/// The bytes of a word, in the order of memory.
pub type Word = [u8; WORD as usize];

/// A bounded FIFO of packets: what goes in behind the last word of another is
/// one packet with it when it comes out, and what comes out may be a part.
///
/// Its room is counted in words, headers included, and never grows.
#[derive(Clone, Debug)]
pub struct Fifo {
    bursts: VecDeque<Burst>,
    words: VecDeque<Word>,
    room: u32,
}

impl Fifo {
    /// The least room that makes sense: for a packet that cannot be split.
    pub const LEAST: u32 = HEADER_WORDS + MOST_INDIVISIBLE;

    /// A FIFO with room for this many words, headers included; no less than [`Self::LEAST`].
    #[must_use]
    pub fn new(room: u32) -> Self {
        let room = room.max(Self::LEAST);
        Self {
            bursts: VecDeque::with_capacity((room / HEADER_WORDS) as usize),
            words: VecDeque::with_capacity(room as usize),
            room,
        }
    }

    /// How many words it holds, headers included, at most.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.room
    }

    /// How many more words find room, headers included.
    #[must_use]
    pub fn free(&self) -> u32 {
        let headers = self.bursts.len() as u32 * HEADER_WORDS;
        self.room.saturating_sub(self.words.len() as u32 + headers)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bursts.is_empty()
    }

    /// The oldest packet, as far as it has come in.
    #[must_use]
    pub fn first(&self) -> Option<Burst> {
        self.bursts.front().copied()
    }

    /// How many words of a packet with this address find room now: a header less
    /// is needed where it goes on behind the last one.
    #[must_use]
    pub fn room_for(&self, address: &Address) -> u32 {
        let goes_on = self.bursts.back().is_some_and(|last| {
            last.address().is_burst()
                && address.is_burst()
                && last.address().advanced(last.words()) == Some(*address)
        });
        self.free().saturating_sub(if goes_on { 0 } else { HEADER_WORDS })
    }

    /// Puts a packet in, or nothing of it: `false` where it finds no room, or
    /// where `words` are not as many as it has.
    #[must_use]
    pub fn push(&mut self, burst: Burst, words: impl ExactSizeIterator<Item = Word>) -> bool {
        let fits = words.len() == burst.words() as usize
            && self.room_for(&burst.address()) >= burst.words();
        if !fits {
            return false;
        }
        let joined = self.bursts.back().and_then(|last| last.joined(burst));
        match (joined, self.bursts.back_mut()) {
            (Some(both), Some(last)) => *last = both,
            _ => self.bursts.push_back(burst),
        }
        self.words.extend(words);
        true
    }

    /// Takes the oldest packet out, or its first `most` words: the header, and
    /// the words in `words`, which come out even if nobody looks at them.
    /// `None` where nothing may come out: it is empty, or the packet has more
    /// words than that and cannot be split.
    pub fn pop(&mut self, most: u32) -> Option<(Burst, impl ExactSizeIterator<Item = Word> + '_)> {
        let first = self.bursts.front_mut()?;
        let taken = match first.split_at(most) {
            Some((taken, rest)) => {
                *first = rest;
                taken
            }
            None if first.words() <= most => self.bursts.pop_front()?,
            None => return None,
        };
        let len = (taken.words() as usize).min(self.words.len());
        Some((taken, self.words.drain(..len)))
    }

    /// Throws everything away, and says how many words that were.
    pub fn clear(&mut self) -> u64 {
        let lost = self.words.len() as u64;
        self.bursts.clear();
        self.words.clear();
        lost
    }
}

// How much may be on the way: credit in words, headers included, and Xoff.

/// What this end may send.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbound {
    sent: Serial32,
    /// Up to where the other end has room.
    edge: Serial32,
    stopped: bool,
}

impl Outbound {
    /// How many words a packet may have now.
    pub(super) fn room(&self) -> u32 {
        if self.stopped || self.edge.precedes(self.sent) {
            return 0;
        }
        self.edge.since(self.sent).saturating_sub(HEADER_WORDS)
    }

    pub(super) fn sent(&mut self, cost: u32) {
        self.sent = self.sent.plus(cost);
    }

    pub(super) fn stop(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    /// Returns whether that is more than before.
    pub(super) fn credit(&mut self, edge: Serial32) -> bool {
        let is_more = self.edge.precedes(edge);
        self.edge = self.edge.later(edge);
        is_more
    }
}

/// What the other end may send.
#[derive(Clone, Debug)]
pub(super) struct Inbound {
    /// The most that is here at a time.
    room: u32,
    arrived: Serial32,
    /// How much of it is still here.
    used: u32,
    /// Up to where the other end knows that it may send.
    told: Serial32,
    told_hold: bool,
}

impl Inbound {
    pub(super) fn new(room: u32) -> Self {
        let zero = Serial32(0);
        Self { room, arrived: zero, used: 0, told: zero, told_hold: false }
    }

    /// Something came. `false`: it had no leave to.
    #[must_use]
    pub(super) fn arrived(&mut self, cost: u32) -> bool {
        if cost > self.told.since(self.arrived) {
            return false;
        }
        self.arrived = self.arrived.plus(cost);
        self.used += cost;
        true
    }

    /// How much has arrived, and up to where the other end may send.
    pub(super) const fn window(&self) -> ReceiveWindow {
        ReceiveWindow { arrived: self.arrived, edge: self.told }
    }

    pub(super) fn occupied(&mut self, words: u32) {
        self.used = self.used.saturating_add(words).min(self.room);
    }

    pub(super) fn freed(&mut self, words: u32) {
        self.used = self.used.saturating_sub(words);
    }

    /// What the other end is to know.
    pub(super) fn poll(&mut self, hold: bool) -> Option<Symbol> {
        if self.told_hold != hold {
            self.told_hold = hold;
            return Some(if hold { Symbol::Xoff } else { Symbol::Xon });
        }
        let edge = due(self.room, self.room.saturating_sub(self.used), self.window())?;
        self.told = edge;
        Some(Symbol::Credit(edge))
    }

    /// Somebody else has told it that it may send up to there.
    pub(super) fn advertised(&mut self, edge: Serial32) {
        self.told = self.told.later(edge);
    }
}

/// How far the other end of a link is, in words with their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWindow {
    /// How many words have arrived.
    pub arrived: Serial32,
    /// It was told that it may send up to here.
    pub edge: Serial32,
}

/// The new edge to tell the other end, where `free` words of `room` are free. `None` where
/// that is not worth a symbol.
///
/// Credit is told in steps of a quarter of the room, so that a link is not full of symbols
/// and packets are not cut small. But an end that has less than the longest packet that
/// cannot be split hears of every word: it may be waiting for just that one.
#[must_use]
pub fn due(room: u32, free: u32, window: ReceiveWindow) -> Option<Serial32> {
    let ReceiveWindow { arrived, edge: told } = window;
    let edge = arrived.plus(free);
    let step = edge.offset_from(told);
    let is_due = step >= (room / 4).min(i32::MAX as u32) as i32
        || step > 0 && told.since(arrived) < Fifo::LEAST;
    is_due.then_some(edge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{HostId, Key, Kind, WHOLE};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn address(kind: Kind, word: u32, mask: u8) -> Address {
        let host = HostId::new(5).unwrap();
        Address { kind, host, slot: 3, word, mask, key: Key::from_bits(0xabc) }
    }

    #[test]
    fn what_is_no_packet_is_none() {
        let burst = |word, words| Burst::new(address(Kind::Burst, word, WHOLE), words);
        assert!(burst(7, 0).is_none(), "a packet has a word");
        assert!(burst(u32::MAX, 1).is_some(), "the last word there is");
        assert!(burst(u32::MAX, 2).is_none());
        assert!(Burst::new(address(Kind::Burst, 0, 0b0110), 1).is_some());
        assert!(Burst::new(address(Kind::Burst, 0, 0b0110), 2).is_none());
        let command = |bytes, words| Burst::new(address(Kind::Command, bytes, WHOLE), words);
        assert!(command(9, 2).is_some() && command(9, 1).is_none() && command(9, 3).is_none());
        assert!(command(0, 1).is_some() && command(0, 0).is_none(), "every packet has a word");
        assert!(command(96, 12).is_some() && command(97, 13).is_none());
        assert!(Burst::new(address(Kind::Command, 8, 0b1), 1).is_none());
    }

    #[test]
    fn some_things_stay_whole() {
        for whole in [
            Burst::new(address(Kind::Command, 16, WHOLE), 2).unwrap(),
            Burst::new(address(Kind::Burst, 2, 0b1), 1).unwrap(),
        ] {
            assert_eq!(whole.least(), whole.words());
            assert_eq!(whole.split_at(1), None);
            assert_eq!(whole.joined(whole), None);
        }
        let masked = Burst::new(address(Kind::Burst, 2, 0b1), 1).unwrap();
        let before = Burst::new(address(Kind::Burst, 1, WHOLE), 1).unwrap();
        assert_eq!(before.joined(masked), None);
    }

    #[test]
    fn only_what_goes_on_is_joined() {
        let first = Burst::new(address(Kind::Reply, 10, WHOLE), 4).unwrap();
        let next = Burst::new(address(Kind::Reply, 14, WHOLE), 1).unwrap();
        assert_eq!(first.joined(next).map(|both| both.words()), Some(5));
        assert_eq!(next.joined(first), None, "order is kept");
        for other in [
            Address { slot: 4, ..next.address() },
            Address { kind: Kind::Burst, ..next.address() },
            Address { host: HostId::new(6).unwrap(), ..next.address() },
            Address { key: Key::default(), ..next.address() },
            Address { word: 15, ..next.address() },
        ] {
            assert_eq!(first.joined(Burst::new(other, 1).unwrap()), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn splitting_and_joining_are_each_others_reverse(
            word: u32, words in 1..2_000u32, cut in 0..2_100u32,
        ) {
            let Some(whole) = Burst::new(address(Kind::Burst, word, WHOLE), words) else {
                prop_assert!(word.checked_add(words - 1).is_none());
                return Ok(());
            };
            match whole.split_at(cut) {
                Some((first, rest)) => {
                    prop_assert_eq!(first.words() + rest.words(), words);
                    prop_assert_eq!(first.joined(rest), Some(whole));
                    prop_assert_eq!(Burst::new(rest.address(), rest.words()), Some(rest));
                }
                None => prop_assert!(cut == 0 || cut >= words),
            }
        }
    }

    fn burst(word: u32, words: u32) -> Burst {
        let host = HostId::new(1).unwrap();
        let address =
            Address { kind: Kind::Burst, host, slot: 0, word, mask: WHOLE, key: Key::default() };
        Burst::new(address, words).unwrap()
    }

    fn words(burst: &Burst) -> impl ExactSizeIterator<Item = Word> + use<> {
        let from = burst.address().word as usize;
        (from..from + burst.words() as usize).map(|n| (n as u64).to_le_bytes())
    }

    #[test]
    fn a_full_one_takes_nothing_and_keeps_what_it_has() {
        let mut fifo = Fifo::new(0);
        assert_eq!(fifo.capacity(), Fifo::LEAST);
        assert!(fifo.push(burst(0, 10), words(&burst(0, 10))));
        let more = burst(100, 1);
        assert!(!fifo.push(more, words(&more)), "two words are left: the header takes them");
        let behind = burst(10, 2);
        assert!(fifo.push(behind, words(&behind)), "behind the last one it needs no header");
        assert_eq!(fifo.free(), 0);
        let (all, content) = fifo.pop(u32::MAX).unwrap();
        assert_eq!((all, content.count()), (burst(0, 12), 12));
        assert!(fifo.is_empty() && fifo.free() == fifo.capacity());
    }

    #[test]
    fn words_that_do_not_belong_to_the_header_stay_outside() {
        let mut fifo = Fifo::new(64);
        assert!(!fifo.push(burst(0, 3), words(&burst(0, 2))));
        assert!(fifo.is_empty());
    }

    proptest! {
        /// Whatever is put in and taken out in whatever pieces: each word comes
        /// out once, in order, at its own address.
        #[test]
        fn every_word_keeps_its_address(
            steps in proptest::collection::vec((any::<bool>(), 0..6u32, 1..40u32), 1..80),
        ) {
            let mut fifo = Fifo::new(64);
            let (mut next, mut into, mut out) = (0, Vec::new(), Vec::new());
            let mut take = |fifo: &mut Fifo, most| {
                let Some((taken, content)) = fifo.pop(most) else { return false };
                assert!(taken.words() <= most);
                for (n, word) in content.enumerate() {
                    assert_eq!(u64::from_le_bytes(word), u64::from(taken.address().word) + n as u64);
                    out.push(u64::from_le_bytes(word));
                }
                true
            };
            for (put, gap, len) in steps {
                if put {
                    let new = burst(next + gap, len);
                    if fifo.push(new, words(&new)) {
                        into.extend((next + gap..next + gap + len).map(u64::from));
                        next += gap + len;
                    }
                } else {
                    take(&mut fifo, len);
                }
                prop_assert!(fifo.free() <= fifo.capacity());
            }
            while take(&mut fifo, 7) {}
            prop_assert_eq!(into, out);
        }
    }
}
