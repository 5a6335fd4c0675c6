//! Memory that processes of one host share, as a way to talk: rings, watched memory,
//! sleeping and waking, and how processes meet.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ring`] | records or bytes from one process to another, without locks |
//! | [`watched`] | memory that others write, with tripwires: armed ranges whose touch is told |
//! | [`wake`] | sleeping until another process has news, at no cost while nobody sleeps |
//! | [`rendezvous`] | a Unix socket where processes meet and hand over descriptors |
//!
//! Memory that others write is never a slice: it is copied, or read by words. What
//! others write there is checked at each use, and can spoil no more than what they
//! have to say.
//!
//! What does not live here: a protocol. What the memory means, who may have it and
//! what is done when somebody is gone is for those who build upon this.

mod descriptor;
pub mod rendezvous;
pub mod ring;
pub mod wake;
pub mod watched;
mod word;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
