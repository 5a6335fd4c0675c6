//! Completion queues, and room that queue pairs share.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use landfall::clan::shared::SharedNode;
use landfall::qpip;
use landfall::verbs::{
    self, Arm, CloseReason, CompletionQueue, Operation, Phase, QueuePairId, Status, clan, stp,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::address::Address;
use super::pair::{Open, post_each, tell};
use super::work::Room;
use super::{Any, OF_ANOTHER, Verbs, each};
use crate::error::{Failure, code, number, pointer};
use crate::stp::Until;
use crate::{close, elements, elements_mut, shared};

/// What became of a request: see `landfall.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Completion {
    id: u64,
    pair: u64,
    operation: u32,
    status: u32,
    length: u32,
    flags: u32,
    immediate: u32,
    offset: u32,
    from: Address,
}

const IMMEDIATE: u32 = 2;
const CONTINUES: u32 = 4;
const STAYS: u32 = 8;

impl From<&verbs::Completion> for Completion {
    fn from(done: &verbs::Completion) -> Self {
        let continues = done.status.is_success() && !done.ends_message;
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        Self {
            id: done.id,
            pair: number_of(done.queue_pair),
            operation: match done.operation {
                Operation::Send => 0,
                Operation::Receive => 1,
            },
            status: number_of_status(done.status),
            length: done.len,
            flags: flag(done.immediate.is_some(), IMMEDIATE)
                | flag(continues, CONTINUES)
                | flag(!done.ends_request, STAYS),
            immediate: done.immediate.unwrap_or_default(),
            offset: done.offset,
            from: done.from.map(Address::from).unwrap_or_default(),
        }
    }
}

/// What completions call a queue pair.
pub(super) fn number_of(pair: QueuePairId) -> u64 {
    u64::from(pair.generation) << 32 | u64::from(pair.index)
}

/// In the order of the header.
const STATUSES: [Status; 8] = [
    Status::Success,
    Status::TooLong,
    Status::Flushed,
    Status::Reset,
    Status::TimedOut,
    Status::MemoryGone,
    Status::RemoteAccess,
    Status::Unreachable,
];

const TEXTS: [&CStr; 8] = [
    c"done",
    c"the message was longer than the room whose turn it was",
    c"the queue pair ended before its turn",
    c"the other side is gone, or ended the connection",
    c"the other side stopped answering",
    c"the memory cannot be used (any more)",
    c"the other side's memory may not be used so",
    c"there is no way to the other side",
];

fn number_of_status(status: Status) -> u32 {
    STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len()) as u32
}

/// See `landfall.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lf_status_text(status: u32) -> *const c_char {
    TEXTS.get(status as usize).map_or(c"no status of a completion", |text| text).as_ptr()
}

/// What a queue pair is: the code, and why.
pub(super) fn state_of(phase: Phase) -> Result<(), Failure> {
    match phase {
        Phase::Closed(CloseReason::Finished) => {
            Err(Failure::Known(-2, "both sides have closed".to_owned()))
        }
        Phase::Closed(why) => Err(Failure::Known(-3, why.to_string())),
        _ => Ok(()),
    }
}

pub(super) type Queue = Any<stp::CompletionQueue, clan::CompletionQueue, qpip::CompletionQueue>;

/// A completion queue: see `landfall.h`.
#[derive(Debug)]
pub struct Completions(pub(super) Arc<CompletionState>);

/// What a handle of C has of a completion queue, and all that complete there.
#[derive(Debug)]
pub(super) struct CompletionState {
    /// Locked for as long as a call takes that waits for nothing.
    queue: Mutex<Queue>,
    /// Locked by the thread that takes completions.
    taker: Mutex<Taker>,
    capacity: u32,
    /// Queue pairs that are ended here when the other side has ended its half of them.
    finishing: Mutex<BTreeMap<u64, Weak<Mutex<Open>>>>,
}

#[derive(Debug, Default)]
struct Taker {
    taken: Vec<verbs::Completion>,
    /// Queue pairs that have ended, and were not asked for.
    ended: VecDeque<verbs::PhaseChange>,
}

/// How long a thread looks before it sleeps.
const LOOKS: Duration = Duration::from_micros(50);

impl CompletionState {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn finishing(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Mutex<Open>>>> {
        self.finishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue pair has changed.
    fn follow(&self, change: verbs::PhaseChange) {
        let id = number_of(change.queue_pair);
        let pair = match change.phase {
            Phase::PeerFinished => self.finishing().get(&id).and_then(Weak::upgrade),
            Phase::Closed(_) => self.finishing().remove(&id).and(None),
            _ => None,
        };
        if let Some(pair) = pair {
            pair.lock().unwrap_or_else(PoisonError::into_inner).finish();
        }
    }

    fn take<T>(&self, call: impl FnOnce(&mut Taker) -> Result<T, Failure>) -> Result<T, Failure> {
        match self.taker.try_lock() {
            Ok(mut taker) => call(&mut taker),
            Err(TryLockError::Poisoned(poisoned)) => call(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::Invalid("another thread takes completions of this queue"))
            }
        }
    }

    fn descriptor(&self) -> i32 {
        each!(&*self.queue(), queue => queue.as_fd().as_raw_fd())
    }
}

impl Taker {
    /// Moves what there is into a list of this length; true: a queue pair has ended.
    fn look(&mut self, shared: &CompletionState, room: usize) -> bool {
        self.taken.clear();
        let mut queue = shared.queue();
        each!(&mut *queue, queue => queue.poll_into(&mut self.taken, room));
        self.take_ended(&mut queue, shared)
    }

