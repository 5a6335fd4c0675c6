//! Connections that go by TCP from their beginning: by a rule, to another host, or while the
//! library is switched off. No call looks them up; only who closes a descriptor does, and there a
//! descriptor without one costs one load.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use landfall_socket_status::Transport;

use super::{begins, ends};
use crate::lock::Locked;
use crate::log::Verdict;
use crate::registry::Name;
use crate::segment::Role;

/// Descriptors from here on are left to the kernel, as in [`crate::table`].
const MOST: usize = 1 << 20;
const CHUNK: usize = 1024;

type Chunk = [AtomicU32; CHUNK];

static CHUNKS: [AtomicPtr<Chunk>; MOST / CHUNK] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST / CHUNK];
/// Numbers of connections that are in no table, apart from those that are.
static SERIALS: AtomicU64 = AtomicU64::new(1 << 63);
/// By the number of a record: how many descriptors it has beside the first.
static MORE: Locked<Vec<u32>> = Locked::new(Vec::new());

fn place(fd: i32) -> Option<&'static AtomicU32> {
    let fd = usize::try_from(fd).ok().filter(|&fd| fd < MOST)?;
    let chunk = CHUNKS[fd / CHUNK].load(Ordering::Acquire);
    // SAFETY: chunks are never freed.
    (!chunk.is_null()).then(|| unsafe { &(&*chunk)[fd % CHUNK] })
}

fn place_or_make(fd: i32) -> Option<&'static AtomicU32> {
    if let Some(found) = place(fd) {
        return Some(found);
    }
    let at = usize::try_from(fd).ok().filter(|&fd| fd < MOST)? / CHUNK;
    let made = Box::into_raw(Box::new([const { AtomicU32::new(0) }; CHUNK]));
    let null = std::ptr::null_mut();
    if CHUNKS[at].compare_exchange(null, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(made) });
    }
    place(fd)
}

/// The connection of `fd` goes by TCP, for this reason.
pub(crate) fn left_to_tcp(fd: i32, role: Role, name: &Name, verdict: Verdict) {
    descriptor_closed(fd);
    let Some(place) = place_or_make(fd) else { return };
    let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
    let number = begins(role, name, serial, Transport::Tcp, verdict.explanation());
    place.store(number, Ordering::Release);
}

/// The descriptor is about to be closed, or is of another connection by now.
pub(crate) fn descriptor_closed(fd: i32) {
    let Some(place) = place(fd).filter(|place| place.load(Ordering::Relaxed) != 0) else { return };
    let number = place.swap(0, Ordering::AcqRel);
    let is_last = MORE.with(|more| match more.get_mut(number as usize) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        _ => true,
    });
    if number != 0 && is_last {
        ends(number);
    }
}

/// Another descriptor of the same socket.
pub(crate) fn descriptor_doubled(old: i32, new: i32) {
    descriptor_closed(new);
    let number = place(old).map_or(0, |place| place.load(Ordering::Acquire));
    if number == 0 {
        return;
    }
    let Some(place) = place_or_make(new) else { return };
    MORE.with(|more| {
        let at = number as usize;
        if more.len() <= at {
            more.resize(at + 1, 0);
        }
        more[at] += 1;
    });
    place.store(number, Ordering::Release);
}

/// All descriptors from one to another are about to be closed.
pub(crate) fn closed_between(first: i32, last: i32) {
    let (Ok(mut at), last) = (usize::try_from(first), usize::try_from(last).unwrap_or(0)) else {
        return; // No descriptor is below zero.
    };
    while at <= last && at < MOST {
        if CHUNKS[at / CHUNK].load(Ordering::Acquire).is_null() {
            at = (at / CHUNK + 1) * CHUNK;
            continue;
        }
        descriptor_closed(at as i32);
        at += 1;
    }
}

pub(super) fn stands_still() {
    MORE.stands_still();
}

pub(super) fn goes_on() {
    MORE.goes_on();
}
