//! Which process this is: the one that has the tables, or a child that only borrows them.
//!
//! What stands still during a fork.
//!
//! The child has one thread, and a copy of what all threads of its parent were in the middle of.
//! So who forks takes the locks of this process first, each in the order in which others
//! take them, too. Locks in memory that processes share stay with their holders: those go on
//! in the parent, and the child waits for them as for any other.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use crate::watched::{self, Set};
use crate::{allocator, borrowers, kernel, messages, status, table, wake_pipe};

static OWNER: AtomicU32 = AtomicU32::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// To be called when the library comes to life, and in each child of a fork.
pub(crate) fn begin() {
    OWNER.store(kernel::process(), Ordering::Relaxed);
    borrowers::begin();
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Another number in each process that came by fork.
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Whose the tables are.
pub(crate) fn owner() -> u32 {
    OWNER.load(Ordering::Relaxed)
}

/// Whether the tables are this process's own, and it is not one of its children that borrow
/// them or have a copy.
pub(crate) fn owns_the_tables() -> bool {
    borrowers::are_none() || OWNER.load(Ordering::Relaxed) == kernel::process()
}

/// Where libc says whether this process has one thread; null where it does not.
static IS_ALONE: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());

/// Whether no other thread is here, for certain.
pub(crate) fn has_one_thread() -> bool {
    // SAFETY: a variable of libc, which is written where threads begin and end.
    unsafe { IS_ALONE.load(Ordering::Relaxed).as_ref() }
        .is_some_and(|alone| alone.load(Ordering::Relaxed) != 0)
}

/// Not to be asked in the handler of a signal: so in the beginning.
pub(crate) fn find_out_who_knows_of_threads() {
    // SAFETY: a name that ends with zero.
    let place = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    IS_ALONE.store(place.cast(), Ordering::Relaxed);
}

#[cfg(not(test))]
use crate::calls::streams;

/// The sets of `epoll` that stand still.
struct FrozenSets(UnsafeCell<Vec<Set>>);

// SAFETY: only who has all the locks looks at it.
unsafe impl Sync for FrozenSets {}

static STILL: FrozenSets = FrozenSets(UnsafeCell::new(Vec::new()));

/// From here on nothing changes.
pub(crate) fn begins() {
    messages::stands_still();
    let sets = watched::stands_still();
    // SAFETY: anyone who forks has the locks now, and nobody else forks.
    unsafe { *STILL.0.get() = sets };
    #[cfg(not(test))]
    streams::stands_still();
    table::stands_still();
    wake_pipe::stands_still();
    status::stands_still();
    allocator::stands_still();
}

/// In the parent, and in the child.
pub(crate) fn is_over() {
    allocator::goes_on();
    status::goes_on();
    wake_pipe::goes_on();
    table::goes_on();
    #[cfg(not(test))]
    streams::goes_on();
    // SAFETY: as above.
    let sets = std::mem::take(unsafe { &mut *STILL.0.get() });
    watched::goes_on(&sets);
    messages::goes_on();
}
