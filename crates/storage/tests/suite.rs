//! The tests of `landfall-storage`, in one program.

mod abuse;
mod client;
mod devices;
mod durability;
mod programs;
mod streams;
mod support;
