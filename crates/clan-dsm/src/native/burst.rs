//! The arithmetic of headers: a packet is split at any word, and what lies
//! behind one another is one packet again (section 2.2 of the paper).
//!
//! A [`Burst`] is a header together with how many words follow it. The wire does
//! not say how many: a link knows when the packet ends. So nothing but the
//! address has to be computed anew where a packet is cut, and nothing is lost
//! where two become one.
//!
//! Here is, too, what of a packet belongs into memory of this host ([`admit`]).
//!
//! What does not live here: the words themselves (see [`Fifo`](super::Fifo)), and who decides
//! where to cut (see [`switch`](crate::native::switch)).

use landfall_placement::Refusal;

use crate::address::{Address, Kind, WORD};
use crate::cookie::Rights;
use crate::offload::{Apertures, Spot};

/// What a header costs, in words: it takes as much of a link and of a FIFO as two.
pub const HEADER_WORDS: u32 = Address::LEN as u32 / WORD;

/// The most words of a packet that cannot be split: the 96 bytes that a command
/// may have.
pub const MOST_INDIVISIBLE: u32 = 96 / WORD;

/// A header, and how many words follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    address: Address,
    words: u32,
}

impl Burst {
    /// `words` words to `address` and behind it.
    ///
    /// `None` for what is no packet: without a word, beyond the last offset
    /// there is, more than one word where only some bytes of it are meant, or
    /// a command with more or fewer words than its parameters take.
    #[must_use]
    pub const fn new(address: Address, words: u32) -> Option<Self> {
        let is_packet = match address.kind {
            Kind::Command => {
                address.mask == crate::address::WHOLE
                    && words <= MOST_INDIVISIBLE
                    && words == command_words(address.word)
            }
            _ if address.is_burst() => words > 0 && address.advanced(words - 1).is_some(),
            _ => words == 1,
        };
        if is_packet { Some(Self { address, words }) } else { None }
    }

    /// Where its first word belongs.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// How many words follow the header.
    #[must_use]
    pub const fn words(&self) -> u32 {
        self.words
    }

    /// What it takes of a link, in words, with its header.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.words.saturating_add(HEADER_WORDS)
    }

    /// The fewest words that may travel without the rest.
    #[must_use]
    pub const fn least(&self) -> u32 {
        if self.address.is_burst() { 1 } else { self.words }
    }

    /// The first `words` words as a packet of their own, and the rest as another.
    /// `None` where one of the two would be empty, and for what cannot be split.
    #[must_use]
    pub const fn split_at(self, words: u32) -> Option<(Self, Self)> {
        if !self.address.is_burst() || words == 0 || words >= self.words {
            return None;
        }
        match self.address.advanced(words) {
            Some(address) => {
                Some((Self { words, ..self }, Self { address, words: self.words - words }))
            }
            None => None,
        }
    }

    /// The two as one packet, if `next` goes on where this ends.
    #[must_use]
    pub fn joined(self, next: Self) -> Option<Self> {
        let goes_on = self.address.is_burst()
            && next.address.is_burst()
            && self.address.advanced(self.words) == Some(next.address);
        if !goes_on {
            return None;
        }
        // Both lie within 2^32 offsets, one behind the other; all of them would
        // be one word more than the number can say.
        let words = self.words.checked_add(next.words)?;
        Some(Self { words, ..self })
    }
}

/// How many words so many bytes of parameters take.
/// A packet has a word, even if nothing needs to be said.
const fn command_words(bytes: u32) -> u32 {
    if bytes == 0 { 1 } else { bytes.div_ceil(WORD) }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What is accepted, and where it belongs.
    pub taken: Option<(Burst, Spot)>,
    /// What is refused, and why.
    pub refused: Option<(Burst, Refusal)>,
}

