//! Speculation for any format of heads and payloads: pages, guesses, checks.
//!
//! A [`Speculator`] fills a list of descriptors with guesses, looks at what landed
//! behind them, and learns. It does not know what to do with units that landed
//! misplaced: that is its user's part, as `Receiver` does it for IP fragments.

use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, Span};
use landfall_tables::HashSecret;

use crate::buffers::{BufferId, Buffers, LEAD};
use crate::format::Format;
use crate::memory::{Descriptor, Head};
use crate::offload::{self, Guess, Open, Verdict};
use crate::predict::{Expected, NOBODY, Observed, Pace, Prediction, Predictor, Tally};
use crate::shape::Shape;

/// A packet that was joined in a page, or begun in it. The page is the receiver's
/// of this now.
#[derive(Clone, Copy, Debug)]
pub struct Page<B> {
    /// The page.
    pub page: BufferId,
    /// How the packet is cut.
    pub shape: Shape,
    /// What its first unit said.
    pub begin: B,
    /// The head of its first unit.
    pub head: Head,
    /// How many units are in place, one behind the other.
    pub in_place: u16,
    /// When the first one came.
    pub since: Instant,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<B> {
    /// It is in place, and others are awaited.
    InPlace,
    /// It is in place and begins a packet: [`Speculator::refuse`] takes that back.
    Begun(B),
    /// It was the last one of its packet: [`Speculator::whole`] gives it.
    Whole,
    /// It is not where it belongs.
    Misplaced,
}

/// Guesses, checks, learns.
///
/// The order of calls: [`post`](Self::post), receive, [`check`](Self::check) for
/// each frame, [`end_burst`](Self::end_burst).
#[derive(Debug)]
pub struct Speculator<F: Format> {
    format: F,
    predictor: Predictor<F::Flow>,
    pace: Pace,
    /// Pages that are being filled, or wait for it.
    opens: Vec<Open<F::Begin>>,
    /// For each of them: whose units it takes, and since when.
    owners: Vec<Owner>,
    posted: Vec<Posted>,
    descriptors: Vec<Descriptor>,
    /// Pages that were guessed for and not touched.
    spare: Vec<BufferId>,
    tally: Tally,
    /// The page of a packet that just became whole.
    joined: usize,
    is_stale: bool,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    flow: u16,
    since: Instant,
}

/// What is expected behind a descriptor, acted on or not.
#[derive(Clone, Copy, Debug)]
struct Posted {
    guess: Guess,
    flow: u16,
    index: u16,
    /// The flow is known well enough to guess for.
    is_known: bool,
}

impl<F: Format> Speculator<F> {
    /// Nothing learned yet; at most `most` descriptors are posted at once.
    #[must_use]
    pub fn new(format: F, prediction: Prediction, most: u16, secret: HashSecret) -> Self {
        let room = usize::from(most);
        Self {
            format,
            predictor: Predictor::new(prediction, secret),
            pace: Pace::new(most),
            opens: Vec::with_capacity(room),
            owners: Vec::with_capacity(room),
            posted: Vec::with_capacity(room),
            descriptors: Vec::with_capacity(room),
            spare: Vec::with_capacity(room),
            tally: Tally::default(),
            joined: usize::MAX,
            is_stale: true,
        }
    }

    /// Makes the list for the next burst. `head_len` is for descriptors without a
    /// guess.
    ///
    /// It has at most one descriptor for each two free pages: a frame may need one
    /// of its own, and may drive a packet that was begun out of its page.
    pub fn post(&mut self, head_len: u16, buffers: &mut Buffers) -> &[Descriptor] {
        if self.is_stale || self.descriptors.is_empty() {
            self.close_untouched();
            let begun = self.unfinished();
            let free = (buffers.free_pages() + self.spare.len()).saturating_sub(begun) / 2;
            let room = usize::from(self.pace.reach()).min(free);
            self.fill(room, head_len, buffers);
            self.spare.drain(..).for_each(|page| _ = buffers.give_back(page));
            self.is_stale = false;
        }
        &self.descriptors
    }

    /// The list that was posted.
    #[must_use]
    pub fn posted(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// What is expected behind each descriptor of the list that was posted.
    pub fn guesses(&self) -> impl ExactSizeIterator<Item = Guess> + '_ {
        self.posted.iter().map(|posted| posted.guess)
    }

