//! The size of a path on which no router says anything: it is found by probes of real data
//! (RFC 4821, RFC 8899), and found anew when the path changes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{BOTH, Shape, Version, World, pattern};
use landfall_simnet::{Frame, check, sim::Fate};
use qpip::ip::size_search::{MOST_LOST, STEP};
use qpip::{Mapping, QueuePairId, Status};

/// What gets lost on its way from host 0, and what was seen there.
struct Hole {
    /// Longer packets, from their IP header on, get lost without a word.
    carries: Rc<Cell<usize>>,
    /// The longest that arrived since this was looked at, and how many got lost.
    longest: Rc<Cell<usize>>,
    swallowed: Rc<Cell<usize>>,
}

impl Hole {
    fn new(world: &mut World<'_>, carries: usize) -> Self {
        let hole = Self {
            carries: Rc::new(Cell::new(carries)),
            longest: Rc::default(),
            swallowed: Rc::default(),
        };
        let (carries, longest, swallowed) =
            (hole.carries.clone(), hole.longest.clone(), hole.swallowed.clone());
        let look = move |_, frame: &mut Frame| {
            let len = frame.bytes.len() - 14;
            if len > carries.get() {
                swallowed.set(swallowed.get() + 1);
                return Fate::Drop;
            }
            longest.set(longest.get().max(len));
            Fate::Pass
        };
        world.sim.intercept(world.hosts[0].link.there(), look).unwrap();
        hole
    }

    fn take_longest(&self) -> usize {
        self.longest.replace(0)
    }
}

/// A connection from host 0 to host 1 over which messages go.
struct Talk {
    here: QueuePairId,
    there: QueuePairId,
    from: (u64, u32),
    into: u64,
    sent: Vec<u8>,
}

const MESSAGE: u32 = 60_000;

impl Talk {
    fn new(world: &mut World<'_>, version: Version, mapping: Mapping) -> Self {
        let (here, there) = world.pair_up((0, 1), version, 80, mapping);
        let sent = pattern(3, MESSAGE as usize);
        let (from, into) = (world.store(0, &sent), world.allocate(1, MESSAGE));
        Self { here, there, from, into, sent }
    }

    /// A message about each quarter of a second, for this time.
    fn go_on(&self, world: &mut World<'_>, seconds: u64) {
        let end = world.now() + Duration::from_secs(seconds);
        while world.now() < end {
            world.post_receive(1, self.there, 1, (self.into, MESSAGE)).unwrap();
            world.post_send(0, self.here, 1, self.from, None).unwrap();
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            assert_eq!(world.await_completions(1, 1)[0].len, MESSAGE);
            assert!(world.read(1, self.into, MESSAGE) == self.sent);
            world.run_for(Duration::from_millis(250));
        }
    }
}

/// The most probes that a search may lose, and the time that takes.
const MOST_PROBES: u64 = MOST_LOST as u64 * 9;
const SEARCH: u64 = 35;

#[test]
fn a_size_between_is_found_by_few_probes_and_nothing_is_congested() {
    check(1..=1, |sim| {
        let mut n = 0;
        for path in [1_281, 1_300, 1_400, 1_452, 1_492] {
            for segmentation in [false, true] {
                n += 1;
                let shape = Shape { memory: 4 << 20, ..Shape::default() };
                let shape = if segmentation { shape.segmentation() } else { shape };
                let mut world = World::new(sim, &shape);
                let talk = Talk::new(&mut world, BOTH[n % 2], Mapping::Message);
                let hole = Hole::new(&mut world, path);
                talk.go_on(&mut world, 1);
                let before = world.engine(0).connection_stats(talk.here).unwrap();
                let swallowed = hole.swallowed.get() as u64;
                talk.go_on(&mut world, SEARCH);
                let stats = *world.engine(0).stats();
                let after = world.engine(0).connection_stats(talk.here).unwrap();
                assert_eq!(stats.black_holes, 1, "{path}");
                assert!(stats.mtu_probes <= MOST_PROBES, "{path}: {}", stats.mtu_probes);
                // Each lost packet was a probe, was lost once, and made no window smaller.
                let lost = hole.swallowed.get() as u64 - swallowed;
                assert!(lost > 0 && lost <= stats.mtu_probes_lost, "{path}: {lost}");
                assert_eq!(after.timeouts, before.timeouts, "{path}");
                assert!(after.congestion_window >= before.congestion_window, "{path}");
                hole.take_longest();
                talk.go_on(&mut world, 10);
                assert_eq!(world.engine(0).stats().mtu_probes, stats.mtu_probes, "it rests");
                let found = hole.take_longest();
                assert!(found <= path && path - found < STEP as usize, "{path}: {found}");
            }
        }
    });
}

