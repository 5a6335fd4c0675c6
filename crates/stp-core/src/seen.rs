//! Which serial numbers of the other side were used up.

use alloc::boxed::Box;

use landfall_placement::Serial32;

use crate::wire::Reason;

/// A request of the other side by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serial {
    /// It is over, and went well: what comes is a duplicate.
    Complete,
    /// It is over, and ended early, for this reason.
    Failed(Reason),
    /// It is not over.
    Open,
    /// So far ahead that its sender breaks the bound on requests under way.
    Beyond,
    /// So far back that its sender is not waiting for it, or never begun: how it ended is
    /// not known any more.
    Forgotten,
}

/// The requests that are over: all below `base`, and those of the 64 from
/// `base` on whose bit is set. Who asks has at most 64 of them under way, and
/// never two whose numbers lie further apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    base: Serial32,
    bits: u64,
    /// How many below `base` are known: 64 at most.
    known: u8,
    /// By the number modulo 64, once one did: the last one there ended early, and why.
    failed: Option<Box<[Option<Reason>; Self::WINDOW as usize]>>,
}

impl Seen {
    /// How many requests one side may have under way.
    pub(crate) const WINDOW: u32 = 64;

    pub(crate) const fn new() -> Self {
        Self { base: Serial32(0), bits: 0, known: 0, failed: None }
    }

    pub(crate) fn of(&self, serial: u32) -> Serial {
        let ahead = Serial32(serial).offset_from(self.base);
        if ahead >= Self::WINDOW as i32 {
            return Serial::Beyond;
        }
        if ahead >= 0 && self.bits >> ahead & 1 == 0 {
            return Serial::Open;
        }
        if ahead < -i32::from(self.known) {
            return Serial::Forgotten;
        }
        let failed = self.failed.as_deref();
        match failed.and_then(|failed| failed[(serial % Self::WINDOW) as usize]) {
            Some(reason) => Serial::Failed(reason),
            None => Serial::Complete,
        }
    }

    /// A request is over: it went well, or ended early for a reason.
    pub(crate) fn end(&mut self, serial: u32, result: Result<(), Reason>) {
        let ahead = Serial32(serial).offset_from(self.base);
        if (0..Self::WINDOW as i32).contains(&ahead) {
            let nth = (serial % Self::WINDOW) as usize;
            match (result, &mut self.failed) {
                (Ok(()), None) => {}
                (_, failed) => {
                    failed.get_or_insert_with(|| Box::new([None; Self::WINDOW as usize]))[nth] =
                        result.err();
                }
            }
            self.bits |= 1 << ahead;
            let done = self.bits.trailing_ones();
            self.base = self.base.plus(done);
            self.known = (u32::from(self.known) + done).min(Self::WINDOW) as u8;
            self.bits = self.bits.checked_shr(done).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_over_while_numbers_wrap() {
        let mut seen = Seen { base: Serial32(u32::MAX - 2), ..Seen::new() };
        for serial in [1u32, 0, u32::MAX, u32::MAX - 2, u32::MAX - 1] {
            assert_eq!(seen.of(serial), Serial::Open);
            let result = if serial == 0 { Err(Reason::TooLong) } else { Ok(()) };
            seen.end(serial, result);
            let over = if serial == 0 { Serial::Failed(Reason::TooLong) } else { Serial::Complete };
            assert_eq!(seen.of(serial), over);
        }
        assert_eq!(seen.base, Serial32(2));
        let failed = Serial::Failed(Reason::TooLong);
        assert_eq!(seen.of(0), failed, "how it ended is remembered for a window");
        assert_eq!(seen.of(2 + 63), Serial::Open);
        assert_eq!(seen.of(2 + 64), Serial::Beyond);
        seen.end(2 + 64, Ok(()));
        assert_eq!(seen.of(2 + 64), Serial::Beyond, "it changes nothing");
    }

    #[test]
    fn a_whole_window_that_is_over_moves_on_at_once() {
        let mut seen = Seen::new();
        for serial in (0..64).rev() {
            seen.end(serial, Ok(()));
        }
        assert_eq!(seen, Seen { base: Serial32(64), known: 64, ..Seen::new() });
    }

    #[test]
    fn of_what_was_not_begun_or_is_far_back_nothing_is_said() {
        let mut seen = Seen::new();
        assert_eq!(seen.of(u32::MAX), Serial::Forgotten, "nothing was begun before 0");
        for serial in 0..200 {
            seen.end(serial, if serial == 0 { Err(Reason::Refused) } else { Ok(()) });
        }
        assert_eq!(seen.of(0), Serial::Forgotten);
        assert_eq!(seen.of(135), Serial::Forgotten);
        assert_eq!(seen.of(136), Serial::Complete);
    }
}
