//! Who receives pages: a receiver of ours, or a socket, whose kernel joins them.
//!
//! Fragments have no flow control, and a sender that overruns its receiver measures
//! nothing but loss. So it keeps a window: the receiver counts pages in a word that
//! both threads see. It costs next to nothing, and is the same for all candidates.

use std::io;
use std::net::UdpSocket;
use std::ops::Sub;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use landfall::defrag::{Packet, Receiver, ReceiverBuilder, Wait};
use landfall_testbed::VethPair;
use landfall_testbed::rivals::set_receive_buffer;
use socket2::Socket;

use super::super::side::{OtherSideEnded, RunState};
use super::source::{HEADERS, address};
use super::{Join, Work};

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Page,
    /// Not a page of this transfer.
    Other,
    Nothing,
}

/// What a receiver counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinkCounts {
    /// Packets that were joined where they had landed, or lent so.
    pub(super) in_place: u64,
    /// Packets that were joined by copies.
    pub(super) copied: u64,
    /// Bytes that were copied in user space.
    pub(super) bytes_copied: u64,
}

impl Sub for SinkCounts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            in_place: self.in_place - earlier.in_place,
            copied: self.copied - earlier.copied,
            bytes_copied: self.bytes_copied - earlier.bytes_copied,
        }
    }
}

/// Takes pages out.
pub(super) enum Sink {
    LandfallSink(Box<LandfallSink>),
    Socket { socket: UdpSocket, memory: Vec<u8>, page: usize, at: usize },
}

/// A receiver, and the packet that its user reads.
pub(super) struct LandfallSink {
    receiver: Receiver,
    last: Option<Packet>,
    /// How long a packet with a page is.
    len: usize,
}

/// The kernel is given so much memory for datagrams that nobody has taken out yet.
const SOCKET_BUFFER: usize = 8 << 20;
/// Pages that a socket receives into in turn: as many as a receiver of ours has in a
/// burst.
const SOCKET_PAGES: usize = 32;

/// A receiver for this work, as it will be opened.
pub(super) fn builder(work: &Work, join: Join, pair: &VethPair) -> ReceiverBuilder {
    let Join { technique, delivery, prediction, wanted } = join;
    // A page that is longer than the wire is in whole memory pages.
    let page = work.page.next_multiple_of(4096);
    Receiver::builder(pair.b.name.as_str())
        .technique(technique)
        .delivery(delivery)
        .prediction(prediction)
        .wanted(wanted)
        .pages(if page > 8192 { 512 } else { 1024 }, page)
        .wait(Wait::Block)
        .answers(false)
}

impl Sink {
    /// In the namespace and on the thread of the receiver.
    pub(super) fn open(work: &Work, pair: &VethPair, look_every: Duration) -> Result<Self> {
        let page = work.page as usize;
        let Some(join) = work.join else {
            let socket = UdpSocket::bind(address(&pair.b))?;
            let socket = Socket::from(socket);
            set_receive_buffer(&socket, SOCKET_BUFFER)?;
            socket.set_read_timeout(Some(look_every))?;
            let memory = vec![0; SOCKET_PAGES * page];
            return Ok(Self::Socket { socket: socket.into(), memory, page, at: 0 });
        };
        let receiver = builder(work, join, pair).open()?;
        Ok(Self::LandfallSink(Box::new(LandfallSink { receiver, last: None, len: HEADERS + page })))
    }

    /// Waits for the next packet.
    #[inline]
    pub(super) fn next(&mut self, look_every: Duration) -> Result<Arrival> {
        match self {
            Self::LandfallSink(ours) => {
                let LandfallSink { receiver, last, len } = &mut **ours;
                // Read, and given back.
                *last = None;
                let Some(packet) = receiver.receive(look_every)? else {
                    return Ok(Arrival::Nothing);
                };
                if packet.len() != *len {
                    return Ok(Arrival::Other);
                }
                *last = Some(packet);
                Ok(Arrival::Page)
            }
            Self::Socket { socket, memory, page, at } => {
                *at = (*at + *page) % memory.len();
                match socket.recv(&mut memory[*at..*at + *page]) {
                    Ok(got) if got == *page => Ok(Arrival::Page),
                    Ok(_) => Ok(Arrival::Other),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Arrival::Nothing),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        Ok(Arrival::Nothing)
                    }
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// A copy of the page that came last.
    pub(super) fn last(&self) -> Vec<u8> {
        match self {
            Self::LandfallSink(ours) => ours
                .last
                .as_ref()
                .map_or_else(Vec::new, |packet| packet.to_vec().split_off(HEADERS)),
            Self::Socket { memory, page, at, .. } => memory[*at..*at + *page].to_vec(),
        }
    }

    pub(super) fn told(&mut self) -> Result<SinkCounts> {
        let Self::LandfallSink(ours) = self else { return Ok(SinkCounts::default()) };
        let stats = ours.receiver.stats()?;
        Ok(SinkCounts {
            in_place: stats.joined.speculated + stats.joined.lent,
            copied: stats.joined.conventional,
            bytes_copied: stats.bytes_copied(),
        })
    }
}

/// Nothing came for so long: what is missing was lost.
const QUIET: Duration = Duration::from_millis(100);
/// How often the sender looks whether the receiver has seen a new phase.
const GLANCE: Duration = Duration::from_micros(50);

/// What both threads are doing. Nothing is under way when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The path is tried, and learned by who learns.
    WarmUp = 0,
    /// What counts.
    Timed = 1,
    /// What is compared, byte by byte.
    Closing = 2,
}

/// What both threads see.
#[derive(Debug, Default)]
pub(super) struct Flow {
    arrived: AtomicU64,
    sent: AtomicU64,
    phase: AtomicU8,
    seen: AtomicU8,
    has_compared: AtomicBool,
    sender: OnceLock<Thread>,
}

impl Flow {
    /// The receiver has this many pages in all. Wakes a sender that waits, once half of
    /// the window is free.
    #[inline]
    pub(super) fn note_arrived(&self, pages: u64, window: u64) {
        self.arrived.store(pages, Ordering::Release);
        // A sender that goes to sleep at this moment is woken by the next page, or
        // looks by itself.
        if self.sent.load(Ordering::Acquire).saturating_sub(pages) == window / 2
            || self.has_all(pages)
        {
            self.wake();
        }
    }

