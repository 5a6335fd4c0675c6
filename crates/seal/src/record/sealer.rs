//! The sending side of records.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

use super::{BadUnits, Direction, Generation, Position, RecordConfig, Units, blocks, is_too_long};
use crate::aead::{Aead, Suite, Tag};
use crate::secret::Secret;

/// Why nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key has sealed as much as one key may. Another follows.
    #[error(
        "the key has sealed as much as one may: call `update`, tell the peer the generation, and seal again"
    )]
    UpdateKey,
    /// There are no more packet numbers, or no more generations of keys.
    #[error("all packet numbers or generations of keys are used: make a new connection")]
    Closed,
    /// The path is not one of those that were configured.
    #[error("there is no path {0}: configure more paths")]
    NoPath(u16),
    /// The payload or the head is longer than a record may be.
    #[error("a record has at most 16 MiB of payload and 64 KiB of head")]
    TooLong,
    /// A run's parts do not fit together.
    #[error(transparent)]
    BadUnits(#[from] BadUnits),
}

/// Seals the records of one direction.
///
/// A sealer owns its packet numbers: each [`slot`](Self::slot) has one that no other has, is
/// used once and cannot be copied. So no nonce repeats under one key, whatever the caller
/// does; a slot that is dropped leaves its number out.
///
/// ```
/// use landfall_seal::{Keys, RecordConfig, Role, Secret, Suite};
/// use landfall_seal::provider::Provider;
///
/// let keys = |role| Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
/// let config = RecordConfig::default();
/// let (mut sealer, _) = keys(Role::Initiator).records::<Provider>(&config);
/// let (_, mut opener) = keys(Role::Responder).records::<Provider>(&config);
///
/// let mut payload = *b"each byte has its place";
/// let slot = sealer.slot(0)?;
/// let at = slot.position();
/// let tag = slot.seal(b"head", &mut payload)?;
///
/// opener.open(at, b"head", &mut payload, &tag).unwrap();
/// assert_eq!(&payload, b"each byte has its place");
/// # Ok::<(), landfall_seal::SealError>(())
/// ```
pub struct Sealer<A> {
    direction: Direction,
    suite: Suite,
    generation: Generation<A>,
    /// Blocks that this generation sealed, and may seal.
    sealed: u64,
    most: u64,
    /// The next number of each path.
    next: Box<[u64]>,
}

