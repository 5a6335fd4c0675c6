//! [`Offer`] and [`Found`]: nodes of one host find each other by names, and connect.
//!
//! A name leads to a node (see [`directory`](super::directory)); what is offered is asked of
//! that node, over the socket of the node. A process that finds a name sends a few bytes, mostly
//! the cookies of its halves; the one that offered it gets them with the kernel's word on who has
//! come, and answers with a few bytes, or refuses. So a cookie goes only to those who are
//! meant to have it.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use clan_dsm::Reason;
use landfall_transport::shm::rendezvous::{Admit, Peer};

use super::SharedNode;
use super::control::ControlMessage;
use super::directory::{self, NameFile};
use super::host::{Answer, Host};
use super::node::Node;
use super::remote::PeerProcess;
use super::trouble::locked;
use crate::clan::Error;
use crate::clan::layer::{Connect, Half, publish, stream};
use crate::clan::names::{self, Greeting, Name, bounded, named};

/// Those who have asked for a name and wait for an answer; more are refused.
const MOST_WAITING: usize = 128;

/// Between two looks for a name that nobody offers yet: at first, and at last.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LAST_PAUSE: Duration = Duration::from_millis(10);

/// What those who offer a name and the thread of the node share.
pub(super) struct Service {
    admit: Admit,
    state: Mutex<Waiting>,
    has_come: Condvar,
}

#[derive(Default)]
struct Waiting {
    visitors: VecDeque<NameRequest>,
    waker: Option<Waker>,
    is_over: bool,
}

impl Service {
    /// A process has asked. One that is not admitted, or finds no room, is refused.
    pub(super) fn ask(&self, process: &Arc<PeerProcess>, request: u32, greeting: Greeting) {
        let visitor =
            NameRequest { process: Arc::clone(process), request, greeting, is_answered: false };
        if !self.admit.admits(&visitor.peer()) {
            return;
        }
        let mut state = locked(&self.state);
        if state.is_over || state.visitors.len() >= MOST_WAITING {
            return;
        }
        state.visitors.push_back(visitor);
        let waker = state.waker.take();
        drop(state);
        self.has_come.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The node ends, or the offer does.
    pub(super) fn end(&self) {
        let mut state = locked(&self.state);
        state.is_over = true;
        let (visitors, waker) = (std::mem::take(&mut state.visitors), state.waker.take());
        drop(state);
        drop(visitors);
        self.has_come.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A name that this node offers. When it is dropped, or its process ends, the name is free.
pub struct Offer {
    node: Arc<Node>,
    name: Name,
    service: Arc<Service>,
    _file: NameFile,
}

impl Offer {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default()
    }

    /// Does nobody wait for an answer?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        locked(&self.service.state).visitors.is_empty()
    }

    /// The next who has found the name, if one has come.
    ///
    /// # Errors
    /// The node has ended.
    pub fn try_accept(&self) -> Result<Option<NameRequest>, Error> {
        let mut state = locked(&self.service.state);
        match state.visitors.pop_front() {
            None if state.is_over => Err(Error::NodeGone),
            visitor => Ok(visitor),
        }
    }

    /// The next who has found the name, once one has come.
    ///
    /// # Errors
    /// The node has ended, or the deadline is over.
    pub fn accept(&self, deadline: Option<Instant>) -> Result<NameRequest, Error> {
        let mut state = locked(&self.service.state);
        loop {
            match state.visitors.pop_front() {
                Some(visitor) => return Ok(visitor),
                None if state.is_over => return Err(Error::NodeGone),
                None => {}
            }
            state = match deadline {
                None => self.service.has_come.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Error::TimedOut);
                    }
                    let woken = self.service.has_come.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The same for a task. One task waits at a time.
    ///
    /// # Errors
    /// The node has ended.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<NameRequest, Error>> {
        let mut state = locked(&self.service.state);
        match state.visitors.pop_front() {
            Some(visitor) => return Poll::Ready(Ok(visitor)),
            None if state.is_over => return Poll::Ready(Err(Error::NodeGone)),
            None => {}
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// [`accept`](Self::accept) for a task.
    ///
    /// # Errors
    /// The node has ended.
    pub async fn accept_async(&self) -> Result<NameRequest, Error> {
        poll_fn(|context| self.poll_accept(context)).await
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.node.withdraw_name(&self.name);
        self.service.end();
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({:?} by {})", self.name(), self.node.host)
    }
}

/// Somebody who has found a name. Dropped without an answer, it is refused.
pub struct NameRequest {
    process: Arc<PeerProcess>,
    request: u32,
    greeting: Greeting,
    is_answered: bool,
}

impl NameRequest {
    /// Which process it is, and of which user: the kernel's word.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.process.channel.peer()
    }

    /// What it says.
    #[must_use]
    pub fn greeting(&self) -> &[u8] {
        &self.greeting
    }

    /// Answers it.
    ///
    /// # Errors
    /// The answer has more than 128 bytes, or the process is gone or does not listen.
    pub fn answer(mut self, answer: &[u8]) -> Result<(), Error> {
        let answer = bounded(answer)?;
        self.is_answered = true;
        self.process.send_control(&ControlMessage::Answered { request: self.request, answer })
    }

    /// Connects this half to the half that it has sent, which it has by
    /// [`Found::join`].
    ///
    /// # Errors
    /// What it says is no cookie, those of [`Half::connect`] and of [`answer`](Self::answer).
    pub fn join<P: Connect<SharedNode>>(self, half: Half<SharedNode, P>) -> Result<P, Error> {
        names::NameRequest::join(self, half)
    }

    /// Connects both directions of a stream, with [`Found::join_stream`].
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    pub fn join_stream(
        self,
        opening: stream::Opening<SharedNode>,
    ) -> Result<stream::Stream<SharedNode>, Error> {
        names::NameRequest::join_stream(self, opening)
    }

    /// Makes it a subscriber, which it becomes by [`Found::join`].
    ///
    /// # Errors
    /// Those of [`publish::Publisher::add`] and of [`answer`](Self::answer).
    pub fn subscribe(self, publisher: &mut publish::Publisher<SharedNode>) -> Result<(), Error> {
        names::NameRequest::subscribe(self, publisher)
    }
}

impl Drop for NameRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            // One that is gone needs no answer.
            let _ = self.process.send_control(&ControlMessage::Refused { request: self.request });
        }
    }
}

