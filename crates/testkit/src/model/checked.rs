//! A wrapper that watches whether an engine keeps the contract.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use landfall_placement::{
    Area, Check, Deposit, Engine, Guess, Instant, Landing, PathId, Placement, Refusal, Refusals,
    RunPlacement, RunRoom, SealedRun, Span, Spans, Ticket, Timeout, Transmit, TransmitRun, Unit,
    UnitRun, Unsealed, delegate_engine,
};

/// How the contract was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A guess names memory that holds what was accepted (invariant 1).
    GuessOfAccepted(Span),
    /// A guess names memory that a placement is under way to (invariant 1).
    GuessOfPending(Span),
    /// Two runs that follow each other name the same memory.
    GuessTwice(Span),
    /// A guess has no bytes, or units without payload.
    EmptyGuess(Guess),
    /// A placement names memory that holds what was accepted (invariant 1).
    PlacedOnAccepted(Span),
    /// Two placements under way name the same memory.
    PlacedOnPending(Span),
    /// A placement has no bytes and nothing to check, or more bytes than the unit;
    /// a deposit has a place for more bytes or fewer than it has.
    BadLength(Ticket),
    /// A ticket was handed out while the same one was under way.
    TicketTwice(Ticket),
    /// A refused unit was not counted once, under its reason (invariant 3).
    NotCounted(Refusal),
    /// A head longer than the room for it.
    HeadTooLong(u16),
    /// A transmission names an empty span.
    EmptySpan(Ticket),
    /// More bytes are only summed than there are, or together with segments.
    BadSumOnly(Ticket),
    /// A run that has not a payload for each unit, or is longer than there is room for.
    BadRun(TransmitRun),
    /// A run that was opened is about no unit, or about more than there are.
    BadOpening(Unsealed),
    /// Something was counted as refused for a run: that is for its units, one by one.
    RunCounted,
    /// A timer of this name is due at the end of all time, where there is to be none.
    NeverDue(&'static str),
    /// The driver told of a ticket that was not under way.
    UnknownTicket(Ticket),
    /// A landing was told out of order.
    OutOfOrder(Ticket),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An engine that is watched. What breaks the contract, by engine or driver, is
/// noted and never panics.
#[derive(Debug)]
pub struct Checked<E> {
    /// The engine itself, for what is not in the contract.
    pub engine: E,
    watch: Watch,
    held: Vec<(Ticket, Vec<Span>)>,
}

/// What was accepted, what is under way, and what was wrong about either.
#[derive(Debug, Default)]
struct Watch {
    accepted: Claimed,
    pending: Vec<(Ticket, Vec<Span>)>,
    /// A guess changes nothing, and may still be wrong.
    violations: RefCell<Vec<Violation>>,
}

impl<E> Checked<E> {
    /// Watches this engine.
    pub fn new(engine: E) -> Self {
        Self { engine, watch: Watch::default(), held: Vec::new() }
    }

    /// What broke the contract so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.watch.violations.borrow().clone()
    }

    /// This memory is given to the engine anew: what lies there counts no longer.
    pub fn reuse(&mut self, area: &Area) {
        self.watch.accepted.remove(area);
    }

    /// Is a placement to this memory under way?
    pub fn is_written(&self, area: &Area) -> bool {
        let mut pending = self.watch.pending.iter().flat_map(|(_, spans)| spans);
        pending.any(|span| area.overlaps(&(*span).into()))
    }

    /// Does a driver hold a transmission from this memory?
    pub fn is_read(&self, area: &Area) -> bool {
        self.held.iter().flat_map(|(_, spans)| spans).any(|span| area.overlaps(&(*span).into()))
    }

    fn note(&self, violation: Violation) {
        self.watch.note(violation);
    }

    fn check_placement(&mut self, unit: &Unit<'_>, placement: &Placement, into: &Spans) {
        let ticket = match placement {
            Placement::Into { at, check, ticket } => {
                let room = unit.len.saturating_sub(u32::from(*at));
                let total = into.total_len();
                let has_no_use = total == 0 && *check == Check::None;
                if has_no_use || total > u64::from(room) {
                    self.note(Violation::BadLength(*ticket));
                }
                *ticket
            }
            Placement::Word(_, ticket) => *ticket,
            Placement::NeedHead(_) | Placement::Consumed => return,
        };
        self.watch.start(ticket, into);
    }
}

impl Watch {
    /// As many violations are kept; more of them say nothing new.
    const BOUND: usize = 100;

