//! [`Threads`]: the fabric between threads of one process.
//!
//! It keeps all promises of [`fabric`](super::fabric) and only fails when
//! a node is ended, so it is what the programming layer is tested over
//! first, and what threads use among themselves. Its tripwires are exact: a writer
//! looks at one counter while nothing is armed, and compares ranges else.
//!
//! What does not live here: memory between processes (that is a way to run of its
//! own), delays and losses.

mod memory;
mod tripwire;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

use clan_dsm::{HostId, Key};
use landfall_transport::memory::SharedMemory;

use super::Error;
use super::actions::{ActionRule, Actions, Mark, Marks};
use super::events::{Eventful, QueueWaker};
use super::fabric::{Access, Cookie, Fabric, Local, Remote, Rights, Tripwire, WORD};
use crate::runtime::locked;
use memory::{Aperture, system};
use tripwire::{Touches, Wire};

pub use memory::{ThreadsLocal, ThreadsRemote};
pub use tripwire::{ThreadsActionTripwire, ThreadsEvents, ThreadsTripwire};

/// The most apertures of one node.
const MOST_APERTURES: u16 = u16::MAX;

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
    /// Tripwires to fire when this node ends.
    loss_watchers: Mutex<Vec<Weak<Wire>>>,
    /// The tripwires of this node: a task that waits for one looks again at the end.
    watchers: Mutex<Vec<Weak<Wire>>>,
    /// The event queues of this node.
    queues: Mutex<Vec<Weak<QueueWaker>>>,
    next_slot: Mutex<u16>,
    /// What its tripwires with actions have left behind.
    marks: Arc<Marks>,
}

