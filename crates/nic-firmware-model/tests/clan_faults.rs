//! What goes wrong with a CLAN adapter, costs on: tables that are full, rings that
//! overrun, apertures that go while their packets are under way, firmware that is loaded
//! anew. Never a byte in the wrong place, and service goes on.

use std::cell::RefCell;
use std::rc::Rc;

use clan_dsm::offload::{Action, Secret};
use clan_dsm::{
    Access, ApertureId, Config, Cookie, Event, HostId, NativeConfig, Nic, Reason, Rights,
};
use landfall_placement::{Area, Duration, Engine as _, Instant, Random, Refusal, RegionId};
use landfall_simnet::{EngineConfig, EngineNode, LinkConfig, Memory};
use nic_firmware_model::clan::{self, Clan, Entries, Tables};
use nic_firmware_model::machine::{
    Adapter, BridgeCosts, BusCosts, Coalescing, Costs, DmaCosts, Engines, Parts, Sizes, Sram,
};
use nic_firmware_model::node::NicNode;
use nic_firmware_model::world::World;

type Host = NicNode<Clan<'static>, Nic>;
type Peer = EngineNode<Nic>;
type Log = Rc<RefCell<Vec<Event>>>;

/// So slow to move words that some are always under way.
const SLUGGISH: Costs = Costs {
    clock: 33_000_000,
    dma: DmaCosts { setup: Duration::from_micros(3), rate: 0, gap: Duration::ZERO },
    engines: Engines::One,
    bus: BusCosts::PCI_32_33,
    cut_through: 0,
    bridge: BridgeCosts::NONE,
    report: 16,
    interrupts: Coalescing::After { time: Duration::from_micros(15), reports: 4 },
};

fn number(host: u16) -> HostId {
    HostId::new(host).expect("twelve bits")
}

/// A host behind an adapter, and its peer.
struct Two {
    world: World<Nic, Host, Peer>,
    told: Log,
    at_peer: Log,
}

fn keep(log: &Log) -> impl FnMut(Instant, &mut Nic, &mut Memory, Event) + 'static {
    let log = log.clone();
    move |_, _, memory, event| {
        // Anyone who writes there after it was given back ends the run (invariant 1).
        if let Event::Released { aperture } = event {
            // Memory is lent in the order of the apertures, and released in it.
            let released = |event: &&Event| matches!(event, Event::Released { .. });
            let nth = log.borrow().iter().filter(released).count() as u32;
            assert_eq!(aperture.index(), 0);
            let region = RegionId::new(nth, 0);
            let len = memory.bytes(region).map_or(0, <[u8]>::len);
            let _ = memory.freeze(region.span(0, len as u32));
        }
        log.borrow_mut().push(event);
    }
}

impl Two {
    fn new(entries: Entries, sizes: Sizes, costs: Costs) -> Self {
        let (told, at_peer) = (Log::default(), Log::default());
        let native = NativeConfig { patience: Duration::from_millis(2), ..NativeConfig::default() };
        let config = |adapter| Config {
            native: Some(NativeConfig { adapter, ..native }),
            ..Config::default()
        };
        let secret = Secret::new(&mut Random::from_number(9));
        let habits = clan::Config::new(number(1), native.room);
        let firmware = Clan::new(Tables::owned(&entries, secret), habits);
        let adapter = Adapter::new(firmware, Parts::owned(&sizes), costs);
        let engine = Nic::new(config(true), number(1), [1; 32]).unwrap();
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let host = Host::with_config(engine, vec![adapter], how).on_event(keep(&told));
        let peer = Peer::with_config(Nic::new(config(false), number(2), [2; 32]).unwrap(), how);
        let peer = peer.on_event(keep(&at_peer));
        let mut world = World::new(3, ("host", host), ("peer", peer));
        let link = LinkConfig { mtu: 1_500, ..LinkConfig::ethernet(1_500_000_000) };
        world.connect(link).unwrap();
        let mut two = Self { world, told, at_peer };
        two.wait(Duration::from_millis(1));
        two
    }