impl fmt::Debug for NameRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it says may be a cookie, which belongs into no log.
        f.debug_struct("NameRequest").field("peer", &self.peer()).finish_non_exhaustive()
    }
}

/// A node that offers a name.
pub struct Found {
    host: Arc<Host>,
    patience: Duration,
    name: Name,
}

impl Found {
    /// Says a few bytes to who offers the name, and gives the answer: at most 128 bytes each.
    ///
    /// # Errors
    /// It refuses ([`Error::Refused`]), the deadline is over, or it is gone. Without a
    /// deadline the patience of the configuration counts.
    pub fn ask(&self, greeting: &[u8], deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
        let greeting = bounded(greeting)?;
        let patience = deadline
            .map_or(self.patience, |deadline| deadline.saturating_duration_since(Instant::now()));
        match self.host.ask(&self.name, greeting, patience)? {
            Answer::Answered(answer) => Ok(answer.to_vec()),
            _ => Err(Error::Refused(Reason::Refused)),
        }
    }

    /// Connects this half to the half of who offers the name, who does
    /// [`NameRequest::join`] (or, for subscribers, [`NameRequest::subscribe`]).
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask) and of [`Half::connect`].
    pub fn join<P: Connect<SharedNode>>(
        &self,
        half: Half<SharedNode, P>,
        deadline: Option<Instant>,
    ) -> Result<P, Error> {
        names::Found::join(self, half, deadline)
    }

    /// Connects both directions of a stream, with [`NameRequest::join_stream`].
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    pub fn join_stream(
        &self,
        opening: stream::Opening<SharedNode>,
        deadline: Option<Instant>,
    ) -> Result<stream::Stream<SharedNode>, Error> {
        names::Found::join_stream(self, opening, deadline)
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::str::from_utf8(&self.name).unwrap_or_default();
        write!(f, "Found({name:?} at {})", self.host.host)
    }
}

