//! The offload seam by itself, in arrays that the caller owns, against a model
//! that keeps every STU in a list.

use landfall_placement::{Ecn, PathId, Peer, Refusal, RegionId, Span};
use proptest::prelude::*;
use stp_core::offload::{Arrival, Block, Blocks, Expected, Hit, Incoming, Run, StuId, bits_needed};
use stp_core::wire::{Flags, HEADER_LEN, Header, Op};

const PLACES: u16 = 4;
/// More than fit one word of bits.
const STUS: u16 = 70;
const BITS: usize = bits_needed(PLACES as usize, STUS);
/// Two words for each Block: what fits there.
const MOST: usize = 128;
/// The payload that the shortest Ethernet frame has.
const SHORTEST: u32 = 46;

/// The memory of an adapter: all that the seam has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Storage {
    blocks: [Block; PLACES as usize],
    bits: [u64; BITS],
}

impl Storage {
    fn new() -> Self {
        Self { blocks: [Block::default(); PLACES as usize], bits: [0; BITS] }
    }

    fn seam(&mut self) -> Blocks<'_> {
        Blocks::new(&mut self.blocks, &mut self.bits, STUS)
    }
}

/// What became of one STU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Awaited,
    UnderWay,
    Landed,
}

/// One STU of a Block: where in the buffer, how long, and its fate.
#[derive(Clone, Copy, Debug)]
struct Stu {
    offset: u32,
    len: u32,
    fate: Fate,
}

/// One place of the table, as naively as can be.
#[derive(Clone, Debug, Default)]
struct Place {
    is_open: bool,
    generation: u16,
    expected: Expected,
    memory: Span,
    stus: Vec<Stu>,
    granted: usize,
    highest: usize,
    /// STUs under way, also to a Block that was taken back.
    under_way: usize,
    marked: u16,
}

impl Place {
    /// Cuts the Block into STUs, the last of which is what is left.
    fn cut(start: u32, len: u32, stu: u16) -> Vec<Stu> {
        let (mut from, end) = (u64::from(start), u64::from(start) + u64::from(len));
        let mut stus = Vec::new();
        while from < end {
            let to = (from + u64::from(stu)).min(end);
            stus.push(Stu { offset: from as u32, len: (to - from) as u32, fate: Fate::Awaited });
            from = to;
        }
        stus
    }

    fn open(&mut self, expected: Expected, start: u32, memory: Span, stu: u16) -> bool {
        if stu == 0 {
            return false;
        }
        let stus = Self::cut(start, memory.len, stu);
        // What lies beyond 32 bits cannot be named by a header.
        let is_named = u64::from(start) + u64::from(memory.len) <= 1 << 32;
        let fits = !stus.is_empty() && stus.len() <= MOST && is_named;
        if self.is_open || self.under_way > 0 || !fits {
            return false;
        }
        let generation = self.generation.wrapping_add(1);
        *self = Self { is_open: true, generation, expected, memory, stus, ..Self::default() };
        true
    }

    /// Cut anew into equal parts: each is what the one that it lies in was.
    fn shorten(&mut self, stu: u16, size: u32) -> bool {
        let Some(first) = self.stus.first().copied() else { return false };
        let is_part = (1..size).contains(&stu.into()) && size.is_multiple_of(stu.into());
        if !self.is_open || self.under_way > 0 || !is_part {
            return false;
        }
        let stus = Self::cut(first.offset, self.memory.len, stu);
        if stus.len() > MOST {
            return false;
        }
        let old = std::mem::replace(&mut self.stus, stus);
        let ends = |stu: &Stu| u64::from(stu.offset) + u64::from(stu.len);
        let end_of = |count: usize| old[..count].last().map(ends);
        let (granted, highest) = (end_of(self.granted), end_of(self.highest));
        let count = |end| self.stus.iter().filter(|stu| Some(u64::from(stu.offset)) < end).count();
        (self.granted, self.highest) = (count(granted), count(highest));
        for stu in &mut self.stus {
            let whole = old.iter().rfind(|old| old.offset <= stu.offset);
            stu.fate = whole.map_or(Fate::Awaited, |whole| whole.fate);
        }
        self.generation = self.generation.wrapping_add(1);
        true
    }

    fn span(&self, stu: usize) -> Span {
        let Stu { offset, len, .. } = self.stus[stu];
        self.memory.region.span(self.memory.offset + u64::from(offset - self.stus[0].offset), len)
    }

