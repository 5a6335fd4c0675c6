//! What the two sides say to each other before there is a connection; [`NetworkListener`]: a port
//! that is listened at.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use landfall::clan::layer::stream::{Opening, Stream};
use landfall::clan::network::{
    Body, ConnectRequest, Ended, Endpoint, HostId, Node, Notice, Port, PortAddress, Reason,
};
use landfall::clan::{Cookie, Error};

use super::super::accept_thread::{AcceptThread, Backlog, ConnectionSource};
use super::super::rendezvous::other_ring;
use super::super::stream::{Ends, Joined};
use super::{Inner, address_of, unconnected};
use crate::address::Address;
use crate::errors;
use crate::waiting::{block_until, locked};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::clan) enum Kind {
    Stream = 1,
    Messages = 2,
}

/// Both sides are of the same make.
const VERSION: u8 = 1;

/// Why nobody is welcome: the first byte of a refusal.
pub(super) const OTHER_VERSION: u8 = 1;
pub(super) const OTHER_RING: u8 = 2;
pub(super) const OTHER_KIND: u8 = 3;
pub(super) const NO_ROOM: u8 = 4;

/// Before something that found no room is tried again.
const BREATH: Duration = Duration::from_millis(1);

/// What each says first.
struct First {
    kind: u8,
    ring: u64,
    cookie: Cookie,
}

impl First {
    fn to_body(&self) -> Body {
        let mut body = [0; 40];
        body[0] = VERSION;
        body[1] = self.kind;
        // Rings are multiples of eight, and no memory of a node is longer than 32 GiB.
        body[4..8].copy_from_slice(&((self.ring / 8) as u32).to_le_bytes());
        body[8..].copy_from_slice(&self.cookie.to_bytes());
        body
    }

    /// # Errors
    /// It is of another make.
    fn from_body(body: &Body, from: HostId) -> Result<Self, u8> {
        if body[0] != VERSION {
            return Err(OTHER_VERSION);
        }
        let ring = u64::from(u32::from_le_bytes([body[4], body[5], body[6], body[7]])) * 8;
        Ok(Self { kind: body[1], ring, cookie: cookie_of(body, from).ok_or(OTHER_VERSION)? })
    }
}

/// What each says then.
fn second(most: u64, cookie: &Cookie) -> Body {
    let mut body = [0; 40];
    body[..8].copy_from_slice(&most.to_le_bytes());
    body[8..].copy_from_slice(&cookie.to_bytes());
    body
}

fn second_from(body: &Body, from: HostId) -> Option<(u64, Cookie)> {
    let most = u64::from_le_bytes(*body.first_chunk()?);
    Some((most, cookie_of(body, from)?))
}

/// Nobody makes this host write into memory of a third.
fn cookie_of(body: &Body, from: HostId) -> Option<Cookie> {
    let cookie = Cookie::from_bytes(body.last_chunk()?).ok()?;
    (cookie.host() == from).then_some(cookie)
}

/// Says something as soon as there is room for it on the way.
fn say(deadline: Option<Instant>, mut say: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    loop {
        match say() {
            Err(Error::Busy) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                thread::sleep(BREATH);
            }
            Err(Error::Busy) => return Err(Error::TimedOut),
            other => return other,
        }
    }
}

/// A host that reaches that one has this one's number, or somebody it knows has.
#[derive(Debug)]
struct NumberTaken(HostId);

impl fmt::Display for NumberTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the process there does not want a link with {}: give each a number of its own",
            self.0
        )
    }
}

impl std::error::Error for NumberTaken {}

/// Would another number of this host help?
pub(super) fn is_of_the_number(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NumberTaken>())
}

/// Connects to that port.
pub(super) fn connect(
    inner: &Arc<Inner>,
    there: SocketAddr,
    port: u16,
    kind: Kind,
    deadline: Option<Instant>,
) -> io::Result<Joined<Node>> {
    loop {
        let host = reach(&inner.node, there, deadline)?;
        let opening = Stream::open(&inner.node, inner.options.stream()).map_err(unconnected)?;
        let endpoint = inner.node.endpoint(None).map_err(unconnected)?;
        let cookies = opening.cookies();
        let first = First { kind: kind as u8, ring: inner.options.ring, cookie: cookies[0] };
        let to = PortAddress { host, port: Port(port.into()) };
        let asked = say(deadline, || endpoint.connect(to, first.to_body()));
        let heard = match asked {
            Ok(()) => hear(inner, &endpoint, &cookies[1], host, deadline)?,
            // It was up a moment ago.
            Err(Error::NoRoute) => GreetingReply::Again,
            Err(error) => return Err(unconnected(error)),
        };
        match heard {
            GreetingReply::Welcome(theirs, most) => {
                let stream = opening.connect(&theirs).map_err(unconnected)?;
                return Ok(inner.joined(stream, endpoint, most));
            }
            GreetingReply::Again if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                thread::sleep(BREATH);
            }
            GreetingReply::Again => return Err(errors::timed_out()),
        }
    }
}

