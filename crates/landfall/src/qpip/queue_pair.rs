//! [`QueuePair`]: two queues of work requests, and who is at the other end.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use qpip::{
    CloseReason, ConnectionStats, Mapping, Operation, PostError, QueuePairId, QueuePairSetup,
    Service,
};

use super::completion_queue::CompletionQueue;
use super::doorbell::WorkRing;
use super::error::Error;
use super::listener::Pending;
use super::memory::{DomainName, Part};
use super::pair_state::Phase;
use super::shared_receives::SharedReceiveQueue;
use super::state::Handle;
use super::work_queues::{Common, InlineMemory, Queue, ReceiveQueue, SendQueue, SendRules};

/// What a queue pair is like.
///
/// ```
/// use landfall::qpip::{Mapping, QueuePairOptions, Service};
///
/// let options = QueuePairOptions { receive_depth: 256, ..QueuePairOptions::tcp(Mapping::Stream) };
/// assert_eq!(options.service, Service::Tcp(Mapping::Stream));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// What it speaks, and how messages lie in it.
    pub service: Service,
    /// How many sends can be posted at a time.
    pub send_depth: u32,
    /// How many receives.
    pub receive_depth: u32,
    /// How many buffers one request has at most. The adapter's
    /// [`Config::buffers`](super::Config) is a bound, too.
    pub buffers: u16,
    /// How many bytes a send has at most that is posted with them
    /// ([`SendQueue::post_inline`]): as many times the depth are kept for that.
    pub inline: u32,
    /// What happens to its connection is told in the completion queue of its receives, too
    /// ([`CompletionQueue::poll_change`]).
    pub tells: bool,
}

impl QueuePairOptions {
    /// For a TCP connection, 64 requests deep each way.
    #[must_use]
    pub const fn tcp(mapping: Mapping) -> Self {
        let service = Service::Tcp(mapping);
        let (inline, tells) = (0, false);
        Self { service, send_depth: 64, receive_depth: 64, buffers: 4, inline, tells }
    }

    /// For UDP datagrams, 64 requests deep each way.
    #[must_use]
    pub const fn udp() -> Self {
        Self { service: Service::Udp, ..Self::tcp(Mapping::Stream) }
    }
}

/// Two queues of work requests: messages to send, and room for messages to come.
///
/// It is created idle. [`connect`](Self::connect) connects it,
/// [`Listener::offer`](super::Listener::offer) lets it wait for a connection
/// from outside, [`bind`](Self::bind) gives one for datagrams its port; each
/// once. Receives may be posted before that, and should be: memory that is
/// posted is the window that the other side sees.
///
/// Posting takes neither a lock nor a system call. What the adapter finds wrong
/// only later completes with a status that says so.
///
/// Dropped, its connection is reset and what is posted is flushed;
/// [`close`](Self::close) ends it in order.
pub struct QueuePair {
    send: SendQueue,
    receive: ReceiveQueue,
    /// Last: it goes when both queues are gone.
    common: Arc<Common>,
}

impl QueuePair {
    pub(super) fn create(
        handle: &Arc<Handle>,
        domain: DomainName,
        options: &QueuePairOptions,
        (sends, receives): (&CompletionQueue, &CompletionQueue),
        shared: Option<&SharedReceiveQueue>,
    ) -> Result<Self, Error> {
        if shared.is_some_and(|shared| !Arc::ptr_eq(shared.handle(), handle)) {
            return Err(Error::ForeignHandle);
        }
        for queue in [sends, receives] {
            if !Arc::ptr_eq(queue.handle(), handle) {
                return Err(Error::ForeignHandle);
            }
        }
        handle.check()?;
        let setup = QueuePairSetup {
            domain: domain.id,
            send_completions: sends.id(),
            receive_completions: receives.id(),
            service: options.service,
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            shared_receives: shared.map(SharedReceiveQueue::id),
        };
        let new = handle.command(|core, _| {
            let most = core.engine.config().buffers.min(usize::from(options.buffers)).max(1);
            core.create_pair(&setup, most as u16, options.tells).map(|new| (new, most as u16))
        });
        let (new, buffers) = new?;
        let (id, state) = (new.id, new.state);
        let common = Arc::new(Common { handle: Arc::clone(handle), id, domain, state, buffers });
        let queue = |operation, ring, depth, completions: &CompletionQueue| Queue {
            common: Arc::clone(&common),
            operation,
            ring: WorkRing::new(ring, depth, Arc::clone(completions.state())),
        };
        let is_udp = options.service == Service::Udp;
        let places = (options.send_depth, options.inline);
        let inline = (options.inline > 0).then(|| InlineMemory::new(handle, domain, places));
        let send = SendQueue {
            queue: queue(Operation::Send, new.sends, options.send_depth, sends),
            rules: SendRules { is_shut_down: false, is_udp, is_bound: false },
            inline: inline.transpose()?,
        };
        let receive = ReceiveQueue {
            queue: queue(Operation::Receive, new.receives, options.receive_depth, receives),
            is_shared: shared.is_some(),
        };
        Ok(Self { send, receive, common })
    }

