//! Memory of a [`Threads`](super::Threads) node, as its owner and as others see it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use arrayvec::ArrayVec;
use clan_dsm::Reason;
use landfall_placement::{WordFunction, WordWidth};
use landfall_transport::memory::{Piece, SharedMemory, SharedMemoryError};

use super::tripwire::Wire;
use super::{Node, Threads};
use crate::clan::dma::sealed::DirectMemory;
use crate::clan::dma::{DirectQueue, DmaEngine};
use crate::clan::{Access, Cookie, Dma, Error, Local, Remote, Rights, Stage, WORD};
use crate::runtime::locked;

/// Bytes that a copy from memory to memory holds in between.
const PIECE: usize = 4096;
/// Ranges that a writer remembers before it looks whether somebody waits for them.
const MOST_TOUCHED: usize = 8;

/// What one node has exposed.
pub(super) struct Aperture {
    owner: Arc<Node>,
    memory: SharedMemory,
    slot: u16,
    cookie: Cookie,
    /// Nobody has the memory any more.
    is_withdrawn: AtomicBool,
    /// How many tripwires are armed: what a writer looks at.
    armed: AtomicU64,
    wires: Mutex<Vec<Weak<Wire>>>,
}

pub(super) fn system(error: SharedMemoryError) -> Error {
    match error {
        SharedMemoryError::System { call, error } => Error::System { call, source: error },
        SharedMemoryError::TooLong(_) => Error::NoRoom("aperture of that length"),
        SharedMemoryError::OutOfBounds { offset, len, size } => {
            Error::OutOfBounds { offset, len: len as u64, size }
        }
        SharedMemoryError::Misaligned { offset, .. } => Error::Unaligned(offset),
        _ => Error::BadConfig("memory has at least one byte"),
    }
}

/// Memory of a [`Threads`](super::Threads) node.
#[derive(Clone)]
pub struct ThreadsLocal(Arc<WithdrawOnDrop>);

impl ThreadsLocal {
    pub(super) fn new(aperture: Arc<Aperture>) -> Self {
        Self(Arc::new(WithdrawOnDrop(aperture)))
    }

    pub(super) fn aperture(&self) -> &Arc<Aperture> {
        &self.0.0
    }
}

/// The last one withdraws the aperture.
struct WithdrawOnDrop(Arc<Aperture>);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.is_withdrawn.store(true, Release);
        let place = (self.0.owner.host.number(), self.0.slot);
        locked(&self.0.owner.world.apertures).remove(&place);
    }
}

impl Aperture {
    pub(super) fn new(owner: &Arc<Node>, memory: SharedMemory, slot: u16, cookie: Cookie) -> Self {
        let (owner, is_withdrawn) = (Arc::clone(owner), AtomicBool::new(false));
        let (armed, wires) = (AtomicU64::new(0), Mutex::default());
        Self { owner, memory, slot, cookie, is_withdrawn, armed, wires }
    }

    /// Is it still there, and is that its cookie, to the last bit?
    pub(super) fn is_named_by(&self, cookie: &Cookie) -> bool {
        self.cookie == *cookie && !self.is_withdrawn.load(Relaxed)
    }

    pub(super) const fn cookie(&self) -> &Cookie {
        &self.cookie
    }

    pub(super) const fn wires(&self) -> &Mutex<Vec<Weak<Wire>>> {
        &self.wires
    }

    /// How many tripwires are armed.
    pub(super) const fn armed(&self) -> &AtomicU64 {
        &self.armed
    }

    /// A word by way of a copy: that is one plain store with release.
    #[inline]
    fn load(&self, offset: u64) -> Result<u64, Error> {
        let mut bytes = [0; WORD as usize];
        self.memory.copy_out(aligned(offset)?, &mut bytes).map_err(system)?;
        Ok(u64::from_le_bytes(bytes))
    }

    #[inline]
    fn store(&self, offset: u64, word: u64) -> Result<(), Error> {
        self.memory.copy_in(aligned(offset)?, &word.to_le_bytes()).map_err(system)
    }

    fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        let piece = Piece::whole(&self.memory);
        piece.word(aligned(offset)?, WordWidth::Eight, function).map_err(system)
    }

    /// Fires what is armed for any of these ranges. The writer has made a full
    /// fence after its writes.
    fn touch(&self, ranges: &[Range<u64>], access: Access, by: &Node) {
        let words = |wire: Arc<Wire>| (wire.touched_words(ranges, access, by), wire);
        // Woken without the lock: who is woken may well want another tripwire.
        let wires = locked(&self.wires);
        let all = wires.iter().filter_map(Weak::upgrade).map(words);
        let hit: Vec<_> = all.filter(|(words, _)| *words > 0).collect();
        drop(wires);
        hit.iter().for_each(|(words, wire)| wire.fire(*words));
    }
}

