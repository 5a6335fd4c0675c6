//! No nonce is used twice under one key: a model that remembers all of them, under any
//! sequence of calls.
#![expect(clippy::disallowed_types, reason = "each test remembers on its own thread")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use landfall_seal::{
    Aead, CipherKey, Forged, Keys, Limits, NONCE_LEN, RecordConfig, Role, SealError, Sealer,
    Secret, Suite, TAG_LEN, Tag, Units,
};
use proptest::prelude::*;

type Used = (Vec<u8>, [u8; NONCE_LEN]);

thread_local! {
    static USED: RefCell<BTreeSet<Used>> = RefCell::default();
}

/// A cipher that computes nothing, and fails when it sees a nonce again.
struct Remembering(Vec<u8>);

impl Aead for Remembering {
    fn new(suite: Suite, key: &CipherKey) -> Self {
        Self(key.bytes(suite).to_vec())
    }

    fn seal(&self, nonce: &[u8; NONCE_LEN], _: &[u8], _: &mut [u8]) -> Tag {
        let is_new = USED.with_borrow_mut(|used| used.insert((self.0.clone(), *nonce)));
        assert!(is_new, "a nonce was used twice");
        Tag::default()
    }

    fn open(&self, _: &[u8; NONCE_LEN], _: &[u8], _: &mut [u8], _: &Tag) -> Result<(), Forged> {
        Err(Forged)
    }
}

#[derive(Clone, Debug)]
enum Call {
    Seal {
        part: usize,
        path: u16,
        len: usize,
    },
    /// A number is taken and not used.
    Waste {
        part: usize,
        path: u16,
    },
    Run {
        part: usize,
        path: u16,
        units: usize,
    },
    Update {
        part: usize,
    },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let (part, path) = (0usize..4, 0u16..4);
    let call = prop_oneof![
        4 => (part.clone(), path.clone(), 0usize..40)
            .prop_map(|(part, path, len)| Call::Seal { part, path, len }),
        1 => (part.clone(), path.clone()).prop_map(|(part, path)| Call::Waste { part, path }),
        3 => (part.clone(), path, 1usize..6)
            .prop_map(|(part, path, units)| Call::Run { part, path, units }),
        1 => part.prop_map(|part| Call::Update { part }),
    ];
    prop::collection::vec(call, 0..80)
}

fn perform(sealer: &mut Sealer<Remembering>, call: &Call) -> Result<u64, SealError> {
    match *call {
        Call::Seal { path, len, .. } => {
            let slot = sealer.slot(path)?;
            let number = slot.position().number;
            slot.seal(b"head", &mut vec![0; len]).map(|_| number)
        }
        Call::Waste { path, .. } => sealer.slot(path).map(|slot| slot.position().number),
        Call::Run { path, units, .. } => {
            let (mut heads, mut payload) = (vec![0; units * 24], vec![0; units * 8 - 3]);
            let units = Units {
                heads: &mut heads,
                stride: 24,
                head_len: 8,
                payload: &mut payload,
                unit: 8,
            };
            sealer.seal_run(path, units, |_, _| {}).map(|first| first.number)
        }
        Call::Update { .. } => sealer.update().map(|()| 0),
    }
}

proptest! {
    /// Two ends, each with two forks of its keys, seal whatever and whenever they want.
    #[test]
    fn no_nonce_is_used_twice_whatever_is_called(
        calls in calls(),
        suite in prop::sample::select(Suite::ALL.to_vec()),
        blocks in prop_oneof![Just(u64::MAX), 1u64..200],
    ) {
        USED.with_borrow_mut(BTreeSet::clear);
        let limits = Some(Limits { blocks, forgeries: u64::MAX });
        let config = RecordConfig { paths: 3, limits };
        let mut sealers: Vec<_> = [Role::Initiator, Role::Responder]
            .into_iter()
            .flat_map(|role| Keys::new(Secret::new([7; 32]), role, suite).fork(["a", "b"]))
            .map(|keys| keys.records::<Remembering>(&config).0)
            .collect();
        let mut last = std::collections::BTreeMap::new();
        for call in &calls {
            let (Call::Seal { part, .. } | Call::Waste { part, .. } | Call::Run { part, .. }
                | Call::Update { part }) = *call;
            let outcome = perform(&mut sealers[part], call);
            if let Call::Seal { path, .. } | Call::Waste { path, .. } | Call::Run { path, .. } = *call {
                if path >= config.paths {
                    prop_assert_eq!(outcome, Err(SealError::NoPath(path)));
                } else if let Ok(number) = outcome {
                    let before = last.insert((part, path), number);
                    prop_assert!(before.is_none_or(|before| before < number), "numbers grow");
                } else {
                    prop_assert_eq!(outcome, Err(SealError::UpdateKey));
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "each part has a name of its own")]
fn forks_of_one_name_would_have_the_same_nonces() {
    let _ = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm).fork(["a", "a"]);
}

/// The model can see what it looks for.
#[test]
#[should_panic(expected = "a nonce was used twice")]
fn keys_that_were_made_twice_are_noticed() {
    USED.with_borrow_mut(BTreeSet::clear);
    for _ in 0..2 {
        let keys = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
        let (mut sealer, _) = keys.records::<Remembering>(&RecordConfig::default());
        let _ = sealer.slot(0).unwrap().seal(b"", &mut [0; TAG_LEN]);
    }
}
