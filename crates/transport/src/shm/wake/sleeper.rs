//! [`Sleeper`]: where threads sleep until one of many doorbells rings.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::doorbell;
use super::doorbell::{AT_EVENT, AT_WORD, Doorbell, WakeError, announce, awaited, retract, signal};
use crate::driver::Interest;
use crate::memory::Piece;
use crate::wait::Wait;

/// No sleep is longer, whatever was asked for: news that were missed, because a peer
/// spoiled its doorbell, come that late.
const LONGEST: Duration = Duration::from_millis(100);

/// A thread that waits for another one to sleep in its stead looks for itself so often.
const FOLLOW: Duration = Duration::from_millis(10);

/// Where the threads of a process sleep until one of its doorbells rings.
///
/// One of them sleeps in the kernel for all; the others sleep until it has woken, and
/// then each looks whether it was meant.
#[derive(Debug)]
pub struct Sleeper {
    epoll: OwnedFd,
    /// Rung from this process.
    own: Doorbell,
    own_word: Piece,
    bells: Mutex<Vec<Option<Bell>>>,
    /// Held by the thread that sleeps in the kernel.
    kernel: Mutex<()>,
    woken: Mutex<Woken>,
    others: Condvar,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Woken {
    /// How often the thread has woken that slept in the kernel.
    times: u64,
    /// How many others wait for that. Nobody is told where there is none: telling is a
    /// system call.
    followers: u32,
}

/// The name of a doorbell at its sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellId {
    index: usize,
    id: u64,
}

#[derive(Debug)]
struct Bell {
    id: u64,
    /// A second view of the doorbell's word, and its descriptor.
    word: Piece,
    event: OwnedFd,
}

