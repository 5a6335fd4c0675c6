//! Tear-down: Request_Disconnect, Disconnect_Answer, Disconnect_Complete; and
//! what the end of a connection ends with it.

use landfall_placement::Refusal;

use super::{NONE, State};
use crate::connection::{ConnectionOver, Effect, RecordFate};
use crate::context::Context;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ConnectionId;
use crate::network::Network;
use crate::wire::Reason;
use crate::wire::message::{Ids, Message};

impl Network {
    /// Closes a connection.
    pub(crate) fn close(&mut self, cx: &mut Context, id: ConnectionId) -> Result<Effect, Error> {
        let known = self.connection_mut(id)?;
        match known.state {
            State::RequestSent | State::RequestsCrossed | State::RequestReceived => {
                self.abort(cx, id, Reason::Cancelled)
            }
            State::Open | State::AnswerSent => {
                known.state = State::Draining;
                Ok(Effect::Closing { connection: id.index })
            }
            _ => Ok(Effect::None),
        }
    }

    /// Ends a connection at once.
    pub(crate) fn abort(
        &mut self,
        cx: &mut Context,
        id: ConnectionId,
        reason: Reason,
    ) -> Result<Effect, Error> {
        let known = self.connection_mut(id)?;
        let (state, ids) = (known.state, ids_of(known.remote_id, id.index));
        if !matches!(state, State::RequestSent | State::Lingering) {
            self.send_message(
                cx,
                id.index,
                &Message::RequestDisconnect { ids, abort: Some(reason) },
            );
        }
        if state == State::Lingering {
            return Ok(Effect::None);
        }
        let (connection, ended) = (id.index, Ended::Here);
        // Until the other side has heard it.
        let then = match state {
            State::RequestSent => RecordFate::Forgotten,
            _ => RecordFate::Repeats(reason),
        };
        Ok(Effect::ConnectionOver(ConnectionOver { connection, ended, why: Some(ended), then }))
    }

    /// If all that was under way is over, the end can be asked for or answered.
    pub(crate) fn disconnect_if_idle(&mut self, cx: &mut Context, index: u32) {
        if let Some(known) = self.connections.get(index) {
            if !matches!(known.state, State::Draining | State::PeerClosing) {
                return;
            }
            let is_idle = known.first_send == NONE
                && known.first_receive == NONE
                && known.reads_waiting == 0
                && known.remote.as_ref().is_none_or(|r| r.outgoing.operations.is_empty());
            if !is_idle {
                return;
            }
            let ids = ids_of(known.remote_id, index);
            let (next, message) = match known.state {
                State::Draining => {
                    (State::Closing, Message::RequestDisconnect { ids, abort: None })
                }
                _ => (State::Confirming, Message::DisconnectAnswer { ids }),
            };
            self.send_message(cx, index, &message);
            if let Some(known) = self.connections.get_mut(index) {
                known.state = next;
                known.retries = 0;
            }
            self.arm_connection(cx, index);
        }
    }

    /// Something of connections that are being closed has ended: was it the last?
    pub(crate) fn disconnect_idle(&mut self, cx: &mut Context) {
        while let Some(index) = self.connections.ending.pop() {
            self.disconnect_if_idle(cx, index);
        }
    }

    /// The other side wants the end of a connection.
    pub(crate) fn handle_disconnect_request(
        &mut self,
        cx: &mut Context,
        index: u32,
        abort: Option<Reason>,
    ) -> Result<Effect, Refusal> {
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        let (state, ids) = (known.state, ids_of(known.remote_id, index));
        let connection = self.id_of(index);
        if let Some(reason) = abort {
            self.send_message(cx, index, &Message::DisconnectComplete { ids });
            if state != State::Lingering {
                let ended = Ended::There(reason);
                let (why, then) = (Some(ended), RecordFate::Lingers);
                return Ok(Effect::ConnectionOver(ConnectionOver {
                    connection: index,
                    ended,
                    why,
                    then,
                }));
            }
            return Ok(Effect::None);
        }
        match state {
            State::RequestsCrossed | State::AnswerSent | State::Open => {
                match state {
                    State::AnswerSent => self.finish_accept(cx, index),
                    State::RequestsCrossed => self.finish_connect(cx, index),
                    _ => {}
                }
                self.set_state(index, State::PeerClosing);
                cx.emit(Event::Closing { connection });
                Ok(Effect::Closing { connection: index })
            }
            // Both sides want it: what is under way still goes on to its end.
            State::Draining => {
                self.set_state(index, State::PeerClosing);
                self.disconnect_if_idle(cx, index);
                Ok(Effect::None)
            }
            // Both sides asked: each answers the other.
            State::Closing => {
                self.send_message(cx, index, &Message::DisconnectAnswer { ids });
                Ok(Effect::None)
            }
            State::Confirming => {
                self.send_message(cx, index, &Message::DisconnectAnswer { ids });
                Err(Refusal::Duplicate)
            }
            State::Lingering => {
                self.send_message(cx, index, &Message::DisconnectComplete { ids });
                Err(Refusal::Duplicate)
            }
            State::PeerClosing => Err(Refusal::Duplicate),
            State::RequestSent | State::RequestReceived | State::Gone => Err(Refusal::Unexpected),
        }
    }

