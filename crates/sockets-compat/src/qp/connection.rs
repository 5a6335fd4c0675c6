//! A queue pair with what a socket needs of it, from the wait for a connection to its end.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use landfall::qpip::{
    CompletionQueue, Listener, Mapping, QueuePair, QueuePairId, QueuePairOptions,
};

use super::receiving::{Receives, Slots};
use super::sending::{DEPTH, Ring, Sends};
use super::{QpHost, failed};
use crate::address::Address;
use crate::duplex::Duplex;
use crate::errors;
use crate::linger::see_off;
use crate::listener::Accept;
use crate::waiting::{locked, poll_once};

/// Memory and queues of a connection to be.
pub(super) struct Ends {
    slots: Slots,
    received: CompletionQueue,
    ring: Ring,
}

impl Ends {
    /// An idle queue pair, with room for what comes.
    pub(super) fn new(host: &QpHost) -> io::Result<(Self, QueuePair)> {
        let (slots, ring) = (Slots::new(host)?, Ring::new(host)?);
        // A byte stream needs one place more.
        let received = host.adapter.completion_queue(Slots::COUNT + 1).map_err(failed)?;
        let options = QueuePairOptions {
            send_depth: DEPTH,
            receive_depth: Slots::COUNT,
            ..QueuePairOptions::tcp(Mapping::Stream)
        };
        let pair = host.domain.queue_pair(&options, &ring.done, &received);
        let mut pair = pair.map_err(failed)?;
        slots.post_all(&mut pair)?;
        Ok((Self { slots, received, ring }, pair))
    }

    /// The socket, once the queue pair is connected.
    pub(super) fn duplex(self, pair: QueuePair, host: &QpHost) -> io::Result<Arc<Duplex>> {
        let ends = (pair.local_address(), pair.remote_address());
        let (Some(local), Some(peer)) = ends else { return Err(errors::reset()) };
        let wire = Arc::new(Wire {
            live: Mutex::new(Some(Live { pair, received: self.received })),
            is_unread: AtomicBool::new(false),
            linger: host.options.linger,
        });
        let source = Box::new(Receives::new(self.slots, Arc::clone(&wire), host.adapter.clone()));
        let sink = Box::new(Sends::new(self.ring, wire));
        Ok(Duplex::new((source, sink), Address::Qp(local), Address::Qp(peer)))
    }
}

/// The queue pair of a connection, which both directions use. When both are gone it is
/// closed in the background, for what was written still has to arrive; where something
/// was not read, or still comes, it is reset, as of a kernel's socket.
pub(super) struct Wire {
    /// There until the end.
    live: Mutex<Option<Live>>,
    is_unread: AtomicBool,
    linger: Duration,
}

/// What both directions use.
pub(super) struct Live {
    pub(super) pair: QueuePair,
    /// Where its receives complete.
    pub(super) received: CompletionQueue,
}

impl Wire {
    /// Does something with the queue pair; nothing when it is gone.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Live) -> T) -> Option<T> {
        locked(&self.live).as_mut().map(work)
    }

    /// Something was not read, and never will be.
    pub(super) fn leave_unread(&self) {
        self.is_unread.store(true, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let live = locked(&self.live).take();
        // Dropped, a queue pair resets its connection.
        if let Some(live) = live.filter(|_| !*self.is_unread.get_mut()) {
            see_off(self.linger, live.last_words());
        }
    }
}

impl Live {
    /// Closes a connection. Where bytes come that nobody will read, it is given up.
    async fn last_words(mut self) {
        let mut closing = pin!(self.pair.close());
        poll_fn(|cx| match comes(&mut self.received, cx) {
            true => Poll::Ready(()),
            false => closing.as_mut().poll(cx).map(drop),
        })
        .await;
    }
}

/// Have bytes come?
fn comes(received: &mut CompletionQueue, cx: &mut Context<'_>) -> bool {
    loop {
        while let Some(completion) = received.poll() {
            if completion.status.is_success() && completion.len > 0 {
                return true;
            }
        }
        // Dropped, this future loses nothing: it only waits.
        if !matches!(poll_once(cx, received.ready()), Poll::Ready(Ok(()))) {
            return false;
        }
    }
}

/// See the module.
pub(super) struct Idle {
    listener: Listener,
    host: QpHost,
    waiting: HashMap<QueuePairId, Ends>,
}

impl Idle {
    pub(super) fn open(host: &QpHost, local: SocketAddr) -> io::Result<Self> {
        let listener = host.adapter.listen(local).map_err(failed)?;
        let mut idle = Self { listener, host: host.clone(), waiting: HashMap::new() };
        idle.fill()?;
        Ok(idle)
    }

    pub(super) const fn local(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// So many wait as may.
    fn fill(&mut self) -> io::Result<()> {
        while self.waiting.len() < self.host.options.backlog.max(1) {
            let (ends, pair) = Ends::new(&self.host)?;
            self.waiting.insert(pair.id(), ends);
            let id = pair.id();
            if let Err(refused) = self.listener.offer(pair) {
                self.waiting.remove(&id);
                return Err(failed(refused.into()));
            }
        }
        Ok(())
    }
}

impl Accept<Duplex> for Idle {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Duplex>>> {
        loop {
            // Dropped, this future loses nothing: a queue pair leaves when it is ready.
            let accepted = match poll_once(cx, self.listener.accept()) {
                Poll::Ready(accepted) => accepted,
                Poll::Pending => return Poll::Pending,
            };
            let pair = accepted.map_err(failed)?;
            let ends = self.waiting.remove(&pair.id());
            // Where there is no room for another one, those that are left have to do.
            if let Err(error) = self.fill()
                && self.waiting.is_empty()
            {
                return Poll::Ready(Err(error));
            }
            if let Some(ends) = ends {
                return Poll::Ready(ends.duplex(pair, &self.host));
            }
        }
    }
}
