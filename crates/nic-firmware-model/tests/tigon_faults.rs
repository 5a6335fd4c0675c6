//! What goes wrong with a Tigon-II, costs on: memory that runs out, rings that
//! overrun, entries that go while their packets are under way, firmware that is
//! loaded anew. Never a byte in the wrong place, and service goes on.

use std::cell::RefCell;
use std::rc::Rc;

use landfall_placement::{Area, Duration, Instant, PathId, Random};
use landfall_simnet::{EngineConfig, EngineNode, LinkConfig, Memory};
use nic_firmware_model::machine::{
    Adapter, BridgeCosts, BusCosts, Coalescing, Costs, DmaCosts, Engines, Parts, Sizes, Sram,
};
use nic_firmware_model::node::NicNode;
use nic_firmware_model::tigon::{self, Reports, Tables, Tigon};
use nic_firmware_model::world::World;
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event};

type Host = NicNode<Tigon<'static>, Endpoint>;
type Peer = EngineNode<Endpoint>;
type Log = Rc<RefCell<Vec<Event>>>;

/// The most STUs of a Block here.
const STUS: u16 = 64;

fn config() -> Config {
    Config {
        max_stu: 10,
        block_stus: 6,
        buffer: 20,
        retry_after: Duration::from_millis(4),
        retry_floor: Duration::from_millis(1),
        keep_alive: None,
        ..Config::default()
    }
}

/// Nothing is asked for again before the host has heard of a whole Block.
fn patient() -> Config {
    let time = Duration::from_millis(100);
    Config { retry_after: time, retry_floor: time, ..config() }
}

/// So slow to move payloads that some are always under way.
const SLUGGISH: Costs = Costs {
    clock: 88_000_000,
    dma: DmaCosts { setup: Duration::from_micros(30), rate: 0, gap: Duration::ZERO },
    engines: Engines::Two,
    bus: BusCosts::PCI_32_33,
    cut_through: 0,
    bridge: BridgeCosts::NONE,
    report: 16,
    interrupts: Coalescing::After { time: Duration::from_micros(100), reports: 8 },
};

fn adapter(blocks: usize, sizes: Sizes, costs: Costs) -> Adapter<'static, Tigon<'static>> {
    let config = tigon::Config { reports: Reports::Gathered, ..tigon::Config::default() };
    let firmware = Tigon::new(Tables::owned(blocks, STUS), config);
    Adapter::new(firmware, Parts::owned(&sizes), costs)
}

/// Keeps what it is told, and freezes memory that is its own again: anyone who
/// writes there later ends the run (invariant 1).
fn keep(log: Log) -> impl FnMut(Instant, &mut Endpoint, &mut Memory, Event) {
    move |_, _, memory, event| {
        let own = match event {
            Event::Received { memory, .. } => Some(memory),
            Event::ReceiveEnded { memory, .. } => memory,
            _ => None,
        };
        if let Some(area) = own {
            memory.freeze(area.span(0, area.len as u32)).unwrap();
        }
        log.borrow_mut().push(event);
    }
}

/// A host behind adapters, and its peer.
struct Two {
    world: World<Endpoint, Host, Peer>,
    told: Log,
    /// The connection, as each names it.
    at_host: ConnectionId,
    at_peer: ConnectionId,
}

impl Two {
    /// Over Gigabit Ethernet, which brings more packets than the adapter has DMAs.
    fn new(config: &Config, adapters: Vec<Adapter<'static, Tigon<'static>>>) -> Self {
        Self::over(1_000_000_000, config, adapters)
    }

    fn over(rate: u64, config: &Config, adapters: Vec<Adapter<'static, Tigon<'static>>>) -> Self {
        let (told, at_peer) = (Log::default(), Log::default());
        let count = adapters.len();
        let engine =
            Endpoint::new(Config { adapters: count as u8, ..config.clone() }, [1; 32]).unwrap();
        let host = Host::new(engine, adapters).on_event(keep(told.clone()));
        let mut engine = Endpoint::new(config.clone(), [2; 32]).unwrap();
        engine.listen(7, Admission::Open).unwrap();
        let peer = Peer::with_config(engine, EngineConfig::default());
        let peer = peer.on_event(keep(at_peer.clone()));
        let mut world = World::new(5, ("host", host), ("peer", peer));
        let link = LinkConfig::ethernet(rate);
        for _ in 0..count {
            world.connect(link).unwrap();
        }
        let peer = world.id(1).peer();
        let connect = Connect { port: 7, local_port: None, hello: 0 };
        let engine = world.engine_mut(0);
        let id = engine.connect(Instant::ZERO, PathId(0), peer, connect).unwrap();
        world.advance(Duration::from_millis(5));
        for path in 1..count {
            let (now, path) = (world.now(), PathId(path as u16));
            world.engine_mut(0).add_link(now, id, path, peer).unwrap();
        }
        world.advance(Duration::from_millis(5));
        let accepted = at_peer.borrow().iter().find_map(|event| match event {
            Event::Accepted { connection, .. } => Some(*connection),
            _ => None,
        });
        let at_peer = accepted.expect("they are connected");
        Self { world, told, at_host: id, at_peer }
    }

