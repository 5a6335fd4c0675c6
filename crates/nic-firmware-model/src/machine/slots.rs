//! Slots for frames in the memory of an adapter, or of its host.

use core::fmt;

use arrayvec::ArrayVec;

use super::ring::Store;

/// A frame in a slot: how long it is, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct QueuedFrame<M> {
    len: u32,
    about: M,
}

/// Places of one size for frames, each with something that is known about it.
#[derive(Debug)]
pub struct Slots<'s, M> {
    bytes: Store<'s, u8>,
    taken: Store<'s, Option<QueuedFrame<M>>>,
    size: usize,
    used: usize,
    /// Where to look for the next free one.
    next: usize,
}

impl<'s, M: Copy> Slots<'s, M> {
    /// Slots of `size` bytes in this storage: as many as both have room for.
    #[must_use]
    pub fn new(
        bytes: impl Into<Store<'s, u8>>,
        taken: impl Into<Store<'s, Option<QueuedFrame<M>>>>,
        size: usize,
    ) -> Self {
        Self { bytes: bytes.into(), taken: taken.into(), size, used: 0, next: 0 }
    }

    /// This many slots of this many bytes, in memory of their own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(count: usize, size: usize) -> Self {
        let bytes = Store::Owned(vec![0; count.saturating_mul(size)].into());
        Self { bytes, taken: Store::filled_with(count, || None), size, used: 0, next: 0 }
    }

    /// How many are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.taken.len()
    }

    /// Is there a free one?
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used < self.taken.len()
    }

    /// How long a frame may be.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Takes a free slot for a frame of `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize, about: M) -> Option<u16> {
        if len > self.size || !self.has_room() {
            return None;
        }
        let count = self.taken.len();
        let mut at = self.next;
        for _ in 0..count {
            let next = if at + 1 >= count { 0 } else { at + 1 };
            if let Some(place) = self.taken.get_mut(at)
                && place.is_none()
            {
                *place = Some(QueuedFrame { len: len as u32, about });
                self.used += 1;
                self.next = next;
                return u16::try_from(at).ok();
            }
            at = next;
        }
        None
    }

    /// The bytes of a frame.
    #[must_use]
    #[inline]
    pub fn bytes(&self, slot: u16) -> &[u8] {
        let at = usize::from(slot);
        let len = self.taken.get(at).and_then(Option::as_ref).map_or(0, |taken| taken.len);
        let start = at * self.size;
        self.bytes.get(start..start + len as usize).unwrap_or(&[])
    }

    /// The bytes of a frame, to be written.
    #[inline]
    pub fn bytes_mut(&mut self, slot: u16) -> &mut [u8] {
        let at = usize::from(slot);
        let len = self.taken.get(at).and_then(Option::as_ref).map_or(0, |taken| taken.len);
        let start = at * self.size;
        self.bytes.get_mut(start..start + len as usize).unwrap_or(&mut [])
    }

    /// A frame turned out to be shorter than its slot was taken for.
    pub fn shorten(&mut self, slot: u16, len: usize) {
        if let Some(Some(taken)) = self.taken.get_mut(usize::from(slot)) {
            taken.len = taken.len.min(u32::try_from(len).unwrap_or(u32::MAX));
        }
    }

    /// What is known about a frame.
    #[must_use]
    #[inline]
    pub fn about(&self, slot: u16) -> Option<M> {
        self.taken.get(usize::from(slot))?.as_ref().map(|taken| taken.about)
    }

    /// What is known about a frame, to be changed.
    pub fn about_mut(&mut self, slot: u16) -> Option<&mut M> {
        self.taken.get_mut(usize::from(slot))?.as_mut().map(|taken| &mut taken.about)
    }

    /// The slot is free again.
    #[inline]
    pub fn free(&mut self, slot: u16) {
        if let Some(place) = self.taken.get_mut(usize::from(slot))
            && place.take().is_some()
        {
            self.used -= 1;
        }
    }

    /// All slots are free again.
    pub fn clear(&mut self) {
        for place in self.taken.iter_mut() {
            *place = None;
        }
        self.used = 0;
    }
}

