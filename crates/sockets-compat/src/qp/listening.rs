//! Idle queue pairs that wait for connections.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall::qpip::{Listener, QueuePairId};

use super::connection::Ends;
use super::{QpHost, failed};
use crate::duplex::Duplex;
use crate::listener::Accept;
use crate::waiting::poll_once;

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
