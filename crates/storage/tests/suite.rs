//! The tests of `landfall-storage`, in one program.

mod abuse;
mod chap;
mod client;
mod devices;
mod durability;
#[cfg(feature = "mount")]
mod files;
mod in_place;
mod initiator;
#[cfg(feature = "mount")]
mod mount;
mod programs;
mod scsi;
mod sst;
mod streams;
mod support;
mod uring;
