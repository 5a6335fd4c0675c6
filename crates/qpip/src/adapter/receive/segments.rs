//! TCP: a segment goes to its connection, or to what comes before and after one.

use core::net::SocketAddr;

use landfall_placement::{Check, Instant, Placement, Refusal, Spans};

use super::arrival::{Arrival, Outcome, is_intact, sum_of};
use crate::adapter::Adapter;
use crate::adapter::demux::{Ends, Opening, any_of};
use crate::adapter::landing::Placing;
use crate::adapter::links::{Marks, Origin};
use crate::adapter::queue_pair::{Phase, QueuePair, Role};
use crate::tcp::{Claim, Draft, HalfOpen, HandshakeStep, Late, Mapping, Placed, Segment, Tcb};
use crate::wire::tcp::Flags;
use crate::wire::{Layer, Options, Stop, Tcp};
use crate::work::{ListenerId, QueuePairId};

impl Adapter {
    #[inline]
    pub(super) fn take_tcp(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        into: &mut Spans,
    ) -> Outcome {
        let layer = arrival.ip.tcp(arrival.head)?;
        let header = &layer.header;
        let local = SocketAddr::new(arrival.ip.destination, header.destination);
        let remote = SocketAddr::new(arrival.ip.source, header.source);
        let segment = Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            options: header.options,
            payload: layer.payload_len,
            coalesced: arrival.coalesced,
            ecn: arrival.ip.ecn,
        };
        let ends = (local, remote);
        let origin = Origin { link: arrival.link, station: arrival.station(), ends };
        if segment.payload == 0 {
            return self.take_bare(now, arrival, &layer, &origin, &segment);
        }
        let known = self.quick_connection_of(arrival.link, ends);
        let Some(id) = known.or_else(|| self.open_early(now, &origin, &segment)) else {
            return self.check_only(arrival, &layer, &origin, &segment);
        };
        if !self.placing.has_room() {
            return Err(Refusal::NoRoom.into());
        }
        let check = check_of(arrival, &layer)?;
        let pair = self.pairs.named_mut(id.index, id.generation);
        let (connection, queues) =
            pair.and_then(QueuePair::connection_mut).ok_or(Refusal::UnknownId)?;
        let Placed { skip, claim } = connection.tcb.place(now, &segment, queues, into);
        self.predict(id);
        let piece = arrival.piece;
        // A place that no unit can name is nowhere near the start of one.
        let at = u16::try_from(layer.payload_at + skip as usize);
        let kept = self.keep(Placing::Stream { pair: id, segment, claim, piece });
        match (at, kept) {
            (Ok(at), Ok(ticket)) => Ok(Placement::Into { at, check, ticket }),
            (_, kept) => {
                if let Ok(ticket) = kept {
                    self.placing.remove(ticket.index());
                }
                into.clear();
                self.land_segment(now, id, &segment, (claim, false));
                Err(Refusal::NoRoom.into())
            }
        }
    }

    /// The connection of these two ends; likely the one that something came for
    /// last.
    #[inline]
    fn quick_connection_of(&mut self, link: usize, ends: Ends) -> Option<QueuePairId> {
        if let Some(id) = self.links[link].last_pair {
            let pair = self.pairs.named(id.index, id.generation);
            let connection = pair.and_then(QueuePair::connection);
            let is_it = |tcb: &Tcb| (tcb.local, tcb.remote) == ends && !tcb.is_closed();
            if connection.is_some_and(|connection| is_it(&connection.tcb)) {
                return Some(id);
            }
        }
        let id = self.connection_of(ends)?;
        self.links[link].last_pair = Some(id);
        Some(id)
    }

    /// A segment without payload: all of it is at hand, and is checked at once.
    /// Where the sum does not fit, the device may know better: on a virtual link
    /// it comes unfinished, and the driver can tell.
    #[inline]
    fn take_bare(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        layer: &Layer<Tcp>,
        origin: &Origin,
        segment: &Segment,
    ) -> Outcome {
        if arrival.piece.is_some() || is_intact(arrival, layer.at, layer.len) {
            self.take_segment(now, origin, segment);
            return Ok(Placement::Consumed);
        }
        self.check_only(arrival, layer, origin, segment)
    }

    /// Nothing of the payload is kept, but what the segment says counts, if its
    /// checksum is right.
    fn check_only(
        &mut self,
        arrival: &Arrival<'_>,
        layer: &Layer<Tcp>,
        origin: &Origin,
        segment: &Segment,
    ) -> Outcome {
        let check = check_of(arrival, layer)?;
        let at = u16::try_from(layer.payload_at).map_err(|_| Refusal::Unsupported)?;
        let ticket = self.keep(Placing::Checked { origin: *origin, segment: *segment })?;
        Ok(Placement::Into { at, check, ticket })
    }

    /// The payload of a segment landed, or failed its check.
    #[inline]
    pub(in crate::adapter) fn land_segment(
        &mut self,
        now: Instant,
        id: QueuePairId,
        segment: &Segment,
        (claim, is_good): (Claim, bool),
    ) {
        let pair = self.pairs.named_mut(id.index, id.generation);
        let configured = pair.and_then(|pair| pair.configured_mut(&self.context.config.tcp));
        let Some((connection, queues, config)) = configured else { return };
        let verdict = connection.tcb.landed(now, segment, (claim, is_good), config, queues);
        self.context.stats.segments_received += u64::from(is_good);
        self.follow(now, id, verdict);
    }

    /// What a segment led to.
    #[inline]
    fn follow(&mut self, now: Instant, id: QueuePairId, verdict: Result<Option<Draft>, Refusal>) {
        match verdict {
            Ok(None) => {}
            Ok(Some(draft)) => self.say_draft(now, id, &draft),
            Err(refusal) => {
                self.context.refusals.count(refusal);
            }
        }
        self.mark_ready(id);
        self.settle(id);
    }

    /// A segment whose checksum is right, and whose payload, if it had any, was
    /// not kept.
    pub(in crate::adapter) fn take_segment(
        &mut self,
        now: Instant,
        origin: &Origin,
        segment: &Segment,
    ) {
        let bare = segment.without_payload();
        if let Some(id) = self.quick_connection_of(origin.link, origin.ends) {
            return self.take_known(now, id, &bare);
        }
        if let Some(index) = self.openings.find(origin.ends) {
            return self.take_proof(now, index, origin, segment);
        }
        if let Some(index) = self.time_waits.find(origin.ends)
            && !self.take_late(now, index, origin, segment)
        {
            return;
        }
        let is_question =
            segment.has(Flags::SYN) && !segment.flags.intersects(Flags::ACK | Flags::RST);
        match self.listener_at(origin.ends.0) {
            Some(listener) if is_question => self.take_question(now, listener, origin, &bare),
            // RFC 9293, 3.10.7.2: what neither asks nor acknowledges is dropped by who listens.
            Some(_) if !segment.has(Flags::ACK) => {
                self.context.refusals.count(Refusal::Unexpected);
            }
            Some(listener) if self.cookies.is_in_use(now) => {
                self.take_cookie(now, listener, origin, segment);
            }
            _ => self.refuse_segment(now, origin, segment),
        }
    }

    fn take_known(&mut self, now: Instant, id: QueuePairId, segment: &Segment) {
        let pair = self.pairs.named_mut(id.index, id.generation);
        let configured = pair.and_then(|pair| pair.configured_mut(&self.context.config.tcp));
        let Some((connection, queues, config)) = configured else { return };
        let verdict = connection.tcb.handle(now, segment, config, queues);
        self.context.stats.segments_received += 1;
        self.follow(now, id, verdict);
    }

    fn listener_at(&self, local: SocketAddr) -> Option<ListenerId> {
        let exact = self.listening.get(&(local.port(), local.ip()));
        exact.or_else(|| self.listening.get(&(local.port(), any_of(local.ip())))).copied()
    }

    /// Somebody asks for a connection: it is answered, and nothing but the answer
    /// is kept.
    fn take_question(
        &mut self,
        now: Instant,
        listener: ListenerId,
        origin: &Origin,
        segment: &Segment,
    ) {
        if self.context.events.is_full() {
            self.context.refusals.count(Refusal::NoRoom);
            return;
        }
        let (local, remote) = origin.ends;
        let Some(way) = self.links.route(Some(local.ip()), remote.ip()) else { return };
        let (mapping, offered) = self.first_offer(listener);
        let mss = self.links.largest_segment(&way, mapping);
        if !self.openings.has_room() {
            let clock = self.secret.clock_offset(local, remote);
            let (config, ends) = (&self.context.config.tcp, origin.ends);
            let answer = self.cookies.answer(now, config, ends, clock, segment, (offered, mss));
            self.context.stats.cookies_sent += 1;
            return self.say_to(origin, &answer);
        }
        let half = HalfOpen::new(
            now,
            &self.context.config.tcp,
            &self.secret,
            origin.ends,
            segment,
            (offered, mss),
        );
        let Origin { link, station, .. } = *origin;
        let opening = Opening { half, listener, link, station, proof: None };
        if let Some(index) = self.openings.insert(opening) {
            self.answer_opening(now, index);
        }
    }

    /// A segment that may prove an opening of which nothing was kept. What does not is
    /// no reason for a reset: it may be the second segment of somebody whose first is yet
    /// to come, and numbers are not to be tried out at the speed of our answers.
    fn take_cookie(
        &mut self,
        now: Instant,
        listener: ListenerId,
        origin: &Origin,
        segment: &Segment,
    ) {
        let (local, remote) = origin.ends;
        let clock = self.secret.clock_offset(local, remote);
        let terms = self.cookies.check(now, &self.context.config.tcp, origin.ends, clock, segment);
        let way = self.links.route(Some(local.ip()), remote.ip());
        let (Some((terms, offered)), Some(way)) = (terms, way) else {
            self.context.refusals.count(Refusal::WrongKey);
            return;
        };
        let (mapping, _) = self.first_offer(listener);
        let mss = self.links.largest_segment(&way, mapping);
        let half = HalfOpen::proved(now, origin.ends, terms, (offered, mss));
        let Origin { link, station, .. } = *origin;
        let opening = Opening { half, listener, link, station, proof: None };
        let (index, has_dropped) = self.openings.insert_proved(opening);
        self.context.stats.half_open_dropped += u64::from(has_dropped);
        match index {
            Some(index) => {
                self.context.stats.cookies_accepted += 1;
                self.take_proof(now, index, origin, segment);
            }
            None => {
                self.context.refusals.count(Refusal::NoRoom);
            }
        }
    }

    /// What the queue pair that is mated next does, and the memory it has posted.
    fn first_offer(&self, listener: ListenerId) -> (Mapping, u16) {
        let known = self.listeners.named(listener.index, listener.generation);
        let first = known.and_then(|known| known.offers.front());
        match first.and_then(|id| self.known(*id)).map(|pair| &pair.role) {
            Some(Role::Stream(stream)) => {
                (stream.mapping, u16::try_from(stream.queues.receive.bytes()).unwrap_or(u16::MAX))
            }
            _ => (Mapping::default(), 0),
        }
    }

    /// Sends the answer to an opening, where it is due.
    pub(in crate::adapter) fn answer_opening(&mut self, now: Instant, index: u32) {
        let Some(opening) = self.openings.get_mut(index) else { return };
        let origin = opening.origin();
        if let Some(draft) = opening.half.poll_transmit(now) {
            self.say_to(&origin, &draft);
        }
    }

    fn say_to(&mut self, origin: &Origin, draft: &Draft) {
        self.links.queue_segment(&mut self.context, origin, Marks::default(), draft);
    }

    /// A segment for a connection that is not proved.
    fn take_proof(&mut self, now: Instant, index: u32, origin: &Origin, segment: &Segment) {
        let Some(opening) = self.openings.get_mut(index) else { return };
        match opening.half.handle(segment) {
            HandshakeStep::Open => {
                let bare = segment.without_payload();
                match self.mate(now, index) {
                    Some(id) => self.take_known(now, id, &bare),
                    None => self.keep_proof(index, bare),
                }
            }
            HandshakeStep::Again => {
                // The last request says where the answer goes: no checksum covers the
                // station that the first one named.
                (opening.link, opening.station) = (origin.link, origin.station);
                self.answer_opening(now, index);
            }
            HandshakeStep::Gone => {
                self.openings.remove(index);
            }
            HandshakeStep::Foreign => self.refuse_segment(now, origin, segment),
            HandshakeStep::Unacceptable => {
                let draft = opening.half.say_where_we_are(now);
                self.context.refusals.count(Refusal::OutOfBounds);
                if self.links.may_answer(now) {
                    self.say_to(origin, &draft);
                }
            }
            HandshakeStep::Nothing => {
                self.context.refusals.count(Refusal::Unexpected);
            }
        }
    }

    /// A payload that comes right behind the proof, or is the proof itself: the
    /// connection is opened already, for the number that it acknowledges was
    /// drawn at random. Nothing else of the segment counts before its check.
    fn open_early(
        &mut self,
        now: Instant,
        origin: &Origin,
        segment: &Segment,
    ) -> Option<QueuePairId> {
        let index = self.openings.find(origin.ends)?;
        let is_plain = !segment.flags.intersects(Flags::SYN | Flags::RST);
        let opening = self.openings.get_mut(index)?;
        if !is_plain || opening.half.handle(segment) != HandshakeStep::Open {
            return None;
        }
        self.mate(now, index)
    }

    /// Nobody waits to be mated with a connection that is proved: it waits until
    /// somebody is offered.
    fn keep_proof(&mut self, index: u32, proof: Segment) {
        let Some(opening) = self.openings.get_mut(index) else { return };
        let ListenerId { index: listener, generation } = opening.listener;
        if opening.proof.replace(proof).is_some() {
            return;
        }
        let openings = &self.openings;
        let Some(known) = self.listeners.named_mut(listener, generation) else { return };
        known.proved.push_back(index);
        if known.proved.len() > self.context.config.half_open {
            known.proved.retain(|index| {
                openings.get(*index).is_some_and(|opening| opening.proof.is_some())
            });
        }
    }

    /// Queue pairs were offered: connections that are proved and wait for one
    /// are mated, in their order.
    pub(in crate::adapter) fn mate_awaited(&mut self, now: Instant, listener: ListenerId) {
        loop {
            let known = self.listeners.named_mut(listener.index, listener.generation);
            let Some(known) = known.filter(|known| !known.offers.is_empty()) else { return };
            let Some(index) = known.proved.pop_front() else { return };
            let opening = self.openings.get(index).filter(|known| known.listener == listener);
            let Some(proof) = opening.and_then(|opening| opening.proof) else { continue };
            if let Some(id) = self.mate(now, index) {
                self.take_known(now, id, &proof);
            }
        }
    }

    /// A connection is proved: it is mated with the queue pair that has waited
    /// longest, if there is one.
    fn mate(&mut self, now: Instant, index: u32) -> Option<QueuePairId> {
        let opening = self.openings.get_mut(index)?;
        let listener = opening.listener;
        let (local, remote) = (opening.half.local, opening.half.remote);
        let way = self.links.route(Some(local.ip()), remote.ip())?;
        let Some(id) = self.take_offer(listener) else {
            self.context.stats.unmated += 1;
            return None;
        };
        let half = self.openings.remove(index)?.half;
        let pair = self.known(id)?;
        let Role::Stream(stream) = &pair.role else { return None };
        let mapping = stream.mapping;
        let mss = self.links.largest_segment(&way, mapping);
        let config = pair.tcp_config(&self.context.config.tcp);
        let tcb = Tcb::accept(now, config, &half, mapping, mss);
        self.open(id, tcb, &way, Some(listener));
        if let Some((connection, queues)) = self.known_mut(id).and_then(QueuePair::connection_mut) {
            connection.tcb.handle_posted_receive(queues);
        }
        self.context.stats.accepted += 1;
        Some(id)
    }

    /// The next queue pair that waits at a listener.
    fn take_offer(&mut self, listener: ListenerId) -> Option<QueuePairId> {
        loop {
            let known = self.listeners.named_mut(listener.index, listener.generation)?;
            let id = known.offers.pop_front()?;
            if let Some(Role::Stream(stream)) = self.known_mut(id).map(|pair| &mut pair.role)
                && matches!(stream.phase, Phase::Offered(_))
            {
                stream.phase = Phase::Idle;
                return Some(id);
            }
        }
    }

    /// A late segment of a connection that is over. Says whether it may be more:
    /// a new connection of the same two ends.
    fn take_late(&mut self, now: Instant, index: u32, origin: &Origin, segment: &Segment) -> bool {
        let Some(rest) = self.time_waits.get(index) else { return true };
        match rest.handle(now, segment) {
            Late::Ignore => false,
            Late::Reopen => {
                self.time_waits.remove(index);
                true
            }
            late @ (Late::Acknowledge | Late::Restart) => {
                let options = Options { timestamp: rest.timestamp(now), ..Options::default() };
                let draft =
                    Draft { options, ..Draft::bare(Flags::ACK, rest.send_next, rest.receive_next) };
                if late == Late::Restart {
                    self.time_waits.restart(index, now + self.context.config.tcp.time_wait);
                } else {
                    self.time_waits.note_answer(index, now);
                }
                self.say_to(origin, &draft);
                false
            }
        }
    }

    /// A segment that nobody waits for is answered by a reset (RFC 9293,
    /// 3.10.7.1), but not too often.
    fn refuse_segment(&mut self, now: Instant, origin: &Origin, segment: &Segment) {
        self.context.refusals.count(Refusal::WrongAddress);
        if segment.has(Flags::RST) || !self.links.may_answer(now) {
            return;
        }
        let draft = if segment.has(Flags::ACK) {
            Draft::bare(Flags::RST, segment.ack, 0)
        } else {
            Draft::bare(Flags::RST | Flags::ACK, 0, segment.seq.wrapping_add(segment.len()))
        };
        self.say_to(origin, &draft);
        self.context.stats.resets_sent += 1;
    }
}

/// The pass over a segment, unless it was made: what was put together from
/// fragments was checked as a whole.
#[inline]
fn check_of(arrival: &Arrival<'_>, layer: &Layer<Tcp>) -> Result<Check, Stop> {
    if arrival.piece.is_some() {
        return Ok(Check::None);
    }
    sum_of(&arrival.ip, layer.at, layer.len)
}
