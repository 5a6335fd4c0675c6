//! The machine: an adapter that runs a firmware and knows no protocol.
//!
//! | file | what is there |
//! | --- | --- |
//! | `adapter` | [`Adapter`]: joins the wire, the firmware and the host |
//! | `inbound`, `outbound` | the one queue from arrival to report; from the send ring to the wire |
//! | `parts` | [`Parts`] and [`Sizes`]: what it is made of, in storage that is handed in |
//! | `sram` | [`Sram`]: the budget of its memory, which can run out |
//! | `store`, `ring`, `slots`, `doorbell`, `cam` | tables of fixed size |
//! | `route` | [`Route`]: what goes in front of a frame, for switches that keep no tables |
//! | `requests` | [`Requests`]: work requests in a ring of the host, fetched before their command is obeyed |
//! | `costs` | [`Costs`]: what everything costs; [`Costs::OFF`]: all at the same instant |
//! | `bus`, `dma`, `processor`, `interrupt` | who takes that time |
//!
//! Time: whoever runs an adapter calls [`Adapter::run`] when
//! [`Adapter::poll_timeout`] says so. Handlers of the firmware take effect when
//! they begin, and what follows from them when their cycles are spent.
//!
//! What does not live here: protocols, the host's own costs.

mod adapter;
mod bus;
mod cam;
mod costs;
mod dma;
mod doorbell;
mod inbound;
mod interrupt;
mod outbound;
mod parts;
mod processor;
mod requests;
mod ring;
mod route;
mod slots;
mod sram;
mod store;
#[cfg(all(test, feature = "std"))]
mod tests;

pub use adapter::{Adapter, Counters, Full, HostOrder, Upcall};
pub use bus::{Bus, BusCosts};
pub use cam::Cam;
pub use costs::{Costs, DmaCosts, Engines, time_of};
pub use dma::Dma;
pub use doorbell::Doorbells;
pub use inbound::{About, Cargo, Inbound, Pending, Stand};
pub use interrupt::{Coalescing, Interrupt};
pub use outbound::{Departure, Leg, Order, Outbound, Send};
pub use parts::{Parts, Sizes};
pub use processor::Processor;
pub use requests::{Batch, Bell, Posted, Request, Requests};
pub use ring::Ring;
pub use route::Route;
pub use slots::{Slots, Taken};
pub use sram::{Exhausted, Reservation, Sram};
pub use store::Store;
