//! Whether the offload seam runs or the engine places everything itself makes no
//! difference: the same frames leave at the same time, the same bytes lie in
//! memory, the same is completed and told.

use std::time::Duration;

use crate::two::{Two, noise, place};
use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};
use landfall_placement::{Engine, Landing, PathId, Placement, Random};
use landfall_simnet::{Encapsulation, EngineConfig, Loss, Probability, Sim};
use landfall_testkit::model::Faults;
use qpip::offload::Miss;
use qpip::{
    Completion, Config, Event, Interface, Mapping, OwnAddress, QueuePairId, ReceiveWork, Stats,
    TcpConfig,
};

const SEEDS: u64 = 60;
const MEMORY: usize = 4 << 20;
const STEPS: usize = 120;

/// All that can be seen of a run.
#[derive(Debug, PartialEq)]
struct Record {
    /// Every frame on every link, with its time.
    frames: Vec<u8>,
    /// What each host was told, has in its memory, and counted.
    done: Vec<Vec<Completion>>,
    events: Vec<Vec<Event>>,
    memory: Vec<Vec<u8>>,
    stats: Vec<Stats>,
    refusals: Vec<String>,
    placed: Vec<String>,
}

/// How often what came was predicted, of how much.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    segments: (u64, u64),
    datagrams: (u64, u64),
}

fn shape(random: &mut Random, predicts: bool) -> Shape {
    let percent = |random: &mut Random, most| Probability::percent(random.below(most) as u32);
    let mut shape = Shape { memory: MEMORY, depth: 256, ..Shape::default() };
    shape.link = shape
        .link
        .loss(Loss::Uniform(percent(random, 4)))
        .duplication(percent(random, 4))
        .reordering(percent(random, 6), Duration::from_micros(300))
        .corruption(percent(random, 3));
    shape.engine = match random.below(3) {
        0 => EngineConfig::default(),
        1 => EngineConfig::guessing(1),
        _ => EngineConfig::guessing(32),
    };
    if random.below(2) == 0 {
        shape = shape.segmentation();
    }
    let mtu = [600, 1_500, 9_000][random.below(3) as usize];
    let tcp = TcpConfig {
        timestamps: random.below(4) > 0,
        sack: random.below(4) > 0,
        ecn: random.below(2) == 0,
        most_window: [0, 100_000, 8 << 20][random.below(3) as usize],
        ..TcpConfig::default()
    };
    shape.config = Config { predicts, tcp, ..Config::default() };
    shape.mtu(mtu)
}

/// Somebody who posts, sends and waits at random.
struct Play<'w, 's> {
    world: &'w mut World<'s>,
    random: Random,
    /// Connected queue pairs, each with its host.
    streams: Vec<[(usize, QueuePairId); 2]>,
    datagrams: [(QueuePairId, Version); 2],
    next: u64,
}

impl Play<'_, '_> {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// One end of one of the connections.
    fn some_end(&mut self) -> (usize, QueuePairId) {
        let nth = self.below(self.streams.len() as u64) as usize;
        self.streams[nth][self.random.below(2) as usize]
    }

    /// Room for a message, in one to three pieces. What is full or over is so in
    /// both runs.
    fn post_receive(&mut self, (host, pair): (usize, QueuePairId)) {
        let pieces: Vec<_> = (0..=self.below(3))
            .map(|_| {
                let len = 1 + self.below(6_000) as u32;
                let at = self.world.allocate(host, len);
                self.world.buffer(host, at, len)
            })
            .collect();
        let work = ReceiveWork { id: self.name(), into: &pieces };
        let now = self.world.now();
        let _ = self.world.adapter(host).post_receive(now, pair, &work);
    }

    fn send(&mut self, (host, pair): (usize, QueuePairId), to: Option<(usize, Version)>) {
        let most = [100, 3_000, 12_000][self.below(3) as usize];
        let len = 1 + self.below(most) as usize;
        let bytes = pattern(self.next, len);
        let place = self.world.store(host, &bytes);
        let to = to.map(|(host, version)| address(host, version, 9));
        let id = self.name();
        let _ = self.world.post_send(host, pair, id, place, to);
    }

    /// The station stays what it is; but the adapter does not know that.
    fn change_interface(&mut self, host: usize) {
        let interface = Interface {
            mac: mac(host),
            addresses: vec![
                OwnAddress::new(ip(host, Version::V4), 16),
                OwnAddress::new(ip(host, Version::V6), 64),
            ],
            neighbours: BOTH.map(|version| (ip(1 - host, version), mac(1 - host))).to_vec(),
            ..Interface::default()
        };
        self.world.adapter(host).add_interface(PathId(0), interface).unwrap();
    }

