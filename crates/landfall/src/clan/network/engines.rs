//! [`NodeHandle`]: what every handle of a node holds; [`EngineHandle`]: what one holds that
//! belongs to one link; and [`Hosts`]: at which engine the link to a host is.
//!
//! A node has one engine, or one for each of its threads. Each has a lock, a thread and its part
//! of each path, and never takes the lock of another. A link belongs to one engine for all of
//! its life, and with it all that goes over it: windows, reads, words, chains of the DMA engine,
//! conversations. What any peer may reach is at each of them: memory and its cookies, tripwires,
//! endpoints, names. Words of memory are changed in one step by the drivers, whichever engine
//! tells them to.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant as StdInstant;

use clan_dsm::HostId;
use landfall_placement::{Duration, Instant, Peer};
use landfall_transport::driver::Interest;

use super::mark::Marks;
use super::memory::Pool;
use super::names::Discoverer;
use super::state::NodeState;
use crate::clan::Error;
use crate::runtime::{Handle, Runtime, member_of};

/// The most engines of a node.
pub(crate) const MOST_ENGINES: usize = 64;

/// The engines of a node, and what they share. When the last handle is gone, the node ends.
#[derive(Clone, Debug)]
pub(crate) struct NodeHandle(Arc<EngineSet>);

#[derive(Debug)]
struct EngineSet {
    /// At least one.
    engines: Box<[Handle<NodeState>]>,
    hosts: Arc<Hosts>,
    marks: Arc<Marks>,
    pool: Arc<Pool>,
    discoverer: Option<Discoverer>,
    /// Which of them the next thread drives that waits for something of any.
    turn: AtomicUsize,
}

impl NodeHandle {
    pub(crate) fn new(
        runtimes: impl IntoIterator<Item = Arc<Runtime<NodeState>>>,
        hosts: Arc<Hosts>,
        pool: Arc<Pool>,
        discoverer: Option<Discoverer>,
    ) -> Self {
        let engines: Box<[_]> = runtimes.into_iter().map(Handle).collect();
        debug_assert!(!engines.is_empty(), "a node has an engine");
        let (marks, turn) = (Arc::default(), AtomicUsize::new(0));
        Self(Arc::new(EngineSet { engines, hosts, marks, pool, discoverer, turn }))
    }

    /// All engines, the first first.
    pub(crate) fn engines(&self) -> &[Handle<NodeState>] {
        &self.0.engines
    }

    /// The first engine, for what is the same at all.
    pub(crate) fn first(&self) -> &Runtime<NodeState> {
        &self.0.engines[0]
    }

    /// All engines but the first.
    pub(crate) fn others(&self) -> &[Handle<NodeState>] {
        &self.0.engines[1..]
    }

    pub(crate) fn at(&self, nth: usize) -> &Runtime<NodeState> {
        &self.0.engines[nth]
    }

    /// What a handle holds that belongs to this engine.
    pub(crate) fn engine(&self, nth: usize) -> EngineHandle {
        let runtime = Arc::clone(&self.0.engines[nth].0);
        EngineHandle { runtime, nth, node: self.clone() }
    }

    /// The engine that a link with this peer belongs to.
    pub(crate) fn for_peer(&self, peer: Peer) -> EngineHandle {
        self.engine(match self.0.engines.len() {
            1 => 0,
            count => member_of(peer, count),
        })
    }

    /// The engine that has the link to this host, or any where there is none.
    pub(crate) fn for_host(&self, host: HostId) -> EngineHandle {
        self.engine(self.nth_for_host(host))
    }

    /// Which it is.
    pub(crate) fn nth_for_host(&self, host: HostId) -> usize {
        self.0.hosts.engine_of(host)
    }

    /// The engine that a thread drives which waits for something of any. The others have
    /// threads of their own, and wake those who wait.
    fn any(&self) -> &Runtime<NodeState> {
        match &self.0.engines[..] {
            [only] => only,
            all => &all[self.0.turn.fetch_add(1, Ordering::Relaxed) % all.len()],
        }
    }

    /// How nodes are found that there is no link with, if the node was built so.
    pub(crate) fn discoverer(&self) -> Option<&Discoverer> {
        self.0.discoverer.as_ref()
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    /// What tripwires of several engines have left once.
    pub(super) fn marks(&self) -> &Arc<Marks> {
        &self.0.marks
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// It ends at all engines; of one that has ended, the others do too.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.0.engines.iter().any(|engine| engine.has_ended())
    }

    /// # Errors
    /// The node does not run any more.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_ended() { Err(Error::NodeGone) } else { Ok(()) }
    }

    /// One turn of each engine that no other thread drives just now. Gives whether anything
    /// moved.
    #[inline]
    pub(crate) fn relax(&self) -> bool {
        self.0.engines.iter().fold(false, |moved, engine| engine.relax() | moved)
    }

    /// This thread drives no more, and will be told by a descriptor.
    pub(crate) fn hand_over(&self) {
        self.0.engines.iter().for_each(|engine| engine.hand_over());
    }

