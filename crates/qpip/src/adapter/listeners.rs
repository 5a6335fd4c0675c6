//! [`Listeners`]: ports that are listened on, and connections until they have a
//! queue pair. They are asked for, answered, proved, and assigned to a queue pair
//! that waits.
//!
//! Each table is bounded, and a flood of strangers fills these and nothing else:
//! beyond the bound they are answered by cookies.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::{Instant, Refusal};
use landfall_tables::Table;

use super::context::Context;
use super::demux::{Ends, any_of};
use super::error::{Error, Object};
use super::links::{Links, Marks, Origin};
use super::openings::{Opening, Openings};
use super::queue_pairs::QueuePairs;
use crate::tcp::{Cookies, Draft, HalfOpen, HandshakeStep, Mapping, OwnOffer, Segment, Tcb};
use crate::wire::tcp::Flags;
use crate::work::{ListenerId, QueuePairId};

/// A segment, when it came, and from where.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedSegment<'a> {
    pub(super) now: Instant,
    pub(super) origin: &'a Origin,
    pub(super) segment: &'a Segment,
}

/// A connection found its queue pair, which handles this segment next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    pub(super) id: QueuePairId,
    pub(super) segment: Segment,
}

/// What the queue pair that is assigned next does, and the memory that it has posted.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    mapping: Mapping,
    posted: u16,
    fast_open: bool,
}

/// This many connections that were opened fast may be unproved at a time (RFC 7413, 5.1): who
/// has a cookie may have it from another address that it can use no more.
const MOST_UNPROVED: usize = 16;

/// All listeners, and the connections that came to them.
#[derive(Debug)]
pub(super) struct Listeners {
    table: Table<Listener>,
    /// By port and address, in that order.
    by_address: BTreeMap<(u16, IpAddr), ListenerId>,
    openings: Openings,
    /// Listeners with connections that are proved and queue pairs to assign them with.
    awaited: Vec<ListenerId>,
    cookies: Cookies,
    /// Connections that were opened fast; some may be proved by now, or gone.
    fast_opened: Vec<QueuePairId>,
}

/// A port that is listened on, and the idle queue pairs that wait there.
#[derive(Debug)]
struct Listener {
    local: SocketAddr,
    offers: VecDeque<QueuePairId>,
    /// Connections that are proved and found nobody who waited; some may be
    /// gone by now.
    proved: VecDeque<u32>,
}

impl Listeners {
    pub(super) const fn new(listeners: usize, openings: Openings, cookies: Cookies) -> Self {
        Self {
            table: Table::new(listeners),
            by_address: BTreeMap::new(),
            openings,
            awaited: Vec::new(),
            cookies,
            fast_opened: Vec::new(),
        }
    }

