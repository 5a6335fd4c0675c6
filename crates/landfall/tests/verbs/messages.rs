//! What every carrier does with messages.

use std::time::{Duration, Instant};

use landfall::verbs::{
    Arm, CompletionQueue, Operation, Phase, PostError, QueuePair, ReceiveRequest, SendRequest,
    Status,
};
use landfall_placement::Random;

use super::{Carrier, End, LIMITS, Limits, Wanted, next, noise, read, sleep_at};
use crate::support::PATIENCE;

/// One side answers what it gets, backwards, and sleeps at the descriptor of its queue.
pub(crate) fn a_program_for_verbs_runs<C: Carrier>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both(&hosts);
        here.post_room(0, 0..64);
        there.post_room(7, 0..64);
        here.post(1, 0, b"verbs");
        let came = there.expect(Operation::Receive, 7);
        assert_eq!((came.queue_pair, came.operation), (there.pair.id(), Operation::Receive));
        let mut bytes = there.received(0, came.len);
        bytes.reverse();
        there.pair.post_inline(8, &bytes, None).expect("it is short enough");
        let mut list = Vec::new();
        while list.is_empty() {
            if there.done.arm(Arm::Next) {
                assert!(sleep_at(&there.done, PATIENCE), "{what}: it was not woken");
            }
            there.done.poll_into(&mut list, 8);
        }
        assert_eq!((list[0].id, list[0].status), (8, Status::Success));
        assert_eq!(there.pair.phase(), Phase::Connected);
        here.expect(Operation::Send, 1);
        let came = here.expect(Operation::Receive, 0);
        assert_eq!(here.received(0, came.len), b"sbrev", "{what}");
    }
}

/// Messages of one and of several parts, with and without words, some empty: each comes once,
/// whole, in its turn, into the room whose turn it is.
pub(crate) fn messages_come_in_order<C: Carrier>() {
    for (_, hosts) in C::ways() {
        come_in_order::<C>(&hosts);
    }
}

pub(crate) fn come_in_order<C: Carrier>(hosts: &[C::Host; 2]) {
    const COUNT: u64 = 400;
    let [mut here, mut there] = End::<C>::both(hosts);
    let has_words = here.pair.takes_immediates();
    let mut random = Random::from_number(27);
    let kinds: Vec<(usize, usize, Option<u32>)> = (0..COUNT)
        .map(|number| {
            let len = random.below(4) * random.below(1_360);
            let parts = 1 + random.below(3);
            let word = (has_words && random.below(2) == 0).then_some(number as u32);
            (len as usize, parts as usize, word)
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
            // Every other one lies in two parts, which begin anywhere.
            let into: Vec<C::Part> = (0..room)
                .map(|nth| at + nth * 4095 / room..at + (nth + 1) * 4095 / room)
                .map(|range| C::part(&there.room, range))
                .collect();
            there.pair.post_receive(&ReceiveRequest { id: number, into: &into }).unwrap();
            C::copy_in(&here.out, at, &noise(number, len));
            let cut = |nth: usize| at + (nth * len / parts) as u64;
            let from: Vec<C::Part> =
                (0..parts).map(|nth| C::part(&here.out, cut(nth)..cut(nth + 1))).collect();
            let request = SendRequest { immediate, ..SendRequest::new(number, &from) };
            here.pair.post_send(&request).unwrap();
        }
    }
}

pub(crate) fn a_list_is_posted_whole_or_says_how_far<C: Carrier>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] =
            End::<C>::both_with(&hosts, Limits { sends: 4, ..LIMITS }, 1024);
        let parts: Vec<_> = (0..6u64).map(|n| [here.fill(n * 64, &noise(n, 64))]).collect();
        let list: Vec<_> = (0..).zip(&parts).map(|(id, from)| SendRequest::new(id, from)).collect();
        // There is no room yet: none of them is done.
        let partly = here.pair.post_sends(&list).unwrap_err();
        assert_eq!((partly.posted, partly.error), (4, PostError::QueueFull), "{what}");
        assert!(partly.to_string().contains("the first 4"), "{partly}");
        let rooms: Vec<_> =
            (0..6u64).map(|n| [C::part(&there.room, n * 64..n * 64 + 64)]).collect();
        let into: Vec<_> =
            (0..).zip(&rooms).map(|(id, into)| ReceiveRequest { id, into }).collect();
        there.pair.post_receives(&into).unwrap();
        for id in 0..6 {
            if id == 4 {
                here.pair.post_sends(&list[4..]).unwrap();
            }
            here.expect(Operation::Send, id);
            there.expect(Operation::Receive, id);
            assert!(there.received(id * 64, 64) == noise(id, 64), "{what}");
        }
    }
}

