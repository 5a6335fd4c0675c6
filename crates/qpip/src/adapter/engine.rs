//! The adapter as an [`Engine`]: what its driver calls. Here it is decided which part
//! sends next, and `placing` decides which takes what came; the parts do it.

use alloc::vec::Vec;

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathState, Placement, Refusal, Refusals,
    Spans, Ticket, Timeout, Transmit, Unit, assumed,
};

use super::event::Event;
use super::placements::Placing;
use super::queue_pair::{Phase, QueuePair, Role};
use super::receive::control;
use super::transmit::{self, Frame, Turn, TurnOutcome};
use super::udp::ArrivedDatagram;
use super::{Adapter, vlan};
use crate::tcp::Landed;
use crate::tcp::tcb::CloseReason;
use crate::work::QueuePairId;

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

impl Engine for Adapter {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        let change = self.links.change_path(path, state, &self.context.config);
        // Beyond the limit of interfaces, a path is nobody's.
        let Some(change) = change else { return };
        if let Some(leaving) = change.abandoned {
            for _ in 0..leaving.units_left() {
                self.handle_sent(now, leaving.ticket);
            }
        }
        let woken = core::mem::take(&mut self.links[change.link].parked);
        self.wake(now, woken);
    }

    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        let link = &self.links[self.links.of(path)?];
        self.pairs.named(link.last_pair?)?.guess(link, nth)
    }

    #[inline]
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.receive(now, unit, into).map_err(|refusal| self.context.refusals.count(refusal))
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let is_in_place = matches!(landing, Landing::Verified | Landing::Unchecked);
        if landing == Landing::Corrupt {
            self.context.refusals.count(Refusal::BadChecksum);
        }
        if self.land_predicted(now, ticket, is_in_place) {
            return;
        }
        // A ticket of nothing is one that was given back before.
        let Some(placing) = self.placements.take(ticket) else { return };
        self.land_arrivals();
        match placing {
            Placing::Stream { pair, segment, claim, piece } => {
                self.pieces.release(piece);
                self.finish_segment(now, pair, &segment, Landed { claim, is_good: is_in_place });
            }
            Placing::Checked { origin, segment } => {
                if is_in_place {
                    self.handle_segment(now, &origin, &segment);
                }
            }
            Placing::Lease { link, reply } => {
                if is_in_place {
                    self.links.handle_lease(now, &mut self.context, link, &reply);
                }
            }
            Placing::Datagram { pair, from, len, piece } => {
                self.pieces.release(piece);
                self.finish_datagram(pair, is_in_place.then_some(ArrivedDatagram { from, len }));
            }
        }
    }

    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        loop {
            let ready = self.pieces.next()?;
            let id = ready.whole.id;
            into.clear();
            match self.place_whole(now, &ready, into) {
                Ok(Placement::Into { at, ticket, .. }) => {
                    let len = into.total_len() as usize;
                    if len > 0 {
                        let bytes = self.pieces.bytes(id, usize::from(at), len)?;
                        return Some(Deposit { bytes, ticket });
                    }
                    // Nothing has to be written: it only had to be looked at whole.
                    self.handle_placed(now, ticket, Landing::Verified);
                }
                // Nobody asks for more of a head that is whole.
                Ok(Placement::Consumed | Placement::NeedHead(_) | Placement::Word(..)) => {}
                Err(stop) => {
                    if let Some(refusal) = stop.refusal() {
                        self.context.refusals.count(refusal);
                    }
                }
            }
            self.pieces.release(Some(id));
        }
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        self.settle_all();
        let link = self.links.of(path)?;
        let Some(tag) = self.links[link].vlan else {
            return self.next_unit(now, link, head, from);
        };
        let unit = self.next_unit(now, link, vlan::room(head)?, from)?;
        Some(vlan::tag(tag, head, unit))
    }

    #[inline]
    fn handle_sent(&mut self, _now: Instant, ticket: Ticket) {
        // What holds no memory has a ticket of nothing.
        let Some(sending) = self.transmissions.finish(ticket) else { return };
        // Its queue pair may have been destroyed meanwhile.
        let Some(pair) = self.pairs.named_mut(sending.pair) else { return };
        sending.release(pair);
        self.settle(sending.pair);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.settle_all();
        while let Some(assigned) =
            self.listeners.next_assigned(now, &mut self.context, &self.links, &mut self.pairs)
        {
            self.handle_known(now, assigned.id, &assigned.segment);
        }
        self.pairs.time_waits.expire(now);
        self.pieces.expire(now);
        while let Some(missing) = self.pieces.poll_missing() {
            control::tell_missing(now, &mut self.context, &mut self.links, &missing);
        }
        for link in 0..self.links.len() {
            if self.links[link].station().is_some() {
                self.ask_neighbours(now, link);
                self.run_host(now, link);
            }
        }
        for _ in 0..BUDGET {
            if let Some(slot) = self.pairs.due(now) {
                self.time_out_pair(now, slot);
            } else if let Some(index) = self.listeners.due(now) {
                self.listeners.time_out(now, &mut self.context, &mut self.links, index);
            } else {
                break;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        let timers = [
            // Somebody was offered to a connection that waits: at once.
            (self.listeners.has_awaited().then_some(Instant::ZERO), "TCP accept"),
            (self.pairs.next_timer(), "TCP"),
            (self.listeners.next_timer(), "TCP opening"),
            (self.pairs.time_waits.next_timer(), "TCP TIME-WAIT"),
            (self.links.next_timer(), "neighbour"),
            (self.pieces.next_timer(), "reassembly"),
        ];
        let set = timers.into_iter().filter_map(|(at, timer)| Some(Timeout { at: at?, timer }));
        set.min_by_key(|timeout| timeout.at)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.settle_all();
        let event = self.context.events.pop()?;
        if let Event::CompletionsReady { queue } = event {
            self.resources.completion_queues.was_heard(queue);
        }
        Some(event)
    }

    fn refusals(&self) -> &Refusals {
        &self.context.refusals
    }
}

impl Adapter {
    // Transmit: whose turn is it?

    /// The next frame of a link, without the tag that it may have.
    #[inline]
    fn next_unit(
        &mut self,
        now: Instant,
        link: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        self.links[link].station()?;
        self.ask_neighbours(now, link);
        if let Some(transmit) = self.links.next_control(link, head) {
            return Some(transmit);
        }
        if let Some(leaving) = &mut self.links[link].leaving {
            let unit = leaving.next(head, from);
            if leaving.is_gone() || unit.is_none() {
                let (ticket, left) = (leaving.ticket, leaving.units_left());
                self.links[link].leaving = None;
                for _ in 0..left {
                    self.handle_sent(now, ticket);
                }
            }
            if unit.is_some() {
                return unit;
            }
        }
        self.next_of_pairs(now, link, &mut Frame { head, from })
    }

    #[inline]
    fn next_of_pairs(
        &mut self,
        now: Instant,
        link: usize,
        frame: &mut Frame<'_>,
    ) -> Option<Transmit> {
        while self.transmissions.has_room() {
            let id = transmit::next_turn(&mut self.links, &mut self.pairs, link)?;
            let turn = Turn { now, link, id };
            let Some(pair) = self.pairs.named_mut(id) else { continue };
            let (context, links) = (&mut self.context, &mut self.links);
            match self.transmissions.take_turn(context, links, pair, &turn, frame) {
                TurnOutcome::Sends(transmit) => {
                    self.settle(id);
                    self.mark_ready(id);
                    return Some(transmit);
                }
                TurnOutcome::Nothing => {}
                TurnOutcome::Idle => self.settle(id),
                TurnOutcome::Elsewhere => self.mark_ready(id),
                TurnOutcome::Again => {
                    self.settle(id);
                    self.mark_ready(id);
                }
                TurnOutcome::Waits => {
                    transmit::park(&self.context, &mut self.links, &mut self.pairs, &turn);
                    // Datagrams behind the one that waits may be for others.
                    self.mark_ready(id);
                    // The question for the neighbour is the next to leave.
                    self.ask_neighbours(now, link);
                    if let Some(transmit) = self.links.next_control(link, frame.head) {
                        return Some(transmit);
                    }
                }
            }
        }
        None
    }

    /// Asks for neighbours, and wakes who waited for those that answered or never will.
    fn ask_neighbours(&mut self, now: Instant, link: usize) {
        let woken = self.links.ask_neighbours(now, &mut self.context, link);
        self.wake(now, woken);
    }

    /// Lets a link's host do what is due. Connections from addresses that are gone are over.
    fn run_host(&mut self, now: Instant, link: usize) {
        self.links.run_host(now, &mut self.context, link);
        if self.links[link].host.has_changed {
            self.links[link].host.change().has_changed = false;
            self.seam.forget_station(link);
            for id in self.pairs.without_address(&self.links) {
                let Some(pair) = self.pairs.named_mut(id) else { continue };
                pair.abort(now, &mut self.context, &mut self.links, CloseReason::Unreachable);
                self.settle(id);
            }
        }
    }

    /// Those who waited for a neighbour look again.
    pub(super) fn wake(&mut self, now: Instant, woken: Vec<QueuePairId>) {
        for id in woken {
            // It may have been destroyed meanwhile.
            let Some(pair) = self.pairs.named_mut(id) else { continue };
            pair.handle_woken(now, &mut self.context, &mut self.links);
            self.settle(id);
            self.mark_ready(id);
        }
    }

    // Whatever happened to a queue pair.

    fn time_out_pair(&mut self, now: Instant, slot: u32) {
        let pair = self.pairs.get_mut(slot);
        let Some(pair) = assumed(pair, "a queue pair takes its timer with it") else { return };
        let id = pair.id;
        let was_due = pair.handle_timeout(now, &mut self.context, &mut self.links);
        if was_due {
            self.mark_ready(id);
        }
        self.settle(id);
    }

    /// A queue pair may have something to send.
    #[inline]
    pub(super) fn mark_ready(&mut self, id: QueuePairId) {
        transmit::mark_ready(&self.context, &mut self.links, &mut self.pairs, id);
    }

    /// Something happened to a queue pair that the offload seam did not see.
    #[inline]
    pub(super) fn predict(&mut self, id: QueuePairId) {
        if let Some(pair) = self.pairs.named(id) {
            self.seam.predict(pair, &self.links);
        }
    }

    /// Something came for a queue pair. What that made of it is taken out once for a batch of
    /// arrivals, when anybody looks ([`settle_all`](Self::settle_all)): until then nothing depends
    /// on it, but for a connection that is over, whose ends may be those of the next.
    #[inline]
    pub(super) fn settle_later(&mut self, id: QueuePairId) {
        // It may be gone already.
        let Some(QueuePair { role: Role::Stream(stream), .. }) = self.pairs.named_mut(id) else {
            return;
        };
        if matches!(&stream.phase, Phase::Open(connection) if connection.tcb.is_closed()) {
            self.mark_ready(id);
            self.settle(id);
        } else if !core::mem::replace(&mut stream.is_unsettled, true) {
            self.unsettled.push(id);
        }
    }

    /// Takes out what arrivals left with queue pairs.
    #[inline]
    pub(super) fn settle_all(&mut self) {
        if self.has_unsettled() {
            self.settle_arrivals();
        }
    }

    #[inline]
    const fn has_unsettled(&self) -> bool {
        self.arrivals.is_some() || !self.unsettled.is_empty()
    }

    fn settle_arrivals(&mut self) {
        self.land_arrivals();
        let mut unsettled = core::mem::take(&mut self.unsettled);
        for id in unsettled.drain(..) {
            let pair = self.pairs.named_mut(id);
            if let Some(QueuePair { role: Role::Stream(stream), .. }) = pair {
                stream.is_unsettled = false;
                self.mark_ready(id);
                self.settle(id);
            }
        }
        self.unsettled = unsettled;
    }

    /// Takes out all that a queue pair has to tell. One that is destroyed goes when empty.
    #[inline]
    pub(super) fn settle(&mut self, id: QueuePairId) {
        if self.seam.is_card()
            && self.pairs.named(id).is_some_and(|pair| self.seam.holds_memory_of(pair))
        {
            return;
        }
        let settled = self.pairs.settle(&mut self.context, &mut self.resources, id);
        // Nothing, where it is gone already.
        if let Some(pair) = settled {
            self.seam.predict(pair, &self.links);
            if pair.is_destroyed && pair.is_empty() {
                self.pairs.remove(&mut self.resources, id);
            }
        }
    }
}
