//! Frames that lie in memory which is shared with the kernel: in blocks of a ring, or
//! in the rings of AF_XDP.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use landfall_placement::{Area, Duration, Instant, Span};
use landfall_transport::driver::Interest;
use landfall_transport::memory::{LendRefusal, Regions};
use landfall_transport::ring::{Block, Frame, Ring};
use landfall_transport::scatter::Posted;
use landfall_transport::xdp;
use spec_defrag::{Head, Lend, MappedFrame, Receiver as Engine};

use super::super::delivery::MemoryView;
use super::super::packet::{Held, Holder};
use super::{KernelCounts, Moved, ReceivePath};

/// Where bunches of frames come from.
pub(in super::super) trait Source: Send + std::fmt::Debug {
    type Bunch: Bunch;

    /// The next bunch, if one is there.
    fn next(&mut self) -> io::Result<Option<Self::Bunch>>;
    /// Whether packets may be lent from the bunch that came last.
    fn may_lend(&self) -> bool {
        true
    }
    fn interests(&self, into: &mut Vec<Interest>);
    fn look_again(&self) -> Option<Duration>;
    fn heard(&mut self) -> io::Result<KernelCounts>;
    /// How many bytes of memory it has for frames, and how many of them the kernel cannot use
    /// until bunches go back.
    fn memory(&self) -> u64;
    fn held(&self) -> u64;
}

/// Frames that go back to the kernel together.
pub(in super::super) trait Bunch: Holder + std::fmt::Debug + 'static {
    fn frames(&self) -> impl Iterator<Item = Frame<'_>>;
}

/// Offers the engine frames where the kernel put them.
#[derive(Debug)]
pub(in super::super) struct MappedPath<S: Source> {
    source: S,
    /// Whose memory is used; nothing is posted there.
    posted: Posted,
    bunches: Bunches<S::Bunch>,
    /// This many frames of the newest the engine has had.
    taken: usize,
    /// There were more of them than pages.
    has_more: bool,
    /// While more of the memory than this is kept from the kernel, packets are copied.
    most_lent: u64,
}

/// Bunches of frames that packets wait in, or that packets lie in which were not handed out yet.
#[derive(Debug)]
struct Bunches<B> {
    /// By number, the newest last.
    held: VecDeque<(u64, Arc<B>)>,
    next: u64,
}

impl<B> Bunches<B> {
    const fn new() -> Self {
        Self { held: VecDeque::new(), next: 0 }
    }

    /// One more. Returns its number.
    fn push(&mut self, bunch: B) -> u64 {
        let number = self.next;
        self.next += 1;
        self.held.push_back((number, Arc::new(bunch)));
        number
    }

    fn newest(&self) -> Option<(u64, &Arc<B>)> {
        self.held.back().map(|(number, bunch)| (*number, bunch))
    }

    fn get(&self, number: u64) -> Option<&Arc<B>> {
        let at = self.held.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.held[at].1)
    }

    /// Only those are held any longer.
    fn retain(&mut self, mut is_needed: impl FnMut(u64) -> bool) {
        self.held.retain(|(number, _)| is_needed(*number));
    }
}

impl<S: Source> MappedPath<S> {
    /// Lends at most this many bytes of the memory that frames lie in; half of it without that.
    pub(in super::super) fn new(
        source: S,
        regions: &Regions,
        most_lent: Option<u64>,
    ) -> Result<Self, LendRefusal> {
        let most_lent = most_lent.unwrap_or(source.memory() / 2);
        Ok(Self {
            source,
            posted: Posted::new(regions, 1)?,
            bunches: Bunches::new(),
            taken: 0,
            has_more: false,
            most_lent,
        })
    }
}

impl<S: Source> ReceivePath for MappedPath<S> {
    fn slots(&self) -> (Area, Area) {
        (self.posted.heads(), self.posted.spill())
    }

    fn turn(&mut self, engine: &mut Engine, now: Instant) -> io::Result<Moved> {
        // Each frame may be the first of a packet, and need a page.
        let room = engine.free_pages();
        if room == 0 {
            return Ok(Moved::NoPages);
        }
        if !self.has_more {
            let Some(bunch) = self.source.next()? else { return Ok(Moved::Nothing) };
            self.taken = 0;
            self.bunches.push(bunch);
        }
        let Some((number, bunch)) = self.bunches.newest() else { return Ok(Moved::Nothing) };
        let is_at_bound = self.source.held() > self.most_lent || !self.source.may_lend();
        let lend = if is_at_bound { Lend::Copy } else { Lend::List };
        let head = |bytes: &[u8]| bytes.len().min(Head::MOST);
        let frames: Vec<_> = bunch
            .frames()
            .skip(self.taken)
            .take(room)
            .map(|frame| MappedFrame { at: frame.span, head: &frame.bytes[..head(frame.bytes)] })
            .collect();
        let bunch = spec_defrag::Bunch { number, frames: &frames, lend };
        engine.take_bunch(now, &bunch, &mut MemoryView(self.posted.memory()));
        self.posted.release();
        self.taken += frames.len();
        self.has_more = frames.len() == room;
        Ok(Moved::Frames)
    }

    fn handle_timeout(&mut self, engine: &mut Engine, now: Instant) {
        engine.handle_timeout(now, &mut MemoryView(self.posted.memory()));
        self.posted.release();
    }

    fn read(&mut self, span: &Span, into: &mut [u8]) {
        let read = self.posted.memory().read(span, into);
        debug_assert_eq!(read, Ok(()), "{span}");
    }

