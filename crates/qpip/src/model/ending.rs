//! Everything comes to its end over a good wire: what was sent arrives, each
//! request completes, connections finish, and nothing is left behind.

use alloc::format;
use alloc::vec::Vec;

use landfall_placement::{Duration, Engine, Instant};
use landfall_testkit::model::Violation;

use super::ledger::{Pair, Stage};
use super::operations::Operation;
use super::world::World;
use crate::tcp::tcb::CloseReason;

/// Bounds of the end: of turns, and of time in the run.
const MOST_ROUNDS: usize = 20_000;
const LONGEST: Duration = Duration::from_secs(5_000);
/// Who has waited so long before the end may give up in it.
const LATE: Duration = Duration::from_secs(60);

impl World {
    /// Lets everything that is under way come to its end.
    pub(super) fn ending(&mut self) {
        self.write_down(|| "---- the end".into());
        let is_late = self.now > Instant::ZERO + LATE;
        for side in 0..2 {
            if !self.ends[side].is_up {
                self.set_path(side, true);
            }
        }
        self.meet();
        let alive = |pair: &Pair| pair.is_alive();
        let pairs = &self.ledger.pairs;
        let mated: Vec<usize> = (0..pairs.len())
            .filter(|index| alive(&pairs[*index]))
            .filter(|index| pairs[*index].peer.is_some_and(|peer| alive(&pairs[peer])))
            .collect();
        self.finish_all(&mated);
        for index in mated {
            self.judge_end(index, is_late);
        }
        self.let_go();
        self.check_returned();
        self.judge_contract();
        if self.findings.failures().is_empty() {
            self.begin_again();
        }
    }

    /// Those who ask for connections get one, or are sent away.
    fn meet(&mut self) {
        let is_over =
            |world: &Self| world.ledger.pairs.iter().all(|pair| pair.stage != Stage::Opening);
        self.run_until(Duration::from_secs(5), is_over);
        for index in 0..self.ledger.pairs.len() {
            let pair = &self.ledger.pairs[index];
            if pair.is_tcp() && !pair.is_destroyed && pair.peer.is_none() {
                self.destroy_pair(index);
            }
        }
        self.everything();
    }

    /// All say that they send no more, and receive what is left.
    fn finish_all(&mut self, mated: &[usize]) {
        for index in mated {
            let Pair { side, id, .. } = self.ledger.pairs[*index];
            let result = self.ends[side].checked.engine.shutdown(self.now, id);
            self.ledger.pairs[*index].is_shut |= result.is_ok();
        }
        let ends = self.now + LONGEST;
        for _ in 0..MOST_ROUNDS {
            // Who was given up, here or before, is told nothing more.
            let waits: Vec<usize> =
                mated.iter().copied().filter(|at| self.ledger.pairs[*at].is_alive()).collect();
            if !self.findings.failures().is_empty() || waits.is_empty() || self.now > ends {
                break;
            }
            for index in waits {
                self.make_room(index);
            }
            self.everything();
            if self.round() {
                continue;
            }
            if self.ends.iter().all(|end| end.checked.poll_timeout().is_none()) {
                self.fail(0, "neither side has a timer, and connections wait");
            }
            self.wait(None);
        }
        self.everything();
    }

    /// Posts memory for what the other side has sent and still will.
    fn make_room(&mut self, index: usize) {
        let pair = &self.ledger.pairs[index];
        let Some(peer) = pair.peer.map(|peer| &self.ledger.pairs[peer]) else { return };
        let has_posted = match self.ledger.layout(index) {
            Some(layout) => {
                // A message that is one segment is taken whole, or not at all.
                let end = layout.last().map_or(pair.front, |(_, end)| *end);
                end >= peer.stream.len()
            }
            None => !pair.receives.is_empty(),
        };
        // Of what is behind the first request only some is offered, and a message
        // that is one segment wants to be offered all it needs.
        let first = pair.receives.front().map_or(usize::MAX, |request| request.len);
        let message = peer.end_behind(pair.front).map_or(0, |end| end - pair.front);
        let never_fits = pair.has_whole_messages() && first < message;
        if has_posted && !never_fits || pair.has_peer_finished || !pair.is_alive() {
            return;
        }
        let (side, depth) = (pair.side, self.setup.depth() as usize);
        let waits = pair.receives.len();
        let is_stuck = pair.has_whole_messages() || waits == 0;
        if never_fits {
            return self.destroy_pair(index);
        }
        if waits < depth {
            self.post_receive(index, 9_000, 0);
        }
        let pair = &self.ledger.pairs[index];
        if pair.receives.len() == waits && is_stuck {
            // What others wait for has taken all places, or memory comes too
            // late for a message that is one segment: this one gives up.
            self.write_down(|| format!("side {side} gives up for want of room"));
            self.destroy_pair(index);
        }
    }

    fn judge_end(&mut self, index: usize, is_late: bool) {
        let pair = &self.ledger.pairs[index];
        let Some(peer) = pair.peer.map(|peer| &self.ledger.pairs[peer]) else { return };
        if pair.is_given_up || peer.is_given_up {
            return;
        }
        let is_excused = match pair.stage {
            Stage::Closed(CloseReason::Finished) => pair.front == peer.stream.len(),
            Stage::Closed(CloseReason::TimedOut) => is_late,
            // Who has no room to remember the connection resets it.
            Stage::Closed(CloseReason::Reset) => is_late || self.setup.is_small(),
            Stage::Closed(CloseReason::Unreachable) => !self.setup.knows_neighbours(),
            _ => false,
        };
        if !is_excused || !pair.sends.is_empty() || !pair.receives.is_empty() {
            let (side, id) = (pair.side, pair.id);
            let what = format!(
                "{id} does not end: {:?}, {} sends, {} receives, {} of {} bytes came",
                pair.stage,
                pair.sends.len(),
                pair.receives.len(),
                pair.front,
                peer.stream.len()
            );
            self.fail(side, &what);
        }
    }