    /// The pages that the guesses mean.
    #[must_use]
    pub fn opens(&self) -> &[Open<F::Begin>] {
        &self.opens
    }

    /// Pages in which nothing is in place are for the next guesses.
    fn close_untouched(&mut self) {
        let mut at = 0;
        while at < self.opens.len() {
            if self.opens[at].begin.is_some() {
                at += 1;
                continue;
            }
            self.owners.swap_remove(at);
            self.spare.push(self.opens.swap_remove(at).page);
        }
    }

    fn fill(&mut self, room: usize, head_len: u16, buffers: &mut Buffers) {
        self.posted.clear();
        self.descriptors.clear();
        let acts = self.pace.pays() || self.predictor.is_bold();
        let mut walk = self.predictor.walk();
        for _ in 0..room {
            let Expected { flow, index, shape } = walk.step();
            let open = shape.filter(|_| acts).and_then(|shape| {
                let pages = Pages { opens: &mut self.opens, owners: &mut self.owners };
                pages.find_or_open(flow, index, shape, &mut self.spare, buffers)
            });
            let (guess, descriptor) = match open {
                None => (Guess::None, Descriptor { head_len, place: Span::default() }),
                Some(at) => {
                    let Open { page, shape, .. } = self.opens[at];
                    let len = u32::from(shape.payload_len(index));
                    let place = buffers.span(page, LEAD + shape.at(index), len);
                    let head_len = shape.head_len(index);
                    (Guess::Unit { open: at as u16, index }, Descriptor { head_len, place })
                }
            };
            self.posted.push(Posted { guess, flow, index, is_known: shape.is_some() });
            self.descriptors.push(descriptor);
        }
    }

    /// Looks at the frame behind descriptor `n`, of `len` bytes. A page in which the
    /// first unit has been for longer than `patience` gets no more.
    #[inline]
    pub fn check(
        &mut self,
        now: Instant,
        patience: Duration,
        n: usize,
        head: &[u8],
        len: u32,
    ) -> Outcome<F::Begin> {
        self.is_stale = true;
        let Some(posted) = self.posted.get(n) else { return Outcome::Misplaced };
        let guess = posted.guess;
        let is_overdue = |owner: &Owner| owner.since + patience <= now;
        if let Guess::Unit { open, index: 1.. } = guess
            && self.owners.get(usize::from(open)).is_some_and(is_overdue)
        {
            return Outcome::Misplaced;
        }
        match offload::check(&self.format, guess, &mut self.opens, head, len) {
            Verdict::Stray => Outcome::Misplaced,
            Verdict::Begun(at) => self.begun(now, usize::from(at)),
            Verdict::InPlace(at) => {
                let at = usize::from(at);
                self.mark(at, self.opens[at].in_place);
                Outcome::InPlace
            }
            Verdict::Whole(at) => {
                let at = usize::from(at);
                if self.opens[at].in_place == 1 {
                    self.begun(now, at);
                }
                self.mark(at, 0);
                self.joined = at;
                Outcome::Whole
            }
        }
    }

    #[inline]
    fn begun(&mut self, now: Instant, at: usize) -> Outcome<F::Begin> {
        let Some(begin) = self.opens[at].begin else { return Outcome::Misplaced };
        // Anyone who begins a packet in a page gets it.
        let flow = self.predictor.find(self.owners[at].flow, &self.format.flow(&begin));
        self.owners[at] = Owner { flow, since: now };
        if self.opens[at].shape.units() > 1 {
            self.mark(at, 1);
        }
        Outcome::Begun(begin)
    }

    #[inline]
    fn mark(&mut self, at: usize, next: u16) {
        self.tally.note(true);
        self.predictor.unit_in_place(self.owners[at].flow, next, &self.opens[at].shape);
    }

    /// The packet that the frame which was looked at last made whole.
    pub fn whole(&mut self) -> Option<Page<F::Begin>> {
        let at = core::mem::replace(&mut self.joined, usize::MAX);
        let page = self.take(at)?;
        self.leave(at);
        Some(page)
    }

