//! [`Place`]: where an element will be read, to be written into; and [`View`]: where it lies,
//! to be read.
//!
//! Nothing has to be copied twice. A place is in the memory of the receiver: what is written
//! there is written once, and is seen when it is published. A view reads where the bytes came
//! to lie. While there is a place or a view, nobody who keeps to the protocol writes those
//! bytes: the counters of the ring say when the place may be used again.
//!
//! **No slices.** A peer that does not keep to the protocol may change the bytes at any moment.
//! So both give access by words and copies of parts, never a `&[u8]`; a typed value that was
//! [got](View::get) is a copy. Who needs one state of many bytes copies them
//! ([`View::read`], [`View::to_vec`]). Where the memory is in reach as it is (between threads
//! and processes), [`piece`](Place::piece) is that memory.
//!
//! What does not live here: when a place is free, which is for the ring above.

use landfall_transport::memory::Piece;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::clan::{Error, Local, Remote, WORD};

/// Bytes in the memory of the receiver, to be written before they are published.
#[derive(Debug)]
pub struct Place<'a, R: Remote> {
    target: Target<'a, R>,
    at: u64,
    len: u64,
}

/// Where what is written goes.
#[derive(Debug)]
enum Target<'a, R: Remote> {
    Remote(&'a mut R),
    /// Memory of this side, from which all receivers are sent it.
    Bytes(&'a mut [u8]),
}

impl<'a, R: Remote> Place<'a, R> {
    pub(super) const fn new(remote: &'a mut R, at: u64, len: u64) -> Self {
        Self { target: Target::Remote(remote), at, len }
    }

    /// All of these bytes, which are sent later.
    pub(super) const fn of_bytes(bytes: &'a mut [u8]) -> Self {
        let len = bytes.len() as u64;
        Self { target: Target::Bytes(bytes), at: 0, len }
    }

    /// How many bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes bytes, from `at` on. What was there before is what an earlier element left.
    ///
    /// # Errors
    /// They do not all fit, the send buffer is full, or the peer is gone.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let at = within(self.at, self.len, at, bytes.len())?;
        match &mut self.target {
            Target::Remote(remote) => remote.write(at, bytes),
            // It lies within: that was checked.
            Target::Bytes(all) => {
                all[at as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Writes the word at a multiple of eight.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), or no word is there.
    #[inline]
    pub fn store(&mut self, at: usize, word: u64) -> Result<(), Error> {
        let place = within(self.at, self.len, at, 8)?;
        match &mut self.target {
            Target::Remote(remote) => remote.store(place, word),
            Target::Bytes(_) if !place.is_multiple_of(WORD) => Err(Error::Unaligned(place)),
            Target::Bytes(_) => self.write(at, &word.to_le_bytes()),
        }
    }

    /// Writes a value.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    #[inline]
    pub fn put<T: IntoBytes + Immutable>(&mut self, at: usize, value: &T) -> Result<(), Error> {
        self.write(at, value.as_bytes())
    }

    /// The receiver's memory itself, where this process has it: between threads, and between
    /// processes of one host. Over a network there is none.
    ///
    /// What is written there counts as written: a tripwire of the receiver fires for it when
    /// it is published.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn piece(&mut self) -> Result<Option<Piece>, Error> {
        match &mut self.target {
            Target::Remote(remote) => remote.piece(self.at..self.at + self.len),
            Target::Bytes(_) => Ok(None),
        }
    }
}

/// Bytes that were received, where they lie.
#[derive(Debug)]
pub struct View<'a, L: Local> {
    local: &'a L,
    at: u64,
    len: u64,
}

impl<L: Local> Clone for View<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Local> Copy for View<'_, L> {}

impl<'a, L: Local> View<'a, L> {
    pub(super) const fn new(local: &'a L, at: u64, len: u64) -> Self {
        Self { local, at, len }
    }

    /// How many bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out, from `at` on.
    ///
    /// # Errors
    /// They are not all there.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        self.local.copy_out(within(self.at, self.len, at, into.len())?, into)
    }

    /// Reads the word at a multiple of eight.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn load(&self, at: usize) -> Result<u64, Error> {
        self.local.load(within(self.at, self.len, at, 8)?)
    }

    /// Reads a value: a copy of it, for it may change where it lies.
    ///
    /// # Errors
    /// It is not all there.
    #[inline]
    pub fn get<T: FromBytes + IntoBytes>(&self, at: usize) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.read(at, value.as_mut_bytes())?;
        Ok(value)
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The memory itself, where this process has it as words: between threads, and between
    /// processes of one host.
    ///
    /// # Errors
    /// None that is known.
    pub fn piece(&self) -> Result<Option<Piece>, Error> {
        self.local.piece(self.at..self.at + self.len)
    }
}

/// Where bytes of a part lie in the whole.
#[inline]
fn within(start: u64, size: u64, at: usize, len: usize) -> Result<u64, Error> {
    match at.checked_add(len) {
        Some(end) if end as u64 <= size => Ok(start + at as u64),
        _ => Err(Error::OutOfBounds { offset: at as u64, len: len as u64, size }),
    }
}