#[test]
fn a_path_that_shrinks_and_grows_is_followed() {
    check(1..=2, |sim| {
        let shape = Shape { memory: 4 << 20, ..Shape::default() }.segmentation();
        let mut world = World::new(sim, &shape);
        let talk = Talk::new(&mut world, Version::V6, Mapping::Message);
        let hole = Hole::new(&mut world, 1_420);
        talk.go_on(&mut world, SEARCH);
        hole.take_longest();
        talk.go_on(&mut world, 1);
        assert!((1_413..=1_420).contains(&hole.take_longest()));
        // It shrinks: time-outs find that out, and a search begins anew.
        hole.carries.set(1_320);
        talk.go_on(&mut world, SEARCH);
        hole.take_longest();
        talk.go_on(&mut world, 1);
        assert!((1_313..=1_320).contains(&hole.take_longest()));
        assert_eq!(world.engine(0).stats().black_holes, 2);
        // It grows: nobody notices before ten minutes are over.
        hole.carries.set(1_500);
        talk.go_on(&mut world, 500);
        assert!((1_313..=1_320).contains(&hole.take_longest()));
        let probes = world.engine(0).stats().mtu_probes;
        let timeouts = world.engine(0).connection_stats(talk.here).unwrap().timeouts;
        talk.go_on(&mut world, 120);
        assert_eq!(hole.take_longest(), 1_500);
        assert_eq!(world.engine(0).stats().mtu_probes, probes + 1, "the longest was tried first");
        let after = world.engine(0).connection_stats(talk.here).unwrap().timeouts;
        assert_eq!((after, world.engine(0).stats().black_holes), (timeouts, 2));
    });
}

#[test]
fn a_network_that_was_down_costs_one_probe() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape { memory: 4 << 20, ..Shape::default() });
        let talk = Talk::new(&mut world, Version::V4, Mapping::Message);
        let hole = Hole::new(&mut world, 0);
        world.post_receive(1, talk.there, 1, (talk.into, MESSAGE)).unwrap();
        world.post_send(0, talk.here, 1, talk.from, None).unwrap();
        world.run_until("the third time-out", |world| world.engine(0).stats().black_holes == 1);
        hole.carries.set(1_500);
        assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
        assert_eq!(world.await_completions(1, 1)[0].len, MESSAGE);
        talk.go_on(&mut world, 2);
        assert_eq!(hole.take_longest(), 1_500);
        let stats = *world.engine(0).stats();
        assert_eq!((stats.mtu_probes, stats.mtu_probes_lost), (1, 0));
    });
}

#[test]
fn short_messages_and_short_windows_probe_nothing() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape { memory: 4 << 20, ..Shape::default() });
        let talk = Talk::new(&mut world, Version::V4, Mapping::Message);
        let hole = Hole::new(&mut world, 1_400);
        talk.go_on(&mut world, 1);
        let probes = world.engine(0).stats().mtu_probes;
        world.run_for(Duration::from_secs(5));
        for _ in 0..40 {
            let (from, into) = ((talk.from.0, 2_000), talk.into);
            world.post_receive(1, talk.there, 1, (into, 2_000)).unwrap();
            world.post_send(0, talk.here, 1, from, None).unwrap();
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            assert_eq!(world.await_completions(1, 1)[0].len, 2_000);
        }
        // Nothing would follow a probe, and its loss cost a time-out.
        assert_eq!(world.engine(0).stats().mtu_probes, probes);
        assert!(hole.take_longest() <= 1_400);
    });
}
