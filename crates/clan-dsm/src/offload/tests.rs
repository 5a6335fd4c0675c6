//! The seam as a firmware has it: tables of fixed size, filled to the brim.

use std::vec;
use std::vec::Vec;

use landfall_placement::{Area, Random, Refusal, RegionId};

use super::*;
use crate::address::{Address, HostId, Key, Kind, TripwireId, WHOLE};
use crate::cookie::{Access, Rights};

/// As many tripwires as the adapter of the paper has.
const TRIPWIRES: usize = 4096;
/// For each, this many more that watch more than one word would need.
const KNOTS: usize = 2 * TRIPWIRES;

struct Sram {
    wires: Vec<Wire>,
    knots: Vec<ListNode>,
    lists: (Vec<Cell<Ends>>, u32),
    marks: (Vec<Cell<u64>>, u32),
    trees: (Vec<Cell<u128>>, u32),
    totals: TableTotals,
    names: Vec<TripwireId>,
    queued: Queued,
    secret: Secret,
}

impl Sram {
    fn new(cells: usize) -> Self {
        Self {
            wires: vec![Wire::default(); TRIPWIRES],
            knots: vec![ListNode::default(); KNOTS],
            lists: (vec![Cell::default(); cells], 0),
            marks: (vec![Cell::default(); cells], 0),
            trees: (vec![Cell::default(); cells], 0),
            totals: TableTotals::default(),
            names: vec![TripwireId::new(0, 0); 8],
            queued: Queued::default(),
            secret: Secret::new(&mut Random::from_number(5)),
        }
    }

    fn tables(&mut self) -> Tables<'_> {
        Tables {
            wires: &mut self.wires,
            knots: &mut self.knots,
            lists: Map::new(&mut self.lists.0, &mut self.lists.1, self.secret),
            marks: Map::new(&mut self.marks.0, &mut self.marks.1, self.secret),
            trees: Map::new(&mut self.trees.0, &mut self.trees.1, self.secret),
            totals: &mut self.totals,
            actions: Actions {
                names: &mut self.names,
                queued: &mut self.queued,
                bits: &mut [],
                counters: &mut [],
            },
        }
    }
}

fn watch(from: u64, words: u64) -> Watch {
    Watch {
        place: Place::Local(0),
        from: from * 8,
        to: (from + words) * 8,
        access: Access::Write,
        action: Action::Identifier,
        once: false,
    }
}

fn fired(tables: &mut Tables<'_>, from: u64, words: u64) -> Vec<(u32, u32, u64)> {
    let bytes = Touched::new(Place::Local(0), from * 8, (from + words) * 8, Access::Write);
    let mut all = Vec::new();
    if let Some(bytes) = bytes {
        tables.touch(bytes, &mut |firing| all.push((firing.index, firing.word, firing.words)));
    }
    all
}

/// As many as there is room for, each in a page of its own; then all are disarmed
/// and armed again, in another order.
#[test]
fn all_tripwires_of_the_paper_fit_into_fixed_tables() {
    let mut sram = Sram::new(4 * TRIPWIRES);
    let mut tables = sram.tables();
    for n in 0..TRIPWIRES as u64 {
        let TripwireId { index, .. } = tables.add(&watch(n * 64, 1)).unwrap();
        assert!(tables.arm(index));
    }
    assert!(tables.add(&watch(0, 1)).is_none(), "no place is left");
    for n in (0..TRIPWIRES as u64).rev() {
        assert_eq!(fired(&mut tables, n * 64, 64), [(n as u32, n as u32 * 64, 1)]);
        tables.disarm(n as u32);
        assert!(fired(&mut tables, n * 64, 64).is_empty());
    }
    // Nothing of what was armed is left behind.
    assert_eq!((tables.lists.used(), tables.marks.used(), tables.trees.used()), (0, 0, 0));
    for index in (0..TRIPWIRES as u32).rev() {
        assert!(tables.arm(index));
    }
    let all: Vec<u32> =
        fired(&mut tables, 0, 64 * TRIPWIRES as u64).iter().map(|(index, ..)| *index).collect();
    assert!(all.into_iter().eq(0..TRIPWIRES as u32), "in the order of words");
    // Eight names found room and wait; the tripwires themselves know of all.
    assert_eq!(tables.actions.take_lost() as usize, 2 * (TRIPWIRES - 8));
    assert!((0..TRIPWIRES as u32).all(|index| tables.has_fired(index)));
}

/// Where the tables are too small to arm one more, it stays disarmed, those that
/// are armed stay so, and room that is given back is used.
#[test]
fn tables_that_are_full_refuse_and_change_nothing() {
    let mut sram = Sram::new(64);
    let mut tables = sram.tables();
    let mut armed = Vec::new();
    loop {
        let TripwireId { index, .. } =
            tables.add(&watch(armed.len() as u64 * 1000 + 7, 5)).unwrap();
        if !tables.arm(index) {
            assert!(!tables.is_armed(index));
            tables.remove(index);
            break;
        }
        armed.push(index);
    }
    assert!(armed.len() > 4, "{}", armed.len());
    for index in &armed {
        let from = u64::from(*index) * 1000 + 7;
        assert_eq!(fired(&mut tables, from + 2, 9), [(*index, from as u32 + 2, 3)]);
    }
    assert!(fired(&mut tables, armed.len() as u64 * 1000, 1000).is_empty());
    tables.remove(armed[0]);
    let TripwireId { index, generation } = tables.add(&watch(7, 5)).unwrap();
    assert!(tables.arm(index) && generation > 0);
    assert_eq!(fired(&mut tables, 11, 9), [(index, 11, 1)]);
}

/// A header is checked and its burst matched, with nothing but tables.
#[test]
fn a_burst_goes_through_the_whole_seam() {
    let key = Key::from_bits(0x00c0_ffee);
    let memory = Area::new(RegionId::new(1, 1), 4096, 80);
    let slots = [Aperture { memory, issued: 1 << Rights::Write as u8, keys: [key; 3] }];
    let mut sram = Sram::new(64);
    let secret = sram.secret;
    let apertures = Apertures::new(&slots, &[], secret);
    let mut tables = sram.tables();
    let TripwireId { index, .. } = tables.add(&watch(3, 2)).unwrap();
    assert!(tables.arm(index));
    let host = HostId::default();
    let header = Address { kind: Kind::Burst, host, slot: 0, word: 2, mask: WHOLE, key };
    assert_eq!(apertures.check(&header, 9, Rights::Write), Err(Refusal::OutOfBounds));
    assert_eq!(apertures.check(&header, 1, Rights::Read), Err(Refusal::Forbidden));
    let spot = apertures.check(&header, 2, Rights::Write).unwrap();
    assert_eq!(spot.span, memory.span(16, 16));
    assert_eq!(fired(&mut tables, spot.at / 8, u64::from(spot.span.len) / 8), [(index, 3, 1)]);
}
