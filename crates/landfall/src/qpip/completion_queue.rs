//! [`CompletionQueue`]: what is done, in memory that the adapter writes and its
//! user polls.
//!
//! It is a ring between two threads. Its places are counted in one word,
//! [`QueueState::in_use`]: who posts takes one, who polls gives it back, so that
//! the ring never overflows. Parts of byte streams need more places than that;
//! where the ring is full the adapter sets a bit in that word, and anyone who polls
//! next finds it and rings. Both change the same word, so none overlooks the
//! other.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use landfall_placement::{Duration, Instant};
use landfall_transport::Bell;
use qpip::{Arm, Completion, CompletionQueueId, QueuePairId};
use rtrb::Consumer;

use super::error::Error;
use super::listener::Pending;
use super::pair_state::Phase;
use super::state::{Handle, Submission};
use crate::runtime::{Observer, locked};

/// What both sides of a completion queue know.
#[derive(Debug)]
pub(crate) struct QueueState {
    /// Places that are taken, and [`STALLED`].
    in_use: AtomicU64,
    capacity: u32,
    /// What its user sleeps for: see [`armed_code`].
    armed: AtomicU8,
    /// Solicited completions that were ever put in.
    solicited: AtomicU32,
    waker: Mutex<Option<Waker>>,
    is_gone: AtomicBool,
    /// What happened to connections whose queue pairs tell it here: at most three changes of
    /// each.
    changes: Mutex<VecDeque<PhaseChange>>,
    changes_waiting: AtomicU32,
}

/// The connection of a queue pair is somewhere else now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseChange {
    /// Whose.
    pub queue_pair: QueuePairId,
    /// Where it is: connected; the other side has finished; or it is over, and why.
    pub phase: Phase,
}

/// The adapter found no room in the ring and wants to hear when there is some.
const STALLED: u64 = 1 << 63;

const fn armed_code(arm: Arm) -> u8 {
    match arm {
        Arm::Next => 1,
        Arm::Solicited => 2,
    }
}

