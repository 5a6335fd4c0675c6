//! Which bytes of which region: [`RegionId`], [`Span`], and the bounded list [`Spans`].

use core::fmt;

/// Names memory that a user registered, and the grant under which it was.
///
/// The generation makes a stale name harmless: once a region was taken back,
/// its slot is given out again under another generation, and every use of the
/// old name is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId {
    /// The slot in the region table.
    pub index: u32,
    /// How often that slot was granted before.
    pub generation: u32,
}

impl RegionId {
    /// The name of slot `index` in its `generation`.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The part of this region that starts at `offset` and is `len` bytes long.
    #[must_use]
    pub const fn span(self, offset: u64, len: u32) -> Span {
        Span { region: self, offset, len }
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {}.{}", self.index, self.generation)
    }
}

/// A part of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The region that the bytes belong to.
    pub region: RegionId,
    /// Where the span starts in the region.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u32,
}

impl Span {
    /// The first offset behind the span, or `None` where that is not a number:
    /// such a span lies in no region.
    #[must_use]
    pub const fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len as u64)
    }

    /// The first `len` bytes of the span and the rest.
    /// A `len` beyond the span gives the whole span and an empty rest.
    #[must_use]
    pub const fn split_at(self, len: u32) -> (Self, Self) {
        let len = if len < self.len { len } else { self.len };
        let rest = Self {
            region: self.region,
            offset: self.offset.saturating_add(len as u64),
            len: self.len - len,
        };
        (Self { len, ..self }, rest)
    }

    /// Do the two name a byte in common?
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.region.index == other.region.index
            && self.region.generation == other.region.generation
            && self.offset < other.offset.saturating_add(other.len as u64)
            && other.offset < self.offset.saturating_add(self.len as u64)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}, +{})", self.region, self.offset, self.len)
    }
}

/// The list had no room for one more span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gather list holds at most {} spans", Spans::CAPACITY)
    }
}

impl core::error::Error for Full {}

/// A bounded list of spans: a driver owns it, an engine fills it.
#[derive(Clone)]
pub struct Spans {
    list: [Span; Self::CAPACITY],
    len: usize,
}

impl Spans {
    /// The most spans that one unit may be gathered from or scattered to.
    pub const CAPACITY: usize = 64;

    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        const NOTHING: Span = RegionId::new(0, 0).span(0, 0);
        Self { list: [NOTHING; Self::CAPACITY], len: 0 }
    }

    /// Forgets every span.
    #[inline]
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a span at the end; an empty span adds nothing.
    ///
    /// # Errors
    /// [`Full`] when the list holds [`Self::CAPACITY`] spans already.
    #[inline]
    pub fn push(&mut self, span: Span) -> Result<(), Full> {
        if span.len == 0 {
            return Ok(());
        }
        let slot = self.list.get_mut(self.len).ok_or(Full)?;
        *slot = span;
        self.len += 1;
        Ok(())
    }

    /// Keeps the first `len` bytes of all spans together.
    pub fn truncate(&mut self, mut len: u64) {
        for (n, span) in self.list.iter_mut().take(self.len).enumerate() {
            if len == 0 {
                self.len = n;
                return;
            }
            let kept = u32::try_from(len).unwrap_or(u32::MAX);
            *span = span.split_at(kept).0;
            len -= u64::from(span.len);
        }
    }

    /// How many bytes all spans have together.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.iter().map(|span| u64::from(span.len)).sum()
    }

    /// The spans, in order.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Span] {
        &self.list[..self.len]
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}

impl core::ops::Deref for Spans {
    type Target = [Span];

    #[inline]
    fn deref(&self) -> &[Span] {
        self.as_slice()
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

// A long piece of registered memory.

/// A part of a region, of any length. A [`Span`] is what one unit needs and
/// holds at most 4 GiB; an area is what a whole message or stream needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Area {
    /// The region that the bytes belong to.
    pub region: RegionId,
    /// Where the area starts in the region.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

impl Area {
    /// The part of `region` that starts at `offset` and is `len` bytes long.
    #[must_use]
    pub const fn new(region: RegionId, offset: u64, len: u64) -> Self {
        Self { region, offset, len }
    }

    /// Has it bytes, and is its end a number?
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.len > 0 && self.offset.checked_add(self.len).is_some()
    }

    /// Do the two name a byte in common? Both must be valid.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.region.index == other.region.index
            && self.region.generation == other.region.generation
            && self.offset < other.offset.saturating_add(other.len)
            && other.offset < self.offset.saturating_add(self.len)
    }

    /// The `len` bytes from `at` on, which must lie inside.
    #[must_use]
    #[inline]
    pub const fn span(&self, at: u64, len: u32) -> Span {
        Span { region: self.region, offset: self.offset.wrapping_add(at), len }
    }
}

impl From<Span> for Area {
    fn from(span: Span) -> Self {
        Self::new(span.region, span.offset, u64::from(span.len))
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}, +{})", self.region, self.offset, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: RegionId = RegionId::new(3, 1);

    #[test]
    fn a_full_list_refuses_and_keeps_what_it_has() {
        let mut spans = Spans::new();
        for n in 0..Spans::CAPACITY as u64 {
            spans.push(R.span(n, 1)).unwrap();
        }
        assert_eq!(spans.push(R.span(99, 1)), Err(Full));
        assert_eq!(spans.len(), Spans::CAPACITY);
        assert_eq!(spans.total_len(), Spans::CAPACITY as u64);
        assert_eq!(spans.push(R.span(99, 0)), Ok(()), "nothing always fits");
    }

    #[test]
    fn an_end_beyond_all_numbers_is_no_end() {
        assert_eq!(R.span(u64::MAX, 1).end(), None);
        assert_eq!(R.span(u64::MAX - 1, 1).end(), Some(u64::MAX));
    }

    #[test]
    fn spans_split_without_losing_a_byte() {
        let (head, rest) = R.span(10, 7).split_at(3);
        assert_eq!((head, rest), (R.span(10, 3), R.span(13, 4)));
        let (all, none) = R.span(10, 7).split_at(100);
        assert_eq!((all, none), (R.span(10, 7), R.span(17, 0)));
    }

    #[test]
    fn a_list_is_cut_anywhere() {
        let mut all = Spans::new();
        for span in [R.span(0, 3), R.span(10, 1), R.span(20, 4)] {
            all.push(span).unwrap();
        }
        let bytes = |spans: &[Span]| -> std::vec::Vec<u64> {
            spans.iter().flat_map(|span| span.offset..span.end().unwrap()).collect()
        };
        for len in 0..=10 {
            let mut cut = all.clone();
            cut.truncate(len);
            assert_eq!(cut.total_len(), len.min(8));
            assert_eq!(bytes(&cut), bytes(&all)[..len.min(8) as usize], "{len}");
            assert!(cut.iter().all(|span| span.len > 0), "no empty spans: {cut:?}");
        }
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(R.span(0, 10).overlaps(&R.span(9, 1)));
        assert!(!R.span(0, 10).overlaps(&R.span(10, 1)));
        assert!(!R.span(0, 10).overlaps(&RegionId::new(3, 2).span(0, 10)), "another grant");
    }
}
