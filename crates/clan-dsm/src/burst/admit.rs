//! What of a packet belongs into memory of this host.

use landfall_placement::Refusal;

use super::Burst;
use crate::access::Rights;
use crate::offload::{Apertures, Spot};

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
