//! [`Client`]: who asks the server, and spins until the reply is there.

use std::ops::Range;
use std::time::Instant;

use clan_dsm::{Access, Notice, PortAddress, Rights};

use super::slots::Shape;
use crate::clan::network::endpoint::Endpoint;
use crate::clan::network::error::ended;
use crate::clan::network::memory::Aperture;
use crate::clan::network::node::Node;
use crate::clan::network::tripwire::Tripwire;
use crate::clan::network::window::Window;
use crate::clan::{self, Error, Fabric, Local, Remote};

/// A connection to a [`Server`](super::Server).
#[derive(Debug)]
pub struct Client {
    node: Node,
    endpoint: Endpoint,
    shape: Shape,
    /// Where replies are written.
    memory: Aperture,
    tripwire: Tripwire,
    /// Where requests are written.
    window: Window,
    sent: u64,
    answered: u64,
    /// A request in whole words.
    words: Vec<u8>,
}

impl Client {
    /// Connects. A link to the host is there already.
    ///
    /// # Errors
    /// [`Error::NoRoute`] without a link, [`Error::Refused`], [`Error::TimedOut`].
    pub fn connect(
        node: &Node,
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
    /// [`Error::Busy`]: as many wait for a reply as may, or the way is full.
    pub fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        self.post(request)?;
        self.window.commit()
    }

    /// Writes a request that leaves with the next [`turn`](Node::turn) of the node, or
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
        self.announce(request.len())
    }

    /// Sends a request from memory, without a copy. Its bytes must not change
    /// before the reply has come.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and of [`Remote::write_from`].
    pub fn send_from(&mut self, from: &Aperture, range: Range<u64>) -> Result<(), Error> {
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
            self.node.turn();
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
            clan::Tripwire::arm(&self.tripwire);
            if self.try_reply(reply)? {
                clan::Tripwire::disarm(&self.tripwire);
                return Ok(());
            }
            if !self.tripwire.wait(deadline)? {
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
    /// The server is gone, or [`Error::Busy`]: the way is full.
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
