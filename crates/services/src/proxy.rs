//! Passes connections on: what comes in at a listener goes to an address behind it.
//!
//! Each direction has a buffer of 64 KiB and nothing else: where the receiver does not read, the
//! sender is not read from. The end of a direction is passed on as an end while the other goes
//! on; a reset, or an end that came too early, is passed on as a reset.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::copy_bidirectional_with_sizes;
use tokio::time::timeout;

use crate::listener::{Connection, Connector, Listener};
use crate::progress::Progressing;
use crate::server::{self, Limits, Observer, Stop, Unobserved};

/// The buffer of a direction.
const BUFFER: usize = 64 << 10;

/// What a proxy counts beside what its observer hears.
#[derive(Debug, Default)]
pub struct Stats {
    unreachable: AtomicU64,
    resets: AtomicU64,
    idle: AtomicU64,
}

impl Stats {
    /// Connections that were reset because the address behind did not answer.
    #[must_use]
    pub fn unreachable(&self) -> u64 {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Resets that were passed on.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Connections that were reset because no byte moved for too long.
    #[must_use]
    pub fn idle(&self) -> u64 {
        self.idle.load(Ordering::Relaxed)
    }
}

/// Passes connections on until it is told to stop, then lets those that are there end within
/// [`Limits::drain`]; false: some had not by then, and were reset.
pub async fn run<L: Listener, C: Connector>(
    listener: L,
    connector: C,
    limits: Limits,
    observer: Arc<dyn Observer>,
    stats: Arc<Stats>,
    stop: Stop,
) -> bool {
    let (connector, shared) = (Arc::new(connector), Arc::new(limits.clone()));
    let moved = Arc::clone(&observer);
    let handler = move |near: L::Connection, _: Stop| {
        let (connector, limits) = (Arc::clone(&connector), Arc::clone(&shared));
        let (observer, stats) = (Arc::clone(&moved), Arc::clone(&stats));
        async move { pass_on(near, &*connector, &limits, observer, &stats).await }
    };
    server::run(listener, &limits, observer, stop, handler).await
}

/// Passes on one connection; says how it ended.
async fn pass_on<N: Connection, C: Connector>(
    near: N,
    connector: &C,
    limits: &Limits,
    observer: Arc<dyn Observer>,
    stats: &Stats,
) -> String {
    let connected = match timeout(limits.head, connector.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let far = match connected {
        Ok(far) => far,
        Err(why) => {
            stats.unreachable.fetch_add(1, Ordering::Relaxed);
            near.reset_on_drop();
            return format!("reset: cannot connect: {why}");
        }
    };
    relay(near, far, limits, observer, stats).await
}

/// Both connections; dropped before both have ended in order, it resets them.
struct Relay<N: Connection, F: Connection> {
    near: Progressing<N>,
    far: Progressing<F>,
    is_finished: bool,
}

impl<N: Connection, F: Connection> Drop for Relay<N, F> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.near.get_ref().reset_on_drop();
            self.far.get_ref().reset_on_drop();
        }
    }
}

async fn relay<N: Connection, F: Connection>(
    near: N,
    far: F,
    limits: &Limits,
    observer: Arc<dyn Observer>,
    stats: &Stats,
) -> String {
    let mut relay = Relay {
        near: Progressing::new(near, limits.idle, observer),
        far: Progressing::new(far, limits.idle, Arc::new(Unobserved)),
        is_finished: false,
    };
    let Relay { near, far, .. } = &mut relay;
    match copy_bidirectional_with_sizes(near, far, BUFFER, BUFFER).await {
        Ok(_) => {
            relay.is_finished = true;
            "finished".to_owned()
        }
        Err(why) if why.kind() == io::ErrorKind::TimedOut => {
            stats.idle.fetch_add(1, Ordering::Relaxed);
            format!("reset: {why}")
        }
        Err(why) => {
            stats.resets.fetch_add(1, Ordering::Relaxed);
            format!("reset: {why}")
        }
    }
}