    /// The peer sends bytes of its own; the host gets them there.
    fn begin(&mut self, len: usize) -> (Area, Vec<u8>) {
        let mut random = Random::from_number(len as u64);
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        let now = self.world.now();
        let host = self.world.host_mut();
        let region = host.memory_mut().lend(vec![0xee; len + 200]).unwrap();
        let area = Area::new(region, 100, len as u64);
        host.engine_mut().post(now, self.at_host, area, false).unwrap();
        let peer = self.world.peer_mut();
        let region = peer.memory_mut().lend(bytes.clone()).unwrap();
        let from = Area::new(region, 0, len as u64);
        peer.engine_mut().send(now, self.at_peer, from, 0).unwrap();
        (area, bytes)
    }

    fn wait(&mut self, time: Duration) {
        self.world.advance(time);
    }

    fn received(&self) -> usize {
        self.told.borrow().iter().filter(|event| matches!(event, Event::Received { .. })).count()
    }

    /// Until this many Transfers were received; at most ten seconds.
    fn wait_for(&mut self, transfers: usize) {
        for _ in 0..1_000 {
            if self.received() >= transfers {
                return self.wait(Duration::from_millis(20));
            }
            self.wait(Duration::from_millis(10));
        }
        panic!("{} of {transfers} came: {:#?}", self.received(), self.told.borrow());
    }

    fn host(&self) -> &Host {
        self.world.host()
    }

    /// The bytes are in their place, and nothing around them has changed.
    fn check(&self, (area, bytes): &(Area, Vec<u8>)) {
        let all = self.host().memory().bytes(area.region).unwrap();
        let (before, rest) = all.split_at(100);
        let (there, behind) = rest.split_at(bytes.len());
        assert!(there == bytes, "other bytes than were sent");
        assert!(before.iter().chain(behind).all(|byte| *byte == 0xee), "bytes beside their place");
    }
}

#[test]
fn a_host_hears_once_of_each_block() {
    let adapters = vec![adapter(64, Sizes::default(), tigon::COSTS)];
    let mut two = Two::over(300_000_000, &patient(), adapters);
    let transfer = two.begin(1 << 20);
    two.wait_for(1);
    two.check(&transfer);
    let adapter = &two.host().adapters()[0];
    let counters = *adapter.counters();
    let stats = *two.host().engine().stats();
    assert_eq!((counters.placed, counters.failed, counters.overruns), (1025, 0, 0));
    assert_eq!(stats.stus_received, 1025, "the last is short, for the first is");
    assert_eq!(two.host().counters().copied_bytes, 0, "the host copied nothing");
    // One for each Block, and what is not Data.
    assert_eq!(counters.told, stats.block_notifications + counters.to_host);
    assert!(counters.to_host <= 8 && adapter.interrupts() <= 17 + 8, "{counters:?}");
    assert!(stats.interrupts_saved_per_mille() >= 983, "{stats:?}");
}

#[test]
fn what_finds_no_sram_goes_by_the_host() {
    let mut sram = Sram::new(Sram::TIGON);
    let sizes = Sizes { arrivals: 48, departures: 16, ..Sizes::default() };
    sizes.reserve(&mut sram).unwrap();
    let most = Tables::most(&sram, STUS);
    assert!(most > 1_000, "only {most} Blocks fit");
    Tables::reserve(&mut sram, most, STUS).unwrap();
    assert!(Tables::reserve(&mut sram, 1, STUS).is_err(), "it is full");

    let mut two = Two::new(&config(), vec![adapter(2, sizes, tigon::COSTS)]);
    let transfer = two.begin(1 << 20);
    two.wait_for(1);
    two.check(&transfer);
    let counters = two.host().adapters()[0].counters();
    assert!(counters.placed > 64 && counters.to_host > 64, "{counters:?}");
}

