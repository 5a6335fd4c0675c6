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
//! | `map` | tables with a secret, so that nobody can choose keys that crowd; the check of headers |
//! | `filter` | is any tripwire touched?; the names under which tables know parts of memory |
//! | `tables` | tripwires are registered, armed, disarmed, taken out |
//! | `touch` | the match, its order, and what firings leave behind |
//! | `adapter` | what a host and an adapter at a native link say to each other; one tripwire |

mod adapter;
mod filter;
mod map;
mod tables;
mod touch;

pub use adapter::{
    Action, Command, Ends, Exposed, Firing, HostProgress, Landed, ListNode, Report, Watch, Wire,
};
pub use filter::{Filter, Place};
pub use map::{Aperture, Apertures, Cell, Destination, Group, Map, Secret};
pub use tables::{Needs, TableTotals, Tables};
pub use touch::{Actions, Queued, Touched};

pub(crate) use map::{group_key, same};

#[cfg(test)]
mod tests;
