//! [`Carrier`]: an endpoint of STP, which endpoints of libfabric share.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use landfall::stp::{Builder, Peer, Transport, blocking};

use crate::abi::FI_EADDRNOTAVAIL;
use crate::address::{Local, Name, locals};
use crate::completion::Failure;
use crate::settings::{PORTS, Settings};

/// What was sent has so long to arrive when an endpoint is closed.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// It is closed with the last endpoint that uses it.
pub(crate) struct Carrier {
    pub(crate) stp: blocking::Endpoint,
    name: SocketAddr,
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
        let stp = bind(address, settings)?;
        let Some(Peer::Socket(name)) = stp.local() else {
            return Err(Failure::new(FI_EADDRNOTAVAIL, "the endpoint has no address"));
        };
        Ok(Arc::new(Self { stp, name, turned: AtomicU64::new(0) }))
    }

    /// Where peers reach it.
    pub(crate) const fn name(&self) -> SocketAddr {
        self.name
    }

    /// The same, with where they reach it if not there.
    pub(crate) fn full_name(&self) -> Name {
        let stp = self.stp.as_async();
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
        self.stp.wait(OneTurn::default());
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stp.clone().close();
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
