//! [`Endpoint`]: one end of connections and of out-of-band messages.
//!
//! Memory needs no connection. Endpoints are there to exchange cookies, 40 bytes
//! at a time, to learn that the other side is gone, and to have a queue at the DMA
//! engine ([`DmaQueue`](super::DmaQueue)).

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{
    Body, ConnectRequest, EndpointId, EndpointState, HostId, Notice, Port, PortAddress, Reason,
};

use super::builder::refused;
use super::dma::{DmaQueue, QueueRecord};
use super::engines::NodeHandle;
use super::events::{Attached, Kind, sealed};
use super::state::NodeState;
use crate::clan::Error;
use crate::clan::messaging::as_endpoint;
use crate::runtime::locked;

/// The node's side, under its lock.
#[derive(Debug)]
pub(crate) struct Record {
    state: Arc<State>,
    events: Option<Attached>,
    pub(super) queue: Option<QueueRecord>,
}

#[derive(Debug, Default)]
struct State {
    waker: Mutex<Option<Waker>>,
}

impl Record {
    /// Notices are queued, or the node has ended.
    pub(super) fn notify(&self) -> impl Iterator<Item = Waker> {
        fence(Ordering::SeqCst);
        let event = self.events.as_ref().and_then(|(event_sender, _)| event_sender.notify());
        let queue = self.queue.as_ref().and_then(QueueRecord::notify);
        [locked(&self.state.waker).take(), event, queue].into_iter().flatten()
    }
}

impl NodeState {
    pub(super) fn notice_at(&mut self, id: EndpointId) {
        let Some(record) = self.endpoints.get_mut(id) else { return self.names.touch(id) };
        fence(Ordering::SeqCst);
        let event = record.events.as_ref().and_then(|(event_sender, _)| event_sender.notify());
        self.after.wake.extend(event);
        self.after.wake.extend(locked(&record.state.waker).take());
    }
}

/// An endpoint: a host and a port. Of a node with several threads it is one at each engine, under
/// the same port: what a peer says comes to the engine of its link, and answers leave there.
/// Clones are the same endpoint; when the last is
/// gone it is closed, and a connection that it has breaks off.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: NodeHandle,
    /// What it is called at each engine.
    ids: Vec<EndpointId>,
    port: Port,
    state: Arc<State>,
    /// The engine that has its connection, or had the last.
    home: AtomicUsize,
    /// Held while a connection begins, so that no two do at two engines.
    beginning: Mutex<()>,
    /// The engine whose notices come next.
    turn: AtomicUsize,
}

/// A port of the caller's choice is taken or not. Of others several are tried: the first engine
/// knows which are free there, and others may have given one to a conversation of their own.
const TRIES: u32 = 64;

impl Endpoint {
    pub(crate) fn open(handle: &NodeHandle, port: Option<Port>) -> Result<Self, Error> {
        let mut tries = if port.is_some() { 1 } else { TRIES };
        loop {
            tries -= 1;
            match Inner::open(handle, port) {
                Err(clan_dsm::Error::Taken) if tries > 0 => {}
                opened => {
                    let opened = opened.map_err(|error| refused(error, "endpoint"))?;
                    return Ok(Self(Arc::new(opened)));
                }
            }
        }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> Port {
        self.0.port
    }

    /// How its connection stands.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn state(&self) -> Result<EndpointState, Error> {
        match self.home_state()? {
            // Where it has no connection, it is the same at all engines.
            EndpointState::Idle => self.look_at(0, |core, id| core.engine.endpoint_state(id)),
            state => Ok(state),
        }
    }

    /// From now on it hears of those who want a connection.
    ///
    /// # Errors
    /// It has, or wants, a connection.
    pub fn listen(&self) -> Result<(), Error> {
        let _beginning = self.0.ids.get(1).map(|_| locked(&self.0.beginning));
        if !matches!(self.home_state()?, EndpointState::Idle | EndpointState::Listening) {
            return Err(refused(clan_dsm::Error::Busy, "message"));
        }
        (0..self.0.ids.len())
            .try_for_each(|nth| self.look_at(nth, |core, id| core.engine.listen(id)))
    }

