//! Records: what is changed, repeated, late, or too much.

use landfall_seal::provider::Provider;
use landfall_seal::{
    Keys, Limits, OpenError, Opener, Position, RecordConfig, Role, SealError, Sealer, Secret,
    Suite, TAG_LEN, Tag, Units,
};
use proptest::prelude::*;

type Pair = (Sealer<Provider>, Opener<Provider>);

fn pair(config: &RecordConfig) -> Pair {
    let keys = |role| Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
    let (sealer, _) = keys(Role::Initiator).records(config);
    let (_, opener) = keys(Role::Responder).records(config);
    (sealer, opener)
}

#[derive(Clone)]
struct Record {
    at: Position,
    payload: Vec<u8>,
    tag: Tag,
}

fn seal(sealer: &mut Sealer<Provider>, path: u16, contents: &[u8]) -> Record {
    let mut payload = contents.to_vec();
    let slot = sealer.slot(path).unwrap();
    let at = slot.position();
    let tag = slot.seal(b"head", &mut payload).unwrap();
    Record { at, payload, tag }
}

fn open(opener: &mut Opener<Provider>, record: &Record) -> Result<Vec<u8>, OpenError> {
    let mut payload = record.payload.clone();
    opener.open(record.at, b"head", &mut payload, &record.tag).map(|()| payload)
}

#[test]
fn a_replayed_record_is_refused_and_a_late_one_is_not() {
    let (mut sealer, mut opener) = pair(&RecordConfig::default());
    let records: Vec<_> = (0..2000u32).map(|n| seal(&mut sealer, 0, &n.to_le_bytes())).collect();
    for nth in [5, 3, 4, 1500] {
        assert_eq!(open(&mut opener, &records[nth]).unwrap(), (nth as u32).to_le_bytes());
    }
    for nth in [5, 3, 4, 1500, 0, 476] {
        assert_eq!(open(&mut opener, &records[nth]), Err(OpenError::Replayed), "{nth}");
    }
    for nth in [477, 1499, 1501] {
        assert!(open(&mut opener, &records[nth]).is_ok(), "{nth}");
    }
}

#[test]
fn a_forged_record_uses_up_no_number() {
    let (mut sealer, mut opener) = pair(&RecordConfig::default());
    let record = seal(&mut sealer, 0, b"contents");
    let mut forged = record.clone();
    forged.payload[0] ^= 1;
    assert_eq!(open(&mut opener, &forged), Err(OpenError::Forged));
    let far = Record { at: Position { number: 1 << 40, ..record.at }, ..record.clone() };
    assert_eq!(open(&mut opener, &far), Err(OpenError::Forged));
    assert_eq!(opener.forged(), 2);
    assert_eq!(open(&mut opener, &record).unwrap(), b"contents");
}

#[test]
fn a_record_does_not_move_to_another_path_direction_number_or_fork() {
    let config = RecordConfig { paths: 2, limits: None };
    let (mut sealer, mut opener) = pair(&config);
    let record = seal(&mut sealer, 0, b"contents");
    let moved = |at| Record { at, ..record.clone() };
    let at = record.at;
    for other in [Position { path: 1, ..at }, Position { number: 1, ..at }] {
        assert_eq!(open(&mut opener, &moved(other)), Err(OpenError::Forged));
    }
    let other = Position { path: 2, ..at };
    assert_eq!(open(&mut opener, &moved(other)), Err(OpenError::NoPath(2)));
    // What this side has sent does not come back as what the other says.
    let keys = || Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
    let (_, mut own) = keys().records::<Provider>(&config);
    assert_eq!(open(&mut own, &record), Err(OpenError::Forged));
    let responder = Keys::new(Secret::new([7; 32]), Role::Responder, Suite::Aes128Gcm);
    let [fork] = responder.fork(["part"]);
    assert_eq!(open(&mut fork.records(&config).1, &record), Err(OpenError::Forged));
    assert!(open(&mut opener, &record).is_ok());
}

