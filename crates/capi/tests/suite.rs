//! Programs in Rust, C and Python talk with each other.

mod languages;
mod reassembly;
mod stp;
mod verbs;
