//! Which descriptor is which connection.
//!
//! Records are never freed, only used again, so that a thread which looks one up while
//! another closes it touches a record, if perhaps the wrong one, and then looks again.
//! Duplicated descriptors share one record, as they share one socket.

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::connection::Connection;
use crate::lock::Locked;

/// Descriptors from here on are left to the kernel.
const MOST: usize = 1 << 20;
const CHUNK: usize = 1024;

type Chunk = [AtomicPtr<Record>; CHUNK];

static CHUNKS: [AtomicPtr<Chunk>; MOST / CHUNK] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST / CHUNK];
static FREE: Locked<Free> = Locked::new(Free(std::ptr::null_mut()));

/// The first record of those that nobody has.
#[derive(Debug)]
struct Free(*mut Record);

// SAFETY: records are never freed, and are of atomics.
unsafe impl Send for Free {}

#[derive(Debug)]
struct Record {
    /// Descriptors and calls under way; zero while nobody has it.
    uses: AtomicU32,
    /// Descriptors alone.
    descriptors: AtomicU32,
    next_free: AtomicPtr<Record>,
    connection: Connection,
}

/// A connection that stays what it is while this lives.
#[derive(Debug)]
pub(crate) struct Guard(&'static Record);

impl Deref for Guard {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0.connection
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        release(self.0);
    }
}

fn slot(fd: i32, make: bool) -> Option<&'static AtomicPtr<Record>> {
    let fd = usize::try_from(fd).ok().filter(|&fd| fd < MOST)?;
    let place = &CHUNKS[fd / CHUNK];
    let mut chunk = place.load(Ordering::Acquire);
    if chunk.is_null() {
        if !make {
            return None;
        }
        let made = Box::into_raw(Box::new([const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNK]));
        chunk = match place.compare_exchange(
            std::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => made,
            Err(others) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                others
            }
        };
    }
    // SAFETY: chunks are never freed.
    Some(unsafe { &(&*chunk)[fd % CHUNK] })
}

/// The connection of a descriptor, if it is one that may be shared memory.
pub(crate) fn find(fd: i32) -> Option<Guard> {
    let slot = slot(fd, false)?;
    loop {
        let record = slot.load(Ordering::Acquire);
        if record.is_null() {
            return None;
        }
        // SAFETY: records are never freed.
        let record = unsafe { &*record };
        let mut uses = record.uses.load(Ordering::Relaxed);
        while uses != 0 {
            match record.uses.compare_exchange_weak(
                uses,
                uses + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let guard = Guard(record);
                    if std::ptr::eq(slot.load(Ordering::Acquire), record) {
                        return Some(guard);
                    }
                    break;
                }
                Err(now) => uses = now,
            }
        }
    }
}

/// Enters a new connection under its descriptor.
pub(crate) fn insert(fd: i32, begin: impl FnOnce(&Connection)) {
    let Some(slot) = slot(fd, true) else { return };
    let record = take_free();
    begin(&record.connection);
    record.descriptors.store(1, Ordering::Relaxed);
    record.uses.store(1, Ordering::Release);
    put(slot, std::ptr::from_ref(record).cast_mut());
}

/// Another descriptor of the same socket, after `dup`.
pub(crate) fn duplicate(old: i32, new: i32) {
    let Some(guard) = find(old) else { return };
    let Some(slot) = slot(new, true) else { return };
    guard.0.descriptors.fetch_add(1, Ordering::Relaxed);
    guard.0.uses.fetch_add(1, Ordering::Relaxed);
    put(slot, std::ptr::from_ref(guard.0).cast_mut());
}

/// Puts a record under a descriptor that is new. What stood there was closed past us.
fn put(slot: &AtomicPtr<Record>, record: *mut Record) {
    let old = slot.swap(record, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: records are never freed.
        forget(unsafe { &*old }, -1);
    }
}

/// The descriptor is about to be closed.
pub(crate) fn remove(fd: i32) {
    let Some(slot) = slot(fd, false) else { return };
    let old = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: records are never freed.
        forget(unsafe { &*old }, fd);
    }
}

/// One descriptor of it less. `fd` is that descriptor while it is open, else negative.
fn forget(record: &'static Record, fd: i32) {
    if record.descriptors.fetch_sub(1, Ordering::AcqRel) == 1 {
        record.connection.leave(fd);
        record.connection.tells_of_its_end(fd);
    }
    release(record);
}

fn release(record: &'static Record) {
    if record.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
        record.connection.end();
        give_back(record);
    }
}

/// The first descriptor from `fd` on that is in the table.
pub(crate) fn next_from(mut fd: i32) -> Option<i32> {
    while let Ok(at) = usize::try_from(fd)
        && at < MOST
    {
        let chunk = CHUNKS[at / CHUNK].load(Ordering::Acquire);
        if chunk.is_null() {
            fd = ((at / CHUNK + 1) * CHUNK) as i32;
            continue;
        }
        // SAFETY: chunks are never freed.
        if !unsafe { &(&*chunk)[at % CHUNK] }.load(Ordering::Relaxed).is_null() {
            return Some(fd);
        }
        fd += 1;
    }
    None
}

/// A descriptor whose connection is so.
pub(crate) fn find_where(is_so: impl Fn(&Connection) -> bool) -> Option<i32> {
    let mut fd = 0;
    while let Some(found) = next_from(fd) {
        if find(found).is_some_and(|guard| is_so(&guard)) {
            return Some(found);
        }
        fd = found + 1;
    }
    None
}

/// Each connection once, with one of its descriptors.
pub(crate) fn for_each(mut with: impl FnMut(&Connection, i32)) {
    let mut done = Vec::new();
    let mut fd = 0;
    while let Some(found) = next_from(fd) {
        fd = found + 1;
        if let Some(guard) = find(found)
            && !done.contains(&std::ptr::from_ref(guard.0))
        {
            done.push(std::ptr::from_ref(guard.0));
            with(&guard, found);
        }
    }
}

/// In a child of a fork: what its parent's other threads had under way is nobody's here.
pub(crate) fn after_fork() {
    let mut fd = 0;
    while let Some(found) = next_from(fd) {
        fd = found + 1;
        if let Some(guard) = find(found) {
            let record = guard.0;
            drop(guard);
            record.uses.store(record.descriptors.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

fn take_free() -> &'static Record {
    let found = FREE.with(|free| {
        // SAFETY: records are never freed.
        let first = unsafe { free.0.as_ref() }?;
        free.0 = first.next_free.load(Ordering::Relaxed);
        Some(first)
    });
    found.unwrap_or_else(|| {
        Box::leak(Box::new(Record {
            uses: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            next_free: AtomicPtr::new(std::ptr::null_mut()),
            connection: Connection::new(),
        }))
    })
}

fn give_back(record: &'static Record) {
    FREE.with(|free| {
        record.next_free.store(free.0, Ordering::Relaxed);
        free.0 = std::ptr::from_ref(record).cast_mut();
    });
}

/// Before a fork, and after it.
pub(crate) fn stands_still() {
    FREE.stands_still();
}

pub(crate) fn goes_on() {
    FREE.goes_on();
}
