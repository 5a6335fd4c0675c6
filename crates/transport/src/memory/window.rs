//! What a grant covers: where the bytes lie, how many, and what is allowed.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

use landfall_placement::{Span, WordOp};

use super::loans::Loans;
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
