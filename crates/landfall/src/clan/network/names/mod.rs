//! Names over networks: [`Offer`], [`NameRequest`], [`Found`].
//!
//! What is offered is asked of a node by its link, which is encrypted wherever it leaves the host:
//! on a connection with [`NAME_PORT`], 40 bytes at a time. So who has come, and who answers, is
//! who has proven the key of the link. Where a name is asked for is another thing: at all nodes
//! that there are links with, and at those that [`Discovery`] finds.
//!
//! The first message of each connection begins with a version (1), the kind (0: tell when the name
//! is offered; 1: ask who offers it), and the lengths of name and greeting; the bytes of both
//! follow, over as many messages as they take. The answer begins with 1 (answered) or 0 (refused)
//! and a length.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `service` | what a node answers, under its lock |
//! | `ask` | what a node asks another |
//! | `search` | at whom it asks for a name |
//! | `discovery` | what is said to a multicast group |

mod ask;
mod discovery;
mod search;
mod service;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use clan_dsm::{EndpointId, HostId, Port};
use landfall_seal::{Fingerprint, PeerIdentity};

pub use self::discovery::Discovery;
pub(crate) use self::discovery::{Discoverer, Introduction, OpenDiscovery};
pub(crate) use self::service::NameService;

use self::service::OfferState;
use super::engines::NodeHandle;
use super::neighbour::Link;
use super::node::Node;
use super::state::DeferredWork;
use crate::clan::Error;
use crate::clan::layer::{Connect, Half, publish, stream};
use crate::clan::names::{self, Greeting, Name, bounded, named};
use crate::runtime::Deferred as _;

/// The port where a node is asked for names.
pub const NAME_PORT: Port = Port(u32::MAX);

/// The fingerprint of what was proven, if that has one.
fn fingerprint_of(identity: Option<PeerIdentity>) -> Option<Fingerprint> {
    match identity? {
        PeerIdentity::PublicKey(key) => Some(key.fingerprint()),
        #[cfg(feature = "certificates")]
        PeerIdentity::Certificate(fingerprint) => Some(fingerprint),
        _ => None,
    }
}

/// A name that this node offers. When it is dropped, or the node ends, nobody finds it any more.
pub struct Offer {
    handle: NodeHandle,
    name: Name,
    state: Arc<OfferState>,
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
        self.state.is_empty()
    }

    fn request(&self, asked: service::PendingRequest) -> NameRequest {
        NameRequest { handle: self.handle.clone(), asked, is_answered: false }
    }

    /// The next who has found the name, if one has come.
    ///
    /// # Errors
    /// The node has ended.
    pub fn try_accept(&self) -> Result<Option<NameRequest>, Error> {
        Ok(self.state.next()?.map(|asked| self.request(asked)))
    }

    /// The next who has found the name, once one has come. This thread drives the node meanwhile.
    ///
    /// # Errors
    /// The node has ended, or the deadline is over.
    pub fn accept(&self, deadline: Option<Instant>) -> Result<NameRequest, Error> {
        self.handle.block_on(self.accept_async(), deadline)?.ok_or(Error::TimedOut)?
    }

    /// The same for a task. One task waits at a time.
    ///
    /// # Errors
    /// The node has ended.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<NameRequest, Error>> {
        self.state.poll_next(context).map_ok(|asked| self.request(asked))
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
        if let Some(discoverer) = self.handle.discoverer() {
            discoverer.withdraw(&self.name);
        }
        // The first engine's last: until it is gone nobody offers the name anew.
        for engine in self.handle.engines().iter().rev() {
            engine.look(|core| core.withdraw_name(&self.name));
        }
        let mut after = DeferredWork::default();
        let waiting = self.state.end(&mut after);
        after.run();
        for asked in waiting {
            // Dropped without an answer, it is refused.
            drop(self.request(asked));
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({:?})", self.name())
    }
}

/// A node that has found a name. Dropped without an answer, it is refused.
pub struct NameRequest {
    handle: NodeHandle,
    asked: service::PendingRequest,
    is_answered: bool,
}

