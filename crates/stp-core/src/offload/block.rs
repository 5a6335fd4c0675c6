//! What is known of one granted Block.

use landfall_placement::{PathId, Peer, RegionId, Span};

/// Who may send Data of a Block, and how it must be marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The path that the grant went out on.
    pub path: PathId,
    /// To whom.
    pub peer: Peer,
    /// The key that the other side was given.
    pub key: u32,
    /// Our port.
    pub d_port: u16,
    /// The port of the other side.
    pub s_port: u16,
    /// What we call the Transfer.
    pub d_id: u16,
    /// The serial number of the Transfer.
    pub serial: u32,
    /// The number of the Block in the Transfer.
    pub number: u32,
}

/// One granted Block, as an adapter knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// It is granted, and not complete or taken back.
    pub(super) is_open: bool,
    /// How often this place of the table was used before.
    pub(super) generation: u16,
    /// The size of an STU: of all but the last, which may be shorter.
    pub(super) stu: u16,
    /// How many STUs there are.
    pub(super) stus: u16,
    pub(super) expected: Expected,
    /// The memory that the Block lies in.
    pub(super) region: RegionId,
    /// Where in the region.
    pub(super) at: u64,
    /// Where in the receiver's buffer the Block begins.
    pub(super) start: u32,
    /// How many bytes it has.
    pub(super) len: u32,
    /// How many STUs, from the first on, are granted.
    pub(super) granted: u16,
    /// One past the last STU that came.
    pub(super) highest: u16,
    /// STUs that have a place and have not landed yet.
    pub(super) under_way: u16,
    /// STUs that have landed.
    pub(super) landed: u16,
    /// How many came with a mark of congestion, since that was asked last.
    pub(super) marked: u16,
}

impl Block {
    /// A place of the table that is free; the next Block there has the generation
    /// behind this one.
    #[must_use]
    pub fn free(generation: u16) -> Self {
        Self { generation, ..Self::default() }
    }

    /// What Data of the Block must carry in `bufx`, where `index` is its place
    /// in the table.
    #[must_use]
    pub const fn bufx(&self, index: u16) -> u32 {
        (self.generation as u32) << 16 | index as u32
    }

    /// How often its place of the table was used before.
    #[must_use]
    pub const fn generation(&self) -> u16 {
        self.generation
    }

    /// How many STUs the whole Block has.
    #[must_use]
    #[inline]
    pub const fn stus(&self) -> u16 {
        self.stus
    }

    /// How many of them, from the first on, are granted.
    #[must_use]
    pub const fn granted(&self) -> u16 {
        self.granted
    }

    /// How many have landed.
    #[must_use]
    pub const fn landed(&self) -> u16 {
        self.landed
    }

    /// Did STUs come behind some that did not?
    #[must_use]
    #[inline]
    pub const fn holes(&self) -> u16 {
        self.highest.saturating_sub(self.landed + self.under_way)
    }

    /// One past the last that came.
    #[must_use]
    pub const fn highest(&self) -> u16 {
        self.highest
    }

    /// Is it granted, and neither complete nor taken back?
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The size of an STU: of all but the last, which may be shorter.
    #[must_use]
    #[inline]
    pub const fn stu(&self) -> u16 {
        self.stu
    }

    /// Who may send it, and how it must be marked.
    #[must_use]
    pub const fn expected(&self) -> &Expected {
        &self.expected
    }

    /// Where in the buffer an STU begins, and how long it is. STUs lie one behind another
    /// from the start of their Block, which crosses no buffer; the last may be shorter.
    #[must_use]
    #[inline]
    pub const fn stu_at(&self, index: u16) -> (u32, u32) {
        let (start, end) = (self.start as u64, self.start as u64 + self.len as u64);
        let from = start + index as u64 * self.stu as u64;
        let to = from + self.stu as u64;
        let to = if to > end { end } else { to };
        (from as u32, to.saturating_sub(from) as u32)
    }

    /// How many bytes the STUs from `first` to before `end` have together.
    #[must_use]
    pub const fn bytes_of(&self, first: u16, end: u16) -> u32 {
        if first >= end {
            return 0;
        }
        let (from, _) = self.stu_at(first);
        let (last, len) = self.stu_at(end - 1);
        // The Block may end where offsets do: their sum may not be a number.
        last.saturating_sub(from).saturating_add(len)
    }

    /// The memory behind a part of the buffer, which must lie in the Block.
    #[must_use]
    #[inline]
    pub(super) const fn span(&self, offset: u32, len: u32) -> Span {
        let at = self.at.wrapping_add(offset.wrapping_sub(self.start) as u64);
        Span { region: self.region, offset: at, len }
    }
}
