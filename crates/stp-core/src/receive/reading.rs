//! What this side asks for: Request_To_Receive, and Get of a region of the other side.

use landfall_placement::{Area, Refusal, Serial32};

use super::{Kind, Receive, State};
use crate::connection::UnsettledCount;
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::ids::{ConnectionId, ReceiveId, RemoteRegion, Rights};
use crate::network::Network;
use crate::receive::Receives;
use crate::seen::Seen;
use crate::wire::Reason;
use crate::wire::message::{Ids, Message, Verdict};

impl Receives {
    /// Asks the other side for a Transfer of at most as many bytes as the memory has; `opaque`
    /// tells its user which.
    pub(crate) fn read(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        memory: Area,
        opaque: u32,
    ) -> Result<ReceiveId, Error> {
        let known = net.connection(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        check_memory(memory)?;
        let (serial, first, slots) = (known.next_read, known.first_receive, known.slots);
        let priority = known.priority;
        let UnsettledCount { count: mut asking, mut is_near } =
            net.unsettled_reads(id.index, serial);
        for index in self.receives_of(net, id.index) {
            let Some(other) = self.table.get(index) else { continue };
            if let (Kind::Read(read), State::RequestSent) = (other.kind, other.state) {
                asking += 1;
                is_near &= Serial32(serial).since(Serial32(read)) < Seen::SPAN;
            }
        }
        if !is_near || asking >= usize::from(slots).min(Seen::MOST_OPEN) {
            net.remind_of_unsettled(cx, id.index);
            return Err(Error::Busy);
        }
        let mut receive = Receive::new(id.index, 0, Kind::Read(serial), State::RequestSent);
        receive.memory = Some(memory);
        receive.len = memory.len;
        receive.opaque = opaque;
        receive.priority = priority;
        receive.next_in_connection = first;
        let key = self.table.insert(receive).ok_or(Error::Busy)?;
        if let Some(known) = net.connections.get_mut(id.index) {
            known.first_receive = key.index;
            known.next_read = serial.wrapping_add(1);
        }
        self.request_to_receive(net, cx, key.index);
        self.timers.set(key.index, cx.now + net.patience(cx, id.index, 0));
        Ok(ReceiveId::of(key))
    }

    pub(super) fn request_to_receive(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        if let Kind::Read(serial) = receive.kind {
            let (s_id, len, opaque) = (index as u16, receive.len, receive.opaque);
            let message = Message::RequestToReceive { s_id, serial, len, opaque };
            let connection = receive.connection;
            net.send_unsettled_read(cx, connection);
            net.send_message(cx, connection, &message);
        }
    }

    /// What we asked for begins: its sender has a serial number for it.
    pub(super) fn begin_answer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        id: u16,
        read: u32,
        message: &Message,
    ) -> Result<(), Refusal> {
        let Message::RequestToSend { s_id, serial, len, max_block, opaque, .. } = *message else {
            return Err(Refusal::Malformed);
        };
        let index = u32::from(id);
        let is_it = self.table.get(index).is_some_and(|receive| {
            receive.connection == connection
                && receive.kind == Kind::Read(read)
                && receive.state == State::RequestSent
        });
        if !is_it {
            // The read was given up, and anyone who answers it must hear that.
            self.refuse_answer(net, cx, connection, s_id, serial);
            return Err(Refusal::UnknownId);
        }
        let receive = self.table.get_mut(index).ok_or(Refusal::UnknownId)?;
        if len > receive.len {
            return Err(Refusal::OutOfBounds);
        }
        receive.serial = serial;
        receive.peer_id = s_id;
        receive.offered = len;
        receive.opaque = opaque;
        receive.most_block = max_block;
        receive.state = State::Offered;
        receive.retries = 0;
        self.timers.remove(index);
        let Some(memory) = self.table.get(index).and_then(|receive| receive.memory) else {
            return Err(Refusal::Unexpected);
        };
        self.give_memory(net, cx, index, memory, false);
        Ok(())
    }

    /// A Transfer answers a read that is over: it is over, too.
    fn refuse_answer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        s_id: u16,
        serial: u32,
    ) {
        if let Some(known) = net.connections.get_mut(connection) {
            known.sends_seen.end(serial, Err(Reason::Gone));
        }
        let ids = Ids { d_id: s_id, s_id: 0 };
        let (is_read, verdict) = (false, Verdict::Rejected(Reason::Gone));
        net.send_message(cx, connection, &Message::RequestAnswer { ids, serial, is_read, verdict });
    }

    /// The other side answers what we asked for with something else than a Transfer.
    pub(crate) fn handle_read_answer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ids: Ids,
        serial: u32,
        verdict: Verdict,
    ) -> Result<(), Refusal> {
        // While its user has not answered, the number is not used up there.
        let is_over = matches!(verdict, Verdict::Rejected(_));
        if is_over && net.settle_read(cx, connection, serial) {
            return Ok(());
        }
        let index = u32::from(ids.d_id);
        let receive = self.table.get_mut(index).ok_or(Refusal::UnknownId)?;
        if receive.connection != connection || receive.kind != Kind::Read(serial) {
            return Err(Refusal::UnknownId);
        }
        if receive.state != State::RequestSent {
            // It has begun: what was said before that came late.
            return Err(Refusal::Unexpected);
        }
        match verdict {
            Verdict::Pending => {
                receive.retries = 0;
                Ok(())
            }
            Verdict::Rejected(reason) => {
                self.finish_receive(net, cx, index, Err(Ended::There(reason)));
                Ok(())
            }
            Verdict::Limited(_) => Err(Refusal::Malformed),
        }
    }

    /// Reads part of a region of the other side into memory, as much as that has.
    pub(crate) fn get(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        memory: Area,
    ) -> Result<ReceiveId, Error> {
        check_memory(memory)?;
        if !region.rights.has(Rights::GET) {
            return Err(Error::Forbidden);
        }
        if at.checked_add(memory.len).is_none_or(|end| end > region.len) {
            return Err(Error::OutOfBounds);
        }
        let known = net.connection_mut(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        let (first, priority) = (known.first_receive, known.priority);
        let after = known.remote_mut().outgoing.next;
        let kind = Kind::Get { handle: region.handle, at, after };
        let mut receive = Receive::new(id.index, 0, kind, State::Offered);
        receive.memory = Some(memory);
        receive.priority = priority;
        receive.offered = memory.len;
        receive.len = memory.len;
        receive.next_in_connection = first;
        let key = self.table.insert(receive).ok_or(Error::Busy)?;
        let known = net.connection_mut(id)?;
        known.first_receive = key.index;
        if let Some(receive) = self.table.get_mut(key.index) {
            receive.serial = key.generation;
        }
        if !self.begin_receive(net, cx, key.index) {
            self.finish_receive(net, cx, key.index, Err(Ended::Here));
            return Err(Error::TooLong);
        }
        Ok(ReceiveId::of(key))
    }

    pub(crate) fn handle_get_refused(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        d_id: u16,
        serial: u32,
        reason: Reason,
    ) -> Result<(), Refusal> {
        let index = u32::from(d_id);
        let receive = self.table.get(index).ok_or(Refusal::UnknownId)?;
        let is_get = matches!(receive.kind, Kind::Get { .. });
        if receive.connection != connection || receive.serial != serial || !is_get {
            return Err(Refusal::UnknownId);
        }
        self.begin_ending_receive(net, cx, index, Ended::There(reason));
        Ok(())
    }
}
