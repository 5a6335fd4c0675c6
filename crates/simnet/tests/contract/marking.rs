//! A mark of congestion goes from a queue to the engine that has to know.

use landfall_placement::{Ecn, Instant};
use landfall_simnet::{EcnThreshold, EngineNode, LinkConfig, Red, Sim, TailDrop};

use super::puppet::Puppet;

/// Sends ten units with this codepoint at once, through a queue in mid-path
/// that marks from the fourth waiting one on; gives what the other engine sees.
fn seen(sent: Ecn) -> (Vec<Ecn>, u64) {
    let mut puppet = Puppet::default();
    for n in 0..10 {
        puppet = puppet.with_transmit(&[n; 100], &[], |transmit| transmit.ecn = sent);
    }
    let mut sim = Sim::from_number(1);
    let from = sim.add("from", EngineNode::new(puppet)).unwrap();
    let middle = sim.add("middle", landfall_simnet::Switch::learning()).unwrap();
    let to = sim.add("to", EngineNode::new(Puppet::default())).unwrap();
    sim.connect(from, middle, LinkConfig::new()).unwrap();
    let bottleneck = sim.connect(middle, to, LinkConfig::new().rate(1_000_000)).unwrap();
    let policy = EcnThreshold::frames(3, TailDrop::frames(20));
    sim.set_queue_policy(bottleneck.there(), policy).unwrap();
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    let ecn = sim.node(to).unwrap().engine().heads.iter().map(|(_, ecn)| *ecn).collect();
    (ecn, sim.stats(bottleneck.there()).marked)
}

#[test]
fn an_engine_is_told_which_units_met_a_queue() {
    for sent in [Ecn::Capable0, Ecn::Capable1] {
        let (ecn, marked) = seen(sent);
        // The first leaves at once, three wait unmarked.
        assert_eq!(ecn[..4], [sent; 4]);
        assert_eq!(ecn[4..], [Ecn::CongestionExperienced; 6]);
        assert_eq!(marked, 6);
    }
}

#[test]
fn who_does_not_understand_marks_loses_units_instead() {
    assert_eq!(seen(Ecn::NotCapable), (vec![Ecn::NotCapable; 4], 0));
}

#[test]
fn red_marks_what_engines_send() {
    let mut puppet = Puppet::default();
    for _ in 0..1_000 {
        puppet = puppet.with_transmit(&[7; 100], &[], |transmit| transmit.ecn = Ecn::Capable0);
    }
    let mut sim = Sim::from_number(1);
    let from = sim.add("from", EngineNode::new(Puppet::default())).unwrap();
    let to = sim.add("to", EngineNode::new(Puppet::default())).unwrap();
    let link = sim.connect(from, to, LinkConfig::new().rate(1_000_000)).unwrap();
    // The sending host keeps the queue full: between the thresholds.
    let mut red = Red::new(5_000, 1_000_000);
    (red.min, red.max, red.weight) = (2_000, 10_000, 4);
    sim.set_queue_policy(link.there(), red).unwrap();
    sim.node_mut(from).unwrap().engine_mut().transmits = puppet.transmits;
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    let heads = &sim.node(to).unwrap().engine().heads;
    let marked = heads.iter().filter(|(_, ecn)| *ecn == Ecn::CongestionExperienced).count();
    let stats = sim.stats(link.there());
    assert_eq!((heads.len(), marked as u64), (1_000, stats.marked), "{stats}");
    assert!((30..150).contains(&marked), "{stats}");
}
