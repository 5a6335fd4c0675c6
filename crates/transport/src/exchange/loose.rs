//! Bytes that arrived and lie in no place that was posted for them.

use arrayvec::ArrayVec;

/// This many parts the kernel makes of one packet at most (`MAX_SKB_FRAGS`, and
/// the part in front of them).
pub(crate) const MOST_PARTS: usize = 18;

/// One run of bytes, in one part or in several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loose<'a> {
    parts: ArrayVec<&'a [u8], MOST_PARTS>,
}

impl<'a> Loose<'a> {
    /// Adds bytes at the end. Returns whether there was room for one more part.
    pub(crate) fn push(&mut self, part: &'a [u8]) -> bool {
        self.parts.try_push(part).is_ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Takes this many bytes off the front, if they lie in the first part.
    pub(crate) fn strip(&mut self, len: usize) -> Option<&'a [u8]> {
        let first = self.parts.first_mut()?;
        let (front, rest) = first.split_at_checked(len)?;
        *first = rest;
        Some(front)
    }

    /// Up to `most` bytes from byte `at` on, as far as they lie in one part.
    pub(crate) fn head(&self, at: usize, most: usize) -> &'a [u8] {
        self.pieces(at, most).next().unwrap_or_default()
    }

    /// Where `len` bytes from byte `at` on lie, as far as they exist.
    pub(super) fn pieces(&self, at: usize, len: usize) -> impl Iterator<Item = &'a [u8]> {
        let (mut skip, mut left) = (at, len);
        self.parts.iter().filter_map(move |part| {
            let behind = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            let piece = &behind[..left.min(behind.len())];
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Copies bytes from byte `at` on; all that are asked for exist.
    pub(super) fn copy(&self, at: usize, into: &mut [u8]) {
        let mut done = 0;
        for piece in self.pieces(at, into.len()) {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
    }
}

impl<'a> From<&'a [u8]> for Loose<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        let mut loose = Self::default();
        loose.push(bytes);
        loose
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_read_as_one_run() {
        let bytes: Vec<u8> = (0..20).collect();
        let mut loose = Loose::default();
        for part in [&bytes[..3], &bytes[3..3], &bytes[3..11], &bytes[11..]] {
            assert!(loose.push(part));
        }
        for at in 0..=20 {
            for len in 0..=20 - at {
                let mut copy = vec![0; len];
                loose.copy(at, &mut copy);
                assert_eq!(copy, bytes[at..at + len], "{len} from {at}");
                assert_eq!(loose.pieces(at, len).flatten().count(), len);
            }
        }
        assert_eq!(loose.head(1, 20), [1, 2], "no further than its part");
        assert_eq!(loose.head(4, 2), [4, 5]);
        assert_eq!(loose.head(20, 4), [0; 0]);
        assert_eq!(loose.len(), 20);
        assert_eq!(loose.strip(4), None, "longer than its part");
        assert_eq!(loose.strip(2), Some(&[0, 1][..]));
        assert_eq!((loose.head(0, 9), loose.len()), (&[2][..], 18));
        assert_eq!(loose.pieces(16, 10).flatten().count(), 2, "as far as they exist");
    }

    #[test]
    fn there_are_no_more_parts_than_the_kernel_makes() {
        let mut loose = Loose::default();
        assert!((0..MOST_PARTS).all(|_| loose.push(&[1])));
        assert!(!loose.push(&[1]));
    }
}
