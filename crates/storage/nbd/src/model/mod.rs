//! What must hold for any bytes: for property tests, fuzz targets and the replay of their
//! corpora.
//!
//! | file | what it is |
//! | --- | --- |
//! | `pair` | both ends and a network that cuts anywhere: [`disagreements`] |
//! | `stranger` | one end, and bytes of somebody who knows the protocol: [`withstand`] |

mod pair;
mod stranger;

pub use pair::disagreements;
pub use stranger::withstand;

/// Bytes as decisions; at their end all decisions are 0.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `most`.
    fn below(&mut self, most: u64) -> u64 {
        let wide = u64::from(self.byte()) << 8 | u64::from(self.byte());
        wide % most.max(1)
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    const fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}
