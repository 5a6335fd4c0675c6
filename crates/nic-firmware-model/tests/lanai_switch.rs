//! The switches between LANai cards: frames cut through them, by routes that they bring.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use landfall_placement::Instant;
use landfall_simnet::{Frame, Handle, LinkConfig, NodeId, Outbox, PortId, Sim};
use nic_firmware_model::lanai::LanaiSizes;
use nic_firmware_model::lanai::hop;
use nic_firmware_model::lanai::model::{Build, Carded, Network, Shape, World, pattern};
use nic_firmware_model::lanai::switch::{SwitchDesign, SwitchNode};
use qpip::{Mapping, Operation};

/// When a frame was there, and what it was.
type Inbox = Rc<RefCell<Vec<(Instant, Vec<u8>)>>>;

/// 2.0 Gbit/s: 250 bytes in a microsecond.
fn link() -> LinkConfig {
    LinkConfig::new().rate(2_000_000_000)
}

fn design() -> SwitchDesign {
    SwitchDesign { latency: Duration::from_micros(1), ..SwitchDesign::default() }
}

/// Nobody's card: keeps what comes.
fn station(sim: &mut Sim) -> (NodeId, Inbox) {
    let inbox = Inbox::default();
    let kept = inbox.clone();
    let node = move |now: Instant, _: PortId, frame: Frame, _: &mut Outbox<'_>| {
        kept.borrow_mut().push((now, frame.bytes));
    };
    (sim.add("station", node).unwrap().id(), inbox)
}

/// A switch with this many stations, in the order of its ports.
fn star(sim: &mut Sim, count: u8) -> (Handle<SwitchNode>, Vec<(NodeId, Inbox)>) {
    let switch = sim.add("switch", SwitchNode::new(design())).unwrap();
    let stations: Vec<_> = (0..count).map(|_| station(sim)).collect();
    for (node, _) in &stations {
        // Queues of the stations are their own: what waits there is not the switch's.
        let uplink = LinkConfig { queue: landfall_simnet::TailDrop::default(), ..into() };
        sim.connect_each(*node, switch, uplink, link()).unwrap();
    }
    (switch, stations)
}

fn into() -> LinkConfig {
    SwitchDesign::link_in(link())
}

fn send(sim: &mut Sim, from: NodeId, route: &[u8], payload: &[u8]) {
    let bytes = [route, payload].concat();
    sim.send(from, PortId(0), Frame::raw(bytes)).unwrap();
}

fn run(sim: &mut Sim) {
    sim.run_until(Instant::FAR_FUTURE).unwrap();
}

/// Its bytes take 64 µs on each of four links, and are on all of them at once.
#[test]
fn a_frame_cuts_through_and_uses_its_route_up() {
    let mut sim = Sim::from_number(1);
    let ((a, _), (b, inbox)) = (station(&mut sim), station(&mut sim));
    let switches: Vec<_> =
        (0..3).map(|_| sim.add("switch", SwitchNode::new(design())).unwrap()).collect();
    sim.connect_each(a, switches[0], into(), link()).unwrap();
    for pair in switches.windows(2) {
        sim.connect(pair[0], pair[1], into()).unwrap();
    }
    sim.connect_each(switches[2], b, link(), into()).unwrap();
    let payload = pattern(1, 16_000);
    send(&mut sim, a, &[hop(1); 3], &payload);
    run(&mut sim);
    let expected = Instant::from_micros(3 + 64);
    assert_eq!(*inbox.borrow(), [(expected, payload)]);
    for switch in switches {
        assert_eq!(sim.node(switch).unwrap().counters().forwarded, 1);
    }
}

#[test]
fn frames_of_any_length_cross() {
    let mut sim = Sim::from_number(1);
    let (switch, stations) = star(&mut sim, 2);
    let lens = [0, 1, 60, 1_514, 9_014, 65_535, 1 << 20];
    for len in lens {
        send(&mut sim, stations[0].0, &[hop(1)], &pattern(2, len));
    }
    run(&mut sim);
    let came: Vec<usize> = stations[1].1.borrow().iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(came, lens);
    assert_eq!(sim.node(switch).unwrap().counters().overruns, 0);
}

