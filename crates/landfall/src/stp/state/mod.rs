//! What is behind an endpoint's lock: the engine, its drivers, and who waits
//! for what. Every handle of an endpoint holds a [`Handle`], and asks for what needs no
//! answer with a [`Submission`].
//!
//! | file | what happens there |
//! | --- | --- |
//! | `slots` | operations, from the call to their end: what was asked, and the ticket of who asked |
//! | `connections` | who waits for what on a connection |
//! | `events` | what the engine tells, and whom it concerns |
//! | `calls` | what handles ask for |

mod calls;
mod connections;
mod events;
mod slots;

use std::sync::Arc;
use std::task::Waker;

use hashbrown::HashMap;
use landfall_placement::Instant;
use stp_core::wire::Reason;
use stp_core::{ConnectionId, ExposedId, PeerRequestId, Priority, ReadId, ReceiveId};

use super::deadline::Alarms;
use super::memory::{Held, Pool};
use crate::runtime;
use crate::runtime::{Deferred, Protocol, Runtime};
use crate::security::Security;

pub use connections::Notice;
pub(crate) use connections::{Known, Listening, OfferMade, ReadMade, RegionMade, Shown, Status};
pub(crate) use slots::{Key, Outcome, Request, Slots, Stage, Ticket};

/// The engine of an endpoint.
pub(crate) type Engine = landfall_seal::Sealed<stp_core::Endpoint>;

/// The paths of an endpoint.
pub(crate) type Paths = runtime::Paths<Engine>;

/// What is done when the lock is no longer held: wakers may run anything.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork {
    pub(crate) wake: Vec<Waker>,
    pub(crate) forget: Vec<Waker>,
    pub(crate) free: Vec<Held>,
    /// It frees what drivers have let go of, and tells those who wait for that.
    pool: Option<Arc<Pool>>,
}

impl Deferred for DeferredWork {
    fn run(self) {
        let Self { wake, forget, free, pool } = self;
        wake.into_iter().for_each(Waker::wake);
        drop((forget, free));
        if let Some(pool) = pool {
            pool.after_turn();
        }
    }
}

impl DeferredWork {
    const fn is_empty(&self) -> bool {
        self.wake.is_empty()
            && self.forget.is_empty()
            && self.free.is_empty()
            && self.pool.is_none()
    }
}

/// What remains of an endpoint: memory that its drivers held to the last.
#[derive(Debug)]
pub(crate) struct Cleanup(Arc<Pool>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.after_turn();
    }
}

/// What the endpoint's lock guards: engine, paths, memory and operations.
#[derive(Debug)]
pub(crate) struct EndpointState {
    pub(crate) engine: Engine,
    pub(crate) security: Security,
    pub(crate) paths: Paths,
    pool: Arc<Pool>,
    pub(crate) slots: Slots,
    pub(crate) connections: HashMap<ConnectionId, Known>,
    /// Those with operations that wait for room.
    crowded: Vec<ConnectionId>,
    pub(crate) listeners: HashMap<u16, Listening>,
    pub(crate) shown: HashMap<ExposedId, Shown>,
    /// How many connections may wait to be accepted at a port.
    backlog: usize,
    /// Who waits no longer than so long.
    pub(crate) alarms: Alarms,
    /// The endpoint closes: nothing begins any more.
    pub(crate) is_closing: bool,
    after: DeferredWork,
}

impl EndpointState {
    pub(crate) fn new(
        (engine, security): (Engine, Security),
        paths: Paths,
        pool: Arc<Pool>,
        backlog: usize,
    ) -> Self {
        Self {
            engine,
            security,
            paths,
            pool,
            slots: Slots::default(),
            connections: HashMap::new(),
            crowded: Vec::new(),
            listeners: HashMap::new(),
            shown: HashMap::new(),
            backlog,
            alarms: Alarms::default(),
            is_closing: false,
            after: DeferredWork::default(),
        }
    }

    fn wake_all(after: &mut DeferredWork, wakers: &mut Vec<Waker>) {
        after.wake.append(wakers);
    }

    /// Remembers a waker once; what it replaces is dropped without the lock.
    pub(crate) fn watch(after: &mut DeferredWork, wakers: &mut Vec<Waker>, waker: &Waker) {
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            /// Handles that are polled by ever new tasks leave wakers behind.
            const MOST: usize = 64;
            if wakers.len() >= MOST {
                after.wake.append(wakers);
            }
            wakers.push(waker.clone());
        }
    }
}

impl Protocol for EndpointState {
    type Engine = Engine;
    type Deferred = DeferredWork;
    type Submission = Submission;
    type Cleanup = Cleanup;

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn paths_mut(&mut self) -> &mut Paths {
        &mut self.paths
    }

