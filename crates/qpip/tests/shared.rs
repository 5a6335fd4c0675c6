//! Room that queue pairs share, and sends that complete in silence.

use std::collections::{BTreeMap, BTreeSet};

use landfall_placement::Area;
use landfall_testkit::model::Faults;
use landfall_testkit::trials;
use proptest::prelude::*;
use qpip::{
    Buffer, Completion, Error, Event, Mapping, Operation, PostError, QueuePairId, QueuePairSetup,
    ReceiveWork, SendWork, Service, SharedReceiveQueueId, SharedReceiveQueueSetup, Status,
};

use crate::two::{Two, address, noise, plain};

const MAPPINGS: [Mapping; 3] = [Mapping::Segment, Mapping::Message, Mapping::Stream];
/// What one connection is promised.
const WINDOW: u32 = 8_000;

/// Side 1 of a wire has room that its queue pairs share.
struct Sharing {
    two: Two,
    shared: SharedReceiveQueueId,
    /// What is posted and has not completed.
    posted: BTreeMap<u64, (Area, Buffer)>,
    next: u64,
    /// What came to each queue pair.
    came: BTreeMap<QueuePairId, Vec<u8>>,
    /// Requests that completed, ever.
    ended: BTreeSet<u64>,
}

impl Sharing {
    fn new(mapping: Mapping, faults: Faults, seed: u64) -> Self {
        let mut two = Two::new(&plain(), mapping, faults, seed);
        let setup = SharedReceiveQueueSetup {
            domain: two.domains[1],
            completions: two.queues[1],
            depth: 64,
            window: WINDOW,
        };
        let shared = two.adapter(1).create_shared_receive_queue(&setup).unwrap();
        let (posted, came, ended) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { two, shared, posted, next: 1_000_000, came, ended }
    }

    fn setup(&self, service: Service) -> QueuePairSetup {
        QueuePairSetup {
            domain: self.two.domains[1],
            send_completions: self.two.queues[1],
            receive_completions: self.two.queues[1],
            service,
            send_depth: 8,
            receive_depth: 1,
            shared_receives: Some(self.shared),
        }
    }

    /// A connection whose end at side 1 shares the room.
    fn open(&mut self, mapping: Mapping) -> [QueuePairId; 2] {
        let setup = self.setup(Service::Tcp(mapping));
        let there = self.two.adapter(1).create_queue_pair(&setup).unwrap();
        self.two.adapter(1).offer(qpip::ListenerId::new(0, 0), there).unwrap();
        let here = self.two.connect(mapping);
        self.two.until("the connection", |two| {
            let is_there = |event: &Event| {
                matches!(event, Event::Accepted { queue_pair, .. } if *queue_pair == there)
            };
            two.events[1].iter().any(is_there)
        });
        self.came.insert(there, Vec::new());
        [here, there]
    }

    fn post(&mut self, len: usize) {
        let (area, buffer) = self.two.lend(1, vec![0; len]);
        self.next += 1;
        let (now, id) = (self.two.wire.now, self.next);
        let work = ReceiveWork { id, into: &[buffer] };
        let posted = self.two.adapter(1).post_shared_receive(now, self.shared, &work);
        assert_eq!(posted, Ok(()));
        self.posted.insert(id, (area, buffer));
    }

    fn send(&mut self, pair: QueuePairId, bytes: &[u8], is_signaled: bool) -> u64 {
        let (_, buffer) = self.two.lend(0, bytes.to_vec());
        self.next += 1;
        let (now, id) = (self.two.wire.now, self.next);
        let work = SendWork { id, from: &[buffer], to: None, is_signaled, immediate: None };
        self.two.adapter(0).post_send(now, pair, &work).unwrap();
        id
    }

    /// Puts what completed where it belongs.
    fn collect(&mut self) {
        self.two.hear();
        for done in std::mem::take(&mut self.two.done[1]) {
            self.received(&done);
        }
    }

    fn received(&mut self, done: &Completion) {
        if done.operation == Operation::Send {
            return;
        }
        let (area, buffer) = *self.posted.get(&done.id).expect("it was posted, and completes once");
        let from = done.offset as usize;
        let bytes = self.two.bytes(1, area)[from..from + done.len as usize].to_vec();
        self.came.get_mut(&done.queue_pair).expect("a queue pair that shares").extend(bytes);
        if done.ends_request {
            self.posted.remove(&done.id);
            assert!(self.ended.insert(done.id), "{done:?} ends for the second time");
            self.two.adapter(1).deregister(buffer.key).expect("its memory is in use no more");
        }
    }
}

