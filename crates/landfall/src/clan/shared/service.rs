//! [`Service`]: the thread of a node, which only wakes when processes come, ask and
//! go. No write passes through it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_placement::Instant as Moment;
use landfall_transport::driver::Interest;
use landfall_transport::shm::rendezvous::{Channel, Listener, Readiness, RendezvousError};

use super::endpoints::Carrier;
use super::host::Host;
use super::node::Node;
use super::remote::PeerProcess;
use super::trouble::{self, locked};
use crate::clan::Error;
use crate::runtime::Source;

const LISTENER: u64 = 0;
const DOORBELLS: u64 = 1;
const FIRST: u64 = 2;

/// The longest sleep of the thread.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// How long it keeps waiting for doorbells when nobody asks for that any more: a program that
/// sleeps again and again at the descriptor of an event queue does not wake it each time.
const LINGER: Duration = Duration::from_secs(1);

/// A thread that fails to sleep, for want of memory in the kernel say, tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Service {
    node: Arc<Node>,
    listener: Listener,
    readiness: Readiness,
    processes: BTreeMap<u64, Arc<PeerProcess>>,
    hosts: BTreeMap<u64, Arc<Host>>,
    next: u64,
    /// When doorbells were waited for last.
    followed: Instant,
    /// Something failed for want of room: it tries again after a while.
    rests: bool,
    /// Messages wait for a process that does not read its socket.
    waits: bool,
    /// The last turn.
    looked: Moment,
}

impl Service {
    pub(super) fn new(node: &Arc<Node>, listener: Listener) -> Result<Self, Error> {
        let readiness = Readiness::new().map_err(trouble::rendezvous)?;
        readiness.add(listener.interest(), LISTENER).map_err(trouble::rendezvous)?;
        Ok(Self {
            node: Arc::clone(node),
            listener,
            readiness,
            processes: BTreeMap::new(),
            hosts: BTreeMap::new(),
            next: FIRST,
            followed: Instant::now(),
            rests: false,
            waits: false,
            looked: Moment::ZERO,
        })
    }

    fn attend(&mut self, number: u64) {
        match number {
            LISTENER => self.accept(),
            DOORBELLS => self.rearm_doorbells(),
            number => {
                if let Some(process) = self.processes.get(&number)
                    && process.serve(&self.node).is_err()
                {
                    self.remove_peer(number);
                } else if let Some(host) = self.hosts.get(&number)
                    && !host.listen(&self.node)
                {
                    self.lose(number);
                }
            }
        }
    }

    /// Hosts that threads of this node have met.
    fn add_new_hosts(&mut self) {
        let new_hosts = std::mem::take(&mut *locked(&self.node.new_hosts));
        for host in new_hosts {
            let number = self.next;
            self.next += 1;
            let added = self.add(&host.channel, number);
            self.hosts.insert(number, host);
            if !added {
                self.lose(number);
            }
        }
    }

    fn accept(&mut self) {
        const AT_ONCE: usize = 16;
        /// Processes that have not said hello yet: some only probe whether a node
        /// listens here.
        const STRANGERS: usize = 64;
        let most = self.node.config.most_peers.saturating_add(STRANGERS);
        for _ in 0..AT_ONCE {
            match self.listener.accept(Duration::ZERO) {
                Ok(Some(channel)) if self.processes.len() < most => {
                    let number = self.next;
                    self.next += 1;
                    if self.add(&channel, number) {
                        self.processes.insert(number, Arc::new(PeerProcess::new(channel)));
                    }
                }
                // It is turned away: the channel goes.
                Ok(Some(_)) => {}
                Err(RendezvousError::NotAdmitted(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    // No descriptor is left, say. Anyone who waits there waits a little more,
                    // and this thread does not run in circles.
                    self.rests = true;
                    return;
                }
            }
        }
    }

    /// Waits for doorbells while tasks do: threads hear them themselves.
    fn follow_tasks(&mut self) {
        let node = &self.node;
        let interest = node.sleeper.interest();
        if node.has_tasks() {
            self.followed = Instant::now();
            if !node.is_followed() {
                let added = self.readiness.add_edges(interest, DOORBELLS).is_ok();
                node.set_followed(added);
            }
        } else if node.is_followed() && self.followed.elapsed() >= LINGER {
            self.readiness.remove(interest);
            node.set_followed(false);
            // Who came meanwhile may have thought that it is heard.
            if node.has_tasks() {
                self.follow_tasks();
            }
        }
    }

    /// A ring ends the announcement of all that wait, tasks and threads: for tasks it
    /// is made anew, and then the news are looked at. A thread that sleeps takes the
    /// ring itself, and does the same when it goes (see `Node::sleep`).
    fn rearm_doorbells(&self) {
        let _ = self.node.sleeper.silence();
        if self.node.has_tasks() {
            self.node.listen();
            self.node.drain();
        }
    }

    fn add(&self, channel: &Channel, number: u64) -> bool {
        channel.interests().all(|interest| self.readiness.add(interest, number).is_ok())
    }

    fn remove_peer(&mut self, number: u64) {
        if let Some(process) = self.processes.remove(&number) {
            process.channel.interests().for_each(|interest| self.readiness.remove(interest));
            process.remove_peer(&self.node);
            self.node.endpoints.lose(&self.node, &Carrier::Process(process));
        }
    }

    fn lose(&mut self, number: u64) {
        let Some(host) = self.hosts.remove(&number) else { return };
        host.channel.interests().for_each(|interest| self.readiness.remove(interest));
        let mut hosts = locked(&self.node.hosts);
        if hosts.get(&host.host.number()).is_some_and(|found| Arc::ptr_eq(found, &host)) {
            hosts.remove(&host.host.number());
        }
        drop(hosts);
        host.lose(&self.node);
        self.node.endpoints.lose(&self.node, &Carrier::Host(host));
    }

    /// The node ends: all processes are notified.
    pub(super) fn close(mut self) {
        self.add_new_hosts();
        let hosts: Vec<_> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|number| self.lose(number));
        let processes: Vec<_> = self.processes.keys().copied().collect();
        processes.into_iter().for_each(|number| self.remove_peer(number));
        self.node.sleeper.wake();
        self.node.call_queues();
        self.node.end_names();
        self.node.endpoints.end();
    }
}

impl Source for Service {
    type Output = Infallible;

    fn turn(&mut self, now: Moment) -> ControlFlow<Infallible, bool> {
        (self.looked, self.rests) = (now, false);
        match self.readiness.wait(Duration::ZERO) {
            Ok(ready) => ready.into_iter().for_each(|number| self.attend(number)),
            Err(_) => self.rests = true,
        }
        self.add_new_hosts();
        self.follow_tasks();
        self.waits = self.node.endpoints.retry();
        ControlFlow::Continue(false)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend((!self.rests).then(|| self.readiness.interest()));
    }

    fn next_wake(&self) -> Option<Moment> {
        Some(self.looked + if self.rests || self.waits { RETRY_PAUSE } else { MAX_SLEEP })
    }

    /// What threads of this node left between the turn and the bell.
    fn has_work(&self) -> bool {
        let has_tasks = self.node.has_tasks() && !self.node.is_followed();
        let waits = !self.waits && self.node.endpoints.is_blocked();
        has_tasks || waits || !locked(&self.node.new_hosts).is_empty()
    }
}
