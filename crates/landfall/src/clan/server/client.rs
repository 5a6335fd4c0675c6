//! [`Client`]: calls the server, and spins until the reply is there; and [`Shape`]: where
//! messages and their flags lie in the memory of one direction.

use std::ops::Range;
use std::time::Instant;

use clan_dsm::{Access, Cookie, Notice, PortAddress, Rights};

use crate::clan::error::ended;
use crate::clan::messaging::{Endpoint as _, Messaging};
use crate::clan::network::Node;
use crate::clan::{Error, Local, Misbehaviour, Remote, Tripwire as _, WORD};

/// A connection to a [`Server`](super::Server).
#[derive(Debug)]
pub struct Client<N: Messaging = Node> {
    node: N,
    endpoint: N::Endpoint,
    shape: Shape,
    /// Where replies are written.
    memory: N::Local,
    tripwire: N::Tripwire,
    /// Where requests are written.
    window: N::Remote,
    sent: u64,
    answered: u64,
    /// A request in whole words.
    words: Vec<u8>,
}

impl<N: Messaging> Client<N> {
    /// Connects. Over a network a link to the host is there already.
    ///
    /// # Errors
    /// [`Error::NoRoute`] without a link, [`Error::Refused`], [`Error::TimedOut`].
    pub fn connect(
        node: &N,
        to: PortAddress,
        shape: Shape,
        deadline: Option<Instant>,
    ) -> Result<Self, Error> {
        shape.check()?;
        let (memory, cookie) = node.expose(shape.bytes(), Rights::Write)?;
        let endpoint = node.endpoint(None)?;
        endpoint.connect(to, shape.greeting(&cookie))?;
        let theirs = loop {
            match endpoint.wait_next(deadline)?.ok_or(Error::TimedOut)? {
                Notice::Accepted { body, .. } => break shape.greeted(&body)?,
                Notice::Ended { why, .. } => return Err(ended(why)),
                Notice::Undelivered { reason, .. } => return Err(Error::Refused(reason)),
                _ => {}
            }
        };
        let window = node.map(&theirs)?;
        let tripwire = node.watch(&memory, 0..shape.flags(), Access::Write, Some(&window))?;
        let node = node.clone();
        let (sent, answered, words) = (0, 0, Vec::new());
        Ok(Self { node, endpoint, shape, memory, tripwire, window, sent, answered, words })
    }

    /// Requests that wait for a reply.
    #[must_use]
    pub const fn under_way(&self) -> u64 {
        self.sent - self.answered
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`Error::Busy`]: as many wait for a reply as may, or the send buffer is full.
    pub fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        self.post(request)?;
        self.window.commit()
    }

    /// Writes a request that leaves with the next
    /// [`relax`](crate::clan::Fabric::relax) of the node, or
    /// with whatever it sends before: for who has many of them, on many connections.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn post(&mut self, request: &[u8]) -> Result<(), Error> {
        self.check_room(request.len() as u64)?;
        let place = self.shape.place_at(self.sent);
        if Shape::is_whole(request.len()) {
            self.window.write(place, request)?;
        } else {
            self.words.clear();
            self.words.extend_from_slice(request);
            Shape::make_whole(&mut self.words);
            self.window.write(place, &self.words)?;
        }
        self.announce(request.len())?;
        N::publish(&mut self.window)
    }

    /// Sends a request from memory, without a copy. Its bytes must not change
    /// before the reply has come.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and of [`Remote::write_from`].
    pub fn send_from(&mut self, from: &N::Local, range: Range<u64>) -> Result<(), Error> {
        let len = range.end.saturating_sub(range.start);
        self.check_room(len)?;
        self.window.write_from(self.shape.place_at(self.sent), from, range)?;
        self.announce(len as usize)?;
        self.window.commit()
    }

    fn check_room(&self, len: u64) -> Result<(), Error> {
        let most = u64::from(self.shape.size);
        if len > most {
            return Err(Error::TooLong { len, most });
        }
        if self.under_way() >= u64::from(self.shape.depth) {
            return Err(Error::Busy);
        }
        Ok(())
    }

    fn announce(&mut self, len: usize) -> Result<(), Error> {
        self.window.store(self.shape.flag_at(self.sent), Shape::flag(self.sent, len))?;
        self.sent += 1;
        Ok(())
    }

    /// Takes the next reply, if it is there. True: it was.
    ///
    /// # Errors
    /// The server is gone, or does not follow the protocol.
    pub fn try_reply(&mut self, reply: &mut Vec<u8>) -> Result<bool, Error> {
        if self.under_way() == 0 {
            return Ok(false);
        }
        let Some(len) = self.shape.find(&self.memory, self.answered)? else {
            self.window.check()?;
            return Ok(false);
        };
        reply.resize(len, 0);
        self.memory.copy_out(self.shape.place_at(self.answered), reply)?;
        self.answered += 1;
        Ok(true)
    }

    /// Spins until the next reply is there.
    ///
    /// # Errors
    /// Those of [`try_reply`](Self::try_reply), and [`Error::TimedOut`].
    pub fn spin_reply(
        &mut self,
        reply: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        while !self.try_reply(reply)? {
            self.node.relax();
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TimedOut);
            }
        }
        Ok(())
    }

    /// Waits until the next reply is there, as the node was told to wait: it spins
    /// for a while and then sleeps.
    ///
    /// # Errors
    /// Those of [`try_reply`](Self::try_reply), and [`Error::TimedOut`].
    pub fn wait_reply(
        &mut self,
        reply: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        loop {
            self.tripwire.arm();
            if self.try_reply(reply)? {
                self.tripwire.disarm();
                return Ok(());
            }
            if !self.node.wait(&[&self.tripwire], deadline)? {
                return Err(Error::TimedOut);
            }
        }
    }

    /// Sends a request and spins until its reply is there.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and of [`spin_reply`](Self::spin_reply).
    pub fn call(
        &mut self,
        request: &[u8],
        reply: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        self.send(request)?;
        self.spin_reply(reply, deadline)
    }

    /// Says good-bye; dropped without it, the connection breaks off.
    ///
    /// # Errors
    /// The server is gone, or [`Error::Busy`]: the send buffer is full.
    pub fn close(&self) -> Result<(), Error> {
        self.endpoint.disconnect([0; 40])
    }

    /// Writes a flag as no correct client does: for tests of the server.
    #[doc(hidden)]
    pub fn scribble(&mut self, flag: u64) -> Result<(), Error> {
        self.window.store(self.shape.flag_at(self.sent), flag)?;
        self.window.commit()
    }
}

