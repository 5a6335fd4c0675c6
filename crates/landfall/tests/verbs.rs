//! Programs for verbs, which run over each carrier of them.

use std::os::fd::{AsFd, AsRawFd};

use landfall::verbs::{Arm, CompletionQueue, Operation, Phase, QueuePair, ReceiveRequest, Status};
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;

use crate::support::PATIENCE;

/// Answers what it gets, backwards.
pub(crate) fn answer<Q, C>(pair: &mut Q, done: &mut C, room: Q::Part, copy: impl Fn(u32) -> Vec<u8>)
where
    Q: QueuePair,
    C: CompletionQueue,
{
    pair.post_receives(&[ReceiveRequest { id: 7, into: &[room] }]).expect("room in the queue");
    let came = done.wait_for(PATIENCE).expect("it runs").expect("in time");
    assert_eq!((came.id, came.operation, came.queue_pair), (7, Operation::Receive, pair.id()));
    let mut bytes = copy(came.len);
    bytes.reverse();
    pair.post_inline(8, &bytes, None).expect("it is short enough");
    let mut list = Vec::new();
    while list.is_empty() {
        if done.arm(Arm::Next) {
            let fd = done.as_fd().as_raw_fd();
            let interest = Interest { fd, readable: true, writable: false };
            assert!(until_ready(&[interest], PATIENCE).expect("ppoll"), "it was not woken");
        }
        done.poll_into(&mut list, 8);
    }
    assert_eq!((list[0].id, list[0].status, pair.phase()), (8, Status::Success, Phase::Connected));
}
