//! A Transfer ends early, at its receiver.
//!
//! Its memory is given back once no payload is under way to it, and once the
//! sender knows, or was told often enough. Until then nothing is granted, and
//! what still comes is refused: its Blocks are taken back.

use landfall_placement::{Refusal, assumed};

use super::{Grant, Kind, Receive, ScheduleState, State};
use crate::connection::{NONE, ReadRequest};
use crate::context::Context;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ReceiveId;
use crate::network::Network;
use crate::receive::Receives;
use crate::seen::Serial;
use crate::wire::Reason;
use crate::wire::message::State as Answer;
use crate::wire::message::{Ending, Ids, Message, Verdict};

impl Receives {
    /// Ends what is being received, or a Get.
    pub(crate) fn cancel_receive(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ReceiveId,
    ) -> Result<(), Error> {
        let receive = self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        match receive.state {
            State::Offered => self.reject_offer(net, cx, id.index, Reason::Refused),
            State::RequestSent => self.finish_receive(net, cx, id.index, Err(Ended::Here)),
            State::Open => self.begin_ending_receive(net, cx, id.index, Ended::Here),
            State::Ending(_) => {}
        }
        Ok(())
    }

    /// All of it is in place.
    pub(crate) fn complete_receive(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let connection = receive.connection;
        if !matches!(receive.kind, Kind::Get { .. }) {
            let answer = Answer::Transfer {
                ids: Ids { d_id: receive.peer_id, s_id: index as u16 },
                serial: receive.serial,
                acked: receive.blocks,
                len: receive.len,
                is_complete: true,
            };
            net.send_message(cx, connection, &Message::RequestStateResponse(answer));
        }
        self.finish_receive(net, cx, index, Ok(()));
        net.disconnect_if_idle(cx, connection);
    }

    /// It is over: its number is used up, and its memory the user's again.
    pub(crate) fn finish_receive(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        result: Result<(), Ended>,
    ) {
        let reason = match result {
            Err(Ended::There(reason)) => reason,
            Err(Ended::Here) => Reason::Cancelled,
            Err(Ended::MemoryFailed) => Reason::MemoryFailed,
            Err(Ended::DoesNotFit) => Reason::TooLong,
            Err(Ended::Silent) => Reason::Silent,
            Err(Ended::ConnectionGone | Ended::Unreachable) | Ok(()) => Reason::Gone,
        };
        self.finish_receive_as(net, cx, index, result, reason);
    }