    /// Asks a listener for a connection. The answer is a [`Notice`].
    ///
    /// # Errors
    /// [`Error::NoRoute`] without a link to that host, [`Error::Busy`],
    /// [`Error::Closed`] where it has a connection.
    pub fn connect(&self, to: PortAddress, body: Body) -> Result<(), Error> {
        self.begin(to.host, |core, id| core.engine.connect(id, to, body))
    }

    /// Takes a connection that a listener was asked for, with this endpoint: a new
    /// one, or one whose connection is over.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(&self, request: &ConnectRequest, body: Body) -> Result<(), Error> {
        self.begin(request.from.host, |core, id| core.engine.accept(id, request, body))
    }

    /// Lets somebody who asked for a connection know that there will be none.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    pub fn refuse(
        &self,
        request: &ConnectRequest,
        reason: Reason,
        body: Body,
    ) -> Result<(), Error> {
        let nth = self.engine_of(request.from.host);
        self.ask_at(nth, |core, _, _| core.engine.refuse(request, reason, body))
    }

    /// Sends a message on the connection.
    ///
    /// # Errors
    /// [`Error::Closed`] without one, [`Error::Busy`].
    pub fn send(&self, body: Body) -> Result<(), Error> {
        self.ask_at(self.home(), |core, _, id| core.engine.send(id, body))
    }

    /// Sends a message to any endpoint, whatever connections there are.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    pub fn send_to(&self, to: PortAddress, body: Body) -> Result<(), Error> {
        let nth = self.engine_of(to.host);
        self.ask_at(nth, |core, _, id| core.engine.send_to(id, to, body))
    }

    /// Says that this side will send nothing more. Once both sides have said so,
    /// the connection is complete, and the endpoint can have another one.
    ///
    /// # Errors
    /// [`Error::Closed`] without a connection, [`Error::Busy`].
    pub fn disconnect(&self, body: Body) -> Result<(), Error> {
        self.ask_at(self.home(), |core, _, id| core.engine.disconnect(id, body))
    }

    /// Breaks the connection off, or gives up asking for one.
    ///
    /// # Errors
    /// There is none.
    pub fn abort(&self) -> Result<(), Error> {
        self.ask_at(self.home(), |core, now, id| core.engine.abort(now, id))
    }

    /// The next notice, if there is one.
    #[must_use]
    pub fn try_next(&self) -> Option<Notice> {
        match &self.0.ids[..] {
            [id] => self.0.handle.first().look(|core| core.engine.poll_notice(*id)),
            ids => {
                // None is left behind though another always has one.
                let first = self.0.turn.fetch_add(1, Ordering::Relaxed) % ids.len();
                let mut engines = (first..ids.len()).chain(0..first);
                engines.find_map(|nth| {
                    self.0.handle.at(nth).look(|core| core.engine.poll_notice(ids[nth]))
                })
            }
        }
    }

    /// Waits for the next notice, on any executor.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn next(&self) -> Result<Notice, Error> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The same, polled. One task waits at a time: the last to ask is woken.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Notice, Error>> {
        if let Some(notice) = self.try_next() {
            return Poll::Ready(Ok(notice));
        }
        let before = locked(&self.0.state.waker).replace(context.waker().clone());
        drop(before);
        fence(Ordering::SeqCst);
        match self.try_next() {
            Some(notice) => Poll::Ready(Ok(notice)),
            None if self.0.handle.has_ended() => Poll::Ready(Err(Error::NodeGone)),
            None => Poll::Pending,
        }
    }

    /// Waits on this thread, which drives the node meanwhile; nothing if none came
    /// before the deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait_next(&self, deadline: Option<Instant>) -> Result<Option<Notice>, Error> {
        self.0.handle.block_on(self.next(), deadline)?.transpose()
    }

    /// Its queue at the DMA engine, for this many requests. There is one at a time.
    ///
    /// # Errors
    /// There is one already.
    pub fn dma_queue(&self, depth: usize) -> Result<DmaQueue, Error> {
        DmaQueue::open(self, depth)
    }

    pub(crate) fn handle(&self) -> &NodeHandle {
        &self.0.handle
    }

    /// What it is called at each engine.
    pub(crate) fn ids(&self) -> &[EndpointId] {
        &self.0.ids
    }

    /// The engine that has its connection, or had the last.
    fn home(&self) -> usize {
        self.0.home.load(Ordering::SeqCst)
    }

    fn home_state(&self) -> Result<EndpointState, Error> {
        self.look_at(self.home(), |core, id| core.engine.endpoint_state(id))
    }

    fn engine_of(&self, host: HostId) -> usize {
        self.0.handle.nth_for_host(host)
    }

    /// Begins a connection with a host, at the engine of its link.
    fn begin(
        &self,
        host: HostId,
        begin: impl FnOnce(&mut NodeState, EndpointId) -> Result<(), clan_dsm::Error>,
    ) -> Result<(), Error> {
        let _beginning = self.0.ids.get(1).map(|_| locked(&self.0.beginning));
        let (nth, home) = (self.engine_of(host), self.home());
        let is_free = nth == home
            || matches!(self.home_state()?, EndpointState::Idle | EndpointState::Listening);
        if !is_free {
            return Err(refused(clan_dsm::Error::Busy, "message"));
        }
        // Before anybody hears of it who may answer.
        self.0.home.store(nth, Ordering::SeqCst);
        self.ask_at(nth, |core, _, id| begin(core, id))
    }

    fn look_at<T>(
        &self,
        nth: usize,
        look: impl FnOnce(&mut NodeState, EndpointId) -> Result<T, clan_dsm::Error>,
    ) -> Result<T, Error> {
        let result = self.0.handle.at(nth).look(|core| look(core, self.0.ids[nth]));
        result.map_err(|error| refused(error, "message"))
    }

    fn ask_at<T>(
        &self,
        nth: usize,
        ask: impl FnOnce(
            &mut NodeState,
            landfall_placement::Instant,
            EndpointId,
        ) -> Result<T, clan_dsm::Error>,
    ) -> Result<T, Error> {
        self.0.handle.check()?;
        let id = self.0.ids[nth];
        let result = self.0.handle.at(nth).ask(|core, now| ask(core, now, id));
        result.map_err(|error| refused(error, "message"))
    }
}

