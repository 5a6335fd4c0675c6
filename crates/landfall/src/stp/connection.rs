//! [`Connection`]: what is done with the other side.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall_placement::{Duration, PathId, Peer};
use landfall_seal::PeerIdentity;
use landfall_transport::memory::{Memory, Rights};
use stp_core::{ConnectionId, ConnectionLink};

use super::deadline;
use super::error::{Error, Failed};
use super::memory::{Held, Message, Part, Payload};
use super::operation::{Operation, Received, Sent};
use super::remote::{RegionRequest, RemoteMemory};
use super::shards::Shards;
use super::state::{EndpointState, Handle, Known, OfferMade, ReadMade, Request, Submission};
use super::{Priority, Reason, RemoteRights};

/// A connection to another endpoint. Clones are the same connection.
///
/// When the last clone and the last operation are dropped it is closed in the
/// background; [`close`](Self::close) waits for that.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) handle: Arc<Handle>,
    pub(crate) id: ConnectionId,
    /// The other engines answer at their port as long as there is any handle.
    _shards: Arc<Shards>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.handle.submit(Submission::Release(self.id));
    }
}

/// A link of a connection: a path of this side, and an address of the other side there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The path at this side.
    pub path: PathId,
    /// The other side, on that path.
    pub peer: Peer,
    /// Does it work?
    pub is_up: bool,
}

impl Connection {
    pub(super) fn new(shards: &Arc<Shards>, handle: &Arc<Handle>, id: ConnectionId) -> Self {
        Self(Arc::new(Inner { handle: Arc::clone(handle), id, _shards: Arc::clone(shards) }))
    }

    pub(crate) fn of(inner: &Arc<Inner>) -> Self {
        Self(Arc::clone(inner))
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Sends a Transfer: bytes that the other side puts where it wants them. It
    /// is done when all of them are in place there.
    ///
    /// Transfers are independent of each other. They are offered there in the
    /// order in which their requests arrive, and where the network loses or
    /// reorders packets that need not be the order of the sends: number them
    /// with [`opaque`](Operation::opaque) where it matters, or use an
    /// [`OrderedSender`](super::OrderedSender). At most 64 are open on a connection; more wait
    /// here for their turn.
    ///
    /// Registered memory and [`Memory`] may be as long as they are. Other bytes are copied into
    /// the endpoint's arena, and no more than that holds:
    /// [`ArenaConfig::max_bytes`](super::ArenaConfig::max_bytes), 1 GiB, beyond which it fails with
    /// [`Error::Arena`].
    pub fn send(&self, payload: impl Into<Payload>) -> Operation<Sent> {
        let held = payload.into().hold(self.0.handle.pool());
        Operation::holding(&self.0, held, |memory| Request::Send { memory, opaque: 0 })
    }

    /// Lets what was [begun](Operation::start_later) leave now, with one turn of the endpoint.
    pub fn turn(&self) {
        self.0.handle.serve_submitted();
    }

    /// Takes the next Transfer of the other side into memory, and gives it with the memory.
    pub fn receive(&self, memory: Memory) -> Operation<Message> {
        Operation::holding(&self.0, self.own(memory), |memory| Request::Receive {
            memory,
            takes_part: false,
        })
    }

    /// Takes the next Transfer of the other side into registered memory.
    pub fn receive_into(&self, part: &Part) -> Operation<Received> {
        Operation::holding(&self.0, self.hold(part), |memory| Request::Receive {
            memory,
            takes_part: false,
        })
    }

    /// The next Transfer that the other side has, to choose its memory once its
    /// length is known. Memory that waits in a receive comes first.
    ///
    /// Transfers come in the order in which they were begun only where nothing gets lost: the
    /// other side can number them ([`Operation::opaque`](super::Operation::opaque)), or use
    /// [`OrderedSender`](super::OrderedSender).
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub async fn offer(&self) -> Result<Offer, Error> {
        poll_fn(|cx| self.poll_offer(cx)).await
    }

    pub(crate) fn poll_offer(&self, cx: &mut Context<'_>) -> Poll<Result<Offer, Error>> {
        let look = |known: &mut Known| known.offers.pop_front();
        let made = self.0.handle.look(|core| core.poll_known(self.0.id, cx, look));
        made.map_ok(|made| Offer { connection: self.clone(), made: Some(made) })
    }

    /// Asks the other side to send into memory: it is told `opaque` and how much there is room for.
    pub fn read(&self, memory: Memory, opaque: u32) -> Operation<Message> {
        Operation::holding(&self.0, self.own(memory), |memory| Request::Read { memory, opaque })
    }

    /// The same into registered memory.
    pub fn read_into(&self, part: &Part, opaque: u32) -> Operation<Received> {
        Operation::holding(&self.0, self.hold(part), |memory| Request::Read { memory, opaque })
    }

    /// The next read of the other side, to be answered.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub async fn read_request(&self) -> Result<ReadRequest, Error> {
        let look = |known: &mut Known| known.reads.pop_front();
        let made =
            poll_fn(|cx| self.0.handle.look(|core| core.poll_known(self.0.id, cx, look))).await?;
        Ok(ReadRequest { connection: self.clone(), made: Some(made) })
    }