    /// Closes a page and gives what is in it, if anything is.
    fn take(&mut self, at: usize) -> Option<Page<F::Begin>> {
        let open = self.opens.get_mut(at)?;
        let Open { page, shape, in_place, head, .. } = *open;
        let since = self.owners[at].since;
        let begin = open.close()?;
        Some(Page { page, shape, begin, head, in_place, since })
    }

    /// The packet that began with the frame behind descriptor `n` is not to be joined
    /// here: the frame is misplaced. Its page is free when the burst ends.
    pub fn refuse(&mut self, n: usize) {
        if let Some(Posted { guess: Guess::Unit { open, .. }, .. }) = self.posted.get(n) {
            self.opens[usize::from(*open)].close();
        }
    }

    /// Whether a packet that is meant was begun in another page than that of the guess
    /// behind descriptor `n`.
    #[inline]
    pub fn is_begun_elsewhere(&self, n: usize, is_meant: impl Fn(&F::Begin) -> bool) -> bool {
        let own = match self.posted.get(n).map(|posted| posted.guess) {
            Some(Guess::Unit { open, .. }) => usize::from(open),
            _ => usize::MAX,
        };
        let mut opens = self.opens.iter().enumerate();
        opens.any(|(at, open)| at != own && open.begin.as_ref().is_some_and(&is_meant))
    }

    /// The packet, begun in the page, in whose place the frame behind descriptor `n`
    /// landed misplaced. With it, whether frames that landed behind it, up to
    /// descriptor `arrived`, lie in that page as well.
    pub fn broken_by(&mut self, n: usize, arrived: usize) -> Option<(Page<F::Begin>, bool)> {
        let Guess::Unit { open, .. } = self.posted.get(n)?.guess else { return None };
        self.broken(usize::from(open), n, arrived)
    }

    /// The packet, begun in a page, that is meant: a unit of it landed elsewhere.
    pub fn broken_where(
        &mut self,
        is_meant: impl Fn(&F::Begin) -> bool,
        n: usize,
        arrived: usize,
    ) -> Option<(Page<F::Begin>, bool)> {
        let is_meant = |open: &Open<F::Begin>| open.begin.as_ref().is_some_and(&is_meant);
        let at = self.opens.iter().position(is_meant)?;
        self.broken(at, n, arrived)
    }

    fn broken(&mut self, at: usize, n: usize, arrived: usize) -> Option<(Page<F::Begin>, bool)> {
        let page = self.take(at)?;
        let behind = self.posted.get(n + 1..arrived).unwrap_or_default();
        let lies_here = |posted: &Posted| matches!(posted.guess, Guess::Unit { open, .. } if usize::from(open) == at);
        let is_occupied = behind.iter().any(lies_here);
        if !is_occupied {
            // The page is its new owner's.
            self.leave(at);
        }
        Some((page, is_occupied))
    }

    /// The page is no longer of this table; its entry stays until the burst ends.
    fn leave(&mut self, at: usize) {
        self.opens[at].page = BufferId::NONE;
    }

    /// What was learned from a frame misplaced: it is this unit of this flow.
    pub fn learn(&mut self, n: usize, flow: &F::Flow, unit: &Observed) {
        if self.predictor.is_off() {
            return;
        }
        let (flow, index) = self.predictor.unit_misplaced(flow, unit);
        // Nothing was said about it.
        let Some(posted) = self.posted.get(n).filter(|posted| posted.is_known) else { return };
        let is_foreseen = posted.flow == flow && posted.index == index;
        self.tally.note(is_foreseen && posted.guess == Guess::None);
    }

    /// A frame misplaced is no unit of a packet.
    pub fn learn_other(&mut self, n: usize) {
        self.predictor.other();
        if self.posted.get(n).is_some_and(|posted| posted.is_known) {
            self.tally.note(false);
        }
    }

    /// How the flow cut its last packet.
    #[must_use]
    pub fn last_shape(&mut self, flow: &F::Flow) -> Option<Shape> {
        if self.predictor.is_off() {
            return None;
        }
        let flow = self.predictor.find(NOBODY, flow);
        self.predictor.last_shape(flow)
    }

