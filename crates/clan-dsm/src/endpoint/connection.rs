//! The states of a connection, as one endpoint sees them.
//!
//! ```text
//!            listen                    connect                       accept
//! Listening <------ Idle ------------------------> Connecting    Idle ------> Connected
//!                                                   |      |                   |    |
//!                                             Refuse|      |Accept   disconnect|    |Disconnect
//!                                                   v      v                   v    v
//!                                                 Over  Connected    ClosedHere    ClosedThere
//!                                                                    Disconnect|    |disconnect
//!                                                                              v    v
//!   Idle <---- the user takes the last notice ---------------------------------- Over
//! ```
//!
//! From every state of a connection an abort of either side and the end of the
//! link lead to `Over`. Small letters: the user asks; capitals: a message came.
//! What fits no arrow is a stray, and changes nothing.

use super::message::Notice;
use super::message::{OutOfBand, OutOfBandKind, PortAddress};
use crate::error::{Ended, Error, Reason};

/// What a connection is known by at both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) peer: PortAddress,
    pub(super) ours: u64,
    pub(super) theirs: u64,
}

/// Which side still sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Both,
    /// We have disconnected.
    TheirsOnly,
    /// They have disconnected.
    OursOnly,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Idle,
    Listening,
    Connecting {
        to: PortAddress,
        ours: u64,
    },
    Connected(Session, Flow),
    /// The last notice waits for the user.
    Over,
}

/// The state of an endpoint, for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointState {
    /// No connection: it can have one, or listen.
    Idle,
    /// It hears of those who want a connection.
    Listening,
    /// It has asked for a connection.
    Connecting,
    /// Both sides may send.
    Connected,
    /// This side has disconnected, the other has not.
    ClosedHere,
    /// The other side has disconnected, this one has not.
    ClosedThere,
    /// The connection is over; the last notice waits to be taken.
    Over,
}

/// A message that fits no connection of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stray;

/// A state that follows, and what the user hears of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transition {
    pub(super) to: State,
    pub(super) notices: [Option<Notice>; 2],
}

impl Transition {
    const fn new(to: State, notices: [Option<Notice>; 2]) -> Self {
        Self { to, notices }
    }
}

impl State {
    pub(super) const fn public(&self) -> EndpointState {
        match self {
            Self::Idle => EndpointState::Idle,
            Self::Listening => EndpointState::Listening,
            Self::Connecting { .. } => EndpointState::Connecting,
            Self::Connected(_, Flow::Both) => EndpointState::Connected,
            Self::Connected(_, Flow::TheirsOnly) => EndpointState::ClosedHere,
            Self::Connected(_, Flow::OursOnly) => EndpointState::ClosedThere,
            Self::Over => EndpointState::Over,
        }
    }

    /// The host at the other side, if there is one.
    pub(super) const fn peer(&self) -> Option<PortAddress> {
        match self {
            Self::Connecting { to, .. } => Some(*to),
            Self::Connected(session, _) => Some(session.peer),
            Self::Idle | Self::Listening | Self::Over => None,
        }
    }

    pub(super) const fn listen(self) -> Result<Self, Error> {
        match self {
            Self::Idle | Self::Listening => Ok(Self::Listening),
            _ => Err(Error::Busy),
        }
    }

    /// May a connection begin?
    pub(super) const fn expect_idle(self) -> Result<(), Error> {
        match self {
            Self::Idle => Ok(()),
            _ => Err(Error::Busy),
        }
    }

    /// The connection on which this side may still send.
    pub(super) const fn sending(self) -> Result<Session, Error> {
        match self {
            Self::Connected(session, Flow::Both | Flow::OursOnly) => Ok(session),
            _ => Err(Error::NotOpen),
        }
    }

    /// This side sends no more.
    pub(super) const fn disconnect(self) -> Result<Transition, Error> {
        match self {
            Self::Connected(session, Flow::Both) => {
                Ok(Transition::new(Self::Connected(session, Flow::TheirsOnly), [None; 2]))
            }
            Self::Connected(_, Flow::OursOnly) => {
                Ok(Transition::new(Self::Over, [Some(Notice::Closed), None]))
            }
            _ => Err(Error::NotOpen),
        }
    }

    /// The connection, if there is one, is over.
    pub(super) const fn end(self, why: Ended) -> Transition {
        match self {
            Self::Connecting { .. } | Self::Connected(..) => {
                Transition::new(Self::Over, ended(why, [0; 40]))
            }
            _ => Transition::new(self, [None; 2]),
        }
    }

    /// The user took a notice.
    pub(super) const fn noticed(self, notice: &Notice) -> Self {
        match self {
            Self::Over if notice.is_last() => Self::Idle,
            _ => self,
        }
    }

    /// A message of a connection came.
    pub(super) fn handle(
        self,
        from: PortAddress,
        message: &OutOfBand,
    ) -> Result<Transition, Stray> {
        match self {
            Self::Connecting { to, ours } if message.to_session == ours && from.host == to.host => {
                Self::answered(from, ours, message)
            }
            Self::Connected(session, flow) if session.is_named_by(from, message) => {
                session.handle(flow, message)
            }
            _ => Err(Stray),
        }
    }

    const fn answered(
        by: PortAddress,
        ours: u64,
        message: &OutOfBand,
    ) -> Result<Transition, Stray> {
        let body = message.body;
        match message.kind {
            OutOfBandKind::Accept => {
                let session = Session { peer: by, ours, theirs: message.from_session };
                let notice = Notice::Accepted { by, body };
                Ok(Transition::new(Self::Connected(session, Flow::Both), [Some(notice), None]))
            }
            OutOfBandKind::Refuse => Ok(Transition::new(Self::Over, ended(message.why(), body))),
            _ => Err(Stray),
        }
    }
}

impl Session {
    /// Does the message come from the other side of this connection?
    pub(super) fn is_named_by(&self, from: PortAddress, message: &OutOfBand) -> bool {
        message.to_session == self.ours && message.from_session == self.theirs && from == self.peer
    }

    const fn handle(self, flow: Flow, message: &OutOfBand) -> Result<Transition, Stray> {
        let body = message.body;
        let disconnected = Some(Notice::Disconnected { body });
        match (message.kind, flow) {
            (OutOfBandKind::Disconnect, Flow::Both) => {
                Ok(Transition::new(State::Connected(self, Flow::OursOnly), [disconnected, None]))
            }
            (OutOfBandKind::Disconnect, Flow::TheirsOnly) => {
                Ok(Transition::new(State::Over, [disconnected, Some(Notice::Closed)]))
            }
            (OutOfBandKind::Abort, _) => {
                Ok(Transition::new(State::Over, ended(message.why(), body)))
            }
            (OutOfBandKind::Message, Flow::Both | Flow::TheirsOnly) => {
                let notice = Notice::Message { from: self.peer, body };
                Ok(Transition::new(State::Connected(self, flow), [Some(notice), None]))
            }
            _ => Err(Stray),
        }
    }
}

impl OutOfBand {
    const fn why(&self) -> Ended {
        Ended::There(match self.reason {
            Some(reason) => reason,
            None => Reason::Refused,
        })
    }
}

const fn ended(why: Ended, body: [u8; 40]) -> [Option<Notice>; 2] {
    [Some(Notice::Ended { why, body }), None]
}
