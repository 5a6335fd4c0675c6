//! What one side wrote, what must become of it at the other, and what a read may see of it.
//!
//! The bytes that a driver puts into place must be the next ones of what was
//! written, in its order, each once. What was written to an aperture that is gone
//! by then, or over a link that is gone, may be missing.
//!
//! So what landed may have more than one explanation: where the same byte was written
//! over a link that was lost and again over the next one, it may be either. All
//! explanations are kept, and one of them has to hold in the end.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::WordOp;

/// Something that has to take effect at the other side.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Its number among all that this side asked for.
    pub(super) serial: u64,
    /// Which of the other side's apertures.
    pub(super) aperture: usize,
    /// From which byte of the region on.
    pub(super) at: u64,
    pub(super) what: EffectKind,
    /// The link is gone that it was to cross.
    pub(super) may_be_lost: bool,
}

/// What takes effect.
#[derive(Clone, Debug)]
pub(super) enum EffectKind {
    Bytes(Vec<u8>),
    Word(WordOp),
}

/// How far what landed reaches: all before the entry `next` took effect or may be
/// missing, and this many bytes of it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    next: usize,
    bytes: usize,
}

impl Reached {
    const fn entry(next: usize) -> Self {
        Self { next, bytes: 0 }
    }
}

/// All that was written in one order.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    expected: VecDeque<Expected>,
    /// Each is an explanation of what landed; there is at least one, and the last one
    /// reaches furthest.
    reached: Vec<Reached>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { expected: VecDeque::new(), reached: vec![Reached::entry(0)] }
    }
}

impl Ledger {
    pub(super) fn push(&mut self, expected: Expected) {
        self.expected.push_back(expected);
    }

    /// What is not there yet by the explanation that reaches furthest, whatever
    /// `is_gone` says of its aperture.
    pub(super) fn missing(
        &self,
        is_gone: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = &Expected> {
        let next = self.reached.last().map_or(0, |reached| reached.next);
        self.expected
            .iter()
            .skip(next)
            .filter(move |one| !one.may_be_lost && !is_gone(one.aperture))
    }

    pub(super) fn link_gone(&mut self) {
        self.expected.iter_mut().for_each(|one| one.may_be_lost = true);
    }

    /// These bytes were put into place: they must be the next. Returns their
    /// aperture; `None` if they are not what was written.
    pub(super) fn land(
        &mut self,
        at: u64,
        bytes: &[u8],
        is_gone: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut aperture = None;
        let mut explained = Vec::new();
        let mut open: BTreeSet<(usize, Reached)> =
            self.reached.iter().map(|reached| (0, *reached)).collect();
        while let Some((done, reached)) = open.pop_first() {
            if done == bytes.len() {
                explained.push(reached);
                continue;
            }
            let Reached { next, bytes: have } = reached;
            let Some(entry) = self.expected.get(next) else { continue };
            if entry.may_be_lost || is_gone(entry.aperture) {
                open.insert((done, Reached::entry(next + 1)));
            }
            let EffectKind::Bytes(expected) = &entry.what else { continue };
            let len = (bytes.len() - done).min(expected.len() - have);
            let is_there = entry.at + have as u64 == at + done as u64;
            if is_there && expected[have..have + len] == bytes[done..done + len] {
                aperture = Some(entry.aperture);
                let is_whole = have + len == expected.len();
                let behind = Reached { next, bytes: have + len };
                open.insert((done + len, if is_whole { Reached::entry(next + 1) } else { behind }));
            }
        }
        self.explain(explained).then_some(aperture?)
    }

    /// This operation on a word is about to take effect: it must be the next.
    /// Returns its aperture.
    pub(super) fn land_word(
        &mut self,
        op: &WordOp,
        is_gone: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut aperture = None;
        let mut explained = Vec::new();
        let mut open: BTreeSet<Reached> = self.reached.iter().copied().collect();
        while let Some(Reached { next, bytes }) = open.pop_first() {
            let Some(entry) = self.expected.get(next) else { continue };
            if entry.may_be_lost || is_gone(entry.aperture) {
                open.insert(Reached::entry(next + 1));
            }
            if bytes == 0 && matches!(entry.what, EffectKind::Word(expected) if expected == *op) {
                aperture = Some(entry.aperture);
                explained.push(Reached::entry(next + 1));
            }
        }
        self.explain(explained).then_some(aperture?)
    }

    /// Only these explanations are left, in their order; what all of them have behind
    /// them is forgotten. `false`, and nothing changes, if there is none.
    fn explain(&mut self, explained: Vec<Reached>) -> bool {
        let Some(first) = explained.first().map(|reached| reached.next) else { return false };
        self.reached = explained;
        self.reached.iter_mut().for_each(|reached| reached.next -= first);
        self.expected.drain(..first);
        true
    }
}

/// One aperture of the other side, as its only writer knows it.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// All writes, in the order in which they were asked for.
    writes: Vec<Written>,
    /// What the bytes are once all of them are done.
    last: Vec<u8>,
    /// Something may have been lost: nothing is known any more.
    pub(super) is_unknown: bool,
}