    /// Waits for a future on this thread, which drives one of the engines meanwhile; nothing if
    /// the deadline is over before.
    ///
    /// # Errors
    /// The node does not run any more.
    pub(crate) fn block_on<F: Future>(
        &self,
        future: F,
        deadline: Option<StdInstant>,
    ) -> Result<Option<F::Output>, Error> {
        block_on(self.any(), future, deadline)
    }

    /// One turn, and if it brought nothing, sleep at an engine's descriptors and at others until
    /// something comes or the deadline is over. What comes to other engines becomes readable at
    /// `others`.
    ///
    /// # Errors
    /// The node does not run any more.
    pub(crate) fn select(
        &self,
        others: &[Interest],
        deadline: Option<StdInstant>,
        has_news: impl Fn() -> bool,
    ) -> Result<(), Error> {
        const LONG: Duration = Duration::from_secs(1);
        let engine = self.any();
        let _driver = engine.begin_driving();
        self.check()?;
        let moved = engine.turn();
        if moved || has_news() {
            return Ok(());
        }
        let at_most = deadline.map_or(LONG, |deadline| {
            deadline.saturating_duration_since(StdInstant::now()).min(LONG)
        });
        if at_most.is_zero() {
            return Ok(());
        }
        if engine.rest(at_most, others, &has_news) {
            engine.turn();
        }
        Ok(())
    }
}

/// One engine of a node: what a handle holds that belongs to one link. It keeps the node alive.
#[derive(Clone, Debug)]
pub(crate) struct EngineHandle {
    runtime: Arc<Runtime<NodeState>>,
    nth: usize,
    node: NodeHandle,
}

impl Deref for EngineHandle {
    type Target = Runtime<NodeState>;

    #[inline]
    fn deref(&self) -> &Runtime<NodeState> {
        &self.runtime
    }
}

impl EngineHandle {
    /// Which of the node's engines it is.
    pub(crate) const fn nth(&self) -> usize {
        self.nth
    }

    pub(crate) const fn node(&self) -> &NodeHandle {
        &self.node
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.node.pool()
    }

    /// Puts something into the engine that need not leave at once.
    #[inline]
    pub(crate) fn enter<T>(&self, enter: impl FnOnce(&mut NodeState, Instant) -> T) -> T {
        self.look(|core| enter(core, self.clock.now()))
    }

    /// Waits for a future on this thread, which drives this engine meanwhile; nothing if the
    /// deadline is over before.
    ///
    /// # Errors
    /// The node does not run any more.
    pub(crate) fn block_on<F: Future>(
        &self,
        future: F,
        deadline: Option<StdInstant>,
    ) -> Result<Option<F::Output>, Error> {
        block_on(&self.runtime, future, deadline)
    }
}

fn block_on<F: Future>(
    engine: &Runtime<NodeState>,
    future: F,
    deadline: Option<StdInstant>,
) -> Result<Option<F::Output>, Error> {
    let left = |deadline: StdInstant| deadline.saturating_duration_since(StdInstant::now());
    let until =
        deadline.map_or(Instant::FAR_FUTURE, |deadline| engine.clock.now() + left(deadline));
    let done = engine.wait_until(future, until);
    if done.is_none() && engine.has_ended() {
        return Err(Error::NodeGone);
    }
    Ok(done)
}

/// At which engine the link to each host is. It has no entries where there is one engine.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Box<[AtomicU8]>);

impl Hosts {
    /// For this many engines.
    pub(crate) fn new(engines: usize) -> Self {
        let most = if engines > 1 { HostId::MAX + 1 } else { 0 };
        Self((0..most).map(|_| AtomicU8::new(0)).collect())
    }

    fn entry(&self, host: HostId) -> Option<&AtomicU8> {
        self.0.get(usize::from(host.number()))
    }

    /// This engine has a link to the host. False: another has one already.
    pub(crate) fn claim(&self, host: HostId, nth: usize) -> bool {
        let Some(entry) = self.entry(host) else { return true };
        let own = nth as u8 + 1;
        let claimed = entry.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok() || claimed == Err(own)
    }

    /// This engine has none any more.
    pub(crate) fn release(&self, host: HostId, nth: usize) {
        if let Some(entry) = self.entry(host) {
            // Another's, if this one never had it.
            let own = nth as u8 + 1;
            let _ = entry.compare_exchange(own, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// The engine that has it; the first where none has.
    fn engine_of(&self, host: HostId) -> usize {
        let entry = self.entry(host).map_or(0, |entry| entry.load(Ordering::SeqCst));
        usize::from(entry.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_at_one_engine() {
        let hosts = Hosts::new(MOST_ENGINES);
        let (one, last) = (HostId::new(1).unwrap(), HostId::new(0x3fff).unwrap());
        let most = MOST_ENGINES - 1;
        assert!(hosts.claim(one, most) && hosts.claim(one, most) && hosts.claim(last, 0));
        assert!(!hosts.claim(one, 0));
        assert_eq!((hosts.engine_of(one), hosts.engine_of(last)), (most, 0));
        hosts.release(one, 0);
        assert_eq!(hosts.engine_of(one), most, "it was not the first's");
        hosts.release(one, most);
        assert!(hosts.claim(one, 0));
        assert!(Hosts::new(1).claim(one, 0));
    }
}
