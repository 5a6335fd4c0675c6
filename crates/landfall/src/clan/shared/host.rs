//! [`Host`]: a process whose memory this node maps.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use clan_dsm::{HostId, Reason};
use landfall_transport::memory::SharedMemory;
use landfall_transport::shm::rendezvous::{Channel, Message};
use landfall_transport::shm::watched::Reporter;

use super::control::ControlMessage;
use super::endpoints::Carrier;
use super::node::Node;
use super::tripwire::{OwnTouches, Wire};
use super::trouble::{self, locked};
use crate::clan::names::{Greeting, Name};
use crate::clan::{Cookie, Error};

/// A process whose memory this node maps.
pub(super) struct Host {
    pub(super) host: HostId,
    pub(super) channel: Channel,
    pub(super) reporter: Arc<Reporter>,
    is_gone: AtomicBool,
    asked: Mutex<BTreeMap<u32, Option<Answer>>>,
    answered: Condvar,
    next_request: AtomicU32,
    /// What is mapped, by the owner's name for it.
    windows: Mutex<BTreeMap<u32, Weak<Window>>>,
    /// Tripwires that fire when it is lost, or withdraws the memory of this name.
    loss_watchers: Mutex<Vec<(u32, Weak<Wire>)>>,
}

/// What came of a request.
pub(super) enum Answer {
    Refused,
    Mapped(Mapped),
    /// By those who offer a name.
    Answered(Greeting),
}

/// Memory that was handed over.
pub(super) struct Mapped {
    pub(super) window: Arc<Window>,
    pub(super) data: OwnedFd,
    pub(super) filter: OwnedFd,
}

/// One piece of memory that is mapped here, and why it cannot be used, if so: a look at one
/// atomic.
pub(super) struct Window {
    pub(super) tag: u32,
    trouble: AtomicU8,
    /// What this node touches there.
    pub(super) own: OwnTouches,
}

const FINE: u8 = 0;
const WITHDRAWN: u8 = 1;
const LOST: u8 = 2;
const ENDED: u8 = 3;

impl Window {
    #[inline]
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.trouble.load(Acquire) {
            FINE => Ok(()),
            trouble => Err(Self::error(trouble)),
        }
    }

    #[cold]
    const fn error(trouble: u8) -> Error {
        match trouble {
            WITHDRAWN => Error::Refused(Reason::BadKey),
            LOST => Error::PeerLost,
            _ => Error::NodeGone,
        }
    }

    fn set(&self, trouble: u8) {
        // What came first is the reason.
        let _ = self.trouble.compare_exchange(FINE, trouble, SeqCst, Relaxed);
    }
}