    /// The same; anyone who asks again is told this reason, where it ended early.
    pub(crate) fn finish_receive_as(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        result: Result<(), Ended>,
        reason: Reason,
    ) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        // Where its Blocks were taken back, what had come before that was noted.
        let is_ending = matches!(receive.state, State::Ending(_));
        let len = if is_ending { receive.reported } else { self.contiguous(receive) };
        let is_ready = receive.turn == ScheduleState::Ready;
        let id = self.receive_id(index);
        self.timers.remove(index);
        if is_ready {
            self.ready.forget(index);
        }
        let Some(receive) = assumed(self.table.remove(index), "a Transfer ends once") else {
            return;
        };
        self.unlist_receive(net, index, &receive);
        let connection = net.id_of(receive.connection);
        if receive.is_transfer()
            && let Some(known) = net.connections.get_mut(receive.connection)
        {
            known.sends_seen.end(receive.serial, result.map_err(|_| reason));
        }
        if let (State::RequestSent, Kind::Read(serial)) = (receive.state, receive.kind)
            && matches!(result, Err(Ended::Here | Ended::Silent))
        {
            let question = ReadRequest { serial, len: receive.len, opaque: receive.opaque };
            net.leave_read_unsettled(receive.connection, question);
        }
        net.remove_if_gone(receive.connection);
        let event = match (result, receive.kind, receive.memory) {
            (Ok(()), Kind::Get { .. }, Some(memory)) => {
                Event::GetDone { receive: id, connection, memory }
            }
            (Ok(()), _, Some(memory)) => {
                let (len, offered, opaque) = (receive.len, receive.offered, receive.opaque);
                Event::Received { receive: id, connection, memory, len, offered, opaque }
            }
            (Err(why), _, memory) => {
                let len = if receive.state == State::RequestSent { 0 } else { len };
                Event::ReceiveEnded { receive: id, connection, memory, len, why }
            }
            (Ok(()), _, None) => return,
        };
        // Memory is the user's once nothing is under way to it.
        let after = if result.is_err() { self.granted.mirror.left() } else { 0 };
        cx.emit_after(event, after);
    }

    pub(crate) fn unlist_receive(&mut self, net: &mut Network, index: u32, receive: &Receive) {
        let Some(known) = net.connections.assumed_mut(receive.connection) else {
            return;
        };
        if known.first_receive == index {
            known.first_receive = receive.next_in_connection;
            return;
        }
        let mut before = known.first_receive;
        while before != NONE {
            let Some(other) = assumed(
                self.table.get_mut(before),
                "each in the list of a connection is in the table",
            ) else {
                return;
            };
            if other.next_in_connection == index {
                other.next_in_connection = receive.next_in_connection;
                return;
            }
            before = other.next_in_connection;
        }
    }

    /// Refuses what was offered; with memory that it had, the user is told.
    pub(crate) fn reject_offer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        reason: Reason,
    ) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let (connection, serial) = (receive.connection, receive.serial);
        let verdict = Verdict::Rejected(reason);
        net.send_message(
            cx,
            connection,
            &Message::RequestAnswer { ids, serial, is_read: false, verdict },
        );
        let why = if reason == Reason::TooLong { Ended::DoesNotFit } else { Ended::Here };
        self.finish_receive_as(net, cx, index, Err(why), reason);
    }

    /// This side ends it: Blocks are taken back, the sender is told.
    pub(crate) fn begin_ending_receive(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        why: Ended,
    ) {
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        if receive.state != State::Open {
            return;
        }
        let is_get = matches!(receive.kind, Kind::Get { .. });
        let connection = receive.connection;
        receive.state = State::Ending(why);
        receive.is_told = is_get;
        receive.retries = 0;
        receive.reported = 0;
        self.take_back_blocks(net, index);
        if !is_get {
            self.send_end_of_receive(net, cx, index);
            let patience = net.patience(cx, connection, 0);
            self.timers.set(index, cx.now + patience);
        }
        self.finish_if_released(net, cx, index);
    }

    pub(super) fn send_end_of_receive(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let reason = match receive.state {
            State::Ending(Ended::MemoryFailed) => Reason::MemoryFailed,
            State::Ending(Ended::Silent) => Reason::Silent,
            _ => Reason::Cancelled,
        };
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let ending = Ending { ids, serial: receive.serial, by_receiver: true };
        net.send_message(cx, receive.connection, &Message::End { ending, reason });
    }

    /// Takes its Blocks back; `reported` remembers how much had come from the start.
    fn take_back_blocks(&mut self, net: &mut Network, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let contiguous = self.contiguous(receive);
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        receive.reported = contiguous;
        receive.rest = 0;
        for block in core::mem::take(&mut receive.open) {
            let Grant { link, granted, .. } = self.granted.grants[usize::from(block)];
            self.return_room(net, block, granted);
            self.take_from_link(net, block);
            self.wake_waiting(net, link);
            if self.granted.table().close(block) {
                self.granted.give_back(block, false);
            } else if let Some(receive) = self.table.get_mut(index) {
                receive.releasing += 1;
            }
        }
        self.free_what_left();
        self.grants_due = true;
    }

    /// The last payload that was under way to a Block that was taken back.
    pub(super) fn release_block(&mut self, net: &mut Network, cx: &mut Context, block: u16) {
        let index = self.granted.grants[usize::from(block)].receive;
        self.granted.give_back(block, false);
        self.free_what_left();
        // Somebody may wait for a place in the table.
        self.grants_due = true;
        if let Some(receive) = self.table.get_mut(index) {
            receive.releasing = receive.releasing.saturating_sub(1);
        }
        self.finish_if_released(net, cx, index);
    }

    fn finish_if_released(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        if let State::Ending(why) = receive.state {
            let connection = receive.connection;
            if receive.releasing == 0 && receive.is_told {
                self.finish_receive(net, cx, index, Err(why));
                net.disconnect_if_idle(cx, connection);
            }
        }
    }

    /// The sender knows, or will never.
    pub(super) fn note_end_told(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        if let Some(receive) = self.table.get_mut(index) {
            receive.is_told = true;
        }
        self.finish_if_released(net, cx, index);
    }

    /// What was offered and not accepted is not accepted any more.
    pub(crate) fn end_offers(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        for index in self.receives_of(net, connection) {
            if self.table.get(index).is_some_and(|receive| receive.state == State::Offered) {
                self.reject_offer(net, cx, index, Reason::Closing);
            }
        }
    }

    /// It ends with its connection.
    pub(crate) fn end_receive(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        why: Ended,
    ) {
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        match receive.state {
            State::RequestSent | State::Offered => {
                return self.finish_receive(net, cx, index, Err(why));
            }
            State::Open => {
                receive.state = State::Ending(why);
                self.take_back_blocks(net, index);
            }
            State::Ending(_) => {}
        }
        self.note_end_told(net, cx, index);
    }

    /// The other side ends a Transfer.
    pub(crate) fn handle_end(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ending: Ending,
        reason: Reason,
    ) -> Result<(), Refusal> {
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let ids = Ids { d_id: ending.ids.s_id, s_id: ending.ids.d_id };
        match known.sends_seen.of(ending.serial) {
            // All of it had come before the sender changed its mind.
            Serial::Complete => {
                return self.answer_progress(net, cx, connection, ending.ids, ending.serial);
            }
            Serial::Failed(_) | Serial::Forgotten => {
                net.send_message(cx, connection, &Message::EndAck(Ending { ids, ..ending }));
                return Err(Refusal::Duplicate);
            }
            Serial::Beyond => return Err(Refusal::OutOfBounds),
            Serial::Open => {}
        }
        net.send_message(cx, connection, &Message::EndAck(Ending { ids, ..ending }));
        let Some(index) = self.find_receive(net, connection, ending.serial) else {
            // Its Request_To_Send has not come, and must not count when it does.
            if let Some(known) = net.connections.get_mut(connection) {
                known.sends_seen.end(ending.serial, Err(reason));
            }
            return Ok(());
        };
        self.end_receive(net, cx, index, Ended::There(reason));
        net.disconnect_if_idle(cx, connection);
        Ok(())
    }

    pub(crate) fn handle_end_ack(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ending: Ending,
    ) -> Result<(), Refusal> {
        let index = u32::from(ending.ids.d_id);
        let receive = self.table.get(index).ok_or(Refusal::UnknownId)?;
        if receive.connection != connection || receive.serial != ending.serial {
            return Err(Refusal::UnknownId);
        }
        if !matches!(receive.state, State::Ending(_)) {
            return Err(Refusal::Unexpected);
        }
        self.note_end_told(net, cx, index);
        net.disconnect_if_idle(cx, connection);
        Ok(())
    }
}
