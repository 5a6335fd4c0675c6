//! What the node reports to the handle of a window: how far its writes have come, and
//! when there is room again.
//!
//! Windows that wait for the write buffer of one link are told in the order in which they
//! began to wait, and no more of them at a time than find room. Were all told, a server with
//! thousands of connections would try all of them for each hundred that can write.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use clan_dsm::{Ended, LinkId, Reason, WindowId};
use landfall_placement::Instant;

use super::neighbour::Neighbour;
use super::state::NodeState;
use super::window::Source;
use crate::clan::Error;
use crate::runtime::locked;

/// Why there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The write buffer of the link is full.
    Buffer,
    /// The limit of writes from memory that are under way is reached.
    Writes,
    /// The window's own memory for long writes is full.
    Staging,
    /// The limit of reads and word operations that are under way is reached.
    Answers,
}

/// Who waits for room.
#[derive(Debug, Default)]
pub(crate) struct RoomQueues {
    /// For that of the write buffer of a link, the first first.
    buffers: BTreeMap<LinkId, VecDeque<WindowId>>,
    /// For that which answers make.
    answers: Vec<WindowId>,
    /// Some have not been told of room that there is: they are in the next turn.
    has_more: bool,
}

/// A small write and the word behind it take about this much of a write buffer.
const USUAL: usize = 256;

