//! [`Aperture`]: memory of this node that others map, and [`SharedLocal`], its handle.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Arc, Mutex, Weak};

use landfall_transport::memory::Piece;
use landfall_transport::shm::watched::{Hit, Touch, Watched};

use super::node::Node;
use super::tripwire::Wire;
use super::tripwire::Wires;
use super::trouble::{self, locked};
use crate::clan::fabric::{Local, WORD};
use crate::clan::{Access, Cookie, Error};

/// Memory of this node, as others know it.
pub(super) struct Aperture {
    pub(super) node: Arc<Node>,
    pub(super) watched: Watched,
    pub(super) cookie: Cookie,
    /// What writers call it in their news.
    pub(super) tag: u32,
    /// Its owner does not want it to be used any more.
    is_withdrawn: AtomicBool,
    pub(super) wires: Mutex<Wires<Weak<Wire>>>,
}

impl Aperture {
    pub(super) fn new(node: &Arc<Node>, watched: Watched, cookie: Cookie, tag: u32) -> Self {
        Self {
            node: Arc::clone(node),
            watched,
            cookie,
            tag,
            is_withdrawn: AtomicBool::new(false),
            wires: Mutex::default(),
        }
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Acquire)
    }

    /// From now on its cookie is good for nothing, and what writers tell of it is not
    /// heard. False if that was so before.
    pub(super) fn withdraw(&self) -> bool {
        !self.is_withdrawn.swap(true, SeqCst)
    }

    /// Fires what this touches. What cannot be in this memory touches nothing.
    pub(super) fn touch(&self, hit: &Hit, fired: &mut Vec<Arc<Wire>>) {
        if self.is_withdrawn() || !self.watched.contains(hit) {
            return;
        }
        let words = words_of(hit.offset..hit.offset + hit.len);
        let access = match hit.touch {
            Touch::Read => Access::Read,
            Touch::Write => Access::Write,
        };
        let wires = locked(&self.wires);
        let hit = wires.touched(&words).filter_map(Weak::upgrade);
        fired.extend(hit.filter(|wire| wire.access.hears(access)));
    }

    /// All its tripwires: it is not known what was touched.
    pub(super) fn touch_all(&self, fired: &mut Vec<Arc<Wire>>) {
        fired.extend(locked(&self.wires).all().filter_map(Weak::upgrade));
    }
}

/// The words that these bytes lie in.
pub(super) const fn words_of(bytes: Range<u64>) -> Range<u64> {
    bytes.start / WORD..bytes.end.div_ceil(WORD)
}

/// Memory of a [`Shared`](super::Shared) node, mapped by other processes. Clones are
/// the same memory; with the last one it is withdrawn.
#[derive(Clone)]
pub struct SharedLocal(pub(super) Arc<WithdrawOnDrop>);

/// The last one withdraws the aperture.
pub(super) struct WithdrawOnDrop(pub(super) Arc<Aperture>);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.node.withdraw(&self.0);
    }
}

impl SharedLocal {
    /// The descriptor of this memory, as [`expose`](crate::clan::Fabric::expose) gave it.
    #[must_use]
    pub fn cookie(&self) -> Cookie {
        self.aperture().cookie
    }

    /// Ends the use of this memory by others: the cookie is good for nothing from now
    /// on, whoever maps the memory is told and gets an error at its next use, and no
    /// tripwire fires any more.
    ///
    /// A mapping cannot be taken from a process: one that ignores what it is told can
    /// still read and write these bytes, though nobody reads them again. They are
    /// never used for anything else, and go back to the kernel when the last process
    /// that maps them has unmapped them or ended.
    pub fn revoke(&self) {
        self.aperture().node.withdraw(self.aperture());
    }

    pub(super) fn aperture(&self) -> &Arc<Aperture> {
        &self.0.0
    }

    pub(super) fn piece(&self) -> &Piece {
        self.0.0.watched.memory()
    }
}

impl Local for SharedLocal {
    #[inline]
    fn len(&self) -> u64 {
        self.piece().len()
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u64, Error> {
        self.piece().load(offset).map(u64::from_le).map_err(trouble::memory)
    }

    #[inline]
    fn store(&self, offset: u64, word: u64) -> Result<(), Error> {
        self.piece().store(offset, word.to_le()).map_err(trouble::memory)
    }

    #[inline]
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.piece().copy_out(offset, into).map_err(trouble::memory)
    }

    #[inline]
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.piece().copy_in(offset, bytes).map_err(trouble::memory)
    }
}

impl fmt::Debug for SharedLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedLocal({:?})", self.cookie())
    }
}
