//! The two pools of buffers: pages, and a few that take the longest packet.
//!
//! A buffer has a *lead* before its page, so that the page is aligned in memory
//! while what belongs before the payload (a transport header, when the guess of
//! its length was wrong or none was made) has room in front of it:
//!
//! ```text
//! ├── LEAD ──┤── page_len or LARGE ──┤
//!            ▲ a payload that was guessed right starts here
//! ```

use alloc::vec::Vec;

use landfall_placement::{Area, Span};

/// The bytes in front of each page. One memory page, so that the page is aligned.
pub const LEAD: u32 = 4096;
/// What the large buffers take: more than the longest IP packet, in whole pages.
pub const LARGE: u32 = 65_536;

/// Names a buffer, from when it was taken until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId {
    /// Its place in the pools: pages first, then the large ones.
    pub index: u32,
    /// How often the place was taken before.
    pub generation: u32,
}

impl BufferId {
    /// The name of no buffer: free ones have even generations.
    pub(crate) const NONE: Self = Self { index: 0, generation: 0 };
}

/// The buffers of one receiver.
#[derive(Debug)]
pub struct Buffers {
    pages: Pool,
    large: Pool,
    /// Even: free. Odd: taken.
    generations: Vec<u32>,
}

#[derive(Debug)]
struct Pool {
    area: Area,
    len: u32,
    count: u32,
    free: Vec<u32>,
}

impl Pool {
    fn new(area: Area, len: u32) -> Self {
        let count = area.len / u64::from(LEAD + len);
        let count = u32::try_from(count).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1);
        // The first buffer is taken first.
        Self { area, len, count, free: (0..count).rev().collect() }
    }
}

impl Buffers {
    /// How many bytes of a region `count` buffers with `len` bytes of page take.
    #[must_use]
    pub const fn bytes_needed(count: u32, len: u32) -> u64 {
        count as u64 * (LEAD as u64 + len as u64)
    }

    /// As many pages of `page_len` as `pages` has room for, and as many large
    /// buffers as `large` has room for.
    #[must_use]
    pub fn new(pages: Area, page_len: u32, large: Area) -> Self {
        let pages = Pool::new(pages, page_len);
        let large = Pool::new(large, LARGE);
        let all = (pages.count + large.count) as usize;
        Self { pages, large, generations: alloc::vec![0; all] }
    }

    /// Takes a buffer with room for `len` bytes behind its lead: a page if that is
    /// enough, else a large one.
    pub fn take(&mut self, len: u32) -> Option<BufferId> {
        let (pool, first) = if len <= self.pages.len {
            (&mut self.pages, 0)
        } else if len <= self.large.len {
            (&mut self.large, self.pages.count)
        } else {
            return None;
        };
        let index = first + pool.free.pop()?;
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        Some(BufferId { index, generation: *generation })
    }

    /// The buffer is needed no longer. False if it was given back before.
    pub fn give_back(&mut self, id: BufferId) -> bool {
        if !self.is_taken(id) {
            return false;
        }
        self.generations[id.index as usize] = id.generation.wrapping_add(1);
        match id.index.checked_sub(self.pages.count) {
            None => self.pages.free.push(id.index),
            Some(large) => self.large.free.push(large),
        }
        true
    }

    /// Whether this buffer is taken, and by anyone who has this name.
    #[must_use]
    pub fn is_taken(&self, id: BufferId) -> bool {
        id.generation & 1 == 1
            && self.generations.get(id.index as usize).is_some_and(|now| *now == id.generation)
    }

    /// `len` bytes from `at` on, which counts from the start of the lead: the page
    /// starts at [`LEAD`]. Cut where the buffer ends.
    #[must_use]
    #[inline]
    pub fn span(&self, id: BufferId, at: u32, len: u32) -> Span {
        let (pool, index) = match id.index.checked_sub(self.pages.count) {
            None => (&self.pages, id.index),
            Some(large) => (&self.large, large),
        };
        let stride = LEAD + pool.len;
        let start = pool.area.offset + u64::from(index) * u64::from(stride);
        let at = at.min(stride);
        pool.area.region.span(start + u64::from(at), len.min(stride - at))
    }

    /// The room behind the lead.
    #[must_use]
    #[inline]
    pub const fn capacity(&self, id: BufferId) -> u32 {
        if id.index < self.pages.count { self.pages.len } else { self.large.len }
    }

    /// How many pages are free.
    #[must_use]
    pub const fn free_pages(&self) -> usize {
        self.pages.free.len()
    }

    /// How many large buffers are free.
    #[must_use]
    pub const fn free_large(&self) -> usize {
        self.large.free.len()
    }

    /// How long a page is.
    #[must_use]
    pub const fn page_len(&self) -> u32 {
        self.pages.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;

    fn buffers() -> Buffers {
        let pages = Area { region: RegionId::new(1, 1), offset: 4096, len: 4 * 8192 + 5 };
        let large = Area { region: RegionId::new(2, 1), offset: 0, len: 69_632 };
        Buffers::new(pages, 4096, large)
    }

    #[test]
    fn buffers_lie_apart_and_inside() {
        let mut buffers = buffers();
        let taken: Vec<_> = core::iter::from_fn(|| buffers.take(4096)).collect();
        assert_eq!(taken.len(), 4);
        let spans: Vec<_> = taken.iter().map(|id| buffers.span(*id, 0, u32::MAX)).collect();
        for (n, span) in spans.iter().enumerate() {
            assert_eq!(span.len, 8192);
            assert!(span.end().unwrap() <= 4096 + 4 * 8192);
            assert!(spans[n + 1..].iter().all(|other| !span.overlaps(other)));
        }
        assert!(buffers.take(1).is_none(), "large ones are for what needs them");
        let large = buffers.take(4097).unwrap();
        assert_eq!(buffers.span(large, LEAD, 70_000).len, LARGE);
        assert!(buffers.take(65_536).is_none() && buffers.take(65_537).is_none());
    }

    #[test]
    fn invariant_7_a_stale_buffer_gives_nothing_back() {
        let mut buffers = buffers();
        let first = buffers.take(1).unwrap();
        assert!(buffers.is_taken(first) && buffers.give_back(first));
        assert!(!buffers.is_taken(first) && !buffers.give_back(first));
        let again = buffers.take(1).unwrap();
        assert_eq!(again.index, first.index);
        assert!(!buffers.give_back(first) && buffers.is_taken(again));
        assert!(!buffers.give_back(BufferId { index: 99, generation: 1 }));
    }
}
