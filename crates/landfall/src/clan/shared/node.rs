//! [`Node`]: what the threads of one node share, and how reports of writers reach its
//! tripwires.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, fence};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use clan_dsm::HostId;
use landfall_transport::Wait;
use landfall_transport::shm::rendezvous::Peer;
use landfall_transport::shm::wake::Sleeper;
use landfall_transport::shm::watched::{WatchUpdate, Watched};

use super::SharedConfig;
use super::aperture::{Aperture, new_key};
use super::endpoints::Endpoints;
use super::host::Host;
use super::names;
use super::remote::HitInbox;
use super::tripwire::Wire;
use super::trouble::{self, locked};
use crate::clan::actions::Marks;
use crate::clan::events::QueueWaker;
use crate::clan::names::Name;
use crate::clan::{Cookie, Error, Rights};
use crate::runtime::Signal;

/// What the threads of one node share.
pub(super) struct Node {
    pub(super) host: HostId,
    pub(super) config: SharedConfig,
    /// Where its threads sleep until another process has news.
    pub(super) sleeper: Sleeper,
    /// Reaches the thread that serves the node, and says when it is down.
    pub(super) signal: Arc<Signal>,
    apertures: Mutex<Apertures>,
    /// News from those that map memory of this node. Never locked for long.
    pub(super) inbox: Mutex<Vec<Arc<HitInbox>>>,
    /// Those whose memory this node maps.
    pub(super) hosts: Mutex<BTreeMap<u16, Arc<Host>>>,
    /// Of these the thread does not know yet.
    pub(super) new_hosts: Mutex<Vec<Arc<Host>>>,
    /// Tripwires and event queues that a task waits for, or a thread elsewhere.
    tasks: AtomicI64,
    /// The thread of the node hears the doorbells, for them.
    is_followed: AtomicBool,
    tripwires: AtomicUsize,
    /// The event queues of this node.
    queues: Mutex<Vec<Weak<QueueWaker>>>,
    next_id: AtomicU64,
    /// Where others speak to it.
    pub(super) endpoints: Endpoints,
    /// What its tripwires with actions have left behind.
    pub(super) marks: Arc<Marks>,
    /// What this node offers.
    names: Mutex<BTreeMap<Name, Arc<names::Service>>>,
}

#[derive(Default)]
struct Apertures {
    by_slot: BTreeMap<u16, Arc<Aperture>>,
    next_slot: u16,
    /// The tag of the next: tells each from all that processes may still map.
    next_tag: u32,
    /// Every tag was given once.
    have_tags_wrapped: bool,
}

impl Apertures {
    /// A tag that no memory has, also none that was withdrawn and that a process maps all the same.
    fn new_tag(&mut self, is_mapped: impl Fn(u32) -> bool) -> u32 {
        loop {
            let tag = self.next_tag;
            self.next_tag = tag.wrapping_add(1);
            self.have_tags_wrapped |= self.next_tag == 0;
            let is_taken = || self.by_slot.values().any(|aperture| aperture.tag == tag);
            if !self.have_tags_wrapped || !(is_taken() || is_mapped(tag)) {
                return tag;
            }
        }
    }
}

impl Node {
    pub(super) fn new(host: HostId, config: SharedConfig) -> Result<Arc<Self>, Error> {
        let signal = Signal::new().map_err(|source| Error::System { call: "eventfd", source })?;
        let endpoints = Endpoints::new(config.most_endpoints, config.most_messages)?;
        Ok(Arc::new(Self {
            host,
            config,
            sleeper: Sleeper::new().map_err(trouble::wake)?,
            signal,
            apertures: Mutex::default(),
            inbox: Mutex::default(),
            hosts: Mutex::default(),
            new_hosts: Mutex::default(),
            tasks: AtomicI64::new(0),
            is_followed: AtomicBool::new(false),
            tripwires: AtomicUsize::new(0),
            queues: Mutex::default(),
            next_id: AtomicU64::new(0),
            endpoints,
            marks: Arc::default(),
            names: Mutex::default(),
        }))
    }

    /// Where the node of this number listens.
    pub(super) fn path_of(&self, host: HostId) -> PathBuf {
        self.config.path_of(host)
    }

    pub(super) fn is_down(&self) -> bool {
        self.signal.is_over()
    }

    /// Ends the node: its thread hangs up everywhere and ends.
    pub(super) fn end(&self) {
        self.signal.end();
        self.sleeper.wake();
    }

    // ---- Apertures --------------------------------------------------------------

