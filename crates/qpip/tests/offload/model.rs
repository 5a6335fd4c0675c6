//! The seam against a model that keeps every byte in a list.

use std::collections::VecDeque;
use std::net::SocketAddr;

use landfall_placement::{Check, Ecn, PathId, RegionId, Span, Spans};
use proptest::prelude::*;
use qpip::offload::{
    Datagram, Ends, Entry, HashSecret, Hit, Places, Pointer, Prediction, Segment, SentNumbers,
    Tables,
};

use super::{Frame, PATH, addresses, incoming};

const SLOTS: u32 = 4;
const SECRET: HashSecret = HashSecret::new(0x1234, 0x5678);
const MEMORY: RegionId = RegionId::new(7, 3);

/// The memory of an adapter: all that the seam has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Storage {
    entries: [Entry; SLOTS as usize],
    pointers: [Pointer; 8],
}

impl Storage {
    fn new() -> Self {
        Self { entries: Default::default(), pointers: Default::default() }
    }

    fn seam(&mut self) -> Tables<'_> {
        Tables::new(&mut self.entries, &mut self.pointers, SECRET)
    }
}

/// A byte of a request: where it lies, and the number of its request.
type Byte = (u64, usize);

/// One entry, as naively as can be.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Ours; and theirs, of a connection.
    ends: Option<(SocketAddr, Option<SocketAddr>)>,
    path: PathId,
    is_armed: bool,
    next: Prediction,
    bytes: VecDeque<Byte>,
}

/// How a request is cut into spans: lengths, and whether its end is among them.
type Request = (Vec<u32>, bool);

/// Something that an engine or an adapter does. Slots beyond the table are tried too.
#[derive(Clone, Debug)]
enum Step {
    Open { slot: u32, whose: u16, path: u16 },
    Bind { slot: u32, whose: u16, on_any: bool },
    Arm { slot: u32, next: Prediction, requests: Vec<Request> },
    Refresh { slot: u32, sent: SentNumbers, recent: Option<u32>, edge: u32 },
    Disarm { slot: u32 },
    DisarmAll,
    Close { slot: u32 },
    Segment(Unit),
    Datagram(Unit),
}

/// A unit, told from what is expected.
#[derive(Clone, Debug)]
struct Unit {
    whose: u16,
    likely: Option<u32>,
    len: u32,
    off: u32,
    ack: u32,
    stamp: Option<u32>,
    is_pushed: bool,
    window_field: u16,
}

fn ends(whose: u16) -> (SocketAddr, SocketAddr) {
    let [local, remote] =
        if whose.is_multiple_of(2) { ["10.0.0.1", "10.0.0.2"] } else { ["fd00::1", "fd00::2"] };
    let end = |text: &str, port| SocketAddr::new(text.parse().unwrap(), port);
    (end(local, 80), end(remote, 1_024 + whose / 2))
}

/// The port on any address.
fn on_any(local: SocketAddr) -> SocketAddr {
    let any = if local.is_ipv4() { "0.0.0.0" } else { "::" };
    SocketAddr::new(any.parse().unwrap(), local.port())
}

/// Bytes for requests, cut as given; places as the seam wants them.
fn cut(requests: &[Request]) -> (Places, VecDeque<Byte>) {
    let (mut places, mut bytes, mut at) = (Places::new(), VecDeque::new(), 0);
    for (nth, (lengths, has_end)) in requests.iter().enumerate() {
        for (piece, len) in lengths.iter().enumerate() {
            let is_last = *has_end && piece + 1 == lengths.len();
            if !places.push(MEMORY.span(at, *len), is_last) {
                return (places, bytes);
            }
            bytes.extend((at..at + u64::from(*len)).map(|byte| (byte, nth)));
            at += u64::from(*len) + 10;
        }
        if !has_end {
            break; // What follows it would be another request.
        }
    }
    (places, bytes)
}

impl Known {
    /// Takes bytes from the front, and the rest of the last one's request if a
    /// message ends.
    fn take(&mut self, len: u32, ends_message: bool) -> Vec<u64> {
        let taken: Vec<Byte> = self.bytes.drain(..len as usize).collect();
        let (_, request) = *taken.last().unwrap();
        if ends_message {
            self.bytes.retain(|(_, other)| *other != request);
        }
        taken.iter().map(|(at, _)| *at).collect()
    }

