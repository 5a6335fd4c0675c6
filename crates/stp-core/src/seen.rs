//! Which serial numbers of the other side were used up.

use alloc::boxed::Box;
use alloc::vec::Vec;

use landfall_placement::Serial32;

use crate::wire::Reason;

/// A request of the other side by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serial {
    /// It is over, and went well: what comes is a duplicate.
    Complete,
    /// It is over, and ended early, for this reason. `Gone` also where the reason is not
    /// remembered, or not even whether it ended early.
    Failed(Reason),
    /// It is not over.
    Open,
    /// Its sender would have more requests open than may be.
    Beyond,
    /// Its sender never began it.
    Forgotten,
}

/// The requests that are over: all below `next`, but for a few. Who asks has at most 64 of
/// them open, however far apart their numbers lie; so those few are at most 64, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Behind the highest that is over.
    next: Serial32,
    /// Half of all numbers were used, so all that lies behind was begun once.
    has_gone_round: bool,
    /// From when something ended early or out of its order.
    past: Option<Box<Exceptions>>,
}

/// What is not as it usually is below `next`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Exceptions {
    /// What is not over.
    open: Vec<u32>,
    /// What ended early, the oldest first.
    failed: Vec<(u32, Reason)>,
    /// Something up to here ended early, and is not remembered.
    unsure: Option<Serial32>,
}

impl Seen {
    /// How many requests one side may have open.
    pub(crate) const MOST_OPEN: usize = 64;

    /// How many are remembered that ended early.
    const MOST_FAILED: usize = 64;

    /// No two open numbers lie further apart: that would be half a turn, where before and
    /// behind are the same.
    pub(crate) const SPAN: u32 = 1 << 30;

    pub(crate) const fn new() -> Self {
        Self { next: Serial32(0), has_gone_round: false, past: None }
    }

    pub(crate) fn of(&self, serial: u32) -> Serial {
        let past = self.past.as_deref();
        let ahead = Serial32(serial).offset_from(self.next);
        if ahead >= 0 {
            // It and all before it would be open.
            let open = past.map_or(0, |past| past.open.len()) + ahead as usize;
            return if open < Self::MOST_OPEN { Serial::Open } else { Serial::Beyond };
        }
        if !self.has_gone_round && serial > self.next.0 {
            return Serial::Forgotten;
        }
        let Some(past) = past else { return Serial::Complete };
        if past.open.contains(&serial) {
            return Serial::Open;
        }
        let failed = past.failed.iter().rev().find(|failed| failed.0 == serial);
        if let Some((_, reason)) = failed {
            return Serial::Failed(*reason);
        }
        match past.unsure {
            Some(unsure) if Serial32(serial).offset_from(unsure) <= 0 => {
                Serial::Failed(Reason::Gone)
            }
            _ => Serial::Complete,
        }
    }

    /// A request is over: it went well, or ended early for a reason.
    pub(crate) fn end(&mut self, serial: u32, result: Result<(), Reason>) {
        if self.of(serial) != Serial::Open {
            return;
        }
        let ahead = Serial32(serial).offset_from(self.next);
        if ahead > 0 {
            let next = self.next;
            let between = (0..ahead as u32).map(|n| next.plus(n).0);
            self.past.get_or_insert_default().open.extend(between);
        }
        if ahead >= 0 {
            self.next = Serial32(serial).plus(1);
            self.has_gone_round |= self.next.0 >= 1 << 31;
        } else if let Some(past) = &mut self.past {
            past.open.retain(|open| *open != serial);
        }
        if let Err(reason) = result {
            self.past.get_or_insert_default().fail(serial, reason);
        } else if let Some(past) = &mut self.past {
            // Of an earlier round.
            past.failed.retain(|failed| failed.0 != serial);
        }
    }
}

