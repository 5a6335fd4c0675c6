//! Vectors that were worked out by hand, second opinions, and properties.

mod exceeded;
pub(crate) mod frames;
mod properties;
mod vectors;
mod vectors_ipv6;
