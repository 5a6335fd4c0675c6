//! Queue pairs over STP: what programs for verbs expect of messages and of memory.

use landfall::stp::{Endpoint, Faults, Memory, Part, Peer, Region, RemoteRights, WordFunction};
use landfall::verbs::stp::{
    CompletionQueue, MemoryKey, QueuePair, QueuePairOptions, SharedReceiveQueue,
};
use landfall::verbs::{
    AtomicRequest, Completion, CompletionQueue as _, Operation, Phase, PostError, QueuePair as _,
    RdmaQueuePair as _, RdmaRequest, ReceiveRequest, SendRequest, Status,
};
use landfall_placement::Random;

use super::{PATIENCE, joined, loopback, noise, pairs, run};
use crate::verbs::answer;

const LEN: usize = 1 << 16;

/// One side of a queue pair, with memory to send from and to receive into.
struct End {
    endpoint: Endpoint,
    done: CompletionQueue,
    pair: QueuePair,
    out: Region,
    room: Region,
}

impl End {
    fn new(endpoint: &Endpoint, connection: &landfall::stp::Connection) -> Self {
        let done = CompletionQueue::new(endpoint, 1024).unwrap();
        let options = QueuePairOptions::default();
        let pair = QueuePair::new(connection, &done, &done, &options).unwrap();
        let register = || endpoint.register(Memory::zeroed(LEN)).unwrap();
        Self { endpoint: endpoint.clone(), done, pair, out: register(), room: register() }
    }

    /// Some of the memory that is sent from, with these bytes in it.
    fn fill(&self, at: u64, bytes: &[u8]) -> Part {
        self.out.copy_in(at, bytes).unwrap();
        self.out.part(at..at + bytes.len() as u64).unwrap()
    }

    fn post_room(&mut self, id: u64, at: u64, len: u64) {
        let into = [self.room.part(at..at + len).unwrap()];
        self.pair.post_receive(&ReceiveRequest { id, into: &into }).unwrap();
    }

    fn received(&self, at: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.room.copy_out(at, &mut bytes).unwrap();
        bytes
    }

    fn next(&mut self) -> Completion {
        self.done.wait_for(PATIENCE).unwrap().expect("it takes far too long")
    }

    fn expect(&mut self, operation: Operation, id: u64) -> Completion {
        let next = self.next();
        assert_eq!((next.operation, next.id, next.status), (operation, id, Status::Success));
        next
    }

    /// Shares memory, by a message.
    fn share(&mut self, part: &Part, rights: RemoteRights, with: &mut Self) -> MemoryKey {
        let key = self.pair.share(part, rights);
        self.pair.post_inline(u64::MAX, &key.to_bytes(), None).unwrap();
        with.post_room(u64::MAX, 0, MemoryKey::LEN as u64);
        let came = with.expect(Operation::Receive, u64::MAX);
        self.expect(Operation::Send, u64::MAX);
        let key = MemoryKey::from_bytes(&with.received(0, came.len).try_into().unwrap());
        key.expect("a key")
    }
}

fn ends(all: &(Endpoint, Endpoint, Peer)) -> (End, End) {
    let (here, there) = run(joined(all));
    (End::new(&all.0, &here), End::new(&all.1, &there))
}

fn rdma(id: u64, local: &[Part], key: MemoryKey, at: u64) -> RdmaRequest<'_, Part, MemoryKey> {
    RdmaRequest { id, local, key, at, is_signaled: true, immediate: None }
}

#[test]
fn a_program_for_verbs_runs_over_stp() {
    for (_, all) in pairs() {
        let (mut here, mut there) = ends(&all);
        here.post_room(0, 0, 64);
        let from = [here.fill(0, b"verbs")];
        here.pair.post_send(&SendRequest::new(1, &from)).unwrap();
        let End { pair, done, room, .. } = &mut there;
        answer(pair, done, room.part(0..64).unwrap(), |len| {
            let mut bytes = vec![0; len as usize];
            room.copy_out(0, &mut bytes).unwrap();
            bytes
        });
        here.expect(Operation::Send, 1);
        let came = here.expect(Operation::Receive, 0);
        assert_eq!(here.received(0, came.len), b"sbrev");
    }
}