impl Exceptions {
    fn fail(&mut self, serial: u32, reason: Reason) {
        if self.failed.len() >= Seen::MOST_FAILED {
            let (oldest, _) = self.failed.remove(0);
            let unsure = self.unsure.unwrap_or(Serial32(oldest));
            let is_later = Serial32(oldest).offset_from(unsure) >= 0;
            self.unsure = Some(if is_later { Serial32(oldest) } else { unsure });
        }
        self.failed.push((serial, reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_over_while_numbers_wrap() {
        let next = Serial32(u32::MAX - 2);
        let mut seen = Seen { next, has_gone_round: true, ..Seen::new() };
        for serial in [1u32, 0, u32::MAX, u32::MAX - 2, u32::MAX - 1] {
            assert_eq!(seen.of(serial), Serial::Open);
            let result = if serial == 0 { Err(Reason::TooLong) } else { Ok(()) };
            seen.end(serial, result);
            let over = if serial == 0 { Serial::Failed(Reason::TooLong) } else { Serial::Complete };
            assert_eq!(seen.of(serial), over);
        }
        assert_eq!(seen.next, Serial32(2));
        assert_eq!(seen.of(0), Serial::Failed(Reason::TooLong), "how it ended is remembered");
        assert_eq!(seen.of(2 + 63), Serial::Open);
        assert_eq!(seen.of(2 + 64), Serial::Beyond);
        seen.end(2 + 64, Ok(()));
        assert_eq!(seen.of(2 + 64), Serial::Beyond, "it changes nothing");
    }

    #[test]
    fn many_that_are_over_leave_nothing_behind() {
        let mut seen = Seen::new();
        for serial in (0..64).rev() {
            seen.end(serial, Ok(()));
        }
        assert_eq!(seen.next, Serial32(64));
        assert_eq!(seen.past, Some(Box::default()));
    }

    /// One that is not over holds up nothing, however many follow on it.
    #[test]
    fn one_may_stay_open_while_others_come_and_go() {
        let mut seen = Seen::new();
        for serial in 1..200_000 {
            assert_eq!(seen.of(serial), Serial::Open, "{serial}");
            seen.end(serial, Ok(()));
        }
        assert_eq!(seen.of(0), Serial::Open);
        assert_eq!(seen.of(1), Serial::Complete);
        seen.end(0, Err(Reason::Cancelled));
        assert_eq!(seen.of(0), Serial::Failed(Reason::Cancelled));
    }

    /// As many as may be open are, in whatever order they end; against a list of all.
    #[test]
    fn no_more_are_open_than_may_be() {
        let mut seen = Seen::new();
        for serial in (0..64).filter(|serial| serial % 2 == 1) {
            seen.end(serial, Ok(()));
        }
        let open = |seen: &Seen| (0..200).filter(|n| seen.of(*n) == Serial::Open).count();
        assert_eq!(open(&seen), 64);
        assert_eq!(seen.of(64 + 31), Serial::Open);
        assert_eq!(seen.of(64 + 32), Serial::Beyond);
        seen.end(0, Ok(()));
        assert_eq!(seen.of(64 + 32), Serial::Open);
        assert_eq!(open(&seen), 64);
    }

    #[test]
    fn what_is_not_remembered_is_not_called_complete() {
        let mut seen = Seen::new();
        assert_eq!(seen.of(u32::MAX), Serial::Forgotten, "nothing was begun before 0");
        for serial in 0..200 {
            seen.end(serial, if serial == 0 { Err(Reason::Refused) } else { Ok(()) });
        }
        assert_eq!(seen.of(0), Serial::Failed(Reason::Refused), "however far back");
        assert_eq!(seen.of(1), Serial::Complete);
        for serial in 200..264 {
            seen.end(serial, Err(Reason::TooLong));
        }
        assert_eq!(seen.of(0), Serial::Failed(Reason::Gone));
        assert_eq!(seen.of(1), Serial::Complete);
        seen.end(264, Err(Reason::TooLong));
        assert_eq!(seen.of(150), Serial::Failed(Reason::Gone), "that is not sure any more");
        assert_eq!(seen.of(201), Serial::Failed(Reason::TooLong));
    }
}
