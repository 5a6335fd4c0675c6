//! How values lie in messages: little-endian, as words in shared memory, without padding.

use alloc::vec::Vec;

use crate::ProtocolError;

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], ProtocolError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(ProtocolError::TooShort)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ProtocolError::TooShort)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing may be left.
    pub(crate) const fn end(self) -> Result<(), ProtocolError> {
        if self.0.is_empty() { Ok(()) } else { Err(ProtocolError::Remainder(self.0.len())) }
    }
}

/// A value of a message.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
                reader.array().map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        match u8::get(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(ProtocolError::Value { what: "yes or no", value: value.into() }),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        bool::get(reader)?.then(|| T::get(reader)).transpose()
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        reader.array()
    }
}