/// Messages of one and of several parts, with and without words, some empty, over a path that
/// loses, repeats and reorders: each comes once, whole, in its turn, into the room whose turn
/// it is.
#[test]
fn messages_come_in_order_whatever_the_network_does() {
    const COUNT: u64 = 400;
    let faults =
        Faults { loss: 20_000, reordering: 100_000, duplication: 50_000, ..Faults::default() };
    let bind = |seed| Endpoint::bind(loopback().with_faults(faults, [seed; 32])).unwrap();
    let (a, b) = (bind(1), bind(2));
    let to_b = b.local().unwrap();
    let (mut here, mut there) = ends(&(a, b, to_b));
    let mut random = Random::from_number(27);
    let kinds: Vec<(usize, usize, Option<u32>)> = (0..COUNT)
        .map(|number| {
            let len = random.below(4) * random.below(1_360);
            let parts = 1 + random.below(3);
            (len as usize, parts as usize, random.below(2).eq(&0).then_some(number as u32))
        })
        .collect();
    let window = 16;
    for number in 0..COUNT + window {
        if let Some(number) = number.checked_sub(window) {
            let (len, _, word) = kinds[number as usize];
            let came = there.expect(Operation::Receive, number);
            assert_eq!((came.len as usize, came.immediate), (len, word), "{number}");
            let at = number % window * 4096;
            assert!(there.received(at, came.len) == noise(number, len), "{number}");
            here.expect(Operation::Send, number);
        }
        if number < COUNT {
            let (len, parts, immediate) = kinds[number as usize];
            let (at, room) = (number % window * 4096, number % 2 + 1);
            // Every other one lies in two parts.
            let into: Vec<Part> = (0..room)
                .map(|nth| at + nth * 4096 / room..at + (nth + 1) * 4096 / room)
                .map(|range| there.room.part(range).unwrap())
                .collect();
            there.pair.post_receive(&ReceiveRequest { id: number, into: &into }).unwrap();
            let whole = here.fill(at, &noise(number, len));
            let cut = |nth: usize| (nth * len / parts) as u64;
            let from: Vec<Part> =
                (0..parts).map(|nth| whole.part(cut(nth)..cut(nth + 1)).unwrap()).collect();
            let request = SendRequest { immediate, ..SendRequest::new(number, &from) };
            here.pair.post_send(&request).unwrap();
        }
    }
}

#[test]
fn memory_of_the_other_side_is_written_read_and_counted_in() {
    for (what, all) in pairs() {
        let (mut here, mut there) = ends(&all);
        let shared = there.endpoint.register(Memory::zeroed(LEN)).unwrap();
        let key = there.share(&shared.whole(), RemoteRights::ALL, &mut here);
        let parts = [here.fill(0, &noise(1, 3000)), here.fill(3000, &noise(2, 500))];
        here.pair.post_write(&rdma(1, &parts, key, 100)).unwrap();
        let wrote = here.next();
        let expected = (Operation::Send, 1, 3500, Status::Success);
        assert_eq!((wrote.operation, wrote.id, wrote.len, wrote.status), expected, "{what}");
        let mut bytes = vec![0; 3500];
        shared.copy_out(100, &mut bytes).unwrap();
        assert!(bytes == [noise(1, 3000), noise(2, 500)].concat());

        // From here on the program there takes no part.
        let into = [here.room.part(0..1000).unwrap(), here.room.part(2000..2500).unwrap()];
        here.pair.post_read(&rdma(2, &into, key, 2600)).unwrap();
        here.expect(Operation::Send, 2);
        assert!(here.received(0, 1000) == bytes[2500..3500]);
        assert!(here.received(2000, 500) == [0; 500], "behind what was written");

        for (id, function) in [
            (3, WordFunction::Add(7)),
            (4, WordFunction::CompareSwap { expected: 7, new: 9 }),
            (5, WordFunction::Add(1)),
        ] {
            let into = here.room.part(0..8).unwrap();
            let is_signaled = true;
            let request = AtomicRequest { id, into, key, at: 8, function, is_signaled };
            here.pair.post_atomic(&request).unwrap();
            assert_eq!(here.expect(Operation::Send, id).len, 8);
            let held = u64::from_le_bytes(here.received(0, 8).try_into().unwrap());
            assert_eq!(held, [0, 7, 9][id as usize - 3], "{what}");
        }
    }
}

