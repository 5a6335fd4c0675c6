//! Two hosts of CLAN under an active attacker ([`memory`](crate::memory) has what must hold), and
//! names that belong to keys.

use clan_dsm::{Config, Ended, Event, Nic, Reason};
use landfall_placement::{Engine, PathLimits, Peer, Refusal};
use landfall_seal::{
    HandshakeError, PeerIdentity, PublicKey, Role, SealConfig, Sealed, Secret, StaticKey, Trust,
    TrustAnybody,
};
use landfall_testkit::corpus::replay;
use landfall_testkit::model::{Checked, Faults};
use landfall_testkit::trials;
use proptest::prelude::*;

use crate::memory::{Wire, disagreements, end, host, key};

fn check(bytes: &[u8]) {
    let wrong = disagreements(bytes);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(trials::cases(96))
    })]

    #[test]
    fn no_attacker_writes_what_was_not_written(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }
}

/// What the fuzz target `seal_memory` runs, over its corpus: so that what was found stays found.
#[test]
fn the_corpus_of_sealed_memory_breaks_no_rule() {
    replay("seal_memory", 6, check);
}

/// Anyone who has this key is nobody.
struct NotThis(PublicKey);

impl Trust for NotThis {
    fn check(&mut self, _: Role, _: Peer, _: PublicKey) -> Result<(), HandshakeError> {
        Ok(())
    }

    fn check_name(
        &mut self,
        identity: Option<PeerIdentity>,
        name: u32,
    ) -> Result<(), HandshakeError> {
        assert!(matches!(name, 1 | 2), "hosts say who they are: {name}");
        match identity {
            Some(PeerIdentity::PublicKey(key)) if key == self.0 => {
                Err(HandshakeError::WrongPeer(key.fingerprint()))
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn a_peer_has_one_name_and_no_other_peers() {
    let public = |byte| StaticKey::new(Secret::new([byte; 32])).public();
    for opens_runs in [true, false] {
        // Which side does not believe the other one, and whether that one has called.
        for doubter in [0, 1] {
            let ends = [0, 1].map(|side| {
                let trust: Box<dyn Trust> = if side == doubter {
                    Box::new(NotThis(public(2 - side as u8)))
                } else {
                    Box::new(TrustAnybody)
                };
                end(side, key(side as u8 + 1), trust)
            });
            let mut wire = Wire::new(ends, PathLimits::plain(1_400), Faults::default(), 1);
            wire.opens_runs = opens_runs;
            let now = wire.now;
            let nic = &mut wire.sides[0].engine.engine;
            let peer = nic.associate(now, Wire::PATH, Peer::Node(1), None).unwrap();
            nic.open_link(now, Wire::PATH, peer).unwrap();
            let mut told = [Vec::new(), Vec::new()];
            for _ in 0..200 {
                for (side, told) in told.iter_mut().enumerate() {
                    while let Some(event) = wire.sides[side].engine.poll_event() {
                        told.push(event);
                    }
                }
                if !told[0].is_empty() || !wire.turn() && !wire.pass_time() {
                    break;
                }
            }
            // Who has called hears that there is no link, and nobody has one.
            let why = Ended::There(Reason::Refused);
            let is_end =
                |event: &Event| matches!(event, Event::LinkDown { why: w, .. } if *w == why);
            assert!(told[0].iter().all(is_end) && !told[0].is_empty(), "{told:?}");
            assert!(told[1].is_empty(), "{told:?}");
            let refusals = wire.sides[doubter].engine.refusals();
            assert!(refusals.of(Refusal::BadProof) > 0, "{refusals:?}");
            let nic = &mut wire.sides[0].engine.engine;
            let failure =
                (doubter == 0).then(|| HandshakeError::WrongPeer(public(2).fingerprint()));
            assert_eq!(nic.failure(peer), failure);
            assert_eq!(nic.poll_failed(), failure.map(|_| peer));
        }
    }
}

/// Nobody in clear is who has proven to be somebody.
struct ProvenOnly;

impl Trust for ProvenOnly {
    fn check(&mut self, _: Role, _: Peer, _: PublicKey) -> Result<(), HandshakeError> {
        Ok(())
    }

    fn check_name(&mut self, identity: Option<PeerIdentity>, _: u32) -> Result<(), HandshakeError> {
        identity.map(drop).ok_or(HandshakeError::NotProven)
    }
}

#[test]
fn a_peer_in_clear_does_not_get_the_name_of_who_has_proven_it() {
    for trusting in [true, false] {
        let ends = [0, 1].map(|side| {
            let trust: Box<dyn Trust> =
                if trusting { Box::new(TrustAnybody) } else { Box::new(ProvenOnly) };
            let plain_paths = vec![Wire::PATH];
            let config = SealConfig { plain_paths, ..SealConfig::new(key(side as u8 + 1)) };
            let seed = [side as u8 + 1; 32];
            let nic = Nic::new(Config::default(), host(side), seed).unwrap();
            Checked::new(Sealed::new(nic, config, trust, seed))
        });
        let mut wire = Wire::new(ends, PathLimits::plain(1_400), Faults::default(), 1);
        let now = wire.now;
        wire.sides[0].engine.engine.open_link(now, Wire::PATH, Peer::Node(1)).unwrap();
        let mut told = Vec::new();
        for _ in 0..200 {
            for side in &mut wire.sides {
                told.extend(std::iter::from_fn(|| side.engine.poll_event()));
            }
            if !told.is_empty() || !wire.turn() && !wire.pass_time() {
                break;
            }
        }
        let is_up = told.iter().any(|event| matches!(event, Event::LinkUp { .. }));
        assert_eq!(is_up, trusting, "{told:?}");
        let refused = wire.sides[1].engine.refusals().of(Refusal::BadProof);
        assert_eq!(refused > 0, !trusting);
    }
}
