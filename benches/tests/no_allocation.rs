//! An engine's work per unit allocates nothing, once it has warmed up.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use landfall_benches::{Endless, Line, NumberedLine, StreamLine};

thread_local! {
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Counts the allocations of threads that asked for it.
struct Counting;

fn count_one() {
    COUNT.with(|count| count.set(count.get().map(|n| n + 1)));
}

// SAFETY: all work is the system allocator's; only a thread-local number,
// which needs no memory of its own, is changed beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.with(|count| count.set(Some(0)));
    work();
    COUNT.with(|count| count.replace(None)).unwrap_or_default()
}

/// Whole messages go by: also what happens at their ends is covered.
fn receives_without_allocating<E: Endless>(mut line: Line<E>) {
    let turn = |line: &mut Line<E>| {
        line.next_batch(61);
        let all = allocations(|| assert_eq!(line.receive(), 61));
        let answering = allocations(|| line.answer());
        (all, answering)
    };
    for _ in 0..100 {
        turn(&mut line);
    }
    for batch in 0..200 {
        assert_eq!(turn(&mut line), (0, 0), "in batch {batch}");
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn numbered_units_are_placed_without_allocating() {
    receives_without_allocating(NumberedLine::new(1024));
}

#[test]
fn stream_units_are_placed_without_allocating() {
    receives_without_allocating(StreamLine::new());
}
