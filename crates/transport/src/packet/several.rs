//! Frames, many a call: those that nothing coalesces, and super-packets, each behind a
//! virtio-net header of its own.

use std::io;
use std::os::fd::RawFd;

use super::link::Link;
use super::message::{ReceiveHeader, SendHeader};
use super::receive::Outcomes;
use crate::exchange::{Batch, MAX_UNITS, Outbox};

/// The plain calls of a packet path, for several frames each.
pub(super) struct Several {
    outgoing: Box<[SendHeader]>,
    batch: Batch,
}

impl Several {
    pub(super) fn new() -> Self {
        let outgoing = (0..MAX_UNITS).map(|_| SendHeader::new()).collect();
        Self { outgoing, batch: Batch::new() }
    }

    /// One call that receives, by these headers. Returns what it brought, and an error behind
    /// it where there was room for more.
    ///
    /// # Safety
    /// The headers were prepared, and what they name may be written until the call is over:
    /// scratch memory to which there is no reference, or lent memory that is pinned.
    pub(super) unsafe fn receive(&mut self, headers: &mut [ReceiveHeader], fd: RawFd) -> Outcomes {
        self.batch.clear();
        headers.iter().for_each(|header| self.batch.add(header.prepared()));
        // SAFETY: each header names an address, a control buffer and a list that live
        // through the call; the caller vouches for what the lists name.
        let received = unsafe { self.batch.receive(fd) };
        let mut outcomes = Outcomes::new();
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                outcomes.push(Err(error));
                return outcomes;
            }
        };
        for (nth, header) in headers.iter_mut().enumerate().take(count) {
            let (told, len) = self.batch.told(nth);
            header.note(told);
            outcomes.push(Ok(len));
        }
        if count < headers.len() {
            outcomes.push(Err(io::ErrorKind::WouldBlock.into()));
        }
        outcomes
    }

    /// One call that sends those of the next units that have somewhere to go,
    /// in order. Returns how many left; none if the first has nowhere to go.
    pub(super) fn send(
        &mut self,
        link: &Link,
        outbox: &Outbox,
        fd: RawFd,
    ) -> Option<io::Result<usize>> {
        self.batch.clear();
        for ((unit, head, pieces), header) in outbox.each().zip(&mut self.outgoing) {
            let Some(to) = link.destination(unit.to, head) else { break };
            header.prepare(pieces, to);
            self.batch.add(header.prepared());
        }
        if self.batch.is_empty() {
            return None;
        }
        // SAFETY: each header names an address and a list that live through the
        // call; the lists name heads of the outbox and lent memory that the
        // outbox has pinned.
        Some(unsafe { self.batch.send(fd) })
    }
}
