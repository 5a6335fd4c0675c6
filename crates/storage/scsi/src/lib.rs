#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cdb;
mod inquiry;
pub mod iscsi;
mod mode;
#[cfg(feature = "model")]
pub mod model;
mod opcodes;
mod reservation;
mod sense;
pub mod sst;
mod target;
mod unit;
mod wire;
mod work;

pub use cdb::{Blocks, Check, Command, ReserveAction, WriteSame};
pub use reservation::ReservationKind;
pub use sense::{Code, Field, Key, Response, Sense, Status};
pub use target::{Lun, NexusId, Pending, Step, Target, TaskManagement};
pub use unit::{Disk, MOST_TRANSFER};
pub use work::{Failure, LbaExtent, Work, lba_status};
