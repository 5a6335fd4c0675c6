//! What users of queue pairs do.

use std::net::SocketAddr;

use qpip::{Access, PostError, SendWork, Service};

use super::disk::{Conversation, DISK};
use super::truth::{Connection, Datagram, mapping};
use super::{POSTED, Qpip, setup};
use crate::ctx::{Ctx, pattern};
use crate::datagram;

/// This many connections are begun at most.
const MOST: usize = 64;
/// The port that the first connection is listened for at.
const FIRST_PORT: u16 = 2_000;

impl Qpip {
    pub(super) fn send(&mut self, ctx: &mut Ctx, from: u8, to: u8, kind: u8, len: u32) {
        let is_it = |known: &Connection| {
            let is_between = known.joins(from) && known.joins(to) && known.kind == kind;
            is_between && known.takes(known.side(from))
        };
        let known = self.connections.iter().position(is_it);
        let Some(name) = known.or_else(|| self.connect(ctx, from, to, kind)) else { return };
        let side = self.connections[name].side(from);
        let bytes = stream(name, side, self.connections[name].directions[side].sent, len as usize);
        if let Err(Some(error)) = self.post(ctx, name, side, &bytes) {
            // Of one segment each, messages are as long as the other side takes.
            let allowed = matches!(error, PostError::QueueFull | PostError::Ended)
                || error == PostError::TooLong && kind % 3 == 2;
            if !allowed {
                ctx.fail(from, &format!("post_send says: {error}"));
            }
        }
    }

