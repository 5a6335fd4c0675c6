//! Frames that lie in memory which is shared with the kernel: in blocks of a ring, or
//! in the rings of AF_XDP.

use std::io;
use std::sync::Arc;

use landfall_placement::{Area, Duration, Instant, Span};
use landfall_transport::driver::Interest;
use landfall_transport::memory::{LendRefusal, Regions};
use landfall_transport::ring::{Block, Frame, Ring};
use landfall_transport::scatter::Posted;
use landfall_transport::xdp;
use spec_defrag::{Head, MappedFrame, Receiver as Engine};

use super::super::delivery::MemoryView;
use super::super::packet::Holder;
use super::{KernelCounts, Moved, ReceivePath};

/// Where bunches of frames come from.
pub(in super::super) trait Source: Send + std::fmt::Debug {
    type Bunch: Bunch;

    /// The next bunch, if one is there.
    fn next(&mut self) -> io::Result<Option<Self::Bunch>>;
    fn interest(&self) -> Option<Interest>;
    fn look_again(&self) -> Option<Duration>;
    fn heard(&mut self) -> io::Result<KernelCounts>;
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
    /// The frames of the last turn, as long as packets that lie there may be
    /// handed out.
    bunch: Option<Arc<S::Bunch>>,
    /// This many of them the engine has had.
    taken: usize,
    /// There were more of them than pages.
    has_more: bool,
}

impl<S: Source> MappedPath<S> {
    pub(in super::super) fn new(source: S, regions: &Regions) -> Result<Self, LendRefusal> {
        Ok(Self {
            source,
            posted: Posted::new(regions, 1)?,
            bunch: None,
            taken: 0,
            has_more: false,
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
        let bunch = match self.bunch.take().filter(|_| self.has_more) {
            Some(bunch) => bunch,
            None => match self.source.next()? {
                None => return Ok(Moved::Nothing),
                Some(bunch) => {
                    self.taken = 0;
                    Arc::new(bunch)
                }
            },
        };
        let head = |bytes: &[u8]| bytes.len().min(Head::MOST);
        let frames: Vec<_> = bunch
            .frames()
            .skip(self.taken)
            .take(room)
            .map(|frame| MappedFrame { at: frame.span, head: &frame.bytes[..head(frame.bytes)] })
            .collect();
        engine.take(now, &frames, &mut MemoryView(self.posted.memory()));
        self.posted.release();
        self.taken += frames.len();
        self.has_more = frames.len() == room;
        drop(frames);
        self.bunch = Some(bunch);
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

    fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.bunch.as_ref().map(|bunch| Arc::clone(bunch) as Arc<dyn Holder>)
    }

    fn interest(&self) -> Option<Interest> {
        self.source.interest()
    }

    fn look_again(&self) -> Option<Duration> {
        self.source.look_again()
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        self.source.heard()
    }
}

/// A ring of blocks.
#[derive(Debug)]
pub(in super::super) struct Blocks {
    ring: Ring,
    retire: Duration,
    taken: u64,
}

impl Blocks {
    pub(in super::super) const fn new(ring: Ring, retire: Duration) -> Self {
        Self { ring, retire, taken: 0 }
    }
}

impl Source for Blocks {
    type Bunch = Block;

    fn next(&mut self) -> io::Result<Option<Block>> {
        let block = self.ring.next_block();
        self.taken += u64::from(block.is_some());
        Ok(block)
    }

    fn interest(&self) -> Option<Interest> {
        self.ring.is_readiness_telling().then(|| self.ring.interest())
    }

    fn look_again(&self) -> Option<Duration> {
        (!self.ring.is_readiness_telling()).then_some(self.retire)
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        let told = self.ring.statistics()?;
        let frames = told.frames.saturating_sub(told.drops);
        Ok(KernelCounts { frames, dropped: told.drops, calls: self.taken })
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

/// The rings of AF_XDP.
#[derive(Debug)]
pub(in super::super) struct XdpRings {
    receive_path: xdp::XdpQueue,
    heard: KernelCounts,
}

impl XdpRings {
    pub(in super::super) fn new(receive_path: xdp::XdpQueue) -> Self {
        Self { receive_path, heard: KernelCounts::default() }
    }
}

impl Source for XdpRings {
    type Bunch = xdp::Burst;

    fn next(&mut self) -> io::Result<Option<xdp::Burst>> {
        let burst = self.receive_path.receive()?;
        if let Some(burst) = &burst {
            self.heard.calls += 1;
            self.heard.frames += burst.frames().len() as u64;
        }
        Ok(burst)
    }

    fn interest(&self) -> Option<Interest> {
        Some(self.receive_path.interest())
    }

    fn look_again(&self) -> Option<Duration> {
        None
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        Ok(self.heard)
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
