//! Bytes from one end to the other through shared memory, and how either is woken.
//!
//! Counters only grow; a place is a counter modulo the capacity. The sender moves `head`
//! and the receiver `tail`, each under the lock of its half, since several processes may
//! have one end. What the other half claims is checked: a difference of more than the
//! capacity is nonsense, and nonsense ends the connection.
//!
//! **Waking.** Who sleeps does so in the kernel, on the TCP connection below: there `poll`,
//! `epoll`, time-outs, signals and the death of the peer are what they always were. So
//! waking is one byte by TCP. It is sent only to one who said that it sleeps, and once:
//! the sender takes the wish away as it fulfils it.
//!
//! **Copying.** A peer may write where this end reads, and read where it writes: bytes may be
//! garbage then, behaviour stays defined, since they are copied by whole words, atomically
//! (`landfall-transport`).
//!
//! What does not live here: system calls. The caller rings where it is told to.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use landfall_transport::memory::{copy_into_words, copy_out_of_words};

use crate::kernel::{self, Part};
use crate::segment::{Direction, Receiving, Segment, Sending, Side};

/// The other end wrote counters that cannot be, or there is no memory for the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// In `wishes` this is one wish. The upper half counts the rings: a wish that was made
/// before the last ring is fulfilled.
const WISH: u64 = 1;
const WISHES: u64 = 0xFFFF_FFFF;

/// A wish to be rung that has been made, and can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    rings_before: u64,
}

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

/// What is done with bytes that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
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
pub(crate) fn ends<'a>(segment: Segment, side: Side) -> (Outgoing<'a>, Incoming<'a>) {
    let capacity = segment.capacity();
    let Direction { sending, receiving } = segment.direction_from(side);
    let bytes = segment.bytes_from(side);
    let outgoing = Outgoing { own: sending, other: receiving, bytes, capacity };
    let Direction { sending, receiving } = segment.direction_from(side.other());
    let bytes = segment.bytes_from(side.other());
    let incoming = Incoming { own: receiving, other: sending, bytes, capacity };
    (outgoing, incoming)
}

