//! [`Sender`]: packets longer than the MTU, over an interface; what may become of frames on their
//! way, for tests and demonstrations.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_placement::{Duration, Instant, InternetSum, Span};
use landfall_transport::driver::Interest;
use landfall_transport::memory::{Memory, Pins, Regions};
use landfall_transport::packet::Interface;
use landfall_transport::scatter::{self, Cutting, MOST_OUTGOING, Socket};
use landfall_transport::{Clock, Counters, Wait};
use spec_defrag::Head;
use spec_defrag::cut::{Cutter, Piece};

use super::asking::Asking;
use super::datagram::Datagrams;
use super::error::Error;
use super::registered::{Part, Registered};
use super::sender_builder::SenderBuilder;
use super::technique::SenderStats;
use crate::runtime::{Source, drive_alone};

/// Who cuts datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CutBy {
    /// The kernel, as long as it does so.
    #[default]
    Auto,
    /// The sender: each fragment is a frame that it hands over.
    Sender,
    /// The kernel or the device (UDP fragmentation offload): one datagram passes
    /// through the layers where its fragments would have.
    Kernel,
}

/// A packet to be sent: an Ethernet frame, longer than the MTU or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Its first bytes: at least the Ethernet and IP headers, at most
    /// [`Head::MOST`]. Sums are in their places.
    pub head: &'a [u8],
    /// What follows.
    pub body: Part,
}

/// Cuts packets for the wire, and sends them, on the thread that calls it.
#[derive(Debug)]
pub struct Sender {
    pub(super) parts: Parts,
    table: u32,
    sums: Pins,
    pub(super) clock: Clock,
    /// Frames that were cut, and leave with the next call.
    line: Vec<Piece>,
    /// Datagrams for the kernel to cut.
    pub(super) whole: Vec<(Head, Span)>,
    pub(super) stats: SenderStats,
}

/// What a builder puts together.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) socket: Socket,
    pub(super) cutting: Option<Cutting>,
    pub(super) cut_by: CutBy,
    pub(super) cutter: Cutter,
    pub(super) mtu: u16,
    pub(super) regions: Regions,
    pub(super) fates: Fates,
    pub(super) asking: Option<Asking>,
    pub(super) patience: Duration,
}

impl Sender {
    /// A sender over this interface, to be described, and then opened.
    pub fn builder(interface: impl Into<Interface>) -> SenderBuilder {
        SenderBuilder::new(interface.into())
    }

    pub(super) fn new(parts: Parts) -> Self {
        static TABLES: AtomicU32 = AtomicU32::new(0);
        Self {
            sums: Pins::new(&parts.regions),
            table: TABLES.fetch_add(1, Ordering::Relaxed),
            clock: Clock::start(),
            line: Vec::with_capacity(2 * MOST_OUTGOING),
            whole: Vec::new(),
            stats: SenderStats::default(),
            parts,
        }
    }

    /// The station address of the interface.
    #[must_use]
    pub const fn station(&self) -> [u8; 6] {
        self.parts.socket.station()
    }

    /// The most bytes of IP in a frame.
    #[must_use]
    pub const fn mtu(&self) -> u16 {
        self.parts.mtu
    }

    /// Whether the kernel cuts datagrams, for now.
    #[must_use]
    pub const fn is_cut_by_kernel(&self) -> bool {
        self.parts.cutting.is_some()
    }

    /// Registers memory that packets are sent from.
    ///
    /// # Errors
    /// As much is registered as may be.
    pub fn register(&self, memory: Memory) -> Result<Registered, Error> {
        Registered::new(&self.parts.regions, self.table, memory)
    }