    fn wait(&mut self, time: Duration) {
        self.world.advance(time);
    }

    fn node(&mut self) -> &mut Host {
        self.world.host_mut()
    }

    /// The nth aperture of the host; its memory is the nth region.
    fn expose(&mut self, len: usize) -> (Area, ApertureId, Cookie) {
        let node = self.node();
        let area = Area::new(node.memory_mut().lend(vec![0xee; len]).unwrap(), 0, len as u64);
        let id = node.engine_mut().expose(area).unwrap();
        let cookie = node.engine_mut().cookie(id, Rights::ReadWrite).unwrap();
        (area, id, cookie)
    }

    fn write(&mut self, cookie: &Cookie, offset: u64, bytes: &[u8]) -> bool {
        let now = self.world.now();
        let peer = self.world.peer_mut().engine_mut();
        let window = peer.map(cookie).unwrap();
        peer.write(now, window, offset, bytes).is_ok()
    }

    /// The peer moves as many bytes of its own.
    fn send(&mut self, cookie: &Cookie, seed: u64) -> Vec<u8> {
        let mut random = Random::from_number(seed);
        let bytes: Vec<u8> = (0..cookie.len()).map(|_| random.next_u32() as u8).collect();
        let now = self.world.now();
        let peer = self.world.peer_mut();
        let region = peer.memory_mut().lend(bytes.clone()).unwrap();
        let from = Area::new(region, 0, bytes.len() as u64);
        let window = peer.engine_mut().map(cookie).unwrap();
        peer.engine_mut().write_from(now, window, 0, from).unwrap();
        bytes
    }

    fn bytes(&mut self, area: Area) -> Vec<u8> {
        self.node().memory().bytes(area.region).unwrap().to_vec()
    }

    fn fired(&self) -> usize {
        let fired = |event: &&Event| matches!(event, Event::Tripwire { .. });
        self.told.borrow().iter().filter(fired).count()
    }

    fn is_up(&self) -> bool {
        let told = self.at_peer.borrow();
        let is_link =
            |event: &&Event| matches!(event, Event::LinkUp { .. } | Event::LinkDown { .. });
        let last = told.iter().rev().find(is_link);
        matches!(last, Some(Event::LinkUp { .. }))
    }
}

#[test]
fn what_is_written_is_there_and_the_host_hears_of_its_word_alone() {
    let mut two = Two::new(Entries::default(), Sizes::default(), SLUGGISH);
    let (area, id, cookie) = two.expose(1 << 16);
    let engine = two.node().engine_mut();
    engine.watch(id, 65_528..65_536, Access::Write, Action::Event, false).unwrap();
    let bytes = two.send(&cookie, 1);
    two.wait(Duration::from_millis(50));
    assert!(two.bytes(area) == bytes, "other bytes than were sent");
    assert_eq!(two.fired(), 1);
    let adapter = &two.node().adapters()[0];
    let counters = *adapter.counters();
    assert!(counters.placed >= 64 && counters.failed + counters.overruns == 0, "{counters:?}");
    assert_eq!(two.node().counters().copied_bytes, 0, "the host copied nothing");
}