impl QueueState {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            in_use: AtomicU64::new(0),
            capacity,
            armed: AtomicU8::new(0),
            solicited: AtomicU32::new(0),
            waker: Mutex::default(),
            is_gone: AtomicBool::new(false),
            changes: Mutex::default(),
            changes_waiting: AtomicU32::new(0),
        }
    }

    /// Takes a place for the completion of a request. False: there is none.
    #[inline]
    pub(crate) fn reserve(&self) -> bool {
        let old = self.in_use.fetch_add(1, Ordering::AcqRel) & !STALLED;
        if old >= u64::from(self.capacity) {
            self.in_use.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// Returns places back. True: the adapter waits for that.
    #[inline]
    pub(crate) fn release(&self, places: u64) -> bool {
        let old = self.in_use.fetch_sub(places, Ordering::AcqRel);
        if old & STALLED == 0 {
            return false;
        }
        self.in_use.fetch_and(!STALLED, Ordering::AcqRel);
        true
    }

    /// The adapter found no room. It looks once more after this.
    pub(crate) fn stall(&self) {
        self.in_use.fetch_or(STALLED, Ordering::AcqRel);
    }

    /// Solicited completions were put in. Only the adapter calls this.
    #[inline]
    pub(crate) fn count_solicited(&self) {
        let count = self.solicited.load(Ordering::Relaxed).wrapping_add(1);
        self.solicited.store(count, Ordering::Release);
    }

    /// The adapter has put something in: who sleeps for that is to be woken.
    #[inline]
    pub(crate) fn tell(&self, is_solicited: bool, wake: &mut Vec<Waker>) {
        // Either this sees that the user is about to sleep, or the user, who
        // looks again after he said so, sees what was put in.
        fence(Ordering::SeqCst);
        let armed = self.armed.load(Ordering::Relaxed);
        let is_meant = armed == armed_code(Arm::Next) || armed != 0 && is_solicited;
        if is_meant && self.armed.swap(0, Ordering::AcqRel) != 0 {
            wake.extend(locked(&self.waker).take());
        }
    }

    /// Something happened to a connection: who sleeps for anything is woken.
    pub(crate) fn tell_change(&self, change: PhaseChange, wake: &mut Vec<Waker>) {
        let mut changes = locked(&self.changes);
        changes.push_back(change);
        self.changes_waiting.store(changes.len() as u32, Ordering::Release);
        drop(changes);
        self.tell(true, wake);
    }

    /// The adapter does not run any more.
    pub(crate) fn lose(&self, wake: &mut Vec<Waker>) {
        self.is_gone.store(true, Ordering::SeqCst);
        wake.extend(locked(&self.waker).take());
    }

    /// Anyone who is woken later is this one.
    fn arm(&self, arm: Arm, waker: &Waker) {
        // The old one goes without the lock: with it a whole task may go.
        let old = locked(&self.waker).replace(waker.clone());
        drop(old);
        self.armed.store(armed_code(arm), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.armed.store(0, Ordering::Relaxed);
    }
}

/// What became of work requests, of as many queue pairs as complete here.
///
/// [`poll`](Self::poll) takes the next completion without a lock or a system
/// call; [`wait`](Self::wait) and [`next`](Self::next) wait for it. Nothing
/// overflows: a request that could not complete here is refused when it is
/// posted.
///
/// Dropped, what its queue pairs still complete here is forgotten.
pub struct CompletionQueue {
    handle: Arc<Handle>,
    id: CompletionQueueId,
    state: Arc<QueueState>,
    ring: Consumer<Completion>,
    solicited_seen: u32,
    bell: Arc<QueueBell>,
    /// The descriptor may be readable: it has to be read.
    is_armed: bool,
}

/// Makes the descriptor of a queue readable.
#[derive(Debug)]
struct QueueBell(Bell);

impl Wake for QueueBell {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}

impl CompletionQueue {
    pub(crate) fn create(handle: &Arc<Handle>, capacity: u32) -> Result<Self, Error> {
        handle.check()?;
        let bell = Arc::new(QueueBell(Bell::new().map_err(Error::NoDescriptor)?));
        let (id, state, ring) = handle.command(|core, _| core.create_queue(capacity))?;
        let handle = Arc::clone(handle);
        Ok(Self { handle, id, state, ring, solicited_seen: 0, bell, is_armed: false })
    }

    pub(crate) const fn id(&self) -> CompletionQueueId {
        self.id
    }

    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) const fn state(&self) -> &Arc<QueueState> {
        &self.state
    }

    /// How many completions it has room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.state.capacity
    }

    /// How many completions can be polled now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.slots()
    }

    /// Is there nothing to poll now?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        let completion = self.ring.pop().ok()?;
        self.silence();
        self.solicited_seen =
            self.solicited_seen.wrapping_add(u32::from(completion.is_solicited()));
        if self.state.release(u64::from(completion.ends_request)) {
            self.handle.ring();
        }
        Some(completion)
    }

    /// Takes at most this many completions, and gives how many: cheaper for each
    /// than to poll one by one.
    pub fn poll_into(&mut self, into: &mut Vec<Completion>, at_most: usize) -> usize {
        let count = self.ring.slots().min(at_most);
        if count > 0 {
            self.silence();
        }
        let Ok(chunk) = self.ring.read_chunk(count) else { return 0 };
        let before = into.len();
        into.extend(chunk);
        let new = &into[before..];
        if !new.is_empty() {
            let solicited = new.iter().filter(|completion| completion.is_solicited()).count();
            self.solicited_seen = self.solicited_seen.wrapping_add(solicited as u32);
            let places = new.iter().filter(|completion| completion.ends_request).count();
            if self.state.release(places as u64) {
                self.handle.ring();
            }
        }
        new.len()
    }

    /// Takes the next thing that happened to the connection of a queue pair that tells it
    /// here: see [`QueuePairOptions::tells`](super::QueuePairOptions::tells).
    pub fn poll_change(&mut self) -> Option<PhaseChange> {
        if self.state.changes_waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.silence();
        let mut changes = locked(&self.state.changes);
        let change = changes.pop_front();
        self.state.changes_waiting.store(changes.len() as u32, Ordering::Release);
        change
    }

    /// Call this before you sleep at the queue's descriptor ([`AsFd`]: for `epoll`, for
    /// io_uring, or in tokio's `AsyncFd`). True: from now on it becomes readable as soon as
    /// there is what you ask for. False: it is there already, do not sleep. While it is not
    /// armed no completion costs a system call.
    ///
    /// The next thing that is taken out ends it. Of an adapter that is run by who waits
    /// ([`Builder::open_inline`](super::Builder::open_inline)) somebody has to make the turns
    /// meanwhile.
    #[must_use = "false: there is something, and the descriptor need not become readable"]
    pub fn arm(&mut self, arm: Arm) -> bool {
        self.is_armed = true;
        self.bell.0.arm();
        self.state.arm(arm, &Waker::from(Arc::clone(&self.bell)));
        if self.has(arm) || self.state.is_gone.load(Ordering::SeqCst) {
            self.silence();
            return false;
        }
        // Anyone who sleeps there does not drive.
        self.handle.hand_over();
        true
    }

    /// The descriptor is not to be looked at any more.
    #[inline]
    fn silence(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.bell.0.silence();
            self.state.disarm();
        }
    }

    /// Waits for the next completion and takes it.
    ///
    /// # Errors
    /// [`Error::AdapterGone`].
    pub async fn next(&mut self) -> Result<Completion, Error> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Waits for the next completion on this thread and takes it: spins for as
    /// long as [`Builder::wait`](super::Builder::wait) says, and sleeps then.
    ///
    /// # Errors
    /// [`Error::AdapterGone`].
    pub fn wait(&mut self) -> Result<Completion, Error> {
        match self.wait_until(Instant::FAR_FUTURE)? {
            Some(completion) => Ok(completion),
            None => unreachable!("584 years have passed"),
        }
    }

    /// The same for so long at most; nothing if none came.
    ///
    /// # Errors
    /// [`Error::AdapterGone`].
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<Completion>, Error> {
        self.wait_until(self.handle.clock.now() + limit)
    }

    /// Waits until there is a solicited completion to poll: the end of a message
    /// that came, or something that went wrong. All others wait meanwhile, and
    /// wake nobody.
    pub fn solicited(&mut self) -> Pending<impl Future<Output = Result<(), Error>> + Unpin + '_> {
        self.pending(Arm::Solicited)
    }

    /// Waits until there is anything to poll, be it a completion or a
    /// [change](Self::poll_change).
    pub fn ready(&mut self) -> Pending<impl Future<Output = Result<(), Error>> + Unpin + '_> {
        self.pending(Arm::Next)
    }

    fn pending(
        &mut self,
        arm: Arm,
    ) -> Pending<impl Future<Output = Result<(), Error>> + Unpin + '_> {
        let handle = Arc::clone(&self.handle);
        Pending::new(&handle, poll_fn(move |cx| self.poll_ready(cx, arm)))
    }

    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Result<Completion, Error>> {
        if let Some(completion) = self.poll() {
            return Poll::Ready(Ok(completion));
        }
        self.state.arm(Arm::Next, cx.waker());
        match self.poll() {
            Some(completion) => {
                self.state.disarm();
                Poll::Ready(Ok(completion))
            }
            None if self.state.is_gone.load(Ordering::SeqCst) => {
                Poll::Ready(Err(Error::AdapterGone))
            }
            None => Poll::Pending,
        }
    }

    /// Something is there, or who is polled for it will be woken.
    fn poll_ready(&mut self, cx: &Context<'_>, arm: Arm) -> Poll<Result<(), Error>> {
        if self.has(arm) {
            return Poll::Ready(Ok(()));
        }
        self.state.arm(arm, cx.waker());
        if self.has(arm) {
            self.state.disarm();
            return Poll::Ready(Ok(()));
        }
        // The adapter's last word was heard above, if there was one.
        if self.state.is_gone.load(Ordering::SeqCst) {
            return Poll::Ready(Err(Error::AdapterGone));
        }
        Poll::Pending
    }

    fn has(&self, arm: Arm) -> bool {
        if self.state.changes_waiting.load(Ordering::Acquire) > 0 {
            return true;
        }
        match arm {
            Arm::Next => !self.ring.is_empty(),
            Arm::Solicited => self.state.solicited.load(Ordering::Acquire) != self.solicited_seen,
        }
    }

    /// Looks at the ring alone while it spins: nobody has to wake it then.
    fn wait_until(&mut self, until: Instant) -> Result<Option<Completion>, Error> {
        let handle = Arc::clone(&self.handle);
        handle.wait_looking(self, until).transpose()
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }
}

impl AsRawFd for CompletionQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Observer for CompletionQueue {
    type Output = Result<Completion, Error>;

    fn look(&mut self) -> Option<Self::Output> {
        self.poll().map(Ok)
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Self::Output> {
        Self::poll_next(self, context)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let id = self.id;
        self.handle.submit(Submission::ForgetQueue(id));
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("id", &self.id)
            .field("capacity", &self.state.capacity)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
