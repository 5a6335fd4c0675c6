//! Which serial numbers of the other side were used up.

use landfall_placement::Serial32;

/// A request of the other side by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serial {
    /// It is over, and went well: what comes is a duplicate.
    Complete,
    /// It is over, and ended early.
    Failed,
    /// It is not over.
    Open,
    /// So far ahead that its sender breaks the bound on requests under way.
    Beyond,
}

/// The requests that are over: all below `base`, and those of the 64 from
/// `base` on whose bit is set. Who asks has at most 64 of them under way, and
/// never two whose numbers lie further apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    base: Serial32,
    bits: u64,
    /// By the number modulo 64: the last one there ended early.
    failed: u64,
}

impl Seen {
    /// How many requests one side may have under way.
    pub(crate) const WINDOW: u32 = 64;

    pub(crate) const fn new() -> Self {
        Self { base: Serial32(0), bits: 0, failed: 0 }
    }

    pub(crate) const fn of(self, serial: u32) -> Serial {
        let ahead = Serial32(serial).offset_from(self.base);
        if ahead >= Self::WINDOW as i32 {
            return Serial::Beyond;
        }
        if ahead >= 0 && self.bits >> ahead & 1 == 0 {
            return Serial::Open;
        }
        if self.failed >> (serial % Self::WINDOW) & 1 == 1 {
            Serial::Failed
        } else {
            Serial::Complete
        }
    }

    pub(crate) fn end(&mut self, serial: u32, is_complete: bool) {
        let ahead = Serial32(serial).offset_from(self.base);
        if (0..Self::WINDOW as i32).contains(&ahead) {
            let place = 1 << (serial % Self::WINDOW);
            self.failed = if is_complete { self.failed & !place } else { self.failed | place };
            self.bits |= 1 << ahead;
            let done = self.bits.trailing_ones();
            self.base = self.base.plus(done);
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
            seen.end(serial, serial != 0);
            let over = if serial == 0 { Serial::Failed } else { Serial::Complete };
            assert_eq!(seen.of(serial), over);
        }
        assert_eq!(seen.base, Serial32(2));
        assert_eq!(seen.of(0), Serial::Failed, "how it ended is remembered for a window");
        assert_eq!(seen.of(2 + 63), Serial::Open);
        assert_eq!(seen.of(2 + 64), Serial::Beyond);
        seen.end(2 + 64, true);
        assert_eq!(seen.of(2 + 64), Serial::Beyond, "it changes nothing");
    }

    #[test]
    fn a_whole_window_that_is_over_moves_on_at_once() {
        let mut seen = Seen::new();
        for serial in (0..64).rev() {
            seen.end(serial, true);
        }
        assert_eq!(seen, Seen { base: Serial32(64), ..Seen::new() });
    }
}
