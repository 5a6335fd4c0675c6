//! Locks: in memory that the processes of one end share, where a lock outlives its holder,
//! and in this process alone.
//!
//! The word is the holder's thread number, or zero. **A lock is taken over from the dead
//! alone**: one who is stopped, by a debugger or by `SIGSTOP`, goes on some day, and writes
//! what it was about to write. What the lock protects are counters that are moved by one
//! store, and so are never half done by one who dies.
//!
//! The kernel says who is dead. A thread that takes a lock of shared memory names it in the
//! head of its list of robust locks, which `libc` has registered for each thread; when the
//! thread ends, in whatever way, the kernel finds its number in the word, and frees it. That
//! is true across namespaces of processes, and for a number that has another thread by
//! now. Where a thread has no such list, and within a process, the number is asked for.
//!
//! Nobody else can write the word: it lies in memory that only the processes of this end
//! have ([`crate::segment::EndState`]), not the peer. Who waits for a stopped one waits as its
//! call does: a signal ends that as it ends others, and a call that must not wait gives up after
//! [`A_WHILE`].
//!
//! A lock is held within a [section](crate::thread::Section): no handler of a signal finds
//! that it has interrupted a holder. But for those of faults, and they take the lock at
//! once.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use crate::kernel::{self, Errno};
use crate::signals;
use crate::thread::{self, Robust, Section};

/// Set while somebody sleeps for it; the kernel knows it, too (`FUTEX_WAITERS`).
const WANTED: u32 = 1 << 31;
/// The kernel will not say when the holder dies.
const UNTOLD: u32 = 1 << 29;
/// Thread numbers are below 2²² in Linux. The kernel's own word for a dead holder lies above
/// (`FUTEX_OWNER_DIED`).
const HOLDER: u32 = UNTOLD - 1;
/// A holder has it for the length of a copy. Who still has it after so long may be gone.
const PATIENCE_MS: u32 = 20;
const SPINS: u32 = 200;
/// For so long a call waits that must not wait: no holder copies for longer that runs.
pub(crate) const A_WHILE: Duration = Duration::from_secs(1);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct LockGuard<'a> {
    word: &'a AtomicU32,
    me: u32,
    robust: Option<Named<'a>>,
    _section: Section,
}

/// The kernel has been told which lock this thread holds.
#[derive(Debug)]
struct Named<'a> {
    head: &'a Robust,
    before: u64,
}

impl<'a> Named<'a> {
    fn of(word: &'a AtomicU32) -> Option<Self> {
        let head = thread::current().robust()?;
        let before = head.pending.load(Ordering::Relaxed);
        let entry = word.as_ptr().addr().wrapping_add_signed(head.offset.wrapping_neg());
        head.pending.store(entry as u64, Ordering::Relaxed);
        // Before the word has this thread's number: else nobody would look there.
        compiler_fence(Ordering::SeqCst);
        Some(Self { head, before })
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.head.pending.store(self.before, Ordering::Relaxed);
    }
}

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockScope {
    /// The processes of one end.
    Several,
    ThisProcess,
}

/// Takes a lock that processes share, as a call of the program does: `None` after a signal
/// that ends calls, and where the call must not wait, after [`A_WHILE`].
pub(crate) fn hold_for_call(
    word: &AtomicU32,
    may_wait: impl FnOnce() -> bool,
) -> Result<LockGuard<'_>, Errno> {
    if let Some(held) = take(word, LockScope::Several) {
        return Ok(held);
    }
    let (begin, mut may_wait, mut may) = (Instant::now(), Some(may_wait), true);
    wait_for(word, LockScope::Several, |was_interrupted| {
        if was_interrupted && !signals::all_restart() {
            return Some(Errno(libc::EINTR));
        }
        if begin.elapsed() < A_WHILE {
            return None;
        }
        may = may_wait.take().map_or(may, |ask| ask());
        (!may).then_some(Errno(libc::EAGAIN))
    })
}

/// Takes it if nobody has it just now.
pub(crate) fn hold_at_once(word: &AtomicU32) -> Option<LockGuard<'_>> {
    take(word, LockScope::Several).or_else(|| {
        // Of the dead it is taken, too.
        (holder_of(word) == 0)
            .then(|| wait_for(word, LockScope::Several, |_| Some(())).ok())
            .flatten()
    })
}

