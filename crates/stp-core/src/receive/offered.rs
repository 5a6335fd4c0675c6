//! Request_To_Send meets memory.
//!
//! Memory that was posted takes the next Transfer; without any, the user is
//! asked. A Transfer that is too long for its memory is refused ("message too
//! long"), or taken in part where the user said so.

use alloc::vec::Vec;

use landfall_placement::{Area, PathId, Peer, Refusal};

use super::{Kind, Posted, Receive, State};
use crate::connection::NONE;
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, ReceiveId};
use crate::network::Network;
use crate::receive::Receives;
use crate::seen::Serial;
use crate::wire::Reason;
use crate::wire::message::State as Answer;
use crate::wire::message::{Ids, Message, Verdict};

impl Receives {
    /// Posts memory for the next Transfer of a connection.
    pub(crate) fn post(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        memory: Area,
        takes_part: bool,
    ) -> Result<(), Error> {
        if !net.connection(id)?.is_open() {
            return Err(Error::NotOpen);
        }
        check_memory(memory)?;
        if takes_part && memory.len == 0 {
            return Err(Error::TooShort);
        }
        if let Some(receive) = self.oldest_offer(net, id.index) {
            self.give_memory(net, cx, receive, memory, takes_part);
            return Ok(());
        }
        let posted = Posted { memory, takes_part, next: NONE };
        let (index, _) = self.posted.insert(posted).ok_or(Error::Busy)?;
        let Some(known) = net.connections.get_mut(id.index) else { return Ok(()) };
        let last = core::mem::replace(&mut known.last_posted, index);
        if known.first_posted == NONE {
            known.first_posted = index;
        }
        if let Some(last) = self.posted.get_mut(last) {
            last.next = index;
        }
        Ok(())
    }

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