#[test]
fn what_finds_no_place_in_the_tables_goes_by_the_host_in_its_order() {
    let mut sram = Sram::new(1 << 20);
    Entries::default().reserve(&mut sram).unwrap();
    assert!(sram.reserved().iter().any(|one| one.name == "CAM" && one.bytes > 4_096));
    assert!(Entries::default().reserve(&mut Sram::new(10_000)).is_err(), "it is too small");

    let entries = Entries { apertures: 1, groups: 2, tripwires: 1, cam: 1 };
    let mut two = Two::new(entries, Sizes::default(), SLUGGISH);
    let (near, id, known) = two.expose(4_096);
    let (far, other, unknown) = two.expose(4_096);
    for (id, at) in [(id, 0), (id, 800), (other, 64)] {
        let engine = two.node().engine_mut();
        engine.watch(id, at..at + 8, Access::Write, Action::Event, false).unwrap();
    }
    two.wait(Duration::from_millis(1));
    // Each word is written by way of the host, and then by the adapter or the other way
    // round; in the end it holds what was written last.
    for round in 0..40u8 {
        let (first, second) = if round % 2 == 0 { (&unknown, &known) } else { (&known, &unknown) };
        assert!(two.write(first, 0, &[round; 96]) && two.write(second, 0, &[round; 96]));
        // More than there is: the words that fit are the host's to write.
        let more = Cookie::new(known.host(), 0, Rights::Write, known.key(), 8_192);
        assert!(two.write(&more, 4_088, &[round; 16]));
        assert!(two.write(&known, 4_088, &[round ^ 0x80; 8]));
        two.wait(Duration::from_micros(u64::from(round % 7) * 5));
    }
    two.wait(Duration::from_millis(20));
    assert_eq!(two.bytes(near)[..96], [39; 96]);
    assert_eq!(two.bytes(near)[4_088..], [39 ^ 0x80; 8]);
    assert_eq!(two.bytes(far)[..97], [[39; 96].as_slice(), &[0xee]].concat());
    let fired = two.fired();
    assert!(two.write(&known, 800, &[1; 8]));
    two.wait(Duration::from_millis(5));
    assert_eq!(two.fired(), fired + 1, "the host looks for those that the CAM has no room for");
    let counters = *two.node().adapters()[0].counters();
    assert!(counters.placed > 0 && counters.to_host > 40, "{counters:?}");
}

#[test]
fn what_overruns_a_ring_is_lost_whole_and_the_link_begins_anew() {
    let narrow = Sizes { arrivals: 2, reports: 4, buffers: 2, orders: 4, ..Sizes::default() };
    let mut two = Two::new(Entries::default(), narrow, SLUGGISH);
    let (area, _, cookie) = two.expose(1 << 15);
    let mut known = vec![vec![0xee; 1 << 15]];
    for seed in 0..4 {
        known.push(two.send(&cookie, seed));
        two.wait(Duration::from_millis(15));
        // Each word is one that was sent for its place, now or before, or was not written.
        let there = two.bytes(area);
        for (nth, word) in there.chunks(8).enumerate() {
            let is_known = known.iter().any(|bytes| &bytes[8 * nth..][..8] == word);
            assert!(is_known, "word {nth} holds {word:02x?}");
        }
        assert!(there.chunks(8).ne(known[0].chunks(8)), "nothing came");
    }
    let counters = *two.node().adapters()[0].counters();
    assert!(counters.overruns > 0, "{counters:?}");
    assert!(two.is_up(), "{:?}", two.at_peer.borrow());
    assert!(two.write(&cookie, 16, &[7; 24]));
    two.wait(Duration::from_millis(5));
    assert_eq!(two.bytes(area)[16..40], [7; 24]);
}

#[test]
fn an_aperture_that_goes_while_it_is_written_is_never_written_behind_its_release() {
    let mut two = Two::new(Entries::default(), Sizes::default(), SLUGGISH);
    for round in 0..8u64 {
        let (_, id, cookie) = two.expose(1 << 14);
        assert_eq!(u64::from(id.index()), 0, "the slot is used again");
        two.send(&cookie, round);
        two.wait(Duration::from_micros(40 + 13 * round));
        let placed = two.node().adapters()[0].counters().placed;
        two.node().engine_mut().revoke(id).unwrap();
        two.wait(Duration::from_millis(5));
        assert!(placed > 0, "nothing was under way");
        let released = |event: &&Event| matches!(event, Event::Released { .. });
        let count = two.told.borrow().iter().filter(released).count();
        assert_eq!(count as u64, round + 1, "it got its memory back");
    }
    assert_eq!(two.node().memory().violations(), 0);
}

