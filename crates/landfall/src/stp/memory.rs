//! Registered memory of an endpoint: lent while operations may use it, taken
//! back when the engine says that none does.
//!
//! A [`Region`] is memory under a grant; a [`Part`] names some of its bytes.
//! Each operation holds the parts that it uses, so memory cannot go away under
//! it: [`Region::take_back`] waits, and a region whose last handle is dropped is
//! freed when its last operation has ended. No reference to lent bytes exists.

use std::future::poll_fn;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use landfall_placement::{Area, RegionId};
use landfall_transport::memory::{
    Arena, ArenaConfig, MappedMemory, Memory, Pinned, Regions, Rights, TakeBackError,
};

use super::error::{Error, Failed};
use crate::runtime::locked;

/// The longest packet of any path is shorter.
const PADDING: usize = 1 << 16;

/// The region table and arena of an endpoint.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) regions: Regions,
    pub(crate) arena: Arena,
    /// What packets are filled up with that peers ask for, to find out how long they may be.
    /// Without it they go by what their paths are sure of.
    pub(crate) padding: Option<Area>,
    /// Nobody has a handle to these any more, but a driver held them.
    orphans: Mutex<Vec<RegionId>>,
    has_orphans: AtomicBool,
    /// They wait for a driver to let go of a region.
    watchers: Mutex<Vec<Waker>>,
    has_watchers: AtomicBool,
    /// Bytes that were copied into registered memory, for they were not there.
    copied: AtomicU64,
}

impl Pool {
    pub(crate) fn new(regions: u32, arena: ArenaConfig) -> Self {
        // The padding is none of those that the user has.
        let regions = Regions::new(regions.saturating_add(1));
        let padding = regions.lend(Memory::zeroed(PADDING), Rights::READ).ok();
        Self {
            padding: padding.map(|region| Area::new(region, 0, PADDING as u64)),
            regions,
            arena: Arena::new(arena),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
            watchers: Mutex::default(),
            has_watchers: AtomicBool::new(false),
            copied: AtomicU64::new(0),
        }
    }

    /// How many regions the user has lent, with the memory of operations.
    pub(crate) fn held(&self) -> u32 {
        self.regions.held() - u32::from(self.padding.is_some())
    }

    pub(crate) fn lend(self: &Arc<Self>, memory: Memory, rights: Rights) -> Result<Region, Failed> {
        let len = memory.len() as u64;
        let id = self.regions.lend(memory, rights).map_err(|error| {
            let why = Error::NotLent(error.why);
            Failed::new(why, Some(error.into_memory()))
        })?;
        Ok(self.region(id, len))
    }

    pub(crate) fn lend_mapped(self: &Arc<Self>, memory: &MappedMemory) -> Result<Region, Error> {
        let rights = Rights::READ | Rights::WRITE | Rights::WORDS;
        let id = self.regions.lend_mapped_memory(memory, rights).map_err(Error::NotLent)?;
        Ok(self.region(id, memory.len() as u64))
    }

    fn region(self: &Arc<Self>, id: RegionId, len: u64) -> Region {
        Region(Arc::new(Inner {
            pool: Arc::clone(self),
            id,
            len,
            uses: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            wakers: Mutex::default(),
        }))
    }

    /// Bytes that are not registered are copied, once, into memory that is.
    fn copy(&self, bytes: &[u8]) -> Result<Memory, Error> {
        /// Below a page the heap wastes less.
        const SMALL: usize = 4096;
        self.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if bytes.len() < SMALL {
            return Ok(Memory::from_bytes(bytes));
        }
        let mut memory = self.arena.take(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(memory)
    }

    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Does anything wait for the end of a turn?
    pub(crate) fn waits_for_turn(&self) -> bool {
        self.has_orphans.load(Ordering::Acquire) || self.has_watchers.load(Ordering::Acquire)
    }

    /// After a turn: no driver holds more than it must.
    pub(crate) fn after_turn(&self) {
        if self.has_orphans.swap(false, Ordering::AcqRel) {
            let orphans = std::mem::take(&mut *locked(&self.orphans));
            orphans.into_iter().for_each(|region| self.free(region));
        }
        if self.has_watchers.swap(false, Ordering::AcqRel) {
            let watchers = std::mem::take(&mut *locked(&self.watchers));
            watchers.into_iter().for_each(Waker::wake);
        }
    }

    fn free(&self, region: RegionId) {
        let ended = match self.regions.try_take_back(region) {
            Err(TakeBackError::Shared(_)) => self.regions.take_back_shared(region, Duration::ZERO),
            ended => ended.map(drop),
        };
        if let Err(TakeBackError::StillInUse { .. }) = ended {
            locked(&self.orphans).push(region);
            self.has_orphans.store(true, Ordering::Release);
        }
    }

    fn watch(&self, waker: &Waker) {
        locked(&self.watchers).push(waker.clone());
        self.has_watchers.store(true, Ordering::Release);
    }
}

/// Memory that is registered with an endpoint: the other side's bytes land
/// here, and bytes are sent from here, without a copy in between.
///
/// While it is lent its bytes are reached through operations,
/// [`copy_in`](Self::copy_in) and [`copy_out`](Self::copy_out);
/// [`take_back`](Self::take_back) gives it back as a slice.
#[derive(Debug)]
pub struct Region(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Arc<Pool>,
    id: RegionId,
    len: u64,
    /// Operations that name it.
    uses: AtomicU32,
    /// It is being taken back: no operation may begin on it.
    ended: AtomicBool,
    taken: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Region {
    /// How many bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty region is of no use, but no error")]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// All of it.
    #[must_use]
    pub fn whole(&self) -> Part {
        Part { region: Arc::clone(&self.0), offset: 0, len: self.0.len }
    }

    /// Some of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, range: Range<u64>) -> Result<Part, Error> {
        let Range { start, end } = range;
        if start > end || end > self.0.len {
            return Err(Error::OutOfBounds { start, end, len: self.0.len });
        }
        Ok(Part { region: Arc::clone(&self.0), offset: start, len: end - start })
    }

    /// Copies bytes in, while it is lent.
    ///
    /// # Errors
    /// They do not all fit.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.part(offset..offset.saturating_add(bytes.len() as u64))?.copy_in(bytes)
    }

