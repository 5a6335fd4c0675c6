//! Two stations at a native link in the simulator, and what their users see.

use clan_dsm::native::State;
use clan_dsm::offload::Action;
use clan_dsm::station::{Config, Event, Station};
use clan_dsm::{Access, Cookie, Ended, Error, HostId, Reason, Rights};
use landfall_placement::{Area, Duration, Engine as _, Refusal, Span};
use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Sim};

type Node = EngineNode<Station>;

struct Two {
    sim: Sim,
    nodes: [Handle<Node>; 2],
    link: LinkId,
}

impl Two {
    fn new(config: Config) -> Self {
        let mut sim = Sim::from_number(1);
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let nodes = [1u8, 2].map(|number| {
            let host = HostId::new(number.into()).unwrap();
            let station = Station::new(config, host, [number; 32]);
            sim.add(if number == 1 { "one" } else { "two" }, Node::with_config(station, how))
                .unwrap()
        });
        let link = sim.connect(nodes[0], nodes[1], LinkConfig::ethernet(1_000_000_000)).unwrap();
        let mut two = Self { sim, nodes, link };
        two.wait();
        two
    }

    fn wait(&mut self) {
        let until = self.sim.now() + Duration::from_millis(5);
        self.sim.run_until(until).unwrap();
    }

    fn node(&mut self, side: usize) -> &mut Node {
        self.sim.node_mut(self.nodes[side]).unwrap()
    }

    fn station(&mut self, side: usize) -> &mut Station {
        self.node(side).engine_mut()
    }

    fn events(&mut self, side: usize) -> Vec<Event> {
        let node = self.node(side);
        std::iter::from_fn(|| node.poll_event()).collect()
    }

    fn lend(&mut self, side: usize, bytes: Vec<u8>) -> Area {
        let len = bytes.len() as u64;
        Area::new(self.node(side).memory_mut().lend(bytes).unwrap(), 0, len)
    }

    fn expose(&mut self, side: usize, len: usize, rights: Rights) -> (Area, Cookie) {
        let area = self.lend(side, vec![0; len]);
        let id = self.station(side).expose(area).unwrap();
        (area, self.station(side).cookie(id, rights).unwrap())
    }

    fn bytes(&mut self, side: usize, span: Span) -> Vec<u8> {
        self.node(side).memory().read(span).unwrap().to_vec()
    }
}

#[test]
fn what_is_written_and_read_is_where_it_belongs() {
    let mut two = Two::new(Config::default());
    assert_eq!(two.events(0), [Event::Up { peer: HostId::new(2) }]);
    let (area, cookie) = two.expose(1, 40_000, Rights::ReadWrite);
    let bytes: Vec<u8> = (0..9_001u32).map(|n| (n * 7) as u8).collect();
    let now = two.sim.now();
    two.station(0).write(now, &cookie, 3, &bytes).unwrap();
    let from = two.lend(0, (0..16_000u32).map(|n| (n * 3) as u8).collect());
    let write = two.station(0).write_from(now, &cookie, 16_000, from.span(0, 16_000)).unwrap();
    two.wait();
    assert_eq!(two.bytes(1, area.span(3, 9_001)), bytes);
    assert_eq!(two.bytes(1, area.span(0, 3)), [0; 3]);
    assert_eq!(two.bytes(1, area.span(9_004, 100)), [0; 100]);
    let sent = two.bytes(0, from.span(0, 16_000));
    assert_eq!(two.bytes(1, area.span(16_000, 16_000)), sent);
    assert_eq!(two.events(0), [Event::Written { write, result: Ok(()) }]);

    let into = two.lend(0, vec![0; 8_000]);
    let now = two.sim.now();
    let read = two.station(0).read(now, &cookie, 16_000, into.span(0, 8_000)).unwrap();
    two.wait();
    assert_eq!(two.events(0), [Event::Read { read, result: Ok(()) }]);
    assert_eq!(two.bytes(0, into.span(0, 8_000)), sent[..8_000]);
}