/// Progress and back-pressure of a window, shared by the node and the window's handle.
#[derive(Debug)]
pub(crate) struct WindowState {
    neighbour: Arc<Neighbour>,
    /// The code of the reason why the other side refused a write; 0: it did not.
    refused: AtomicU8,
    waits_for_room: AtomicBool,
    /// DMA requests that are done, in their order.
    done: AtomicU64,
    /// Bytes of the staging memory that are free again, in their order.
    pub(super) unstaged: AtomicU64,
    /// Of the window's changes, this many are in place for certain.
    delivered: AtomicU64,
    /// A barrier for them is under way.
    is_asked: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl WindowState {
    pub(crate) fn new(neighbour: Arc<Neighbour>) -> Self {
        Self {
            neighbour,
            refused: AtomicU8::new(0),
            waits_for_room: AtomicBool::new(false),
            done: AtomicU64::new(0),
            unstaged: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            is_asked: AtomicBool::new(false),
            waker: Mutex::default(),
        }
    }

    /// # Errors
    /// The other side refused a write.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.refused.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(match Reason::from_code(code) {
                Some(Reason::BadKey) | None => Error::StaleCookie,
                Some(Reason::Forbidden) => Error::Forbidden,
                Some(reason) => Error::Refused(reason),
            }),
        }
    }

    pub(crate) fn waits_for_room(&self) -> bool {
        self.waits_for_room.load(Ordering::SeqCst)
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::SeqCst)
    }

    /// Should this caller start a barrier? One is under way at a time.
    pub(crate) fn begin_barrier(&self) -> bool {
        !self.is_asked.swap(true, Ordering::SeqCst)
    }

    /// The task to wake when anything changes. It looks once more after this.
    pub(crate) fn register(&self, context: &Context<'_>) {
        let before = locked(&self.waker).replace(context.waker().clone());
        drop(before);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn take_waker(&self) -> Option<Waker> {
        fence(Ordering::SeqCst);
        locked(&self.waker).take()
    }

    pub(crate) fn is_about(&self, neighbour: &Arc<Neighbour>) -> bool {
        Arc::ptr_eq(&self.neighbour, neighbour)
    }

    /// The other side refused a write. The first reason counts.
    pub(crate) fn refuse(&self, reason: Reason) {
        let code = reason as u8;
        let _ = self.refused.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// A write from memory that is under way.
#[derive(Debug)]
pub(crate) struct WriteRecord {
    source: Source,
    state: Arc<WindowState>,
}

impl WriteRecord {
    pub(crate) fn new(source: Source, state: &Arc<WindowState>) -> Self {
        Self { source, state: Arc::clone(state) }
    }
}

impl NodeState {
    /// A window found no room; it is woken when there is some.
    pub(crate) fn wait_for_room(&mut self, id: WindowId, state: &Arc<WindowState>, cause: Cause) {
        if state.waits_for_room.swap(true, Ordering::SeqCst) {
            return;
        }
        let RoomQueues { buffers, answers, .. } = &mut self.room_queues;
        match cause {
            Cause::Buffer => buffers.entry(state.neighbour.link).or_default().push_back(id),
            Cause::Writes | Cause::Staging | Cause::Answers => answers.push(id),
        }
    }

    /// Begins a write from memory, which the record holds until it is done.
    pub(crate) fn write_from(
        &mut self,
        now: Instant,
        id: WindowId,
        offset: u64,
        source: Source,
        state: &Arc<WindowState>,
    ) -> Result<(), clan_dsm::Error> {
        let area = source.whole_area();
        match self.engine.write_from(now, id, offset, area) {
            Ok(write) => {
                self.writes.insert(write, WriteRecord::new(source, state));
                Ok(())
            }
            Err(error) => {
                if error == clan_dsm::Error::Busy {
                    self.wait_for_room(id, state, Cause::Writes);
                }
                Err(error)
            }
        }
    }

    /// It is in place at the other side, or never will be.
    pub(super) fn written(&mut self, record: WriteRecord, result: Result<(), Ended>) {
        let WriteRecord { source, state } = record;
        if let Err(Ended::There(reason)) = result {
            state.refuse(reason);
        }
        match source.staged() {
            Some(bytes) => {
                state.unstaged.fetch_add(bytes, Ordering::SeqCst);
            }
            None if source.is_dma() => {
                state.done.fetch_add(1, Ordering::SeqCst);
            }
            None => {}
        }
        self.after.wake.extend(state.take_waker());
        self.after.free.push(source);
        self.has_answers = true;
    }

    /// When is all that was written so far in place? False: there was no room to ask.
    pub(crate) fn barrier(
        &mut self,
        now: Instant,
        link: LinkId,
        state: &Arc<WindowState>,
        changes: u64,
    ) -> bool {
        match self.engine.barrier(now, link) {
            Ok(id) => {
                self.barriers.insert(id, (Arc::clone(state), changes));
                true
            }
            // Asked again by anyone who waits, once something has moved.
            Err(_) => {
                state.is_asked.store(false, Ordering::SeqCst);
                if !self
                    .barriers_wanted
                    .iter()
                    .any(|barriers_wanted| Arc::ptr_eq(barriers_wanted, state))
                {
                    self.barriers_wanted.push(Arc::clone(state));
                }
                false
            }
        }
    }

    /// It is, or the link is gone.
    pub(super) fn barrier_reached(
        &mut self,
        (state, changes): (Arc<WindowState>, u64),
        result: Result<(), Ended>,
    ) {
        if result.is_ok() {
            state.delivered.fetch_max(changes, Ordering::SeqCst);
        }
        state.is_asked.store(false, Ordering::SeqCst);
        self.after.wake.extend(state.take_waker());
    }

    /// After a turn: is there room where there was none?
    pub(super) fn make_room(&mut self) {
        let has_answers = std::mem::take(&mut self.has_answers);
        if has_answers {
            for state in std::mem::take(&mut self.barriers_wanted) {
                self.after.wake.extend(state.take_waker());
            }
        }
        if has_answers {
            for id in std::mem::take(&mut self.room_queues.answers) {
                self.tell_of_room(id);
            }
        }
        self.room_queues.has_more = false;
        if self.room_queues.buffers.is_empty() {
            return;
        }
        let mut buffers = std::mem::take(&mut self.room_queues.buffers);
        buffers.retain(|_, queue| {
            self.make_room_in(queue);
            !queue.is_empty()
        });
        self.room_queues.buffers = buffers;
    }

    /// Tells those who wait for this write buffer, as far as it has room for them.
    fn make_room_in(&mut self, queue: &mut VecDeque<WindowId>) {
        let enough = self.write_buffer / 4;
        let mut told = 0;
        while let Some(first) = queue.front().copied() {
            if let Some(state) = self.windows.get_mut(first)
                && state.neighbour.is_up()
            {
                let room = self.engine.room(first);
                if room < enough {
                    return;
                }
                if told >= room / USUAL {
                    self.room_queues.has_more = true;
                    return;
                }
                told += 1;
            }
            queue.pop_front();
            self.tell_of_room(first);
        }
    }

    /// A window that waited may write. One that was closed meanwhile has nobody to tell.
    fn tell_of_room(&mut self, id: WindowId) {
        if let Some(state) = self.windows.get_mut(id) {
            state.waits_for_room.store(false, Ordering::SeqCst);
            self.after.wake.extend(state.take_waker());
        }
    }

    /// Were fewer told of room than there is room for?
    pub(super) const fn has_room_to_tell(&self) -> bool {
        self.room_queues.has_more
    }
}
