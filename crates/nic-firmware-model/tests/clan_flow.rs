//! The CLAN adapter tells the other end of its link by itself how far it may send, and to
//! wait: its host may be asleep.

use std::cell::RefCell;
use std::rc::Rc;

use clan_dsm::native::wire::{Symbol, Unit};
use clan_dsm::offload::Secret;
use clan_dsm::{Config, Cookie, Event, HostId, NativeConfig, Nic, Rights};
use landfall_placement::{Area, Duration, Random};
use landfall_simnet::sim::Fate;
use landfall_simnet::{EngineConfig, EngineNode, LinkConfig};
use nic_firmware_model::clan::{self, Clan, Entries, Tables};
use nic_firmware_model::machine::{
    Adapter, BridgeCosts, BusCosts, Coalescing, Costs, DmaCosts, Engines, Parts, Sizes,
};
use nic_firmware_model::node::NicNode;
use nic_firmware_model::world::World;

type Host = NicNode<Clan<'static>, Nic>;
type Peer = EngineNode<Nic>;

/// A host behind an adapter, which hears of it late, and a peer that sends at once.
struct Two {
    world: World<Nic, Host, Peer>,
    /// What the host's end of the link says.
    said: Rc<RefCell<Vec<Symbol>>>,
    area: Area,
    cookie: Cookie,
}

impl Two {
    fn new(len: usize, setup: Duration, latency: Duration) -> Self {
        let [number, other] = [1, 2].map(|number| HostId::new(number).unwrap());
        let native = NativeConfig::default();
        let config = |adapter| Config {
            native: Some(NativeConfig { adapter, ..native }),
            write_buffer: 64 << 10,
            ..Config::default()
        };
        let costs = Costs {
            clock: 33_000_000,
            dma: DmaCosts { setup, rate: 0, gap: Duration::ZERO },
            engines: Engines::One,
            bus: BusCosts::PCI_32_33,
            cut_through: 0,
            bridge: BridgeCosts::NONE,
            report: 0,
            interrupts: Coalescing::After { time: Duration::ZERO, reports: 1 },
        };
        let secret = Secret::new(&mut Random::from_number(9));
        let tables = Tables::owned(&Entries::default(), secret);
        let firmware = Clan::new(tables, clan::Config::new(number, native.room));
        let adapter = Adapter::new(firmware, Parts::owned(&Sizes::default()), costs);
        let engine = Nic::new(config(true), number, [1; 32]).unwrap();
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let node = Host::with_config(engine, vec![adapter], how).interrupt_latency(latency);
        let peer = Peer::with_config(Nic::new(config(false), other, [2; 32]).unwrap(), how);
        let mut world = World::new(5, ("host", node), ("peer", peer));
        // Who is stopped has no more than a unit or two that it cannot take back.
        let link = LinkConfig::ethernet(1_500_000_000).queue_frames(2);
        let link = world.connect(link).unwrap();
        let said = Rc::new(RefCell::new(Vec::new()));
        let heard = said.clone();
        let listen = move |_, frame: &mut landfall_simnet::Frame| {
            let unit = Unit::parse(&frame.bytes, frame.bytes.len() as u32);
            if let Ok(Unit::Symbol(symbol)) = unit {
                heard.borrow_mut().push(symbol);
            }
            Fate::Pass
        };
        world.sim_mut().intercept(link.there(), listen).unwrap();
        let area = world.lend(0, vec![0; len]);
        let node = world.host_mut();
        let id = node.engine_mut().expose(area).unwrap();
        let cookie = node.engine_mut().cookie(id, Rights::ReadWrite).unwrap();
        let mut two = Self { world, said, area, cookie };
        // Until a host that hears late has found its peer.
        two.wait(Duration::from_millis(500));
        two
    }

    fn wait(&mut self, time: Duration) {
        self.world.advance(time);
    }

    fn memory(&self) -> Vec<u8> {
        self.world.bytes(0, self.area).to_vec()
    }

    /// How often the host's end said this since that was last asked.
    fn said(&self, what: impl Fn(&Symbol) -> bool) -> usize {
        self.said.borrow_mut().drain(..).filter(what).count()
    }

    fn has_gone_down(&mut self) -> bool {
        let peer = self.world.peer_mut();
        core::iter::from_fn(|| peer.poll_event())
            .any(|event| matches!(event, Event::LinkDown { .. }))
    }
}

/// Four times as much as the link has credit for is in its place before the host hears of
/// the first word.
#[test]
fn credit_is_given_while_the_host_is_asleep() {
    const LEN: usize = 32 << 10;
    let latency = Duration::from_millis(20);
    let mut two = Two::new(LEN, Duration::from_micros(1), latency);
    assert!(LEN as u32 / 8 >= 4 * NativeConfig::default().room);
    for round in 1..4u8 {
        let is_credit = |symbol: &Symbol| matches!(symbol, Symbol::Credit(_));
        two.said(is_credit);
        let bytes: Vec<u8> = (0..LEN).map(|at| (at as u8).wrapping_mul(round)).collect();
        let now = two.world.now();
        let peer = two.world.peer_mut();
        let region = peer.memory_mut().lend(bytes.clone()).unwrap();
        let from = Area::new(region, 0, LEN as u64);
        let window = peer.engine_mut().map(&two.cookie).unwrap();
        peer.engine_mut().write_from(now, window, 0, from).unwrap();
        two.wait(latency / 10);
        assert!(two.memory() == bytes, "round {round}: not all is there");
        assert!(two.said(is_credit) >= 8, "a quarter of the room at a time");
        // The host hears of it, and gives no credit twice.
        two.wait(Duration::from_millis(100));
        assert_eq!(two.said(is_credit), 0);
    }
    assert!(!two.has_gone_down());
}

/// Words come faster than they can be moved. Their credit is in words; the adapter's slots
/// are for packets, and short ones fill them first.
#[test]
fn a_fifo_that_fills_stops_the_sender_and_nothing_is_lost() {
    const WORDS: u64 = 600;
    let mut two = Two::new(WORDS as usize * 16, Duration::from_micros(4), Duration::ZERO);
    let now = two.world.now();
    let peer = two.world.peer_mut().engine_mut();
    let window = peer.map(&two.cookie).unwrap();
    for nth in 0..WORDS {
        peer.write(now, window, nth * 16, &(nth + 1).to_le_bytes()).unwrap();
    }
    two.wait(Duration::from_millis(20));
    let memory = two.memory();
    for nth in 0..WORDS {
        let at = nth as usize * 16;
        assert_eq!(memory[at..at + 8], (nth + 1).to_le_bytes(), "word {nth}");
    }
    let counters = *two.world.host().adapters()[0].counters();
    assert_eq!(counters.overruns, 0, "{counters:?}");
    let said = two.said.take();
    let count = |what: Symbol| said.iter().filter(|symbol| **symbol == what).count();
    let (stopped, let_go) = (count(Symbol::Xoff), count(Symbol::Xon));
    assert!(stopped > 0 && stopped == let_go, "{stopped} times stopped, {let_go} times let go");
    assert!(!two.has_gone_down());
}