    fn serve(&mut self, now: Instant, submission: Submission) {
        self.submitted(now, submission);
    }

    fn turn(&mut self, now: Instant) -> bool {
        let mut moved = self.paths.turn(&mut self.engine, now);
        moved |= self.hear(now);
        if !self.crowded.is_empty() {
            moved |= self.begin_waiting(now);
        }
        self.alarms.take_due(now, &mut self.after.wake);
        if self.pool.waits_for_turn() {
            self.after.pool = Some(Arc::clone(&self.pool));
        }
        moved
    }

    fn next_wake(&self) -> Option<Instant> {
        let paths = self.paths.next_wake(&self.engine);
        paths.into_iter().chain(self.alarms.next_wake()).min()
    }

    fn take_deferred(&mut self) -> DeferredWork {
        if self.after.is_empty() {
            DeferredWork::default()
        } else {
            std::mem::take(&mut self.after)
        }
    }

    fn close(&mut self, now: Instant) {
        self.close_all(now);
    }

    /// Is every connection over, for its user?
    fn is_closed(&self) -> bool {
        self.connections.values().all(|known| matches!(known.status, Status::Closed(_)))
    }

    fn abort(&mut self, now: Instant) {
        self.abort_all(now);
    }

    /// Has the engine forgotten them, too?
    fn is_quiet(&self) -> bool {
        self.engine.connections() == 0
    }

    fn release(&mut self) -> Cleanup {
        self.end_all();
        Cleanup(Arc::clone(&self.pool))
    }
}

/// When the last is gone, the endpoint ends.
#[derive(Debug)]
pub(crate) struct Handle {
    handle: runtime::Handle<EndpointState>,
    pool: Arc<Pool>,
}

impl std::ops::Deref for Handle {
    type Target = Runtime<EndpointState>;

    #[inline]
    fn deref(&self) -> &Runtime<EndpointState> {
        &self.handle
    }
}

impl Handle {
    pub(crate) fn new(runtime: Arc<Runtime<EndpointState>>, pool: Arc<Pool>) -> Self {
        Self { handle: runtime::Handle(runtime), pool }
    }

    /// The runtime alone: it outlives the handle.
    pub(crate) fn runtime(&self) -> Arc<Runtime<EndpointState>> {
        Arc::clone(&self.handle.0)
    }

    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

/// A request that needs no answer: it waits in a queue while another thread has the lock.
#[derive(Debug)]
pub(crate) enum Submission {
    /// Begin an operation.
    Start {
        connection: ConnectionId,
        request: Request,
        held: Option<Held>,
        ticket: Arc<Ticket>,
        priority: Option<Priority>,
    },
    /// Somebody wants to know how far it is, or nobody does any more.
    WatchProgress(Arc<Ticket>, bool),
    /// End it early; its user waits for the end.
    Cancel(Arc<Ticket>),
    /// Nobody waits for it any more.
    Forget(Arc<Ticket>),
    /// What the other side offered or asked for is not taken after all.
    RefuseOffer(ReceiveId, Reason),
    RefuseRead(ReadId, Reason),
    RefuseRegion(PeerRequestId, Reason),
    /// End the use of a region by the other side; its handle is gone, or not.
    Revoke(ExposedId, bool),
    Close(ConnectionId),
    Abort(ConnectionId, Reason),
    /// The last handle of a connection is gone.
    Release(ConnectionId),
    StopListening(u16),
}

impl EndpointState {
    fn submitted(&mut self, now: Instant, submission: Submission) {
        match submission {
            Submission::Start { connection, request, held, ticket, priority } => {
                self.start(now, connection, request, (held, ticket, priority));
            }
            Submission::WatchProgress(ticket, is_watched) => {
                self.watch_progress(&ticket, is_watched);
            }
            Submission::Cancel(ticket) => self.cancel(now, &ticket),
            Submission::Forget(ticket) => self.forget(now, &ticket),
            Submission::RefuseOffer(offer, reason) => self.refuse_offer(now, offer, reason),
            Submission::RefuseRead(read, reason) => self.refuse_read(now, read, reason),
            Submission::RefuseRegion(request, reason) => {
                // Over already: nobody waits for an answer.
                let _ = self.engine.refuse_region(request, reason);
            }
            Submission::Revoke(exposed, is_orphan) => self.revoke(now, exposed, is_orphan),
            Submission::Close(connection) => self.close_connection(now, connection),
            Submission::Abort(connection, reason) => self.abort_connection(now, connection, reason),
            Submission::Release(connection) => self.release_connection(now, connection),
            Submission::StopListening(port) => self.stop_listening(now, port),
        }
    }
}
