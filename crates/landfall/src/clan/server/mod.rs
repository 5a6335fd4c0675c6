//! The event-driven server of the paper (section 5.3): one thread, thousands of
//! endpoints, one queue of events, and callbacks; between processes of a host as over networks.
//!
//! Each client has an endpoint and a piece of the server's memory, in which it
//! writes its requests; a tripwire on the flags of that memory is registered with
//! the event queue. The server takes events out of the queue until it is empty,
//! polls for a while (15 µs in the paper), and then sleeps in `select`. The busier
//! it is, the fewer system calls it makes.
//!
//! ```
//! use landfall::clan::server::{Client, Server, Shape};
//! use landfall::clan::network::{HostId, Node, Port, PortAddress, Transport};
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! let open = |host| Node::open(HostId::new(host).unwrap(), Transport::udp(([127, 0, 0, 1], 0).into()));
//! let (here, there) = (open(1)?, open(2)?);
//! let at = PortAddress { host: here.host(), port: Port(7) };
//! let soon = || Some(std::time::Instant::now() + std::time::Duration::from_secs(10));
//! let shape = Shape { size: 256, depth: 4 };
//! let done = AtomicBool::new(false);
//! let shout = |request: &[u8], reply: &mut Vec<u8>| reply.extend(request.to_ascii_uppercase());
//! let mut server = Server::open(&here, at.port, shape, 100, shout)?;
//! std::thread::scope(|scope| {
//!     let serving = scope.spawn(|| server.run(|| done.load(Ordering::Relaxed)));
//!     there.link(here.local().unwrap())?.wait_up(soon())?;
//!     let mut client = Client::connect(&there, at, shape, soon())?;
//!     let mut reply = Vec::new();
//!     client.call(b"hello", &mut reply, soon())?;
//!     assert_eq!(reply, b"HELLO");
//!     done.store(true, Ordering::Relaxed);
//!     serving.join().unwrap()
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The memory of one direction
//!
//! `depth` flags of a word each, then `depth` places of `size` bytes. Message `n`
//! (from 0 on) lies in place `n % depth`; its flag, written behind it, is `n + 1`
//! in the upper 32 bits and the length in the lower. Its reply lies in the same
//! place at the client, and frees it. Flags are checked on every use: a client that
//! scribbles gets its own connection ended.

mod client;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use clan_dsm::{Access, ConnectRequest, Cookie, HostId, Notice, Port, Reason, Rights};
use landfall_transport::driver::Interest;

use crate::clan::messaging::{Endpoint as _, MessageEvents as _, Messaging};
use crate::clan::network::Node;
use crate::clan::{Error, Event, EventQueue as _, Local, Remote, Stage};

pub use client::{Client, Shape};

/// What the server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Requests that were answered.
    pub requests: u64,
    /// Events that were taken out of the queue.
    pub events: u64,
    /// How often a connection was looked at for requests, with or without room for the reply.
    pub tries: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// Connections that came.
    pub accepted: u64,
    /// Connections that ended, for whatever reason.
    pub ended: u64,
}

/// An event-driven server. `F` answers a request: it gets its bytes, and an empty buffer
/// for the reply.
pub struct Server<F, N: Messaging = Node> {
    node: N,
    listener: N::Endpoint,
    events: N::Events,
    shape: Shape,
    answer: F,
    connections: Vec<Option<Connection<N>>>,
    free: Vec<usize>,
    /// Connections with replies that are not published yet.
    written: Vec<usize>,
    /// Connections whose reply found no room on its way to their host, and those that came
    /// behind them: each is served in its turn, so that none waits for ever.
    blocked: BTreeMap<HostId, VecDeque<usize>>,
    poll: Duration,
    stats: ServerStats,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// How long the paper's server polls before it sleeps.
pub const POLL: Duration = Duration::from_micros(15);

/// After this many events what was written is sent, even if there are more.
const BATCH: usize = 32;

/// The token of the listener; connection `n` has the two behind `2 n`.
const LISTENER: u64 = 0;

const fn tokens_of(connection: usize) -> (u64, u64) {
    (connection as u64 * 2 + 1, connection as u64 * 2 + 2)
}

impl<F: FnMut(&[u8], &mut Vec<u8>), N: Messaging> Server<F, N> {
    /// A server at a port of this node, for this many connections at a time.
    ///
    /// # Errors
    /// The port is taken, or the shape cannot be.
    pub fn open(
        node: &N,
        port: Port,
        shape: Shape,
        connections: usize,
        answer: F,
    ) -> Result<Self, Error> {
        shape.check()?;
        let listener = node.endpoint(Some(port))?;
        listener.listen()?;
        // Each source has at most one event in it: it cannot overflow.
        let events = node.events(connections * 2 + 1)?;
        events.register_endpoint(&listener, LISTENER)?;
        Ok(Self {
            node: node.clone(),
            listener,
            events,
            shape,
            answer,
            connections: (0..connections).map(|_| None).collect(),
            free: (0..connections).rev().collect(),
            written: Vec::new(),
            blocked: BTreeMap::new(),
            poll: POLL,
            stats: ServerStats::default(),
            request: Vec::with_capacity(shape.size as usize),
            reply: Vec::new(),
        })
    }