    fn step(&mut self) {
        match self.below(40) {
            0..15 => {
                let end = self.some_end();
                self.post_receive(end);
            }
            15..24 => {
                let end = self.some_end();
                self.send(end, None);
            }
            24..27 => {
                let host = self.below(2) as usize;
                self.post_receive((host, self.datagrams[host].0));
            }
            27..30 => {
                let host = self.below(2) as usize;
                let (pair, version) = self.datagrams[host];
                self.send((host, pair), Some((1 - host, version)));
            }
            30 => {
                let host = self.below(2) as usize;
                self.change_interface(host);
            }
            _ => {
                let time = Duration::from_micros(1 + self.below(3_000));
                self.world.run_for(time);
            }
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        self.world.run_for(Duration::from_millis(700));
        // Some end well, one end does not.
        for nth in 0..self.streams.len() {
            let [(here, ours), (there, theirs)] = self.streams[nth];
            let now = self.world.now();
            if nth == 0 {
                let _ = self.world.adapter(here).abort(now, ours);
            } else {
                let _ = self.world.adapter(here).shutdown(now, ours);
                let _ = self.world.adapter(there).shutdown(now, theirs);
            }
            for _ in 0..10 {
                self.step();
            }
        }
        self.world.run_for(Duration::from_secs(3));
        let now = self.world.now();
        for host in 0..2 {
            let pair = self.datagrams[host].0;
            let _ = self.world.adapter(host).destroy_queue_pair(now, pair);
        }
        self.world.run_for(Duration::from_secs(1));
    }
}

fn run(seed: u64, predicts: bool) -> (Record, Share) {
    let mut random = Random::from_number(seed);
    let mut sim = Sim::from_number(seed);
    let shape = shape(&mut random, predicts);
    let mut world = World::new(&mut sim, &shape);
    // Now there are links to be captured.
    world.sim.capture_all(Encapsulation::Ethernet);
    let rare = [Mapping::Segment, Mapping::Message][usize::from(random.below(4) > 0)];
    let mappings = [Mapping::Message, Mapping::Stream, rare];
    let mut port = 80;
    let streams = mappings.map(|mapping| {
        let version = BOTH[random.below(2) as usize];
        port += 1;
        let (here, there) = world.pair_up((0, 1), version, port, mapping);
        [(0, here), (1, there)]
    });
    let version = BOTH[random.below(2) as usize];
    // One is bound to its address, the other to any.
    let named = world.udp(0, version, 9);
    let any = world.queue_pair(1, qpip::Service::Udp);
    let everywhere = if version == Version::V4 { "0.0.0.0:9" } else { "[::]:9" };
    world.adapter(1).bind(any, everywhere.parse().unwrap()).unwrap();
    let datagrams = [(named, version), (any, version)];
    let streams = streams.to_vec();
    Play { world: &mut world, random, streams, datagrams, next: 0 }.play();
    record(&mut world)
}

fn record(world: &mut World<'_>) -> (Record, Share) {
    let mut share = Share::default();
    let mut record = Record {
        frames: world.sim.captured().to_vec(),
        done: Vec::new(),
        events: Vec::new(),
        memory: Vec::new(),
        stats: Vec::new(),
        refusals: Vec::new(),
        placed: Vec::new(),
    };
    assert_eq!(world.sim.capture_missed(), 0);
    assert!(record.frames.len() > 1_000, "frames are captured");
    for host in 0..2 {
        let mut stats = *world.engine(host).stats();
        let (segments, datagrams) = (&mut share.segments, &mut share.datagrams);
        segments.0 += std::mem::take(&mut stats.segments_predicted);
        segments.1 += stats.segments_received;
        datagrams.0 += std::mem::take(&mut stats.datagrams_predicted);
        datagrams.1 += stats.datagrams_received;
        record.stats.push(stats);
        record.refusals.push(format!("{:?}", world.engine(host).refusals()));
        record.memory.push(world.read(host, 0, MEMORY as u32));
        let known = &mut world.hosts[host];
        record.done.push(known.done.drain(..).collect());
        record.events.push(known.events.drain(..).collect());
        record.placed.push(format!("{:?}", world.node(host).counters()));
    }
    (record, share)
}

#[test]
fn with_the_seam_and_without_it_all_is_the_same() {
    let mut all = Share::default();
    for seed in 1..=SEEDS {
        let (with, share) = run(seed, true);
        let (without, none) = run(seed, false);
        assert_eq!((none.segments.0, none.datagrams.0), (0, 0), "it is switched off");
        for (what, is_same) in [
            ("completions", with.done == without.done),
            ("events", with.events == without.events),
            ("frames", with.frames == without.frames),
            ("memory", with.memory == without.memory),
        ] {
            assert!(is_same, "seed {seed}: other {what}");
        }
        assert_eq!(with.stats, without.stats, "seed {seed}");
        assert!(with == without, "seed {seed}: {:?} {:?}", with.refusals, without.refusals);
        all.segments.0 += share.segments.0;
        all.segments.1 += share.segments.1;
        all.datagrams.0 += share.datagrams.0;
        all.datagrams.1 += share.datagrams.1;
    }
    // Without payload there is nothing to place, and what is lost or comes out of
    // order is the engine's; but much of the rest is not.
    assert!(all.segments.0 * 5 > all.segments.1, "few segments were predicted: {all:?}");
    assert!(all.datagrams.0 * 2 > all.datagrams.1, "few datagrams were predicted: {all:?}");
}

/// On a clean line all but the first segment of a connection comes as predicted.
#[test]
fn on_a_clean_line_nearly_all_is_predicted() {
    const COUNT: u32 = 200;
    for mapping in [Mapping::Segment, Mapping::Message, Mapping::Stream] {
        for (version, len) in [(Version::V4, 1_000), (Version::V6, 1_000), (Version::V4, 9_000)] {
            let mut sim = Sim::from_number(u64::from(len));
            let shape = Shape { memory: MEMORY, depth: 256, ..Shape::default() };
            let mut world = World::new(&mut sim, &shape.mtu(len + 500));
            let (here, there) = world.pair_up((0, 1), version, 80, mapping);
            world.post_receives(1, there, 0, COUNT, len);
            for n in 0..COUNT {
                let place = world.store(0, &pattern(u64::from(n), len as usize));
                world.post_send(0, here, u64::from(n), place, None).unwrap();
            }
            let mut filled = 0;
            while filled < COUNT {
                filled += u32::from(world.await_completions(1, 1)[0].ends_request);
            }
            let stats = *world.engine(1).stats();
            let unlike = stats.segments_received - stats.segments_predicted;
            // What proved the connection, and the first payload.
            assert_eq!(unlike, 2, "{mapping:?} {version:?} {stats:?}");
            assert_eq!(world.engine(1).misses(Miss::Unknown), 3, "the opening");
        }
    }
}

/// What batches made of a connection.
#[derive(Debug, PartialEq)]
struct Counted {
    /// The bytes that the user knew of when each was over.
    told: Vec<usize>,
    /// How many segments each had, and what was said to them.
    said: Vec<(usize, Vec<Vec<u8>>)>,
    messages: Vec<Completion>,
    received: usize,
    stats: Stats,
    refusals: u64,
}

/// What a batch of segments made of a connection, by whether its driver looked after each of them.
fn counted(seed: u64, mapping: Mapping, looks: bool) -> Counted {
    let mut random = Random::from_number(seed);
    let mut two = Two::new(&Config::default(), mapping, Faults::default(), seed);
    for _ in 0..32 {
        two.receive(1, 2_000);
    }
    two.settle();
    // Some have come, so that more is predicted, and the window is open.
    for _ in 0..4 {
        two.send(0, &noise(seed, 1_200));
        two.settle();
    }
    let (mut said, mut sent) = (Vec::new(), Vec::new());
    let (mut told, mut late) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        // The last of them may come with the next batch.
        let mut frames = std::mem::take(&mut late);
        for _ in 0..1 + random.below(5) {
            // Fragments of IP do not land one by one.
            let most = if mapping == Mapping::Segment { 1_400 } else { 2_000 };
            sent.push(two.send(0, &noise(seed, 1 + random.below(most) as usize)));
            frames.extend(two.said(0));
        }
        let now = two.wire.now;
        if random.below(2) == 0 && frames.len() > 1 {
            late = frames.split_off(1 + random.below(frames.len() as u64 - 1) as usize);
        }
        let engine = &mut two.wire.sides[1].engine;
        let mut tickets = Vec::new();
        for frame in &frames {
            if let Ok(Placement::Into { ticket, .. }) = place(engine, now, frame) {
                tickets.push(ticket);
            }
        }
        for ticket in tickets {
            let is_good = random.below(12) > 0;
            let landing = if is_good { Landing::Verified } else { Landing::Corrupt };
            two.wire.sides[1].engine.handle_placed(now, ticket, landing);
            if looks {
                two.hear();
            }
        }
        two.hear();
        told.push(two.received(1));
        let answers = two.said(1);
        two.hand_in(0, &answers);
        said.push((frames.len(), answers));
        two.wire.pass_time();
    }
    let (stats, refusals) = (*two.adapter(1).stats(), two.refusals(1));
    two.until("all is sent", |two| sent.iter().all(|id| two.is_done(0, *id)));
    two.pass(4);
    // A byte stream tells of what is there when somebody looks.
    let messages = two.done[1].iter().filter(|_| mapping != Mapping::Stream);
    let messages: Vec<Completion> = messages.copied().collect();
    Counted { told, said, messages, received: two.received(1), stats, refusals }
}

/// Segments that follow each other count as one, where nobody looks in between; and nobody can tell.
#[test]
fn a_batch_counts_as_its_segments_do() {
    for seed in 0..300 {
        for mapping in [Mapping::Segment, Mapping::Message, Mapping::Stream] {
            let once = counted(seed, mapping, false);
            let mut each = counted(seed, mapping, true);
            // Of a byte stream also what has come behind the last push may be told.
            let is_sooner = once.told.iter().zip(&each.told).all(|(once, each)| once >= each);
            if mapping == Mapping::Stream && is_sooner {
                each.told.clone_from(&once.told);
            }
            assert_eq!(once, each, "seed {seed}, {mapping:?}");
        }
    }
}
