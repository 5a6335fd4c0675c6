//! The same hosts with a card and without, under the same traffic and the same calls:
//! for property tests, fuzzing and golden traces.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `network` | [`Network`]: what lies between two hosts: a link, or switches |
//! | `world` | [`World`]: two hosts, the network between them, what their users do |
//! | `paced` | [`Paced`]: a host whose TCP takes time, on its card or on its own processor |
//! | `play` | what bytes stand for: a network, calls of users, forged frames (feature `model`) |
//! | `faulty` | [`Faulty`]: a card whose firmware has a fault |

mod faulty;
mod network;
pub(crate) mod paced;
#[cfg(feature = "model")]
mod play;
mod world;

pub use faulty::{Fault, Faulty};
pub use network::{Build, Card, Carded, EventQueue, Host, Network, Plain};
pub use paced::{Paced, Site};
#[cfg(feature = "model")]
pub use play::play;
pub use world::{Shape, World, pattern};

/// Runs what these bytes stand for with a card and without; all in which they disagree.
#[cfg(feature = "model")]
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    disagreements_with(None, bytes)
}

/// The same, with a fault in the firmware.
#[cfg(feature = "model")]
#[must_use]
pub fn disagreements_with(fault: Option<Fault>, bytes: &[u8]) -> Vec<String> {
    play::<Carded>(fault, bytes).differences(&play::<Plain>(None, bytes))
}
