//! Bytes from one end to the other through shared memory, and how either is woken.
//!
//! Counters only grow; a place is a counter modulo the capacity. The sender moves `head`
//! and the receiver `tail`, each under the lock of its half, since several processes may
//! have one end. What the other half claims is checked: a difference of more than the
//! capacity is nonsense, and nonsense ends the connection.
//!
//! **Waking.** Who sleeps does so in the kernel, on the TCP connection below, and is woken by
//! one byte of TCP; how is in `landfall-socket-wakes`.
//!
//! **Copying.** A peer may write where this end reads, and read where it writes: bytes may be
//! garbage then, behaviour stays defined, since they are copied by whole words, atomically
//! (`landfall-transport`).
//!
//! What does not live here: system calls. The caller rings where it is told to.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use landfall_transport::memory::{copy_into_words, copy_out_of_words};

use crate::kernel::{self, Part};
use crate::segment::{Direction, Receiving, Role, Segment, Sending};

/// The other end wrote counters that cannot be, or there is no memory for the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Bytes of what is read and written at once.
const WORD: usize = size_of::<AtomicU64>();

/// A sender sleeps on `tail` in memory.
pub(crate) const ROOM_BY_MEMORY: u32 = 1;
/// A sender sleeps in `poll` or `epoll`, where only TCP wakes it.
pub(crate) const ROOM_BY_TCP: u32 = 2;
/// The sender is a carrier.
pub(crate) const ROOM_BY_BELL: u32 = 4;
/// A sender that waits is woken when so much of the ring is free: not for each byte.
const WORTH_A_WAKE: u64 = 4;
/// The same for one who is told of room by `poll`, as TCP does it.
const WORTH_TELLING: u64 = 3;

/// After so much the other end is told, and goes on while the next is copied: an eighth of a ring,
/// so that both copy at the same time and not in turns.
const PIECE: u64 = 32 * 1024;

/// What is done with bytes that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveMode {
    Take,
    /// They stay (`MSG_PEEK`).
    Peek,
    /// They go, and nobody wants them (`MSG_TRUNC`).
    Discard,
}

/// The sender's end of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    own: &'a Sending,
    other: &'a Receiving,
    bytes: *mut u8,
    capacity: u64,
}

/// The receiver's end of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    own: &'a Receiving,
    other: &'a Sending,
    bytes: *mut u8,
    capacity: u64,
}

/// The two ends that one side of a connection has.
pub(crate) fn ends<'a>(segment: Segment, role: Role) -> (Outgoing<'a>, Incoming<'a>) {
    let capacity = segment.capacity();
    let Direction { sending, receiving } = segment.direction_from(role);
    let bytes = segment.bytes_from(role);
    let outgoing = Outgoing { own: sending, other: receiving, bytes, capacity };
    let Direction { sending, receiving } = segment.direction_from(role.other());
    let bytes = segment.bytes_from(role.other());
    let incoming = Incoming { own: receiving, other: sending, bytes, capacity };
    (outgoing, incoming)
}

