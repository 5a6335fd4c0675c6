//! Operation sequences against a naive model: the region table must answer
//! each call as the model does, and hold the same bytes.
//!
//! A sequence is a string of bytes, so that one interpreter serves the
//! property test, the fuzz target `region_table`, and the replay of its
//! corpus. Any string is a sequence; one that ends early reads zeros.

mod naive;

use landfall_placement::{RegionId, Span, WordFunction, WordOp, WordWidth};

use self::naive::{Grant, Naive, Status};
use super::memory::{
    AccessError, LendRefusal, Memory, Pinned, Pins, Regions, Rights, TakeBackError,
};

/// Runs a sequence.
///
/// # Panics
/// Where table and model differ.
pub(crate) fn run(sequence: &[u8]) {
    let mut input = Input::new(sequence);
    let mut run = Run::new(input.byte());
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.finish();
}

/// The table, who uses it, and the model.
struct Run {
    regions: Regions,
    /// Two drivers, and for each the grants that it holds.
    drivers: [(Pins, Vec<RegionId>); 2],
    /// Operations in flight.
    flights: Vec<Pinned>,
    /// What the application has for itself.
    own: Vec<Memory>,
    naive: Naive,
}

/// So few that the table is often full.
const MAX_REGIONS: u32 = 5;

impl Run {
    fn new(first: u8) -> Self {
        // One in four sequences comes to the end of the slots' lives.
        let generation = if first.is_multiple_of(4) { u32::MAX - 2 } else { 1 };
        let regions = Regions::with_first_generation(MAX_REGIONS, generation);
        let driver = || (Pins::new(&regions), Vec::new());
        Self {
            drivers: [driver(), driver()],
            flights: Vec::new(),
            own: Vec::new(),
            naive: Naive::default(),
            regions,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 | 1 => self.lend(input),
            2 => self.revoke(input),
            3 | 4 => self.take_back(input),
            5 | 6 => self.copy_in(input),
            7 => self.copy_out(input),
            8 | 9 => self.word(input),
            10 => self.sum(input),
            11 => self.resolve(input),
            12 => self.release(usize::from(input.byte() % 2)),
            13 => self.take_off(input),
            14 => self.fly(input),
            _ => self.ask(input),
        }
        assert_eq!(self.regions.held() as usize, self.naive.held());
    }

    fn lend(&mut self, input: &mut Input<'_>) {
        let rights = Rights::from_bits(input.byte());
        let memory = match self.own.pop() {
            Some(memory) if input.byte().is_multiple_of(2) => memory,
            _ => {
                let mut memory = Memory::zeroed(usize::from(input.byte()));
                memory.fill(input.byte());
                memory
            }
        };
        let (bytes, address) = (memory.to_vec(), memory.as_ptr().addr());
        let room = self.naive.held() + self.naive.retired() < MAX_REGIONS as usize;
        match self.regions.lend(memory, rights) {
            Ok(id) => {
                assert!(room && !rights.is_empty());
                assert_eq!(self.naive.any(id).map(|grant| grant.id), None, "a name twice");
                let status = Status::Live;
                self.naive.grants.push(Grant { id, rights, status, bytes, address, pins: 0 });
            }
            Err(refused) if rights.is_empty() => {
                assert_eq!(refused.why, LendRefusal::NoRights);
                self.keep(refused.into_memory(), &bytes);
            }
            Err(refused) => {
                assert!(!room);
                assert_eq!(refused.why, LendRefusal::TableFull { max: MAX_REGIONS });
                self.keep(refused.into_memory(), &bytes);
            }
        }
    }

    /// The application has memory again, with the bytes that it should have.
    fn keep(&mut self, memory: Memory, bytes: &[u8]) {
        assert_eq!(&memory[..], bytes);
        if self.own.len() < 4 {
            self.own.push(memory);
        }
    }

    fn revoke(&mut self, input: &mut Input<'_>) {
        let id = self.pick(input);
        let expected = self.naive.live(id).map(|grant| grant.status = Status::Revoked);
        assert_eq!(self.regions.revoke(id), expected);
    }

    fn take_back(&mut self, input: &mut Input<'_>) {
        let id = self.pick(input);
        self.take_back_id(id);
    }

