//! Providers are interchangeable: what one seals every other opens, and nothing else.

use landfall_seal::provider::{Provider, RustCrypto};
use landfall_seal::{Aead, Forged, Keys, RecordConfig, Role, Secret, Suite};
use proptest::prelude::*;

fn keys(role: Role, suite: Suite) -> Keys {
    Keys::new(Secret::new([3; 32]), role, suite)
}

/// Seals with one provider and opens with another, in place and while copying.
fn crosses<A: Aead, B: Aead>(suite: Suite, head: &[u8], payload: &[u8]) {
    let config = RecordConfig::default();
    let (mut sealer, _) = keys(Role::Initiator, suite).records::<A>(&config);
    let (_, mut opener) = keys(Role::Responder, suite).records::<B>(&config);
    let (mut sealed, mut copied) = (payload.to_vec(), vec![0; payload.len()]);
    let slot = sealer.slot(0).unwrap();
    let at = slot.position();
    let tag = slot.seal(head, &mut sealed).unwrap();
    let (_, mut again) = keys(Role::Responder, suite).records::<B>(&config);
    again.open_copy(at, head, &sealed, &mut copied, &tag).unwrap();
    assert_eq!(copied, payload);
    opener.open(at, head, &mut sealed, &tag).unwrap();
    assert_eq!(sealed, payload);

    let slot = sealer.slot(0).unwrap();
    let at = slot.position();
    let tag = slot.seal_copy(head, payload, &mut copied).unwrap();
    opener.open(at, head, &mut copied, &tag).unwrap();
    assert_eq!(copied, payload);
}

proptest! {
    #[test]
    fn what_one_provider_seals_every_other_opens(
        suite in prop::sample::select(Suite::ALL.to_vec()),
        head in prop::collection::vec(any::<u8>(), 0..100),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        crosses::<RustCrypto, Provider>(suite, &head, &payload);
        crosses::<Provider, RustCrypto>(suite, &head, &payload);
        crosses::<Provider, Provider>(suite, &head, &payload);
        crosses::<RustCrypto, RustCrypto>(suite, &head, &payload);
    }
}

/// Every bit of a small record, for each provider, suite and way to open.
#[test]
fn a_flipped_bit_is_refused_by_every_provider() {
    fn flips<A: Aead>(suite: Suite) {
        let cipher = A::new(suite, &landfall_seal::CipherKey::new([9; 32]));
        let (nonce, head, plain) = ([1; 12], [2; 9], [3; 21]);
        let mut payload = plain;
        let tag = cipher.seal(&nonce, &head, &mut payload);
        for bit in 0..(nonce.len() + head.len() + payload.len() + tag.0.len()) * 8 {
            let (mut nonce, mut head, mut payload, mut tag) = (nonce, head, payload, tag);
            let all = nonce.iter_mut().chain(&mut head).chain(&mut payload).chain(&mut tag.0);
            *all.into_iter().nth(bit / 8).unwrap() ^= 1 << (bit % 8);
            let mut copy = [0; 21];
            assert_eq!(cipher.open_copy(&nonce, &head, &payload, &mut copy, &tag), Err(Forged));
            assert_ne!(copy, plain, "nothing unauthenticated is left");
            assert_eq!(cipher.open(&nonce, &head, &mut payload, &tag), Err(Forged));
            assert_ne!(payload, plain, "nothing unauthenticated is left");
        }
        assert_eq!(cipher.open(&nonce, &head, &mut payload, &tag), Ok(()));
        assert_eq!(payload, plain);
    }
    for suite in Suite::ALL {
        flips::<RustCrypto>(suite);
        flips::<Provider>(suite);
    }
}
