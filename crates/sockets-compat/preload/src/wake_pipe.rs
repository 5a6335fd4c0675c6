//! A shorter way than TCP to wake who waits on an `epoll` set, or in `poll`: a pipe for each set,
//! and a few for threads in `poll`.
//!
//! A byte by TCP over loopback takes the kernel several times as long as a byte into a pipe, and
//! has to be taken out again. So a set that has slept a few times for memory gets a pipe, and the
//! ends that it watches say in shared memory where that is ([`Receiving::shortcut`]): the process
//! and the descriptor. The other end opens it by `/proc`, which the kernel allows to the same user
//! only, and writes a byte for each ring. Who cannot, for whatever reason, rings by TCP, and so it
//! does where somebody else sleeps at that end, in another way: the rules, and their models, are in
//! `landfall-socket-wakes`.
//!
//! **No stray bytes.** The number of a shortcut is the pipe's inode. Numbers of processes and
//! descriptors are used again: what is opened has to be a pipe of this inode, and as short as no
//! program makes its pipes. Among users of a group there are none, since one could have another's
//! rights write to what is not his.
//!
//! **Nobody reads it**, where a set has it: that watches for edges, and each byte is one. A pipe that
//! is full is emptied by the one who rings. In `poll` the one who was woken empties it.
//!
//! **Losing it.** A program may close descriptors that it does not know: then all who sleep are
//! woken by TCP from then on. A child of a fork has the kernel's set in common with its parent,
//! and would take its edges: so a set that a fork finds gives its pipe up, until it has no such child
//! ([`crate::family`]).
//!
//! [`Receiving::shortcut`]: crate::segment::Receiving::shortcut

use std::ffi::{CStr, c_int};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use landfall_socket_wakes::Shortcut;

use crate::folder::group;
use crate::kernel::{self, Errno, call};
use crate::lock::Locked;
use crate::{bell, sandbox};

/// A pipe of one page: no program has such, and a user may have many.
const CAPACITY: c_int = 4096;
/// Pipes of other processes that are kept open at a time.
const MOST: usize = 32;
const FLAGS: c_int = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// The lowest descriptor that is any of ours, so that who closes others does not look.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// Pipes of others, what was rung last at the end.
static KNOWN: Locked<Vec<Known>> = Locked::new(Vec::new());

/// A pipe of another process.
#[derive(Debug)]
struct Known {
    number: NonZeroU32,
    /// Where it was looked for.
    place: u64,
    /// There is none where it could not be opened: that is not tried again, since the kernel may write
    /// down each try that it refuses.
    fd: Option<c_int>,
}

/// The pipe of a set.
#[derive(Debug)]
pub(crate) struct WakePipe {
    fd: c_int,
    number: NonZeroU32,
}

impl WakePipe {
    /// A pipe that wakes this set, if there can be one here.
    pub(crate) fn for_set(epoll: c_int) -> Option<Self> {
        support()?;
        let made = Self::new().ok()?;
        bell::wakes_by_edges(epoll, made.fd).ok()?;
        Some(made)
    }

    fn new() -> Result<Self, Errno> {
        let mut ends: [c_int; 2] = [0; 2];
        call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC)?;
        // With one descriptor for both ends neither is ever closed.
        let both = open_of(None, ends[0]);
        for end in ends {
            let _ = kernel::close(end);
        }
        let mut made = Self { fd: kernel::out_of_the_way(both?), number: NonZeroU32::MIN };
        call!(libc::SYS_fcntl, made.fd, libc::F_SETPIPE_SZ, CAPACITY)?;
        let inode = kernel::status(made.fd)?.st_ino;
        let number = u32::try_from(inode).ok().filter(|&number| number != Shortcut::MEMORY);
        let number = number.and_then(NonZeroU32::new);
        made.number = number.ok_or(Errno(libc::EOVERFLOW))?;
        LOWEST.fetch_min(made.fd, Ordering::Relaxed);
        Ok(made)
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number.get()
    }

    /// Where others find it.
    pub(crate) fn place(&self) -> u64 {
        u64::from(kernel::process()) << 32 | u64::from(self.fd.cast_unsigned())
    }

    pub(crate) const fn is_between(&self, first: c_int, last: c_int) -> bool {
        first <= self.fd && self.fd <= last
    }

    /// Wakes one more who sleeps on the set.
    pub(crate) fn ring(&self) {
        write(self.fd);
    }

    /// The program closes the descriptor: it is not to be closed here.
    pub(crate) const fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for WakePipe {
    fn drop(&mut self) {
        let _ = kernel::close(self.fd);
    }
}

/// Pipes for threads that sleep in `poll` or `select`, each used by one at a time.
static POOL: Locked<Pool> = Locked::new(Pool { free: Vec::new(), open: Vec::new(), sleeps: 0 });
/// This many threads sleep so at a time; others are woken by TCP.
const MOST_SLEEPERS: usize = 8;
/// A set, or a process in `poll`, that sleeps less often needs none.
pub(crate) const WORTH_A_PIPE: u32 = if cfg!(debug_assertions) { 2 } else { 4 };

