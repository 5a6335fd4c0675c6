//! Bytes by TCP whose only meaning is that they come: who needs them, and when they go.

use std::sync::atomic::Ordering;

use crate::connection::Shared;
use crate::kernel;
use crate::lock::hold;
use crate::ring::{self, Wish};

/// Somebody who sleeps, or is about to, and watches an end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    wish: Option<Wish>,
}

impl Shared<'_> {
    /// Wakes the receiver at the other end if it sleeps.
    pub(crate) fn ring_if_wanted(&self, fd: i32) {
        if let Some(far) = self.far {
            return self.tells_of_bytes(far, fd);
        }
        if self.outgoing.takes_the_wish_to_be_rung() {
            let _ = kernel::ring(fd);
            self.sends.receiving.was_rung.store(1, Ordering::Release);
        }
    }

    /// Whether a byte by TCP is known to be a ring. Who only receives has never changed
    /// its own way: a ring would be taken for what it sends, so it is changed now. Where that
    /// cannot be, the other end knows, and looks by itself.
    fn may_ring(&self, fd: i32) -> bool {
        if !self.is_sending_switched() {
            self.switch_sending(fd);
        }
        self.is_sending_switched()
    }

    /// Wakes a sender at the other end that waits for room, if there is enough now.
    pub(crate) fn tell_of_room_if_wanted(&self, fd: i32) {
        let how = self.incoming.takes_the_wish_for_room();
        if how & ring::ROOM_BY_MEMORY != 0 {
            kernel::wake(self.incoming.word_of_room(), i32::MAX);
        }
        // To one who has ended a byte would be an offence: the kernel answers with a reset.
        let sends_on = self.receives.sending.has_ended.load(Ordering::Acquire) == 0;
        if how & ring::ROOM_BY_TCP != 0 && sends_on && self.may_ring(fd) {
            let _ = kernel::ring(fd);
            self.sends.receiving.was_rung.store(1, Ordering::Release);
        }
    }

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
        if self.far.is_some() {
            // There all look by themselves after a ring, whoever has taken it.
            return true;
        }
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
        if self.far.is_some() {
            return false;
        }
        let own = &self.receives.receiving;
        own.sleepers.load(Ordering::SeqCst) > 0 || own.watchers.load(Ordering::SeqCst) > 0
    }

    /// The same for one who knows that they are nothing but rings. An error that waits
    /// there stays: asking for the length does not take it.
    pub(crate) fn drop_rings(&self, fd: i32) {
        if let Some(far) = self.far
            && kernel::queued(fd, libc::FIONREAD).is_ok_and(|bytes| bytes > 0)
        {
            far.has_news();
        }
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
