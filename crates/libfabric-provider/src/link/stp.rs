//! [`StpWire`]: a connection of STP, whose two sides give each other a ring to write to.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use landfall::stp::{
    Connection, Ended, Error, Exposed, Memory, Operation, PathId, Peer, Put, Reason, Region,
    RegionRequest, RemoteMemory, RemoteRights, blocking,
};

use super::open::{HELLO, VERSION};
use super::wire::Progress;
use super::{failure, nonsense, poll, poll_once};
use crate::abi::FI_ECONNREFUSED;
use crate::address::Name;
use crate::completion::Failure;
use crate::notify::LinkWaker;
use crate::ring::RING;
use crate::world::MOST_KEY;

/// What the other side calls the ring that it writes.
pub(super) const RING_NAME: u32 = 0xffff_ff01;

const _: () = assert!(RING_NAME as u64 >= MOST_KEY, "no key of memory leads to a ring");

type Connecting = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

/// How far the two sides are.
enum Opening {
    Connecting(Connecting),
    /// Each has asked for the ring of the other.
    Asking {
        ring: Operation<RemoteMemory>,
        shown: Option<Exposed>,
    },
    /// It can be received from; the other side's ring is not there yet.
    Open {
        ring: RemoteMemory,
        shown: Option<Exposed>,
    },
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting(_) => "connecting",
            Self::Asking { .. } => "asking",
            Self::Open { .. } => "open",
        })
    }
}

#[derive(Debug)]
pub(super) struct StpWire {
    opening: Opening,
    /// Once it is open.
    pub(super) connection: Option<Connection>,
    /// What is composed here is written to the ring of the other side.
    pub(super) staging: Region,
    pub(super) puts: VecDeque<(u64, Operation<Put>)>,
    /// The ring that the other side writes.
    pub(super) own: Region,
}

/// Memory for a ring.
fn ring(stp: &blocking::Endpoint) -> Result<Region, Failure> {
    let memory = stp.memory(RING as usize).or_else(|_| {
        Memory::try_zeroed(RING as usize)
            .map_err(|error| Failure::new(crate::abi::FI_ENOMEM, error.to_string()))
    })?;
    stp.register(memory).map_err(|failed| failure(&failed))
}

impl StpWire {
    /// Begins to connect to a peer, at its first address, or its second.
    pub(super) fn connect(
        endpoint: &blocking::Endpoint,
        to: Name,
        port: u16,
    ) -> Result<Self, Failure> {
        let stp = endpoint.as_async().clone();
        let connecting = async move {
            let first = stp.connect_over(PathId(0), Peer::Socket(to.address), port, HELLO).await;
            match (first, to.second) {
                // One that answers is there, whatever it says.
                (Err(why), Some(second))
                    if !matches!(why, Error::NotConnected(Ended::There(_))) =>
                {
                    let second = Peer::Socket(second.into());
                    let connected = stp.connect_over(PathId(1), second, port, HELLO).await;
                    connected.map_err(|_| why)
                }
                (first, _) => first,
            }
        };
        Self::new(endpoint, Opening::Connecting(Box::pin(connecting)), None)
    }

    /// A peer has connected.
    pub(super) fn accept(
        endpoint: &blocking::Endpoint,
        connection: Connection,
    ) -> Result<Self, Failure> {
        Self::new(endpoint, Self::ask(&connection), Some(connection))
    }

    fn ask(connection: &Connection) -> Opening {
        let ring = connection.request_region(RING_NAME, RING, RemoteRights::PUT).start();
        Opening::Asking { ring, shown: None }
    }

    fn new(
        endpoint: &blocking::Endpoint,
        opening: Opening,
        connection: Option<Connection>,
    ) -> Result<Self, Failure> {
        let (staging, own) = (ring(endpoint)?, ring(endpoint)?);
        Ok(Self { opening, connection, staging, puts: VecDeque::new(), own })
    }

    /// Goes on with the opening.
    pub(super) fn open(&mut self, waker: &LinkWaker) -> Result<Progress, Failure> {
        let mut progress = Progress::Open;
        if let Opening::Connecting(connecting) = &mut self.opening {
            let mut context = Context::from_waker(&waker.operations);
            let Poll::Ready(connected) = connecting.as_mut().poll(&mut context) else {
                return Ok(Progress::Connecting);
            };
            let connection = connected.map_err(|error| unopened(&error))?;
            self.opening = Self::ask(&connection);
            self.connection = Some(connection);
            progress = Progress::Begun;
        }
        if let Opening::Asking { ring, shown } = &mut self.opening
            && let Poll::Ready(asked) = poll(ring, &waker.operations)
        {
            let ring = match asked {
                Ok(ring) => ring,
                Err(failed) => return Err(self.refused_ring(failed.why(), waker)),
            };
            if ring.len() < RING {
                return Err(nonsense("its ring is too short"));
            }
            self.opening = Opening::Open { ring, shown: shown.take() };
        }
        Ok(progress)
    }

    /// The other side gives no ring. Where it has ended the connection, that says more.
    fn refused_ring(&self, why: &Error, waker: &LinkWaker) -> Failure {
        match self.check_open(waker) {
            Err(refused) if refused.error == FI_ECONNREFUSED => refused,
            Err(over) => no_ring(&over.text),
            Ok(()) => no_ring(&why.to_string()),
        }
    }

    /// The ring of the other side, once it is there.
    pub(super) const fn ring(&self) -> Option<&RemoteMemory> {
        match &self.opening {
            Opening::Open { ring, .. } => Some(ring),
            _ => None,
        }
    }

    /// The ring of this side, once the other side has it.
    pub(super) const fn shown(&self) -> Option<&Exposed> {
        match &self.opening {
            Opening::Asking { shown, .. } | Opening::Open { shown, .. } => shown.as_ref(),
            Opening::Connecting(_) => None,
        }
    }

    /// The other side asks for its ring.
    pub(super) fn show_ring(&mut self, request: RegionRequest) -> Result<(), Failure> {
        let (own, len) = (self.own.whole(), request.len());
        let (Opening::Asking { shown, .. } | Opening::Open { shown, .. }) = &mut self.opening
        else {
            return Ok(());
        };
        if len != RING || shown.is_some() {
            return Err(nonsense("it wants another ring"));
        }
        *shown = Some(request.expose(&own, RemoteRights::PUT).map_err(|error| failure(&error))?);
        Ok(())
    }

    /// Is the connection still there?
    pub(super) fn check_open(&self, waker: &LinkWaker) -> Result<(), Failure> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let why = match poll_once(connection.closed(), &waker.requests) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(())) => Error::Closed { why: None },
            Poll::Ready(Err(error)) => error,
        };
        Err(if self.ring().is_some() { failure(&why) } else { unopened(&why) })
    }

    pub(super) fn abort(&self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

/// Why a connection is over whose other side has given no ring yet. One that it was cancelled by
/// may be seen before or after it was there.
fn unopened(why: &Error) -> Failure {
    const CANCELLED: Ended = Ended::There(Reason::Cancelled);
    match why {
        Error::NotConnected(ended) | Error::Closed { why: Some(ended) } if *ended == CANCELLED => {
            no_ring(&why.to_string())
        }
        _ => failure(why),
    }
}

/// Providers up to version 3 of the protocol say no more than that.
fn no_ring(why: &str) -> Failure {
    let text = format!(
        "the peer gives no ring, as one with another version of this provider does (here its \
         protocol has version {VERSION}): {why}"
    );
    Failure::new(FI_ECONNREFUSED, text)
}
