//! The host of a Hamachi: the driver over the engine's receiver, and the memory that both
//! of them name.

mod driver;
mod ram;
mod station;

pub use driver::{Driver, DriverConfig, DriverCounters};
pub use ram::{Ram, Room};
pub use station::{Chip, Station, Tables};
