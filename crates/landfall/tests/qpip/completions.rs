//! Completion queues: shared by many queue pairs, waited for without a lost
//! wake-up, and never overflowing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{
    End, PATIENCE, SERVER, at, channel_pair, channel_pair_waiting, connected, inline_pair, noise,
    pairs, run, tunnel_pair, within,
};
use landfall::qpip::{
    Access, Adapter, CompletionQueue, Mapping, Memory, MemoryRegion, Operation, PostError,
    ProtectionDomain, QueuePair, QueuePairOptions, Status, Wait,
};

/// Queue pairs that complete in one queue.
struct Many {
    domain: ProtectionDomain,
    done: CompletionQueue,
    memory: MemoryRegion,
}

impl Many {
    fn new(adapter: &Adapter) -> Self {
        let domain = adapter.domain().unwrap();
        let memory = domain.register(Memory::zeroed(1 << 20), Access::ReadWrite).unwrap();
        Self { done: adapter.completion_queue(4_096).unwrap(), domain, memory }
    }

    fn pair(&self) -> QueuePair {
        let options = QueuePairOptions::tcp(Mapping::Message);
        self.domain.queue_pair(&options, &self.done, &self.done).unwrap()
    }
}

#[test]
fn many_queue_pairs_complete_in_one_queue() {
    const PAIRS: u64 = 60;
    const ROUNDS: u64 = 5;
    for (one, two) in [channel_pair(), tunnel_pair()] {
        let (mut clients, mut servers) = (Many::new(&one), Many::new(&two));
        let listener = two.listen(at(SERVER)).unwrap();
        let place = |n: u64| n * 64..n * 64 + 64;
        for n in 0..PAIRS {
            let mut pair = servers.pair();
            for round in 0..ROUNDS {
                pair.post_receive(round, &[servers.memory.part(place(n)).unwrap()]).unwrap();
            }
            listener.offer(pair).unwrap();
        }
        let mut connected = Vec::new();
        for n in 0..PAIRS {
            let mut pair = clients.pair();
            for round in 0..ROUNDS {
                let part = clients.memory.part(place(n)).unwrap();
                pair.post_send(n * 100 + round, &[part]).unwrap();
            }
            pair.connect(at(SERVER)).wait_for(PATIENCE).expect("in time").unwrap();
            connected.push(pair);
        }
        let accepted: Vec<_> = (0..PAIRS)
            .map(|_| listener.accept().wait_for(PATIENCE).expect("in time").unwrap())
            .collect();
        // Each queue pair's requests complete in their order.
        let mut rounds = std::collections::HashMap::new();
        for _ in 0..PAIRS * ROUNDS {
            let came = servers.done.wait_for(PATIENCE).unwrap().expect("in time");
            assert_eq!((came.status, came.len), (Status::Success, 64));
            let round = rounds.entry(came.queue_pair).or_insert(0);
            assert_eq!(came.id, *round);
            *round += 1;
        }
        assert_eq!(rounds.len() as u64, PAIRS);
        let mut batch = Vec::new();
        while batch.len() < (PAIRS * ROUNDS) as usize {
            clients.done.ready().wait_for(PATIENCE).expect("in time").unwrap();
            clients.done.poll_into(&mut batch, 16);
        }
        let of_one = |id| batch.iter().filter(move |done| done.queue_pair == id);
        for pair in &connected {
            assert!(of_one(pair.id()).map(|done| done.id).is_sorted());
            assert_eq!(of_one(pair.id()).count() as u64, ROUNDS);
        }
        drop(accepted);
    }
}

