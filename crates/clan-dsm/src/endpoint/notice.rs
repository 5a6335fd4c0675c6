//! What an endpoint has to say to its user.

use super::message::{Body, PortAddress};
use crate::error::{Ended, Reason};

/// Somebody asks a listener for a connection. To be answered with an endpoint
/// that accepts it, or with a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Who asks.
    pub from: PortAddress,
    /// What is said with it: a cookie, for one.
    pub body: Body,
    pub(crate) session: u64,
    pub(crate) listener: super::message::Port,
}

/// What waits in the queue of an endpoint.
///
/// The last notice of a connection is [`Notice::Closed`] or [`Notice::Ended`],
/// and each connection has exactly one of them. Messages of the connection are
/// in front of it; that one of ours was not delivered may be told later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A message.
    Message {
        /// Who sent it.
        from: PortAddress,
        /// What it says.
        body: Body,
    },
    /// To a listener: somebody asks for a connection.
    Request(ConnectRequest),
    /// The connection that was asked for is there.
    Accepted {
        /// The endpoint at the other side; its port need not be the listener's.
        by: PortAddress,
        /// What is said with it.
        body: Body,
    },
    /// The other side will send nothing more; it still listens.
    Disconnected {
        /// What is said with it.
        body: Body,
    },
    /// Both sides have disconnected: the connection is complete.
    Closed,
    /// The connection broke off, or did not come about.
    Ended {
        /// Why.
        why: Ended,
        /// What is said with a refusal, else zeros.
        body: Body,
    },
    /// Messages of this endpoint found no room, or nobody.
    Undelivered {
        /// For whom they were.
        to: PortAddress,
        /// The number of the first.
        number: u32,
        /// How many, one after the other.
        count: u32,
        /// Why.
        reason: Reason,
    },
    /// So many more messages of this endpoint were not delivered; there was no
    /// room here to say which.
    MoreUndelivered {
        /// How many.
        count: u64,
    },
}

impl Notice {
    /// Is this the last notice of a connection?
    #[must_use]
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::Closed | Self::Ended { .. })
    }

    /// At most one of each kind waits for each connection: room is kept for
    /// them, and nobody can fill a queue with them.
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Accepted { .. } | Self::Disconnected { .. } | Self::Closed | Self::Ended { .. }
        )
    }
}
