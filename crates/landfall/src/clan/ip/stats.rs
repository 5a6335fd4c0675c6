//! What an interface did.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an interface did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClanIpStats {
    /// Packets that went out by DMA.
    pub sent: u64,
    /// Their bytes, from the IP header on.
    pub sent_bytes: u64,
    /// Packets that came in, and that the kernel took.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets for which no cookie was there at once: the receiver was slower.
    pub waited: u64,
    /// Packets that were dropped: no cookie came in time, nobody was there, or too
    /// many waited for a connection.
    pub dropped: u64,
    /// Packets that the kernel did not take, as when the interface is down.
    pub not_taken: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that ended because the other side wrote what no correct one does.
    pub misbehaved: u64,
}

/// The same while it works: several threads count.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    waited: AtomicU64,
    dropped: AtomicU64,
    not_taken: AtomicU64,
    connections: AtomicU64,
    misbehaved: AtomicU64,
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn sent(&self, bytes: usize) {
        add(&self.sent, 1);
        add(&self.sent_bytes, bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        add(&self.received, 1);
        add(&self.received_bytes, bytes as u64);
    }

    pub(super) fn waited(&self) {
        add(&self.waited, 1);
    }

    pub(super) fn dropped(&self) {
        add(&self.dropped, 1);
    }

    pub(super) fn not_taken(&self) {
        add(&self.not_taken, 1);
    }

    pub(super) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(super) fn misbehaved(&self) {
        add(&self.misbehaved, 1);
    }

    pub(super) fn read(&self) -> ClanIpStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClanIpStats {
            sent: get(&self.sent),
            sent_bytes: get(&self.sent_bytes),
            received: get(&self.received),
            received_bytes: get(&self.received_bytes),
            waited: get(&self.waited),
            dropped: get(&self.dropped),
            not_taken: get(&self.not_taken),
            connections: get(&self.connections),
            misbehaved: get(&self.misbehaved),
        }
    }
}
