//! [`Carrier`]: an endpoint of STP, or a port of the adapter of QPIP, which endpoints of libfabric
//! share.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use landfall::qpip;
use landfall::stp::{Builder, Connection, Listener as StpListener, Peer, Transport, blocking};

use crate::abi::{FI_EADDRNOTAVAIL, FI_EIO, FI_EOPBADSTATE, FI_EOPNOTSUPP};
use crate::address::{Local, Name, locals};
use crate::completion::Failure;
use crate::notify::locked;
use crate::qpip::{Host, Queue, QueueListener};
use crate::settings::{CARRIER, PORTS, Settings};

/// What was sent has so long to arrive when an endpoint is closed.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// By what an endpoint reaches others.
#[derive(Clone)]
pub(crate) enum Network {
    Stp(blocking::Endpoint),
    Qpip(Arc<Host>),
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stp(_) => "STP",
            Self::Qpip(_) => "QPIP",
        })
    }
}

impl Network {
    /// The endpoint of STP, for what no other carrier can do.
    pub(crate) fn stp(&self) -> Result<&blocking::Endpoint, Failure> {
        match self {
            Self::Stp(endpoint) => Ok(endpoint),
            Self::Qpip(_) => {
                let text = format!("memory of the other side is not reached: {CARRIER} is qpip");
                Err(Failure::new(FI_EOPNOTSUPP, text))
            }
        }
    }
}

/// It is closed with the last endpoint that uses it.
pub(crate) struct Carrier {
    pub(crate) network: Network,
    name: SocketAddr,
    /// Its port of QPIP, until somebody listens there.
    port: Mutex<Option<qpip::Listener>>,
    /// The round in which its last turn was made.
    turned: AtomicU64,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Carrier {
    /// Takes an address, or the first port of a choice of them that is free.
    pub(crate) fn bind(address: SocketAddr, settings: &Settings) -> Result<Arc<Self>, Failure> {
        if let Some(qpip) = &settings.qpip {
            let host = Host::of_process(qpip, settings.patience())?;
            let port = host.listen(settings.candidates(address))?;
            let name = port.local_address();
            return Ok(Arc::new(Self::new(Network::Qpip(host), name, Some(port))));
        }
        let stp = bind(address, settings)?;
        let Some(Peer::Socket(name)) = stp.local() else {
            return Err(Failure::new(FI_EADDRNOTAVAIL, "the endpoint has no address"));
        };
        Ok(Arc::new(Self::new(Network::Stp(stp), name, None)))
    }

    const fn new(network: Network, name: SocketAddr, port: Option<qpip::Listener>) -> Self {
        Self { network, name, port: Mutex::new(port), turned: AtomicU64::new(0) }
    }

    /// Listens for connections, at a port of STP, or at its own port of QPIP.
    pub(crate) fn listen(&self, port: u16) -> Result<Listener, Failure> {
        match &self.network {
            Network::Stp(stp) => {
                let listener = stp.as_async().listen(port);
                let failed = |error: landfall::stp::Error| Failure::new(FI_EIO, error.to_string());
                listener.map(Listener::Stp).map_err(failed)
            }
            Network::Qpip(host) => {
                let taken = || Failure::new(FI_EOPBADSTATE, "somebody listens there already");
                let port = locked(&self.port).take().ok_or_else(taken)?;
                QueueListener::new(host, port).map(|listener| Listener::Qpip(Box::new(listener)))
            }
        }
    }

    /// Where peers reach it.
    pub(crate) const fn name(&self) -> SocketAddr {
        self.name
    }

    /// The same, with where they reach it if not there.
    pub(crate) fn full_name(&self) -> Name {
        let Network::Stp(stp) = &self.network else { return self.name.into() };
        let stp = stp.as_async();
        let second = stp.paths().get(1).and_then(|path| stp.local_of(*path));
        let second = match second {
            Some(Peer::Socket(SocketAddr::V4(second))) => Some(second),
            _ => None,
        };
        Name { address: self.name, second }
    }

    /// Makes a turn of the network, once in a round of all endpoints.
    pub(crate) fn turn(&self, round: u64) {
        if self.turned.swap(round, Ordering::Relaxed) != round {
            self.turn_now();
        }
    }

    pub(crate) fn turn_now(&self) {
        match &self.network {
            Network::Stp(stp) => stp.wait(OneTurn::default()),
            // The adapter has a thread of its own.
            Network::Qpip(_) => std::thread::yield_now(),
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if let Network::Stp(stp) = &self.network {
            stp.clone().close();
        }
    }
}

/// Where connections come in.
#[derive(Debug)]
pub(crate) enum Listener {
    Stp(StpListener),
    Qpip(Box<QueueListener>),
}

/// A connection that has come in.
#[derive(Debug)]
pub(crate) enum Incoming {
    Stp(Connection),
    Qpip(Box<Queue>),
}

impl Listener {
    /// The next connection; nothing where none come any more.
    pub(crate) fn poll_accept(&mut self, waker: &Waker) -> Poll<Option<Incoming>> {
        match self {
            Self::Stp(listener) => {
                let next = std::pin::pin!(listener.accept());
                let accepted = next.poll(&mut Context::from_waker(waker));
                accepted.map(|connection| connection.ok().map(Incoming::Stp))
            }
            Self::Qpip(listener) => listener
                .poll_accept(waker)
                .map(|queue| queue.map(|queue| Incoming::Qpip(Box::new(queue)))),
        }
    }
}

impl Incoming {
    /// From where it is.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Stp(connection) => match connection.peer() {
                Peer::Socket(address) => Some(address),
                _ => None,
            },
            Self::Qpip(queue) => queue.peer(),
        }
    }

    pub(crate) fn abort(self) {
        match self {
            Self::Stp(connection) => connection.abort(),
            Self::Qpip(mut queue) => queue.abort(),
        }
    }
}

fn bind(address: SocketAddr, settings: &Settings) -> Result<blocking::Endpoint, Failure> {
    let rails = settings.rails(address, &locals());
    let rails = rails.map_err(|why| Failure::new(FI_EADDRNOTAVAIL, why))?;
    let mut why = None;
    for candidate in settings.candidates(address) {
        let first = blocking::Endpoint::builder().path(Transport::udp(candidate));
        // On every rail the port that is tried; where the program has chosen that, any.
        let port = if address.port() == 0 { candidate.port() } else { 0 };
        let path = |rail: &Local| Transport::udp(rail.with_port(port));
        let builder = rails.iter().map(path).fold(first, Builder::path).linger(LINGER);
        match settings.apply(builder).bind() {
            Ok(bound) => return Ok(bound.into()),
            Err(error) => why = Some(error.to_string()),
        }
    }
    let tried = settings.candidates(address).count();
    let why = match why {
        Some(why) if tried == 1 => why,
        Some(why) => format!("none of the {tried} ports of {PORTS} is free; the last: {why}"),
        None => "there is no port to take".to_owned(),
    };
    Err(Failure::new(FI_EADDRNOTAVAIL, format!("{address}: {why}")))
}

/// Done after one turn of the endpoint that waits for it.
#[derive(Debug, Default)]
struct OneTurn {
    is_made: bool,
}

impl Future for OneTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_made, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
