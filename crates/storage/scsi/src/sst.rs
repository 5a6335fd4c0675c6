//! SCSI over the Scheduled Transfer Protocol: its messages. They are Transfers of their own, and
//! so are the data of a command, which land where they belong.
//!
//! The four bytes of a user in each Transfer say what it is: the tag of a command for its data,
//! and the same with [`MESSAGE`] for a message about it. Data that come with [`GOOD`] are all that
//! a target says of a command.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::sense::Sense;
use crate::target::TaskManagement;
use crate::wire::{put, u32_at, u64_at};

/// Set in the four bytes of a user where a Transfer is a message.
pub const MESSAGE: u32 = 1 << 31;
/// Set in the four bytes of a user where data come from a target with the status GOOD: no message
/// follows.
pub const GOOD: u32 = 1 << 30;
/// Tags are smaller.
pub const TAGS: u32 = GOOD;
/// The longest message.
pub const LONGEST_MESSAGE: usize = 256;

/// The bytes of a command, and of a status before its sense data.
const COMMAND: usize = 40;
const STATUS: usize = 12;

const NAME: u8 = 1;
const COMMANDS: u8 = 2;
const MANAGES: u8 = 3;
const ABORTS: u8 = 4;
const ANSWERS: u8 = 0x82;

/// What an initiator sends.
///
/// ```
/// use landfall_scsi::sst::Request;
///
/// let request = Request::Command { tag: 7, lun: [0; 8], data_out: 0, data_in: 512, cdb: [0x28; 16] };
/// assert_eq!(Request::decode(&request.encode()), Some(request));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who it is: the first message.
    Name(String),
    /// A command.
    Command {
        /// What its data and its status are known by; below [`TAGS`].
        tag: u32,
        /// The unit.
        lun: [u8; 8],
        /// How many bytes follow in a Transfer with its tag.
        data_out: u32,
        /// How many bytes there is room for.
        data_in: u32,
        /// The command descriptor block.
        cdb: [u8; 16],
    },
    /// Tasks end.
    Manage {
        /// What its status is known by.
        tag: u32,
        /// The unit.
        lun: [u8; 8],
        /// Which tasks.
        what: TaskManagement,
    },
    /// One task of the initiator ends.
    Abort {
        /// What its status is known by.
        tag: u32,
        /// The command's.
        task: u32,
    },
}

const FUNCTIONS: [TaskManagement; 4] = [
    TaskManagement::AbortTaskSet,
    TaskManagement::ClearTaskSet,
    TaskManagement::UnitReset,
    TaskManagement::TargetReset,
];

impl Request {
    /// The message on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Name(name) => {
                let mut bytes = vec![NAME, 0, 0, 0];
                bytes.extend_from_slice(name.as_bytes());
                bytes.truncate(LONGEST_MESSAGE);
                bytes
            }
            Self::Command { tag, lun, data_out, data_in, cdb } => {
                let mut bytes = vec![COMMANDS, 0, 0, 0];
                bytes.extend_from_slice(&tag.to_be_bytes());
                bytes.extend_from_slice(lun);
                bytes.extend_from_slice(&data_out.to_be_bytes());
                bytes.extend_from_slice(&data_in.to_be_bytes());
                bytes.extend_from_slice(cdb);
                bytes
            }
            Self::Manage { tag, lun, what } => {
                let function = FUNCTIONS.iter().position(|known| known == what).unwrap_or(0);
                let mut bytes = vec![MANAGES, function as u8, 0, 0];
                bytes.extend_from_slice(&tag.to_be_bytes());
                bytes.extend_from_slice(lun);
                bytes
            }
            Self::Abort { tag, task } => {
                let mut bytes = vec![ABORTS, 0, 0, 0];
                bytes.extend_from_slice(&tag.to_be_bytes());
                bytes.extend_from_slice(&task.to_be_bytes());
                bytes
            }
        }
    }

    /// What a message says; None where it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, lun) = (u32_at(bytes, 4), u64_at(bytes, 8).to_be_bytes());
        match (*bytes.first()?, bytes.len()) {
            (NAME, 5..=LONGEST_MESSAGE) => {
                core::str::from_utf8(&bytes[4..]).ok().map(|name| Self::Name(name.into()))
            }
            (COMMANDS, COMMAND) if tag < TAGS => Some(Self::Command {
                tag,
                lun,
                data_out: u32_at(bytes, 16),
                data_in: u32_at(bytes, 20),
                cdb: *bytes[24..].first_chunk()?,
            }),
            (MANAGES, 16) if tag < TAGS => {
                let what = *FUNCTIONS.get(usize::from(bytes[1]))?;
                Some(Self::Manage { tag, lun, what })
            }
            (ABORTS, 12) if tag < TAGS => Some(Self::Abort { tag, task: u32_at(bytes, 8) }),
            _ => None,
        }
    }
}

/// How a command ended: what a target sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The command's.
    pub tag: u32,
    /// The byte of SCSI.
    pub status: u8,
    /// How many bytes of data come in a Transfer with its tag.
    pub data_in: u32,
    /// Why it failed.
    pub sense: Option<Sense>,
}

impl Answer {
    /// The message on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; STATUS];
        put(&mut bytes, 0, &[ANSWERS, self.status]);
        put(&mut bytes, 4, &self.tag.to_be_bytes());
        put(&mut bytes, 8, &self.data_in.to_be_bytes());
        bytes.extend(self.sense.map(|sense| sense.encode(true)).unwrap_or_default());
        bytes
    }

    /// What a message says; None where it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let sense = bytes.get(STATUS..)?;
        let is_one = bytes[0] == ANSWERS && bytes.len() <= LONGEST_MESSAGE;
        is_one.then(|| Self {
            tag: u32_at(bytes, 4),
            status: bytes[1],
            data_in: u32_at(bytes, 8),
            sense: Sense::decode(sense),
        })
    }
}