#[derive(Debug)]
struct Pool {
    free: Vec<WakePipe>,
    /// All that there are, those that are in use among them.
    open: Vec<c_int>,
    sleeps: u32,
}

/// A pipe of the pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct PoolPipe(ManuallyDrop<WakePipe>);

impl PoolPipe {
    /// One for a thread that is about to sleep, if there is one.
    pub(crate) fn take() -> Option<Self> {
        POOL.with(|pool| {
            pool.sleeps = pool.sleeps.saturating_add(1);
            if let Some(free) = pool.free.pop() {
                return Some(Self(ManuallyDrop::new(free)));
            }
            if pool.sleeps < WORTH_A_PIPE || pool.open.len() == MOST_SLEEPERS {
                return None;
            }
            support()?;
            let made = WakePipe::new().ok()?;
            pool.open.push(made.fd);
            Some(Self(ManuallyDrop::new(made)))
        })
    }

    pub(crate) fn pipe(&self) -> &WakePipe {
        &self.0
    }

    /// The entry of a list for `poll`.
    pub(crate) fn entry(&self) -> libc::pollfd {
        libc::pollfd { fd: self.0.fd, events: libc::POLLIN, revents: 0 }
    }

    /// It was rung.
    pub(crate) fn is_heard(&self) {
        empty(self.0.fd);
    }
}

impl Drop for PoolPipe {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more.
        let pipe = unsafe { ManuallyDrop::take(&mut self.0) };
        POOL.with(|pool| match pool.open.contains(&pipe.fd) {
            true => pool.free.push(pipe),
            // The program has closed it meanwhile.
            false => pipe.forget(),
        });
    }
}

/// In a child of a fork: a pipe that parent and child read would wake one of them only.
pub(crate) fn after_fork() {
    POOL.with(|pool| {
        pool.free.drain(..).for_each(WakePipe::forget);
        for fd in pool.open.drain(..) {
            let _ = kernel::close(fd);
        }
    });
}

/// Wakes who sleeps by the pipe of this number, which is to be found there; whether that could be
/// done.
pub(crate) fn ring(number: NonZeroU32, place: u64) -> bool {
    if sandbox::forbids(libc::SYS_write) {
        return false;
    }
    KNOWN.with(|known| {
        match known.iter().rposition(|one| one.number == number) {
            Some(at) => known[at..].rotate_left(1),
            None => {
                if known.len() == MOST {
                    known.remove(0).close();
                }
                known.push(Known { number, place, fd: open(number, place) });
            }
        }
        known.last_mut().is_some_and(|one| one.ring(place))
    })
}

impl Known {
    fn ring(&mut self, place: u64) -> bool {
        // The place may have been said by another, who was about to sleep as well.
        if self.fd.is_none() && self.place != place {
            (self.place, self.fd) = (place, open(self.number, place));
        }
        self.fd.is_some_and(write)
    }

    fn close(self) {
        if let Some(fd) = self.fd {
            let _ = kernel::close(fd);
        }
    }
}

/// Opens a pipe of another process, if it is the one of this number.
fn open(number: NonZeroU32, place: u64) -> Option<c_int> {
    let device = support()?;
    let process = NonZeroU32::new((place >> 32) as u32)?;
    let fd = open_of(Some(process), place as u32 as c_int).ok()?;
    let is_it = kernel::status(fd).is_ok_and(|status| {
        status.st_dev == device
            && status.st_ino == u64::from(number.get())
            && status.st_mode & libc::S_IFMT == libc::S_IFIFO
    });
    let is_it = is_it && call!(libc::SYS_fcntl, fd, libc::F_GETPIPE_SZ) == Ok(CAPACITY as usize);
    if !is_it {
        let _ = kernel::close(fd);
        return None;
    }
    let fd = kernel::out_of_the_way(fd);
    LOWEST.fetch_min(fd, Ordering::Relaxed);
    Some(fd)
}

/// Opens what a descriptor of a process is, of this one if none is named.
fn open_of(process: Option<NonZeroU32>, fd: c_int) -> Result<c_int, Errno> {
    let mut path = [0_u8; 48];
    let mut into = &mut path[..];
    let written = match process {
        Some(process) => write!(into, "/proc/{process}/fd/{fd}\0"),
        None => write!(into, "/proc/self/fd/{fd}\0"),
    };
    written.map_err(|_| Errno(libc::ENAMETOOLONG))?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno(libc::EINVAL))?;
    if sandbox::forbids(libc::SYS_openat) {
        return Err(Errno(libc::EPERM));
    }
    kernel::open(path, FLAGS, 0)
}

/// Writes a byte, an edge for the set that watches.
fn write(fd: c_int) -> bool {
    const BYTE: [u8; 1] = [0];
    if kernel::write(fd, &BYTE).is_ok() {
        return true;
    }
    // It is full of rings that were heard long ago.
    empty(fd);
    kernel::write(fd, &BYTE).is_ok()
}

