//! A run is what its units are, one by one: the seam's answer for all of them beside its
//! answers for each.

use landfall_placement::{Ecn, Heads, PathId, Peer, RegionId, Span, UnitRun};
use proptest::prelude::*;
use stp_core::offload::{
    Arrival, Block, Blocks, Expected, Incoming, RunHit, StuRange, bits_needed,
};
use stp_core::wire::{Flags, HEADER_LEN, Header, Op};
use zerocopy::IntoBytes;

const STUS: u16 = 200;
const BITS: usize = bits_needed(1, STUS);
const STU: u16 = 72;
const STU_LEN: u32 = STU as u32;
/// Room for a head and what lies between two of them.
const STRIDE: usize = 64;
const FROM: Peer = Peer::Node(9);

/// A table with one Block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Storage {
    blocks: [Block; 1],
    bits: [u64; BITS],
}

impl Storage {
    fn seam(&mut self) -> Blocks<'_> {
        Blocks::new(&mut self.blocks, &mut self.bits, STUS)
    }

    fn place(&mut self, unit: &Unit, ecn: Ecn) -> Option<Span> {
        let (path, from) = (PathId(3), FROM);
        let data = Incoming { header: &unit.header, len: unit.len, path, from, ecn };
        self.seam().place(&data).ok().map(|hit| hit.span)
    }
}

/// What comes: a header, and how long the unit is.
#[derive(Clone, Copy, Debug)]
struct Unit {
    header: Header,
    len: u32,
}

/// A Block that begins at `start` and ends somewhere within an STU.
fn opened(start: u32, len: u32, granted: u16) -> Storage {
    let mut storage = Storage { blocks: [Block::default()], bits: [0; BITS] };
    let expected = Expected {
        path: PathId(3),
        peer: FROM,
        key: 0x5eed,
        d_port: 10,
        s_port: 20,
        d_id: 7,
        serial: 77,
        number: 5,
    };
    let memory = RegionId::new(4, 1).span(10_000, len);
    assert!(storage.seam().open(0, expected, start, memory, STU));
    storage.seam().grant(0, granted);
    storage
}

/// The STU of this number as its sender sends it, if the Block has it.
fn unit(storage: &Storage, stu: u16) -> Unit {
    let (offset, len) = storage.blocks[0].stu_at(stu);
    let is_last = stu + 1 == storage.blocks[0].stus();
    let header = Header {
        op: Op::Data as u8,
        flags: if is_last { Flags::LAST.0 } else { 0 },
        param: 5.into(),
        d_port: 10.into(),
        s_port: 20.into(),
        d_key: 0x5eed.into(),
        sync: 77.into(),
        b_num: 5.into(),
        bufx: storage.blocks[0].bufx(0).into(),
        offset: offset.into(),
        t_len: (77 << 32).into(),
        d_id: 7.into(),
        ..Header::default()
    };
    Unit { header, len: len + HEADER_LEN as u32 }
}

/// The heads of units, a stride apart, with junk between them.
fn heads(units: &[Unit]) -> Vec<u8> {
    let mut bytes = vec![0xa5; units.len() * STRIDE];
    for (place, unit) in bytes.chunks_mut(STRIDE).zip(units) {
        place[..HEADER_LEN].copy_from_slice(unit.header.as_bytes());
    }
    bytes
}

/// Offers units as one receive brings them: all but the last as long as the first.
fn place_run(storage: &mut Storage, units: &[Unit], ecn: Ecn) -> Option<RunHit> {
    let bytes = heads(units);
    let run = UnitRun {
        path: PathId(3),
        from: FROM,
        heads: Heads::new(&bytes, STRIDE, HEADER_LEN, units.len()).unwrap(),
        unit_len: units[0].len,
        last_len: units[units.len() - 1].len,
        ecn,
    };
    storage.seam().place_run(&run)
}

/// One thing that is not as expected.
#[derive(Clone, Copy, Debug)]
enum Change {
    Byte { unit: usize, at: usize, bit: u8 },
    Length { unit: usize, by: i32 },
    Repeat { unit: usize },
    Skip { unit: usize },
}

fn change() -> impl Strategy<Value = Change> {
    let unit = || 0usize..70;
    prop_oneof![
        (unit(), 0..HEADER_LEN, 0u8..8).prop_map(|(unit, at, bit)| Change::Byte { unit, at, bit }),
        (unit(), -3i32..3).prop_map(|(unit, by)| Change::Length { unit, by }),
        unit().prop_map(|unit| Change::Repeat { unit }),
        unit().prop_map(|unit| Change::Skip { unit }),
    ]
}

