//! Waiting until a turn makes sense again: spin, block, or spin and then block; and
//! [`Bell`], which wakes anyone who sleeps, and costs nothing while nobody does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as StdInstant;

use arrayvec::ArrayVec;
use landfall_placement::{Duration, Engine, Instant};

use crate::driver::{Clock, Driver, Interest};

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Never sleeps: the lowest latency, for the price of a core.
    Spin,
    /// Sleeps in the kernel at once.
    Block,
    /// Spins for a while, then sleeps. A wake across cores costs about 30 µs,
    /// so a budget of that order is never more than twice as bad as the better
    /// of the two.
    SpinThenBlock(Duration),
}

impl Wait {
    /// Spin for as long as a wake would cost, then sleep.
    pub const BALANCED: Self = Self::SpinThenBlock(Duration::from_micros(50));
}

/// Carries out a [`Wait`]: call [`Waiter::idle`] after each turn that moved
/// nothing and [`Waiter::busy`] after each that did.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    wait: Wait,
    idle_since: Option<StdInstant>,
}

impl Waiter {
    /// A waiter by this policy.
    #[must_use]
    pub const fn new(wait: Wait) -> Self {
        Self { wait, idle_since: None }
    }

    /// Something moved: a new spin budget.
    pub const fn busy(&mut self) {
        self.idle_since = None;
    }

    /// Nothing moved: spins or sleeps until the driver is ready, a timer of
    /// the engine is due, or `at_most` has passed.
    ///
    /// # Errors
    /// Those of `ppoll`.
    pub fn idle<D: Driver, E: Engine>(
        &mut self,
        driver: &mut D,
        engine: &E,
        clock: &Clock,
        at_most: Duration,
    ) -> io::Result<()> {
        let spin = match self.wait {
            Wait::Spin => true,
            Wait::Block => false,
            Wait::SpinThenBlock(budget) => {
                self.idle_since.get_or_insert_with(StdInstant::now).elapsed() < budget
            }
        };
        if spin {
            std::hint::spin_loop();
            return Ok(());
        }
        let wake = next_wake(driver, engine);
        let sleep = wake.map_or(at_most, |at| clock.until(at).min(at_most));
        if sleep.is_zero() {
            return Ok(());
        }
        if until_ready(&driver.interests(), sleep)? {
            driver.counters_mut().wakeups += 1;
        }
        Ok(())
    }
}

/// The earlier of the engine's and the driver's next timer.
pub(crate) fn next_wake<D: Driver, E: Engine>(driver: &D, engine: &E) -> Option<Instant> {
    let engine = engine.poll_timeout().map(|timeout| timeout.at);
    [engine, driver.poll_timeout()].into_iter().flatten().min()
}

/// The most descriptors that [`until_ready`] waits for.
pub const MOST_INTERESTS: usize = 160;

/// Sleeps until one of these descriptors is ready (true) or the time is over
/// (false). For those who drive several paths at once; a [`Waiter`] does it for one.
///
/// # Errors
/// Those of `ppoll`; more than [`MOST_INTERESTS`] descriptors.
pub fn until_ready(interests: &[Interest], at_most: Duration) -> io::Result<bool> {
    let mut fds: ArrayVec<libc::pollfd, MOST_INTERESTS> = ArrayVec::new();
    for interest in interests {
        let mut events = 0;
        if interest.readable {
            events |= libc::POLLIN;
        }
        if interest.writable {
            events |= libc::POLLOUT;
        }
        fds.try_push(libc::pollfd { fd: interest.fd, events, revents: 0 })
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"))?;
    }
    let time = libc::timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX) as _,
        tv_nsec: libc::c_long::from(at_most.subsec_nanos() as i32),
    };
    let count = fds.len() as libc::nfds_t;
    // SAFETY: `fds` holds `count` initialised entries, `time` lives through the
    // call, and no signal mask is given.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const time, std::ptr::null()) };
    match ready {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            error => Err(error),
        },
    }
}

/// Wakes the one thread that sleeps at descriptors ([`wait::until_ready`]), from
/// any other. While nobody sleeps a ring is a look at one atomic.
///
/// Who wants to sleep arms the bell, looks once more whether there is work, and
/// sleeps with the bell's [`interest`](Self::interest) among the others; awake,
/// it silences the bell.
///
/// [`wait::until_ready`]: crate::wait::until_ready
#[derive(Debug)]
pub struct Bell {
    event: OwnedFd,
    /// Somebody is about to sleep.
    armed: AtomicBool,
}

/// For those who wait there with others: it becomes readable when the armed bell
/// is rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Bell {
    /// A bell that nobody waits for.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes two numbers, gives a descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { event, armed: AtomicBool::new(false) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// What to wait for.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.fd(), readable: true, writable: false }
    }

    /// From now on a ring is heard. The caller looks once more for work before
    /// it sleeps; both sides use the strongest order, so that one of them sees
    /// the other.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Wakes the sleeper, if there is one.
    pub fn ring(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes of a live buffer. A full counter is as good as a ring.
            let _ = unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Awake: no ring is needed, and those before are forgotten.
    pub fn silence(&self) {
        self.armed.store(false, Ordering::SeqCst);
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of a live buffer; nothing to read is fine.
        let _ = unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
