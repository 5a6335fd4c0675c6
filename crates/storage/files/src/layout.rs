//! [`Layout`]: where a message and its data lie in the memory of one direction.

use crate::ProtocolError;

/// The memory of one direction of a channel: a flag of eight bytes, a message, and the data
/// that belongs to it.
///
/// The flag is the number of the message, from 1 on, in its upper half, and its length in the lower.
/// It is written last. A reply has the number of its request, so that the two take turns.
///
/// ```
/// use landfall_files::Layout;
///
/// let layout = Layout::new(1 << 20)?;
/// assert_eq!(layout.bytes(), layout.data_at() + (1 << 20));
/// assert_eq!(Layout::read_flag(Layout::flag(5, 80), 5)?, Some(80));
/// assert_eq!(Layout::read_flag(Layout::flag(5, 80), 6)?, None);
/// assert!(Layout::read_flag(Layout::flag(7, 80), 6).is_err());
/// # Ok::<(), landfall_files::ProtocolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    data: u32,
}

impl Layout {
    /// The most bytes of a message.
    pub const MESSAGE: usize = 8128;
    /// Where the flag lies.
    pub const FLAG_AT: u64 = 0;
    /// Where the message lies: on another line of the cache.
    pub const MESSAGE_AT: u64 = 64;
    /// The most data of one message.
    pub const MOST_DATA: u32 = 16 << 20;
    /// The least.
    pub const LEAST_DATA: u32 = 4096;

    /// With room for this many bytes of data, a multiple of 4096.
    ///
    /// # Errors
    /// It is out of range.
    pub const fn new(data: u32) -> Result<Self, ProtocolError> {
        let is_good =
            data.is_multiple_of(4096) && data >= Self::LEAST_DATA && data <= Self::MOST_DATA;
        if is_good {
            Ok(Self { data })
        } else {
            Err(ProtocolError::Value { what: "room for data", value: data as u64 })
        }
    }

    /// The most bytes of data of a message.
    #[must_use]
    pub const fn data(self) -> u32 {
        self.data
    }

    /// Where data begins.
    #[must_use]
    pub const fn data_at(self) -> u64 {
        Self::MESSAGE_AT + Self::MESSAGE as u64
    }

    /// All bytes of it.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.data_at() + self.data as u64
    }

    /// The flag of a message.
    #[must_use]
    pub const fn flag(number: u32, len: usize) -> u64 {
        (number as u64) << 32 | len as u64
    }

    /// How long the message of this number is, if it is there.
    ///
    /// # Errors
    /// The flag is neither its nor that of the message before.
    pub const fn read_flag(flag: u64, number: u32) -> Result<Option<usize>, ProtocolError> {
        let (found, len) = ((flag >> 32) as u32, flag as u32 as usize);
        if found == number.wrapping_sub(1) {
            Ok(None)
        } else if found == number && len <= Self::MESSAGE {
            Ok(Some(len))
        } else {
            Err(ProtocolError::Value { what: "flag", value: flag })
        }
    }
}
