//! [`Threads`]: the fabric between threads of one process.
//!
//! It keeps all promises of [`fabric`](super::fabric) and has no way to fail but
//! that somebody ends a node, so it is what the programming layer is tested over
//! first, and what threads use among themselves. Its tripwires are exact: a writer
//! looks at one counter while nothing is armed, and compares ranges else.
//!
//! What does not live here: memory between processes (that is a way to run of its
//! own), delays and losses.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use arrayvec::ArrayVec;
use clan_dsm::{HostId, Key, Reason};
use landfall_transport::memory::{SharedMemory, SharedMemoryError};

use super::Error;
use super::fabric::{Access, Cookie, Dma, Fabric, Local, Remote, Rights, Stage, Tripwire, WORD};

/// The most apertures of one node.
const MOST_APERTURES: u16 = u16::MAX;
/// Bytes that a copy from memory to memory holds in between.
const PIECE: usize = 4096;
/// Ranges that a writer remembers before it looks whether somebody waits for them.
const MOST_TOUCHED: usize = 8;

/// A node in this process. See [`Threads::pair`].
///
/// ```
/// use landfall::clan::{Fabric, Local, Remote, Rights, Threads};
///
/// let (here, there) = Threads::pair()?;
/// let (memory, cookie) = there.expose(4096, Rights::Write)?;
/// let mut window = here.map(&cookie)?;
/// window.store(8, 42)?;
/// window.commit()?;
/// assert_eq!(memory.load(8)?, 42);
/// # Ok::<(), landfall::clan::Error>(())
/// ```
#[derive(Clone)]
pub struct Threads(Arc<Handle>);

/// The last one ends the node.
struct Handle(Arc<Node>);

struct Node {
    host: HostId,
    world: Arc<World>,
    is_down: AtomicBool,
    /// Where the threads of this node sleep.
    sleep: Mutex<()>,
    wake: Condvar,
    /// Who wants to hear when this node ends.
    mourners: Mutex<Vec<Weak<Wire>>>,
    next_slot: Mutex<u16>,
}

/// All nodes that can reach each other.
#[derive(Default)]
struct World {
    apertures: Mutex<BTreeMap<(u16, u16), Weak<Aperture>>>,
}

struct Aperture {
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

/// A thread that panicked under one of these locks left nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system(error: SharedMemoryError) -> Error {
    match error {
        SharedMemoryError::System { call, error } => Error::System { call, source: error },
        SharedMemoryError::TooLong(_) => Error::NoRoom("aperture of that length"),
        SharedMemoryError::OutOfBounds { offset, len, size } => {
            Error::OutOfBounds { offset, len: len as u64, size }
        }
        _ => Error::BadConfig("memory has at least one byte"),
    }
}

impl Threads {
    /// Two nodes that reach each other.
    ///
    /// # Errors
    /// None that is known.
    pub fn pair() -> Result<(Self, Self), Error> {
        match Self::nodes(2)?.as_slice() {
            [one, two] => Ok((one.clone(), two.clone())),
            _ => Err(Error::NodeGone),
        }
    }

    /// Nodes that all reach each other.
    ///
    /// # Errors
    /// More than a cookie has names for: 4,096.
    pub fn nodes(count: u16) -> Result<Vec<Self>, Error> {
        let world = Arc::new(World::default());
        let hosts = (0..count).map(|number| HostId::new(number).ok_or(Error::NoRoom("node")));
        hosts.map(|host| Ok(Self(Arc::new(Handle(Node::new(host?, &world)))))).collect()
    }

    /// Ends the node, as a process that is killed: what it wrote stays, nothing
    /// more comes, and the others find their peer lost. Dropping the last clone
    /// does the same.
    pub fn end(&self) {
        self.0.0.end();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Node {
    fn new(host: HostId, world: &Arc<World>) -> Arc<Self> {
        Arc::new(Self {
            host,
            world: Arc::clone(world),
            is_down: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            mourners: Mutex::default(),
            next_slot: Mutex::new(0),
        })
    }

    fn end(&self) {
        if self.is_down.swap(true, SeqCst) {
            return;
        }
        let mourners = std::mem::take(&mut *locked(&self.mourners));
        for wire in mourners.iter().filter_map(Weak::upgrade) {
            wire.is_bereft.store(true, SeqCst);
            wire.tell();
        }
        self.rouse();
    }

    /// Wakes all threads of this node; they look for themselves.
    fn rouse(&self) {
        let _sleepers = locked(&self.sleep);
        self.wake.notify_all();
    }

    fn is_up(&self) -> bool {
        !self.is_down.load(Acquire)
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.0.0.host)
    }
}

impl Fabric for Threads {
    type Local = ThreadsLocal;
    type Remote = ThreadsRemote;
    type Tripwire = ThreadsTripwire;

