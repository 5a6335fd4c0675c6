//! What this library knows of each thread, and the sections in which no handler of the
//! program runs.
//!
//! `send`, `close` and their kin may be called in a handler of a signal, and the handler may
//! have interrupted the same call. Where it did so in the middle of a critical section, with
//! a lock held, a nested call would wait for what it has interrupted: for ever. So handlers
//! do not run there: a thread counts the [sections](Section) that it is in, and the
//! library's own handler, which stands before each of the program's ([`crate::signals`]),
//! leaves the signal to the kernel until the count is zero again. That costs a section two
//! moves of a counter; `rt_sigprocmask` around each would cost two calls of the kernel,
//! more than the whole of a short `send`.
//!
//! Two rules follow. *Nothing in a section waits*, but for a lock that another thread
//! holds for a moment: who waits longer does so before the section begins. And *nothing here
//! calls `malloc`* ([`crate::allocator`]): that is what a handler may have interrupted.
//!
//! The memory of a thread is reached as the initial-exec model does it, since the general
//! one may call `malloc` after a `dlopen`. Rust has no stable way to ask for that, so two
//! instructions of assembler do.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::{kernel, process, sandbox};

/// All of one thread: zeros in the beginning. Only it and its handlers look at it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Thread {
    /// Sections that it is in, one within another.
    depth: AtomicU32,
    /// Signals are held until the last section ends, and this was in force before.
    holds_signals: AtomicU32,
    mask: AtomicU64,
    /// Its number, in the process of this epoch.
    number: AtomicU32,
    epoch: AtomicU32,
    /// Where it tells the kernel which lock it holds; see [`crate::lock`].
    robust: AtomicPtr<Robust>,
}

/// The head of the list of locks that the kernel frees when a thread ends: `libc` has one
/// for each thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Robust {
    _list: usize,
    /// From an entry to its word.
    pub(crate) offset: isize,
    /// The lock that is just being taken or given back.
    pub(crate) pending: AtomicU64,
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.landfall_thread,\"awT\",@nobits",
    ".hidden landfall_thread",
    ".globl landfall_thread",
    ".type landfall_thread,@object",
    ".size landfall_thread,64",
    ".p2align 3",
    "landfall_thread:",
    ".zero 64",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .tbss.landfall_thread,\"awT\",%nobits",
    ".hidden landfall_thread",
    ".globl landfall_thread",
    ".type landfall_thread,%object",
    ".size landfall_thread,64",
    ".p2align 3",
    "landfall_thread:",
    ".zero 64",
    ".popsection",
);

const _: () = assert!(size_of::<Thread>() <= 64 && align_of::<Thread>() <= 8);

/// The calling thread.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn current<'a>() -> &'a Thread {
    let address: *const Thread;
    // SAFETY: reads the thread's own pointer and the place of the block above within what it
    // points to, as the loader has laid it out; nothing is written.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + landfall_thread@GOTTPOFF]",
            out(reg) address,
            options(nostack, readonly, pure),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:landfall_thread",
            "ldr {1}, [{1}, :gottprel_lo12:landfall_thread]",
            "add {0}, {0}, {1}",
            out(reg) address,
            out(reg) _,
            options(nostack, readonly, pure),
        );
        // SAFETY: atomics of the right size and alignment, which live as long as the thread.
        &*address
    }
}

/// The calling thread, where the two instructions are not known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn current<'a>() -> &'a Thread {
    thread_local! {
        static THREAD: Thread = const {
            Thread {
                depth: AtomicU32::new(0),
                holds_signals: AtomicU32::new(0),
                mask: AtomicU64::new(0),
                number: AtomicU32::new(0),
                epoch: AtomicU32::new(0),
                robust: AtomicPtr::new(std::ptr::null_mut()),
            }
        };
    }
    // SAFETY: it needs no drop, so it lives as long as the thread.
    THREAD.with(|thread| unsafe { &*std::ptr::from_ref(thread) })
}

impl Thread {
    /// Whether handlers have to wait.
    pub(crate) fn is_in_a_section(&self) -> bool {
        self.depth.load(Ordering::Relaxed) > 0
    }

    /// All signals are held from now on, until the last section ends; `before` was in force.
    pub(crate) fn holds_signals(&self, before: u64) {
        self.mask.store(before, Ordering::Relaxed);
        self.holds_signals.store(1, Ordering::Relaxed);
    }

    /// Its number as the kernel has it, asked for once; a forked child asks anew.
    pub(crate) fn number(&self) -> u32 {
        self.learn();
        self.number.load(Ordering::Relaxed)
    }

    /// Where the kernel looks for locks when the thread ends; `None` if it looks nowhere.
    pub(crate) fn robust(&self) -> Option<&Robust> {
        self.learn();
        // SAFETY: what the kernel has been told of, by anyone who made the thread, for as long
        // as the thread lives.
        unsafe { self.robust.load(Ordering::Relaxed).as_ref() }
    }

    fn learn(&self) {
        let epoch = process::epoch();
        if self.number.load(Ordering::Relaxed) != 0 && self.epoch.load(Ordering::Relaxed) == epoch {
            return;
        }
        let robust = kernel::robust_list().unwrap_or(std::ptr::null_mut());
        self.robust.store(robust.cast(), Ordering::Relaxed);
        self.number.store(kernel::thread(), Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    #[cold]
    fn holds_all(&self) {
        if let Ok(before) = kernel::change_mask(libc::SIG_BLOCK, crate::signals::ALL) {
            self.holds_signals(before);
        }
    }

    #[cold]
    fn lets_signals_come(&self) {
        let before = self.mask.load(Ordering::Relaxed);
        self.holds_signals.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let _ = kernel::change_mask(libc::SIG_SETMASK, before);
    }
}

/// While it lives no handler of the program runs on this thread, but those of faults.
#[derive(Debug)]
pub(crate) struct Section(PhantomData<*mut ()>);

impl Section {
    pub(crate) fn enter() -> Self {
        let thread = current();
        let depth = thread.depth.load(Ordering::Relaxed);
        if depth == 0 && sandbox::forbids_to_queue_signals() {
            thread.holds_all();
        }
        thread.depth.store(depth + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Self(PhantomData)
    }
}

/// Ends one whose guard was forgotten.
pub(crate) fn leave_section() {
    drop(Section(PhantomData));
}

impl Drop for Section {
    fn drop(&mut self) {
        let thread = current();
        compiler_fence(Ordering::SeqCst);
        let depth = thread.depth.load(Ordering::Relaxed).saturating_sub(1);
        thread.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 && thread.holds_signals.load(Ordering::Relaxed) != 0 {
            thread.lets_signals_come();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        let _section = Section::enter();
        assert!(current().is_in_a_section());
        let other = std::thread::spawn(|| {
            assert!(!current().is_in_a_section());
            (std::ptr::from_ref(current()) as usize, current().number())
        });
        let (address, number) = other.join().unwrap();
        assert_ne!(address, std::ptr::from_ref(current()) as usize);
        assert_ne!(number, current().number());
        assert_eq!(current().number(), kernel::thread());
    }

    #[test]
    fn a_section_within_another_ends_nothing() {
        let outer = Section::enter();
        drop(Section::enter());
        assert!(current().is_in_a_section());
        drop(outer);
        assert!(!current().is_in_a_section());
    }
}