    fn take_back_id(&mut self, id: RegionId) {
        let result = self.regions.try_take_back(id);
        match (result, self.naive.any(id)) {
            (Ok(memory), Some(grant)) => {
                assert!(grant.status != Status::TakenBack && grant.pins == 0, "{grant:?}");
                assert_eq!(memory.as_ptr().addr(), grant.address);
                grant.status = Status::TakenBack;
                let bytes = grant.bytes.clone();
                self.keep(memory, &bytes);
            }
            (Err(TakeBackError::StillInUse { region, .. }), Some(grant)) => {
                assert!(grant.status != Status::TakenBack && grant.pins > 0, "{grant:?}");
                assert_eq!(region, id);
                grant.status = Status::Revoked;
            }
            (Err(TakeBackError::Access(error)), Some(grant)) => {
                assert_eq!((grant.status, error), (Status::TakenBack, AccessError::Stale(id)));
            }
            (result, None) => {
                assert_eq!(result.unwrap_err(), AccessError::Unknown(id).into());
            }
            (result, grant) => panic!("{result:?} for {grant:?}"),
        }
    }

    fn copy_in(&mut self, input: &mut Input<'_>) {
        let (span, via) = (self.span(input), input.byte());
        let mut bytes = vec![0; input.length_for(span.len)];
        bytes.fill_with(|| input.byte());
        let result = match via % 4 {
            0 => self.regions.write(&span, &bytes),
            n => self.driver(n, span.region).copy_in(&span, &bytes),
        };
        assert_eq!(result, self.naive.copy_in(&span, &bytes));
    }

    fn copy_out(&mut self, input: &mut Input<'_>) {
        let (span, via) = (self.span(input), input.byte());
        let mut bytes = vec![0; input.length_for(span.len)];
        let result = match via % 4 {
            0 => self.regions.read(&span, &mut bytes),
            n => self.driver(n, span.region).copy_out(&span, &mut bytes),
        };
        assert_eq!(result.map(|()| bytes.clone()), self.naive.copy_out(&span, bytes.len()));
    }

    fn word(&mut self, input: &mut Input<'_>) {
        let (id, via) = (self.pick(input), input.byte());
        let op = input.word_op(id);
        let result = match via % 4 {
            0 => self.regions.word(&op),
            n => self.driver(n, id).word(&op),
        };
        assert_eq!(result, self.naive.word(&op), "{op:?}");
    }

    fn sum(&mut self, input: &mut Input<'_>) {
        let spans = [self.span(input), self.span(input)];
        let via = input.byte();
        // Where the first span is refused, the second is not even looked at.
        let mut result = self.driver(via, spans[0].region).sum(&spans[..1]);
        if result.is_ok() {
            result = self.driver(via, spans[1].region).sum(&spans);
        }
        assert_eq!(result, self.naive.sum(&spans));
    }

    fn resolve(&mut self, input: &mut Input<'_>) {
        let (span, right) = (self.span(input), Rights::from_bits(input.byte()));
        let result = self.driver(input.byte(), span.region).resolve(&span, right);
        let expected = self.naive.span(&span, right).map(|bytes| bytes.len());
        assert_eq!(result.map(|raw| raw.len), expected);
        if let (Ok(raw), Some(grant)) = (result, self.naive.any(span.region)) {
            assert_eq!(raw.ptr.addr().get(), grant.address + span.offset as usize);
        }
    }

    /// One of the drivers, which will hold this region if the grant is good.
    fn driver(&mut self, which: u8, id: RegionId) -> &mut Pins {
        let (pins, held) = &mut self.drivers[usize::from(which % 2)];
        if let Ok(grant) = self.naive.live(id)
            && !held.contains(&id)
        {
            grant.pins += 1;
            held.push(id);
        }
        pins
    }

    /// The end of a driver's turn.
    fn release(&mut self, which: usize) {
        let (pins, held) = &mut self.drivers[which];
        pins.release();
        for id in held.drain(..) {
            self.naive.any(id).expect("it was granted").pins -= 1;
        }
    }

    /// An operation begins or ends that holds a region for longer than a turn.
    fn take_off(&mut self, input: &mut Input<'_>) {
        if self.flights.len() >= 3 || input.byte().is_multiple_of(3) {
            return self.land();
        }
        let id = self.pick(input);
        match (self.regions.pin(id), self.naive.live(id)) {
            (Ok(pinned), Ok(grant)) => {
                grant.pins += 1;
                self.flights.push(pinned);
            }
            (result, expected) => {
                assert_eq!(result.map(|_| ()), expected.map(|_| ()));
            }
        }
    }

    fn land(&mut self) {
        if let Some(pinned) = self.flights.pop() {
            self.naive.any(pinned.id()).expect("it was granted").pins -= 1;
        }
    }