/// Checks a packet of writes, word by word in effect: what begins inside of an
/// aperture and ends outside of it is accepted up to the end.
///
/// So it makes no difference whether a packet was joined with others on its way
/// or came alone, and nobody loses what was right because of what somebody
/// joined to it.
#[must_use]
pub fn admit(apertures: &Apertures<'_>, burst: Burst) -> Admitted {
    let check = |burst: &Burst| apertures.check(&burst.address(), burst.words(), Rights::Write);
    let refusal = match check(&burst) {
        Ok(spot) => return Admitted { taken: Some((burst, spot)), refused: None },
        Err(refusal) => refusal,
    };
    let none = Admitted { taken: None, refused: Some((burst, refusal)) };
    if refusal != Refusal::OutOfBounds {
        return none;
    }
    // How many words fit: what is shorter than something that fits, fits.
    let fits = |words: u32| burst.split_at(words).is_some_and(|(first, _)| check(&first).is_ok());
    let (mut most, mut least) = (burst.words(), 0);
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        if fits(middle) {
            least = middle;
        } else {
            most = middle;
        }
    }
    match burst.split_at(least) {
        Some((first, rest)) => Admitted {
            taken: check(&first).ok().map(|spot| (first, spot)),
            refused: Some((rest, refusal)),
        },
        None => none,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{HostId, Key, WHOLE};
    use proptest::prelude::*;

    fn address(kind: Kind, word: u32, mask: u8) -> Address {
        let host = HostId::new(5).unwrap();
        Address { kind, host, slot: 3, word, mask, key: Key::from_bits(0xabc) }
    }

    #[test]
    fn what_is_no_packet_is_none() {
        let burst = |word, words| Burst::new(address(Kind::Burst, word, WHOLE), words);
        assert!(burst(7, 0).is_none(), "a packet has a word");
        assert!(burst(u32::MAX, 1).is_some(), "the last word there is");
        assert!(burst(u32::MAX, 2).is_none());
        assert!(Burst::new(address(Kind::Burst, 0, 0b0110), 1).is_some());
        assert!(Burst::new(address(Kind::Burst, 0, 0b0110), 2).is_none());
        let command = |bytes, words| Burst::new(address(Kind::Command, bytes, WHOLE), words);
        assert!(command(9, 2).is_some() && command(9, 1).is_none() && command(9, 3).is_none());
        assert!(command(0, 1).is_some() && command(0, 0).is_none(), "every packet has a word");
        assert!(command(96, 12).is_some() && command(97, 13).is_none());
        assert!(Burst::new(address(Kind::Command, 8, 0b1), 1).is_none());
    }

    #[test]
    fn some_things_stay_whole() {
        for whole in [
            Burst::new(address(Kind::Command, 16, WHOLE), 2).unwrap(),
            Burst::new(address(Kind::Burst, 2, 0b1), 1).unwrap(),
        ] {
            assert_eq!(whole.least(), whole.words());
            assert_eq!(whole.split_at(1), None);
            assert_eq!(whole.joined(whole), None);
        }
        let masked = Burst::new(address(Kind::Burst, 2, 0b1), 1).unwrap();
        let before = Burst::new(address(Kind::Burst, 1, WHOLE), 1).unwrap();
        assert_eq!(before.joined(masked), None);
    }

    #[test]
    fn only_what_goes_on_is_joined() {
        let first = Burst::new(address(Kind::Reply, 10, WHOLE), 4).unwrap();
        let next = Burst::new(address(Kind::Reply, 14, WHOLE), 1).unwrap();
        assert_eq!(first.joined(next).map(|both| both.words()), Some(5));
        assert_eq!(next.joined(first), None, "order is kept");
        for other in [
            Address { slot: 4, ..next.address() },
            Address { kind: Kind::Burst, ..next.address() },
            Address { host: HostId::new(6).unwrap(), ..next.address() },
            Address { key: Key::default(), ..next.address() },
            Address { word: 15, ..next.address() },
        ] {
            assert_eq!(first.joined(Burst::new(other, 1).unwrap()), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn splitting_and_joining_are_each_others_reverse(
            word: u32, words in 1..2_000u32, cut in 0..2_100u32,
        ) {
            let Some(whole) = Burst::new(address(Kind::Burst, word, WHOLE), words) else {
                prop_assert!(word.checked_add(words - 1).is_none());
                return Ok(());
            };
            match whole.split_at(cut) {
                Some((first, rest)) => {
                    prop_assert_eq!(first.words() + rest.words(), words);
                    prop_assert_eq!(first.joined(rest), Some(whole));
                    prop_assert_eq!(Burst::new(rest.address(), rest.words()), Some(rest));
                }
                None => prop_assert!(cut == 0 || cut >= words),
            }
        }
    }
}