/// As many silent sends as the queue is deep many times over, with few places to complete in.
pub(crate) fn silent_sends_take_no_place<C: Carrier>() {
    const COUNT: u64 = 1_000;
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both_with(&hosts, LIMITS, 256);
        (0..64).for_each(|id| there.post_room(id, id * 64..(id + 1) * 64));
        let from = [here.fill(0, &noise(1, 64))];
        let (mut posted, mut received) = (0, 0);
        let began = Instant::now();
        while received < COUNT {
            assert!(began.elapsed() < PATIENCE, "{what}: it takes far too long");
            if posted < COUNT {
                let is_signaled = posted + 1 == COUNT;
                let request = SendRequest { is_signaled, ..SendRequest::new(posted, &from) };
                match here.pair.post_send(&request) {
                    Ok(()) => posted += 1,
                    Err(PostError::QueueFull) => std::thread::yield_now(),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            while let Some(came) = there.done.poll() {
                assert_eq!((came.id, came.len), (received % 64, 64), "{what}");
                there.post_room(came.id, came.id * 64..(came.id + 1) * 64);
                received += 1;
            }
        }
        here.expect(Operation::Send, COUNT - 1);
        assert!(here.done.poll().is_none(), "{what}: a silent send completed");
    }
}

pub(crate) fn inline_bytes_are_yours_again_at_once<C: Carrier>() {
    const COUNT: u64 = 300;
    for (what, hosts) in C::ways() {
        let limits = Limits { sends: 8, inline: 32, ..LIMITS };
        let [mut here, mut there] = End::<C>::both_with(&hosts, limits, 1024);
        (0..32).for_each(|id| there.post_room(id, id * 64..id * 64 + 64));
        let (mut posted, mut received) = (0u64, 0u64);
        while received < COUNT {
            if posted < COUNT {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&posted.to_le_bytes());
                match here.pair.post_inline(posted, &bytes[..8 + posted as usize % 24], None) {
                    Ok(()) => posted += 1,
                    Err(PostError::QueueFull) => drop(here.expect_any(Operation::Send)),
                    Err(error) => panic!("{what}: {error}"),
                }
                bytes.fill(0xff);
            }
            while let Some(came) = there.done.poll() {
                assert_eq!(u64::from(came.len), 8 + received % 24, "{what}");
                assert_eq!(there.received(came.id * 64, 8), received.to_le_bytes(), "{what}");
                there.post_room(came.id, came.id * 64..came.id * 64 + 64);
                received += 1;
            }
        }
        // Whether or not there is room in the queue.
        while here.pair.post_inline(0, &[0; 32], None).is_ok() {
            assert_eq!(here.pair.post_inline(0, &[0; 33], None), Err(PostError::TooLong));
        }
        assert_eq!(here.pair.post_inline(0, &[0; 33], None), Err(PostError::TooLong));
    }
}

pub(crate) fn a_descriptor_becomes_readable_when_something_completes<C: Carrier>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both(&hosts);
        there.post_room(0, 0..4096);
        for round in 0..20 {
            // A carrier may wake for a look at something else.
            while there.done.arm(Arm::Next) && sleep_at(&there.done, Duration::ZERO) {
                assert!(there.done.poll().is_none(), "{what}: nothing is there");
            }
            here.post(round, 0, &noise(round, 100));
            let came = loop {
                assert!(sleep_at(&there.done, PATIENCE), "{what}: it was not woken");
                match there.done.poll() {
                    Some(came) => break came,
                    None if there.done.arm(Arm::Next) => {}
                    None => break next(&mut there.done),
                }
            };
            assert_eq!(came.len, 100);
            assert!(!sleep_at(&there.done, Duration::ZERO), "{what}: the descriptor is silent");
            there.post_room(round + 1, 0..4096);
        }
        // What is there already is not waited for.
        here.post(100, 0, &noise(1, 100));
        let began = Instant::now();
        while there.done.arm(Arm::Next) {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        assert_eq!(there.expect_any(Operation::Receive).len, 100);
    }
}