/// A route that is wrong leads nowhere, or to somebody else: it is never guessed.
#[test]
fn a_wrong_route_is_dropped_and_counted() {
    let mut sim = Sim::from_number(1);
    let (switch, stations) = star(&mut sim, 2);
    // No byte at all, the byte of a station's address, ports that nothing is connected to.
    for route in [&[][..], &[2], &[0x7f], &[hop(2)], &[hop(63)], &[0xff]] {
        send(&mut sim, stations[0].0, route, &[]);
    }
    run(&mut sim);
    assert_eq!(sim.node(switch).unwrap().counters().misrouted, 6);
    assert!(stations.iter().all(|(_, inbox)| inbox.borrow().is_empty()));
    send(&mut sim, stations[0].0, &[hop(1)], &[7]);
    run(&mut sim);
    assert_eq!(stations[1].1.borrow().len(), 1, "the next one is as it should be");
}

/// Two stations send to a third as fast as they can: each is held while the other's frame
/// passes. The link to the third is never idle, and nothing is lost.
#[test]
fn who_wants_a_busy_port_waits_in_front_of_the_switch() {
    const FRAMES: usize = 50;
    let mut sim = Sim::from_number(1);
    let (switch, stations) = star(&mut sim, 3);
    for nth in 0..FRAMES {
        for from in [0, 1] {
            send(&mut sim, stations[from].0, &[hop(2)], &[from as u8, nth as u8].repeat(500));
        }
    }
    run(&mut sim);
    let came = stations[2].1.borrow();
    let of = |from: u8| came.iter().filter(move |(_, frame)| frame[0] == from);
    for from in [0, 1] {
        let order: Vec<u8> = of(from).map(|(_, frame)| frame[1]).collect();
        assert_eq!(order, (0..FRAMES as u8).collect::<Vec<_>>(), "in order, and all of them");
        // Neither has to wait until the other is done.
        let last = of(from).next_back().unwrap().0;
        assert!(last >= Instant::from_micros(4 * (2 * FRAMES as u64 - 2)), "{last:?}");
    }
    let (counters, last) = (*sim.node(switch).unwrap().counters(), came.last().unwrap().0);
    // 1,000 bytes take 4 µs; a sender that was held begins its next frame a little later.
    let busy = Duration::from_micros(4 * 2 * FRAMES as u64);
    let took = last.since(Instant::ZERO);
    assert!(took >= busy && took < busy + busy / 10, "{took:?}, at best {busy:?}");
    assert!(counters.blocked > 0, "{counters:?}");
    assert_eq!((counters.overruns, counters.expired, counters.misrouted), (0, 0, 0));
}

/// Routes are oblivious: what is behind a frame that waits does not go around it.
#[test]
fn what_is_behind_a_frame_that_waits_waits_too() {
    let mut sim = Sim::from_number(1);
    let (_, stations) = star(&mut sim, 4);
    send(&mut sim, stations[0].0, &[hop(2)], &pattern(1, 100_000));
    sim.run_until(Instant::from_micros(5)).unwrap();
    send(&mut sim, stations[1].0, &[hop(2)], &pattern(2, 100));
    send(&mut sim, stations[1].0, &[hop(3)], &pattern(3, 100));
    run(&mut sim);
    let (busy, behind) = (stations[2].1.borrow(), stations[3].1.borrow());
    assert_eq!((busy.len(), behind.len()), (2, 1));
    assert!(behind[0].0 > busy[0].0, "port 3 was free all the time");
}