/// A ping-pong in which both sides and both adapters sleep at every step: a
/// single wake-up that is lost stops it.
#[test]
fn no_wake_up_is_lost_when_everybody_sleeps() {
    const ROUNDS: u64 = 3_000;
    let pair = channel_pair_waiting(Wait::Block);
    let (mut here, mut there) = connected(&pair, Mapping::Message);
    let pong = std::thread::spawn(move || {
        for n in 0..ROUNDS {
            there.expect(Operation::Receive, n);
            there.post_room(n + 1, 0, 64);
            there.post(n, 0, &[n as u8]);
            there.expect(Operation::Send, n);
        }
        there
    });
    for n in 0..ROUNDS {
        here.post_room(n, 0, 64);
        here.post(n, 0, &[n as u8]);
        here.expect(Operation::Receive, n);
        assert_eq!(here.received(0, 1), [n as u8]);
        here.expect(Operation::Send, n);
    }
    pong.join().unwrap();
}

/// The same for tasks, with a short spin before the sleep, so that arming and
/// completing meet in every order.
#[test]
fn no_wake_up_is_lost_by_tasks_that_race() {
    const ROUNDS: u64 = 1_000;
    for spin in [0, 1, 5, 20] {
        let wait = Wait::SpinThenBlock(Duration::from_micros(spin));
        let pair = channel_pair_waiting(wait);
        run(async {
            let (mut here, mut there) = connected(&pair, Mapping::Message);
            let pong = tokio::spawn(async move {
                let (mut sent, mut received) = (0, 0);
                while sent < ROUNDS || received < ROUNDS {
                    let next = within(there.done.next()).await.unwrap();
                    assert_eq!(next.status, Status::Success);
                    match next.operation {
                        Operation::Send => sent += 1,
                        Operation::Receive => {
                            received += 1;
                            there.post_room(next.id + 1, 0, 64);
                            there.post(next.id, 0, b"pong");
                        }
                    }
                }
                there
            });
            let (mut sent, mut received) = (0, 0);
            here.post_room(0, 0, 64);
            here.post(0, 0, b"ping");
            while sent < ROUNDS || received < ROUNDS {
                match within(here.done.next()).await.unwrap().operation {
                    Operation::Send => sent += 1,
                    Operation::Receive => {
                        received += 1;
                        if received < ROUNDS {
                            here.post_room(received, 0, 64);
                            here.post(received, 0, b"ping");
                        }
                    }
                }
            }
            within(pong).await.unwrap();
        });
    }
}

#[test]
fn who_waits_for_solicited_completions_sleeps_through_others() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        here.post(1, 0, b"a message");
        here.done.ready().wait_for(PATIENCE).expect("in time").unwrap();
        // It was sent: nothing that was asked for.
        let solicited = here.done.solicited().wait_for(Duration::from_millis(20));
        assert!(solicited.is_none(), "{way}");
        here.post_room(2, 0, 64);
        there.expect(Operation::Receive, 0);
        there.post(2, 0, b"an answer");
        here.done.solicited().wait_for(PATIENCE).expect("in time").unwrap();
        here.expect(Operation::Receive, 2);
        let solicited = here.done.solicited().wait_for(Duration::ZERO);
        assert!(solicited.is_none(), "{way}: it was polled");
        // What goes wrong is solicited, too.
        here.post_room(3, 0, 64);
        here.pair.abort().unwrap();
        here.done.solicited().wait_for(PATIENCE).expect("in time").unwrap();
        let flushed = here.next(Operation::Receive);
        assert_eq!((flushed.id, flushed.status), (3, Status::Flushed), "{way}");
    }
}

#[test]
fn a_queue_that_is_full_refuses_and_takes_again() {
    let (one, _two) = channel_pair();
    let domain = one.domain().unwrap();
    let memory = domain.register(Memory::zeroed(64), Access::Write).unwrap();
    let mut done = one.completion_queue(4).unwrap();
    let options = QueuePairOptions { receive_depth: 3, ..QueuePairOptions::tcp(Mapping::Message) };
    let mut pairs = [(); 2].map(|()| domain.queue_pair(&options, &done, &done).unwrap());
    let part = memory.whole().unwrap();
    for id in 0..3 {
        pairs[0].post_receive(id, &[part]).unwrap();
    }
    assert_eq!(pairs[0].post_receive(3, &[part]), Err(PostError::QueueFull));
    pairs[1].post_receive(4, &[part]).unwrap();
    assert_eq!(pairs[1].post_receive(5, &[part]), Err(PostError::CompletionQueueFull));
    let [first, mut second] = pairs;
    drop(first);
    for id in 0..3 {
        let flushed = done.wait_for(PATIENCE).unwrap().expect("in time");
        assert_eq!((flushed.id, flushed.status), (id, Status::Flushed));
        second.post_receive(10 + id, &[part]).unwrap_or_else(|error| {
            assert_eq!((error, id), (PostError::QueueFull, 2));
        });
    }
}

