//! The offload seam by itself, in arrays that the caller owns.

mod frames;
mod misses;
mod model;