/// A message: which connection it goes through, and how long it is.
fn messages() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0usize..5, 1usize..1_400), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(trials::cases(60)))]

    /// Whatever is lost on the wire, however late room is posted: each connection gets its
    /// own bytes, in their order, and each request completes once.
    #[test]
    fn what_comes_lands_in_shared_room_once_and_in_order(
        messages in messages(),
        rooms in prop::collection::vec(1usize..3_000, 1..8),
        which in 0usize..3,
        connections in 1usize..6,
        loss in 0u32..30,
        seed: u64,
    ) {
        let mapping = MAPPINGS[which];
        let faults = Faults { loss, reordering: loss, ..Faults::default() };
        let mut sharing = Sharing::new(mapping, faults, seed);
        let pairs: Vec<_> = (0..connections).map(|_| sharing.open(mapping)).collect();
        let mut sent: BTreeMap<QueuePairId, Vec<u8>> = BTreeMap::new();
        for (nth, (which, len)) in messages.iter().enumerate() {
            let [here, there] = pairs[which % connections];
            let bytes = noise(nth as u64, *len);
            sharing.send(here, &bytes, true);
            sent.entry(there).or_default().extend(bytes);
        }
        let wanted: usize = sent.values().map(Vec::len).sum();
        let mut rooms = rooms.iter().cycle();
        for _ in 0..20_000 {
            sharing.collect();
            if sharing.came.values().map(Vec::len).sum::<usize>() >= wanted {
                break;
            }
            if !sharing.two.wire.turn() {
                // A message that is one segment comes whole.
                let least = if mapping == Mapping::Segment { 1_400 } else { 1 };
                if sharing.posted.len() < 16 {
                    sharing.post((*rooms.next().unwrap()).max(least));
                }
                sharing.two.wire.pass_time();
            }
        }
        for [_, there] in pairs {
            let sent = sent.remove(&there).unwrap_or_default();
            prop_assert!(sharing.came[&there] == sent, "{there} got other bytes");
        }
        // Messages behind a hole may be placed, and forgotten, before anybody is told of them.
        if mapping == Mapping::Stream {
            sharing.two.check_contract();
        }
    }
}

/// The connections that are idle take nothing: the memory of one message serves them all,
/// one after another.
#[test]
fn idle_connections_take_no_room() {
    for mapping in MAPPINGS {
        let mut sharing = Sharing::new(mapping, Faults::default(), 1);
        let pairs: Vec<_> = (0..20).map(|_| sharing.open(mapping)).collect();
        for (nth, [here, there]) in pairs.into_iter().enumerate() {
            sharing.post(1_000);
            let bytes = noise(nth as u64, 1_000);
            sharing.send(here, &bytes, true);
            sharing.two.settle();
            sharing.collect();
            assert!(sharing.came[&there] == bytes, "{mapping:?}: connection {nth}");
            assert!(sharing.posted.is_empty());
        }
    }
}

/// Others were sooner: what was promised is not there, and comes as soon as room is posted,
/// not when a timer of the sender's fires.
#[test]
fn what_found_no_room_comes_as_soon_as_some_is_posted() {
    for mapping in MAPPINGS {
        let mut sharing = Sharing::new(mapping, Faults::default(), 1);
        let [first, second] = [sharing.open(mapping), sharing.open(mapping)];
        sharing.post(1_400);
        sharing.two.settle();
        let bytes = [noise(1, 1_400), noise(2, 1_400)];
        sharing.send(first[0], &bytes[0], true);
        sharing.send(second[0], &bytes[1], true);
        sharing.two.settle();
        sharing.collect();
        assert!(sharing.came[&first[1]] == bytes[0], "{mapping:?}");
        assert!(sharing.came[&second[1]].is_empty(), "{mapping:?}");
        sharing.post(1_400);
        sharing.two.settle();
        sharing.collect();
        assert!(sharing.came[&second[1]] == bytes[1], "{mapping:?}");
    }
}

#[test]
fn datagrams_of_all_ports_land_in_shared_room() {
    let mut sharing = Sharing::new(Mapping::Stream, Faults::default(), 1);
    let ports = [700, 701, 702];
    let pairs = ports.map(|port| {
        let setup = sharing.setup(Service::Udp);
        let pair = sharing.two.adapter(1).create_queue_pair(&setup).unwrap();
        sharing.two.adapter(1).bind(pair, address(1, port)).unwrap();
        sharing.came.insert(pair, Vec::new());
        pair
    });
    let sender = sharing.two.queue_pair(0, Service::Udp);
    sharing.two.adapter(0).bind(sender, address(0, 9)).unwrap();
    sharing.post(100);
    sharing.post(100);
    for port in ports {
        let (_, buffer) = sharing.two.lend(0, noise(u64::from(port), 60));
        let now = sharing.two.wire.now;
        let to = Some(address(1, port));
        let work = SendWork { id: 1, from: &[buffer], to, is_signaled: true, immediate: None };
        sharing.two.adapter(0).post_send(now, sender, &work).unwrap();
    }
    sharing.two.settle();
    sharing.collect();
    // There was room for two; the third is lost, as datagrams are.
    assert!(sharing.came[&pairs[0]] == noise(700, 60) && sharing.came[&pairs[1]] == noise(701, 60));
    assert!(sharing.came[&pairs[2]].is_empty());
    assert_eq!(sharing.two.adapter(1).stats().datagrams_unexpected, 1);
}

