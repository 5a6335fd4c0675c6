//! What the sender of a Transfer is told of it: that it waits, how much of it is taken, how far it
//! is, how it ended.

use landfall_placement::Refusal;

use super::{Receives, State};
use crate::context::Context;
use crate::network::Network;
use crate::seen::Serial;
use crate::wire::Reason;
use crate::wire::message::State as Answer;
use crate::wire::message::{Ids, Message, Verdict};

impl Receives {
    pub(crate) fn send_pending(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        if let Some(limit) = receive.limit {
            return self.send_limit(net, cx, index, limit);
        }
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let (serial, verdict) = (receive.serial, Verdict::Pending);
        net.send_message(
            cx,
            receive.connection,
            &Message::RequestAnswer { ids, serial, is_read: false, verdict },
        );
    }

    pub(crate) fn send_limit(&mut self, net: &mut Network, cx: &mut Context, index: u32, len: u64) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let ids = Ids { d_id: receive.peer_id, s_id: index as u16 };
        let (serial, verdict) = (receive.serial, Verdict::Limited(len));
        net.send_message(
            cx,
            receive.connection,
            &Message::RequestAnswer { ids, serial, is_read: false, verdict },
        );
    }

    /// How far a Transfer is.
    pub(crate) fn send_progress(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let answer = Answer::Transfer {
            ids: Ids { d_id: receive.peer_id, s_id: index as u16 },
            serial: receive.serial,
            acked: receive.acked(|block| self.granted.number_of(block)),
            len: receive.len,
            is_complete: false,
        };
        net.send_message(cx, receive.connection, &Message::RequestStateResponse(answer));
    }

    /// How a Transfer ended that is over.
    pub(crate) fn answer_over(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        peer_id: u16,
        serial: u32,
    ) {
        let Some(known) = net.connections.assumed(connection) else {
            return;
        };
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
        net.send_message(cx, connection, &message);
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
                self.answer_over(net, cx, connection, ids.s_id, serial);
            }
            Serial::Forgotten => return Err(Refusal::UnknownId),
            Serial::Open => {
                let index = self.find_receive(net, connection, serial).ok_or(Refusal::UnknownId)?;
                match self.table.get(index).map(|receive| receive.state) {
                    Some(State::Offered) => self.send_pending(net, cx, index),
                    Some(State::Open) => self.send_progress(net, cx, index),
                    _ => return Err(Refusal::Unexpected),
                }
            }
            Serial::Beyond => return Err(Refusal::OutOfBounds),
        }
        Ok(())
    }
}
