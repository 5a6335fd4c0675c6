//! What several tests need.
pub mod capture;
pub mod document;
pub mod header_properties;
pub mod messages;
pub mod samples;
