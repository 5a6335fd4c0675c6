//! The simplest possible driver, a checker of the contract, and naive models:
//! the oracle of property tests and fuzzing. Clear, not fast.

mod memory;
mod segments;
mod wire;

pub use memory::Memory;
pub use wire::{Faults, NaiveWire, Side};
