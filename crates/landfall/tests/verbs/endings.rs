//! How queue pairs end, whose carrier reaches memory.

use landfall::verbs::{
    CompletionQueue, Operation, Phase, PostError, QueuePair, ReceiveRequest, Status,
};

use super::{Carrier, End, LIMITS, Limits, next};

pub(crate) fn a_message_that_is_too_long_is_told_at_both_ends<C: Carrier>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both(&hosts);
        there.post_room(1, 0..4);
        there.post_room(2, 64..128);
        here.pair.post_inline(3, b"five!", None).unwrap();
        // Where it is known at once, nothing more is posted.
        let behind = here.pair.post_inline(4, b"behind", None);
        let (came, sent) = (there.next(), here.next());
        assert_eq!((came.id, came.len, came.status), (1, 5, Status::TooLong), "{what}");
        assert!(sent.id == 3 && !sent.status.is_success(), "{what}: {sent:?}");
        assert_eq!(there.received(0, 4), [0; 4]);
        match behind {
            Err(error) => assert_eq!(error, PostError::Ended),
            Ok(()) => {
                let behind = here.next();
                assert_eq!((behind.id, behind.status), (4, Status::Flushed));
            }
        }
        let left = there.next();
        assert_eq!((left.id, left.status), (2, Status::Flushed), "{what}");
        for end in [&mut here, &mut there] {
            let change = end.done.poll_change().expect("it is told");
            assert_eq!((change.queue_pair, change.phase), (end.pair.id(), end.pair.phase()));
            assert!(matches!(change.phase, Phase::Closed(_)));
        }
    }
}

pub(crate) fn queues_that_are_full_refuse_and_a_peer_that_goes_flushes<C: Carrier>() {
    for (what, hosts) in C::ways() {
        let limits = Limits { sends: 2, receives: 2, inline: 8 };
        let [mut here, there] = End::<C>::both_with(&hosts, limits, 3);
        let pair = &mut here.pair;
        assert_eq!(pair.post_inline(0, b"nine more", None), Err(PostError::TooLong));
        pair.post_inline(1, b"one", None).unwrap();
        pair.post_inline(2, b"two", None).unwrap();
        assert_eq!(pair.post_inline(3, b"more", None), Err(PostError::QueueFull));
        let into = [C::part(&here.room, 0..64)];
        pair.post_receive(&ReceiveRequest { id: 4, into: &into }).unwrap();
        let refused = pair.post_receive(&ReceiveRequest { id: 5, into: &into });
        assert_eq!(refused, Err(PostError::CompletionQueueFull), "{what}");
        drop(there);
        let mut left = Vec::new();
        while left.len() < 3 {
            let next = next(&mut here.done);
            assert!(!next.status.is_success());
            left.push(next.id);
        }
        left.sort_unstable();
        assert_eq!(left, [1, 2, 4], "{what}");
        assert_eq!(here.pair.post_inline(6, b"late", None), Err(PostError::Ended));
    }
}

/// A full completion queue refuses, and what it has is not lost.
pub(crate) fn a_full_completion_queue_is_told<C: Carrier>() {
    for (what, hosts) in C::ways() {
        let [mut here, mut there] = End::<C>::both_with(&hosts, LIMITS, 2);
        (0..4).for_each(|id| there.post_room(id, id * 64..id * 64 + 64));
        for id in 0..2 {
            here.pair.post_inline(id, b"a message", None).unwrap();
            there.expect(Operation::Receive, id);
        }
        let full = here.pair.post_inline(2, b"a message", None);
        assert_eq!(full, Err(PostError::CompletionQueueFull), "{what}");
        here.expect(Operation::Send, 0);
        here.pair.post_inline(3, b"a message", None).unwrap();
        for id in [1, 3] {
            here.expect(Operation::Send, id);
        }
    }
}
