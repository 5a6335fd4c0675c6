//! Between receiving and sending: what the engine had to keep goes to its
//! place, and timers fire.

use landfall_placement::{Engine, Instant, Landing, Spans};

use super::MAX_UNITS;
use crate::driver::Counters;
use crate::memory::{Pins, Regions};

/// What every driver does once the landings of a turn were announced.
#[derive(Debug)]
pub(crate) struct Between {
    pins: Pins,
    into: Spans,
}

impl Between {
    pub(crate) fn new(regions: &Regions) -> Self {
        Self { pins: Pins::new(regions), into: Spans::new() }
    }

    /// Writes deposits, as many as one turn may, and lets the engine's timers
    /// fire if it is time. Gives the number of deposits: while there are any,
    /// something moves, and nobody goes to sleep.
    pub(crate) fn run<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> u32 {
        let mut deposits = 0;
        while deposits < MAX_UNITS as u32 && self.deposit(engine, now, counters) {
            deposits += 1;
        }
        self.pins.release();
        if engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            engine.handle_timeout(now);
        }
        deposits
    }

    /// Writes one deposit to its place. Gives whether there was one.
    fn deposit<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> bool {
        self.into.clear();
        let Some(deposit) = engine.poll_deposit(now, &mut self.into) else { return false };
        let ticket = deposit.ticket;
        let landing = if write(&mut self.pins, &self.into, deposit.bytes) {
            counters.deposits += 1;
            counters.payload_bytes += deposit.bytes.len() as u64;
            counters.bytes_copied += deposit.bytes.len() as u64;
            Landing::Verified
        } else {
            counters.misplaced += 1;
            Landing::Failed
        };
        engine.handle_placed(now, ticket, landing);
        true
    }
}

/// Writes bytes to spans that have as many. Gives whether all are there.
fn write(pins: &mut Pins, into: &Spans, bytes: &[u8]) -> bool {
    if into.total_len() != bytes.len() as u64 {
        return false;
    }
    let mut rest = bytes;
    into.iter().all(|span| {
        let (part, behind) = rest.split_at(span.len as usize);
        rest = behind;
        pins.copy_in(span, part).is_ok()
    })
}
