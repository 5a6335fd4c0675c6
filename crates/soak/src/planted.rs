//! [`Planted`]: an engine as it is, or with one fault planted in it, so that it can be shown
//! that the checks find such faults.

use std::ops::{Deref, DerefMut};

use landfall_placement::{
    Engine, Instant, Landing, Placement, Refusal, Spans, Ticket, Unit, delegate_engine,
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

    fn poll_event(&mut self) -> Option<Self::Event> {
        let event = self.engine.poll_event()?;
        if self.strikes(Fault::ForgetsToComplete, 12) {
            self.engine.poll_event()
        } else {
            Some(event)
        }
    }

    delegate_engine! { |this| this.engine =>
        handle_path, awaits_first_answer, handle_unreachable, guess, poll_deposit,
        poll_transmit, handle_sent, handle_timeout, poll_timeout, refusals, seals, seal, open,
        places_unverified, name_in, handle_false_name,
    }
}
