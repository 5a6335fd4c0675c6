#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clan;
mod ctx;
mod datagram;
mod diagram;
mod net;
mod plan;
mod planted;
mod qpip;
mod shrink;
mod story;
mod stp;
mod totals;
mod world;

pub use diagram::diagram;
pub use plan::{Act, EngineSetup, Plan, Plane, Step, Work};
pub use planted::Fault;
pub use shrink::{Shrunk, shrink};
pub use story::told;
pub use totals::Totals;
pub use world::{Report, run};
