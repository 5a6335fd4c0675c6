//! [`Region`]: memory that messages are sent from and come into, and that the other side may
//! reach; [`MemoryKey`]: how it is named there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clan_dsm::HostId;

use crate::clan::{Cookie, Error, Fabric, Local, Rights};

/// Memory of a node, for queue pairs. Clones are the same memory.
///
/// The rights are what the other side may do, and the whole region is the unit of that: whose
/// memory room was posted in may be written by that peer wherever it likes, as the page tables
/// of a processor know no smaller unit. Memory that a peer shall not write is another region.
///
/// ```
/// use landfall::clan::{Rights, Threads};
/// use landfall::verbs::clan::Region;
///
/// let (here, _there) = Threads::pair()?;
/// let memory = Region::new(&here, 4096, Rights::Write)?;
/// memory.copy_in(64, b"in its place")?;
/// let part = memory.part(64..76)?;
/// assert_eq!(part.len(), 12);
/// # Ok::<(), landfall::clan::Error>(())
/// ```
pub struct Region<F: Fabric>(Arc<Inner<F>>);

struct Inner<F: Fabric> {
    local: F::Local,
    cookie: Cookie,
    /// In this process no other has it.
    name: u64,
}

impl<F: Fabric> Region<F> {
    /// This many bytes, all zero.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`].
    pub fn new(node: &F, len: u64, rights: Rights) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (local, cookie) = node.expose(len, rights)?;
        Ok(Self(Arc::new(Inner { local, cookie, name: NEXT.fetch_add(1, Ordering::Relaxed) })))
    }

    /// How many bytes; never none.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u64 {
        self.0.cookie.len()
    }

    /// What the other side may do.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.0.cookie.rights()
    }

    /// The memory, for tripwires and what else nodes do with it.
    #[must_use]
    pub fn local(&self) -> &F::Local {
        &self.0.local
    }

    /// A part of it, for requests.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, range: Range<u64>) -> Result<Part<F>, Error> {
        let (size, len) = (self.len(), range.end.saturating_sub(range.start));
        if range.start > range.end || range.end > size {
            return Err(Error::OutOfBounds { offset: range.start, len, size });
        }
        Ok(Part { region: self.clone(), at: range.start, len })
    }

    /// All of it.
    #[must_use]
    pub fn whole(&self) -> Part<F> {
        Part { region: self.clone(), at: 0, len: self.len() }
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// They do not all fit.
    pub fn copy_in(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.local.copy_in(at, bytes)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are not all there.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.local.copy_out(at, into)
    }

    pub(super) fn name(&self) -> u64 {
        self.0.name
    }

    /// The cookie that the node of this memory of a peer alone can use, where nodes are told
    /// apart; else one for any.
    pub(super) fn cookie_for(&self, node: &F, peer: &F::Remote) -> Result<Cookie, Error> {
        match node.cookie_for(&self.0.local, peer) {
            Err(Error::BadConfig(_)) => Ok(self.0.cookie),
            other => other,
        }
    }
}

impl<F: Fabric> Clone for Region<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Fabric> fmt::Debug for Region<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes, {:?})", self.len(), self.rights())
    }
}

/// Some bytes of a [`Region`].
pub struct Part<F: Fabric> {
    region: Region<F>,
    at: u64,
    len: u64,
}

impl<F: Fabric> Part<F> {
    /// Whose bytes they are.
    #[must_use]
    pub const fn region(&self) -> &Region<F> {
        &self.region
    }

    /// The first of them.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<F: Fabric> Clone for Part<F> {
    fn clone(&self) -> Self {
        Self { region: self.region.clone(), at: self.at, len: self.len }
    }
}

impl<F: Fabric> fmt::Debug for Part<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} bytes at {} of {:?})", self.len, self.at, self.region)
    }
}

/// What the owner of a [`Region`] has named it, for the other side: tell it by a message. Its
/// owner checks it in every bit when it is used first, rights and length too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKey(pub(super) Cookie);

impl MemoryKey {
    /// How many bytes [`to_bytes`](Self::to_bytes) gives.
    pub const LEN: usize = Cookie::LEN;

    /// As a message carries it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.0.to_bytes()
    }

    /// From a message. Nothing where no key is written so. What is made up leads to no memory:
    /// its owner refuses it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        Cookie::from_bytes(bytes).ok().map(Self)
    }

    /// How many bytes the memory has; never none.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> u64 {
        self.0.len()
    }

    /// What may be done with it.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.0.rights()
    }
}

/// Memory of the other side, as far as this one has had to do with it.
pub(super) struct Windows<F: Fabric> {
    /// Memory of others is not reached through a queue pair.
    host: HostId,
    mapped: BTreeMap<[u8; Cookie::LEN], F::Remote>,
}

/// Memory that is mapped at a time. At the bound all is given up, and mapped anew when it is used.
const MOST_WINDOWS: usize = 256;

impl<F: Fabric> Windows<F> {
    pub(super) const fn new(host: HostId) -> Self {
        Self { host, mapped: BTreeMap::new() }
    }

    pub(super) const fn host(&self) -> HostId {
        self.host
    }

    /// The memory of this cookie. Its first use asks the owner, and waits for the answer.
    pub(super) fn find(&mut self, node: &F, cookie: &Cookie) -> Result<&mut F::Remote, Error> {
        if cookie.host() != self.host {
            return Err(Error::Forbidden);
        }
        let bytes = cookie.to_bytes();
        if self.mapped.len() >= MOST_WINDOWS && !self.mapped.contains_key(&bytes) {
            self.mapped.clear();
        }
        match self.mapped.entry(bytes) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(node.map(cookie)?)),
        }
    }
}
