//! The program's handlers of signals: when they run, and whether a call that one interrupts
//! goes on.
//!
//! Before each handler stands one of ours. Where a signal comes in the middle of a critical
//! section ([`crate::thread`]) ours does not call the program's: it queues the signal
//! again, with all that the kernel has said of it, and returns with all signals blocked. The
//! section's end unblocks them, and the kernel delivers the signal there, with the mask,
//! the stack and the flags that the program asked for. Nothing of that is done by us, so
//! nothing of it is done otherwise. At most one signal finds a thread in a section.
//!
//! Handlers of faults stand for themselves, and run at once: who faults cannot go on first.
//! So do handlers that were set past libc. `sigaction` tells of the program's own.
//!
//! And one wait is not the kernel's call, but a few of them: that of a sender for room. It asks
//! here whether a handler ends it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::{sigaction as Action, siginfo_t};

use crate::thread;
use crate::{kernel, process, rules};

/// A bit for each signal whose handler ends the calls that it interrupts.
static ENDING: AtomicU64 = AtomicU64::new(0);

/// Those that a thread brings upon itself, and not while it waits. Languages set handlers of
/// their own for some of them in every program.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The bits of all signals that can wait: a fault that is blocked ends the process.
pub(crate) const ALL: u64 = {
    let (mut all, mut at) = (u64::MAX, 0);
    while at < FAULTS.len() {
        all &= !(1 << (FAULTS[at] - 1));
        at += 1;
    }
    all
};

/// What the program set for a signal for which ours stands in the kernel.
struct Set {
    handler: AtomicUsize,
    flags: AtomicI32,
}

static SETS: [Set; 65] =
    [const { Set { handler: AtomicUsize::new(0), flags: AtomicI32::new(0) } }; 65];

/// What the kernel is not asked for as the program asked: ours wants to hear all of a
/// signal, and the default returns once the program's handler was called, not ours.
const OWN_FLAGS: i32 = libc::SA_SIGINFO | libc::SA_RESETHAND;

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn ours() -> usize {
    stands_before as Handler as usize
}

pub(crate) fn is_ours(handler: usize) -> bool {
    handler == ours()
}

fn set_of(signal: c_int) -> Option<&'static Set> {
    SETS.get(usize::try_from(signal).ok()?).filter(|_| signal > 0)
}

/// The handler that the kernel calls.
extern "C" fn stands_before(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(set) = set_of(signal) else { return };
    // SAFETY: what the kernel has given us.
    if thread::current().is_in_a_section() && unsafe { comes_later(signal, info, context) } {
        return;
    }
    let (handler, flags) = (set.handler.load(Ordering::Acquire), set.flags.load(Ordering::Relaxed));
    if flags & libc::SA_RESETHAND != 0 {
        kernel::reset_handler(signal);
    }
    // SAFETY: a function that the program has set for this. One that takes the number
    // alone does not look at the others.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    handler(signal, info, context);
}