/// A message never tells of a write that is not in place, nor a write with a word.
#[test]
fn a_message_behind_a_write_finds_it_in_place() {
    const ROUNDS: u64 = 60;
    let faults = Faults { loss: 30_000, reordering: 200_000, ..Faults::default() };
    let bind = |seed| Endpoint::bind(loopback().with_faults(faults, [seed; 32])).unwrap();
    let (a, b) = (bind(3), bind(4));
    let to_b = b.local().unwrap();
    let (mut here, mut there) = ends(&(a, b, to_b));
    let shared = there.endpoint.register(Memory::zeroed(LEN)).unwrap();
    let key = there.share(&shared.whole(), RemoteRights::PUT, &mut here);
    for round in 1..=ROUNDS {
        there.post_room(round, 0, 64);
        let local = [here.fill(0, &noise(round, 6000))];
        let write = rdma(round, &local, key, 0);
        if round % 2 == 0 {
            here.pair.post_write(&RdmaRequest { is_signaled: false, ..write }).unwrap();
            here.pair.post_inline(round, b"look", None).unwrap();
        } else {
            let immediate = Some(round as u32);
            here.pair.post_write(&RdmaRequest { immediate, ..write }).unwrap();
        }
        let came = there.expect(Operation::Receive, round);
        let expected = if round % 2 == 0 { (4, None) } else { (0, Some(round as u32)) };
        assert_eq!((came.len, came.immediate), expected);
        let mut bytes = vec![0; 6000];
        shared.copy_out(0, &mut bytes).unwrap();
        assert!(bytes == noise(round, 6000), "round {round}: the message came first");
        here.expect(Operation::Send, round);
    }
}

#[test]
fn memory_is_refused_that_was_not_shared_or_not_for_that() {
    let (_, all) = pairs().into_iter().next().unwrap();
    let (mut here, mut there) = ends(&all);
    let shared = there.endpoint.register(Memory::zeroed(4096)).unwrap();
    let key = there.share(&shared.whole(), RemoteRights::GET, &mut here);
    let local = [here.fill(0, b"12345678")];
    let post = |here: &mut End, key, at| here.pair.post_write(&rdma(1, &local, key, at));
    assert_eq!(post(&mut here, key, 0), Err(PostError::NoRight));
    let read = here.pair.post_read(&rdma(1, &local, key, 4090));
    assert_eq!(read, Err(PostError::OutOfBounds));
    let read = here.pair.post_read(&rdma(1, &local, key, u64::MAX));
    assert_eq!(read, Err(PostError::OutOfBounds));
    assert!(MemoryKey::from_bytes(&[0xff; MemoryKey::LEN]).is_none());

    // A key that says more than its owner: the owner decides.
    let mut bytes = key.to_bytes();
    bytes[MemoryKey::LEN - 1] = 7;
    let forged = MemoryKey::from_bytes(&bytes).unwrap();
    there.post_room(9, 0, 8);
    post(&mut here, forged, 0).unwrap();
    let refused = here.next();
    assert_eq!((refused.id, refused.status), (1, Status::RemoteAccess));
    let mut bytes = [0; 8];
    shared.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
    // That ends the queue pair, at both ends.
    assert!(matches!(here.pair.phase(), Phase::Closed(_)));
    let read = here.pair.post_read(&rdma(1, &local, key, 0));
    assert_eq!(read, Err(PostError::Ended));
    let flushed = there.next();
    assert_eq!((flushed.id, flushed.status), (9, Status::Flushed));
}

#[test]
fn memory_that_was_withdrawn_is_refused() {
    for is_used_before in [false, true] {
        let (_, all) = pairs().into_iter().next().unwrap();
        let (mut here, mut there) = ends(&all);
        let shared = there.endpoint.register(Memory::zeroed(4096)).unwrap();
        let key = there.share(&shared.whole(), RemoteRights::PUT, &mut here);
        let local = [here.fill(0, b"early")];
        if is_used_before {
            here.pair.post_write(&rdma(1, &local, key, 0)).unwrap();
            assert!(here.next().status.is_success());
        }
        there.pair.withdraw(&key);
        here.pair.post_write(&rdma(2, &local, key, 8)).unwrap();
        let refused = here.next();
        assert_eq!((refused.id, refused.status), (2, Status::RemoteAccess));
    }
}

