//! [`Command`]: what a client asks of a device, and the head of a request.

use alloc::vec::Vec;

use crate::export::Replies;
use crate::wire::{EXTENDED_REQUEST, REQUEST, Reader, command};

/// What a client asks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes are wanted.
    Read {
        /// Where they begin.
        offset: u64,
        /// How many.
        length: u32,
        /// In one piece.
        dont_fragment: bool,
    },
    /// Bytes follow the request.
    Write {
        /// Where they belong.
        offset: u64,
        /// How many.
        length: u32,
        /// They are on the medium before the answer.
        fua: bool,
    },
    /// The client goes. There is no answer.
    Disconnect,
    /// Whatever was answered before is on the medium before this is answered.
    Flush,
    /// These bytes are not needed any more.
    Trim {
        /// Where they begin.
        offset: u64,
        /// How many.
        length: u64,
        /// That is on the medium before the answer.
        fua: bool,
    },
    /// These bytes will be read soon.
    Cache {
        /// Where they begin.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// These bytes become zeroes.
    WriteZeroes {
        /// Where they begin.
        offset: u64,
        /// How many.
        length: u64,
        /// They are on the medium before the answer.
        fua: bool,
        /// Blocks stay allocated for them.
        no_hole: bool,
        /// Refused where it is no faster than a write.
        fast_only: bool,
    },
    /// What is allocated and what is zero.
    BlockStatus {
        /// Where the question begins.
        offset: u64,
        /// How far it goes.
        length: u64,
        /// Only the first extent is wanted.
        one: bool,
    },
    /// The device becomes so long (experimental in the protocol).
    Resize {
        /// The new size in bytes.
        size: u64,
    },
}

impl Command {
    /// The bytes that follow the request.
    #[must_use]
    pub const fn payload(&self) -> u64 {
        match *self {
            Self::Write { length, .. } => length as u64,
            _ => 0,
        }
    }

    /// Does it change the device?
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Trim { .. } | Self::WriteZeroes { .. } | Self::Resize { .. }
        )
    }
}

/// The head of a request, as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) flags: u16,
    pub(crate) kind: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// How long a request's head is.
pub(crate) const fn head_len(replies: Replies) -> usize {
    match replies {
        Replies::Extended => 32,
        _ => 28,
    }
}

impl RequestHead {
    /// Reads a head that is there as a whole; the error is what it begins with.
    pub(crate) fn decode(bytes: &[u8], replies: Replies) -> Result<Self, u32> {
        let mut reader = Reader(bytes);
        let magic = reader.u32().unwrap_or_default();
        let mut rest = || {
            let (flags, kind) = (reader.u16()?, reader.u16()?);
            let (cookie, offset) = (reader.u64()?, reader.u64()?);
            let length = match replies {
                Replies::Extended => reader.u64()?,
                _ => u64::from(reader.u32()?),
            };
            Some(Self { flags, kind, cookie, offset, length })
        };
        let expected = if replies == Replies::Extended { EXTENDED_REQUEST } else { REQUEST };
        if magic == expected { rest().ok_or(magic) } else { Err(magic) }
    }

    pub(crate) fn encode(&self, replies: Replies, out: &mut Vec<u8>) {
        let extended = replies == Replies::Extended;
        let magic = if extended { EXTENDED_REQUEST } else { REQUEST };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        if extended {
            out.extend_from_slice(&self.length.to_be_bytes());
        } else {
            // The caller looked: no longer request is issued without extended headers.
            out.extend_from_slice(&(self.length as u32).to_be_bytes());
        }
    }

    /// The head of a command.
    pub(crate) fn of(cookie: u64, wanted: &Command, replies: Replies) -> Self {
        let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        let (kind, flags, offset, length) = match *wanted {
            Command::Read { offset, length, dont_fragment } => {
                let flags = flag(dont_fragment, command::DONT_FRAGMENT);
                (command::READ, flags, offset, u64::from(length))
            }
            Command::Write { offset, length, fua } => {
                let payload = flag(replies == Replies::Extended, command::PAYLOAD);
                (command::WRITE, flag(fua, command::FUA) | payload, offset, u64::from(length))
            }
            Command::Disconnect => (command::DISCONNECT, 0, 0, 0),
            Command::Flush => (command::FLUSH, 0, 0, 0),
            Command::Trim { offset, length, fua } => {
                (command::TRIM, flag(fua, command::FUA), offset, length)
            }
            Command::Cache { offset, length } => (command::CACHE, 0, offset, length),
            Command::WriteZeroes { offset, length, fua, no_hole, fast_only } => {
                let flags = flag(fua, command::FUA)
                    | flag(no_hole, command::NO_HOLE)
                    | flag(fast_only, command::FAST_ZERO);
                (command::WRITE_ZEROES, flags, offset, length)
            }
            Command::BlockStatus { offset, length, one } => {
                (command::BLOCK_STATUS, flag(one, command::ONE_EXTENT), offset, length)
            }
            Command::Resize { size } => (command::RESIZE, 0, size, 0),
        };
        Self { flags, kind, cookie, offset, length }
    }
}
