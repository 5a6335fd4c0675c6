//! What the threads of an interface share with its owner.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::error::Error;
use super::super::stats::{ReceiverStats, SenderStats};
use crate::runtime::locked;

/// Nobody waits longer until he looks whether it is over, and tells what he did.
pub(super) const LOOK_UP: Duration = Duration::from_millis(50);

/// What an interface did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BigMtuStats {
    /// How packets from the link below were joined.
    pub joined: ReceiverStats,
    /// Packets and bytes of frames that the kernel was given.
    pub to_kernel: Amount,
    /// Packets that the kernel did not take, as when the interface is down.
    pub not_taken: u64,
    /// Packets of a peer on the same machine, whose checksums were finished.
    pub sums_finished: u64,
    /// How packets to the link below were cut.
    pub cut: SenderStats,
    /// Packets and bytes of frames that came from the kernel.
    pub from_kernel: Amount,
    /// Of those, packets that cannot be cut.
    pub not_cut: u64,
    /// Times that the link below took nothing for so long that frames were given up.
    pub stuck: u64,
}

/// Packets, and their bytes from the Ethernet header on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many packets.
    pub packets: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Amount {
    pub(super) const fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shared {
    over: AtomicBool,
    stats: Mutex<BigMtuStats>,
    error: Mutex<Option<Error>>,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// A thread is done, for this reason if any: then the other shall end too.
    pub(super) fn done(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            locked(&self.error).get_or_insert(error);
        }
        self.end();
    }

    pub(super) fn take_error(&self) -> Option<Error> {
        locked(&self.error).take()
    }

    pub(super) fn stats(&self) -> BigMtuStats {
        *locked(&self.stats)
    }

    pub(super) fn tell(&self, write: impl FnOnce(&mut BigMtuStats)) {
        write(&mut locked(&self.stats));
    }
}

/// When a thread tells again what it did.
#[derive(Debug)]
pub(super) struct Told(Instant);

impl Told {
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    /// Is it time? Then the next time is a while from now.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.0.elapsed() >= LOOK_UP;
        if is_due {
            *self = Self::now();
        }
        is_due
    }
}
