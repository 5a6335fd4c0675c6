//! [`Attributes`] of a node, what of them is set, and [`Space`] of a file system.

use alloc::vec::Vec;

use crate::ProtocolError;
use crate::message::fields;
use crate::wire::{Reader, Wire};

/// Seconds since 1970, and nanoseconds behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds; before 1970 less than zero.
    pub seconds: i64,
    /// Nanoseconds, less than a second.
    pub nanoseconds: u32,
}

impl Wire for Time {
    fn put(&self, out: &mut Vec<u8>) {
        self.seconds.put(out);
        self.nanoseconds.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let (seconds, nanoseconds) = (i64::get(reader)?, u32::get(reader)?);
        if nanoseconds >= 1_000_000_000 {
            return Err(ProtocolError::Value { what: "nanoseconds", value: nanoseconds.into() });
        }
        Ok(Self { seconds, nanoseconds })
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This one.
    To(Time),
}

impl Wire for SetTime {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Now => None,
            Self::To(time) => Some(*time),
        }
        .put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        Ok(Option::get(reader)?.map_or(Self::Now, Self::To))
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe with a name.
    Fifo,
    /// A socket with a name.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The bits of a mode that say it (`S_IFMT`).
    pub const MASK: u32 = 0o170_000;

    /// By the bits of a mode.
    #[must_use]
    pub const fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & Self::MASK {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The bits of a mode.
    #[must_use]
    pub const fn mode(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharacterDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }
}

impl Wire for FileKind {
    fn put(&self, out: &mut Vec<u8>) {
        ((self.mode() >> 12) as u8).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let value = u8::get(reader)?;
        let kind = Self::of_mode(u32::from(value) << 12);
        // More bits than a mode has are cut off by the mask: they make no kind.
        let kind = kind.filter(|_| value < 16);
        kind.ok_or(ProtocolError::Value { what: "kind of a node", value: value.into() })
    }
}

fields! {
    /// What is known of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Attributes {
        /// Its number, by which it is named: [`ROOT`](crate::ROOT) is the exported directory.
        pub node: u64,
        /// What it is.
        pub kind: FileKind,
        /// Who may do what: the lower twelve bits of its mode.
        pub permissions: u16,
        /// How many names it has.
        pub links: u32,
        /// Whose it is.
        pub user: u32,
        /// Of which group.
        pub group: u32,
        /// Which device, if it is one.
        pub device: u32,
        /// Bytes of one efficient access.
        pub block_size: u32,
        /// Its length.
        pub size: u64,
        /// What it takes on the medium, in units of 512 bytes.
        pub blocks: u64,
        /// When it was read last.
        pub accessed: Time,
        /// When its bytes were changed last.
        pub modified: Time,
        /// When anything of it was changed last.
        pub changed: Time,
    }
}

fields! {
    /// The room of a file system (`statvfs`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Space {
        /// Bytes of a block.
        pub block_size: u32,
        /// All blocks.
        pub blocks: u64,
        /// Those that are free.
        pub free_blocks: u64,
        /// Those that are free for anyone.
        pub available_blocks: u64,
        /// All nodes that there can be.
        pub nodes: u64,
        /// Those that are free.
        pub free_nodes: u64,
        /// The longest name.
        pub longest_name: u32,
    }
}
