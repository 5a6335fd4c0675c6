//! The two sides and the wire.

use alloc::collections::BTreeMap;
use std::vec::Vec;

use landfall_placement::{Duration, Ecn, Instant, Random, RegionId, Spans};

use crate::queue::{Done, Gather, Piece, Queues};
use crate::tcp::config::{Mapping, TcpConfig};
use crate::tcp::input::SegmentResult;
use crate::tcp::listen::{HalfOpen, HandshakeStep, Secret};
use crate::tcp::receiver::Claim;
use crate::tcp::segment::{Draft, Room, Segment};
use crate::tcp::tcb::{ConnectionEvent, Landed, Tcb};
use crate::tcp::{Ends, OwnOffer};
use crate::wire::tcp::Flags;
use crate::work::Operation;

const REGION: RegionId = RegionId::new(1, 1);

/// What the wire does to segments, in parts per million.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) loss: u32,
    pub(super) duplication: u32,
    pub(super) reordering: u32,
    pub(super) corruption: u32,
    /// A device takes options that it does not know out of what is no opening.
    pub(super) stripping: u32,
    /// Marks what may be marked.
    pub(super) marking: u32,
    /// A device cuts super-segments: each piece meets its own fate.
    pub(super) cuts: bool,
    /// Of a cut super-segment the last piece comes first.
    pub(super) last_first: bool,
    pub(super) delay: Duration,
    /// At the end of each second nothing arrives for so long, and then all at once.
    pub(super) stall: Duration,
}

impl Wire {
    pub(super) const CLEAN: Self = Self {
        loss: 0,
        duplication: 0,
        reordering: 0,
        corruption: 0,
        stripping: 0,
        marking: 0,
        cuts: true,
        last_first: false,
        delay: Duration::from_micros(50),
        stall: Duration::ZERO,
    };
}

struct Flying {
    segment: Segment,
    payload: Vec<u8>,
    is_good: bool,
}

pub(super) struct End {
    pub(super) tcb: Option<Tcb>,
    half: Option<HalfOpen>,
    pub(super) queues: Queues,
    pub(super) memory: Vec<u8>,
    used: u32,
    pub(super) done: Vec<Done>,
    pub(super) news: Vec<ConnectionEvent>,
    /// What came, in order, with where messages end.
    pub(super) received: Vec<u8>,
    pub(super) ends: Vec<usize>,
    /// The words of these messages.
    pub(super) words: Vec<Option<u32>>,
    pub(super) posted: BTreeMap<u64, (u32, u32)>,
    pub(super) segments_sent: u64,
}

impl End {
    fn new() -> Self {
        Self {
            tcb: None,
            half: None,
            queues: Queues::new(64, 64),
            memory: std::vec![0; 4 << 20],
            used: 0,
            done: Vec::new(),
            news: Vec::new(),
            received: Vec::new(),
            ends: Vec::new(),
            words: Vec::new(),
            posted: BTreeMap::new(),
            segments_sent: 0,
        }
    }

    fn area(&mut self, len: u32) -> (u32, Gather) {
        if self.used + len > self.memory.len() as u32 {
            self.used = 0;
        }
        let at = self.used;
        self.used += len;
        let span = REGION.span(u64::from(at), len);
        (at, Gather::new(&[Piece { key: 0, span }]).unwrap())
    }

    pub(super) fn post_send(&mut self, id: u64, bytes: &[u8]) -> bool {
        self.post_with_word(id, bytes, None)
    }

