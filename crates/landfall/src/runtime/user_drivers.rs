//! [`UserDrivers`]: do threads of the user drive, so that the own thread may stay aside?

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};

use landfall_placement::{Duration, Instant};
use landfall_transport::Clock;

/// After another thread has driven, the own thread stays aside for so long: most
/// likely it does so again.
const ASIDE: Duration = Duration::from_millis(1);
/// So often it doubles that time while it finds others driving whenever it looks: to look
/// interrupts anyone who spins on the same processor, for some tens of microseconds.
const MOST_DOUBLINGS: u32 = 2;
/// Anyone who spins may only have been interrupted, and perhaps shares a processor with the own
/// thread: for so long that one does not spin in its place.
const LATELY: Duration = Duration::from_secs(1);

/// Whether threads of the user drive, so that the own thread may stay aside.
#[derive(Debug)]
pub(super) struct UserDrivers {
    clock: Clock,
    /// Threads that drive while they wait.
    drivers: AtomicU32,
    /// When one last drove; 0: nobody did, or it has handed over.
    driven_at: AtomicU64,
    /// The own thread, and whether it stays aside.
    own: OnceLock<Thread>,
    is_own_aside: AtomicBool,
    /// How often the own thread has doubled its time aside.
    doublings: AtomicU32,
}

impl UserDrivers {
    pub(super) const fn new(clock: Clock) -> Self {
        Self {
            clock,
            drivers: AtomicU32::new(0),
            driven_at: AtomicU64::new(0),
            own: OnceLock::new(),
            is_own_aside: AtomicBool::new(false),
            doublings: AtomicU32::new(0),
        }
    }

    /// This thread is the own one.
    pub(super) fn enter_own(&self) {
        let _ = self.own.set(thread::current());
    }

    /// A thread begins to wait, and drives meanwhile.
    pub(super) fn begin(&self) -> DriverGuard<'_> {
        self.drivers.fetch_add(1, Ordering::SeqCst);
        DriverGuard(self)
    }

    /// A thread of the user has driven just now.
    pub(super) fn note(&self, now: Instant) {
        self.driven_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The threads of the user drive no more: the own thread has to see to it from now on.
    pub(super) fn hand_over(&self) {
        self.driven_at.store(0, Ordering::SeqCst);
        if self.is_own_aside.load(Ordering::SeqCst)
            && let Some(own) = self.own.get()
        {
            own.unpark();
        }
    }

    /// Do threads drive while they wait?
    pub(super) fn has_drivers(&self) -> bool {
        self.drivers.load(Ordering::SeqCst) > 0
    }

    pub(super) fn is_driven_by_others(&self) -> bool {
        self.has_drivers() || self.was_driven_within(ASIDE)
    }

    /// Did others drive, until not long ago?
    pub(super) fn was_driven_lately(&self) -> bool {
        self.was_driven_within(LATELY)
    }

    fn was_driven_within(&self, time: Duration) -> bool {
        let driven_at = self.driven_at.load(Ordering::SeqCst);
        driven_at > 0 && self.clock.now().since(Instant::from_nanos(driven_at)) < time
    }

    /// The own thread leaves it to others for a while, unless nobody `is_there` after all.
    pub(super) fn stay_aside(&self, is_there: impl Fn() -> bool) {
        self.is_own_aside.store(true, Ordering::SeqCst);
        // Only this thread counts them.
        let doublings = self.doublings.load(Ordering::Relaxed);
        // Anyone who hands over looks at whether it is aside after it said so.
        if is_there() {
            thread::park_timeout(ASIDE * (1 << doublings));
        }
        let next = if is_there() { (doublings + 1).min(MOST_DOUBLINGS) } else { 0 };
        self.doublings.store(next, Ordering::Relaxed);
        self.is_own_aside.store(false, Ordering::SeqCst);
    }
}

/// A guard: its holder drives until it is dropped.
#[derive(Debug)]
pub(crate) struct DriverGuard<'a>(&'a UserDrivers);

impl Drop for DriverGuard<'_> {
    fn drop(&mut self) {
        self.0.note(self.0.clock.now());
        self.0.drivers.fetch_sub(1, Ordering::SeqCst);
    }
}
