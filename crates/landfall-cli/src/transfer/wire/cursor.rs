//! Numbers and strings in bytes: little-endian, each string behind its length.

use std::fmt;

use crate::printable::printable_bytes;

/// Bytes that mean nothing: which, and where they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side sent a message that makes no sense ({0})")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Takes values from the front of bytes.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their length of two bytes.
    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.bytes(len.into())
    }

    /// Text for people: at most so long, and safe to print, whatever was sent.
    pub(crate) fn text(&mut self, most: usize) -> Result<String, Malformed> {
        let bytes = self.short_bytes()?;
        if bytes.len() > most {
            return Err(Malformed("a text is too long"));
        }
        // It may be printed. What is shown as an escape takes more room than it took.
        let mut text = printable_bytes(bytes);
        text.truncate(text.floor_char_boundary(most));
        Ok(text)
    }
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

/// Appends bytes behind their length of two bytes; what is longer is cut.
pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&bytes[..usize::from(len)]);
}

/// Appends text, cut where it is longer than allowed.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    put_short_bytes(out, &text.as_bytes()[..text.floor_char_boundary(most)]);
}
