//! Two hosts at a native link in the simulator, and what their users see.

use clan_dsm::{
    Access, Action, Config, Cookie, DmaRequest, Ended, Error, Event, HostId, LinkId, NativeConfig,
    Nic, Notice, Port, PortAddress, Reason, Rights, WindowId,
};
use landfall_placement::{
    Area, Duration, Engine as _, PathId, Peer, Refusal, Span, WordFunction, WordWidth,
};
use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, Sim};

type Node = EngineNode<Nic>;

struct Two {
    sim: Sim,
    nodes: [Handle<Node>; 2],
    link: landfall_simnet::LinkId,
}

impl Two {
    fn new(native: NativeConfig) -> Self {
        let config = Config { native: Some(native), ..Config::default() };
        let mut sim = Sim::from_number(1);
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let nodes = [1u8, 2].map(|number| {
            let host = HostId::new(number.into()).unwrap();
            let nic = Nic::new(config.clone(), host, [number; 32]).unwrap();
            sim.add(if number == 1 { "one" } else { "two" }, Node::with_config(nic, how)).unwrap()
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

    fn nic(&mut self, side: usize) -> &mut Nic {
        self.node(side).engine_mut()
    }

    fn map(&mut self, side: usize, cookie: &Cookie) -> WindowId {
        self.nic(side).map(cookie).unwrap()
    }

    /// The links of a side that are up.
    fn up(&mut self, side: usize) -> Vec<LinkId> {
        self.nic(side).links().filter_map(|(link, is_up)| is_up.then_some(link)).collect()
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
        let id = self.nic(side).expose(area).unwrap();
        (area, self.nic(side).cookie(id, rights).unwrap())
    }

    fn bytes(&mut self, side: usize, span: Span) -> Vec<u8> {
        self.node(side).memory().read(span).unwrap().to_vec()
    }
}

#[test]
fn what_is_written_and_read_is_where_it_belongs() {
    let mut two = Two::new(NativeConfig::default());
    let (host, link) = (HostId::new(2).unwrap(), two.up(0)[0]);
    assert_eq!(two.events(0), [Event::LinkUp { link, host }]);
    let (area, cookie) = two.expose(1, 40_000, Rights::ReadWrite);
    let window = two.map(0, &cookie);
    let bytes: Vec<u8> = (0..9_001u32).map(|n| (n * 7) as u8).collect();
    let now = two.sim.now();
    two.nic(0).write(now, window, 3, &bytes).unwrap();
    let from = two.lend(0, (0..16_000u32).map(|n| (n * 3) as u8).collect());
    let write = two.nic(0).write_from(now, window, 16_000, from).unwrap();
    two.wait();
    assert_eq!(two.bytes(1, area.span(3, 9_001)), bytes);
    assert_eq!(two.bytes(1, area.span(0, 3)), [0; 3]);
    assert_eq!(two.bytes(1, area.span(9_004, 100)), [0; 100]);
    let sent = two.bytes(0, from.span(0, 16_000));
    assert_eq!(two.bytes(1, area.span(16_000, 16_000)), sent);
    assert_eq!(two.events(0), [Event::Written { write, result: Ok(()) }]);

    let into = two.lend(0, vec![0; 8_000]);
    let now = two.sim.now();
    let read = two.nic(0).read(now, window, 16_000, into).unwrap();
    two.wait();
    assert_eq!(two.events(0), [Event::Read { read, result: Ok(()) }]);
    assert_eq!(two.bytes(0, into.span(0, 8_000)), sent[..8_000]);
}

#[test]
fn a_tripwire_hears_of_its_word_and_of_no_other() {
    let mut two = Two::new(NativeConfig::default());
    let area = two.lend(1, vec![0; 4096]);
    let nic = two.nic(1);
    let id = nic.expose(area).unwrap();
    let cookie = nic.cookie(id, Rights::Write).unwrap();
    let tripwire = nic.watch(id, 800..808, Access::Write, Action::Event, true).unwrap();
    two.events(1);
    let window = two.map(0, &cookie);
    let now = two.sim.now();
    two.nic(0).write(now, window, 0, &[1; 800]).unwrap();
    two.nic(0).write(now, window, 808, &[1; 400]).unwrap();
    two.wait();
    assert_eq!(two.events(1), []);
    let now = two.sim.now();
    for _ in 0..2 {
        two.nic(0).write(now, window, 800, &[2; 8]).unwrap();
    }
    two.wait();
    assert_eq!(two.events(1), [Event::Tripwire { tripwire }], "it is once-only");
    assert_eq!(two.nic(1).firings(tripwire), Ok(1));
}

#[test]
fn what_is_not_allowed_is_refused_and_told() {
    let mut two = Two::new(NativeConfig::default());
    let (area, cookie) = two.expose(1, 64, Rights::Write);
    let now = two.sim.now();
    let (window, word) = (two.map(0, &cookie), Area { len: 8, ..area });
    let nic = two.nic(0);
    assert_eq!(nic.write(now, window, 60, &[1; 5]), Err(Error::OutOfBounds));
    assert_eq!(nic.read(now, window, 0, word), Err(Error::Forbidden));
    assert_eq!(nic.write_from(now, window, 4, word), Err(Error::Unaligned));
    // Cookies that nobody gave out.
    let forged = |len, rights| Cookie::new(cookie.host(), cookie.slot(), rights, cookie.key(), len);
    let long = nic.map(&forged(128, Rights::Write)).unwrap();
    nic.write(now, long, 32, &[7; 64]).unwrap();
    let readable = nic.map(&forged(64, Rights::Read)).unwrap();
    let read = nic.read(now, readable, 0, word).unwrap();
    two.wait();
    let [
        Event::LinkUp { .. },
        Event::Exception { address: Some(address), reason, .. },
        Event::Read { read: it, result },
    ] = two.events(0)[..]
    else {
        panic!("other events");
    };
    assert_eq!((address.word, reason), (8, Reason::OutOfBounds), "the first words are there");
    assert_eq!((it, result), (read, Err(Ended::There(Reason::Forbidden))));
    assert_eq!(two.bytes(1, area.span(0, 64)), [[0; 32], [7; 32]].concat());
    let refusals = *two.nic(1).refusals();
    assert_eq!((refusals.of(Refusal::OutOfBounds), refusals.of(Refusal::Forbidden)), (1, 1));
}

#[test]
fn memory_comes_back_and_its_cookie_opens_nothing() {
    let mut two = Two::new(NativeConfig::default());
    let area = two.lend(1, vec![0; 64]);
    let id = two.nic(1).expose(area).unwrap();
    let cookie = two.nic(1).cookie(id, Rights::Write).unwrap();
    let now = two.sim.now();
    let window = two.map(0, &cookie);
    two.nic(1).revoke(id).unwrap();
    two.nic(0).write(now, window, 0, &[1; 8]).unwrap();
    two.wait();
    assert_eq!(two.events(1)[1..], [Event::Released { aperture: id }]);
    assert_eq!(two.bytes(1, area.span(0, 8)), [0; 8]);
    assert_eq!(two.nic(1).refusals().of(Refusal::WrongKey), 1);
}

#[test]
fn a_link_that_was_cut_begins_anew_and_both_are_told() {
    let mut two = Two::new(NativeConfig { room: 64, ..NativeConfig::default() });
    let (area, cookie) = two.expose(1, 4096, Rights::Write);
    two.events(0);
    let (window, up) = (two.map(0, &cookie), two.up(0)[0]);
    let from = two.lend(0, vec![5; 4096]);
    let now = two.sim.now();
    let write = two.nic(0).write_from(now, window, 0, from).unwrap();
    two.sim.run_until(now + Duration::from_micros(3)).unwrap();
    let link = two.link;
    two.sim.set_link(link, false).unwrap();
    two.wait();
    let gone = Ended::LinkGone;
    assert_eq!(
        two.events(0),
        [Event::Written { write, result: Err(gone) }, Event::LinkDown { link: up, why: gone }]
    );
    assert_eq!(two.nic(0).write(now, window, 0, &[1]), Err(Error::NoLink));
    two.sim.set_link(link, true).unwrap();
    two.wait();
    let host = HostId::new(2).unwrap();
    let [link] = two.up(0)[..] else { panic!("it is not up") };
    assert_eq!(two.events(0), [Event::LinkUp { link, host }]);
    assert_ne!(link, up, "it has another name");
    let now = two.sim.now();
    two.nic(0).write(now, window, 0, &[9; 4096]).unwrap();
    two.wait();
    assert_eq!(two.bytes(1, area.span(0, 4096)), [9; 4096]);
}

#[test]
fn endpoints_and_chains_of_dma_work_as_over_a_network() {
    let mut two = Two::new(NativeConfig::default());
    let (listener, caller) =
        (two.nic(1).open_endpoint(Some(Port(7))).unwrap(), two.nic(0).open_endpoint(None).unwrap());
    two.nic(1).listen(listener).unwrap();
    let to = PortAddress { host: HostId::new(2).unwrap(), port: Port(7) };
    two.nic(0).connect(caller, to, [1; 40]).unwrap();
    two.wait();
    let Some(Notice::Request(request)) = two.nic(1).poll_notice(listener) else { panic!() };
    let callee = two.nic(1).open_endpoint(None).unwrap();
    two.nic(1).accept(callee, &request, [2; 40]).unwrap();
    two.wait();
    let Some(Notice::Accepted { body, .. }) = two.nic(0).poll_notice(caller) else { panic!() };
    assert_eq!((request.body, body), ([1; 40], [2; 40]));

    let (area, cookie) = two.expose(1, 4096, Rights::ReadWrite);
    let (window, from, into) =
        (two.map(0, &cookie), two.lend(0, vec![7; 3_200]), two.lend(0, vec![0; 800]));
    two.events(0);
    let now = two.sim.now();
    let chain = [
        DmaRequest::Write { from, window, offset: 8 },
        DmaRequest::Word { window, offset: 4088, value: 1 },
        DmaRequest::Read { window, offset: 8, into },
    ];
    let dma = two.nic(0).dma(now, caller, &chain).unwrap();
    two.wait();
    assert_eq!(two.events(0), [Event::Dma { endpoint: caller, dma, result: Ok(()) }]);
    assert_eq!(two.bytes(1, area.span(8, 3_200)), [7; 3_200]);
    assert_eq!(two.bytes(1, area.span(4088, 8)), 1_u64.to_le_bytes());
    assert_eq!(two.bytes(0, into.span(0, 800)), [7; 800]);
}

#[test]
fn what_a_native_link_cannot_do_is_an_error() {
    let mut two = Two::new(NativeConfig::default());
    let (_, cookie) = two.expose(1, 64, Rights::ReadWrite);
    let (window, link) = (two.map(0, &cookie), two.up(0)[0]);
    let from = two.lend(0, vec![0; 12]);
    two.events(0);
    let now = two.sim.now();
    let nic = two.nic(0);
    assert_eq!(nic.barrier(now, link), Err(Error::NotOpen), "nothing is acknowledged");
    assert_eq!(nic.write_from(now, window, 0, from), Err(Error::Unaligned), "a word in part");
    assert_eq!(nic.open_link(now, PathId(0), Peer::Unaddressed), Err(Error::PathDown));
    let operation = nic.change(now, window, 0, WordWidth::Eight, WordFunction::Add(1)).unwrap();
    two.wait();
    let result = Err(Ended::There(Reason::NoRoom));
    assert_eq!(two.events(0), [Event::Word { operation, result }]);
}