/// Leaves the signal to the end of the section; whether that went well.
///
/// # Safety
///
/// All that the kernel gave to a handler.
unsafe fn comes_later(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // Now, and not only by what is restored: it may be one that does not block itself.
    let Ok(within) = kernel::change_mask(libc::SIG_BLOCK, ALL) else { return false };
    // SAFETY: the kernel's own; the first word of a set is all that it looks at.
    let mask =
        unsafe { &mut *(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>() };
    // SAFETY: the kernel has filled it.
    if unsafe { kernel::queue_to_itself(signal, info) }.is_err() {
        // Too many wait already: it runs where it stands.
        let _ = kernel::change_mask(libc::SIG_SETMASK, within);
        return false;
    }
    thread::current().holds_signals(*mask);
    *mask |= ALL;
    true
}

/// What to give to the kernel where the program sets this.
pub(crate) struct Setting {
    pub(crate) for_kernel: Action,
    /// What ours stood before until now.
    before: Option<(usize, i32)>,
}

/// Whether ours stands before such a handler.
fn is_for_us(signal: c_int, new: &Action) -> bool {
    !matches!(new.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
        && new.sa_sigaction != ours()
        && !FAULTS.contains(&signal)
        && rules::are_on()
        // A child of `vfork` has handlers of its own, and our memory of its parent's.
        && process::owns_the_tables()
}

/// The program sets a handler: what is to be set instead.
pub(crate) fn sets(signal: c_int, new: &Action) -> Setting {
    let mut for_kernel = *new;
    let set = set_of(signal);
    let before =
        set.map(|set| (set.handler.load(Ordering::Relaxed), set.flags.load(Ordering::Relaxed)));
    if let Some(set) = set.filter(|_| is_for_us(signal, new)) {
        set.flags.store(new.sa_flags, Ordering::Relaxed);
        set.handler.store(new.sa_sigaction, Ordering::Release);
        for_kernel.sa_sigaction = ours();
        for_kernel.sa_flags = (new.sa_flags & !OWN_FLAGS) | libc::SA_SIGINFO;
    }
    Setting { for_kernel, before }
}

impl Setting {
    /// The kernel did not want it.
    pub(crate) fn was_refused(&self, signal: c_int) {
        if let (Some(set), Some((handler, flags))) = (set_of(signal), self.before) {
            set.handler.store(handler, Ordering::Relaxed);
            set.flags.store(flags, Ordering::Relaxed);
        }
    }

    /// What the kernel says was set before, in the program's words.
    pub(crate) fn tells(&self, old: &mut Action) {
        if let Some(before) = self.before {
            in_its_words(old, before);
        }
    }
}

/// The same of what is set now.
pub(crate) fn tells(signal: c_int, old: &mut Action) {
    if let Some(set) = set_of(signal) {
        let flags = set.flags.load(Ordering::Relaxed);
        in_its_words(old, (set.handler.load(Ordering::Relaxed), flags));
    }
}

fn in_its_words(old: &mut Action, (handler, flags): (usize, i32)) {
    if old.sa_sigaction == ours() {
        old.sa_sigaction = handler;
        old.sa_flags = (old.sa_flags & !OWN_FLAGS) | (flags & OWN_FLAGS);
    }
}

/// A handler was set, with these flags; `is_handler` unless it is the default or nothing.
pub(crate) fn was_set(signal: i32, flags: i32, is_handler: bool) {
    let Some(bit) = u32::try_from(signal - 1).ok().and_then(|at| 1_u64.checked_shl(at)) else {
        return;
    };
    if FAULTS.contains(&signal) {
        return;
    }
    if is_handler && flags & libc::SA_RESTART == 0 {
        ENDING.fetch_or(bit, Ordering::Relaxed);
    } else {
        ENDING.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Whether no handler wants calls to end. Where some do and others do not, a call ends: it
/// is what programs with such handlers are made for.
pub(crate) fn all_restart() -> bool {
    ENDING.load(Ordering::Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_languages_do_about_faults_ends_no_calls() {
        was_set(libc::SIGSEGV, libc::SA_SIGINFO, true);
        assert!(all_restart());
        was_set(libc::SIGUSR1, libc::SA_SIGINFO, true);
        assert!(!all_restart());
        was_set(libc::SIGUSR1, libc::SA_RESTART, true);
        assert!(all_restart());
    }

    static RAN: AtomicI32 = AtomicI32::new(0);

    extern "C" fn counts(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: what the kernel has said, or has been told to say.
        let value = unsafe { (*info).si_value().sival_ptr as usize as i32 };
        assert!(!thread::current().is_in_a_section());
        RAN.fetch_add(value, Ordering::Relaxed);
    }

    #[test]
    fn a_handler_runs_when_the_section_has_ended_with_all_that_was_said() {
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: an action of ours, for a signal that nothing else here uses.
        unsafe {
            let mut action: Action = std::mem::zeroed();
            // One that does not block itself comes again at once if it may.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            action.sa_sigaction = ours();
            let set = set_of(signal).unwrap();
            set.handler.store(counts as Handler as usize, Ordering::Release);
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
        let says = |value: usize| {
            let value = libc::sigval { sival_ptr: value as *mut c_void };
            // SAFETY: this very thread.
            assert_eq!(unsafe { libc::pthread_sigqueue(libc::pthread_self(), signal, value) }, 0);
        };
        says(1);
        assert_eq!(RAN.load(Ordering::Relaxed), 1);
        let outer = thread::Section::enter();
        let inner = thread::Section::enter();
        says(10);
        says(100);
        drop(inner);
        assert_eq!(RAN.load(Ordering::Relaxed), 1, "it ran in the middle of a section");
        drop(outer);
        assert_eq!(RAN.load(Ordering::Relaxed), 111);
        says(1000);
        assert_eq!(RAN.load(Ordering::Relaxed), 1111, "signals are still held");
    }
}
