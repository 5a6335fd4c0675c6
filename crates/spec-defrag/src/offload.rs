//! The **offload seam**: the check of descriptors, as an adapter would run it.
//!
//! It looks at what landed behind one descriptor after the other and says whether
//! each payload is where it belongs. It knows no time, allocates nothing, cannot
//! fail, and works on tables that its caller hands in: the software path runs it
//! over its own, an adapter's firmware over tables in its memory. What it does not
//! recognise goes to the engine.

use crate::buffers::BufferId;
use crate::format::Format;
use crate::memory::Head;
use crate::shape::Shape;

/// What was guessed for one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// Nothing: the frame goes to its spill slot.
    None,
    /// A unit of a packet that is being joined in a page.
    Unit {
        /// The page, by its place in the table of open pages.
        open: u16,
        /// Which unit.
        index: u16,
    },
}

/// A page in which a packet is being joined, or will be.
#[derive(Clone, Copy, Debug)]
pub struct Open<B> {
    /// The page.
    pub page: BufferId,
    /// How packets in it are cut.
    pub shape: Shape,
    /// How many units of the packet are in place.
    pub in_place: u16,
    /// What the first of them said; `None` before it came, and when the page was
    /// given up.
    pub begin: Option<B>,
    /// The head of the first unit.
    pub head: Head,
}

/// In place of a number of units: nothing is awaited in this page any more.
const CLOSED: u16 = u16::MAX;

impl<B> Open<B> {
    /// A page that waits for the first unit of a packet.
    #[must_use]
    pub const fn new(page: BufferId, shape: Shape) -> Self {
        Self { page, shape, in_place: 0, begin: None, head: Head::new() }
    }

    /// Whatever lands in it from now on is misplaced.
    pub fn close(&mut self) -> Option<B> {
        self.in_place = CLOSED;
        self.begin.take()
    }

    /// Whether nothing is awaited in it any more.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.in_place == CLOSED
    }
}

/// What became of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The payload is not where it belongs, or nothing was guessed.
    Stray,
    /// The first unit of a packet is in place.
    Begun(u16),
    /// The next unit of a packet is in place.
    InPlace(u16),
    /// The last one is: the packet is whole.
    Whole(u16),
}

/// Looks at one frame: `head` is what its head slot holds, `len` its whole length.
///
/// Units count in their order only: a unit is in place if all before it are.
#[inline]
pub fn check<F: Format>(
    format: &F,
    guess: Guess,
    opens: &mut [Open<F::Begin>],
    head: &[u8],
    len: u32,
) -> Verdict {
    let Guess::Unit { open: at, index } = guess else { return Verdict::Stray };
    let Some(open) = opens.get_mut(usize::from(at)) else { return Verdict::Stray };
    if open.in_place != index {
        return Verdict::Stray;
    }
    match &open.begin {
        None if index == 0 => {
            let Some(begin) = format.begins(&open.shape, head, len) else { return Verdict::Stray };
            let head_len = usize::from(open.shape.head_len(0)).min(head.len());
            open.head = Head::new();
            open.head.push(&head[..head_len]);
            open.begin = Some(begin);
        }
        Some(begin) if index > 0 => {
            if !format.continues(&open.shape, begin, index, head, len) {
                return Verdict::Stray;
            }
        }
        _ => return Verdict::Stray,
    }
    open.in_place += 1;
    match (open.in_place == open.shape.units(), index) {
        (true, _) => Verdict::Whole(at),
        (false, 0) => Verdict::Begun(at),
        (false, _) => Verdict::InPlace(at),
    }
}
