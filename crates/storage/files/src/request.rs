//! [`Request`]: what a client asks; [`Envelope`]: in whose name, and what it needs no more.

use alloc::vec::Vec;

use crate::message::{fields, messages};
use crate::wire::{Reader, Wire};
use crate::{Name, ProtocolError, SetTime, Target};

/// The most [releases](Release) that travel with one request.
pub const MOST_RELEASES: usize = 64;

/// How a file is opened: bits of `flags`.
pub mod open {
    /// To be read.
    pub const READ: u32 = 1;
    /// To be written.
    pub const WRITE: u32 = 1 << 1;
    /// Its bytes go first.
    pub const TRUNCATE: u32 = 1 << 2;
    /// It must not have been there before.
    pub const EXCLUSIVE: u32 = 1 << 3;
    /// All that there are.
    pub const ALL: u32 = READ | WRITE | TRUNCATE | EXCLUSIVE;
}

/// What a rename may do to an entry that is in its way: `flags`.
pub mod rename {
    /// It is an error.
    pub const NO_REPLACE: u32 = 1;
    /// Both change places.
    pub const EXCHANGE: u32 = 1 << 1;
    /// All that there are.
    pub const ALL: u32 = NO_REPLACE | EXCHANGE;
}

fields! {
    /// In whose name a request is made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Caller {
        /// The user's number.
        pub user: u32,
        /// The number of the group.
        pub group: u32,
    }
}

messages! {
    /// What a client does not need any more. Nobody waits for its answer: it travels with the next
    /// request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Release {
        /// A node that it was told of this many times.
        1 Node {
            /// Which.
            node: u64,
            /// How many times.
            count: u64,
        }
        /// A handle of a file or a directory.
        2 Handle {
            /// Which.
            handle: u64,
        }
    }
}

messages! {
    /// What a client asks. Each answer that has [attributes](crate::Attributes) of a node that was
    /// named counts as one time that the client was told of it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Request {
        /// The first on each channel. Answered by `Reply::Welcome`.
        1 Hello {
            /// The protocol's version.
            version: u32,
            /// The session that the channel shall belong to; zeroes: a new one.
            session: [u8; 16],
        }
        /// Which node has this name.
        2 Lookup {
            /// In this directory.
            parent: u64,
            /// The name.
            name: Name,
        }
        /// The attributes of a node.
        3 GetAttributes {
            /// Which.
            node: u64,
        }
        /// Changes attributes.
        4 SetAttributes {
            /// Of this node.
            node: u64,
            /// A handle by which its length may be changed.
            handle: Option<u64>,
            /// The lower twelve bits of its mode.
            permissions: Option<u16>,
            /// Whose it shall be.
            user: Option<u32>,
            /// Of which group.
            group: Option<u32>,
            /// The length.
            size: Option<u64>,
            /// When it was read last.
            accessed: Option<SetTime>,
            /// When its bytes were changed last.
            modified: Option<SetTime>,
        }
        /// Where a symbolic link leads.
        5 ReadLink {
            /// Which.
            node: u64,
        }
        /// A file, a pipe, a socket or a device.
        6 MakeNode {
            /// In this directory.
            parent: u64,
            /// Its name.
            name: Name,
            /// Its mode.
            mode: u32,
            /// Which device.
            device: u32,
        }
        /// A directory.
        7 MakeDirectory {
            /// In this directory.
            parent: u64,
            /// Its name.
            name: Name,
            /// Its mode.
            mode: u32,
        }
        /// A symbolic link.
        8 MakeSymlink {
            /// In this directory.
            parent: u64,
            /// Its name.
            name: Name,
            /// Where it leads.
            target: Target,
        }
        /// Another name for a node.
        9 Link {
            /// Which.
            node: u64,
            /// In this directory.
            parent: u64,
            /// The name.
            name: Name,
        }
        /// Takes a name from a node that is no directory.
        10 Unlink {
            /// In this directory.
            parent: u64,
            /// The name.
            name: Name,
        }
        /// Removes an empty directory.
        11 RemoveDirectory {
            /// In this directory.
            parent: u64,
            /// Its name.
            name: Name,
        }
        /// Gives an entry another name and directory.
        12 Rename {
            /// From this directory.
            parent: u64,
            /// The name before.
            name: Name,
            /// To this directory.
            new_parent: u64,
            /// The name afterwards.
            new_name: Name,
            /// Bits of [`rename`](crate::rename).
            flags: u32,
        }
        /// Opens a regular file.
        13 Open {
            /// Which.
            node: u64,
            /// Bits of [`open`](crate::open).
            flags: u32,
        }
        /// Makes a regular file, if it is not there, and opens it.
        14 Create {
            /// In this directory.
            parent: u64,
            /// Its name.
            name: Name,
            /// Its mode.
            mode: u32,
            /// Bits of [`open`](crate::open).
            flags: u32,
        }
        /// Reads into the client's memory.
        15 Read {
            /// By this handle.
            handle: u64,
            /// From this byte on.
            offset: u64,
            /// At most this many.
            len: u32,
        }
        /// Writes what lies in the server's memory.
        16 Write {
            /// By this handle.
            handle: u64,
            /// From this byte on.
            offset: u64,
            /// This many.
            len: u32,
            /// Behind the end instead.
            append: bool,
        }
        /// Returns when a file is on the medium.
        17 Sync {
            /// By this handle.
            handle: u64,
            /// Its bytes do, without times.
            data_only: bool,
        }
        /// Opens a directory.
        18 OpenDirectory {
            /// Which.
            node: u64,
        }
        /// Entries, into the client's memory.
        19 ReadDirectory {
            /// By this handle.
            handle: u64,
            /// Behind the entry that had this cookie; 0: from the first.
            cookie: u64,
            /// At most this many bytes.
            len: u32,
            /// With attributes, as if each had been looked up.
            attributes: bool,
        }
        /// The room of the file system.
        20 Space {}
        /// Makes or frees room in a file.
        21 Allocate {
            /// By this handle.
            handle: u64,
            /// From this byte on.
            offset: u64,
            /// This many.
            len: u64,
            /// Bits of Linux's `fallocate`.
            mode: u32,
        }
        /// Where data or a hole begins.
        22 Seek {
            /// By this handle.
            handle: u64,
            /// From this byte on.
            offset: u64,
            /// Data; otherwise a hole.
            data: bool,
        }
        /// Copies within the server.
        23 Copy {
            /// From this handle.
            from: u64,
            /// From this byte on.
            from_offset: u64,
            /// To this handle.
            to: u64,
            /// To this byte.
            to_offset: u64,
            /// At most this many.
            len: u64,
        }
        /// An extended attribute, into the client's memory.
        24 GetExtended {
            /// Of this node.
            node: u64,
            /// Its name.
            name: Name,
            /// At most this many bytes; 0: only how many there are.
            len: u32,
        }
        /// Sets one, of bytes in the server's memory.
        25 SetExtended {
            /// Of this node.
            node: u64,
            /// Its name.
            name: Name,
            /// This many bytes.
            len: u32,
            /// `XATTR_CREATE` or `XATTR_REPLACE` of Linux.
            flags: u32,
        }
        /// Their names, into the client's memory, each with a NUL behind.
        26 ListExtended {
            /// Of this node.
            node: u64,
            /// At most this many bytes; 0: only how many there are.
            len: u32,
        }
        /// Removes one.
        27 RemoveExtended {
            /// Of this node.
            node: u64,
            /// Its name.
            name: Name,
        }
        /// Nothing: what matters are the releases that come with it.
        28 Nothing {}
    }
}