    /// Copies bytes out, while it is lent.
    ///
    /// # Errors
    /// They are not all there.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.part(offset..offset.saturating_add(into.len() as u64))?.copy_out(into)
    }

    /// Holds the memory for other languages, which use its bytes where they lie
    /// ([`Pinned::address`]). While it is held it stays where it is, also when this is dropped, and
    /// [`take_back`](Self::take_back) waits.
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    ///
    /// let endpoint = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let region = endpoint.register(Memory::from_bytes(b"held"))?;
    /// let pinned = region.pin()?;
    /// assert_eq!((pinned.len(), pinned.address().cast::<u64>().is_aligned()), (4, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TakenBack`].
    pub fn pin(&self) -> Result<Pinned, Error> {
        self.0.pool.regions.pin(self.0.id).map_err(|_| Error::TakenBack)
    }

    /// Ends the grant and gives the memory back, once every operation on it has
    /// ended. From now on none begins: parts of it are refused.
    ///
    /// Cancel operations that you do not want to wait for by dropping them.
    /// Where this future is dropped the memory is freed when nobody uses it.
    ///
    /// # Errors
    /// The region table does not give it back.
    pub async fn take_back(self) -> Result<Memory, Error> {
        self.0.ended.store(true, Ordering::SeqCst);
        poll_fn(|cx| self.0.poll_take_back(cx)).await
    }
}

impl Inner {
    fn poll_take_back(&self, cx: &mut Context<'_>) -> Poll<Result<Memory, Error>> {
        if self.uses.load(Ordering::SeqCst) > 0 {
            let mut wakers = locked(&self.wakers);
            wakers.retain(|waker| !waker.will_wake(cx.waker()));
            wakers.push(cx.waker().clone());
            drop(wakers);
            if self.uses.load(Ordering::SeqCst) > 0 {
                return Poll::Pending;
            }
        }
        let regions = &self.pool.regions;
        let is_held = |result: &Result<_, TakeBackError>| {
            matches!(result, Err(TakeBackError::StillInUse { .. }))
        };
        let mut result = regions.try_take_back(self.id);
        if is_held(&result) {
            // A driver is in the middle of its turn, or waits for room.
            self.pool.watch(cx.waker());
            result = regions.try_take_back(self.id);
            if is_held(&result) {
                return Poll::Pending;
            }
        }
        self.taken.store(true, Ordering::Relaxed);
        Poll::Ready(result.map_err(Error::from))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.taken.get_mut() {
            self.pool.free(self.id);
        }
    }
}

/// The longest piece that is copied at once.
const SPAN: usize = 1 << 30;

trait Spans {
    fn spans(self) -> impl Iterator<Item = landfall_placement::Span>;
}

impl Spans for Area {
    fn spans(self) -> impl Iterator<Item = landfall_placement::Span> {
        (0..self.len).step_by(SPAN).map(move |at| {
            let len = (self.len - at).min(SPAN as u64);
            self.span(at, len as u32)
        })
    }
}

/// Some bytes of a [`Region`]. It is a name: what it names may be used by
/// several operations, and of an ended grant it is refused.
#[derive(Clone, Debug)]
pub struct Part {
    region: Arc<Inner>,
    offset: u64,
    len: u64,
}

