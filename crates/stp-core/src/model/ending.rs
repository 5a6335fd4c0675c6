//! Everything comes to its end over a good network: whatever was begun ends
//! with exactly one event, in bounded time, and nothing is left.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Engine};
use landfall_testkit::model::Violation;

use super::ledger::User;
use super::world::{End, PATHS, World};

/// Bounds of the end: of turns, and of time in the run. Patient ends give up after
/// [`PATIENCE`](super::setup::PATIENCE) waits of sixteen time-outs, and a time-out is more than
/// a second where round trips were measured over waits of half a second. Others may take very
/// many turns meanwhile.
const MOST_ROUNDS: usize = 400_000;
/// Who is refused for want of room tries again after this many turns in which it was told
/// of nothing.
const TRIED_AGAIN: u32 = 16;
const LONGEST: Duration = Duration::from_secs(2000);

impl World {
    /// Lets everything that is under way come to its end.
    pub(super) fn ending(&mut self) {
        self.write_down(|| String::from("---- the end"));
        for side in 0..self.sides() {
            for path in 0..PATHS {
                self.set_path(side, path, true);
            }
        }
        let is_over = |world: &Self| world.ends.iter().all(|end| end.user.is_idle());
        self.run_until("what was begun", Self::answer_all, is_over);
        self.check_regions();
        let is_over = |world: &Self| {
            world
                .ends
                .iter()
                .all(|end| end.user.is_empty() && end.checked.engine.connections() == 0)
        };
        self.run_until("the connections", Self::close_all, is_over);
        self.judge();
    }

    /// Users say yes to whatever they are asked.
    fn answer_all(&mut self) {
        for side in 0..self.sides() {
            for which in 0..self.questions(side).len() {
                self.decide(side, which as u8, 0);
            }
        }
    }

    /// Users close what they have, and whatever comes to them after that: a request that
    /// was under way may open a connection of which its sender knows nothing any more.
    fn close_all(&mut self) {
        for side in 0..self.sides() {
            for which in 0..self.ends[side].user.connections.len() {
                if !self.ends[side].user.connections[which].is_closing {
                    self.close(side, which as u8, false);
                }
            }
        }
        // What ended with that is no question any more.
        self.hear();
        self.answer_all();
    }

    /// Lets packets and time pass until it is over; what is not over in bounded
    /// time has stalled.
    fn run_until(
        &mut self,
        what: &str,
        users: impl Fn(&mut Self),
        is_over: impl Fn(&Self) -> bool,
    ) {
        let end = self.now + LONGEST;
        // What users were told when they did something last, and how many turns ago.
        let (mut known, mut idle) = (self.heard, TRIED_AGAIN);
        for _ in 0..MOST_ROUNDS {
            if !self.findings.failures().is_empty() || is_over(self) {
                return;
            }
            if self.heard != known || idle >= TRIED_AGAIN {
                (known, idle) = (self.heard, 0);
                users(self);
            }
            idle += 1;
            if self.round() {
                continue;
            }
            if self.ends.iter().all(|end| end.checked.poll_timeout().is_none()) {
                // Nothing is under way and no timer runs. Unless users help, it stays so.
                if idle == 1 && self.heard == known {
                    break;
                }
                idle = TRIED_AGAIN;
                continue;
            }
            self.wait(None);
            if self.now > end {
                break;
            }
        }
        for side in 0..self.sides() {
            let end = &self.ends[side];
            let left = Unfinished(&end.user);
            let connections = end.checked.engine.connections();
            if !end.user.is_empty() || connections > 0 {
                let what = format!("{what} did not end: {left:?}, {connections} connections");
                self.fail(side, &what);
            }
        }
    }

    fn judge(&mut self) {
        self.check_returned();
        for side in 0..self.sides() {
            self.judge_contract(side);
            let granted = self.ends[side].checked.engine.granted_bytes();
            if granted > 0 {
                self.fail(side, &format!("{granted} bytes are granted to nobody"));
            }
        }
    }

    /// Whatever one end was sent: it kept the contract and its bounds, and wrote
    /// to nothing that was not given for it.
    pub(super) fn judge_memory(mut self, side: usize) -> Vec<String> {
        self.findings.take_failures();
        self.judge_contract(side);
        self.check_bounds();
        let end = &self.ends[side];
        let received = end.user.receives.iter().filter_map(|receive| receive.memory);
        let posted = end.user.posts.iter().map(|(_, area)| *area);
        let is_wrong = received.chain(posted).any(|area| !end.is_guarded(&area));
        if is_wrong {
            self.fail(side, "something was written around memory that was given");
        }
        for n in 0..self.ends[side].user.sends.len() {
            let (_, name, area) = self.ends[side].user.sends[n];
            let bytes = &self.truth.transfers[name].bytes;
            if self.ends[side].bytes(&area).get(..bytes.len()) != Some(&bytes[..]) {
                self.fail(side, "memory that is sent from was written");
            }
        }
        self.findings.take_failures()
    }

    /// What the contract checker noted.
    fn judge_contract(&mut self, side: usize) {
        let End { checked, shared, .. } = &self.ends[side];
        // Writes to shared memory may be under way to the same bytes: they take
        // effect in their order.
        let counts = |violation: &Violation| match violation {
            Violation::PlacedOnPending(span) => !shared.contains(&span.region),
            _ => true,
        };
        let violations: Vec<_> = checked.violations().into_iter().filter(counts).collect();
        for violation in violations {
            self.fail(side, &format!("{violation}"));
        }
    }
}

/// What is left of a user's doings, in short.
struct Unfinished<'a>(&'a User);

impl core::fmt::Debug for Unfinished<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let user = self.0;
        f.debug_struct("Left")
            .field("connections", &user.connections)
            .field("sends", &user.sends)
            .field("receives", &user.receives)
            .field("posts", &user.posts.len())
            .field("reads_asked", &user.reads_asked)
            .field("asks", &user.asks)
            .field("requests", &user.requests)
            .field("exposed", &user.exposed.len())
            .field("operations", &user.operations)
            .finish()
    }
}
