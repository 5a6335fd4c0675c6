//! [`Endpoint`]: one end of connections and of out-of-band messages.
//!
//! Memory needs no connection. Endpoints are there to exchange cookies, 40 bytes
//! at a time, to learn that the other side is gone, and to have a queue at the DMA
//! engine ([`DmaQueue`](super::DmaQueue)).

use std::future::poll_fn;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{
    Body, ConnectRequest, EndpointId, EndpointState, Notice, Port, PortAddress, Reason,
};

use super::builder::refused;
use super::dma::{DmaQueue, QueueRecord};
use super::events::{EventSender, Kind, Registration, sealed};
use super::state::{NodeHandle, NodeState};
use crate::clan::Error;
use crate::clan::messaging::as_endpoint;
use crate::runtime::locked;

/// The node's side, under its lock.
#[derive(Debug)]
pub(crate) struct Record {
    state: Arc<State>,
    events: Option<(EventSender, Registration)>,
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

/// An endpoint: a host and a port. Clones are the same endpoint; when the last is
/// gone it is closed, and a connection that it has breaks off.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: NodeHandle,
    id: EndpointId,
    port: Port,
    state: Arc<State>,
}

impl Endpoint {
    pub(crate) fn open(handle: &NodeHandle, port: Option<Port>) -> Result<Self, Error> {
        let state = Arc::new(State::default());
        let (id, port) = handle.look(|core| {
            let taken = |error| refused(error, "endpoint");
            let id = core.engine.open_endpoint(port).map_err(taken)?;
            let port = core.engine.port(id).map_err(taken)?;
            let record = Record { state: Arc::clone(&state), events: None, queue: None };
            core.endpoints.insert(id, record);
            Ok::<_, Error>((id, port))
        })?;
        Ok(Self(Arc::new(Inner { handle: handle.clone(), id, port, state })))
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
        self.look(|core, id| core.engine.endpoint_state(id))
    }

    /// From now on it hears of those who want a connection.
    ///
    /// # Errors
    /// It has, or wants, a connection.
    pub fn listen(&self) -> Result<(), Error> {
        self.look(|core, id| core.engine.listen(id))
    }

    /// Asks a listener for a connection. The answer is a [`Notice`].
    ///
    /// # Errors
    /// [`Error::NoRoute`] without a link to that host, [`Error::Busy`],
    /// [`Error::Closed`] where it has a connection.
    pub fn connect(&self, to: PortAddress, body: Body) -> Result<(), Error> {
        self.ask(|core, _, id| core.engine.connect(id, to, body))
    }

    /// Takes a connection that a listener was asked for, with this endpoint: a new
    /// one, or one whose connection is over.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(&self, request: &ConnectRequest, body: Body) -> Result<(), Error> {
        self.ask(|core, _, id| core.engine.accept(id, request, body))
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
        self.ask(|core, _, _| core.engine.refuse(request, reason, body))
    }

    /// Sends a message on the connection.
    ///
    /// # Errors
    /// [`Error::Closed`] without one, [`Error::Busy`].
    pub fn send(&self, body: Body) -> Result<(), Error> {
        self.ask(|core, _, id| core.engine.send(id, body))
    }

    /// Sends a message to any endpoint, whatever connections there are.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    pub fn send_to(&self, to: PortAddress, body: Body) -> Result<(), Error> {
        self.ask(|core, _, id| core.engine.send_to(id, to, body))
    }

    /// Says that this side will send nothing more. Once both sides have said so,
    /// the connection is complete, and the endpoint can have another one.
    ///
    /// # Errors
    /// [`Error::Closed`] without a connection, [`Error::Busy`].
    pub fn disconnect(&self, body: Body) -> Result<(), Error> {
        self.ask(|core, _, id| core.engine.disconnect(id, body))
    }

    /// Breaks the connection off, or gives up asking for one.
    ///
    /// # Errors
    /// There is none.
    pub fn abort(&self) -> Result<(), Error> {
        self.ask(|core, now, id| core.engine.abort(now, id))
    }

    /// The next notice, if there is one.
    #[must_use]
    pub fn try_next(&self) -> Option<Notice> {
        self.0.handle.look(|core| core.engine.poll_notice(self.0.id))
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

    pub(crate) fn id(&self) -> EndpointId {
        self.0.id
    }

    fn look<T>(
        &self,
        look: impl FnOnce(&mut NodeState, EndpointId) -> Result<T, clan_dsm::Error>,
    ) -> Result<T, Error> {
        let result = self.0.handle.look(|core| look(core, self.0.id));
        result.map_err(|error| refused(error, "message"))
    }

    fn ask<T>(
        &self,
        ask: impl FnOnce(
            &mut NodeState,
            landfall_placement::Instant,
            EndpointId,
        ) -> Result<T, clan_dsm::Error>,
    ) -> Result<T, Error> {
        self.0.handle.check()?;
        let result = self.0.handle.ask(|core, now| ask(core, now, self.0.id));
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
    fn attach(&self, to: Option<(EventSender, Registration)>) -> Result<(), Error> {
        let before = self.0.handle.look(|core| {
            let has_notices = to.is_some() && core.engine.has_notices(self.0.id);
            let record = core.endpoints.get_mut(self.0.id).ok_or(Error::NodeGone)?;
            let before = std::mem::replace(&mut record.events, to);
            if has_notices {
                core.notice_at(self.0.id);
            }
            Ok::<_, Error>(before)
        })?;
        drop(before);
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let record = self.handle.ask(|core, now| {
            let record = core.endpoints.remove(self.id);
            let _ = core.engine.close_endpoint(now, self.id);
            record
        });
        // Without the lock: it holds memory.
        drop(record);
    }
}
