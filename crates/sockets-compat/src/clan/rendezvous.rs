//! How the two sides of a stream find each other: names, and the exchange of cookies.
//!
//! ```text
//!  who connects                      who listens
//!    HELLO  version, ring, 2 cookies ->
//!                                 <- WELCOME  2 cookies      or REFUSED  why
//! ```
//!
//! Each connection is made on a thread of its own, so that a process that says nothing
//! holds up nobody else; there is a bound on how many are made at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use landfall::clan::Cookie;
use landfall::clan::shared::Shared;
use landfall_transport::Bell;
use landfall_transport::shm::rendezvous::{Channel, Listener, Message};
use landfall_transport::wait::until_ready;

use super::stream::{self, Joined};
use super::{Inner, met};
use crate::address::{Address, Name};
use crate::duplex::Duplex;
use crate::errors;
use crate::listener::Accept;
use crate::waiting::locked;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSED: u16 = 3;

/// Both sides are of the same make.
const VERSION: u8 = 1;

/// Why nobody is welcome.
const OTHER_VERSION: u8 = 1;
const OTHER_RING: u8 = 2;
const NO_ROOM: u8 = 3;

/// So many connections are made at a time.
const MOST_AT_ONCE: usize = 64;

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

/// Connects to the service of that name.
pub(super) fn connect(host: &Arc<Inner>, name: &Name) -> io::Result<Joined<Shared>> {
    let channel = Channel::connect(&host.path_of(name), &host.options.admit).map_err(met)?;
    let opening = host.opening()?;
    let mut hello = vec![VERSION];
    hello.extend(host.options.ring.to_le_bytes());
    hello.extend(bytes_of(&opening.cookies()));
    channel.send(HELLO, &hello, &[]).map_err(met)?;
    let answer = channel.receive(host.options.patience).map_err(met)?;
    let answer = answer.ok_or_else(errors::timed_out)?;
    let Some(theirs) = welcomed(&answer)? else { return Err(no_sense()) };
    let keep = Arc::<Inner>::clone(host);
    Ok(Joined { stream: opening.connect(&theirs)?, keep })
}

fn welcomed(answer: &Message) -> io::Result<Option<Cookies>> {
    match (answer.kind, &answer.body[..]) {
        (WELCOME, body) => Ok(cookies_of(body)),
        (REFUSED, [OTHER_VERSION]) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the process there speaks another version: build both of the same release",
        )),
        (REFUSED, [OTHER_RING]) => Err(errors::invalid(
            "the process there has another ring: set ClanOptions::ring alike on both sides",
        )),
        (REFUSED, _) => Err(errors::refused()),
        _ => Ok(None),
    }
}

fn no_sense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "who listens there is no service of this family")
}

/// Those that have come, until somebody accepts them.
#[derive(Default)]
struct Waiting {
    ready: VecDeque<Arc<Duplex>>,
    waker: Option<Waker>,
}

/// What the threads of a listener share.
struct Desk {
    host: Arc<Inner>,
    waiting: Mutex<Waiting>,
    bell: Bell,
    is_over: AtomicBool,
    under_way: AtomicUsize,
    /// Names for both ends of what comes in.
    local: Address,
    peer: Address,
}

impl Desk {
    /// Sees to those that come, until the listener is dropped.
    fn serve(self: &Arc<Self>, listener: &Listener) {
        /// After a call that failed for want of descriptors, perhaps: they may come back.
        const BREATH: Duration = Duration::from_millis(10);
        loop {
            self.bell.arm();
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let slept = until_ready(&[listener.interest(), self.bell.interest()], Duration::MAX);
            self.bell.silence();
            match slept.map_err(drop).and_then(|_| listener.accept(Duration::ZERO).map_err(drop)) {
                Ok(Some(channel)) => self.receive(channel),
                Ok(None) => {}
                Err(()) => std::thread::park_timeout(BREATH),
            }
        }
    }

    fn receive(self: &Arc<Self>, channel: Channel) {
        if self.under_way.fetch_add(1, Ordering::SeqCst) >= MOST_AT_ONCE {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let desk = Arc::clone(self);
        let thread = std::thread::Builder::new().name("clan-accept".into());
        let started = thread.spawn(move || {
            let came = desk.greet(&channel);
            desk.under_way.fetch_sub(1, Ordering::SeqCst);
            if let Some(duplex) = came {
                desk.put(duplex);
            }
        });
        if started.is_err() {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Makes one connection. Who makes no sense is left alone.
    fn greet(&self, channel: &Channel) -> Option<Arc<Duplex>> {
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
        let (ring, cookies) = rest.split_at_checked(8)?;
        if ring != self.host.options.ring.to_le_bytes() || cookies.len() != COOKIES {
            refuse(OTHER_RING);
            return None;
        }
        if locked(&self.waiting).ready.len() >= self.host.options.backlog {
            refuse(NO_ROOM);
            return None;
        }
        let Ok(opening) = self.host.opening() else {
            refuse(NO_ROOM);
            return None;
        };
        let ours: Vec<u8> = bytes_of(&opening.cookies()).collect();
        let stream = opening.connect(&cookies_of(cookies)?).ok()?;
        channel.send(WELCOME, &ours, &[]).ok()?;
        let keep = Arc::<Inner>::clone(&self.host);
        let joined = Joined { stream, keep };
        Some(stream::duplex(joined, self.local.clone(), self.peer.clone()))
    }

    fn put(&self, duplex: Arc<Duplex>) {
        let mut waiting = locked(&self.waiting);
        if self.is_over.load(Ordering::SeqCst) {
            return;
        }
        waiting.ready.push_back(duplex);
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A name that is listened at.
pub(super) struct Reception {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Reception {
    pub(super) fn open(
        host: &Arc<Inner>,
        name: &Name,
        (local, peer): (Address, Address),
    ) -> io::Result<Self> {
        let path = host.path_of(name);
        let listener = Listener::bind(&path, host.options.admit.clone()).map_err(met)?;
        let desk = Arc::new(Desk {
            host: Arc::clone(host),
            waiting: Mutex::default(),
            bell: Bell::new()?,
            is_over: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            local,
            peer,
        });
        let serving = Arc::clone(&desk);
        let thread = std::thread::Builder::new().name(format!("clan-{name}"));
        let thread = thread.spawn(move || serving.serve(&listener))?;
        Ok(Self { desk, thread: Some(thread) })
    }
}

impl Accept for Reception {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Duplex>>> {
        let mut waiting = locked(&self.desk.waiting);
        if let Some(duplex) = waiting.ready.pop_front() {
            return Poll::Ready(Ok(duplex));
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        let mut waiting = locked(&self.desk.waiting);
        self.desk.is_over.store(true, Ordering::SeqCst);
        let (ready, waker) = (std::mem::take(&mut waiting.ready), waiting.waker.take());
        drop(waiting);
        drop((ready, waker));
        self.desk.bell.ring();
        // When this has ended, the name is free again.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
