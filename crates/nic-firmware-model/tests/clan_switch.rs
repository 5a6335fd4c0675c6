//! Hosts with CLAN adapters around a worm-hole switch in the simulator.

use clan_dsm::native::switch::{self, PortId as Route, Switch};
use clan_dsm::offload::Secret;
use clan_dsm::{Access, Action, Config, Cookie, Event, HostId, NativeConfig, Nic, Rights};
use landfall_placement::{Area, Duration, Engine as _, Random, Refusal};
use landfall_simnet::{Handle, LinkConfig, LinkId, PortId, Sim, TailDrop};
use nic_firmware_model::clan::{self, Clan, Entries, SwitchNode, Tables};
use nic_firmware_model::machine::{Adapter, Costs, Parts, Sizes};
use nic_firmware_model::node::NicNode;

type Host = NicNode<Clan<'static>, Nic>;

const GROUP: u16 = 0x100;
/// Words that an input sends before another has its turn.
const TURN: u32 = 16;

struct Net {
    sim: Sim,
    hosts: Vec<Handle<Host>>,
    links: Vec<LinkId>,
    switch: Handle<SwitchNode>,
}

fn number(host: usize) -> HostId {
    HostId::new(host as u16).expect("twelve bits")
}

impl Net {
    fn new(count: usize) -> Self {
        let mut sim = Sim::from_number(4);
        let config = switch::Config { turn: TURN, ..switch::Config::default() };
        let mut switch = Switch::new(config, Random::from_number(1)).unwrap();
        for host in 0..count {
            switch.route(number(host), Route(host as u8)).unwrap();
            // All but the first.
            if host > 0 {
                switch.join(number(GROUP.into()), Route(host as u8)).unwrap();
            }
        }
        let switch = sim.add("switch", SwitchNode::new(switch)).unwrap();
        let (mut hosts, mut links) = (Vec::new(), Vec::new());
        for host in 0..count {
            let native = NativeConfig { adapter: true, dma_burst: 128, ..NativeConfig::default() };
            let config =
                Config { native: Some(native), write_buffer: 192 << 10, ..Config::default() };
            let secret = Secret::new(&mut Random::from_number(host as u64));
            let habits = clan::Config::new(number(host), native.room);
            let firmware = Clan::new(Tables::owned(&Entries::default(), secret), habits);
            let adapter = Adapter::new(firmware, Parts::owned(&Sizes::default()), Costs::OFF);
            let nic = Nic::new(config, number(host), [host as u8; 32]).unwrap();
            let node = sim.add(&format!("host {host}"), Host::new(nic, vec![adapter]));
            let node = node.unwrap();
            let link = LinkConfig {
                queue: TailDrop { frames: 2, ..TailDrop::default() },
                ..LinkConfig::ethernet(1_500_000_000)
            };
            links.push(sim.connect(switch.id(), node.id(), link).unwrap());
            hosts.push(node);
        }
        let mut net = Self { sim, hosts, links, switch };
        net.wait(Duration::from_millis(1));
        net
    }

    fn wait(&mut self, time: Duration) {
        let until = self.sim.now() + time;
        self.sim.run_until(until).unwrap();
    }

    fn node(&mut self, host: usize) -> &mut Host {
        self.sim.node_mut(self.hosts[host]).unwrap()
    }

    fn lend(&mut self, host: usize, bytes: Vec<u8>) -> Area {
        let len = bytes.len() as u64;
        Area::new(self.node(host).memory_mut().lend(bytes).unwrap(), 0, len)
    }

    fn expose(&mut self, host: usize, len: usize) -> (Area, Cookie) {
        let area = self.lend(host, vec![0; len]);
        let engine = self.node(host).engine_mut();
        let id = engine.expose(area).unwrap();
        (area, engine.cookie(id, Rights::Write).unwrap())
    }

    fn send(&mut self, host: usize, cookie: &Cookie, byte: u8) {
        let len = cookie.len();
        let from = self.lend(host, vec![byte; len as usize]);
        let now = self.sim.now();
        let engine = self.node(host).engine_mut();
        let window = engine.map(cookie).unwrap();
        engine.write_from(now, window, 0, from).unwrap();
    }

    /// Whether the switch is to send nothing to a host, whatever its credit.
    fn hold(&mut self, host: usize, is_held: bool) {
        let engine = self.node(host).engine_mut();
        let (link, _) = engine.links().next().expect("it is up");
        engine.hold(link, is_held).unwrap();
    }

    fn bytes(&mut self, host: usize, area: Area) -> Vec<u8> {
        self.node(host).memory().bytes(area.region).unwrap().to_vec()
    }

    fn longest(&self, host: usize) -> usize {
        self.sim.node(self.switch).unwrap().longest(PortId(host as u16))
    }
}