    fn expose(&self, len: u64, rights: Rights) -> Result<(ThreadsLocal, Cookie), Error> {
        let node = &self.0.0;
        let memory = SharedMemory::create("landfall-threads", len).map_err(system)?;
        let mut key = [0; 8];
        getrandom::fill(&mut key).map_err(|error| Error::System {
            call: "getrandom",
            source: std::io::Error::other(error.to_string()),
        })?;
        let mut apertures = locked(&node.world.apertures);
        let mut next = locked(&node.next_slot);
        let is_free = |slot: &u16| !apertures.contains_key(&(node.host.number(), *slot));
        let slot = (0..MOST_APERTURES).map(|nth| nth.wrapping_add(*next)).find(is_free);
        let slot = slot.ok_or(Error::NoRoom("aperture"))?;
        *next = slot.wrapping_add(1);
        let key = Key::from_bits(u64::from_ne_bytes(key));
        let cookie = Cookie::new(node.host, slot, rights, key, len);
        let aperture = Arc::new(Aperture {
            owner: Arc::clone(node),
            memory,
            slot,
            cookie,
            is_withdrawn: AtomicBool::new(false),
            armed: AtomicU64::new(0),
            wires: Mutex::default(),
        });
        apertures.insert((node.host.number(), slot), Arc::downgrade(&aperture));
        Ok((ThreadsLocal(Arc::new(Tenure(aperture))), cookie))
    }

    fn map(&self, cookie: &Cookie) -> Result<ThreadsRemote, Error> {
        let place = (cookie.host().number(), cookie.slot());
        let found = locked(&self.0.0.world.apertures).get(&place).and_then(Weak::upgrade);
        let aperture = found
            .filter(|found| found.cookie == *cookie && !found.is_withdrawn.load(Acquire))
            .ok_or(Error::StaleCookie)?;
        Ok(ThreadsRemote {
            user: Arc::clone(&self.0.0),
            aperture,
            rights: cookie.rights(),
            touched: ArrayVec::new(),
            requests: 0,
        })
    }

    fn watch(
        &self,
        local: &ThreadsLocal,
        range: Range<u64>,
        access: Access,
        peer: Option<&ThreadsRemote>,
    ) -> Result<ThreadsTripwire, Error> {
        let (aperture, size) = (&local.0.0, local.len());
        if range.start >= range.end || range.end > size {
            let len = range.end.saturating_sub(range.start);
            return Err(Error::OutOfBounds { offset: range.start, len, size });
        }
        let words = range.start / WORD * WORD..range.end.next_multiple_of(WORD);
        let wire = Arc::new(Wire {
            owner: Arc::clone(&self.0.0),
            aperture: Arc::clone(aperture),
            words,
            access,
            state: AtomicU8::new(IDLE),
            is_bereft: AtomicBool::new(false),
            waker: Mutex::new(None),
        });
        register(&aperture.wires, &wire);
        if let Some(peer) = peer {
            let owner = &peer.aperture.owner;
            register(&owner.mourners, &wire);
            // It may have ended before it knew of this one.
            wire.is_bereft.fetch_or(!owner.is_up(), SeqCst);
        }
        Ok(ThreadsTripwire(wire))
    }