/// Each part of a byte stream is a completion. Where nobody polls them, the
/// sender has to wait; where somebody does again, it goes on.
#[test]
fn a_stream_into_a_tiny_queue_neither_overflows_nor_stops() {
    const TOTAL: usize = 300_000;
    for (one, two) in [channel_pair(), tunnel_pair()] {
        let mut here = End::tcp(&one, Mapping::Stream);
        let domain = two.domain().unwrap();
        let memory = domain.register(Memory::zeroed(1 << 19), Access::Write).unwrap();
        let sends = two.completion_queue(1).unwrap();
        let mut done = two.completion_queue(2).unwrap();
        let options = QueuePairOptions::tcp(Mapping::Stream);
        let mut pair = domain.queue_pair(&options, &sends, &done).unwrap();
        pair.post_receive(0, &[memory.part(0..TOTAL as u64).unwrap()]).unwrap();
        let listener = two.listen(at(SERVER)).unwrap();
        listener.offer(pair).unwrap();
        here.pair.connect(at(SERVER)).wait_for(PATIENCE).expect("in time").unwrap();
        let _pair = listener.accept().wait_for(PATIENCE).expect("in time").unwrap();
        let bytes = noise(9, TOTAL);
        for (id, chunk) in bytes.chunks(5_000).enumerate() {
            here.post(id as u64, id as u64 * 5_056, chunk);
        }
        let mut got = 0;
        loop {
            let part = done.wait_for(PATIENCE).unwrap().expect("in time");
            assert_eq!((part.status, part.offset as usize), (Status::Success, got));
            got += part.len as usize;
            if part.ends_request {
                break;
            }
            std::thread::yield_now();
        }
        let mut came = vec![0; TOTAL];
        memory.copy_out(0, &mut came).unwrap();
        assert!(got == TOTAL && came == bytes);
    }
}

/// A server that shares one queue among its connections has to find out whose a completion
/// is. It polls, then empties `accept` without waiting: anyone who is in a completion is there.
/// All connect at once, so that the queue is emptied while others are being mated; debug
/// builds look at each completion on its way.
#[test]
fn a_connection_can_be_accepted_before_its_first_completion_can_be_polled() {
    const PAIRS: u64 = 64;
    let (one, two) = inline_pair();
    let (clients, mut servers) = (Many::new(&one), Many::new(&two));
    let listener = two.listen(at(SERVER)).unwrap();
    for _ in 0..PAIRS {
        let mut pair = servers.pair();
        pair.post_receive(0, &[servers.memory.part(0..64).unwrap()]).unwrap();
        listener.offer(pair).unwrap();
    }
    let client = |n| {
        let mut pair = clients.pair();
        pair.post_send(n, &[clients.memory.part(0..64).unwrap()]).unwrap();
        drop(pair.connect(at(SERVER)));
        pair
    };
    let _connecting: Vec<QueuePair> = (0..PAIRS).map(client).collect();
    let mut accepted = HashMap::new();
    let (mut heard, started) = (0, Instant::now());
    while heard < PAIRS {
        assert!(started.elapsed() < PATIENCE, "{heard} of {PAIRS}");
        one.turn();
        two.turn();
        while let Some(completion) = servers.done.poll() {
            while let Some(pair) = listener.accept().wait_for(Duration::ZERO) {
                let pair = pair.unwrap();
                accepted.insert(pair.id(), pair);
            }
            assert_eq!(completion.status, Status::Success);
            assert!(accepted.contains_key(&completion.queue_pair), "whose is {completion:?}?");
            heard += 1;
        }
    }
}
