//! What this side wants to be done to regions of the other side: Put and
//! FetchOp.
//!
//! They form one stream per connection, a serial number for each packet. They take
//! effect strictly in order, each once. An operation that was refused keeps its
//! numbers, and is sent as void ones, so that those behind it go on.

use landfall_placement::{Area, Serial32, WordFunction, WordWidth};

use super::{Apart, Operation, Work};
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, OperationId, RemoteRegion, Rights};
use crate::network::Network;
use crate::region::Streams;
use crate::ticket::Step;
use crate::wire::message::Message;

/// The longest Put whose user is told: its last packet says how long it is.
const MOST_WITH_NOTICE: u64 = 8 << 32;

impl Streams {
    /// Writes memory to a region of the other side.
    pub(crate) fn put(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        memory: Area,
        wants_notice: bool,
    ) -> Result<OperationId, Error> {
        check_memory(memory)?;
        check_bounds(region, Rights::PUT, at, memory.len)?;
        if wants_notice && memory.len > MOST_WITH_NOTICE {
            return Err(Error::TooLong);
        }
        // Each packet has its number, so they cannot become shorter later.
        let stu = self.stu_of_puts(net, id)?;
        let count = memory.len.div_ceil(stu.into()).max(1);
        let count = u32::try_from(count).map_err(|_| Error::TooLong)?;
        if count > 1 << 30 {
            return Err(Error::TooLong);
        }
        let work = Work::Put { memory, wants_notice };
        self.begin_operation(net, cx, id, work, (region.handle, at), count, stu)
    }

    /// Reads and modifies a word of a region of the other side, in one step.
    pub(crate) fn fetch_op(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
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
        self.begin_operation(net, cx, id, work, (region.handle, at), 1, 0)
    }

    fn begin_operation(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        work: Work,
        (handle, at): (u32, u64),
        count: u32,
        stu: u16,
    ) -> Result<OperationId, Error> {
        let bound = cx.config.operations;
        let known = net.connection_mut(id)?;
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
        let overtakes = if let Work::Put { memory, .. } = work {
            asked.apart.add(handle, at, memory.len, first)
        } else {
            asked.apart = Apart::default();
            first
        };
        let (held, old, ended) = (0, None, None);
        let operation =
            Operation { work, handle, at, number, first, count, stu, overtakes, held, old, ended };
        asked.operations.push_back(operation);
        self.queue_stream(net, cx, id.index);
        self.arm_stream(net, cx, id.index);
        Ok(OperationId::new((id.index, first)))
    }

    /// A driver holds the memory of a Put once less.
    pub(crate) fn let_go_of_operation(&mut self, net: &mut Network, cx: &mut Context, step: Step) {
        let connection = step.connection;
        let Some(known) = net.connections.of_step(step) else { return };
        let Some(remote) = known.remote.as_deref_mut() else { return };
        let is_it = |operation: &&mut Operation| operation.number == step.number;
        if let Some(operation) = remote.outgoing.operations.iter_mut().find(is_it) {
            operation.held = operation.held.saturating_sub(1);
        }
        self.finish_operations(net, cx, connection);
    }

    /// The answers to all FetchOps before the first that has none need not be
    /// remembered any longer at the other side.
    pub(crate) fn complete_fetches(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) {
        let Some(remote) = net.connections.remote_of(connection) else { return };
        let unanswered = remote.outgoing.operations.iter().find(|operation| {
            matches!(operation.work, Work::Fetch { .. })
                && operation.old.is_none()
                && operation.ended.is_none()
        });
        let below = unanswered.map_or(remote.outgoing.acked, |operation| operation.first);
        net.say(cx, connection, &Message::FetchOpComplete { below });
    }

    pub(super) fn is_stream_idle(&self, net: &Network, connection: u32) -> bool {
        net.connections
            .remote_of(connection)
            .is_none_or(|remote| remote.outgoing.operations.is_empty())
    }

    /// Tells the user of operations that are over, in order.
    pub(super) fn finish_operations(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) {
        loop {
            let Some(known) = net.connections.get_mut(connection) else { return };
            let Some(remote) = known.remote.as_deref_mut() else { return };
            let asked = &mut remote.outgoing;
            let Some(operation) = asked.operations.front().copied() else {
                self.timers.remove(connection);
                net.remove_if_gone(connection);
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
            let connection = net.id_of(connection);
            cx.tell(match (operation.ended, operation.old) {
                (Some(why), _) => Event::OperationEnded { operation: id, connection, why },
                (None, Some(old)) => Event::Fetched { operation: id, connection, old },
                (None, None) => Event::PutDone { operation: id, connection },
            });
        }
    }

    /// All operations end with their connection.
    pub(crate) fn end_operations(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let Some(known) = net.connections.get_mut(connection) else { return };
        let Some(remote) = known.remote.as_deref_mut() else { return };
        for operation in &mut remote.outgoing.operations {
            operation.ended = Some(Ended::ConnectionGone);
        }
        self.timers.remove(connection);
        self.end_stream(net, cx, connection);
        self.finish_operations(net, cx, connection);
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
