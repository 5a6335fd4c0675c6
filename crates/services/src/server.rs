//! Accepts connections within bounds, and drains when it is told to stop.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::admission::Admission;
use crate::listener::{ACCEPT_PAUSE, Connection, Listener};

/// The bounds of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time. Others wait until the listener has no room for them either.
    pub connections: usize,
    /// Connections of one source: an address, or an IPv6 network of 64 bits. Those beyond are
    /// reset.
    pub per_source: usize,
    /// No byte moves for so long, in either direction: the connection is given up.
    pub idle: Duration,
    /// The head of a request has come by then, counted from the connection or from the last
    /// response, and a handshake of TLS is over. A proxy connects within that.
    pub head: Duration,
    /// The longest head of a request.
    pub head_bytes: usize,
    /// The most fields in it.
    pub head_fields: usize,
    /// Connections may take this long to end after the server was told to stop.
    pub drain: Duration,
}

impl Default for Limits {
    /// 256 connections and 128 of one source; 60 s without progress; heads of 16 KiB with 64
    /// fields within 15 s; 10 s to drain.
    fn default() -> Self {
        Self {
            connections: 256,
            per_source: 128,
            idle: Duration::from_secs(60),
            head: Duration::from_secs(15),
            head_bytes: 16 << 10,
            head_fields: 64,
            drain: Duration::from_secs(10),
        }
    }
}

/// Hears what happens at a server. Called from many tasks: it must not block.
pub trait Observer: Send + Sync {
    /// A connection was accepted.
    fn came(&self, peer: SocketAddr);
    /// A connection has ended, as this says.
    fn gone(&self, peer: SocketAddr, how: &str);
    /// A connection was reset: its source has as many as one may have.
    fn turned_away(&self, peer: SocketAddr);
    /// Bytes were received from and sent to those who connect here.
    fn moved(&self, received: u64, sent: u64);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// An observer that nobody needs.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn came(&self, _: SocketAddr) {}
    fn gone(&self, _: SocketAddr, _: &str) {}
    fn turned_away(&self, _: SocketAddr) {}
    fn moved(&self, _: u64, _: u64) {}
}

/// Tells a server to stop. Dropped, it does the same.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Accept no more, end what is under way, drain.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Hears when a server is told to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns when the server is told to stop. Cancel safe.
    pub async fn stopped(&mut self) {
        // The sender is gone: told to stop, too.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// What tells a server to stop, and what hears it.
#[must_use]
pub fn stopper() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

/// Serves connections until it is told to stop; false: some had not ended when the time to drain
/// was over, and were reset. The handler gets each connection, its peer, and what hears when to
/// stop; it says how the connection ended.
pub(crate) async fn run<L, H, F>(
    listener: L,
    limits: &Limits,
    observer: Arc<dyn Observer>,
    mut stop: Stop,
    handler: H,
) -> bool
where
    L: Listener,
    H: Fn(L::Connection, Stop) -> F,
    F: Future<Output = String> + Send + 'static,
{
    let admission = Admission::new(limits.per_source);
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.stopped() => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            accepted = listener.accept(), if tasks.len() < limits.connections => accepted,
        };
        let Ok((connection, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(ticket) = admission.admit(peer.ip()) else {
            observer.turned_away(peer);
            connection.reset_on_drop();
            continue;
        };
        observer.came(peer);
        let departure = Departure { observer: Arc::clone(&observer), peer, how: None };
        let handling = handler(connection, stop.clone());
        tasks.spawn(async move {
            let mut departure = departure;
            departure.how = Some(handling.await);
            drop(ticket);
        });
    }
    // Nobody comes in any more.
    drop(listener);
    let drained = timeout(limits.drain, async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
    drained.is_ok()
}

/// Tells the observer of the end of a connection, also of one that is cut off.
struct Departure {
    observer: Arc<dyn Observer>,
    peer: SocketAddr,
    how: Option<String>,
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.observer.gone(self.peer, self.how.as_deref().unwrap_or("cut off: the server ended"));
    }
}
