//! The receive path that an adapter would run: the offload seam.
//!
//! Detect Data, check its header against the granted Blocks, say where the
//! payload belongs, count it. No allocation, no panic, no time, no timers; the
//! tables lie in storage that the caller hands in, whether that is the memory
//! of a host or the SRAM of an adapter. Whatever is not Data of a granted Block
//! goes to the engine.
//!
//! | file | what is there |
//! | --- | --- |
//! | `adapter` | [`Command`] and [`Report`]: what an engine and an adapter with a table of its own say to each other |
//! | `block` | [`Block`]: what is known of one granted Block |
//! | `blocks` | [`Blocks`]: the table, [`place`](Blocks::place) and [`landed`](Blocks::landed) |
//! | `predict` | [`place_run`](Blocks::place_run): runs of Data whose heads are the ones expected |
//!
//! The engine grants ([`Blocks::open`], [`Blocks::grant`]) and takes back
//! ([`Blocks::close`]); in between the seam runs by itself and has one thing to
//! say per Block: it is complete ([`Arrival::Complete`]).

mod adapter;
mod block;
mod blocks;
mod predict;

pub use adapter::{Command, Landed, Loss, Report};
pub use block::{Block, Expected};
pub use blocks::{Arrival, Blocks, Hit, Incoming, Run, StuId, bits_needed, run, words_per_block};
pub use predict::{RunHit, StuRange};