    fn is_awaited(&self, stu: usize) -> bool {
        self.stus[stu].fate == Fate::Awaited
    }

    /// The STU that this Data is, if it may come now.
    fn accepts(&self, data: &Incoming<'_>) -> Option<usize> {
        let (header, expected) = (data.header, &self.expected);
        let is_for_us = self.is_open
            && (header.bufx.get() >> 16) as u16 == self.generation
            && header.d_key.get() == expected.key
            && (header.d_port.get(), header.s_port.get()) == (expected.d_port, expected.s_port)
            && (data.path, data.from) == (expected.path, expected.peer)
            && header.d_id.get() == expected.d_id
            && header.high() == expected.serial
            && header.b_num.get() == expected.number
            && u32::from(header.sync.get()) == expected.serial & 0xffff
            && header.flags & !(Flags::LAST.0 | Flags::SUM.0) == 0;
        let at = |stu: &Stu| stu.offset == header.offset.get();
        let stu = self.stus[..self.granted].iter().position(at)?;
        let whole = self.stus[stu].len + HEADER_LEN as u32;
        let is_whole = (whole..=whole.max(SHORTEST)).contains(&data.len);
        (is_for_us && is_whole && self.is_awaited(stu)).then_some(stu)
    }

    fn land(&mut self, stu: usize, is_in_place: bool) -> Arrival {
        self.under_way -= 1;
        if !self.is_open {
            return if self.under_way == 0 { Arrival::Released } else { Arrival::Stale };
        }
        if !is_in_place {
            self.stus[stu].fate = Fate::Awaited;
            return Arrival::Lost;
        }
        self.stus[stu].fate = Fate::Landed;
        let len = self.stus[stu].len;
        if self.stus.iter().all(|stu| stu.fate == Fate::Landed) {
            self.is_open = false;
            return Arrival::Complete(len);
        }
        Arrival::Bytes(len)
    }

    fn missing(&self, from: u16, to: u16) -> Option<(u16, u64)> {
        let end = self.granted.min(usize::from(to));
        let first = (usize::from(from)..end).find(|stu| self.is_awaited(*stu))?;
        let near = (first..end.min(first + 64)).filter(|stu| self.is_awaited(*stu));
        Some((first as u16, near.map(|stu| 1 << (stu - first)).sum()))
    }

    fn run(&self, from: u16, stu_size: u32) -> Option<Run> {
        let granted = if self.is_open { self.granted } else { 0 };
        let first = (usize::from(from)..granted).find(|stu| self.is_awaited(*stu))?;
        let payload_len = self.stus[first].len;
        let mut end = first + 1;
        while payload_len == stu_size && end < granted && self.is_awaited(end) {
            end += 1;
        }
        let len = (first..end).map(|stu| self.stus[stu].len).sum();
        let span = Span { len, ..self.span(first) };
        Some(Run { span, payload_len, end: end as u16 })
    }
}

/// Something that an engine or an adapter does. Places beyond the table are tried too.
#[derive(Clone, Debug)]
enum Step {
    Open { place: u16, start: u32, len: u32, stu: u16 },
    Grant { place: u16, end: u16 },
    Close { place: u16 },
    Redirect { place: u16, peer: u32 },
    Shorten { place: u16, parts: u16 },
    TakeMarked { place: u16 },
    Data { place: u16, stu: usize, wrong: Wrong, len: i32, is_marked: bool },
    Land { nth: usize, is_in_place: bool },
    LandAgain { nth: usize, is_in_place: bool },
}

/// What is wrong with Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    Generation,
    Key,
    DPort,
    SPort,
    DId,
    Serial,
    Number,
    Sync,
    Flag,
    Offset,
    Path,
    Peer,
}

const WRONGS: [(Wrong, Refusal); 12] = [
    (Wrong::Generation, Refusal::UnknownId),
    (Wrong::Key, Refusal::WrongKey),
    (Wrong::DPort, Refusal::WrongAddress),
    (Wrong::SPort, Refusal::WrongAddress),
    (Wrong::DId, Refusal::UnknownId),
    (Wrong::Serial, Refusal::UnknownId),
    (Wrong::Number, Refusal::UnknownId),
    (Wrong::Sync, Refusal::Malformed),
    (Wrong::Flag, Refusal::Malformed),
    (Wrong::Offset, Refusal::Malformed),
    (Wrong::Path, Refusal::WrongAddress),
    (Wrong::Peer, Refusal::WrongAddress),
];

