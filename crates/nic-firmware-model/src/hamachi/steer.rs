//! What the paper hoped for: "the Hamachi chip does protocol interpretation at runtime to
//! calculate checksums, but we found no way to use this information to control the DMA".
//!
//! Here the adapter runs the engine's own check of descriptors before the frame lands,
//! not after: over its own table of open pages, which the driver loads with each list. A
//! frame that nobody expected finds no descriptor and displaces nothing.

use spec_defrag::format::{Begin, Ip};
use spec_defrag::offload::{self, Guess, Open, Verdict};
use spec_defrag::{BufferId, Shape};

use super::receive::Entry;
use crate::firmware::{Meter, Stage};
use crate::machine::Store;

/// A page in which a packet is joined, or will be: as much of it as a check needs.
#[derive(Clone, Copy, Debug)]
pub struct OpenPage<B> {
    /// How the packet in it is cut.
    pub shape: Shape,
    /// How many units are in place.
    pub in_place: u16,
    /// What the first of them said.
    pub begin: Option<B>,
}

impl<B: Copy> OpenPage<B> {
    /// What the engine has in its table.
    #[must_use]
    pub fn of(open: &Open<B>) -> Self {
        Self { shape: open.shape, in_place: open.in_place, begin: open.begin }
    }
}

/// The adapter's table of open pages.
#[derive(Debug)]
pub struct Opens<'t> {
    table: Store<'t, Open<Begin>>,
}

/// What lies in a table at its beginning.
const BLANK: Shape = match Shape::single(1, 1) {
    Some(shape) => shape,
    None => panic!("one byte is a shape"),
};

/// Comparing a header with one guess, in cycles: about twenty words are compared.
const CYCLES_PER_GUESS: u32 = 20;

impl<'t> Opens<'t> {
    /// A table of as many pages as there are entries.
    #[must_use]
    pub fn new(table: impl Into<Store<'t, Open<Begin>>>) -> Self {
        let mut opens = Self { table: table.into() };
        opens.clear();
        opens
    }

    /// What to fill a table with.
    #[must_use]
    pub fn blank() -> Open<Begin> {
        Open::new(BufferId { index: 0, generation: 0 }, BLANK)
    }

    pub(super) fn clear(&mut self) {
        self.table.iter_mut().for_each(|open| _ = open.close());
    }

    /// False where the table has no such place.
    pub(super) fn set(&mut self, at: u16, page: OpenPage<Begin>) -> bool {
        let Some(open) = self.table.get_mut(usize::from(at)) else { return false };
        let OpenPage { shape, in_place, begin } = page;
        *open = Open { shape, in_place, begin, ..Open::new(open.page, shape) };
        true
    }
}

/// The descriptor whose guess this frame fulfils; else the first that nothing was guessed
/// for.
pub(super) fn steer(
    loaded: &[Entry],
    opens: &mut Opens<'_>,
    frame: &[u8],
    meter: &mut impl Meter,
) -> Option<u16> {
    let len = u32::try_from(frame.len()).ok()?;
    let mut unguessed = None;
    for (index, entry) in loaded.iter().enumerate().filter(|(_, entry)| !entry.is_used) {
        if entry.guess == Guess::None {
            unguessed = unguessed.or(Some(index));
            continue;
        }
        meter.spend(Stage::Lookup, CYCLES_PER_GUESS);
        let [head, ..] = entry.buffers;
        let head = frame.get(..head.len as usize).unwrap_or(frame);
        if offload::check(&Ip, entry.guess, &mut opens.table, head, len) != Verdict::Stray {
            return u16::try_from(index).ok();
        }
    }
    unguessed.and_then(|index| u16::try_from(index).ok())
}