/// All nodes that can reach each other.
#[derive(Default)]
struct World {
    apertures: Mutex<BTreeMap<(u16, u16), Weak<Aperture>>>,
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
    /// More than a cookie has names for: 16,384.
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
            loss_watchers: Mutex::default(),
            watchers: Mutex::default(),
            queues: Mutex::default(),
            next_slot: Mutex::new(0),
            marks: Arc::default(),
        })
    }

    fn end(&self) {
        if self.is_down.swap(true, SeqCst) {
            return;
        }
        let loss_watchers = std::mem::take(&mut *locked(&self.loss_watchers));
        for wire in loss_watchers.iter().filter_map(Weak::upgrade) {
            wire.mark_peer_lost();
        }
        let watchers = std::mem::take(&mut *locked(&self.watchers));
        for wire in watchers.iter().filter_map(Weak::upgrade) {
            wire.wake_waiter();
        }
        self.wake_threads();
        let queues: Vec<_> = locked(&self.queues).iter().filter_map(Weak::upgrade).collect();
        for waker in queues.iter().filter_map(|call| call.ring()) {
            waker.wake();
        }
    }

    /// Anyone who waits for this queue matches when the node ends.
    fn add_queue(&self, call: &Arc<QueueWaker>) -> Result<(), Error> {
        let mut queues = locked(&self.queues);
        queues.retain(|call| call.strong_count() > 0);
        queues.push(Arc::downgrade(call));
        // The thread that ends the node looks at the queues after that.
        if self.is_up() { Ok(()) } else { Err(Error::NodeGone) }
    }

    /// Sleeps until something is there (true) or the deadline is over (false).
    fn sleep_until(
        &self,
        deadline: Option<Instant>,
        is_there: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut sleep = locked(&self.sleep);
        loop {
            if is_there() {
                return Ok(true);
            }
            if !self.is_up() {
                return Err(Error::NodeGone);
            }
            sleep = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
                None => self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner),
                Some(None) => return Ok(false),
                Some(Some(left)) => {
                    let woken = self.wake.wait_timeout(sleep, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Wakes all threads of this node; they look for themselves.
    fn wake_threads(&self) {
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
        let aperture = Arc::new(Aperture::new(node, memory, slot, cookie));
        apertures.insert((node.host.number(), slot), Arc::downgrade(&aperture));
        Ok((ThreadsLocal::new(aperture), cookie))
    }

    fn map(&self, cookie: &Cookie) -> Result<ThreadsRemote, Error> {
        let node = &self.0.0;
        let place = (cookie.host().number(), cookie.slot());
        let found = locked(&node.world.apertures).get(&place).and_then(Weak::upgrade);
        let aperture = found.filter(|found| found.is_named_by(cookie)).ok_or(Error::StaleCookie)?;
        Ok(ThreadsRemote::new(node, aperture, cookie.rights()))
    }

    fn watch(
        &self,
        local: &ThreadsLocal,
        range: Range<u64>,
        access: Access,
        peer: Option<&ThreadsRemote>,
    ) -> Result<ThreadsTripwire, Error> {
        let touches = Touches { words: words_within(local.len(), range)?, access, are_own: false };
        let wire = self.new_wire(local.aperture(), touches, None);
        if let Some(peer) = peer {
            watch_for_loss(peer, &wire);
        }
        Ok(ThreadsTripwire::new(wire))
    }

    fn watch_own(
        &self,
        remote: &ThreadsRemote,
        range: Range<u64>,
        access: Access,
    ) -> Result<ThreadsTripwire, Error> {
        let touches = Touches { words: words_within(remote.len(), range)?, access, are_own: true };
        let wire = self.new_wire(remote.aperture(), touches, None);
        watch_for_loss(remote, &wire);
        Ok(ThreadsTripwire::new(wire))
    }

    fn wait(
        &self,
        tripwires: &[&ThreadsTripwire],
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let fired = || tripwires.iter().any(|tripwire| tripwire.has_fired());
        self.0.0.sleep_until(deadline, fired)
    }
}

impl Threads {
    fn new_wire(
        &self,
        aperture: &Arc<Aperture>,
        touches: Touches,
        mark: Option<Arc<Mark>>,
    ) -> Arc<Wire> {
        let wire = Arc::new(Wire::new(&self.0.0, aperture, touches, mark));
        register(aperture.wires(), &wire);
        register(&self.0.0.watchers, &wire);
        wire
    }

    fn act(
        &self,
        aperture: &Arc<Aperture>,
        len: u64,
        (rule, are_own): (&ActionRule, bool),
    ) -> Result<ThreadsActionTripwire, Error> {
        let words = words_within(len, rule.range.clone())?;
        let touches = Touches { words, access: rule.access, are_own };
        let mark = Mark::new(&self.0.0.marks, rule)?;
        let wire = self.new_wire(aperture, touches, Some(Arc::clone(&mark)));
        Ok(ThreadsActionTripwire::armed(wire, mark))
    }
}

/// The words that these bytes lie in, if all of them are within memory of this length.
fn words_within(size: u64, range: Range<u64>) -> Result<Range<u64>, Error> {
    if range.is_empty() || range.end > size {
        let len = range.end.saturating_sub(range.start);
        return Err(Error::OutOfBounds { offset: range.start, len, size });
    }
    Ok(range.start / WORD..range.end.div_ceil(WORD))
}

fn watch_for_loss(peer: &ThreadsRemote, wire: &Arc<Wire>) {
    let owner = peer.owner();
    register(&owner.loss_watchers, wire);
    // It may have ended before it knew of this one.
    if !owner.is_up() {
        wire.mark_peer_lost();
    }
}

impl Actions for Threads {
    type ActionTripwire = ThreadsActionTripwire;

    fn act_on(
        &self,
        local: &ThreadsLocal,
        rule: &ActionRule,
    ) -> Result<ThreadsActionTripwire, Error> {
        self.act(local.aperture(), local.len(), (rule, false))
    }

    fn act_on_own(
        &self,
        remote: &ThreadsRemote,
        rule: &ActionRule,
    ) -> Result<ThreadsActionTripwire, Error> {
        self.act(remote.aperture(), remote.len(), (rule, true))
    }

    fn take_bit(&self, number: u32) -> bool {
        self.0.0.marks.take_bit(number)
    }

    fn counter(&self, number: u32) -> u64 {
        self.0.0.marks.counter(number)
    }

    fn next_identifier(&self) -> Option<u64> {
        self.0.0.marks.next_identifier()
    }

    fn take_lost(&self) -> u64 {
        self.0.0.marks.take_lost()
    }
}

impl Eventful for Threads {
    type Events = ThreadsEvents;

    fn events(&self, capacity: usize) -> Result<ThreadsEvents, Error> {
        ThreadsEvents::new(&self.0.0, capacity)
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

#[cfg(test)]
mod tests {
    use clan_dsm::Reason;

    use super::*;
    use crate::clan::Remote;

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
        assert_eq!(local.aperture().armed().load(SeqCst), 0);
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
        let reversed = Range { start: 16, end: 8 };
        for (offset, range) in [(0, 0..4104), (4096, 0..8), (0, reversed), (u64::MAX - 7, 0..8)] {
            let result = remote.write_from(offset, from, range.clone());
            assert!(result.is_err() || range.is_empty(), "{offset} {range:?}");
        }
    }
}
