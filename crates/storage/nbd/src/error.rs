//! [`Errno`]: why a request failed; [`ProtocolError`]: why a connection has to end.

use core::fmt;

/// Why a request failed, as it is said on the wire: the values of Linux, whatever system
/// either end runs on.
///
/// ```
/// use landfall_nbd::Errno;
///
/// assert_eq!(Errno::NO_SPACE.to_string(), "no space left on the device");
/// assert_eq!(Errno::from_wire(7777), Errno::INVALID);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(u32);

impl Errno {
    /// `EPERM`: the export is read-only.
    pub const NOT_PERMITTED: Self = Self(1);
    /// `EIO`: what is below failed.
    pub const IO: Self = Self(5);
    /// `ENOMEM`: no memory for the request.
    pub const NO_MEMORY: Self = Self(12);
    /// `EINVAL`: the request makes no sense.
    pub const INVALID: Self = Self(22);
    /// `ENOSPC`: no room, or beyond the end.
    pub const NO_SPACE: Self = Self(28);
    /// `EOVERFLOW`: too long to be answered in one piece.
    pub const OVERFLOW: Self = Self(75);
    /// `ENOTSUP`: not supported, or not fast.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// `ESHUTDOWN`: the server is about to end.
    pub const SHUTDOWN: Self = Self(108);

    /// What a number on the wire means. One that the protocol does not name is
    /// [`INVALID`](Self::INVALID), as it prescribes.
    #[must_use]
    pub const fn from_wire(number: u32) -> Self {
        match number {
            1 | 5 | 12 | 22 | 28 | 75 | 95 | 108 => Self(number),
            _ => Self::INVALID,
        }
    }

    /// What to say for an error of the operating system, by its number on Linux.
    #[must_use]
    pub const fn from_os(number: i32) -> Self {
        match number {
            // EACCES, EROFS
            1 | 13 | 30 => Self::NOT_PERMITTED,
            12 => Self::NO_MEMORY,
            22 => Self::INVALID,
            // EFBIG, EDQUOT
            27 | 28 | 122 => Self::NO_SPACE,
            75 => Self::OVERFLOW,
            // ENOSYS
            38 | 95 => Self::NOT_SUPPORTED,
            108 => Self::SHUTDOWN,
            _ => Self::IO,
        }
    }

    /// The number on the wire, which is Linux's own.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::NOT_PERMITTED => "not permitted",
            Self::IO => "input or output failed",
            Self::NO_MEMORY => "out of memory",
            Self::NO_SPACE => "no space left on the device",
            Self::OVERFLOW => "too long for one piece",
            Self::NOT_SUPPORTED => "not supported",
            Self::SHUTDOWN => "the server is shutting down",
            _ => "invalid request",
        })
    }
}

impl core::error::Error for Errno {}

/// What the other side did that leaves nothing but to end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The first bytes are not those of a server of this protocol.
    #[error("the other side does not speak NBD's newstyle negotiation")]
    NotNbd,
    /// A message begins with the wrong number.
    #[error("a message begins with {0:#x}, which begins none here")]
    Magic(u64),
    /// Flags that nobody offered.
    #[error("the other side set flags that were not offered: {0:#x}")]
    Flags(u32),
    /// Data so long that nobody wants to skip it.
    #[error("{0} bytes of data were announced, more than anything here has")]
    TooLong(u64),
    /// A message contradicts itself or what was agreed on.
    #[error("the other side sent {0}")]
    Malformed(&'static str),
    /// A reply to nothing that was asked.
    #[error("a reply came for request {0}, which was not asked or has ended")]
    UnknownCookie(u64),
}