/// How messages of a connection lie in memory; client and server agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The most bytes of one message.
    pub size: u32,
    /// The most messages that wait for a reply.
    pub depth: u32,
}

impl Shape {
    /// The most that anybody sensible wants: a gigabyte.
    const MOST: u64 = 1 << 30;

    pub(super) fn check(self) -> Result<(), Error> {
        let is_good = self.size > 0 && self.depth > 0 && self.bytes() <= Self::MOST;
        let what = "a message has at least one byte, one is under way, and all fit into a gigabyte";
        if is_good { Ok(()) } else { Err(Error::BadConfig(what)) }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.depth as u64 * (WORD + (self.size as u64).next_multiple_of(WORD))
    }

    /// Where the flags end.
    pub(super) const fn flags(self) -> u64 {
        self.depth as u64 * WORD
    }

    pub(super) const fn flag_at(self, message: u64) -> u64 {
        message % self.depth as u64 * WORD
    }

    pub(super) const fn place_at(self, message: u64) -> u64 {
        let place = (self.size as u64).next_multiple_of(WORD);
        self.flags() + message % self.depth as u64 * place
    }

    /// Does a message of this length end with a word? Part of a word is a packet of its
    /// own on the wire, so what does not is filled up: its place has room, and its flag
    /// says where it ends.
    pub(super) const fn is_whole(len: usize) -> bool {
        len.is_multiple_of(WORD as usize)
    }

    pub(super) fn make_whole(message: &mut Vec<u8>) {
        message.resize(message.len().next_multiple_of(WORD as usize), 0);
    }

    /// What the flag of a message of this length is.
    pub(super) const fn flag(message: u64, len: usize) -> u64 {
        (message + 1) << 32 | len as u64
    }

    /// Is this message there? How long is it?
    pub(super) fn find(self, memory: &impl Local, message: u64) -> Result<Option<usize>, Error> {
        let flag = memory.load(self.flag_at(message))?;
        let (number, len) = ((flag >> 32) as u32, flag as u32);
        // The flag of the message before it in that place, or of none.
        let before = (message + 1).saturating_sub(u64::from(self.depth)) as u32;
        let is_first = message < u64::from(self.depth);
        if number == before && (!is_first || flag == 0) {
            return Ok(None);
        }
        if number != (message + 1) as u32 {
            return Err(Error::PeerMisbehaved(Misbehaviour::Flag(flag)));
        }
        if len > self.size {
            let (len, most) = (u64::from(len), u64::from(self.size));
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
        }
        Ok(Some(len as usize))
    }

    /// The first words of a connection: a cookie and the shape.
    pub(super) fn greeting(self, cookie: &Cookie) -> [u8; 40] {
        let mut body = [0; 40];
        body[..32].copy_from_slice(&cookie.to_bytes());
        body[32..36].copy_from_slice(&self.size.to_be_bytes());
        body[36..].copy_from_slice(&self.depth.to_be_bytes());
        body
    }

    /// The cookie of the other side, if it is of this shape.
    pub(super) fn greeted(self, body: &[u8; 40]) -> Result<Cookie, Error> {
        let (cookie, shape) = body.split_at(Cookie::LEN);
        let expected = self.bytes();
        let same = shape[..4] == self.size.to_be_bytes() && shape[4..] == self.depth.to_be_bytes();
        let bytes = cookie.try_into().map_err(|_| clan_dsm::NoCookie)?;
        let cookie = Cookie::from_bytes(&bytes)?;
        if same && cookie.len() == expected {
            Ok(cookie)
        } else {
            Err(Error::Mismatch { expected, found: cookie.len() })
        }
    }
}
