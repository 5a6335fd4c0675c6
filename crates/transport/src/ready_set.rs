//! [`ReadySet`]: one descriptor that is readable when any of several is ready, or when a
//! moment has come.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use landfall_placement::{Duration, Instant};

use crate::driver::{Clock, Interest};

/// A descriptor for a reactor of the user's own (`poll`, `epoll`, `io_uring`, a library above
/// them): it is readable while a watched descriptor is ready, and from a chosen moment on.
///
/// ```
/// use landfall_placement::Duration;
/// use landfall_transport::driver::Interest;
/// use landfall_transport::wait::until_ready;
/// use landfall_transport::{Bell, Clock, ReadySet};
/// use std::os::fd::{AsFd, AsRawFd};
///
/// let (set, bell, clock) = (ReadySet::new()?, Bell::new()?, Clock::start());
/// set.watch(&[bell.interest()])?;
/// let readable = Interest { fd: set.as_fd().as_raw_fd(), readable: true, writable: false };
/// assert!(!until_ready(&[readable], Duration::ZERO)?);
/// bell.arm();
/// bell.ring();
/// assert!(until_ready(&[readable], Duration::ZERO)?);
///
/// bell.silence();
/// set.wake_at(&clock, Some(clock.now()))?;
/// assert!(until_ready(&[readable], Duration::from_secs(10))?, "the moment has come");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadySet {
    epoll: OwnedFd,
    timer: OwnedFd,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    interests: Vec<Interest>,
    /// When the timer goes off.
    until: Option<Instant>,
}

