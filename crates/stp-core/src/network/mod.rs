//! Whom this host speaks with, and over what: paths, links over them, connections over those.
//!
//! | file | what happens there |
//! | --- | --- |
//! | this one | control messages go to the queue of a path |
//! | `paths` | paths come, change and go, and links with them |
//! | `room` | what a link carries and has room for |
//! | `crate::connection` | connections open, close, and are kept alive |
//! | `crate::size` | how long packets may be over a link |

mod paths;
pub(crate) mod room;

pub(crate) use paths::PathChange;

use alloc::vec::Vec;

use landfall_placement::{Area, PathId, Peer, Random, Refusal, Unit, assumed};

use crate::connection::{Connection, Connections, State};
use crate::context::Context;
use crate::error::Error;
use crate::ids::ConnectionId;
use crate::link::Links;
use crate::path::{Control, ControlTail, Path};
use crate::wire::message::Ids;
use crate::wire::proof::{self, Secret, Secrets};
use crate::wire::{Envelope, LONGEST_HEAD, Message, Reason};

/// As who a message leaves: the ports and keys in its head, and what proves that they are its
/// sender's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) envelope: Envelope,
    pub(crate) secrets: Secrets,
}

/// A control message that came over a link of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) unit: &'a Unit<'a>,
    pub(crate) connection: u32,
    pub(crate) message: &'a Message,
    /// What came behind it, where a Transfer is so short.
    pub(crate) payload: &'a [u8],
    /// It proves that it comes from the other side.
    pub(crate) has_proof: bool,
}

/// The other side says that it can be reached at the address that this came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewAddress {
    pub(crate) ids: Ids,
    /// The challenge that it was sent there, or anything else before it was sent one.
    pub(crate) token: u64,
    /// It is where it was no longer.
    pub(crate) has_moved: bool,
}

/// Paths, links and connections.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) paths: Vec<Path>,
    pub(crate) links: Links,
    pub(crate) connections: Connections,
    /// What challenges to new links are made with.
    pub(crate) link_secret: [Secret; 2],
    /// What packets are filled up with.
    pub(crate) padding: Option<Area>,
}

impl Network {
    pub(crate) fn new(links: Links, connections: Connections, random: &mut Random) -> Self {
        Self {
            paths: Vec::new(),
            links,
            connections,
            link_secret: [Secret(random.next_u64()), Secret(random.next_u64())],
            padding: None,
        }
    }

    #[inline]
    pub(crate) fn path_index(&self, path: PathId) -> Option<usize> {
        self.paths.iter().position(|known| known.id == path)
    }

    pub(crate) fn connection(&self, id: ConnectionId) -> Result<&Connection, Error> {
        let known = self.connections.table.named(id.index, id.generation);
        // Only drivers know one that is gone: its user was told that it is no more.
        known.filter(|known| known.state != State::Gone).ok_or(Error::Unknown)
    }

    pub(crate) fn connection_mut(&mut self, id: ConnectionId) -> Result<&mut Connection, Error> {
        self.connection(id)?;
        self.connections.get_mut(id.index).ok_or(Error::Unknown)
    }

    pub(crate) fn id_of(&self, index: u32) -> ConnectionId {
        ConnectionId::of(self.connections.table.key(index))
    }

    /// The connections that have a link. Rare: a link died or came back.
    pub(crate) fn users_of(&self, link: u32) -> Vec<u32> {
        let uses = |index: &u32| {
            self.connections.get(*index).is_some_and(|known| known.links().any(|own| own == link))
        };
        self.connections.table.indices().filter(uses).collect()
    }

    /// The connection that the key belongs to, if the ports are right too.
    pub(crate) fn connection_of(
        &self,
        envelope: Envelope,
        message: &Message,
    ) -> Result<u32, Refusal> {
        let index = self.connections.keys.get(envelope.d_key).ok_or(Refusal::WrongKey)?;
        let known = self.connections.get(index).ok_or(Refusal::WrongKey)?;
        if envelope.d_port != known.local_port {
            return Err(Refusal::WrongAddress);
        }
        // Who answers a request may do so from another port.
        let is_answer = matches!(message, Message::ConnectionAnswer { .. });
        if envelope.s_port != known.remote_port && !is_answer {
            return Err(Refusal::WrongAddress);
        }
        Ok(index)
    }