/// Two threads that never spin: a wake that got lost would leave both asleep.
pub(crate) fn ends_that_sleep_wake_each_other<C: Carrier<Part: Send>>() {
    for (what, hosts) in C::ways() {
        let [here, there] = End::<C>::both(&hosts);
        let rooms =
            |end: &End<C>| (0..4).map(|n| C::part(&end.room, n * 64..n * 64 + 64)).collect();
        let (of_here, of_there): (Vec<_>, Vec<_>) = (rooms(&here), rooms(&there));
        let End { mut pair, mut done, room: _room, .. } = there;
        std::thread::scope(|scope| {
            scope.spawn(move || volley(&mut pair, &mut done, &of_there, what, false));
            let End { mut pair, mut done, room: _room, .. } = here;
            volley(&mut pair, &mut done, &of_here, what, true);
        });
    }
}

fn volley<Q: QueuePair>(
    pair: &mut Q,
    done: &mut impl CompletionQueue<Error: std::fmt::Debug>,
    rooms: &[Q::Part],
    what: &str,
    serves: bool,
) {
    const ROUNDS: u64 = 1_000;
    let post = |pair: &mut Q, id: u64| {
        let into = [rooms[id as usize].clone()];
        pair.post_receive(&ReceiveRequest { id, into: &into }).unwrap();
    };
    (0..rooms.len() as u64).for_each(|id| post(pair, id));
    let mut sent = 0;
    for round in 0..ROUNDS {
        if serves {
            pair.post_inline(round, b"volley", None).unwrap();
        }
        let mut has_come = false;
        while !has_come {
            if done.arm(Arm::Next) {
                assert!(sleep_at(&*done, PATIENCE), "{what}, round {round}: it was not woken");
            }
            // Behind the last of them nobody waits for another: its sender may be gone.
            while !has_come && let Some(next) = done.poll() {
                assert_eq!(next.status, Status::Success, "{what}: {next:?}");
                match next.operation {
                    Operation::Send => sent += 1,
                    Operation::Receive => {
                        has_come = true;
                        if round + 1 < ROUNDS {
                            post(pair, next.id);
                        }
                    }
                }
            }
        }
        if !serves {
            pair.post_inline(round, b"volley", None).unwrap();
        }
    }
    // The last of them has left before its sender goes.
    while sent < ROUNDS {
        sent += u64::from(next(done).operation == Operation::Send);
    }
}

pub(crate) fn many_queue_pairs_share_room<C: Carrier>() {
    const PAIRS: usize = 6;
    const ROUNDS: u64 = 5;
    for (_, hosts) in C::ways() {
        let mut done = C::done(&hosts[1], 64);
        let mut shared = C::shared(&hosts[1], &done, 4);
        let room = C::region(&hosts[1], 4 * 1024);
        let post = |shared: &mut C::SharedRoom, id: u64| {
            let into = [C::part(&room, id * 1024..(id + 1) * 1024)];
            C::post_shared(shared, &ReceiveRequest { id, into: &into })
        };
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let asks = C::done(&hosts[0], 64);
            let ends = [
                Wanted { done: &asks, shared: None, limits: LIMITS },
                Wanted { done: &done, shared: Some(&shared), limits: LIMITS },
            ];
            let [client, server] = C::join(&hosts, ends);
            clients.push(End::<C>::of(&hosts[0], asks, client));
            servers.push(server);
        }
        let into = [C::part(&room, 0..8)];
        let request = ReceiveRequest { id: 1, into: &into };
        assert_eq!(servers[0].post_receive(&request), Err(PostError::SharedReceives));
        let mut short = C::shared(&hosts[1], &done, 1);
        C::post_shared(&mut short, &request).unwrap();
        assert_eq!(C::post_shared(&mut short, &request), Err(PostError::QueueFull));
        // They send more than there is room for, before there is any.
        for round in 0..ROUNDS {
            for (nth, client) in clients.iter_mut().enumerate() {
                let bytes = noise(round * 100 + nth as u64, 700);
                client.pair.post_inline(round, &bytes, None).unwrap();
            }
        }
        (0..4).for_each(|id| post(&mut shared, id).unwrap());
        let mut received = [0; PAIRS];
        for _ in 0..PAIRS as u64 * ROUNDS {
            let came = next(&mut done);
            let nth = servers.iter().position(|pair| pair.id() == came.queue_pair).unwrap();
            let bytes = read::<C>(&room, came.id * 1024, came.len as usize);
            assert!(bytes == noise(received[nth] * 100 + nth as u64, 700), "of {nth}");
            received[nth] += 1;
            post(&mut shared, came.id).unwrap();
        }
        assert_eq!(received, [ROUNDS; PAIRS]);
        for client in &mut clients {
            for round in 0..ROUNDS {
                client.expect(Operation::Send, round);
            }
        }
    }
}