    pub(super) fn post_with_word(&mut self, id: u64, bytes: &[u8], word: Option<u32>) -> bool {
        if !self.queues.send.has_room() {
            return false;
        }
        let (at, gather) = self.area(bytes.len() as u32);
        self.memory[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.queues.send.push(id, gather, true);
        if let Some(word) = word {
            self.queues.send.push_word(word);
        }
        true
    }

    pub(super) fn post_receive(&mut self, id: u64, len: u32) -> bool {
        if !self.queues.receive.has_room() {
            return false;
        }
        let (at, gather) = self.area(len);
        self.memory[at as usize..][..len as usize].fill(0xee);
        self.posted.insert(id, (at, len));
        self.queues.receive.push(id, gather);
        if let Some(tcb) = &mut self.tcb {
            tcb.handle_posted_receive(&self.queues);
        }
        true
    }

    fn collect(&mut self) {
        while let Some(done) = self.queues.poll_done() {
            if done.operation == Operation::Receive {
                let (at, _) = self.posted[&done.id];
                let from = (at + done.offset) as usize;
                self.received.extend_from_slice(&self.memory[from..from + done.len as usize]);
                if done.ends_message && done.len > 0 {
                    self.ends.push(self.received.len());
                    self.words.push(done.origin.word());
                }
                if done.gather.is_none() {
                    self.queues.receive.part_was_polled();
                }
            }
            self.done.push(done);
        }
        while let Some(news) = self.tcb.as_mut().and_then(Tcb::poll_event) {
            self.news.push(news);
        }
    }
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) sides: [End; 2],
    config: TcpConfig,
    wire: Wire,
    pub(super) room: Room,
    random: Random,
    flying: BTreeMap<(Instant, u64), (usize, Flying)>,
    serial: u64,
    secret: Secret,
    mapping: Mapping,
    dropping: [u32; 2],
    told: [Option<u64>; 2],
    /// The payloads that side 0 sent, and where they lie in its stream.
    pub(super) payloads_sent: Vec<u32>,
    pub(super) ranges_sent: Vec<(u64, u64, bool)>,
    /// Marks every segment that may be marked.
    pub(super) is_congested: bool,
}

impl Pair {
    pub(super) fn new(seed: u64, config: TcpConfig, mapping: Mapping, wire: Wire) -> Self {
        let mut random = Random::from_number(seed);
        let secret = Secret::new(&mut random);
        let mut pair = Self {
            now: Instant::from_millis(10),
            sides: [End::new(), End::new()],
            config: config.validate().map(|()| config).unwrap(),
            wire,
            room: Room { packet: 1480, super_packet: 65_515, pieces: 64, probe: 0 },
            random,
            flying: BTreeMap::new(),
            serial: 0,
            secret,
            mapping,
            dropping: [0; 2],
            told: [None; 2],
            payloads_sent: Vec::new(),
            ranges_sent: Vec::new(),
            is_congested: false,
        };
        let tcb = Tcb::connect(
            pair.now,
            &pair.config,
            &pair.secret,
            Self::ends(0),
            mapping,
            Self::mss(mapping),
        );
        pair.sides[0].tcb = Some(tcb);
        pair
    }

    fn ends(side: usize) -> Ends {
        let end = |n: u8| core::net::SocketAddr::from(([10, 0, 0, n], 1000 + u16::from(n)));
        let (local, remote) = if side == 0 { (end(1), end(2)) } else { (end(2), end(1)) };
        Ends { local, remote }
    }

    /// Who takes each message as one segment reassembles fragments.
    fn mss(mapping: Mapping) -> u16 {
        if mapping == Mapping::Segment { 65_495 } else { 1_460 }
    }

    fn launch(&mut self, from: usize, draft: &Draft, payload: Vec<u8>) {
        if std::env::var_os("LF_TRACE").is_some() {
            std::eprintln!("{} {from}: {draft:?}", self.now);
        }
        let whole = Segment {
            seq: draft.seq,
            ack: draft.ack,
            flags: draft.flags,
            has_ae: draft.has_ae,
            window: draft.window,
            options: draft.options,
            payload: draft.payload,
            coalesced: None,
            joined: None,
            ecn: match draft.ecn {
                Ecn::Capable0 if self.is_congested => Ecn::CongestionExperienced,
                ecn => ecn,
            },
        };
        self.note_edge(from, draft);
        if self.dropping[from] > 0 {
            self.dropping[from] -= 1;
            return;
        }
        let mut pieces = Vec::new();
        match draft.cut.filter(|_| self.wire.cuts) {
            Some(size) => {
                let size = usize::from(size);
                let count = payload.len().div_ceil(size);
                for (nth, bytes) in payload.chunks(size).enumerate() {
                    let is_last = nth + 1 == count;
                    let flags = if is_last {
                        whole.flags
                    } else {
                        whole.flags.without(Flags::PSH | Flags::FIN)
                    };
                    let seq = whole.seq.wrapping_add((nth * size) as u32);
                    let payload = bytes.len() as u32;
                    pieces.push((Segment { seq, flags, payload, ..whole }, bytes.to_vec()));
                }
                if self.wire.last_first {
                    pieces.rotate_right(1);
                }
            }
            None => pieces.push((Segment { coalesced: draft.cut, ..whole }, payload)),
        }
        for (mut segment, payload) in pieces {
            self.tamper(&mut segment);
            let copies = 1 + usize::from(self.random.chance(self.wire.duplication));
            for _ in 0..copies {
                if self.random.chance(self.wire.loss) {
                    continue;
                }
                let mut at = self.now + self.wire.delay;
                if self.random.chance(self.wire.reordering) {
                    at += Duration::from_nanos(self.random.below(400_000));
                }
                let rest = Duration::from_nanos(1_000_000_000 - at.as_nanos() % 1_000_000_000);
                at += if rest <= self.wire.stall { rest } else { Duration::ZERO };
                self.serial += 1;
                let is_good = !self.random.chance(self.wire.corruption);
                let flying = Flying { segment, payload: payload.clone(), is_good };
                self.flying.insert((at, self.serial), (1 - from, flying));
            }
        }
    }