    /// All frames of the burst were looked at. Pages that were closed are free.
    pub fn end_burst(&mut self, buffers: &mut Buffers) {
        self.pace.burst(core::mem::take(&mut self.tally));
        let mut at = 0;
        while at < self.opens.len() {
            if !self.opens[at].is_closed() {
                at += 1;
                continue;
            }
            self.owners.swap_remove(at);
            buffers.give_back(self.opens.swap_remove(at).page);
        }
        self.is_stale = true;
        self.posted.clear();
        self.descriptors.clear();
    }

    /// A packet that was begun `patience` ago or longer and is not whole. Only
    /// between bursts.
    pub fn overdue(&mut self, now: Instant, patience: Duration) -> Option<Page<F::Begin>> {
        self.withdraw(|_, since| since + patience <= now)
    }

    /// The packet, begun in a page, that is meant. Only between bursts.
    pub fn withdraw(
        &mut self,
        is_meant: impl Fn(&F::Begin, Instant) -> bool,
    ) -> Option<Page<F::Begin>> {
        let at = self.opens.iter().zip(&self.owners).position(|(open, owner)| {
            open.begin.as_ref().is_some_and(|begin| is_meant(begin, owner.since))
        })?;
        let page = self.take(at)?;
        self.opens.swap_remove(at);
        self.owners.swap_remove(at);
        self.is_stale = true;
        Some(page)
    }

    /// How many packets were begun and are not whole.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.opens.iter().filter(|open| open.begin.is_some()).count()
    }

    /// When the oldest packet that is not whole was begun.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let begun = self.opens.iter().zip(&self.owners).filter(|(open, _)| open.begin.is_some());
        begun.map(|(_, owner)| owner.since).min()
    }
}

/// The pages that are open.
struct Pages<'a, B> {
    opens: &'a mut Vec<Open<B>>,
    owners: &'a mut Vec<Owner>,
}