    /// How long it polls before it sleeps: [`POLL`], unless you choose otherwise.
    #[must_use]
    pub const fn poll_for(mut self, time: Duration) -> Self {
        self.poll = time;
        self
    }

    /// What it did so far.
    #[must_use]
    pub const fn stats(&self) -> ServerStats {
        self.stats
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Serves until it shall stop, which is asked at least every 100 ms.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), Error> {
        while !stop() {
            self.round(&[], Some(Duration::from_millis(100)))?;
        }
        Ok(())
    }

    /// One round: serves the queue until it is empty, polls for a while, and then
    /// sleeps, at the descriptors of `others` too, until something comes or the
    /// time is over. For servers with other I/O.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn round(&mut self, others: &[Interest], at_most: Option<Duration>) -> Result<(), Error> {
        self.serve()?;
        let polling = Instant::now();
        while polling.elapsed() < self.poll {
            self.node.relax();
            if !self.events.is_empty() {
                return Ok(());
            }
            self.retry()?;
        }
        self.stats.sleeps += 1;
        let at_most = if self.blocked.is_empty() { at_most } else { Some(self.poll) };
        self.events.select(others, at_most.map(|time| Instant::now() + time))
    }

    /// Takes events out until there is none.
    fn serve(&mut self) -> Result<(), Error> {
        let mut since_sent = 0;
        while let Some(event) = self.events.next() {
            self.stats.events += 1;
            self.dispatch(event)?;
            since_sent += 1;
            if since_sent == BATCH {
                since_sent = 0;
                self.send();
            }
        }
        if since_sent > 0 {
            self.send();
        }
        Ok(())
    }

    /// What was written leaves.
    fn send(&mut self) {
        for number in std::mem::take(&mut self.written) {
            let connection = self.connections.get_mut(number).and_then(Option::as_mut);
            if connection.is_some_and(|connection| N::publish(&mut connection.window).is_err()) {
                self.end(number);
            }
        }
        self.node.relax();
    }

