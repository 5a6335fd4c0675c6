//! Opening what was recorded.

use alloc::vec;
use alloc::vec::Vec;

use super::{Direction, Generation, Position, is_too_long};
use crate::aead::{Aead, Suite, Tag};
use crate::secret::Secret;

/// A low byte tells generations apart up to here.
const BYTE: u32 = 256;

/// Opens recorded units of one direction. Unlike an opener it takes the same number as often as it
/// comes, since a recording has what was repeated and what was recorded twice, and every
/// generation of keys that it can get to, since recordings begin and end where they like.
pub(crate) struct Inspector<A> {
    direction: Direction,
    suite: Suite,
    /// The secret of each generation so far.
    secrets: Vec<Secret>,
    /// The newest generation that a genuine unit had.
    newest: u32,
    /// The keys that were used last.
    current: Generation<A>,
}

impl<A: Aead> Inspector<A> {
    pub(crate) fn new(secret: &Secret, direction: Direction, suite: Suite) -> Self {
        let first = || Secret::new(*secret.as_bytes());
        let current = Generation::new(0, first(), suite);
        Self { direction, suite, secrets: vec![first()], newest: 0, current }
    }

    pub(crate) const fn newest(&self) -> u32 {
        self.newest
    }

    /// Opens a payload where it lies; gives the generation of the keys that did. `None`: the tag
    /// does not fit, and the payload holds nothing of use.
    pub(crate) fn open(
        &mut self,
        at: Position,
        head: &[u8],
        payload: &mut [u8],
        tag: &Tag,
    ) -> Option<u32> {
        // Further back than the first: the recording begins later. So its low byte is all of it.
        let is_known = at.generation < self.newest.saturating_add(BYTE / 2);
        let number = if is_known { at.generation } else { at.generation % BYTE };
        if is_too_long(head, payload) {
            return None;
        }
        if self.current.number != number {
            self.current = Generation::new(number, self.secret(number), self.suite);
        }
        let nonce = self.current.nonce(self.direction, at.path, at.number);
        self.current.cipher(self.suite).open(&nonce, head, payload, tag).ok()?;
        self.newest = self.newest.max(number);
        Some(number)
    }

    /// The secret of a generation that is at most 255 behind what there was.
    fn secret(&mut self, number: u32) -> Secret {
        while self.secrets.len() <= number as usize {
            let last = self.secrets.last().unwrap_or(&self.current.secret);
            self.secrets.push(last.next_generation());
        }
        Secret::new(*self.secrets[number as usize].as_bytes())
    }
}