impl Sleeper {
    /// A place to sleep, without doorbells yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self, WakeError> {
        // SAFETY: takes a number, gives a descriptor or -1.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(WakeError::last("epoll_create1"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let own_word = Piece::private(8);
        let own = Doorbell::create(&own_word)?;
        let sleeper = Self {
            epoll,
            own,
            own_word,
            bells: Mutex::default(),
            kernel: Mutex::default(),
            woken: Mutex::default(),
            others: Condvar::new(),
            next_id: AtomicU64::new(0),
        };
        sleeper.watch(sleeper.own.fd())?;
        sleeper.silence()?;
        Ok(sleeper)
    }

    /// From now on this doorbell wakes.
    ///
    /// # Errors
    /// The kernel has no room for one more.
    pub fn add(&self, doorbell: &Doorbell) -> Result<DoorbellId, WakeError> {
        let event = doorbell.fd().try_clone_to_owned().map_err(system("dup"))?;
        self.watch(event.as_fd())?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let bell = Bell { id, word: doorbell.word.clone(), event };
        let mut bells = lock(&self.bells);
        let index = match bells.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                bells.push(None);
                bells.len() - 1
            }
        };
        bells[index] = Some(bell);
        drop(bells);
        // Who sleeps already has not announced it there.
        self.wake();
        Ok(DoorbellId { index, id })
    }

    /// This doorbell wakes no more. A name of an earlier one is no harm.
    pub fn remove(&self, name: DoorbellId) {
        let mut bells = lock(&self.bells);
        let Some(place) = bells.get_mut(name.index) else { return };
        if let Some(bell) = place.take_if(|bell| bell.id == name.id) {
            rouse(&bell.word);
            let (epoll, event) = (self.epoll.as_raw_fd(), bell.event.as_raw_fd());
            // SAFETY: two descriptors; this operation reads no event.
            unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, event, std::ptr::null_mut()) };
        }
    }

    /// Wakes all that sleep here, from this process.
    pub fn wake(&self) {
        let sleepers = self.own_word.words().first().map_or(0, awaited);
        if sleepers & AT_WORD != 0 {
            lock(&self.bells).iter().flatten().for_each(|bell| rouse(&bell.word));
        }
        if sleepers & AT_EVENT != 0 {
            signal(self.own.fd());
        }
    }

    /// Spins or sleeps until `ready` says yes (true), or the time is over (false).
    /// `ready` is asked again after each wake, and from time to time.
    ///
    /// # Errors
    /// Those of `epoll_wait`.
    pub fn sleep(
        &self,
        wait: Wait,
        at_most: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WakeError> {
        if ready() {
            return Ok(true);
        }
        let start = Instant::now();
        let deadline = at_most.and_then(|at_most| start.checked_add(at_most));
        let spin_until = match wait {
            Wait::Spin => None,
            Wait::Block => Some(start),
            Wait::SpinThenBlock(budget) => start.checked_add(budget),
        };
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(ready());
            }
            if spin_until.is_none_or(|until| now < until) {
                // The clock costs as much as a few looks.
                for _ in 0..16 {
                    if ready() {
                        return Ok(true);
                    }
                    std::hint::spin_loop();
                }
                continue;
            }
            let left = deadline.map_or(LONGEST, |deadline| deadline - now).min(LONGEST);
            if self.sleep_once(left, ready)? {
                return Ok(true);
            }
        }
    }

    /// What to wait for with `poll`, `epoll` or tokio: readable after
    /// [`arm`](Self::arm) when there is news. [`silence`](Self::silence) follows.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.epoll.as_raw_fd(), readable: true, writable: false }
    }

    /// From now on a ring is heard. The caller looks for work once more before it
    /// sleeps.
    pub fn arm(&self) {
        if let Some(word) = self.own_word.words().first() {
            announce(word, AT_EVENT);
        }
        for bell in lock(&self.bells).iter().flatten() {
            if let Some(word) = bell.word.words().first() {
                announce(word, AT_EVENT);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// The same for a thread that can sleep at a word, since there is only one: that word,
    /// and what it holds.
    fn arm_at_word(&self) -> Option<(Piece, u64)> {
        let bells = lock(&self.bells);
        let mut there = bells.iter().flatten();
        let (Some(only), None) = (there.next(), there.next()) else { return None };
        // Both before the lock is gone: anyone who wakes from this process, or adds a doorbell
        // before that, finds the one and then looks for the other.
        announce(self.own_word.words().first()?, AT_WORD);
        let held = announce(only.word.words().first()?, AT_WORD);
        let word = only.word.clone();
        drop(bells);
        fence(Ordering::SeqCst);
        Some((word, held))
    }

    /// Awake again: this process need not wake this thread.
    fn retract(&self, place: u64) {
        if let Some(word) = self.own_word.words().first() {
            retract(word, place);
        }
    }

    /// Forgets the rings so far: the caller arms anew and looks for work. While a
    /// thread sleeps here they are left to that one, which would not hear them else.
    ///
    /// # Errors
    /// Those of `epoll_wait`.
    pub fn silence(&self) -> Result<(), WakeError> {
        let Some(kernel) = self.enter_kernel() else { return Ok(()) };
        let mut heard = Ok(true);
        while matches!(heard, Ok(true)) {
            heard = self.wait_for_ring(Duration::ZERO);
        }
        self.leave_kernel(kernel);
        heard.map(|_| ())
    }

    /// One thread at a time takes what rings.
    fn enter_kernel(&self) -> Option<MutexGuard<'_, ()>> {
        match self.kernel.try_lock() {
            Ok(kernel) => Some(kernel),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The others look whether they were meant, and one of them sleeps next.
    fn leave_kernel(&self, kernel: MutexGuard<'_, ()>) {
        drop(kernel);
        let mut woken = lock(&self.woken);
        woken.times += 1;
        if woken.followers > 0 {
            self.others.notify_all();
        }
    }

    fn sleep_once(
        &self,
        at_most: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WakeError> {
        let woken = lock(&self.woken).times;
        let Some(kernel) = self.enter_kernel() else {
            return Ok(self.follow(woken, at_most, ready));
        };
        let found = match self.arm_at_word() {
            Some((word, held)) => self.sleep_at_word(&word, held, at_most, ready),
            None => self.sleep_at_events(at_most, ready),
        };
        self.leave_kernel(kernel);
        found
    }

    fn sleep_at_word(
        &self,
        place: &Piece,
        held: u64,
        at_most: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WakeError> {
        let Some(word) = place.words().first() else { return Ok(ready()) };
        let is_ready = ready();
        let slept = if is_ready { Ok(()) } else { doorbell::wait(word, held, at_most) };
        retract(word, AT_WORD);
        self.retract(AT_WORD);
        slept.map(|()| is_ready || ready())
    }

    fn sleep_at_events(
        &self,
        at_most: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WakeError> {
        self.arm();
        let is_ready = ready();
        let slept = if is_ready { Ok(true) } else { self.wait_for_ring(at_most) };
        // The doorbells stay announced: tasks may wait for them, too.
        self.retract(AT_EVENT);
        slept.map(|_| is_ready || ready())
    }

    /// Another thread sleeps in the kernel: sleeps until that one has woken.
    fn follow(&self, seen: u64, at_most: Duration, ready: &mut dyn FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        let mut woken = lock(&self.woken);
        if woken.times == seen {
            woken.followers += 1;
            let waited = self.others.wait_timeout(woken, at_most.min(FOLLOW));
            woken = waited.unwrap_or_else(PoisonError::into_inner).0;
            woken.followers -= 1;
        }
        drop(woken);
        ready()
    }

    fn wait_for_ring(&self, at_most: Duration) -> Result<bool, WakeError> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        // Rounded up: a wait that ends too early would be repeated without a pause.
        let millis = at_most.as_nanos().div_ceil(1_000_000);
        let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
        let (epoll, room) = (self.epoll.as_raw_fd(), events.len() as libc::c_int);
        // SAFETY: there is room for as many events as are asked for.
        match unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, millis) } {
            count @ 0.. => Ok(count > 0),
            _ => match std::io::Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => Ok(false),
                error => Err(WakeError::System { call: "epoll_wait", error }),
            },
        }
    }

    /// Edge-triggered: a ring is one event, and the counter of the eventfd need not be
    /// looked at. The first event is that it is there.
    fn watch(&self, event: BorrowedFd<'_>) -> Result<(), WakeError> {
        let (epoll, event) = (self.epoll.as_raw_fd(), event.as_raw_fd());
        let mut how = libc::epoll_event { events: (libc::EPOLLOUT | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: two descriptors, and an event that outlives the call.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, event, &raw mut how) } {
            0 => Ok(()),
            _ => Err(WakeError::last("epoll_ctl")),
        }
    }
}

/// Wakes a thread that sleeps at the word of a doorbell. Anyone who else waits for it is to
/// be woken by its peer, still.
fn rouse(word: &Piece) {
    if let Some(word) = word.words().first() {
        retract(word, AT_WORD);
        doorbell::wake(word);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked here is never left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system(call: &'static str) -> impl Fn(std::io::Error) -> WakeError {
    move |error| WakeError::System { call, error }
}
