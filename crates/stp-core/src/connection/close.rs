//! Tear-down: Request_Disconnect, Disconnect_Answer, Disconnect_Complete; and
//! what the end of a connection ends with it.

use landfall_placement::{Duration, Instant, Refusal};

use super::{Connection, NONE, State};
use crate::endpoint::Endpoint;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ConnectionId;
use crate::wire::Reason;
use crate::wire::message::{Ids, Message};

impl Endpoint {
    /// Closes a connection: nothing new begins on it, what is under way goes on
    /// to its end, then both sides forget it. [`Event::Closed`] follows.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn close(&mut self, now: Instant, id: ConnectionId) -> Result<(), Error> {
        let known = self.connection_mut(id)?;
        match known.state {
            State::Opening | State::Met | State::Asked => {
                self.abort(now, id, Reason::Cancelled)?;
            }
            State::Open | State::Answered => {
                known.state = State::Draining;
                self.end_offers(id.index);
                self.disconnect_if_idle(now, id.index);
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a connection at once, with all that is under way on it.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn abort(&mut self, now: Instant, id: ConnectionId, reason: Reason) -> Result<(), Error> {
        let known = self.connection_mut(id)?;
        let (state, ids) = (known.state, ids_of(known.remote_id, id.index));
        if !matches!(state, State::Opening | State::Lingering) {
            self.say(id.index, &Message::RequestDisconnect { ids, abort: Some(reason) });
        }
        if state == State::Lingering {
            return Ok(());
        }
        self.end_all(id.index, Ended::Here);
        self.tell(Event::Closed { connection: id, why: Some(Ended::Here) });
        if state == State::Opening {
            self.remove_connection(id.index);
        } else if let Some(known) = self.connections.get_mut(id.index) {
            // Until the other side has heard it.
            known.state = State::Lingering;
            known.abort = Some(reason);
            known.retries = 0;
            self.arm_connection(now, id.index);
        }
        Ok(())
    }

    /// What was offered and not accepted is not accepted any more.
    fn end_offers(&mut self, index: u32) {
        for receive in self.receives_of(index) {
            let is_offered = self
                .receives
                .get(receive)
                .is_some_and(|known| known.state == crate::receive::State::Offered);
            if is_offered {
                self.reject_offer(receive, Reason::Closing);
            }
        }
    }

    /// If all that was under way is over, the end can be asked for or answered.
    pub(crate) fn disconnect_if_idle(&mut self, now: Instant, index: u32) {
        let Some(known) = self.connections.get(index) else { return };
        let is_idle = known.first_send == NONE
            && known.first_receive == NONE
            && known.reads_waiting == 0
            && known.remote.as_ref().is_none_or(|r| r.outgoing.operations.is_empty());
        if !is_idle {
            return;
        }
        let ids = ids_of(known.remote_id, index);
        let (next, message) = match known.state {
            State::Draining => (State::Closing, Message::RequestDisconnect { ids, abort: None }),
            State::Asking => (State::Confirming, Message::DisconnectAnswer { ids }),
            _ => return,
        };
        self.say(index, &message);
        if let Some(known) = self.connections.get_mut(index) {
            known.state = next;
            known.retries = 0;
        }
        self.arm_connection(now, index);
    }

    /// Something of connections that are being closed has ended: was it the last?
    pub(crate) fn disconnect_idle(&mut self, now: Instant) {
        while let Some(index) = self.connections.ending.pop() {
            self.disconnect_if_idle(now, index);
        }
    }

    pub(crate) fn take_disconnect_request(
        &mut self,
        now: Instant,
        index: u32,
        abort: Option<Reason>,
    ) -> Result<(), Refusal> {
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        let (state, ids) = (known.state, ids_of(known.remote_id, index));
        let connection = self.id_of(index);
        if let Some(reason) = abort {
            self.say(index, &Message::DisconnectComplete { ids });
            if state != State::Lingering {
                self.end_all(index, Ended::There(reason));
                self.tell_closed(index, Some(Ended::There(reason)));
                self.linger(now, index);
            }
            return Ok(());
        }
        match state {
            State::Met | State::Answered | State::Open => {
                match state {
                    State::Answered => self.finish_accept(now, index),
                    State::Met => self.finish_connect(now, index),
                    _ => {}
                }
                self.set_state(index, State::Asking);
                self.tell(Event::Closing { connection });
                self.end_offers(index);
                self.disconnect_if_idle(now, index);
                Ok(())
            }
            // Both sides want it: what is under way still goes on to its end.
            State::Draining => {
                self.set_state(index, State::Asking);
                self.disconnect_if_idle(now, index);
                Ok(())
            }
            // Both sides asked: each answers the other.
            State::Closing => {
                self.say(index, &Message::DisconnectAnswer { ids });
                Ok(())
            }
            State::Confirming => {
                self.say(index, &Message::DisconnectAnswer { ids });
                Err(Refusal::Duplicate)
            }
            State::Lingering => {
                self.say(index, &Message::DisconnectComplete { ids });
                Err(Refusal::Duplicate)
            }
            State::Asking => Err(Refusal::Duplicate),
            State::Opening | State::Asked | State::Gone => Err(Refusal::Unexpected),
        }
    }

    pub(crate) fn take_disconnect_answer(
        &mut self,
        now: Instant,
        index: u32,
    ) -> Result<(), Refusal> {
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        let ids = ids_of(known.remote_id, index);
        match known.state {
            State::Closing | State::Confirming => {
                self.say(index, &Message::DisconnectComplete { ids });
                let connection = self.id_of(index);
                self.end_all(index, Ended::ConnectionGone);
                self.tell(Event::Closed { connection, why: None });
                self.linger(now, index);
                Ok(())
            }
            State::Lingering => {
                self.say(index, &Message::DisconnectComplete { ids });
                Err(Refusal::Duplicate)
            }
            _ => Err(Refusal::Unexpected),
        }
    }

    pub(crate) fn take_disconnect_complete(&mut self, index: u32) -> Result<(), Refusal> {
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        match known.state {
            State::Confirming | State::Closing => {
                let connection = self.id_of(index);
                self.end_all(index, Ended::ConnectionGone);
                self.tell(Event::Closed { connection, why: None });
                self.remove_connection(index);
                Ok(())
            }
            State::Lingering => {
                self.remove_connection(index);
                Ok(())
            }
            _ => Err(Refusal::Unexpected),
        }
    }

    /// It is over; for a while, the other side may ask again.
    fn linger(&mut self, now: Instant, index: u32) {
        if let Some(known) = self.connections.get_mut(index) {
            known.state = State::Lingering;
            known.abort = None;
            known.retries = 0;
        }
        self.arm_connection(now, index);
    }

    pub(super) fn set_state(&mut self, index: u32, state: State) {
        if let Some(known) = self.connections.get_mut(index) {
            known.state = state;
        }
    }

    /// Ends the connection without a word.
    pub(crate) fn fail_connection(&mut self, index: u32, why: Option<Ended>) {
        self.end_all(index, Ended::ConnectionGone);
        self.tell_closed(index, why);
        self.remove_connection(index);
    }

    /// Tells the user, if it ever knew of the connection.
    fn tell_closed(&mut self, index: u32, why: Option<Ended>) {
        if self.connections.get(index).is_some_and(|known| known.is_told) {
            let connection = self.id_of(index);
            self.tell(Event::Closed { connection, why });
        }
    }

    /// Everything on a connection ends. What a driver still holds is given back
    /// when it lets go.
    fn end_all(&mut self, index: u32, why: Ended) {
        for send in self.sends_of(index) {
            self.end_send(send, why);
        }
        for receive in self.receives_of(index) {
            self.end_receive(receive, why);
        }
        self.end_posted(index, why);
        self.end_reads(index);
        self.end_regions(index, why);
    }

    /// Nothing finds a connection any more. It is forgotten once no driver
    /// holds memory of it.
    pub(crate) fn remove_connection(&mut self, index: u32) {
        self.forget_opening(index);
        self.connections.timers.remove(index);
        self.stream_timers.remove(index);
        let Some(known) = self.connections.get(index) else { return };
        let (local, remote) = (known.local_key, (known.link, known.remote_key));
        let came_in = known.came_in;
        self.connections.keys.remove(local);
        if remote.1 != 0 {
            self.connections.by_remote.remove(&remote);
        }
        if came_in {
            self.connections.half_open.retain(|half_open| half_open.0 != index);
        }
        self.set_state(index, State::Gone);
        self.remove_if_gone(index);
    }

    /// Something of a connection was given back: was that the last?
    pub(crate) fn remove_if_gone(&mut self, index: u32) {
        let state = self.connections.get(index).map(|known| known.state);
        if matches!(state, Some(State::Draining | State::Asking))
            && !self.connections.ending.contains(&index)
        {
            self.connections.ending.push(index);
        }
        let is_left = |known: &Connection| known.state != State::Gone || known.is_in_use();
        if self.connections.get(index).is_none_or(is_left) {
            return;
        }
        let Some(known) = self.connections.table.remove(index) else { return };
        for link in known.links() {
            self.leave_link(link);
        }
    }

    /// How long until what was said last is repeated, or the connection forgotten.
    pub(crate) fn arm_connection(&mut self, now: Instant, index: u32) {
        let Some(known) = self.connections.get(index) else { return };
        let again = self.retry_after(known.retries);
        let after = match known.state {
            State::Gone => return,
            // Nothing was heard yet: that is when it was asked for.
            State::Opening => {
                let until = known.heard + self.config.connect_within;
                if until > now { again.min(until.since(now)) } else { again }
            }
            State::Met | State::Closing | State::Confirming => again,
            State::Asked | State::Answered => self.repetition_limit(),
            State::Open | State::Draining | State::Asking => match self.config.keep_alive {
                // Not proved alive yet: sooner.
                _ if known.retries > 0 => again,
                Some(idle) => idle,
                None => {
                    self.connections.timers.remove(index);
                    return;
                }
            },
            State::Lingering if known.abort.is_some() => again,
            State::Lingering => self.config.retry_after * 32,
        };
        self.connections.timers.set(index, now + after);
    }

    /// After how long something that was repeated so often is repeated again on
    /// an open connection: as its round trips say, once they are known.
    pub(crate) fn patience(&self, connection: u32, retries: u8) -> Duration {
        let link = self.connections.get(connection).and_then(|known| self.links.get(known.link));
        let (retry_after, floor) = (self.config.retry_after, self.config.retry_floor);
        let base = link.map_or(retry_after, |link| link.time_out(retry_after, floor));
        base.saturating_mul(1 << retries.min(6)).min(self.retry_after(4))
    }

    /// Is it time to give up what was repeated so often? If the other side is
    /// heard, and only does not answer this, it gets much longer.
    pub(crate) fn gives_up(&self, now: Instant, connection: u32, retries: u8) -> bool {
        let limit = self.config.silence();
        let heard = self.connections.get(connection).map(|known| known.heard + limit);
        retries >= self.config.give_up_after.saturating_mul(8)
            || retries > self.config.give_up_after && heard.is_none_or(|until| until < now)
    }

    /// How long every repetition of something takes, at the longest.
    fn repetition_limit(&self) -> Duration {
        self.config.retry_after * 16 * u32::from(self.config.give_up_after)
    }

    /// After how long something that was repeated so often is repeated again.
    pub(crate) fn retry_after(&self, retries: u8) -> Duration {
        self.config.retry_after.saturating_mul(1 << retries.min(4))
    }

    pub(crate) fn time_out_connection(&mut self, now: Instant, index: u32) {
        let limit = self.repetition_limit();
        let Some(known) = self.connections.get_mut(index) else { return };
        let ids = ids_of(known.remote_id, index);
        let (state, abort) = (known.state, known.abort);
        if matches!(state, State::Open | State::Draining | State::Asking) {
            return self.check_alive(now, index);
        }
        known.retries = known.retries.saturating_add(1);
        let is_late = state == State::Opening && known.heard + self.config.connect_within <= now;
        // What the other side has under way goes on to its end, however long that takes.
        let is_served = state == State::Closing && known.heard + limit > now;
        if is_late
            || known.retries > self.config.give_up_after && !is_served
            || matches!(state, State::Answered | State::Asked)
            || state == State::Lingering && abort.is_none()
        {
            return self.give_up(index, state);
        }
        match state {
            State::Opening | State::Met => return self.repeat_request(now, index),
            State::Closing => {
                self.say(index, &Message::RequestDisconnect { ids, abort: None });
                // Who has something under way answers this, and the other not yet.
                self.ask_alive(now, index);
                self.suspect_move(now, index);
            }
            State::Confirming => self.say(index, &Message::DisconnectAnswer { ids }),
            State::Lingering => self.say(index, &Message::RequestDisconnect { ids, abort }),
            _ => {}
        }
        self.arm_connection(now, index);
    }

    fn give_up(&mut self, index: u32, state: State) {
        match state {
            // The user was told.
            State::Lingering => self.remove_connection(index),
            // All is over on both sides; only the last word was lost.
            State::Confirming => self.fail_connection(index, None),
            _ => self.fail_connection(index, Some(Ended::Silent)),
        }
    }
}

/// The identifiers of a connection, as its other side sees them.
pub(super) const fn ids_of(remote: u16, index: u32) -> Ids {
    Ids { d_id: remote, s_id: index as u16 }
}
