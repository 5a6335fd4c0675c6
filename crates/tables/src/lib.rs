//! The tables that protocol engines keep their state in.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `table` | [`Table`]: bounded, entries named by index and generation |
//! | `heap` | [`IndexedHeap`]: the smallest first, for timers |
//! | `keys` | [`KeyIndex`], [`HashIndex`]: from keys to indices at constant cost |
//! | `changes` | [`ChangeQueue`]: what has changed, each entry once, for who keeps a copy of a table |
//! | `ages` | [`AgeLinks`], [`AgeList`]: who came first, to let the oldest go |
//!
//! What does not live here: anything that knows a protocol.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod ages;
mod changes;
mod heap;
mod keys;
mod table;

pub use ages::{AgeLinks, AgeList};
pub use changes::ChangeQueue;
pub use heap::IndexedHeap;
pub use keys::{HashIndex, HashSecret, KeyIndex};
pub use table::{EntryKey, Table};
