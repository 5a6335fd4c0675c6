//! Answers, acknowledgements and endings of what this side sends, and what it repeats when
//! nothing was heard.
//!
//! Once the receiver has answered, it grants when it likes; a sender that hears nothing for
//! long asks how things stand. That also finds the final acknowledgement that was lost, and a
//! receiver that fell silent.

use landfall_placement::{Refusal, Serial32};

use super::{State, Tiling};
use crate::context::Context;
use crate::error::Ended;
use crate::event::Event;
use crate::ids::SendId;
use crate::network::Network;
use crate::send::Sends;
use crate::wire::Reason;
use crate::wire::message::{Ending, Ids, Message, Question, Verdict};

/// How far a Transfer of ours is, as its receiver says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) ids: Ids,
    pub(crate) serial: u32,
    /// All Blocks below this one are in place.
    pub(crate) acked: u32,
    /// How much of it is taken.
    pub(crate) len: u64,
    pub(crate) is_complete: bool,
}

impl Sends {
    /// The Transfer that an answer is about.
    fn find_send(&self, connection: u32, ids: Ids, serial: u32) -> Result<u32, Refusal> {
        let index = u32::from(ids.d_id);
        let send = self.table.get(index).ok_or(Refusal::UnknownId)?;
        if send.connection != connection || send.serial != serial {
            return Err(Refusal::UnknownId);
        }
        Ok(index)
    }

    pub(crate) fn handle_send_answer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ids: Ids,
        serial: u32,
        verdict: Verdict,
    ) -> Result<(), Refusal> {
        let is_rejected = matches!(verdict, Verdict::Rejected(_));
        if is_rejected && net.settle_send(cx, connection, serial) {
            return Ok(());
        }
        let index = self.find_send(connection, ids, serial)?;
        let send = self.table.get_mut(index).ok_or(Refusal::UnknownId)?;
        if !send.is_live() {
            return Err(Refusal::Unexpected);
        }
        match verdict {
            Verdict::Rejected(reason) => {
                self.finish_send(net, cx, index, Err(Ended::There(reason)));
                net.disconnect_if_idle(cx, connection);
                return Ok(());
            }
            Verdict::Limited(len) if len > send.memory.len => return Err(Refusal::Malformed),
            Verdict::Limited(len) => {
                send.len = len;
                send.knows_limit = true;
            }
            Verdict::Pending => {}
        }
        send.accept(ids.s_id);
        self.wait_for_news(net, cx, index);
        Ok(())
    }

    /// How far a Transfer of ours is, says its receiver.
    pub(crate) fn handle_progress(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        progress: Progress,
    ) -> Result<(), Refusal> {
        let Progress { ids, serial, acked, len, is_complete } = progress;
        if is_complete && net.settle_send(cx, connection, serial) {
            return Ok(());
        }
        let index = self.find_send(connection, ids, serial)?;
        let send = self.table.get_mut(index).ok_or(Refusal::UnknownId)?;
        if is_complete {
            if matches!(send.state, State::Over(_)) {
                return Err(Refusal::Duplicate);
            }
            // Also where this side was ending it: it came too late for that. Who
            // has forgotten the length says the greatest there is; a limit was
            // known here before anything was granted.
            send.len = send.len.min(len);
            let older = send.next_in_connection;
            self.ask_about_overtaken(net, cx, connection, older);
            self.finish_send(net, cx, index, Ok(()));
            net.disconnect_if_idle(cx, connection);
            return Ok(());
        }
        if !send.is_live() {
            return Err(Refusal::Unexpected);
        }
        if len > send.memory.len {
            return Err(Refusal::Malformed);
        }
        send.len = len;
        send.knows_limit = true;
        send.accept(ids.s_id);
        self.note_acked(net, cx, index, acked);
        self.wait_for_news(net, cx, index);
        Ok(())
    }

    /// All Blocks below are in place: that memory is not needed again.
    pub(super) fn note_acked(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        acked: u32,
    ) {
        let tells = cx.config.progress;
        let Some(send) = self.assumed_mut(index) else {
            return;
        };
        if let Some(Tiling { block_size, .. }) = send.tiling {
            if !Serial32(send.acked).precedes(Serial32(acked)) {
                return;
            }
            // No further than there are Blocks.
            if u64::from(acked) << block_size > send.len + (2 << block_size) {
                return;
            }
            send.acked = acked;
            send.asked = 0;
            if tells || send.is_watched {
                let (connection, len) = (send.connection, send.acked_bytes());
                let connection = net.id_of(connection);
                let send = SendId::of(self.table.key(index));
                // One event that tells of progress is enough: the newest.
                let last = cx.last_event();
                if let Some(Event::SendProgress { send: same, len: told, .. }) = last
                    && *same == send
                {
                    *told = len;
                } else {
                    cx.emit(Event::SendProgress { send, connection, len });
                }
            }
        }
    }

    /// The receiver ended it: a Transfer that we send.
    pub(crate) fn handle_end_of_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ending: Ending,
        reason: Reason,
    ) -> Result<(), Refusal> {
        let ids = Ids { d_id: ending.ids.s_id, s_id: ending.ids.d_id };
        net.send_message(cx, connection, &Message::EndAck(Ending { ids, ..ending }));
        if net.settle_send(cx, connection, ending.serial) {
            return Ok(());
        }
        let index = self.find_send(connection, ending.ids, ending.serial)?;
        self.finish_send(net, cx, index, Err(Ended::There(reason)));
        net.disconnect_if_idle(cx, connection);
        Ok(())
    }

    /// The receiver has heard that this side ended it.
    pub(crate) fn handle_end_ack_of_send(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        ending: Ending,
    ) -> Result<(), Refusal> {
        if net.settle_send(cx, connection, ending.serial) {
            return Ok(());
        }
        let index = self.find_send(connection, ending.ids, ending.serial)?;
        let send = self.table.get(index).ok_or(Refusal::UnknownId)?;
        let State::Ending(why) = send.state else { return Err(Refusal::Unexpected) };
        self.finish_send(net, cx, index, Err(why));
        net.disconnect_if_idle(cx, connection);
        Ok(())
    }
}

