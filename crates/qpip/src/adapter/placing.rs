//! What came: whose it is, and where its payload belongs. The parts below `receive` read it,
//! and the part that it is for takes it.

use landfall_placement::{Check, Instant, Placement, Refusal, Spans, Ticket, Unit};

use super::links::Origin;
use super::listeners::ArrivedSegment;
use super::placements::{Arrivals, Placing, PredictedPlacing};
use super::queue_pair::QueuePair;
use super::receive::arrival::{self, Arrival, Outcome, Received};
use super::receive::control::{self, IcmpStep, Problematic};
use super::receive::datagrams::{DatagramStep, PacketDatagram};
use super::receive::pieces::Ready;
use super::receive::segments::PacketSegment;
use super::udp::ArrivedDatagram;
use super::{Adapter, vlan};
use crate::offload::{self, Hit};
use crate::tcp::{Landed, Placed, Segment};
use crate::wire::{Stop, dhcp, ethernet, protocol};
use crate::work::QueuePairId;

impl Adapter {
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let link = self.links.of(unit.path).ok_or(Refusal::WrongAddress)?;
        if let Some(tag) = self.links[link].vlan {
            return self.receive_tagged(now, link, tag, unit, into);
        }
        if let Some(placement) = self.place_predicted(now, link, unit, into) {
            return Ok(placement);
        }
        self.receive_frame(now, link, unit, None, into)
    }

    /// A frame on an interface of a VLAN: what is behind its tag is taken like any other. What
    /// comes as predicted is not looked for: the seam reads frames without a tag.
    fn receive_tagged(
        &mut self,
        now: Instant,
        link: usize,
        tag: u16,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let frame = match vlan::untag(tag, unit) {
            Ok(frame) => frame,
            Err(Stop::NeedHead(len)) => return Ok(Placement::NeedHead(len)),
            Err(stop) => {
                self.context.stats.frames_of_other_vlans += 1;
                return Err(stop.refusal().unwrap_or(Refusal::WrongAddress));
            }
        };
        let placement = self.receive_frame(now, link, &frame.unit, Some(frame.ethernet), into)?;
        vlan::placement_with_tag(placement).ok_or(Refusal::Unsupported)
    }

    /// A frame that was not predicted. `stations` are its stations where a tag stood behind
    /// them.
    #[inline]
    fn receive_frame(
        &mut self,
        now: Instant,
        link: usize,
        unit: &Unit<'_>,
        stations: Option<ethernet::Header>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let placed = match arrival::read(&self.links[link], link, unit, stations) {
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
                let about = Problematic { head: unit.head, stations, problem: &problem };
                control::send_icmp_error(now, context, links, link, &about);
                Err(Refusal::Unsupported)
            }
        }
    }

    /// What comes as the offload seam expects it.
    #[inline]
    fn place_predicted(
        &mut self,
        now: Instant,
        link: usize,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Option<Placement> {
        if !self.placements.has_room() {
            return None;
        }
        let hit = self.seam.receive(&self.links[link], unit, into)?;
        let placement = match hit {
            Hit::Segment(hit) => self.promise_segment(now, &hit, unit.segment),
            Hit::Datagram(hit) => {
                self.pairs.claim_datagram(&mut self.context, &hit).and_then(|id| {
                    let (from, len) = (hit.from, hit.len);
                    if hit.is_spent {
                        self.predict_anew(id);
                    }
                    let placing = Placing::Datagram { pair: id, from, len, piece: None };
                    let ticket = self.placements.keep(placing).ok()?;
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
        now: Instant,
        hit: &offload::Segment,
        coalesced: Option<u16>,
    ) -> Option<Placement> {
        if self.arrivals.as_ref().is_some_and(|arrivals| arrivals.timestamp() != hit.timestamp) {
            // What they say of the other side's clock comes first.
            self.land_arrivals();
        }
        let (context, links) = (&mut self.context, &mut self.links);
        let (id, claim) = self.pairs.claim_segment(now, context, links, hit)?;
        if hit.is_spent {
            self.predict_anew(id);
        }
        let placing = PredictedPlacing { pair: id, hit: *hit, coalesced, claim };
        let ticket = self.placements.keep_predicted(placing).ok()?;
        Some(Placement::Into { at: hit.at, check: hit.check, ticket })
    }

    /// What was said of this queue pair is spent: more is to be said, whatever it is.
    fn predict_anew(&mut self, id: QueuePairId) {
        self.seam.disarm(id.index);
        self.predict(id);
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
            protocol::IGMP if arrival.ip.source.is_ipv4() => {
                control::handle_igmp(now, context, links, arrival)?
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
    pub(super) fn place_whole(&mut self, now: Instant, ready: &Ready, into: &mut Spans) -> Outcome {
        let lent = self.pieces.lend();
        let arrival = lent.arrival(ready);
        let placed = arrival.and_then(|arrival| self.place_packet(now, &arrival, into));
        self.pieces.take_back(lent);
        placed
    }

    #[inline]
    fn place_segment(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let mut packet = PacketSegment::read(arrival)?;
        let ends = packet.origin.ends;
        if !self.context.config.share.has_connection(ends.local, ends.remote) {
            return Err(Refusal::WrongAddress.into());
        }
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
            self.land_arrivals();
            self.finish_segment(now, id, &segment, Landed { claim, is_good: false });
            return Err(Refusal::NoRoom.into());
        };
        let ticket = self.placements.keep(Placing::Stream { pair: id, segment, claim, piece })?;
        Ok(Placement::Into { at, check, ticket })
    }

    #[inline]
    fn place_datagram(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let packet = PacketDatagram::read(arrival)?;
        if packet.is_of_dhcp() && self.links[arrival.link].host.dhcp.is_some() {
            return self.place_lease(now, arrival, &packet);
        }
        if !self.context.config.share.has_port(packet.local.port()) {
            return Err(Refusal::WrongAddress.into());
        }
        if !self.links[arrival.link].has(packet.local.ip()) && !packet.local.ip().is_multicast() {
            return Err(Refusal::WrongAddress.into());
        }
        if packet.local.ip().is_multicast() && !self.pairs.listens(arrival.link, packet.local) {
            // To a group nobody complains.
            return Err(Refusal::WrongAddress.into());
        }
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

    /// What a server of DHCP says counts once its checksum is right.
    fn place_lease(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        packet: &PacketDatagram,
    ) -> Outcome {
        let reply = dhcp::Reply::read(packet.payload(arrival)?)?;
        let (link, check) = (arrival.link, packet.check(arrival)?);
        if check == Check::None || packet.is_intact(arrival) {
            self.links.handle_lease(now, &mut self.context, link, &reply);
            return Ok(Placement::Consumed);
        }
        let ticket = self.placements.keep(Placing::Lease { link, reply })?;
        Ok(Placement::Into { at: packet.payload_at(), check, ticket })
    }

    // What came is in its place, or only had to be looked at.

    /// A payload is in its place, or failed its check. Returns whether it came as predicted. Those
    /// that follow right behind each other count as one: until anybody looks it is as if the driver
    /// were still putting them there.
    #[inline]
    pub(super) fn land_predicted(
        &mut self,
        now: Instant,
        ticket: Ticket,
        is_in_place: bool,
    ) -> bool {
        // It came as another part of the adapter says.
        let Some(placing) = self.placements.predicted(ticket) else { return false };
        let arrivals = self.arrivals.as_mut().filter(|_| is_in_place);
        if !arrivals.is_some_and(|arrivals| arrivals.join(now, placing)) {
            let first = Arrivals::new(now, *placing);
            self.begin_arrivals(first, is_in_place);
        }
        self.placements.remove_predicted(ticket);
        true
    }

    /// More may follow right behind this.
    fn begin_arrivals(&mut self, arrivals: Arrivals, is_in_place: bool) {
        self.land_arrivals();
        let connection = self.pairs.named(arrivals.pair()).and_then(QueuePair::connection);
        if is_in_place && connection.is_some_and(|known| known.tcb.joins_arrivals()) {
            self.arrivals = Some(arrivals);
        } else {
            self.finish_arrivals(&arrivals, is_in_place);
        }
    }

    /// What came one behind another counts.
    #[inline]
    pub(super) fn land_arrivals(&mut self) {
        if let Some(arrivals) = self.arrivals.take() {
            self.finish_arrivals(&arrivals, true);
        }
    }

    fn finish_arrivals(&mut self, arrivals: &Arrivals, is_good: bool) {
        let (segment, claim) = arrivals.segment();
        self.context.stats.segments_received += u64::from(arrivals.segments - 1);
        self.finish_segment(arrivals.now, arrivals.pair(), &segment, Landed { claim, is_good });
    }

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
        self.settle_later(id);
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
    pub(super) fn handle_segment(&mut self, now: Instant, origin: &Origin, segment: &Segment) {
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

    pub(super) fn handle_known(&mut self, now: Instant, id: QueuePairId, segment: &Segment) {
        let Some(pair) = self.pairs.named_mut(id) else {
            debug_assert!(false, "its connection has just been found");
            return;
        };
        pair.handle_segment(now, &mut self.context, &mut self.links, segment);
        self.settle_later(id);
    }
}
