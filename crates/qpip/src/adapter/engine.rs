//! The adapter as an [`Engine`]: what its driver calls. Here it is decided which part
//! takes what came, and which sends next; the parts do it.

use alloc::vec::Vec;

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathState, Placement, Refusal, Refusals,
    Spans, Ticket, Timeout, Transmit, Unit, assumed,
};

use super::Adapter;
use super::event::Event;
use super::links::Origin;
use super::listeners::ArrivedSegment;
use super::placements::Placing;
use super::queue_pair::QueuePair;
use super::receive::arrival::{self, Arrival, Outcome, Received};
use super::receive::control::{self, IcmpStep};
use super::receive::datagrams::{DatagramStep, PacketDatagram};
use super::receive::pieces::Ready;
use super::receive::segments::PacketSegment;
use super::transmit::{self, Frame, Turn, TurnOutcome};
use super::udp::ArrivedDatagram;
use crate::offload::{self, Hit};
use crate::tcp::{Landed, Placed, Segment};
use crate::wire::{Stop, protocol};
use crate::work::QueuePairId;

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

impl Engine for Adapter {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        let most = self.context.config.interfaces;
        // Beyond the limit of interfaces, a path is nobody's.
        let Some(change) = self.links.change_path(path, state, most) else { return };
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
        // A ticket of nothing is one that was given back before.
        let Some(placing) = self.placements.take(ticket) else { return };
        if landing == Landing::Corrupt {
            self.context.refusals.count(Refusal::BadChecksum);
        }
        let is_in_place = matches!(landing, Landing::Verified | Landing::Unchecked);
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
        let link = self.links.of(path)?;
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
    fn handle_sent(&mut self, _now: Instant, ticket: Ticket) {
        // What holds no memory has a ticket of nothing.
        let Some(sending) = self.transmissions.finish(ticket) else { return };
        // Its queue pair may have been destroyed meanwhile.
        let Some(pair) = self.pairs.named_mut(sending.pair) else { return };
        sending.release(pair);
        self.settle(sending.pair);
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(assigned) =
            self.listeners.next_assigned(now, &mut self.context, &self.links, &mut self.pairs)
        {
            self.handle_known(now, assigned.id, &assigned.segment);
        }
        self.pairs.time_waits.expire(now);
        self.pieces.expire(now);
        for link in 0..self.links.len() {
            if self.links[link].station().is_some() {
                self.ask_neighbours(now, link);
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

// Receive: whose is it?

impl Adapter {
    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let link = self.links.of(unit.path).ok_or(Refusal::WrongAddress)?;
        if let Some(placement) = self.place_predicted(link, unit, into) {
            return Ok(placement);
        }
        let placed = match arrival::read(&self.links[link], link, unit) {
            Ok(Received::Packet(arrival)) if arrival.ip.fragment.is_none() => {
                self.place_packet(now, &arrival, into)
            }
            Ok(Received::Packet(fragment)) => self.pieces.keep(now, &mut self.context, &fragment),
            Ok(Received::Arp(arp)) => {
                let (context, links) = (&mut self.context, &mut self.links);
                let woken = control::handle_arp(now, context, links, link, &arp);
                self.wake(now, woken);
                Ok(Placement::Consumed)
            }
            Err(stop) => Err(stop),
        };
        match placed {
            Ok(placement) => Ok(placement),
            Err(Stop::NeedHead(len)) => Ok(Placement::NeedHead(len)),
            Err(Stop::Refused(refusal)) => Err(refusal),
            Err(Stop::Answer(problem)) => {
                let (context, links) = (&mut self.context, &mut self.links);
                control::send_icmp_error(now, context, links, link, unit.head, &problem);
                Err(Refusal::Unsupported)
            }
        }
    }

    /// What comes as the offload seam expects it.
    #[inline]
    fn place_predicted(
        &mut self,
        link: usize,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Option<Placement> {
        if !self.placements.has_room() {
            return None;
        }
        let hit = self.seam.receive(&self.links[link], unit, into)?;
        let placement = match hit {
            Hit::Segment(hit) => self.promise_segment(&hit, unit.segment),
            Hit::Datagram(hit) => {
                self.pairs.claim_datagram(&mut self.context, &hit).and_then(|id| {
                    let (from, len) = (hit.from, hit.len);
                    let placing = Placing::Datagram { pair: id, from, len, piece: None };
                    let ticket = self.promise(id, placing, hit.is_spent)?;
                    Some(Placement::Into { at: hit.at, check: hit.check, ticket })
                })
            }
        };
        if placement.is_none() {
            into.clear();
        }
        placement
    }

    #[inline]
    fn promise_segment(
        &mut self,
        hit: &offload::Segment,
        coalesced: Option<u16>,
    ) -> Option<Placement> {
        let (context, links) = (&mut self.context, &mut self.links);
        let (id, claim) = self.pairs.claim_segment(context, links, hit)?;
        let segment = Segment::predicted(hit, coalesced);
        let placing = Placing::Stream { pair: id, segment, claim, piece: None };
        let ticket = self.promise(id, placing, hit.is_spent)?;
        Some(Placement::Into { at: hit.at, check: hit.check, ticket })
    }

    #[inline]
    fn promise(&mut self, id: QueuePairId, placing: Placing, is_spent: bool) -> Option<Ticket> {
        if is_spent {
            // Whatever it is, more is to be said.
            self.seam.disarm(id.index);
            self.predict(id);
        }
        self.placements.keep(placing).ok()
    }

    #[inline]
    fn place_packet(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let Self { context, links, pairs, .. } = self;
        let step = match arrival.ip.protocol {
            protocol::TCP => return self.place_segment(now, arrival, into),
            protocol::UDP => return self.place_datagram(now, arrival, into),
            protocol::ICMP4 if arrival.ip.source.is_ipv4() => {
                control::handle_icmp4(now, context, links, pairs, arrival)?
            }
            protocol::ICMP6 if arrival.ip.source.is_ipv6() => {
                control::handle_icmp6(now, context, links, pairs, arrival)?
            }
            _ => return Err(control::refuse_protocol(now, context, links, arrival).into()),
        };
        match step {
            IcmpStep::Done => {}
            IcmpStep::Wake(woken) => self.wake(now, woken),
            IcmpStep::Told { id, sends_again } => {
                if sends_again {
                    self.mark_ready(id);
                }
                self.settle(id);
            }
        }
        Ok(Placement::Consumed)
    }

    /// A packet that became whole is taken like one that came so.
    fn place_whole(&mut self, now: Instant, ready: &Ready, into: &mut Spans) -> Outcome {
        let lent = self.pieces.lend();
        let arrival = lent.arrival(ready);
        let placed = arrival.and_then(|arrival| self.place_packet(now, &arrival, into));
        self.pieces.take_back(lent);
        placed
    }

    #[inline]
    fn place_segment(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let mut packet = PacketSegment::read(arrival)?;
        if packet.segment.payload == 0 {
            // All of it is at hand, and is checked at once.
            if packet.is_intact(arrival) {
                self.handle_segment(now, &packet.origin, &packet.segment);
                return Ok(Placement::Consumed);
            }
        } else if let Some(id) = self.connection_for(now, &mut packet) {
            return self.place_payload(now, arrival, &packet, id, into);
        }
        // Nothing of the payload is kept, but what the segment says counts, if its
        // checksum is right.
        let check = packet.check(arrival)?;
        let at = packet.payload_at(0)?;
        let (origin, segment) = (packet.origin, packet.segment);
        let ticket = self.placements.keep(Placing::Checked { origin, segment })?;
        Ok(Placement::Into { at, check, ticket })
    }

    /// The connection that a payload is for, which is opened early where it proves it.
    #[inline]
    fn connection_for(&mut self, now: Instant, packet: &mut PacketSegment) -> Option<QueuePairId> {
        let (origin, segment) = (&packet.origin, &packet.segment);
        let known = self.pairs.find(&mut self.links[origin.link], origin.ends);
        if known.is_some() {
            return known;
        }
        let came = ArrivedSegment { now, origin, segment };
        let context = &mut self.context;
        let opened = self.listeners.open_early(context, &self.links, &mut self.pairs, came)?;
        packet.segment = opened.segment;
        Some(opened.id)
    }

    #[inline]
    fn place_payload(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        packet: &PacketSegment,
        id: QueuePairId,
        into: &mut Spans,
    ) -> Outcome {
        if !self.placements.has_room() {
            return Err(Refusal::NoRoom.into());
        }
        let (segment, piece) = (packet.segment, arrival.piece);
        let check = packet.check(arrival)?;
        let pair = self.pairs.named_mut(id).ok_or(Refusal::UnknownId)?;
        let placed =
            pair.place(now, &segment, &mut self.resources, into).ok_or(Refusal::UnknownId)?;
        let Placed { skip, claim } = placed;
        self.predict(id);
        let Ok(at) = packet.payload_at(skip) else {
            into.clear();
            self.finish_segment(now, id, &segment, Landed { claim, is_good: false });
            return Err(Refusal::NoRoom.into());
        };
        let ticket = self.placements.keep(Placing::Stream { pair: id, segment, claim, piece })?;
        Ok(Placement::Into { at, check, ticket })
    }

    #[inline]
    fn place_datagram(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let packet = PacketDatagram::read(arrival)?;
        let Some(id) = self.pairs.receiver_at(packet.local) else {
            let (context, links) = (&mut self.context, &mut self.links);
            return Err(control::refuse_port(now, context, links, arrival).into());
        };
        let check = packet.check(arrival)?;
        if !self.placements.has_room() {
            return Err(Refusal::NoRoom.into());
        }
        let pair = self.pairs.named_mut(id).ok_or(Refusal::UnknownId)?;
        let datagrams = self.resources.with_room(pair).ok_or(Refusal::UnknownId)?;
        let Some(step) = packet.place(datagrams, check, into) else {
            self.context.stats.datagrams_unexpected += 1;
            return Err(Refusal::NoRoom.into());
        };
        self.predict(id);
        match step {
            DatagramStep::Landed { was_too_long } => {
                self.count_datagram(id, was_too_long);
                Ok(Placement::Consumed)
            }
            DatagramStep::Places { at, check } => {
                let (from, len, piece) = (packet.from, packet.payload_len(), arrival.piece);
                let ticket =
                    self.placements.keep(Placing::Datagram { pair: id, from, len, piece })?;
                Ok(Placement::Into { at, check, ticket })
            }
        }
    }

    // What came is in its place, or only had to be looked at.

    /// The payload of a segment is in its place, or failed its check.
    #[inline]
    pub(super) fn finish_segment(
        &mut self,
        now: Instant,
        id: QueuePairId,
        segment: &Segment,
        landed: Landed,
    ) {
        // Its queue pair may have been destroyed meanwhile.
        let Some(pair) = self.pairs.named_mut(id) else { return };
        pair.handle_placed(now, &mut self.context, &mut self.links, segment, landed);
        if !landed.is_good {
            self.listeners.take_back(&mut self.pairs, id);
        }
        self.mark_ready(id);
        self.settle(id);
    }

    /// The datagram that was taken first landed, or failed its check.
    #[inline]
    pub(super) fn finish_datagram(&mut self, id: QueuePairId, datagram: Option<ArrivedDatagram>) {
        let pair = self.pairs.named_mut(id);
        // Its queue pair may have been destroyed meanwhile.
        let Some(datagrams) = pair.and_then(QueuePair::datagrams_mut) else { return };
        let was_too_long = datagrams.inbound.land(datagram);
        match datagram {
            Some(_) => self.count_datagram(id, was_too_long),
            None => self.settle(id),
        }
    }

    #[inline]
    fn count_datagram(&mut self, id: QueuePairId, was_too_long: bool) {
        self.context.stats.datagrams_received += 1;
        self.context.stats.datagrams_too_long += u64::from(was_too_long);
        self.settle(id);
    }

    /// A segment whose checksum is right, and whose payload, if any, was not kept.
    fn handle_segment(&mut self, now: Instant, origin: &Origin, segment: &Segment) {
        if let Some(id) = self.pairs.find(&mut self.links[origin.link], origin.ends) {
            return self.handle_known(now, id, &segment.without_payload());
        }
        let came = ArrivedSegment { now, origin, segment };
        let assigned =
            self.listeners.handle(&mut self.context, &mut self.links, &mut self.pairs, came);
        if let Some(assigned) = assigned {
            self.handle_known(now, assigned.id, &assigned.segment);
        }
    }

    fn handle_known(&mut self, now: Instant, id: QueuePairId, segment: &Segment) {
        let Some(pair) = self.pairs.named_mut(id) else {
            debug_assert!(false, "its connection has just been found");
            return;
        };
        pair.handle_segment(now, &mut self.context, &mut self.links, segment);
        self.mark_ready(id);
        self.settle(id);
    }

    // Transmit: whose turn is it?

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

    /// Those who waited for a neighbour look again.
    fn wake(&mut self, now: Instant, woken: Vec<QueuePairId>) {
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