#[inline]
fn aligned(offset: u64) -> Result<u64, Error> {
    if offset.is_multiple_of(WORD) { Ok(offset) } else { Err(Error::Unaligned(offset)) }
}

impl Local for ThreadsLocal {
    fn len(&self) -> u64 {
        self.0.0.memory.len()
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u64, Error> {
        self.0.0.load(offset)
    }

    #[inline]
    fn store(&self, offset: u64, word: u64) -> Result<(), Error> {
        self.0.0.store(offset, word)
    }

    #[inline]
    fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        self.0.0.change(offset, function)
    }

    #[inline]
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.0.memory.copy_out(offset, into).map_err(system)
    }

    #[inline]
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.0.memory.copy_in(offset, bytes).map_err(system)
    }

    fn piece(&self, part: Range<u64>) -> Result<Option<Piece>, Error> {
        Piece::of(&self.0.0.memory, part).map(Some).map_err(system)
    }
}

impl fmt::Debug for ThreadsLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsLocal({:?})", self.0.0.cookie)
    }
}

/// Memory of another [`Threads`](super::Threads) node.
pub struct ThreadsRemote {
    user: Arc<Node>,
    aperture: Arc<Aperture>,
    rights: Rights,
    /// What was written since somebody was told.
    touched: ArrayVec<Range<u64>, MOST_TOUCHED>,
    requests: u64,
}

impl ThreadsRemote {
    pub(super) fn new(user: &Arc<Node>, aperture: Arc<Aperture>, rights: Rights) -> Self {
        let (user, touched) = (Arc::clone(user), ArrayVec::new());
        Self { user, aperture, rights, touched, requests: 0 }
    }

    pub(super) const fn aperture(&self) -> &Arc<Aperture> {
        &self.aperture
    }

    pub(super) fn owner(&self) -> &Arc<Node> {
        &self.aperture.owner
    }

    #[inline]
    fn check_for(&self, needed: Rights) -> Result<(), Error> {
        self.check()?;
        if self.rights.allow(needed) { Ok(()) } else { Err(Error::Forbidden) }
    }

    #[inline]
    fn note(&mut self, offset: u64, len: u64) {
        if let Some(last) = self.touched.last_mut()
            && last.end == offset
        {
            last.end += len;
            return;
        }
        if self.touched.is_full() {
            self.fire_touched();
        }
        self.touched.push(offset..offset + len);
    }

    /// The fence between what was written and the look whether somebody waits for
    /// it: together with the one in `arm`, one side sees the other.
    #[inline]
    fn fire_touched(&mut self) {
        self.fire_now(&self.touched);
        self.touched.clear();
    }

    #[inline]
    fn fire_now(&self, touched: &[Range<u64>]) {
        fence(SeqCst);
        if self.aperture.armed.load(Relaxed) != 0 {
            self.aperture.touch(touched, Access::Write, &self.user);
        }
    }
}

/// What the processor does for a DMA queue: at once, in the order of the calls.
impl DirectMemory for Threads {
    fn write_now(
        from: &ThreadsLocal,
        range: Range<u64>,
        to: &ThreadsRemote,
        offset: u64,
    ) -> Result<(), Error> {
        to.check_for(Rights::Write)?;
        let len = range.end.saturating_sub(range.start);
        let (from, into) = (&from.0.0.memory, &to.aperture.memory);
        Piece::whole(into).copy_from(offset, &Piece::whole(from), range).map_err(system)?;
        let written = offset..offset.saturating_add(len);
        to.fire_now(std::slice::from_ref(&written));
        Ok(())
    }

    fn read_now(
        from: &ThreadsRemote,
        offset: u64,
        into: &ThreadsLocal,
        range: Range<u64>,
    ) -> Result<(), Error> {
        from.check_for(Rights::Read)?;
        let read = offset..offset.saturating_add(range.end.saturating_sub(range.start));
        let (there, here) = (&from.aperture.memory, &into.0.0.memory);
        let copied = Piece::whole(here).copy_from(range.start, &Piece::whole(there), read.clone());
        copied.map_err(system)?;
        if from.aperture.armed.load(SeqCst) != 0 {
            from.aperture.touch(std::slice::from_ref(&read), Access::Read, &from.user);
        }
        Ok(())
    }