    /// Asks the other side for memory of `len` bytes that it calls `name`.
    pub fn request_region(
        &self,
        name: u32,
        len: u64,
        rights: RemoteRights,
    ) -> Operation<RemoteMemory> {
        Operation::new(&self.0, Request::Region { name, len, rights }, None)
    }

    /// The next region that the other side asks for, to be exposed or refused.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub async fn region_request(&self) -> Result<RegionRequest, Error> {
        poll_fn(|cx| self.poll_region_request(cx)).await
    }

    pub(crate) fn poll_region_request(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RegionRequest, Error>> {
        let look = |known: &mut Known| known.regions.pop_front();
        let made = self.0.handle.look(|core| core.poll_known(self.0.id, cx, look));
        made.map_ok(|made| RegionRequest::new(self.clone(), made))
    }

    /// Adds a link to the other side: Transfers to this side are striped over
    /// all links, and one that dies loses nothing.
    ///
    /// # Errors
    /// [`Error::UnknownPath`]; [`Error::Refused`] where the path is down or the
    /// connection is not open.
    pub fn add_link(&self, path: PathId, peer: impl Into<Peer>) -> Result<(), Error> {
        let peer = peer.into();
        self.0.handle.ask(|core, now| core.add_link(now, self.0.id, path, peer))
    }

    /// Lets Data to this side come over a link, or not while others are up. Requests and answers
    /// go on there. [`Offer::choose_link`] leads a single Transfer to a link.
    ///
    /// # Errors
    /// [`Error::Refused`] where the connection has no such link, or is over.
    pub fn set_data_link(
        &self,
        path: PathId,
        peer: impl Into<Peer>,
        carries_data: bool,
    ) -> Result<(), Error> {
        let (id, peer) = (self.0.id, peer.into());
        self.0.handle.ask(|core, _| {
            let name = core.name_on(id, path, peer)?;
            Ok(core.engine.set_data_link(id, path, name, carries_data)?)
        })
    }

    /// The links between the two sides.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        self.0.handle.look(|core| {
            let links = core.engine.links_of(self.0.id).unwrap_or_default();
            let link = |link: ConnectionLink| {
                let ConnectionLink { path, peer, is_up } = link;
                let peer = core.engine.remote(path, peer).unwrap_or(peer);
                Link { path, peer, is_up }
            };
            links.into_iter().map(link).collect()
        })
    }

    /// Sets whether its Transfers go before those of other connections, in both directions:
    /// those that begin from now on, where they have no
    /// [priority of their own](Operation::priority). At a receiver the first gets all that it
    /// can use, and others what is left; at a sender its Data leaves before that to other
    /// peers. The other side does not hear of it.
    ///
    /// ```
    /// use landfall::stp::{Priority, Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let _backup = client.connect(server.local().unwrap(), 7)?;
    /// let connection = listener.accept()?;
    /// connection.set_priority(Priority::Low)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] where it is over.
    pub fn set_priority(&self, priority: Priority) -> Result<(), Error> {
        let id = self.0.id;
        Ok(self.0.handle.look(|core| core.engine.set_priority(id, priority))?)
    }

    /// Sets how much it may have of what this side grants, beside others of the same
    /// priority that use what they are granted: 1, as all others have, to 1,000. Connections
    /// to one peer over one path share what the largest of their weights gives.
    ///
    /// ```
    /// # use landfall::stp::{Transport, blocking::Endpoint};
    /// # let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// # let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// # let listener = server.listen(7)?;
    /// # let _client = client.connect(server.local().unwrap(), 7)?;
    /// // What it sends comes four times as fast as that of others who send all they can.
    /// listener.accept()?.set_weight(4)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] where it is over, or the weight is not 1 to 1,000.
    pub fn set_weight(&self, weight: u16) -> Result<(), Error> {
        let id = self.0.id;
        Ok(self.0.handle.look(|core| core.engine.set_weight(id, weight))?)
    }

    /// Who the other side has proven to be. Nothing where the connection is plain, or over
    /// for a while.
    #[must_use]
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        let id = self.0.id;
        self.0.handle.look(|core| core.engine.identity(core.connections.get(&id)?.name))
    }

    /// The application protocol that both sides have chosen, where they prove themselves by
    /// certificates and have named some.
    #[must_use]
    pub fn application_protocol(&self) -> Option<Vec<u8>> {
        let id = self.0.id;
        self.0.handle.look(|core| {
            let name = core.connections.get(&id)?.name;
            core.engine.application_protocol(name).map(<[u8]>::to_vec)
        })
    }

    /// Is it encrypted and authenticated?
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.peer_identity().is_some()
    }

    /// The other side, on the path that the connection was opened over.
    #[must_use]
    pub fn peer(&self) -> Peer {
        let peer =
            |core: &mut EndpointState| core.connections.get(&self.0.id).map(|known| known.peer);
        self.0.handle.look(peer).unwrap_or_default()
    }

    /// The path that the connection was opened over.
    #[must_use]
    pub fn path(&self) -> PathId {
        let path =
            |core: &mut EndpointState| core.connections.get(&self.0.id).map(|known| known.path);
        self.0.handle.look(path).unwrap_or_default()
    }

    /// Eight bytes that the user at the other side sent along when it connected.
    #[must_use]
    pub fn hello(&self) -> u64 {
        let hello =
            |core: &mut EndpointState| core.connections.get(&self.0.id).map(|known| known.hello);
        self.0.handle.look(hello).unwrap_or_default()
    }

    /// Lets a call on this connection take so long at most, in a task: what is not over then is
    /// dropped. [`Operation::within`] is the same for operations.
    ///
    /// ```
    /// use landfall::stp::{Error, Transport, blocking::Endpoint};
    /// use std::time::Duration;
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let _client = client.connect(server.local().unwrap(), 7)?;
    /// let connection = listener.accept()?;
    /// let connection = connection.as_async();
    ///
    /// // Nothing is offered in time.
    /// let offer = connection.within(Duration::from_millis(5), connection.offer());
    /// assert!(matches!(server.wait(offer), Err(Error::TimedOut { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub async fn within<F: Future>(&self, limit: Duration, call: F) -> Result<F::Output, Error> {
        deadline::within(&self.0.handle, limit, call).await
    }

    /// Closes gracefully: nothing new begins, what is under way goes on to its
    /// end, then both sides forget the connection.
    ///
    /// # Errors
    /// [`Error::Closed`] with why, where the end was not graceful.
    pub async fn close(self) -> Result<(), Error> {
        let id = self.0.id;
        self.0.handle.submit(Submission::Close(id));
        self.closed().await
    }

    /// Waits until the connection is over, no matter who ends it.
    ///
    /// # Errors
    /// [`Error::Closed`] with why, where the end was not graceful.
    pub async fn closed(&self) -> Result<(), Error> {
        let id = self.0.id;
        let why = poll_fn(|cx| self.0.handle.look(|core| core.poll_closed(id, cx))).await;
        why.map_or(Ok(()), |why| Err(Error::Closed { why: Some(why) }))
    }

    /// Ends the connection now, with all that is under way; the other side is told.
    pub fn abort(&self) {
        self.refuse(Reason::Cancelled);
    }

    /// The same, and the other side hears why. What it greets with may be a reason.
    ///
    /// ```
    /// use landfall::stp::{Reason, Transport, blocking::Endpoint};
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let theirs = client.connect(server.local().unwrap(), 7)?;
    /// listener.accept()?.as_async().refuse(Reason::Incompatible);
    /// assert!(theirs.closed().unwrap_err().to_string().contains("sizes or versions"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refuse(&self, reason: Reason) {
        self.0.handle.submit(Submission::Abort(self.0.id, reason));
    }

    pub(crate) fn hold(&self, part: &Part) -> Result<Held, Failed> {
        Ok(Held::new(part.clone(), self.0.handle.pool())?)
    }

    pub(crate) fn own(&self, memory: Memory) -> Result<Held, Failed> {
        Held::own(memory, Rights::READ | Rights::WRITE, self.0.handle.pool())
    }
}