    fn hold(&self, bunches: &[u64]) -> Option<Held> {
        let hold = |number: &u64| {
            self.bunches.get(*number).map(|bunch| Arc::clone(bunch) as Arc<dyn Holder>)
        };
        match bunches {
            [one] => hold(one).map(Held::One),
            several => several.iter().map(hold).collect::<Option<_>>().map(Held::Several),
        }
    }

    fn release(&mut self, engine: &Engine) {
        let being_read = self.bunches.newest().map(|(number, _)| number).filter(|_| self.has_more);
        self.bunches.retain(|number| Some(number) == being_read || engine.holds_bunch(number));
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        self.source.interests(into);
    }

    fn look_again(&self) -> Option<Duration> {
        self.source.look_again()
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        self.source.heard()
    }
}

/// A ring of blocks, or two where packets are lent.
///
/// The kernel fills the blocks of a ring in turn, so a single packet that is kept stops it there.
/// Before that the ring is closed, and it goes on with the other one, of which nothing is lent until
/// nothing of the first is kept: its blocks go back at once, and the kernel has room whatever
/// users keep.
#[derive(Debug)]
pub(in super::super) struct Blocks {
    rings: Box<[Ring]>,
    /// The ring that the last block is of.
    current: usize,
    /// Since the kernel left the other ring it was told that it may come back.
    is_told: bool,
    retire: Duration,
    taken: u64,
}

impl Blocks {
    pub(in super::super) const fn new(rings: Box<[Ring]>, retire: Duration) -> Self {
        Self { rings, current: 0, is_told: true, retire, taken: 0 }
    }

    /// Sees to it that the kernel fills a ring in which it comes to nothing that is kept.
    fn steer(&mut self) -> io::Result<()> {
        let [first, second] = &mut *self.rings else { return Ok(()) }; // there is no other
        let (current, other) = if self.current == 0 { (first, second) } else { (second, first) };
        if !current.is_closed() && current.comes_to_held() {
            current.close_to_kernel();
        }
        if !self.is_told && other.held() == 0 {
            other.open_to_kernel()?;
            self.is_told = true;
        }
        Ok(())
    }
}

impl Source for Blocks {
    type Bunch = Block;

    fn next(&mut self) -> io::Result<Option<Block>> {
        let count = self.rings.len();
        for nth in 0..count {
            let ring = (self.current + nth) % count;
            let Some(block) = self.rings[ring].next_block() else { continue };
            self.is_told &= self.current == ring;
            self.current = ring;
            self.taken += 1;
            self.steer()?;
            return Ok(Some(block));
        }
        self.steer()?;
        Ok(None)
    }

    fn may_lend(&self) -> bool {
        let mut others = self.rings.iter().enumerate().filter(|(nth, _)| *nth != self.current);
        others.all(|(_, ring)| ring.held() == 0)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        let telling = self.rings.iter().filter(|ring| ring.is_readiness_telling());
        into.extend(telling.map(Ring::interest));
    }

    fn look_again(&self) -> Option<Duration> {
        let is_telling = self.rings.iter().all(Ring::is_readiness_telling);
        (!is_telling).then_some(self.retire)
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        let mut counts = KernelCounts { calls: self.taken, ..KernelCounts::default() };
        for ring in &mut self.rings {
            let told = ring.statistics()?;
            counts.frames += told.frames.saturating_sub(told.drops);
            counts.dropped += told.drops;
        }
        Ok(counts)
    }

    fn memory(&self) -> u64 {
        self.rings.iter().map(Ring::memory).sum()
    }

    fn held(&self) -> u64 {
        self.rings.iter().map(|ring| ring.held() as u64 * ring.block_size() as u64).sum()
    }
}

impl Bunch for Block {
    fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        Self::frames(self)
    }
}

impl Holder for Block {
    fn bytes_of(&self, span: &Span) -> Option<&[u8]> {
        Self::bytes_of(self, span)
    }
}

/// The rings of AF_XDP, of one queue or of several.
#[derive(Debug)]
pub(in super::super) struct XdpRings {
    queues: Box<[xdp::XdpQueue]>,
    /// Which is looked at first: the one behind that which had something last.
    next: usize,
    heard: KernelCounts,
}

impl XdpRings {
    pub(in super::super) fn new(queues: Box<[xdp::XdpQueue]>) -> Self {
        Self { queues, next: 0, heard: KernelCounts::default() }
    }
}

impl Source for XdpRings {
    type Bunch = xdp::Burst;

    fn next(&mut self) -> io::Result<Option<xdp::Burst>> {
        let count = self.queues.len();
        for nth in 0..count {
            let queue = (self.next + nth) % count;
            let Some(burst) = self.queues[queue].receive()? else { continue };
            self.next = (queue + 1) % count;
            self.heard.calls += 1;
            self.heard.frames += burst.frames().len() as u64;
            return Ok(Some(burst));
        }
        Ok(None)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend(self.queues.iter().map(xdp::XdpQueue::interest));
    }

    fn look_again(&self) -> Option<Duration> {
        None
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        Ok(self.heard)
    }

    fn memory(&self) -> u64 {
        self.queues.iter().map(xdp::XdpQueue::memory).sum()
    }

    fn held(&self) -> u64 {
        self.queues.iter().map(xdp::XdpQueue::held).sum()
    }
}

impl Bunch for xdp::Burst {
    fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        Self::frames(self)
    }
}

impl Holder for xdp::Burst {
    fn bytes_of(&self, span: &Span) -> Option<&[u8]> {
        Self::bytes_of(self, span)
    }
}
