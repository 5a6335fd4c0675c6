//! The arena: alignment, reuse, joining of free parts, and its bound.

use crate::memory::{Arena, ArenaConfig, ArenaError, Memory, Regions, Rights};

const MIB: usize = 1 << 20;

fn small() -> Arena {
    Arena::new(ArenaConfig {
        chunk: 2 * MIB,
        max_bytes: 8 * MIB,
        huge_pages: false,
        same_host: false,
    })
}

#[test]
fn memory_of_an_arena_starts_on_a_page_and_is_zero_at_first() {
    let arena = Arena::new(ArenaConfig { max_bytes: 64 * MIB, ..ArenaConfig::default() });
    let memories: Vec<Memory> =
        [0, 1, 4096, 5000, 3 * MIB].map(|len| arena.take(len).unwrap()).into();
    for memory in &memories {
        assert_eq!(memory.as_ptr().align_offset(4096), 0);
        assert!(memory.iter().all(|byte| *byte == 0));
    }
    assert_eq!(memories.iter().map(|memory| memory.len()).sum::<usize>(), 9097 + 3 * MIB);
    assert_eq!(memories[0].as_ptr().align_offset(2 * MIB), 0, "a chunk starts on a huge page");
    assert_eq!(arena.mapped_bytes(), 16 * MIB);
    drop(memories);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn dropped_memory_is_used_again() {
    let arena = small();
    for round in 0..100 {
        let mut memories: Vec<Memory> = (0..8).map(|_| arena.take(MIB / 4).unwrap()).collect();
        for memory in &mut memories {
            memory.fill(round);
        }
        // Dropped in an order that leaves holes to be joined from both sides.
        for index in [1, 4, 2, 4, 0, 1, 1, 0] {
            memories.remove(index);
        }
        assert_eq!((arena.used_bytes(), arena.mapped_bytes()), (0, 2 * MIB));
        // One piece again, or this would need a second chunk.
        drop(arena.take(2 * MIB).unwrap());
        assert_eq!(arena.mapped_bytes(), 2 * MIB);
    }
    let mut memory = arena.take_zeroed(100).unwrap();
    assert!(memory.iter().all(|byte| *byte == 0));
    memory.fill(1);
}

#[test]
fn invariant_5_an_arena_grows_to_its_bound_and_no_further() {
    let arena = small();
    let mut taken: Vec<Memory> = (0..4).map(|_| arena.take(2 * MIB).unwrap()).collect();
    assert_eq!(arena.mapped_bytes(), 8 * MIB);
    for asked in [1, 2 * MIB, usize::MAX, usize::MAX / 2] {
        match arena.take(asked) {
            Err(ArenaError::Exhausted { asked: told, mapped, max }) => {
                assert_eq!((told, mapped, max), (asked, 8 * MIB, 8 * MIB));
            }
            other => panic!("{other:?}"),
        }
    }
    taken.pop();
    taken.push(arena.take(MIB).unwrap());
    // Room for one piece of 4 MiB comes from chunks that lie idle.
    taken.clear();
    assert_eq!(arena.mapped_bytes(), 8 * MIB);
    let large = arena.take(8 * MIB).unwrap();
    assert_eq!((large.len(), arena.mapped_bytes()), (8 * MIB, 8 * MIB));
    drop(large);
    arena.trim();
    assert_eq!(arena.mapped_bytes(), 0);
    arena.take(1).unwrap();
}

#[test]
fn a_chunk_that_does_not_fit_gives_way_to_what_was_asked_for() {
    let arena = Arena::new(ArenaConfig {
        chunk: 64 * MIB,
        max_bytes: 4 * MIB,
        huge_pages: false,
        same_host: false,
    });
    let memory = arena.take(3 * MIB).unwrap();
    assert_eq!((memory.len(), arena.mapped_bytes()), (3 * MIB, 4 * MIB));
}

#[test]
fn parts_go_back_with_the_last_of_them() {
    let arena = small();
    let (first, rest) = arena.take(MIB).unwrap().split_at(4096).unwrap();
    let (second, third) = rest.split_at(64).unwrap();
    drop(second);
    drop(first);
    assert_eq!(arena.used_bytes(), MIB);
    drop(third);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn lent_memory_outlives_the_arena_and_its_table() {
    let regions = Regions::new(2);
    let id = {
        let arena = small();
        regions.lend(arena.take(MIB).unwrap(), Rights::ALL).unwrap()
    };
    regions.write(&id.span(MIB as u64 - 3, 3), b"end").unwrap();
    let memory = regions.take_back(id).unwrap();
    drop(regions);
    assert_eq!(&memory[MIB - 3..], b"end");
}