fn expected(place: u16, opened: u32) -> Expected {
    Expected {
        path: PathId(3),
        peer: Peer::Node(9),
        key: 0x5eed_0000 | u32::from(place),
        d_port: 10,
        s_port: 20,
        d_id: place,
        serial: 77,
        number: opened,
    }
}

/// Data as the sender that was granted it would send it, but for what is wrong.
fn header(expected: &Expected, bufx: u32, offset: u32, wrong: Wrong) -> Header {
    let off = |field: Wrong| u16::from(field == wrong);
    let off_by = |field: Wrong| u32::from(off(field));
    Header {
        op: Op::Data as u8,
        flags: if wrong == Wrong::Flag { 0x80 } else { Flags::LAST.0 },
        param: 5.into(),
        d_port: (expected.d_port ^ off(Wrong::DPort)).into(),
        s_port: (expected.s_port ^ off(Wrong::SPort)).into(),
        d_key: (expected.key ^ off_by(Wrong::Key)).into(),
        sync: (expected.serial as u16 ^ off(Wrong::Sync)).into(),
        b_num: (expected.number ^ off_by(Wrong::Number)).into(),
        bufx: (bufx ^ off_by(Wrong::Generation) << 16).into(),
        offset: offset.wrapping_add(off_by(Wrong::Offset)).into(),
        t_len: (u64::from(expected.serial ^ off_by(Wrong::Serial)) << 32).into(),
        d_id: (expected.d_id ^ off(Wrong::DId)).into(),
        ..Header::default()
    }
}

fn incoming<'a>(expected: &Expected, header: &'a Header, len: u32, wrong: Wrong) -> Incoming<'a> {
    let path = if wrong == Wrong::Path { PathId(4) } else { expected.path };
    let from = if wrong == Wrong::Peer { Peer::Node(1) } else { expected.peer };
    Incoming { header, len, path, from, ecn: Ecn::NotCapable }
}

/// The seam and the model, step by step.
#[derive(Debug)]
struct Both {
    storage: Storage,
    model: [Place; PLACES as usize],
    sizes: [u32; PLACES as usize],
    opened: u32,
    stus: Vec<StuId>,
    used: Vec<StuId>,
}

impl Both {
    fn new() -> Self {
        Self {
            storage: Storage::new(),
            model: Default::default(),
            sizes: [0; PLACES as usize],
            opened: 0,
            stus: Vec::new(),
            used: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Open { place, start, len, stu } => self.open(place, start, len, stu),
            Step::Grant { place, end } => {
                self.storage.seam().grant(place, end);
                if let Some(known) = self.model.get_mut(usize::from(place)) {
                    known.granted = known.granted.max(usize::from(end).min(known.stus.len()));
                }
            }
            Step::Close { place } => {
                let known = self.model.get_mut(usize::from(place));
                let is_free = known.is_none_or(|known| {
                    known.is_open = false;
                    known.under_way == 0
                });
                assert_eq!(self.storage.seam().close(place), is_free);
            }
            Step::Redirect { place, peer } => {
                let (path, peer) = (PathId(peer as u16), Peer::Node(peer));
                self.storage.seam().redirect(place, path, peer);
                if let Some(known) = self.model.get_mut(usize::from(place)) {
                    (known.expected.path, known.expected.peer) = (path, peer);
                }
            }
            Step::Shorten { place, parts } => {
                let size = self.sizes.get(usize::from(place)).copied().unwrap_or(0);
                // Also what is no equal part.
                let stu = (size / u32::from(parts.max(1))) as u16;
                let known = self.model.get_mut(usize::from(place));
                let is_shorter = known.is_some_and(|known| known.shorten(stu, size));
                let answer = self.storage.seam().shorten(place, stu, 0);
                assert_eq!(answer, is_shorter.then_some(0));
                if is_shorter {
                    self.sizes[usize::from(place)] = stu.into();
                }
            }
            Step::TakeMarked { place } => {
                let known = self.model.get_mut(usize::from(place));
                let marked = known.map_or(0, |known| std::mem::take(&mut known.marked));
                assert_eq!(self.storage.seam().take_marked(place), marked);
            }
            Step::Data { place, stu, wrong, len, is_marked } => {
                self.data(place, stu, wrong, len, is_marked);
            }
            Step::Land { nth, is_in_place } => self.land(nth, is_in_place),
            Step::LandAgain { nth, is_in_place } => self.land_again(nth, is_in_place),
        }
        self.compare();
    }