    /// Sends packets, in their order, each cut where it is longer than the MTU. When
    /// this returns they are in the kernel's hands, and their memory may be changed.
    ///
    /// It waits for room in the kernel, and as long as admission control has it wait.
    ///
    /// # Errors
    /// One packet cannot be sent: those before it were, those behind it were not.
    /// [`Error::Stuck`], [`Error::Broken`]: some were lost.
    pub fn send(&mut self, packets: &[Outgoing<'_>]) -> Result<(), Error> {
        let result = packets.iter().try_for_each(|packet| self.line_up(packet));
        result.and(self.flush_all())
    }

    /// Sends datagrams: their payloads, in order.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_datagrams(
        &mut self,
        datagrams: &mut Datagrams,
        payloads: &[Part],
    ) -> Result<(), Error> {
        let result = payloads.iter().try_for_each(|part| {
            self.check(part)?;
            if self.parts.cutting.is_some() {
                return self.line_up_whole(datagrams, part);
            }
            let head = self.head_of(datagrams, part)?;
            self.line_up(&Outgoing { head: &head, body: *part })
        });
        self.sums.release();
        result.and(self.flush_all())
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        let (own, kernel) =
            (self.parts.socket.counters(), self.parts.cutting.as_ref().map(Cutting::counters));
        let of = |count: fn(&Counters) -> u64| count(own) + kernel.map_or(0, count);
        SenderStats {
            frames: own.units_sent,
            failed: of(|counters| counters.send_failed),
            calls: of(|counters| counters.send_calls),
            blocked: of(|counters| counters.send_blocked),
            ..self.stats
        }
    }

    /// Tells its memory from that of other senders.
    pub(super) const fn table(&self) -> u32 {
        self.table
    }

    fn head_of(&mut self, datagrams: &mut Datagrams, part: &Part) -> Result<Head, Error> {
        let sum = match datagrams.needs_sum() {
            true => self.sums.sum(&[part.span])?,
            false => InternetSum::new(),
        };
        datagrams.next(part.len(), sum)
    }

    fn check(&self, part: &Part) -> Result<(), Error> {
        if part.table == self.table || part.is_empty() { Ok(()) } else { Err(Error::ForeignMemory) }
    }

    /// Cuts a packet; its frames leave when there are as many as one call takes.
    pub(super) fn line_up(&mut self, packet: &Outgoing<'_>) -> Result<(), Error> {
        self.check(&packet.body)?;
        let len = packet.head.len() as u64 + u64::from(packet.body.len());
        self.admit(packet.head, len)?;
        self.line_up_admitted(packet)
    }

    pub(super) fn line_up_admitted(&mut self, packet: &Outgoing<'_>) -> Result<(), Error> {
        let before = self.line.len();
        for piece in self.parts.cutter.cut(packet.head, packet.body.span, self.parts.mtu)? {
            self.parts.fates.pass(piece, &mut self.line);
        }
        self.stats.packets += 1;
        let count = self.line.len() - before;
        if self.line.len() + count > MOST_OUTGOING { self.flush_line() } else { Ok(()) }
    }

    /// Hands over what is in line.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.flush_whole()?;
        self.flush_line()
    }

    /// The same, with what is held back: nothing more comes for now.
    pub(super) fn flush_all(&mut self) -> Result<(), Error> {
        self.parts.fates.flush(&mut self.line);
        self.flush()
    }

    pub(super) fn flush_line(&mut self) -> Result<(), Error> {
        let (line, socket) = (&self.line[..], &mut self.parts.socket);
        let mut leaving = Handover::new(FramesLeaving { line, socket }, self.parts.patience);
        let result = drive_alone(&mut leaving, self.clock, Wait::Block);
        self.line.clear();
        result
    }
}

/// What hands over what was lined up, some with each call.
pub(super) trait HandOver {
    /// Hands over some. Returns how many, and whether none is left.
    fn hand_over(&mut self, now: Instant) -> Result<(usize, bool), Error>;
    /// What tells of room for more, and when there is some whatever it tells.
    fn room(&self) -> (Interest, Option<Instant>);
}

/// Hands over, and waits for room in between: on the calling thread, until nothing is left or
/// nothing moved for too long.
pub(super) struct Handover<H> {
    handing: H,
    patience: Duration,
    /// Since when nothing moved.
    since: Option<Instant>,
    /// The last look.
    looked: Instant,
}

