//! Doorbells: how work requests get from the thread that posts them to the one
//! that runs the adapter, without a lock and without a system call.
//!
//! Each queue of a queue pair, and each queue of room that is shared, is a ring of
//! [`Entry`]s between two threads ([`WorkRing`] is its user's end). What
//! was posted is visible in the ring before the bit of its queue pair is set in
//! [`Doorbells`]; the adapter takes the bits and then empties those rings. So no
//! request is overlooked, and none costs a look at idle queue pairs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qpip::{Access, Buffer, PostError};
use rtrb::{Consumer, Producer, RingBuffer};

use super::completion_queue::QueueState;
use super::memory::{DomainName, Part};

/// Something in a ring. A work request is its [`Entry::Work`], and behind it, at
/// once, its other buffers and its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// A request with its first buffer. This many entries follow that belong to it.
    Work {
        id: u64,
        buffer: Buffer,
        more: u16,
        is_signaled: bool,
    },
    Buffer(Buffer),
    To(SocketAddr),
    /// The word that arrives with the message.
    Immediate(u32),
}

/// A work request as the adapter takes it from a ring.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) to: Option<SocketAddr>,
    pub(crate) is_signaled: bool,
    pub(crate) immediate: Option<u32>,
}

/// A ring for `depth` requests of at most `entries` entries each.
pub(crate) fn ring(depth: u32, entries: u16) -> (Producer<Entry>, Consumer<Entry>) {
    RingBuffer::new(depth as usize * usize::from(entries))
}

/// What a request has beside its memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    pub(crate) to: Option<SocketAddr>,
    pub(crate) is_signaled: bool,
    pub(crate) immediate: Option<u32>,
}

/// Puts a request into a ring, or nothing of it.
#[inline]
pub(crate) fn push(
    ring: &mut Producer<Entry>,
    id: u64,
    mut buffers: impl ExactSizeIterator<Item = Buffer>,
    aside: Aside,
) -> Result<(), PostError> {
    let Some(buffer) = buffers.next() else { return Err(PostError::Empty) };
    let Aside { to, is_signaled, immediate } = aside;
    let more = buffers.len() + usize::from(to.is_some()) + usize::from(immediate.is_some());
    if more == 0 {
        let entry = Entry::Work { id, buffer, more: 0, is_signaled };
        return ring.push(entry).map_err(|_| PostError::QueueFull);
    }
    let more = u16::try_from(more).map_err(|_| PostError::TooManyBuffers)?;
    let chunk = ring.write_chunk_uninit(1 + usize::from(more)).map_err(|_| PostError::QueueFull)?;
    let aside = to.map(Entry::To).into_iter().chain(immediate.map(Entry::Immediate));
    let rest = buffers.map(Entry::Buffer).chain(aside);
    let first = Entry::Work { id, buffer, more, is_signaled };
    chunk.fill_from_iter(std::iter::once(first).chain(rest));
    Ok(())
}

/// Takes the next request out of a ring. Returns whether there was one.
#[inline]
pub(crate) fn pop(ring: &mut Consumer<Entry>, into: &mut Request) -> bool {
    into.buffers.clear();
    (into.to, into.immediate) = (None, None);
    let Ok(Entry::Work { id, buffer, more, is_signaled }) = ring.pop() else { return false };
    (into.id, into.is_signaled) = (id, is_signaled);
    into.buffers.push(buffer);
    for _ in 0..more {
        // All of a request is put into the ring at once.
        match ring.pop() {
            Ok(Entry::Buffer(buffer)) => into.buffers.push(buffer),
            Ok(Entry::To(to)) => into.to = Some(to),
            Ok(Entry::Immediate(word)) => into.immediate = Some(word),
            Ok(Entry::Work { .. }) | Err(_) => break,
        }
    }
    true
}

/// The user's end of a queue of work requests.
pub(crate) struct WorkRing {
    /// Never locked, for only its owner posts: it lets others look at the queue
    /// meanwhile.
    ring: Mutex<Producer<Entry>>,
    depth: u32,
    /// Requests posted, ever, and those of them that are known to be done.
    posted: u32,
    done: u32,
    completions: Arc<QueueState>,
}