    fn named_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.table.named_mut(id.index, id.generation)
    }

    /// Nobody listens at this end, or is opening a connection between the two.
    pub(super) fn is_free(&self, ends: Ends) -> bool {
        let (port, address) = (ends.local.port(), ends.local.ip());
        self.openings.find(ends).is_none()
            && !self.by_address.contains_key(&(port, address))
            && !self.by_address.contains_key(&(port, any_of(address)))
    }

    pub(super) fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, Error> {
        let address = (local.port(), local.ip());
        if self.by_address.contains_key(&address) {
            return Err(Error::Taken(local));
        }
        let listener = Listener { local, offers: VecDeque::new(), proved: VecDeque::new() };
        let key = self.table.insert(listener).ok_or(Error::Full(Object::Listener))?;
        let id = ListenerId::new(key.index, key.generation);
        self.by_address.insert(address, id);
        Ok(id)
    }

    /// Ends a listener. Returns the queue pairs that waited there.
    pub(super) fn remove(&mut self, id: ListenerId) -> Result<VecDeque<QueuePairId>, Error> {
        let unknown = Error::Unknown(Object::Listener);
        self.table.named(id.index, id.generation).ok_or(unknown)?;
        let listener = self.table.remove(id.index).ok_or(unknown)?;
        self.by_address.remove(&(listener.local.port(), listener.local.ip()));
        self.openings.forget(id);
        Ok(listener.offers)
    }

    /// An idle queue pair waits at a listener.
    pub(super) fn offer(
        &mut self,
        listener: ListenerId,
        id: QueuePairId,
        most: usize,
    ) -> Result<(), Error> {
        let known = self.named_mut(listener).ok_or(Error::Unknown(Object::Listener))?;
        if known.offers.len() >= most {
            return Err(Error::Full(Object::QueuePair));
        }
        known.offers.push_back(id);
        let is_awaited = !known.proved.is_empty();
        if is_awaited && !self.awaited.contains(&listener) {
            self.awaited.push(listener);
        }
        Ok(())
    }

    /// An offer is withdrawn.
    pub(super) fn withdraw(&mut self, listener: ListenerId, id: QueuePairId) {
        if let Some(known) = self.named_mut(listener) {
            known.offers.retain(|offer| *offer != id);
        }
    }

    /// Somebody was offered to a connection that waits.
    pub(super) fn has_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The next timer of a connection that is being opened.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.openings.next_timer()
    }

    /// The next opening whose answer was not answered in time.
    pub(super) fn due(&mut self, now: Instant) -> Option<u32> {
        self.openings.due(now)
    }

    /// An answer was not answered in time: it is repeated, or the opening forgotten.
    pub(super) fn time_out(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        index: u32,
    ) {
        let Some(opening) = self.openings.get_mut(index) else {
            debug_assert!(false, "an opening takes its timer with it");
            return;
        };
        if opening.half.handle_timeout(now, &context.config.tcp) {
            self.answer(now, context, links, index);
            self.openings.set_timer(index);
            return;
        }
        if let Some(given_up) = self.openings.remove(index)
            && let Some(proof) = given_up.proof
        {
            // It takes itself for open, and nobody came for it: it is not left to find that
            // out by itself.
            refuse(now, context, links, &given_up.origin(), &proof);
        }
    }

    /// A segment whose checksum is right, and that is of no connection.
    pub(super) fn handle(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        pairs: &mut QueuePairs,
        came: ArrivedSegment<'_>,
    ) -> Option<Assigned> {
        let ArrivedSegment { now, origin, segment } = came;
        if let Some(index) = self.openings.find(origin.ends) {
            return self.handle_proof(context, links, pairs, index, came);
        }
        if !pairs.time_waits.handle(now, context, links, origin, segment) {
            return None;
        }
        let is_question =
            segment.has(Flags::SYN) && !segment.flags.intersects(Flags::ACK | Flags::RST);
        match self.at(origin.ends.local) {
            Some(listener) if is_question => {
                self.handle_question(context, links, pairs, listener, came);
            }
            // RFC 9293, 3.10.7.2: what neither asks nor acknowledges is dropped by who listens.
            Some(_) if !segment.has(Flags::ACK) => {
                context.refusals.count(Refusal::Unexpected);
            }
            Some(listener) if self.cookies.is_in_use(now) => {
                return self.handle_cookie(context, links, pairs, listener, came);
            }
            _ => refuse(now, context, links, origin, segment),
        }
        None
    }

    fn at(&self, local: SocketAddr) -> Option<ListenerId> {
        let exact = self.by_address.get(&(local.port(), local.ip()));
        exact.or_else(|| self.by_address.get(&(local.port(), any_of(local.ip())))).copied()
    }

    /// Somebody asks for a connection: it is answered, and nothing but the answer
    /// is kept.
    fn handle_question(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        pairs: &QueuePairs,
        listener: ListenerId,
        came: ArrivedSegment<'_>,
    ) {
        let ArrivedSegment { now, origin, segment } = came;
        if context.events.is_full() {
            context.refusals.count(Refusal::NoRoom);
            return;
        }
        let segment = &segment.without_payload();
        let Ends { local, remote } = origin.ends;
        let Some(route) = links.route(Some(local.ip()), remote.ip()) else {
            // Nobody can be answered there: it is from an address that no host has, or
            // beyond a gateway that we do not have.
            context.refusals.count(Refusal::WrongAddress);
            return;
        };
        let Offer { mapping, posted, fast_open } = self.first_offer(context, pairs, listener);
        let mss = links.largest_segment(&route, mapping);
        let config = &context.config.tcp;
        if !self.openings.has_room() {
            let clock = context.secret.clock_offset(local, remote);
            let own = OwnOffer { window: posted, mss };
            let answer = self.cookies.answer(now, config, origin.ends, clock, segment, own);
            context.stats.cookies_sent += 1;
            return links.queue_segment(context, origin, Marks::default(), &answer);
        }
        let (secret, own) = (&context.secret, OwnOffer { window: posted, mss });
        let mut half = HalfOpen::new(now, config, secret, origin.ends, segment, own);
        let asks = segment.options.fast_open.filter(|_| fast_open);
        half.fast_open = asks.map(|_| secret.fast_open_cookie(now, origin.ends));
        let Origin { link, station, .. } = *origin;
        let opening = Opening { half, listener, link, station, proof: None };
        if let Some(index) = self.openings.insert(opening) {
            self.answer(now, context, links, index);
        }
    }

    /// A segment that may prove an opening of which nothing was kept. What does not is
    /// no reason for a reset: it may be the second segment of somebody whose first is yet
    /// to come, and numbers are not to be tried out at the speed of our answers.
    fn handle_cookie(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        pairs: &mut QueuePairs,
        listener: ListenerId,
        came: ArrivedSegment<'_>,
    ) -> Option<Assigned> {
        let ArrivedSegment { now, origin, segment } = came;
        let Ends { local, remote } = origin.ends;
        let clock = context.secret.clock_offset(local, remote);
        let terms = self.cookies.check(now, &context.config.tcp, origin.ends, clock, segment);
        let route = links.route(Some(local.ip()), remote.ip());
        let (Some((terms, offered)), Some(route)) = (terms, route) else {
            context.refusals.count(Refusal::WrongKey);
            return None;
        };
        let mss = links.largest_segment(&route, self.first_offer(context, pairs, listener).mapping);
        let half = HalfOpen::proved(now, origin.ends, terms, OwnOffer { window: offered, mss });
        let Origin { link, station, .. } = *origin;
        let opening = Opening { half, listener, link, station, proof: None };
        let (index, has_dropped) = self.openings.insert_proved(opening);
        context.stats.half_open_dropped += u64::from(has_dropped);
        let Some(index) = index else {
            context.refusals.count(Refusal::NoRoom);
            return None;
        };
        context.stats.cookies_accepted += 1;
        self.handle_proof(context, links, pairs, index, came)
    }

    fn first_offer(&self, context: &Context, pairs: &QueuePairs, listener: ListenerId) -> Offer {
        let known = self.table.named(listener.index, listener.generation);
        let first = known.and_then(|known| known.offers.front());
        first.and_then(|id| pairs.stream(*id)).map_or_else(Offer::default, |stream| Offer {
            mapping: stream.mapping,
            posted: u16::try_from(stream.queues.receive.bytes()).unwrap_or(u16::MAX),
            fast_open: stream.config.as_deref().unwrap_or(&context.config.tcp).fast_open,
        })
    }

    /// Sends the answer to an opening, where it is due.
    fn answer(&mut self, now: Instant, context: &mut Context, links: &mut Links, index: u32) {
        let Some(opening) = self.openings.get_mut(index) else {
            debug_assert!(false, "only a known opening is answered");
            return;
        };
        let origin = opening.origin();
        if let Some(draft) = opening.half.poll_transmit(now) {
            links.queue_segment(context, &origin, Marks::default(), &draft);
        }
    }

    /// A segment for a connection that is not proved.
    fn handle_proof(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        pairs: &mut QueuePairs,
        index: u32,
        came: ArrivedSegment<'_>,
    ) -> Option<Assigned> {
        let ArrivedSegment { now, origin, segment } = came;
        let Some(opening) = self.openings.get_mut(index) else {
            debug_assert!(false, "an opening was found by its two ends");
            return None;
        };
        opening.half.hear_of_words(segment);
        match opening.half.handle(segment) {
            HandshakeStep::Open => {
                let segment = segment.without_payload();
                match self.assign(now, context, links, pairs, index) {
                    Some(id) => return Some(Assigned { id, segment }),
                    None => self.keep_proof(index, segment, context.config.half_open),
                }
            }
            HandshakeStep::Again => {
                // The last request says where the answer goes: no checksum covers the
                // station that the first one named.
                (opening.link, opening.station) = (origin.link, origin.station);
                self.answer(now, context, links, index);
            }
            HandshakeStep::Gone => {
                self.openings.remove(index);
            }
            HandshakeStep::Foreign => refuse(now, context, links, origin, segment),
            HandshakeStep::Contradiction => {
                self.openings.remove(index);
                refuse(now, context, links, origin, segment);
            }
            HandshakeStep::Unacceptable => {
                let draft = opening.half.challenge_ack(now);
                context.refusals.count(Refusal::OutOfBounds);
                if links.may_answer(now) {
                    links.queue_segment(context, origin, Marks::default(), &draft);
                }
            }
            HandshakeStep::Nothing => {
                context.refusals.count(Refusal::Unexpected);
            }
        }
        None
    }

    /// A payload that comes right behind the proof, or is the proof itself: the
    /// connection is opened already, for the number that it acknowledges was
    /// drawn at random. Nothing else of the segment counts before its check.
    pub(super) fn open_early(
        &mut self,
        context: &mut Context,
        links: &Links,
        pairs: &mut QueuePairs,
        came: ArrivedSegment<'_>,
    ) -> Option<Assigned> {
        let ArrivedSegment { now, origin, segment } = came;
        let Some(index) = self.openings.find(origin.ends) else {
            let is_known = segment.options.fast_open.is_some_and(|cookie| {
                segment.has(Flags::SYN) && context.secret.knows(now, origin.ends, &cookie)
            });
            return if is_known { self.open_fast(context, links, pairs, came) } else { None };
        };
        let is_plain = !segment.flags.intersects(Flags::SYN | Flags::RST);
        let opening = self.openings.get_mut(index)?;
        if !is_plain || opening.half.handle(segment) != HandshakeStep::Open {
            return None;
        }
        let id = self.assign(now, context, links, pairs, index)?;
        Some(Assigned { id, segment: *segment })
    }

    /// A client that is known by its cookie opens with data (RFC 7413, 4.2.2). Nothing is said
    /// of that before its checksum was found right ([`take_back`](Self::take_back)). Where
    /// something speaks against it, nothing is returned, and the client is asked to prove
    /// itself like any.
    fn open_fast(
        &mut self,
        context: &mut Context,
        links: &Links,
        pairs: &mut QueuePairs,
        came: ArrivedSegment<'_>,
    ) -> Option<Assigned> {
        let ArrivedSegment { now, origin, segment } = came;
        let (ends, local, remote) = (origin.ends, origin.ends.local, origin.ends.remote);
        let is_question = !segment.flags.intersects(Flags::ACK | Flags::RST);
        let listener = self.at(local).filter(|_| is_question)?;
        let Offer { mapping, posted, fast_open } = self.first_offer(context, pairs, listener);
        self.fast_opened.retain(|id| {
            pairs.connection_mut(*id).is_some_and(|(known, _)| known.tcb.is_fast_server())
        });
        let is_full = context.events.is_full() || self.fast_opened.len() >= MOST_UNPROVED;
        if !fast_open || is_full || pairs.time_waits.find(ends).is_some() {
            return None;
        }
        let route = links.route(Some(local.ip()), remote.ip())?;
        let id = self.take_offer(pairs, listener)?;
        let config = pairs.stream(id)?.config.as_deref().unwrap_or(&context.config.tcp);
        let own = OwnOffer { window: posted, mss: links.largest_segment(&route, mapping) };
        let secret = &context.secret;
        let tcb = Tcb::accept_fast(now, config, secret, ends, segment, mapping, own);
        let segment = tcb.data_of_opening(segment);
        pairs.open(id, tcb, &route, Some(listener), secret);
        self.fast_opened.push(id);
        context.stats.accepted += 1;
        context.stats.fast_opened += 1;
        Some(Assigned { id, segment })
    }

    /// The payload of a segment failed its check. If a connection was opened fast for it, it
    /// was not, and its queue pair waits again.
    pub(super) fn take_back(&mut self, pairs: &mut QueuePairs, id: QueuePairId) {
        // It is of a connection that exists, as most are.
        let Some(listener) = pairs.close_untold(id) else { return };
        let is_gone = self.named_mut(listener).map(|known| known.offers.push_front(id)).is_none();
        if is_gone {
            pairs.set_offered(id, None);
        }
    }

    /// Nobody waits to be assigned a connection that is proved: it waits until
    /// somebody is offered.
    fn keep_proof(&mut self, index: u32, proof: Segment, most: usize) {
        let Self { openings, table, .. } = self;
        let Some(opening) = openings.get_mut(index) else {
            debug_assert!(false, "an opening that is not assigned stays");
            return;
        };
        let listener = opening.listener;
        if opening.proof.replace(proof).is_some() {
            return;
        }
        let Some(known) = table.named_mut(listener.index, listener.generation) else {
            debug_assert!(false, "a listener takes its openings with it");
            return;
        };
        known.proved.push_back(index);
        if known.proved.len() > most {
            known.proved.retain(|index| {
                openings.get(*index).is_some_and(|opening| opening.proof.is_some())
            });
        }
    }

    /// Queue pairs were offered: connections that are proved and wait for one
    /// are assigned, in their order. Returns the next.
    pub(super) fn next_assigned(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &Links,
        pairs: &mut QueuePairs,
    ) -> Option<Assigned> {
        while let Some(listener) = self.awaited.last().copied() {
            let mut without_way = VecDeque::new();
            let mut assigned = None;
            while assigned.is_none()
                && let Some((index, segment)) = self.next_proved(listener)
            {
                match self.assign(now, context, links, pairs, index) {
                    Some(id) => assigned = Some(Assigned { id, segment }),
                    None => without_way.push_back(index),
                }
            }
            if let Some(known) = self.named_mut(listener) {
                // They keep their turn: nothing else would bring them here again.
                without_way.append(&mut known.proved);
                known.proved = without_way;
            }
            if assigned.is_some() {
                return assigned;
            }
            self.awaited.pop();
        }
        None
    }

    /// The next connection that is proved, where somebody waits for it.
    fn next_proved(&mut self, listener: ListenerId) -> Option<(u32, Segment)> {
        let Self { openings, table, .. } = self;
        let known = table.named_mut(listener.index, listener.generation)?;
        while !known.offers.is_empty() {
            let index = known.proved.pop_front()?;
            let opening = openings.get(index).filter(|known| known.listener == listener);
            if let Some(proof) = opening.and_then(|opening| opening.proof) {
                return Some((index, proof));
            }
        }
        None
    }

    /// A connection is proved: it is assigned to the queue pair that has waited
    /// longest, if there is one.
    fn assign(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &Links,
        pairs: &mut QueuePairs,
        index: u32,
    ) -> Option<QueuePairId> {
        let opening = self.openings.get_mut(index)?;
        let listener = opening.listener;
        let (local, remote) = (opening.half.local, opening.half.remote);
        // Where no way leads there any more, it waits for one until its time is up.
        let route = links.route(Some(local.ip()), remote.ip())?;
        let Some(id) = self.take_offer(pairs, listener) else {
            context.stats.unmated += 1;
            return None;
        };
        let half = self.openings.remove(index)?.half;
        let stream = pairs.stream(id)?;
        let mapping = stream.mapping;
        let mss = links.largest_segment(&route, mapping);
        let config = stream.config.as_deref().unwrap_or(&context.config.tcp);
        let tcb = Tcb::accept(now, config, &half, mapping, mss);
        pairs.open(id, tcb, &route, Some(listener), &context.secret);
        if let Some((connection, queues)) = pairs.connection_mut(id) {
            connection.tcb.handle_posted_receive(queues);
        }
        context.stats.accepted += 1;
        Some(id)
    }

    /// The next queue pair that waits at a listener.
    fn take_offer(&mut self, pairs: &mut QueuePairs, listener: ListenerId) -> Option<QueuePairId> {
        loop {
            let id = self.named_mut(listener)?.offers.pop_front()?;
            if pairs.take_offered(id) {
                return Some(id);
            }
        }
    }
}

/// A segment that nobody waits for is answered by a reset (RFC 9293,
/// 3.10.7.1), but not too often.
fn refuse(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    origin: &Origin,
    segment: &Segment,
) {
    context.refusals.count(Refusal::WrongAddress);
    if segment.has(Flags::RST) || !links.may_answer(now) {
        return;
    }
    let draft = if segment.has(Flags::ACK) {
        Draft::bare(Flags::RST, segment.ack, 0)
    } else {
        Draft::bare(Flags::RST | Flags::ACK, 0, segment.seq.wrapping_add(segment.len()))
    };
    links.queue_segment(context, origin, Marks::default(), &draft);
    context.stats.resets_sent += 1;
}
