//! The memory of an adapter, as a budget that its tables and slots share.

use arrayvec::ArrayVec;
use core::fmt;

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

/// So many bytes, of which each table reserves its own.
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

    /// So many bytes, of which none is used.
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

#[cfg(test)]
mod tests {
    use super::*;

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