#[test]
fn service_goes_on_when_the_firmware_is_loaded_anew() {
    let mut two = Two::new(Entries::default(), Sizes::default(), SLUGGISH);
    let (area, id, cookie) = two.expose(1 << 15);
    let engine = two.node().engine_mut();
    engine.watch(id, 0..8, Access::Write, Action::Event, false).unwrap();
    for round in 0..6u64 {
        two.send(&cookie, round);
        two.wait(Duration::from_micros(50 + 11 * round));
        let now = two.world.now();
        two.node().restart(now, 0);
        two.wait(Duration::from_millis(10));
        assert!(two.is_up(), "round {round}: {:?}", two.at_peer.borrow());
    }
    let (fired, before) = (two.fired(), *two.node().adapters()[0].counters());
    assert_eq!(before.restarts, 6);
    let bytes = two.send(&cookie, 77);
    two.wait(Duration::from_millis(20));
    assert!(two.bytes(area) == bytes, "other bytes than were sent");
    assert_eq!(two.fired(), fired + 1);
    let after = *two.node().adapters()[0].counters();
    assert!(after.placed >= before.placed + 32, "it takes bursts again: {after:?}");
}

/// The adapter knows no peers: what comes with a key for one of them is the host's to write, and
/// what comes behind it waits for that.
#[test]
fn what_comes_with_a_key_for_one_peer_goes_by_the_host_in_its_order() {
    let mut two = Two::new(Entries::default(), Sizes::default(), SLUGGISH);
    let (area, id, known) = two.expose(4_096);
    let engine = two.node().engine_mut();
    let own = engine.cookie_for(id, Rights::ReadWrite, number(2)).unwrap();
    let others = engine.cookie_for(id, Rights::ReadWrite, number(3)).unwrap();
    let tripwire = engine.watch(id, 64..72, Access::Write, Action::Event, false).unwrap();
    two.wait(Duration::from_millis(1));
    // Each word is written by way of the host and by the adapter, in turns.
    for round in 0..40u8 {
        let (first, second) = if round % 2 == 0 { (&own, &known) } else { (&known, &own) };
        assert!(two.write(first, 0, &[!round; 96]) && two.write(second, 0, &[round; 96]));
        assert!(two.write(&others, 0, &[0xaa; 96]), "what is refused there leaves here");
        two.wait(Duration::from_micros(u64::from(round % 7) * 5));
    }
    two.wait(Duration::from_millis(20));
    assert_eq!(two.bytes(area)[..97], [[39; 96].as_slice(), &[0xee]].concat());
    let engine = two.node().engine_mut();
    assert_eq!(engine.firings(tripwire), Ok(80), "of no other key");
    assert!(engine.refusals().of(Refusal::WrongKey) >= 40, "{}", engine.refusals());
    let counters = *two.node().adapters()[0].counters();
    assert!(counters.to_host > 80, "{counters:?}");
    // Taken from the peer it opens nothing, and the adapter has all of the slot again.
    two.node().engine_mut().revoke_from(id, number(2)).unwrap();
    two.node().engine_mut().revoke_from(id, number(3)).unwrap();
    two.wait(Duration::from_millis(5));
    let before = two.node().adapters()[0].counters().placed;
    assert!(two.write(&own, 0, &[1; 96]) && two.write(&known, 96, &[2; 96]));
    two.wait(Duration::from_millis(5));
    assert_eq!(two.bytes(area)[..192], [[39; 96], [2; 96]].concat());
    assert!(two.node().adapters()[0].counters().placed > before);
    let told = two.at_peer.borrow();
    let is_told = |event: &Event| matches!(event, Event::Exception { reason: Reason::BadKey, .. });
    assert!(told.iter().any(is_told), "{told:?}");
}