#[test]
fn what_overruns_a_ring_is_lost_whole_and_comes_again() {
    let narrow = Sizes { arrivals: 4, reports: 8, buffers: 2, orders: 4, ..Sizes::default() };
    let mut two = Two::new(&config(), vec![adapter(64, narrow, tigon::COSTS)]);
    let transfer = two.begin(300_000);
    two.wait_for(1);
    two.check(&transfer);
    let counters = two.host().adapters()[0].counters();
    assert!(counters.overruns > 10, "{counters:?}");
}

#[test]
fn memory_that_was_given_back_is_never_written_though_packets_are_under_way() {
    let mut two = Two::new(&config(), vec![adapter(4, Sizes::default(), SLUGGISH)]);
    for round in 0..12u64 {
        let (area, _) = two.begin(200_000);
        two.wait(Duration::from_micros(600 + 37 * round));
        let now = two.world.now();
        let id = two.at_host;
        let placed = two.host().adapters()[0].counters().placed;
        let engine = two.world.engine_mut(0);
        engine.withdraw(now, id, area).unwrap();
        two.wait(Duration::from_millis(30));
        assert!(placed > 0, "nothing was under way");
        let ended = |event: &Event| matches!(event, Event::ReceiveEnded { .. });
        let count = two.told.borrow().iter().filter(|event| ended(event)).count();
        assert_eq!(count, round as usize + 1, "it got its memory back");
    }
    let transfer = two.begin(200_000);
    two.wait_for(1);
    two.check(&transfer);
    assert_eq!(two.host().memory().violations(), 0);
}

#[test]
fn service_goes_on_when_the_firmware_is_loaded_anew() {
    let mut two = Two::new(&config(), vec![adapter(64, Sizes::default(), SLUGGISH)]);
    let first = two.begin(700_000);
    for _ in 0..6 {
        two.wait(Duration::from_micros(2_300));
        let now = two.world.now();
        two.world.host_mut().restart(now, 0);
    }
    two.wait_for(1);
    two.check(&first);
    let before = *two.host().adapters()[0].counters();
    assert_eq!(before.restarts, 6);
    assert!(before.to_host > 64, "the host had taken Blocks back: {before:?}");
    let second = two.begin(700_000);
    two.wait_for(2);
    two.check(&second);
    let after = *two.host().adapters()[0].counters();
    assert!(after.placed > before.placed + 600, "new Blocks are the adapter's: {after:?}");
}

#[test]
fn one_transfer_over_two_adapters_and_over_the_one_that_is_left() {
    let sizes = Sizes::default();
    let adapters = vec![adapter(64, sizes, tigon::COSTS), adapter(64, sizes, SLUGGISH)];
    let config = Config { window: 1 << 19, ..config() };
    let mut two = Two::new(&config, adapters);
    let transfer = two.begin(2 << 20);
    two.wait_for(1);
    two.check(&transfer);
    let placed: Vec<_> = two.host().adapters().iter().map(|one| one.counters().placed).collect();
    assert!(placed.iter().all(|count| *count > 256), "{placed:?}");

    let transfer = two.begin(2 << 20);
    two.wait(Duration::from_millis(4));
    let link = two.world.links()[1];
    two.world.sim_mut().set_link(link, false).unwrap();
    two.wait_for(2);
    two.check(&transfer);
    assert!(two.host().engine().stats().blocks_moved > 0, "no Block went over");
}

#[test]
fn costs_change_when_and_not_what() {
    let mut seen = Vec::new();
    for costs in [Costs::OFF, tigon::COSTS, SLUGGISH] {
        let adapters = vec![adapter(64, Sizes::default(), costs)];
        let mut two = Two::over(100_000_000, &patient(), adapters);
        let transfers: Vec<_> = [5, 70_000, 1, 4_096, 200_001].map(|len| two.begin(len)).into();
        two.wait_for(5);
        transfers.iter().for_each(|transfer| two.check(transfer));
        let lens: Vec<_> = two
            .told
            .borrow()
            .iter()
            .filter_map(|event| match event {
                Event::Received { len, .. } => Some(*len),
                _ => None,
            })
            .collect();
        let host = two.host();
        let refused = (*landfall_placement::Engine::refusals(host.engine()), *host.refusals());
        seen.push((lens, refused, host.engine().stats().stus_received));
    }
    for other in &seen[1..] {
        assert_eq!((seen[0].1, seen[0].2), (other.1, other.2));
    }
    let mut sorted: Vec<_> = seen.iter().map(|(lens, ..)| lens.clone()).collect();
    sorted.iter_mut().for_each(|lens| lens.sort_unstable());
    assert!(sorted.iter().all(|lens| *lens == [1, 5, 4_096, 70_000, 200_001]), "{sorted:?}");
}
