//! The Scheduled Transfer Protocol as a sans-IO state machine.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod wire;
