//! What is sent next: first what carries no payload, for somebody waits for
//! it; then Puts and FetchOps, which are short; then Data.

use landfall_placement::{Ecn, Instant, Peer, RunRoom, Spans, SumSlot, Transmit, TransmitRun};
use zerocopy::IntoBytes;

use super::Endpoint;
use crate::connection::State;
use crate::path::{Behind, Control, Source};
use crate::ticket::Purpose;
use crate::wire::header::{SUM_OFFSET, SUM_RANGE};
use crate::wire::proof::{self, Secrets};
use crate::wire::{Envelope, HEADER_LEN, LONGEST_HEAD, Message};

/// Where the driver puts a checksum over header and payload.
pub(crate) const SUM_SLOT: SumSlot = SumSlot { start: 0, offset: SUM_OFFSET };

impl Endpoint {
    #[inline]
    pub(super) fn next_transmit(
        &mut self,
        now: Instant,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if head.len() < LONGEST_HEAD || self.paths[path].limits.is_none() {
            return None;
        }
        while let Some(control) = self.paths[path].control.pop_front() {
            let len = usize::from(control.len);
            head[..len].copy_from_slice(&control.bytes[..len]);
            let (ticket, span, checksum) = match control.behind {
                Behind::Nothing => (Purpose::Control, None, None),
                Behind::Padding(len) => {
                    (Purpose::Control, self.padding.map(|padding| padding.span(0, len)), None)
                }
                Behind::Transfer { index, generation } => {
                    // It may have ended since.
                    let Some(span) = self.begin_eager(index, generation) else { continue };
                    head[SUM_RANGE].fill(0);
                    (Purpose::Send { index, generation }, Some(span), Some(SUM_SLOT))
                }
            };
            if let Some(span) = span {
                from.push(span).ok()?;
            }
            self.stats.control_sent += 1;
            let known = &self.paths[path];
            if !known.waiting.is_empty() && known.has_room_for_grants(self.config.queue) {
                self.wake_path(path);
            }
            return Some(Transmit {
                to: control.to,
                head_len: u16::from(control.len),
                segment: None,
                checksum,
                sum_only: 0,
                ecn: Ecn::NotCapable,
                ticket: ticket.pack(),
            });
        }
        if let Some(transmit) = self.next_operation(now, path, head, from) {
            return Some(transmit);
        }
        self.next_data(now, path, head, from)
    }

    /// What became due since something was sent last.
    #[inline]
    pub(super) fn prepare_transmit(&mut self, now: Instant) {
        if self.grants_due {
            self.grant_more(now);
        }
        if !self.connections.ending.is_empty() {
            self.disconnect_idle(now);
        }
    }

    #[inline]
    fn next_data(
        &mut self,
        now: Instant,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        loop {
            let ticket = self.first_order(path)?;
            let is_summed = self.config.checksum;
            let order = self.paths[path].orders.front_mut()?;
            let to = order.to;
            let Some((from_start, span)) = order.take() else {
                self.paths[path].orders.pop_front();
                continue;
            };
            let header = order.header_at(now, from_start, span.len, is_summed);
            if order.is_done() {
                self.paths[path].orders.pop_front();
            }
            head[..HEADER_LEN].copy_from_slice(header.as_bytes());
            from.push(span).ok()?;
            self.note_sent(ticket, 1, span.len);
            return Some(Transmit {
                to,
                head_len: HEADER_LEN as u16,
                segment: None,
                checksum: is_summed.then_some(SUM_SLOT),
                sum_only: 0,
                ecn: self.ecn(),
                ticket: ticket.pack(),
            });
        }
    }

    /// Puts or Data that are sent next, if nothing comes before them and they are a run.
    #[inline]
    pub(super) fn next_run(
        &mut self,
        now: Instant,
        path: usize,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        let known = &self.paths[path];
        if !known.control.is_empty() || known.limits.is_none() || self.config.checksum {
            return None;
        }
        if known.streams.is_empty() {
            self.next_data_run(now, path, room)
        } else {
            self.next_put_run(now, path, room)
        }
    }

    #[inline]
    fn next_data_run(
        &mut self,
        now: Instant,
        path: usize,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        let ticket = self.first_order(path)?;
        let order = self.paths[path].orders.front_mut()?;
        let run = order.take_run(now, room)?;
        let to = order.to;
        if order.is_done() {
            self.paths[path].orders.pop_front();
        }
        self.note_sent(ticket, run.stus, run.span.len);
        Some(TransmitRun {
            to,
            units: run.stus,
            head_len: HEADER_LEN as u16,
            payload_len: run.stu_len,
            span: run.span,
            ecn: self.ecn(),
            ticket: ticket.pack(),
        })
    }

