//! [`Guest`]: a process that maps memory of this node.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_transport::shm::rendezvous::{Channel, RendezvousError};
use landfall_transport::shm::wake::DoorbellId;
use landfall_transport::shm::watched::Hits;

use super::aperture::Aperture;
use super::node::Node;
use super::speech::Speech;
use super::tripwire::Wire;
use super::trouble::locked;
use crate::clan::Cookie;

/// A process that maps memory of this node.
pub(super) struct Guest {
    pub(super) channel: Channel,
    /// What it maps, and how often: all of which it may tell news.
    granted: Mutex<BTreeMap<u32, Grant>>,
    has_greeted: AtomicBool,
}

struct Grant {
    aperture: Arc<Aperture>,
    count: u32,
}

/// The news of one guest.
pub(super) struct Inlet {
    pub(super) guest: Arc<Guest>,
    pub(super) hits: Hits,
    pub(super) doorbell: DoorbellId,
    /// It wrote what cannot be, and is heard no more.
    pub(super) is_corrupt: bool,
}

/// A guest that has to go, and why does not matter: it is gone, or makes no sense.
pub(super) struct Farewell;

impl Guest {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, granted: Mutex::default(), has_greeted: AtomicBool::new(false) }
    }

    /// Answers all that it has said.
    pub(super) fn serve(self: &Arc<Self>, node: &Node) -> Result<(), Farewell> {
        /// Others want to be served too.
        const AT_ONCE: usize = 64;
        // In this order: what it said before it ended has come when it is gone.
        let is_gone = self.channel.is_gone();
        for _ in 0..AT_ONCE {
            let message = match self.channel.receive(Duration::ZERO) {
                Ok(Some(message)) => message,
                Ok(None) if !is_gone => return Ok(()),
                _ => return Err(Farewell),
            };
            let speech = Speech::decode(message.kind, &message.body).ok_or(Farewell)?;
            match speech {
                Speech::Hello { .. } if !self.has_greeted.swap(true, SeqCst) => self.welcome(node),
                Speech::Map { request, cookie } if self.has_greeted.load(Acquire) => {
                    self.map(node, request, &cookie)
                }
                Speech::Unmap { tag } => {
                    // Its last news are read while it still may tell them.
                    node.drain();
                    self.unmap(tag);
                    Ok(())
                }
                _ => Err(Farewell),
            }?;
        }
        Ok(())
    }

    fn welcome(self: &Arc<Self>, node: &Node) -> Result<(), Farewell> {
        // Only the thread that calls this adds to them.
        if locked(&node.inbox).len() >= node.config.most_peers {
            return Err(Farewell);
        }
        let hits = Hits::create().map_err(|_| Farewell)?;
        let doorbell = node.sleeper.add(hits.doorbell()).map_err(|_| Farewell)?;
        let (kind, body) = Speech::Welcome { host: node.host }.encode();
        let sent = self.channel.send(kind, &body, &[hits.memory().fd(), hits.doorbell().fd()]);
        if sent.is_err() {
            node.sleeper.remove(doorbell);
            return Err(Farewell);
        }
        let guest = Arc::clone(self);
        locked(&node.inbox).push(Inlet { guest, hits, doorbell, is_corrupt: false });
        Ok(())
    }

    /// Checks key and rights, and only then hands over the memory.
    fn map(&self, node: &Node, request: u32, cookie: &Cookie) -> Result<(), Farewell> {
        let Some(aperture) = node.find(cookie) else {
            return self.say(Speech::Refused { request });
        };
        let tag = aperture.tag;
        let mut granted = locked(&self.granted);
        let grant = granted
            .entry(tag)
            .or_insert_with(|| Grant { aperture: Arc::clone(&aperture), count: 0 });
        grant.count = grant.count.checked_add(1).ok_or(Farewell)?;
        drop(granted);
        let (kind, body) = Speech::Mapped { request, tag }.encode();
        let fds = [aperture.watched.data().fd(), aperture.watched.filter_fd()];
        self.channel.send(kind, &body, &fds).map_err(|_| Farewell)?;
        // It may have been withdrawn since it was found, when this guest was not known
        // to have it.
        if aperture.is_withdrawn() {
            self.tell_withdrawn(tag);
        }
        Ok(())
    }

    fn unmap(&self, tag: u32) {
        let mut granted = locked(&self.granted);
        let Some(grant) = granted.get_mut(&tag) else { return };
        grant.count -= 1;
        if grant.count == 0 {
            granted.remove(&tag);
        }
    }

    /// The memory that it calls so, if it maps it.
    pub(super) fn granted(&self, tag: u32) -> Option<Arc<Aperture>> {
        locked(&self.granted).get(&tag).map(|grant| Arc::clone(&grant.aperture))
    }

    /// Everything that it may have touched.
    pub(super) fn touch_all(&self, fired: &mut Vec<Arc<Wire>>) {
        for grant in locked(&self.granted).values() {
            grant.aperture.touch_all(fired);
        }
    }

    pub(super) fn tell_withdrawn(&self, tag: u32) {
        if locked(&self.granted).contains_key(&tag) && self.say(Speech::Withdrawn { tag }).is_err()
        {
            // It does not listen, and shall know all the same.
            self.hang_up();
        }
    }

    /// Its channel becomes ready with that, and the thread takes it down.
    pub(super) fn hang_up(&self) {
        self.channel.hang_up();
    }

    fn say(&self, speech: Speech) -> Result<(), Farewell> {
        let (kind, body) = speech.encode();
        match self.channel.send(kind, &body, &[]) {
            Ok(()) => Ok(()),
            Err(RendezvousError::System { .. }) | Err(_) => Err(Farewell),
        }
    }

    /// It is gone, or has to: what it told before is heard, then all that was for it
    /// goes.
    pub(super) fn dismiss(self: &Arc<Self>, node: &Node) {
        node.drain();
        let mut inbox = locked(&node.inbox);
        if let Some(index) = inbox.iter().position(|inlet| Arc::ptr_eq(&inlet.guest, self)) {
            let inlet = inbox.swap_remove(index);
            drop(inbox);
            node.sleeper.remove(inlet.doorbell);
        }
        self.hang_up();
        locked(&self.granted).clear();
    }
}

impl AsFd for Guest {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
