//! What is told of what came behind holes, and of what came twice (RFC 2018, 2883).

use super::{Owed, RECENT, Receiver};

impl Receiver {
    /// A segment came of which this is known: all of it, or its first part.
    pub(super) fn note_duplicate(&mut self, at: i64, end: u64) {
        let start = at.max(1) as u64;
        // What is behind a hole, and partly in front of one, is not told: the block has to
        // be contiguous, and the first part of what is there is enough.
        let known = if start < self.next { Some(self.next) } else { self.placed.end_at(start) };
        let end = end.min(known.unwrap_or(0));
        if start < end {
            self.duplicate = start;
            self.duplicate_len = u32::try_from(end - start).unwrap_or(u32::MAX);
            self.note_recent(start);
        }
        self.owed = Owed::Now;
    }

    /// A segment came that was acknowledged before, and so has no place here any more
    /// (RFC 2883, 4).
    pub(crate) fn note_old(&mut self, at: i64, len: u32) {
        let end = (at + i64::from(len)).max(0) as u64;
        self.note_duplicate(at, end.min(self.next));
    }

    /// The block that this position is in is told first from now on.
    pub(super) fn note_recent(&mut self, position: u64) {
        let low = position as u32;
        let until = self.recent.iter().position(|known| *known == low).unwrap_or(RECENT - 1);
        self.recent[..=until].rotate_right(1);
        self.recent[0] = low;
    }

    /// All that has come is acknowledged now.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        self.asks_again = false;
        self.acknowledged = self.next;
        self.owed = Owed::Nothing;
        self.unanswered = 0;
        self.duplicate_len = 0;
    }

    /// What the other side was last told to have come.
    #[inline]
    pub(crate) const fn reported(&self) -> u64 {
        self.acknowledged
    }

    /// Is there something to be told beyond the next number?
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        !self.placed.is_empty() || self.duplicate_len > 0
    }

    /// What has come behind holes: first what came twice (RFC 2883), then what
    /// came last (RFC 2018, 4), then the rest from the front on.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        // All of them are less than a window ahead.
        let position = |low: u32| self.next + u64::from(low.wrapping_sub(self.next as u32));
        let recent = self.recent.map(|low| self.placed.around(position(low)));
        let is_new = move |nth: usize| !recent[..nth].contains(&recent[nth]);
        let first = (0..RECENT).filter(move |nth| is_new(*nth)).filter_map(move |nth| recent[nth]);
        let rest = self.placed.iter().filter(move |range| !recent.contains(&Some(*range)));
        let number = |(start, end)| (self.number_of(start), self.number_of(end));
        let end = self.duplicate + u64::from(self.duplicate_len);
        let twice = (self.duplicate_len > 0).then_some((self.duplicate, end));
        twice.into_iter().chain(first).chain(rest).map(number)
    }
}