as_endpoint!(Endpoint);

impl sealed::Source for Endpoint {
    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn kind(&self) -> Kind {
        Kind::OutOfBand
    }

    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn handle(&self) -> &NodeHandle {
        &self.0.handle
    }

    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn attach(&self, to: Option<Attached>) -> Result<(), Error> {
        for (engine, id) in self.0.handle.engines().iter().zip(&self.0.ids) {
            let before = engine.look(|core| {
                let has_notices = to.is_some() && core.engine.has_notices(*id);
                let record = core.endpoints.get_mut(*id).ok_or(Error::NodeGone)?;
                let before = std::mem::replace(&mut record.events, to.clone());
                if has_notices {
                    core.notice_at(*id);
                }
                Ok::<_, Error>(before)
            })?;
            drop(before);
        }
        Ok(())
    }
}

impl Inner {
    /// Opens it at all engines, under the port that is free at the first or the caller's.
    fn open(handle: &NodeHandle, port: Option<Port>) -> Result<Self, clan_dsm::Error> {
        let state = Arc::<State>::default();
        // What was opened is closed again where it is not at all of them.
        let mut opened = Self {
            handle: handle.clone(),
            ids: Vec::with_capacity(handle.engines().len()),
            port: port.unwrap_or_default(),
            state: Arc::clone(&state),
            home: AtomicUsize::new(0),
            beginning: Mutex::default(),
            turn: AtomicUsize::new(0),
        };
        let mut wanted = port;
        for engine in handle.engines() {
            let (id, port) = engine.look(|core| {
                let id = core.engine.open_endpoint(wanted)?;
                let port = core.engine.port(id)?;
                let state = Arc::clone(&state);
                core.endpoints.insert(id, Record { state, events: None, queue: None });
                Ok::<_, clan_dsm::Error>((id, port))
            })?;
            opened.ids.push(id);
            opened.port = port;
            wanted = Some(port);
        }
        Ok(opened)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for (engine, id) in self.handle.engines().iter().zip(&self.ids) {
            let record = engine.ask(|core, now| {
                let record = core.endpoints.remove(*id);
                let _ = core.engine.close_endpoint(now, *id);
                record
            });
            // Without the lock: it holds memory.
            drop(record);
        }
    }
}