impl<H> Handover<H> {
    pub(super) const fn new(handing: H, patience: Duration) -> Self {
        Self { handing, patience, since: None, looked: Instant::ZERO }
    }
}

impl<H: HandOver> Source for Handover<H> {
    type Output = Result<(), Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        self.looked = now;
        match self.handing.hand_over(now) {
            Err(error) => return ControlFlow::Break(Err(error)),
            Ok((_, true)) => return ControlFlow::Break(Ok(())),
            Ok((0, _)) => {}
            Ok(_) => self.since = None,
        }
        if now.since(*self.since.get_or_insert(now)) > self.patience {
            return ControlFlow::Break(Err(Error::Stuck(self.patience)));
        }
        // There was no room for the rest.
        ControlFlow::Continue(false)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        let (interest, _) = self.handing.room();
        into.extend(interest.writable.then_some(Interest { readable: false, ..interest }));
    }

    fn next_wake(&self) -> Option<Instant> {
        /// Anyone who makes room does not always say so.
        const LOOK_AGAIN: Duration = Duration::from_millis(1);
        let (_, again) = self.handing.room();
        again.into_iter().chain([self.looked + LOOK_AGAIN]).min()
    }
}

/// Frames that were cut here.
struct FramesLeaving<'a> {
    line: &'a [Piece],
    socket: &'a mut Socket,
}

impl HandOver for FramesLeaving<'_> {
    fn hand_over(&mut self, now: Instant) -> Result<(usize, bool), Error> {
        if self.line.is_empty() {
            return Ok((0, true));
        }
        let frames: Vec<_> = self
            .line
            .iter()
            .map(|piece| scatter::Outgoing { head: &piece.head, payload: piece.payload })
            .collect();
        let sent = self.socket.send(now, &frames)?;
        self.line = &self.line[sent..];
        Ok((sent, self.line.is_empty()))
    }

    fn room(&self) -> (Interest, Option<Instant>) {
        (self.socket.interest(), self.socket.poll_timeout())
    }
}

/// What becomes of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves.
    Sent,
    /// It never leaves.
    Lost,
    /// It leaves twice.
    Twice,
    /// It leaves after this many others.
    Later(u16),
}

/// Decides about frames, and holds those that leave later.
#[derive(Default)]
pub(super) struct Fates {
    hook: Option<Box<Hook>>,
    held: VecDeque<(u16, Piece)>,
}

/// Is asked for each frame: its head, and how much follows.
pub(super) type Hook = dyn FnMut(&[u8], u32) -> Fate + Send;

impl Fates {
    pub(super) fn new(hook: Option<Box<Hook>>) -> Self {
        Self { hook, held: VecDeque::new() }
    }

    /// Puts a frame in line, as its fate has it.
    pub(super) fn pass(&mut self, piece: Piece, line: &mut Vec<Piece>) {
        let Some(hook) = &mut self.hook else { return line.push(piece) };
        match hook(&piece.head, piece.payload.len) {
            Fate::Sent => self.push(piece, line),
            Fate::Lost => {}
            Fate::Twice => {
                self.push(piece, line);
                self.push(piece, line);
            }
            Fate::Later(0) => self.push(piece, line),
            Fate::Later(after) => self.held.push_back((after, piece)),
        }
    }

    /// A frame passes those that are held.
    fn push(&mut self, piece: Piece, line: &mut Vec<Piece>) {
        line.push(piece);
        for (after, _) in &mut self.held {
            *after -= 1;
        }
        while let Some(at) = self.held.iter().position(|(after, _)| *after == 0) {
            line.extend(self.held.remove(at).map(|(_, piece)| piece));
        }
    }

    /// Nothing more comes: what is held leaves.
    pub(super) fn flush(&mut self, line: &mut Vec<Piece>) {
        line.extend(self.held.drain(..).map(|(_, piece)| piece));
    }
}

impl fmt::Debug for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fates").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