#[test]
fn shared_room_belongs_to_its_domain_and_goes_when_nobody_uses_it() {
    let mut sharing = Sharing::new(Mapping::Message, Faults::default(), 1);
    let service = Service::Tcp(Mapping::Message);
    let pair = {
        let setup = sharing.setup(service);
        sharing.two.adapter(1).create_queue_pair(&setup).unwrap()
    };
    sharing.post(100);
    let (shared, now) = (sharing.shared, sharing.two.wire.now);
    let buffer = sharing.posted.values().next().unwrap().1;
    let foreign = {
        let setup = sharing.setup(service);
        let adapter = sharing.two.adapter(1);
        let domain = adapter.create_domain().unwrap();
        let queue = adapter.create_completion_queue(8).unwrap();
        [QueuePairSetup { domain, ..setup }, QueuePairSetup { receive_completions: queue, ..setup }]
    };
    let adapter = sharing.two.adapter(1);
    for setup in foreign {
        assert_eq!(adapter.create_queue_pair(&setup), Err(Error::ForeignQueue));
    }
    let work = ReceiveWork { id: 1, into: &[buffer] };
    assert_eq!(adapter.post_receive(now, pair, &work), Err(PostError::SharedReceives));
    assert!(matches!(adapter.destroy_shared_receive_queue(shared), Err(Error::Busy(_))));
    assert!(matches!(adapter.deregister(buffer.key), Err(Error::Busy(_))));
    adapter.destroy_queue_pair(now, pair).unwrap();
    assert_eq!(adapter.destroy_shared_receive_queue(shared), Ok(()));
    assert!(adapter.deregister(buffer.key).is_ok(), "its memory is the user's again");
    let late = adapter.post_shared_receive(now, shared, &work);
    assert_eq!(late, Err(PostError::UnknownSharedQueue));
    assert!(matches!(adapter.destroy_shared_receive_queue(shared), Err(Error::Unknown(_))));
}

#[test]
fn a_queue_is_full_where_its_completions_would_be() {
    let mut sharing = Sharing::new(Mapping::Message, Faults::default(), 1);
    for _ in 0..64 {
        sharing.post(10);
    }
    let buffer = sharing.posted.values().next().unwrap().1;
    let (shared, now) = (sharing.shared, sharing.two.wire.now);
    let work = ReceiveWork { id: 1, into: &[buffer] };
    let full = sharing.two.adapter(1).post_shared_receive(now, shared, &work);
    assert_eq!(full, Err(PostError::QueueFull));
}

/// Silent sends are told of by number, take no place in the completion queue once they are
/// done, and complete where they fail.
#[test]
fn silent_sends_complete_only_where_they_fail() {
    let mut sharing = Sharing::new(Mapping::Message, Faults::default(), 1);
    let [here, there] = sharing.open(Mapping::Message);
    for _ in 0..4 {
        sharing.post(100);
    }
    sharing.two.events[0].clear();
    for n in 0..3 {
        sharing.send(here, &noise(n, 100), false);
    }
    let loud = sharing.send(here, &noise(3, 100), true);
    sharing.two.settle();
    let done: Vec<_> = sharing.two.done[0].iter().map(|done| done.id).collect();
    assert_eq!(done, [loud], "one completes, and all in front of it are done");
    let told = |two: &Two| {
        let counts = two.events[0].iter().filter_map(|event| match event {
            Event::UnsignaledDone { queue_pair, count } if *queue_pair == here => Some(*count),
            _ => None,
        });
        counts.sum::<u32>()
    };
    assert_eq!(told(&sharing.two), 3);
    sharing.collect();
    assert_eq!(sharing.came[&there].len(), 400);
    // There is no room at the other end for this one, and its connection is reset.
    let silent = sharing.send(here, &noise(4, 100), false);
    sharing.two.settle();
    let now = sharing.two.wire.now;
    sharing.two.adapter(0).abort(now, here).unwrap();
    sharing.two.settle();
    let failed = sharing.two.done[0].last().copied().unwrap();
    assert_eq!((failed.id, failed.status), (silent, Status::Flushed));
    assert_eq!(told(&sharing.two), 3);
}
