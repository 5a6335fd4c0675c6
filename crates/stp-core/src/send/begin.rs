//! What the user asks for: send, answer a read, cancel.

use alloc::vec::Vec;

use landfall_placement::{Area, Serial32, assumed};

use super::{Send, State};
use crate::connection::{NONE, UnsettledCount};
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, SendId};
use crate::network::Network;
use crate::preference::Priority;
use crate::seen::Seen;
use crate::send::Sends;
use crate::wire::Reason;
use crate::wire::message::{AnsweredRead, Ending, Ids, Message};

impl Sends {
    /// Sends memory as one Transfer, with four bytes for the user at the other side.
    pub(crate) fn send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        memory: Area,
        opaque: u32,
    ) -> Result<SendId, Error> {
        if !net.connection(id)?.is_open() {
            return Err(Error::NotOpen);
        }
        self.begin_send(net, cx, id.index, memory, opaque, None)
    }

    /// Ends a Transfer that is being sent.
    pub(crate) fn cancel_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: SendId,
    ) -> Result<(), Error> {
        let send = self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        if send.is_live() {
            self.begin_ending(net, cx, id.index, Ended::Here);
        }
        Ok(())
    }

    /// Tells of the progress of one Transfer that is being sent, Block by Block, or does so no
    /// more: [`Event::SendProgress`].
    pub(crate) fn watch_send(&mut self, id: SendId, is_watched: bool) -> Result<u64, Error> {
        let send = self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let acked = send.acked_bytes();
        if let Some(send) = self.table.get_mut(id.index) {
            send.is_watched = is_watched;
        }
        Ok(acked)
    }

    pub(crate) fn begin_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        memory: Area,
        opaque: u32,
        answers: Option<AnsweredRead>,
    ) -> Result<SendId, Error> {
        check_memory(memory)?;
        let known = net.connections.get(connection).ok_or(Error::Unknown)?;
        let serial = known.next_send;
        if !self.may_begin(net, connection) || !self.table.has_room() {
            net.remind_of_unsettled(cx, connection);
            return Err(Error::Busy);
        }
        let (first, priority) = (known.first_send, known.priority);
        let mut send = Send::new(connection, serial, memory, opaque);
        send.answers = answers;
        send.priority = priority;
        send.next_in_connection = first;
        let Some(key) = self.table.insert(send) else { return Err(Error::Busy) };
        if let Some(known) = net.connections.get_mut(connection) {
            known.next_send = serial.wrapping_add(1);
            known.first_send = key.index;
        }
        self.request_to_send(net, cx, key.index);
        self.timers.set(key.index, cx.now + net.patience(cx, connection, 0));
        Ok(SendId::of(key))
    }

    /// Are there slots at the other side? What was given up and may not have been heard of
    /// has one, too.
    fn may_begin(&self, net: &Network, connection: u32) -> bool {
        let Some(known) = net.connections.assumed(connection) else {
            return false;
        };
        let next = Serial32(known.next_send);
        let UnsettledCount { mut count, mut is_near } =
            net.unsettled_sends(connection, known.next_send);
        let mut index = known.first_send;
        while let Some(send) = self.table.get(index) {
            // What only waits for a driver is over at the other side.
            if !matches!(send.state, State::Over(_)) {
                count += 1;
                is_near &= next.since(Serial32(send.serial)) < Seen::SPAN;
            }
            index = send.next_in_connection;
        }
        is_near && count < usize::from(known.slots).min(Seen::MOST_OPEN)
    }

    /// May a Transfer be begun on a connection at the moment?
    pub(crate) fn can_send(&self, net: &Network, id: ConnectionId) -> Result<bool, Error> {
        let is_open = net.connection(id)?.is_open();
        Ok(is_open && self.table.has_room() && self.may_begin(net, id.index))
    }

    pub(super) fn request_to_send(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(send) = self.assumed(index) else {
            return;
        };
        let message = Message::RequestToSend {
            s_id: index as u16,
            serial: send.serial,
            len: send.memory.len,
            max_block: cx.config.buffer,
            opaque: send.opaque,
            answers: send.answers,
            is_eager: false,
        };
        let connection = send.connection;
        net.send_unsettled_send(cx, connection);
        self.send_request(net, cx, index, message);
    }

    /// This side ends the Transfer: no more of it is sent, the other side is told.
    pub(super) fn begin_ending(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        why: Ended,
    ) {
        let Some(send) = self.assumed_mut(index) else {
            return;
        };
        send.state = State::Ending(why);
        send.retries = 0;
        let connection = send.connection;
        self.send_end(net, cx, index);
        self.timers.set(index, cx.now + net.patience(cx, connection, 0));
    }

    pub(super) fn send_end(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(send) = self.assumed(index) else {
            return;
        };
        if let State::Ending(why) = send.state {
            let reason = match why {
                Ended::MemoryFailed => Reason::MemoryFailed,
                _ => Reason::Cancelled,
            };
            let ids = Ids { d_id: send.peer_id, s_id: index as u16 };
            let ending = Ending { ids, serial: send.serial, by_receiver: false };
            net.send_message(cx, send.connection, &Message::End { ending, reason });
        }
    }

    /// The Transfer is over as far as the other side goes.
    pub(crate) fn finish_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        result: Result<(), Ended>,
    ) {
        let Some(send) = self.assumed_mut(index) else {
            return;
        };
        if matches!(send.state, State::Over(_)) {
            return;
        }
        send.state = State::Over(result);
        self.timers.remove(index);
        self.release_send(net, cx, index);
    }

    /// It ends with its connection.
    pub(crate) fn end_send(&mut self, net: &mut Network, cx: &mut Context, index: u32, why: Ended) {
        let Some(send) = self.assumed(index) else {
            return;
        };
        let why = if let State::Ending(why) = send.state { why } else { why };
        self.finish_send(net, cx, index, Err(why));
    }

    /// A driver holds one transmission less.
    #[inline]
    pub(crate) fn release_transmission(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        generation: u32,
    ) {
        if let Some(send) = self.table.named_mut(index, generation) {
            send.held = send.held.saturating_sub(1);
            if send.held == 0 && matches!(send.state, State::Over(_)) {
                self.release_send(net, cx, index);
            }
        }
    }

    /// Tells the user, if no driver holds the memory.
    fn release_send(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(known) = self.assumed(index) else {
            return;
        };
        if let State::Over(result) = known.state {
            if known.held > 0 {
                return;
            }
            let id = SendId::of(self.table.key(index));
            let Some(send) = assumed(self.table.remove(index), "it was looked at just above")
            else {
                return;
            };
            self.unlist_send(net, index, &send);
            let connection = net.id_of(send.connection);
            net.remove_if_gone(send.connection);
            cx.emit(match result {
                Ok(()) => Event::Sent { send: id, connection, len: send.len },
                Err(why) => Event::SendEnded { send: id, connection, len: send.acked_bytes(), why },
            });
        }
    }

    fn unlist_send(&mut self, net: &mut Network, index: u32, send: &Send) {
        let Some(known) = net.connections.assumed_mut(send.connection) else {
            return;
        };
        if known.first_send == index {
            known.first_send = send.next_in_connection;
            return;
        }
        let mut before = known.first_send;
        while let Some(other) = self.table.get_mut(before) {
            if other.next_in_connection == index {
                other.next_in_connection = send.next_in_connection;
                return;
            }
            before = other.next_in_connection;
        }
    }

    /// The Transfers that a connection sends.
    pub(crate) fn sends_of(&self, net: &Network, connection: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut index = net.connections.get(connection).map_or(NONE, |known| known.first_send);
        while let Some(send) = self.table.get(index) {
            found.push(index);
            index = send.next_in_connection;
        }
        found
    }

    /// Sets the priority of one Transfer that is being sent: of what is granted of it from now on.
    pub(crate) fn set_send_priority(
        &mut self,
        id: SendId,
        priority: Priority,
    ) -> Result<(), Error> {
        self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        if let Some(send) = self.table.get_mut(id.index) {
            send.priority = priority;
        }
        Ok(())
    }
}