    fn wait(
        &self,
        tripwires: &[&ThreadsTripwire],
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let node = &self.0.0;
        let mut sleep = locked(&node.sleep);
        loop {
            if tripwires.iter().any(|tripwire| tripwire.has_fired()) {
                return Ok(true);
            }
            if !node.is_up() {
                return Err(Error::NodeGone);
            }
            sleep = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
                None => node.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner),
                Some(None) => return Ok(false),
                Some(Some(left)) => {
                    let woken = node.wake.wait_timeout(sleep, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Adds a tripwire to a list, from which those that are gone go.
fn register(list: &Mutex<Vec<Weak<Wire>>>, wire: &Arc<Wire>) {
    let mut list = locked(list);
    if list.len() == list.capacity() {
        list.retain(|wire| wire.strong_count() > 0);
    }
    list.push(Arc::downgrade(wire));
}

/// Memory of a [`Threads`] node.
#[derive(Clone)]
pub struct ThreadsLocal(Arc<Tenure>);

/// The last one withdraws the aperture.
struct Tenure(Arc<Aperture>);

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.is_withdrawn.store(true, Release);
        let place = (self.0.owner.host.number(), self.0.slot);
        locked(&self.0.owner.world.apertures).remove(&place);
    }
}

impl Aperture {
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

    /// Fires what is armed for any of these ranges. The writer has made a full
    /// fence after its writes.
    fn touch(&self, ranges: &[Range<u64>], access: Access) {
        let is_hit = |wire: &Arc<Wire>| {
            let words = &wire.words;
            let meets = |range: &Range<u64>| range.start < words.end && words.start < range.end;
            wire.access.hears(access) && ranges.iter().any(meets)
        };
        // Woken without the lock: who is woken may well want another tripwire.
        let wires = locked(&self.wires);
        let hit: Vec<_> = wires.iter().filter_map(Weak::upgrade).filter(is_hit).collect();
        drop(wires);
        hit.iter().for_each(|wire| wire.fire());
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
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.0.memory.copy_out(offset, into).map_err(system)
    }

    #[inline]
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.0.memory.copy_in(offset, bytes).map_err(system)
    }
}

impl fmt::Debug for ThreadsLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsLocal({:?})", self.0.0.cookie)
    }
}

/// Memory of another [`Threads`] node.
pub struct ThreadsRemote {
    user: Arc<Node>,
    aperture: Arc<Aperture>,
    rights: Rights,
    /// What was written since somebody was told.
    touched: ArrayVec<Range<u64>, MOST_TOUCHED>,
    requests: u64,
}

