//! What queue pairs do with memory of the other side.

use landfall::verbs::{
    AtomicRequest, Operation, Phase, PostError, QueuePair, RdmaQueuePair, RdmaRequest, Status,
    WordFunction,
};

use super::{End, LEN, May, Reaching, noise, read};

pub(crate) fn rdma<P, K>(id: u64, local: &[P], key: K, at: u64) -> RdmaRequest<'_, P, K> {
    RdmaRequest { id, local, key, at, is_signaled: true, immediate: None }
}

pub(crate) fn memory_of_the_other_side_is_written_read_and_counted_in<C: Reaching>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both(&hosts);
        let shared = C::region_for(&there.host, LEN, May::All);
        let key = there.share(&shared, May::All, &mut here);
        let parts = [here.fill(0, &noise(1, 3000)), here.fill(3001, &noise(2, 500))];
        here.pair.post_write(&rdma(1, &parts, key, 101)).unwrap();
        let wrote = here.next();
        let expected = (Operation::Send, 1, 3500, Status::Success);
        assert_eq!((wrote.operation, wrote.id, wrote.len, wrote.status), expected, "{what}");
        let bytes = read::<C>(&shared, 101, 3500);
        assert!(bytes == [noise(1, 3000), noise(2, 500)].concat());

        // From here on the program there takes no part.
        let into = [C::part(&here.room, 3..1003), C::part(&here.room, 2000..2500)];
        here.pair.post_read(&rdma(2, &into, key, 2601)).unwrap();
        here.expect(Operation::Send, 2);
        assert!(here.received(3, 1000) == bytes[2500..3500]);
        assert!(here.received(2000, 500) == [0; 500], "behind what was written");

        for (id, function) in [
            (3, WordFunction::Add(7)),
            (4, WordFunction::CompareSwap { expected: 7, new: 9 }),
            (5, WordFunction::Add(1)),
        ] {
            let into = C::part(&here.room, 0..8);
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
pub(crate) fn a_message_behind_a_write_finds_it_in_place<C: Reaching>() {
    for (_, hosts) in C::ways() {
        finds_it_in_place::<C>(&hosts);
    }
}

pub(crate) fn finds_it_in_place<C: Reaching>(hosts: &[C::Host; 2]) {
    const ROUNDS: u64 = 60;
    let [mut here, mut there] = End::<C>::both(hosts);
    let shared = C::region_for(&there.host, LEN, May::Write);
    let key = there.share(&shared, May::Write, &mut here);
    for round in 1..=ROUNDS {
        there.post_room(round, 0..64);
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
        let found = read::<C>(&shared, 0, 6000);
        assert!(found == noise(round, 6000), "round {round}: the message came first");
        here.expect(Operation::Send, round);
    }
}

pub(crate) fn memory_is_refused_that_was_not_shared_or_not_for_that<C: Reaching>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both(&hosts);
        let shared = C::region_for(&there.host, 4096, May::Read);
        let key = there.share(&shared, May::Read, &mut here);
        let local = [here.fill(0, b"12345678")];
        let post = |here: &mut End<C>, key, at| here.pair.post_write(&rdma(1, &local, key, at));
        assert_eq!(post(&mut here, key, 0), Err(PostError::NoRight));
        for at in [4090, u64::MAX] {
            let read = here.pair.post_read(&rdma(1, &local, key, at));
            assert_eq!(read, Err(PostError::OutOfBounds));
        }
        let (into, function) = (local[0].clone(), WordFunction::Add(1));
        let count = AtomicRequest { id: 1, into, key, at: 0, function, is_signaled: true };
        assert_eq!(here.pair.post_atomic(&count), Err(PostError::NoRight));
        assert!(C::from_bytes(&vec![0xff; C::to_bytes(&key).len()]).is_none());

        // A key that says more than its owner: the owner decides.
        there.post_room(9, 0..8);
        post(&mut here, C::forged(&key), 0).unwrap();
        let refused = here.next();
        assert_eq!((refused.id, refused.status), (1, Status::RemoteAccess), "{what}");
        assert_eq!(read::<C>(&shared, 0, 8), [0; 8]);
        // That ends the queue pair, at both ends.
        assert!(matches!(here.pair.phase(), Phase::Closed(_)));
        let read = here.pair.post_read(&rdma(1, &local, key, 0));
        assert_eq!(read, Err(PostError::Ended));
        let flushed = there.next();
        assert_eq!((flushed.id, flushed.status), (9, Status::Flushed), "{what}");
    }
}

pub(crate) fn memory_that_was_withdrawn_is_refused<C: Reaching>() {
    for is_used_before in [false, true] {
        for (what, hosts) in C::ways() {
            let [mut here, mut there] = End::<C>::both(&hosts);
            let shared = C::region_for(&there.host, 4096, May::Write);
            let key = there.share(&shared, May::Write, &mut here);
            let local = [here.fill(0, b"early")];
            if is_used_before {
                here.pair.post_write(&rdma(1, &local, key, 0)).unwrap();
                assert!(here.next().status.is_success());
            }
            if C::withdraw(&mut there.pair, &shared, &key).is_none() {
                continue;
            }
            let began = std::time::Instant::now();
            let refused = loop {
                assert!(began.elapsed() < crate::support::PATIENCE, "{what}: it is never refused");
                here.pair.post_write(&rdma(2, &local, key, 8)).unwrap();
                let next = here.next();
                // Who had it mapped is told a little later.
                let may_be_late = is_used_before && !C::WITHDRAWS_AT_ONCE;
                if !(next.status.is_success() && may_be_late) {
                    break next;
                }
            };
            assert_eq!((refused.id, refused.status), (2, Status::RemoteAccess), "{what}");
        }
    }
}
