//! [`Service`]: the thread of a node, which is asleep but when processes come, ask and
//! go. No write passes through it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_placement::Instant as Moment;
use landfall_transport::driver::Interest;
use landfall_transport::shm::rendezvous::{Channel, Listener, Readiness, RendezvousError};

use super::host::Host;
use super::node::Node;
use super::remote::PeerProcess;
use super::trouble::{self, locked};
use crate::clan::Error;
use crate::runtime::Source;

const LISTENER: u64 = 0;
const DOORBELLS: u64 = 1;
const FIRST: u64 = 2;

/// A bound for the sleep of the thread: it looks around so often in any case.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// For so long it goes on to hear doorbells when nobody asks for that any more: who
/// sleeps again and again at the descriptor of an event queue does not wake it each time.
const LINGER: Duration = Duration::from_secs(1);

/// A thread that fails to sleep, for want of memory in the kernel say, tries again.
const BREATH: Duration = Duration::from_millis(10);

pub(super) struct Service {
    node: Arc<Node>,
    listener: Listener,
    readiness: Readiness,
    guests: BTreeMap<u64, Arc<PeerProcess>>,
    hosts: BTreeMap<u64, Arc<Host>>,
    next: u64,
    /// When doorbells were waited for last.
    followed: Instant,
    /// Something failed for want of room: it tries again after a while.
    rests: bool,
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
            guests: BTreeMap::new(),
            hosts: BTreeMap::new(),
            next: FIRST,
            followed: Instant::now(),
            rests: false,
            looked: Moment::ZERO,
        })
    }

    fn attend(&mut self, number: u64) {
        match number {
            LISTENER => self.accept(),
            DOORBELLS => self.hear_doorbells(),
            number => {
                if let Some(guest) = self.guests.get(&number)
                    && guest.serve(&self.node).is_err()
                {
                    self.dismiss(number);
                } else if let Some(host) = self.hosts.get(&number)
                    && !host.listen(&self.node)
                {
                    self.lose(number);
                }
            }
        }
    }

    /// Hosts that threads of this node have met.
    fn welcome_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *locked(&self.node.arrivals));
        for host in arrivals {
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
        /// Those that have not said yet what they want: some only look whether somebody
        /// listens here.
        const STRANGERS: usize = 64;
        let most = self.node.config.most_peers.saturating_add(STRANGERS);
        for _ in 0..AT_ONCE {
            match self.listener.accept(Duration::ZERO) {
                Ok(Some(channel)) if self.guests.len() < most => {
                    let number = self.next;
                    self.next += 1;
                    if self.add(&channel, number) {
                        self.guests.insert(number, Arc::new(PeerProcess::new(channel)));
                    }
                }
                // It is turned away: the channel goes.
                Ok(Some(_)) => {}
                Err(RendezvousError::NotAdmitted(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    // No descriptor is left, say. Whoever waits there waits a little more,
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
    fn hear_doorbells(&self) {
        let _ = self.node.sleeper.silence();
        if self.node.has_tasks() {
            self.node.listen();
            self.node.drain();
        }
    }

    fn add(&self, channel: &Channel, number: u64) -> bool {
        channel.interests().all(|interest| self.readiness.add(interest, number).is_ok())
    }

    fn dismiss(&mut self, number: u64) {
        if let Some(guest) = self.guests.remove(&number) {
            guest.channel.interests().for_each(|interest| self.readiness.remove(interest));
            guest.dismiss(&self.node);
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
    }

    /// The node ends: everybody is told.
    pub(super) fn close(mut self) {
        self.welcome_arrivals();
        let hosts: Vec<_> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|number| self.lose(number));
        let guests: Vec<_> = self.guests.keys().copied().collect();
        guests.into_iter().for_each(|number| self.dismiss(number));
        self.node.sleeper.wake();
        self.node.call_queues();
        self.node.end_names();
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
        self.welcome_arrivals();
        self.follow_tasks();
        ControlFlow::Continue(false)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend((!self.rests).then(|| self.readiness.interest()));
    }

    fn next_wake(&self) -> Option<Moment> {
        Some(self.looked + if self.rests { BREATH } else { LOOK_AROUND })
    }

    /// What threads of this node left between the turn and the bell.
    fn has_work(&self) -> bool {
        let has_tasks = self.node.has_tasks() && !self.node.is_followed();
        has_tasks || !locked(&self.node.arrivals).is_empty()
    }
}