    /// The segment that this unit is, if it comes as predicted.
    fn segment(&mut self, slot: u32, unit: &Unit, frame: &Frame) -> Option<(Hit, Vec<u64>)> {
        let next = self.next;
        let is_awaited = (0..=next.sent.wrapping_sub(next.acknowledged))
            .contains(&frame.ack.wrapping_sub(next.acknowledged));
        let is_fresh = match (next.recent, unit.stamp) {
            (Some(recent), Some(value)) => (value.wrapping_sub(recent) as i32) >= 0,
            (None, None) => true,
            _ => false,
        };
        let window = next.edge.wrapping_sub(next.expected) as i32;
        let fits = i64::from(unit.len) <= i64::from(window)
            && unit.len as usize <= self.bytes.len()
            && unit.len > 0;
        let is_it = self.is_armed && self.path == PATH && frame.seq == next.expected;
        if !(is_it && is_awaited && is_fresh && fits) {
            return None;
        }
        let into = self.take(unit.len, unit.is_pushed && next.has_messages);
        self.next.expected = next.expected.wrapping_add(unit.len);
        let header = if unit.stamp.is_some() { 32 } else { 20 };
        let ip = if frame.to.is_ipv4() { 20 } else { 40 };
        let hit = Hit::Segment(Segment {
            slot,
            seq: frame.seq,
            ack: frame.ack,
            window: frame.window,
            is_pushed: unit.is_pushed,
            timestamp: unit.stamp.map(|value| (value, 9)),
            ecn: Ecn::NotCapable,
            at: 14 + ip + header,
            len: unit.len,
            check: check(frame, ip),
            course: next.course,
            is_spent: self.bytes.len() < unit.len as usize,
        });
        Some((hit, into))
    }

    /// The datagram that this unit is, if it fits into the next request.
    fn datagram(&mut self, slot: u32, unit: &Unit, frame: &Frame) -> Option<(Hit, Vec<u64>)> {
        let &(_, first) = self.bytes.front()?;
        let room = self.bytes.iter().filter(|(_, request)| *request == first).count();
        if !self.is_armed || unit.len == 0 || unit.len as usize > room {
            return None;
        }
        let into = self.take(unit.len, true);
        let ip = if frame.to.is_ipv4() { 20 } else { 40 };
        let hit = Hit::Datagram(Datagram {
            slot,
            from: frame.from,
            at: 14 + ip + 8,
            len: unit.len,
            check: check(frame, ip),
            is_spent: self.bytes.is_empty(),
        });
        Some((hit, into))
    }
}

fn check(frame: &Frame, ip: u16) -> Check {
    Check::InternetSum { from: 14 + ip, len: frame.carried(), seed: frame.pseudo() }
}

/// The seam and the model, step by step.
struct Both {
    storage: Storage,
    model: [Known; SLOTS as usize],
    hits: usize,
}

impl Both {
    fn new() -> Self {
        Self { storage: Storage::new(), model: Default::default(), hits: 0 }
    }

    fn known(&mut self, slot: u32) -> Option<&mut Known> {
        self.model.get_mut(slot as usize)
    }

    fn slot_of(&self, ends: (SocketAddr, Option<SocketAddr>)) -> Option<u32> {
        self.model.iter().position(|known| known.ends == Some(ends)).map(|slot| slot as u32)
    }

    fn step(&mut self, step: &Step) {
        match step.clone() {
            Step::Open { slot, whose, path } => {
                let (local, remote) = ends(whose);
                self.enter(slot, (local, Some(remote)), PathId(path));
            }
            Step::Bind { slot, whose, on_any: is_any } => {
                let (local, _) = ends(whose);
                self.enter(slot, (if is_any { on_any(local) } else { local }, None), PATH);
            }
            Step::Arm { slot, mut next, requests } => self.arm(slot, &mut next, &requests),
            Step::Refresh { slot, sent, recent, edge } => {
                self.storage.seam().refresh(slot, sent, recent, edge);
                if let Some(known) = self.known(slot) {
                    (known.next.acknowledged, known.next.sent) = (sent.acknowledged, sent.next);
                    (known.next.recent, known.next.edge) = (recent, edge);
                }
            }
            Step::Disarm { slot } => {
                self.storage.seam().disarm(slot);
                self.known(slot).into_iter().for_each(|known| known.is_armed = false);
            }
            Step::DisarmAll => {
                self.storage.seam().disarm_all();
                self.model.iter_mut().for_each(|known| known.is_armed = false);
            }
            Step::Close { slot } => {
                self.storage.seam().close(slot);
                self.known(slot).into_iter().for_each(|known| *known = Known::default());
            }
            Step::Segment(unit) => self.receive(&unit, true),
            Step::Datagram(unit) => self.receive(&unit, false),
        }
        self.compare();
    }

    fn enter(&mut self, slot: u32, ends: (SocketAddr, Option<SocketAddr>), path: PathId) {
        if self.slot_of(ends).is_some_and(|other| other != slot) {
            return; // Engines have one queue pair for them.
        }
        let entered = match ends.1 {
            Some(remote) => self.storage.seam().open(slot, Ends::new(ends.0, remote), path),
            None => self.storage.seam().bind(slot, Ends::bound(ends.0)),
        };
        assert_eq!(entered, slot < SLOTS);
        if let Some(known) = self.known(slot) {
            *known = Known { ends: Some(ends), path, ..Known::default() };
        }
    }

