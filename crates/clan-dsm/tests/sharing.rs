//! Who shares a link, or an adapter: endpoints, groups, those who are held back.

mod world;

use std::time::Duration;

use clan_dsm::{
    Access, Action, Config, DmaRequest, Error, Event, HostId, Notice, PortAddress, Rights, Source,
};
use landfall_placement::{Engine, PathId, Peer};
use landfall_simnet::{EngineConfig, LinkConfig, Sim};
use world::{Pair, add_host, fired, noise, run_until};

/// Few frames are under way at a time, so that there is something to wait for.
fn pair() -> Pair {
    let config = Config { frames: 16, ..Config::default() };
    Pair::new(Sim::from_number(4), config, LinkConfig::ethernet(100_000_000))
}

#[test]
fn the_program_does_not_wait_for_the_dma_engine_nor_that_for_it() {
    let mut pair = pair();
    let (area, aperture, window) = pair.window(1 << 20);
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let data = noise(1, 900_000);
    let from = pair.lend(0, &data);
    let now = pair.now();
    let chain = [DmaRequest::Write { from, window, offset: 0 }];
    let dma = pair.nic(0).dma(now, endpoint, &chain).unwrap();
    pair.run_for(Duration::from_millis(1));
    let flag =
        pair.nic(1).watch(aperture, 1_000_000..1_000_008, Access::Write, Action::Event, false);
    let now = pair.now();
    pair.nic(0).write_word(now, window, 1_000_000, 1).unwrap();
    pair.run_until("the word", |_, b| fired(b, flag.unwrap()));
    let done = Event::Dma { endpoint, dma, result: Ok(()) };
    assert!(!pair.logs[0].borrow().contains(&done), "the word overtook the DMA engine");
    // Now the program writes without a pause.
    for n in 0.. {
        let now = pair.now();
        let _ = pair.nic(0).write(now, window, 950_000 + 8 * (n % 1000), &[1; 16]);
        if pair.logs[0].borrow().contains(&done) {
            break;
        }
        assert!(n < 100_000, "the program starves the DMA engine");
        pair.run_for(Duration::from_micros(20));
    }
    assert!(pair.bytes(1, area)[..900_000] == data);
}

#[test]
fn endpoints_take_turns_at_the_dma_engine() {
    let config = Config { dma_turn: 8192, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(4), config, LinkConfig::ethernet(100_000_000));
    let (_, _, window) = pair.window(4 << 20);
    let long = pair.lend(0, &noise(1, 2 << 20));
    let short = pair.lend(0, &noise(2, 10_000));
    let [greedy, modest] = [(); 2].map(|()| pair.nic(0).open_endpoint(None).unwrap());
    let now = pair.now();
    let much = [DmaRequest::Write { from: long, window, offset: 0 }];
    let little = [DmaRequest::Write { from: short, window, offset: 3 << 20 }];
    let much = pair.nic(0).dma(now, greedy, &much).unwrap();
    let little = pair.nic(0).dma(now, modest, &little).unwrap();
    pair.run_until("both", |a, _| a.iter().filter(|e| matches!(e, Event::Dma { .. })).count() == 2);
    let order: Vec<_> = pair.logs[0]
        .borrow()
        .iter()
        .filter_map(|e| match e {
            Event::Dma { dma, result: Ok(()), .. } => Some(*dma),
            _ => None,
        })
        .collect();
    assert_eq!(order, [little, much]);
}

#[test]
fn what_is_cancelled_ends_and_the_rest_goes_on() {
    let mut pair = pair();
    let (_, _, window) = pair.window(1 << 20);
    let from = pair.lend(0, &noise(1, 1 << 19));
    let [one, other] = [(); 2].map(|()| pair.nic(0).open_endpoint(None).unwrap());
    let now = pair.now();
    let chain = [DmaRequest::Write { from, window, offset: 0 }];
    let given_up = pair.nic(0).dma(now, one, &chain).unwrap();
    let kept = pair.nic(0).dma(now, other, &chain).unwrap();
    pair.run_for(Duration::from_millis(2));
    let now = pair.now();
    pair.nic(0).cancel_dma(now, one).unwrap();
    pair.run_until("both", |a, _| a.iter().filter(|e| matches!(e, Event::Dma { .. })).count() == 2);
    let result = Err(clan_dsm::Ended::Here);
    assert!(pair.logs[0].borrow().contains(&Event::Dma { endpoint: one, dma: given_up, result }));
    assert!(pair.logs[0].borrow().contains(&Event::Dma {
        endpoint: other,
        dma: kept,
        result: Ok(())
    }));
}

#[test]
fn who_is_held_back_gets_answers_and_sends_later() {
    let mut pair = pair();
    let (area, _, window) = pair.window(4096);
    let (_, _, back) = pair.expose(0, 4096, Rights::ReadWrite);
    let back = pair.nic(1).map(&back).unwrap();
    let (there, into) = (pair.links[1], pair.lend(1, &[0; 500]));
    pair.nic(1).hold(there, true).unwrap();
    // What is said first says Xoff as well.
    let now = pair.now();
    pair.nic(1).write(now, back, 0, &[1; 8]).unwrap();
    pair.run_for(Duration::from_millis(1));
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[7; 100]).unwrap();
    let read = pair.nic(1).read(now, back, 0, into).unwrap();
    pair.run_until("the answer", |_, b| b.contains(&Event::Read { read, result: Ok(()) }));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.bytes(1, area)[..100], [0; 100], "it is held back");
    pair.nic(1).hold(there, false).unwrap();
    pair.flush();
    assert_eq!(pair.bytes(1, area)[..100], [7; 100]);
}

