//! What a sender repeats when nothing was heard.
//!
//! Once the receiver has answered, it grants when it likes; a sender that
//! hears nothing for long asks how things stand. That also finds the final
//! acknowledgement that was lost, and a receiver that fell silent.

use landfall_placement::{Duration, Instant};

use super::State;
use crate::endpoint::Endpoint;
use crate::error::Ended;
use crate::wire::message::{Ids, Message, Question};

impl Endpoint {
    /// After how long without a word the sender asks: some round trips, for
    /// the receiver may have others to grant to.
    pub(super) fn patience_of_sender(&self, connection: u32) -> Duration {
        self.patience(connection, 2)
    }

    pub(crate) fn time_out_send(&mut self, now: Instant, index: u32) {
        let Some(send) = self.sends.get_mut(index) else { return };
        send.retries = send.retries.saturating_add(1);
        let (retries, state, connection) = (send.retries, send.state, send.connection);
        let (serial, peer_id) = (send.serial, send.peer_id);
        if self.gives_up(now, connection, retries) {
            let why = if let State::Ending(why) = state { why } else { Ended::Silent };
            self.leave_send_unsettled(connection, serial);
            self.finish_send(index, Err(why));
            self.disconnect_if_idle(now, connection);
            return;
        }
        match state {
            State::Asking => self.request_to_send(index),
            State::Heard => {
                let ids = Ids { d_id: peer_id, s_id: index as u16 };
                let question = Question::Transfer { ids, serial };
                self.say(connection, &Message::RequestState(question));
            }
            State::Ending(_) => self.say_end(index),
            State::Over(_) => return,
        }
        self.send_timers.set(index, now + self.patience(connection, retries));
    }
}
