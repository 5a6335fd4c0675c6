//! Bytes by TCP whose only meaning is that they come: who needs them, and when they go.

use std::sync::atomic::Ordering;

use crate::connection::Shared;
use crate::kernel;
use crate::lock::hold;
use crate::ring::Wish;

/// Somebody who sleeps, or is about to, and watches an end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    wish: Option<Wish>,
}

impl Shared<'_> {
    /// Takes rings out of TCP's queue, where all real bytes have been taken out of it and
    /// nobody sleeps for them.
    pub(crate) fn take_rings_away(&self, fd: i32) {
        let own = &self.receives.receiving;
        let _held = hold(&own.lock);
        if self.incoming_by_tcp() == Some(own.by_tcp.load(Ordering::Relaxed))
            && self.nobody_needs_the_rings()
        {
            self.drop_rings(fd);
        }
    }

    /// Whether all have gone for whom a ring may lie in TCP's queue. Who only seems to be
    /// there, since it was killed, is not waited for too long: a ring that stays keeps
    /// others from sleep.
    pub(crate) fn nobody_needs_the_rings(&self) -> bool {
        const LONG_ENOUGH: u32 = 64;
        let own = &self.receives.receiving;
        if own.sleepers.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let is_watched = own.watchers.load(Ordering::SeqCst) > 0;
        if is_watched && own.rings_kept.fetch_add(1, Ordering::Relaxed) < LONG_ENOUGH {
            return false;
        }
        own.rings_kept.store(0, Ordering::Relaxed);
        true
    }

    /// Whether a ring in TCP's queue may be for somebody who sleeps, or wakes just now.
    pub(crate) fn somebody_may_need_a_ring(&self) -> bool {
        let own = &self.receives.receiving;
        own.sleepers.load(Ordering::SeqCst) > 0 || own.watchers.load(Ordering::SeqCst) > 0
    }

    /// The same for one who knows that they are nothing but rings. An error that waits
    /// there stays: asking for the length does not take it.
    pub(crate) fn drop_rings(&self, fd: i32) {
        while kernel::queued(fd, libc::FIONREAD).is_ok_and(|bytes| bytes > 0)
            && kernel::glance(fd, libc::MSG_DONTWAIT) == Ok(kernel::GLANCE)
        {}
        self.rings_were_dropped();
    }

    /// Who may still wait for one gets the next.
    pub(crate) fn rings_were_dropped(&self) {
        if self.receives.receiving.watchers.load(Ordering::SeqCst) > 0 {
            self.incoming.wants_the_next_ring();
        }
    }

    /// Somebody will sleep who watches this end, until [`Shared::stops_watching`]. Who
    /// calls this looks at the ring of bytes once more.
    pub(crate) fn watches(&self, for_bytes: bool) -> Watch {
        self.receives.receiving.watchers.fetch_add(1, Ordering::SeqCst);
        Watch { wish: for_bytes.then(|| self.incoming.wants_the_next_ring()) }
    }

    pub(crate) fn stops_watching(&self, watch: Watch) {
        if let Some(wish) = watch.wish {
            self.incoming.takes_back(wish);
        }
        self.receives.receiving.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}