/// For a reactor: it becomes readable, and never writable.
impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl ReadySet {
    /// A set that watches nothing.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes a number, gives a descriptor or -1.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes two numbers, gives a descriptor or -1.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let set = Self { epoll, timer, watched: Mutex::default() };
        let interest = Interest { fd: set.timer.as_raw_fd(), readable: true, writable: false };
        set.control(libc::EPOLL_CTL_ADD, &interest)?;
        Ok(set)
    }

    /// Watches these descriptors from now on, and no others. They stay open until they are
    /// watched no more: one that was closed is forgotten, and its number is not looked at
    /// again before another list came. A system call is made for each descriptor of a list
    /// that differs from the one before.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn watch(&self, interests: &[Interest]) -> io::Result<()> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.interests == interests {
            return Ok(());
        }
        for known in &watched.interests {
            if !interests.iter().any(|interest| interest.fd == known.fd) {
                // A descriptor that was closed has left the set by itself.
                let _ = self.control(libc::EPOLL_CTL_DEL, known);
            }
        }
        for (at, interest) in interests.iter().enumerate() {
            // One descriptor counts once, with all that is wanted of it.
            if interests[..at].iter().any(|before| before.fd == interest.fd) {
                continue;
            }
            let mut all = *interest;
            for other in interests[at..].iter().filter(|other| other.fd == all.fd) {
                all.readable |= other.readable;
                all.writable |= other.writable;
            }
            self.control(libc::EPOLL_CTL_MOD, &all).or_else(|error| {
                match error.raw_os_error() {
                    Some(libc::ENOENT) => self.control(libc::EPOLL_CTL_ADD, &all),
                    _ => Err(error),
                }
            })?;
        }
        watched.interests.clear();
        watched.interests.extend_from_slice(interests);
        Ok(())
    }

    /// Is readable from this moment on, until this is called again; nothing: at no moment.
    ///
    /// A timer that goes off sooner than it has to stays as it is, for each change is a system
    /// call. So the set may be readable once before the moment has come.
    ///
    /// # Errors
    /// Those of `timerfd_settime`.
    pub fn wake_at(&self, clock: &Clock, at: Option<Instant>) -> io::Result<()> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.now();
        let is_kept = match (watched.until, at) {
            (None, None) => true,
            (Some(until), Some(at)) => until > now && until <= at,
            (Some(until), None) => until > now,
            (None, Some(_)) => false,
        };
        if is_kept {
            return Ok(());
        }
        watched.until = at;
        // A time of zero would stop the timer.
        let wait = at.map(|at| at.since(now).max(Duration::from_nanos(1)));
        let wait = wait.unwrap_or(Duration::ZERO);
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX) as _,
            tv_nsec: libc::c_long::from(wait.subsec_nanos() as i32),
        };
        let time = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `time` lives through the call, and the old value is not asked for.
        let result = unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
        };
        checked(result)
    }

    fn control(&self, operation: libc::c_int, interest: &Interest) -> io::Result<()> {
        let mut events = 0;
        if interest.readable {
            events |= libc::EPOLLIN;
        }
        if interest.writable {
            events |= libc::EPOLLOUT;
        }
        let mut event = libc::epoll_event { events: events as u32, u64: 0 };
        // SAFETY: `event` lives through the call. The descriptor is only asked whether it is
        // ready; a number that is not open any more is refused.
        let result = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), operation, interest.fd, &raw mut event)
        };
        checked(result)
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::Bell;
    use crate::wait::until_ready;

    fn is_readable(set: &ReadySet, at_most: Duration) -> bool {
        let fd = set.as_fd().as_raw_fd();
        until_ready(&[Interest { fd, readable: true, writable: false }], at_most).unwrap()
    }

    fn rung() -> Bell {
        let bell = Bell::new().unwrap();
        bell.arm();
        bell.ring();
        bell
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_is_readable_while_a_watched_descriptor_is_ready() {
        let (set, bell) = (ReadySet::new().unwrap(), rung());
        assert!(!is_readable(&set, Duration::ZERO));
        set.watch(&[bell.interest()]).unwrap();
        assert!(is_readable(&set, LONG));
        // By level: who looks twice sees it twice.
        assert!(is_readable(&set, Duration::ZERO));
        bell.silence();
        assert!(!is_readable(&set, Duration::ZERO));
    }

    #[test]
    fn what_is_watched_no_more_does_not_make_it_readable() {
        let (set, bell, other) = (ReadySet::new().unwrap(), rung(), Bell::new().unwrap());
        set.watch(&[bell.interest(), other.interest()]).unwrap();
        set.watch(&[other.interest()]).unwrap();
        assert!(!is_readable(&set, Duration::ZERO));
        set.watch(&[]).unwrap();
        other.arm();
        other.ring();
        assert!(!is_readable(&set, Duration::ZERO));
    }

    #[test]
    fn what_is_wanted_of_a_descriptor_changes() {
        let (set, bell) = (ReadySet::new().unwrap(), Bell::new().unwrap());
        let readable = bell.interest();
        set.watch(&[readable]).unwrap();
        assert!(!is_readable(&set, Duration::ZERO));
        // An event descriptor can always be written. Named twice it counts once.
        let writable = Interest { readable: false, writable: true, ..readable };
        set.watch(&[readable, writable]).unwrap();
        assert!(is_readable(&set, Duration::ZERO));
        set.watch(&[readable]).unwrap();
        assert!(!is_readable(&set, Duration::ZERO));
    }

    #[test]
    fn a_descriptor_that_was_closed_is_forgotten_and_its_number_watched_anew() {
        let set = ReadySet::new().unwrap();
        let bell = rung();
        set.watch(&[bell.interest()]).unwrap();
        drop(bell);
        assert!(!is_readable(&set, Duration::ZERO));
        set.watch(&[]).unwrap();
        // Most likely the kernel gives the same number again.
        let next = rung();
        set.watch(&[next.interest()]).unwrap();
        assert!(is_readable(&set, LONG));
    }

    #[test]
    fn it_is_readable_from_a_moment_on_until_another_is_chosen() {
        let (set, clock) = (ReadySet::new().unwrap(), Clock::start());
        set.wake_at(&clock, Some(clock.now() + LONG)).unwrap();
        assert!(!is_readable(&set, Duration::ZERO));
        // A sooner one counts.
        set.wake_at(&clock, Some(clock.now() + Duration::from_millis(2))).unwrap();
        assert!(is_readable(&set, LONG));
        set.wake_at(&clock, Some(clock.now() + LONG)).unwrap();
        assert!(!is_readable(&set, Duration::ZERO));
        // What has passed already makes it readable at once.
        set.wake_at(&clock, Some(Instant::ZERO)).unwrap();
        assert!(is_readable(&set, LONG));
        set.wake_at(&clock, None).unwrap();
        assert!(!is_readable(&set, Duration::ZERO));
    }
}
