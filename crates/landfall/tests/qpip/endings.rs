//! How things end: connections, memory, queues, adapters; in order, by force, or
//! because somebody dropped them in the middle.

use std::time::{Duration, Instant};

use super::{
    End, PATIENCE, SERVER, at, channel_pair, connected, half_inline_pair, inline_pair, noise, pairs,
};
use landfall::qpip::{
    Access, Adapter, CloseReason, CommandError, Error, Mapping, Memory, Operation, Phase,
    PostError, QueuePairOptions, Status, Wait,
};

/// Asks until it is so, for a bounded time.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} takes far too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_abort_flushes_here_and_resets_there() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        here.post_room(1, 0, 100);
        here.post_room(2, 100, 100);
        here.pair.abort().unwrap();
        for id in [1, 2] {
            let flushed = here.next(Operation::Receive);
            assert_eq!((flushed.id, flushed.status), (id, Status::Flushed), "{way}");
        }
        let reset = there.next(Operation::Receive);
        assert_eq!((reset.id, reset.status), (0, Status::Reset), "{way}");
        let closed = there.pair.closed().wait_for(PATIENCE).expect("in time").unwrap();
        assert_eq!(closed, CloseReason::Reset, "{way}");
        assert_eq!(here.pair.phase(), Phase::Closed(CloseReason::Aborted), "{way}");
        let part = here.fill(0, b"too late");
        assert_eq!(here.pair.post_send(9, &[part]), Err(PostError::Ended), "{way}");
    }
}

#[test]
fn nobody_listens_there() {
    for (way, (one, _two)) in pairs() {
        let here = End::tcp(&one, Mapping::Stream);
        let refused = here.pair.connect(at(SERVER)).wait_for(PATIENCE).expect("in time");
        assert!(matches!(refused, Err(Error::NotConnected(CloseReason::Refused))), "{way}");
        let again = here.pair.connect(at(SERVER)).wait_for(PATIENCE).expect("in time");
        assert!(matches!(again, Err(Error::Refused(CommandError::NotIdle))), "{way}");
        let there = at("192.0.2.1:80");
        let no_way = End::tcp(&one, Mapping::Stream).pair.connect(there).wait();
        assert!(matches!(no_way, Err(Error::Refused(CommandError::NoRoute(_)))), "{way}");
    }
}

#[test]
fn memory_comes_back_with_what_landed_in_it() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        let busy = there.room.deregister().unwrap_err();
        assert!(busy.error.is_busy(), "{way}: {busy}");
        there.room = busy.into_inner();
        assert!(there.room.with_bytes(|_| ()).unwrap_err().is_busy(), "{way}");
        let bytes = noise(5, 9_000);
        here.post(1, 0, &bytes);
        there.expect(Operation::Receive, 0);
        let (same, old) = (there.room.whole().unwrap(), bytes.clone());
        let is_same = there.room.with_bytes(|memory| memory[..9_000] == old).unwrap();
        assert!(is_same, "{way}");
        // It has a new name: the old one is good no more, and says so.
        there.pair.post_receive(1, &[same]).unwrap();
        let gone = there.next(Operation::Receive);
        assert_eq!((gone.id, gone.status), (1, Status::MemoryGone), "{way}");
        there.post_room(2, 0, 100);
        here.post(2, 0, b"on it goes");
        there.expect(Operation::Receive, 2);
        let memory = there.room.deregister().unwrap();
        assert_eq!(&memory[..10], b"on it goes", "{way}");
        assert!(memory[10..9_000] == bytes[10..], "{way}");
    }
}

#[test]
fn memory_is_reached_within_its_domain_and_rights_only() {
    let (one, two) = channel_pair();
    let mut here = End::tcp(&one, Mapping::Message);
    let (room, out) = (here.room.part(0..10).unwrap(), here.out.part(0..10).unwrap());
    assert_eq!(here.pair.post_send(0, &[room]), Err(PostError::NoRight));
    assert_eq!(here.pair.post_receive(0, &[out]), Err(PostError::NoRight));
    assert_eq!(here.pair.post_send(0, &[]), Err(PostError::Empty));
    assert_eq!(here.pair.post_send(0, &[out.first(0)]), Err(PostError::Empty));
    let (other, foreign) = (End::tcp(&one, Mapping::Message), End::tcp(&two, Mapping::Message));
    for end in [&other, &foreign] {
        let part = end.out.part(0..10).unwrap();
        assert_eq!(here.pair.post_send(0, &[part]), Err(PostError::WrongDomain));
    }
    assert!(matches!(here.room.part(0..u64::MAX), Err(Error::OutOfBounds { .. })));
    assert!(here.room.copy_out(here.room.len(), &mut [0]).is_err());
    let queue = &foreign.done;
    let mixed = here.domain.queue_pair(&QueuePairOptions::udp(), queue, queue);
    assert!(matches!(mixed, Err(Error::ForeignHandle)));
    let nothing = here.domain.register(Memory::zeroed(0), Access::Read);
    assert!(matches!(nothing.unwrap_err().error, Error::Refused(CommandError::BadMemory)));
}

