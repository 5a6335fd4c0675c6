//! Messages, streams and datagrams between two adapters, over every way that
//! needs no privileges.

use super::{End, PATIENCE, at, channel_pair_waiting, connected, half_inline_pair, noise, pairs};
use landfall::qpip::{
    CloseReason, LengthPrefix, Mapping, Operation, Phase, PostError, QueuePairOptions, Reassembler,
    Status, Wait,
};

#[test]
fn a_message_arrives_in_the_memory_that_was_posted() {
    for (way, pair) in pairs() {
        for mapping in [Mapping::Message, Mapping::Segment] {
            let (mut here, mut there) = connected(&pair, mapping);
            let bytes = noise(1, 20_000);
            here.post(7, 0, &bytes);
            let came = there.expect(Operation::Receive, 0);
            assert_eq!(came.len, 20_000, "{way} {mapping:?}");
            assert!(came.ends_message && came.ends_request, "{way} {mapping:?}");
            assert!(there.received(0, 20_000) == bytes, "{way} {mapping:?}");
            assert_eq!(here.expect(Operation::Send, 7).len, 20_000, "{way} {mapping:?}");
        }
    }
}

#[test]
fn messages_are_gathered_and_scattered() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        // The room that `connected` posted takes the first one.
        here.post(0, 0, b"first");
        there.expect(Operation::Receive, 0);
        let rooms = [(1_000, 10), (5_000, 3_000), (0, 40)];
        let rooms = rooms.map(|(at, len)| there.room.part(at..at + len).unwrap());
        there.pair.post_receive(1, &rooms).unwrap();
        let bytes = noise(3, 3_000);
        let parts = [
            here.fill(50_000, &bytes[..1]),
            here.fill(9, &bytes[1..2_000]),
            here.fill(7_777, &bytes[2_000..]),
        ];
        here.pair.post_send(1, &parts).unwrap();
        assert_eq!(there.expect(Operation::Receive, 1).len, 3_000, "{way}");
        assert!(there.received(1_000, 10) == bytes[..10], "{way}");
        assert!(there.received(5_000, 2_990) == bytes[10..], "{way}");
        let five = [parts[0]; 5];
        assert_eq!(here.pair.post_send(2, &five), Err(PostError::TooManyBuffers));
    }
}

#[test]
fn many_messages_flow_both_ways() {
    const MESSAGES: u64 = 400;
    const LEN: usize = 10_000;
    const SLOTS: u64 = 16;
    fn run(mut end: End, seed: u64, peer: u64) {
        let slot = |n: u64| n % SLOTS * LEN as u64;
        let (mut sent, mut received) = (0, 0);
        for n in 0..SLOTS {
            end.post_room(n + 1, slot(n), LEN as u64);
            end.post(n, slot(n), &noise(seed + n, LEN));
        }
        while sent < MESSAGES || received < MESSAGES {
            let next = end.done.wait_for(PATIENCE).unwrap().expect("it takes far too long");
            assert_eq!(next.status, Status::Success, "{next:?}");
            if next.operation == Operation::Send {
                assert_eq!(next.id, sent);
                sent += 1;
                let n = next.id + SLOTS;
                if n < MESSAGES {
                    end.post(n, slot(n), &noise(seed + n, LEN));
                }
            } else if next.id > 0 {
                let n = next.id - 1;
                assert_eq!((n, next.len as usize), (received, LEN));
                assert!(end.received(slot(n), LEN) == noise(peer + n, LEN), "message {n}");
                received += 1;
                if n + SLOTS < MESSAGES {
                    end.post_room(n + SLOTS + 1, slot(n), LEN as u64);
                }
            }
        }
        // The other side may still wait for an acknowledgement.
        end.pair.close().wait_for(PATIENCE).expect("in time").unwrap();
    }
    for (_, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        // Uses the room up that was posted by `connected`.
        here.post(0, 0, b"begin");
        there.expect(Operation::Receive, 0);
        here.expect(Operation::Send, 0);
        std::thread::scope(|scope| {
            scope.spawn(move || run(here, 0, 1 << 32));
            scope.spawn(move || run(there, 1 << 32, 0));
        });
    }
}

