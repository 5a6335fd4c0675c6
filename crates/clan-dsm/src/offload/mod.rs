//! The **offload seam**: what an adapter does with a burst of writes by itself.
//!
//! A header is checked against the table of apertures ([`Apertures`]: slot,
//! key, rights, bounds), and what it touched is matched against the armed
//! tripwires ([`Tables::touch`]). Both are one piece: they know no time, allocate
//! nothing, cannot fail, and work on tables that their caller hands in. The
//! software path runs them over its own, an adapter's firmware over tables in
//! its memory. All else (links, commands, who waits for what) goes to the engine.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `apertures` | the check of headers |
//! | `map` | tables with a secret, so that nobody can choose keys that crowd |
//! | `place` | the names under which tables know parts of memory |
//! | `filter` | is any tripwire touched? |
//! | `wire` | one tripwire |
//! | `tables` | tripwires are registered, armed, disarmed, taken out |
//! | `touch` | the match, its order, and what firings leave behind |
//! | `adapter` | what a host and an adapter at a native link say to each other |

mod adapter;
mod apertures;
mod filter;
mod map;
mod place;
mod tables;
mod touch;
mod wire;

pub use adapter::{Command, Exposed, Landed, Line, Report};
pub use apertures::{Aperture, Apertures, Group, Spot};
pub use filter::Filter;
pub use map::{Cell, Map, Secret};
pub use place::Place;
pub use tables::{Needs, Tables, Totals};
pub use touch::{Actions, Queued, Touched};
pub use wire::{Action, Ends, Firing, Knot, Watch, Wire};

pub(crate) use apertures::group_key;

#[cfg(test)]
mod tests;