    /// An operation in flight uses what it holds.
    fn fly(&mut self, input: &mut Input<'_>) {
        let Some(id) = self.flights.last().map(Pinned::id) else { return };
        let (span, op) = (input.span(id), input.word_op(id));
        let bytes = vec![input.byte(); span.len.min(300) as usize];
        let pinned = self.flights.last().expect("just seen");
        assert_eq!(pinned.word(&op), self.naive.word(&op));
        assert_eq!(pinned.copy_in(&span, &bytes), self.naive.copy_in(&span, &bytes));
        let mut out = bytes;
        let result = pinned.copy_out(&span, &mut out);
        assert_eq!(result.map(|()| out.clone()), self.naive.copy_out(&span, out.len()));
        let expected = self.naive.span(&span, Rights::READ).map(|bytes| bytes.len());
        assert_eq!(pinned.resolve(&span, Rights::READ).map(|raw| raw.len), expected);
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        let id = self.pick(input);
        let expected = self.naive.live(id).map(|grant| (grant.bytes.len() as u64, grant.rights));
        assert_eq!(self.regions.len(id), expected.map(|(len, _)| len));
        assert_eq!(self.regions.rights(id), expected.map(|(_, rights)| rights));
    }

    /// A name that was granted at some time, or one that never was.
    fn pick(&self, input: &mut Input<'_>) -> RegionId {
        let choice = usize::from(input.byte());
        match self.naive.grants.len().checked_sub(1 + choice % 8) {
            Some(nth) => self.naive.grants[nth].id,
            None => match choice % 4 {
                0 => RegionId::default(),
                1 => RegionId::new(u32::from(input.byte()), u32::MAX),
                2 => RegionId::new(u32::MAX, 1),
                _ => RegionId::new(MAX_REGIONS, u32::MAX),
            },
        }
    }

    fn span(&self, input: &mut Input<'_>) -> Span {
        let id = self.pick(input);
        input.span(id)
    }

    /// Everybody lets go: all memory comes back, with the bytes it should have.
    fn finish(mut self) {
        while !self.flights.is_empty() {
            self.land();
        }
        self.release(0);
        self.release(1);
        let ids: Vec<_> = self.naive.grants.iter().map(|grant| grant.id).collect();
        for id in ids {
            self.take_back_id(id);
        }
        assert_eq!(self.regions.held(), 0);
    }
}

// A string of bytes, read as the arguments of calls.

/// What is left of the string.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte; zero behind the end.
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// Mostly within a short region, sometimes at the end of all numbers.
    fn offset(&mut self) -> u64 {
        match self.byte() {
            near @ 0..=239 => u64::from(near),
            far => u64::MAX - u64::from(far - 240),
        }
    }

    fn span(&mut self, id: RegionId) -> Span {
        let offset = self.offset();
        let len = match self.byte() {
            short @ 0..=251 => u32::from(short) % 64,
            252 => 255,
            long => u32::MAX - u32::from(long - 253),
        };
        id.span(offset, len)
    }

    /// The length of a buffer for a span: mostly the right one.
    fn length_for(&mut self, len: u32) -> usize {
        // Such a span is refused before anybody looks at the length.
        let len = len.min(300) as usize;
        match self.byte() {
            250..=252 => len + 1,
            253.. => len.saturating_sub(1),
            _ => len,
        }
    }

    fn word_op(&mut self, region: RegionId) -> WordOp {
        let width = if self.byte().is_multiple_of(2) { WordWidth::Four } else { WordWidth::Eight };
        let aligned = !self.byte().is_multiple_of(8);
        let offset = self.offset();
        let offset = if aligned { offset & !u64::from(width.bytes() - 1) } else { offset };
        WordOp { region, offset, width, function: self.function() }
    }

    fn function(&mut self) -> WordFunction {
        let choice = self.byte();
        // Numbers in both halves, so that a step over the middle shows.
        let number = u64::from_le_bytes([0; 8].map(|_: u8| self.byte()));
        match choice % 8 {
            0 => WordFunction::Load,
            1 => WordFunction::Store(number),
            2 => WordFunction::Swap(number),
            3 => WordFunction::Add(number),
            4 => WordFunction::And(number),
            5 => WordFunction::Or(number),
            6 => WordFunction::Xor(number),
            // A word of equal bytes, as memory is filled at first, or one that was stored.
            _ => {
                let expected = u64::from_le_bytes([self.byte(); 8]);
                WordFunction::CompareSwap { expected, new: number }
            }
        }
    }
}
