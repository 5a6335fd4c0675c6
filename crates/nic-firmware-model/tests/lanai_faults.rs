//! A LANai 9 on which things go wrong: no byte comes to lie where it does not
//! belong, and the host goes on without it.

use std::cell::Cell;
use std::time::Duration;

use landfall_simnet::{Loss, Probability};
use nic_firmware_model::lanai::model::{Build, Carded, Shape, World, pattern};
use nic_firmware_model::lanai::{LanaiSizes, StageCosts};
use nic_firmware_model::machine::{BusCosts, Coalescing, Costs, Sizes, Sram};
use qpip::{Completion, Mapping, Operation};

const MESSAGES: u64 = 120;

fn slow() -> Build {
    let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
    let bus = BusCosts::PCI_64_33;
    let costs = Costs { clock: 133_000_000, bus, interrupts, ..Costs::OFF };
    let latency = Duration::from_micros(30);
    Build { costs, stages: StageCosts::PAPER, latency, ..Build::default() }
}

fn bad_link(shape: Shape) -> Shape {
    let percent = Probability::percent;
    let link = shape
        .link
        .loss(Loss::Uniform(percent(3)))
        .duplication(percent(10))
        .reordering(percent(10), Duration::from_micros(200))
        .corruption(percent(2));
    Shape { link, ..shape }
}

/// Messages of many lengths cross a connection each way; at certain moments
/// something is done to the second host. All arrive, in order, with their bytes.
/// What was delivered is frozen: anyone who writes there ends the run.
fn deliver(name: &str, seed: u64, shape: &Shape, meddle: impl Fn(u64, &mut World<Carded>)) -> u64 {
    let mut world = World::<Carded>::new(seed, shape);
    let pairs = world.pair_up(seed & 1 > 0, 80, Mapping::Message);
    let len = |host: usize, id: u64| 1 + ((id * 7_919 + host as u64 * 131) % 2_800) as usize;
    let bytes = |host: usize, id: u64| pattern(id * 2 + host as u64, len(host, id));
    world.run_for(Duration::from_millis(400));
    for id in 0..MESSAGES {
        for host in [0, 1] {
            // Room for the whole message, sometimes in pieces.
            let pieces: &[u32] = if id % 3 == 0 { &[1_000, 2_000] } else { &[3_000] };
            world.post_receive(host, pairs[host], id, pieces);
        }
        for host in [0, 1] {
            assert!(world.send(host, pairs[host], id, &bytes(host, id), None), "{name}");
        }
        meddle(id, &mut world);
        if id % 4 == 3 {
            world.run_for(Duration::from_micros(1_500));
        }
        if id >= 40 {
            // Queues are bounded: wait for those of long ago.
            wait_for(name, &mut world, id as usize - 40);
        }
    }
    wait_for(name, &mut world, MESSAGES as usize);
    for host in [0, 1] {
        let got = received(&world, host);
        for (id, done) in got.iter().enumerate() {
            let id = id as u64;
            assert_eq!(done.id, id, "{name}, seed {seed}");
            let at = world.place_of(host, pairs[host], id).unwrap();
            let found = world.read(host, at, done.len);
            assert!(found == bytes(1 - host, id), "{name}, seed {seed}: message {id} is another");
        }
    }
    (0..2).map(|host| world.look(host).stats().segments_predicted).sum()
}

fn received(world: &World<Carded>, host: usize) -> Vec<Completion> {
    let all = world.done(host).iter();
    all.filter(|done| done.operation == Operation::Receive).copied().collect()
}

fn wait_for(name: &str, world: &mut World<Carded>, count: usize) {
    let deadline = world.now() + Duration::from_secs(300);
    while (0..2).any(|host| received(world, host).len() < count) {
        let goes_on = world.step(deadline);
        assert!(world.wrong().is_empty(), "{name}: {:?}", world.wrong());
        assert!(goes_on, "{name}: messages are missing");
    }
}

fn nothing(_: u64, _: &mut World<Carded>) {}

/// Reports are late, frames of an entry are on their way to the host while it says
/// what comes next: the two never meet in the same memory.
#[test]
fn what_is_under_way_is_never_written_over() {
    let mut placed = 0;
    for seed in 0..12 {
        let shape = bad_link(Shape { card: slow(), captures: false, ..Shape::default() });
        placed += deliver("slow", seed, &shape, nothing);
    }
    assert!(placed > 500, "the cards placed {placed} segments");
}

#[test]
fn a_firmware_that_is_restarted_has_forgotten_everything() {
    for seed in 0..8 {
        let shape = bad_link(Shape { card: slow(), captures: false, ..Shape::default() });
        let placed = deliver("restarted", seed, &shape, |id, world| {
            if id % 9 == 5 {
                let now = world.now();
                world.node((id & 1) as usize).restart(now, 0);
            }
        });
        assert!(placed > 0, "it goes on after a restart");
    }
}