impl Part {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of these bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, range: Range<u64>) -> Result<Self, Error> {
        let Range { start, end } = range;
        if start > end || end > self.len {
            return Err(Error::OutOfBounds { start, end, len: self.len });
        }
        Ok(Self { offset: self.offset + start, len: end - start, ..self.clone() })
    }

    pub(crate) fn area(&self) -> Area {
        Area::new(self.region.id, self.offset, self.len)
    }

    /// Copies bytes into its start.
    pub(crate) fn copy_in(&self, bytes: &[u8]) -> Result<(), Error> {
        let part = self.part(0..bytes.len() as u64)?;
        for (span, bytes) in part.area().spans().zip(bytes.chunks(SPAN)) {
            self.region.pool.regions.write(&span, bytes)?;
        }
        Ok(())
    }

    /// Copies bytes of its start out.
    pub(crate) fn copy_out(&self, into: &mut [u8]) -> Result<(), Error> {
        let part = self.part(0..into.len() as u64)?;
        for (span, bytes) in part.area().spans().zip(into.chunks_mut(SPAN)) {
            self.region.pool.regions.read(&span, bytes)?;
        }
        Ok(())
    }
}

/// What an operation uses, until the engine says that it does not.
#[derive(Debug)]
pub(crate) struct Held {
    part: Part,
    /// It was lent for this operation alone.
    pub(crate) is_own: bool,
}

impl Held {
    /// Holds a part for an operation of the endpoint with this pool.
    pub(crate) fn new(part: Part, pool: &Arc<Pool>) -> Result<Self, Error> {
        if !Arc::ptr_eq(&part.region.pool, pool) {
            return Err(Error::ForeignMemory);
        }
        part.region.uses.fetch_add(1, Ordering::SeqCst);
        // From here on `drop` counts it off again.
        let held = Self { part, is_own: false };
        if held.part.region.ended.load(Ordering::SeqCst) { Err(Error::TakenBack) } else { Ok(held) }
    }

    /// Memory that is lent for one operation.
    pub(crate) fn own(memory: Memory, rights: Rights, pool: &Arc<Pool>) -> Result<Self, Failed> {
        let mut held = Self::new(pool.lend(memory, rights)?.whole(), pool)?;
        held.is_own = true;
        Ok(held)
    }

    pub(crate) fn area(&self) -> Area {
        self.part.area()
    }

    /// The operation has ended: memory that was lent for it alone comes back.
    pub(crate) fn end(self) -> Option<Returning> {
        self.is_own.then(|| Returning(Arc::clone(&self.part.region)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let region = &self.part.region;
        if region.uses.fetch_sub(1, Ordering::SeqCst) == 1 && region.ended.load(Ordering::SeqCst) {
            let wakers = std::mem::take(&mut *locked(&region.wakers));
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// Memory on its way back from an operation.
#[derive(Debug)]
pub(crate) struct Returning(Arc<Inner>);

impl Returning {
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Memory, Error>> {
        self.0.poll_take_back(cx)
    }
}

/// What can be sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum Payload {
    /// Registered memory: nothing is copied.
    Part(Part),
    /// Memory that is lent for this operation and comes back with its end:
    /// nothing is copied.
    Memory(Memory),
    /// Other bytes: copied, once, into the endpoint's arena.
    Bytes(Bytes),
}

impl Payload {
    pub(crate) fn hold(self, pool: &Arc<Pool>) -> Result<Held, Failed> {
        match self {
            Self::Part(part) => Ok(Held::new(part, pool)?),
            Self::Memory(memory) => Held::own(memory, Rights::READ, pool),
            Self::Bytes(bytes) => {
                // Freed with the operation: nobody asks for the copy back.
                let region = pool.lend(pool.copy(&bytes)?, Rights::READ).map_err(Error::from)?;
                Ok(Held::new(region.whole(), pool)?)
            }
        }
    }
}

impl From<Part> for Payload {
    fn from(part: Part) -> Self {
        Self::Part(part)
    }
}

impl From<&Part> for Payload {
    fn from(part: &Part) -> Self {
        Self::Part(part.clone())
    }
}

impl From<&Region> for Payload {
    fn from(region: &Region) -> Self {
        Self::Part(region.whole())
    }
}

impl From<Memory> for Payload {
    fn from(memory: Memory) -> Self {
        Self::Memory(memory)
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

impl From<&'static str> for Payload {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

/// A Transfer that came, in the memory where it landed. It derefs to its bytes.
#[derive(Debug)]
pub struct Message {
    pub(crate) memory: Memory,
    pub(crate) len: usize,
    pub(crate) offered: u64,
    pub(crate) opaque: u32,
}

impl Message {
    /// How many bytes the sender had; more than there are here where only a
    /// part was taken.
    #[must_use]
    pub const fn offered(&self) -> u64 {
        self.offered
    }

    /// Four bytes of the sender's user.
    #[must_use]
    pub const fn opaque(&self) -> u32 {
        self.opaque
    }

    /// The memory, to be used again. Its first bytes are the message.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// The bytes, shared and sliced without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or(&self.memory)
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