    /// What devices on the way do to headers.
    fn tamper(&mut self, segment: &mut Segment) {
        let may_mark = segment.ecn == Ecn::Capable0 && self.wire.marking > 0;
        if may_mark && self.random.chance(self.wire.marking) {
            segment.ecn = Ecn::CongestionExperienced;
        }
        if !segment.has(Flags::SYN) && self.random.chance(self.wire.stripping) {
            segment.options.immediate = None;
        }
    }

    /// Numbers of the pair tests never wrap far: the edge is told from the first.
    fn note_edge(&mut self, from: usize, draft: &Draft) {
        let Some(tcb) = self.sides[from].tcb.as_ref().filter(|tcb| tcb.is_synchronized()) else {
            return;
        };
        if draft.flags.contains(Flags::ACK) && !draft.flags.intersects(Flags::SYN | Flags::RST) {
            let upto = draft.ack.wrapping_sub(tcb.terms.remote_first);
            let window = u64::from(draft.window) << tcb.terms.local_scale;
            self.told[from] = Some(u64::from(upto) + window);
        }
    }

    fn poll(&mut self, nth: usize) -> bool {
        let side = &mut self.sides[nth];
        let mut spans = Spans::new();
        let half = side.half.as_mut().and_then(|half| half.poll_transmit(self.now));
        let draft = half.or_else(|| {
            let tcb = side.tcb.as_mut()?;
            tcb.poll_transmit(self.now, &self.room, &self.config, &mut side.queues, &mut spans)
        });
        let Some(draft) = draft else { return false };
        assert_eq!(spans.total_len(), u64::from(draft.payload));
        side.segments_sent += 1;
        let mut payload = Vec::new();
        for span in spans.iter() {
            payload.extend_from_slice(&side.memory[span.offset as usize..][..span.len as usize]);
        }
        side.queues.send.release(draft.hold);
        if nth == 0 && draft.payload > 0 {
            let first = side.tcb.as_ref().map_or(0, |tcb| tcb.terms.local_first);
            let start = u64::from(draft.seq.wrapping_sub(first)) - 1;
            let end = start + u64::from(draft.payload);
            self.payloads_sent.push(draft.payload);
            self.ranges_sent.push((start, end, draft.flags.contains(Flags::PSH)));
        }
        self.launch(nth, &draft, payload);
        true
    }

