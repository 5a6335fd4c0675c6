//! Doorbells: how work requests get from the thread that posts them to the one
//! that runs the adapter, without a lock and without a system call.
//!
//! Each queue of a queue pair is a ring of [`Entry`]s between two threads. What
//! was posted is visible in the ring before the bit of its queue pair is set in
//! [`Doorbells`]; the adapter takes the bits and then empties those rings. So no
//! request is overlooked, and none costs a look at idle queue pairs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use qpip::{Buffer, PostError};
use rtrb::{Consumer, Producer, RingBuffer};

/// Something in a ring. A work request is its [`Entry::Work`], and behind it, at
/// once, its other buffers and its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// A request with its first buffer. This many entries follow that belong to it.
    Work {
        id: u64,
        buffer: Buffer,
        more: u16,
    },
    Buffer(Buffer),
    To(SocketAddr),
}

/// A work request as the adapter takes it from a ring.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) to: Option<SocketAddr>,
}

/// A ring for `depth` requests of at most `entries` entries each.
pub(crate) fn ring(depth: u32, entries: u16) -> (Producer<Entry>, Consumer<Entry>) {
    RingBuffer::new(depth as usize * usize::from(entries))
}

/// Puts a request into a ring, or nothing of it.
#[inline]
pub(crate) fn push(
    ring: &mut Producer<Entry>,
    id: u64,
    mut buffers: impl ExactSizeIterator<Item = Buffer>,
    to: Option<SocketAddr>,
) -> Result<(), PostError> {
    let Some(buffer) = buffers.next() else { return Err(PostError::Empty) };
    let more = buffers.len() + usize::from(to.is_some());
    if more == 0 {
        return ring.push(Entry::Work { id, buffer, more: 0 }).map_err(|_| PostError::QueueFull);
    }
    let more = u16::try_from(more).map_err(|_| PostError::TooManyBuffers)?;
    let chunk = ring.write_chunk_uninit(1 + usize::from(more)).map_err(|_| PostError::QueueFull)?;
    let rest = buffers.map(Entry::Buffer).chain(to.map(Entry::To));
    chunk.fill_from_iter(std::iter::once(Entry::Work { id, buffer, more }).chain(rest));
    Ok(())
}

/// Takes the next request out of a ring. Returns whether there was one.
#[inline]
pub(crate) fn pop(ring: &mut Consumer<Entry>, into: &mut Request) -> bool {
    into.buffers.clear();
    into.to = None;
    let Ok(Entry::Work { id, buffer, more }) = ring.pop() else { return false };
    into.id = id;
    into.buffers.push(buffer);
    for _ in 0..more {
        // All of a request is put into the ring at once.
        match ring.pop() {
            Ok(Entry::Buffer(buffer)) => into.buffers.push(buffer),
            Ok(Entry::To(to)) => into.to = Some(to),
            Ok(Entry::Work { .. }) | Err(_) => break,
        }
    }
    true
}

/// Which queue pairs have something in their rings: a bit for each, and above
/// them a bit for each 64.
#[derive(Debug)]
pub(crate) struct Doorbells {
    summary: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
}

const BITS: usize = u64::BITS as usize;

impl Doorbells {
    /// For queue pairs with numbers below this.
    pub(crate) fn new(queue_pairs: usize) -> Self {
        let zeroed = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let words = queue_pairs.div_ceil(BITS).max(1);
        Self { summary: zeroed(words.div_ceil(BITS)), words: zeroed(words) }
    }

    /// Something was put into a ring of this queue pair.
    #[inline]
    pub(crate) fn ring(&self, index: u32) {
        let (word, bit) = (index as usize / BITS, index as usize % BITS);
        let Some(known) = self.words.get(word) else { return };
        if known.fetch_or(1 << bit, Ordering::SeqCst) == 0 {
            self.summary[word / BITS].fetch_or(1 << (word % BITS), Ordering::SeqCst);
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

    #[test]
    fn a_request_goes_through_a_ring_whole_or_not_at_all() {
        let (mut producer, mut consumer) = ring(2, 3);
        let to = Some(([10, 0, 0, 1], 7).into());
        push(&mut producer, 1, [buffer(0), buffer(1)].into_iter(), to).unwrap();
        push(&mut producer, 2, [buffer(2)].into_iter(), None).unwrap();
        let full = push(&mut producer, 3, [buffer(3), buffer(4), buffer(5)].into_iter(), None);
        assert_eq!(full, Err(PostError::QueueFull));
        assert_eq!(push(&mut producer, 4, [].into_iter(), None), Err(PostError::Empty));
        let mut request = Request::default();
        assert!(pop(&mut consumer, &mut request));
        assert_eq!((request.id, request.buffers.len(), request.to), (1, 2, to));
        assert!(pop(&mut consumer, &mut request));
        assert_eq!((request.id, &request.buffers[..], request.to), (2, &[buffer(2)][..], None));
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
                        push(&mut sender, id, [buffer(id)].into_iter(), None).unwrap();
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