#[test]
fn a_byte_stream_carries_messages_by_a_reassembler() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Stream);
        let mut wanted: Vec<Vec<u8>> = (0..40).map(|n| noise(n, n as usize * 700)).collect();
        wanted.push(b"end".to_vec());
        let mut place = 0;
        for (id, message) in wanted.iter().enumerate() {
            let framed = [&(message.len() as u32).to_be_bytes()[..], message].concat();
            here.post(id as u64, place, &framed);
            place += framed.len() as u64;
        }
        let mut got: Vec<Vec<u8>> = Vec::new();
        let mut reassembler = Reassembler::new(LengthPrefix::new(4), 1 << 20);
        // The first room, which `connected` posted, and these in turn: while one
        // is read others are open to the other side.
        let place = |id: u64| (1 << 16) + id % 4 * 16_384;
        for id in 1..5 {
            there.post_room(id, place(id), 10_000);
        }
        while got.last().is_none_or(|last| last != b"end") {
            let part = there.next(Operation::Receive);
            assert_eq!(part.status, Status::Success, "{way}");
            let start = if part.id == 0 { 0 } else { place(part.id) };
            let bytes = there.received(start + u64::from(part.offset), part.len as usize);
            reassembler.push(&bytes, |message| got.push(message.to_vec())).unwrap();
            if part.ends_request && part.id > 0 {
                there.post_room(part.id + 4, place(part.id), 10_000);
            }
        }
        assert!(got == wanted, "{way}");
        assert_eq!(reassembler.pending(), 0, "{way}");
    }
}

#[test]
fn datagrams_go_to_whom_they_are_addressed() {
    for (way, (one, two)) in pairs() {
        for (from, to) in [("10.0.0.1:5000", "10.0.0.2:53"), ("[fd00::1]:5000", "[fd00::2]:53")] {
            let options = QueuePairOptions::udp();
            let (mut here, mut there) = (End::new(&one, &options), End::new(&two, &options));
            let part = here.fill(0, b"question");
            let unbound = here.pair.post_send_to(0, &[part], at(to));
            assert_eq!(unbound, Err(PostError::NotBound), "{way}");
            assert_eq!(here.pair.bind(at(from)).unwrap(), at(from), "{way}");
            assert_eq!(there.pair.bind(at(to)).unwrap(), at(to), "{way}");
            assert_eq!(here.pair.post_send(0, &[part]), Err(PostError::NoDestination), "{way}");
            there.post_room(1, 0, 100);
            there.post_room(2, 100, 3);
            here.pair.post_send_to(1, &[part], at(to)).unwrap();
            here.pair.post_send_to(2, &[part], at(to)).unwrap();
            let came = there.expect(Operation::Receive, 1);
            assert_eq!((came.len, came.from), (8, Some(at(from))), "{way}");
            assert_eq!(there.received(0, 8), b"question", "{way}");
            let long = there.next(Operation::Receive);
            assert_eq!((long.id, long.status, long.len), (2, Status::TooLong, 8), "{way}");
            here.expect(Operation::Send, 1);
            here.expect(Operation::Send, 2);
        }
    }
}

#[test]
fn both_sides_finish_and_both_hear_of_it() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        here.post(1, 0, b"the last word");
        here.pair.shutdown().unwrap();
        let part = here.fill(100, b"one more");
        assert_eq!(here.pair.post_send(2, &[part]), Err(PostError::Ended), "{way}");
        there.expect(Operation::Receive, 0);
        there.pair.peer_finished().wait_for(PATIENCE).expect("in time").unwrap();
        assert_eq!(there.pair.phase(), Phase::PeerFinished, "{way}");
        // Half closed, it still sends.
        here.post_room(3, 0, 100);
        there.post(3, 0, b"the very last");
        assert_eq!(here.expect(Operation::Receive, 3).len, 13, "{way}");
        there.pair.close().wait_for(PATIENCE).expect("in time").unwrap();
        let closed = here.pair.closed().wait_for(PATIENCE).expect("in time").unwrap();
        assert_eq!(closed, CloseReason::Finished, "{way}");
    }
}

#[test]
fn however_threads_wait_and_whoever_runs_the_adapter() {
    // Threads that spin are more than most machines have cores.
    for (wait, rounds) in [(Wait::Block, 30), (Wait::BALANCED, 30), (Wait::Spin, 3)] {
        for pair in [channel_pair_waiting(wait), half_inline_pair(wait)] {
            let (mut here, mut there) = connected(&pair, Mapping::Message);
            let echo = std::thread::spawn(move || {
                for n in 0..rounds {
                    let came = there.expect(Operation::Receive, n);
                    let bytes = there.received(0, came.len as usize);
                    there.post_room(n + 1, 0, 1 << 16);
                    there.post(n, 0, &bytes);
                    there.expect(Operation::Send, n);
                }
                there
            });
            for n in 0..rounds {
                let bytes = noise(n, 1 + (n as usize * 977) % 30_000);
                here.post_room(n, 0, 1 << 16);
                here.post(n, 0, &bytes);
                let came = here.expect(Operation::Receive, n);
                assert_eq!(came.len as usize, bytes.len(), "{wait:?}");
                here.expect(Operation::Send, n);
                assert!(here.received(0, bytes.len()) == bytes, "{wait:?}");
            }
            echo.join().unwrap();
        }
    }
}