#[test]
fn keys_are_renewed_and_late_records_still_open() {
    let (mut sealer, mut opener) = pair(&RecordConfig::default());
    let mut records = Vec::new();
    for generation in 0..4u8 {
        for n in 0..3 {
            records.push(seal(&mut sealer, 0, &[generation, n]));
        }
        sealer.update().unwrap();
    }
    assert_eq!(sealer.generation(), 4);
    assert!(open(&mut opener, &records[0]).is_ok());
    // Two ahead: nobody made that key here.
    assert_eq!(open(&mut opener, &records[6]), Err(OpenError::NoGeneration(2)));
    // A forged record of the next generation changes nothing.
    let mut forged = records[3].clone();
    forged.tag.0[0] ^= 1;
    assert_eq!(open(&mut opener, &forged), Err(OpenError::Forged));
    assert_eq!(opener.generation(), 0);
    assert_eq!(open(&mut opener, &records[4]).unwrap(), [1, 1]);
    assert_eq!(opener.generation(), 1);
    // Late ones of the generation before.
    assert_eq!(open(&mut opener, &records[1]).unwrap(), [0, 1]);
    assert_eq!(open(&mut opener, &records[0]), Err(OpenError::Replayed), "across the update");
    assert!(open(&mut opener, &records[6]).is_ok());
    assert_eq!(open(&mut opener, &records[2]), Err(OpenError::NoGeneration(0)));
    assert!(open(&mut opener, &records[3]).is_ok());
    // Under another generation's key a record is none.
    let late = Record { at: Position { generation: 2, ..records[5].at }, ..records[5].clone() };
    assert_eq!(open(&mut opener, &late), Err(OpenError::Forged));
}

#[test]
fn a_key_asks_for_the_next_before_its_limit() {
    let limits = Some(Limits { blocks: 40, forgeries: 1 });
    let (mut sealer, mut opener) = pair(&RecordConfig { paths: 1, limits });
    // One block each of head, payload and tag.
    for nth in 0..13 {
        assert_eq!(sealer.needs_update(), nth >= 12);
        let record = seal(&mut sealer, 0, &[1; 16]);
        assert!(open(&mut opener, &record).is_ok());
    }
    let mut payload = [1; 16];
    let slot = sealer.slot(0).unwrap();
    assert_eq!(slot.seal(b"head", &mut payload), Err(SealError::UpdateKey));
    assert_eq!(payload, [1; 16], "nothing was sealed");
    let (mut heads, mut run) = (vec![0; 40], vec![0; 32]);
    let units = Units { heads: &mut heads, stride: 20, head_len: 4, payload: &mut run, unit: 16 };
    assert_eq!(sealer.seal_run(0, units, |_, _| {}), Err(SealError::UpdateKey));
    assert_eq!(run, [0; 32], "a run that does not fit is not begun");
    sealer.update().unwrap();
    let mut record = seal(&mut sealer, 0, &[1; 16]);
    assert!(open(&mut opener, &record).is_ok());
    // The second limit ends it for good.
    let genuine = seal(&mut sealer, 0, b"more");
    record = seal(&mut sealer, 0, b"forged");
    record.payload[0] ^= 1;
    assert_eq!(open(&mut opener, &record), Err(OpenError::Forged));
    assert_eq!(open(&mut opener, &genuine), Err(OpenError::Closed));
}

#[test]
fn records_that_are_too_long_are_refused() {
    let (mut sealer, mut opener) = pair(&RecordConfig::default());
    let mut long = vec![0; landfall_seal::MOST_PAYLOAD + 1];
    assert_eq!(sealer.slot(0).unwrap().seal(b"", &mut long), Err(SealError::TooLong));
    let at = Position { path: 0, generation: 0, number: 0 };
    let verdict = opener.open(at, b"", &mut long, &Tag::default());
    assert_eq!(verdict, Err(OpenError::TooLong));
    let head = vec![0; landfall_seal::MOST_HEAD + 1];
    assert_eq!(sealer.slot(0).unwrap().seal(&head, &mut []), Err(SealError::TooLong));
}

#[test]
fn units_that_do_not_fit_together_are_refused() {
    let (mut sealer, _) = pair(&RecordConfig::default());
    for (heads, stride, head_len, payload, unit) in [
        (100, 20, 4, 0, 10),
        (100, 20, 4, 10, 0),
        (100, 19, 4, 10, 10),
        (39, 20, 4, 20, 10),
        (100, usize::MAX, 4, 20, 10),
        (100, 20, usize::MAX, 10, 10),
    ] {
        let (mut heads, mut payload) = (vec![0; heads], vec![0; payload]);
        let units = Units { heads: &mut heads, stride, head_len, payload: &mut payload, unit };
        let verdict = sealer.seal_run(0, units, |_, _| panic!("nothing begins"));
        assert!(matches!(verdict, Err(SealError::BadUnits(_))), "{verdict:?}");
    }
    assert_eq!(sealer.slot(0).unwrap().position().number, 0, "no number was used");
}

