//! [`Errno`]: why a request failed; [`ProtocolError`]: why a connection has to end.

use core::fmt;

/// Why a request failed: a number of Linux, whatever system either end runs on.
///
/// ```
/// use landfall_files::Errno;
///
/// assert_eq!(Errno::new(2), Errno::NO_ENTRY);
/// assert_eq!(Errno::new(0), Errno::IO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(u16);

impl Errno {
    /// `EPERM`.
    pub const NOT_PERMITTED: Self = Self(1);
    /// `ENOENT`.
    pub const NO_ENTRY: Self = Self(2);
    /// `EIO`.
    pub const IO: Self = Self(5);
    /// `EBADF`: no such handle.
    pub const BAD_HANDLE: Self = Self(9);
    /// `EINVAL`.
    pub const INVALID: Self = Self(22);
    /// `EROFS`: the export is read-only.
    pub const READ_ONLY: Self = Self(30);
    /// `ERANGE`: the buffer is too small.
    pub const RANGE: Self = Self(34);
    /// `EOPNOTSUPP`.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// `ESTALE`: no such node.
    pub const STALE: Self = Self(116);

    /// The greatest number that Linux gives an error.
    pub const MOST: u16 = 4095;

    /// The error of this number. One that cannot be is [`IO`](Self::IO).
    #[must_use]
    pub const fn new(number: u16) -> Self {
        if number == 0 || number > Self::MOST { Self::IO } else { Self(number) }
    }

    /// The number of Linux.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {} of Linux", self.0)
    }
}

impl core::error::Error for Errno {}

/// What the other side wrote that nobody who follows the protocol writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message ends before what it announces.
    #[error("a message is too short for what it says")]
    TooShort,
    /// A message goes on behind its end.
    #[error("{0} bytes follow the end of a message")]
    Remainder(usize),
    /// A number that names no request or reply.
    #[error("a message of kind {0}, which there is not")]
    Kind(u16),
    /// A value outside of its range.
    #[error("a message says {what} {value}, which cannot be")]
    Value {
        /// Of what.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// A name that is not one part of a path.
    #[error(
        "a name that is none of a directory's entry: it is empty, longer than 255 bytes, `.` or \
         `..`, or has a slash or a NUL in it"
    )]
    Name,
    /// A symbolic link's target that cannot be.
    #[error("a target of a symbolic link that is empty, longer than 4095 bytes or has a NUL in it")]
    Target,
}
