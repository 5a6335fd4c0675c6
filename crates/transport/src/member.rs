//! Several drivers of one station, each for an engine of its own: [`members`] makes them of
//! drivers that are open, and [`MemberDriver`] is each of them.
//!
//! Whatever spreads the frames of an interface (the kernel, a device), each frame comes to the
//! engine whose flow it is ([`flow`]): a member that gets one of another hands it over, whole, and
//! what is news to all it hands to all. There is no lock: each member has a queue of its own that
//! the others put frames into. Where a program of ours spreads them
//! ([`PacketDriver::open_by_flow`], [`TapDriver::open_group`]) hardly any has to be handed over;
//! where a device does it by a key of its own ([`XdpDriver::open_group`]), most of what comes for
//! connections that were opened here.
//!
//! [`PacketDriver::open_by_flow`]: crate::packet::PacketDriver::open_by_flow
//! [`TapDriver::open_group`]: crate::tap::TapDriver::open_group
//! [`XdpDriver::open_group`]: crate::xdp::XdpDriver::open_group

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use landfall_inet::flow::{self, Recipient, Share};
use landfall_placement::{
    Ecn, Engine, Instant, PathLimits, Peer, Placement, Refusal, Spans, Unit, delegate_engine,
};

use crate::capability::Capabilities;
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress};
use crate::exchange::{Arrival, Inbox, Loose, Turn};
use crate::fault::FaultCounts;
use crate::memory::{Pins, Regions};
use crate::wait::Bell;

/// This many frames wait for a member at most; what comes then is lost, as where a socket is full.
const MOST_WAITING: usize = 512;
/// This many of them are taken in one turn at most.
const FRAMES_PER_TURN: u32 = 64;

/// A frame that came to another member.
#[derive(Debug)]
struct Frame {
    bytes: Arc<[u8]>,
    from: Peer,
    ecn: Ecn,
    coalesced: Option<u16>,
    verified: bool,
}

/// Where a member gets what came to others.
#[derive(Debug)]
struct Mailbox {
    sender: SyncSender<Frame>,
    /// How many wait: a channel does not say.
    waiting: AtomicUsize,
    bell: Bell,
}

impl Mailbox {
    /// Returns whether there was room.
    fn post(&self, frame: Frame) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let is_posted = self.sender.try_send(frame).is_ok();
        if is_posted {
            self.bell.ring();
        } else {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        is_posted
    }
}

/// A driver whose station several engines share.
#[derive(Debug)]
pub struct MemberDriver<D> {
    inner: D,
    share: Share,
    station: [u8; 6],
    inbox: Inbox,
    pins: Pins,
    came: Receiver<Frame>,
    mailboxes: Arc<[Mailbox]>,
    /// The bell may have been rung: its descriptor has to be read.
    is_armed: AtomicBool,
}

/// Makes members of drivers that are open for the same station, in whole frames. The first has the
/// first [`Share`], and so on.
///
/// # Errors
/// The process has no descriptor left; there are none, or more than 65,535.
pub fn members<D: Driver>(
    drivers: Vec<D>,
    station: [u8; 6],
    regions: &Regions,
) -> io::Result<Vec<MemberDriver<D>>> {
    let count = u16::try_from(drivers.len()).map_err(io::Error::other)?;
    let mailbox = || {
        let (sender, came) = sync_channel(MOST_WAITING);
        Ok((Mailbox { sender, waiting: AtomicUsize::new(0), bell: Bell::new()? }, came))
    };
    let made: io::Result<Vec<_>> = (0..count).map(|_| mailbox()).collect();
    let (mailboxes, came): (Vec<_>, Vec<_>) = made?.into_iter().unzip();
    let mailboxes: Arc<[Mailbox]> = mailboxes.into();
    let member = |(index, (inner, came)): (u16, (D, Receiver<Frame>))| {
        let share =
            Share::new(index, count).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(MemberDriver {
            inbox: Inbox::new(inner.path(), 1, 0),
            pins: Pins::new(regions),
            inner,
            share,
            station,
            came,
            mailboxes: Arc::clone(&mailboxes),
            is_armed: AtomicBool::new(false),
        })
    };
    (0..count).zip(drivers.into_iter().zip(came)).map(member).collect()
}

impl<D: Driver> MemberDriver<D> {
    /// The share of the flows that comes to this one's engine.
    #[must_use]
    pub const fn share(&self) -> Share {
        self.share
    }

    fn mailbox(&self) -> &Mailbox {
        &self.mailboxes[usize::from(self.share.index())]
    }