impl Outgoing<'_> {
    /// How many bytes the ring still takes.
    pub(crate) fn room(&self) -> Result<u64, Malformed> {
        Ok(self.capacity - self.backlog()?)
    }

    /// Whether so much is free that one who waits for it in `poll` is told.
    pub(crate) fn has_room_worth_telling(&self) -> Result<bool, Malformed> {
        Ok(self.room()? >= self.capacity / WORTH_TELLING)
    }

    /// How many bytes the other end has not taken yet.
    pub(crate) fn backlog(&self) -> Result<u64, Malformed> {
        let tail = self.other.tail.load(Ordering::Acquire);
        let inside = self.own.head.load(Ordering::Relaxed).wrapping_sub(tail);
        if inside > self.capacity { Err(Malformed) } else { Ok(inside) }
    }

    /// Puts in what fits and publishes it; the caller has the lock of this half.
    ///
    /// # Safety
    ///
    /// `parts` may be read.
    pub(crate) unsafe fn put(&self, parts: &[Part]) -> Result<usize, Malformed> {
        let head = self.own.head.load(Ordering::Relaxed);
        let mut room = self.room()?;
        self.gets_memory(head, parts.iter().fold(0, |sum, part| room.min(sum + part.len as u64)))?;
        let (mut at, mut published) = (head, head);
        for part in parts {
            let mut from = part.base;
            let mut left = (part.len as u64).min(room);
            room -= left;
            while left > 0 {
                let len = left.min(PIECE);
                // SAFETY: `part` may be read, and as much is free in the ring.
                from = unsafe {
                    copy_in((self.bytes, self.capacity), at, from, len as usize);
                    from.add(len as usize)
                };
                (at, left) = (at.wrapping_add(len), left - len);
                if at.wrapping_sub(published) >= PIECE {
                    published = at;
                    self.own.head.store(at, Ordering::Release);
                }
            }
        }
        if at != published {
            self.own.head.store(at, Ordering::Release);
        }
        Ok(at.wrapping_sub(head) as usize)
    }

    /// The first time round the ring has no memory yet. Where there is none (others may fill
    /// all that there is), that ends the connection, and not the program.
    fn gets_memory(&self, head: u64, len: u64) -> Result<(), Malformed> {
        const PAGE: u64 = 4096;
        if head >= self.capacity {
            return Ok(());
        }
        let (first, end) = (head.next_multiple_of(PAGE), (head + len).min(self.capacity));
        if first >= end {
            return Ok(());
        }
        // SAFETY: inside of the ring.
        let from = unsafe { self.bytes.add(first as usize) };
        kernel::populate(from, (end - first) as usize).map_err(|_| Malformed)
    }

    /// Sees to it that there is memory for bytes at this position, wherever the ring's end is.
    /// For who places bytes there before those that come first, as a carrier does.
    pub(crate) fn prepares(&self, at: u64, len: u64) -> Result<(), Malformed> {
        const PAGE: u64 = 4096;
        self.gets_memory(at / PAGE * PAGE, at % PAGE + len)
    }

    /// Copies bytes to a position behind the end. They are not published; `len` is at most the
    /// capacity.
    pub(crate) fn place(&self, at: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() as u64 <= self.capacity);
        // SAFETY: the bytes may be read, and the ring is mapped.
        unsafe { copy_in((self.bytes, self.capacity), at, bytes.as_ptr(), bytes.len()) };
    }

    /// All bytes before this position are there from now on.
    pub(crate) fn publish(&self, to: u64) {
        self.own.head.store(to, Ordering::Release);
    }

    /// How many of the bytes that were published the other end has taken.
    pub(crate) fn taken(&self) -> Result<u64, Malformed> {
        let backlog = self.backlog()?;
        self.own.head.load(Ordering::Relaxed).checked_sub(backlog).ok_or(Malformed)
    }

    /// After something was put in: whether the other end has to be rung now.
    pub(crate) fn takes_the_wish_to_be_rung(&self) -> bool {
        self.other.wishes.fulfil()
    }

    /// The word that changes when bytes are put in: who waits for them sleeps on it.
    pub(crate) fn word_of_bytes(&self) -> &AtomicU32 {
        lower_half(&self.own.head)
    }

    /// Says that room is wanted, and how to wake; whether there is some already.
    pub(crate) fn wants_room(&self, how: u32) -> Result<bool, Malformed> {
        self.own.wants_room.make(how);
        Ok(self.room()? > 0)
    }

    /// What is in that word now. (The counter is read as a whole: atomics of two sizes on
    /// one memory have no defined meaning.)
    pub(crate) fn room_seen(&self) -> u32 {
        self.other.tail.load(Ordering::SeqCst) as u32
    }

    /// The word that changes when bytes are taken: the lower half of the counter.
    pub(crate) fn word_of_room(&self) -> &AtomicU32 {
        lower_half(&self.other.tail)
    }
}

