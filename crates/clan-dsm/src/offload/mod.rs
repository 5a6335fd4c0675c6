//! The **offload seam**: what an adapter does with a burst of writes by itself.
//!
//! A header is checked against the table of apertures ([`Apertures`]: slot,
//! key, rights, bounds), and what it touched is matched against the armed
//! tripwires. Both are one piece: they know no time, allocate nothing, cannot
//! fail, and work on tables that their caller hands in. The software path runs
//! them over its own, an adapter's firmware over tables in its memory. All else
//! (links, commands, reads, who waits for what) goes to the engine.

mod apertures;
mod map;

pub use apertures::{Aperture, Apertures, Group, Spot};
pub use map::{Cell, Map, Secret};

pub(crate) use apertures::group_key;