impl<B> Pages<'_, B> {
    /// The page in which a unit is expected: for a first one a page of its own.
    fn find_or_open(
        self,
        flow: u16,
        index: u16,
        shape: Shape,
        spare: &mut Vec<BufferId>,
        buffers: &mut Buffers,
    ) -> Option<usize> {
        if index > 0 {
            // The latest one: pages of a flow follow one another.
            return (0..self.opens.len()).rev().find(|at| {
                let open = &self.opens[*at];
                self.owners[*at].flow == flow && open.shape == shape && open.in_place <= index
            });
        }
        if shape.body_len() > buffers.page_len() {
            return None;
        }
        let page = spare.pop().or_else(|| buffers.take(shape.body_len()))?;
        self.opens.push(Open::new(page, shape));
        self.owners.push(Owner { flow, since: Instant::ZERO });
        Some(self.opens.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Field, Fixed};
    use crate::shape::{HeadLens, PayloadLens};
    use landfall_placement::{Area, RegionId};

    const FORMAT: Fixed = Fixed {
        magic: b"L",
        stream: Field { at: 1, len: 1 },
        packet: Field { at: 2, len: 1 },
        unit: Field { at: 3, len: 1 },
    };
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Streams with packets of four units of 1024 bytes behind heads of four.
    struct Bench {
        speculator: Speculator<Fixed>,
        buffers: Buffers,
        whole: Vec<Page<crate::format::FixedBegin>>,
        misplaced: usize,
    }

    impl Bench {
        fn new(prediction: Prediction, most: u16) -> Self {
            let pages = Area::new(RegionId::new(1, 1), 0, Buffers::bytes_needed(64, 4096));
            Self {
                speculator: Speculator::new(FORMAT, prediction, most, HashSecret::new(1, 2)),
                buffers: Buffers::new(pages, 4096, Area::default()),
                whole: Vec::new(),
                misplaced: 0,
            }
        }

        /// A burst with these units: stream, packet, unit.
        fn burst(&mut self, units: &[(u8, u8, u8)]) {
            let posted = self.speculator.post(4, &mut self.buffers).len();
            assert!(posted >= units.len(), "{posted} descriptors for {} units", units.len());
            for (n, (stream, packet, unit)) in units.iter().copied().enumerate() {
                let head = [b'L', stream, packet, unit];
                match self.speculator.check(Instant::ZERO, PATIENCE, n, &head, 1028) {
                    Outcome::Whole => self.whole.extend(self.speculator.whole()),
                    Outcome::Misplaced => {
                        self.misplaced += 1;
                        let flow = u64::from(stream);
                        let unit = Observed {
                            position: unit.into(),
                            reach: 1,
                            is_last: unit == 3,
                            head_len: 4,
                            payload_len: 1024,
                        };
                        self.speculator.learn(n, &flow, &unit);
                        let broken = self.speculator.broken_by(n, units.len());
                        if let Some((page, false)) = broken {
                            self.buffers.give_back(page.page);
                        }
                    }
                    _ => {}
                }
            }
            self.speculator.end_burst(&mut self.buffers);
        }

        fn release_all(&mut self) {
            for page in self.whole.drain(..) {
                assert!(self.buffers.give_back(page.page));
            }
        }
    }

    fn shape() -> Shape {
        Shape::new(
            4,
            HeadLens { first: 4, rest: 4 },
            PayloadLens { first: 1024, middle: 1024, last: 1024 },
        )
        .unwrap()
    }

    #[test]
    fn a_format_of_ones_own_is_joined_from_the_first_packet_on() {
        let mut bench = Bench::new(Prediction::Single(shape()), 16);
        for packet in 0..10 {
            bench.burst(&[0, 1, 2, 3].map(|unit| (9, packet, unit)));
        }
        assert_eq!((bench.whole.len(), bench.misplaced), (10, 0));
        let pages: Vec<_> = bench.whole.iter().map(|page| page.page).collect();
        assert!(pages.iter().all(|page| pages.iter().filter(|p| *p == page).count() == 1));
        bench.release_all();
        assert_eq!(bench.buffers.free_pages() + bench.speculator.opens.len(), 64);
    }

    #[test]
    fn a_packet_goes_on_over_bursts() {
        let mut bench = Bench::new(Prediction::Single(shape()), 16);
        for unit in 0..4 {
            bench.burst(&[(9, 1, unit)]);
        }
        assert_eq!((bench.whole.len(), bench.misplaced), (1, 0));
    }

    #[test]
    fn two_streams_that_take_turns_are_learned() {
        let turns: Vec<_> = (0..24).flat_map(|n| [(1, n / 4, n % 4), (2, n / 4, n % 4)]).collect();
        let mut bench = Bench::new(Prediction::default(), 16);
        for _ in 0..10 {
            turns.chunks(8).for_each(|burst| bench.burst(burst));
            bench.release_all();
        }
        bench.misplaced = 0;
        turns.chunks(8).for_each(|burst| bench.burst(burst));
        assert_eq!((bench.whole.len(), bench.misplaced), (12, 0));
        let mut single = Bench::new(Prediction::Single(shape()), 16);
        turns.chunks(8).for_each(|burst| single.burst(burst));
        assert!(single.whole.is_empty(), "the paper's predictor knows one stream at a time");
    }

    #[test]
    fn a_miss_costs_one_packet_and_then_it_hits_again() {
        let mut bench = Bench::new(Prediction::Single(shape()), 4);
        for packet in 0..20 {
            let mut units: Vec<_> = [0, 1, 2, 3].map(|unit| (9, packet, unit)).into();
            if packet == 10 {
                units.insert(2, (7, 7, 7));
            }
            units.chunks(4).for_each(|burst| bench.burst(burst));
            bench.release_all();
        }
        assert_eq!(bench.misplaced, 3, "the stranger, and what was behind it");
    }

    #[test]
    fn invariant_5_pages_bound_the_list_and_come_back() {
        let mut bench = Bench::new(Prediction::Single(shape()), 64);
        let held: Vec<_> = (0..54).map(|_| bench.buffers.take(1).unwrap()).collect();
        assert_eq!(bench.speculator.post(4, &mut bench.buffers).len(), 5);
        bench.speculator.end_burst(&mut bench.buffers);
        let more: Vec<_> = core::iter::from_fn(|| bench.buffers.take(1)).collect();
        bench.speculator.post(4, &mut bench.buffers);
        held.iter().chain(&more).for_each(|page| assert!(bench.buffers.give_back(*page)));
        bench.speculator.end_burst(&mut bench.buffers);
        assert_eq!(bench.speculator.post(4, &mut bench.buffers).len(), 32);
    }
}