    fn note(&self, violation: Violation) {
        let mut violations = self.violations.borrow_mut();
        if violations.len() < Self::BOUND {
            violations.push(violation);
        }
    }

    fn is_pending(&self, span: &Span) -> bool {
        self.pending.iter().flat_map(|(_, spans)| spans).any(|have| have.overlaps(span))
    }

    /// What a placement or a deposit names is free, and from now on under way.
    fn start(&mut self, ticket: Ticket, into: &[Span]) {
        if self.pending.iter().any(|(have, _)| *have == ticket) {
            self.note(Violation::TicketTwice(ticket));
        }
        for (n, span) in into.iter().enumerate() {
            if self.accepted.overlaps(span) {
                self.note(Violation::PlacedOnAccepted(*span));
            }
            if self.is_pending(span) || into[..n].iter().any(|other| other.overlaps(span)) {
                self.note(Violation::PlacedOnPending(*span));
            }
        }
        self.pending.push((ticket, into.to_vec()));
    }
}

impl<E: Engine> Checked<E> {
    /// A unit was placed, or refused and counted once.
    fn check_answer(
        &mut self,
        before: Refusals,
        unit: &Unit<'_>,
        result: &Result<Placement, Refusal>,
        into: &Spans,
    ) {
        match result {
            Ok(placement) => self.check_placement(unit, placement, into),
            Err(refusal) => {
                let mut expected = before;
                expected.count(*refusal);
                if *self.engine.refusals() != expected {
                    self.note(Violation::NotCounted(*refusal));
                }
            }
        }
    }

    /// A run was placed, or nothing happened.
    fn check_run(
        &mut self,
        before: Refusals,
        run: &UnitRun<'_>,
        placed: Option<RunPlacement>,
    ) -> Option<RunPlacement> {
        if *self.engine.refusals() != before {
            self.note(Violation::RunCounted);
        }
        let placed = placed?;
        let payload = run.payload_len(placed.at.into(), placed.units.into());
        if placed.span.len == 0 || payload != Some(placed.span.len.into()) {
            self.note(Violation::BadLength(placed.ticket));
        }
        self.watch.start(placed.ticket, &[placed.span]);
        Some(placed)
    }
}

impl<E: Engine> Engine for Checked<E> {
    type Event = E::Event;

    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        let guess = self.engine.guess(path, nth)?;
        let span = guess.span;
        if span.len == 0 || guess.payload_len == 0 || span.end().is_none() {
            self.note(Violation::EmptyGuess(guess));
        }
        if self.watch.accepted.overlaps(&span) {
            self.note(Violation::GuessOfAccepted(span));
        }
        if self.watch.is_pending(&span) {
            self.note(Violation::GuessOfPending(span));
        }
        let before = (0..nth).filter_map(|n| self.engine.guess(path, n));
        if before.into_iter().any(|other| other.span.overlaps(&span)) {
            self.note(Violation::GuessTwice(span));
        }
        Some(guess)
    }

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let before = *self.engine.refusals();
        let result = self.engine.place(now, unit, into);
        self.check_answer(before, unit, &result, into);
        result
    }

    fn place_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        let before = *self.engine.refusals();
        let placed = self.engine.place_run(now, run);
        self.check_run(before, run, placed)
    }

    fn open_run(&mut self, now: Instant, run: &mut SealedRun<'_>) -> Option<Unsealed> {
        let units = run.units.len().div_ceil(run.unit_len.max(1) as usize);
        let unsealed = self.engine.open_run(now, run)?;
        let about = usize::from(unsealed.opened) + usize::from(unsealed.refused);
        if about == 0 || about > units {
            self.note(Violation::BadOpening(unsealed));
        }
        Some(unsealed)
    }

    fn place_opened(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let before = *self.engine.refusals();
        let result = self.engine.place_opened(now, unit, into);
        self.check_answer(before, unit, &result, into);
        result
    }

    fn place_opened_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        let before = *self.engine.refusals();
        let placed = self.engine.place_opened_run(now, run);
        self.check_run(before, run, placed)
    }

    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        match self.watch.pending.iter().position(|(have, _)| *have == ticket) {
            Some(at) => {
                if at != 0 {
                    self.note(Violation::OutOfOrder(ticket));
                }
                let (_, spans) = self.watch.pending.remove(at);
                if matches!(landing, Landing::Verified | Landing::Unchecked) {
                    for span in &spans {
                        self.watch.accepted.insert(span);
                    }
                }
            }
            None => self.note(Violation::UnknownTicket(ticket)),
        }
        self.engine.handle_placed(now, ticket, landing);
    }

    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        let deposit = self.engine.poll_deposit(now, into)?;
        if deposit.bytes.is_empty() || into.total_len() != deposit.bytes.len() as u64 {
            self.watch.note(Violation::BadLength(deposit.ticket));
        }
        self.watch.start(deposit.ticket, into);
        Some(deposit)
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let room = head.len();
        let transmit = self.engine.poll_transmit(now, path, head, from)?;
        if usize::from(transmit.head_len) > room {
            self.note(Violation::HeadTooLong(transmit.head_len));
        }
        if from.iter().any(|span| span.len == 0) {
            self.note(Violation::EmptySpan(transmit.ticket));
        }
        let payload = from.total_len().checked_sub(u64::from(transmit.sum_only));
        if payload.is_none() || (transmit.sum_only > 0 && transmit.segment.is_some()) {
            self.note(Violation::BadSumOnly(transmit.ticket));
        }
        self.held.push((transmit.ticket, from.to_vec()));
        Some(transmit)
    }

    fn poll_transmit_run(
        &mut self,
        now: Instant,
        path: PathId,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        let run = self.engine.poll_transmit_run(now, path, room)?;
        if usize::from(run.head_len) > room.head_len() {
            self.note(Violation::HeadTooLong(run.head_len));
        }
        let unit_len = u32::from(run.head_len) + run.payload_len;
        if !run.is_consistent() || usize::from(run.units) > room.units_of(unit_len) {
            self.note(Violation::BadRun(run));
        }
        self.held.push((run.ticket, vec![run.span]));
        Some(run)
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        match self.held.iter().position(|(have, _)| *have == ticket) {
            Some(at) => {
                self.held.remove(at);
            }
            None => self.note(Violation::UnknownTicket(ticket)),
        }
        self.engine.handle_sent(now, ticket);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        let timeout = self.engine.poll_timeout()?;
        if timeout.at == Instant::FAR_FUTURE {
            self.note(Violation::NeverDue(timeout.timer));
        }
        Some(timeout)
    }

    delegate_engine! { |this| this.engine =>
        handle_path, awaits_first_answer, handle_unreachable, handle_timeout,
        poll_event, refusals, seals, seal, seal_run, open, places_unverified, name_in,
        handle_false_name,
    }
}

