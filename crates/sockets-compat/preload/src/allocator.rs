//! Memory for what this library keeps, without `malloc`.
//!
//! `close` may be called in the handler of a signal, and the handler may have interrupted
//! `malloc`: a call of ours that asked for memory there would wait for ever. So what this
//! library keeps comes from here, under a lock that no handler interrupts
//! ([`crate::thread`]), and that a fork waits for.
//!
//! Pieces are powers of two. One that is given back lies in a list for the next of its size;
//! they are cut from blocks that are never given back. What is larger is mapped by itself.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

use crate::kernel;
use crate::lock::Locked;

/// Pieces have from 2⁴ to 2²⁰ bytes.
const LEAST: u32 = 4;
const MOST: u32 = 20;
const CLASSES: usize = (MOST - LEAST + 1) as usize;
/// What is asked for at once, to cut small pieces from.
const BLOCK: usize = 256 * 1024;
/// The kernel gives pages.
const PAGE: usize = 4096;

#[derive(Debug)]
struct Pieces {
    free: [*mut Free; CLASSES],
    /// What is left of the block.
    next: *mut u8,
    left: usize,
}

/// A piece that nobody has.
#[derive(Debug)]
struct Free {
    next: *mut Self,
}

// SAFETY: pieces that nobody has belong to no thread.
unsafe impl Send for Pieces {}

static PIECES: Locked<Pieces> =
    Locked::new(Pieces { free: [ptr::null_mut(); CLASSES], next: ptr::null_mut(), left: 0 });

/// Allocates what this library keeps, without `malloc`, safe in handlers of signals.
#[derive(Debug)]
pub(crate) struct Allocator;

/// The class of such pieces; `None` for what is mapped by itself.
fn class_of(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(1 << LEAST);
    let bits = size.next_power_of_two().trailing_zeros();
    (bits <= MOST && layout.align() <= PAGE).then_some((bits - LEAST) as usize)
}

const fn size_of_class(class: usize) -> usize {
    1 << (class + LEAST as usize)
}

impl Pieces {
    fn take(&mut self, class: usize) -> *mut u8 {
        let first = self.free[class];
        if !first.is_null() {
            // SAFETY: it lies in the list, so it is ours and a valid piece.
            self.free[class] = unsafe { (*first).next };
            return first.cast();
        }
        self.cut(class)
    }

    /// A piece lies at a multiple of its size, or of a page.
    fn cut(&mut self, class: usize) -> *mut u8 {
        let size = size_of_class(class);
        if size > BLOCK / 4 {
            return kernel::map_private(size).unwrap_or(ptr::null_mut());
        }
        let gap = self.next.align_offset(size.min(PAGE));
        if self.left < gap.saturating_add(size) {
            let Ok(block) = kernel::map_private(BLOCK) else { return ptr::null_mut() };
            // What was left of the last one stays unused.
            (self.next, self.left) = (block, BLOCK);
            return self.cut(class);
        }
        // SAFETY: inside of the block.
        let piece = unsafe { self.next.add(gap) };
        // SAFETY: inside of the block, or right behind it.
        self.next = unsafe { piece.add(size) };
        self.left -= gap + size;
        piece
    }

    fn give_back(&mut self, piece: *mut u8, class: usize) {
        let piece = piece.cast::<Free>();
        // SAFETY: nobody has it any more, and it is large and aligned enough.
        unsafe { piece.write(Free { next: self.free[class] }) };
        self.free[class] = piece;
    }
}

// SAFETY: pieces do not overlap, and have at least the size and the alignment asked for.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => PIECES.with(|pieces| pieces.take(class)),
            None if layout.align() <= PAGE => {
                kernel::map_private(layout.size()).unwrap_or(ptr::null_mut())
            }
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match class_of(layout) {
            Some(class) => PIECES.with(|pieces| pieces.give_back(piece, class)),
            // SAFETY: it was mapped so, and nobody has it any more.
            None => unsafe { kernel::unmap(piece, layout.size()) },
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: such a layout is possible.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if class_of(layout).is_some() && class_of(layout) == class_of(new) {
            return piece;
        }
        // SAFETY: as above; both have as many bytes as the smaller.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(piece, moved, layout.size().min(new_size));
                self.dealloc(piece, layout);
            }
            moved
        }
    }
}

/// Before a fork, and after it.
pub(crate) fn stands_still() {
    PIECES.stands_still();
}

pub(crate) fn goes_on() {
    PIECES.goes_on();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> impl Strategy<Value = Layout> {
        let size = prop_oneof![1..200_usize, 1..70_000_usize, 1_000_000..1_200_000_usize];
        (size, 0..13_u32)
            .prop_map(|(size, align)| Layout::from_size_align(size, 1 << align).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Anyone who has a piece has it alone, as long and as aligned as asked for.
        #[test]
        fn pieces_are_what_was_asked_for(steps in prop::collection::vec((layout(), any::<bool>(), 1..90_000_usize), 1..60)) {
            let mut kept: Vec<(*mut u8, Layout, u8)> = Vec::new();
            let check = |(piece, layout, mark): (*mut u8, Layout, u8), len: usize| {
                // SAFETY: a piece of this length, filled below.
                let bytes = unsafe { std::slice::from_raw_parts(piece, len.min(layout.size())) };
                assert!(bytes.iter().all(|&byte| byte == mark), "another has written there");
            };
            for (at, (layout, goes, new_size)) in steps.into_iter().enumerate() {
                let mark = at as u8;
                // SAFETY: sizes that are not zero; pieces are given back once.
                unsafe {
                    let piece = Allocator.alloc(layout);
                    prop_assert!(!piece.is_null() && piece.align_offset(layout.align()) == 0);
                    piece.write_bytes(mark, layout.size());
                    kept.push((piece, layout, mark));
                    let which = kept.len() / 2;
                    let (piece, old, mark) = kept.swap_remove(which);
                    check((piece, old, mark), usize::MAX);
                    if goes {
                        Allocator.dealloc(piece, old);
                    } else {
                        let moved = Allocator.realloc(piece, old, new_size);
                        let new = Layout::from_size_align(new_size, old.align()).unwrap();
                        check((moved, new, mark), old.size());
                        moved.write_bytes(mark, new_size);
                        kept.push((moved, new, mark));
                    }
                }
            }
            for (piece, layout, mark) in kept {
                check((piece, layout, mark), usize::MAX);
                // SAFETY: given back once.
                unsafe { Allocator.dealloc(piece, layout) };
            }
        }
    }
}