impl Incoming<'_> {
    /// How many bytes wait to be taken.
    pub(crate) fn available(&self) -> Result<u64, Malformed> {
        let head = self.other.head.load(Ordering::Acquire);
        let inside = head.wrapping_sub(self.own.tail.load(Ordering::Relaxed));
        if inside > self.capacity { Err(Malformed) } else { Ok(inside) }
    }

    /// How many bytes ever came: it changes when there is news.
    pub(crate) fn position(&self) -> u64 {
        self.other.head.load(Ordering::SeqCst)
    }

    /// What is in that word now.
    pub(crate) fn bytes_seen(&self) -> u32 {
        self.position() as u32
    }

    /// The word that changes when bytes come: the lower half of the counter.
    pub(crate) fn word_of_bytes(&self) -> &AtomicU32 {
        lower_half(&self.other.head)
    }

    /// Takes as much as there is and fits; the caller has the lock of this half.
    ///
    /// # Safety
    ///
    /// `parts` may be written, unless bytes are discarded.
    pub(crate) unsafe fn take(&self, parts: &[Part], how: ReceiveMode) -> Result<usize, Malformed> {
        let tail = self.own.tail.load(Ordering::Relaxed);
        let mut left = self.available()?;
        let (mut at, mut released) = (tail, tail);
        for part in parts {
            let mut into = part.base;
            let mut wanted = (part.len as u64).min(left);
            left -= wanted;
            while wanted > 0 {
                let len = wanted.min(PIECE);
                if how != ReceiveMode::Discard {
                    // SAFETY: `part` may be written, and as much is in the ring.
                    into = unsafe {
                        copy_out((self.bytes, self.capacity), at, into, len as usize);
                        into.add(len as usize)
                    };
                }
                (at, wanted) = (at.wrapping_add(len), wanted - len);
                if how != ReceiveMode::Peek && at.wrapping_sub(released) >= PIECE {
                    released = at;
                    self.own.tail.store(at, Ordering::Release);
                }
            }
        }
        if how != ReceiveMode::Peek && at != released {
            self.own.tail.store(at, Ordering::Release);
        }
        Ok(at.wrapping_sub(tail) as usize)
    }

    /// How many bytes ever came, for who has taken this many of them.
    pub(crate) fn put_in(&self, taken: u64) -> Result<u64, Malformed> {
        let head = self.other.head.load(Ordering::Acquire);
        let inside = head.checked_sub(taken).ok_or(Malformed)?;
        if inside > self.capacity { Err(Malformed) } else { Ok(head) }
    }

    /// Copies bytes that came at this position, and leaves them there.
    pub(crate) fn copy(&self, at: u64, into: &mut [u8]) {
        debug_assert!(into.len() as u64 <= self.capacity);
        // SAFETY: the place may be written, and the ring is mapped.
        unsafe { copy_out((self.bytes, self.capacity), at, into.as_mut_ptr(), into.len()) };
    }

    /// All bytes before this position are taken.
    pub(crate) fn release(&self, to: u64) {
        self.own.tail.store(to, Ordering::Release);
    }

    /// After bytes were taken: how a sender that waits for room has to be woken now.
    pub(crate) fn takes_the_wish_for_room(&self) -> u32 {
        self.other.wants_room.fulfil(|| {
            let inside = self.available().unwrap_or(0);
            inside <= self.capacity - self.capacity / WORTH_A_WAKE
        })
    }

    /// The word that a sender without room sleeps on.
    pub(crate) fn word_of_room(&self) -> &AtomicU32 {
        lower_half(&self.own.tail)
    }
}

/// The bytes of a ring as words: nobody touches them otherwise.
///
/// # Safety
///
/// The ring is mapped for so long.
unsafe fn words<'a>((ring, capacity): (*mut u8, u64)) -> &'a [AtomicU64] {
    // SAFETY: as promised; a ring begins at a page, and others use atomics there, too. What a
    // peer does otherwise is as if it had written garbage.
    unsafe { std::slice::from_raw_parts(ring.cast::<AtomicU64>(), capacity as usize / WORD) }
}

/// Where a copy that begins at this place of the ring is cut: at its end.
fn cut(at: u64, len: usize, capacity: u64) -> (usize, usize) {
    let place = (at % capacity) as usize;
    (place, len.min(capacity as usize - place))
}

/// Copies into the ring, around its end.
///
/// # Safety
///
/// `from` may be read, `len` is at most the capacity, and the ring is mapped.
unsafe fn copy_in(ring: (*mut u8, u64), at: u64, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: as promised.
    let (words, bytes) = unsafe { (words(ring), std::slice::from_raw_parts(from, len)) };
    let (place, first) = cut(at, len, ring.1);
    let (first, rest) = bytes.split_at(first);
    copy_into_words(words, place, first);
    copy_into_words(words, 0, rest);
}

/// Copies out of the ring, around its end.
///
/// # Safety
///
/// `to` may be written, `len` is at most the capacity, and the ring is mapped.
unsafe fn copy_out(ring: (*mut u8, u64), at: u64, to: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: as promised.
    let (words, bytes) = unsafe { (words(ring), std::slice::from_raw_parts_mut(to, len)) };
    let (place, first) = cut(at, len, ring.1);
    let (first, rest) = bytes.split_at_mut(first);
    copy_out_of_words(words, place, first);
    copy_out_of_words(words, 0, rest);
}

/// The half of a counter that changes first: a futex has 32 bits.
fn lower_half(counter: &AtomicU64) -> &AtomicU32 {
    const { assert!(cfg!(target_endian = "little"), "the lower half would lie elsewhere") };
    // SAFETY: inside of the counter and aligned; both are atomics of shared memory.
    unsafe { &*counter.as_ptr().cast::<AtomicU32>() }
}

#[cfg(test)]
mod tests;
