//! What follows from something that happened to a connection, for what is under way on it.
//!
//! Connections know nothing of Transfers and regions: they say what becomes of them, and the
//! [`Endpoint`](crate::Endpoint) tells those who own them.

use landfall_placement::Refusal;

use crate::error::Ended;
use crate::wire::Reason;

/// What follows for what is under way on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: it goes on.
    None,
    /// The connection is being closed: what was offered and not accepted is not accepted any
    /// more, and once all is over so is the connection.
    Closing { connection: u32 },
    /// All of it ends, and then the connection.
    ConnectionOver(ConnectionOver),
    /// The connection was over, and nobody needs to remember it.
    Forgotten { connection: u32 },
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionOver {
    pub(crate) connection: u32,
    /// Why what is under way ends.
    pub(crate) ended: Ended,
    /// What the user is told, if it ever knew of the connection.
    pub(crate) why: Option<Ended>,
    pub(crate) then: RecordFate,
}

/// What becomes of the record of a connection that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFate {
    /// Nothing finds it any more.
    Forgotten,
    /// For a while, the other side may ask again.
    Lingers,
    /// The other side must hear why, and is told again until it has.
    Repeats(Reason),
}

impl ConnectionOver {
    /// The connection has failed: it ends without a word.
    pub(crate) const fn failed(connection: u32, why: Option<Ended>) -> Self {
        Self { connection, ended: Ended::ConnectionGone, why, then: RecordFate::Forgotten }
    }
}

impl Effect {
    pub(crate) const fn failed(connection: u32, why: Ended) -> Self {
        Self::ConnectionOver(ConnectionOver::failed(connection, Some(why)))
    }
}

/// A message was refused; even so something may follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) effect: Effect,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, effect: Effect::None }
    }
}