impl NameRequest {
    /// Which host asks.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.asked.host
    }

    /// Who it has proven to be. Nothing where the link is plain.
    #[must_use]
    pub const fn peer_identity(&self) -> Option<PeerIdentity> {
        self.asked.identity
    }

    /// What it says.
    #[must_use]
    pub fn greeting(&self) -> &[u8] {
        &self.asked.greeting
    }

    /// Answers it.
    ///
    /// # Errors
    /// The answer has more than 128 bytes, or the node that has asked is gone.
    pub fn answer(mut self, answer: &[u8]) -> Result<(), Error> {
        let answer = bounded(answer)?;
        self.is_answered = true;
        self.reply(Some(&answer))
    }

    fn reply(&self, answer: Option<&Greeting>) -> Result<(), Error> {
        let id: EndpointId = self.asked.conversation;
        self.handle.at(self.asked.nth).ask(|core, now| core.answer_name(now, id, answer))
    }

    /// Connects this half to the half that it has sent, which it has by [`Found::join`].
    ///
    /// # Errors
    /// What it says is no cookie, those of [`Half::connect`] and of [`answer`](Self::answer).
    pub fn join<P: Connect<Node>>(self, half: Half<Node, P>) -> Result<P, Error> {
        names::NameRequest::join(self, half)
    }

    /// Connects both directions of a stream, with [`Found::join_stream`].
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    pub fn join_stream(
        self,
        opening: stream::Opening<Node>,
    ) -> Result<stream::Stream<Node>, Error> {
        names::NameRequest::join_stream(self, opening)
    }

    /// Makes it a subscriber, which it becomes by [`Found::join`].
    ///
    /// # Errors
    /// Those of [`publish::Publisher::add`] and of [`answer`](Self::answer).
    pub fn subscribe(self, publisher: &mut publish::Publisher<Node>) -> Result<(), Error> {
        names::NameRequest::subscribe(self, publisher)
    }
}

impl Drop for NameRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            // One that is gone needs no answer.
            let _ = self.reply(None);
        }
    }
}

impl fmt::Debug for NameRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it says may be a cookie, which belongs into no log.
        f.debug_struct("NameRequest").field("host", &self.host()).finish_non_exhaustive()
    }
}

/// A node that offers a name.
pub struct Found {
    handle: NodeHandle,
    link: Link,
    host: HostId,
    name: Name,
}

impl Found {
    /// Which host offers it.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// The link to it, which says who it has proven to be.
    #[must_use]
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Says a few bytes to who offers the name, and gives the answer: at most 128 bytes each.
    /// This thread drives the node meanwhile.
    ///
    /// # Errors
    /// It refuses ([`Error::Refused`]), the deadline is over, or it is gone.
    pub fn ask(&self, greeting: &[u8], deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
        let asking = self.ask_async(greeting);
        self.handle.block_on(asking, deadline)?.ok_or(Error::TimedOut)?
    }

    /// The same for a task.
    ///
    /// # Errors
    /// It refuses, or is gone.
    pub async fn ask_async(&self, greeting: &[u8]) -> Result<Vec<u8>, Error> {
        let greeting = bounded(greeting)?;
        ask::ask(&self.handle, (self.host, ask::Kind::Ask), &self.name, &greeting).await
    }

    /// Connects this half to the half of who offers the name, who does [`NameRequest::join`]
    /// (or, for subscribers, [`NameRequest::subscribe`]).
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask) and of [`Half::connect`].
    pub fn join<P: Connect<Node>>(
        &self,
        half: Half<Node, P>,
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
        opening: stream::Opening<Node>,
        deadline: Option<Instant>,
    ) -> Result<stream::Stream<Node>, Error> {
        names::Found::join_stream(self, opening, deadline)
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::str::from_utf8(&self.name).unwrap_or_default();
        write!(f, "Found({name:?} at {})", self.host)
    }
}