    /// Posts a message of a connection. Without an error there is no queue pair for it any more.
    pub(super) fn post(
        &mut self,
        ctx: &mut Ctx,
        name: usize,
        side: usize,
        bytes: &[u8],
    ) -> Result<(), Option<PostError>> {
        let host = self.connections[name].host(side);
        let pair = self.connections[name].pairs[side].ok_or(None)?;
        let (id, buffer) = self.give(ctx, host, bytes, Access::Read).ok_or(None)?;
        let (now, parts) = (ctx.now(), [buffer]);
        let work = SendWork { id, from: &parts, to: None, is_signaled: true, immediate: None };
        if let Err(error) = self.engine(ctx, host).post_send(now, pair, &work) {
            self.regain(ctx, host, id, false);
            return Err(Some(error));
        }
        let direction = &mut self.connections[name].directions[side];
        direction.messages.push(bytes.len() as u32);
        direction.posted.push_back(id);
        direction.sent += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn connect(&mut self, ctx: &mut Ctx, from: u8, to: u8, kind: u8) -> Option<usize> {
        let name = self.connections.len();
        if name >= MOST {
            return None;
        }
        let local = SocketAddr::new(datagram::ip(to, false), FIRST_PORT + name as u16);
        let service = Service::Tcp(mapping(kind));
        let [here, there] = [from, to].map(|host| {
            let (domain, queue) = (self.known(host).domain, self.known(host).queue);
            self.engine(ctx, host).create_queue_pair(&setup(domain, queue, service)).ok()
        });
        let (here, there) = (here?, there?);
        let listener = self.engine(ctx, to).listen(local).ok()?;
        let offered = self.engine(ctx, to).offer(listener, there);
        let now = ctx.now();
        let asked = self.engine(ctx, from).connect(now, here, None, local);
        if let Err(error) = offered.and(asked) {
            ctx.fail(from, &format!("a connection cannot be asked for: {error}"));
            return None;
        }
        ctx.note(from, || format!("asks {to} for a connection, {:?}", mapping(kind)));
        ctx.count("qpip connect");
        self.known_mut(from).pairs.insert(here, name);
        self.known_mut(to).pairs.insert(there, name);
        let mut connection = Connection::new(from, to, kind, [here, there], listener);
        connection.talk = (kind == DISK).then(|| Box::new(Conversation::new(name)));
        self.connections.push(connection);
        self.feed(ctx, from, here, POSTED);
        self.feed(ctx, to, there, POSTED);
        Some(name)
    }

    pub(super) fn shut(&mut self, ctx: &mut Ctx, from: u8, to: u8, kind: u8, at_once: bool) {
        let is_it = |known: &Connection| {
            let is_between = known.joins(from) && known.joins(to) && known.kind == kind;
            is_between && known.takes(known.side(from))
        };
        let Some(name) = self.connections.iter().position(is_it) else { return };
        let side = self.connections[name].side(from);
        if self.connections[name].is_up[side] {
            self.shut_side(ctx, name, side, at_once);
        }
    }

    /// A side sends no more, or ends the connection.
    pub(super) fn shut_side(&mut self, ctx: &mut Ctx, name: usize, side: usize, at_once: bool) {
        let connection = &mut self.connections[name];
        let Some(pair) = connection.pairs[side].filter(|_| connection.is_there(side)) else {
            return;
        };
        if connection.directions[side].is_shut && !at_once {
            return;
        }
        connection.directions[side].is_shut = true;
        connection.is_gone |= at_once;
        let is_up = connection.is_up[side];
        let (host, now) = (connection.host(side), ctx.now());
        let engine = self.engine(ctx, host);
        let result = match at_once {
            true => engine.abort(now, pair),
            // One that waits for a connection has none to say it on.
            false if !is_up && side == 1 => engine.destroy_queue_pair(now, pair),
            false => engine.shutdown(now, pair),
        };
        ctx.note(host, || format!("shuts {pair} down, at once: {at_once}"));
        match result {
            Ok(()) if !is_up && side == 1 && !at_once => self.connections[name].is_closed[1] = true,
            Ok(()) => {}
            Err(error) => ctx.fail(host, &format!("shutdown says: {error}")),
        }
    }

    pub(super) fn send_datagram(
        &mut self,
        ctx: &mut Ctx,
        from: u8,
        to: u8,
        speculates: bool,
        len: u16,
    ) {
        let name = self.datagrams.len() as u64;
        let bytes = datagram_bytes(name, len);
        let pair = self.known(from).datagrams;
        let Some((id, buffer)) = self.give(ctx, from, &bytes, Access::Read) else { return };
        let (now, parts) = (ctx.now(), [buffer]);
        let to_address = SocketAddr::new(datagram::ip(to, speculates), datagram::PORT);
        let work =
            SendWork { id, from: &parts, to: Some(to_address), is_signaled: true, immediate: None };
        match self.engine(ctx, from).post_send(now, pair, &work) {
            Ok(()) => self.datagrams.push(Datagram { to, speculates, len, came: 0 }),
            Err(error) => {
                self.regain(ctx, from, id, false);
                if error != PostError::QueueFull {
                    ctx.fail(from, &format!("post_send of a datagram says: {error}"));
                }
            }
        }
    }

    /// How many datagrams came of those that were sent from this one on.
    pub(crate) fn datagrams_came(&self, from: usize) -> (usize, usize) {
        let sent = self.datagrams.get(from..).unwrap_or(&[]);
        (sent.iter().filter(|one| one.came > 0).count(), sent.len())
    }

    pub(crate) fn datagrams_sent(&self) -> usize {
        self.datagrams.len()
    }
}

/// The bytes of a direction of a connection, from a position on.
pub(super) fn stream(name: usize, side: usize, from: u64, len: usize) -> Vec<u8> {
    let salt = (name as u64) << 1 | side as u64;
    let byte = |at: u64| {
        let word = (salt + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at >> 3);
        let word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
        (word ^ word >> 31).to_le_bytes()[(at & 7) as usize]
    };
    (from..from + len as u64).map(byte).collect()
}

/// The bytes of a datagram: its number, then what no other has.
pub(super) fn datagram_bytes(name: u64, len: u16) -> Vec<u8> {
    let mut bytes = pattern(name ^ 0xd46a, len.into());
    bytes[..8].copy_from_slice(&name.to_le_bytes());
    bytes
}
