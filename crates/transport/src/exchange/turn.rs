//! Between receiving and sending: what the engine had to keep goes to its
//! place, and timers fire.

use landfall_placement::{Engine, Instant, Landing, Spans};

use super::MAX_UNITS;
use crate::driver::Counters;
use crate::memory::{Pins, Regions};

/// What was done between receiving and sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// Deposits that were written: while there are any, something moves, and nobody goes to sleep.
    pub(crate) deposits: u32,
    /// Timers fired.
    pub(crate) fired: bool,
}

/// What every driver does once the landings of a turn were announced.
#[derive(Debug)]
pub(crate) struct TurnScratch {
    pins: Pins,
    into: Spans,
}

impl TurnScratch {
    pub(crate) fn new(regions: &Regions) -> Self {
        Self { pins: Pins::new(regions), into: Spans::new() }
    }

    /// Writes deposits, as many as one turn may, and lets the engine's timers
    /// fire if it is time.
    pub(crate) fn run<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> Settled {
        let mut deposits = 0;
        while deposits < MAX_UNITS as u32 && self.deposit(engine, now, counters) {
            deposits += 1;
        }
        self.pins.release();
        let fired = engine.poll_timeout().is_some_and(|timeout| timeout.at <= now);
        if fired {
            engine.handle_timeout(now);
        }
        Settled { deposits, fired }
    }

    /// Writes one deposit to its place. Returns whether there was one.
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

/// Writes bytes to spans that have as many. Returns whether all are there.
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

// How much one turn receives, where each call brings one frame.

/// While frames keep coming, this many are taken in one turn.
const FRAMES_PER_TURN: usize = 16;
/// And no more than this many bytes, so that acknowledgements leave.
const BYTES_PER_TURN: usize = 256 << 10;

/// What one turn may still receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The last receive found something: more may wait.
    streaming: bool,
    frames_left: usize,
    bytes_left: usize,
}

impl Pace {
    /// The first frame after a silence is taken alone, since looking for
    /// another one would only delay the answer to it.
    pub(crate) const fn start_turn(&mut self) {
        self.frames_left = if self.streaming { FRAMES_PER_TURN } else { 1 };
        self.bytes_left = BYTES_PER_TURN;
    }

    /// Is it time for one more receive in this turn?
    pub(crate) const fn wants_more(&self) -> bool {
        self.frames_left > 0 && self.bytes_left > 0
    }

    /// A frame of this length came, or nothing did.
    pub(crate) const fn note(&mut self, came: Option<usize>) {
        self.streaming = came.is_some();
        match came {
            Some(len) => {
                self.frames_left = self.frames_left.saturating_sub(1);
                self.bytes_left = self.bytes_left.saturating_sub(len);
            }
            None => self.frames_left = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many frames of this length one turn takes.
    fn taken(pace: &mut Pace, len: usize) -> usize {
        pace.start_turn();
        let mut taken = 0;
        while pace.wants_more() {
            pace.note(Some(len));
            taken += 1;
        }
        taken
    }

    #[test]
    fn the_first_frame_is_taken_alone_and_a_stream_in_portions() {
        let mut pace = Pace::default();
        assert_eq!(taken(&mut pace, 100), 1);
        assert_eq!(taken(&mut pace, 100), FRAMES_PER_TURN);
        assert_eq!(taken(&mut pace, 64 << 10), 4, "no more bytes than are good");
        pace.start_turn();
        pace.note(None);
        assert!(!pace.wants_more());
        assert_eq!(taken(&mut pace, 100), 1, "a silence");
    }
}