#[test]
fn what_is_dropped_in_the_middle_of_a_transfer_is_cleaned_up() {
    for (way, (one, two)) in pairs() {
        let before = (one.registered(), two.registered());
        for kind in 0..4 {
            let (mut here, there) = connected(&(one.clone(), two.clone()), Mapping::Message);
            for id in 0..8 {
                here.post(id, id * 65_536, &noise(id, 60_000));
            }
            // One message fits the room: the others wait, half of them sent.
            let End { domain, done, pair, out, room, .. } = here;
            match kind {
                0 => drop(pair),
                1 => drop(out),
                2 => drop(done),
                _ => drop(domain),
            }
            drop(room);
            drop(there);
        }
        until(way, || (one.registered(), two.registered()) == before);
        // Ports and queue pairs are free again.
        let (mut here, mut there) = connected(&(one, two), Mapping::Message);
        here.post(0, 0, b"still well");
        there.expect(Operation::Receive, 0);
    }
}

#[test]
fn an_adapter_ends_with_its_last_handle_and_its_peer_hears_a_reset() {
    for (way, (one, two)) in pairs() {
        let pair = (one, two);
        let (here, mut there) = connected(&pair, Mapping::Message);
        drop((here, pair.0));
        let reset = there.next(Operation::Receive);
        assert_eq!(reset.status, Status::Reset, "{way}");
        let closed = there.pair.closed().wait_for(PATIENCE).expect("in time").unwrap();
        assert_eq!(closed, CloseReason::Reset, "{way}");
    }
}

/// A process may end behind it: the last word is out when it returns, and not a moment later.
#[test]
fn an_adapter_that_is_closed_has_said_its_last_word() {
    let pair = half_inline_pair(Wait::Block);
    let (here, there) = connected(&pair, Mapping::Message);
    let (inline, threaded) = pair;
    drop(there);
    threaded.close().wait_for(PATIENCE).expect("in time");
    // What has come by now is seen by these turns; nothing comes later.
    while inline.turn() {}
    assert_eq!(here.pair.phase(), Phase::Closed(CloseReason::Reset));
}

#[test]
fn a_listener_takes_the_queue_pairs_that_wait_there_with_it() {
    for (way, (one, two)) in pairs() {
        let mut there = End::tcp(&two, Mapping::Message);
        there.post_room(5, 0, 100);
        let listener = two.listen(at(SERVER)).unwrap();
        assert!(matches!(two.listen(at(SERVER)), Err(Error::Refused(CommandError::Taken(_)))));
        let End { pair, mut done, .. } = there;
        listener.offer(pair).unwrap();
        assert_eq!(listener.offered(), 1, "{way}");
        drop(listener);
        let flushed = done.wait_for(PATIENCE).unwrap().expect("in time");
        assert_eq!((flushed.id, flushed.status), (5, Status::Flushed), "{way}");
        let here = End::tcp(&one, Mapping::Message);
        let refused = here.pair.connect(at(SERVER)).wait_for(PATIENCE).expect("in time");
        assert!(matches!(refused, Err(Error::NotConnected(CloseReason::Refused))), "{way}");
        // A queue pair of another adapter, or for datagrams, comes back.
        let listener = two.listen(at(SERVER)).unwrap();
        let refused = listener.offer(here.pair).unwrap_err();
        assert!(matches!(refused.error, Error::ForeignHandle), "{way}");
        let udp = End::new(&two, &QueuePairOptions::udp()).pair;
        let refused = listener.offer(udp).unwrap_err();
        assert!(matches!(refused.error, Error::Refused(CommandError::WrongService)), "{way}");
    }
}

#[test]
fn futures_can_be_dropped_at_any_time() {
    let (one, two) = channel_pair();
    let listener = two.listen(at(SERVER)).unwrap();
    drop(listener.accept());
    assert!(listener.accept().wait_for(Duration::ZERO).is_none());
    let (here, mut there) = (End::tcp(&one, Mapping::Stream), End::tcp(&two, Mapping::Stream));
    there.post_room(0, 0, 100);
    listener.offer(there.pair).unwrap();
    drop(here.pair.connect(at(SERVER)));
    let accepted = listener.accept().wait_for(PATIENCE).expect("in time").unwrap();
    until("connecting", || here.pair.is_connected());
    assert_eq!(accepted.remote_address(), here.pair.local_address());
    drop(accepted.closed());
    drop(accepted.close());
    let reason = here.pair.closed().wait_for(PATIENCE).expect("in time").unwrap();
    assert_eq!(reason, CloseReason::Reset, "what was dropped while it closed is reset");
}

#[test]
fn inline_nothing_moves_but_by_turns() {
    let (one, two) = inline_pair();
    let (mut here, mut there) =
        (End::tcp(&one, Mapping::Message), End::tcp(&two, Mapping::Message));
    there.post_room(1, 0, 1_000);
    let listener = two.listen(at(SERVER)).unwrap();
    listener.offer(there.pair).unwrap();
    here.post(2, 0, b"by turns");
    let connecting = here.pair.connect(at(SERVER));
    drop(connecting);
    assert!(there.done.poll().is_none() && !here.pair.is_connected());
    let turns = |one: &Adapter, two: &Adapter| one.turn() | two.turn();
    until("a message", || {
        turns(&one, &two);
        !there.done.is_empty() && !here.done.is_empty()
    });
    let came = there.done.poll().expect("just seen");
    assert_eq!((came.id, came.len, came.status), (1, 8, Status::Success));
    assert_eq!(here.done.poll().map(|done| done.id), Some(2));
    // Idle, it sleeps for as long as it is told, and no longer.
    while turns(&one, &two) {}
    one.wait(Duration::from_millis(1));
}
