//! [`Window`]: memory of another node, to be written and read.
//!
//! Small writes go into the engine's write buffer, where neighbours are joined;
//! they leave with [`Remote::commit`], or earlier. Long ones are copied once, into
//! memory that the driver sends from ([`Staging`]), where they lie until they are
//! acknowledged. [`Remote::write_from`] copies nothing. All of them take effect in the
//! order of the calls.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use clan_dsm::{Cookie, HostId, WindowId};
use landfall_placement::{Area, WordFunction, WordWidth};
use landfall_transport::memory::Memory;

use super::back_pressure::{Cause, WindowState};
use super::builder::{ended, refused};
use super::engines::{EngineHandle, NodeHandle};
use super::events::PendingResult;
use super::memory::{Aperture, Lent, Pool};
use super::neighbour::Neighbour;
use super::state::Submission;
use crate::clan::{Dma, Error, Remote, Stage, WORD};

/// Up to here a write is copied into the write buffer; longer ones are sent from
/// memory of their own. Frames have room for about so much behind their heads.
const SMALL: usize = 128;

/// Memory of another node. One user at a time; [map](crate::clan::Fabric::map) the cookie
/// again for another.
///
/// The methods that write it are those of [`Remote`].
#[derive(Debug)]
pub struct Window {
    handle: EngineHandle,
    id: WindowId,
    len: u64,
    neighbour: Arc<Neighbour>,
    state: Arc<WindowState>,
    staging: Staging,
    /// The last number that was given to a DMA request.
    last_dma: u64,
    /// How often something was written.
    changes: u64,
    is_dirty: bool,
}

impl Window {
    pub(crate) fn map(node: &NodeHandle, cookie: &Cookie) -> Result<Self, Error> {
        let handle = node.for_host(cookie.host());
        let (id, neighbour, state) = handle.look(|core| {
            let neighbour = core.neighbour(cookie.host()).ok_or(Error::NoRoute)?;
            let id = core.engine.map(cookie).map_err(|error| refused(error, "window"))?;
            let state = Arc::new(WindowState::new(Arc::clone(&neighbour)));
            core.windows.insert(id, Arc::clone(&state));
            Ok::<_, Error>((id, neighbour, state))
        })?;
        Ok(Self {
            handle,
            id,
            len: cookie.len(),
            neighbour,
            state,
            staging: Staging::default(),
            last_dma: 0,
            changes: 0,
            is_dirty: false,
        })
    }

    /// The host that the memory belongs to.
    #[must_use]
    pub fn host(&self) -> Option<HostId> {
        self.neighbour.host()
    }

    /// Reads memory of the peer into memory of this node, without a copy.
    ///
    /// # Errors
    /// Those of [`Remote::read`].
    pub async fn read_into(
        &self,
        offset: u64,
        into: &Aperture,
        range: Range<u64>,
    ) -> Result<(), Error> {
        let len = range.end.saturating_sub(range.start);
        self.check_range(offset, len)?;
        into.lent().check(range.start, len)?;
        if !into.is_of(self.handle.node()) {
            return Err(Error::BadConfig("memory of its own node is what a window reads into"));
        }
        let source = Source::whole(Arc::clone(into.lent()));
        self.fetch(offset, source, range.start, len).await
    }

    async fn fetch(&self, offset: u64, into: Source, at: u64, len: u64) -> Result<(), Error> {
        if len == 0 {
            return self.alive();
        }
        let answer = PendingResult::new();
        self.begin(|core, now| {
            let area = into.area(at, len);
            let id = core.engine.read(now, self.id, offset, area)?;
            core.reads.insert(id, (answer.clone(), into.clone()));
            Ok(())
        })
        .await?;
        self.result_of(&answer).await
    }