/// A station that takes nothing for ever does not stop the others for ever.
#[test]
fn what_waits_for_too_long_is_dropped() {
    let mut sim = Sim::from_number(1);
    let switch = sim.add("switch", SwitchNode::new(design())).unwrap();
    let (a, _) = station(&mut sim);
    let (b, inbox) = station(&mut sim);
    let stuck = |_: Instant, port: PortId, _: Frame, out: &mut Outbox<'_>| out.hold_peer(port);
    let stuck = sim.add("stuck", stuck).unwrap();
    sim.connect_each(a, switch, SwitchDesign::link_in(link()), link()).unwrap();
    sim.connect_each(b, switch, SwitchDesign::link_in(link()), link()).unwrap();
    sim.connect_each(stuck, switch, into(), link()).unwrap();
    send(&mut sim, a, &[hop(2)], &pattern(1, 1_000));
    sim.run_until(Instant::from_micros(100)).unwrap();
    send(&mut sim, a, &[hop(2)], &pattern(2, 1_000));
    send(&mut sim, a, &[hop(1)], &pattern(3, 1_000));
    run(&mut sim);
    let counters = sim.node(switch).unwrap().counters();
    assert_eq!((counters.forwarded, counters.expired), (2, 1), "{counters:?}");
    let came = inbox.borrow();
    assert_eq!(came.len(), 1);
    assert!(came[0].0 >= Instant::ZERO + design().patience);
}

/// A shape with switches, and cards with room for this many routes.
fn behind_switches(count: u8, routes: u16) -> Shape {
    let usual = Build::default();
    let tables = LanaiSizes { routes, ..usual.tables };
    let network = Network::Switches(count, SwitchDesign::default());
    Shape { network, card: Build { tables, ..usual }, ..Shape::default() }
}

fn received(world: &World<Carded>, host: usize) -> usize {
    world.done(host).iter().filter(|done| done.operation == Operation::Receive).count()
}

/// Messages both ways, through a firmware that is loaded anew between them: its routes
/// are there again.
#[test]
fn cards_find_each_other_by_their_routes() {
    for count in [1, 3] {
        let mut world = World::<Carded>::new(1, &behind_switches(count, 4));
        let pairs = world.pair_up(true, 80, Mapping::Message);
        world.run_for(Duration::from_millis(5));
        for id in 0..8 {
            for host in [0, 1] {
                world.post_receive(host, pairs[host], id, &[5_000]);
                assert!(world.send(host, pairs[host], id, &pattern(id, 5_000), None));
            }
            if id == 4 {
                let now = world.now();
                for host in [0, 1] {
                    restart(&mut world, host, now);
                }
            }
            world.run_for(Duration::from_millis(2));
        }
        world.run_for(Duration::from_secs(5));
        assert!(world.wrong().is_empty(), "{:?}", world.wrong());
        assert_eq!([0, 1].map(|host| received(&world, host)), [8, 8], "{count} switches");
        for nth in 0..usize::from(count) {
            let counters = world.switch(nth).unwrap();
            assert!(counters.forwarded > 32, "{counters:?}");
            assert_eq!((counters.misrouted, counters.overruns), (0, 0), "{counters:?}");
        }
    }
}

fn restart(world: &mut World<Carded>, host: usize, now: Instant) {
    world.node(host).restart(now, 0);
}

/// The table has room for one address of two: what goes to the other stays on the card.
/// A card that knows no route at all sends as if there were no switch, which drops that.
#[test]
fn what_has_no_route_is_not_sent_and_counted() {
    for (routes, is_known) in [(1, true), (0, false)] {
        let mut world = World::<Carded>::new(1, &behind_switches(1, routes));
        // IPv4 is what comes first.
        let _ = world.pair_up(true, 80, Mapping::Message);
        world.run_for(Duration::from_secs(3));
        let unsendable = world.node(0).adapters()[0].counters().unsendable;
        let misrouted = world.switch(0).unwrap().misrouted;
        assert_eq!((unsendable > 0, misrouted > 0), (is_known, !is_known), "{unsendable}");
        assert!(world.wrong().is_empty(), "{:?}", world.wrong());
    }
}
