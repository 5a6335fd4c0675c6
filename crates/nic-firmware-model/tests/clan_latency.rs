//! How long a word takes from one host to another through two CLAN adapters, in virtual
//! time, against what section 5.2 of the paper says.

use clan_dsm::offload::Secret;
use clan_dsm::{Config, Event, HostId, NativeConfig, Nic, Rights, WindowId};
use landfall_placement::{Area, Duration, Random};
use landfall_simnet::LinkConfig;
use nic_firmware_model::clan::{self, Clan, Cycles, Entries, Tables};
use nic_firmware_model::machine::{Adapter, Coalescing, Costs, Engines, Parts, Sizes};
use nic_firmware_model::node::NicNode;
use nic_firmware_model::world::World;

type Host = NicNode<Clan<'static>, Nic>;

/// The programs of these hosts spin: nobody waits for an interrupt.
const SPINNING: Costs = Costs { interrupts: Coalescing::Watched, ..clan::COSTS };
const STEP: Duration = Duration::from_nanos(20);

struct Pair {
    world: World<Nic, Host>,
    area: Area,
    window: WindowId,
}

impl Pair {
    fn new() -> Self {
        let [first, second] = [1u16, 2].map(|number| {
            let host = HostId::new(number).unwrap();
            let native = NativeConfig { adapter: true, ..NativeConfig::default() };
            let config = Config { native: Some(native), ..Config::default() };
            let secret = Secret::new(&mut Random::from_number(1));
            let habits = clan::Config { cycles: Cycles::CLAN, ..clan::Config::new(host, 1024) };
            let firmware = Clan::new(Tables::owned(&Entries::default(), secret), habits);
            let adapter = Adapter::new(firmware, Parts::owned(&Sizes::default()), SPINNING);
            let nic = Nic::new(config, host, [number as u8; 32]);
            Host::new(nic, vec![adapter])
        });
        let mut world = World::new(1, ("host 1", first), ("host 2", second));
        let link = LinkConfig {
            overhead: 0,
            delay: Duration::from_nanos(50),
            ..LinkConfig::ethernet(1_500_000_000)
        };
        world.connect(link).unwrap();
        let area = world.lend(1, vec![0; 4096]);
        let engine = world.engine_mut(1);
        let id = engine.expose(area).unwrap();
        let cookie = engine.cookie(id, Rights::ReadWrite).unwrap();
        let window = world.engine_mut(0).map(&cookie).unwrap();
        let mut pair = Self { world, area, window };
        pair.wait(Duration::from_millis(1));
        pair
    }

    fn wait(&mut self, time: Duration) {
        self.world.advance(time);
    }

    /// From a store to the moment at which a program that spins there sees it.
    fn write(&mut self) -> Duration {
        let start = self.world.now();
        let host = self.world.node_mut(0);
        host.engine_mut().write(start, self.window, 8, &[0xff; 8]).unwrap();
        for _ in 0..10_000 {
            self.wait(STEP);
            let memory = self.world.memory(1);
            if memory.read(self.area.span(8, 8)).unwrap() == [0xff; 8] {
                return self.world.now().since(start);
            }
        }
        panic!("it never came");
    }

    /// From a load to its value.
    fn read(&mut self) -> Duration {
        let start = self.world.now();
        let host = self.world.node_mut(0);
        let into = Area::new(host.memory_mut().lend(vec![1; 8]).unwrap(), 0, 8);
        let read = host.engine_mut().read(start, self.window, 64, into).unwrap();
        for _ in 0..10_000 {
            self.wait(STEP);
            let host = self.world.node_mut(0);
            while let Some(event) = host.poll_event() {
                if event == (Event::Read { read, result: Ok(()) }) {
                    return self.world.now().since(start);
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
    let now = pair.world.now();
    let host = pair.world.node_mut(0);
    let from = Area::new(host.memory_mut().lend(vec![7; 4096]).unwrap(), 0, 4096);
    host.engine_mut().write_from(now, pair.window, 0, from).unwrap();
    pair.wait(Duration::from_millis(1));
    let [both, none] = pair.world.node(0).adapters()[0].dma();
    assert!(both.bytes() >= 4096 && none.transfers() == 0, "{both:?} {none:?}");
    let [both, none] = pair.world.node(1).adapters()[0].dma();
    assert!(both.bytes() >= 4096 && none.transfers() == 0, "{both:?} {none:?}");
}