    /// What completions call it.
    #[must_use]
    pub fn id(&self) -> QueuePairId {
        self.common.id
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.common.handle
    }

    /// Posts a message to be sent, whose bytes lie in these parts, in order. It
    /// may be posted before there is a connection, and leaves once there is. The
    /// bytes must stay as they are until its completion, which has this `id`.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_send(&mut self, id: u64, from: &[Part]) -> Result<(), PostError> {
        self.send.post(id, from)
    }

    /// Posts a datagram to be sent to this address.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_send_to(
        &mut self,
        id: u64,
        from: &[Part],
        to: SocketAddr,
    ) -> Result<(), PostError> {
        self.send.post_to(id, from, to)
    }

    /// Posts room for what comes: these parts are filled in order. On a byte
    /// stream requests are filled one after another; else each takes one message.
    ///
    /// Of a byte stream keep several posted: what is posted is the window, and a
    /// sender rather waits than fills the last bytes of a small one. Its end, too,
    /// comes only into a window that is open: room that is left then is flushed.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_receive(&mut self, id: u64, into: &[Part]) -> Result<(), PostError> {
        self.receive.post(id, into)
    }

    /// The two queues, for a thread each.
    pub const fn split(&mut self) -> (&mut SendQueue, &mut ReceiveQueue) {
        (&mut self.send, &mut self.receive)
    }

    /// Connects to a socket or a queue pair that listens there.
    ///
    /// # Errors
    /// [`Error::Refused`] at once; [`Error::NotConnected`] where the other side
    /// does not want to, or is silent.
    pub fn connect(
        &self,
        remote: SocketAddr,
    ) -> Pending<impl Future<Output = Result<(), Error>> + Unpin + use<>> {
        self.connect_from(None, remote)
    }

    /// Connects from an address of the adapter's, and a port of your choice.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_from(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Pending<impl Future<Output = Result<(), Error>> + Unpin + use<>> {
        let id = self.common.id;
        let asked = self.handle().command(|core, now| core.connect(now, id, local, remote));
        let (mut refused, state) = (asked.err(), Arc::clone(&self.common.state));
        let opened = poll_fn(move |cx| match refused.take() {
            Some(error) => std::task::Poll::Ready(Err(error)),
            None => state.poll(cx, is_connected).map(Result::flatten),
        });
        Pending::new(self.handle(), opened)
    }

    /// Binds a queue pair for datagrams to a port of one of the adapter's
    /// addresses, or of all of one version of IP. Port 0 takes any that is free.
    /// Returns what it is bound to.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, Error> {
        let id = self.common.id;
        let bound = self.handle().command(|core, _| core.engine.bind(id, local))?;
        self.common.state.bind(bound);
        self.send.rules.is_bound = true;
        Ok(bound)
    }

    /// Listens to a group: what comes for the port that it is bound to, of all addresses of that
    /// version of IP or of the group. Routers and switches are told (IGMP, MLD).
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn join(&self, group: IpAddr) -> Result<(), Error> {
        let id = self.common.id;
        Ok(self.handle().command(|core, now| core.engine.join(now, id, group, None))?)
    }

    /// Listens to a group no longer.
    ///
    /// # Errors
    /// [`Error::Refused`] where it did not listen.
    pub fn leave(&self, group: IpAddr) -> Result<(), Error> {
        let id = self.common.id;
        Ok(self.handle().command(|core, now| core.engine.leave(now, id, group))?)
    }

    /// How many routers may forward what it sends to groups: 1, none, unless chosen.
    ///
    /// # Errors
    /// [`Error::Refused`] where it is not for datagrams.
    pub fn set_group_hops(&self, hops: u8) -> Result<(), Error> {
        let id = self.common.id;
        Ok(self.handle().command(|core, _| core.engine.set_group_sending(id, hops, None))?)
    }

    /// Says behind what is posted that nothing more will be sent. What the other
    /// side still sends is received.
    ///
    /// # Errors
    /// [`Error::Refused`] where there is no connection.
    pub fn shutdown(&mut self) -> Result<(), Error> {
        let id = self.common.id;
        self.handle().command(|core, now| core.engine.shutdown(now, id))?;
        self.send.rules.is_shut_down = true;
        Ok(())
    }

    /// Resets the connection, and flushes what is posted.
    ///
    /// # Errors
    /// [`Error::Refused`] where there is no connection.
    pub fn abort(&mut self) -> Result<(), Error> {
        let id = self.common.id;
        Ok(self.handle().command(|core, now| core.engine.abort(now, id))?)
    }

    /// Waits until the other side has said that it sends no more; what it sent
    /// before has been completed then.
    ///
    /// # Errors
    /// [`Error::Ended`] where the connection ended otherwise.
    pub fn peer_finished(
        &self,
    ) -> Pending<impl Future<Output = Result<(), Error>> + Unpin + use<>> {
        let state = Arc::clone(&self.common.state);
        let finished = poll_fn(move |cx| state.poll(cx, has_peer_finished).map(Result::flatten));
        Pending::new(self.handle(), finished)
    }

    /// Waits until the connection is over, and gives why.
    ///
    /// # Errors
    /// [`Error::AdapterGone`].
    pub fn closed(
        &self,
    ) -> Pending<impl Future<Output = Result<CloseReason, Error>> + Unpin + use<>> {
        let state = Arc::clone(&self.common.state);
        let reason = |phase| match phase {
            Phase::Closed(reason) => Some(reason),
            _ => None,
        };
        Pending::new(self.handle(), poll_fn(move |cx| state.poll(cx, reason)))
    }

    /// Shuts down, and waits until the other side has done so, too, and all is
    /// acknowledged. What it sends until then needs receives: post them before,
    /// or the window stays shut and this waits.
    ///
    /// # Errors
    /// [`Error::Refused`] where there is no connection; [`Error::Ended`] where it
    /// ended otherwise.
    pub fn close(mut self) -> Pending<impl Future<Output = Result<(), Error>> + Unpin> {
        let mut refused = match self.phase() {
            Phase::Closed(_) => None,
            _ => self.shutdown().err(),
        };
        let handle = Arc::clone(self.handle());
        let closed = poll_fn(move |cx| match refused.take() {
            Some(error) => std::task::Poll::Ready(Err(error)),
            None => self.common.state.poll(cx, how_it_ended).map(Result::flatten),
        });
        Pending::new(&handle, closed)
    }

    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.common.state.phase()
    }

    /// How its connection is doing: round trip, congestion window, what was sent again.
    /// Nothing without a connection.
    #[must_use]
    pub fn stats(&self) -> Option<ConnectionStats> {
        let id = self.common.id;
        self.handle().look(|core| core.engine.connection_stats(id))
    }

    /// May messages be sent with a word beside their bytes
    /// ([`SendRequest::immediate`](super::SendRequest::immediate))? Both ends have to be open
    /// queue pairs of messages that asked for it ([`TcpConfig::immediates`](super::TcpConfig)).
    #[must_use]
    pub fn takes_immediates(&self) -> bool {
        self.common.takes_words()
    }

    /// Is there a connection?
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.phase(), Phase::Connected | Phase::PeerFinished)
    }

    /// What it is connected or bound to on this side.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.common.state.ends().0
    }

    /// Who is at the other end of its connection.
    #[must_use]
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.common.state.ends().1
    }
}

const fn is_connected(phase: Phase) -> Option<Result<(), Error>> {
    match phase {
        Phase::Idle | Phase::Opening => None,
        Phase::Connected | Phase::PeerFinished | Phase::Closed(CloseReason::Finished) => {
            Some(Ok(()))
        }
        Phase::Closed(reason) => Some(Err(Error::NotConnected(reason))),
    }
}

const fn has_peer_finished(phase: Phase) -> Option<Result<(), Error>> {
    match phase {
        Phase::Idle | Phase::Opening | Phase::Connected => None,
        Phase::PeerFinished => Some(Ok(())),
        Phase::Closed(_) => how_it_ended(phase),
    }
}

const fn how_it_ended(phase: Phase) -> Option<Result<(), Error>> {
    match phase {
        Phase::Closed(CloseReason::Finished) => Some(Ok(())),
        Phase::Closed(reason) => Some(Err(Error::Ended(reason))),
        _ => None,
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("id", &self.common.id)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}
