//! The words in shared memory by which an end says that it sleeps.

use core::num::NonZeroU32;
#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// In the word of [`Wishes`] this is one wish. The upper half counts the rings: a wish that was
/// made before the last ring is fulfilled.
const WISH: u64 = 1;
const WISHES: u64 = 0xFFFF_FFFF;

/// A wish to be rung that has been made, and can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    rings_before: u64,
}

/// Who of one end wants to be rung when bytes come. The sender at the other end takes all
/// wishes away as it fulfils them, by one ring.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Wishes(AtomicU64);

impl Wishes {
    /// The first bytes find nobody who looks at the ring of bytes, only one at TCP.
    pub fn begin(&self) {
        self.0.store(WISH, Ordering::Relaxed);
    }

    /// Wants the next ring. The caller looks for bytes after that.
    pub fn make(&self) -> Wish {
        // Who sees the wish sees what was said before it: by which way.
        let before = self.0.fetch_add(WISH, Ordering::Release);
        fence(Ordering::SeqCst);
        Wish { rings_before: before & !WISHES }
    }

    /// Anyone who made the wish does not sleep any more. If a ring has fulfilled it, it is
    /// none of those that stand there now.
    pub fn take_back(&self, wish: Wish) {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & !WISHES == wish.rings_before && seen & WISHES != 0 {
            match self.0.compare_exchange_weak(
                seen,
                seen - WISH,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// After bytes were put in: whether a ring has to be sent now.
    pub fn fulfil(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & WISHES != 0 {
            // None is left, and one ring more has been sent.
            let fulfilled = (seen | WISHES).wrapping_add(1);
            match self.0.compare_exchange_weak(seen, fulfilled, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Whether anybody wishes for a ring now.
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WISHES != 0
    }
}

/// How a sender that waits for room wants to be woken: bits that only the preload knows.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RoomWish(AtomicU32);

impl RoomWish {
    /// Wants room. The caller looks for it after that.
    pub fn make(&self, how: u32) {
        self.0.fetch_or(how, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// After bytes were taken: how the sender has to be woken, if `is_enough`.
    pub fn fulfil(&self, is_enough: impl FnOnce() -> bool) -> u32 {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) == 0 || !is_enough() {
            return 0;
        }
        self.0.swap(0, Ordering::AcqRel)
    }
}

/// Who sleeps at one end, or is about to.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Waiters {
    /// Threads that sleep for bytes in a call; they must find the ring that was meant for them.
    sleepers: AtomicU32,
    /// Who sleeps in `poll`, or may in `epoll`. A killed one stays in it, and costs some
    /// needless rings.
    watchers: AtomicU32,
    /// How often rings stayed for those.
    rings_kept: AtomicU32,
}

impl Waiters {
    /// One more thread sleeps for bytes in a call.
    pub fn adds_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// One less; whether it was the last.
    pub fn loses_sleeper(&self) -> bool {
        self.sleepers.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Whether a thread sleeps for bytes in a call.
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn adds_watcher(&self) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn loses_watcher(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many there are of both kinds. Who has the lock of the half that receives sees all
    /// who do not see the lock.
    pub fn count(&self) -> u32 {
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst).wrapping_add(self.watchers.load(Ordering::SeqCst))
    }

    /// All who may have been counted are gone.
    pub fn are_gone(&self) {
        self.sleepers.store(0, Ordering::SeqCst);
        self.watchers.store(0, Ordering::SeqCst);
    }

    /// Whether rings have stayed for long enough; counts this time.
    pub(crate) fn has_kept_for_long(&self) -> bool {
        self.rings_kept.fetch_add(1, Ordering::Relaxed) >= crate::LONG_ENOUGH
    }

    pub(crate) fn begins_to_keep(&self) {
        self.rings_kept.store(0, Ordering::Relaxed);
    }
}

/// A shorter way than TCP by which all who sleep at one end are woken, if one wakes them all: its
/// number in the upper half, and in the lower one how many they are. A killed one stays in it, and
/// those who come after it sleep by TCP.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Shortcut(AtomicU64);

const SLEEPER: u64 = 1;
const SLEEPERS: u64 = 0xFFFF_FFFF;

/// What came of joining a [`Shortcut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// All are woken by the one that was named.
    pub(crate) is_agreed: bool,
    /// Others sleep by memory, and are not woken by that any more.
    pub(crate) displaces_memory: bool,
}

impl Shortcut {
    /// The number of those who sleep on a word of shared memory, and hear nothing else.
    pub const MEMORY: u32 = u32::MAX;

    /// One more will sleep, whom this shortcut wakes; zero if none does. To be said before the wish
    /// is made.
    pub(crate) fn joins(&self, number: u32) -> Joined {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (known, count) = (seen & !SLEEPERS, seen & SLEEPERS);
            let own = u64::from(number) << 32;
            let agreed = if count == 0 || known == own { own } else { 0 };
            match self.swaps(seen, agreed + (count + SLEEPER).min(SLEEPERS)) {
                Ok(()) => {
                    let displaces_memory = known >> 32 == u64::from(Self::MEMORY) && agreed == 0;
                    return Joined { is_agreed: agreed == own, displaces_memory };
                }
                Err(now) => seen = now,
            }
        }
    }

    /// One less.
    pub(crate) fn leaves(&self) {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & SLEEPERS != 0 {
            match self.swaps(seen, seen - SLEEPER) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Those who sleep are woken by TCP from now on. The caller looks for bytes, and for room,
    /// after that: who saw the shortcut has put them there before.
    pub fn is_given_up(&self) {
        self.0.fetch_and(SLEEPERS, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// All who may have been counted are gone.
    pub fn all_are_gone(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// The number of the one that wakes all. To be asked by one who has just fulfilled a wish.
    pub fn of_all(&self) -> Option<NonZeroU32> {
        NonZeroU32::new((self.0.load(Ordering::SeqCst) >> 32) as u32)
    }

    fn swaps(&self, seen: u64, next: u64) -> Result<(), u64> {
        let swapped = self.0.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::Relaxed);
        swapped.map(|_| ())
    }
}

/// Those of the watchers of an end that wait for room: a ring that another takes away was for
/// them, too. Only the processes of this end have it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RoomWatchers(AtomicU32);

impl RoomWatchers {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn lose(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn are_any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}
