//! What tests of engines share: running under many seeds, and telling which one failed;
//! hosts whose events are kept, memory with bytes in it, and waiting until something is so.

use std::cell::RefCell;
use std::ops::{ControlFlow, RangeInclusive};
use std::rc::Rc;
use std::string::String;
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use landfall_placement::{Area, Engine};

use crate::engine_node::EngineNode;
use crate::node::Handle;
use crate::sim::Sim;

/// What a host was told, in order.
pub type Log<Event> = Rc<RefCell<Vec<Event>>>;

/// What stands in memory around the bytes that [`lend`] puts there.
pub const AROUND: u8 = 0xa7;

/// Returns a host that keeps what it is told, and the log.
pub fn logged<E: Engine + 'static>(host: EngineNode<E>) -> (EngineNode<E>, Log<E::Event>) {
    let log = Log::default();
    let events = log.clone();
    (host.on_event(move |_, _, _, event| events.borrow_mut().push(event)), log)
}

/// Lends a host memory with these bytes in it; `before` and `behind` them are as many more.
///
/// # Panics
/// If the host is gone, or takes no more memory.
pub fn lend<E: Engine + 'static>(
    sim: &mut Sim,
    host: Handle<EngineNode<E>>,
    [before, behind]: [usize; 2],
    bytes: &[u8],
) -> Area {
    let mut all = vec![AROUND; before];
    all.extend_from_slice(bytes);
    all.resize(all.len() + behind, AROUND);
    let memory = sim.node_mut(host).expect("the host is there").memory_mut();
    let region = memory.lend(all).expect("there is room for one more region");
    Area::new(region, before as u64, bytes.len() as u64)
}

/// Returns the bytes of an area of a host's memory.
///
/// # Panics
/// If there is no such area.
#[must_use]
pub fn read<E: Engine + 'static>(sim: &Sim, host: Handle<EngineNode<E>>, area: Area) -> Vec<u8> {
    let memory = sim.node(host).expect("the host is there").memory();
    memory.read(area.span(0, area.len as u32)).expect("the area is there").to_vec()
}

/// Lets so much time pass.
///
/// # Panics
/// If the simulation fails.
pub fn run_for(sim: &mut Sim, time: Duration) {
    let end = sim.now() + time;
    sim.run_until(end).unwrap_or_else(|error| panic!("{error}"));
}

/// Runs until `done`, which is asked after each event.
///
/// # Panics
/// If that does not come to be within `time`, or if the simulation fails.
pub fn run_until(sim: &mut Sim, time: Duration, what: &str, done: impl Fn() -> bool) {
    let end = sim.now() + time;
    let ended = sim.run_until_with(end, |_| match done() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    ended.unwrap_or_else(|error| panic!("{error}"));
    assert!(done(), "{what} did not happen by {}", sim.now());
}

/// The environment variable that replays one run.
pub const SEED_VARIABLE: &str = "LANDFALL_SEED";

/// Prints the seed of a run that panics.
struct Printer(u64);

impl Drop for Printer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("this run had seed {seed}: repeat it with {SEED_VARIABLE}={seed}");
        }
    }
}

/// Runs a test once for each seed, with a network of that seed.
///
/// A run that panics prints its seed. With `LANDFALL_SEED=n` in the
/// environment only the run of that seed takes place.
///
/// # Panics
/// As the test does, and where `LANDFALL_SEED` is not a number.
pub fn check(seeds: RangeInclusive<u64>, mut test: impl FnMut(&mut Sim)) {
    let replay = std::env::var(SEED_VARIABLE).ok().map(|value| parse(&value));
    for seed in replay.map_or(seeds, |seed| seed..=seed) {
        let _printer = Printer(seed);
        test(&mut Sim::from_number(seed));
    }
}

fn parse(value: &str) -> u64 {
    let message = || -> String { format!("{SEED_VARIABLE} must be a number, not {value:?}") };
    value.trim().parse().unwrap_or_else(|_| panic!("{}", message()))
}