    pub(super) fn expose(
        self: &Arc<Self>,
        len: u64,
        rights: Rights,
    ) -> Result<Arc<Aperture>, Error> {
        if self.is_down() {
            return Err(Error::NodeGone);
        }
        let create = match rights {
            Rights::Read => Watched::create_for_readers,
            Rights::Write | Rights::ReadWrite => Watched::create,
        };
        let watched = create("landfall-clan", len, u32::MAX).map_err(trouble::watched)?;
        let key = new_key()?;
        let mut apertures = locked(&self.apertures);
        if apertures.by_slot.len() >= usize::from(self.config.most_apertures) {
            return Err(Error::NoRoom("aperture"));
        }
        let (next, taken) = (apertures.next_slot, &apertures.by_slot);
        let slot = (0..=u16::MAX)
            .map(|nth| nth.wrapping_add(next))
            .find(|slot| !taken.contains_key(slot))
            .ok_or(Error::NoRoom("aperture"))?;
        apertures.next_slot = slot.wrapping_add(1);
        let tag = apertures.new_tag(|tag| self.is_mapped(tag));
        let cookie = Cookie::new(self.host, slot, rights, key, len);
        let aperture = Arc::new(Aperture::new(self, watched, cookie, tag));
        apertures.by_slot.insert(slot, Arc::clone(&aperture));
        Ok(aperture)
    }

    /// May a process still call memory of this node so?
    fn is_mapped(&self, tag: u32) -> bool {
        locked(&self.inbox).iter().any(|hit_inbox| hit_inbox.process.has_mapped(tag))
    }

    /// The memory of a cookie that this process shows, if it may map it with that.
    pub(super) fn find(&self, cookie: &Cookie, peer: &Peer) -> Option<Arc<Aperture>> {
        let apertures = locked(&self.apertures);
        let found = apertures.by_slot.get(&cookie.slot())?;
        (found.is_for(peer, cookie) && !found.is_withdrawn()).then(|| Arc::clone(found))
    }

    /// From now on nobody gets this memory, and those that have it are told.
    pub(super) fn withdraw(&self, aperture: &Arc<Aperture>) {
        if !aperture.withdraw() {
            return;
        }
        let mut apertures = locked(&self.apertures);
        let slot = aperture.cookie.slot();
        if apertures.by_slot.get(&slot).is_some_and(|found| Arc::ptr_eq(found, aperture)) {
            apertures.by_slot.remove(&slot);
        }
        drop(apertures);
        for hit_inbox in &*locked(&self.inbox) {
            hit_inbox.process.announce_withdrawal(aperture.tag);
        }
    }

    // ---- Names ------------------------------------------------------------------

    pub(super) fn offer_name(
        &self,
        name: Name,
        service: &Arc<names::Service>,
    ) -> Result<(), Error> {
        match locked(&self.names).entry(name) {
            Entry::Vacant(place) => _ = place.insert(Arc::clone(service)),
            Entry::Occupied(_) => {
                return Err(Error::BadConfig("this node offers this name already"));
            }
        }
        // A node that ended meanwhile has told those only who were there.
        if self.is_down() {
            self.end_names();
        }
        Ok(())
    }

    pub(super) fn withdraw_name(&self, name: &Name) {
        locked(&self.names).remove(name);
    }

    /// Who offers this name.
    pub(super) fn named(&self, name: &Name) -> Option<Arc<names::Service>> {
        locked(&self.names).get(name).cloned()
    }

    /// The node ends: nobody comes any more.
    pub(super) fn end_names(&self) {
        let services: Vec<_> = locked(&self.names).values().cloned().collect();
        services.iter().for_each(|service| service.end());
    }

    // ---- Tripwires --------------------------------------------------------------

    /// Room for one more, and a number for it.
    pub(super) fn new_tripwire(&self) -> Result<u64, Error> {
        let most = self.config.most_tripwires;
        let room = |count| (count < most).then_some(count + 1);
        self.tripwires
            .fetch_update(Relaxed, Relaxed, room)
            .map_err(|_| Error::NoRoom("tripwire"))?;
        Ok(self.next_id.fetch_add(1, Relaxed))
    }

    pub(super) fn forget_tripwire(&self) {
        self.tripwires.fetch_sub(1, Relaxed);
    }

    /// Reads all reports of writers, and fires what they touch.
    #[inline]
    pub(super) fn drain(&self) {
        let mut fired = Vec::new();
        for hit_inbox in &*locked(&self.inbox) {
            hit_inbox.read(self, &mut fired);
        }
        if !fired.is_empty() {
            self.fire(fired);
        }
    }

    /// Fires these, and wakes anyone who waits for one of them.
    pub(super) fn fire(&self, wires: Vec<Arc<Wire>>) {
        let mut is_news = false;
        for wire in wires {
            is_news |= wire.notify_queue();
            if wire.fire() {
                is_news = true;
                wire.wake_task();
            }
        }
        if is_news {
            self.sleeper.wake();
        }
    }

