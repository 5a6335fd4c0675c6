//! iSCSI: [`Session`], the target's end of a connection.
//!
//! | file | what it is |
//! | --- | --- |
//! | `pdu` | messages, and sums over them |
//! | `keys` | what is agreed on by text |
//! | `chap` | how an initiator proves itself, and the target |
//! | `login` | from the first message to the session |
//! | `session` | what comes in a session, and in which order |
//! | `task` | commands whose data come, and those that a device works at |
//! | `reply` | data for the initiator, and status |

mod chap;
mod keys;
mod login;
pub(crate) mod pdu;
mod reply;
mod session;
mod task;

use alloc::string::String;

pub use chap::{Account, Chap};
pub use keys::LONGEST_DATA;
pub use reply::{Piece, Reply};
pub use session::{Job, Session, TaskId};

/// A buffer of this size has room for any message.
pub const LONGEST_MESSAGE: usize = pdu::HEAD + 4 * 255 + LONGEST_DATA as usize + 12;

/// What a target says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// A name for people.
    pub alias: Option<String>,
    /// Where initiators come in, `address:port`: what those hear that look for targets.
    pub portal: Option<String>,
    /// Who may come in; without it, anyone.
    pub chap: Option<Chap>,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The sum of a head is wrong.
    #[error("the sum of a head is wrong")]
    HeaderDigest,
    /// The sum of data is wrong.
    #[error("the sum of data is wrong")]
    DataDigest,
    /// More data than was agreed on.
    #[error("a message has {0} bytes of data, more than was agreed on")]
    TooLong(u32),
    /// A message contradicts itself or what was agreed on.
    #[error("the initiator sent {0}")]
    Malformed(&'static str),
    /// A login was refused.
    #[error("the initiator sent {0}")]
    Login(&'static str),
}