#[test]
fn a_packet_is_cut_where_two_want_one_way_and_only_there() {
    let mut net = Net::new(3);
    let (first, one) = net.expose(0, 1 << 16);
    let (second, other) = net.expose(0, 1 << 16);
    net.send(1, &one, 0xaa);
    net.wait(Duration::from_millis(2));
    let alone = net.longest(0);
    assert!(alone > 16 + 64 * 8, "{alone} bytes at most, though nobody else wants the way");
    let before = net.sim.stats(net.links[0].there()).delivered;

    net.send(1, &one, 0xbb);
    net.send(2, &other, 0xcc);
    net.wait(Duration::from_millis(4));
    assert!(net.bytes(0, first).iter().all(|byte| *byte == 0xbb));
    assert!(net.bytes(0, second).iter().all(|byte| *byte == 0xcc));
    let both = net.sim.stats(net.links[0].there()).delivered - before;
    assert!(both > 3 * before, "cut into {both} units, those of one alone were {before}");
    assert_eq!(net.node(0).adapters()[0].counters().overruns, 0);
}

#[test]
fn short_packets_behind_one_another_become_long_ones() {
    let mut net = Net::new(3);
    let (area, cookie) = net.expose(0, 1 << 15);
    // The way out is held, so that they meet in the switch.
    net.hold(0, true);
    net.wait(Duration::from_micros(50));
    let now = net.sim.now();
    let engine = net.node(1).engine_mut();
    let window = engine.map(&cookie).unwrap();
    for nth in 0..512u64 {
        engine.write(now, window, nth * 64, &[nth as u8; 64]).unwrap();
    }
    net.wait(Duration::from_micros(200));
    net.hold(0, false);
    net.wait(Duration::from_millis(4));
    let bytes = net.bytes(0, area);
    assert!((0..512).all(|nth| bytes[nth * 64..][..64] == [nth as u8; 64]));
    assert!(net.longest(0) > 16 + 64, "none were joined: {}", net.longest(0));
}

#[test]
fn a_publication_comes_to_every_member_at_once() {
    let mut net = Net::new(4);
    let group = net.node(1).engine_mut().found_group(number(GROUP.into()), 1, 1024).unwrap();
    let mut members = Vec::new();
    for host in 1..4 {
        let area = net.lend(host, vec![0; 2_048]);
        let engine = net.node(host).engine_mut();
        let id = engine.expose(area).unwrap();
        engine.join_group(&group, id).unwrap();
        let wire = engine.watch(id, 1_016..1_024, Access::Write, Action::Event, false).unwrap();
        members.push((host, area, wire));
    }
    net.wait(Duration::from_millis(1));
    let now = net.sim.now();
    let engine = net.node(0).engine_mut();
    let window = engine.map_group(&group, &[]).unwrap();
    engine.write(now, window, 0, &[7; 1_024]).unwrap();
    net.wait(Duration::from_millis(2));
    for (host, area, tripwire) in members {
        let bytes = net.bytes(host, area);
        assert!(bytes[..1_024].iter().all(|byte| *byte == 7), "host {host}");
        assert!(bytes[1_024..].iter().all(|byte| *byte == 0), "host {host}");
        let node = net.node(host);
        let heard = std::iter::from_fn(|| node.poll_event())
            .any(|event| event == Event::Tripwire { tripwire });
        assert!(heard, "host {host}");
        assert!(node.adapters()[0].counters().placed > 0, "it was the adapter's to place");
    }
    assert_eq!(net.node(0).adapters()[0].counters().placed, 0, "it is no member");
}

#[test]
fn who_is_told_to_wait_waits_and_loses_nothing() {
    let mut net = Net::new(2);
    let (area, cookie) = net.expose(0, 1 << 16);
    net.hold(0, true);
    net.wait(Duration::from_micros(50));
    net.send(1, &cookie, 0x5a);
    net.wait(Duration::from_millis(3));
    let came = net.bytes(0, area).iter().filter(|byte| **byte == 0x5a).count();
    assert_eq!(came, 0, "Xoff stops the switch, and its credit the sender");
    net.hold(0, false);
    net.wait(Duration::from_millis(3));
    assert!(net.bytes(0, area).iter().all(|byte| *byte == 0x5a));
}

/// A switch says of nobody who it is.
#[test]
fn behind_a_switch_a_key_for_one_peer_opens_nothing() {
    let mut net = Net::new(3);
    let area = net.lend(0, vec![0; 4_096]);
    let engine = net.node(0).engine_mut();
    let id = engine.expose(area).unwrap();
    let cookies = [1, 2].map(|host| engine.cookie_for(id, Rights::Write, number(host)).unwrap());
    for (host, cookie) in [1, 2].into_iter().zip(&cookies) {
        net.send(host, cookie, 0xbb);
    }
    net.wait(Duration::from_millis(4));
    assert_eq!(net.bytes(0, area), [0; 4_096]);
    // 4,096 bytes are five frames from each.
    assert_eq!(net.node(0).engine().refusals().of(Refusal::WrongKey), 10);
}