// The memory of an adapter, as a budget that its tables and slots share.

/// How many reservations an adapter keeps apart.
const MOST: usize = 24;

/// Part of the memory, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// What for.
    pub name: &'static str,
    /// How many bytes.
    pub bytes: u32,
}

/// There is not so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// What for.
    pub name: &'static str,
    /// How many bytes it wanted.
    pub wanted: u32,
    /// How many there are.
    pub left: u32,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, wanted, left } = self;
        write!(f, "{name} needs {wanted} bytes of SRAM, and {left} are left")
    }
}

impl core::error::Error for Exhausted {}

/// This many bytes, of which each table reserves its own.
#[derive(Clone, Debug)]
pub struct Sram {
    bytes: u32,
    used: u32,
    reserved: ArrayVec<Reservation, MOST>,
}

impl Sram {
    /// What a Tigon-II has.
    pub const TIGON: u32 = 1 << 20;
    /// What a LANai 9 has.
    pub const LANAI: u32 = 2 << 20;

    /// This many bytes, of which none is used.
    #[must_use]
    pub const fn new(bytes: u32) -> Self {
        Self { bytes, used: 0, reserved: ArrayVec::new_const() }
    }

    /// Reserves `count` places of `size` bytes.
    ///
    /// # Errors
    /// [`Exhausted`]; then nothing was reserved.
    pub fn reserve(
        &mut self,
        name: &'static str,
        count: usize,
        size: usize,
    ) -> Result<(), Exhausted> {
        let wanted = count.checked_mul(size).and_then(|bytes| u32::try_from(bytes).ok());
        let left = self.left();
        let refusal = Exhausted { name, wanted: wanted.unwrap_or(u32::MAX), left };
        let bytes = wanted.filter(|bytes| *bytes <= left).ok_or(refusal)?;
        self.reserved.try_push(Reservation { name, bytes }).map_err(|_| refusal)?;
        self.used += bytes;
        Ok(())
    }

    /// How many places of `size` bytes still fit.
    #[must_use]
    pub fn room_for(&self, size: usize) -> usize {
        (self.left() as usize).checked_div(size).unwrap_or(0)
    }

    /// How many bytes are not reserved.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.bytes - self.used
    }

    /// What is reserved, in order.
    #[must_use]
    pub fn reserved(&self) -> &[Reservation] {
        &self.reserved
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_used_again() {
        let mut slots = Slots::owned(2, 4);
        assert_eq!(slots.take(5, 'x'), None, "too long");
        let a = slots.take(3, 'a').unwrap();
        slots.bytes_mut(a).copy_from_slice(b"abc");
        let b = slots.take(4, 'b').unwrap();
        assert_eq!(slots.take(0, 'c'), None, "none is free");
        assert_eq!((slots.bytes(a), slots.about(b)), (&b"abc"[..], Some('b')));
        slots.free(a);
        slots.free(a);
        assert_eq!((slots.used(), slots.bytes(a).len(), slots.about(a)), (1, 0, None));
        assert_eq!(slots.take(1, 'd'), Some(a));
        assert_eq!(slots.bytes(9), &[] as &[u8]);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut sram = Sram::new(100);
        assert_eq!(sram.reserve("frames", 6, 10), Ok(()));
        let refused = Exhausted { name: "table", wanted: 41, left: 40 };
        assert_eq!(sram.reserve("table", 1, 41), Err(refused));
        assert_eq!(sram.reserve("table", usize::MAX, 2).unwrap_err().left, 40);
        assert_eq!((sram.left(), sram.room_for(9), sram.room_for(0)), (40, 4, 0));
        assert_eq!(sram.reserve("table", 1, 40), Ok(()));
        assert_eq!(sram.reserved().len(), 2);
    }
}
