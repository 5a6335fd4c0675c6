#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod capture_file;
pub mod connections;
pub mod demo;
pub mod doctor;
pub mod exporter;
pub mod leaving;
pub mod machine;
pub mod papers;
pub mod perf;
pub mod plot;
pub mod printable;
pub mod reproduce;
pub mod style;
pub mod table;
pub mod workload;
#[cfg(test)]
mod xml;