    /// Takes in what came to others. Returns how many frames.
    fn take_in<E: Engine>(&mut self, engine: &mut E, now: Instant) -> u32 {
        let mut taken = 0;
        while taken < FRAMES_PER_TURN {
            let Ok(frame) = self.came.try_recv() else { break };
            self.mailbox().waiting.fetch_sub(1, Ordering::SeqCst);
            let arrival = Arrival {
                len: frame.bytes.len(),
                unit_len: frame.bytes.len().max(1),
                from: frame.from,
                ecn: frame.ecn,
                coalesced: frame.coalesced,
                verified: frame.verified,
            };
            let (pins, counters) = (&mut self.pins, self.inner.counters_mut());
            let mut turn = Turn { engine, now, pins, counters };
            taken += self.inbox.settle_loose(&mut turn, &arrival, &Loose::from(&frame.bytes[..]));
        }
        if taken > 0 {
            self.pins.release();
            self.inner.counters_mut().taken_in += u64::from(taken);
        }
        taken
    }
}

impl<D: Driver> Driver for MemberDriver<D> {
    fn state(&self) -> &DriverState {
        self.inner.state()
    }

    fn state_mut(&mut self) -> &mut DriverState {
        self.inner.state_mut()
    }

    fn limits(&self) -> PathLimits {
        self.inner.limits()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn faults(&self) -> Option<FaultCounts> {
        self.inner.faults()
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            self.mailbox().bell.silence();
        }
        let taken = self.take_in(engine, now);
        let mut layer = Layer {
            engine,
            share: self.share,
            station: self.station,
            mailboxes: &self.mailboxes,
            handed_over: 0,
            not_handed_over: 0,
        };
        let progress = self.inner.turn(&mut layer, now);
        let Layer { handed_over, not_handed_over, .. } = layer;
        let counters = self.inner.counters_mut();
        counters.handed_over += handed_over;
        counters.not_handed_over += not_handed_over;
        let progress = progress?;
        Ok(Progress { received: progress.received + taken, ..progress })
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }

    fn interests(&self) -> Interests {
        let mailbox = self.mailbox();
        // From here on the others ring. What they posted before, they did silently.
        mailbox.bell.arm();
        self.is_armed.store(true, Ordering::Relaxed);
        if mailbox.waiting.load(Ordering::SeqCst) > 0 {
            mailbox.bell.ring();
        }
        let mut interests = self.inner.interests();
        // Drivers of frames wait for one descriptor.
        let _ = interests.try_push(mailbox.bell.interest());
        interests
    }

    fn descriptors(&self) -> Descriptors<'_> {
        let mut descriptors = self.inner.descriptors();
        let _ = descriptors.try_push(std::os::fd::AsFd::as_fd(&self.mailbox().bell));
        descriptors
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
}

/// The engine as the driver inside sees it: it is asked for places of what is its own.
struct Layer<'a, E> {
    engine: &'a mut E,
    share: Share,
    station: [u8; 6],
    mailboxes: &'a [Mailbox],
    handed_over: u64,
    not_handed_over: u64,
}

impl<E: Engine> Layer<'_, E> {
    /// Is it for this station, or for a group?
    fn is_for_us(&self, head: &[u8]) -> bool {
        head.first_chunk() == Some(&self.station) || head.first().is_some_and(|byte| byte & 1 == 1)
    }

    /// Gives a frame, whose bytes are all at hand, to a member or to all others.
    fn hand_over(&mut self, unit: &Unit<'_>, to: Recipient) {
        let bytes: Arc<[u8]> = unit.head.into();
        for (index, mailbox) in (0..).zip(self.mailboxes) {
            let is_meant = match to {
                Recipient::Member(member) => index == member,
                Recipient::Every => index != self.share.index(),
            };
            if is_meant {
                let Unit { from, ecn, segment: coalesced, verified, .. } = *unit;
                let frame = Frame { bytes: Arc::clone(&bytes), from, ecn, coalesced, verified };
                match mailbox.post(frame) {
                    true => self.handed_over += 1,
                    false => self.not_handed_over += 1,
                }
            }
        }
    }
}

impl<E: Engine> Engine for Layer<'_, E> {
    type Event = E::Event;

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if !self.is_for_us(unit.head) {
            return self.engine.place(now, unit, into);
        }
        let known = flow::recipient(unit.head, self.share.count());
        let (at_hand, whole) = (unit.head.len() as u32, unit.len);
        if known.is_none() && at_hand < whole.min(flow::LONGEST_HEAD as u32) {
            return Ok(Placement::NeedHead(whole.min(flow::LONGEST_HEAD as u32) as u16));
        }
        let to = known.unwrap_or(Recipient::FIRST);
        if to == Recipient::Member(self.share.index()) {
            return self.engine.place(now, unit, into);
        }
        if at_hand < whole {
            return u16::try_from(whole).map(Placement::NeedHead).map_err(|_| Refusal::Unsupported);
        }
        self.hand_over(unit, to);
        match to {
            Recipient::Member(_) => Ok(Placement::Consumed),
            Recipient::Every => self.engine.place(now, unit, into),
        }
    }

    delegate_engine! { |this| this.engine =>
        handle_path, awaits_first_answer, handle_unreachable, guess, place_opened, handle_placed,
        poll_deposit, handle_timeout, poll_timeout, poll_transmit, handle_sent, poll_event,
        refusals, seals, open, seal, places_unverified, name_in, handle_false_name,
    }
}
