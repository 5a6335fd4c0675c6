//! One grant after another: ids, bounds, rights, and what stale names do.

use std::time::Duration;

use landfall_placement::{RegionId, WordFunction, WordOp, WordWidth};

use crate::memory::{
    AccessError, LendRefusal, Memory, OutOfMemory, Pins, Regions, Rights, TakeBackError,
};

const RW: Rights = Rights::from_bits(3);

fn word(region: RegionId, offset: u64, width: WordWidth, function: WordFunction) -> WordOp {
    WordOp { region, offset, width, function }
}

#[test]
fn delivered_bytes_are_read_where_they_landed() {
    let regions = Regions::new(4);
    let mut memory = Memory::zeroed(1000);
    memory.fill(b'.');
    let at = memory.as_ptr();
    let id = regions.lend(memory, RW).unwrap();
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(3, 13), b"hello, region").unwrap();
    let mut back = [0; 15];
    pins.copy_out(&id.span(2, 15), &mut back).unwrap();
    assert_eq!(&back, b".hello, region.");
    pins.release();
    let memory = regions.take_back(id).unwrap();
    assert_eq!(memory.as_ptr(), at, "not a copy");
    assert_eq!(memory.len(), 1000);
    assert_eq!(&memory[2..17], b".hello, region.");
    assert!(memory[17..].iter().all(|byte| *byte == b'.'), "nothing else was touched");
}

#[test]
fn invariant_7_a_stale_region_id_is_refused() {
    let regions = Regions::new(1);
    let first = regions.lend(Memory::zeroed(64), Rights::ALL).unwrap();
    let memory = regions.take_back(first).unwrap();
    let second = regions.lend(memory, Rights::ALL).unwrap();
    assert_eq!(second.index, first.index, "the slot is used again");

    let stale = Err(AccessError::Stale(first));
    let mut pins = Pins::new(&regions);
    pins.copy_in(&second.span(0, 1), b"2").unwrap();
    assert_eq!(pins.copy_in(&first.span(0, 1), b"1"), stale);
    assert_eq!(pins.resolve(&first.span(0, 1), Rights::READ), stale.map(|()| unreachable!()));
    let load = word(first, 0, WordWidth::Eight, WordFunction::Load);
    assert_eq!(pins.word(&load), Err(AccessError::Stale(first)));
    assert_eq!(regions.revoke(first), stale);
    assert_eq!(regions.take_back(first).unwrap_err(), AccessError::Stale(first).into());
    assert_eq!(regions.pin(first).unwrap_err(), AccessError::Stale(first));
    pins.release();
    assert_eq!(regions.take_back(second).unwrap()[0], b'2', "the stale name changed nothing");
}

#[test]
fn invariant_7_a_second_take_back_is_refused() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(64), RW).unwrap();
    regions.take_back(id).unwrap();
    assert_eq!(regions.take_back(id).unwrap_err(), AccessError::Stale(id).into());
    assert_eq!(regions.held(), 0);
}

#[test]
fn invariant_7_names_that_were_never_given_are_unknown() {
    let regions = Regions::new(4);
    let id = regions.lend(Memory::zeroed(64), RW).unwrap();
    let mut pins = Pins::new(&regions);
    for never in [
        RegionId::default(),
        RegionId::new(id.index, id.generation + 1),
        RegionId::new(id.index + 1, 1),
        RegionId::new(100, 1),
        RegionId::new(u32::MAX, u32::MAX),
    ] {
        let error = pins.resolve(&never.span(0, 1), Rights::READ).unwrap_err();
        assert_eq!(error, AccessError::Unknown(never));
        assert!(regions.take_back(never).is_err());
    }
}

#[test]
fn invariant_7_a_slot_is_retired_after_its_last_generation() {
    let regions = Regions::with_first_generation(2, u32::MAX);
    let last = regions.lend(Memory::zeroed(64), RW).unwrap();
    assert_eq!(last.generation, u32::MAX);
    let memory = regions.take_back(last).unwrap();
    assert_eq!(regions.read(&last.span(0, 1), &mut [0]), Err(AccessError::Stale(last)));
    let other = regions.lend(memory, RW).unwrap();
    assert_ne!(other.index, last.index, "the slot was not used again");
    let memory = regions.take_back(other).unwrap();
    let refused = regions.lend(memory, RW).unwrap_err();
    assert_eq!(refused.why, LendRefusal::TableFull { max: 2 });
}

#[test]
fn invariant_3_nothing_outside_of_a_region_is_touched() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(100), Rights::ALL).unwrap();
    let mut pins = Pins::new(&regions);
    for (offset, len) in
        [(0, 101), (100, 1), (99, 2), (101, 0), (u64::MAX, 1), (u64::MAX, 0), (1, u32::MAX)]
    {
        let span = id.span(offset, len);
        let out = AccessError::OutOfBounds { span, len: 100 };
        assert_eq!(pins.resolve(&span, Rights::WRITE), Err(out), "{span}");
        assert_eq!(pins.sum(&[span]), Err(out), "{span}");
    }
    for (offset, width) in
        [(96, WordWidth::Eight), (100, WordWidth::Four), (u64::MAX - 3, WordWidth::Four)]
    {
        let error = pins.word(&word(id, offset, width, WordFunction::Store(1))).unwrap_err();
        assert!(matches!(error, AccessError::OutOfBounds { .. }), "{error}");
    }
    assert_eq!(pins.word(&word(id, 96, WordWidth::Four, WordFunction::Store(1))), Ok(0));
}

