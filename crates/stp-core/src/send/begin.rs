//! What the user asks for: send, answer a read, cancel.

use alloc::vec::Vec;

use landfall_placement::{Area, Instant, Serial32};

use super::{Send, State};
use crate::connection::NONE;
use crate::endpoint::Endpoint;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, ReadId, SendId};
use crate::seen::Seen;
use crate::wire::Reason;
use crate::wire::message::{Ending, Ids, Message, Verdict};

impl Endpoint {
    /// Sends memory as one Transfer, with four bytes for the user at the other
    /// side. The memory is the engine's until [`Event::Sent`] or [`Event::SendEnded`].
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`], and
    /// [`Error::Busy`] where the other side's slots or our bound are used up.
    pub fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        memory: Area,
        opaque: u32,
    ) -> Result<SendId, Error> {
        if !self.connection(id)?.is_open() {
            return Err(Error::NotOpen);
        }
        self.begin_send(now, id.index, memory, opaque, None)
    }

    /// Sends memory to a reader ([`Event::ReadAsked`]), at most as much as it wants.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn answer_read(
        &mut self,
        now: Instant,
        id: ReadId,
        memory: Area,
        opaque: u32,
    ) -> Result<SendId, Error> {
        let read = *self.reads.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let memory = Area { len: memory.len.min(read.len), ..memory };
        let answers = Some((read.peer_id, read.serial));
        let send = self.begin_send(now, read.connection, memory, opaque, answers)?;
        self.end_read(id.index, Ok(()));
        Ok(send)
    }

    /// Sends nothing to a reader, and says why.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn refuse_read(&mut self, now: Instant, id: ReadId, reason: Reason) -> Result<(), Error> {
        let read = *self.reads.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let ids = Ids { d_id: read.peer_id, s_id: 0 };
        let verdict = Verdict::Rejected(reason);
        let (serial, is_read) = (read.serial, true);
        self.say(read.connection, &Message::RequestAnswer { ids, serial, is_read, verdict });
        self.end_read(id.index, Err(reason));
        self.disconnect_if_idle(now, read.connection);
        Ok(())
    }

    /// Ends a Transfer that is being sent. [`Event::SendEnded`] follows, or
    /// [`Event::Sent`] where all had arrived already.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn cancel_send(&mut self, now: Instant, id: SendId) -> Result<(), Error> {
        let send = self.sends.named(id.index, id.generation).ok_or(Error::Unknown)?;
        if send.is_live() {
            self.begin_ending(now, id.index, Ended::Here);
        }
        Ok(())
    }

    /// Tells of the progress of one Transfer that is being sent, Block by Block, or does so no
    /// more: [`Event::SendProgress`]. Gives how many bytes, from the start, are in place at
    /// the other side as far as is known. [`Config::progress`](crate::Config::progress) does
    /// it for all.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn watch_send(&mut self, id: SendId, is_watched: bool) -> Result<u64, Error> {
        let send = self.sends.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let acked = send.acked_bytes();
        if let Some(send) = self.sends.get_mut(id.index) {
            send.is_watched = is_watched;
        }
        Ok(acked)
    }

    fn begin_send(
        &mut self,
        now: Instant,
        connection: u32,
        memory: Area,
        opaque: u32,
        answers: Option<(u16, u32)>,
    ) -> Result<SendId, Error> {
        check_memory(memory)?;
        let known = self.connections.get(connection).ok_or(Error::Unknown)?;
        let serial = known.next_send;
        if !self.may_begin(connection) || !self.sends.has_room() {
            self.say_unsettled_send(connection);
            return Err(Error::Busy);
        }
        let (first, priority) = (known.first_send, known.priority);
        let mut send = Send::new(connection, serial, memory, opaque);
        send.answers = answers;
        send.priority = priority;
        send.next_in_connection = first;
        let Some(name) = self.sends.insert(send) else { return Err(Error::Busy) };
        if let Some(known) = self.connections.get_mut(connection) {
            known.next_send = serial.wrapping_add(1);
            known.first_send = name.0;
        }
        self.request_to_send(name.0);
        self.send_timers.set(name.0, now + self.patience(connection, 0));
        Ok(SendId::new(name))
    }

    /// Are there slots at the other side? What was given up and may not have been heard of
    /// has one, too.
    fn may_begin(&self, connection: u32) -> bool {
        let Some(known) = self.connections.get(connection) else { return false };
        let next = Serial32(known.next_send);
        let (mut count, mut is_near) = self.unsettled_sends(connection, known.next_send);
        let mut index = known.first_send;
        while let Some(send) = self.sends.get(index) {
            // What only waits for a driver is over at the other side.
            if !matches!(send.state, State::Over(_)) {
                count += 1;
                is_near &= next.since(Serial32(send.serial)) < Seen::SPAN;
            }
            index = send.next_in_connection;
        }
        is_near && count < usize::from(known.slots).min(Seen::MOST_OPEN)
    }

    /// How many Transfers may be begun on a connection at the moment.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn can_send(&self, id: ConnectionId) -> Result<bool, Error> {
        let is_open = self.connection(id)?.is_open();
        Ok(is_open && self.sends.has_room() && self.may_begin(id.index))
    }

    pub(super) fn request_to_send(&mut self, index: u32) {
        let Some(send) = self.sends.get(index) else { return };
        let message = Message::RequestToSend {
            s_id: index as u16,
            serial: send.serial,
            len: send.memory.len,
            max_block: self.config.buffer,
            opaque: send.opaque,
            answers: send.answers,
            is_eager: false,
        };
        let connection = send.connection;
        self.say_unsettled_send(connection);
        self.say_request(index, message);
    }

    /// This side ends the Transfer: no more of it is sent, the other side is told.
    pub(super) fn begin_ending(&mut self, now: Instant, index: u32, why: Ended) {
        let Some(send) = self.sends.get_mut(index) else { return };
        send.state = State::Ending(why);
        send.retries = 0;
        let connection = send.connection;
        self.say_end(index);
        self.send_timers.set(index, now + self.patience(connection, 0));
    }

    pub(super) fn say_end(&mut self, index: u32) {
        let Some(send) = self.sends.get(index) else { return };
        let State::Ending(why) = send.state else { return };
        let reason = match why {
            Ended::MemoryFailed => Reason::MemoryFailed,
            _ => Reason::Cancelled,
        };
        let ids = Ids { d_id: send.peer_id, s_id: index as u16 };
        let ending = Ending { ids, serial: send.serial, by_receiver: false };
        self.say(send.connection, &Message::End { ending, reason });
    }

    /// The Transfer is over as far as the other side goes.
    pub(crate) fn finish_send(&mut self, index: u32, result: Result<(), Ended>) {
        let Some(send) = self.sends.get_mut(index) else { return };
        if matches!(send.state, State::Over(_)) {
            return;
        }
        send.state = State::Over(result);
        self.send_timers.remove(index);
        self.release_send(index);
    }

    /// It ends with its connection.
    pub(crate) fn end_send(&mut self, index: u32, why: Ended) {
        let Some(send) = self.sends.get(index) else { return };
        let why = if let State::Ending(why) = send.state { why } else { why };
        self.finish_send(index, Err(why));
    }

    /// A driver holds one transmission less.
    #[inline]
    pub(crate) fn let_go_of_send(&mut self, index: u32, generation: u32) {
        let Some(send) = self.sends.named_mut(index, generation) else { return };
        send.held = send.held.saturating_sub(1);
        if send.held == 0 && matches!(send.state, State::Over(_)) {
            self.release_send(index);
        }
    }

    /// Tells the user, if no driver holds the memory.
    fn release_send(&mut self, index: u32) {
        let Some(known) = self.sends.get(index) else { return };
        let State::Over(result) = known.state else { return };
        if known.held > 0 {
            return;
        }
        let id = SendId::new((index, self.sends.generation(index)));
        let Some(send) = self.sends.remove(index) else { return };
        self.unlist_send(index, &send);
        let connection = self.id_of(send.connection);
        self.remove_if_gone(send.connection);
        self.tell(match result {
            Ok(()) => Event::Sent { send: id, connection, len: send.len },
            Err(why) => Event::SendEnded { send: id, connection, len: send.acked_bytes(), why },
        });
    }

    fn unlist_send(&mut self, index: u32, send: &Send) {
        let Some(known) = self.connections.get_mut(send.connection) else { return };
        if known.first_send == index {
            known.first_send = send.next_in_connection;
            return;
        }
        let mut before = known.first_send;
        while let Some(other) = self.sends.get_mut(before) {
            if other.next_in_connection == index {
                other.next_in_connection = send.next_in_connection;
                return;
            }
            before = other.next_in_connection;
        }
    }

    /// The Transfers that a connection sends.
    pub(crate) fn sends_of(&self, connection: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut index = self.connections.get(connection).map_or(NONE, |known| known.first_send);
        while let Some(send) = self.sends.get(index) {
            found.push(index);
            index = send.next_in_connection;
        }
        found
    }
}