    /// Changes a word of the peer in one indivisible step; gives what it held
    /// before. The numbers are as they lie in memory, eight bytes little-endian.
    ///
    /// # Errors
    /// There is no such word, the cookie does not allow it, or the peer is gone.
    pub async fn change(&self, offset: u64, function: WordFunction) -> Result<u64, Error> {
        self.check_word(offset)?;
        let answer = PendingResult::new();
        self.begin(|core, now| {
            let width = WordWidth::Eight;
            let id = core.engine.change(now, self.id, offset, width, function)?;
            core.operations.insert(id, answer.clone());
            Ok(())
        })
        .await?;
        self.result_of(&answer).await
    }

    /// The same on this thread, which drives the node meanwhile.
    ///
    /// # Errors
    /// Those of [`change`](Self::change), and [`Error::TimedOut`].
    pub fn wait_change(
        &self,
        offset: u64,
        function: WordFunction,
        deadline: Option<Instant>,
    ) -> Result<u64, Error> {
        self.handle.block_on(self.change(offset, function), deadline)?.ok_or(Error::TimedOut)?
    }

    /// Begins something as soon as there is room for it.
    async fn begin(
        &self,
        mut begin: impl FnMut(
            &mut super::state::NodeState,
            landfall_placement::Instant,
        ) -> Result<(), clan_dsm::Error>,
    ) -> Result<(), Error> {
        poll_fn(|context| {
            self.alive()?;
            self.state.register(context);
            let begun = self.handle.ask(|core, now| {
                let begun = begin(core, now);
                if begun == Err(clan_dsm::Error::Busy) {
                    core.wait_for_room(self.id, &self.state, Cause::Answers);
                }
                begun
            });
            match begun {
                Ok(()) => Poll::Ready(Ok(())),
                Err(clan_dsm::Error::Busy) => Poll::Pending,
                Err(error) => Poll::Ready(Err(refused(error, "read"))),
            }
        })
        .await
    }

    async fn result_of<T: Copy>(&self, answer: &PendingResult<T>) -> Result<T, Error> {
        let result = poll_fn(|context| match answer.poll(context) {
            Poll::Pending if self.handle.has_ended() => Poll::Ready(None),
            polled => polled.map(Some),
        });
        result.await.ok_or(Error::NodeGone)?.map_err(ended)
    }

    pub(crate) const fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    pub(crate) const fn id(&self) -> WindowId {
        self.id
    }

    pub(crate) const fn neighbour(&self) -> &Arc<Neighbour> {
        &self.neighbour
    }

    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::OutOfBounds { offset, len, size: self.len }),
        }
    }

    fn check_word(&self, offset: u64) -> Result<(), Error> {
        if !offset.is_multiple_of(WORD) {
            return Err(Error::Unaligned(offset));
        }
        self.check_range(offset, WORD)
    }

    fn alive(&self) -> Result<(), Error> {
        self.state.check()?;
        if self.neighbour.is_up() {
            Ok(())
        } else if self.handle.has_ended() {
            Err(Error::NodeGone)
        } else {
            Err(Error::PeerLost)
        }
    }

    /// Something was written, or found no room.
    fn note(&mut self, result: Result<(), clan_dsm::Error>) -> Result<(), Error> {
        result.map_err(|error| refused(error, "write"))?;
        self.changes += 1;
        self.is_dirty = true;
        Ok(())
    }

    /// Into the write buffer.
    fn write_small(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let (id, state) = (self.id, &self.state);
        let written = self.handle.enter(|core, now| {
            let written = core.engine.write(now, id, offset, bytes);
            if written == Err(clan_dsm::Error::Busy) {
                core.wait_for_room(id, state, Cause::Buffer);
            }
            written
        });
        self.note(written)
    }

    /// From memory of their own. What is not whole words at either end goes into
    /// the write buffer.
    fn write_long(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let lead = (offset.next_multiple_of(WORD) - offset) as usize;
        let (first, rest) = bytes.split_at(lead.min(bytes.len()));
        let (body, last) = rest.split_at(rest.len() - rest.len() % WORD as usize);
        let (id, state) = (self.id, &self.state);
        let Some(staged) = self.staging.put(self.handle.pool(), state, body)? else {
            self.handle.look(|core| core.wait_for_room(id, state, Cause::Staging));
            return Err(Error::Busy);
        };
        let at = offset + first.len() as u64;
        let mut is_begun = false;
        let written = self.handle.enter(|core, now| {
            // The ends must fit as well: a write that is refused changes nothing.
            let ends = [(offset, first), (at + body.len() as u64, last)];
            if core.engine.room(id) < ENDS {
                core.wait_for_room(id, state, Cause::Buffer);
                return Err(clan_dsm::Error::Busy);
            }
            core.write_from(now, id, at, staged.clone(), state)?;
            is_begun = true;
            for (at, end) in ends.into_iter().filter(|(_, end)| !end.is_empty()) {
                core.engine.write(now, id, at, end)?;
            }
            Ok(())
        });
        if !is_begun {
            self.staging.take_back(&staged);
        }
        self.note(written)
    }
}

