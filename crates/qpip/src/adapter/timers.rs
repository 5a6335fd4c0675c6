//! Time passed.

use landfall_placement::{Instant, Timeout};

use super::Adapter;
use super::queue_pair::QueuePair;
use crate::ids::QueuePairId;

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

impl Adapter {
    pub(super) fn next_timer(&self) -> Option<Timeout> {
        let neighbours = self.links.iter().filter(|link| link.station().is_some());
        // Somebody was offered to a connection that waits: at once.
        let awaited = (!self.awaited.is_empty()).then_some(Instant::ZERO);
        let timers = [
            (awaited, "TCP accept"),
            (self.pair_timers.first().map(|(at, _)| at), "TCP"),
            (self.openings.next_timer(), "TCP opening"),
            (self.time_waits.next_timer(), "TCP TIME-WAIT"),
            (neighbours.filter_map(|link| link.neighbours.poll_timeout()).min(), "neighbour"),
            (self.pieces.next_timer(), "reassembly"),
        ];
        let set = timers.into_iter().filter_map(|(at, timer)| Some(Timeout { at: at?, timer }));
        set.min_by_key(|timeout| timeout.at)
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        while let Some(listener) = self.awaited.pop() {
            self.mate_awaited(now, listener);
        }
        self.time_waits.expire(now);
        self.pieces.expire(now);
        for link in 0..self.links.len() {
            if self.links[link].station().is_some() {
                self.ask_neighbours(now, link);
            }
        }
        for _ in 0..BUDGET {
            if let Some((_, index)) = self.pair_timers.pop_up_to(now) {
                self.time_out_pair(now, index);
            } else if let Some(index) = self.openings.due(now) {
                self.time_out_opening(now, index);
            } else {
                return;
            }
        }
    }

    fn time_out_pair(&mut self, now: Instant, index: u32) {
        let id = QueuePairId::new(index, self.pairs.generation(index));
        let pair = self.pairs.get_mut(index);
        let Some((connection, queues)) = pair.and_then(QueuePair::connection_mut) else { return };
        let due = connection.tcb.poll_timeout(&self.config.tcp);
        if due.is_some_and(|timeout| timeout.at <= now) {
            let reset = connection.tcb.handle_timeout(now, &self.config.tcp, queues);
            if let Some(draft) = reset {
                self.say_draft(now, id, &draft);
            }
            self.mark_ready(id);
        }
        self.settle(id);
    }

    fn time_out_opening(&mut self, now: Instant, index: u32) {
        let Some(opening) = self.openings.get_mut(index) else { return };
        if opening.half.handle_timeout(now, &self.config.tcp) {
            self.answer_opening(now, index);
            self.openings.set_timer(index);
        } else {
            self.openings.remove(index);
        }
    }
}
