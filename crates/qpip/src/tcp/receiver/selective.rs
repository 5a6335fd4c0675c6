//! What is told of what came behind holes, and of what came twice (RFC 2018, 2883).

use super::{Owed, RECENT, Receiver};
use crate::tcp::ranges::Ranges;

/// What came out of order, or twice. It takes memory from then on until all that is told.
#[derive(Debug, Default)]
pub(super) struct Disorder {
    /// What has come behind holes.
    placed: Ranges,
    /// Positions in the blocks that were told last, the newest first, by their low bits:
    /// they are told in this order (RFC 2018, 4). Positions that are in no block any
    /// more say nothing.
    recent: [u32; RECENT],
    /// What came twice (RFC 2883), from here on; nothing where it has no length.
    duplicate: u64,
    duplicate_len: u32,
}

impl Disorder {
    /// The block that this position is in is told first from now on.
    fn note_recent(&mut self, position: u64) {
        let low = position as u32;
        let until = self.recent.iter().position(|known| *known == low).unwrap_or(RECENT - 1);
        self.recent[..=until].rotate_right(1);
        self.recent[0] = low;
    }
}

impl Receiver {
    /// A segment came of which this is known: all of it, or its first part.
    pub(super) fn note_duplicate(&mut self, at: i64, end: u64) {
        let start = at.max(1) as u64;
        // What is behind a hole, and partly in front of one, is not told: the block has to
        // be contiguous, and the first part of what is there is enough.
        let known = if start < self.next { Some(self.next) } else { self.placed().end_at(start) };
        let end = end.min(known.unwrap_or(0));
        if start < end {
            let disorder = self.disorder.get_or_insert_default();
            disorder.duplicate = start;
            disorder.duplicate_len = u32::try_from(end - start).unwrap_or(u32::MAX);
            disorder.note_recent(start);
        }
        self.owed = Owed::NOW;
    }

    /// A segment came that was acknowledged before, and so has no place here any more
    /// (RFC 2883, 4).
    pub(crate) fn note_old(&mut self, at: i64, len: u32) {
        let end = (at + i64::from(len)).max(0) as u64;
        self.note_duplicate(at, end.min(self.next));
    }

    /// What has come behind holes.
    #[inline]
    pub(super) fn placed(&self) -> &Ranges {
        self.disorder.as_ref().map_or(&Ranges::None, |disorder| &disorder.placed)
    }

    /// Something came behind a hole, or there are holes and it filled one.
    #[cold]
    pub(super) fn place_out_of_order(&mut self, start: u64, end: u64) {
        let disorder = self.disorder.get_or_insert_default();
        disorder.note_recent(start);
        disorder.placed.insert(start, end);
        if let Some(end) = disorder.placed.take_first(self.next) {
            self.next = end;
        }
    }

    /// Forgets what came behind holes from this position on. Returns how many bytes that was.
    pub(super) fn forget_placed(&mut self, position: u64) -> u64 {
        // Nothing came behind a hole.
        let Some(disorder) = &mut self.disorder else { return 0 };
        let sum = |ranges: &Ranges| ranges.iter().map(|(start, end)| end - start).sum::<u64>();
        let before = sum(&disorder.placed);
        disorder.placed.truncate(position);
        before - sum(&disorder.placed)
    }

    /// All that has come is acknowledged now.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        self.asks_again = false;
        self.acknowledged = self.next;
        self.owed = Owed::NOTHING;
        self.unanswered = 0;
        if let Some(disorder) = &mut self.disorder {
            disorder.duplicate_len = 0;
            if disorder.placed.is_empty() {
                self.disorder = None;
            }
        }
    }

    /// What the other side was last told to have come.
    #[inline]
    pub(crate) const fn reported(&self) -> u64 {
        self.acknowledged
    }

    /// Is there something to be told beyond the next number?
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        let disorder = self.disorder.as_deref();
        disorder.is_some_and(|known| !known.placed.is_empty() || known.duplicate_len > 0)
    }

    /// What has come behind holes: first what came twice (RFC 2883), then what
    /// came last (RFC 2018, 4), then the rest from the front on.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = self.disorder.as_deref().map(|disorder| self.blocks_of(disorder));
        all.into_iter().flatten()
    }

    fn blocks_of<'a>(&'a self, disorder: &'a Disorder) -> impl Iterator<Item = (u32, u32)> + 'a {
        let Disorder { placed, recent, duplicate, duplicate_len } = disorder;
        // All of them are less than a window ahead.
        let position = |low: u32| self.next + u64::from(low.wrapping_sub(self.next as u32));
        let recent = recent.map(|low| placed.around(position(low)));
        let is_new = move |nth: usize| !recent[..nth].contains(&recent[nth]);
        let first = (0..RECENT).filter(move |nth| is_new(*nth)).filter_map(move |nth| recent[nth]);
        let rest = placed.iter().filter(move |range| !recent.contains(&Some(*range)));
        let number = |(start, end)| (self.number_of(start), self.number_of(end));
        let end = duplicate + u64::from(*duplicate_len);
        let twice = (*duplicate_len > 0).then_some((*duplicate, end));
        twice.into_iter().chain(first).chain(rest).map(number)
    }
}
