//! Ten thousand idle TCP connections of queue pairs on one adapter: how much
//! memory they take, before anything was sent and after.

mod counting;

use landfall_benches::QpipPair;

const MANY: usize = 10_000;
/// The aim is a kilobyte; this is what holds.
const MOST_BYTES: i64 = 2048;

/// Both ends are counted, so a connection is there twice.
fn each(held: i64) -> i64 {
    held / (2 * MANY as i64)
}

#[test]
fn ten_thousand_idle_connections_take_little_memory() {
    let (alone, mut line) = counting::count(|| QpipPair::with_depth(MANY, 1));
    let (opened, ()) = counting::count(|| {
        while line.connections() < MANY {
            line.open(50);
        }
    });
    let (used, segments) = counting::count(|| {
        // Each says something, and all of it is acknowledged.
        let rounds = 2 * MANY / 64;
        let segments: usize = (0..rounds).map(|_| line.round()).sum();
        line.fall_silent();
        segments
    });
    assert!(segments >= MANY, "only {segments} messages");
    let (before, after) = (each(opened.held), each(opened.held + used.held));
    eprintln!("{} bytes for two adapters alone; {before} for each connection,", alone.held);
    eprintln!("{after} after it was used");
    assert!(before <= MOST_BYTES, "{before} bytes for each new connection");
    assert!(after <= MOST_BYTES, "{after} bytes for each idle connection");
}
