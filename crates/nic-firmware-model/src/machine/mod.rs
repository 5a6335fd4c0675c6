//! The machine: an adapter that runs a firmware and knows no protocol.
//!
//! | file | what is there |
//! | --- | --- |
//! | `adapter` | [`Adapter`]: joins the wire, the firmware and the host; how the host's orders are obeyed |
//! | `inbound`, `outbound` | the one queue from arrival to report; from the send ring to the wire, with a [`Route`] in front for switches that keep no tables |
//! | `parts` | [`Parts`] and [`Sizes`]: what it is made of, in storage that is handed in; [`Costs`]: what everything costs, with [`Costs::OFF`] all at the same instant |
//! | `ring`, `slots`, `ring` | [`Store`]: storage that is owned or handed in; tables of fixed size in it |
//! | `requests` | [`Requests`]: work requests in a ring of the host, and their [`Doorbells`], fetched before their command is obeyed |
//! | `bridge` | what a host's bridge needs between bursts, and how it locks |
//! | `dma` | who takes that time: DMA engines and their bus, the processor, the host's interrupts |
//!
//! Time: anyone who runs an adapter calls [`Adapter::run`] when
//! [`Adapter::poll_timeout`] says so. Handlers of the firmware take effect when
//! they begin, and what follows from them when their cycles are spent.
//!
//! What does not live here: protocols, the host's own costs.

mod adapter;
mod bridge;
mod dma;
mod inbound;
mod outbound;
mod parts;
mod requests;
mod ring;
mod slots;
#[cfg(all(test, feature = "std"))]
mod tests;

pub use adapter::{Adapter, Counters, Full, HostOrder, Upcall};
pub use bridge::{BridgeCosts, Lock};
pub use dma::{Bus, BusCosts, Dma};
pub use inbound::{Coalescing, FrameInfo, FrameProgress, HostWrite, Inbound, Interrupt, Pending};
pub use outbound::{Departure, Leg, Order, Outbound, Route, Send};
pub use parts::{Costs, DmaCosts, Engines, Parts, Processor, Sizes, time_of};
pub use requests::{Batch, Bell, Doorbells, Posted, Request, Requests};
pub use ring::{Cam, Ring, Store};
pub use slots::{Exhausted, QueuedFrame, Reservation, Slots, Sram};