#[test]
fn empty_spans_are_checked_and_do_nothing() {
    let regions = Regions::new(2);
    let id = regions.lend(Memory::zeroed(16), RW).unwrap();
    let nothing = regions.lend(Memory::zeroed(0), RW).unwrap();
    let mut pins = Pins::new(&regions);
    for span in [id.span(0, 0), id.span(7, 0), id.span(16, 0), nothing.span(0, 0)] {
        assert_eq!(pins.resolve(&span, Rights::WRITE).unwrap().len, 0);
        pins.copy_in(&span, &[]).unwrap();
        pins.copy_out(&span, &mut []).unwrap();
        assert_eq!(pins.sum(&[span]).unwrap().sum(), 0);
    }
    pins.release();
    assert_eq!(regions.take_back(nothing).unwrap().len(), 0);
}

#[test]
fn invariant_3_a_grant_allows_what_it_was_given_for_and_no_more() {
    let regions = Regions::new(8);
    for bits in 1..8 {
        let rights = Rights::from_bits(bits);
        let id = regions.lend(Memory::zeroed(8), rights).unwrap();
        assert_eq!(regions.rights(id), Ok(rights));
        let span = id.span(0, 8);
        let forbidden = |needed| AccessError::Forbidden { region: id, needed, granted: rights };
        let told = |needed, result: Result<(), AccessError>| {
            let allowed = rights.contains(needed);
            assert_eq!(result, if allowed { Ok(()) } else { Err(forbidden(needed)) }, "{rights}");
        };
        let mut pins = Pins::new(&regions);
        told(Rights::WRITE, pins.copy_in(&span, &[1; 8]));
        told(Rights::READ, pins.copy_out(&span, &mut [0; 8]));
        told(Rights::READ, pins.resolve(&span, Rights::READ).map(|_| ()));
        told(Rights::WRITE, pins.resolve(&span, Rights::WRITE).map(|_| ()));
        let add = word(id, 0, WordWidth::Four, WordFunction::Add(1));
        told(Rights::WORDS, pins.word(&add).map(|_| ()));
        told(Rights::WORDS, regions.word(&add).map(|_| ()));
    }
    let refused = regions.lend(Memory::from_bytes(b"mine"), Rights::NONE).unwrap_err();
    assert_eq!(refused.why, LendRefusal::NoRights);
    assert_eq!(&refused.into_memory()[..], b"mine");
}

#[test]
fn invariant_5_a_full_table_gives_the_memory_back() {
    let regions = Regions::new(100);
    let ids: Vec<_> = (0..100).map(|_| regions.lend(Memory::zeroed(1), RW).unwrap()).collect();
    assert_eq!((regions.held(), regions.max()), (100, 100));
    let refused = regions.lend(Memory::from_bytes(b"one too many"), RW).unwrap_err();
    assert_eq!(refused.why, LendRefusal::TableFull { max: 100 });
    let memory = refused.into_memory();
    regions.take_back(ids[37]).unwrap();
    let id = regions.lend(memory, RW).unwrap();
    assert_eq!(id.index, ids[37].index);
    let none = Regions::new(0).lend(Memory::zeroed(1), RW).unwrap_err();
    assert_eq!(none.why, LendRefusal::TableFull { max: 0 });
}

#[test]
fn invariant_1_nobody_writes_after_take_back() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(64), RW).unwrap();
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(0, 4), b"kept").unwrap();
    // The driver is in the middle of its turn: the memory cannot be taken.
    let busy = regions.take_back_within(id, Duration::ZERO).unwrap_err();
    assert!(matches!(busy, TakeBackError::StillInUse { region, .. } if region == id));
    // But the grant has ended, also for the pin that the driver has.
    let revoked = Err(AccessError::Revoked(id));
    assert_eq!(pins.copy_in(&id.span(0, 4), b"lost"), revoked);
    assert_eq!(pins.resolve(&id.span(0, 4), Rights::WRITE).map(|_| ()), revoked);
    assert_eq!(regions.write(&id.span(0, 4), b"lost"), revoked);
    assert_eq!(regions.revoke(id), revoked);
    pins.release();
    assert_eq!(&regions.try_take_back(id).unwrap()[..4], b"kept");
    assert_eq!(pins.copy_in(&id.span(0, 4), b"lost"), Err(AccessError::Stale(id)));
}

