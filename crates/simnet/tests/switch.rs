//! Switches between hosts.

use std::time::Duration;

use crate::common::{Inbox, run_dry};
use landfall_placement::Instant;
use landfall_simnet::switch::Routes;
use landfall_simnet::{DropReason, Frame, Handle, LinkConfig, PortId, Sim, Switch};

const PORT: PortId = PortId(0);

/// This many hosts around a switch.
fn star(switch: Switch, hosts: usize) -> (Sim, Handle<Switch>, Vec<Handle<Inbox>>) {
    let mut sim = Sim::from_number(1);
    let switch = sim.add("switch", switch).unwrap();
    let hosts: Vec<_> =
        (0..hosts).map(|n| sim.add(&n.to_string(), Inbox::default()).unwrap()).collect();
    for host in &hosts {
        sim.connect(*host, switch, LinkConfig::new()).unwrap();
    }
    (sim, switch, hosts)
}

fn send(sim: &mut Sim, from: Handle<Inbox>, to: Handle<Inbox>, byte: u8) {
    let frame = Frame::addressed(from.peer(), to.peer(), [byte]);
    sim.send(from, PORT, frame).unwrap();
    run_dry(sim);
}

fn counts(sim: &Sim, hosts: &[Handle<Inbox>]) -> Vec<usize> {
    hosts.iter().map(|host| sim.node(*host).unwrap().frames.len()).collect()
}

#[test]
fn the_first_frame_is_flooded_and_the_answer_is_not() {
    let (mut sim, switch, hosts) = star(Switch::learning(), 4);
    send(&mut sim, hosts[0], hosts[2], 1);
    assert_eq!(counts(&sim, &hosts), [0, 1, 1, 1]);
    send(&mut sim, hosts[2], hosts[0], 2);
    assert_eq!(counts(&sim, &hosts), [1, 1, 1, 1]);
    send(&mut sim, hosts[0], hosts[2], 3);
    assert_eq!(counts(&sim, &hosts), [1, 1, 2, 1]);
    assert_eq!(sim.node(switch).unwrap().flooded, 1);
}

#[test]
fn fixed_routes_lead_through_a_network_with_a_circle() {
    // Three switches in a triangle, a host at each.
    let mut sim = Sim::from_number(1);
    let hosts = [(); 3].map(|()| sim.add("host", Inbox::default()).unwrap());
    let peers = hosts.map(Handle::peer);
    // Port 0 leads to the host, ports 1 and 2 to the other two switches. What
    // is for the third host goes the long way round.
    let ports: [[u16; 3]; 3] = [[0, 1, 1], [1, 0, 2], [1, 2, 0]];
    let switches = ports.map(|ports| {
        let routes = peers.into_iter().zip(ports);
        let routes = routes.fold(Routes::new(), |all, (to, port)| all.with(to, PortId(port)));
        sim.add("switch", Switch::new(routes)).unwrap()
    });
    for n in 0..3 {
        sim.connect(switches[n], hosts[n], LinkConfig::new()).unwrap();
    }
    let links = [(0, 1), (0, 2), (1, 2)]
        .map(|(n, m)| sim.connect(switches[n], switches[m], LinkConfig::new()).unwrap());
    send(&mut sim, hosts[0], hosts[2], 1);
    send(&mut sim, hosts[0], hosts[1], 2);
    assert_eq!(counts(&sim, &hosts), [0, 1, 1]);
    let crossed = links.map(|link| sim.stats(link.there()).delivered);
    assert_eq!(crossed, [2, 0, 1], "not by the direct way");
    let nobody = Frame::addressed(peers[0], landfall_placement::Peer::Node(99), [9]);
    sim.send(hosts[0], PORT, nobody).unwrap();
    run_dry(&mut sim);
    assert_eq!(counts(&sim, &hosts), [0, 1, 1]);
    assert_eq!(sim.node(switches[0]).unwrap().discarded, 1);
}

#[test]
fn a_switch_takes_its_time_and_stores_before_it_forwards() {
    let mut sim = Sim::from_number(1);
    let switch = sim.add("s", Switch::learning().latency(Duration::from_micros(7))).unwrap();
    let a = sim.add("a", Inbox::default()).unwrap();
    let b = sim.add("b", Inbox::default()).unwrap();
    // 100 bytes take 100 µs on each of two links.
    for host in [a, b] {
        sim.connect(host, switch, LinkConfig::new().rate(8_000_000)).unwrap();
    }
    sim.send(a, PORT, Frame::addressed(a.peer(), b.peer(), [1; 100])).unwrap();
    run_dry(&mut sim);
    assert_eq!(sim.node(b).unwrap().frames[0].0, Instant::from_micros(207));
}

#[test]
fn the_queue_of_an_output_is_finite_and_drops_the_tail() {
    let (mut sim, switch, hosts) = star(Switch::learning(), 2);
    let slow = sim.add("slow", Inbox::default()).unwrap();
    let link = sim.connect(switch, slow, LinkConfig::new().rate(8_000).queue_frames(5)).unwrap();
    sim.send(slow, PORT, Frame::addressed(slow.peer(), slow.peer(), [0])).unwrap();
    run_dry(&mut sim);
    for n in 0..20 {
        let from = hosts[n % 2];
        sim.send(from, PORT, Frame::addressed(from.peer(), slow.peer(), [n as u8])).unwrap();
    }
    run_dry(&mut sim);
    let got: Vec<_> =
        sim.node(slow).unwrap().frames.iter().map(|(.., frame)| frame.bytes[0]).collect();
    assert_eq!(got, [0, 1, 2, 3, 4, 5]);
    assert_eq!(sim.stats(link.there()).dropped(DropReason::Queue), 14);
    assert_eq!(sim.stats(link.there()).queue_high_frames, 5);
}
