//! Tests of the region table; by invariant where one applies.

// Miri has neither mappings nor shared memory.
#[cfg(not(miri))]
mod arena;
mod grants;
#[cfg(not(miri))]
mod shared;
