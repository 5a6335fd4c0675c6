//! [`Planted`]: an engine as it is, or with one fault planted in it, so that it can be shown
//! that the checks find such faults.

use std::ops::{Deref, DerefMut};

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal,
    Refusals, Spans, Ticket, Timeout, Transmit, Unit,
};

/// A fault that no engine has, to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The longer payloads lie one byte from where they belong.
    WrongPlace,
    /// Every fortieth payload is written behind the memory that was given for it.
    OutsideOfGrant,
    /// A payload that is damaged counts as verified: it is announced, and not there.
    AcceptsDamage,
    /// Every twelfth event is never told.
    ForgetsToComplete,
    /// Every hundredth unit makes the engine panic.
    Panics,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::WrongPlace,
        Self::OutsideOfGrant,
        Self::AcceptsDamage,
        Self::ForgetsToComplete,
        Self::Panics,
    ];
}

/// An engine, and perhaps a fault.
#[derive(Debug)]
pub(crate) struct Planted<E> {
    engine: E,
    fault: Option<Fault>,
    count: u64,
}

impl<E> Planted<E> {
    pub(crate) const fn new(engine: E, fault: Option<Fault>) -> Self {
        Self { engine, fault, count: 0 }
    }

    /// Is it the turn of the fault?
    fn strikes(&mut self, fault: Fault, every: u64) -> bool {
        if self.fault != Some(fault) {
            return false;
        }
        self.count += 1;
        self.count.is_multiple_of(every)
    }
}

impl<E> Deref for Planted<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.engine
    }
}

impl<E> DerefMut for Planted<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.engine
    }
}

/// Moves where a payload goes by this many bytes.
fn shift(into: &mut Spans, by: u64) {
    let moved: Vec<_> = into.iter().copied().collect();
    into.clear();
    for mut span in moved {
        span.offset += by;
        // As many as before find room.
        let _ = into.push(span);
    }
}

impl<E: Engine> Engine for Planted<E> {
    type Event = E::Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        self.engine.handle_path(now, path, state);
    }

    fn awaits_first_answer(&self, path: PathId) -> bool {
        self.engine.awaits_first_answer(path)
    }

    fn handle_unreachable(&mut self, now: Instant, path: PathId, peer: Peer) {
        self.engine.handle_unreachable(now, path, peer);
    }

    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        self.engine.guess(path, nth)
    }

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        assert!(!self.strikes(Fault::Panics, 100), "planted");
        let placement = self.engine.place(now, unit, into)?;
        if matches!(placement, Placement::Into { .. }) {
            if into.total_len() > 64 && self.strikes(Fault::WrongPlace, 1) {
                shift(into, 1);
            } else if self.strikes(Fault::OutsideOfGrant, 40) {
                let len = into.total_len();
                shift(into, len);
            }
        }
        Ok(placement)
    }

    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let accepts = landing == Landing::Corrupt && self.strikes(Fault::AcceptsDamage, 1);
        let landing = if accepts { Landing::Verified } else { landing };
        self.engine.handle_placed(now, ticket, landing);
    }

    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        self.engine.poll_deposit(now, into)
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        self.engine.poll_transmit(now, path, head, from)
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        self.engine.handle_sent(now, ticket);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        self.engine.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let event = self.engine.poll_event()?;
        if self.strikes(Fault::ForgetsToComplete, 12) {
            self.engine.poll_event()
        } else {
            Some(event)
        }
    }

    fn refusals(&self) -> &Refusals {
        self.engine.refusals()
    }

    fn seals(&self) -> bool {
        self.engine.seals()
    }

    fn seal(&mut self, head: &mut [u8], payload: &mut [u8]) -> bool {
        self.engine.seal(head, payload)
    }

    fn open(&mut self, key: u64, head: &[u8], payload: &mut [u8]) -> bool {
        self.engine.open(key, head, payload)
    }

    fn places_unverified(&self, head: &[u8]) -> bool {
        self.engine.places_unverified(head)
    }

    fn name_in(&self, head: &[u8]) -> Option<u32> {
        self.engine.name_in(head)
    }

    fn handle_false_name(&mut self, now: Instant, unit: &Unit<'_>) -> Refusal {
        self.engine.handle_false_name(now, unit)
    }
}
