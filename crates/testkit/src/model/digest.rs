//! A digest of what a run did.

/// The digest of what was before and of these bytes: equal runs have equal ones, and runs
/// that differ somewhere hardly ever do. Nobody is meant to be kept out by it.
#[must_use]
pub fn digest(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // As FNV-1a, of words: a shift brings the upper bits down, which a product never does.
    let step = |digest: u64, word: &[u8; 8]| {
        let mixed = digest ^ u64::from_le_bytes(*word);
        (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let digest = words.iter().fold(before ^ bytes.len() as u64, step);
    step(digest, &last)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_byte_its_place_and_their_number_count() {
        let bytes: Vec<u8> = (0..40).collect();
        let mut all: Vec<u64> = (0..bytes.len()).map(|len| digest(1, &bytes[..len])).collect();
        all.extend((0..bytes.len()).map(|at| {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            digest(1, &other)
        }));
        all.extend([digest(1, &[0; 3]), digest(1, &[0; 4]), digest(2, &bytes)]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(digest(1, &bytes), digest(1, &bytes.clone()));
    }
}