impl Node {
    /// Offers a name to every node that has a link with this one: 1 to 64 bytes of text. Where
    /// the node was built with [`Discovery`], those that have none find it as well.
    ///
    /// ```
    /// use landfall::clan::layer::queue::{Config, Receiver, Sender};
    /// use landfall::clan::network::{HostId, Node, Transport};
    ///
    /// let open = |host| Node::open(HostId::new(host).unwrap(), Transport::udp(([127, 0, 0, 1], 0).into()));
    /// let (here, there) = (open(1)?, open(2)?);
    /// let offer = here.offer("prices")?;
    /// let reading = std::thread::spawn({
    ///     let at = here.local().unwrap();
    ///     move || {
    ///         there.link(at)?.wait_up(None)?;
    ///         let receiver = Receiver::open(&there, Config::new(8, 64))?;
    ///         let mut receiver = there.find("prices", None)?.join(receiver, None)?;
    ///         let mut price = [0; 8];
    ///         receiver.get(&mut price, None)?;
    ///         Ok::<_, landfall::clan::Error>(price)
    ///     }
    /// });
    /// let sender = Sender::open(&here, Config::new(8, 64).singly())?;
    /// let mut sender = offer.accept(None)?.join(sender)?;
    /// sender.put(&99.5f64.to_le_bytes(), None)?;
    /// assert_eq!(reading.join().unwrap()?, 99.5f64.to_le_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// This node offers that name already, it is no name, or the node has ended.
    pub fn offer(&self, name: &str) -> Result<Offer, Error> {
        self.offer_with(name, None)
    }

    /// The same for nodes only that have proven to have one of these keys; others are refused,
    /// and do not learn that there is such a name.
    ///
    /// # Errors
    /// Those of [`offer`](Self::offer).
    pub fn offer_to(
        &self,
        name: &str,
        keys: impl IntoIterator<Item = Fingerprint>,
    ) -> Result<Offer, Error> {
        self.offer_with(name, Some(keys.into_iter().collect()))
    }

    fn offer_with(&self, name: &str, keys: Option<Vec<Fingerprint>>) -> Result<Offer, Error> {
        let handle = self.handle();
        handle.check()?;
        let name = named(name)?;
        let is_open = keys.is_none();
        let state = Arc::new(OfferState::new(keys));
        for (nth, engine) in handle.engines().iter().enumerate() {
            let offered = engine.ask(|core, now| core.offer_name(now, &name, &state));
            if let Err(error) = offered {
                for engine in handle.engines()[..nth].iter().rev() {
                    engine.look(|core| core.withdraw_name(&name));
                }
                return Err(error);
            }
        }
        // A name for some nodes only is not told to all.
        if let Some(discoverer) = handle.discoverer().filter(|_| is_open) {
            discoverer.announce(&name);
        }
        Ok(Offer { handle: handle.clone(), name, state })
    }

    /// Finds who offers a name: at the nodes that this one has links with, also those that come
    /// up meanwhile, and at those that [`Discovery`] leads to. Waits for it if nobody does yet:
    /// at most until the deadline. Of several that offer it, any.
    ///
    /// # Errors
    /// Nobody offers it until then, it is no name, or the node has ended.
    pub fn find(&self, name: &str, deadline: Option<Instant>) -> Result<Found, Error> {
        self.handle().block_on(self.find_async(name), deadline)?.ok_or(Error::TimedOut)?
    }

    /// The same, of the node that has this key and no other, whatever is announced.
    ///
    /// # Errors
    /// Those of [`find`](Self::find).
    pub fn find_with_key(
        &self,
        name: &str,
        key: Fingerprint,
        deadline: Option<Instant>,
    ) -> Result<Found, Error> {
        let finding = search::find(self, name, Some(key));
        self.handle().block_on(finding, deadline)?.ok_or(Error::TimedOut)?
    }

    /// [`find`](Self::find) for a task, which waits as long as it takes.
    ///
    /// # Errors
    /// It is no name, or the node has ended.
    pub async fn find_async(&self, name: &str) -> Result<Found, Error> {
        search::find(self, name, None).await
    }
}

names::as_names!(Node);