/// A work request, as its user posts it.
#[derive(Clone, Copy)]
pub(crate) struct Posting<'a> {
    pub(crate) id: u64,
    pub(crate) parts: &'a [Part],
    pub(crate) to: Option<SocketAddr>,
    pub(crate) is_signaled: bool,
    pub(crate) immediate: Option<u32>,
}

/// What memory its requests may name.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) domain: DomainName,
    pub(crate) wanted: Access,
    pub(crate) buffers: u16,
}

impl WorkRing {
    pub(crate) fn new(ring: Producer<Entry>, depth: u32, completions: Arc<QueueState>) -> Self {
        Self { ring: Mutex::new(ring), depth, posted: 0, done: 0, completions }
    }

    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// Is there room for one more? Looks at what the adapter says only when what
    /// is known does not suffice.
    #[inline]
    pub(crate) fn has_room(&mut self, done: impl FnOnce() -> u32) -> bool {
        if self.posted.wrapping_sub(self.done) < self.depth {
            return true;
        }
        self.done = done();
        self.posted.wrapping_sub(self.done) < self.depth
    }

    /// Puts a request into the ring: the adapter's bell is to be rung then. `done` says how
    /// many the adapter has done.
    #[inline]
    pub(crate) fn put(
        &mut self,
        reach: Reach,
        request: Posting<'_>,
        done: impl FnOnce() -> u32,
    ) -> Result<(), PostError> {
        let Posting { id, parts, to, is_signaled, immediate } = request;
        if parts.len() > usize::from(reach.buffers) {
            return Err(PostError::TooManyBuffers);
        }
        let mut len = 0u64;
        for part in parts {
            part.check(reach.domain, reach.wanted)?;
            len += u64::from(part.len());
        }
        match u32::try_from(len) {
            // A datagram may be empty, as long as it says so with a part of no bytes.
            Ok(0) if to.is_none() || parts.is_empty() => return Err(PostError::Empty),
            Ok(_) => {}
            Err(_) => return Err(PostError::TooLong),
        }
        if !self.has_room(done) {
            return Err(PostError::QueueFull);
        }
        if !self.completions.reserve() {
            return Err(PostError::CompletionQueueFull);
        }
        let ring = self.ring.get_mut().unwrap_or_else(PoisonError::into_inner);
        let buffers = parts.iter().map(|part| part.buffer);
        if let Err(error) = push(ring, id, buffers, Aside { to, is_signaled, immediate }) {
            self.completions.release(1);
            return Err(error);
        }
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }
}

/// Which queue pairs, and which queues of shared room, have something in their rings: a bit for each, and above
/// them a bit for each 64.
#[derive(Debug)]
pub(crate) struct Doorbells {
    summary: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
}

const BITS: usize = u64::BITS as usize;

impl Doorbells {
    /// For queues with numbers below this.
    pub(crate) fn new(queues: usize) -> Self {
        let zeroed = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let words = queues.div_ceil(BITS).max(1);
        Self { summary: zeroed(words.div_ceil(BITS)), words: zeroed(words) }
    }