/// A request, in whose name it is made, and what its client needs no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// In whose name.
    pub caller: Caller,
    /// What is asked.
    pub request: Request,
    /// At most [`MOST_RELEASES`]. They take effect before the request.
    pub releases: Vec<Release>,
}

impl Envelope {
    /// A request without releases.
    #[must_use]
    pub const fn new(caller: Caller, request: Request) -> Self {
        Self { caller, request, releases: Vec::new() }
    }

    /// As bytes; never more than [`Layout::MESSAGE`](crate::Layout::MESSAGE).
    ///
    /// # Panics
    /// There are more releases than may be.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.releases.len() <= MOST_RELEASES, "more releases than travel with a request");
        let mut out = Vec::with_capacity(96);
        self.caller.put(&mut out);
        (self.releases.len() as u8).put(&mut out);
        for release in &self.releases {
            release.put(&mut out);
        }
        self.request.put(&mut out);
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(bytes);
        let caller = Caller::get(&mut reader)?;
        let count = u8::get(&mut reader)?;
        if usize::from(count) > MOST_RELEASES {
            return Err(ProtocolError::Value { what: "releases", value: count.into() });
        }
        let releases: Result<_, _> = (0..count).map(|_| Release::get(&mut reader)).collect();
        let (releases, request) = (releases?, Request::get(&mut reader)?);
        reader.end()?;
        request.check()?;
        Ok(Self { caller, request, releases })
    }
}

impl Request {
    /// Bits that mean something, and offsets that a file can have.
    fn check(&self) -> Result<(), ProtocolError> {
        let bits = |what, value: u32, all: u32| match value & !all {
            0 => Ok(()),
            _ => Err(ProtocolError::Value { what, value: value.into() }),
        };
        let place = |offset: u64, len: u64| match offset.checked_add(len) {
            Some(end) if end <= i64::MAX as u64 => Ok(()),
            _ => Err(ProtocolError::Value { what: "offset", value: offset }),
        };
        match *self {
            Self::Rename { flags, .. } => bits("flags of a rename", flags, rename::ALL),
            Self::Open { flags, .. } | Self::Create { flags, .. } => {
                bits("flags of an open", flags, open::ALL)
            }
            Self::SetAttributes { permissions, size, .. } => {
                bits("permissions", permissions.unwrap_or(0).into(), 0o7777)?;
                place(size.unwrap_or(0), 0)
            }
            Self::Read { offset, len, .. } | Self::Write { offset, len, .. } => {
                place(offset, len.into())
            }
            Self::Allocate { offset, len, .. } => place(offset, len),
            Self::Seek { offset, .. } => place(offset, 0),
            Self::Copy { from_offset, to_offset, len, .. } => {
                place(from_offset, len)?;
                place(to_offset, len)
            }
            Self::ReadDirectory { cookie, .. } => place(cookie, 0),
            _ => Ok(()),
        }
    }
}