/// Room in the write buffer for both ends of a long write.
const ENDS: usize = 256;

impl Remote for Window {
    type Local = Aperture;

    fn len(&self) -> u64 {
        self.len
    }

    fn store(&mut self, offset: u64, word: u64) -> Result<(), Error> {
        self.check_word(offset)?;
        self.alive()?;
        self.write_small(offset, &word.to_le_bytes())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check_range(offset, bytes.len() as u64)?;
        self.alive()?;
        match bytes.len() {
            0 => Ok(()),
            1..=SMALL => self.write_small(offset, bytes),
            _ => self.write_long(offset, bytes),
        }
    }

    fn write_from(
        &mut self,
        offset: u64,
        from: &Aperture,
        range: Range<u64>,
    ) -> Result<Dma, Error> {
        let len = range.end.saturating_sub(range.start);
        if let Some(odd) = [offset, range.start, range.end].into_iter().find(|at| at % WORD != 0) {
            return Err(Error::Unaligned(odd));
        }
        self.check_range(offset, len)?;
        from.lent().check(range.start, len)?;
        if !from.is_of(self.handle.node()) {
            return Err(Error::BadConfig("memory of its own node is what a window sends from"));
        }
        self.alive()?;
        if len > 0 {
            let source = Source::dma(Arc::clone(from.lent()), range);
            let (id, state) = (self.id, &self.state);
            let begun =
                self.handle.enter(|core, now| core.write_from(now, id, offset, source, state));
            self.note(begun)?;
            self.last_dma += 1;
        }
        Ok(Dma(self.last_dma))
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.alive()?;
        if std::mem::take(&mut self.is_dirty) {
            self.handle.submit(Submission::Flush);
        }
        Ok(())
    }

    fn read(
        &mut self,
        offset: u64,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        self.check_range(offset, into.len() as u64)?;
        if into.is_empty() {
            return self.alive();
        }
        let memory = Memory::try_zeroed(into.len()).map_err(|_| Error::NoRoom("byte of memory"))?;
        let lent = self.handle.pool().lend(memory)?;
        let len = into.len() as u64;
        let fetched = self.fetch(offset, Source::whole(Arc::clone(&lent)), 0, len);
        self.handle.block_on(fetched, deadline)?.ok_or(Error::TimedOut)??;
        lent.copy_out(0, into)
    }

    fn change(
        &mut self,
        offset: u64,
        function: WordFunction,
        deadline: Option<Instant>,
    ) -> Result<u64, Error> {
        self.wait_change(offset, function, deadline)
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        self.alive()
    }

    fn is_reached(&self, stage: Stage) -> Result<bool, Error> {
        self.alive()?;
        Ok(match stage {
            Stage::Room => !self.state.waits_for_room(),
            Stage::Sent(dma) => self.state.done() >= dma.0,
            Stage::Delivered => {
                let is_reached = self.state.delivered() >= self.changes;
                if !is_reached && self.state.begin_barrier() {
                    let (changes, link) = (self.changes, self.neighbour.link);
                    self.handle.ask(|core, now| {
                        if !core.barrier(now, link, &self.state, changes) {
                            // Asked again when there is room, should no answer come before.
                            core.wait_for_room(self.id, &self.state, Cause::Buffer);
                        }
                    });
                }
                is_reached || self.state.delivered() >= self.changes
            }
        })
    }

