//! What this side wants to be done to regions of the other side: Put and
//! FetchOp.
//!
//! They form one stream per connection, a serial number for each packet. The
//! other side applies them strictly in order, each once; what was lost is sent
//! again from there on. An operation that was refused keeps its numbers, and
//! is sent as void ones, so that those behind it go on.

use landfall_placement::{
    Area, Duration, Instant, Refusal, Serial32, Spans, Transmit, WordFunction, WordWidth,
};

use super::{Operation, Remote, STREAM_WINDOW, Work};
use crate::endpoint::{Endpoint, SUM_SLOT};
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, OperationId, RemoteRegion, Rights};
use crate::ticket::{Purpose, Step};
use crate::wire::message::{Message, Question};
use crate::wire::{Flags, Reason};

/// After how many packets an answer is wanted in the middle of a long Put.
const ANSWER_EVERY: u32 = STREAM_WINDOW / 2;

impl Endpoint {
    /// Writes memory to a region of the other side. [`Event::PutDone`] follows
    /// once it has taken effect there, or [`Event::OperationEnded`]. Puts and
    /// FetchOps of a connection take effect in the order of the calls.
    ///
    /// `wants_notice` tells the user there: [`Event::Written`].
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`],
    /// [`Error::OutOfBounds`], [`Error::Forbidden`], [`Error::PathDown`],
    /// [`Error::Busy`] at the bound.
    pub fn put(
        &mut self,
        now: Instant,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        memory: Area,
        wants_notice: bool,
    ) -> Result<OperationId, Error> {
        check_memory(memory)?;
        check_bounds(region, Rights::PUT, at, memory.len)?;
        let link = self.connection(id)?.link;
        // Each packet has its number, so they cannot become shorter later.
        let stu = self.sure_stu_on(id.index, link).ok_or(Error::PathDown)?;
        let count = memory.len.div_ceil(stu.into()).max(1);
        let count = u32::try_from(count).map_err(|_| Error::TooLong)?;
        if count > 1 << 30 {
            return Err(Error::TooLong);
        }
        let work = Work::Put { memory, wants_notice };
        self.begin_operation(now, id, work, (region.handle, at), count, stu)
    }

    /// Reads and modifies a word of a region of the other side, in one step.
    /// [`Event::Fetched`] follows with what it held, or [`Event::OperationEnded`].
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`Error::Unaligned`].
    pub fn fetch_op(
        &mut self,
        now: Instant,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        width: WordWidth,
        function: WordFunction,
    ) -> Result<OperationId, Error> {
        check_bounds(region, Rights::FETCH, at, u64::from(width.bytes()))?;
        if !at.is_multiple_of(u64::from(width.bytes())) {
            return Err(Error::Unaligned);
        }
        let work = Work::Fetch { width, function };
        self.begin_operation(now, id, work, (region.handle, at), 1, 0)
    }

    fn begin_operation(
        &mut self,
        now: Instant,
        id: ConnectionId,
        work: Work,
        (handle, at): (u32, u64),
        count: u32,
        stu: u16,
    ) -> Result<OperationId, Error> {
        let bound = self.config.operations;
        let known = self.connection_mut(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        let asked = &mut known.remote_mut().outgoing;
        let distance = asked.next.wrapping_sub(asked.acked);
        if asked.operations.len() >= bound || distance > 1 << 30 {
            return Err(Error::Busy);
        }
        let first = asked.next;
        asked.next = first.wrapping_add(count);
        let number = asked.next_number;
        asked.next_number = number.wrapping_add(1);
        let (held, old, ended) = (0, None, None);
        let operation = Operation { work, handle, at, number, first, count, stu, held, old, ended };
        asked.operations.push_back(operation);
        self.queue_stream(id.index);
        self.arm_stream(now, id.index);
        Ok(OperationId::new((id.index, first)))
    }

    /// The connection has packets to send; its path will ask.
    pub(super) fn queue_stream(&mut self, connection: u32) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        let link = known.link;
        let Some(link) = self.links.get(link) else { return };
        let asked = &mut known.remote_mut().outgoing;
        if asked.is_queued || asked.sent == asked.next {
            return;
        }
        asked.is_queued = true;
        self.paths[usize::from(link.path)].streams.push_back(connection);
    }

    fn arm_stream(&mut self, now: Instant, connection: u32) {
        if self.stream_timers.key_of(connection).is_some() {
            return;
        }
        let patience = self.stream_patience(connection);
        self.stream_timers.set(connection, now + patience);
    }

    fn stream_patience(&self, connection: u32) -> Duration {
        let retries = self
            .connections
            .get(connection)
            .and_then(|known| known.remote.as_ref())
            .map_or(0, |remote| remote.outgoing.retries);
        self.patience(connection, retries)
    }

    /// The next Put or FetchOp packet of a path.
    #[inline]
    pub(crate) fn next_operation(
        &mut self,
        now: Instant,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        while let Some(connection) = self.paths[path].streams.front().copied() {
            if let Some(transmit) = self.next_packet(connection, path, head, from) {
                self.arm_stream(now, connection);
                return Some(transmit);
            }
            self.paths[path].streams.pop_front();
            if let Some(known) = self.connections.get_mut(connection) {
                known.remote_mut().outgoing.is_queued = false;
            }
        }
        None
    }

    fn next_packet(
        &mut self,
        connection: u32,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let is_summed = self.config.checksum;
        let ecn = self.ecn();
        let generation = self.connections.table.generation(connection);
        let known = self.connections.get_mut(connection)?;
        let envelope = known.envelope();
        let link = self.links.get(known.link)?;
        if usize::from(link.path) != path || !link.is_up {
            return None;
        }
        let to = link.peer;
        let asked = &mut known.remote_mut().outgoing;
        let serial = asked.sent;
        // No operation is left that has not been sent, or too many are under way.
        if serial.wrapping_sub(asked.acked) as i32 >= STREAM_WINDOW as i32 {
            return None;
        }
        let has =
            |operation: &&mut Operation| serial.wrapping_sub(operation.first) < operation.count;
        let operation = asked.operations.iter_mut().find(has)?;
        let (message, span) = operation.packet(serial);
        asked.sent = serial.wrapping_add(1);
        let len = message.encode(envelope, head)?;
        let mut transmit = Transmit {
            to,
            head_len: len as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn,
            ticket: Purpose::Control.pack(),
        };
        if matches!(message, Message::Put { .. }) && is_summed {
            head[1] |= Flags::SUM.0;
            transmit.checksum = Some(SUM_SLOT);
        }
        if let Some(span) = span
            && span.len > 0
        {
            from.push(span).ok()?;
            operation.held += 1;
            let step = Step::new(connection, generation, operation.number);
            transmit.ticket = Purpose::Operation(step).pack();
        }
        Some(transmit)
    }

    /// A driver holds the memory of a Put once less.
    pub(crate) fn let_go_of_operation(&mut self, step: Step) {
        let connection = step.connection;
        let Some(known) = self.connections.of_step(step) else { return };
        let Some(remote) = known.remote.as_deref_mut() else { return };
        let is_it = |operation: &&mut Operation| operation.number == step.number;
        if let Some(operation) = remote.outgoing.operations.iter_mut().find(is_it) {
            operation.held = operation.held.saturating_sub(1);
        }
        self.finish_operations(connection);
    }

    /// The other side says which packets took effect.
    pub(crate) fn take_applied(
        &mut self,
        now: Instant,
        connection: u32,
        applied: u32,
        refused: Option<Reason>,
    ) -> Result<(), Refusal> {
        let round = self.round_trip_of(connection);
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let asked = &mut remote.outgoing;
        let ahead = Serial32(applied).offset_from(Serial32(asked.acked));
        if ahead < 0 {
            return Err(Refusal::Duplicate);
        }
        // What was sent may be more than `sent` says, after going back.
        if applied.wrapping_sub(asked.acked) > STREAM_WINDOW
            || applied.wrapping_sub(asked.acked) > asked.next.wrapping_sub(asked.acked)
        {
            return Err(Refusal::OutOfBounds);
        }
        let is_progress = ahead > 0;
        asked.acked = applied;
        if Serial32(asked.sent).precedes(Serial32(applied)) {
            asked.sent = applied;
        }
        if let Some(reason) = refused {
            asked.refuse(applied, Ended::There(reason));
        } else if !is_progress && asked.sent != applied && asked.back_at + round <= now {
            // Something before what came is missing: from there on again, but
            // not more than once in a round trip.
            asked.sent = applied;
            asked.back_at = now;
        }
        if is_progress {
            asked.retries = 0;
            self.stream_timers.remove(connection);
        }
        self.finish_operations(connection);
        self.queue_stream(connection);
        if !self.is_stream_idle(connection) {
            self.arm_stream(now, connection);
        }
        self.disconnect_if_idle(now, connection);
        Ok(())
    }

    /// How long the network takes, as far as that is known.
    fn round_trip_of(&self, connection: u32) -> Duration {
        let link = self.connections.get(connection).and_then(|known| self.links.get(known.link));
        let measured = link.and_then(|link| link.window.rtt().smoothed());
        measured.unwrap_or(self.config.retry_floor)
    }

    /// A FetchOp took effect.
    pub(crate) fn take_fetched(
        &mut self,
        now: Instant,
        connection: u32,
        serial: u32,
        old: u64,
    ) -> Result<(), Refusal> {
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let asked = &mut remote.outgoing;
        let is_it = |operation: &&mut Operation| {
            operation.first == serial && matches!(operation.work, Work::Fetch { .. })
        };
        let operation = asked.operations.iter_mut().find(is_it).ok_or(Refusal::UnknownId)?;
        if operation.old.is_some() || operation.ended.is_some() {
            return Err(Refusal::Duplicate);
        }
        operation.old = Some(old);
        asked.retries = 0;
        // What came before it took effect too.
        let next = serial.wrapping_add(1);
        if Serial32(asked.acked).precedes(Serial32(next)) {
            asked.acked = next;
        }
        if Serial32(asked.sent).precedes(Serial32(next)) {
            asked.sent = next;
        }
        self.stream_timers.remove(connection);
        self.finish_operations(connection);
        self.complete_fetches(connection);
        self.queue_stream(connection);
        if !self.is_stream_idle(connection) {
            self.arm_stream(now, connection);
        }
        self.disconnect_if_idle(now, connection);
        Ok(())
    }

    /// The answers to all FetchOps before the first that has none need not be
    /// remembered any longer at the other side.
    fn complete_fetches(&mut self, connection: u32) {
        let Some(remote) = self.remote_of(connection) else { return };
        let unanswered = remote.outgoing.operations.iter().find(|operation| {
            matches!(operation.work, Work::Fetch { .. })
                && operation.old.is_none()
                && operation.ended.is_none()
        });
        let below = unanswered.map_or(remote.outgoing.acked, |operation| operation.first);
        self.say(connection, &Message::FetchOpComplete { below });
    }

    fn remote_of(&self, connection: u32) -> Option<&Remote> {
        self.connections.get(connection)?.remote.as_deref()
    }

    fn is_stream_idle(&self, connection: u32) -> bool {
        self.remote_of(connection).is_none_or(|remote| remote.outgoing.operations.is_empty())
    }

    /// Tells the user of operations that are over, in order.
    fn finish_operations(&mut self, connection: u32) {
        loop {
            let Some(known) = self.connections.get_mut(connection) else { return };
            let Some(remote) = known.remote.as_deref_mut() else { return };
            let asked = &mut remote.outgoing;
            let Some(operation) = asked.operations.front().copied() else {
                self.stream_timers.remove(connection);
                self.remove_if_gone(connection);
                return;
            };
            let end = operation.first.wrapping_add(operation.count);
            let is_applied = !Serial32(asked.acked).precedes(Serial32(end));
            let is_over = match operation.work {
                _ if operation.ended == Some(Ended::ConnectionGone) => true,
                _ if operation.ended.is_some() => is_applied,
                Work::Put { .. } => is_applied,
                Work::Fetch { .. } => operation.old.is_some(),
            };
            if !is_over || operation.held > 0 {
                return;
            }
            asked.operations.pop_front();
            let id = OperationId::new((connection, operation.first));
            let connection = self.id_of(connection);
            self.tell(match (operation.ended, operation.old) {
                (Some(why), _) => Event::OperationEnded { operation: id, connection, why },
                (None, Some(old)) => Event::Fetched { operation: id, connection, old },
                (None, None) => Event::PutDone { operation: id, connection },
            });
        }
    }

    pub(crate) fn time_out_stream(&mut self, now: Instant, connection: u32) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        let Some(remote) = known.remote.as_deref_mut() else { return };
        if remote.outgoing.operations.is_empty() {
            return;
        }
        remote.outgoing.retries = remote.outgoing.retries.saturating_add(1);
        let retries = remote.outgoing.retries;
        if self.gives_up(now, connection, retries) {
            // Whether the operations took effect will never be known.
            return self.fail_connection(connection, Some(Ended::Silent));
        }
        let Some(known) = self.connections.get_mut(connection) else { return };
        let asked = &mut known.remote_mut().outgoing;
        // From the first packet on whose effect is not known.
        let unknown = asked.operations.front().map_or(asked.acked, |operation| {
            let is_fetch = matches!(operation.work, Work::Fetch { .. });
            let waits = is_fetch && operation.old.is_none() && operation.ended.is_none();
            if waits { operation.first } else { asked.acked }
        });
        self.stats.operations_repeated += u64::from(asked.sent.wrapping_sub(unknown));
        asked.sent = unknown;
        asked.back_at = now;
        self.complete_fetches(connection);
        self.say(connection, &Message::RequestState(Question::Memory));
        self.queue_stream(connection);
        self.arm_stream(now, connection);
    }

    /// All operations end with their connection.
    pub(crate) fn end_operations(&mut self, connection: u32) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        let Some(remote) = known.remote.as_deref_mut() else { return };
        remote.outgoing.sent = remote.outgoing.next;
        for operation in &mut remote.outgoing.operations {
            operation.ended = Some(Ended::ConnectionGone);
        }
        self.stream_timers.remove(connection);
        self.finish_operations(connection);
    }
}

impl super::Asked {
    /// The operation that has this packet is refused.
    fn refuse(&mut self, serial: u32, why: Ended) {
        let has =
            |operation: &&mut Operation| serial.wrapping_sub(operation.first) < operation.count;
        if let Some(operation) = self.operations.iter_mut().find(has)
            && operation.ended.is_none()
        {
            operation.ended = Some(why);
        }
        self.sent = serial;
    }
}

impl Operation {
    /// The packet with this serial number, and its payload.
    fn packet(&self, serial: u32) -> (Message, Option<landfall_placement::Span>) {
        let (handle, at) = (self.handle, self.at);
        let nth = serial.wrapping_sub(self.first);
        let is_last = nth + 1 == self.count;
        let wants_answer = is_last || nth % ANSWER_EVERY == ANSWER_EVERY - 1;
        let is_void = self.ended.is_some();
        match self.work {
            Work::Put { memory, wants_notice } if !is_void => {
                let from = u64::from(nth) * u64::from(self.stu);
                let len = (memory.len - from).min(self.stu.into()) as u32;
                let put = Message::Put {
                    serial,
                    handle,
                    at: at + from,
                    len,
                    wants_answer,
                    wants_notice: wants_notice && is_last,
                    is_void: false,
                };
                (put, Some(memory.span(from, len)))
            }
            Work::Fetch { width, function } if !is_void => {
                (Message::FetchOp { serial, handle, at, width, function }, None)
            }
            Work::Put { .. } | Work::Fetch { .. } => {
                let (len, wants_notice) = (0, false);
                let put =
                    Message::Put { serial, handle, at, len, wants_answer, wants_notice, is_void };
                (put, None)
            }
        }
    }
}

fn check_bounds(region: &RemoteRegion, rights: Rights, at: u64, len: u64) -> Result<(), Error> {
    if !region.rights.has(rights) {
        return Err(Error::Forbidden);
    }
    if at.checked_add(len).is_none_or(|end| end > region.len) {
        return Err(Error::OutOfBounds);
    }
    Ok(())
}
