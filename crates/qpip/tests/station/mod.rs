//! A station of queue pairs beside the kernel's own, on a real driver, for tests
//! with peers that no one here wrote.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `conversation` | one connection and its memory |
//! | `exchange` | bytes both ways, with equal hashes |
//! | `bridge` | a bridge on which things go wrong |
//! | `net` | cables, routers, namespaces |
//! | `kernel` | the kernel's side of a conversation |
//!
//! The test's own thread drives the station; the kernel's side runs on threads
//! in its namespace. Everything that is waited for has a bound.
pub mod bridge;
pub mod conversation;
pub mod exchange;
pub mod kernel;
pub mod net;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use landfall_placement::{Area, Engine, Instant, PathState};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::{Clock, Driver, wait};
use qpip::{
    Access, Adapter, CloseReason, Completion, CompletionQueueId, Config, DomainId, EcnFeedback,
    Event, Interface, ListenerId, Mapping, Operation, QueuePairId, QueuePairSetup, ReceiveWork,
    SendWork, Service,
};

pub use conversation::{Conversation, Program, Report, Say, Shape};

/// Nothing that is waited for may stand still for so long.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Nor take so long in all, however it moves.
const AT_MOST: Duration = Duration::from_secs(600);
/// A look at the threads of the kernel's side, when nothing else happens.
const GLANCE: Duration = Duration::from_millis(5);

/// An adapter, the driver of its only path, and its conversations.
pub struct Station<D> {
    pub adapter: Adapter,
    pub driver: D,
    pub regions: Regions,
    pub clock: Clock,
    pub shape: Shape,
    addresses: Vec<IpAddr>,
    domain: DomainId,
    completions: CompletionQueueId,
    conversations: BTreeMap<QueuePairId, Conversation>,
    /// What came of those that are over.
    reports: BTreeMap<QueuePairId, Report>,
    /// Bytes, events and completions so far: whether anything moves.
    moved: u64,
    /// How marks are told of on the connections that were opened.
    pub kinds_of_ecn: BTreeSet<EcnFeedback>,
}

impl<D: Driver> Station<D> {
    /// A station with this interface, on this driver, with these regions.
    pub fn new(config: Config, interface: Interface, driver: D, regions: Regions) -> Self {
        let clock = Clock::start();
        let mut adapter = Adapter::new(config, [7; 32]).unwrap();
        let addresses = interface.addresses.iter().map(|own| own.ip).collect();
        adapter.add_interface(driver.path(), interface).unwrap();
        adapter.handle_path(clock.now(), driver.path(), PathState::Up(driver.limits()));
        let domain = adapter.create_domain().unwrap();
        let completions = adapter.create_completion_queue(1 << 16).unwrap();
        Self {
            adapter,
            driver,
            regions,
            clock,
            shape: Shape::BULK,
            addresses,
            domain,
            completions,
            conversations: BTreeMap::new(),
            reports: BTreeMap::new(),
            moved: 0,
            kinds_of_ecn: BTreeSet::new(),
        }
    }

    /// The station's address of this version of IP, with a port.
    pub fn at(&self, is_ipv4: bool, port: u16) -> SocketAddr {
        let address = self.addresses.iter().find(|address| address.is_ipv4() == is_ipv4);
        SocketAddr::new(*address.unwrap(), port)
    }

    /// Asks for a connection.
    pub fn connect(&mut self, to: SocketAddr, program: impl Program + 'static) -> QueuePairId {
        let pair = self.idle(program);
        self.adapter.connect(self.clock.now(), pair, None, to).unwrap();
        pair
    }

    /// The same, with what the program has to say posted first.
    pub fn connect_saying(
        &mut self,
        to: SocketAddr,
        program: impl Program + 'static,
    ) -> QueuePairId {
        let pair = self.idle(program);
        while self.say_once(pair) {}
        self.adapter.connect(self.clock.now(), pair, None, to).unwrap();
        pair
    }

    pub fn listen(&mut self, at: SocketAddr) -> ListenerId {
        self.adapter.listen(at).unwrap()
    }

    /// Waits for one connection at a listener.
    pub fn offer(&mut self, at: ListenerId, program: impl Program + 'static) -> QueuePairId {
        let pair = self.idle(program);
        self.adapter.offer(at, pair).unwrap();
        pair
    }

