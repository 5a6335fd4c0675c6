//! Queue pairs: what is posted to them, and what they share.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall::clan::shared::SharedNode;
use landfall::qpip;
use landfall::stp::RemoteRights;
use landfall::verbs::{PartlyPosted, Phase, QueuePair, ReceiveRequest, SendRequest, clan, stp};

use super::address::{Address, give_address};
use super::completions::{CompletionState, SharedRoom, number_of, state_of};
use super::region::{PartOf, Region};
use super::work::{KEY, Key, Room, Work, destination, written};
use super::{Any, each};
use crate::error::{Failure, code};
use crate::{bytes, bytes_mut, elements, shared};

pub(super) type Ends = Any<stp::QueuePair, clan::QueuePair<SharedNode>, qpip::QueuePair>;

/// A queue pair: see `landfall.h`.
#[derive(Debug)]
pub struct Pair {
    pair: Arc<Mutex<Open>>,
    // They outlive it, in whatever order C closes them.
    places: Places,
}

/// Where requests of a queue pair complete, and whose room there is.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) queues: [Arc<CompletionState>; 2],
    /// It outlives what takes from it.
    pub(super) _room: Option<Arc<SharedRoom>>,
    /// The other side's end of it is this one's, too: each ends its half of a stream by itself.
    pub(super) ends_with_peer: bool,
}

#[derive(Debug)]
pub(super) struct Open {
    ends: Ends,
    /// By which keys memory is shared. Over a node it is kept for that; STP keeps it by itself.
    shares: Vec<([u8; KEY], Option<clan::Region<SharedNode>>)>,
}

const NOT_REACHED: Failure =
    Failure::Invalid("QPIP sends and receives: it reaches no memory of the other side");

impl Pair {
    pub(super) fn new(ends: Ends, places: Places) -> Self {
        let id = each!(&ends, pair => number_of(QueuePair::id(pair)));
        let finishes = matches!(ends, Any::Qpip(_)) && places.ends_with_peer;
        let pair = Arc::new(Mutex::new(Open { ends, shares: Vec::new() }));
        if finishes {
            for queue in &places.queues {
                queue.finishing().insert(id, Arc::downgrade(&pair));
            }
        }
        Self { pair, places }
    }