impl SharedNode {
    /// Offers a name in the folder of this node, to anyone who it admits: 1 to 64 bytes of text.
    /// The name is this node's until the offer is dropped or the process ends, however it
    /// does.
    ///
    /// ```
    /// use landfall::clan::layer::queue::{Config, Receiver, Sender};
    /// use landfall::clan::shared::{SharedConfig, SharedNode};
    ///
    /// # let folder = std::env::temp_dir().join(format!("landfall-names-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let config = SharedConfig::new(&folder);
    /// # let other = config.clone();
    /// // One process:
    /// let node = SharedNode::open(config)?;
    /// let offer = node.offer("prices")?;
    /// # let reading = std::thread::spawn(move || {
    /// // Another one:
    /// # let config = other;
    /// let node = SharedNode::open(config)?;
    /// let receiver = Receiver::open(&node, Config::new(8, 64))?;
    /// let mut receiver = node.find("prices", None)?.join(receiver, None)?;
    /// let mut price = [0; 8];
    /// receiver.get(&mut price, None)?;
    /// # Ok::<_, landfall::clan::Error>(price)
    /// # });
    /// // The first:
    /// let sender = Sender::open(&node, Config::new(8, 64).singly())?;
    /// let mut sender = offer.accept(None)?.join(sender)?;
    /// sender.put(&99.5f64.to_le_bytes(), None)?;
    /// # assert_eq!(reading.join().unwrap()?, 99.5f64.to_le_bytes());
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another node offers that name, it is no name, or the node has ended.
    pub fn offer(&self, name: &str) -> Result<Offer, Error> {
        self.offer_to(name, self.0.node.config.admit.clone())
    }

    /// The same for these users only; others are refused. They have to be let in by the
    /// [configuration](super::SharedConfig::admit) of the node, too.
    ///
    /// # Errors
    /// Those of [`offer`](Self::offer).
    pub fn offer_to(&self, name: &str, admit: Admit) -> Result<Offer, Error> {
        let node = &self.0.node;
        if node.is_down() {
            return Err(Error::NodeGone);
        }
        let config = &node.config;
        let service =
            Arc::new(Service { admit, state: Mutex::default(), has_come: Condvar::new() });
        let offered = named(name)?;
        // Before the file: who finds that finds the service.
        node.offer_name(offered.clone(), &service)?;
        match NameFile::create(&config.folder, name, node.host, &config.admit) {
            Ok(file) => Ok(Offer { node: Arc::clone(node), name: offered, service, _file: file }),
            Err(error) => {
                node.withdraw_name(&offered);
                Err(error)
            }
        }
    }

    /// Finds who offers a name, and waits for it if nobody does yet: at most until the
    /// deadline.
    ///
    /// # Errors
    /// Nobody offers it until then, who offers it is not admitted, or the node has ended.
    pub fn find(&self, name: &str, deadline: Option<Instant>) -> Result<Found, Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(found) = self.try_find(name)? {
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TimedOut);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Finds who offers a name, if somebody does.
    ///
    /// # Errors
    /// Who offers it is not admitted, or the node has ended.
    pub fn try_find(&self, name: &str) -> Result<Option<Found>, Error> {
        let node = &self.0.node;
        if node.is_down() {
            return Err(Error::NodeGone);
        }
        let Some(number) = directory::find(&node.config.folder, name, &node.config.admit)? else {
            return Ok(None);
        };
        match self.reach(number) {
            Ok(host) => {
                let (patience, name) = (node.config.patience, named(name)?);
                Ok(Some(Found { host, patience, name }))
            }
            // It has gone since, or is about to come.
            Err(Error::NoRoute | Error::PeerLost | Error::Busy) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names that are offered in the folder of this node, in no order.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        directory::list(&self.0.node.config.folder, &self.0.node.config.admit)
    }
}

names::as_names!(SharedNode);
