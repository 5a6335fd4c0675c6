//! Vectors that were worked out by hand, second opinions, and properties.

pub(crate) mod frames;
mod vectors;