/// A Transfer that the other side has, and no memory was waiting for. Dropped, it is refused.
#[derive(Debug)]
#[must_use = "it is refused when it is dropped"]
pub struct Offer {
    connection: Connection,
    made: Option<OfferMade>,
}

impl Offer {
    /// How many bytes the other side has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.made.map_or(0, |made| made.len)
    }

    /// Has it none? Such a Transfer is accepted like any other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Four bytes of the sender's user.
    #[must_use]
    pub fn opaque(&self) -> u32 {
        self.made.map_or(0, |made| made.opaque)
    }

    /// Lets its bytes come over one of the connection's [links](Connection::links) while that is
    /// up, before there is memory for them: others stay free for other Transfers.
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let connection = client.connect(server.local().unwrap(), 7)?;
    /// let sending = connection.send(Memory::from_bytes(b"backup")).start();
    /// let receiver = listener.accept()?;
    /// let offer = receiver.offer()?;
    /// let slow = receiver.links().pop().expect("there is one");
    /// offer.choose_link(slow.path, slow.peer)?;
    /// assert_eq!(&*offer.accept(Memory::zeroed(6)).wait()?, b"backup");
    /// sending.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] where the connection has no such link, or the Transfer is over.
    pub fn choose_link(&self, path: PathId, peer: impl Into<Peer>) -> Result<(), Error> {
        let (id, peer) = (self.connection.0.id, peer.into());
        let receive = self.made.map(|made| made.receive);
        self.connection.0.handle.ask(|core, _| {
            let name = core.name_on(id, path, peer)?;
            let receive = receive.ok_or(stp_core::Error::Unknown)?;
            Ok(core.engine.choose_link(receive, path, name)?)
        })
    }

    /// Takes at most this many bytes of it, before there is memory for them: the other side hears
    /// that at once. It must then be accepted into memory that holds this many.
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let connection = client.connect(server.local().unwrap(), 7)?;
    /// let sending = connection.send(Memory::from_bytes(b"much too much")).start();
    /// let offer = listener.accept()?.offer()?;
    /// offer.limit(4)?;
    /// assert_eq!(&*offer.accept(Memory::zeroed(4)).wait()?, b"much");
    /// assert_eq!(sending.wait()?.len, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] for no bytes at all, where a limit was said before, or the Transfer is
    /// over.
    pub fn limit(&self, len: u64) -> Result<(), Error> {
        let receive = self.made.map(|made| made.receive);
        self.connection.0.handle.ask(|core, _| {
            let receive = receive.ok_or(stp_core::Error::Unknown)?;
            Ok(core.engine.limit(receive, len)?)
        })
    }

    /// Takes it into memory, and gives it with the memory.
    pub fn accept(mut self, memory: Memory) -> Operation<Message> {
        let held = self.connection.own(memory);
        self.begin(held)
    }

    /// Takes as much of it as there is memory for, however much there is: the other side
    /// hears how much that is, and sends no more.
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let connection = client.connect(server.local().unwrap(), 7)?;
    /// let sending = connection.send(Memory::from_bytes(b"much too much")).start();
    /// let offer = listener.accept()?.offer()?;
    /// assert_eq!(offer.len(), 13);
    /// assert_eq!(&*offer.accept_start(Memory::zeroed(4)).wait()?, b"much");
    /// assert_eq!(sending.wait()?.len, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_start(self, memory: Memory) -> Operation<Message> {
        self.accept(memory).taking_part()
    }

    /// Takes it into registered memory.
    pub fn accept_into(mut self, part: &Part) -> Operation<Received> {
        let held = self.connection.hold(part);
        self.begin(held)
    }

    fn begin<T>(&mut self, held: Result<Held, Failed>) -> Operation<T> {
        let inner = &self.connection.0;
        // An offer is there until it is used up, which takes it by value.
        let receive = match (&held, self.made) {
            (Ok(_), Some(made)) => made.receive,
            _ => return Operation::failed(inner, held.err()),
        };
        self.made = None;
        Operation::holding(inner, held, |memory| Request::Accept {
            receive,
            memory,
            takes_part: false,
        })
    }

    /// Does not take it, and says why.
    pub fn refuse(mut self, reason: Reason) {
        self.give_up(reason);
    }

    fn give_up(&mut self, reason: Reason) {
        if let Some(made) = self.made.take() {
            let handle = &self.connection.0.handle;
            handle.submit(Submission::RefuseOffer(made.receive, reason));
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.give_up(Reason::Refused);
    }
}

