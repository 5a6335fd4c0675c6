use super::*;
use crate::segment::tests::two_mappings;

/// A thread that wants to change the way closes the gate, and opens it again if it finds that it
/// cannot; one that has died meanwhile has left it closed.
#[test]
fn bytes_wait_for_the_gate_and_then_go_by_tcp() {
    let connection = Connection::new();
    connection.adopt(two_mappings().0, Proof::Open);
    let shared = connection.shared().unwrap();
    shared.sends.sending.in_flight.store(GATE, Ordering::SeqCst);
    let mut calls = 0;
    let sending = connection.sends(-1, 1, || {
        calls += 1;
        Ok(1)
    });
    assert!(matches!(sending, Sending::ByTcp(Ok(1))), "it went into a ring that nobody looks at");
    assert_eq!(calls, 1);
    assert_eq!(shared.sends.sending.in_flight.load(Ordering::SeqCst), 0);
}