    /// All is destroyed, and every request has completed.
    pub(super) fn let_go(&mut self) {
        for index in 0..self.ledger.pairs.len() {
            if !self.ledger.pairs[index].is_destroyed {
                self.destroy_pair(index);
            }
        }
        for _ in 0..4 {
            self.everything();
            self.round();
        }
        self.everything();
        for index in 0..self.ledger.pairs.len() {
            let Pair { side, id, ref sends, ref receives, .. } = self.ledger.pairs[index];
            let (sends, receives) = (sends.len(), receives.len());
            if sends + receives > 0 {
                self.fail_badly(
                    side,
                    &format!("{id} never completes {sends} sends, {receives} receives"),
                );
            }
        }
    }

    /// As much can be made and posted as at the beginning, and it works.
    fn begin_again(&mut self) {
        for side in [0, 1] {
            let first = self.ledger.pairs.len();
            self.bind(side);
            self.post_receive_to(first, 300);
        }
        let receivers = [self.ledger.pairs.len() - 2, self.ledger.pairs.len() - 1];
        // Who could not be found a moment ago is not looked for at once: then the first one
        // of a side is told to be unreachable, and the next one goes. A wrong station is
        // believed for 30 seconds, then used and asked for 8: two more may go there.
        let attempts = if self.is_misled { 4 } else { 2 };
        for _ in 0..attempts {
            for (side, from) in [(0, receivers[0]), (1, receivers[1])] {
                if self.ledger.pairs[receivers[1 - side]].receives.is_empty() {
                    continue;
                }
                let before = &self.ledger.pairs[..from];
                let which = before.iter().filter(|p| p.side == side && !p.is_destroyed).count();
                let which = which as u8;
                self.apply(Operation::Send { side, which, len: 200, pieces: 0 });
            }
            self.run_until(Duration::from_secs(20), |world| {
                receivers.iter().all(|index| world.ledger.pairs[*index].receives.is_empty())
            });
        }
        for index in receivers {
            let Pair { side, ref receives, .. } = self.ledger.pairs[index];
            if !receives.is_empty() {
                self.fail(side, "no datagram comes any more");
            }
        }
        self.let_go();
        for side in [0, 1] {
            self.fill(side);
        }
        self.let_go();
        self.close_down();
    }

    fn post_receive_to(&mut self, index: usize, len: u32) {
        if index < self.ledger.pairs.len() {
            self.post_receive(index, len, 1);
        }
    }

    /// As many requests can be posted as the bounds allow: no place was lost.
    fn fill(&mut self, side: usize) {
        let first = self.ledger.pairs.len();
        let config = self.setup.config(side);
        for _ in 0..config.queue_pairs {
            self.bind(side);
        }
        for index in first..self.ledger.pairs.len() {
            for _ in 0..self.setup.depth() {
                self.post_receive(index, 1, 0);
            }
        }
        let posted: usize = self.ledger.pairs[first..].iter().map(|pair| pair.receives.len()).sum();
        let fits = config.queue_pairs * self.setup.depth() as usize;
        let most = fits.min(self.setup.completions() as usize);
        if posted != most {
            self.fail(side, &format!("{posted} requests are taken, and not {most}"));
        }
    }

    /// Nothing is in use any more.
    fn close_down(&mut self) {
        for side in 0..2 {
            let end = &mut self.ends[side];
            let adapter = &mut end.checked.engine;
            let queue = adapter.destroy_completion_queue(end.queue);
            let domains = [end.domain, end.other_domain].map(|id| adapter.destroy_domain(id));
            if queue.is_err() || domains.iter().any(Result::is_err) {
                self.fail(side, &format!("something is in use: {queue:?}, {domains:?}"));
            }
        }
    }

    /// Drivers hold nothing, and users hear all.
    fn everything(&mut self) {
        for side in 0..2 {
            self.release(side, false);
            self.poll(side);
        }
    }

    /// Lets packets and time pass until it is over, or for so long.
    pub(super) fn run_until(&mut self, most: Duration, is_over: impl Fn(&Self) -> bool) {
        let ends = self.now + most;
        for _ in 0..MOST_ROUNDS {
            self.everything();
            if !self.findings.failures().is_empty() || is_over(self) || self.now > ends {
                return;
            }
            if !self.round() {
                let before = self.now;
                self.wait(None);
                // A timer may have been early, and another one is next.
                if self.now == before && !self.round() && !self.is_timer_ahead() {
                    return;
                }
            }
        }
    }

    fn is_timer_ahead(&self) -> bool {
        let timers = self.ends.iter().filter_map(|end| end.checked.poll_timeout());
        timers.map(|timer| timer.at).min().is_some_and(|at| at > self.now)
    }

    /// What the contract checkers noted.
    pub(super) fn judge_contract(&mut self) {
        for side in 0..2 {
            let has_messages = self.ledger.pairs.iter().any(|p| p.side == side && p.has_messages());
            // Messages behind a hole are placed on the assumption that it holds
            // no end of one, and are forgotten when one turns up: nobody was told
            // of them. What somebody was told of is watched apart.
            let counts = |violation: &Violation| match violation {
                Violation::PlacedOnAccepted(_) | Violation::GuessOfAccepted(_) => !has_messages,
                _ => true,
            };
            let violations = self.ends[side].checked.violations();
            for violation in violations.into_iter().filter(counts) {
                self.fail_badly(side, &format!("{violation}"));
            }
        }
    }
}
