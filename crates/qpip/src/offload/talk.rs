//! [`Command`] and [`Report`]: what an engine and a card say to each other, where
//! the tables are not the engine's but lie in the memory of the card.
//!
//! # Order
//!
//! All that a card tells its host comes in the order of arrival: reports, answers
//! to commands, and the frames that it leaves to the host. Commands take effect
//! in the order in which they were given.
//!
//! # Who may write where
//!
//! What a card does not take goes to the host, and until the host has looked at
//! it, nobody knows what comes next. So a card disarms an entry by itself
//! whenever a unit passes it by that may take a place there
//! ([`UnitOwner`](super::UnitOwner)), and counts such units. An answer to a command
//! carries the count, and comes behind those units; a prediction
//! ([`Command::Arm`]) names the last count that the host has heard, and is in
//! force only if no unit has passed the entry by since. Thus a host never
//! predicts over what is still on its way to it; and memory that it has not
//! predicted, or whose entry is quiet, no card writes.

use core::net::{IpAddr, Ipv4Addr};

use landfall_placement::PathId;

use super::entry::{Places, Prediction, SentNumbers};
use super::hit::{Datagram, Segment};
use super::tables::Ends;
use crate::wire::Mac;

/// An IP address of ours on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnAddress {
    /// The address.
    pub ip: IpAddr,
    /// How many of its first bits all on this link share.
    pub prefix_len: u8,
}

impl OwnAddress {
    /// An address, and how many of its first bits all on this link share.
    #[must_use]
    pub const fn new(ip: IpAddr, prefix_len: u8) -> Self {
        Self { ip, prefix_len }
    }
}

/// The addresses of a station, as many as a card keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    list: [OwnAddress; Self::MOST],
    len: u8,
}

impl Addresses {
    /// The most addresses.
    pub const MOST: usize = 8;

    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: [OwnAddress::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0); Self::MOST], len: 0 }
    }

    /// All of these, if there is room for them.
    #[must_use]
    pub fn of(all: &[OwnAddress]) -> Option<Self> {
        let mut addresses = Self::new();
        addresses.list.get_mut(..all.len())?.copy_from_slice(all);
        addresses.len = all.len() as u8;
        Some(addresses)
    }

    /// The addresses, with the lengths of their prefixes.
    #[must_use]
    pub fn as_slice(&self) -> &[OwnAddress] {
        self.list.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self::new()
    }
}

/// What a host says to its card.
///
/// `mark` names the command: an answer, and what was taken under a prediction,
/// carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Who we are on a path; without an address the card takes no datagram there.
    Station {
        /// The path.
        path: PathId,
        /// The station.
        station: Mac,
        /// Its addresses.
        addresses: Addresses,
    },
    /// Enter a connection, of which nothing is predicted. The answer is
    /// [`Report::Quiet`] or [`Report::Refused`].
    Open {
        /// The queue pair.
        slot: u32,
        /// The name of this command.
        mark: u16,
        /// Its ends.
        ends: Ends,
        /// Where its segments come from.
        path: PathId,
    },
    /// Enter a bound port. The answer is [`Report::Quiet`] or [`Report::Refused`].
    Bind {
        /// The queue pair.
        slot: u32,
        /// The name of this command.
        mark: u16,
        /// The port.
        ends: Ends,
    },
    /// This comes next on a connection, or, of a port, into these places. In
    /// force only if the entry is quiet, and no unit has passed it by since
    /// `heard`; otherwise the answer is [`Report::Quiet`], or [`Report::Refused`].
    Arm {
        /// The queue pair.
        slot: u32,
        /// The name of this command.
        mark: u16,
        /// The count that the host has heard.
        heard: u64,
        /// What comes next.
        next: Prediction,
    },
    /// More places behind those that are predicted.
    Extend {
        /// The queue pair.
        slot: u32,
        /// The prediction that they belong to.
        mark: u16,
        /// The places.
        more: Places,
    },
    /// See [`Tables::refresh`](super::Tables::refresh).
    Refresh {
        /// The queue pair.
        slot: u32,
        /// The prediction that is meant.
        mark: u16,
        /// What they may acknowledge.
        sent: SentNumbers,
        /// The latest of their timestamps.
        recent: Option<u32>,
        /// The right edge of the window.
        edge: u32,
    },
    /// Predict nothing. The answer is [`Report::Quiet`].
    Disarm {
        /// The queue pair.
        slot: u32,
        /// The name of this command.
        mark: u16,
    },
    /// Forget an entry. The answer is [`Report::Closed`].
    Close {
        /// The queue pair.
        slot: u32,
        /// The name of this command.
        mark: u16,
    },
}

/// What a card tells its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A segment came as predicted; its checksum is right.
    Segment {
        /// What it is.
        hit: Segment,
        /// The prediction that it came under.
        mark: u16,
        /// Its payload is in its place.
        is_in_place: bool,
    },
    /// A datagram came; its checksum is right.
    Datagram {
        /// What it is.
        hit: Datagram,
        /// The prediction that it came under.
        mark: u16,
        /// Its payload is in its place.
        is_in_place: bool,
    },
    /// Nothing is predicted for this entry, and nothing of it is under way.
    Quiet {
        /// The queue pair.
        slot: u32,
        /// The command that this answers.
        mark: u16,
        /// How many units have passed entries by.
        heard: u64,
    },
    /// The entry is forgotten, and nothing of it is under way.
    Closed {
        /// The queue pair.
        slot: u32,
        /// The command that this answers.
        mark: u16,
    },
    /// There is no room for the entry, or its memory is none that the card reaches:
    /// the card knows nothing of it any more.
    Refused {
        /// The queue pair.
        slot: u32,
        /// The command that this answers.
        mark: u16,
    },
}