/// A write, with the number of the request that made it.
#[derive(Clone, Debug)]
struct Written {
    serial: u64,
    at: usize,
    bytes: Vec<u8>,
}

impl Shadow {
    /// An aperture of this many zeros.
    pub(super) fn new(len: usize) -> Self {
        Self { writes: Vec::new(), last: vec![0; len], is_unknown: false }
    }

    pub(super) fn write(&mut self, serial: u64, at: usize, bytes: &[u8]) {
        self.last[at..at + bytes.len()].copy_from_slice(bytes);
        self.writes.push(Written { serial, at, bytes: bytes.to_vec() });
    }

    /// What the bytes are when all that was asked for has been done.
    pub(super) fn last(&self, at: usize, len: usize) -> &[u8] {
        &self.last[at..at + len]
    }

    /// Could a read that was asked for at `serial` have seen this? It sees all
    /// that was written before it, and maybe some of what came later.
    pub(super) fn may_be(&self, serial: u64, at: usize, bytes: &[u8]) -> bool {
        if self.is_unknown {
            return true;
        }
        // Of each byte: has it this value at the time of the read, or later?
        let mut may_be: Vec<bool> = bytes.iter().map(|byte| *byte == 0).collect();
        for write in &self.writes {
            let from = write.at.max(at);
            let to = (write.at + write.bytes.len()).min(at + bytes.len());
            for place in from..to {
                let is_it = write.bytes[place - write.at] == bytes[place - at];
                let seen = &mut may_be[place - at];
                *seen = is_it || *seen && write.serial >= serial;
            }
        }
        may_be.into_iter().all(|seen| seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(serial: u64, at: u64, bytes: &[u8]) -> Expected {
        let what = EffectKind::Bytes(bytes.to_vec());
        Expected { serial, aperture: at as usize / 100, at, what, may_be_lost: false }
    }

    fn missing(ledger: &Ledger) -> Vec<u64> {
        ledger.missing(|_| false).map(|one| one.serial).collect()
    }

    #[test]
    fn what_lands_is_what_was_written_next() {
        let mut ledger = Ledger::default();
        ledger.push(written(1, 8, &[1, 2, 3]));
        ledger.push(written(2, 11, &[4]));
        ledger.push(written(3, 208, &[5]));
        assert_eq!(ledger.land(208, &[5], |_| false), None, "two are missing before it");
        assert_eq!(ledger.land(8, &[1, 3], |_| false), None);
        assert_eq!(ledger.land(8, &[1, 2], |_| false), Some(0));
        assert_eq!(ledger.land(8, &[1], |_| false), None, "each lands once");
        assert_eq!(ledger.land(10, &[3, 4], |_| false), Some(0));
        assert_eq!(missing(&ledger), [3]);
        assert_eq!(ledger.land(208, &[5], |_| false), Some(2));
        assert_eq!(missing(&ledger), [0; 0]);
        assert_eq!(ledger.land(208, &[5], |_| false), None);
    }

    #[test]
    fn the_same_byte_over_two_links_lands_once_or_twice() {
        let mut ledger = Ledger::default();
        ledger.push(written(1, 8, &[7]));
        ledger.link_gone();
        ledger.push(written(2, 8, &[7]));
        assert_eq!(missing(&ledger), [2]);
        assert_eq!(ledger.land(8, &[7], |_| false), Some(0));
        assert_eq!(missing(&ledger), [0; 0], "it may have been the second");
        assert_eq!(ledger.land(8, &[7], |_| false), Some(0), "or the first");
        assert_eq!(ledger.land(8, &[7], |_| false), None, "but there is no third");
    }

    #[test]
    fn what_was_lost_does_not_land_behind_what_came_later() {
        let mut ledger = Ledger::default();
        ledger.push(written(1, 8, &[1]));
        ledger.link_gone();
        ledger.push(written(2, 9, &[2]));
        ledger.push(written(3, 10, &[3]));
        assert_eq!(ledger.land(9, &[2], |_| false), Some(0));
        assert_eq!(ledger.land(8, &[1], |_| false), None);
        assert_eq!(missing(&ledger), [3]);
    }
}