/// A link to anyone who is there.
fn reach(node: &Node, there: SocketAddr, deadline: Option<Instant>) -> io::Result<HostId> {
    loop {
        let known = node.link_with(there).filter(|link| link.why().is_none());
        let link = match known.map_or_else(|| node.link(there), Ok) {
            Ok(link) => link,
            // Somebody else was faster, or the one before is going just now.
            Err(Error::Engine(_)) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                thread::sleep(BREATH);
                continue;
            }
            Err(error) => return Err(unconnected(error)),
        };
        return link.wait_up(deadline).map_err(|error| match error {
            Error::Refused(_) => {
                io::Error::new(io::ErrorKind::ConnectionRefused, NumberTaken(node.host()))
            }
            other => unconnected(other),
        });
    }
}

/// What was answered.
enum GreetingReply {
    Welcome([Cookie; 2], u64),
    /// There was no room for the question, or the process there was started anew.
    Again,
}

fn hear(
    inner: &Inner,
    endpoint: &Endpoint,
    ours: &Cookie,
    host: HostId,
    deadline: Option<Instant>,
) -> io::Result<GreetingReply> {
    let mut theirs = None;
    loop {
        let notice = endpoint.wait_next(deadline).map_err(unconnected)?;
        match notice.ok_or_else(errors::timed_out)? {
            Notice::Accepted { body, .. } => {
                let first = First::from_body(&body, host).map_err(refused)?;
                theirs = Some(first.cookie);
                let body = second(inner.options.longest(), ours);
                say(deadline, || endpoint.send(body)).map_err(unconnected)?;
            }
            Notice::Message { body, .. } => {
                let (Some(first), Some((most, second))) = (theirs, second_from(&body, host)) else {
                    return Err(refused(OTHER_VERSION));
                };
                return Ok(GreetingReply::Welcome([first, second], most));
            }
            Notice::Ended { why: Ended::There(Reason::NoRoom), .. } => {
                return Ok(GreetingReply::Again);
            }
            Notice::Ended { why: Ended::There(_), body } => return Err(refused(body[0])),
            Notice::Undelivered { reason: Reason::NoEndpoint, .. } => return Err(refused(0)),
            Notice::Ended { .. } | Notice::Undelivered { .. } => return Ok(GreetingReply::Again),
            _ => {}
        }
    }
}

fn refused(why: u8) -> io::Error {
    match why {
        OTHER_VERSION => io::Error::new(
            io::ErrorKind::Unsupported,
            "what listens there speaks another version: build both of the same release",
        ),
        OTHER_RING => other_ring(),
        _ => errors::refused(),
    }
}

/// Somebody who wants a connection, and what was made ready for it.
pub(super) struct Caller {
    request: ConnectRequest,
    endpoint: Endpoint,
    opening: Opening<Node>,
    theirs: Cookie,
}

impl Caller {
    /// # Errors
    /// Why there will be no connection.
    pub(super) fn of(inner: &Inner, request: ConnectRequest, kind: Kind) -> Result<Self, u8> {
        let first = First::from_body(&request.body, request.from.host)?;
        if first.kind != kind as u8 {
            return Err(OTHER_KIND);
        }
        if first.ring != inner.options.ring {
            return Err(OTHER_RING);
        }
        let opening = Stream::open(&inner.node, inner.options.stream()).map_err(|_| NO_ROOM)?;
        let endpoint = inner.node.endpoint(None).map_err(|_| NO_ROOM)?;
        Ok(Self { request, endpoint, opening, theirs: first.cookie })
    }

    /// Where it is.
    pub(super) const fn host(&self) -> HostId {
        self.request.from.host
    }

