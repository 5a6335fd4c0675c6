//! [`Entry`] of a directory, its [`EntryName`], and [`Entries`]: many of them, one after another.

use alloc::vec::Vec;

use crate::message::fields;
use crate::wire::{Reader, Wire};
use crate::{Attributes, FileKind, Name, ProtocolError};

/// What an entry of a directory is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryName {
    /// The directory itself: `.`.
    Itself,
    /// The one above it: `..`.
    Above,
    /// Something in it.
    Named(Name),
}

impl EntryName {
    /// The name of these bytes.
    ///
    /// # Errors
    /// They are none of an entry.
    pub fn new(bytes: &[u8]) -> Result<Self, ProtocolError> {
        match bytes {
            b"." => Ok(Self::Itself),
            b".." => Ok(Self::Above),
            _ => Name::new(bytes).map(Self::Named),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Itself => b".",
            Self::Above => b"..",
            Self::Named(name) => name.bytes(),
        }
    }
}

impl Wire for EntryName {
    fn put(&self, out: &mut Vec<u8>) {
        let tag: u8 = match self {
            Self::Itself => 0,
            Self::Above => 1,
            Self::Named(_) => 2,
        };
        tag.put(out);
        if let Self::Named(name) = self {
            name.put(out);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        match u8::get(reader)? {
            0 => Ok(Self::Itself),
            1 => Ok(Self::Above),
            2 => Name::get(reader).map(Self::Named),
            value => Err(ProtocolError::Value { what: "entry's name", value: value.into() }),
        }
    }
}

fields! {
    /// An entry of a directory.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Entry {
        /// The node's number.
        pub node: u64,
        /// Where reading goes on behind it.
        pub cookie: u64,
        /// What it is, where the file system tells without a look at it.
        pub kind: Option<FileKind>,
        /// Its attributes, where they were asked for and the entry was still there.
        pub attributes: Option<Attributes>,
        /// Its name.
        pub name: EntryName,
    }
}

impl Entry {
    /// The most bytes that one takes.
    pub const MOST: usize = 512;

    /// Appends it, unless more than `most` bytes would be there then.
    pub fn append(&self, out: &mut Vec<u8>, most: usize) -> bool {
        let before = out.len();
        self.put(out);
        let fits = out.len() <= most;
        if !fits {
            out.truncate(before);
        }
        fits
    }
}

/// The entries that lie in these bytes, one after another.
///
/// ```
/// use landfall_files::{Entries, Entry, EntryName};
///
/// let name = EntryName::new(b"a")?;
/// let entry = Entry { node: 7, cookie: 1, kind: None, attributes: None, name };
/// let mut bytes = Vec::new();
/// assert!(entry.append(&mut bytes, 100) && !entry.append(&mut bytes, 30));
/// assert_eq!(Entries::new(&bytes).collect::<Result<Vec<_>, _>>()?, [entry]);
/// # Ok::<(), landfall_files::ProtocolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Entries<'a>(Option<Reader<'a>>);

impl<'a> Entries<'a> {
    /// Those in these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Some(Reader::new(bytes)))
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, ProtocolError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.0.as_mut().filter(|reader| !reader.is_empty())?;
        let entry = Entry::get(reader);
        if entry.is_err() {
            self.0 = None;
        }
        Some(entry)
    }
}
