//! What programs for verbs expect: shared room, silent and inline sends, lists, descriptors,
//! events in the completion queue, and messages that are read where they landed.

use std::time::Duration;

use super::{End, PATIENCE, SERVER, at, channel_pair, connected, noise, pairs};
use crate::verbs::sleep_at;
use landfall::qpip::{
    Access, Adapter, Arm, CloseReason, Completion, CompletionQueue, Mapping, Memory, MemoryParts,
    Operation, Phase, PhaseChange, PostError, QueuePair, QueuePairOptions, SendRequest,
    SharedReceiveOptions, Status,
};

fn next(done: &mut CompletionQueue) -> Completion {
    done.wait_for(PATIENCE).expect("the adapter runs").expect("it takes far too long")
}

/// Connects a queue pair to one that waits at the server.
fn connect(two: &Adapter, waits: QueuePair, asks: &QueuePair) -> QueuePair {
    let listener = two.listen(at(SERVER)).expect("a free port");
    listener.offer(waits).expect("it is idle");
    asks.connect(at(SERVER)).wait_for(PATIENCE).expect("in time").expect("connected");
    listener.accept().wait_for(PATIENCE).expect("in time").expect("accepted")
}

#[test]
fn many_connections_share_the_room_of_a_few_messages() {
    const CONNECTIONS: usize = 12;
    const ROOM: usize = 4;
    const ROUNDS: usize = 6;
    for (what, (one, two)) in pairs() {
        for mapping in [Mapping::Message, Mapping::Stream] {
            let domain = two.domain().unwrap();
            let mut done = two.completion_queue(256).unwrap();
            let memory =
                domain.register_parts(Memory::zeroed(ROOM * 2048), Access::Write, 2048).unwrap();
            let options = SharedReceiveOptions::default();
            let mut shared = domain.shared_receive_queue(&options, &done).unwrap();
            for part in 0..ROOM {
                shared.post(part as u64, &[memory.part(part).unwrap()]).unwrap();
            }
            let options = QueuePairOptions::tcp(mapping);
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for _ in 0..CONNECTIONS {
                let sharing = domain.queue_pair_sharing(&options, (&done, &done), &shared).unwrap();
                let client = End::tcp(&one, mapping);
                servers.push(connect(&two, sharing, &client.pair));
                clients.push(client);
            }
            for round in 0..ROUNDS {
                for (nth, client) in clients.iter_mut().enumerate() {
                    client.post(round as u64, 0, &noise((nth * 100 + round) as u64, 1_000));
                    // One after another: what a connection has begun stays with it.
                    let mut came: Vec<u8> = Vec::new();
                    while came.len() < 1_000 {
                        let completion = next(&mut done);
                        assert_eq!(completion.status, Status::Success, "{what}: {completion:?}");
                        assert_eq!(completion.queue_pair, servers[nth].id(), "{what}");
                        let part = completion.id as usize;
                        let (from, len) = (completion.offset as usize, completion.len as usize);
                        came.extend(&memory.read(part).unwrap()[from..from + len]);
                        if completion.ends_request {
                            shared.post(completion.id, &[memory.part(part).unwrap()]).unwrap();
                        }
                    }
                    assert!(came == noise((nth * 100 + round) as u64, 1_000), "{what} {mapping:?}");
                    client.expect(Operation::Send, round as u64);
                    if mapping == Mapping::Stream {
                        // Streams keep the request that they have begun: here each a fresh one.
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn shared_room_goes_in_any_order() {
    let (one, two) = channel_pair();
    let domain = two.domain().unwrap();
    let done = two.completion_queue(64).unwrap();
    let memory = domain.register(Memory::zeroed(4096), Access::Write).unwrap();
    let mut shared = domain.shared_receive_queue(&SharedReceiveOptions::default(), &done).unwrap();
    let options = QueuePairOptions::tcp(Mapping::Message);
    let mut pair = domain.queue_pair_sharing(&options, (&done, &done), &shared).unwrap();
    let part = memory.whole().unwrap();
    assert_eq!(pair.post_receive(1, &[part]), Err(PostError::SharedReceives));
    for id in 0..8 {
        shared.post(id, &[part]).unwrap();
    }
    let other = one.completion_queue(8).unwrap();
    assert!(domain.queue_pair_sharing(&options, (&other, &other), &shared).is_err());
    drop((shared, memory, done));
    drop(domain);
    drop(pair);
    let began = std::time::Instant::now();
    while two.registered() > 0 {
        assert!(began.elapsed() < PATIENCE, "its memory is never free");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As many silent sends as the queue is deep many times over, with few places to complete in.
#[test]
fn silent_sends_take_no_place_where_nobody_polls() {
    const COUNT: u64 = 2_000;
    for (what, two) in pairs() {
        let (mut here, mut there) = connected(&two, Mapping::Stream);
        let part = here.fill(0, &noise(1, 64));
        let mut posted = 0;
        let mut received = 0;
        let mut rooms = 1;
        while posted < COUNT {
            let is_signaled = posted + 1 == COUNT;
            let from = [part];
            let request = SendRequest { is_signaled, ..SendRequest::new(posted, &from) };
            let (sends, _) = here.pair.split();
            match sends.post_request(request) {
                Ok(()) => posted += 1,
                Err(PostError::QueueFull) => std::thread::yield_now(),
                Err(error) => panic!("{what}: {error}"),
            }
            while let Some(came) = there.done.poll() {
                received += u64::from(came.len);
                if came.ends_request {
                    there.post_room(rooms, 0, 1 << 16);
                    rooms += 1;
                }
            }
        }
        here.expect(Operation::Send, COUNT - 1);
        assert!(here.done.is_empty(), "{what}: a silent send completed");
        while received < COUNT * 64 {
            let came = next(&mut there.done);
            received += u64::from(came.len);
            if came.ends_request {
                there.post_room(rooms, 0, 1 << 16);
                rooms += 1;
            }
        }
    }
}

#[test]
fn connections_are_told_of_in_the_completion_queue() {
    for (what, (one, two)) in pairs() {
        let options = QueuePairOptions { tells: true, ..QueuePairOptions::tcp(Mapping::Stream) };
        let (mut here, mut there) = (End::new(&one, &options), End::new(&two, &options));
        there.post_room(0, 0, 4096);
        here.post_room(0, 0, 4096);
        let ids = [here.pair.id(), there.pair.id()];
        there.pair = connect(&two, there.pair, &here.pair);
        let change = |done: &mut CompletionQueue| loop {
            if let Some(change) = done.poll_change() {
                break change;
            }
            if done.arm(Arm::Next) {
                assert!(sleep_at(done, PATIENCE), "{what}: nothing is told");
            } else if done.poll_change().is_none() && done.poll().is_none() {
                std::thread::yield_now();
            }
        };
        for (done, queue_pair) in [(&mut here.done, ids[0]), (&mut there.done, ids[1])] {
            let phase = Phase::Connected;
            assert_eq!(change(done), PhaseChange { queue_pair, phase }, "{what}");
        }
        here.pair.shutdown().unwrap();
        let finished = PhaseChange { queue_pair: ids[1], phase: Phase::PeerFinished };
        assert_eq!(change(&mut there.done), finished, "{what}");
        there.pair.abort().unwrap();
        let closed = |queue_pair, why| PhaseChange { queue_pair, phase: Phase::Closed(why) };
        assert_eq!(change(&mut there.done), closed(ids[1], CloseReason::Aborted), "{what}");
        assert_eq!(change(&mut here.done), closed(ids[0], CloseReason::Reset), "{what}");
    }
}

#[test]
fn a_message_is_read_where_it_landed_while_others_land() {
    for (what, two) in pairs() {
        let (mut here, mut there) = connected(&two, Mapping::Message);
        // The room of `connected` takes the first message.
        here.post(0, 0, &noise(0, 10));
        there.expect(Operation::Receive, 0);
        let memory: MemoryParts =
            there.domain.register_parts(Memory::zeroed(4 * 1024), Access::Write, 1024).unwrap();
        for part in 0..4 {
            there.pair.post_receive(part as u64, &[memory.part(part).unwrap()]).unwrap();
        }
        let mut guards = Vec::new();
        for id in 0..4u64 {
            here.post(id + 1, id * 1024, &noise(id, 900));
            let came = there.expect(Operation::Receive, id);
            guards.push((id, came.len as usize, memory.read(id as usize).unwrap()));
        }
        for (id, len, guard) in &guards {
            assert!(guard[..*len] == noise(*id, 900), "{what}: message {id}");
        }
        assert!(memory.read(1).is_err(), "it is borrowed");
        assert!(memory.part(4).is_err() && memory.read(4).is_err());
        guards.remove(1);
        assert!(memory.read(1).is_ok());
    }
}

#[test]
fn a_datagram_may_be_empty() {
    for (what, (one, two)) in pairs() {
        let (mut here, mut there) =
            (End::new(&one, &QueuePairOptions::udp()), End::new(&two, &QueuePairOptions::udp()));
        here.pair.bind(at("10.0.0.1:7001")).unwrap();
        there.pair.bind(at(SERVER)).unwrap();
        there.post_room(1, 0, 64);
        let nothing = here.out.part(0..0).unwrap();
        assert_eq!(here.pair.post_send_to(1, &[], at(SERVER)), Err(PostError::Empty));
        here.pair.post_send_to(1, &[nothing], at(SERVER)).unwrap();
        here.expect(Operation::Send, 1);
        let came = there.expect(Operation::Receive, 1);
        assert_eq!((came.len, came.from), (0, Some(at("10.0.0.1:7001"))), "{what}");
    }
}
