//! Registered memory: who owns the bytes, who may touch them, and until when.
//!
//! Memory is either the application's ([`Memory`], a slice) or **lent**:
//! engines name it, drivers, the kernel and peers write it, and no reference
//! to it exists. [`Regions::lend`] moves memory from one state to the other
//! and [`Regions::take_back`] moves it back, so that delivered bytes are read
//! where they landed.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Memory`] | bytes that belong to the application alone |
//! | [`Arena`] | where much of it comes from: large pages, used again |
//! | [`SharedMemory`] | bytes that another process may write, never a slice |
//! | [`SharedView`] | such bytes, to be read only |
//! | [`MappedMemory`] | such bytes that the caller has mapped by itself |
//! | [`copy_into_words`], [`copy_out_of_words`] | the same for who has mapped it by itself |
//! | [`Piece`] | a part of them, as words that are checked once |
//! | [`LentParts`] | memory that is lent in parts, each of which can be read where it lies |
//! | [`Regions`] | the table of what is lent, to whom it may concern |
//! | [`Rights`] | what a grant allows |
//! | [`Pins`] | what a driver holds during a turn |
//! | [`Pinned`] | one region, held while an operation is in flight; files are read into it and written from it |
//!
//! # Why this is sound
//!
//! - Lent memory is reached by a [`RegionId`](landfall_placement::RegionId)
//!   only. Each use checks id, generation, bounds and right; a name of an
//!   earlier grant is refused.
//! - A use pins the region. Memory is freed or given back only without pins.
//! - User space touches lent memory through aligned 64-bit atomics only, so
//!   drivers may race on a region: bytes may mix, behaviour stays defined.
//! - A part of a region that the application reads as a slice is on loan: it
//!   went there while nobody had the region pinned, and no write is let in.
//! - The kernel gets addresses ([`RawSpan`]). Giving one to it is `unsafe`,
//!   and the giver keeps the pin until the kernel is done.
//!
//! What does not live here: I/O, protocols, who waits for what.

mod arena;
mod exported;
mod files;
mod grant;
mod mapped;
mod mapping;
mod owned;
mod parts;
mod piece;
mod pinned;
mod pins;
mod regions;
mod shared;
mod slot;
mod words;

pub use arena::{Arena, ArenaConfig, ArenaError};
pub(crate) use exported::{ExportedFile, changes as exported_changes, file_at, is_mapped};
pub(crate) use grant::Loans;
pub use grant::{AccessError, LendError, LendRefusal, Rights, TakeBackError};
pub use mapped::MappedMemory;
pub(crate) use mapping::{HUGE_PAGE, Mapping, page_size};
pub use owned::{Memory, OutOfMemory, SplitError};
pub use parts::{LentParts, PartGuard};
pub use piece::{Piece, PieceView};
pub use pinned::{Pinned, RawSpan};
pub use pins::Pins;
pub use regions::Regions;
pub(crate) use regions::Seized;
pub use shared::{SharedMemory, SharedMemoryError, SharedView};
pub use words::{copy_in as copy_into_words, copy_out as copy_out_of_words};

#[cfg(test)]
mod tests;