    fn arm(&mut self, slot: u32, next: &mut Prediction, requests: &[Request]) {
        let (places, bytes) = cut(requests);
        next.places = places;
        self.storage.seam().arm(slot, next);
        self.storage.seam().arm_port(slot, &places, next.course);
        if let Some(known) = self.known(slot).filter(|known| known.ends.is_some()) {
            (known.next, known.bytes, known.is_armed) = (*next, bytes, true);
        }
    }

    fn receive(&mut self, unit: &Unit, is_tcp: bool) {
        let (local, remote) = ends(unit.whose);
        let slot = if is_tcp {
            self.slot_of((local, Some(remote)))
        } else {
            self.slot_of((local, None)).or_else(|| self.slot_of((on_any(local), None)))
        };
        let next = slot.map_or_else(Prediction::default, |slot| self.model[slot as usize].next);
        let mut frame = Frame::new(remote, local, is_tcp, unit.len);
        frame.seq = next.expected.wrapping_add(unit.off);
        frame.ack = next.acknowledged.wrapping_add(unit.ack);
        frame.flags = if unit.is_pushed { 0x18 } else { 0x10 };
        frame.window = unit.window_field;
        if let Some(value) = unit.stamp.filter(|_| is_tcp) {
            frame = frame.stamped(value, 9);
        }
        let wanted = slot.and_then(|slot| {
            let known = &mut self.model[slot as usize];
            if is_tcp {
                known.segment(slot, unit, &frame)
            } else {
                known.datagram(slot, unit, &frame)
            }
        });
        let (head, addresses) = (frame.head(), addresses());
        let before = self.storage.clone();
        let mut into = Spans::new();
        let arrived = incoming(&head, frame.unit_len(), &addresses, unit.likely);
        let answer = self.storage.seam().receive(&arrived, &mut into);
        if answer.is_err() {
            assert_eq!(self.storage, before, "a miss changes nothing");
        } else {
            self.hits += 1;
        }
        assert!(into.iter().all(|span| span.region == MEMORY));
        let at = |span: &Span| span.offset..span.offset + u64::from(span.len);
        let bytes: Vec<u64> = into.iter().flat_map(at).collect();
        assert_eq!(
            (answer.ok(), bytes),
            wanted.map_or((None, Vec::new()), |(hit, at)| (Some(hit), at))
        );
    }

    fn compare(&mut self) {
        let seam = self.storage.seam();
        for (slot, known) in (0..).zip(&self.model) {
            let entry = seam.entry(slot).unwrap();
            let places = match known.ends {
                Some((_, Some(_))) => {
                    let next = entry.prediction();
                    assert_eq!(next.is_some(), known.is_armed);
                    let Some(next) = next else { continue };
                    let places = next.places;
                    assert_eq!(*next, Prediction { places, ..known.next });
                    places
                }
                Some((_, None)) => {
                    assert_eq!(entry.requests().is_some(), known.is_armed);
                    let Some((places, course)) = entry.requests() else { continue };
                    assert_eq!(course, known.next.course);
                    *places
                }
                None => {
                    assert_eq!(*entry, Entry::default());
                    continue;
                }
            };
            let left = places.iter().map(|(span, _)| u64::from(span.len)).sum::<u64>();
            assert_eq!(left, known.bytes.len() as u64);
            assert_eq!(places.is_empty(), known.bytes.is_empty());
        }
        assert!(seam.entry(SLOTS).is_none());
    }
}

fn any_prediction() -> impl Strategy<Value = Prediction> {
    let near = || prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()];
    let recent = prop_oneof![Just(None), Just(Some(5)), Just(Some(u32::MAX))];
    (near(), 0u32..200, near(), 0u32..100, recent, any::<bool>(), any::<u16>()).prop_map(
        |(expected, window, acknowledged, sent, recent, has_messages, course)| Prediction {
            expected,
            edge: expected.wrapping_add(window),
            acknowledged,
            sent: acknowledged.wrapping_add(sent),
            recent,
            has_messages,
            course,
            places: Places::new(),
        },
    )
}

fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let lengths = prop::collection::vec(1u32..60, 1..4);
    prop::collection::vec((lengths, prop::bool::weighted(0.9)), 0..4)
}

