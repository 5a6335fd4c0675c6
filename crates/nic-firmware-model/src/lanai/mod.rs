//! The LANai 9 of the QPIP paper: a Myrinet adapter whose firmware runs the offload
//! seam of `qpip` over tables in its SRAM.
//!
//! | file | what is there |
//! | --- | --- |
//! | `firmware` | [`Lanai`]: the doorbell, management, receive and transmit state machines |
//! | `tables` | [`LanaiTables`], [`LanaiSizes`]: entries, index and stations, in storage that is handed in |
//! | [`figures`] | what the model has beside the paper's tables and figures: round trips, streams, a network block device (feature `std`) |
//! | [`model`] | hosts with a card and without, and the network between them (feature `std`) |
//! | `requests` | [`Mapping`]: work requests as they lie in the ring, and where their virtual addresses lie |
//! | `routes` | [`hop`]: source routes, which a table in SRAM has by the address of a destination |
//! | [`switch`] | switches that cut through by these routes (feature `std`) |
//! | `stages` | [`StageCosts`], [`Helps`]: what each stage of the paper's Tables 2 and 3 costs, and which help of hardware takes it off |
//!
//! In [`figures`] the whole engine runs on the card's processor, as in the paper. With the
//! firmware here, which programs run over, it stays on the host:
//! what comes as expected is checked, placed and reported; everything else, with
//! all that TCP decides, is the host's. Which units the two must not both take is
//! told in [`qpip::offload::Command`]'s file: here is the card's side of it. Each
//! entry remembers the count at which a unit last passed it by; a prediction is
//! taken only from a host that has heard of that count.
//!
//! What does not live here: headers (the seam reads them), SRAM slots, rings, DMA
//! and time (they are the machine's).

#[cfg(feature = "std")]
pub mod figures;
mod firmware;
#[cfg(feature = "std")]
pub mod model;
mod requests;
mod routes;
mod stages;
#[cfg(feature = "std")]
pub mod switch;
mod tables;

pub use firmware::{Lanai, Token};
pub use requests::Mapping;
pub use routes::{Known, hop};
pub use stages::{Account, Helps, Paper, StageCosts};
pub use tables::{LanaiSizes, LanaiTables, Watch};