#[test]
fn many_queue_pairs_over_stp_share_room() {
    const PAIRS: usize = 6;
    const ROUNDS: u64 = 5;
    let (_, all) = pairs().into_iter().next().unwrap();
    let mut done = CompletionQueue::new(&all.1, 64).unwrap();
    let shared = SharedReceiveQueue::new(&done, 4);
    let room = all.1.register(Memory::zeroed(4 * 1024)).unwrap();
    let post = |id: u64| {
        let into = [room.part(id * 1024..(id + 1) * 1024).unwrap()];
        shared.post(&ReceiveRequest { id, into: &into })
    };
    let options = QueuePairOptions::default();
    let listener = all.1.listen(9).unwrap();
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..PAIRS {
        let (here, there) = run(async { tokio::join!(all.0.connect(all.2, 9), listener.accept()) });
        clients.push(End::new(&all.0, &here.unwrap()));
        let pair = QueuePair::sharing(&there.unwrap(), &done, &shared, &options).unwrap();
        servers.push(pair);
    }
    let nothing = ReceiveRequest { id: 1, into: &[] };
    assert_eq!(servers[0].post_receive(&nothing), Err(PostError::SharedReceives));
    let short = SharedReceiveQueue::new(&done, 1);
    short.post(&nothing).unwrap();
    assert_eq!(short.post(&nothing), Err(PostError::QueueFull));
    // They send more than there is room for, before there is any.
    for round in 0..ROUNDS {
        for (nth, client) in clients.iter_mut().enumerate() {
            client.pair.post_inline(round, &noise(round * 100 + nth as u64, 700), None).unwrap();
        }
    }
    (0..4).for_each(|id| post(id).unwrap());
    let mut next = [0; PAIRS];
    for _ in 0..PAIRS as u64 * ROUNDS {
        let came = done.wait_for(PATIENCE).unwrap().expect("it takes far too long");
        let nth = servers.iter().position(|pair| pair.id() == came.queue_pair).unwrap();
        let mut bytes = vec![0; came.len as usize];
        room.copy_out(came.id * 1024, &mut bytes).unwrap();
        assert!(bytes == noise(next[nth] * 100 + nth as u64, 700), "of {nth}");
        next[nth] += 1;
        post(came.id).unwrap();
    }
    assert_eq!(next, [ROUNDS; PAIRS]);
}

#[test]
fn a_message_that_is_too_long_is_told_at_both_ends() {
    let (_, all) = pairs().into_iter().next().unwrap();
    let (mut here, mut there) = ends(&all);
    there.post_room(1, 0, 4);
    there.post_room(2, 64, 64);
    here.pair.post_inline(3, b"five!", None).unwrap();
    here.pair.post_inline(4, b"behind", None).unwrap();
    let (came, sent) = (there.next(), here.next());
    assert_eq!((came.id, came.len, came.status), (1, 5, Status::TooLong));
    assert!(sent.id == 3 && !sent.status.is_success(), "{sent:?}");
    assert_eq!(there.received(0, 4), [0; 4]);
    let (left, behind) = (there.next(), here.next());
    assert_eq!((behind.id, behind.status), (4, Status::Flushed));
    assert_eq!((left.id, left.status), (2, Status::Flushed));
    for end in [&mut here, &mut there] {
        let change = end.done.poll_change().expect("it is told");
        assert_eq!((change.queue_pair, change.phase), (end.pair.id(), end.pair.phase()));
        assert!(matches!(change.phase, Phase::Closed(_)));
    }
}

#[test]
fn queues_that_are_full_refuse_and_a_peer_that_goes_flushes() {
    let (_, all) = pairs().into_iter().next().unwrap();
    let (here, there) = run(joined(&all));
    let done = CompletionQueue::new(&all.0, 3).unwrap();
    let options = QueuePairOptions { sends: 2, receives: 2, inline: 8 };
    let mut pair = QueuePair::new(&here, &done, &done, &options).unwrap();
    let mut done = done;
    assert_eq!(pair.post_inline(0, b"nine more", None), Err(PostError::TooLong));
    pair.post_inline(1, b"one", None).unwrap();
    pair.post_inline(2, b"two", None).unwrap();
    assert_eq!(pair.post_inline(3, b"more", None), Err(PostError::QueueFull));
    pair.post_receive(&ReceiveRequest { id: 4, into: &[] }).unwrap();
    let refused = pair.post_receive(&ReceiveRequest { id: 5, into: &[] });
    assert_eq!(refused, Err(PostError::CompletionQueueFull));
    drop(there);
    let mut left = Vec::new();
    while left.len() < 3 {
        let next = done.wait_for(PATIENCE).unwrap().expect("it takes far too long");
        assert!(!next.status.is_success());
        left.push(next.id);
    }
    left.sort_unstable();
    assert_eq!(left, [1, 2, 4]);
    assert_eq!(pair.post_inline(6, b"late", None), Err(PostError::Ended));
}
