//! Doorbells: words that the host writes to an adapter's address, in a FIFO.

use super::ring::Ring;
use super::store::Store;

/// A FIFO of doorbells. What finds it full is lost, and counted: the host must
/// not ring more often than there is room.
#[derive(Debug)]
pub struct Doorbells<'s, T> {
    fifo: Ring<'s, T>,
    lost: u64,
}

impl<'s, T: Copy> Doorbells<'s, T> {
    /// An empty FIFO in this storage.
    #[must_use]
    pub fn new(places: impl Into<Store<'s, Option<T>>>) -> Self {
        Self { fifo: Ring::new(places), lost: 0 }
    }

    /// An empty FIFO for so many, in memory of its own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(capacity: usize) -> Self {
        Self { fifo: Ring::owned(capacity), lost: 0 }
    }

    /// The host rings. False where that is lost.
    pub fn ring(&mut self, bell: T) -> bool {
        let fits = self.fifo.push(bell);
        self.lost += u64::from(!fits);
        fits
    }

    /// The oldest, taken by the firmware.
    pub fn take(&mut self) -> Option<T> {
        self.fifo.pop()
    }

    /// The oldest.
    #[must_use]
    pub fn front(&self) -> Option<T> {
        self.fifo.front().copied()
    }

    /// For how many there is room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.fifo.room()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.fifo.len()
    }

    /// How many were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Forgets those that wait.
    pub fn clear(&mut self) {
        self.fifo.clear();
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn what_finds_it_full_is_lost_and_counted() {
        let mut bells = Doorbells::owned(2);
        assert!(bells.ring(1) && bells.ring(2) && !bells.ring(3));
        assert_eq!((bells.waiting(), bells.lost()), (2, 1));
        assert_eq!((bells.take(), bells.take(), bells.take()), (Some(1), Some(2), None));
    }
}
