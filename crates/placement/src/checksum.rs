//! The Internet checksum (RFC 1071): for any length, split anywhere, in wide words.

/// A sum under way: bytes are added piece by piece, however they are split.
///
/// ```
/// use landfall_placement::InternetSum;
///
/// let mut whole = InternetSum::new();
/// whole.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// let mut pieces = InternetSum::new();
/// pieces.add(&[0x00, 0x01, 0xf2]);
/// pieces.add(&[0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// assert_eq!(whole.sum(), 0xddf2); // the example of RFC 1071
/// assert_eq!(pieces.sum(), whole.sum());
/// assert_eq!(whole.checksum(), !0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternetSum {
    /// The sum of big-endian 16-bit words, not yet folded. Each addition adds
    /// less than 2^17, and folding keeps it small, so it never overflows.
    sum: u32,
    /// An odd number of bytes was added: the next one is a low byte.
    odd: bool,
}

impl InternetSum {
    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds bytes that follow on those added before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let part = sum_of(bytes);
        // A piece that starts at an odd place has its bytes in the other
        // halves of the words; swapping the sum swaps them all (RFC 1071, 2B).
        let part = if self.odd { part.swap_bytes() } else { part };
        self.odd ^= bytes.len() % 2 == 1;
        self.add_word(part);
    }

    /// Adds the sum of bytes that follow on those added before.
    #[inline]
    pub const fn append(&mut self, next: Self) {
        let part = if self.odd { next.sum().swap_bytes() } else { next.sum() };
        self.odd ^= next.odd;
        self.add_word(part);
    }

    /// Adds one word that does not count as bytes that follow on each other:
    /// a length or protocol of a pseudo-header, or the sum of another piece
    /// that starts at an even place.
    #[inline]
    pub const fn add_word(&mut self, word: u16) {
        let sum = self.sum + word as u32;
        self.sum = (sum & 0xffff) + (sum >> 16);
    }

    /// The sum, folded to 16 bits, not inverted.
    #[must_use]
    #[inline]
    pub const fn sum(&self) -> u16 {
        let folded = (self.sum & 0xffff) + (self.sum >> 16);
        folded as u16
    }

    /// The checksum as it stands in a header: the inverted sum.
    #[must_use]
    #[inline]
    pub const fn checksum(&self) -> u16 {
        !self.sum()
    }
}

/// The Internet checksum of a header, as it stands in it.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum_of(bytes)
}

/// The folded sum, not inverted, of bytes that start at an even place.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> u16 {
    /// Eight 32-bit words a step: the compiler makes vector additions of them.
    const STEP: usize = 32;
    /// Steps after which a lane is folded: 2^32 of them could overflow it.
    const BLOCK: usize = STEP << 20;

    let mut total: u64 = 0;
    for block in bytes.chunks(BLOCK) {
        let mut lanes = [0u64; 8];
        let mut steps = block.chunks_exact(STEP);
        for step in &mut steps {
            for (lane, word) in lanes.iter_mut().zip(step.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        for lane in lanes {
            total += fold_to_32(lane);
        }
        let (words, rest) = steps.remainder().as_chunks::<2>();
        for word in words {
            total += u64::from(u16::from_ne_bytes(*word));
        }
        if let [last] = rest {
            // Only the last block can end in an odd byte: BLOCK is even.
            total += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        total = fold_to_32(total);
    }
    let folded = fold_to_32(total);
    let folded = (folded & 0xffff) + (folded >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    // The sum does not depend on the byte order it was made in (RFC 1071, 2B).
    u16::from_be(folded as u16)
}

/// Ones' complement: what runs over at the top comes in again at the bottom.
const fn fold_to_32(sum: u64) -> u64 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 word for word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum: u64 = 0;
        for pair in bytes.chunks(2) {
            sum += u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from);
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn long_inputs_are_not_a_trap() {
        // All ones is the worst case for carries; 128 KiB and 32 MiB are where others broke.
        for len in [131_071, 131_072, 131_073, 200_001, (32 << 20) + 7] {
            let bytes = std::vec![0xff; len];
            assert_eq!(sum_of(&bytes), naive(&bytes), "{len}");
        }
    }

    #[test]
    fn nothing_and_zero_sum_to_zero() {
        assert_eq!(sum_of(&[]), 0);
        assert_eq!(sum_of(&[0; 100]), 0);
        assert_eq!(checksum(&[0; 100]), 0xffff);
    }

    proptest! {
        #[test]
        fn equals_the_rfc(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(sum_of(&bytes), naive(&bytes));
        }

        #[test]
        fn splits_do_not_matter(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: std::vec::Vec<_> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut sum, mut sum_of_sums) = (InternetSum::new(), InternetSum::new());
            let mut from = 0;
            for to in cuts.into_iter().chain([bytes.len()]) {
                sum.add(&bytes[from..to]);
                let mut part = InternetSum::new();
                part.add(&bytes[from..to]);
                sum_of_sums.append(part);
                from = to;
            }
            prop_assert_eq!(sum.sum(), naive(&bytes));
            prop_assert_eq!(sum_of_sums.sum(), naive(&bytes));
        }
    }
}
