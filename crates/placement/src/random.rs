//! Random numbers from a seed: ChaCha with 8 rounds.
//!
//! An engine draws keys and initial sequence numbers that strangers must not
//! guess, and two runs with one seed must give the same bytes. The seed comes
//! into the constructor; edge crates draw it from the operating system.

/// What determines every random choice of an engine.
pub type Seed = [u8; 32];

/// A stream of random numbers that only the seed determines.
///
/// ```
/// use landfall_placement::Random;
///
/// let (mut a, mut b) = (Random::new([7; 32]), Random::new([7; 32]));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone)]
pub struct Random {
    key: [u32; 8],
    block: u64,
    words: [u32; 16],
    used: usize,
}

/// The seed is a secret of its engine: it is not printed.
impl core::fmt::Debug for Random {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Random").field("block", &self.block).finish_non_exhaustive()
    }
}

impl Random {
    /// The stream of this seed, from its start.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let mut key = [0; 8];
        for (word, bytes) in key.iter_mut().zip(seed.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self { key, block: 0, words: [0; 16], used: 16 }
    }

    /// The stream of a seed that is only a number: for tests and simulations.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        Self::new(seed)
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.words = chacha_block::<8>(&self.key, self.block, 0);
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        u64::from(self.next_u32()) << 32 | low
    }

    /// A number below `bound`, each equally likely; zero if the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire's multiplication, with the few numbers rejected that would come too often.
        if bound == 0 {
            return 0;
        }
        let reject = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if (wide as u64) >= reject {
                return (wide >> 64) as u64;
            }
        }
    }

    /// True with probability `parts_per_million` / 1,000,000.
    pub fn chance(&mut self, parts_per_million: u32) -> bool {
        match parts_per_million {
            0 => false,
            1_000_000.. => true,
            ppm => self.below(1_000_000) < u64::from(ppm),
        }
    }

    /// A seed for something else that shall not share this stream.
    pub fn fork(&mut self) -> Seed {
        let mut seed = [0; 32];
        for bytes in seed.as_chunks_mut::<4>().0 {
            *bytes = self.next_u32().to_le_bytes();
        }
        seed
    }
}

/// One block of ChaCha (RFC 8439, 2.3, with the 64-bit counter of the original).
fn chacha_block<const ROUNDS: usize>(key: &[u32; 8], counter: u64, nonce: u64) -> [u32; 16] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    start[4..12].copy_from_slice(key);
    start[12] = counter as u32;
    start[13] = (counter >> 32) as u32;
    start[14] = nonce as u32;
    start[15] = (nonce >> 32) as u32;
    let mut state = start;
    for _ in 0..ROUNDS / 2 {
        for column in 0..4 {
            quarter_round(&mut state, [column, column + 4, column + 8, column + 12]);
        }
        for diagonal in 0..4 {
            let [b, c, d] = [1, 2, 3].map(|row| row * 4 + (diagonal + row) % 4);
            quarter_round(&mut state, [diagonal, b, c, d]);
        }
    }
    for (word, start) in state.iter_mut().zip(start) {
        *word = word.wrapping_add(start);
    }
    state
}

fn quarter_round(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for (x, y, z, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        state[x] = state[x].wrapping_add(state[y]);
        state[z] = (state[z] ^ state[x]).rotate_left(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_function_is_that_of_rfc_8439() {
        // RFC 8439, 2.3.2; its 32-bit counter 1 and nonce 00000009 0000004a 00000000.
        let mut key = [0; 8];
        for (n, word) in key.iter_mut().enumerate() {
            let n = 4 * n as u32;
            *word = u32::from_le_bytes([n, n + 1, n + 2, n + 3].map(|b| b as u8));
        }
        let words = chacha_block::<20>(&key, 0x0900_0000_0000_0001, 0x4a00_0000);
        assert_eq!(words[..4], [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]);
        assert_eq!(words[12..], [0xd19c_12b5, 0xb94e_16de, 0xe883_d0cb, 0x4e3c_50a2]);
    }

    #[test]
    fn invariant_6_one_seed_one_stream() {
        let draw = |seed| {
            let mut random = Random::from_number(seed);
            [(); 100].map(|()| random.next_u64())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = Random::from_number(3);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn chances_are_what_they_say() {
        let mut random = Random::from_number(4);
        let hits = (0..100_000).filter(|_| random.chance(20_000)).count();
        assert!((1_700..2_300).contains(&hits), "{hits}");
        assert!(!random.chance(0) && random.chance(1_000_000));
    }
}
