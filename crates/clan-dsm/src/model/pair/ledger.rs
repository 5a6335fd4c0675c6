//! What one side wrote, and what must become of it at the other.
//!
//! The bytes that a driver puts into place must be the next ones of what was
//! written, in its order, each once. What was written to an aperture that is gone
//! by then, or over a link that is gone, may be missing.

use alloc::collections::VecDeque;

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
    pub(super) what: What,
    /// The link is gone that it was to cross.
    pub(super) may_be_lost: bool,
}

/// What takes effect.
#[derive(Clone, Debug)]
pub(super) enum What {
    Bytes(VecDeque<u8>),
    Word(WordOp),
}

/// All that was written in one order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    expected: VecDeque<Expected>,
}

impl Ledger {
    pub(super) fn push(&mut self, expected: Expected) {
        self.expected.push_back(expected);
    }

    /// What is not there yet, whatever `is_gone` says of its aperture.
    pub(super) fn missing(
        &self,
        is_gone: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = &Expected> {
        self.expected.iter().filter(move |one| !one.may_be_lost && !is_gone(one.aperture))
    }

    pub(super) fn link_gone(&mut self) {
        self.expected.iter_mut().for_each(|one| one.may_be_lost = true);
    }

    /// These bytes were put into place: they must be the next. Gives their
    /// aperture; `None` if they are not what was written.
    pub(super) fn land(
        &mut self,
        mut at: u64,
        mut bytes: &[u8],
        is_gone: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut aperture = None;
        while !bytes.is_empty() {
            let next = self.expected.front_mut()?;
            let is_next = |expected: &VecDeque<u8>| {
                next.at == at && bytes.iter().zip(expected).all(|(a, b)| a == b)
            };
            match &mut next.what {
                What::Bytes(expected) if is_next(expected) => {
                    let len = bytes.len().min(expected.len());
                    expected.drain(..len);
                    (at, bytes) = (at + len as u64, &bytes[len..]);
                    next.at = at;
                    aperture = Some(next.aperture);
                    if expected.is_empty() {
                        self.expected.pop_front();
                    }
                }
                _ if next.may_be_lost || is_gone(next.aperture) => {
                    self.expected.pop_front();
                }
                _ => return None,
            }
        }
        aperture
    }

    /// This operation on a word is about to take effect: it must be the next.
    /// Gives its aperture.
    pub(super) fn land_word(
        &mut self,
        op: &WordOp,
        is_gone: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        loop {
            let next = self.expected.pop_front()?;
            match next.what {
                What::Word(expected) if expected == *op => return Some(next.aperture),
                _ if next.may_be_lost || is_gone(next.aperture) => {}
                _ => return None,
            }
        }
    }
}
