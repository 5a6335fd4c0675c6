//! What proves that one may touch an aperture.

use core::hash::Hasher;

use landfall_placement::Random;
use siphasher::sip::SipHasher24;

use crate::access::Rights;
use crate::address::Key;

/// Makes keys. They follow from a secret, so none is ever stored twice or drawn
/// anew for the same cookie; whoever has some can make no others.
pub(super) struct Keys {
    secret: [u64; 2],
    /// Groups were founded so often.
    founded: u64,
}

impl Keys {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { secret: [random.next_u64(), random.next_u64()], founded: 0 }
    }

    /// The key of one life of one aperture for one kind of right: another life or
    /// other rights have another key.
    pub(super) fn of_aperture(&self, slot: u16, generation: u32, rights: Rights) -> Key {
        let what = u64::from(slot) << 40 | u64::from(generation) << 8 | u64::from(rights as u8);
        self.of(0, what)
    }

    /// A key that no group had before.
    pub(super) fn of_group(&mut self) -> Key {
        self.founded += 1;
        self.of(1, self.founded)
    }

    fn of(&self, purpose: u64, what: u64) -> Key {
        let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        hasher.write_u64(purpose);
        hasher.write_u64(what);
        Key::from_bits(hasher.finish())
    }
}

/// The secret is not shown.
impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keys").field("founded", &self.founded).finish_non_exhaustive()
    }
}