    /// All that was under way on a connection has ended, and then it does.
    pub(crate) fn finish(&mut self, cx: &mut Context, over: ConnectionOver) {
        let ConnectionOver { connection: index, why, then, .. } = over;
        self.report_closed(cx, index, why);
        match then {
            RecordFate::Forgotten => self.remove_connection(index),
            RecordFate::Lingers => self.linger(cx, index, None),
            RecordFate::Repeats(reason) => self.linger(cx, index, Some(reason)),
        }
    }

    /// The other side has nothing under way any more, either.
    pub(crate) fn handle_disconnect_answer(
        &mut self,
        cx: &mut Context,
        index: u32,
    ) -> Result<Effect, Refusal> {
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        let ids = ids_of(known.remote_id, index);
        match known.state {
            State::Closing | State::Confirming => {
                self.send_message(cx, index, &Message::DisconnectComplete { ids });
                Ok(Effect::ConnectionOver(ConnectionOver {
                    then: RecordFate::Lingers,
                    ..ConnectionOver::failed(index, None)
                }))
            }
            State::Lingering => {
                self.send_message(cx, index, &Message::DisconnectComplete { ids });
                Err(Refusal::Duplicate)
            }
            _ => Err(Refusal::Unexpected),
        }
    }

    /// The other side knows that it is over.
    pub(crate) fn handle_disconnect_complete(&self, index: u32) -> Result<Effect, Refusal> {
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        match known.state {
            State::Confirming | State::Closing => {
                Ok(Effect::ConnectionOver(ConnectionOver::failed(index, None)))
            }
            State::Lingering => Ok(Effect::Forgotten { connection: index }),
            _ => Err(Refusal::Unexpected),
        }
    }

    /// What was said last was not answered, or nothing was heard for an idle time.
    pub(crate) fn time_out_connection(&mut self, cx: &mut Context, index: u32) -> Effect {
        let limit = self.repetition_limit(cx);
        let Some(known) = self.connections.get_mut(index) else { return Effect::None };
        let ids = ids_of(known.remote_id, index);
        let (state, abort) = (known.state, known.abort);
        if matches!(state, State::Open | State::Draining | State::PeerClosing) {
            return self.check_alive(cx, index);
        }
        known.retries = known.retries.saturating_add(1);
        let is_late =
            state == State::RequestSent && known.heard + cx.config.connect_within <= cx.now;
        // What the other side has under way goes on to its end, however long that takes.
        let is_served = state == State::Closing && known.heard + limit > cx.now;
        if is_late
            || known.retries > cx.config.give_up_after && !is_served
            || matches!(state, State::AnswerSent | State::RequestReceived)
            || state == State::Lingering && abort.is_none()
        {
            return give_up(index, state);
        }
        match state {
            State::RequestSent | State::RequestsCrossed => {
                self.repeat_request(cx, index);
                return Effect::None;
            }
            State::Closing => {
                self.send_message(cx, index, &Message::RequestDisconnect { ids, abort: None });
                // Who has something under way answers this, and the other not yet.
                self.probe_alive(cx, index);
                self.suspect_move(cx, index);
            }
            State::Confirming => self.send_message(cx, index, &Message::DisconnectAnswer { ids }),
            State::Lingering => {
                self.send_message(cx, index, &Message::RequestDisconnect { ids, abort });
            }
            _ => {}
        }
        self.arm_connection(cx, index);
        Effect::None
    }

    /// It is over; for a while, the other side may ask again, or is told why we abort.
    fn linger(&mut self, cx: &mut Context, index: u32, abort: Option<Reason>) {
        if let Some(known) = self.connections.get_mut(index) {
            known.state = State::Lingering;
            known.abort = abort;
            known.retries = 0;
        }
        self.arm_connection(cx, index);
    }

    /// Tells the user, if it ever knew of the connection.
    fn report_closed(&mut self, cx: &mut Context, index: u32, why: Option<Ended>) {
        if self.connections.get(index).is_some_and(|known| known.is_told) {
            let connection = self.id_of(index);
            cx.emit(Event::Closed { connection, why });
        }
    }
}

/// What becomes of a connection on which nothing was answered often enough.
const fn give_up(connection: u32, state: State) -> Effect {
    match state {
        // The user was told.
        State::Lingering => Effect::Forgotten { connection },
        // All is over on both sides; only the last word was lost.
        State::Confirming => Effect::ConnectionOver(ConnectionOver::failed(connection, None)),
        _ => Effect::failed(connection, Ended::Silent),
    }
}

/// The identifiers of a connection, as its other side sees them.
pub(super) const fn ids_of(remote: u16, index: u32) -> Ids {
    Ids { d_id: remote, s_id: index as u16 }
}
