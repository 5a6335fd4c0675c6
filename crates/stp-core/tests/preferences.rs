//! What users prefer: who is granted first, and who gets how much.

use std::time::Duration;

use crate::independence::{Kind, ManyPeers, own_network, run_for};
use crate::world::Host;
use landfall_simnet::Handle;
use stp_core::{ConnectionId, Endpoint, Error, Priority};

/// What each of four peers sends in a time, where the receiver's user prefers some of them.
fn sent_with(prefer: impl Fn(&mut Endpoint, usize, ConnectionId)) -> [u64; 4] {
    let mut crowd = ManyPeers::new(&own_network(), &[Kind::Live; 4]);
    let ids = crowd.at_receiver();
    let engine = crowd.sim.node_mut(crowd.receiver).unwrap().engine_mut();
    for (nth, id) in ids.into_iter().enumerate() {
        prefer(engine, nth, id);
    }
    // So long that there is always more to grant.
    crowd.begin_with(8 << 20);
    run_for(&mut crowd.sim, Duration::from_millis(100));
    let before = sent(&crowd);
    run_for(&mut crowd.sim, Duration::from_millis(400));
    let after = sent(&crowd);
    core::array::from_fn(|nth| after[nth] - before[nth])
}

fn sent(crowd: &ManyPeers) -> Vec<u64> {
    let of = |host: Handle<Host>| crowd.sim.node(host).unwrap().engine().stats().bytes_sent;
    crowd.peers.iter().map(|(_, host, ..)| of(*host)).collect()
}

#[test]
fn without_a_preference_all_have_the_same() {
    let sent = sent_with(|_, _, _| {});
    let all: u64 = sent.iter().sum();
    assert!(sent.iter().all(|sent| sent.abs_diff(all / 4) < all / 20), "{sent:?}");
}

#[test]
fn weights_share_what_there_is_in_proportion() {
    let weights = [1, 2, 3, 6];
    let sent = sent_with(|engine, nth, id| engine.set_weight(id, weights[nth]).unwrap());
    let all: u64 = sent.iter().sum();
    for (sent, weight) in sent.iter().zip(weights) {
        let due = all * u64::from(weight) / 12;
        assert!(sent.abs_diff(due) < due / 4, "{sent} of {all}, weight {weight}");
    }
}

#[test]
fn a_weight_out_of_range_is_refused_by_name_and_changes_nothing() {
    let sent = sent_with(|engine, _, id| {
        engine.set_weight(id, 1_000).unwrap();
        for weight in [0, 1_001, u16::MAX] {
            let Err(Error::OutOfRange(error)) = engine.set_weight(id, weight) else {
                panic!("{weight} was taken");
            };
            assert_eq!((error.field, error.value), ("weight", weight.into()));
        }
    });
    let all: u64 = sent.iter().sum();
    assert!(sent.iter().all(|sent| sent.abs_diff(all / 4) < all / 20), "{sent:?}");
}

#[test]
fn who_is_urgent_is_granted_first_and_who_is_not_gets_what_is_left() {
    let urgent = sent_with(|engine, nth, id| {
        let priority = if nth == 0 { Priority::High } else { Priority::Normal };
        engine.set_priority(id, priority).unwrap();
    });
    let rest: u64 = urgent[1..].iter().sum();
    assert!(urgent[0] > rest * 4, "{urgent:?}");
    let low = sent_with(|engine, nth, id| {
        let priority = if nth == 0 { Priority::Low } else { Priority::Normal };
        engine.set_priority(id, priority).unwrap();
    });
    let rest: u64 = low[1..].iter().sum();
    assert!(low[0] * 8 < rest, "{low:?}");
    let alone = sent_with(|_, _, _| {});
    assert!((low[0] + rest) * 20 > alone.iter().sum::<u64>() * 19, "nothing is left unused");
}