#[test]
fn a_tripwire_hears_of_its_word_and_of_no_other() {
    let mut two = Two::new(Config::default());
    let area = two.lend(1, vec![0; 4096]);
    let station = two.station(1);
    let id = station.expose(area).unwrap();
    let cookie = station.cookie(id, Rights::Write).unwrap();
    let tripwire = station.watch(id, 800..808, Access::Write, Action::Event, true).unwrap();
    two.events(1);
    let now = two.sim.now();
    two.station(0).write(now, &cookie, 0, &[1; 800]).unwrap();
    two.station(0).write(now, &cookie, 808, &[1; 400]).unwrap();
    two.wait();
    assert_eq!(two.events(1), []);
    let now = two.sim.now();
    for _ in 0..2 {
        two.station(0).write(now, &cookie, 800, &[2; 8]).unwrap();
    }
    two.wait();
    assert_eq!(two.events(1), [Event::Tripwire { tripwire }], "it is once-only");
    assert_eq!(two.station(1).count(tripwire), Ok(1));
}

#[test]
fn what_is_not_allowed_is_refused_and_told() {
    let mut two = Two::new(Config::default());
    let (area, cookie) = two.expose(1, 64, Rights::Write);
    let now = two.sim.now();
    let station = two.station(0);
    assert_eq!(station.write(now, &cookie, 60, &[1; 5]), Err(Error::OutOfBounds));
    assert_eq!(station.read(now, &cookie, 0, area.span(0, 8)), Err(Error::Forbidden));
    assert_eq!(station.write_from(now, &cookie, 4, area.span(0, 8)), Err(Error::Unaligned));
    // Cookies that nobody gave out.
    let forged = |len, rights| Cookie::new(cookie.host(), cookie.slot(), rights, cookie.key(), len);
    station.write(now, &forged(128, Rights::Write), 32, &[7; 64]).unwrap();
    let read = station.read(now, &forged(64, Rights::Read), 0, area.span(0, 8)).unwrap();
    two.wait();
    let [Event::Up { .. }, Event::Exception { address, reason }, Event::Read { read: it, result }] =
        two.events(0)[..]
    else {
        panic!("other events");
    };
    assert_eq!((address.word, reason), (8, Reason::OutOfBounds), "the first words are there");
    assert_eq!((it, result), (read, Err(Ended::There(Reason::Forbidden))));
    assert_eq!(two.bytes(1, area.span(0, 64)), [[0; 32], [7; 32]].concat());
    let refusals = *two.station(1).refusals();
    assert_eq!((refusals.of(Refusal::OutOfBounds), refusals.of(Refusal::Forbidden)), (1, 1));
}

#[test]
fn memory_comes_back_and_its_cookie_opens_nothing() {
    let mut two = Two::new(Config::default());
    let area = two.lend(1, vec![0; 64]);
    let id = two.station(1).expose(area).unwrap();
    let cookie = two.station(1).cookie(id, Rights::Write).unwrap();
    let now = two.sim.now();
    two.station(1).revoke(now, id).unwrap();
    two.station(0).write(now, &cookie, 0, &[1; 8]).unwrap();
    two.wait();
    assert_eq!(two.events(1)[1..], [Event::Released { aperture: id }]);
    assert_eq!(two.bytes(1, area.span(0, 8)), [0; 8]);
    assert_eq!(two.station(1).refusals().of(Refusal::WrongKey), 1);
}

#[test]
fn a_link_that_was_cut_begins_anew_and_both_are_told() {
    let mut two = Two::new(Config { room: 64, ..Config::default() });
    let (area, cookie) = two.expose(1, 4096, Rights::Write);
    two.events(0);
    let from = two.lend(0, vec![5; 4096]);
    let now = two.sim.now();
    let write = two.station(0).write_from(now, &cookie, 0, from.span(0, 4096)).unwrap();
    two.sim.run_until(now + Duration::from_micros(3)).unwrap();
    let link = two.link;
    two.sim.set_link(link, false).unwrap();
    two.wait();
    let gone = Ended::LinkGone;
    assert_eq!(
        two.events(0),
        [Event::Written { write, result: Err(gone) }, Event::Down { why: gone }]
    );
    assert_eq!(two.station(0).write(now, &cookie, 0, &[1]), Err(Error::NoLink));
    two.sim.set_link(link, true).unwrap();
    two.wait();
    assert_eq!(two.events(0), [Event::Up { peer: HostId::new(2) }]);
    assert_eq!(two.station(0).state(), State::Up);
    let now = two.sim.now();
    two.station(0).write(now, &cookie, 0, &[9; 4096]).unwrap();
    two.wait();
    assert_eq!(two.bytes(1, area.span(0, 4096)), [9; 4096]);
}
