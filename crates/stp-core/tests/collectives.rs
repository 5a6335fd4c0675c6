//! What the ranks of a program do to a network at the same moment costs no packet, and fills it.
//! The example `ranks` does the same with a thousand of them.

use crate::ranks::{Network, allreduce, alone, incast, shared, wide};

#[test]
fn an_allreduce_fills_the_links_and_nothing_is_dropped() {
    for config in [alone(), shared()] {
        let outcome = allreduce((4, 3), 1 << 15, Network::ETHERNET, &config);
        assert_eq!(outcome.dropped, 0, "{outcome}");
        assert!(outcome.busy >= 800, "{outcome}");
    }
}

#[test]
fn an_incast_fills_the_link_and_nothing_is_dropped() {
    for config in [alone(), shared()] {
        let outcome = incast(64, 32 << 10, Network::ETHERNET, &config);
        assert_eq!(outcome.dropped, 0, "{outcome}");
        assert!(outcome.busy >= 950, "{outcome}");
    }
    // What the window is for: all that paths allow is more than the switch has room for.
    let outcome = incast(64, 32 << 10, Network::ETHERNET, &wide());
    assert!(outcome.dropped > 0, "{outcome}");
}