    fn wait_for(&mut self, stage: Stage, deadline: Option<Instant>) -> Result<(), Error> {
        let handle = self.handle.clone();
        let reached = poll_fn(|context| self.poll_reached(stage, context));
        handle.block_on(reached, deadline)?.ok_or(Error::TimedOut)?
    }

    fn poll_reached(&mut self, stage: Stage, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_reached(stage)? {
            return Poll::Ready(Ok(()));
        }
        self.state.register(context);
        if self.is_reached(stage)? { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.handle.look(|core| {
            core.windows.remove(self.id);
            let _ = core.engine.unmap(self.id);
        });
    }
}

/// Memory that a write or a read under way holds.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    lent: Arc<Lent>,
    range: Range<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Memory of its own.
    Whole,
    /// The user's, with a number that the user waits for.
    Dma,
    /// Staging memory: so much of it, of a window's with what was left over at its end.
    Staged(u64),
}

impl Source {
    pub(crate) fn whole(lent: Arc<Lent>) -> Self {
        let range = 0..lent.len();
        Self { lent, range, kind: Kind::Whole }
    }

    /// Memory that several members of a group are sent from.
    pub(crate) const fn shared(lent: Arc<Lent>, len: u64) -> Self {
        Self { lent, range: 0..len, kind: Kind::Staged(len) }
    }

    pub(crate) const fn dma(lent: Arc<Lent>, range: Range<u64>) -> Self {
        Self { lent, range, kind: Kind::Dma }
    }

    pub(crate) fn whole_area(&self) -> Area {
        self.area(self.range.start, self.range.end - self.range.start)
    }

    pub(crate) fn area(&self, at: u64, len: u64) -> Area {
        self.lent.area(at, len)
    }

    pub(crate) const fn staged(&self) -> Option<u64> {
        match self.kind {
            Kind::Staged(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn is_dma(&self) -> bool {
        self.kind == Kind::Dma
    }
}

/// A window's memory for long writes: a ring, made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    ring: Option<Arc<Lent>>,
    /// Bytes that were ever taken of it.
    taken: u64,
}

/// How long the ring is.
const RING: u64 = 256 << 10;
/// Longer writes get memory of their own.
const MOST: usize = 64 << 10;

impl Staging {
    /// Copies the bytes to where they can be sent from. Nothing: it is full.
    pub(crate) fn put(
        &mut self,
        pool: &Arc<Pool>,
        state: &WindowState,
        bytes: &[u8],
    ) -> Result<Option<Source>, Error> {
        if bytes.len() > MOST {
            let memory = Memory::try_zeroed(bytes.len());
            let mut memory = memory.map_err(|_| Error::NoRoom("byte of memory"))?;
            memory.copy_from_slice(bytes);
            return Ok(Some(Source::whole(pool.lend(memory)?)));
        }
        let ring = match &self.ring {
            Some(ring) => ring,
            None => {
                let memory = Memory::try_zeroed(RING as usize);
                let memory = memory.map_err(|_| Error::NoRoom("byte of memory"))?;
                self.ring.insert(pool.lend(memory)?)
            }
        };
        let len = (bytes.len() as u64).next_multiple_of(WORD);
        let mut at = self.taken % RING;
        let mut skipped = 0;
        if at + len > RING {
            // In one piece: what is left at the end stays empty.
            (skipped, at) = (RING - at, 0);
        }
        let free = RING - (self.taken - state.unstaged.load(Ordering::Acquire));
        if skipped + len > free {
            return Ok(None);
        }
        ring.copy_in(at, bytes)?;
        self.taken += skipped + len;
        let range = at..at + bytes.len() as u64;
        Ok(Some(Source { lent: Arc::clone(ring), range, kind: Kind::Staged(skipped + len) }))
    }

    /// The last that was put was not sent after all.
    pub(crate) fn take_back(&mut self, source: &Source) {
        self.taken -= source.staged().unwrap_or(0);
    }
}