    /// Takes at most so many bytes of a Transfer that was offered, before there is memory for it:
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
            self.say_limit(net, cx, id.index, len);
        }
        Ok(())
    }

    /// Lets the Data of a Transfer that was offered, or is under way, come over one link of its connection while that is up; what is granted already goes on.
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
    pub(crate) fn take_request_to_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        (message, payload): (&Message, &[u8]),
    ) -> Result<(), Refusal> {
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
        if let Some((id, read)) = answers {
            return self.begin_answer(net, cx, connection, (id, read), message);
        }
        if !known.is_open() {
            let ids = Ids { d_id: s_id, s_id: 0 };
            let verdict = Verdict::Rejected(Reason::Closing);
            net.say(
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
        let (index, _) = self.table.insert(receive).ok_or(Refusal::NoRoom)?;
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
                self.say_pending(net, cx, index);
            }
            let connection = net.id_of(connection);
            cx.tell(Event::Offered { receive: id, connection, len, opaque });
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
            self.say_pending(net, cx, index);
        } else if receive.state == State::Open {
            self.say_progress(net, cx, index);
        }
        Err(Refusal::Duplicate)
    }

    /// Joins an offered Transfer and memory: it begins, or is too long.
    pub(super) fn give_memory(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        memory: Area,
        takes_part: bool,
    ) {
        let Some(receive) = self.table.get_mut(index) else { return };
        receive.memory = Some(memory);
        let wanted = receive.wanted();
        let fits = wanted <= memory.len;
        receive.len = wanted.min(memory.len);
        // Of two limits it would not be sure which one its sender heard last.
        if !fits && (!takes_part || receive.limit.is_some()) {
            return self.reject_offer(net, cx, index, Reason::TooLong);
        }
        if !self.begin_receive(net, cx, index) {
            self.reject_offer(net, cx, index, Reason::TooLong);
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
        let Some(receive) = self.table.get(index) else { return };
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let (connection, serial) = (receive.connection, receive.serial);
        let verdict = Verdict::Rejected(reason);
        net.say(cx, connection, &Message::RequestAnswer { ids, serial, is_read: false, verdict });
        let why = if reason == Reason::TooLong { Ended::DoesNotFit } else { Ended::Here };
        self.finish_receive_as(net, cx, index, Err(why), reason);
    }

    fn say_pending(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.table.get(index) else { return };
        if let Some(limit) = receive.limit {
            return self.say_limit(net, cx, index, limit);
        }
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let (serial, verdict) = (receive.serial, Verdict::Pending);
        net.say(
            cx,
            receive.connection,
            &Message::RequestAnswer { ids, serial, is_read: false, verdict },
        );
    }

    pub(super) fn say_limit(&mut self, net: &mut Network, cx: &mut Context, index: u32, len: u64) {
        let Some(receive) = self.table.get(index) else { return };
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let (serial, verdict) = (receive.serial, Verdict::Limited(len));
        net.say(
            cx,
            receive.connection,
            &Message::RequestAnswer { ids, serial, is_read: false, verdict },
        );
    }

    /// How far a Transfer is.
    pub(super) fn say_progress(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.table.get(index) else { return };
        let answer = Answer::Transfer {
            ids: Ids { d_id: receive.peer_id, s_id: index as u16 },
            serial: receive.serial,
            acked: receive.acked(|block| self.granted.number_of(block)),
            len: receive.len,
            is_complete: false,
        };
        net.say(cx, receive.connection, &Message::RequestStateResponse(answer));
    }

    /// How a Transfer ended that is over.
    fn answer_over(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        peer_id: u16,
        serial: u32,
    ) {
        let Some(known) = net.connections.get(connection) else { return };
        let ids = Ids { d_id: peer_id, s_id: 0 };
        let message = match known.sends_seen.of(serial) {
            Serial::Complete => {
                let (len, is_complete) = (u64::MAX, true);
                let answer = Answer::Transfer { ids, serial, acked: 0, len, is_complete };
                Message::RequestStateResponse(answer)
            }
            over => {
                let reason = if let Serial::Failed(reason) = over { reason } else { Reason::Gone };
                let verdict = Verdict::Rejected(reason);
                Message::RequestAnswer { ids, serial, is_read: false, verdict }
            }
        };
        net.say(cx, connection, &message);
    }

    /// The sender asks how far a Transfer is.
    pub(crate) fn answer_progress(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ids: Ids,
        serial: u32,
    ) -> Result<(), Refusal> {
        let Some(known) = net.connections.get(connection) else {
            return Err(Refusal::UnknownId);
        };
        match known.sends_seen.of(serial) {
            Serial::Complete | Serial::Failed(_) => {
                self.answer_over(net, cx, connection, ids.s_id, serial)
            }
            Serial::Forgotten => return Err(Refusal::UnknownId),
            Serial::Open => {
                let index = self.find_receive(net, connection, serial).ok_or(Refusal::UnknownId)?;
                match self.table.get(index).map(|receive| receive.state) {
                    Some(State::Offered) => self.say_pending(net, cx, index),
                    Some(State::Open) => self.say_progress(net, cx, index),
                    _ => return Err(Refusal::Unexpected),
                }
            }
            Serial::Beyond => return Err(Refusal::OutOfBounds),
        }
        Ok(())
    }

    pub(crate) fn receive_id(&self, index: u32) -> ReceiveId {
        ReceiveId::new((index, self.table.generation(index)))
    }

    /// The Transfer of the other side with this serial number.
    pub(super) fn find_receive(&self, net: &Network, connection: u32, serial: u32) -> Option<u32> {
        let mut index = net.connections.get(connection)?.first_receive;
        while let Some(receive) = self.table.get(index) {
            if receive.serial == serial && receive.is_transfer() {
                return Some(index);
            }
            index = receive.next_in_connection;
        }
        None
    }

    /// The Transfers that a connection receives.
    pub(crate) fn receives_of(&self, net: &Network, connection: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut index = net.connections.get(connection).map_or(NONE, |known| known.first_receive);
        while let Some(receive) = self.table.get(index) {
            found.push(index);
            index = receive.next_in_connection;
        }
        found
    }

    fn oldest_offer(&self, net: &Network, connection: u32) -> Option<u32> {
        let is_offered = |index: &u32| {
            self.table.get(*index).is_some_and(|receive| receive.state == State::Offered)
        };
        // The newest is the first of the list.
        self.receives_of(net, connection).into_iter().rfind(is_offered)
    }

    fn unpost_first(&mut self, net: &mut Network, connection: u32) -> Option<Posted> {
        let known = net.connections.get_mut(connection)?;
        let posted = self.posted.remove(known.first_posted)?;
        known.first_posted = posted.next;
        if known.first_posted == NONE {
            known.last_posted = NONE;
        }
        Some(posted)
    }

    /// Takes this memory out of the list of what is posted.
    pub(super) fn unpost(&mut self, net: &mut Network, connection: u32, memory: Area) -> bool {
        let Some(known) = net.connections.get(connection) else { return false };
        let (mut before, mut index) = (NONE, known.first_posted);
        while let Some(posted) = self.posted.get(index).copied() {
            if posted.memory != memory {
                (before, index) = (index, posted.next);
                continue;
            }
            if before == NONE {
                return self.unpost_first(net, connection).is_some();
            }
            self.posted.remove(index);
            if let Some(last) = self.posted.get_mut(before) {
                last.next = posted.next;
            }
            if let Some(known) = net.connections.get_mut(connection)
                && known.last_posted == index
            {
                known.last_posted = before;
            }
            return true;
        }
        false
    }

    /// Posted memory is the user's again.
    pub(crate) fn end_posted(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        why: Ended,
    ) {
        while let Some(posted) = self.unpost_first(net, connection) {
            let connection = net.id_of(connection);
            cx.tell(Event::Unposted { connection, memory: posted.memory, why });
        }
    }
}
