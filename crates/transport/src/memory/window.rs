//! [`Window`]: what a grant covers: where the bytes lie, how many, and what is allowed; and
//! [`Loans`]: which parts of it somebody reads as a slice just now.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use landfall_placement::{Span, WordOp};

use super::words::WORD;
use super::{AccessError, RawSpan, Rights};

/// Bytes with the rights to them. Whether they are still there, whoever holds
/// the window has to know: by a pin, or by owning the memory.
#[derive(Clone, Copy)]
pub(super) struct Window {
    base: NonNull<u8>,
    len: usize,
    rights: Rights,
    /// Of parts that may not be written just now. It lives as long as the
    /// memory: see [`with_loans`](Self::with_loans).
    loans: Option<NonNull<Loans>>,
}

impl Window {
    /// # Safety
    /// `base` is a multiple of eight. From it on there are `len` bytes, filled
    /// up to a multiple of eight: initialised, writable, and as long as this
    /// window or a copy of it is used, touched in user space through atomic
    /// words only.
    pub(super) unsafe fn new(base: NonNull<u8>, len: usize, rights: Rights) -> Self {
        Self { base, len, rights, loans: None }
    }

    /// The same, where each write asks these loans first.
    ///
    /// # Safety
    /// The loans live as long as this window or a copy of it is used.
    pub(super) unsafe fn with_loans(self, loans: NonNull<Loans>) -> Self {
        Self { loans: Some(loans), ..self }
    }

    pub(super) const fn len(&self) -> u64 {
        self.len as u64
    }

    pub(super) const fn rights(&self) -> Rights {
        self.rights
    }

    /// The bytes as words.
    ///
    /// # Safety
    /// The memory outlives the slice: a pin is held, or its owner is borrowed.
    pub(super) unsafe fn words<'a>(&self) -> &'a [AtomicU64] {
        // SAFETY: `new` was promised all that; other users' writes are
        // allowed, since atomics may change behind a shared reference.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast(), self.len.div_ceil(WORD)) }
    }

    /// Where the span lies in the window, if the grant allows this use of it.
    #[inline]
    pub(super) fn check(&self, span: &Span, needed: Rights) -> Result<Range<usize>, AccessError> {
        self.range(span, needed).ok_or_else(|| self.refusal(span, needed))
    }

    #[inline]
    fn range(&self, span: &Span, needed: Rights) -> Option<Range<usize>> {
        let end = span.end().filter(|end| *end <= self.len())?;
        let range = span.offset as usize..end as usize;
        let allowed = self.rights.contains(needed) && !self.is_read_elsewhere(&range, needed);
        allowed.then_some(range)
    }

    /// Would this use write what somebody reads as a slice?
    #[inline]
    fn is_read_elsewhere(&self, range: &Range<usize>, needed: Rights) -> bool {
        let writes = needed != Rights::READ && !needed.is_empty();
        // SAFETY: they live as long as this window is used.
        let loans = self.loans.filter(|_| writes).map(|loans| unsafe { loans.as_ref() });
        loans.is_some_and(|loans| loans.touch(range))
    }

    #[cold]
    fn refusal(&self, span: &Span, needed: Rights) -> AccessError {
        if !self.rights.contains(needed) {
            return AccessError::Forbidden { region: span.region, needed, granted: self.rights };
        }
        match span.end() {
            Some(end) if end <= self.len() => AccessError::OnLoan(*span),
            _ => AccessError::OutOfBounds { span: *span, len: self.len() },
        }
    }

    /// Where the word lies in the window, if the grant allows to use it.
    pub(super) fn check_word(&self, op: &WordOp) -> Result<usize, AccessError> {
        let span = op.region.span(op.offset, op.width.bytes());
        let range = self.check(&span, Rights::WORDS)?;
        if !op.offset.is_multiple_of(u64::from(op.width.bytes())) {
            return Err(AccessError::Misaligned(*op));
        }
        Ok(range.start)
    }

    /// The span as an address, if the grant allows this use of it.
    #[inline]
    pub(super) fn raw(&self, span: &Span, needed: Rights) -> Result<RawSpan, AccessError> {
        let range = self.check(span, needed)?;
        // SAFETY: the range was checked to lie within the memory.
        let ptr = unsafe { self.base.add(range.start) };
        Ok(RawSpan { ptr, len: range.end - range.start })
    }
}

/// The parts of a region, all of one length, each on loan or not. What is on
/// loan nobody may write: a slice of it exists.
///
/// A part goes on loan only at a moment when nobody has the region pinned, and
/// each use after that asks here first; so no write can be under way.
#[derive(Debug)]
pub(crate) struct Loans {
    part: usize,
    /// A bit for each part.
    bits: Box<[AtomicU64]>,
}

impl Loans {
    /// So many parts of this length, none on loan.
    pub(crate) fn new(parts: usize, part: usize) -> Self {
        let bits = (0..parts.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { part: part.max(1), bits }
    }

    /// Puts a part on loan. False if it is already, or is no part.
    pub(crate) fn lend(&self, part: usize) -> bool {
        let (word, bit) = (self.bits.get(part / 64), 1 << (part % 64));
        word.is_some_and(|word| word.fetch_or(bit, AcqRel) & bit == 0)
    }

    /// The slice is gone: the part may be written again.
    pub(crate) fn end(&self, part: usize) {
        if let Some(word) = self.bits.get(part / 64) {
            // All reads through the slice come before the next write.
            word.fetch_and(!(1 << (part % 64)), AcqRel);
        }
    }

    /// Is the part on loan?
    pub(crate) fn is_lent(&self, part: usize) -> bool {
        self.bits.get(part / 64).is_some_and(|word| word.load(Acquire) >> (part % 64) & 1 == 1)
    }

    /// Is any of these bytes on loan?
    pub(super) fn touch(&self, bytes: &Range<usize>) -> bool {
        let parts = bytes.start / self.part..bytes.end.div_ceil(self.part);
        !bytes.is_empty() && parts.into_iter().any(|part| self.is_lent(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_lent_once_and_its_bytes_alone_are_touched() {
        let loans = Loans::new(100, 4096);
        assert!(loans.lend(70) && !loans.lend(70) && !loans.lend(200));
        let at = 70 * 4096;
        for (bytes, touched) in [
            (at..at + 1, true),
            (at - 1..at, false),
            (at - 1..at + 1, true),
            (at + 4095..at + 9000, true),
            (at + 4096..at + 9000, false),
            (at..at, false),
            (0..1 << 30, true),
        ] {
            assert_eq!(loans.touch(&bytes), touched, "{bytes:?}");
        }
        loans.end(70);
        loans.end(999);
        assert!(!loans.is_lent(70) && loans.lend(70));
    }
}