fn apply(change: Change, units: &mut Vec<Unit>) {
    let count = units.len();
    match change {
        Change::Byte { unit, at, bit } => {
            units[unit % count].header.as_mut_bytes()[at] ^= 1 << bit;
        }
        Change::Length { unit, by } => {
            let len = &mut units[unit % count].len;
            *len = len.saturating_add_signed(by).max(HEADER_LEN as u32);
        }
        Change::Repeat { unit } => {
            let again = units[unit % count];
            units.insert(unit % count, again);
        }
        Change::Skip { unit } => {
            units.remove(unit % count);
        }
    }
}

/// As one receive brings them: a batch ends with the first unit of another length, which
/// belongs to it if it is shorter.
fn as_batch(mut units: Vec<Unit>) -> Vec<Unit> {
    let first = units[0].len;
    if let Some(end) = units.iter().position(|unit| unit.len != first) {
        units.truncate(if units[end].len < first { end + 1 } else { end });
    }
    units.truncate(64);
    units
}

proptest! {
    /// Whatever a run holds: what is answered for it is what its units would have got, and
    /// what nothing is answered for changes nothing.
    #[test]
    fn a_run_is_placed_as_its_units_are(
        (start, len) in (0u32..200, 1u32..9_000),
        granted in 0u16..160,
        have in prop::collection::vec(0u16..160, 0..12),
        (first, count) in (0u16..150, 1u16..70),
        changes in prop::collection::vec(change(), 0..3),
        is_marked in any::<bool>(),
    ) {
        let mut storage = opened(start, len, granted);
        let stus = storage.blocks[0].stus();
        let ecn = if is_marked { Ecn::CongestionExperienced } else { Ecn::NotCapable };
        for stu in have.into_iter().filter(|stu| *stu < stus) {
            let unit = unit(&storage, stu);
            storage.place(&unit, Ecn::NotCapable);
        }
        let first = first % stus;
        let end = first.saturating_add(count).min(stus);
        let mut units: Vec<_> = (first..end).map(|stu| unit(&storage, stu)).collect();
        for change in changes {
            apply(change, &mut units);
            prop_assume!(!units.is_empty());
        }
        let units = as_batch(units);

        let mut one_by_one = storage.clone();
        let before = storage.clone();
        match place_run(&mut storage, &units, ecn) {
            Some(hit) => {
                let taken = usize::from(hit.stus.count);
                let mut at = hit.span.offset;
                for unit in &units[..taken] {
                    let span = one_by_one.place(unit, ecn).expect("accepted by itself, too");
                    prop_assert_eq!((span.region, span.offset), (hit.span.region, at));
                    prop_assert_eq!(span.len + HEADER_LEN as u32, unit.len, "all of its bytes");
                    at += u64::from(span.len);
                }
                prop_assert_eq!(at, hit.span.offset + u64::from(hit.span.len));
                prop_assert_eq!(&storage, &one_by_one);
                // It is the longest such part, but for a header that differs in what is not
                // checked.
                if let Some(next) = units.get(taken)
                    && let Some(span) = one_by_one.place(next, ecn)
                {
                    let is_behind = span.offset == at;
                    let is_whole = span.len == STU_LEN || taken + 1 == units.len();
                    let like = |unit: &Unit| Header {
                        flags: unit.header.flags & !Flags::LAST.0,
                        offset: 0.into(),
                        ..unit.header
                    };
                    prop_assert!(
                        !is_behind || !is_whole || like(next) != like(&units[0])
                            || units[0].len != STU_LEN + HEADER_LEN as u32
                            || span.len + HEADER_LEN as u32 != next.len,
                        "it could have gone on: {:?}", hit
                    );
                }
            }
            None => {
                prop_assert_eq!(&storage, &before);
                // That it is Data is the engine's to see before it asks for a single place.
                let header = &units[0].header;
                let is_other = header.op != Op::Data as u8 || header.flags().has(Flags::SUM);
                let is_padded = |span: Span| span.len + HEADER_LEN as u32 != units[0].len;
                let placed = one_by_one.place(&units[0], ecn);
                prop_assert!(is_other || placed.is_none_or(is_padded), "it was expected");
            }
        }
    }

    /// Landing a run, or losing it, is landing or losing each of its units.
    #[test]
    fn a_run_lands_as_its_units_do(
        (start, len) in (0u32..200, 1u32..9_000),
        runs in prop::collection::vec((1u16..70, proptest::bool::weighted(0.8)), 1..40),
    ) {
        let mut storage = opened(start, len, STUS);
        let stus = storage.blocks[0].stus();
        let mut one_by_one = storage.clone();
        for (most, is_in_place) in runs {
            let Some((first, _)) = storage.seam().missing(0, 0, u16::MAX) else { break };
            let end = first.saturating_add(most).min(stus);
            let units: Vec<_> = (first..end).map(|stu| unit(&storage, stu)).collect();
            let Some(hit) = place_run(&mut storage, &as_batch(units.clone()), Ecn::NotCapable)
            else {
                panic!("{first} of {stus} is missing and was refused");
            };
            let StuRange { first: stu_id, count } = hit.stus;
            let arrival = storage.seam().landed(hit.stus, is_in_place);
            let (mut bytes, mut is_complete) = (0, false);
            for nth in 0..count {
                one_by_one.place(&units[usize::from(nth)], Ecn::NotCapable);
            }
            for nth in 0..count {
                let stu_id = stp_core::offload::StuId { stu: stu_id.stu + nth, ..stu_id };
                match one_by_one.seam().landed(stu_id, is_in_place) {
                    Arrival::Bytes(len) => bytes += len,
                    Arrival::Complete(len) => (bytes, is_complete) = (bytes + len, true),
                    Arrival::Lost => prop_assert!(!is_in_place),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            let wanted = match (is_in_place, is_complete) {
                (false, _) => Arrival::Lost,
                (true, false) => Arrival::Bytes(bytes),
                (true, true) => Arrival::Complete(bytes),
            };
            prop_assert_eq!(arrival, wanted);
            prop_assert_eq!(&storage, &one_by_one);
        }
    }
}

/// Runs that lie: each is cut before the lie, and what is behind it gets its own answer.
#[test]
fn a_run_that_lies_is_cut_before_the_lie() {
    let taken = |lie: &dyn Fn(&mut Vec<Unit>)| {
        let mut storage = opened(0, 20 * STU_LEN, 15);
        let mut units: Vec<_> = (0..10).map(|stu| unit(&storage, stu)).collect();
        lie(&mut units);
        place_run(&mut storage, &units, Ecn::NotCapable).map(|hit| hit.stus.count)
    };
    assert_eq!(taken(&|_| {}), Some(10));
    let jumps = |units: &mut Vec<Unit>| units[4].header.offset = (12 * STU_LEN).into();
    assert_eq!(taken(&jumps), Some(4), "a head jumps inside the run");
    let returns = |units: &mut Vec<Unit>| units[4] = units[3];
    assert_eq!(taken(&returns), Some(4), "a head comes again");
    let forged = |units: &mut Vec<Unit>| units[7].header.d_key = 1.into();
    assert_eq!(taken(&forged), Some(7), "a key that is not the Block's");
    let other = |units: &mut Vec<Unit>| units[2].header.bufx = 9.into();
    assert_eq!(taken(&other), Some(2), "a head of another Block");
    let short = |units: &mut Vec<Unit>| units[9].len -= 1;
    assert_eq!(taken(&short), Some(9), "the last is shorter than its STU");
    let long = |units: &mut Vec<Unit>| units.iter_mut().for_each(|unit| unit.len += 1);
    assert_eq!(taken(&long), None, "a length that is not that of the STUs");
    let summed = |units: &mut Vec<Unit>| units[0].header.flags |= Flags::SUM.0;
    assert_eq!(taken(&summed), None, "what has to be summed is looked at one by one");
    let control = |units: &mut Vec<Unit>| units[0].header.op = Op::ClearToSend as u8;
    assert_eq!(taken(&control), None);
    let behind = |units: &mut Vec<Unit>| {
        let storage = opened(0, 20 * STU_LEN, 15);
        units.extend((10..20).map(|stu| unit(&storage, stu)));
    };
    assert_eq!(taken(&behind), Some(15), "what is behind the grant is not of the run");
}

/// Of two runs that overlap the second gets what the first has not.
#[test]
fn runs_that_overlap_share_nothing() {
    let mut storage = opened(0, 20 * STU_LEN, 20);
    let units: Vec<_> = (0..20).map(|stu| unit(&storage, stu)).collect();
    let first = place_run(&mut storage, &units[5..12], Ecn::NotCapable).unwrap();
    let before = place_run(&mut storage, &units[2..10], Ecn::NotCapable).unwrap();
    assert_eq!((before.stus.first.stu, before.stus.count), (2, 3));
    assert_eq!(place_run(&mut storage, &units[8..14], Ecn::NotCapable), None, "it is there");
    assert!(!first.span.overlaps(&before.span));
}

/// A Block that is taken back while a run is under way keeps its memory until it landed.
#[test]
fn a_block_is_taken_back_in_the_middle_of_a_run() {
    let mut storage = opened(0, 20 * STU_LEN, 20);
    let units: Vec<_> = (0..20).map(|stu| unit(&storage, stu)).collect();
    let run = place_run(&mut storage, &units[..8], Ecn::NotCapable).unwrap();
    let behind = place_run(&mut storage, &units[8..12], Ecn::NotCapable).unwrap();
    assert!(!storage.seam().close(0), "its memory is in use");
    assert_eq!(place_run(&mut storage, &units[12..], Ecn::NotCapable), None);
    assert_eq!(storage.seam().landed(run.stus, true), Arrival::Stale);
    assert_eq!(storage.seam().landed(behind.stus, true), Arrival::Released);
    assert_eq!(storage.seam().landed(behind.stus, true), Arrival::Stale, "invariant 7");
}
