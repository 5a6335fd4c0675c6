//! The simplest possible drivers, a checker of the contract, and operation
//! sequences: the oracle of property tests and fuzzing. Clear, not fast.

mod checked;
mod claimed;
mod digest;
mod memory;
mod operations;
mod segments;
mod subjects;
mod wire;
mod world;

pub use checked::{Checked, Violation};
pub use digest::digest;
pub use memory::Memory;
pub use segments::cut;
pub use subjects::placement_bookkeeping;
pub use wire::{Faults, NaiveWire, Side};