proptest! {
    /// A run is the same as its units one by one, and each unit has a verdict of its own.
    #[test]
    fn a_run_opens_unit_by_unit(
        contents in prop::collection::vec(any::<u8>(), 1..2000),
        unit in 1usize..700,
        head_len in 8usize..30,
        spare in 0usize..9,
        before in 0u64..20,
        broken in any::<prop::sample::Index>(),
    ) {
        let (mut sealer, mut opener) = pair(&RecordConfig::default());
        for _ in 0..before {
            assert!(sealer.slot(0).is_ok());
        }
        let count = contents.len().div_ceil(unit);
        let stride = head_len + TAG_LEN + spare;
        let (mut heads, mut payload) = (vec![0xee; count * stride], contents.clone());
        let units = Units { heads: &mut heads, stride, head_len, payload: &mut payload, unit };
        let number_head = |number: u64, head: &mut [u8]| head[..8].copy_from_slice(&number.to_le_bytes());
        let first = sealer.seal_run(0, units, number_head).unwrap();
        prop_assert_eq!(first.number, before);

        let broken = broken.index(count);
        payload[broken * unit] ^= 1;
        let sealed = payload.clone();
        let units = Units { heads: &mut heads, stride, head_len, payload: &mut payload, unit };
        let position = |head: &[u8]| {
            let number = u64::from_le_bytes(*head.first_chunk()?);
            Some(Position { number, ..first })
        };
        let mut verdicts = Vec::new();
        opener.open_run(units, position, |nth, verdict| verdicts.push((nth, verdict))).unwrap();
        prop_assert_eq!(verdicts.len(), count);
        for (nth, verdict) in verdicts {
            let range = nth * unit..(nth * unit + unit).min(contents.len());
            if nth == broken {
                prop_assert_eq!(verdict, Err(OpenError::Forged));
                prop_assert_ne!(&payload[range.clone()], &contents[range]);
            } else {
                let at = Position { number: before + nth as u64, ..first };
                prop_assert_eq!(verdict, Ok(at));
                prop_assert_eq!(&payload[range.clone()], &contents[range]);
            }
        }
        // The broken unit comes again, one by one, as it was.
        let mut again = sealed;
        again[broken * unit] ^= 1;
        let head = &heads[broken * stride..];
        let tag = Tag(*head[head_len..].first_chunk().unwrap());
        let range = broken * unit..(broken * unit + unit).min(contents.len());
        let at = Position { number: before + broken as u64, ..first };
        prop_assert!(opener.open(at, &head[..head_len], &mut again[range.clone()], &tag).is_ok());
        prop_assert_eq!(&again[range.clone()], &contents[range]);
    }

    /// Records in any order, some of them many times, changed or not: each is accepted once
    /// at most, and only as it was sealed.
    #[test]
    fn what_is_accepted_was_sealed_and_is_accepted_once(
        arrivals in prop::collection::vec((0usize..30, prop::option::of(any::<u16>())), 0..120),
    ) {
        let config = RecordConfig { paths: 2, limits: None };
        let (mut sealer, mut opener) = pair(&config);
        let mut records = Vec::new();
        for n in 0..30u8 {
            records.push(seal(&mut sealer, u16::from(n % 2), &[n; 20]));
            if n % 10 == 9 {
                sealer.update().unwrap();
            }
        }
        let mut accepted = std::collections::BTreeSet::new();
        for (nth, flip) in arrivals {
            let mut record = records[nth].clone();
            if let Some(flip) = flip {
                let all = record.payload.iter_mut().chain(&mut record.tag.0);
                *all.into_iter().nth(usize::from(flip) / 8 % 36).unwrap() ^= 1 << (flip % 8);
            }
            if let Ok(opened) = open(&mut opener, &record) {
                prop_assert!(flip.is_none() && accepted.insert(nth));
                prop_assert_eq!(opened, [nth as u8; 20]);
            }
        }
    }
}
