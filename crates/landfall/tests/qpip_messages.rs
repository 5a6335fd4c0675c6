//! Messages, streams and datagrams between two adapters, over every way that
//! needs no privileges.

mod qpip_support;

use landfall::qpip::{CloseReason, Mapping, Operation, Phase, Wait};
use qpip_support::{PATIENCE, channel_pair_waiting, connected, half_inline_pair, noise, pairs};

#[test]
fn a_message_arrives_in_the_memory_that_was_posted() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        let bytes = noise(1, 20_000);
        here.post(7, 0, &bytes);
        let came = there.expect(Operation::Receive, 0);
        assert_eq!(came.len, 20_000, "{way}");
        assert!(came.ends_message && came.ends_request, "{way}");
        assert!(there.received(0, 20_000) == bytes, "{way}");
        here.expect(Operation::Send, 7);
    }
}

#[test]
fn both_sides_finish_and_both_hear_of_it() {
    for (way, pair) in pairs() {
        let (mut here, mut there) = connected(&pair, Mapping::Message);
        here.post(1, 0, b"the last word");
        here.pair.shutdown().unwrap();
        there.expect(Operation::Receive, 0);
        there.pair.peer_finished().wait_for(PATIENCE).expect("in time").unwrap();
        assert_eq!(there.pair.phase(), Phase::PeerFinished, "{way}");
        there.pair.close().wait_for(PATIENCE).expect("in time").unwrap();
        let closed = here.pair.closed().wait_for(PATIENCE).expect("in time").unwrap();
        assert_eq!(closed, CloseReason::Finished, "{way}");
    }
}

#[test]
fn however_threads_wait_and_whoever_runs_the_adapter() {
    for wait in [Wait::Block, Wait::BALANCED, Wait::Spin] {
        for pair in [channel_pair_waiting(wait), half_inline_pair(wait)] {
            let (mut here, mut there) = connected(&pair, Mapping::Message);
            let echo = std::thread::spawn(move || {
                for n in 0..50 {
                    let came = there.expect(Operation::Receive, n);
                    let bytes = there.received(0, came.len as usize);
                    there.post_room(n + 1, 0, 1 << 16);
                    there.post(n, 0, &bytes);
                    there.expect(Operation::Send, n);
                }
                there
            });
            for n in 0..50 {
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