/// The other side wants to be sent something. Dropped, it is refused.
#[derive(Debug)]
#[must_use = "it is refused when it is dropped"]
pub struct ReadRequest {
    connection: Connection,
    made: Option<ReadMade>,
}

impl ReadRequest {
    /// How many bytes there is room for at the other side.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.made.map_or(0, |made| made.len)
    }

    /// Is there room for none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the reader said about what it wants.
    #[must_use]
    pub fn opaque(&self) -> u32 {
        self.made.map_or(0, |made| made.opaque)
    }

    /// Sends this, at most as much as there is room for.
    pub fn answer(mut self, payload: impl Into<Payload>) -> Operation<Sent> {
        let inner = &self.connection.0;
        let held = payload.into().hold(inner.handle.pool());
        let read = match (&held, self.made) {
            (Ok(_), Some(made)) => made.read,
            _ => return Operation::failed(inner, held.err()),
        };
        self.made = None;
        Operation::holding(inner, held, |memory| Request::AnswerRead { read, memory, opaque: 0 })
    }

    /// Sends nothing, and says why.
    pub fn refuse(mut self, reason: Reason) {
        self.give_up(reason);
    }

    fn give_up(&mut self, reason: Reason) {
        if let Some(made) = self.made.take() {
            let handle = &self.connection.0.handle;
            handle.submit(Submission::RefuseRead(made.read, reason));
        }
    }
}

impl Drop for ReadRequest {
    fn drop(&mut self) {
        self.give_up(Reason::Refused);
    }
}