    /// A queue pair for a byte stream, with memory of its own.
    fn idle(&mut self, program: impl Program + 'static) -> QueuePairId {
        let shape = self.shape;
        let len = u64::from(shape.requests()) * u64::from(shape.bytes);
        let memory = Memory::zeroed(len as usize);
        let region = self.regions.lend(memory, Rights::READ | Rights::WRITE).unwrap();
        let area = Area::new(region, 0, len);
        let key = self.adapter.register(self.domain, area, Access::ReadWrite).unwrap();
        let pair = self
            .adapter
            .create_queue_pair(&QueuePairSetup {
                domain: self.domain,
                send_completions: self.completions,
                receive_completions: self.completions,
                service: Service::Tcp(Mapping::Stream),
                send_depth: shape.sends,
                receive_depth: shape.receives,
                shared_receives: None,
            })
            .unwrap();
        let conversation = Conversation::new(Box::new(program), region, key, shape);
        self.conversations.insert(pair, conversation);
        self.post_receives(pair);
        pair
    }

    /// Posts no receives from now on, or does so again.
    pub fn set_reading(&mut self, pair: QueuePairId, is_reading: bool) {
        if let Some(conversation) = self.conversations.get_mut(&pair) {
            conversation.is_reading = is_reading;
        }
        self.post_receives(pair);
    }

    /// What came of a conversation so far.
    pub fn report(&self, pair: QueuePairId) -> Report {
        let over = self.reports.get(&pair).cloned();
        over.unwrap_or_else(|| self.conversations[&pair].report())
    }

    /// Is the connection closed, and its memory back?
    pub fn is_over(&self, pair: QueuePairId) -> bool {
        self.reports.contains_key(&pair)
    }

    /// How many conversations are not over.
    pub fn conversations(&self) -> usize {
        self.conversations.len()
    }

