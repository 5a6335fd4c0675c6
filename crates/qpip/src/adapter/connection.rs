//! What happens to the connection of a queue pair: what comes for it, what time brings,
//! and what leaves beside its turn.
//!
//! What does not live here: TCP itself ([`tcp`](crate::tcp)), and what a connection tells
//! its user, which `queue_pairs` takes out of it.

use landfall_placement::{Guess, Instant, Refusal, Refusals, Spans};

use super::context::Context;
use super::event::Stats;
use super::links::{Link, Links, Marks, Origin};
use super::queue_pair::{Connection, QueuePair, Role};
use super::resources::Resources;
use super::udp::Datagrams;
use crate::ip::neighbours::Found;
use crate::ip::size_search::ProbeOutcome;
use crate::tcp::tcb::CloseReason;
use crate::tcp::{Draft, Landed, Placed, Segment, TcpConfig};
use crate::wire::{ethernet, ipv4, ipv6};
use crate::work::Status;

impl Connection {
    /// What the headers of its packets say beside the addresses.
    #[inline]
    fn marks(&self, config: &TcpConfig) -> Marks {
        let flow_label = if config.flow_label { self.label } else { 0 };
        Marks { dscp: config.dscp, flow_label }
    }

    /// What became of a packet that probed the path's size, if one did.
    #[inline]
    fn tell_mtu_outcome(&mut self, now: Instant, stats: &mut Stats, links: &mut Links) {
        if self.tcb.mtu_probe_packet().is_some() {
            self.take_mtu_outcome(now, stats, links);
        }
    }

    #[cold]
    fn take_mtu_outcome(&mut self, now: Instant, stats: &mut Stats, links: &mut Links) {
        // Nobody knows yet.
        let Some((packet, outcome)) = self.tcb.take_mtu_outcome() else { return };
        let ip = if self.tcb.ends.is_v4() { ipv4::LEN } else { ipv6::LEN };
        let (to, size) = (self.tcb.ends().remote.ip(), packet + ip as u32);
        stats.mtu_probes_lost += u64::from(outcome == ProbeOutcome::Lost);
        links.handle_mtu_outcome(now, to, self.link(), size, outcome);
    }

    /// Sends a segment beside its turn: a reset, for which no turn may come any more.
    fn send(
        &self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        marks: Marks,
        draft: &Draft,
    ) {
        let ends = self.tcb.ends();
        let link = self.link();
        // Where nobody knows the neighbour, the segment is as if it were lost.
        if let Found::Station(station) = links[link].neighbours.lookup(now, self.next_hop) {
            links.queue_segment(context, &Origin { link, station, ends }, marks, draft);
        }
    }
}

impl QueuePair {
    /// Where the next payloads belong: behind those that have come.
    #[inline]
    pub(super) fn guess(&self, link: &Link, nth: usize) -> Option<Guess> {
        let Role::Stream(stream) = &self.role else { return None };
        let connection = self.connection()?;
        // Where devices cut, they join too, and what comes is as long as it gets.
        let joins = link.limits.filter(|limits| limits.super_unit > limits.unit);
        let most = joins.map(|limits| limits.super_unit);
        let (span, payload_len) = connection.tcb.guess(nth, most, &stream.queues)?;
        let is_v4 = connection.tcb.ends.is_v4();
        let ip_len = if is_v4 { ipv4::LEN } else { ipv6::LEN };
        let head_len = ethernet::LEN + ip_len + connection.tcb.usual_header_len() as usize;
        Some(Guess { span, head_len: head_len as u16, payload_len })
    }

    /// The place of a segment's payload: its checksum is not known yet, so nothing else
    /// of the segment counts.
    #[inline]
    pub(super) fn place(
        &mut self,
        now: Instant,
        segment: &Segment,
        resources: &mut Resources,
        into: &mut Spans,
    ) -> Option<Placed> {
        let shared = self.shared_receives();
        let (connection, queues) = self.connection_mut()?;
        if let Some(shared) = shared {
            while connection.tcb.lacks_memory(now, segment, queues)
                && let Some(request) = resources.shared_receives.take(shared)
            {
                queues.receive.push(request.id, request.gather);
            }
        }
        Some(connection.tcb.place(now, segment, queues, into))
    }