    fn dispatch(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::OutOfBand(LISTENER) => self.listen(),
            Event::Tripwire(token) => {
                self.serve_connection((token as usize - 1) / 2);
                Ok(())
            }
            Event::OutOfBand(token) => {
                let number = (token as usize - 1) / 2;
                let connection = self.connections.get(number).and_then(Option::as_ref);
                if connection.is_some_and(Connection::<N>::is_over) {
                    self.end(number);
                }
                Ok(())
            }
            // It is long enough for all sources; should the engine have lost some,
            // everybody is looked at.
            Event::Overflow { .. } => {
                (0..self.connections.len()).for_each(|number| self.serve_connection(number));
                self.listen()
            }
            _ => Ok(()),
        }
    }

    /// Serves a connection, or lets it wait behind those of its host that wait already.
    fn serve_connection(&mut self, number: usize) {
        let Some(connection) = self.connections.get_mut(number).and_then(Option::as_mut) else {
            // It has ended since the event was told.
            return;
        };
        if connection.is_blocked {
            return;
        }
        let host = connection.cookie_there.host();
        if let Some(queue) = self.blocked.get_mut(&host) {
            connection.is_blocked = true;
            queue.push_back(number);
        } else if !self.try_serve(number) {
            self.blocked.entry(host).or_default().push_back(number);
        }
    }

    /// Answers what a connection asks. False: a reply found no room.
    fn try_serve(&mut self, number: usize) -> bool {
        let Self { connections, answer, request, reply, stats, .. } = self;
        let Some(connection) = connections.get_mut(number).and_then(Option::as_mut) else {
            // It has ended while it waited.
            return true;
        };
        stats.tries += 1;
        let served = connection.serve(answer, request, reply, &mut stats.requests);
        connection.is_blocked = matches!(served, Err(Error::Busy));
        match served {
            Ok(()) => self.written.push(number),
            Err(Error::Busy) => {
                self.written.push(number);
                return false;
            }
            Err(_) => self.end(number),
        }
        true
    }

    /// Those whose replies found no room, the first first. The node tells windows of room in
    /// the order in which they began to wait: where the first has none, none has.
    fn retry(&mut self) -> Result<(), Error> {
        let mut blocked = std::mem::take(&mut self.blocked);
        blocked.retain(|_, queue| {
            while let Some(first) = queue.front().copied() {
                if !self.try_serve(first) {
                    return true;
                }
                queue.pop_front();
            }
            false
        });
        self.blocked = blocked;
        if !self.written.is_empty() {
            self.send();
        }
        Ok(())
    }

    /// A connection request came, or a message for no connection.
    fn listen(&mut self) -> Result<(), Error> {
        while let Some(notice) = self.listener.try_next() {
            if let Notice::Request(request) = notice {
                self.accept(&request)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, request: &ConnectRequest) -> Result<(), Error> {
        let Some(number) = self.free.pop() else {
            return self.refuse(request, Reason::NoRoom);
        };
        let opened = Connection::open(&self.node, request, self.shape).and_then(|connection| {
            let (tripwire, messages) = tokens_of(number);
            connection.register(&self.events, tripwire, messages)?;
            connection.accept(request)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => {
                self.stats.accepted += 1;
                self.connections[number] = Some(connection);
                Ok(())
            }
            Err(error) => {
                self.free.push(number);
                let reason = match error {
                    Error::NoCookie(_) | Error::Mismatch { .. } => Reason::Malformed,
                    Error::NodeGone => return Err(error),
                    _ => Reason::NoRoom,
                };
                self.refuse(request, reason)
            }
        }
    }

    fn refuse(&self, request: &ConnectRequest, reason: Reason) -> Result<(), Error> {
        match self.listener.refuse(request, reason, [0; 40]) {
            Err(Error::NodeGone) => Err(Error::NodeGone),
            // Who asked is gone, or hears of it when it gives up.
            _ => Ok(()),
        }
    }

    fn end(&mut self, number: usize) {
        if self.connections[number].take().is_some() {
            self.stats.ended += 1;
            self.free.push(number);
        }
    }
}

impl<F, N: Messaging> fmt::Debug for Server<F, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("port", &self.listener.port())
            .field("connections", &(self.connections.len() - self.free.len()))
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Connection<N: Messaging> {
    endpoint: N::Endpoint,
    shape: Shape,
    /// Where requests are written.
    memory: N::Local,
    cookie: Cookie,
    /// Where replies are written.
    window: N::Remote,
    tripwire: N::Tripwire,
    /// The next request.
    next: u64,
    /// It waits for room among those of its host.
    is_blocked: bool,
    /// Of the memory that replies are written to.
    cookie_there: Cookie,
}

impl<N: Messaging> Connection<N> {
    fn open(node: &N, request: &ConnectRequest, shape: Shape) -> Result<Self, Error> {
        let theirs = shape.greeted(&request.body)?;
        let window = node.map(&theirs)?;
        let (memory, cookie) = node.expose(shape.bytes(), Rights::Write)?;
        let tripwire = node.watch(&memory, 0..shape.flags(), Access::Write, None)?;
        let endpoint = node.endpoint(None)?;
        let (cookie_there, next, is_blocked) = (theirs, 0, false);
        Ok(Self {
            endpoint,
            shape,
            memory,
            cookie,
            window,
            tripwire,
            next,
            is_blocked,
            cookie_there,
        })
    }

    fn register(&self, events: &N::Events, tripwire: u64, messages: u64) -> Result<(), Error> {
        events.register(&self.tripwire, tripwire)?;
        events.register_endpoint(&self.endpoint, messages)
    }

    fn accept(&self, request: &ConnectRequest) -> Result<(), Error> {
        self.endpoint.accept(request, self.shape.greeting(&self.cookie))
    }

    /// Answers each request that is there. What it writes is sent with the next
    /// turn of the node. After [`Error::Busy`] it is called again.
    fn serve(
        &mut self,
        answer: &mut impl FnMut(&[u8], &mut Vec<u8>),
        request: &mut Vec<u8>,
        reply: &mut Vec<u8>,
        served: &mut u64,
    ) -> Result<(), Error> {
        let shape = self.shape;
        while let Some(len) = shape.find(&self.memory, self.next)? {
            if !self.window.is_reached(Stage::Room)? {
                return Err(Error::Busy);
            }
            request.resize(len, 0);
            self.memory.copy_out(shape.place_at(self.next), request)?;
            reply.clear();
            answer(request, reply);
            reply.truncate(shape.size as usize);
            let flag = Shape::flag(self.next, reply.len());
            Shape::make_whole(reply);
            self.window.write(shape.place_at(self.next), reply)?;
            self.window.store(shape.flag_at(self.next), flag)?;
            self.next += 1;
            *served += 1;
        }
        Ok(())
    }

    /// Has the client ended it, or is it gone?
    fn is_over(&self) -> bool {
        while let Some(notice) = self.endpoint.try_next() {
            let is_leaving = matches!(notice, clan_dsm::Notice::Disconnected { .. });
            if is_leaving || notice.is_last() {
                return true;
            }
        }
        false
    }
}
