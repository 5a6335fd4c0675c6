//! What everything is sealed with after the greeting: a key of each direction for transfers,
//! and one for words about them.
//!
//! A sealed transfer is its encrypted contents and a tag of 16 bytes. Its label is
//! authenticated with it: kind and number. Numbers are the sealer's packet numbers, so that
//! none is used twice; what is asked for again is sent again as it was sealed, bit by bit.
//! A key seals 2¹⁸ transfers, 256 GiB at most, which is half of what its cipher bears; the
//! next follows by itself, for both sides know the number.

use landfall_seal::provider::Provider;
use landfall_seal::{Keys, OpenError, Position, RecordConfig, SealError, Suite, TAG_LEN, Tag};

use super::wire::{FrameKind, Label};

/// What the greeting agrees on: AES has instructions in every processor that is fast enough
/// for this to matter.
pub(crate) const SUITE: Suite = Suite::Aes128Gcm;
/// A key seals so many transfers, as a power of two.
const TRANSFERS_OF_KEY: u32 = 18;

/// The keys of a session, at one side of it.
#[derive(Debug)]
pub(crate) struct Seals {
    transfers: Pair,
    states: Pair,
}

/// What seals for one side and opens what the other has sealed.
#[derive(Debug)]
struct Pair(Sealer, Opener);

impl Pair {
    fn new(keys: Keys) -> Self {
        let (sealer, opener) = keys.records(&RecordConfig::default());
        Self(Sealer(sealer), Opener(opener))
    }
}

/// What an [`Inlet`](super::pipe::Inlet) needs.
#[derive(Debug)]
pub(crate) struct InletSeals {
    pub(crate) transfers: Opener,
    pub(crate) states: Opener,
    /// For what this side says of transfers.
    pub(crate) own_states: Sealer,
}

impl Seals {
    pub(crate) fn new(keys: Keys) -> Self {
        let [transfers, states] = keys.fork(["transfers", "states"]).map(Pair::new);
        Self { transfers, states }
    }

    /// For the outlet and the inlet of a side.
    pub(crate) fn split(self) -> (Sealer, InletSeals) {
        let Pair(sealer, transfers) = self.transfers;
        let Pair(own_states, states) = self.states;
        (sealer, InletSeals { transfers, states, own_states })
    }
}

/// Seals what a side sends, in its order.
#[derive(Debug)]
pub(crate) struct Sealer(landfall_seal::Sealer<Provider>);

impl Sealer {
    /// Encrypts contents in place, with the tag into their last 16 bytes; gives their label.
    pub(crate) fn seal(&mut self, kind: FrameKind, sealed: &mut [u8]) -> Result<Label, SealError> {
        let (contents, room) = sealed.split_last_chunk_mut().ok_or(SealError::TooLong)?;
        let slot = self.0.slot(0)?;
        let label = Label { number: slot.position().number, kind };
        let Tag(tag) = slot.seal(&head(label), contents)?;
        *room = tag;
        if generation_of(label.number + 1) > self.0.generation() {
            self.0.update()?;
        }
        Ok(label)
    }
}

/// Opens what the other side has sealed, in any order.
#[derive(Debug)]
pub(crate) struct Opener(landfall_seal::Opener<Provider>);

impl Opener {
    /// Decrypts in place; gives the contents if they are what was sealed under that label.
    pub(crate) fn open<'a>(
        &mut self,
        label: Label,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], OpenError> {
        let (contents, tag) = sealed.split_last_chunk_mut().ok_or(OpenError::Forged)?;
        let number = label.number;
        let at = Position { path: 0, generation: generation_of(number), number };
        self.0.open(at, &head(label), contents, &Tag(*tag))?;
        Ok(contents)
    }
}

fn generation_of(number: u64) -> u32 {
    u32::try_from(number >> TRANSFERS_OF_KEY).unwrap_or(u32::MAX)
}

/// What is authenticated beside the contents. The number is a part of the nonce.
fn head(label: Label) -> [u8; 4] {
    label.to_wire().to_le_bytes()
}

/// How much longer a transfer is than its contents.
pub(crate) const SEAL: usize = TAG_LEN;

#[cfg(test)]
mod tests {
    use landfall_seal::{Role, Secret};
    use proptest::prelude::*;

    use super::*;

    fn seals(secret: u8, role: Role) -> Seals {
        Seals::new(Keys::new(Secret::new([secret; 32]), role, SUITE))
    }

    fn sender(secret: u8) -> Sealer {
        seals(secret, Role::Initiator).split().0
    }

    fn receiver(secret: u8) -> InletSeals {
        seals(secret, Role::Responder).split().1
    }

    proptest! {
        #[test]
        fn no_changed_bundle_passes_for_sealed(
            bundle in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut sealed = [&bundle[..], &[0; SEAL]].concat();
            let (mut sealer, mut opener) = (sender(5), receiver(5));
            let label = sealer.seal(FrameKind::Bundle, &mut sealed).unwrap();
            prop_assert!(bundle.len() < 8 || !sealed.windows(8).any(|part| part == &bundle[..8]));
            let refused = |opener: &mut Opener, label, sealed: &[u8]| {
                opener.open(label, &mut sealed.to_vec()).is_err()
            };
            prop_assert!(refused(&mut receiver(6).transfers, label, &sealed));
            prop_assert!(refused(&mut opener.states, label, &sealed));
            // What a side has sent does not come back to it.
            prop_assert!(refused(&mut seals(5, Role::Initiator).split().1.transfers, label, &sealed));
            let opener = &mut opener.transfers;
            for other in [
                Label { kind: FrameKind::Piece, ..label },
                Label { number: 1, ..label },
                Label { number: 1 << TRANSFERS_OF_KEY, ..label },
            ] {
                prop_assert!(refused(opener, other, &sealed));
            }
            prop_assert!(refused(opener, label, &sealed[1..]));
            prop_assert!(refused(opener, label, &[]));
            let mut changed = sealed.clone();
            changed[at.index(sealed.len())] ^= flip;
            prop_assert!(refused(opener, label, &changed));
            prop_assert_eq!(opener.open(label, &mut sealed), Ok(&bundle[..]));
        }
    }

    /// Both sides take the next key at the same number, however transfers overtake each other
    /// there.
    #[test]
    fn keys_follow_each_other_by_number() {
        let (mut sealer, mut opener) = (sender(5), receiver(5).transfers);
        let next = 1u64 << TRANSFERS_OF_KEY;
        let mut late = Vec::new();
        for number in 0..next + 20 {
            let mut sealed = [&number.to_le_bytes()[..], &[0; SEAL]].concat();
            let label = sealer.seal(FrameKind::Piece, &mut sealed).unwrap();
            assert_eq!(label.number, number);
            if number + 20 >= next {
                late.push((label, sealed));
            }
        }
        assert_eq!(sealer.0.generation(), 1);
        // The first of the new key overtakes the last of the old one.
        late.reverse();
        for (label, mut sealed) in late {
            let opened = opener.open(label, &mut sealed);
            assert_eq!(opened, Ok(&label.number.to_le_bytes()[..]), "{label:?}");
        }
    }
}