#[test]
fn rings_that_are_overrun_lose_whole_frames() {
    for seed in 0..6 {
        let sizes =
            Sizes { arrivals: 2, departures: 4, orders: 6, reports: 4, buffers: 2, frame: 1_600 };
        let card = Build { sizes, ..slow() };
        let shape = bad_link(Shape { card, captures: false, ..Shape::default() });
        deliver("overrun", seed, &shape, nothing);
    }
}

#[test]
fn a_card_without_room_for_an_entry_leaves_all_to_the_host() {
    for (entries, pointers) in [(0, 0), (1, 0), (4, 0)] {
        let card = Build { tables: LanaiSizes { entries, pointers, ..slow().tables }, ..slow() };
        let shape = bad_link(Shape { card, captures: false, ..Shape::default() });
        assert_eq!(deliver("no room", 3, &shape, nothing), 0, "nothing can be entered");
    }
}

/// A ring of work requests that has no room makes the host wait, and nothing is lost.
#[test]
fn a_host_waits_for_room_in_the_ring_of_work_requests() {
    for seed in 0..4 {
        let card = Build { requests: (8, 8), ..slow() };
        let (waited, lost) = (Cell::new(0), Cell::new(0));
        let shape = bad_link(Shape { card, captures: false, ..Shape::default() });
        let placed = deliver("narrow", seed, &shape, |_, world| {
            for host in [0, 1] {
                let requests = world.node(host).adapters()[0].requests();
                waited.set(waited.get() + u32::from(!requests.has_room()));
                lost.set(lost.get() + requests.lost());
            }
            world.run_for(Duration::from_nanos(700));
        });
        assert!(waited.get() > 0 && lost.get() == 0, "{} were lost", lost.get());
        assert!(placed > 0, "requests are fetched");
    }
}

/// A doorbell that finds no room is lost: what it stands for goes by the host.
#[test]
fn work_requests_whose_doorbell_is_lost_are_left_to_the_host() {
    let (mut all_lost, mut placed) = (0, 0);
    for seed in 0..6 {
        let card = Build { requests: (64, 1), ..slow() };
        let lost = Cell::new(0);
        let shape = bad_link(Shape { card, captures: false, ..Shape::default() });
        placed += deliver("overrun doorbells", seed, &shape, |_, world| {
            let of =
                |world: &mut World<Carded>, host| world.node(host).adapters()[0].requests().lost();
            lost.set(of(world, 0) + of(world, 1));
        });
        all_lost += lost.get();
    }
    assert!(all_lost > 0 && placed > 0, "{all_lost} were lost, {placed} segments placed");
}

#[test]
fn a_card_without_room_for_translations_leaves_all_to_the_host() {
    for (mappings, some) in [(0, false), (1, true)] {
        let tables = LanaiSizes { mappings, ..slow().tables };
        let card = Build { tables, ..slow() };
        let shape = bad_link(Shape { card, captures: false, ..Shape::default() });
        let placed = deliver("few translations", 3, &shape, nothing);
        assert_eq!(placed > 0, some, "{mappings} mappings, {placed} segments placed");
    }
}

/// Memory is unmapped while requests for it lie in the ring: they are posted anew.
#[test]
fn requests_whose_memory_is_unmapped_are_posted_anew() {
    for seed in 0..6 {
        let shape = bad_link(Shape { card: slow(), captures: false, ..Shape::default() });
        let placed = deliver("unmapped", seed, &shape, |id, world| {
            let host = (id & 1) as usize;
            let region = world.region(host);
            world.run_for(Duration::from_nanos(id * 37 % 1_000));
            let card = world.node(host).adapter_mut(0).unwrap();
            card.firmware_mut().inner_mut().unmap(region);
        });
        assert!(placed > 0, "it goes on when it is mapped again");
    }
}

/// Stations change while segments are under way, and with them every entry.
#[test]
fn entries_that_are_replaced_under_way_do_no_harm() {
    for seed in 0..4 {
        let shape = bad_link(Shape { card: slow(), captures: false, ..Shape::default() });
        deliver("replaced", seed, &shape, |id, world| {
            if id % 5 == 2 {
                world.change_interface((id & 1) as usize);
            }
        });
    }
}

/// The tables of the card, its slots and rings fit into the SRAM of a LANai 9; more
/// do not, and that is said.
#[test]
fn what_the_card_keeps_fits_into_its_memory() {
    let mut sram = Sram::new(Sram::LANAI);
    Sizes::default().reserve(&mut sram).unwrap();
    LanaiSizes::default().reserve(&mut sram).unwrap();
    let many = LanaiSizes { entries: 16_384, pointers: 32_768, ..LanaiSizes::default() };
    let refused = many.reserve(&mut sram).unwrap_err();
    assert_eq!(refused.name, "queue pairs");
}
