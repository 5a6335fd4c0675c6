//! What the other side asks this one to send: Request_To_Receive, and what the user answers.

use landfall_placement::{Area, Refusal, assumed};

use super::Sends;
use crate::connection::ReadRequest;
use crate::context::Context;
use crate::error::Error;
use crate::event::Event;
use crate::ids::{ReadId, SendId};
use crate::network::Network;
use crate::seen::Serial;
use crate::wire::Reason;
use crate::wire::message::{AnsweredRead, Ids, Message, Verdict};

/// A read that the other side asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) connection: u32,
    pub(crate) serial: u32,
    pub(crate) peer_id: u16,
    pub(crate) len: u64,
}

impl Sends {
    /// Sends memory to a reader ([`Event::ReadRequested`]), at most as much as it wants.
    pub(crate) fn answer_read(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ReadId,
        memory: Area,
        opaque: u32,
    ) -> Result<SendId, Error> {
        let read = *self.reads.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let memory = Area { len: memory.len.min(read.len), ..memory };
        let answers = Some(AnsweredRead { id: read.peer_id, serial: read.serial });
        let send = self.begin_send(net, cx, read.connection, memory, opaque, answers)?;
        self.end_read(net, id.index, Ok(()));
        Ok(send)
    }

    /// Sends nothing to a reader, and says why.
    pub(crate) fn refuse_read(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ReadId,
        reason: Reason,
    ) -> Result<(), Error> {
        let read = *self.reads.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let ids = Ids { d_id: read.peer_id, s_id: 0 };
        let verdict = Verdict::Rejected(reason);
        let (serial, is_read) = (read.serial, true);
        net.send_message(
            cx,
            read.connection,
            &Message::RequestAnswer { ids, serial, is_read, verdict },
        );
        self.end_read(net, id.index, Err(reason));
        net.disconnect_if_idle(cx, read.connection);
        Ok(())
    }

    /// The other side wants to be sent something.
    pub(crate) fn handle_request_to_receive(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        s_id: u16,
        read: ReadRequest,
    ) -> Result<(), Refusal> {
        let ReadRequest { serial, len, opaque } = read;
        let Some(known) = net.connections.get(connection) else {
            return Err(Refusal::UnknownId);
        };
        let is_open = known.is_open();
        let verdict = match known.reads_seen.of(serial) {
            Serial::Beyond => return Err(Refusal::OutOfBounds),
            Serial::Forgotten => return Err(Refusal::Duplicate),
            // It was refused: said again in the same words.
            Serial::Failed(reason) => {
                self.refuse_over(net, cx, connection, s_id, serial, reason);
                return Err(Refusal::Duplicate);
            }
            // It was answered by a Transfer, which speaks for itself; if that is over, so
            // is this.
            Serial::Complete => {
                let is_under_way = self.is_read_answered(net, connection, serial);
                if !is_under_way {
                    self.refuse_over(net, cx, connection, s_id, serial, Reason::Gone);
                }
                return Err(Refusal::Duplicate);
            }
            Serial::Open if self.is_read_waiting(connection, serial) => {
                let ids = Ids { d_id: s_id, s_id: 0 };
                let (is_read, verdict) = (true, Verdict::Pending);
                let answer = Message::RequestAnswer { ids, serial, is_read, verdict };
                net.send_message(cx, connection, &answer);
                return Err(Refusal::Duplicate);
            }
            Serial::Open if !is_open => Reason::Closing,
            Serial::Open => {
                let read = Read { connection, serial, peer_id: s_id, len };
                let key = self.reads.insert(read).ok_or(Refusal::NoRoom)?;
                if let Some(known) = net.connections.get_mut(connection) {
                    known.reads_waiting += 1;
                }
                let (read, connection) = (ReadId::of(key), net.id_of(connection));
                cx.emit(Event::ReadRequested { read, connection, len, opaque });
                return Ok(());
            }
        };
        self.refuse_over(net, cx, connection, s_id, serial, verdict);
        Err(Refusal::Unexpected)
    }

    fn refuse_over(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        s_id: u16,
        serial: u32,
        reason: Reason,
    ) {
        let ids = Ids { d_id: s_id, s_id: 0 };
        let (is_read, verdict) = (true, Verdict::Rejected(reason));
        net.send_message(cx, connection, &Message::RequestAnswer { ids, serial, is_read, verdict });
    }

    fn is_read_waiting(&self, connection: u32, serial: u32) -> bool {
        let is_it = |index: u32| {
            self.reads
                .get(index)
                .is_some_and(|read| read.connection == connection && read.serial == serial)
        };
        self.reads.indices().any(is_it)
    }

    fn is_read_answered(&self, net: &Network, connection: u32, serial: u32) -> bool {
        let answers = |index: u32| {
            let send = self.table.get(index);
            send.is_some_and(|send| {
                send.is_live() && send.answers.is_some_and(|read| read.serial == serial)
            })
        };
        self.sends_of(net, connection).into_iter().any(answers)
    }

    /// A read that the user has answered or refused.
    pub(crate) fn end_read(&mut self, net: &mut Network, index: u32, result: Result<(), Reason>) {
        let Some(read) = assumed(self.reads.remove(index), "a read is answered once") else {
            return;
        };
        if let Some(known) = net.connections.get_mut(read.connection) {
            known.reads_waiting = known.reads_waiting.saturating_sub(1);
            known.reads_seen.end(read.serial, result);
        }
    }

    /// Those of a connection end with it.
    pub(crate) fn end_reads(&mut self, net: &mut Network, connection: u32) {
        let is_waiting =
            net.connections.get(connection).is_some_and(|known| known.reads_waiting > 0);
        if !is_waiting {
            return;
        }
        let of_it =
            |index: &u32| self.reads.get(*index).is_some_and(|read| read.connection == connection);
        let indices: alloc::vec::Vec<u32> = self.reads.indices().filter(of_it).collect();
        for index in indices {
            self.end_read(net, index, Err(Reason::Closing));
        }
    }
}