fn empty(fd: c_int) {
    let mut rings = [0_u8; 1024];
    while kernel::read_at(fd, &mut rings, None) == Ok(rings.len()) {}
}

/// Before a fork, and after it.
pub(crate) fn stands_still() {
    POOL.stands_still();
    KNOWN.stands_still();
}

pub(crate) fn goes_on() {
    KNOWN.goes_on();
    POOL.goes_on();
}

/// The program closes all descriptors between these two, or makes others of them.
pub(crate) fn closed_between(first: c_int, last: c_int) {
    if last < LOWEST.load(Ordering::Relaxed) {
        return;
    }
    KNOWN.with(|known| known.retain(|one| one.fd.is_none_or(|fd| !(first..=last).contains(&fd))));
    POOL.with(|pool| {
        pool.open.retain(|fd| !(first..=last).contains(fd));
        let (lost, free) = std::mem::take(&mut pool.free)
            .into_iter()
            .partition(|pipe| pipe.is_between(first, last));
        pool.free = free;
        let lost: Vec<WakePipe> = lost;
        lost.into_iter().for_each(WakePipe::forget);
    });
    crate::watched::loses_pipes(first, last);
}

const UNKNOWN: u64 = 0;
const NONE: u64 = u64::MAX;
/// The device of all pipes; see [`support`].
static DEVICE: AtomicU64 = AtomicU64::new(UNKNOWN);

/// The device that all pipes are on, where such pipes wake sets: by each byte, no matter how many
/// lie there, which Linux did not do for a while.
fn support() -> Option<u64> {
    if group::known().is_some() || sandbox::is_on() {
        return None;
    }
    let known = DEVICE.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return (known != NONE).then_some(known);
    }
    let found = try_one().ok();
    DEVICE.store(found.unwrap_or(NONE), Ordering::Relaxed);
    found
}

fn try_one() -> Result<u64, Errno> {
    let pipe = WakePipe::new()?;
    let epoll = call!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC)? as c_int;
    let hears_each = bell::wakes_by_edges(epoll, pipe.fd).is_ok()
        && (0..2).all(|_| {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
            let is_heard = write(pipe.fd)
                && kernel::epoll_wait(epoll, &mut events, 0, std::ptr::null()) == Ok(1);
            is_heard && kernel::epoll_wait(epoll, &mut events, 0, std::ptr::null()) == Ok(0)
        });
    let _ = kernel::close(epoll);
    if hears_each { Ok(kernel::status(pipe.fd)?.st_dev) } else { Err(Errno(libc::ENOTSUP)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> c_int {
        call!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC).unwrap() as c_int
    }

    fn heard(epoll: c_int) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        kernel::epoll_wait(epoll, &mut events, 0, std::ptr::null()).unwrap()
    }

    #[test]
    fn each_ring_is_heard_once_however_many_there_were() {
        let epoll = set();
        let pipe = WakePipe::for_set(epoll).unwrap();
        let number = NonZeroU32::new(pipe.number()).unwrap();
        for round in 0..2 * CAPACITY {
            assert!(ring(number, pipe.place()));
            assert_eq!((heard(epoll), heard(epoll)), (1, 0), "{round}");
        }
        kernel::close(epoll).unwrap();
    }

    #[test]
    fn what_is_not_that_pipe_is_not_written_to() {
        let epoll = set();
        let pipe = WakePipe::for_set(epoll).unwrap();
        let other = WakePipe::for_set(epoll).unwrap();
        let number = NonZeroU32::new(pipe.number()).unwrap();
        assert!(!ring(number, other.place()), "another inode");
        assert!(!ring(number, other.place()), "nor the next time");
        assert!(ring(number, pipe.place()), "this is where it is");
        assert_eq!(heard(epoll), 1);
        assert!(!ring(NonZeroU32::new(u32::MAX).unwrap(), 1 << 32 | 3), "no pipe at all");
        assert_eq!(heard(epoll), 0);
        let mut ends: [c_int; 2] = [0; 2];
        call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC).unwrap();
        let number = kernel::status(ends[0]).unwrap().st_ino as u32;
        let place = u64::from(kernel::process()) << 32 | ends[0] as u64;
        assert!(!ring(NonZeroU32::new(number).unwrap(), place), "a pipe of a program");
        assert_eq!(kernel::queued(ends[0], libc::FIONREAD), Ok(0));
    }

    #[test]
    fn few_are_kept_open() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let epoll = set();
        let pipes: Vec<_> = (0..2 * MOST).map(|_| WakePipe::for_set(epoll).unwrap()).collect();
        let before = open();
        for pipe in &pipes {
            assert!(ring(NonZeroU32::new(pipe.number()).unwrap(), pipe.place()));
        }
        assert!(open() <= before + MOST);
        KNOWN.with(|known| known.drain(..).for_each(Known::close));
    }
}