    fn open(&mut self, place: u16, start: u32, len: u32, stu: u16) {
        self.opened += 1;
        let expected = expected(place, self.opened);
        let memory = RegionId::new(u32::from(place), 1).span(1 << 40, len);
        let known = self.model.get_mut(usize::from(place));
        let is_open = known.is_some_and(|known| known.open(expected, start, memory, stu));
        assert_eq!(self.storage.seam().open(place, expected, start, memory, stu), is_open);
        if is_open {
            self.sizes[usize::from(place)] = stu.into();
        }
    }

    fn data(&mut self, place: u16, stu: usize, wrong: Wrong, off: i32, is_marked: bool) {
        let nobody = Place::default();
        let known = self.model.get(usize::from(place)).unwrap_or(&nobody);
        // What was never cut is asked for, too.
        let Stu { offset, len, .. } =
            known.stus.get(stu).copied().unwrap_or(Stu { offset: 0, len: 64, fate: Fate::Awaited });
        let bufx = u32::from(known.generation) << 16 | u32::from(place);
        let header = header(&known.expected, bufx, offset, wrong);
        let len = (len + HEADER_LEN as u32).saturating_add_signed(off);
        let mut data = incoming(&known.expected, &header, len, wrong);
        data.ecn = if is_marked { Ecn::CongestionExperienced } else { Ecn::NotCapable };
        let accepted = known.accepts(&data);
        let before = self.storage.clone();
        let answer = self.storage.seam().place(&data);
        let Some(stu) = accepted else {
            assert!(answer.is_err(), "{answer:?} for {data:?}");
            assert_eq!(self.storage, before, "what is refused changes nothing");
            return;
        };
        let known = &mut self.model[usize::from(place)];
        let stu_id = StuId { block: place, generation: known.generation, stu: stu as u16 };
        let hit = Hit { span: known.span(stu), stu_id, is_first: known.highest == 0 };
        assert_eq!(answer, Ok(hit));
        known.stus[stu].fate = Fate::UnderWay;
        known.under_way += 1;
        known.highest = known.highest.max(stu + 1);
        known.marked += u16::from(is_marked);
        self.stus.push(stu_id);
    }

    fn land(&mut self, nth: usize, is_in_place: bool) {
        if self.stus.is_empty() {
            return;
        }
        let stu_id = self.stus.swap_remove(nth % self.stus.len());
        let known = &mut self.model[usize::from(stu_id.block)];
        let wanted = known.land(usize::from(stu_id.stu), is_in_place);
        assert_eq!(self.storage.seam().landed(stu_id, is_in_place), wanted);
        self.used.push(stu_id);
    }

    /// A ticket of an earlier Block, or of one to which nothing is under way.
    fn land_again(&mut self, nth: usize, is_in_place: bool) {
        if self.used.is_empty() {
            return;
        }
        let stu_id = self.used[nth % self.used.len()];
        let known = &self.model[usize::from(stu_id.block)];
        if known.generation == stu_id.generation && known.under_way > 0 {
            return; // Drivers report each once; the seam relies on that.
        }
        let before = self.storage.clone();
        assert_eq!(self.storage.seam().landed(stu_id, is_in_place), Arrival::Stale);
        assert_eq!(self.storage, before, "a stale ticket changes nothing");
    }

