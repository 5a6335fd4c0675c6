//! How long a word takes from one host to another through two CLAN adapters, in virtual
//! time, against what section 5.2 of the paper says.

use clan_dsm::offload::Secret;
use clan_dsm::{Config, Event, HostId, NativeConfig, Nic, Rights, WindowId};
use landfall_placement::{Area, Duration, Random};
use landfall_simnet::{Handle, LinkConfig, Sim};
use nic_firmware_model::clan::{self, Clan, Cycles, Entries, Tables};
use nic_firmware_model::machine::{Adapter, Coalescing, Costs, Engines, Parts, Sizes};
use nic_firmware_model::node::NicNode;

type Host = NicNode<Clan<'static>, Nic>;

/// The programs of these hosts spin: nobody waits for an interrupt.
const SPINNING: Costs = Costs { interrupts: Coalescing::Watched, ..clan::COSTS };
const STEP: Duration = Duration::from_nanos(20);

struct Pair {
    sim: Sim,
    hosts: [Handle<Host>; 2],
    area: Area,
    window: WindowId,
}

impl Pair {
    fn new() -> Self {
        let mut sim = Sim::from_number(1);
        let hosts = [1u16, 2].map(|number| {
            let host = HostId::new(number).unwrap();
            let native = NativeConfig { adapter: true, ..NativeConfig::default() };
            let config = Config { native: Some(native), ..Config::default() };
            let secret = Secret::new(&mut Random::from_number(1));
            let habits = clan::Config { cycles: Cycles::CLAN, ..clan::Config::new(host, 1024) };
            let firmware = Clan::new(Tables::owned(&Entries::default(), secret), habits);
            let adapter = Adapter::new(firmware, Parts::owned(&Sizes::default()), SPINNING);
            let nic = Nic::new(config, host, [number as u8; 32]);
            sim.add(&format!("host {number}"), Host::new(nic, vec![adapter])).unwrap()
        });
        let link = LinkConfig {
            overhead: 0,
            delay: Duration::from_nanos(50),
            ..LinkConfig::ethernet(1_500_000_000)
        };
        sim.connect(hosts[0].id(), hosts[1].id(), link).unwrap();
        let node = sim.node_mut(hosts[1]).unwrap();
        let area = Area::new(node.memory_mut().lend(vec![0; 4096]).unwrap(), 0, 4096);
        let id = node.engine_mut().expose(area).unwrap();
        let cookie = node.engine_mut().cookie(id, Rights::ReadWrite).unwrap();
        let window = sim.node_mut(hosts[0]).unwrap().engine_mut().map(&cookie).unwrap();
        let mut pair = Self { sim, hosts, area, window };
        pair.wait(Duration::from_millis(1));
        pair
    }

    fn wait(&mut self, time: Duration) {
        let until = self.sim.now() + time;
        self.sim.run_until(until).unwrap();
    }

    /// From a store to the moment at which a program that spins there sees it.
    fn write(&mut self) -> Duration {
        let start = self.sim.now();
        let host = self.sim.node_mut(self.hosts[0]).unwrap();
        host.engine_mut().write(start, self.window, 8, &[0xff; 8]).unwrap();
        for _ in 0..10_000 {
            self.wait(STEP);
            let memory = self.sim.node(self.hosts[1]).unwrap().memory();
            if memory.read(self.area.span(8, 8)).unwrap() == [0xff; 8] {
                return self.sim.now().since(start);
            }
        }
        panic!("it never came");
    }

    /// From a load to its value.
    fn read(&mut self) -> Duration {
        let start = self.sim.now();
        let host = self.sim.node_mut(self.hosts[0]).unwrap();
        let into = Area::new(host.memory_mut().lend(vec![1; 8]).unwrap(), 0, 8);
        let read = host.engine_mut().read(start, self.window, 64, into).unwrap();
        for _ in 0..10_000 {
            self.wait(STEP);
            let host = self.sim.node_mut(self.hosts[0]).unwrap();
            while let Some(event) = host.poll_event() {
                if event == (Event::Read { read, result: Ok(()) }) {
                    return self.sim.now().since(start);
                }
            }
        }
        panic!("it never came");
    }
}

#[test]
fn a_word_takes_as_long_as_the_paper_says_and_a_read_about_twice_as_long() {
    let mut pair = Pair::new();
    let (write, read) = (pair.write(), pair.read());
    // "an application to application one-way latency of 1.9 µs": within 15 %.
    let nanos = write.as_nanos();
    assert!((1_615..=2_185).contains(&nanos), "{write:?}");
    // "The latency for network reads is nearly twice that for writes".
    let ratio = read.as_nanos() * 100 / nanos;
    assert!((170..=230).contains(&ratio), "{read:?} against {write:?}");
}

#[test]
fn one_dma_engine_does_one_thing_at_a_time() {
    assert_eq!(clan::COSTS.engines, Engines::One);
    let mut pair = Pair::new();
    let now = pair.sim.now();
    let host = pair.sim.node_mut(pair.hosts[0]).unwrap();
    let from = Area::new(host.memory_mut().lend(vec![7; 4096]).unwrap(), 0, 4096);
    host.engine_mut().write_from(now, pair.window, 0, from).unwrap();
    pair.wait(Duration::from_millis(1));
    let [both, none] = pair.sim.node(pair.hosts[0]).unwrap().adapters()[0].dma();
    assert!(both.bytes() >= 4096 && none.transfers() == 0, "{both:?} {none:?}");
    let [both, none] = pair.sim.node(pair.hosts[1]).unwrap().adapters()[0].dma();
    assert!(both.bytes() >= 4096 && none.transfers() == 0, "{both:?} {none:?}");
}
