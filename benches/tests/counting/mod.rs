//! An allocator that counts, for the threads that ask for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a thread allocated and gave back since it began to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// How often memory was asked for, or asked to grow or shrink.
    pub(crate) calls: u64,
    /// Bytes that are held.
    pub(crate) held: i64,
    /// The most bytes that were held at a time.
    pub(crate) peak: i64,
}

impl Counted {
    fn change(&mut self, bytes: i64) {
        self.held += bytes;
        self.peak = self.peak.max(self.held);
    }
}

thread_local! {
    static COUNTED: Cell<Option<Counted>> = const { Cell::new(None) };
}

fn note(change: impl FnOnce(&mut Counted)) {
    COUNTED.with(|counted| {
        if let Some(mut now) = counted.get() {
            change(&mut now);
            counted.set(Some(now));
        }
    });
}

/// What `work` allocated, beside what it gives.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (Counted, T) {
    COUNTED.with(|counted| counted.set(Some(Counted::default())));
    let given = work();
    (COUNTED.with(Cell::take).unwrap_or_default(), given)
}

/// The system allocator, with a look at what it is asked for.
pub(crate) struct Counting;

// SAFETY: all work is the system allocator's; only a thread-local number,
// which needs no memory of its own, is changed beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(|counted| {
            counted.calls += 1;
            counted.change(layout.size() as i64);
        });
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(|counted| {
            counted.calls += 1;
            counted.change(layout.size() as i64);
        });
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        note(|counted| counted.change(-(layout.size() as i64)));
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(|counted| {
            counted.calls += 1;
            counted.change(size as i64 - layout.size() as i64);
        });
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
