//! What libfabric's headers declare and this provider uses, with the names that it has there:
//! [`types`] are the structures, [`transfers`] those of endpoints, [`values`] the constants.
//!
//! They were written by hand from the headers of libfabric 1.17.
//! `tests/suite/headers.rs` compares sizes, offsets and values with the headers that are
//! installed.

#![allow(non_camel_case_types, missing_docs, reason = "these are the names of the C headers")]

pub mod transfers;
pub mod types;
pub mod values;

pub use transfers::*;
pub use types::*;
pub use values::*;
