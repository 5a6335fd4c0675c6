//! Tests of the region table; by invariant where one applies.

use crate::memory;

// Miri has neither mappings nor files.
#[cfg(not(miri))]
mod arena;
mod copies;
#[cfg(not(miri))]
mod files;
mod grants;
mod model;
mod parts;
mod properties;
mod seized;
#[cfg(not(miri))]
mod shared;
mod threads;