    fn compare(&mut self) {
        let seam = self.storage.seam();
        for (place, known) in (0..).zip(&self.model) {
            let block = seam.block(place).unwrap();
            let landed = known.stus.iter().filter(|stu| stu.fate == Fate::Landed).count();
            assert_eq!(block.is_open(), known.is_open);
            assert_eq!(usize::from(block.stus()), known.stus.len());
            assert_eq!(usize::from(block.granted()), known.granted);
            assert_eq!(usize::from(block.landed()), landed);
            assert_eq!(usize::from(block.highest()), known.highest);
            assert_eq!(block.bufx(place), u32::from(known.generation) << 16 | u32::from(place));
            for from in [0, 1, 63, 64, known.highest as u16, u16::MAX] {
                assert_eq!(seam.run(place, from), known.run(from, self.sizes[usize::from(place)]));
                for to in [0, 65, u16::MAX] {
                    assert_eq!(seam.missing(place, from, to), known.missing(from, to));
                }
            }
        }
        assert_eq!((seam.block(PLACES), seam.run(PLACES, 0)), (None, None));
        assert_eq!(seam.missing(PLACES, 0, u16::MAX), None);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0..=PLACES;
    let start = prop_oneof![0u32..300, Just(u32::MAX - 500), any::<u32>()];
    let wrong = prop_oneof![
        12 => Just(Wrong::Nothing),
        1 => proptest::sample::select(WRONGS.map(|(wrong, _)| wrong).to_vec()),
    ];
    let off = prop_oneof![12 => Just(0), 1 => -1..=1i32, 1 => 2..8i32];
    prop_oneof![
        3 => (place(), start, 0u32..2_000, prop_oneof![0u16..200, (0u16..25).prop_map(|stu| stu * 8)])
            .prop_map(|(place, start, len, stu)| Step::Open { place, start, len, stu }),
        3 => (place(), 0u16..140).prop_map(|(place, end)| Step::Grant { place, end }),
        1 => place().prop_map(|place| Step::Close { place }),
        1 => (place(), 0u32..3).prop_map(|(place, peer)| Step::Redirect { place, peer }),
        1 => place().prop_map(|place| Step::TakeMarked { place }),
        2 => (place(), 0u16..7).prop_map(|(place, parts)| Step::Shorten { place, parts }),
        30 => (place(), 0usize..40, wrong, off, any::<bool>()).prop_map(
            |(place, stu, wrong, len, is_marked)| Step::Data { place, stu, wrong, len, is_marked }
        ),
        24 => (any::<usize>(), proptest::bool::weighted(0.9))
            .prop_map(|(nth, is_in_place)| Step::Land { nth, is_in_place }),
        2 => (any::<usize>(), any::<bool>())
            .prop_map(|(nth, is_in_place)| Step::LandAgain { nth, is_in_place }),
    ]
}

fn any_header() -> impl Strategy<Value = Header> {
    use zerocopy::FromBytes;
    any::<[u8; HEADER_LEN]>().prop_map(|bytes| Header::read_from_bytes(&bytes).unwrap())
}

proptest! {
    #[test]
    fn the_seam_does_what_a_list_of_stus_does(steps in prop::collection::vec(step(), 0..400)) {
        let mut both = Both::new();
        for step in &steps {
            both.step(step);
        }
    }

    /// Invariants 3 and 8 at the seam: whatever a header says, and whatever a
    /// ticket names, there is an answer, and what is refused changes nothing.
    #[test]
    fn no_header_and_no_ticket_makes_it_panic(
        header in any_header(),
        (bufx, generation) in (0u32..5, 0u32..2),
        len in any::<u32>(),
        (start, block_len, stu) in (any::<u32>(), any::<u32>(), any::<u16>()),
        stu_id in (0u16..5, 0u16..3, any::<u16>()),
    ) {
        let mut storage = Storage::new();
        let memory = RegionId::new(0, 1).span(u64::MAX - 100, block_len);
        storage.seam().open(1, expected(1, 1), start, memory, stu);
        storage.seam().open(2, expected(2, 2), 0, RegionId::new(0, 1).span(0, 5_000), 72);
        storage.seam().grant(1, u16::MAX);
        storage.seam().grant(2, u16::MAX);
        for header in [header, Header { bufx: (generation << 16 | bufx).into(), ..header }] {
            let data = incoming(&expected(1, 1), &header, len, Wrong::Nothing);
            let before = storage.clone();
            if storage.seam().place(&data).is_err() {
                prop_assert_eq!(&storage, &before);
            }
        }
        let (block, generation, stu) = stu_id;
        storage.seam().landed(StuId { block, generation, stu }, true);
    }
}

/// A Block of three STUs of 64 bytes from offset 64 on, the last of 10 bytes.
fn opened(granted: u16) -> (Storage, Expected, u32) {
    let (mut storage, expected) = (Storage::new(), expected(2, 1));
    let memory = RegionId::new(5, 1).span(1_000, 138);
    assert!(storage.seam().open(2, expected, 64, memory, 64));
    storage.seam().grant(2, granted);
    let bufx = storage.blocks[2].bufx(2);
    (storage, expected, bufx)
}

#[test]
fn each_check_says_what_it_refused() {
    for (wrong, refusal) in WRONGS {
        let (mut storage, expected, bufx) = opened(3);
        let header = header(&expected, bufx, 64, wrong);
        let data = incoming(&expected, &header, 104, wrong);
        assert_eq!(storage.seam().place(&data), Err(refusal), "{wrong:?}");
    }
    let refused = |offset, len, granted| {
        let (mut storage, expected, bufx) = opened(granted);
        let header = header(&expected, bufx, offset, Wrong::Nothing);
        storage.seam().place(&incoming(&expected, &header, len, Wrong::Nothing)).err()
    };
    assert_eq!(refused(128, 104, 3), None);
    assert_eq!(refused(128, 103, 3), Some(Refusal::Truncated));
    assert_eq!(refused(128, 105, 3), Some(Refusal::Malformed), "longer than the STU");
    assert_eq!(refused(192, 50, 3), None, "the last one is shorter");
    assert_eq!(refused(192, 51, 3), Some(Refusal::Malformed));
    assert_eq!(refused(128, 104, 1), Some(Refusal::OutOfBounds), "not granted");
    assert_eq!(refused(63, 104, 3), Some(Refusal::OutOfBounds), "before the Block");
    assert_eq!(refused(202, 104, 3), Some(Refusal::OutOfBounds), "behind the Block");
    assert_eq!(refused(u32::MAX, 104, 3), Some(Refusal::OutOfBounds));
}

#[test]
fn an_stu_is_accepted_once_with_whatever_bytes_it_comes_again() {
    let (mut storage, expected, bufx) = opened(3);
    let header = header(&expected, bufx, 64, Wrong::Nothing);
    let data = incoming(&expected, &header, 104, Wrong::Nothing);
    let hit = storage.seam().place(&data).unwrap();
    assert_eq!(hit.span, RegionId::new(5, 1).span(1_000, 64));
    assert_eq!(storage.seam().place(&data), Err(Refusal::Duplicate), "under way");
    assert_eq!(storage.seam().landed(hit.stu_id, true), Arrival::Bytes(64));
    assert_eq!(storage.seam().place(&data), Err(Refusal::Duplicate), "landed");
}

#[test]
fn memory_is_free_only_when_nothing_is_under_way_to_it() {
    let (mut storage, expected, bufx) = opened(3);
    let header = header(&expected, bufx, 64, Wrong::Nothing);
    let hit = storage.seam().place(&incoming(&expected, &header, 104, Wrong::Nothing)).unwrap();
    assert!(!storage.seam().close(2));
    let memory = RegionId::new(6, 1).span(0, 64);
    assert!(!storage.seam().open(2, expected, 0, memory, 64), "its place is taken still");
    assert_eq!(storage.seam().landed(hit.stu_id, true), Arrival::Released);
    assert!(storage.seam().open(2, expected, 0, memory, 64));
    assert_eq!(storage.seam().landed(hit.stu_id, true), Arrival::Stale);
}

#[test]
fn storage_that_is_too_short_makes_for_fewer_blocks() {
    let (mut blocks, mut bits) = ([Block::default(); 4], [0; 3]);
    let mut seam = Blocks::new(&mut blocks, &mut bits, 64);
    let memory = RegionId::new(0, 1).span(0, 64);
    for place in 0..3 {
        assert!(seam.open(place, expected(place, 1), 0, memory, 64));
    }
    assert!(!seam.open(3, expected(3, 1), 0, memory, 64));
    assert!(seam.block(3).is_none());
}

/// As many as a number of 16 bits counts, and not one more.
#[test]
fn a_block_of_the_most_stus_is_complete_after_the_last() {
    let (mut blocks, mut bits) = ([Block::default()], [0; bits_needed(1, u16::MAX)]);
    let mut seam = Blocks::new(&mut blocks, &mut bits, u16::MAX);
    let memory = |stus: u32| RegionId::new(0, 1).span(0, stus * 64);
    let expected = expected(0, 1);
    assert!(!seam.open(0, expected, 0, memory(65_536), 64), "too many");
    assert!(seam.open(0, expected, 0, memory(65_535), 64));
    seam.grant(0, u16::MAX);
    let bufx = seam.block(0).unwrap().bufx(0);
    for stu in 0..65_535 {
        let header = header(&expected, bufx, stu * 64, Wrong::Nothing);
        let hit = seam.place(&incoming(&expected, &header, 104, Wrong::Nothing)).unwrap();
        let arrival = seam.landed(hit.stu_id, true);
        let wanted = if stu == 65_534 { Arrival::Complete(64) } else { Arrival::Bytes(64) };
        assert_eq!(arrival, wanted, "STU {stu}");
    }
}

/// The last byte of a Block may have the largest offset: what lies behind it has none.
#[test]
fn a_block_may_end_where_offsets_do() {
    let mut both = Both::new();
    both.step(&Step::Open { place: 0, start: 4_294_966_795, len: 501, stu: 32 });
    both.step(&Step::Grant { place: 0, end: 16 });
}