impl ThreadsRemote {
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
            self.tell();
        }
        self.touched.push(offset..offset + len);
    }

    /// The fence between what was written and the look whether somebody waits for
    /// it: together with the one in `arm`, one side sees the other.
    #[inline]
    fn tell(&mut self) {
        fence(SeqCst);
        if self.aperture.armed.load(Relaxed) != 0 {
            self.aperture.touch(&self.touched, Access::Write);
        }
        self.touched.clear();
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

    #[inline]
    fn commit(&mut self) -> Result<(), Error> {
        self.check()?;
        if !self.touched.is_empty() {
            self.tell();
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, into: &mut [u8], _: Option<Instant>) -> Result<(), Error> {
        self.check_for(Rights::Read)?;
        self.commit()?;
        self.aperture.memory.copy_out(offset, into).map_err(system)?;
        if self.aperture.armed.load(SeqCst) != 0 {
            let range = offset..offset + into.len() as u64;
            self.aperture.touch(&[range], Access::Read);
        }
        Ok(())
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

const IDLE: u8 = 0;
const ARMED: u8 = 1;
const FIRED: u8 = 2;

/// A tripwire of a [`Threads`] node.
pub struct ThreadsTripwire(Arc<Wire>);

struct Wire {
    owner: Arc<Node>,
    aperture: Arc<Aperture>,
    words: Range<u64>,
    access: Access,
    state: AtomicU8,
    /// The peer that it was made for is lost.
    is_bereft: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Wire {
    /// Changes the state, and the writer's counter with it.
    fn become_unarmed(&self, state: u8) -> bool {
        let was_armed = self.state.compare_exchange(ARMED, state, AcqRel, Acquire).is_ok();
        if was_armed {
            self.aperture.armed.fetch_sub(1, AcqRel);
        }
        was_armed
    }

    fn fire(&self) {
        if self.become_unarmed(FIRED) {
            self.tell();
        }
    }

    fn tell(&self) {
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
        self.owner.rouse();
    }
}

impl Tripwire for ThreadsTripwire {
    fn arm(&self) {
        // Counted first, so that whoever fires it finds it counted.
        self.0.aperture.armed.fetch_add(1, SeqCst);
        if self.0.state.swap(ARMED, SeqCst) == ARMED {
            self.0.aperture.armed.fetch_sub(1, SeqCst);
        }
        fence(SeqCst);
    }

    fn disarm(&self) {
        if !self.0.become_unarmed(IDLE) {
            self.0.state.store(IDLE, Release);
        }
    }

    fn has_fired(&self) -> bool {
        self.0.state.load(Acquire) == FIRED || self.0.is_bereft.load(Acquire)
    }

    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        // In this order: whoever fires it after the look finds the waker.
        *locked(&self.0.waker) = Some(context.waker().clone());
        fence(SeqCst);
        if self.has_fired() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for ThreadsTripwire {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for ThreadsTripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsTripwire({:?} of {:?})", self.0.words, self.0.aperture.cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Threads, ThreadsLocal, ThreadsRemote) {
        let (here, there) = Threads::pair().unwrap();
        let (local, cookie) = here.expose(4096, Rights::ReadWrite).unwrap();
        let remote = there.map(&cookie).unwrap();
        std::mem::forget(there);
        (here, local, remote)
    }

    #[test]
    fn a_tripwire_fires_once_and_only_for_its_range_and_access() {
        let (here, local, mut remote) = memory();
        let wire = here.watch(&local, 16..24, Access::Write, None).unwrap();
        let reads = here.watch(&local, 20..21, Access::Read, None).unwrap();
        wire.arm();
        reads.arm();
        remote.store(8, 1).unwrap();
        remote.store(24, 1).unwrap();
        remote.commit().unwrap();
        assert!(!wire.has_fired());
        remote.write(23, &[7]).unwrap();
        assert!(!wire.has_fired(), "not before it is published");
        remote.commit().unwrap();
        assert!(wire.has_fired() && !reads.has_fired());
        remote.read(16, &mut [0; 8], None).unwrap();
        assert!(reads.has_fired());
        assert_eq!(local.0.0.armed.load(SeqCst), 0);
        wire.disarm();
        remote.store(16, 1).unwrap();
        remote.commit().unwrap();
        assert!(!wire.has_fired());
    }

    #[test]
    fn many_scattered_writes_in_one_batch_fire_all() {
        let (here, local, mut remote) = memory();
        let at = |nth: u64| nth * 32;
        let wires: Vec<_> = (0..100)
            .map(|nth| here.watch(&local, at(nth)..at(nth) + 8, Access::Both, None).unwrap())
            .collect();
        wires.iter().for_each(Tripwire::arm);
        (0..100).for_each(|nth| remote.store(at(nth), nth).unwrap());
        remote.commit().unwrap();
        assert!(wires.iter().all(Tripwire::has_fired));
    }

    #[test]
    fn the_end_of_a_peer_wakes_whoever_waits_for_it() {
        let (here, there) = Threads::pair().unwrap();
        let (local, _) = here.expose(64, Rights::Write).unwrap();
        let (_theirs, cookie) = there.expose(64, Rights::Write).unwrap();
        let remote = here.map(&cookie).unwrap();
        let wire = here.watch(&local, 0..8, Access::Write, Some(&remote)).unwrap();
        wire.arm();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| here.wait(&[&wire], None));
            there.end();
            assert!(waiting.join().unwrap().unwrap());
        });
        assert!(matches!(remote.check(), Err(Error::PeerLost)));
        let late = here.watch(&local, 0..8, Access::Write, Some(&remote)).unwrap();
        assert!(late.has_fired());
    }

    #[test]
    fn memory_that_is_gone_or_was_never_there_is_refused() {
        let (here, there) = Threads::pair().unwrap();
        let (local, cookie) = here.expose(64, Rights::Read).unwrap();
        let forged =
            Cookie::new(cookie.host(), cookie.slot(), Rights::Write, Key::from_bits(1), 64);
        assert!(matches!(there.map(&forged), Err(Error::StaleCookie)));
        let mut remote = there.map(&cookie).unwrap();
        assert!(matches!(remote.store(0, 1), Err(Error::Forbidden)));
        assert!(matches!(remote.read(60, &mut [0; 8], None), Err(Error::OutOfBounds { .. })));
        drop(local);
        assert!(matches!(remote.check(), Err(Error::Refused(Reason::BadKey))));
        assert!(matches!(there.map(&cookie), Err(Error::StaleCookie)));
    }

    #[test]
    fn wrong_offsets_are_errors() {
        let (_here, local, mut remote) = memory();
        assert!(matches!(local.load(4), Err(Error::Unaligned(4))));
        assert!(matches!(local.load(4096), Err(Error::OutOfBounds { .. })));
        assert!(matches!(remote.store(u64::MAX - 7, 1), Err(Error::OutOfBounds { .. })));
        assert!(matches!(remote.write(4090, &[0; 7]), Err(Error::OutOfBounds { .. })));
        let from = &local;
        for (offset, range) in [(0, 0..4104), (4096, 0..8), (0, 16..8), (u64::MAX - 7, 0..8)] {
            let result = remote.write_from(offset, from, range.clone());
            assert!(result.is_err() || range.is_empty(), "{offset} {range:?}");
        }
    }
}
