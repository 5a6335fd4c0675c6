//! Request_To_Send meets memory.
//!
//! Memory that was posted takes the next Transfer; without any, the user is
//! asked. A Transfer that is too long for its memory is refused ("message too
//! long"), or taken in part where the user said so.

use landfall_placement::{Area, PathId, Peer, Refusal};
use landfall_tables::EntryKey;

use super::{Kind, Receive, State};
use crate::context::Context;
use crate::error::{Error, check_memory};
use crate::event::Event;
use crate::ids::ReceiveId;
use crate::network::{Arrival, Network};
use crate::receive::Receives;
use crate::seen::Serial;
use crate::wire::Reason;
use crate::wire::message::{Ids, Message, Verdict};

impl Receives {
    /// Takes a Transfer that was offered ([`Event::Offered`]) into memory.
    pub(crate) fn accept(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ReceiveId,
        memory: Area,
        takes_part: bool,
    ) -> Result<(), Error> {
        let receive = self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        if receive.state != State::Offered {
            return Err(Error::NotOpen);
        }
        check_memory(memory)?;
        if takes_part && memory.len == 0 && receive.offered > 0 {
            return Err(Error::TooShort);
        }
        self.give_memory(net, cx, id.index, memory, takes_part);
        Ok(())
    }

    /// Refuses a Transfer that was offered, and says why.
    pub(crate) fn refuse(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ReceiveId,
        reason: Reason,
    ) -> Result<(), Error> {
        let receive = self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        if receive.state != State::Offered {
            return Err(Error::NotOpen);
        }
        self.reject_offer(net, cx, id.index, reason);
        Ok(())
    }

    /// Takes at most this many bytes of a Transfer that was offered, before there is memory for it.
    pub(crate) fn limit(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ReceiveId,
        len: u64,
    ) -> Result<(), Error> {
        let receive = self.table.named_mut(id.index, id.generation).ok_or(Error::Unknown)?;
        if receive.state != State::Offered {
            return Err(Error::NotOpen);
        }
        if len == 0 && receive.offered > 0 {
            return Err(Error::TooShort);
        }
        if receive.limit.is_some() {
            return Err(Error::Taken);
        }
        if len < receive.offered {
            receive.limit = Some(len);
            self.send_limit(net, cx, id.index, len);
        }
        Ok(())
    }

    /// Lets the Data of a Transfer that was offered, or is under way, come over one link of its
    /// connection while that is up; what is granted already goes on.
    pub(crate) fn choose_link(
        &mut self,
        net: &mut Network,
        id: ReceiveId,
        path: PathId,
        peer: Peer,
    ) -> Result<(), Error> {
        let path = net.path_index(path).ok_or(Error::Unknown)? as u8;
        let link = net.links.find(path, peer).ok_or(Error::Unknown)?;
        let receive = self.table.named_mut(id.index, id.generation).ok_or(Error::Unknown)?;
        let known = net.connections.get(receive.connection).ok_or(Error::Unknown)?;
        if !known.links().any(|own| own == link) {
            return Err(Error::Unknown);
        }
        receive.link = link;
        let connection = receive.connection;
        self.wake_receives(net, connection);
        Ok(())
    }

    /// The other side has a Transfer.
    pub(crate) fn handle_request_to_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        arrival: &Arrival<'_>,
    ) -> Result<(), Refusal> {
        let Arrival { connection, message, payload, .. } = *arrival;
        let Message::RequestToSend { s_id, serial, len, max_block, opaque, answers, .. } = *message
        else {
            return Err(Refusal::Malformed);
        };
        let Some(known) = net.connections.get(connection) else {
            return Err(Refusal::UnknownId);
        };
        if !known.serves() {
            return Err(Refusal::Unexpected);
        }
        match known.sends_seen.of(serial) {
            Serial::Beyond => return Err(Refusal::OutOfBounds),
            Serial::Forgotten => return Err(Refusal::Duplicate),
            Serial::Complete | Serial::Failed(_) => {
                self.answer_over(net, cx, connection, s_id, serial);
                return Err(Refusal::Duplicate);
            }
            Serial::Open => {}
        }
        if let Some(receive) = self.find_receive(net, connection, serial) {
            return self.repeat_send_answer(net, cx, receive, s_id, len);
        }
        if let Some(read) = answers {
            return self.begin_answer(net, cx, connection, read.id, read.serial, message);
        }
        if !known.is_open() {
            let ids = Ids { d_id: s_id, s_id: 0 };
            let verdict = Verdict::Rejected(Reason::Closing);
            net.send_message(
                cx,
                connection,
                &Message::RequestAnswer { ids, serial, is_read: false, verdict },
            );
            return Err(Refusal::Unexpected);
        }
        let (first, posted) = (known.first_receive, known.first_posted);
        let priority = known.priority;
        let mut receive = Receive::new(connection, serial, Kind::Write, State::Offered);
        receive.peer_id = s_id;
        receive.priority = priority;
        receive.offered = len;
        receive.opaque = opaque;
        receive.most_block = max_block;
        receive.early = (!payload.is_empty()).then(|| payload.into());
        receive.next_in_connection = first;
        // Without room it is as if it had not come: its sender asks again.
        let EntryKey { index, .. } = self.table.insert(receive).ok_or(Refusal::NoRoom)?;
        if let Some(known) = net.connections.get_mut(connection) {
            known.first_receive = index;
        }
        if let Some(posted) = self.posted.get(posted).copied() {
            self.unpost_first(net, connection);
            self.give_memory(net, cx, index, posted.memory, posted.takes_part);
        } else {
            let id = self.receive_id(index);
            // What is here whole waits for nothing but the user: that answers soon, or its
            // sender asks.
            if payload.is_empty() {
                self.send_pending(net, cx, index);
            }
            let connection = net.id_of(connection);
            cx.emit(Event::Offered { receive: id, connection, len, opaque });
        }
        Ok(())
    }

    /// The sender did not hear the answer, or there is none yet.
    fn repeat_send_answer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        s_id: u16,
        len: u64,
    ) -> Result<(), Refusal> {
        let Some(receive) = self.table.get(index) else { return Err(Refusal::UnknownId) };
        if receive.peer_id != s_id || receive.offered != len {
            return Err(Refusal::Malformed);
        }
        if receive.state == State::Offered {
            self.send_pending(net, cx, index);
        } else if receive.state == State::Open {
            self.send_progress(net, cx, index);
        }
        Err(Refusal::Duplicate)
    }
}
