//! The host of a Hamachi: what loads its lists, the driver that joins this to the engine's
//! receiver, and the memory that all of them name.

mod driver;
mod loader;
mod ram;
mod station;

pub use driver::Driver;
pub use loader::{DriverConfig, DriverCounters, HostRam, Loader};
pub use ram::{Ram, Room};
pub use station::{Chip, Station, Tables};
