//! Request_To_Receive, on both sides: a Transfer that its receiver asks for.

use landfall_placement::{Area, Instant, Refusal, Serial32};

use super::{Kind, Read, Receive, State};
use crate::endpoint::Endpoint;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, ReadId, ReceiveId};
use crate::seen::{Seen, Serial};
use crate::wire::Reason;
use crate::wire::message::{Ids, Message, Verdict};

impl Endpoint {
    /// Asks the other side for a Transfer of at most as many bytes as the
    /// memory has; `opaque` tells its user which. [`Event::Received`] or
    /// [`Event::ReceiveEnded`] follows.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`],
    /// [`Error::Busy`] where the other side's slots or our bound are used up.
    pub fn read(
        &mut self,
        now: Instant,
        id: ConnectionId,
        memory: Area,
        opaque: u32,
    ) -> Result<ReceiveId, Error> {
        let known = self.connection(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        check_memory(memory)?;
        let (serial, first, slots) = (known.next_read, known.first_receive, known.slots);
        let priority = known.priority;
        let (mut asking, mut is_near) = self.unsettled_reads(id.index, serial);
        for index in self.receives_of(id.index) {
            let Some(other) = self.receives.get(index) else { continue };
            if let (Kind::Read(read), State::Asking) = (other.kind, other.state) {
                asking += 1;
                is_near &= Serial32(serial).since(Serial32(read)) < Seen::SPAN;
            }
        }
        if !is_near || asking >= usize::from(slots).min(Seen::MOST_OPEN) {
            self.say_unsettled_read(id.index);
            return Err(Error::Busy);
        }
        let mut receive = Receive::new(id.index, 0, Kind::Read(serial), State::Asking);
        receive.memory = Some(memory);
        receive.len = memory.len;
        receive.opaque = opaque;
        receive.priority = priority;
        receive.next_in_connection = first;
        let name = self.receives.insert(receive).ok_or(Error::Busy)?;
        if let Some(known) = self.connections.get_mut(id.index) {
            known.first_receive = name.0;
            known.next_read = serial.wrapping_add(1);
        }
        self.request_to_receive(name.0);
        self.receive_timers.set(name.0, now + self.patience(id.index, 0));
        Ok(ReceiveId::new(name))
    }

    pub(super) fn request_to_receive(&mut self, index: u32) {
        let Some(receive) = self.receives.get(index) else { return };
        let Kind::Read(serial) = receive.kind else { return };
        let (s_id, len, opaque) = (index as u16, receive.len, receive.opaque);
        let message = Message::RequestToReceive { s_id, serial, len, opaque };
        let connection = receive.connection;
        self.say_unsettled_read(connection);
        self.say(connection, &message);
    }

    /// What we asked for begins: its sender has a serial number for it.
    pub(super) fn begin_answer(
        &mut self,
        now: Instant,
        connection: u32,
        (id, read): (u16, u32),
        message: &Message,
    ) -> Result<(), Refusal> {
        let Message::RequestToSend { s_id, serial, len, max_block, opaque, .. } = *message else {
            return Err(Refusal::Malformed);
        };
        let index = u32::from(id);
        let is_it = self.receives.get(index).is_some_and(|receive| {
            receive.connection == connection
                && receive.kind == Kind::Read(read)
                && receive.state == State::Asking
        });
        if !is_it {
            // The read was given up, and whoever answers it must hear that.
            self.refuse_answer(connection, s_id, serial);
            return Err(Refusal::UnknownId);
        }
        let receive = self.receives.get_mut(index).ok_or(Refusal::UnknownId)?;
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
        self.receive_timers.remove(index);
        let Some(memory) = self.receives.get(index).and_then(|receive| receive.memory) else {
            return Err(Refusal::Unexpected);
        };
        self.give_memory(now, index, memory, false);
        Ok(())
    }

    /// A Transfer answers a read that is over: it is over, too.
    fn refuse_answer(&mut self, connection: u32, s_id: u16, serial: u32) {
        if let Some(known) = self.connections.get_mut(connection) {
            known.sends_seen.end(serial, Err(Reason::Gone));
        }
        let ids = Ids { d_id: s_id, s_id: 0 };
        let (is_read, verdict) = (false, Verdict::Rejected(Reason::Gone));
        self.say(connection, &Message::RequestAnswer { ids, serial, is_read, verdict });
    }

    /// The other side wants to be sent something.
    pub(crate) fn take_request_to_receive(
        &mut self,
        connection: u32,
        s_id: u16,
        serial: u32,
        (len, opaque): (u64, u32),
    ) -> Result<(), Refusal> {
        let Some(known) = self.connections.get(connection) else { return Err(Refusal::UnknownId) };
        let is_open = known.is_open();
        let verdict = match known.reads_seen.of(serial) {
            Serial::Beyond => return Err(Refusal::OutOfBounds),
            Serial::Forgotten => return Err(Refusal::Duplicate),
            // It was refused: said again in the same words.
            Serial::Failed(reason) => {
                self.refuse_over(connection, s_id, serial, reason);
                return Err(Refusal::Duplicate);
            }
            // It was answered by a Transfer, which speaks for itself; if that is over, so
            // is this.
            Serial::Complete => {
                let is_under_way = self.is_read_answered(connection, serial);
                if !is_under_way {
                    self.refuse_over(connection, s_id, serial, Reason::Gone);
                }
                return Err(Refusal::Duplicate);
            }
            Serial::Open if self.is_read_waiting(connection, serial) => {
                let ids = Ids { d_id: s_id, s_id: 0 };
                let (is_read, verdict) = (true, Verdict::Pending);
                let answer = Message::RequestAnswer { ids, serial, is_read, verdict };
                self.say(connection, &answer);
                return Err(Refusal::Duplicate);
            }
            Serial::Open if !is_open => Reason::Closing,
            Serial::Open => {
                let read = Read { connection, serial, peer_id: s_id, len };
                let name = self.reads.insert(read).ok_or(Refusal::NoRoom)?;
                if let Some(known) = self.connections.get_mut(connection) {
                    known.reads_waiting += 1;
                }
                let (read, connection) = (ReadId::new(name), self.id_of(connection));
                self.tell(Event::ReadAsked { read, connection, len, opaque });
                return Ok(());
            }
        };
        self.refuse_over(connection, s_id, serial, verdict);
        Err(Refusal::Unexpected)
    }

    fn refuse_over(&mut self, connection: u32, s_id: u16, serial: u32, reason: Reason) {
        let ids = Ids { d_id: s_id, s_id: 0 };
        let (is_read, verdict) = (true, Verdict::Rejected(reason));
        self.say(connection, &Message::RequestAnswer { ids, serial, is_read, verdict });
    }

    fn is_read_waiting(&self, connection: u32, serial: u32) -> bool {
        let is_it = |index: u32| {
            self.reads
                .get(index)
                .is_some_and(|read| read.connection == connection && read.serial == serial)
        };
        self.reads.indices().any(is_it)
    }

    fn is_read_answered(&self, connection: u32, serial: u32) -> bool {
        let answers = |index: u32| {
            let send = self.sends.get(index);
            send.is_some_and(|send| send.is_live() && send.answers.is_some_and(|a| a.1 == serial))
        };
        self.sends_of(connection).into_iter().any(answers)
    }

    /// A read that the user has answered or refused.
    pub(crate) fn end_read(&mut self, index: u32, result: Result<(), Reason>) {
        let Some(read) = self.reads.remove(index) else { return };
        if let Some(known) = self.connections.get_mut(read.connection) {
            known.reads_waiting = known.reads_waiting.saturating_sub(1);
            known.reads_seen.end(read.serial, result);
        }
    }

    /// Those of a connection end with it.
    pub(crate) fn end_reads(&mut self, connection: u32) {
        let is_waiting =
            self.connections.get(connection).is_some_and(|known| known.reads_waiting > 0);
        if !is_waiting {
            return;
        }
        let of_it =
            |index: &u32| self.reads.get(*index).is_some_and(|read| read.connection == connection);
        let indices: alloc::vec::Vec<u32> = self.reads.indices().filter(of_it).collect();
        for index in indices {
            self.end_read(index, Err(Reason::Closing));
        }
    }

    /// The other side answers what we asked for with something else than a Transfer.
    pub(crate) fn take_read_answer(
        &mut self,
        connection: u32,
        ids: Ids,
        serial: u32,
        verdict: Verdict,
    ) -> Result<(), Refusal> {
        // While its user has not answered, the number is not used up there.
        let is_over = matches!(verdict, Verdict::Rejected(_));
        if is_over && self.settle_read(connection, serial) {
            return Ok(());
        }
        let index = u32::from(ids.d_id);
        let receive = self.receives.get_mut(index).ok_or(Refusal::UnknownId)?;
        if receive.connection != connection || receive.kind != Kind::Read(serial) {
            return Err(Refusal::UnknownId);
        }
        if receive.state != State::Asking {
            // It has begun: what was said before that came late.
            return Err(Refusal::Unexpected);
        }
        match verdict {
            Verdict::Pending => {
                receive.retries = 0;
                Ok(())
            }
            Verdict::Rejected(reason) => {
                self.finish_receive(index, Err(Ended::There(reason)));
                Ok(())
            }
            Verdict::Limited(_) => Err(Refusal::Malformed),
        }
    }
}