fn any_unit() -> impl Strategy<Value = Unit> {
    let off = prop_oneof![12 => Just(0u32), 1 => Just(1), 1 => Just(u32::MAX)];
    let ack = prop_oneof![12 => Just(0u32), 2 => 0u32..120, 1 => Just(u32::MAX)];
    let stamp = prop_oneof![Just(None), Just(Some(5u32)), Just(Some(u32::MAX))];
    let likely = prop::option::of(0..=SLOTS);
    (0u16..6, likely, 0u32..90, off, ack, stamp, any::<bool>(), any::<u16>()).prop_map(
        |(whose, likely, len, off, ack, stamp, is_pushed, window_field)| Unit {
            whose,
            likely,
            len,
            off,
            ack,
            stamp,
            is_pushed,
            window_field,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let slot = || 0..=SLOTS;
    prop_oneof![
        3 => (slot(), 0u16..6, prop_oneof![6 => Just(PATH.0), 1 => 0u16..9])
            .prop_map(|(slot, whose, path)| Step::Open { slot, whose, path }),
        2 => (slot(), 0u16..6, any::<bool>())
            .prop_map(|(slot, whose, on_any)| Step::Bind { slot, whose, on_any }),
        9 => (slot(), any_prediction(), any_requests())
            .prop_map(|(slot, next, requests)| Step::Arm { slot, next, requests }),
        1 => (slot(), any_prediction()).prop_map(|(slot, next)| Step::Refresh {
            slot,
            sent: SentNumbers { acknowledged: next.acknowledged, next: next.sent },
            recent: next.recent,
            edge: next.edge,
        }),
        1 => slot().prop_map(|slot| Step::Disarm { slot }),
        1 => Just(Step::DisarmAll),
        1 => slot().prop_map(|slot| Step::Close { slot }),
        20 => any_unit().prop_map(Step::Segment),
        10 => any_unit().prop_map(Step::Datagram),
    ]
}

proptest! {
    #[test]
    fn the_seam_does_what_a_list_of_bytes_does(steps in prop::collection::vec(any_step(), 0..200)) {
        let mut both = Both::new();
        for step in &steps {
            both.step(step);
        }
    }

    /// Invariants 3 and 8 at the seam: whatever comes, there is an answer, and a
    /// miss changes nothing. A frame that would be taken is one of them, with any
    /// of its bytes changed, cut anywhere.
    #[test]
    fn no_bytes_make_it_panic(
        whose in 0u16..4,
        is_tcp: bool,
        next in any_prediction(),
        requests in any_requests(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut_at in prop::option::of(0usize..100),
        len in prop_oneof![Just(None), any::<u32>().prop_map(Some)],
        junk in prop::option::of(prop::collection::vec(any::<u8>(), 0..120)),
    ) {
        let mut both = Both::new();
        both.step(&Step::Open { slot: 0, whose, path: PATH.0 });
        both.step(&Step::Bind { slot: 1, whose, on_any: !is_tcp });
        for slot in 0..2 {
            both.step(&Step::Arm { slot, next, requests: requests.clone() });
        }
        let (local, remote) = ends(whose);
        let mut frame = Frame::new(remote, local, is_tcp, 20);
        (frame.seq, frame.ack) = (next.expected, next.acknowledged);
        if let Some(recent) = next.recent {
            frame = frame.stamped(recent, 9);
        }
        let mut head = junk.unwrap_or_else(|| frame.head());
        for (at, value) in changes {
            if !head.is_empty() {
                let at = at.index(head.len());
                head[at] = value;
            }
        }
        head.truncate(cut_at.unwrap_or(usize::MAX));
        let (addresses, before) = (addresses(), both.storage.clone());
        let mut into = Spans::new();
        let unit = incoming(&head, len.unwrap_or(frame.unit_len()), &addresses, Some(0));
        if both.storage.seam().receive(&unit, &mut into).is_err() {
            prop_assert_eq!(&both.storage, &before);
            prop_assert!(into.is_empty());
        }
    }
}

/// The properties above say something only if much of what comes is taken.
#[test]
fn much_of_what_the_generator_makes_is_taken() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut both = Both::new();
    for _ in 0..10_000 {
        both.step(&any_step().new_tree(&mut runner).unwrap().current());
    }
    assert!(both.hits > 200, "only {} hits", both.hits);
}

#[test]
fn storage_that_is_too_short_holds_fewer() {
    let (mut entries, mut pointers) = ([Entry::default(); 4], [Pointer::default(); 3]);
    let mut tables = Tables::new(&mut entries, &mut pointers, SECRET);
    for (slot, fits) in [(0, true), (1, true), (2, false)] {
        let (local, remote) = ends(slot as u16);
        assert_eq!(tables.open(slot, Ends::new(local, remote), PATH), fits, "{slot}");
    }
    tables.close(0);
    let (local, remote) = ends(5);
    assert!(tables.open(3, Ends::new(local, remote), PATH));
    let mut nothing = Tables::new(&mut [], &mut [], SECRET);
    assert!(!nothing.open(0, Ends::new(local, remote), PATH));
    let (head, addresses) = (Frame::new(remote, local, true, 5).head(), addresses());
    let unit = incoming(&head, 100, &addresses, Some(3));
    assert!(nothing.receive(&unit, &mut Spans::new()).is_err());
}
