//! What a side has of the other's bundles and pieces, and what it asks for again.
//!
//! Bytes that come may be another's: anyone who is on the way can put them in the place of the
//! right ones. Their seal tells, and the transfer is asked for again. So the other side keeps
//! what it sent until it hears that all before a number came as it was sealed.

use super::{Cursor, Malformed};

/// What is asked of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    /// The transfer of this number came, and its seal was wrong.
    Again(u64),
    /// Something has been missing for a while: whatever was sent and did not come.
    Missing,
    /// The other side's own state: it may have been lost.
    State,
    /// Nothing any more: too much came that the code did not seal.
    End,
}

/// What a side has received so far, and what it asks for again. Each report has all of it,
/// so the latest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// All transfers before this number came.
    pub(crate) next: u64,
    /// Bit `n`: transfer `next + 1 + n` came, too.
    pub(crate) early: u64,
    pub(crate) ask: Ask,
}

/// So long is it on the wire.
pub(crate) const STATE: usize = 25;

impl State {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let (which, number) = match self.ask {
            Ask::Nothing => (0, 0),
            Ask::Again(number) => (1, number),
            Ask::Missing => (2, 0),
            Ask::State => (3, 0),
            Ask::End => (4, 0),
        };
        let mut out = Vec::with_capacity(STATE);
        out.push(which);
        for number in [self.next, self.early, number] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes);
        let which = from.u8()?;
        let (next, early, number) = (from.u64()?, from.u64()?, from.u64()?);
        let ask = match which {
            0 => Ask::Nothing,
            1 => Ask::Again(number),
            2 => Ask::Missing,
            3 => Ask::State,
            4 => Ask::End,
            _ => return Err(Malformed("an unknown question about transfers")),
        };
        if !from.is_empty() {
            return Err(Malformed("a word about transfers that is too long"));
        }
        Ok(Self { next, early, ask })
    }

    /// Did the transfer of this number come?
    pub(crate) const fn has(&self, number: u64) -> bool {
        number < self.next || {
            let ahead = number - self.next;
            ahead > 0 && ahead <= 64 && self.early >> (ahead - 1) & 1 == 1
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn states_survive_the_wire_and_none_that_is_cut_passes(
            next: u64,
            early: u64,
            ask in prop_oneof![
                Just(Ask::Nothing),
                any::<u64>().prop_map(Ask::Again),
                Just(Ask::Missing),
                Just(Ask::State),
                Just(Ask::End),
            ],
            cut in 0..STATE,
        ) {
            let state = State { next, early, ask };
            let bytes = state.to_bytes();
            prop_assert_eq!(bytes.len(), STATE);
            prop_assert_eq!(State::parse(&bytes), Ok(state));
            prop_assert!(State::parse(&bytes[..cut]).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), number: u64) {
            if let Ok(state) = State::parse(&bytes) {
                state.has(number);
            }
        }
    }

    #[test]
    fn what_came_is_what_is_before_or_marked() {
        let state = State { next: 10, early: 0b101, ask: Ask::Nothing };
        let came: Vec<u64> = (8..15).filter(|number| state.has(*number)).collect();
        assert_eq!(came, [8, 9, 11, 13]);
    }
}