/// Bytes by region; neighbours are joined.
#[derive(Clone, Debug, Default)]
struct Claimed {
    regions: BTreeMap<(u32, u32), BTreeMap<u64, u64>>,
}

impl Claimed {
    /// Adds these bytes.
    fn insert(&mut self, span: &Span) {
        let (mut start, mut end) = (span.offset, span.offset.saturating_add(span.len.into()));
        let parts = self.regions.entry((span.region.index, span.region.generation)).or_default();
        while let Some((&from, &to)) =
            parts.range(..=end).next_back().filter(|part| *part.1 >= start)
        {
            parts.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        parts.insert(start, end);
    }

    /// Takes these bytes out.
    fn remove(&mut self, area: &Area) {
        let (start, end) = (area.offset, area.offset.saturating_add(area.len));
        let key = (area.region.index, area.region.generation);
        let Some(parts) = self.regions.get_mut(&key) else { return };
        while let Some((&from, &to)) = parts.range(..end).next_back().filter(|part| *part.1 > start)
        {
            parts.remove(&from);
            if from < start {
                parts.insert(from, start);
            }
            if to > end {
                parts.insert(end, to);
            }
        }
    }

    /// Is one of these bytes in the set?
    fn overlaps(&self, span: &Span) -> bool {
        let (start, end) = (span.offset, span.offset.saturating_add(span.len.into()));
        let key = (span.region.index, span.region.generation);
        let parts = self.regions.get(&key);
        parts
            .is_some_and(|parts| parts.range(..end).next_back().is_some_and(|part| *part.1 > start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..40u64, 1..9u32), 0..40)) {
            let region = RegionId::new(1, 2);
            let mut claimed = Claimed::default();
            let mut bytes = BTreeSet::new();
            for (adds, offset, len) in steps {
                let span = region.span(offset, len);
                let range = offset..offset + u64::from(len);
                if adds {
                    claimed.insert(&span);
                    bytes.extend(range);
                } else {
                    claimed.remove(&span.into());
                    bytes.retain(|byte| !range.contains(byte));
                }
                for at in 0..50 {
                    prop_assert_eq!(claimed.overlaps(&region.span(at, 1)), bytes.contains(&at));
                }
            }
        }
    }
}
