//! Raw sockets carry both test engines, over IPv4 and IPv6: the same bytes
//! arrive however the threads wait, and in steady flow none is copied in user
//! space. As an ordinary user each test skips with one line.

use crate::support::carriage;
use crate::support::packet::cable;
use crate::support::rawip::{VERSIONS, pair};
use landfall_placement::Duration;
use landfall_testbed::{cpu, require_namespaces};
use landfall_transport::Wait;

#[test]
fn messages_cross_in_units_of_all_lengths() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        // The longest fills a packet: 40 bytes are the engine's.
        for unit in [100, 1024, 1420] {
            carriage::messages_in_units(pair(&cable, version), unit);
        }
    }
}

#[test]
fn a_stream_with_heads_of_all_lengths_crosses() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        carriage::stream(pair(&cable, version));
    }
}

/// Packets of one sender overtake each other if its thread moves to another
/// core: it shall not.
fn stay_on_one_core() {
    let core = cpu::allowed_cores().unwrap()[0];
    cpu::pin_this_thread(core).unwrap();
}

#[test]
fn a_clean_stream_of_messages_is_copied_only_behind_what_was_not_data() {
    require_namespaces!();
    let cable = cable();
    stay_on_one_core();
    for version in VERSIONS {
        let [warm, end] = carriage::steady_messages(pair(&cable, version));
        let placed = end.guessed_right + end.guessed_wrong;
        let others = end.units_received - placed;
        // Of the 16 units of a call, one that was not guessed displaces the 15
        // behind it, and each of those is moved aside and back.
        assert!(end.guessed_wrong <= 15 * others, "{end:?}");
        assert!(end.bytes_copied <= 2 * 1024 * 15 * others, "{end:?}");
        assert!(end.guessed_right > warm.guessed_right);
        assert!(end.units_per_receive() > 1.0, "{end:?}");
    }
}

#[test]
fn threads_may_wait_in_any_way() {
    require_namespaces!();
    let cable = cable();
    let ways = [Wait::Block, Wait::Spin, Wait::SpinThenBlock(Duration::from_micros(50))];
    for (version, wait) in VERSIONS.into_iter().zip(ways) {
        carriage::messages_between_threads(pair(&cable, version), wait);
    }
    carriage::messages_between_threads(pair(&cable, VERSIONS[0]), ways[2]);
}

#[test]
fn tokio_tasks_drive_both_ends() {
    require_namespaces!();
    let cable = cable();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for version in VERSIONS {
        runtime.block_on(carriage::messages_between_tasks(pair(&cable, version)));
    }
}