    /// Turns until this is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = self.clock.now();
        let mut moved = (self.moved, start);
        while !done(self) {
            let now = self.clock.now();
            if moved.0 != self.moved {
                moved = (self.moved, now);
            }
            let stands_still = now.since(moved.1) > PATIENCE || now.since(start) > AT_MOST;
            assert!(!stands_still, "still not so: {what}\n{}", self.describe());
            self.turn();
        }
    }

    /// Turns until the conversation is over, and gives what came of it.
    #[track_caller]
    pub fn finish(&mut self, pair: QueuePairId) -> Report {
        self.until("the conversation is over", |station| station.is_over(pair));
        self.report(pair)
    }

    /// Turns for a while, whatever happens.
    pub fn turn_for(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.turn();
        }
    }

    /// One turn of the driver, and what follows from it. Sleeps a little where
    /// nothing happened.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        let progress = self.driver.turn(&mut self.adapter, now).unwrap();
        let before = self.moved;
        while let Some(completion) = self.adapter.poll(self.completions) {
            self.complete(completion);
        }
        while let Some(event) = self.adapter.poll_event() {
            self.take(event);
        }
        self.speak();
        if !progress.any() && before == self.moved {
            self.sleep(now);
        }
    }

    fn sleep(&self, now: Instant) {
        let timers =
            [self.adapter.poll_timeout().map(|timer| timer.at), self.driver.poll_timeout()];
        let wake = timers.into_iter().flatten().map(|at| at.since(now)).min();
        let sleep = wake.unwrap_or(GLANCE).min(GLANCE);
        wait::until_ready(&self.driver.interests(), sleep).unwrap();
    }

    fn complete(&mut self, completion: Completion) {
        self.moved += 1;
        let request = completion.id as u32;
        let Some(conversation) = self.conversations.get_mut(&completion.queue_pair) else {
            panic!("a completion of nobody: {completion:?}");
        };
        conversation.under_way -= u32::from(completion.ends_request);
        let (len, is_good) = (completion.len, completion.status.is_success());
        match completion.operation {
            Operation::Send => {
                assert!(completion.ends_request, "{completion:?}");
                conversation.report.sent += if is_good { u64::from(len) } else { 0 };
                conversation.report.failed_sends += u32::from(!is_good);
                conversation.free_sends.push(request);
            }
            Operation::Receive => {
                if len > 0 && is_good {
                    conversation.hear(&self.regions, request, completion.offset, len);
                }
                if completion.ends_request {
                    conversation.free_receives.insert(0, request);
                    self.post_receives(completion.queue_pair);
                }
            }
        }
        self.clear_up(completion.queue_pair);
    }

    fn take(&mut self, event: Event) {
        self.moved += 1;
        match event {
            Event::Connected { queue_pair, local, remote }
            | Event::Accepted { queue_pair, local, remote, .. } => {
                let stats = self.adapter.connection_stats(queue_pair);
                self.kinds_of_ecn.extend(stats.map(|stats| stats.ecn));
                let Some(conversation) = self.conversations.get_mut(&queue_pair) else { return };
                assert_eq!(conversation.report.ends, None, "opened twice");
                conversation.report.ends = Some((local, remote));
            }
            Event::PeerFinished { queue_pair } => {
                let Some(conversation) = self.conversations.get_mut(&queue_pair) else { return };
                conversation.report.peer_finished = true;
                conversation.program.hear_end();
            }
            Event::Closed { queue_pair, reason } => self.close(queue_pair, reason),
            _ => {}
        }
    }

    fn close(&mut self, pair: QueuePairId, reason: CloseReason) {
        let Some(conversation) = self.conversations.get_mut(&pair) else { return };
        assert_eq!(conversation.report.closed, None, "closed twice");
        conversation.report.closed = Some(reason);
        self.clear_up(pair);
    }

    /// A connection that is over, and none of whose requests is under way, goes.
    fn clear_up(&mut self, pair: QueuePairId) {
        let is_over = |conversation: &Conversation| {
            conversation.report.closed.is_some() && conversation.under_way == 0
        };
        if !self.conversations.get(&pair).is_some_and(is_over) {
            return;
        }
        let Some(conversation) = self.conversations.remove(&pair) else { return };
        self.adapter.destroy_queue_pair(self.clock.now(), pair).unwrap();
        self.adapter.deregister(conversation.key).unwrap();
        self.regions.try_take_back(conversation.region).unwrap();
        self.reports.insert(pair, conversation.report());
    }

    fn post_receives(&mut self, pair: QueuePairId) {
        let Some(conversation) = self.conversations.get_mut(&pair) else { return };
        if !conversation.is_reading
            || conversation.report.peer_finished
            || conversation.report.closed.is_some()
        {
            return;
        }
        while let Some(request) = conversation.free_receives.pop() {
            let into = [conversation.buffer(request, conversation.shape.bytes)];
            let work = ReceiveWork { id: u64::from(request), into: &into };
            if self.adapter.post_receive(self.clock.now(), pair, &work).is_err() {
                // It has ended: the event that says so is on its way.
                conversation.free_receives.push(request);
                break;
            }
            conversation.under_way += 1;
        }
    }

    /// Lets every program say what it has to say.
    fn speak(&mut self) {
        let pairs: Vec<QueuePairId> = self.conversations.keys().copied().collect();
        for pair in pairs {
            while self.speak_once(pair) {}
        }
    }

    /// Did it say something?
    fn speak_once(&mut self, pair: QueuePairId) -> bool {
        let Some(conversation) = self.conversations.get(&pair) else { return false };
        let report = &conversation.report;
        if conversation.has_ended || report.ends.is_none() || report.closed.is_some() {
            return false;
        }
        self.say_once(pair)
    }

    fn say_once(&mut self, pair: QueuePairId) -> bool {
        let Some(conversation) = self.conversations.get_mut(&pair) else { return false };
        let Some(request) = conversation.free_sends.pop() else { return false };
        let now = self.clock.now();
        match conversation.say(&self.regions, request) {
            Say::Bytes(len) => {
                let from = [conversation.buffer(request, len as u32)];
                let work = SendWork {
                    id: u64::from(request),
                    from: &from,
                    to: None,
                    is_signaled: true,
                    immediate: None,
                };
                if self.adapter.post_send(now, pair, &work).is_ok() {
                    conversation.under_way += 1;
                } else {
                    // It has ended: the event that says so is on its way.
                    conversation.has_ended = true;
                }
                self.moved += 1;
                return true;
            }
            Say::Nothing => {}
            Say::End => {
                conversation.has_ended = true;
                // It may have ended by itself meanwhile.
                let _ = self.adapter.shutdown(now, pair);
            }
            Say::Reset => {
                conversation.has_ended = true;
                let _ = self.adapter.abort(now, pair);
            }
        }
        conversation.free_sends.push(request);
        false
    }

    /// What is known, for who has to find out why something does not happen.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{:?}\n{:?}\n{:?}\n",
            self.adapter.stats(),
            self.adapter.refusals(),
            self.driver.counters()
        );
        for (pair, conversation) in self.conversations.iter().take(4) {
            let Conversation { under_way, is_reading, has_ended, .. } = conversation;
            text += &format!(
                "{pair}: {under_way} under way, reading {is_reading}, ended {has_ended}: {:?}\n",
                conversation.report()
            );
        }
        text
    }
}