    /// The link of a connection that a packet came over, if it is one of them.
    pub(crate) fn link_from(&self, connection: u32, path: u8, from: Peer) -> Option<u32> {
        let is_it = |link: &u32| {
            self.links.get(*link).is_some_and(|link| link.path == path && link.peer == from)
        };
        self.connections.get(connection)?.links().find(is_it)
    }

    /// Does a packet come from the other side of its connection? Says whether it
    /// proves that, or is of those that carry no proof.
    pub(crate) fn check_proof(
        &self,
        connection: u32,
        head: &[u8],
        message: &Message,
    ) -> Result<bool, Refusal> {
        let known = self.connections.get(connection).ok_or(Refusal::UnknownId)?;
        // Who speaks an older version says so, and knows of no proofs.
        let is_older = known.state == State::RequestSent
            && matches!(
                message,
                Message::ConnectionAnswer { result: Err(Reason::Incompatible), .. }
            );
        match proof::check(head, known.secrets_in()) {
            proof::Verdict::Right => Ok(true),
            proof::Verdict::Without => Ok(false),
            proof::Verdict::Missing if is_older => Ok(false),
            proof::Verdict::Missing | proof::Verdict::Wrong => Err(Refusal::BadProof),
        }
    }

    /// Queues a message on the first link of the connection that is up. If
    /// there is none, or no room to wait, it is as if it were lost on the way:
    /// anyone who needs an answer asks again.
    pub(crate) fn send_message(&mut self, cx: &mut Context, connection: u32, message: &Message) {
        if let Some(link) = self.link_for_control(connection) {
            self.send_message_over(cx, link, connection, message);
        }
    }

    /// The link that control messages of a connection take.
    pub(crate) fn link_for_control(&self, connection: u32) -> Option<u32> {
        let known = self.connections.get(connection)?;
        let is_up = |link: &u32| self.links.get(*link).is_some_and(|link| link.is_up);
        Some(known.known_links().find(is_up).unwrap_or(known.link))
    }

    /// Queues a message on one link.
    pub(crate) fn send_message_over(
        &mut self,
        cx: &mut Context,
        link: u32,
        connection: u32,
        message: &Message,
    ) {
        self.send_message_with(cx, link, connection, message, ControlTail::Nothing);
    }

    /// Queues a message on one link, with something behind it.
    pub(crate) fn send_message_with(
        &mut self,
        cx: &mut Context,
        link: u32,
        connection: u32,
        message: &Message,
        behind: ControlTail,
    ) {
        let Some(known) = self.connections.assumed(connection) else { return };
        // The other side has forgotten it: only a driver is still at something.
        if known.state == State::Gone {
            return;
        }
        let sender = known.as_sender();
        let Some(link) = self.links.assumed(link) else { return };
        let (path, to) = (usize::from(link.path), link.peer);
        self.queue_control(cx, path, to, sender, message, behind);
    }

    /// Queues a message to somebody, who need not have a connection.
    pub(crate) fn send_message_to(
        &mut self,
        cx: &mut Context,
        path: usize,
        to: Peer,
        sender: Sender,
        message: &Message,
    ) {
        self.queue_control(cx, path, to, sender, message, ControlTail::Nothing);
    }

    /// The same with something behind it.
    pub(crate) fn queue_control(
        &mut self,
        cx: &mut Context,
        path: usize,
        to: Peer,
        sender: Sender,
        message: &Message,
        behind: ControlTail,
    ) {
        let Some(path) =
            assumed(self.paths.get_mut(path), "what is sent goes over a path that is known")
        else {
            return;
        };
        if path.control.len() >= cx.config.queue || path.limits.is_none() {
            cx.stats.control_dropped += 1;
            return;
        }
        let mut bytes = [0; LONGEST_HEAD];
        if let Some(len) = message.encode(sender.envelope, &mut bytes) {
            proof::seal(&mut bytes[..len], sender.secrets);
            path.control.push_back(Control { to, len: len as u8, bytes, behind });
        }
    }

    /// Is there room for messages on the path of a link?
    pub(crate) fn can_send_over(&self, cx: &Context, link: u32) -> bool {
        let Some(link) = self.links.assumed(link) else { return false };
        let path = &self.paths[usize::from(link.path)];
        path.limits.is_some() && path.has_room_for_grants(cx.config.queue)
    }
}
