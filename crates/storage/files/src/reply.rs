//! [`Reply`]: what a server answers.

use alloc::vec::Vec;

use crate::message::messages;
use crate::wire::{Reader, Wire};
use crate::{Attributes, Errno, ProtocolError, Space, Target};

messages! {
    /// What a server answers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Reply {
        /// It failed, and changed nothing.
        1 Failed {
            /// Why.
            error: Errno,
        }
        /// It is done.
        2 Done {}
        /// The channel belongs to this session.
        3 Welcome {
            /// The protocol's version.
            version: u32,
            /// The session, for further channels.
            session: [u8; 16],
            /// Nothing can be changed.
            read_only: bool,
            /// The directory that is exported.
            root: Attributes,
        }
        /// A node that was looked up or made.
        4 Found {
            /// Its attributes.
            attributes: Attributes,
        }
        /// The attributes of a node that was known.
        5 Known {
            /// They.
            attributes: Attributes,
        }
        /// Where a symbolic link leads.
        6 Leads {
            /// There.
            target: Target,
        }
        /// What was opened.
        7 Opened {
            /// By this handle it is used.
            handle: u64,
        }
        /// A file that was made and opened.
        8 Created {
            /// Its attributes.
            attributes: Attributes,
            /// By this handle it is used.
            handle: u64,
        }
        /// This many bytes are in the client's memory, or were written or copied.
        9 Bytes {
            /// How many.
            len: u64,
        }
        /// The place that was searched for.
        10 Place {
            /// From the beginning.
            offset: u64,
        }
        /// The room of the file system.
        11 Room {
            /// How much.
            space: Space,
        }
    }
}

impl Reply {
    /// As bytes; never more than [`Layout::MESSAGE`](crate::Layout::MESSAGE).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.put(&mut out);
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are no reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(bytes);
        let reply = Self::get(&mut reader)?;
        reader.end()?;
        Ok(reply)
    }
}

impl Wire for Errno {
    fn put(&self, out: &mut Vec<u8>) {
        self.number().put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        match u16::get(reader)? {
            number @ 1..=Self::MOST => Ok(Self::new(number)),
            value => Err(ProtocolError::Value { what: "error", value: value.into() }),
        }
    }
}