    /// Makes the connection. Who makes no sense is left alone.
    pub(super) fn welcome(self, inner: &Arc<Inner>, kind: Kind) -> Option<Joined<Node>> {
        let Self { request, endpoint, opening, theirs } = self;
        let deadline = Instant::now().checked_add(inner.options.patience);
        let cookies = opening.cookies();
        let first = First { kind: kind as u8, ring: inner.options.ring, cookie: cookies[0] };
        say(deadline, || endpoint.accept(&request, first.to_body())).ok()?;
        let body = second(inner.options.longest(), &cookies[1]);
        say(deadline, || endpoint.send(body)).ok()?;
        loop {
            match endpoint.wait_next(deadline).ok()?? {
                Notice::Message { body, .. } => {
                    let (most, other) = second_from(&body, request.from.host)?;
                    let stream = opening.connect(&[theirs, other]).ok()?;
                    return Some(inner.joined(stream, endpoint, most));
                }
                notice if notice.is_last() => return None,
                _ => {}
            }
        }
    }
}

/// A port that is listened at.
pub(super) struct NetworkListener {
    queue: Arc<Backlog<Ends>>,
    inner: Arc<Inner>,
    kind: Kind,
    local: Address,
    /// Wakes the thread that listens.
    waker: Mutex<Option<Waker>>,
}

impl NetworkListener {
    /// Opens it, and the address that it has.
    pub(super) fn open(
        inner: &Arc<Inner>,
        port: u16,
        kind: Kind,
    ) -> io::Result<(AcceptThread<Self>, Address)> {
        let (endpoint, port) = endpoint_at(inner, port)?;
        endpoint.listen().map_err(unconnected)?;
        let local = inner.local(port);
        let queue = Backlog::new(inner.options.backlog);
        let (inner, waker) = (Arc::clone(inner), Mutex::default());
        let source = Self { queue, inner, kind, local: local.clone(), waker };
        Ok((AcceptThread::open(source, move |source| source.serve(&endpoint))?, local))
    }

    /// Sees to those that come, until the listener is dropped or its node is gone.
    fn serve(self: &Arc<Self>, endpoint: &Endpoint) {
        let next = |cx: &mut Context<'_>| {
            *locked(&self.waker) = Some(cx.waker().clone());
            match self.queue.is_over() {
                true => Poll::Ready(Err(Error::Closed)),
                false => endpoint.poll_next(cx),
            }
        };
        while let Some(Ok(notice)) = block_until(None, next) {
            let Notice::Request(request) = notice else { continue };
            self.wait_for_hands();
            let caller = match self.queue.is_full() {
                true => Err(NO_ROOM),
                false => Caller::of(&self.inner, request, self.kind),
            };
            match caller {
                Ok(caller) => {
                    let source = Arc::clone(self);
                    self.queue.receive(move || source.greet(caller));
                }
                Err(why) => {
                    let mut body = [0; 40];
                    body[0] = why;
                    // Who is not told hears nothing, and gives up.
                    let _ = endpoint.refuse(&request, Reason::Refused, body);
                }
            }
        }
    }

    /// The limit of connections that are made at a time is reached: others wait in the queue of the endpoint.
    fn wait_for_hands(&self) {
        while self.queue.is_busy() && !self.queue.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn greet(&self, caller: Caller) -> Option<Ends> {
        let peer = self.inner.node.link_to(caller.host()).and_then(|link| link.peer());
        let joined = caller.welcome(&self.inner, self.kind)?;
        Some(Ends::new(joined, self.local.clone(), address_of(peer, 0)))
    }
}

/// The endpoint of that port, or of one that is free.
fn endpoint_at(inner: &Inner, port: u16) -> io::Result<(Endpoint, u16)> {
    /// Those that nobody asks for by number.
    const FREE: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;
    let ports = if port == 0 { FREE } else { port..=port };
    for port in ports {
        match inner.node.endpoint(Some(Port(port.into()))) {
            Ok(endpoint) => return Ok((endpoint, port)),
            Err(Error::Engine(_)) => {}
            Err(error) => return Err(unconnected(error)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens at that port"))
}

impl ConnectionSource for NetworkListener {
    fn queue(&self) -> &Backlog<Ends> {
        &self.queue
    }

    fn wake(&self) {
        if let Some(waker) = locked(&self.waker).take() {
            waker.wake();
        }
    }
}