    /// The payload of a segment is in its place, or failed its check.
    #[inline]
    pub(super) fn handle_placed(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        segment: &Segment,
        landed: Landed,
    ) {
        let Some((connection, queues, config)) = self.configured_mut(&context.config.tcp) else {
            debug_assert!(false, "a place was given by a connection, which stays");
            return;
        };
        let verdict = connection.tcb.landed(now, segment, landed, config, queues);
        connection.tell_mtu_outcome(now, &mut context.stats, links);
        context.stats.segments_received += u64::from(landed.is_good);
        if let Some(draft) = counted(&mut context.refusals, verdict) {
            let marks = connection.marks(config);
            connection.send(now, context, links, marks, &draft);
        }
    }

    /// A segment whose payload, if it has any, is not kept.
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        segment: &Segment,
    ) {
        let Some((connection, queues, config)) = self.configured_mut(&context.config.tcp) else {
            debug_assert!(false, "a segment finds a queue pair by its connection");
            return;
        };
        let verdict = connection.tcb.handle(now, segment, config, queues);
        connection.tell_mtu_outcome(now, &mut context.stats, links);
        context.stats.segments_received += 1;
        if let Some(draft) = counted(&mut context.refusals, verdict) {
            let marks = connection.marks(config);
            connection.send(now, context, links, marks, &draft);
        }
    }

    /// Its timer fired, which may be earlier than it wanted. Returns whether it may have
    /// something to send.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
    ) -> bool {
        let Some((connection, queues, config)) = self.configured_mut(&context.config.tcp) else {
            debug_assert!(false, "a connection has the timer");
            return false;
        };
        let is_due = connection.tcb.poll_timeout(config).is_some_and(|due| due <= now);
        if !is_due {
            return false;
        }
        let before = connection.tcb.time_outs();
        if let Some(reset) = connection.tcb.handle_timeout(now, config, queues) {
            let marks = connection.marks(config);
            connection.send(now, context, links, marks, &reset);
        }
        connection.tell_mtu_outcome(now, &mut context.stats, links);
        if connection.tcb.doubts_its_path() {
            links[connection.link()].neighbours.doubt(now, connection.next_hop);
        }
        if connection.tcb.time_outs() != before && connection.tcb.suspects_black_hole() {
            let (from, to) = (connection.tcb.ends().local.ip(), connection.tcb.ends().remote.ip());
            context.stats.black_holes += u64::from(links.suspect_black_hole(now, from, to));
        }
        true
    }

    /// Resets the connection, if there is one that is alive.
    pub(super) fn abort(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        reason: CloseReason,
    ) {
        // There is none, or it is not open yet.
        let Some((connection, queues, config)) = self.configured_mut(&context.config.tcp) else {
            return;
        };
        if connection.tcb.is_closed() {
            return;
        }
        if let Some(reset) = connection.tcb.abort(now, reason, queues) {
            let marks = connection.marks(config);
            connection.send(now, context, links, marks, &reset);
        }
    }

    /// A neighbour of its link has answered, or never will: what waited for one that
    /// does not answer ends.
    pub(super) fn handle_woken(&mut self, now: Instant, context: &mut Context, links: &mut Links) {
        self.is_parked = false;
        let is_given_up = match &mut self.role {
            Role::Stream(_) => self.connection().is_some_and(|connection| {
                let neighbours = &mut links[connection.link()].neighbours;
                let found = neighbours.lookup(now, connection.next_hop);
                found == Found::Unreachable && !connection.tcb.is_synchronized()
            }),
            Role::Datagrams(datagrams) => {
                fail_unreachable(now, links, datagrams);
                false
            }
        };
        if is_given_up {
            self.abort(now, context, links, CloseReason::Unreachable);
        }
    }
}

/// What a segment led to: a segment to be sent, or a refusal, which is counted.
#[inline]
fn counted(refusals: &mut Refusals, verdict: Result<Option<Draft>, Refusal>) -> Option<Draft> {
    verdict.unwrap_or_else(|refusal| {
        refusals.count(refusal);
        None
    })
}

/// Datagrams that wait for a neighbour that does not answer end.
fn fail_unreachable(now: Instant, links: &mut Links, datagrams: &mut Datagrams) {
    let Datagrams { local, outbound, .. } = datagrams;
    outbound.retry();
    let own = local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
    while let Some(next) = outbound.next() {
        let Some(route) = links.route(own, next.to.ip()) else { break };
        if links[route.link].neighbours.lookup(now, route.next_hop) != Found::Unreachable {
            break;
        }
        outbound.fail(Status::Unreachable);
    }
}
