//! How long a word takes from one host to another through two CLAN adapters, in virtual
//! time, against what section 5.2 of the paper says.

use clan_dsm::offload::Secret;
use clan_dsm::{Config, Event, HostId, NativeConfig, Nic, Rights, WindowId};
use landfall_placement::{Area, Duration, Random};
use landfall_simnet::LinkConfig;
use nic_firmware_model::clan::figures::{self, Design as Machine};
use nic_firmware_model::clan::{self, Clan, Cycles, Entries, Tables};
use nic_firmware_model::machine::{Adapter, Coalescing, Costs, Engines, Lock, Parts, Sizes};
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
            let nic = Nic::new(config, host, [number as u8; 32]).unwrap();
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

/// Each endpoint is an aperture and a tripwire of the adapter, as many as it has.
#[test]
fn the_response_time_is_independent_of_the_number_of_endpoints() {
    for sleeps in [true, false] {
        let time = |endpoints| figures::round_trip(&Machine::PAPER, endpoints, sleeps).unwrap();
        let (one, many) = (time(1), time(4_000));
        assert!(one.abs_diff(many) * 100 < one, "{one:?} with one, {many:?} with 4000");
    }
}

/// What a server that sleeps takes longer is a process that is woken, and a call.
#[test]
fn a_server_that_sleeps_is_woken_first() {
    let time = |sleeps| figures::round_trip(&Machine::PAPER, 10, sleeps).unwrap();
    let longer = time(true) - time(false);
    assert!(longer.abs_diff(Duration::from_nanos(8_750)).as_nanos() < 200, "{longer:?}");
}

/// "Even when the server is overloaded the performance ... is not degraded": and its
/// adapter puts all requests into memory.
#[test]
fn an_overloaded_server_serves_no_less() {
    let served = |endpoints| figures::requests(&Machine::PAPER, endpoints).unwrap();
    let all = [1, 5, 10, 20, 50].map(served);
    assert!(all.iter().all(|it| it.placed > 0.99), "{all:?}");
    let most = all.iter().map(|it| it.rate).fold(0.0, f64::max);
    assert!(all[0].rate * 2.0 < most && all[4].rate > most * 0.9, "{all:?}");
    assert!(all[4].interrupts < all[0].interrupts, "{all:?}");
}

/// Table 1's bandwidth is a point of Figure 12, "the same test".
#[test]
fn a_kilobyte_over_ip_takes_the_same_in_both_exhibits() {
    let exhibits = nic_firmware_model::reproduce::clan::exhibits();
    let value = |name: &str, row: &str| {
        let exhibit = exhibits.iter().find(|it| it.name == name).unwrap();
        let row = exhibit.rows.iter().find(|it| it.label == row).unwrap();
        row.values.last().unwrap().model
    };
    assert_eq!(value("Table 1", "CLAN IP"), value("Figure 12", "1024 bytes"));
}

/// Bits in a second of a message of this many bytes.
fn rate(design: &Machine, len: u32, is_dma: bool) -> f64 {
    figures::raw(design, len, is_dma).unwrap().rate
}

const LONG: u32 = 128 << 10;

/// 256 words and 41 cycles of a bus of 33 MHz are 910 Mbit/s, and with twice the stall 800.
#[test]
fn a_stall_before_each_burst_bounds_the_peak() {
    for (stall, megabits) in [(41, 910.0), (82, 800.0)] {
        let rate = rate(&Machine::PAPER.with_stall(stall), LONG, true) / 1e6;
        assert!((rate / megabits - 1.0).abs() < 0.015, "{stall} cycles: {rate} Mbit/s");
    }
}

/// What a program stores is slower the longer it is, once it meets a full FIFO; what DMA
/// moves is not.
#[test]
fn long_messages_of_a_program_lock_the_receivers_bridge_and_those_of_dma_do_not() {
    let sizes = [256, 512, 2_048, 65_536];
    let design = Machine::PAPER.with_lock(clan::LOCK);
    let run = |len, is_dma| figures::raw(&design, len, is_dma).unwrap();
    let stored = sizes.map(|len| run(len, false));
    assert!(stored.windows(2).all(|two| two[0].rate >= two[1].rate), "{stored:?}");
    assert!(stored[1].rate > stored[3].rate * 1.05, "no negative slope: {stored:?}");
    assert!(stored[0].locks == 0 && stored[3].locks > 10, "{stored:?}");
    assert!(sizes.iter().all(|len| run(*len, true).locks == 0));
    let [long, longer] = [4_096, 65_536].map(|len| run(len, true).rate);
    assert!((long / longer - 1.0).abs() < 0.05, "{long} and {longer}");
}

/// An adapter that backs off loses less than a bridge that writes word by word.
#[test]
fn the_workaround_frees_a_bridge_that_would_stay_locked() {
    let unnoticed = Lock { back_off: Duration::ZERO, ..clan::LOCK };
    let locks = [clan::LOCK, unnoticed].map(|lock| Machine::PAPER.with_lock(lock));
    let [free, freed, stuck] =
        [Machine::PAPER, locks[0], locks[1]].map(|design| rate(&design, 16_384, false) / 1e6);
    assert!(free > freed && freed > stuck * 4.0, "{free} {freed} {stuck}");
    // A word of 32 bits in 42 cycles.
    assert!((stuck / (32.0 * 33.0 / 42.0) - 1.0).abs() < 0.25, "{stuck} Mbit/s");
}

#[test]
fn joined_bursts_of_a_program_are_nearly_as_good_as_those_of_dma() {
    let [joined, moved] = [false, true].map(|is_dma| rate(&Machine::PAPER.joining(), LONG, is_dma));
    // What the sender stores comes a little slower than what its DMA engine moves.
    assert!((joined / moved - 1.0).abs() < 0.1, "{joined} and {moved}");
}

/// What a link cuts through is there sooner than what adapters store, and goes no faster.
#[test]
fn adapters_that_store_nothing_are_sooner_and_no_faster() {
    let mut stores = Machine::PAPER;
    stores.costs.cut_through = 0;
    let there = |design| figures::word(&design, false).unwrap();
    assert!(there(Machine::PAPER) < there(stores));
    assert!((rate(&Machine::PAPER, LONG, true) / rate(&stores, LONG, true) - 1.0).abs() < 0.02);
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