    fn id(&self) -> u64 {
        each!(&self.open().ends, pair => number_of(QueuePair::id(pair)))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of a list were posted, and why the next was not.
pub(super) type Progress = (usize, Result<(), Failure>);

/// Posts one after the other.
pub(super) fn post_each<R>(
    list: &[R],
    mut post: impl FnMut(&R) -> Result<(), Failure>,
) -> Progress {
    let mut done = 0;
    let result = list.iter().try_for_each(|one| post(one).inspect(|()| done += 1));
    (done, result)
}

fn progress(posted: Result<(), PartlyPosted>, all: usize) -> Progress {
    match posted {
        Ok(()) => (all, Ok(())),
        Err(PartlyPosted { posted, error }) => (posted, Err(error.into())),
    }
}

/// What all before the first that is wrong name, and what is wrong.
fn named_by<R, P>(
    list: &[R],
    parts: impl Fn(&R) -> Result<P, Failure>,
) -> (Vec<P>, Result<(), Failure>) {
    let mut found = Vec::with_capacity(list.len());
    let result = list.iter().try_for_each(|one| {
        found.push(parts(one)?);
        Ok(())
    });
    (found, result)
}

/// Posts a list, and rings once.
///
/// # Safety
/// What the list points to is what the header asks for.
unsafe fn post_sends<Q: QueuePair<Part: PartOf>>(pair: &mut Q, list: &[Work]) -> Progress {
    // SAFETY: the caller's promise.
    let (named, rest) = named_by(list, |one: &Work| unsafe { Ok((one.parts()?, one.to()?)) });
    let requests: Vec<SendRequest<'_, _>> =
        list.iter().zip(&named).map(|(one, (parts, to))| one.send(parts, *to)).collect();
    let (posted, result) = progress(pair.post_sends(&requests), requests.len());
    (posted, result.and(rest))
}

/// The same of room.
///
/// # Safety
/// What the list points to is what the header asks for.
unsafe fn post_receives<Q: QueuePair<Part: PartOf>>(pair: &mut Q, list: &[Room]) -> Progress {
    // SAFETY: the caller's promise.
    let (parts, rest) = named_by(list, |one: &Room| unsafe { one.parts() });
    let requests: Vec<ReceiveRequest<'_, _>> =
        list.iter().zip(&parts).map(|(one, parts)| one.request(parts)).collect();
    let (posted, result) = progress(pair.post_receives(&requests), requests.len());
    (posted, result.and(rest))
}

/// Regions that one queue pair shares at a time.
const MOST_SHARES: usize = 1 << 16;

/// How long a queue pair of QPIP waits for the other side when it is closed.
const FINISH: Duration = Duration::from_secs(1);

impl Open {
    /// The other side has said its last: nothing of ours would be received, and TCP waits for
    /// this end. Other carriers end both at once.
    pub(super) fn finish(&mut self) {
        if let Any::Qpip(pair) = &mut self.ends {
            // One that has ended meanwhile needs nothing.
            let _ = pair.shutdown();
        }
    }

    /// # Safety
    /// What the request points to is what the header asks for.
    unsafe fn reach(&mut self, one: &Work) -> Result<(), Failure> {
        match &mut self.ends {
            // SAFETY: the caller's promise.
            Any::Stp(pair) => unsafe { one.reach(pair, &one.parts()?) },
            // SAFETY: the caller's promise.
            Any::Clan(pair) => unsafe { one.reach(pair, &one.parts()?) },
            Any::Qpip(_) => Err(NOT_REACHED),
        }
    }

    /// Sends that follow each other are one list; what reaches memory is posted by itself.
    ///
    /// # Safety
    /// What the list points to is what the header asks for.
    unsafe fn post(&mut self, list: &[Work]) -> Progress {
        let mut done = 0;
        for run in list.chunk_by(|one, next| one.is_send() && next.is_send()) {
            let (posted, result) = if run[0].is_send() {
                // SAFETY: the caller's promise.
                each!(&mut self.ends, pair => unsafe { post_sends(pair, run) })
            } else {
                // SAFETY: the caller's promise.
                let result = unsafe { self.reach(&run[0]) };
                (usize::from(result.is_ok()), result)
            };
            done += posted;
            if result.is_err() {
                return (done, result);
            }
        }
        (done, Ok(()))
    }

    fn share(&mut self, region: &Region) -> Result<[u8; KEY], Failure> {
        if self.shares.len() >= MOST_SHARES {
            return Err(Failure::Invalid("a queue pair shares 65,536 regions: withdraw some"));
        }
        let (key, kept) = match &mut self.ends {
            Any::Stp(pair) => {
                let part = region.whole_of_stp()?;
                let all =
                    [(1, RemoteRights::GET), (2, RemoteRights::PUT), (3, RemoteRights::FETCH)];
                let rights = u32::from(region.rights() as u8);
                let given = all.into_iter().filter(|(needs, _)| rights & needs == *needs);
                let rights = given.fold(RemoteRights::NONE, |all, (_, right)| all.with(right));
                let key = pair.share(&part, rights);
                (written(&key.to_bytes()), None)
            }
            Any::Clan(pair) => {
                let region = region.clan()?;
                let key = pair.share(region)?;
                (written(&key.to_bytes()), Some(region.clone()))
            }
            Any::Qpip(_) => return Err(NOT_REACHED),
        };
        self.shares.push((key, kept));
        Ok(key)
    }

    fn withdraw(&mut self, key: &[u8]) -> Result<(), Failure> {
        let place = self.shares.iter().position(|(shared, _)| shared == key);
        let place = place.ok_or(Failure::Invalid("nothing was shared by this key"))?;
        let (_, kept) = self.shares.swap_remove(place);
        match (&mut self.ends, kept) {
            (Any::Stp(pair), _) => pair.withdraw(&Key::read(key)?),
            (Any::Clan(pair), Some(region)) => pair.withdraw(&region)?,
            _ => return Err(NOT_REACHED),
        }
        Ok(())
    }
}

/// Tells C how far a list was posted.
///
/// # Safety
/// It is null, or nobody else uses it.
pub(super) unsafe fn tell((done, result): Progress, posted: *mut usize) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    if let Some(posted) = unsafe { posted.as_mut() } {
        *posted = done;
    }
    result
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_post_sends(
    pair: *const Pair,
    list: *const Work,
    count: usize,
    posted: *mut usize,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (pair, list) = unsafe { (shared(pair)?, elements(list, count)?) };
        // SAFETY: the caller's promise, for the list and what it points to.
        unsafe { tell(pair.open().post(list), posted) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_post_receives(
    pair: *const Pair,
    list: *const Room,
    count: usize,
    posted: *mut usize,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (pair, list) = unsafe { (shared(pair)?, elements(list, count)?) };
        // SAFETY: the caller's promise, for the list and what it points to.
        let progress = each!(&mut pair.open().ends, pair => unsafe { post_receives(pair, list) });
        // SAFETY: the caller's promise.
        unsafe { tell(progress, posted) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_post_inline(
    pair: *const Pair,
    id: u64,
    from: *const c_void,
    length: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { lf_post_inline_to(pair, id, from, length, std::ptr::null()) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_post_inline_to(
    pair: *const Pair,
    id: u64,
    from: *const c_void,
    length: usize,
    to: *const Address,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (pair, from) = unsafe { (shared(pair)?, bytes(from.cast(), length)?) };
        // SAFETY: the caller's promise.
        let to = unsafe { destination(to) }?;
        each!(&mut pair.open().ends, pair => Ok(QueuePair::post_inline(pair, id, from, to)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_share(pair: *const Pair, region: *const Region, key: *mut u8) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (pair, region) = unsafe { (shared(pair)?, shared(region)?) };
        // SAFETY: the caller's promise: there is room for a key.
        let into = unsafe { bytes_mut(key, KEY) }?;
        into.copy_from_slice(&pair.open().share(region)?);
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_withdraw(pair: *const Pair, key: *const u8) -> i32 {
    code(|| {
        // SAFETY: the caller's promise: a key has this many bytes.
        let (pair, key) = unsafe { (shared(pair)?, bytes(key, KEY)?) };
        pair.open().withdraw(key)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_id(pair: *const Pair) -> u64 {
    // SAFETY: the caller's promise.
    let pair = unsafe { shared(pair) };
    pair.map_or(u64::MAX, Pair::id)
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_state(pair: *const Pair) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let pair = unsafe { shared(pair) }?;
        each!(&pair.open().ends, pair => state_of(QueuePair::phase(pair)))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_shutdown(pair: *const Pair) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let pair = unsafe { shared(pair) }?;
        match &mut pair.open().ends {
            Any::Qpip(pair) => Ok(pair.shutdown()?),
            _ => Err(Failure::Invalid("only a queue pair of QPIP ends in halves: close it")),
        }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_local(pair: *const Pair, address: *mut Address) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { end_of(pair, address, qpip::QueuePair::local_address) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_remote(pair: *const Pair, address: *mut Address) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { end_of(pair, address, qpip::QueuePair::remote_address) }
}

/// Where one end of a queue pair is.
///
/// # Safety
/// What the header asks for.
unsafe fn end_of(
    pair: *const Pair,
    into: *mut Address,
    end: impl FnOnce(&qpip::QueuePair) -> Option<SocketAddr>,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let pair = unsafe { shared(pair) }?;
        let Any::Qpip(pair) = &pair.open().ends else {
            return Err(Failure::Invalid("only a queue pair of QPIP has addresses"));
        };
        // SAFETY: the caller's promise.
        unsafe { give_address(end(pair), into) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_pair_close(pair: *mut Pair) {
    let _ = code(|| {
        if pair.is_null() {
            return Ok(());
        }
        // SAFETY: it came from a box, and the rest is the caller's promise.
        let pair = unsafe { Box::from_raw(pair) };
        let id = pair.id();
        for queue in &pair.places.queues {
            queue.finishing().remove(&id);
        }
        let mut open = pair.open();
        open.finish();
        if let Any::Qpip(pair) = &open.ends
            && pair.phase() != Phase::Idle
        {
            // The process may end after this: the other side is to hear of it before.
            let _ = pair.closed().wait_for(FINISH);
        }
        Ok(())
    });
}