    /// Wakes the waiters of this queue when the node ends.
    pub(super) fn add_queue(&self, call: &Arc<QueueWaker>) {
        let mut queues = locked(&self.queues);
        queues.retain(|call| call.strong_count() > 0);
        queues.push(Arc::downgrade(call));
    }

    /// The node has ended.
    pub(super) fn call_queues(&self) {
        let queues: Vec<_> = locked(&self.queues).iter().filter_map(Weak::upgrade).collect();
        for waker in queues.iter().filter_map(|call| call.ring()) {
            waker.wake();
        }
    }

    /// One more task waits, or one less.
    pub(super) fn count_tasks(&self, change: i64) {
        self.tasks.fetch_add(change, SeqCst);
        if change > 0 && !self.is_followed() {
            // From now on the thread hears the doorbells.
            self.signal.ring();
        }
    }

    /// Does the thread of the node hear the doorbells?
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed.load(SeqCst)
    }

    pub(super) fn set_followed(&self, followed: bool) {
        self.is_followed.store(followed, SeqCst);
    }

    pub(super) fn has_tasks(&self) -> bool {
        self.tasks.load(SeqCst) > 0
    }

    /// Sleeps until `ready` says so, another process has news, or the deadline is over.
    pub(super) fn sleep(
        &self,
        wait: Wait,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.sleeper.sleep(wait, left, ready).map_err(trouble::wake)?;
        if self.has_tasks() {
            // The ring that woke this thread disarmed the doorbell, for tasks too.
            self.listen();
            self.drain();
        }
        Ok(())
    }

    /// Arms the doorbells. A look at the reports follows.
    pub(super) fn listen(&self) {
        self.sleeper.arm();
        fence(SeqCst);
    }
}

impl HitInbox {
    /// Reads the news of one writer, at most as many as there are at a time.
    pub(super) fn read(&self, node: &Node, fired: &mut Vec<Arc<Wire>>) {
        /// A writer that never ceases must not hold up the others.
        const AT_ONCE: usize = 4096;
        let mut news = locked(&self.news);
        if news.is_corrupt {
            return;
        }
        for _ in 0..AT_ONCE {
            match news.hits.poll() {
                Ok(None) => return,
                Ok(Some(WatchUpdate::Hit(hit))) => {
                    if let Some(aperture) = self.process.granted(hit.tag) {
                        aperture.touch(&hit, fired);
                    }
                }
                Ok(Some(WatchUpdate::Lost)) => {
                    node.marks.record_loss();
                    self.process.touch_all(fired);
                }
                Err(_) => {
                    // Nothing that comes from there can be believed. What it may have
                    // touched is looked at once more.
                    news.is_corrupt = true;
                    self.process.touch_all(fired);
                    self.process.hang_up();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use landfall_testkit::TemporaryFolder;

    use super::super::SharedNode;
    use super::*;
    use crate::clan::{Access, Fabric, Local, Remote, Tripwire};

    /// Memory is told apart by a number in reports. A process that still maps memory of long ago
    /// is heard at what it maps now, and the two are not mistaken for each other.
    #[test]
    fn numbers_of_apertures_that_wrap_are_not_mistaken_for_others() {
        let folder = TemporaryFolder::new("shared");
        let open = || SharedNode::open(SharedConfig::new(folder.path())).unwrap();
        let (node, peer) = (open(), open());
        let long = || Some(Instant::now() + Duration::from_secs(60));
        let (memory, cookie) = node.expose(64, Rights::Write).unwrap();
        let old = peer.map(&cookie).unwrap();
        assert_eq!(memory.aperture().tag, 0);
        drop(memory);
        let (alive, _) = node.expose(8, Rights::Write).unwrap();
        locked(&node.0.node.apertures).next_tag = u32::MAX;
        let (last, _) = node.expose(8, Rights::Write).unwrap();
        assert_eq!((alive.aperture().tag, last.aperture().tag), (1, u32::MAX));
        let (memory, cookie) = node.expose(64, Rights::Write).unwrap();
        assert_eq!(memory.aperture().tag, 2, "one is mapped, one is alive");
        let mut window = peer.map(&cookie).unwrap();
        let tripwire = node.watch(&memory, 0..8, Access::Write, None).unwrap();
        for word in 1..3 {
            tripwire.arm();
            window.store(0, word).unwrap();
            window.commit().unwrap();
            assert!(node.wait(&[&tripwire], long()).unwrap(), "it is heard");
            assert_eq!(memory.load(0).unwrap(), word);
        }
        drop(old);
    }
}
