//! The receive path that an adapter would run: the offload seam.
//!
//! Segments of TCP that meet header prediction (the next one of an open
//! connection, and nothing unusual about it), and datagrams of UDP: find the
//! queue pair, check the header, say where the payload belongs. No allocation,
//! no panic, no time, no timers; the tables lie in storage that the caller hands
//! in, whether that is the memory of a host or the SRAM of an adapter. Whatever
//! it does not know goes to the engine, with the reason ([`Miss`]).
//!
//! | file | what is there |
//! | --- | --- |
//! | `entry` | [`Entry`]: one queue pair; [`Prediction`]: what its connection expects |
//! | `tables` | [`Tables`]: the engine's side, and [`receive`](Tables::receive) |
//! | `hit` | a frame read; [`Hit`], [`Miss`]: what came of it |
//! | `talk` | [`Command`], [`Report`]: between an engine and tables in another machine |
//!
//! The engine arms an entry ([`Tables::arm`], [`Tables::arm_port`]) with what it
//! expects. In between the seam goes on by itself: a unit that is taken moves
//! the prediction on, so that the units of one turn of a driver are placed
//! before the first of them has landed. Each [`Hit`] is told to the engine, which
//! books it as it would have booked the unit itself, and lets it count when the
//! payload has landed. A segment that goes to the engine, a payload that does not
//! land, an end or a reset change what is expected: then the engine disarms the
//! entry, or arms it anew.
//!
//! What does not live here: acknowledgements, completions, timers. That is TCP's.

mod entry;
mod hit;
mod tables;
mod talk;

pub use entry::{Entry, Places, Prediction, SentNumbers};
pub use hit::{Datagram, Hit, Incoming, Miss, Missed, Segment, UnitOwner};
pub use landfall_tables::HashSecret;
pub use tables::{Ends, Pointer, Tables};
pub use talk::{Addresses, Command, OwnAddress, Report};
