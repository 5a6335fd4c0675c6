//! Handshakes, honest ones and under an attacker who owns the network.

use landfall_seal::model::{Fate, Kind, SharedKnowledge, check, run};
use landfall_seal::{
    Handshake, HandshakeError, Noise, NoiseConfig, Pake, PeerIdentity, Role, Secret, Seed,
    StaticKey, Suite,
};
use landfall_testkit::corpus::replay;
use proptest::prelude::*;

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..120);
    let fate = prop_oneof![
        3 => Just(Fate::Pass),
        1 => (any::<u16>(), any::<u8>()).prop_map(|(at, bit)| Fate::Flip(at, bit)),
        1 => (0u16..200).prop_map(Fate::Cut),
        1 => any::<u8>().prop_map(Fate::Extend),
        1 => bytes.prop_map(Fate::Replace),
        1 => Just(Fate::Repeat),
        1 => Just(Fate::Reflect),
    ];
    prop::collection::vec(fate, 0..6)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

#[test]
fn ends_that_believe_the_same_finish_with_the_same_keys() {
    for kind in Kind::ALL {
        let [here, there] = run(kind, [SharedKnowledge::default(); 2], &[]).map(Result::unwrap);
        assert_eq!((here.keys.role(), there.keys.role()), (Role::Initiator, Role::Responder));
        let expected = match kind {
            Kind::Code => PeerIdentity::Code,
            Kind::PresharedKey => PeerIdentity::PresharedKey,
            Kind::KeyPair => PeerIdentity::PublicKey(StaticKey::new(Secret::new([1; 32])).public()),
        };
        assert_eq!(here.peer, expected);
    }
}

/// Version, suite and context are a part of what is agreed on: nobody on the way can make
/// two ends agree that mean different ones.
#[test]
fn a_downgrade_is_refused() {
    let honest = SharedKnowledge::default();
    for kind in Kind::ALL {
        for other in [
            SharedKnowledge { secret: 2, ..honest },
            SharedKnowledge { context: 2, ..honest },
            SharedKnowledge { suite: Suite::ChaCha20Poly1305, ..honest },
        ] {
            for beliefs in [[honest, other], [other, honest]] {
                let ends = run(kind, beliefs, &[]);
                assert!(ends.iter().all(Result::is_err), "{kind:?} {beliefs:?}: {ends:?}");
            }
        }
    }
}

/// Every bit of every message.
#[test]
fn a_flipped_bit_in_a_handshake_is_refused() {
    for kind in Kind::ALL {
        let count = if kind == Kind::Code { 4 } else { 3 };
        for nth in 0..count {
            for at in 0..120 {
                for bit in 0..8 {
                    let mut fates = vec![Fate::Pass; nth];
                    fates.push(Fate::Flip(at, bit));
                    // What has to hold is asserted there.
                    let ends = run(kind, [SharedKnowledge::default(); 2], &fates);
                    let has_fewer = kind == Kind::PresharedKey && nth == 2;
                    assert_eq!(ends.iter().all(Result::is_ok), has_fewer, "{kind:?} {nth} {at}");
                }
            }
        }
    }
}

#[test]
fn a_truncated_handshake_is_refused() {
    for kind in Kind::ALL {
        for nth in 0..2 {
            for len in 0..32 {
                let mut fates = vec![Fate::Pass; nth];
                fates.push(Fate::Cut(len));
                let ends = run(kind, [SharedKnowledge::default(); 2], &fates);
                assert!(ends.iter().any(Result::is_err), "{kind:?} {nth} {len}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_attacker_makes_an_end_believe_what_was_not_said(kind in kinds(), fates in fates()) {
        drop(run(kind, [SharedKnowledge::default(); 2], &fates));
    }

    #[test]
    fn any_messages_break_no_rule(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }
}

/// What the fuzz target `seal_handshake` runs, over its corpus: so that what was found stays
/// found.
#[test]
fn the_corpus_of_the_fuzz_target_breaks_no_rule() {
    replay("seal_handshake", 6, check);
}

#[test]
fn one_handshake_is_one_guess() {
    let suite = Suite::Aes128Gcm;
    let mut receiver = Pake::responder(b"the code", b"", suite, Seed::new([1; 32]));
    let mut guess = Pake::initiator(b"a guess", b"", suite, Seed::new([2; 32]));
    receiver.handle_message(&guess.poll_message().unwrap()).unwrap();
    guess.handle_message(&receiver.poll_message().unwrap()).unwrap();
    let proof = guess.poll_message().unwrap();
    assert_eq!(receiver.handle_message(&proof), Err(HandshakeError::NotProven));
    // Nothing was said that tells more than that, and nothing more is heard.
    assert_eq!(receiver.poll_message(), None);
    assert_eq!(receiver.handle_message(&proof), Err(HandshakeError::OutOfTurn));
    assert!(receiver.finish().is_err());
}

/// Shares are group elements that hide behind fresh exponents: equal neither for one code in
/// two handshakes nor for two codes.
#[test]
fn shares_look_fresh_each_time() {
    let suite = Suite::Aes128Gcm;
    let shares = |code: &[u8], seed| {
        let mut initiator = Pake::initiator(code, b"", suite, Seed::new([seed; 32]));
        let mut responder = Pake::responder(code, b"", suite, Seed::new([seed + 1; 32]));
        let first = initiator.poll_message().unwrap();
        responder.handle_message(&first).unwrap();
        [first, responder.poll_message().unwrap()]
    };
    let all = [shares(b"one", 1), shares(b"other", 1), shares(b"one", 3)].concat();
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
}

#[test]
fn a_pinned_peer_with_another_key_is_told_nothing() {
    let keys = [1u8, 2, 3].map(|byte| StaticKey::new(Secret::new([byte; 32])));
    let pinned = Some(keys[2].public().fingerprint());
    let suite = Suite::Aes128Gcm;
    let config = NoiseConfig::KeyPair { own: &keys[0], pinned };
    let mut here = Noise::new(&config, Role::Initiator, b"", suite, Seed::new([4; 32]));
    let config = NoiseConfig::KeyPair { own: &keys[1], pinned: None };
    let mut there = Noise::new(&config, Role::Responder, b"", suite, Seed::new([5; 32]));
    there.handle_message(&here.poll_message().unwrap()).unwrap();
    let shown = keys[1].public().fingerprint();
    let answer = there.poll_message().unwrap();
    assert_eq!(here.handle_message(&answer), Err(HandshakeError::WrongPeer(shown)));
    assert_eq!(here.poll_message(), None, "the own key is not shown to a stranger");
    assert!(!there.is_finished());
    assert_eq!(there.finish().unwrap_err(), HandshakeError::Unfinished);
}

#[test]
fn secrets_are_never_printed() {
    let secret = Secret::new([0xab; 32]);
    let shown = format!("{:?} {:?}", secret, Seed::new([0xab; 32]));
    assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
    let pake = Pake::initiator(b"open sesame", b"", Suite::Aes128Gcm, Seed::new([1; 32]));
    assert!(!format!("{pake:?}").contains("sesame"));
}

proptest! {
    #[test]
    fn fingerprints_read_back_and_no_others_do(key in any::<[u8; 32]>(), cut in 0usize..39) {
        let fingerprint = landfall_seal::PublicKey(key).fingerprint();
        let text = fingerprint.to_string();
        prop_assert_eq!(text.to_uppercase().parse(), Ok(fingerprint));
        prop_assert!(text[..cut].parse::<landfall_seal::Fingerprint>().is_err());
        let longer = text + "0";
        prop_assert!(longer.parse::<landfall_seal::Fingerprint>().is_err());
    }
}
