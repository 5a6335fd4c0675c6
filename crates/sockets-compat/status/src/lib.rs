#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod file_name;
mod layout;
#[cfg(feature = "read")]
pub mod read;
mod reason;

pub use file_name::{ProcessName, start_in_stat};
pub use layout::{CounterPlaces, FILE_LEN, Header, MAGIC, RECORD_LEN, RECORDS, Record, WORDS};
pub use reason::{Explanation, HOST_SWITCH, Reason, Role, Transport, USER_SWITCH};
