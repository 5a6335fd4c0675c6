//! What everything is sealed with after the greeting: a key of each direction for transfers,
//! and one for words about them.
//!
//! A sealed transfer is its encrypted contents and a tag of 16 bytes. Its label is
//! authenticated with it: kind and number. Numbers are the sealer's packet numbers, so that
//! none is used twice; what is asked for again is sent again as it was sealed, bit by bit.
//! Their number says which key they have ([`ScheduledSealer`]).

use landfall_seal::provider::Provider;
use landfall_seal::{
    Keys, OpenError, ScheduledOpener, ScheduledSealer, SealError, Suite, TAG_LEN, Tag,
};

use super::wire::{FrameKind, Label};

/// What the greeting agrees on: AES has instructions in every processor that is fast enough
/// for this to matter.
pub(crate) const SUITE: Suite = Suite::Aes128Gcm;

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
        let (sealer, opener) = keys.scheduled_records();
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
pub(crate) struct Sealer(ScheduledSealer<Provider>);

impl Sealer {
    /// Encrypts contents in place, with the tag into their last 16 bytes; gives their label.
    pub(crate) fn seal(&mut self, kind: FrameKind, sealed: &mut [u8]) -> Result<Label, SealError> {
        let (contents, room) = sealed.split_last_chunk_mut().ok_or(SealError::TooLong)?;
        let slot = self.0.slot()?;
        let label = Label { number: slot.position().number, kind };
        let Tag(tag) = slot.seal(&head(label), contents)?;
        *room = tag;
        Ok(label)
    }
}

/// Opens what the other side has sealed, in any order.
#[derive(Debug)]
pub(crate) struct Opener(ScheduledOpener<Provider>);

impl Opener {
    /// Decrypts in place; gives the contents if they are what was sealed under that label.
    pub(crate) fn open<'a>(
        &mut self,
        label: Label,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], OpenError> {
        let (contents, tag) = sealed.split_last_chunk_mut().ok_or(OpenError::Forged)?;
        self.0.open(label.number, &head(label), contents, &Tag(*tag))?;
        Ok(contents)
    }
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
            let label = sealer.seal(FrameKind::Messages, &mut sealed).unwrap();
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
                Label { number: 1 << 18, ..label },
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
}