    fn arrive(&mut self, to: usize, mut flying: Flying) {
        let side = &mut self.sides[to];
        let now = self.now;
        let segment = flying.segment;
        if side.tcb.is_none() {
            if !flying.is_good {
                return;
            }
            if segment.has(Flags::SYN) && side.half.is_none() {
                let offered = u16::try_from(side.queues.receive.bytes()).unwrap_or(u16::MAX);
                let own = OwnOffer { window: offered, mss: Self::mss(self.mapping) };
                let half =
                    HalfOpen::new(now, &self.config, &self.secret, Self::ends(1), &segment, own);
                side.half = Some(half);
                return;
            }
            let Some(half) = &mut side.half else { return };
            if half.handle(&segment) != HandshakeStep::Open {
                return;
            }
            side.tcb =
                Some(Tcb::accept(now, &self.config, half, self.mapping, Self::mss(self.mapping)));
            side.half = None;
        }
        let Some(tcb) = &mut side.tcb else { return };
        let reply = if segment.payload == 0 {
            if !flying.is_good {
                return;
            }
            tcb.handle(now, &segment, &self.config, &mut side.queues)
        } else {
            let mut into = Spans::new();
            let placed = tcb.place(now, &segment, &side.queues, &mut into);
            if !flying.is_good {
                flying.payload[0] ^= 0xff;
            }
            let mut at = placed.skip as usize;
            for span in into.iter() {
                let bytes = &flying.payload[at..][..span.len as usize];
                side.memory[span.offset as usize..][..bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            }
            let landing = Landed { claim: placed.claim, is_good: flying.is_good };
            tcb.landed(now, &segment, landing, &self.config, &mut side.queues)
        };
        side.collect();
        if let Ok(Some(reset)) = reply {
            self.launch(to, &reset, Vec::new());
        }
    }

    /// One step of the world: what can be sent is, else the next thing happens.
    /// False: nothing will ever happen any more.
    pub(super) fn step(&mut self) -> bool {
        for nth in 0..2 {
            if self.poll(nth) {
                return true;
            }
            self.sides[nth].collect();
        }
        let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
        let timeouts = self.sides.iter().flat_map(|side| {
            let tcb = side.tcb.as_ref().and_then(|tcb| tcb.poll_timeout(&self.config));
            let half = side.half.as_ref().map(HalfOpen::deadline);
            tcb.into_iter().chain(half)
        });
        let timeout = timeouts.min();
        let Some(at) = flying.into_iter().chain(timeout).min() else { return false };
        self.now = self.now.max(at);
        if flying.is_some_and(|flying| flying <= self.now) {
            let (_, (to, flying)) = self.flying.pop_first().unwrap();
            self.arrive(to, flying);
            return true;
        }
        for nth in 0..2 {
            let side = &mut self.sides[nth];
            if let Some(half) = &mut side.half {
                half.handle_timeout(self.now, &self.config);
            }
            let Some(tcb) = &mut side.tcb else { continue };
            let reset = tcb.handle_timeout(self.now, &self.config, &mut side.queues);
            side.collect();
            if let Some(reset) = reset {
                self.launch(nth, &reset, Vec::new());
            }
        }
        true
    }

    /// Steps until it is so; panics with the state where it never becomes so.
    pub(super) fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..2_000_000 {
            if is_so(self) {
                return;
            }
            assert!(
                self.step(),
                "{what}: nothing happens any more at {}\n{:#?}\n{:#?}",
                self.now,
                self.sides[0].tcb,
                self.sides[1].tcb
            );
        }
        panic!(
            "{what}: never, until {}\n{:?}\n{:?}",
            self.now, self.sides[0].tcb, self.sides[1].tcb
        );
    }

    /// The second side asks too.
    pub(super) fn connect_other(&mut self) {
        let ends = Self::ends(1);
        let tcb = Tcb::connect(
            self.now,
            &self.config,
            &self.secret,
            ends,
            self.mapping,
            Self::mss(self.mapping),
        );
        self.sides[1].tcb = Some(tcb);
    }

    /// Hands a segment without payload to a side, past the wire.
    pub(super) fn hand_in(&mut self, to: usize, segment: &Segment) -> SegmentResult {
        let side = &mut self.sides[to];
        let tcb = side.tcb.as_mut().unwrap();
        let verdict = tcb.handle(self.now, segment, &self.config, &mut side.queues);
        side.collect();
        verdict
    }

    /// A driver of a side asks where this payload belongs, and has not told yet that it
    /// is there.
    pub(super) fn place(&mut self, to: usize, segment: &Segment) -> Claim {
        let side = &mut self.sides[to];
        let tcb = side.tcb.as_mut().unwrap();
        tcb.place(self.now, segment, &side.queues, &mut Spans::new()).claim
    }

    /// Now it is there.
    pub(super) fn land(&mut self, to: usize, segment: &Segment, claim: Claim) -> SegmentResult {
        let side = &mut self.sides[to];
        let tcb = side.tcb.as_mut().unwrap();
        let verdict = tcb.landed(
            self.now,
            segment,
            Landed { claim, is_good: true },
            &self.config,
            &mut side.queues,
        );
        side.collect();
        verdict
    }

    /// Is nothing on the wire?
    pub(super) fn is_quiet(&self) -> bool {
        self.flying.is_empty()
    }

    /// The next segments of a side are lost.
    pub(super) fn drop_next(&mut self, side: usize, count: u32) {
        self.dropping[side] = count;
    }

    /// The right edge that the last segment of a side promised.
    pub(super) fn told_edge(&self, side: usize) -> Option<u64> {
        self.told[side]
    }
}
