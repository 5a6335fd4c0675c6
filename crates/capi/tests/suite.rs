//! Programs in Rust, C and Python talk with each other.

mod languages;
mod stp;
mod verbs;
