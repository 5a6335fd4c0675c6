//! Measuring, and testing with privileges, on one Linux machine.
//!
//! What lives here: private network namespaces joined by veth pairs, their
//! offloads, CPU accounts, kernel rivals (TCP, UDP, Unix sockets) measured as
//! well as they can be, and the interleaving of candidates so that a noisy
//! machine treats all alike. What does not: any protocol of Landfall, any
//! engine, any driver.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`namespace`] | network namespaces without names, which leave nothing behind |
//! | [`veth`] | a cable between two namespaces |
//! | [`privileges`] | what this process may do, and how tests skip |

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod error;
pub mod namespace;
mod netlink;
pub mod privileges;
pub mod veth;

pub use error::Error;
pub use namespace::Namespace;
pub use veth::{Mac, VethConfig, VethEnd, VethPair};
