//! The papers' tables and figures, measured on this machine or in virtual time, each beside
//! what the paper states.
//!
//! | module | paper |
//! | --- | --- |
//! | `clan` | CLAN: Figures 7 to 10, Table 1 and the event-driven server, live |
//! | `defrag` | speculative defragmentation: Tables 1 and 2 in virtual time, and its figures live |
//! | `qpip` | QPIP: Figure 7, the network block device, live |
//! | `stp` | the Scheduled Transfer Protocol: Tables 1 and 2, live |
//!
//! What does not live here: the same exhibits from the model of the papers' adapters
//! ([`reproduce`](crate::reproduce)).

pub mod clan;
pub mod defrag;
pub mod qpip;
pub mod stp;