impl<A> fmt::Debug for Sealer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("suite", &self.suite)
            .field("generation", &self.generation.number)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl<A: Aead> Sealer<A> {
    pub(crate) fn new(
        (secret, direction, suite): (Secret, Direction, Suite),
        config: &RecordConfig,
    ) -> Self {
        Self {
            direction,
            suite,
            generation: Generation::new(0, secret, suite),
            sealed: 0,
            most: config.limits(suite).blocks,
            next: vec![0; config.paths.into()].into(),
        }
    }

    /// The generation of keys that seals now.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation.number
    }

    /// Is it time for the next generation? From seven eighths of the limit on.
    #[must_use]
    pub const fn needs_update(&self) -> bool {
        self.sealed >= self.most - self.most / 8
    }

    /// Goes on to the next generation of keys; the last one's are erased. Packet numbers go
    /// on.
    ///
    /// # Errors
    ///
    /// [`SealError::Closed`] after 2³² generations.
    pub fn update(&mut self) -> Result<(), SealError> {
        self.generation = self.generation.next(self.suite).ok_or(SealError::Closed)?;
        self.sealed = 0;
        Ok(())
    }

    /// Lets go of expanded keys until they are used again.
    pub(crate) fn drop_expanded(&mut self) {
        self.generation.drop_expanded();
    }

    /// Takes the next packet number of a path.
    ///
    /// # Errors
    ///
    /// [`SealError::NoPath`], or [`SealError::Closed`] if the path has no more numbers.
    pub fn slot(&mut self, path: u16) -> Result<Slot<'_, A>, SealError> {
        let next = self.next.get_mut(usize::from(path)).ok_or(SealError::NoPath(path))?;
        let number = *next;
        *next = number.checked_add(1).ok_or(SealError::Closed)?;
        Ok(Slot { sealer: self, path, number })
    }

    /// Seals a run in place, and writes each tag behind its head. `number_head` writes the
    /// packet number into each head before it is authenticated.
    ///
    /// Gives the position of the first; the others follow with the numbers behind it.
    ///
    /// # Errors
    ///
    /// As [`Slot::seal`]. A run that does not fit in what the key may still seal is not
    /// begun.
    pub fn seal_run(
        &mut self,
        path: u16,
        mut units: Units<'_>,
        mut number_head: impl FnMut(u64, &mut [u8]),
    ) -> Result<Position, SealError> {
        let count = units.count()? as u64;
        let (head, unit) = (units.head_len, units.unit.min(units.payload.len()));
        if head > crate::aead::MOST_HEAD || unit > crate::aead::MOST_PAYLOAD {
            return Err(SealError::TooLong);
        }
        let next = *self.next.get(usize::from(path)).ok_or(SealError::NoPath(path))?;
        self.has_budget(count.saturating_mul(blocks(head, unit)))?;
        next.checked_add(count).ok_or(SealError::Closed)?;
        for (head, tag, payload) in units.each() {
            let slot = self.slot(path)?;
            number_head(slot.number, head);
            *tag = slot.seal(head, payload)?.0;
        }
        Ok(Position { path, generation: self.generation.number, number: next })
    }

    const fn has_budget(&self, blocks: u64) -> Result<(), SealError> {
        let is_within = match self.sealed.checked_add(blocks) {
            Some(sealed) => sealed <= self.most,
            None => false,
        };
        if is_within {
            Ok(())
        } else if self.generation.number == u32::MAX {
            Err(SealError::Closed)
        } else {
            Err(SealError::UpdateKey)
        }
    }
}

/// A packet number that is not used yet: for one record.
#[derive(Debug)]
pub struct Slot<'a, A> {
    sealer: &'a mut Sealer<A>,
    path: u16,
    number: u64,
}

impl<A: Aead> Slot<'_, A> {
    /// The position that the record will have. The head says it to the peer.
    #[must_use]
    pub const fn position(&self) -> Position {
        let generation = self.sealer.generation.number;
        Position { path: self.path, generation, number: self.number }
    }

    /// Seals a payload in place, together with all of its head.
    ///
    /// # Errors
    ///
    /// [`SealError::TooLong`], [`SealError::UpdateKey`] or [`SealError::Closed`]. The payload
    /// is as it was then.
    pub fn seal(self, head: &[u8], payload: &mut [u8]) -> Result<Tag, SealError> {
        let (cipher, nonce) = self.prepare(head, payload)?;
        Ok(cipher.seal(&nonce, head, payload))
    }

    /// Seals while it copies: the first place keeps what it has.
    ///
    /// # Errors
    ///
    /// As [`seal`](Self::seal).
    ///
    /// # Panics
    ///
    /// If the two places have different lengths.
    pub fn seal_copy(self, head: &[u8], from: &[u8], to: &mut [u8]) -> Result<Tag, SealError> {
        assert_eq!(from.len(), to.len(), "both places have the same length");
        let (cipher, nonce) = self.prepare(head, from)?;
        Ok(cipher.seal_copy(&nonce, head, from, to))
    }
}

impl<'a, A: Aead> Slot<'a, A> {
    fn prepare(
        self,
        head: &[u8],
        payload: &[u8],
    ) -> Result<(&'a A, crate::aead::Nonce), SealError> {
        if is_too_long(head, payload) {
            return Err(SealError::TooLong);
        }
        let sealer = self.sealer;
        let blocks = blocks(head.len(), payload.len());
        sealer.has_budget(blocks)?;
        sealer.sealed += blocks;
        let nonce = sealer.generation.nonce(sealer.direction, self.path, self.number);
        Ok((sealer.generation.cipher(sealer.suite), nonce))
    }
}