    /// Something was put into a ring of this queue pair.
    #[inline]
    pub(crate) fn ring(&self, index: u32) {
        let (word, bit) = (index as usize / BITS, index as usize % BITS);
        let Some(known) = self.words.get(word) else { return };
        known.fetch_or(1 << bit, Ordering::SeqCst);
        // Somebody else may have rung in this word and not said so yet: who returns from here
        // relies on being heard from now on. A bit that is seen here is taken before the word.
        let (summary, bit) = (&self.summary[word / BITS], 1 << (word % BITS));
        if summary.load(Ordering::SeqCst) & bit == 0 {
            summary.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Has any been rung?
    pub(crate) fn any(&self) -> bool {
        self.summary.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Takes those that have been rung, in any order.
    #[inline]
    pub(crate) fn take(&self, mut each: impl FnMut(u32)) {
        for (high, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for middle in bits_of(summary.swap(0, Ordering::SeqCst)) {
                let word = high * BITS + middle;
                for low in bits_of(self.words[word].swap(0, Ordering::SeqCst)) {
                    each((word * BITS + low) as u32);
                }
            }
        }
    }
}

/// The numbers of the bits that are set.
fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use qpip::MemoryKey;

    fn buffer(offset: u64) -> Buffer {
        Buffer::new(MemoryKey::new(1, 1), offset, 10)
    }

    #[test]
    fn each_that_was_rung_is_taken_once() {
        let doorbells = Doorbells::new(10_000);
        for index in [0, 63, 64, 4095, 4096, 9_999, 63] {
            doorbells.ring(index);
        }
        doorbells.ring(1 << 20);
        let mut taken = Vec::new();
        doorbells.take(|index| taken.push(index));
        assert_eq!(taken, [0, 63, 64, 4095, 4096, 9_999]);
        assert!(!doorbells.any());
        doorbells.take(|index| panic!("{index} was taken before"));
    }

    /// Seen: an answer was posted and the connection shut down behind it, and the end went
    /// first, while another thread stood still between the two steps of its own ring.
    #[test]
    fn who_has_rung_is_heard_though_another_is_in_the_middle_of_it() {
        let doorbells = Doorbells::new(256);
        // The first step of a ring for 65, by a thread that goes on later.
        doorbells.words[1].fetch_or(1 << 1, Ordering::SeqCst);
        doorbells.ring(66);
        assert!(doorbells.any());
        let mut taken = Vec::new();
        doorbells.take(|index| taken.push(index));
        assert_eq!(taken, [65, 66]);
    }

    #[test]
    fn a_request_goes_through_a_ring_whole_or_not_at_all() {
        let (mut producer, mut consumer) = ring(2, 3);
        let to = Some(([10, 0, 0, 1], 7).into());
        let signaled = Aside { is_signaled: true, ..Aside::default() };
        push(&mut producer, 1, [buffer(0), buffer(1)].into_iter(), Aside { to, ..signaled })
            .unwrap();
        let with_word = Aside { immediate: Some(7), ..Aside::default() };
        push(&mut producer, 2, [buffer(2)].into_iter(), with_word).unwrap();
        let full = push(&mut producer, 3, [buffer(3), buffer(4)].into_iter(), signaled);
        assert_eq!(full, Err(PostError::QueueFull));
        assert_eq!(push(&mut producer, 4, [].into_iter(), signaled), Err(PostError::Empty));
        let mut request = Request::default();
        assert!(pop(&mut consumer, &mut request));
        assert_eq!((request.id, request.buffers.len(), request.to), (1, 2, to));
        assert!(request.is_signaled && request.immediate.is_none());
        assert!(pop(&mut consumer, &mut request));
        assert_eq!((request.id, &request.buffers[..], request.to), (2, &[buffer(2)][..], None));
        assert!(!request.is_signaled && request.immediate == Some(7));
        assert!(!pop(&mut consumer, &mut request));
    }

    #[test]
    fn rung_by_many_threads_none_is_lost() {
        const EACH: u64 = 2_000;
        let doorbells = Doorbells::new(256);
        let (senders, mut rings): (Vec<_>, Vec<_>) = (0..4).map(|_| ring(EACH as u32, 1)).unzip();
        std::thread::scope(|scope| {
            for (index, mut sender) in (0..).map(|n| n * 70).zip(senders) {
                let doorbells = &doorbells;
                scope.spawn(move || {
                    for id in 0..EACH {
                        push(&mut sender, id, [buffer(id)].into_iter(), Aside::default()).unwrap();
                        doorbells.ring(index);
                    }
                });
            }
            let (mut got, mut request) = ([0; 4], Request::default());
            // Only what was rung for is looked at: a lost ring would end this
            // never, and the test's bound would.
            let start = std::time::Instant::now();
            while got != [EACH; 4] {
                assert!(start.elapsed().as_secs() < 60, "{got:?}");
                doorbells.take(|index| {
                    let nth = index as usize / 70;
                    while pop(&mut rings[nth], &mut request) {
                        assert_eq!(request.id, got[nth]);
                        got[nth] += 1;
                    }
                });
            }
        });
    }
}
