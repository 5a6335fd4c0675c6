//! What this side wants to be done to regions of the other side: Put and
//! FetchOp.
//!
//! They form one stream per connection, a serial number for each packet. They take
//! effect strictly in order, each once. An operation that was refused keeps its
//! numbers, and is sent as void ones, so that those behind it go on.

use landfall_placement::{Area, WordFunction, WordWidth};
use landfall_tables::EntryKey;

use super::{DisjointPuts, Operation, Work};
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::ids::{ConnectionId, OperationId, RemoteRegion, Rights};
use crate::network::Network;
use crate::region::Streams;
use crate::ticket::Step;

/// The longest Put whose user is told: its last packet says how long it is.
const MOST_WITH_NOTICE: u64 = 8 << 32;

/// A place in a region of the other side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) region: &'a RemoteRegion,
    pub(crate) at: u64,
}

impl Place<'_> {
    /// May that be done with this many bytes there?
    fn check(self, rights: Rights, len: u64) -> Result<(), Error> {
        if !self.region.rights.has(rights) {
            return Err(Error::Forbidden);
        }
        if self.at.checked_add(len).is_none_or(|end| end > self.region.len) {
            return Err(Error::OutOfBounds);
        }
        Ok(())
    }
}

/// What can be chosen about a Put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// The user of the other side is told: [`Event::Written`](crate::Event::Written).
    pub notice: bool,
    /// Nobody waits for its end. The other side answers it with a later operation, and need not
    /// send an answer for it alone: where many are short, that is half of the packets. Its end
    /// is known with that of the next one that is answered, and otherwise after a time-out.
    pub answered_later: bool,
}

impl PutOptions {
    /// The user of the other side is told.
    pub const WITH_NOTICE: Self = Self { notice: true, answered_later: false };
}

/// The packets of an operation.
#[derive(Clone, Copy, Debug)]
struct Packets {
    count: u32,
    /// The payload of each but the last.
    stu: u16,
}

impl Streams {
    /// Writes memory to a region of the other side.
    pub(crate) fn put(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        place: Place<'_>,
        memory: Area,
        options: PutOptions,
    ) -> Result<OperationId, Error> {
        check_memory(memory)?;
        place.check(Rights::PUT, memory.len)?;
        if options.notice && memory.len > MOST_WITH_NOTICE {
            return Err(Error::TooLong);
        }
        // Each packet has its number, so they cannot become shorter later.
        let stu = self.stu_of_puts(net, id)?;
        let count = memory.len.div_ceil(stu.into()).max(1);
        let count = u32::try_from(count).map_err(|_| Error::TooLong)?;
        if count > 1 << 30 {
            return Err(Error::TooLong);
        }
        let work = Work::Put { memory, options };
        self.begin_operation(net, cx, id, work, place, Packets { count, stu })
    }

    /// Reads and modifies a word of a region of the other side, in one step.
    pub(crate) fn fetch_op(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        place: Place<'_>,
        width: WordWidth,
        function: WordFunction,
    ) -> Result<OperationId, Error> {
        place.check(Rights::FETCH, u64::from(width.bytes()))?;
        if !place.at.is_multiple_of(u64::from(width.bytes())) {
            return Err(Error::Unaligned);
        }
        let work = Work::Fetch { width, function };
        self.begin_operation(net, cx, id, work, place, Packets { count: 1, stu: 0 })
    }

    fn begin_operation(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        work: Work,
        place: Place<'_>,
        packets: Packets,
    ) -> Result<OperationId, Error> {
        let Packets { count, stu } = packets;
        let (handle, at) = (place.region.handle, place.at);
        let bound = cx.config.operations;
        let known = net.connection_mut(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        let outgoing = &mut known.remote_mut().outgoing;
        let distance = outgoing.next.wrapping_sub(outgoing.acked);
        if outgoing.operations.len() >= bound || distance > 1 << 30 {
            return Err(Error::Busy);
        }
        let first = outgoing.next;
        outgoing.next = first.wrapping_add(count);
        let number = outgoing.next_number;
        outgoing.next_number = number.wrapping_add(1);
        let overtakes = if let Work::Put { memory, .. } = work {
            outgoing.apart.add(handle, at, memory.len, first)
        } else {
            outgoing.apart = DisjointPuts::default();
            first
        };
        let (held, old, ended) = (0, None, None);
        let operation =
            Operation { work, handle, at, number, first, count, stu, overtakes, held, old, ended };
        outgoing.operations.push_back(operation);
        self.queue_stream(net, cx, id.index);
        self.arm_stream(net, cx, id.index);
        Ok(OperationId::of(EntryKey { index: id.index, generation: first }))
    }

    /// A driver holds the memory of a Put once less.
    pub(crate) fn release_operation(&mut self, net: &mut Network, cx: &mut Context, step: Step) {
        let connection = step.connection;
        if let Some(known) = net.connections.of_step(step)
            && let Some(remote) = known.remote.as_deref_mut()
        {
            let is_it = |operation: &&mut Operation| operation.number == step.number;
            if let Some(operation) = remote.outgoing.operations.iter_mut().find(is_it) {
                operation.held = operation.held.saturating_sub(1);
            }
            self.finish_operations(net, cx, connection);
        }
    }

    /// All operations end with their connection.
    pub(crate) fn end_operations(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let Some(known) = net.connections.assumed_mut(connection) else { return };
        if let Some(remote) = known.remote.as_deref_mut() {
            for operation in &mut remote.outgoing.operations {
                operation.ended = Some(Ended::ConnectionGone);
            }
            self.timers.remove(connection);
            self.end_stream(net, cx, connection);
            self.finish_operations(net, cx, connection);
        }
    }
}