#[test]
fn messages_and_connections_go_through() {
    let mut pair = pair();
    let listener = pair.nic(1).open_endpoint(Some(clan_dsm::Port(7))).unwrap();
    pair.nic(1).listen(listener).unwrap();
    let caller = pair.nic(0).open_endpoint(None).unwrap();
    let to = PortAddress { host: HostId::new(2).unwrap(), port: clan_dsm::Port(7) };
    pair.nic(0).connect(caller, to, [5; 40]).unwrap();
    pair.run_until("the request", |_, b| b.contains(&Event::OutOfBand { endpoint: listener }));
    let Some(Notice::Request(request)) = pair.nic(1).poll_notice(listener) else { panic!() };
    assert_eq!(request.body, [5; 40]);
    let server = pair.nic(1).open_endpoint(None).unwrap();
    pair.nic(1).accept(server, &request, [6; 40]).unwrap();
    pair.run_until("the answer", |a, _| a.contains(&Event::OutOfBand { endpoint: caller }));
    assert!(
        matches!(pair.nic(0).poll_notice(caller), Some(Notice::Accepted { body, .. }) if body == [6; 40])
    );
    pair.nic(1).send(server, [7; 40]).unwrap();
    pair.clear();
    pair.run_until("the message", |a, _| a.contains(&Event::OutOfBand { endpoint: caller }));
    assert!(
        matches!(pair.nic(0).poll_notice(caller), Some(Notice::Message { body, .. }) if body == [7; 40])
    );
    // Who is not there is told of.
    let nobody = PortAddress { host: HostId::new(9).unwrap(), ..to };
    assert_eq!(pair.nic(0).send_to(caller, nobody, [0; 40]), Err(Error::NoLink));
    pair.sim.set_link(pair.wire, false).unwrap();
    let now = pair.now();
    let window = pair.window(64).2;
    pair.nic(0).write(now, window, 0, &[1]).unwrap();
    pair.run_until("the end", |a, _| a.iter().any(|e| matches!(e, Event::LinkDown { .. })));
    assert!(matches!(pair.nic(0).poll_notice(caller), Some(Notice::Ended { .. })));
}

#[test]
fn what_is_not_registered_is_not_told() {
    let mut pair = pair();
    let (_, aperture, window) = pair.window(64);
    let trip = pair.nic(1).watch(aperture, 0..64, Access::Write, Action::Event, false).unwrap();
    pair.nic(1).unregister(Source::Tripwire(trip));
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[1; 8]).unwrap();
    pair.flush();
    assert!(!fired(&pair.logs[1].borrow(), trip));
    assert!(pair.nic(1).has_fired(trip).unwrap(), "it is remembered");
    pair.nic(1).register(Source::Tripwire(trip));
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[2; 8]).unwrap();
    pair.run_until("the event", |_, b| fired(b, trip));
}

#[test]
fn a_group_is_written_at_once() {
    let mut sim = Sim::from_number(6);
    let how = EngineConfig { shared: true, ..EngineConfig::default() };
    let hosts: Vec<_> = (1..=3).map(|n| add_host(&mut sim, n, Config::default(), how)).collect();
    let wire = LinkConfig::ethernet(1_000_000_000);
    for (other, _) in &hosts[1..] {
        sim.connect(hosts[0].0.id(), other.id(), wire).unwrap();
    }
    let publisher = hosts[0].0;
    for (n, (other, _)) in hosts[1..].iter().enumerate() {
        let (now, peer) = (sim.now(), Peer::Node(other.id().0));
        let nic = sim.node_mut(publisher).unwrap().engine_mut();
        nic.open_link(now, PathId(n as u16), peer).unwrap();
    }
    let up = |e: &Event| matches!(e, Event::LinkUp { .. });
    let log = hosts[0].1.clone();
    run_until(&mut sim, Duration::from_secs(5), "the links", || {
        log.borrow().iter().filter(|e| up(e)).count() == 2
    });
    let group = HostId::new(0xf00).unwrap();
    let cookie = sim.node_mut(publisher).unwrap().engine_mut().found_group(group, 3, 1024).unwrap();
    let areas: Vec<_> = hosts[1..]
        .iter()
        .map(|(host, _)| {
            let node = sim.node_mut(*host).unwrap();
            let region = node.memory_mut().lend(vec![0; 1024]).unwrap();
            let area = landfall_placement::Area::new(region, 0, 1024);
            let aperture = node.engine_mut().expose(area).unwrap();
            node.engine_mut().join_group(&cookie, aperture).unwrap();
            area
        })
        .collect();
    let members = [2, 3].map(|n| HostId::new(n).unwrap());
    let now = sim.now();
    let nic = sim.node_mut(publisher).unwrap().engine_mut();
    let window = nic.map_group(&cookie, &members).unwrap();
    nic.write(now, window, 100, b"to all of you").unwrap();
    assert_eq!(nic.read(now, window, 0, areas[0]), Err(Error::Forbidden));
    let end = now + Duration::from_secs(1);
    sim.run_until(end).unwrap();
    for ((host, _), area) in hosts[1..].iter().zip(areas) {
        let node = sim.node(*host).unwrap();
        assert_eq!(node.memory().read(area.span(100, 13)).unwrap(), b"to all of you");
        assert_eq!(node.engine().refusals().total(), 0);
    }
}