    fn take_ended(&mut self, queue: &mut Queue, shared: &CompletionState) -> bool {
        let mut is_new = false;
        while let Some(change) = each!(&mut *queue, queue => queue.poll_change()) {
            shared.follow(change);
            if !matches!(change.phase, Phase::Closed(_)) {
                continue;
            }
            // Of what nobody asks for the oldest is forgotten.
            if self.ended.len() >= shared.capacity as usize {
                self.ended.pop_front();
            }
            self.ended.push_back(change);
            is_new = true;
        }
        is_new
    }

    /// Waits until there is something, and gives how many completions are taken.
    fn wait(&mut self, shared: &CompletionState, room: usize, until: Until) -> Result<(), Failure> {
        loop {
            if self.look(shared, room) || !self.taken.is_empty() {
                return Ok(());
            }
            let limit = until.left();
            if limit == Some(Duration::ZERO) {
                return Err(Failure::TimedOut);
            }
            let mut queue = shared.queue();
            let looks = limit.map_or(LOOKS, |limit| limit.min(LOOKS));
            let found = each!(&mut *queue, queue => {
                queue.wait_for(looks).map_err(|error| Failure::Known(-2, error.to_string()))
            })?;
            if let Some(found) = found {
                self.taken.push(found);
                return Ok(());
            }
            let (is_armed, fd) = each!(&mut *queue, queue => {
                (queue.arm(Arm::Next), queue.as_fd().as_raw_fd())
            });
            drop(queue);
            if is_armed {
                // SAFETY: the descriptor is the queue's, which outlives this call.
                sleep_at(unsafe { BorrowedFd::borrow_raw(fd) }, until.left())?;
            }
        }
    }
}

/// Until it is readable, or the time is over.
fn sleep_at(descriptor: BorrowedFd<'_>, limit: Option<Duration>) -> Result<(), Failure> {
    let mut wanted = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(&mut wanted, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::Known(-9, format!("poll: {error}"))),
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_open(
    verbs: *const Verbs,
    capacity: u32,
) -> *mut Completions {
    pointer(|| {
        // SAFETY: the caller's promise.
        let verbs = unsafe { shared(verbs) }?;
        if capacity == 0 || capacity > MOST {
            return Err(Failure::Invalid("a queue has 1 to 16,777,216 places"));
        }
        let queue = match &verbs.0 {
            Any::Stp(context) => {
                Any::Stp(stp::CompletionQueue::new(context.endpoint.as_async(), capacity)?)
            }
            Any::Clan(_) => Any::Clan(clan::CompletionQueue::new(capacity)?),
            Any::Qpip(host) => Any::Qpip(host.adapter.completion_queue(capacity)?),
        };
        let (queue, taker, finishing) = (Mutex::new(queue), Mutex::default(), Mutex::default());
        Ok(Completions(Arc::new(CompletionState { queue, taker, capacity, finishing })))
    })
}

/// Of any queue.
const MOST: u32 = 1 << 24;

/// Takes completions, and writes them where a C program said.
///
/// # Safety
/// There is room for this many completions, that nobody else uses, or it is null.
unsafe fn taken(
    completions: *const Completions,
    into: *mut Completion,
    room: usize,
    take: impl FnOnce(&mut Taker, &CompletionState, usize) -> Result<(), Failure>,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let (Completions(queue), into) =
            unsafe { (shared(completions)?, elements_mut(into, room)?) };
        if into.is_empty() {
            return Err(Failure::Invalid("there is no room for a completion"));
        }
        queue.take(|taker| {
            take(taker, queue, into.len())?;
            for (place, done) in into.iter_mut().zip(&taker.taken) {
                *place = done.into();
            }
            Ok(taker.taken.len() as i64)
        })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_poll(
    completions: *const Completions,
    into: *mut Completion,
    room: usize,
) -> i64 {
    let look = |taker: &mut Taker, queue: &CompletionState, room: usize| {
        taker.look(queue, room);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { taken(completions, into, room, look) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_wait(
    completions: *const Completions,
    into: *mut Completion,
    room: usize,
    timeout: i64,
) -> i64 {
    let until = Until::new(timeout);
    let wait =
        |taker: &mut Taker, queue: &CompletionState, room: usize| taker.wait(queue, room, until);
    // SAFETY: the caller's promise.
    unsafe { taken(completions, into, room, wait) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_arm(completions: *const Completions, what: u32) -> i32 {
    let armed = number(|| {
        // SAFETY: the caller's promise.
        let Completions(shared) = unsafe { shared(completions) }?;
        let what = match what {
            0 => Arm::Next,
            1 => Arm::Solicited,
            _ => return Err(Failure::Invalid("neither LF_NEXT nor LF_MESSAGES")),
        };
        shared.take(|taker| {
            let mut queue = shared.queue();
            let mut arm = || each!(&mut *queue, queue => queue.arm(what));
            if arm() {
                return Ok(1);
            }
            Ok(i64::from(
                !taker.take_ended(&mut queue, shared) && {
                    each!(&mut *queue, queue => queue.arm(what))
                },
            ))
        })
    });
    armed as i32
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_descriptor(completions: *const Completions) -> i32 {
    let descriptor = number(|| {
        // SAFETY: the caller's promise.
        let Completions(shared) = unsafe { shared(completions) }?;
        Ok(shared.descriptor().into())
    });
    descriptor as i32
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_ended(
    completions: *const Completions,
    pair: *mut u64,
    state: *mut i32,
) -> i32 {
    let found = number(|| {
        // SAFETY: the caller's promise.
        let Completions(queue) = unsafe { shared(completions) }?;
        // SAFETY: each is null, or the caller's promise.
        let (pair, state) = unsafe { (pair.as_mut(), state.as_mut()) };
        queue.take(|taker| {
            taker.take_ended(&mut queue.queue(), queue);
            let Some(end) = taker.ended.pop_front() else { return Ok(0) };
            pair.into_iter().for_each(|pair| *pair = number_of(end.queue_pair));
            let now = state_of(end.phase).map_or_else(|failure| failure.code(), |()| 0);
            state.into_iter().for_each(|state| *state = now);
            Ok(1)
        })
    });
    found as i32
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_completions_close(completions: *mut Completions) {
    // SAFETY: the caller's promise.
    unsafe { close(completions) }
}

/// Room that queue pairs share: see `landfall.h`.
#[derive(Debug)]
pub struct SharedReceives(pub(super) Arc<SharedRoom>);

#[derive(Debug)]
pub(super) struct SharedRoom {
    pub(super) room: Mutex<
        Any<
            stp::SharedReceiveQueue,
            clan::SharedReceiveQueue<SharedNode>,
            qpip::SharedReceiveQueue,
        >,
    >,
    pub(super) completions: Arc<CompletionState>,
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_shared_receives_open(
    verbs: *const Verbs,
    completions: *const Completions,
    depth: u32,
) -> *mut SharedReceives {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (verbs, completions) = unsafe { (shared(verbs)?, shared(completions)?) };
        if depth == 0 || depth > MOST {
            return Err(Failure::Invalid("a queue has 1 to 16,777,216 places"));
        }
        let room = match (&*completions.0.queue(), &verbs.0) {
            (Any::Stp(queue), Any::Stp(_)) => Any::Stp(stp::SharedReceiveQueue::new(queue, depth)),
            (Any::Clan(queue), Any::Clan(_)) => {
                Any::Clan(clan::SharedReceiveQueue::new(queue, depth))
            }
            (Any::Qpip(queue), Any::Qpip(host)) => {
                let options = qpip::SharedReceiveOptions { depth, ..Default::default() };
                Any::Qpip(host.domain.shared_receive_queue(&options, queue)?)
            }
            _ => return Err(OF_ANOTHER),
        };
        let completions = Arc::clone(&completions.0);
        Ok(SharedReceives(Arc::new(SharedRoom { room: Mutex::new(room), completions })))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_shared_receives_post(
    receives: *const SharedReceives,
    list: *const Room,
    count: usize,
    posted: *mut usize,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (SharedReceives(receives), list) =
            unsafe { (shared(receives)?, elements(list, count)?) };
        let mut room = receives.room.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise, for the list and what it points to.
        let progress = post_each(list, |one| unsafe {
            match &mut *room {
                Any::Stp(room) => Ok(room.post(&one.request(&one.parts()?))?),
                Any::Clan(room) => Ok(room.post(&one.request(&one.parts()?))?),
                Any::Qpip(room) => Ok(room.post(one.id, &one.parts()?)?),
            }
        });
        // SAFETY: the caller's promise.
        unsafe { tell(progress, posted) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_shared_receives_close(receives: *mut SharedReceives) {
    // SAFETY: the caller's promise.
    unsafe { close(receives) }
}

/// Uses the queues of both directions, which may be one.
pub(super) fn with_both<T>(
    [sends, receives]: [&Arc<CompletionState>; 2],
    call: impl FnOnce(&Queue, &Queue) -> T,
) -> T {
    if Arc::ptr_eq(sends, receives) {
        let queue = sends.queue();
        return call(&queue, &queue);
    }
    // Always in the same order: others may want the two the other way round.
    if Arc::as_ptr(sends) < Arc::as_ptr(receives) {
        let sends = sends.queue();
        call(&sends, &receives.queue())
    } else {
        let receives = receives.queue();
        call(&sends.queue(), &receives)
    }
}
