//! [`Name`]: one part of a path; [`Target`]: where a symbolic link leads.

use alloc::vec::Vec;
use core::fmt;

use crate::ProtocolError;
use crate::wire::{Reader, Wire};

/// The longest name of a directory's entry, in bytes.
pub const LONGEST_NAME: usize = 255;

/// The longest target of a symbolic link, in bytes.
pub const LONGEST_TARGET: usize = 4095;

/// The name of an entry of a directory. A path cannot be made of it that leads anywhere but to an
/// entry of that directory.
///
/// ```
/// use landfall_files::Name;
///
/// assert_eq!(Name::new(b"file")?.bytes(), b"file");
/// for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"nul\0", &[b'x'; 256]] {
///     assert!(Name::new(bad).is_err());
/// }
/// # Ok::<(), landfall_files::ProtocolError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// A name of these bytes.
    ///
    /// # Errors
    /// They are none of an entry.
    pub fn new(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let is_good = (1..=LONGEST_NAME).contains(&bytes.len())
            && bytes != b"."
            && bytes != b".."
            && !bytes.iter().any(|byte| matches!(byte, 0 | b'/'));
        if is_good { Ok(Self(bytes.to_vec())) } else { Err(ProtocolError::Name) }
    }

    /// Its bytes, of whatever character set.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        // A name is not longer than that.
        (self.0.len() as u8).put(out);
        out.extend_from_slice(&self.0);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let len = u8::get(reader)?;
        Self::new(reader.take(len.into())?)
    }
}

/// Where a symbolic link leads: bytes that only the client follows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target(Vec<u8>);

impl Target {
    /// A target of these bytes.
    ///
    /// # Errors
    /// They are none of a symbolic link.
    pub fn new(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let is_good = (1..=LONGEST_TARGET).contains(&bytes.len()) && !bytes.contains(&0);
        if is_good { Ok(Self(bytes.to_vec())) } else { Err(ProtocolError::Target) }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Wire for Target {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u16).put(out);
        out.extend_from_slice(&self.0);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let len = u16::get(reader)?;
        Self::new(reader.take(len.into())?)
    }
}
