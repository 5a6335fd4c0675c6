//! Memory of which only what was written takes room: a run touches little of it, and
//! there are many runs.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// So many bytes are made at once.
pub(super) const CHUNK: usize = 1 << 10;

/// Bytes that all are `fresh` until they are written.
#[derive(Clone, Debug)]
pub(super) struct Sparse {
    len: usize,
    fresh: u8,
    /// `None`: nothing of it was ever written.
    chunks: Vec<Option<Box<[u8; CHUNK]>>>,
}

impl Sparse {
    pub(super) fn new(len: usize, fresh: u8) -> Self {
        let mut chunks = Vec::new();
        chunks.resize_with(len.div_ceil(CHUNK), || None);
        Self { len, fresh, chunks }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The parts of a range that lie in one chunk each: which, and where in it.
    fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let (chunk, start) = (at / CHUNK, at % CHUNK);
            let len = (CHUNK - start).min(range.end.saturating_sub(at));
            at += len;
            (len > 0).then_some((chunk, start..start + len))
        })
    }

    /// The bytes from `at` on.
    ///
    /// # Panics
    /// There are not as many.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        let mut rest = into;
        for (chunk, range) in Self::parts(at..at + rest.len()) {
            let part;
            (part, rest) = rest.split_at_mut(range.len());
            match &self.chunks[chunk] {
                Some(bytes) => part.copy_from_slice(&bytes[range]),
                None => part.fill(self.fresh),
            }
        }
    }

    /// A copy of some bytes.
    ///
    /// # Panics
    /// They lie outside.
    pub(super) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len());
        for (chunk, range) in Self::parts(range) {
            match &self.chunks[chunk] {
                Some(written) => bytes.extend_from_slice(&written[range]),
                None => bytes.resize(bytes.len() + range.len(), self.fresh),
            }
        }
        bytes
    }

    /// Bytes that were written and lie in one chunk; nothing if that is not so.
    pub(super) fn written(&self, range: Range<usize>) -> &[u8] {
        let chunk = self.chunks.get(range.start / CHUNK).and_then(Option::as_deref);
        let start = range.start % CHUNK;
        chunk.and_then(|bytes| bytes.get(start..start + range.len())).unwrap_or(&[])
    }

    /// These bytes are written from `at` on.
    ///
    /// # Panics
    /// They do not fit.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for (chunk, range) in Self::parts(at..at + bytes.len()) {
            let part;
            (part, rest) = rest.split_at(range.len());
            let fresh = self.fresh;
            let chunk = self.chunks[chunk].get_or_insert_with(|| Box::new([fresh; CHUNK]));
            chunk[range].copy_from_slice(part);
        }
    }

    /// These bytes are fresh again.
    ///
    /// # Panics
    /// They lie outside.
    pub(super) fn renew(&mut self, range: Range<usize>) {
        for (chunk, range) in Self::parts(range) {
            if let Some(bytes) = &mut self.chunks[chunk] {
                bytes[range].fill(self.fresh);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn it_reads_as_plain_bytes_do() {
        let len = 3 * CHUNK + 5;
        let (mut sparse, mut plain) = (Sparse::new(len, 7), vec![7; len]);
        assert_eq!(sparse.len(), len);
        let edges = [(0, 1), (CHUNK - 2, 4), (CHUNK, CHUNK), (10, 2 * CHUNK + 9), (len - 3, 3)];
        for (nth, (at, count)) in edges.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..count).map(|n| (n * 31 + nth) as u8).collect();
            sparse.write(at, &bytes);
            plain[at..at + count].copy_from_slice(&bytes);
            assert_eq!(sparse.bytes(0..len), plain);
            let (from, to) = (at + count / 3, at + count / 2);
            sparse.renew(from..to);
            plain[from..to].fill(7);
            assert_eq!(sparse.bytes(from..len), plain[from..]);
        }
        sparse.write(0, &[1; 20]);
        assert_eq!(sparse.written(2..9), [1; 7]);
        assert_eq!(sparse.written(CHUNK - 1..CHUNK + 1), [0; 0], "it lies in two chunks");
    }
}
