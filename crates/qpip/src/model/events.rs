//! What users are told beside completions, checked against the model.

use alloc::format;
use core::net::SocketAddr;

use landfall_placement::{Duration, Engine, Instant};

use super::ledger::Stage;
use super::world::World;
use crate::adapter::Event;
use crate::ids::QueuePairId;
use crate::tcp::tcb::CloseReason;

/// Nobody gives up who was unanswered for a shorter time.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// Takes everything that the users are told.
    pub(super) fn hear(&mut self) {
        self.hear_events();
        for side in 0..2 {
            if !self.setup.is_lazy() {
                self.take_completions(side);
            }
            self.check_sleep(side);
        }
    }

    pub(super) fn hear_events(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.ends[side].checked.poll_event() {
                self.write_down(|| format!("  side {side}: {event:?}"));
                self.findings.add(format!("{event:?}").as_bytes());
                self.hear_event(side, event);
            }
        }
    }

    fn hear_event(&mut self, side: usize, event: Event) {
        match event {
            Event::Connected { queue_pair, local, remote } => {
                let Some(index) = self.known(side, queue_pair) else { return };
                let pair = &mut self.ledger.pairs[index];
                let is_right = pair.stage == Stage::Opening
                    && pair.local == Some(local)
                    && pair.remote == Some(remote);
                pair.stage = Stage::Open;
                if !is_right {
                    self.fail(
                        side,
                        &format!("{queue_pair} is connected, but did not ask for that"),
                    );
                }
            }
            Event::Accepted { listener, queue_pair, local, remote } => {
                if listener != self.ends[side].listener {
                    self.fail(side, "accepts for nobody");
                }
                self.hear_accepted(side, queue_pair, (local, remote));
            }
            Event::PeerFinished { queue_pair } => {
                let Some(index) = self.known(side, queue_pair) else { return };
                let pair = &mut self.ledger.pairs[index];
                let is_second = core::mem::replace(&mut pair.has_peer_finished, true);
                let peer = pair.peer.map(|peer| &self.ledger.pairs[peer]);
                if is_second || peer.is_none_or(|peer| !peer.is_shut) {
                    self.fail(side, &format!("{queue_pair}: the other side has not finished"));
                }
            }
            Event::Closed { queue_pair, reason } => self.hear_closed(side, queue_pair, reason),
            Event::CompletionsReady { queue } => {
                let end = &mut self.ends[side];
                if queue != end.queue || end.armed.take().is_none() {
                    self.fail(side, "is woken without having armed");
                }
            }
        }
    }

    fn known(&mut self, side: usize, id: QueuePairId) -> Option<usize> {
        let found = self.ledger.find(side, id);
        if found.is_none() {
            self.fail(side, &format!("is told of {id}, which never was"));
        }
        found
    }

    fn hear_accepted(
        &mut self,
        side: usize,
        id: QueuePairId,
        (local, remote): (SocketAddr, SocketAddr),
    ) {
        let Some(index) = self.known(side, id) else { return };
        let other = self.ledger.connection(1 - side, remote, local);
        let pair = &mut self.ledger.pairs[index];
        let was_waiting = core::mem::replace(&mut pair.stage, Stage::Open) == Stage::Waiting;
        (pair.local, pair.remote, pair.peer) = (Some(local), Some(remote), other);
        if let Some(other) = other {
            self.ledger.pairs[other].peer = Some(index);
        }
        if other.is_none() || !was_waiting {
            self.fail(side, &format!("{id} accepts a connection that nobody asked for"));
        }
    }

    fn hear_closed(&mut self, side: usize, id: QueuePairId, reason: CloseReason) {
        let Some(index) = self.known(side, id) else { return };
        let pair = &mut self.ledger.pairs[index];
        let was_closed = pair.is_closed();
        pair.stage = Stage::Closed(reason);
        if was_closed || !self.may_close(index, reason) {
            self.fail(side, &format!("{id} is closed, without reason: {reason}"));
        }
    }

    /// Does what happened give this reason to close?
    fn may_close(&self, index: usize, reason: CloseReason) -> bool {
        let pair = &self.ledger.pairs[index];
        let peer = pair.peer.map(|peer| &self.ledger.pairs[peer]);
        let is_late = self.now > Instant::ZERO + PATIENCE;
        match reason {
            CloseReason::Aborted => pair.is_given_up,
            CloseReason::TimedOut => is_late,
            CloseReason::Unreachable => !self.setup.knows_neighbours() || is_late,
            // Without a queue pair that is offered, an opening is forgotten in time.
            // So is, for others, one that is over: late segments draw a reset then.
            CloseReason::Reset | CloseReason::Refused => {
                peer.is_none_or(|peer| peer.is_given_up || peer.is_closed())
            }
            CloseReason::Finished => {
                let has_heard_all = peer.is_some_and(|peer| peer.told == pair.stream.len());
                pair.is_shut && pair.has_peer_finished && has_heard_all
            }
        }
    }
}