impl Host {
    /// Connects to the process that is this host.
    pub(super) fn connect(node: &Node, host: HostId) -> Result<Self, Error> {
        let patience = node.config.patience;
        let path = node.path_of(host);
        let channel = Channel::connect(&path, &node.config.admit).map_err(trouble::rendezvous)?;
        let (kind, body) = ControlMessage::Hello { host: node.host }.encode();
        channel.send(kind, &body, &[]).map_err(trouble::rendezvous)?;
        let message = channel.receive(patience).map_err(trouble::rendezvous)?;
        let mut message = message.ok_or(Error::TimedOut)?;
        let control = ControlMessage::decode(message.kind, &message.body);
        if control != Some(ControlMessage::Welcome { host }) {
            return Err(Error::PeerLost);
        }
        let (Some(doorbell), Some(memory)) = (message.fds.pop(), message.fds.pop()) else {
            return Err(Error::PeerLost);
        };
        let memory = SharedMemory::from_fd(memory).map_err(trouble::memory)?;
        let reporter = Reporter::new(&memory, doorbell).map_err(trouble::report)?;
        Ok(Self {
            host,
            channel,
            reporter: Arc::new(reporter),
            is_gone: AtomicBool::new(false),
            asked: Mutex::default(),
            answered: Condvar::new(),
            next_request: AtomicU32::new(0),
            windows: Mutex::default(),
            loss_watchers: Mutex::default(),
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Acquire)
    }

    /// Asks for the memory of a cookie. The thread of the node receives the answer.
    pub(super) fn map(&self, cookie: &Cookie, patience: Duration) -> Result<Mapped, Error> {
        let request = self.next_request.fetch_add(1, Relaxed);
        match self.request(request, &ControlMessage::Map { request, cookie: *cookie }, patience)? {
            Answer::Mapped(mapped) => Ok(mapped),
            Answer::Refused => Err(Error::StaleCookie),
            Answer::Answered(_) => Err(Error::PeerLost),
        }
    }

    /// Asks those who offer a name there.
    pub(super) fn ask(
        &self,
        name: &Name,
        greeting: Greeting,
        patience: Duration,
    ) -> Result<Answer, Error> {
        let request = self.next_request.fetch_add(1, Relaxed);
        let control = ControlMessage::Ask { request, name: name.clone(), greeting };
        self.request(request, &control, patience)
    }

    fn request(
        &self,
        request: u32,
        control: &ControlMessage,
        patience: Duration,
    ) -> Result<Answer, Error> {
        locked(&self.asked).insert(request, None);
        let (kind, body) = control.encode();
        let sent = self.channel.send(kind, &body, &[]).map_err(trouble::rendezvous);
        let answer = sent.and_then(|()| self.wait_for(request, patience));
        locked(&self.asked).remove(&request);
        answer
    }

    fn wait_for(&self, request: u32, patience: Duration) -> Result<Answer, Error> {
        let deadline = Instant::now().checked_add(patience);
        let mut asked = locked(&self.asked);
        loop {
            if let Some(answer) = asked.get_mut(&request).and_then(Option::take) {
                return Ok(answer);
            }
            if self.is_gone() {
                return Err(Error::PeerLost);
            }
            let left = deadline
                .map_or(patience, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Error::TimedOut);
            }
            let woken = self.answered.wait_timeout(asked, left);
            asked = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Handles what the host has sent; false if it is gone, or violates the protocol.
    pub(super) fn listen(self: &Arc<Self>, node: &Node) -> bool {
        const AT_ONCE: usize = 64;
        // In this order: what it said before it ended has come when it is gone.
        let is_gone = self.channel.is_gone();
        for _ in 0..AT_ONCE {
            match self.channel.receive(Duration::ZERO) {
                Ok(Some(message)) => {
                    if self.handle_message(node, message).is_none() {
                        return false;
                    }
                }
                Ok(None) => return !is_gone,
                Err(_) => return false,
            }
        }
        true
    }

    fn handle_message(self: &Arc<Self>, node: &Node, mut message: Message) -> Option<()> {
        match ControlMessage::decode(message.kind, &message.body)? {
            ControlMessage::Mapped { request, tag } => {
                let (filter, data) = (message.fds.pop()?, message.fds.pop()?);
                let mapped = Mapped { window: self.window(tag), data, filter };
                self.answer(request, Answer::Mapped(mapped));
            }
            ControlMessage::Refused { request } => self.answer(request, Answer::Refused),
            ControlMessage::Answered { request, answer } => {
                self.answer(request, Answer::Answered(answer));
            }
            ControlMessage::Withdrawn { tag } => {
                self.withdrawn(node, tag);
            }
            ControlMessage::OutOfBand { message } => {
                let carrier = Carrier::Host(Arc::clone(self));
                return node.endpoints.take(node, (self.host, &carrier), &message).then_some(());
            }
            _ => return None,
        }
        Some(())
    }

    /// Wakes the threads that sleep until something comes of it: nothing will.
    fn withdrawn(&self, node: &Node, tag: u32) {
        let mut told = Vec::new();
        locked(&self.loss_watchers).retain(|(of, wire)| {
            if *of == tag {
                told.extend(wire.upgrade());
            }
            *of != tag
        });
        // Before the window: who finds the memory withdrawn finds its tripwire fired.
        told.iter().for_each(|wire| wire.mark_peer_lost());
        let window = locked(&self.windows).remove(&tag).and_then(|weak| weak.upgrade());
        if let Some(window) = window {
            window.set(WITHDRAWN);
        }
        for wire in &told {
            wire.notify_queue();
            wire.wake_task();
        }
        if !told.is_empty() {
            node.sleeper.wake();
        }
    }

    /// The window of this tag: the same for all that map it.
    fn window(&self, tag: u32) -> Arc<Window> {
        let mut windows = locked(&self.windows);
        if let Some(window) = windows.get(&tag).and_then(Weak::upgrade) {
            return window;
        }
        windows.retain(|_, window| window.strong_count() > 0);
        let window =
            Arc::new(Window { tag, trouble: AtomicU8::new(FINE), own: OwnTouches::default() });
        windows.insert(tag, Arc::downgrade(&window));
        window
    }

    /// An answer that nobody waits for any more is for memory that is given back.
    fn answer(&self, request: u32, answer: Answer) {
        let mut asked = locked(&self.asked);
        if let Some(place) = asked.get_mut(&request) {
            *place = Some(answer);
            self.answered.notify_all();
        } else if let Answer::Mapped(mapped) = answer {
            drop(asked);
            self.unmap(mapped.window.tag);
        }
    }

    /// What was mapped under this tag is no longer used.
    pub(super) fn unmap(&self, tag: u32) {
        let (kind, body) = ControlMessage::Unmap { tag }.encode();
        // A host that does not listen holds its memory a little longer, for its own part.
        let _ = self.channel.send(kind, &body, &[]);
    }

    /// Fires when this host is lost, or withdraws that memory.
    pub(super) fn watch_for_loss(&self, window: &Window, wire: &Arc<Wire>) {
        {
            let mut loss_watchers = locked(&self.loss_watchers);
            if loss_watchers.len() == loss_watchers.capacity() {
                loss_watchers.retain(|(_, wire)| wire.strong_count() > 0);
            }
            loss_watchers.push((window.tag, Arc::downgrade(wire)));
        }
        if self.is_gone() || window.check().is_err() {
            wire.mark_peer_lost();
            wire.notify_queue();
            wire.wake_task();
        }
    }

    /// It is lost, or this node ends: everything that depends on it is notified.
    pub(super) fn lose(&self, node: &Node) {
        self.is_gone.store(true, SeqCst);
        let loss_watchers = std::mem::take(&mut *locked(&self.loss_watchers));
        let loss_watchers: Vec<_> =
            loss_watchers.iter().filter_map(|(_, wire)| wire.upgrade()).collect();
        // Before the windows: who finds the peer lost there finds its tripwire fired.
        for wire in &loss_watchers {
            wire.mark_peer_lost();
        }
        let trouble = if node.is_down() { ENDED } else { LOST };
        for window in std::mem::take(&mut *locked(&self.windows)).into_values() {
            if let Some(window) = window.upgrade() {
                window.set(trouble);
            }
        }
        {
            // A thread that waits for an answer has looked before, or is woken by this.
            let _asked = locked(&self.asked);
            self.answered.notify_all();
        }
        for wire in &loss_watchers {
            wire.notify_queue();
            wire.wake_task();
        }
        node.sleeper.wake();
        self.channel.hang_up();
    }
}
