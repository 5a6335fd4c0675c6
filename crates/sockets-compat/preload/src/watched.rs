//! The epoll descriptors of this process, and what each watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::family;
use crate::interest::{self, Interest};
use crate::lock::Locked;

/// What one epoll descriptor watches; duplicated descriptors share it.
pub(crate) type Set = Arc<Locked<Interest>>;

static SETS: Locked<BTreeMap<i32, Set>> = Locked::new(BTreeMap::new());
/// So that who has no epoll descriptor does not look for one.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An epoll descriptor was made.
pub(crate) fn made(epoll: i32) {
    insert(epoll, Set::new(Locked::new(Interest::default())));
}

fn insert(epoll: i32, set: Set) {
    SETS.with(|sets| {
        sets.insert(epoll, set);
        COUNT.store(sets.len(), Ordering::Release);
    });
}

/// What the descriptor watches, if it is such a one.
pub(crate) fn find(epoll: i32) -> Option<Set> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    SETS.with(|sets| sets.get(&epoll).cloned())
}

pub(crate) fn is_known(epoll: i32) -> bool {
    find(epoll).is_some()
}

/// The descriptor is watched by this set from now on; if by another, too, that is told.
pub(crate) fn is_added(epoll: i32, fd: i32) {
    if COUNT.load(Ordering::Acquire) < 2 {
        return;
    }
    let Some(guard) = crate::table::find(fd) else { return };
    let others = SETS.with(|sets| {
        let others = sets.iter().filter(|(other, _)| **other != epoll);
        others.map(|(_, set)| set.clone()).collect::<Vec<_>>()
    });
    if others.iter().any(|set| set.with(|interest| interest.has(fd))) {
        guard.is_watched_twice.store(true, Ordering::Relaxed);
    }
}

/// Another descriptor of the same.
pub(crate) fn doubled(old: i32, new: i32) {
    if let Some(set) = find(old) {
        insert(new, set);
    }
}

/// The descriptor is closed: nobody watches it any more, and if it watched, it is over.
pub(crate) fn closed(fd: i32) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let own = SETS.with(|sets| {
        let own = sets.remove(&fd);
        COUNT.store(sets.len(), Ordering::Release);
        own
    });
    drop(own);
    for (epoll, set) in all() {
        if let Some(change) = set.with(|interest| interest.remove(fd)) {
            let _ = interest::apply(epoll, &change);
        }
    }
}

fn all() -> Vec<(i32, Set)> {
    SETS.with(|sets| sets.iter().map(|(&epoll, set)| (epoll, set.clone())).collect())
}

/// A child gets the kernel's sets as they are, and another memory of them: what only memory
/// knows is told to the kernel first.
pub(crate) fn before_fork() {
    let sets = all();
    if !sets.is_empty() {
        family::grows();
    }
    for (epoll, set) in sets {
        let changes = set.with(|interest| {
            let mut changes = interest.take_parked();
            changes.extend(interest.gives_up_pipe());
            changes
        });
        for change in &changes {
            let _ = interest::apply(epoll, change);
        }
    }
}

/// The program closes these descriptors, among which pipes of sets may be.
pub(crate) fn loses_pipes(first: i32, last: i32) {
    for (epoll, set) in all() {
        let changes = set.with(|interest| interest.loses_pipe(first, last));
        for change in &changes {
            let _ = interest::apply(epoll, change);
        }
    }
}

/// Before a fork: nobody is in the middle of a change. The sets that stand still.
pub(crate) fn stands_still() -> Vec<Set> {
    loop {
        let known: Vec<Set> = all().into_iter().map(|(_, set)| set).collect();
        let mut sets: Vec<Set> = Vec::with_capacity(known.len());
        for set in known {
            // Duplicates share one.
            if !sets.iter().any(|other| Arc::ptr_eq(other, &set)) {
                set.stands_still();
                sets.push(set);
            }
        }
        // In this order, since who has a set may look for another.
        SETS.stands_still();
        // SAFETY: they stand still for this thread.
        let now = unsafe { SETS.look() };
        if now.values().all(|set| sets.iter().any(|other| Arc::ptr_eq(other, set))) {
            return sets;
        }
        goes_on(&sets);
    }
}

/// After it, in the parent and in the child.
pub(crate) fn goes_on(sets: &[Set]) {
    SETS.goes_on();
    sets.iter().for_each(|set| set.goes_on());
}

/// The descriptor has become shared memory: who watches it has to look there, too.
pub(crate) fn became_shared(fd: i32) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    for (epoll, set) in all() {
        if let Some(change) = set.with(|interest| interest.became_shared(fd)) {
            let _ = interest::apply(epoll, &change);
        }
        if let Some(change) = set.with(|interest| interest.wakes_who_sleeps(fd)) {
            let _ = interest::apply(epoll, &change);
        }
    }
}

/// In a child of a fork.
pub(crate) fn after_fork() {
    family::after_fork();
    for (_, set) in all() {
        set.with(Interest::after_fork);
    }
}