    /// Whose memory the first order of a path is for, once those before it are gone whose
    /// Transfer was ended, or whose region was revoked, since they were granted.
    #[inline]
    fn first_order(&mut self, path: usize) -> Option<Purpose> {
        loop {
            let purpose = match self.paths[path].orders.front()?.source {
                Source::Send { index, generation } => self
                    .sends
                    .named(index, generation)
                    .is_some_and(crate::send::Send::is_live)
                    .then_some(Purpose::Send { index, generation }),
                Source::Exposed { index, generation } => self
                    .exposed
                    .named(index, generation)
                    .is_some_and(|exposed| !exposed.is_revoked)
                    .then_some(Purpose::Exposed { index, generation }),
            };
            if purpose.is_some() {
                return purpose;
            }
            self.paths[path].orders.pop_front();
        }
    }

    /// Payload of ours says that it yields to congestion, where it does.
    pub(crate) const fn ecn(&self) -> Ecn {
        if self.config.congestion.is_some() { Ecn::Capable0 } else { Ecn::NotCapable }
    }

    #[inline]
    fn note_sent(&mut self, purpose: Purpose, stus: u16, len: u32) {
        self.stats.stus_sent += u64::from(stus);
        self.stats.bytes_sent += u64::from(len);
        match purpose {
            Purpose::Send { index, .. } => {
                if let Some(send) = self.sends.get_mut(index) {
                    send.held += 1;
                }
            }
            Purpose::Exposed { index, .. } => {
                if let Some(exposed) = self.exposed.get_mut(index) {
                    exposed.sending += 1;
                }
            }
            _ => {}
        }
    }
}

impl Endpoint {
    /// Queues a message on the first link of the connection that is up. If
    /// there is none, or no room to wait, it is as if it were lost on the way:
    /// whoever needs an answer asks again.
    pub(crate) fn say(&mut self, connection: u32, message: &Message) {
        if let Some(link) = self.link_for_control(connection) {
            self.say_over(link, connection, message);
        }
    }

    /// The link that control messages of a connection take.
    pub(crate) fn link_for_control(&self, connection: u32) -> Option<u32> {
        let known = self.connections.get(connection)?;
        let is_up = |link: &u32| self.links.get(*link).is_some_and(|link| link.is_up);
        Some(known.known_links().find(is_up).unwrap_or(known.link))
    }

    /// Queues a message on one link.
    pub(crate) fn say_over(&mut self, link: u32, connection: u32, message: &Message) {
        self.say_with(link, connection, message, Behind::Nothing);
    }

    /// Queues a message on one link, with something behind it.
    pub(crate) fn say_with(
        &mut self,
        link: u32,
        connection: u32,
        message: &Message,
        behind: Behind,
    ) {
        let Some(known) = self.connections.get(connection) else { return };
        // The other side has forgotten it: only a driver is still at something.
        if known.state == State::Gone {
            return;
        }
        let envelope = known.envelope();
        let secrets = known.secrets_out();
        let Some(link) = self.links.get(link) else { return };
        let (path, to) = (usize::from(link.path), link.peer);
        self.queue_control(path, to, (envelope, secrets), message, behind);
    }

    /// Queues a message to somebody, who need not have a connection.
    pub(crate) fn say_to(
        &mut self,
        path: usize,
        to: Peer,
        envelope: Envelope,
        secrets: Secrets,
        message: &Message,
    ) {
        self.queue_control(path, to, (envelope, secrets), message, Behind::Nothing);
    }

    /// The same with something behind it.
    pub(crate) fn queue_control(
        &mut self,
        path: usize,
        to: Peer,
        (envelope, secrets): (Envelope, Secrets),
        message: &Message,
        behind: Behind,
    ) {
        let Some(path) = self.paths.get_mut(path) else { return };
        if path.control.len() >= self.config.queue || path.limits.is_none() {
            self.stats.control_dropped += 1;
            return;
        }
        let mut bytes = [0; LONGEST_HEAD];
        if let Some(len) = message.encode(envelope, &mut bytes) {
            proof::seal(&mut bytes[..len], secrets);
            path.control.push_back(Control { to, len: len as u8, bytes, behind });
        }
    }

    /// Is there room for messages on the path of a link?
    pub(crate) fn can_say_over(&self, link: u32) -> bool {
        let Some(link) = self.links.get(link) else { return false };
        let path = &self.paths[usize::from(link.path)];
        path.limits.is_some() && path.has_room_for_grants(self.config.queue)
    }
}