/// Whether somebody may have it just now. Who has said before what he is about to do is seen by
/// each who takes it after this.
pub(crate) fn is_held(word: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    holder_of(word) != 0
}

fn holder_of(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed) & HOLDER
}

/// Takes it from one value of the word.
fn take_from(word: &AtomicU32, seen: u32, of: LockScope) -> Option<LockGuard<'_>> {
    let section = Section::enter();
    let robust = if of == LockScope::Several { Named::of(word) } else { None };
    let untold = if robust.is_some() { 0 } else { UNTOLD };
    // Who takes it where others sleep cannot know whether they still do: it wakes one later.
    let me = thread::current().number() | untold;
    word.compare_exchange(seen, me | (seen & WANTED), Ordering::SeqCst, Ordering::Relaxed).ok()?;
    Some(LockGuard { word, me, robust, _section: section })
}

fn take(word: &AtomicU32, of: LockScope) -> Option<LockGuard<'_>> {
    take_from(word, 0, of)
}

/// Waits until it can be taken, or `gives_up` has a reason not to; it is told of signals.
#[cold]
fn wait_for<E>(
    word: &AtomicU32,
    of: LockScope,
    mut gives_up: impl FnMut(bool) -> Option<E>,
) -> Result<LockGuard<'_>, E> {
    for _ in 0..SPINS {
        std::hint::spin_loop();
        if let Some(held) = take(word, of) {
            return Ok(held);
        }
    }
    loop {
        let seen = word.load(Ordering::Relaxed);
        let holder = seen & HOLDER;
        let is_free = holder == 0
            // The handler of a fault, which does not wait for what it has interrupted. Else it
            // is one of the same number, in another namespace of processes.
            || (holder == thread::current().number() && thread::current().is_in_a_section())
            || (seen & UNTOLD != 0 && is_dead(holder));
        if is_free {
            if let Some(held) = take_from(word, seen, of) {
                return Ok(held);
            }
            continue;
        }
        let mut was_interrupted = false;
        if seen & WANTED != 0
            || word
                .compare_exchange(seen, seen | WANTED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let slept = kernel::sleep_on(word, seen | WANTED, PATIENCE_MS);
            was_interrupted = slept == Err(Errno(libc::EINTR));
        }
        if let Some(why) = gives_up(was_interrupted) {
            return Err(why);
        }
    }
}

