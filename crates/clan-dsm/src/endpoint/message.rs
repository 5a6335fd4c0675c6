//! The out-of-band message as it crosses the network, and what an endpoint has to say to its
//! user: notices, in its queue.

use alloc::collections::VecDeque;
use core::fmt;

use crate::address::HostId;
use crate::error::{Ended, Reason};

/// Names an endpoint of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub u32);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.0)
    }
}

/// Names an endpoint among all: a host and a port (section 3.1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortAddress {
    /// The host.
    pub host: HostId,
    /// Which of the host's endpoints.
    pub port: Port,
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.host, self.port)
    }
}

/// What the user may say in one message: 40 bytes, enough for a cookie and a word.
pub type Body = [u8; 40];

/// What an out-of-band message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OutOfBandKind {
    /// From user to user.
    Message = 1,
    /// Asks a listener for a connection.
    Connect = 2,
    /// The listener has an endpoint for it.
    Accept = 3,
    /// There will be no connection.
    Refuse = 4,
    /// The sender will send nothing more on the connection.
    Disconnect = 5,
    /// The connection does not exist (any more).
    Abort = 6,
    /// A message found no room, or nobody.
    Undelivered = 7,
    /// More went wrong than can be told one by one.
    Overrun = 8,
}

impl OutOfBandKind {
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Message,
            2 => Self::Connect,
            3 => Self::Accept,
            4 => Self::Refuse,
            5 => Self::Disconnect,
            6 => Self::Abort,
            7 => Self::Undelivered,
            8 => Self::Overrun,
            _ => return None,
        })
    }
}

/// One out-of-band message between two endpoints.
///
/// On the wire 72 bytes in network byte order: the two ports, four bytes each;
/// the kind; the reason or zero; two bytes of zero; the number, four bytes; the
/// two sessions, eight bytes each; the body. A session is drawn by each side
/// when a connection begins, and zero where none is meant: so what is left of
/// an earlier connection of the same ports is recognised and does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBand {
    /// Who sends.
    pub from: Port,
    /// For whom.
    pub to: Port,
    /// What for.
    pub kind: OutOfBandKind,
    /// Why, where that is to be said.
    pub reason: Option<Reason>,
    /// The sender's number of a message; how many, where several went wrong.
    pub number: u32,
    /// The sender's session.
    pub from_session: u64,
    /// The receiver's session.
    pub to_session: u64,
    /// What the user says.
    pub body: Body,
}

impl OutOfBand {
    /// Bytes on the wire.
    pub const LEN: usize = 72;

    /// As it stands on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.from.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.to.0.to_be_bytes());
        bytes[8] = self.kind as u8;
        bytes[9] = self.reason.map_or(0, |reason| reason as u8);
        bytes[12..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.from_session.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.to_session.to_be_bytes());
        bytes[32..].copy_from_slice(&self.body);
        bytes
    }

    /// Reads it from the wire. `None` for a kind or reason that does not exist,
    /// and where bytes that are zero are not.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let short = |at: usize| u32::from_be_bytes(piece(bytes, at));
        let long = |at: usize| u64::from_be_bytes(piece(bytes, at));
        let reason = match bytes[9] {
            0 => None,
            code => Some(Reason::from_code(code)?),
        };
        if bytes[10..12] != [0; 2] {
            return None;
        }
        Some(Self {
            from: Port(short(0)),
            to: Port(short(4)),
            kind: OutOfBandKind::from_code(bytes[8])?,
            reason,
            number: short(12),
            from_session: long(16),
            to_session: long(24),
            body: piece(bytes, 32),
        })
    }
}

fn piece<const N: usize>(bytes: &[u8; OutOfBand::LEN], at: usize) -> [u8; N] {
    let mut piece = [0; N];
    piece.copy_from_slice(&bytes[at..at + N]);
    piece
}

/// Somebody asks a listener for a connection. To be answered with an endpoint
/// that accepts it, or with a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Who asks.
    pub from: PortAddress,
    /// What is said with it: a cookie, for one.
    pub body: Body,
    pub(crate) session: u64,
    pub(crate) listener: Port,
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
    /// More messages of this endpoint were not delivered; there was no
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

/// Notices in the order in which they came. What others can send as often as
/// they like is bounded; what a connection says of itself always fits, since
/// the next connection begins only once the last notice of this one was taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    queue: VecDeque<Notice>,
    /// How many of them count against the bound.
    bounded: usize,
    /// How many messages of this endpoint were not delivered, beyond those that
    /// the queue tells of.
    more_undelivered: u64,
}

impl Inbox {
    /// An empty queue in memory that another endpoint has left behind.
    pub(super) fn reusing(queue: VecDeque<Notice>) -> Self {
        debug_assert!(queue.is_empty());
        Self { queue, ..Self::default() }
    }

    /// Leaves the memory behind.
    pub(super) fn into_memory(mut self) -> VecDeque<Notice> {
        self.queue.clear();
        self.queue
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.more_undelivered == 0
    }

    /// Would one more fit that counts against the bound?
    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.bounded < limit
    }

    /// Puts one in, whose room the caller has asked for if it counts.
    pub(super) fn push(&mut self, notice: Notice) {
        self.bounded += usize::from(!notice.is_of_connection());
        self.queue.push_back(notice);
    }

    /// Tells of messages that were not delivered: singly while there is room,
    /// as a number where there is none.
    pub(super) fn push_undelivered(&mut self, notice: Notice, count: u32, limit: usize) {
        if self.has_room(limit) && self.more_undelivered == 0 {
            self.push(notice);
        } else {
            self.more_undelivered = self.more_undelivered.saturating_add(u64::from(count));
        }
    }

    pub(super) fn pop(&mut self) -> Option<Notice> {
        if let Some(notice) = self.queue.pop_front() {
            self.bounded -= usize::from(!notice.is_of_connection());
            return Some(notice);
        }
        let count = core::mem::take(&mut self.more_undelivered);
        (count > 0).then_some(Notice::MoreUndelivered { count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_out_of_band_message_stands_on_the_wire_as_described() {
        let message = OutOfBand {
            from: Port(0x0102_0304),
            to: Port(0x0506_0708),
            kind: OutOfBandKind::Refuse,
            reason: Some(Reason::Refused),
            number: 0x0910_1112,
            from_session: 0x1314_1516_1718_1920,
            to_session: 0x2122_2324_2526_2728,
            body: [0xee; 40],
        };
        let bytes = message.to_bytes();
        assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[8..16], [4, 8, 0, 0, 0x09, 0x10, 0x11, 0x12]);
        assert_eq!(bytes[16..24], [0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x20]);
        assert_eq!(bytes[24..32], [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
        assert_eq!(bytes[32..], [0xee; 40]);
        assert_eq!(OutOfBand::from_bytes(&bytes), Some(message));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_alike(
            mut bytes in prop::collection::vec(any::<u8>(), OutOfBand::LEN),
            kind in 0u8..12,
            reason in 0u8..12,
            zeros in any::<bool>(),
        ) {
            bytes[8] = kind;
            bytes[9] = reason;
            if zeros {
                bytes[10..12].fill(0);
            }
            let bytes: [u8; OutOfBand::LEN] = bytes.try_into().unwrap();
            let is_known = (1..=8).contains(&kind) && reason <= 8 && bytes[10..12] == [0; 2];
            let read = OutOfBand::from_bytes(&bytes);
            prop_assert_eq!(read.is_some(), is_known);
            if let Some(message) = read {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
