//! Records whose number alone says which keys they have: for carriers that number their records
//! themselves, in a stream or in a label, and send no generation.

use super::{OpenError, Opener, Position, SealError, Sealer, Slot};
use crate::aead::{Aead, Tag};

/// A key seals this many records, as a power of two. With records of 1 MiB that is 256 GiB, half of
/// what AES-GCM bears.
const RECORDS_OF_KEY: u32 = 18;

fn position(number: u64) -> Position {
    let generation = u32::try_from(number >> RECORDS_OF_KEY).unwrap_or(u32::MAX);
    Position { path: 0, generation, number }
}

/// Seals records, and goes on to the next generation of keys by their number.
///
/// ```
/// use landfall_seal::provider::Provider;
/// use landfall_seal::{Keys, Role, Secret, Suite};
///
/// let keys = |role| Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
/// let (mut sealer, _) = keys(Role::Initiator).scheduled_records::<Provider>();
/// let (_, mut opener) = keys(Role::Responder).scheduled_records::<Provider>();
/// let mut payload = *b"contents";
/// let slot = sealer.slot()?;
/// let number = slot.position().number;
/// let tag = slot.seal(b"head", &mut payload)?;
/// opener.open(number, b"head", &mut payload, &tag)?;
/// assert_eq!(&payload, b"contents");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScheduledSealer<A> {
    sealer: Sealer<A>,
    /// The number of the next record.
    next: u64,
}

impl<A: Aead> ScheduledSealer<A> {
    pub(crate) const fn new(sealer: Sealer<A>) -> Self {
        Self { sealer, next: 0 }
    }

    /// The place of the next record. Its number is one more than that of the last.
    ///
    /// # Errors
    ///
    /// As [`Sealer::slot`]; [`SealError::Closed`] after 2³² generations.
    pub fn slot(&mut self) -> Result<Slot<'_, A>, SealError> {
        if position(self.next).generation > self.sealer.generation() {
            self.sealer.update()?;
        }
        let slot = self.sealer.slot(0)?;
        self.next = slot.position().number + 1;
        Ok(slot)
    }
}

/// Opens records of a [`ScheduledSealer`], in any order around the newest.
#[derive(Debug)]
pub struct ScheduledOpener<A>(Opener<A>);

impl<A: Aead> ScheduledOpener<A> {
    pub(crate) const fn new(opener: Opener<A>) -> Self {
        Self(opener)
    }

    /// Decrypts the record with this number in place.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`].
    pub fn open(
        &mut self,
        number: u64,
        head: &[u8],
        payload: &mut [u8],
        tag: &Tag,
    ) -> Result<(), OpenError> {
        self.0.open(position(number), head, payload, tag)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use crate::provider::Provider;
    use crate::{Keys, OpenError, Role, Secret, Suite};

    use super::*;

    /// Both ends take the next key at the same number, whatever overtakes what there.
    #[test]
    fn keys_follow_each_other_by_number() {
        let keys = |role| Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
        let (mut sealer, _) = keys(Role::Initiator).scheduled_records::<Provider>();
        let (_, mut opener) = keys(Role::Responder).scheduled_records::<Provider>();
        let border = 1_u64 << RECORDS_OF_KEY;
        let mut late = Vec::new();
        for number in 0..border + 20 {
            let mut payload = number.to_be_bytes();
            let slot = sealer.slot().unwrap();
            assert_eq!(slot.position(), position(number));
            let tag = slot.seal(b"", &mut payload).unwrap();
            if number + 20 >= border {
                late.push((number, payload, tag));
            }
        }
        late.reverse();
        for (number, mut payload, tag) in late {
            let mut of_other_key = payload;
            let other = number ^ border;
            let refused = opener.open(other, b"", &mut of_other_key, &tag);
            assert!(matches!(refused, Err(OpenError::Forged | OpenError::Replayed)), "{refused:?}");
            opener.open(number, b"", &mut payload, &tag).unwrap();
            assert_eq!(payload, number.to_be_bytes());
        }
    }
}
