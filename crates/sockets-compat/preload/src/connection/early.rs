//! Bytes that go by TCP before there is memory, and whether memory is worth its price.
//!
//! Memory costs as much as a short connection does, so it is made for conversations that
//! last. Both ends judge that by what both can see, turns, so that the acceptor looks for
//! memory where the connector has just offered it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::GATE;
use crate::kernel::{self, Outcome};

/// This many bytes are a turn, whichever end sends them: they cost about what memory does.
const BYTES_OF_A_TURN: u64 = 256 * 1024;

/// Who waits for the gate looks this often, if it is not woken.
const GATE_PATIENCE_MS: u32 = 10;

/// The turns of a conversation: the end that leads it has heard an answer to what it said, and
/// speaks again. Or many bytes went, in either direction.
///
/// The connector leads. Its acceptor counts a turn when it hears something after it has
/// said something: so whatever is offered in a turn is there when its other end counts it.
#[derive(Debug)]
pub(super) struct Turns {
    said: AtomicU64,
    heard: AtomicU64,
    count: AtomicU32,
}

impl Turns {
    const fn new() -> Self {
        Self { said: AtomicU64::new(0), heard: AtomicU64::new(0), count: AtomicU32::new(0) }
    }

    /// Begins to count where so much has been said and heard.
    pub(super) fn begin_at(&self, said: u64, heard: u64) {
        self.said.store(said, Ordering::Relaxed);
        self.heard.store(heard, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// What has been said and heard by now; the number of the turn that has passed with it, if one
    /// has. Only at the call that leads does an answer end one.
    pub(super) fn passed(&self, said: u64, heard: u64, leads: bool) -> Option<u32> {
        let new_said = said.saturating_sub(self.said.load(Ordering::Relaxed));
        let new_heard = heard.saturating_sub(self.heard.load(Ordering::Relaxed));
        let is_answered = leads && new_said > 0 && new_heard > 0;
        if !is_answered && new_said.saturating_add(new_heard) < BYTES_OF_A_TURN {
            return None;
        }
        self.said.store(said, Ordering::Relaxed);
        self.heard.store(heard, Ordering::Relaxed);
        Some(self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

/// What one end has sent and received, while all goes by TCP and it may come otherwise.
#[derive(Debug)]
pub(super) struct EarlyBytes {
    sent: AtomicU64,
    received: AtomicU64,
    /// Calls that are just now sending or receiving, and [`GATE`] while the way changes.
    in_flight: AtomicU32,
    /// Whether calls wait, as far as is known; see [`crate::patience`].
    pub(super) waits: AtomicU32,
    pub(super) turns: Turns,
}

impl EarlyBytes {
    pub(super) const fn new() -> Self {
        Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            turns: Turns::new(),
        }
    }

    /// For another connection, of which this much has been sent and received.
    pub(super) fn begin_at(&self, sent: u64, received: u64) {
        self.sent.store(sent, Ordering::Relaxed);
        self.received.store(received, Ordering::Relaxed);
        self.in_flight.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        self.turns.begin_at(sent, received);
    }

    /// In the child of a fork: calls of its parent's other threads are not under way here.
    pub(super) fn after_fork(&self) {
        self.in_flight.store(0, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// The number of the turn that has passed by now, if one has.
    pub(super) fn turn(&self, leads: bool) -> Option<u32> {
        self.turns.passed(self.sent(), self.received(), leads)
    }

    /// Sends by TCP, and counts it; `None` if there is memory now.
    pub(super) fn send(
        &self,
        is_over: impl Fn() -> bool,
        send: impl FnOnce() -> Outcome,
    ) -> Option<Outcome> {
        self.pass(is_over, &self.sent, send)
    }

    /// The same of a call that receives. As long as it waits in the kernel the way does not change,
    /// so one that may wait long waits before it.
    pub(super) fn receive(
        &self,
        is_over: impl Fn() -> bool,
        receive: impl FnOnce() -> Outcome,
    ) -> Option<Outcome> {
        self.pass(is_over, &self.received, receive)
    }

    fn pass(
        &self,
        is_over: impl Fn() -> bool,
        sum: &AtomicU64,
        transfer: impl FnOnce() -> Outcome,
    ) -> Option<Outcome> {
        while self.in_flight.fetch_add(1, Ordering::SeqCst) & GATE != 0 {
            let seen = self.in_flight.fetch_sub(1, Ordering::SeqCst) - 1;
            // Another thread is some calls of the kernel away from opening it again.
            let _ = kernel::sleep_on(&self.in_flight, seen, GATE_PATIENCE_MS);
        }
        let result = (!is_over()).then(|| {
            let moved = transfer();
            if let Ok(bytes) = moved {
                sum.fetch_add(bytes as u64, Ordering::SeqCst);
            }
            moved
        });
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Gives other threads a moment to end the calls that they are in.
    pub(super) fn pause(&self) {
        let seen = self.in_flight.load(Ordering::SeqCst);
        if seen != 0 {
            let _ = kernel::sleep_on(&self.in_flight, seen, 1);
        }
    }

    /// Lets nobody send or receive while the way changes; `None` while somebody does.
    pub(super) fn close_gate(&self) -> Option<ClosedGate<'_>> {
        self.in_flight
            .compare_exchange(0, GATE, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
            .then_some(ClosedGate(&self.in_flight))
    }
}

/// Nobody sends or receives while this lives.
pub(super) struct ClosedGate<'a>(&'a AtomicU32);

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!GATE, Ordering::SeqCst);
        kernel::wake(self.0, i32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_request_and_its_answer_are_no_turn() {
        let (connector, acceptor) = (Turns::new(), Turns::new());
        // What is asked in two pieces and answered in three.
        for (said, heard, leads) in [(0, 0, true), (10, 0, true), (20, 7, false), (20, 14, false)] {
            assert_eq!(connector.passed(said, heard, leads), None);
            assert_eq!(acceptor.passed(heard, said, false), None);
        }
        assert_eq!(acceptor.passed(0, 20, true), None, "it has not answered yet");
        assert_eq!(connector.passed(20, 21, true), Some(1), "it speaks again");
        assert_eq!(connector.passed(30, 21, true), None, "it goes on");
        assert_eq!(acceptor.passed(21, 30, true), Some(1));
        assert_eq!(connector.passed(30, 22, true), Some(2));
    }

    #[test]
    fn many_bytes_are_a_turn_in_either_direction() {
        let turns = Turns::new();
        assert_eq!(turns.passed(BYTES_OF_A_TURN - 1, 0, true), None);
        assert_eq!(turns.passed(BYTES_OF_A_TURN, 0, true), Some(1));
        assert_eq!(turns.passed(BYTES_OF_A_TURN, BYTES_OF_A_TURN - 1, false), None);
        assert_eq!(turns.passed(BYTES_OF_A_TURN, BYTES_OF_A_TURN, false), Some(2));
    }

    #[test]
    fn nobody_passes_while_the_way_changes_and_nobody_once_it_has() {
        let early = EarlyBytes::new();
        assert_eq!(early.send(|| false, || Ok(3)), Some(Ok(3)));
        let during = early.receive(
            || false,
            || {
                assert!(early.close_gate().is_none(), "a call is under way");
                Ok(5)
            },
        );
        assert_eq!((during, early.sent(), early.received()), (Some(Ok(5)), 3, 5));

        let gate = early.close_gate().unwrap();
        let (begins, is_over) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                begins.wait();
                early.receive(|| is_over.load(Ordering::SeqCst), || unreachable!("it is over"))
            });
            begins.wait();
            is_over.store(true, Ordering::SeqCst);
            drop(gate);
            assert_eq!(waits.join().unwrap(), None);
        });
        assert_eq!(early.received(), 5);
    }
}
