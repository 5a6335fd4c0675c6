//! How the two sides of a stream find each other: names, and the exchange of cookies.
//!
//! ```text
//!  who connects                      who listens
//!    HELLO  version, ring, longest message, 2 cookies ->
//!                 <- WELCOME  longest message, 2 cookies     or REFUSED  why
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall::clan::Cookie;
use landfall::clan::shared::SharedNode;
use landfall_transport::Bell;
use landfall_transport::shm::rendezvous::{Channel, Listener, Message};
use landfall_transport::wait::until_ready;

use super::accept_thread::{AcceptThread, Backlog, ConnectionSource};
use super::stream::{Ends, Joined};
use super::{Inner, met};
use crate::address::Address;
use crate::errors;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSED: u16 = 3;

/// Both sides are of the same make.
const VERSION: u8 = 2;

/// Why nobody is welcome.
const OTHER_VERSION: u8 = 1;
const OTHER_RING: u8 = 2;
const NO_ROOM: u8 = 3;

/// The two cookies of one side.
type Cookies = [Cookie; 2];

const COOKIES: usize = 2 * Cookie::LEN;

fn bytes_of(cookies: &Cookies) -> impl Iterator<Item = u8> {
    cookies.iter().flat_map(|cookie| cookie.to_bytes())
}

fn cookies_of(bytes: &[u8]) -> Option<Cookies> {
    let (one, two) = bytes.split_at_checked(Cookie::LEN)?;
    let cookie = |bytes: &[u8]| Cookie::from_bytes(bytes.try_into().ok()?).ok();
    Some([cookie(one)?, cookie(two)?])
}

fn limit_and_cookies_of(bytes: &[u8]) -> Option<(u64, Cookies)> {
    let (most, cookies) = bytes.split_first_chunk()?;
    if cookies.len() != COOKIES {
        return None;
    }
    Some((u64::from_le_bytes(*most), cookies_of(cookies)?))
}

/// Connects to what listens at that path.
pub(super) fn connect(host: &Arc<Inner>, path: &Path) -> io::Result<Joined<SharedNode>> {
    let channel = Channel::connect(path, &host.options.admit).map_err(met)?;
    let opening = host.opening()?;
    let mut hello = vec![VERSION];
    hello.extend(host.options.ring.to_le_bytes());
    hello.extend(host.options.longest().to_le_bytes());
    hello.extend(bytes_of(&opening.cookies()));
    channel.send(HELLO, &hello, &[]).map_err(met)?;
    let answer = channel.receive(host.options.patience).map_err(met)?;
    let answer = answer.ok_or_else(errors::timed_out)?;
    let Some((most, theirs)) = welcomed(&answer)? else { return Err(no_sense()) };
    Ok(host.joined(opening.connect(&theirs)?, most))
}

fn welcomed(answer: &Message) -> io::Result<Option<(u64, Cookies)>> {
    match (answer.kind, &answer.body[..]) {
        (WELCOME, body) => Ok(limit_and_cookies_of(body)),
        (REFUSED, [OTHER_VERSION]) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the process there speaks another version: build both of the same release",
        )),
        (REFUSED, [OTHER_RING]) => Err(other_ring()),
        (REFUSED, _) => Err(errors::refused()),
        _ => Ok(None),
    }
}

pub(super) fn other_ring() -> io::Error {
    errors::invalid("the process there has another ring: set ClanOptions::ring alike on both sides")
}

fn no_sense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "who listens there is no service of this family")
}

/// A name that is listened at.
pub(super) struct LocalListener {
    queue: Arc<Backlog<Ends>>,
    host: Arc<Inner>,
    bell: Bell,
    /// Names for both ends of what comes in.
    local: Address,
    peer: Address,
}

impl LocalListener {
    pub(super) fn open(
        host: &Arc<Inner>,
        path: &Path,
        (local, peer): (Address, Address),
    ) -> io::Result<AcceptThread<Self>> {
        let listener = Listener::bind(path, host.options.admit.clone()).map_err(met)?;
        let queue = Backlog::new(host.options.backlog);
        let (host, bell) = (Arc::clone(host), Bell::new()?);
        let source = Self { queue, host, bell, local, peer };
        AcceptThread::open(source, move |source| source.serve(&listener))
    }

    /// Sees to those that come, until the listener is dropped.
    fn serve(self: &Arc<Self>, listener: &Listener) {
        /// After a call that failed for want of descriptors, perhaps: they may come back.
        const BREATH: Duration = Duration::from_millis(10);
        loop {
            self.bell.arm();
            if self.queue.is_over() {
                return;
            }
            let slept = until_ready(&[listener.interest(), self.bell.interest()], Duration::MAX);
            self.bell.silence();
            match slept.map_err(drop).and_then(|_| listener.accept(Duration::ZERO).map_err(drop)) {
                Ok(Some(channel)) => {
                    let source = Arc::clone(self);
                    self.queue.receive(move || source.greet(&channel));
                }
                Ok(None) => {}
                Err(()) => std::thread::park_timeout(BREATH),
            }
        }
    }

    /// Makes one connection. Who makes no sense is left alone.
    fn greet(&self, channel: &Channel) -> Option<Ends> {
        let patience = self.host.options.patience;
        let hello = channel.receive(patience).ok().flatten()?;
        let refuse = |why| channel.send(REFUSED, &[why], &[]).ok();
        let (HELLO, Some((&version, rest))) = (hello.kind, hello.body.split_first()) else {
            return None;
        };
        if version != VERSION {
            refuse(OTHER_VERSION);
            return None;
        }
        let (ring, rest) = rest.split_at_checked(8)?;
        if ring != self.host.options.ring.to_le_bytes() {
            refuse(OTHER_RING);
            return None;
        }
        let (most, theirs) = limit_and_cookies_of(rest)?;
        if self.queue.is_full() {
            refuse(NO_ROOM);
            return None;
        }
        let Ok(opening) = self.host.opening() else {
            refuse(NO_ROOM);
            return None;
        };
        let mut ours = self.host.options.longest().to_le_bytes().to_vec();
        ours.extend(bytes_of(&opening.cookies()));
        let stream = opening.connect(&theirs).ok()?;
        channel.send(WELCOME, &ours, &[]).ok()?;
        let joined = self.host.joined(stream, most);
        Some(Ends::new(joined, self.local.clone(), self.peer.clone()))
    }
}

impl ConnectionSource for LocalListener {
    fn queue(&self) -> &Backlog<Ends> {
        &self.queue
    }

    fn wake(&self) {
        self.bell.ring();
    }
}
