//! The record of a connection: entered, timed, and removed once nobody needs it.

use landfall_placement::{Duration, assumed};

use super::{Connection, State};
use crate::context::Context;
use crate::ids::ConnectionId;
use crate::network::Network;
use crate::wire::proof::Secret;

impl Network {
    pub(crate) fn add_connection(
        &mut self,
        cx: &mut Context,
        state: State,
        link: u32,
    ) -> ConnectionId {
        let key = self.connections.draw_key(&mut cx.random);
        let (secret, mask) = (Secret(cx.random.next_u64()), cx.random.next_u32());
        let known = Connection::new(state, link, key, secret, mask, cx.now);
        let Some(entry) = self.connections.table.insert(known) else {
            unreachable!("the caller has seen that there is room");
        };
        self.connections.keys.insert(key, entry.index);
        ConnectionId::of(entry)
    }

    pub(crate) fn set_state(&mut self, index: u32, state: State) {
        if let Some(known) = self.connections.get_mut(index) {
            known.state = state;
        }
    }

    /// It is not being opened any more.
    pub(crate) fn forget_opening(&mut self, index: u32) {
        self.connections.unanswered.retain(|unanswered| *unanswered != index);
        let Some(known) = self.connections.assumed(index) else { return };
        let ports = (known.link, known.local_port, known.remote_port);
        if self.connections.opening.get(&ports) == Some(&index) {
            self.connections.opening.remove(&ports);
        }
    }

    /// Nothing finds a connection any more. It is forgotten once no driver
    /// holds memory of it.
    pub(crate) fn remove_connection(&mut self, index: u32) {
        self.forget_opening(index);
        self.connections.timers.remove(index);
        let Some(known) = self.connections.assumed(index) else { return };
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
        let Some(known) = self.connections.assumed(index) else { return };
        match known.state {
            State::Draining | State::PeerClosing if !self.connections.ending.contains(&index) => {
                self.connections.ending.push(index);
            }
            State::Gone if !known.is_in_use() => {
                let Some(known) =
                    assumed(self.connections.table.remove(index), "it was looked at just above")
                else {
                    return;
                };
                for link in known.links() {
                    self.leave_link(link);
                }
            }
            _ => {}
        }
    }

    /// How long until what was said last is repeated, or the connection forgotten.
    pub(crate) fn arm_connection(&mut self, cx: &mut Context, index: u32) {
        let Some(known) = self.connections.assumed(index) else { return };
        let again = self.retry_after(cx, known.retries);
        let after = match known.state {
            State::Gone => return,
            // Nothing was heard yet: that is when it was asked for.
            State::RequestSent => {
                let until = known.heard + cx.config.connect_within;
                if until > cx.now { again.min(until.since(cx.now)) } else { again }
            }
            State::RequestsCrossed | State::Closing | State::Confirming => again,
            State::RequestReceived | State::AnswerSent => self.repetition_limit(cx),
            State::Open | State::Draining | State::PeerClosing => match cx.config.keep_alive {
                // Not proved alive yet: sooner.
                _ if known.retries > 0 => again,
                _ if known.is_held_up() => cx.config.retry_after,
                Some(idle) => idle,
                None => {
                    self.connections.timers.remove(index);
                    return;
                }
            },
            State::Lingering if known.abort.is_some() => again,
            State::Lingering => cx.config.retry_after * 32,
        };
        self.connections.timers.set(index, cx.now + after);
    }

    /// After how long something that was repeated so often is repeated again on
    /// an open connection: as its round trips say, once they are known.
    pub(crate) fn patience(&self, cx: &Context, connection: u32, retries: u8) -> Duration {
        let link = self.connections.get(connection).and_then(|known| self.links.get(known.link));
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let base = link.map_or(retry_after, |link| link.time_out(retry_after, floor));
        base.saturating_mul(1 << retries.min(6)).min(self.retry_after(cx, 4))
    }

    /// How long a word and its answer take on a connection, usually.
    pub(crate) fn round_trip(&self, cx: &Context, connection: u32) -> Duration {
        let link = self.connections.get(connection).and_then(|known| self.links.get(known.link));
        let measured = link.and_then(|link| link.window.rtt().smoothed());
        measured.unwrap_or(cx.config.retry_floor)
    }

    /// Is it time to give up what was repeated so often?
    pub(crate) fn gives_up(&self, cx: &Context, connection: u32, retries: u8) -> bool {
        let limit = cx.config.silence();
        let known = self.connections.get(connection);
        cx.config.gives_up(retries, known.is_some_and(|known| known.heard + limit >= cx.now))
    }

    /// How long every repetition of something takes, at the longest.
    pub(crate) fn repetition_limit(&self, cx: &Context) -> Duration {
        cx.config.retry_after * 16 * u32::from(cx.config.give_up_after)
    }

    /// After how long something that was repeated so often is repeated again.
    pub(crate) fn retry_after(&self, cx: &Context, retries: u8) -> Duration {
        cx.config.retry_after.saturating_mul(1 << retries.min(4))
    }
}
