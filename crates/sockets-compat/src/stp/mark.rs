//! [`Mark`]: what the four bytes beside each Transfer say.
//!
//! Transfers are offered in the order in which their requests arrive, which need not be
//! the order of the writes; a socket keeps that order. So each message has a number,
//! from 1 on, in the low 31 bits; the number after the greatest is 1 again. The topmost
//! bit says that this (empty) Transfer is the end of its direction, and no message.
//!
//! A sender that knows nothing of this sends zeros: such Transfers are taken in the
//! order in which they come.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// None: it has no number.
    pub(super) number: Option<Number>,
    pub(super) is_end: bool,
}

/// The number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u32);

const END: u32 = 1 << 31;
const GREATEST: u32 = END - 1;

impl Number {
    pub(super) const FIRST: Self = Self(1);

    pub(super) const fn next(self) -> Self {
        Self(if self.0 == GREATEST { 1 } else { self.0 + 1 })
    }
}

impl Mark {
    pub(super) const fn of(number: Number) -> Self {
        Self { number: Some(number), is_end: false }
    }

    pub(super) const fn end(number: Number) -> Self {
        Self { number: Some(number), is_end: true }
    }

    pub(super) const fn to_opaque(self) -> u32 {
        let number = match self.number {
            Some(Number(number)) => number,
            None => 0,
        };
        number | if self.is_end { END } else { 0 }
    }

    pub(super) const fn from_opaque(opaque: u32) -> Self {
        let number = match opaque & GREATEST {
            0 => None,
            number => Some(Number(number)),
        };
        Self { number, is_end: opaque & END != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_as_they_went_and_numbers_never_become_none() {
        for number in [Number::FIRST, Number(77), Number(GREATEST), Number(GREATEST).next()] {
            for mark in [Mark::of(number), Mark::end(number)] {
                assert_eq!(Mark::from_opaque(mark.to_opaque()), mark);
            }
        }
        assert_eq!(Number(GREATEST).next(), Number::FIRST);
        assert_eq!(Mark::from_opaque(0), Mark { number: None, is_end: false });
    }
}
