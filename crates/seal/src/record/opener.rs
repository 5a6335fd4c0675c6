//! The receiving side of records.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

use super::window::Window;
use super::{BadUnits, Direction, Generation, Position, RecordConfig, Units, is_too_long};
use crate::aead::{Aead, Forged, Nonce, Suite, Tag};
use crate::secret::Secret;

/// Why a record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The record was changed, or sealed with another key.
    #[error("the tag does not fit: the record was changed, or sealed with another key")]
    Forged,
    /// A record with that number came before, or it is too old to know.
    #[error("a record with that number came before")]
    Replayed,
    /// No such path was configured.
    #[error("there is no path {0}")]
    NoPath(u16),
    /// The generation of keys is neither one of the last two nor the next.
    #[error("the generation {0} of keys is not known")]
    NoGeneration(u32),
    /// The payload or the head is longer than a record may be.
    #[error("a record has at most 16 MiB of payload and 64 KiB of head")]
    TooLong,
    /// A head says nothing that makes sense.
    #[error("the head has no position")]
    NoPosition,
    /// More records were forged than one key may refuse.
    #[error("too many records were forged: the connection is over")]
    Closed,
    /// A run's parts do not fit together.
    #[error(transparent)]
    BadUnits(#[from] BadUnits),
}

/// Opens the records of one direction.
///
/// A record is accepted once: its number is remembered when its tag has fitted, and not
/// before, so that nobody can use up the numbers of others. A record of the next generation
/// of keys that is genuine makes that the current one; the one before it opens what is late.
/// Records of 1,024 numbers behind the highest of their path count as replayed.
pub struct Opener<A> {
    direction: Direction,
    suite: Suite,
    current: Generation<A>,
    previous: Option<Box<Generation<A>>>,
    /// Made when the first record claims to be of it, and kept: a forger cannot have it
    /// derived over and over.
    next: Option<Box<Generation<A>>>,
    windows: Box<[Window]>,
    /// Forged records since the current generation began, and how many there may be.
    forged: u64,
    most_forged: u64,
}

impl<A> fmt::Debug for Opener<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("suite", &self.suite)
            .field("generation", &self.current.number)
            .field("forged", &self.forged)
            .finish_non_exhaustive()
    }
}

impl<A: Aead> Opener<A> {
    pub(crate) fn new(
        (secret, direction, suite): (Secret, Direction, Suite),
        config: &RecordConfig,
    ) -> Self {
        Self {
            direction,
            suite,
            current: Generation::new(0, secret, suite),
            previous: None,
            next: None,
            windows: vec![Window::default(); config.paths.into()].into(),
            forged: 0,
            most_forged: config.limits(suite).forgeries,
        }
    }

    /// The newest generation of keys that a genuine record had.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.current.number
    }

    /// Lets go of expanded keys until they are used again.
    pub(crate) fn drop_expanded(&mut self) {
        self.current.drop_expanded();
        let others = [&mut self.previous, &mut self.next];
        others.into_iter().flatten().for_each(|keys| keys.drop_expanded());
    }

    /// How many records were forged since that generation began.
    #[must_use]
    pub const fn forged(&self) -> u64 {
        self.forged
    }

    /// Could this be the position of a genuine record? Not where a record with that number came
    /// before, or nothing is accepted any more. It changes nothing, and costs little.
    #[must_use]
    pub fn expects(&self, at: Position) -> bool {
        self.check(at, &[], &[]).is_ok()
    }

    /// Opens a payload where it lies, together with all of its head.
    ///
    /// # Errors
    ///
    /// If the record is refused. The payload holds nothing of use then.
    pub fn open(
        &mut self,
        at: Position,
        head: &[u8],
        payload: &mut [u8],
        tag: &Tag,
    ) -> Result<(), OpenError> {
        self.check(at, head, payload)?;
        let verdict = self.try_with(at, |cipher, nonce| cipher.open(nonce, head, payload, tag))?;
        self.judge(at, verdict)
    }

    /// Opens while it copies: for a payload that moves anyway, or whose place holds what was
    /// accepted.
    ///
    /// # Errors
    ///
    /// If the record is refused. The second place holds nothing of use then.
    ///
    /// # Panics
    ///
    /// If the two places have different lengths.
    pub fn open_copy(
        &mut self,
        at: Position,
        head: &[u8],
        from: &[u8],
        to: &mut [u8],
        tag: &Tag,
    ) -> Result<(), OpenError> {
        assert_eq!(from.len(), to.len(), "both places have the same length");
        self.check(at, head, from)?;
        let verdict =
            self.try_with(at, |cipher, nonce| cipher.open_copy(nonce, head, from, to, tag))?;
        self.judge(at, verdict)
    }

    /// Opens a run in place. `position` reads it from each head; `verdict` hears of each unit
    /// in its order. A refused unit does not stop the others.
    ///
    /// # Errors
    ///
    /// [`BadUnits`] if the parts of the run do not fit together.
    pub fn open_run(
        &mut self,
        mut units: Units<'_>,
        mut position: impl FnMut(&[u8]) -> Option<Position>,
        mut verdict: impl FnMut(usize, Result<Position, OpenError>),
    ) -> Result<(), BadUnits> {
        units.count()?;
        for (nth, (head, tag, payload)) in units.each().enumerate() {
            let opened = position(head).ok_or(OpenError::NoPosition).and_then(|at| {
                self.open(at, head, payload, &Tag(*tag))?;
                Ok(at)
            });
            verdict(nth, opened);
        }
        Ok(())
    }

    /// What is known without the cipher.
    fn check(&self, at: Position, head: &[u8], payload: &[u8]) -> Result<(), OpenError> {
        if self.forged >= self.most_forged {
            return Err(OpenError::Closed);
        }
        if is_too_long(head, payload) {
            return Err(OpenError::TooLong);
        }
        let window = self.windows.get(usize::from(at.path)).ok_or(OpenError::NoPath(at.path))?;
        if window.has(at.number) || at.number == u64::MAX {
            return Err(OpenError::Replayed);
        }
        Ok(())
    }

    fn try_with(
        &mut self,
        at: Position,
        open: impl FnOnce(&A, &Nonce) -> Result<(), Forged>,
    ) -> Result<Result<(), Forged>, OpenError> {
        let unknown = OpenError::NoGeneration(at.generation);
        let keys = if at.generation == self.current.number {
            &mut self.current
        } else if self.current.number.checked_add(1) == Some(at.generation) {
            if self.next.is_none() {
                self.next = self.current.next(self.suite).map(Box::new);
            }
            self.next.as_deref_mut().ok_or(unknown)?
        } else {
            let previous = self.previous.as_deref_mut();
            previous.filter(|keys| keys.number == at.generation).ok_or(unknown)?
        };
        let nonce = keys.nonce(self.direction, at.path, at.number);
        Ok(open(keys.cipher(self.suite), &nonce))
    }

    fn judge(&mut self, at: Position, verdict: Result<(), Forged>) -> Result<(), OpenError> {
        if verdict.is_err() {
            self.forged += 1;
            return Err(OpenError::Forged);
        }
        if let Some(next) = self.next.take_if(|next| next.number == at.generation) {
            self.previous = Some(Box::new(core::mem::replace(&mut self.current, *next)));
            self.forged = 0;
        }
        if let Some(window) = self.windows.get_mut(usize::from(at.path)) {
            window.insert(at.number);
        }
        Ok(())
    }
}