    /// Whether these are all that were sent so far.
    #[inline]
    pub(super) fn has_all(&self, pages: u64) -> bool {
        pages >= self.sent.load(Ordering::Acquire)
    }

    /// The receiver has compared a page with what was sent.
    pub(super) fn note_compared(&self) {
        self.has_compared.store(true, Ordering::Release);
    }

    fn wake(&self) {
        if let Some(sender) = self.sender.get() {
            sender.unpark();
        }
    }

    /// The phase that the receiver has to be in.
    #[inline]
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::WarmUp,
            1 => Phase::Timed,
            _ => Phase::Closing,
        }
    }

    /// The receiver is in this phase now.
    pub(super) fn saw(&self, phase: Phase) {
        self.seen.store(phase as u8, Ordering::Release);
    }
}

/// The sender's view of the flow.
#[derive(Debug)]
pub(super) struct Window<'a> {
    flow: &'a Flow,
    shared: &'a RunState,
    /// The most pages under way.
    most: u64,
    sent: u64,
    lost: u64,
    until: Instant,
}

impl<'a> Window<'a> {
    /// The window of the calling thread, which gives up when `limit` is over.
    pub(super) fn new(flow: &'a Flow, shared: &'a RunState, most: u64, limit: Duration) -> Self {
        // Only this thread sets it, once.
        let _ = flow.sender.set(thread::current());
        Self { flow, shared, most, sent: 0, lost: 0, until: Instant::now() + limit }
    }

    /// Pages that were sent.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Pages that were sent and never came.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits until this many more pages fit, and counts them as sent.
    pub(super) fn take(&mut self, pages: u64) -> Result<()> {
        self.wait(self.most.saturating_sub(pages))?;
        self.sent += pages;
        // Before they are sent: the receiver must never have more than this.
        self.flow.sent.store(self.sent, Ordering::Release);
        Ok(())
    }

    /// Waits until nothing is under way.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.wait(0)
    }

    /// Tells the receiver, and waits until it knows. Nothing is under way.
    pub(super) fn enter(&mut self, phase: Phase) -> Result<()> {
        self.drain()?;
        self.flow.phase.store(phase as u8, Ordering::Release);
        while self.flow.seen.load(Ordering::Acquire) != phase as u8 {
            self.check()?;
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Waits until a page was compared. A receiver that did not run for a while still has what
    /// was thought lost.
    pub(super) fn until_compared(&self) -> Result<()> {
        while !self.flow.has_compared.load(Ordering::Acquire) {
            self.check()?;
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Waits until no more than `most` pages are under way.
    fn wait(&mut self, most: u64) -> Result<()> {
        /// A wake-up that was missed costs so much.
        const NAP: Duration = Duration::from_millis(1);
        let mut arrived = self.flow.arrived.load(Ordering::Acquire);
        let mut since = None;
        while self.sent.saturating_sub(arrived + self.lost) > most {
            self.check()?;
            let now = Instant::now();
            if now.duration_since(*since.get_or_insert(now)) >= QUIET {
                self.lost = self.sent.saturating_sub(arrived);
                break;
            }
            thread::park_timeout(NAP);
            let before = arrived;
            arrived = self.flow.arrived.load(Ordering::Acquire);
            if arrived != before {
                since = None;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.shared.is_over() {
            return Err(OtherSideEnded.into());
        }
        if Instant::now() > self.until {
            let arrived = self.flow.arrived.load(Ordering::Acquire);
            bail!("no end: {arrived} of {} pages came", self.sent);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn what_never_comes_is_lost_and_the_window_opens_again() {
        let (flow, shared) = (Flow::default(), RunState::default());
        let mut window = Window::new(&flow, &shared, 4, LIMIT);
        window.take(4).unwrap();
        flow.note_arrived(1, 4);
        window.take(4).unwrap();
        assert_eq!((window.sent(), window.lost()), (8, 3));
        flow.note_arrived(5, 4);
        window.drain().unwrap();
        assert_eq!(window.lost(), 3, "the others came");
    }

    #[test]
    fn what_is_compared_late_is_waited_for() {
        let (flow, shared) = (Flow::default(), RunState::default());
        let mut window = Window::new(&flow, &shared, 4, LIMIT);
        window.take(4).unwrap();
        window.drain().unwrap();
        assert_eq!(window.lost(), 4, "it did not run");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(2 * QUIET);
                flow.note_compared();
            });
            window.until_compared().unwrap();
        });
        let (flow, shared) = (Flow::default(), RunState::default());
        let window = Window::new(&flow, &shared, 4, Duration::ZERO);
        assert!(window.until_compared().is_err(), "not for ever");
    }

    #[test]
    fn a_receiver_that_ended_is_not_waited_for() {
        let (flow, shared) = (Flow::default(), RunState::default());
        let mut window = Window::new(&flow, &shared, 4, LIMIT);
        drop(shared.end_when_dropped());
        window.take(4).unwrap();
        assert!(window.take(1).unwrap_err().is::<OtherSideEnded>());
        assert!(window.enter(Phase::Timed).unwrap_err().is::<OtherSideEnded>());
    }
}
