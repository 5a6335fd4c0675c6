//! The simplest possible drivers, a checker of the contract, and operation
//! sequences: the oracle of property tests and fuzzing. Clear, not fast.

mod checked;
mod choices;
mod findings;
mod memory;
mod packet;
mod subjects;
mod under_way;
mod wire;
mod world;

pub use checked::{Checked, Violation};
pub use choices::Choices;
pub use findings::Findings;
pub use memory::Memory;
pub use packet::{Packet, cut, gather, put};
pub use subjects::placement_bookkeeping;
pub use under_way::{Bounds, UnderWay, pass_time, scatter};
pub use wire::{Faults, NaiveWire, Side};
