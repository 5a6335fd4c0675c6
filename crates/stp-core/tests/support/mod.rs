//! What several tests need.
#![allow(dead_code, unreachable_pub)] // Each test uses a part of it.

pub mod capture;
pub mod document;
pub mod header_properties;
pub mod messages;
pub mod samples;
