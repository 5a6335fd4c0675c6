//! The address space in which moved buffers lie: several banks, in each of them
//! a place for every buffer.
//!
//! A buffer always goes to its own place in one of the banks, and the pages that
//! were read come back to the buffer that they are from. Neighbours stay
//! neighbours, so many of them move at once; and the kernel, which keeps
//! book of what lies where, finds each bank in one piece however often it moved.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::memory::Mapping;

/// What is in a place: nothing, so that pages can be moved there at once.
const EMPTY: u8 = 0;
/// Pages that the application reads.
const TAKEN: u8 = 1;
/// Pages that it has read, to go back to the buffer.
const READ: u8 = 2;

/// Banks of places.
#[derive(Debug)]
pub(super) struct Strip {
    pub(super) mapping: Mapping,
    places: Box<[AtomicU8]>,
    buffers: usize,
}

/// For one buffer: where its pages go, and from where others come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) to: usize,
    pub(super) back_from: Option<usize>,
}

impl Strip {
    pub(super) fn new(banks: usize, buffers: usize, buffer_len: usize) -> io::Result<Self> {
        let count = banks.checked_mul(buffers).ok_or(io::ErrorKind::InvalidInput)?;
        let len = count.checked_mul(buffer_len).ok_or(io::ErrorKind::InvalidInput)?;
        let places = (0..count).map(|_| AtomicU8::new(EMPTY)).collect();
        Ok(Self { mapping: Mapping::reserved(len)?, places, buffers })
    }

    fn banks(&self) -> usize {
        self.places.len() / self.buffers
    }

    /// The number of a buffer's place in a bank.
    pub(super) fn place(&self, bank: usize, buffer: usize) -> usize {
        bank * self.buffers + buffer
    }

    fn is(&self, bank: usize, buffer: usize, state: u8) -> bool {
        self.places[self.place(bank, buffer)].load(Ordering::Acquire) == state
    }

    /// Where the pages of a buffer go; as with the neighbour before, if that is
    /// possible. None if the application keeps pages in all banks.
    pub(super) fn choose(&self, buffer: usize, before: Option<Choice>) -> Option<Choice> {
        let fits = |choice: &Choice| {
            self.is(choice.to, buffer, EMPTY)
                && choice.back_from.is_some_and(|bank| self.is(bank, buffer, READ))
        };
        if let Some(choice) = before.filter(fits) {
            return Some(choice);
        }
        let mut read = (0..self.banks()).filter(|bank| self.is(*bank, buffer, READ));
        match (0..self.banks()).find(|bank| self.is(*bank, buffer, EMPTY)) {
            Some(to) => Some(Choice { to, back_from: read.next() }),
            // What was read there is lost to the system.
            None => read.next().map(|to| Choice { to, back_from: read.next() }),
        }
    }

    /// The pages of a buffer have moved as chosen.
    pub(super) fn moved(self: &Arc<Self>, buffer: usize, choice: Choice) -> Taken {
        if let Some(bank) = choice.back_from {
            self.places[self.place(bank, buffer)].store(EMPTY, Ordering::Relaxed);
        }
        let place = self.place(choice.to, buffer);
        self.places[place].store(TAKEN, Ordering::Relaxed);
        Taken { strip: Arc::clone(self), place }
    }
}

/// A place whose pages the application reads.
pub(super) struct Taken {
    strip: Arc<Strip>,
    place: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // All that was read of it was read before.
        self.strip.places[self.place].store(READ, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_read_come_back_and_neighbours_move_alike() {
        let strip = Arc::new(Strip::new(3, 4, 4096).unwrap());
        let first = strip.choose(2, None).unwrap();
        assert_eq!(first, Choice { to: 0, back_from: None });
        let taken = strip.moved(2, first);
        let second = strip.choose(2, None).unwrap();
        assert_eq!(second, Choice { to: 1, back_from: None }, "the first is being read");
        drop(taken);
        let second = strip.choose(2, None).unwrap();
        assert_eq!(second, Choice { to: 1, back_from: Some(0) });
        // The neighbour is where this one was before.
        drop(strip.moved(3, Choice { to: 0, back_from: None }));
        assert_eq!(strip.choose(3, Some(second)), Some(second));
        let _taken = strip.moved(2, second);
        assert_eq!(strip.choose(2, None), Some(Choice { to: 0, back_from: None }));
    }

    #[test]
    fn what_is_read_is_never_moved_over() {
        let strip = Arc::new(Strip::new(2, 1, 4096).unwrap());
        let keep: Vec<_> = (0..2).map(|_| strip.moved(0, strip.choose(0, None).unwrap())).collect();
        assert_eq!(strip.choose(0, None), None);
        drop(keep);
        assert_eq!(strip.choose(0, None), Some(Choice { to: 0, back_from: Some(1) }));
    }
}
