//! A message to the other side of a connection.

use landfall_placement::Peer;

use super::Endpoint;
use crate::connection::State;
use crate::path::Control;
use crate::wire::proof::{self, Secrets};
use crate::wire::{Envelope, LONGEST_HEAD, Message};

impl Endpoint {
    /// Queues a message on the first link of the connection that is up. If
    /// there is none, or no room to wait, it is as if it were lost on the way:
    /// whoever needs an answer asks again.
    pub(crate) fn say(&mut self, connection: u32, message: &Message) {
        let Some(known) = self.connections.get(connection) else { return };
        let is_up = |link: &u32| self.links.get(*link).is_some_and(|link| link.is_up);
        let link = known.known_links().find(is_up).unwrap_or(known.link);
        self.say_over(link, connection, message);
    }

    /// Queues a message on one link.
    pub(crate) fn say_over(&mut self, link: u32, connection: u32, message: &Message) {
        let Some(known) = self.connections.get(connection) else { return };
        // The other side has forgotten it: only a driver is still at something.
        if known.state == State::Gone {
            return;
        }
        let envelope = known.envelope();
        let secrets = known.secrets_out();
        let Some(link) = self.links.get(link) else { return };
        let (path, to) = (usize::from(link.path), link.peer);
        self.say_to(path, to, envelope, secrets, message);
    }

    /// Queues a message to somebody, who need not have a connection.
    pub(crate) fn say_to(
        &mut self,
        path: usize,
        to: Peer,
        envelope: Envelope,
        secrets: Secrets,
        message: &Message,
    ) {
        self.say_filled(path, to, (envelope, secrets), message, 0);
    }

    /// The same with so many bytes behind it that mean nothing.
    pub(crate) fn say_filled(
        &mut self,
        path: usize,
        to: Peer,
        (envelope, secrets): (Envelope, Secrets),
        message: &Message,
        filled: u32,
    ) {
        let Some(path) = self.paths.get_mut(path) else { return };
        if path.control.len() >= self.config.queue || path.limits.is_none() {
            self.stats.control_dropped += 1;
            return;
        }
        let mut bytes = [0; LONGEST_HEAD];
        if let Some(len) = message.encode(envelope, &mut bytes) {
            proof::seal(&mut bytes[..len], secrets);
            path.control.push_back(Control { to, len: len as u8, bytes, filled });
        }
    }

    /// Is there room for messages on the path of a link?
    pub(crate) fn can_say_over(&self, link: u32) -> bool {
        let Some(link) = self.links.get(link) else { return false };
        let path = &self.paths[usize::from(link.path)];
        path.limits.is_some() && path.has_room_for_grants(self.config.queue)
    }
}
