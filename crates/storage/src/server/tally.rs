//! What a server did: counted by the threads of all clients.

use std::sync::atomic::{AtomicU64, Ordering};

use landfall_nbd::Command;

landfall_placement::counters! {
    /// What a [`Server`](super::Server) did since it was started.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct ServerStats {
        /// Requests to read.
        pub reads: u64,
        /// Bytes that were asked for.
        pub bytes_read: u64,
        /// Requests to write.
        pub writes: u64,
        /// Bytes that came with them.
        pub bytes_written: u64,
        /// Requests to bring what was written to the medium.
        pub flushes: u64,
        /// Requests for something else: to trim, to write zeroes, for the state of blocks.
        pub other_requests: u64,
        /// Requests that were left to a worker, since the medium may have to be waited for.
        pub waited_for: u64,
        /// Reads among them that waited in an `io_uring`.
        pub ring_reads: u64,
        /// Reads whose bytes were sent from where the page cache or an `io_uring` had put them.
        pub sent_in_place: u64,
        /// Writes of which bytes went to the file from where they had landed.
        pub written_in_place: u64,
        /// Requests that failed, or made no sense.
        pub errors: u64,
    }
}

/// The same while it grows.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    flushes: AtomicU64,
    other_requests: AtomicU64,
    waited_for: AtomicU64,
    ring_reads: AtomicU64,
    sent_in_place: AtomicU64,
    written_in_place: AtomicU64,
    errors: AtomicU64,
}

fn add(to: &AtomicU64, count: u64) {
    to.fetch_add(count, Ordering::Relaxed);
}

impl Tally {
    pub(super) fn request(&self, command: &Command) {
        match command {
            Command::Read { length, .. } => self.read(u64::from(*length)),
            Command::Write { length, .. } => self.write(u64::from(*length)),
            Command::Flush => self.flush(),
            _ => self.other(),
        }
    }

    pub(crate) fn read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.bytes_read, bytes);
    }

    pub(crate) fn write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.bytes_written, bytes);
    }

    pub(crate) fn flush(&self) {
        add(&self.flushes, 1);
    }

    pub(crate) fn other(&self) {
        add(&self.other_requests, 1);
    }

    pub(crate) fn waits(&self) {
        add(&self.waited_for, 1);
    }

    #[cfg(feature = "uring")]
    pub(super) fn waits_in_ring(&self) {
        add(&self.ring_reads, 1);
    }

    pub(super) fn sent_in_place(&self) {
        add(&self.sent_in_place, 1);
    }

    pub(super) fn written_in_place(&self) {
        add(&self.written_in_place, 1);
    }

    pub(crate) fn error(&self) {
        add(&self.errors, 1);
    }

    pub(crate) fn stats(&self) -> ServerStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            reads: of(&self.reads),
            bytes_read: of(&self.bytes_read),
            writes: of(&self.writes),
            bytes_written: of(&self.bytes_written),
            flushes: of(&self.flushes),
            other_requests: of(&self.other_requests),
            waited_for: of(&self.waited_for),
            ring_reads: of(&self.ring_reads),
            sent_in_place: of(&self.sent_in_place),
            written_in_place: of(&self.written_in_place),
            errors: of(&self.errors),
        }
    }
}