impl Sends {
    /// Sets when the sender asks how things stand: after some round trips without a word,
    /// for the receiver may have others to grant to, and later each time that it answers with
    /// nothing new, as TCP probes a closed window (RFC 9293, 3.8.6.1).
    pub(super) fn wait_for_news(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(send) = self.assumed(index) else {
            return;
        };
        let patience = net.patience(cx, send.connection, send.asked.saturating_add(2));
        self.timers.set(index, cx.now + patience);
    }

    /// A Transfer is complete at its receiver. Of those that were begun before it, and have no
    /// more to be granted, the last word may be lost: they are asked about after a round trip,
    /// and not after several in which nothing is heard. Those follow each other from `older`.
    fn ask_about_overtaken(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        older: u32,
    ) {
        let round = net.round_trip(cx, connection);
        let mut index = older;
        while let Some(send) = self.table.get(index) {
            // It is asked for once: what is silent then is no matter of a lost word.
            if send.state == State::Accepted && send.is_end_granted && send.asked == 0 {
                let due = self.timers.key_of(index);
                self.timers.set(index, due.map_or(cx.now + round, |due| due.min(cx.now + round)));
            }
            index = send.next_in_connection;
        }
    }

    pub(crate) fn time_out_send(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(send) = self.assumed_mut(index) else {
            return;
        };
        send.retries = send.retries.saturating_add(1);
        send.asked = send.asked.saturating_add(1);
        let (retries, state, connection) = (send.retries, send.state, send.connection);
        let (serial, peer_id) = (send.serial, send.peer_id);
        if net.gives_up(cx, connection, retries) {
            let why = if let State::Ending(why) = state { why } else { Ended::Silent };
            net.leave_send_unsettled(connection, serial);
            self.finish_send(net, cx, index, Err(why));
            net.disconnect_if_idle(cx, connection);
            return;
        }
        match state {
            State::RequestSent => self.request_to_send(net, cx, index),
            State::Accepted => {
                let ids = Ids { d_id: peer_id, s_id: index as u16 };
                let question = Question::Transfer { ids, serial };
                net.send_message(cx, connection, &Message::RequestState(question));
            }
            State::Ending(_) => self.send_end(net, cx, index),
            State::Over(_) => return,
        }
        net.suspect_move(cx, connection);
        self.timers.set(index, cx.now + net.patience(cx, connection, retries));
    }
}