#[test]
fn a_pinned_region_stays_until_the_last_pin_is_dropped() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(64), RW).unwrap();
    let (a, b) = (regions.pin(id).unwrap(), regions.pin(id).unwrap());
    assert_eq!((a.id(), a.len(), a.rights()), (id, 64, RW));
    a.copy_in(&id.span(1, 2), b"ab").unwrap();
    regions.revoke(id).unwrap();
    assert_eq!(a.copy_in(&id.span(1, 2), b"cd"), Err(AccessError::Revoked(id)));
    drop(a);
    assert!(regions.try_take_back(id).is_err());
    drop(b);
    assert_eq!(&regions.try_take_back(id).unwrap()[..4], b"\0ab\0");
}

#[test]
fn a_pin_is_for_its_own_region_only() {
    let regions = Regions::new(2);
    let id = regions.lend(Memory::zeroed(8), RW).unwrap();
    let other = regions.lend(Memory::zeroed(8), RW).unwrap();
    let pinned = regions.pin(id).unwrap();
    assert_eq!(pinned.copy_in(&other.span(0, 1), b"x"), Err(AccessError::Unknown(other)));
}

#[test]
fn many_regions_are_held_in_one_turn() {
    // More than there are chains, so that chains are long, and in an order that makes them so.
    let count = if cfg!(miri) { 260 } else { 1000 };
    let regions = Regions::new(count);
    let ids: Vec<_> = (0..count).map(|_| regions.lend(Memory::zeroed(8), RW).unwrap()).collect();
    let mut pins = Pins::new(&regions);
    for turn in 0..2u8 {
        for step in [256, 1] {
            for start in 0..step {
                for (n, id) in ids.iter().enumerate().skip(start).step_by(step) {
                    pins.copy_in(&id.span(0, 3), &[n as u8, (n >> 8) as u8, turn]).unwrap();
                }
            }
        }
        pins.release();
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(&regions.try_take_back(*id).unwrap()[..3], [n as u8, (n >> 8) as u8, 1]);
    }
}

#[test]
fn buffers_of_another_length_are_refused() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(8), RW).unwrap();
    let span = id.span(0, 4);
    let wrong = |buffer| Err(AccessError::WrongLength { span, buffer });
    assert_eq!(regions.write(&span, &[0; 3]), wrong(3));
    assert_eq!(regions.read(&span, &mut [0; 5]), wrong(5));
    let mut pins = Pins::new(&regions);
    assert_eq!(pins.copy_in(&span, &[0; 5]), wrong(5));
    assert_eq!(pins.copy_out(&span, &mut []), wrong(0));
}

#[test]
fn errors_say_what_to_do() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(8), Rights::READ).unwrap();
    let write = regions.write(&id.span(0, 1), b"x").unwrap_err().to_string();
    assert_eq!(write, "region 0.1 was lent for READ, not for WRITE: lend it with that right");
    let span = id.span(4, 8);
    let read = regions.read(&span, &mut [0; 8]).unwrap_err().to_string();
    assert_eq!(
        read,
        format!("{span} ends beyond the 8 bytes of the region: keep offset + length within it")
    );
}

// Memory of the application: alignment, splitting, and what cannot be had.

#[test]
fn memory_starts_on_a_line_and_long_memory_on_a_page() {
    for (len, align) in [(0, 64), (1, 64), (4095, 64), (4096, 4096), (10_001, 4096)] {
        let memory = Memory::zeroed(len);
        assert_eq!((memory.len(), memory.as_ptr().align_offset(align)), (len, 0));
        assert!(memory.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn more_than_there_can_be_is_an_error() {
    for len in [usize::MAX, usize::MAX - 63, isize::MAX as usize] {
        assert_eq!(Memory::try_zeroed(len).unwrap_err(), OutOfMemory { len });
    }
}

#[test]
fn parts_of_split_memory_are_lent_apart() {
    let bytes: Vec<u8> = (0..=199).collect();
    let (first, second) = Memory::from_bytes(&bytes).split_at(128).unwrap();
    assert_eq!((&first[..], &second[..]), (&bytes[..128], &bytes[128..]));
    let regions = Regions::new(1);
    let id = regions.lend(first, Rights::ALL).unwrap();
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(127, 1), b"!").unwrap();
    assert!(pins.copy_in(&id.span(128, 1), b"!").is_err(), "that is the other part");
    assert_eq!(&second[..], &bytes[128..]);
    drop(second);
    pins.release();
    assert_eq!(regions.take_back(id).unwrap()[127], b'!');
}

#[test]
fn memory_that_cannot_be_split_there_comes_back_whole() {
    for at in [1, 63, 65, 192, 201, usize::MAX] {
        let mut memory = Memory::zeroed(100);
        memory[99] = 7;
        let refused = memory.split_at(at).unwrap_err();
        assert!(refused.to_string().contains("multiple of 64"), "{refused}");
        assert_eq!(refused.into_memory()[99], 7);
    }
    let (none, all) = Memory::zeroed(128).split_at(0).unwrap();
    assert_eq!((none.len(), all.len()), (0, 128));
    let (all, none) = all.split_at(128).unwrap();
    assert_eq!((all.len(), none.len()), (128, 0));
}
