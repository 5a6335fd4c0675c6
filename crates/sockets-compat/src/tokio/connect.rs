//! How streams connect and listeners bind, for tokio.

use std::io;

#[cfg(feature = "qpip")]
use super::QpStream;
#[cfg(feature = "clan")]
use super::{ClanListener, ClanStream};
#[cfg(feature = "stp")]
use super::{StpStream, StpStreamListener};
#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
use crate::address::ToAddress;

#[cfg(feature = "clan")]
impl ClanStream {
    /// Connects to a service: `clan:///FOLDER#NAME` or `clan://HOST:PORT`. The two
    /// processes meet on a thread of its own; cancelled, the connection is closed when it
    /// is there.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanStream::connect`](crate::ClanStream).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(crate::errors::invalid)?;
        let stream = elsewhere(move || crate::ClanStream::connect(address)).await?;
        Self::from_std(stream)
    }
}

#[cfg(feature = "clan")]
impl ClanListener {
    /// Takes a name in a folder, `clan:///FOLDER#NAME`, or a port, `clan://ADDRESS:PORT`.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanListener::bind`](crate::ClanListener).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::ClanListener::bind(address)?)
    }
}

#[cfg(feature = "stp")]
impl StpStream {
    /// Connects to a port of STP: `stp://10.0.0.1:7`. Cancelled, it gives up.
    ///
    /// # Errors
    /// Those of [`sockets_compat::StpStream::connect`](crate::StpStream).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        crate::StpHost::open_stream(address).await.map(Self::of)
    }
}

#[cfg(feature = "stp")]
impl StpStreamListener {
    /// Listens at a port of STP: `stp://10.0.0.1:7`.
    ///
    /// # Errors
    /// Those of [`sockets_compat::StpStreamListener::bind`](crate::StpStreamListener).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::StpStreamListener::bind(address)?)
    }
}

#[cfg(feature = "qpip")]
impl QpStream {
    /// Connects to whoever listens there: `qp://10.0.0.1:7000`. Cancelled, it gives up.
    ///
    /// # Errors
    /// Those of [`QpHost::connect`](crate::QpHost::connect).
    pub async fn connect(host: &crate::QpHost, address: impl ToAddress) -> io::Result<Self> {
        host.open(address).await.map(Self::of)
    }
}

/// Runs something that may block on a thread of its own.
#[cfg(feature = "clan")]
pub(super) async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    use std::sync::{Arc, Mutex};
    use std::task::{Poll, Waker};

    use crate::waiting::locked;

    let place = Arc::new(Mutex::new((None, None::<Waker>)));
    let theirs = Arc::clone(&place);
    std::thread::Builder::new().name("clan-connect".into()).spawn(move || {
        let result = work();
        let mut place = locked(&theirs);
        place.0 = Some(result);
        let waker = place.1.take();
        drop(place);
        waker.into_iter().for_each(Waker::wake);
    })?;
    std::future::poll_fn(|cx| {
        let mut place = locked(&place);
        match place.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                place.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