/// Whether there is no such thread any more, or only what its parent has not asked for yet.
fn is_dead(thread: u32) -> bool {
    if !kernel::is_alive(thread) {
        return true;
    }
    let mut path = [0_u8; 32];
    let mut rest = &mut path[..];
    if std::io::Write::write_fmt(&mut rest, format_args!("/proc/{thread}/stat\0")).is_err() {
        return false;
    }
    let Ok(path) = std::ffi::CStr::from_bytes_until_nul(&path) else { return false };
    let mut line = [0_u8; 128];
    let Ok(len) = kernel::read_file(path, &mut line) else { return false };
    // The program's name, in brackets, may have brackets in it.
    let state = line[..len].iter().rposition(|&byte| byte == b')').and_then(|at| line.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let free = |from: u32| {
            self.word.compare_exchange(from, 0, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        // Else the handler of a fault has taken it from us, and given it back.
        if !free(self.me) && free(self.me | WANTED) {
            kernel::wake(self.word, 1);
        }
        self.robust = None;
    }
}

/// A value of this process that one thread at a time has.
#[derive(Debug)]
pub(crate) struct Locked<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread in at a time.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Does something with the value.
    pub(crate) fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        let _held = self.hold();
        // SAFETY: under the lock.
        job(unsafe { &mut *self.value.get() })
    }

    fn hold(&self) -> LockGuard<'_> {
        let held = take(&self.word, LockScope::ThisProcess);
        let for_ever = |_: bool| None::<std::convert::Infallible>;
        match held.map_or_else(|| wait_for(&self.word, LockScope::ThisProcess, for_ever), Ok) {
            Ok(held) => held,
            Err(never) => match never {},
        }
    }

    /// Before a fork: no other thread is in the middle of a change that the child would get
    /// half of. Until [`Locked::goes_on`].
    pub(crate) fn stands_still(&self) {
        std::mem::forget(self.hold());
    }

    /// After it, in the parent and in the child.
    pub(crate) fn goes_on(&self) {
        if self.word.swap(0, Ordering::Release) & WANTED != 0 {
            kernel::wake(&self.word, 1);
        }
        thread::leave_section();
    }

    /// The value while it stands still.
    ///
    /// # Safety
    ///
    /// This thread has let it stand still.
    pub(crate) unsafe fn look(&self) -> &T {
        // SAFETY: nobody else has it.
        unsafe { &*self.value.get() }
    }

    /// In a child of a fork: who held it in the parent is not here.
    pub(crate) fn free_after_fork(&self) {
        self.word.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    /// Waits for ever.
    fn hold(word: &AtomicU32) -> LockGuard<'_> {
        hold_for_call(word, || true).unwrap()
    }

    /// A word that a child of a fork shares.
    fn shared_word() -> &'static AtomicU32 {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which stays.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), 4096, rights, how, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            &*page.cast()
        }
    }

    /// A child that takes the lock, stops, and gives it back when it goes on: its number.
    fn stopped_holder(word: &'static AtomicU32) -> i32 {
        // SAFETY: the child does what it needs no other thread for, and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                process::begin();
                let held = take(word, LockScope::Several);
                libc::raise(libc::SIGSTOP);
                let is_its_own = word.load(Ordering::Relaxed) & HOLDER == kernel::process();
                drop(held);
                libc::_exit(i32::from(!is_its_own));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, libc::WUNTRACED), child);
            assert!(libc::WIFSTOPPED(status));
            child
        }
    }

    #[test]
    fn it_lets_one_in_at_a_time() {
        let sum = Locked::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| sum.with(|sum| *sum += 1)));
            }
        });
        assert_eq!(sum.with(|sum| *sum), 80_000);
        assert_eq!(sum.word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_stopped_holder_keeps_it() {
        let word = shared_word();
        let child = stopped_holder(word);
        // For longer than anybody waited who took it from the living.
        for _ in 0..4 {
            assert_eq!(hold_for_call(word, || false).unwrap_err(), Errno(libc::EAGAIN));
            assert!(hold_at_once(word).is_none());
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(hold(word)));
            // SAFETY: a child of ours.
            unsafe {
                libc::kill(child, libc::SIGCONT);
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0, "it was taken from one who lives");
            }
            waiter.join().unwrap();
        });
        assert_eq!(holder_of(word), 0);
    }

    #[test]
    fn a_killed_holder_is_followed_before_its_parent_has_asked_for_it() {
        let word = shared_word();
        let child = stopped_holder(word);
        // SAFETY: a child of ours.
        unsafe { libc::kill(child, libc::SIGKILL) };
        drop(hold(word));
        assert_eq!(holder_of(word), 0);
        // SAFETY: as above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }

    #[test]
    fn a_holder_that_the_kernel_says_nothing_of_is_asked_for() {
        let gone = std::thread::spawn(kernel::thread).join().unwrap();
        // The kernel takes a moment to forget a thread that was joined.
        while kernel::is_alive(gone) {
            std::thread::yield_now();
        }
        for word in [gone | UNTOLD, gone | UNTOLD | WANTED].map(AtomicU32::new) {
            drop(hold(&word));
            assert_eq!(word.load(Ordering::Relaxed), 0);
        }
        let zombie = stopped_holder(shared_word());
        // SAFETY: a child of ours.
        unsafe { libc::kill(zombie, libc::SIGKILL) };
        let word = AtomicU32::new(zombie as u32 | UNTOLD);
        drop(hold(&word));
        // SAFETY: as above.
        unsafe { libc::waitpid(zombie, std::ptr::null_mut(), 0) };
    }

    #[test]
    fn who_faults_under_it_does_not_wait_for_itself() {
        let word = AtomicU32::new(0);
        let outer = hold(&word);
        drop(hold(&word));
        drop(outer);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}
