//! A node sums over bytes that are not in the unit, and puts into place what an
//! engine had kept.

use landfall_placement::{Engine, Instant, Peer, Refusal, RegionId};
use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, Outcome, Sim};
use landfall_testkit::engines::Halves;
use landfall_testkit::engines::halves::Event;

type Host = EngineNode<Halves>;

const REGION: RegionId = RegionId::new(0, 0);
const LEN: u32 = 1_451;

fn message() -> Vec<u8> {
    (0..LEN).map(|n| (n * 7 + 3) as u8).collect()
}

/// Two hosts with memory: a message, and room for one.
fn hosts(how: EngineConfig, link: LinkConfig) -> (Sim, Handle<Host>, Handle<Host>) {
    let mut sim = Sim::from_number(1);
    let mut host = |name, peer, bytes: Vec<u8>| {
        let mut node = EngineNode::with_config(Halves::new(Peer::Node(peer)), how);
        node.memory_mut().lend(bytes).unwrap();
        sim.add(name, node).unwrap()
    };
    let from = host("sender", 1, message());
    let to = host("receiver", 0, vec![0; LEN as usize]);
    sim.connect(from, to, link).unwrap();
    (sim, from, to)
}

/// Sends the message cut there, and gives what became of it.
fn carry(sim: &mut Sim, from: Handle<Host>, to: Handle<Host>, cut: u32) -> Option<Event> {
    sim.node_mut(to).unwrap().engine_mut().post(REGION.span(0, LEN));
    sim.node_mut(from).unwrap().engine_mut().send(REGION.span(0, LEN), cut).unwrap();
    assert_eq!(sim.run_until(Instant::FAR_FUTURE), Ok(Outcome::Idle));
    assert!(matches!(sim.node_mut(from).unwrap().poll_event(), Some(Event::Sent(_))));
    sim.node_mut(to).unwrap().poll_event()
}

#[test]
fn one_checksum_covers_both_halves_wherever_they_are_cut() {
    for how in [EngineConfig::default(), EngineConfig::guessing(2)] {
        let (mut sim, from, to) = hosts(how, LinkConfig::new());
        for (n, cut) in [1, 2, 13, 700, 1_024, 1_450].into_iter().enumerate() {
            let expected = Event::Received(n as u16, REGION.span(0, LEN));
            assert_eq!(carry(&mut sim, from, to, cut), Some(expected));
            let node = sim.node(to).unwrap();
            assert_eq!(node.memory().bytes(REGION).unwrap(), message());
            assert_eq!(node.counters().deposits, n as u64 + 1);
            assert_eq!(node.engine().refusals().total(), 0);
        }
    }
}

#[test]
fn invariant_2_a_deposit_to_memory_that_is_gone_is_not_received() {
    let (mut sim, from, to) = hosts(EngineConfig::default(), LinkConfig::new());
    sim.node_mut(to).unwrap().memory_mut().take_back(REGION).unwrap();
    assert_eq!(carry(&mut sim, from, to, 700), Some(Event::Lost(0)));
    let counters = sim.node(to).unwrap().counters();
    assert_eq!((counters.failed, counters.deposits), (1, 0));
}

#[test]
fn invariant_1_a_deposit_into_final_bytes_is_noticed() {
    let (mut sim, from, to) = hosts(EngineConfig::default(), LinkConfig::new());
    sim.node_mut(to).unwrap().memory_mut().freeze(REGION.span(100, 1)).unwrap();
    sim.node_mut(to).unwrap().engine_mut().post(REGION.span(0, LEN));
    sim.node_mut(from).unwrap().engine_mut().send(REGION.span(0, LEN), 700).unwrap();
    assert!(sim.run_until(Instant::FAR_FUTURE).is_err());
}

#[test]
fn a_message_without_a_place_is_refused() {
    let (mut sim, from, to) = hosts(EngineConfig::default(), LinkConfig::new());
    sim.node_mut(from).unwrap().engine_mut().send(REGION.span(0, LEN), 700).unwrap();
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    let node = sim.node(to).unwrap();
    assert_eq!(node.engine().refusals().of(Refusal::NoRoom), 1);
    assert_eq!((node.engine().refusals().total(), node.counters().deposits), (1, 0));
}