    fn word_now(to: &ThreadsRemote, offset: u64, word: u64) -> Result<(), Error> {
        to.check_for(Rights::Write)?;
        to.aperture.store(offset, word)?;
        let written = offset..offset.saturating_add(WORD);
        to.fire_now(std::slice::from_ref(&written));
        Ok(())
    }

    fn owns(&self, local: Option<&ThreadsLocal>, remote: &ThreadsRemote) -> bool {
        let node = &self.0.0;
        local.is_none_or(|local| Arc::ptr_eq(&local.0.0.owner, node))
            && Arc::ptr_eq(&remote.user, node)
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.0.0.is_up() { Ok(()) } else { Err(Error::NodeGone) }
    }

    fn wake_sleepers(&self) {
        self.0.0.wake_threads();
    }
}

impl DmaEngine for Threads {
    type DmaQueue = DirectQueue<Self>;

    fn dma_queue(&self, depth: usize) -> Result<DirectQueue<Self>, Error> {
        DirectQueue::new(self, depth)
    }
}

impl Remote for ThreadsRemote {
    type Local = ThreadsLocal;

    fn len(&self) -> u64 {
        self.aperture.memory.len()
    }

    #[inline]
    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        self.check_for(Rights::Write)?;
        self.aperture.store(offset, word)?;
        self.note(offset, WORD);
        Ok(())
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check_for(Rights::Write)?;
        self.aperture.memory.copy_in(offset, bytes).map_err(system)?;
        self.note(offset, bytes.len() as u64);
        Ok(())
    }

    fn write_from(
        &mut self,
        offset: u64,
        from: &ThreadsLocal,
        range: Range<u64>,
    ) -> Result<Dma, Error> {
        self.check_for(Rights::Write)?;
        let len = range.end.saturating_sub(range.start);
        for offset in [offset, range.start, range.end] {
            aligned(offset)?;
        }
        for (offset, size) in [(offset, self.len()), (range.start, from.len())] {
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(Error::OutOfBounds { offset, len, size });
            }
        }
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < len {
            let piece = &mut piece[..(len - done).min(PIECE as u64) as usize];
            from.copy_out(range.start + done, piece)?;
            self.write(offset + done, piece)?;
            done += piece.len() as u64;
        }
        self.requests += 1;
        Ok(Dma(self.requests))
    }

    fn piece(&mut self, part: Range<u64>) -> Result<Option<Piece>, Error> {
        self.check_for(Rights::Write)?;
        let len = part.end.saturating_sub(part.start);
        let piece = Piece::of(&self.aperture.memory, part.clone()).map_err(system)?;
        self.note(part.start, len);
        Ok(Some(piece))
    }

    #[inline]
    fn commit(&mut self) -> Result<(), Error> {
        self.check()?;
        if !self.touched.is_empty() {
            self.fire_touched();
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, into: &mut [u8], _: Option<Instant>) -> Result<(), Error> {
        self.check_for(Rights::Read)?;
        self.commit()?;
        self.aperture.memory.copy_out(offset, into).map_err(system)?;
        if self.aperture.armed.load(SeqCst) != 0 {
            let range = offset..offset + into.len() as u64;
            self.aperture.touch(&[range], Access::Read, &self.user);
        }
        Ok(())
    }

    fn change(
        &mut self,
        offset: u64,
        function: WordFunction,
        _: Option<Instant>,
    ) -> Result<u64, Error> {
        self.check_for(Rights::ReadWrite)?;
        let before = self.aperture.change(offset, function)?;
        self.note(offset, WORD);
        self.commit()?;
        Ok(before)
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        if !self.user.is_up() {
            Err(Error::NodeGone)
        } else if !self.aperture.owner.is_up() {
            Err(Error::PeerLost)
        } else if self.aperture.is_withdrawn.load(Relaxed) {
            Err(Error::Refused(Reason::BadKey))
        } else {
            Ok(())
        }
    }

    fn is_reached(&self, _: Stage) -> Result<bool, Error> {
        self.check().map(|()| true)
    }

    fn wait_for(&mut self, _: Stage, _: Option<Instant>) -> Result<(), Error> {
        self.check()
    }

    fn poll_reached(&mut self, _: Stage, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(self.check())
    }
}

impl fmt::Debug for ThreadsRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsRemote({:?})", self.aperture.cookie)
    }
}