impl Outgoing<'_> {
    /// How many bytes the ring still takes.
    pub(crate) fn room(&self) -> Result<u64, Nonsense> {
        Ok(self.capacity - self.backlog()?)
    }

    /// Whether so much is free that one who waits for it in `poll` is told.
    pub(crate) fn has_room_worth_telling(&self) -> Result<bool, Nonsense> {
        Ok(self.room()? >= self.capacity / WORTH_TELLING)
    }

    /// How many bytes the other end has not taken yet.
    pub(crate) fn backlog(&self) -> Result<u64, Nonsense> {
        let tail = self.other.tail.load(Ordering::Acquire);
        let inside = self.own.head.load(Ordering::Relaxed).wrapping_sub(tail);
        if inside > self.capacity { Err(Nonsense) } else { Ok(inside) }
    }

    /// Puts in what fits and publishes it; the caller has the lock of this half.
    ///
    /// # Safety
    ///
    /// `parts` may be read.
    pub(crate) unsafe fn put(&self, parts: &[Part]) -> Result<usize, Nonsense> {
        let head = self.own.head.load(Ordering::Relaxed);
        let mut room = self.room()?;
        self.gets_memory(head, parts.iter().fold(0, |sum, part| room.min(sum + part.len as u64)))?;
        let mut at = head;
        for part in parts {
            let len = (part.len as u64).min(room);
            // SAFETY: `part` may be read, and as much is free in the ring.
            unsafe { copy_in((self.bytes, self.capacity), at, part.base, len as usize) };
            (at, room) = (at.wrapping_add(len), room - len);
            if room == 0 {
                break;
            }
        }
        if at != head {
            self.own.head.store(at, Ordering::Release);
        }
        Ok(at.wrapping_sub(head) as usize)
    }

    /// The first time round the ring has no memory yet. Where there is none (others may fill
    /// all that there is), that ends the connection, and not the program.
    fn gets_memory(&self, head: u64, len: u64) -> Result<(), Nonsense> {
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
        kernel::populate(from, (end - first) as usize).map_err(|_| Nonsense)
    }

    /// Sees to it that there is memory for bytes at this position, wherever the ring's end is.
    /// For who places bytes there before those that come first, as a carrier does.
    pub(crate) fn prepares(&self, at: u64, len: u64) -> Result<(), Nonsense> {
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
    pub(crate) fn taken(&self) -> Result<u64, Nonsense> {
        let backlog = self.backlog()?;
        self.own.head.load(Ordering::Relaxed).checked_sub(backlog).ok_or(Nonsense)
    }

    /// After something was put in: whether the other end has to be rung now.
    pub(crate) fn takes_the_wish_to_be_rung(&self) -> bool {
        fence(Ordering::SeqCst);
        let wishes = &self.other.wishes;
        let mut seen = wishes.load(Ordering::Relaxed);
        while seen & WISHES != 0 {
            // None is left, and one ring more has been sent.
            let fulfilled = (seen | WISHES).wrapping_add(1);
            match wishes.compare_exchange_weak(seen, fulfilled, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The word that changes when bytes are put in: who waits for them sleeps on it.
    pub(crate) fn word_of_bytes(&self) -> &AtomicU32 {
        lower_half(&self.own.head)
    }

    /// Says that room is wanted, and how to wake; whether there is some already.
    pub(crate) fn wants_room(&self, how: u32) -> Result<bool, Nonsense> {
        self.own.wants_room.fetch_or(how, Ordering::Relaxed);
        fence(Ordering::SeqCst);
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
    pub(crate) fn available(&self) -> Result<u64, Nonsense> {
        let head = self.other.head.load(Ordering::Acquire);
        let inside = head.wrapping_sub(self.own.tail.load(Ordering::Relaxed));
        if inside > self.capacity { Err(Nonsense) } else { Ok(inside) }
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
    pub(crate) unsafe fn take(&self, parts: &[Part], how: Taking) -> Result<usize, Nonsense> {
        let tail = self.own.tail.load(Ordering::Relaxed);
        let mut left = self.available()?;
        let mut at = tail;
        for part in parts {
            let len = (part.len as u64).min(left);
            if how != Taking::Discard {
                // SAFETY: `part` may be written, and as much is in the ring.
                unsafe { copy_out((self.bytes, self.capacity), at, part.base, len as usize) };
            }
            (at, left) = (at.wrapping_add(len), left - len);
            if left == 0 {
                break;
            }
        }
        if at != tail && how != Taking::Peek {
            self.own.tail.store(at, Ordering::Release);
        }
        Ok(at.wrapping_sub(tail) as usize)
    }

    /// How many bytes ever came, for who has taken so many of them.
    pub(crate) fn put_in(&self, taken: u64) -> Result<u64, Nonsense> {
        let head = self.other.head.load(Ordering::Acquire);
        let inside = head.checked_sub(taken).ok_or(Nonsense)?;
        if inside > self.capacity { Err(Nonsense) } else { Ok(head) }
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
        fence(Ordering::SeqCst);
        if self.other.wants_room.load(Ordering::Relaxed) == 0
            || self.available().unwrap_or(0) > self.capacity - self.capacity / WORTH_A_WAKE
        {
            return 0;
        }
        self.other.wants_room.swap(0, Ordering::AcqRel)
    }

    /// The word that a sender without room sleeps on.
    pub(crate) fn word_of_room(&self) -> &AtomicU32 {
        lower_half(&self.own.tail)
    }

    /// A ring was taken that another may have waited for. Who calls this looks at the ring
    /// of bytes once more.
    pub(crate) fn wants_the_next_ring(&self) -> Wish {
        let before = self.own.wishes.fetch_add(WISH, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Wish { rings_before: before & !WISHES }
    }

    /// Says that this end will sleep, unless there is something to take after all.
    pub(crate) fn wants_to_be_rung(&self) -> Result<Option<Wish>, Nonsense> {
        let wish = self.wants_the_next_ring();
        if self.available()? > 0 {
            self.takes_back(wish);
            return Ok(None);
        }
        Ok(Some(wish))
    }

    /// Whoever made the wish does not sleep any more. If a ring has fulfilled it, it is
    /// none of those that stand there now.
    pub(crate) fn takes_back(&self, wish: Wish) {
        let wishes = &self.own.wishes;
        let mut seen = wishes.load(Ordering::Relaxed);
        while seen & !WISHES == wish.rings_before && seen & WISHES != 0 {
            match wishes.compare_exchange_weak(
                seen,
                seen - WISH,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
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
mod tests {
    use super::*;
    use crate::segment::CAPACITY;
    use crate::segment::tests::two_mappings;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn part(bytes: &mut [u8]) -> Part {
        Part { base: bytes.as_mut_ptr(), len: bytes.len() }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(Vec<usize>),
        Take(Vec<usize>, Taking),
    }

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        let len = prop_oneof![0..100_usize, 0..400_000_usize];
        prop::collection::vec(len, 0..4)
    }

    fn step() -> impl Strategy<Value = Step> {
        let taking = prop_oneof![Just(Taking::Take), Just(Taking::Peek), Just(Taking::Discard)];
        prop_oneof![
            lengths().prop_map(Step::Put),
            (lengths(), taking).prop_map(|(lengths, how)| Step::Take(lengths, how)),
        ]
    }

    /// Puts bytes of a running number, into the ring and into the model; how many fitted.
    fn put(outgoing: &Outgoing<'_>, model: &mut VecDeque<u8>, next: &mut u8, lengths: &[usize]) {
        let mut buffers: Vec<Vec<u8>> = lengths
            .iter()
            .map(|&len| {
                let from = *next;
                *next = next.wrapping_add(len as u8);
                (0..len).map(|at| from.wrapping_add(at as u8)).collect()
            })
            .collect();
        let all: Vec<u8> = buffers.concat();
        let parts: Vec<Part> = buffers.iter_mut().map(|buffer| part(buffer)).collect();
        // SAFETY: the buffers live.
        let done = unsafe { outgoing.put(&parts) }.unwrap();
        assert_eq!(done, all.len().min(CAPACITY as usize - model.len()));
        model.extend(&all[..done]);
    }

    fn take(incoming: &Incoming<'_>, model: &mut VecDeque<u8>, lengths: &[usize], how: Taking) {
        let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|&len| vec![0xEE; len]).collect();
        let parts: Vec<Part> = buffers.iter_mut().map(|buffer| part(buffer)).collect();
        // SAFETY: the buffers live.
        let done = unsafe { incoming.take(&parts, how) }.unwrap();
        let wanted: usize = lengths.iter().sum();
        assert_eq!(done, wanted.min(model.len()));
        let expected: Vec<u8> = model.iter().copied().take(done).collect();
        let got = &buffers.concat()[..done];
        if how == Taking::Discard {
            assert!(got.iter().all(|&byte| byte == 0xEE), "memory was written");
        } else {
            assert!(got == expected, "other bytes came out than went in");
        }
        if how != Taking::Peek {
            model.drain(..done);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_queue_of_bytes_with_a_bound(steps in prop::collection::vec(step(), 0..40)) {
            let (first, second) = two_mappings();
            let (outgoing, _) = ends(first, Side::Connector);
            let (_, incoming) = ends(second, Side::Acceptor);
            let (mut model, mut next) = (VecDeque::new(), 0_u8);
            for step in steps {
                match step {
                    Step::Put(lengths) => put(&outgoing, &mut model, &mut next, &lengths),
                    Step::Take(lengths, how) => take(&incoming, &mut model, &lengths, how),
                }
                prop_assert_eq!(incoming.available(), Ok(model.len() as u64));
                prop_assert_eq!(outgoing.room(), Ok(CAPACITY - model.len() as u64));
            }
        }

        /// Whatever a peer writes into its counters: a refusal, or as much as the ring has.
        #[test]
        fn counters_of_a_liar_lead_nowhere(head: u64, tail: u64, of_both: u64) {
            let (first, second) = two_mappings();
            let (outgoing, _) = ends(first, Side::Connector);
            let (_, incoming) = ends(second, Side::Acceptor);
            let direction = first.direction_from(Side::Connector);
            direction.sending.head.store(of_both.wrapping_add(head), Ordering::Relaxed);
            direction.receiving.tail.store(of_both.wrapping_add(tail), Ordering::Relaxed);
            let mut bytes = vec![0; 2 * CAPACITY as usize];
            let is_sound = head.wrapping_sub(tail) <= CAPACITY;
            // SAFETY: the buffer lives.
            let done = unsafe { incoming.take(&[part(&mut bytes)], Taking::Take) };
            prop_assert_eq!(done.is_ok(), is_sound);
            direction.receiving.tail.store(of_both.wrapping_add(tail), Ordering::Relaxed);
            // SAFETY: the buffer lives.
            let done = unsafe { outgoing.put(&[part(&mut bytes)]) };
            prop_assert_eq!(done.is_ok(), is_sound);
        }
    }

    /// A peer that writes into the ring while this end reads it: whatever comes out, what lies
    /// beside it in this end's memory stays.
    #[test]
    fn a_peer_that_writes_meanwhile_changes_bytes_of_the_ring_alone() {
        let (first, second) = two_mappings();
        let (outgoing, _) = ends(first, Side::Connector);
        let (_, incoming) = ends(second, Side::Acceptor);
        let peer = first.base().expose_provenance();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the base of one of the two, which stay mapped.
                let segment =
                    unsafe { Segment::from_base(std::ptr::with_exposed_provenance_mut(peer)) };
                // SAFETY: as above.
                let ring = unsafe { words((segment.bytes_from(Side::Connector), CAPACITY)) };
                for at in (0..ring.len()).cycle() {
                    ring[at].store(u64::MAX, Ordering::Relaxed);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for len in (1..2000).chain([65_536, CAPACITY as usize]) {
                let mut bytes = vec![0x11; len + 2];
                let inside = Part { base: bytes[1..].as_mut_ptr(), len };
                // SAFETY: the buffer lives, here and below.
                assert_eq!(unsafe { outgoing.put(&[inside]) }, Ok(len));
                assert!(bytes.iter().all(|&byte| byte == 0x11));
                let inside = Part { base: bytes[1..].as_mut_ptr(), len };
                // SAFETY: as above.
                assert_eq!(unsafe { incoming.take(&[inside], Taking::Take) }, Ok(len));
                assert!(bytes.iter().all(|byte| matches!(byte, 0x11 | 0xFF)));
                assert_eq!((bytes[0], bytes[len + 1]), (0x11, 0x11));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_wish_is_fulfilled_once() {
        let (first, second) = two_mappings();
        let (outgoing, _) = ends(first, Side::Connector);
        let (_, incoming) = ends(second, Side::Acceptor);
        // The first bytes always ring: whoever waits does so on TCP alone.
        assert!(outgoing.takes_the_wish_to_be_rung());
        assert!(!outgoing.takes_the_wish_to_be_rung());
        assert!(matches!(incoming.wants_to_be_rung(), Ok(Some(_))));
        assert!(outgoing.takes_the_wish_to_be_rung());

        let mut bytes = vec![7; CAPACITY as usize];
        // SAFETY: the buffer lives, here and below.
        assert_eq!(unsafe { outgoing.put(&[part(&mut bytes)]) }, Ok(bytes.len()));
        assert_eq!(incoming.wants_to_be_rung(), Ok(None));
        assert!(!outgoing.takes_the_wish_to_be_rung(), "a wish was left behind");
        assert_eq!(outgoing.wants_room(ROOM_BY_TCP), Ok(false));
        let (little, much) = bytes.split_at_mut((CAPACITY / WORTH_A_WAKE) as usize - 1);
        // SAFETY: what the program gave, as libc asks for it.
        unsafe { incoming.take(&[part(little)], Taking::Take) }.unwrap();
        assert_eq!(incoming.takes_the_wish_for_room(), 0, "too little to wake somebody");
        // SAFETY: what the program gave, as libc asks for it.
        unsafe { incoming.take(&[part(&mut much[..1])], Taking::Take) }.unwrap();
        assert_eq!(incoming.takes_the_wish_for_room(), ROOM_BY_TCP);
        assert_eq!(incoming.takes_the_wish_for_room(), 0);
    }

    #[test]
    fn a_wish_is_taken_back_unless_it_was_fulfilled() {
        let (first, second) = two_mappings();
        let (outgoing, _) = ends(first, Side::Connector);
        let (_, incoming) = ends(second, Side::Acceptor);
        assert!(outgoing.takes_the_wish_to_be_rung());
        let (one, other) = (incoming.wants_the_next_ring(), incoming.wants_the_next_ring());
        incoming.takes_back(one);
        assert!(outgoing.takes_the_wish_to_be_rung(), "the other still sleeps");
        let next = incoming.wants_the_next_ring();
        incoming.takes_back(other);
        assert!(outgoing.takes_the_wish_to_be_rung(), "a fulfilled wish took another with it");
        incoming.takes_back(next);
        let last = incoming.wants_the_next_ring();
        incoming.takes_back(last);
        assert!(!outgoing.takes_the_wish_to_be_rung(), "nobody wishes anything");
    }

    /// Two that sleep and one that sends: none of them sleeps while there is news. A ring
    /// is a number that grows; who slept too long would sleep for ever.
    #[test]
    fn nobody_sleeps_while_there_is_news() {
        const BYTES: u64 = 20_000;
        let (first, second) = two_mappings();
        let (first, second) = (first.base().expose_provenance(), second.base().expose_provenance());
        let of = |base, side| {
            // SAFETY: the base of one of the two, which stay mapped.
            let segment =
                unsafe { Segment::from_base(std::ptr::with_exposed_provenance_mut(base)) };
            ends(segment, side)
        };
        let (rings, rung) = (std::sync::Mutex::new(0_u64), std::sync::Condvar::new());
        let watch = || {
            let (_, incoming) = of(second, Side::Acceptor);
            let mut seen = 0;
            while seen < BYTES {
                let heard = *rings.lock().unwrap();
                let wish = incoming.wants_the_next_ring();
                if incoming.position() == seen {
                    let still = |now: &mut u64| *now == heard;
                    let limit = std::time::Duration::from_secs(30);
                    let waited = rung.wait_timeout_while(rings.lock().unwrap(), limit, still);
                    assert!(!waited.unwrap().1.timed_out(), "slept at {seen} of {BYTES}");
                }
                incoming.takes_back(wish);
                seen = incoming.position();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(watch);
            scope.spawn(watch);
            scope.spawn(|| {
                let (outgoing, _) = of(first, Side::Connector);
                let (_, incoming) = of(second, Side::Acceptor);
                for _ in 0..BYTES {
                    // SAFETY: the byte lives.
                    unsafe { outgoing.put(&[part(&mut [7])]) }.unwrap();
                    if outgoing.takes_the_wish_to_be_rung() {
                        *rings.lock().unwrap() += 1;
                        rung.notify_all();
                    }
                    // SAFETY: nothing is written.
                    unsafe { incoming.take(&[part(&mut [0])], Taking::Discard) }.unwrap();
                }
            });
        });
    }
}
