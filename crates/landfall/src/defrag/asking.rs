//! The sender's side of admission: asks before it sends much, and keeps to what it got; and
//! what goes on beside the data: control frames of admission, and answers to whom pieces
//! were lost.

use std::io;
use std::ops::ControlFlow;

use landfall_placement::{Duration, Instant, Span};
use landfall_seal::{Fingerprint, SealStats};
use landfall_transport::Wait;
use landfall_transport::driver::Interest;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Interface};
use landfall_transport::scatter::{Config, Descriptor, HEAD_SLOT, Outgoing, Posted, Socket};
use spec_defrag::admission::envelope::ENVELOPE_MAX;
use spec_defrag::admission::frame::ETHERTYPE;
use spec_defrag::admission::{Answer, Mode, Requester, RequesterEvent, TransferId};

use super::channel::Channel;
use super::error::{Error, NoKeys, OpenError};
use super::sender::Sender;
use crate::runtime::{Source, drive_alone};

/// A requester and its way to the receiver.
#[derive(Debug)]
pub(super) struct Asking {
    control: Control,
    asked: AskedReceiver,
    /// What is sent gives way to others, while it is slow.
    gives_way: bool,
}

impl Asking {
    pub(super) fn new(control: Control, asked: AskedReceiver) -> Self {
        Self { control, asked, gives_way: false }
    }

    /// Whether a frame is for the receiver that is asked.
    pub(super) fn concerns(&self, head: &[u8]) -> bool {
        head.starts_with(&self.asked.receiver)
    }

    /// Hears what came, and says what is to be said.
    fn tend(&mut self, now: Instant) -> Result<(), Error> {
        let Self { control, asked, .. } = self;
        control.receive(|frame| asked.handle_frame(now, frame))?;
        asked.tend(now, control)?;
        Ok(())
    }
}

/// A receiver that is asked: the requester, and what carries its messages.
#[derive(Debug)]
pub(super) struct AskedReceiver {
    channel: Channel,
    pub(super) requester: Requester,
    pub(super) receiver: [u8; 6],
}

impl AskedReceiver {
    pub(super) fn new(channel: Channel, requester: Requester, receiver: [u8; 6]) -> Self {
        Self { channel, requester, receiver }
    }

    /// A control frame came.
    pub(super) fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        let Self { channel, requester, .. } = self;
        channel.handle_frame(now, frame, |frame| {
            // What it refuses it counts.
            let _ = requester.handle_frame(now, frame);
        });
    }

    /// Says what is to be said.
    pub(super) fn tend(&mut self, now: Instant, control: &mut Control) -> io::Result<()> {
        let Self { channel, requester, .. } = self;
        if requester.poll_timeout().is_some_and(|at| at <= now) {
            requester.handle_timeout(now);
        }
        channel.handle_timeout(now);
        let is_due = requester.poll_timeout().is_some_and(|at| at <= now);
        if !is_due || channel.may_ask(now) {
            while let Some(frame) = requester.poll_transmit(now) {
                channel.send(now, frame);
            }
        }
        while let Some(frame) = channel.poll_frame(now) {
            control.send(now, &frame)?;
        }
        Ok(())
    }

    /// When there is something to say.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        // A request that waits for a handshake is said once that is over.
        let waits = self.channel.is_shaking(now);
        let requester = self.requester.poll_timeout().filter(|_| !waits);
        [requester, self.channel.poll_timeout()].into_iter().flatten().min()
    }
}

/// Admission: `begin` or `ask`, send, `end`. A sender that does neither asks by itself
/// when it has sent much of late.
impl Sender {
    /// A transfer of this many bytes begins: if it is long enough, the receiver is asked.
    ///
    /// # Errors
    /// [`Error::NoAdmission`], [`Error::TooMany`].
    pub fn begin(&mut self, bytes: u64) -> Result<TransferId, Error> {
        self.with_requester(|requester, now| requester.begin(now, bytes))
    }

    /// A transfer of any length begins that is to be fast: the receiver is asked.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn ask(&mut self) -> Result<TransferId, Error> {
        self.with_requester(Requester::ask)
    }

    /// A transfer is over. When none is left that asked, the lease is given back.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(&mut self, transfer: TransferId) -> Result<(), Error> {
        self.with_requester(|requester, now| {
            requester.end(now, transfer);
            Ok(())
        })
    }

    /// What the receiver answered to a transfer that asked: waits for it for so long
    /// at most.
    ///
    /// # Errors
    /// [`Error::NoAdmission`], [`Error::Broken`].
    pub fn answer(&mut self, transfer: TransferId, at_most: Duration) -> Result<Answer, Error> {
        let until = self.clock.now() + at_most;
        let (clock, mut waiting) = (self.clock, Answering { sender: self, transfer, until });
        drive_alone(&mut waiting, clock, Wait::Block)
    }

    /// How it is sent at this moment; nothing if nobody is asked.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        let asking = self.parts.asking.as_ref()?;
        Some(asking.asked.requester.mode(self.clock.now()))
    }

    /// Why there are no keys with the receiver that is asked, so that it grants nothing: it is not
    /// who it should be. `None` where keys are not missing, nobody is asked or nobody answers.
    #[must_use]
    pub fn no_keys(&self) -> Option<NoKeys> {
        self.parts.asking.as_ref()?.asked.channel.no_keys()
    }

    /// What the other end knows this one by, for `only_peers` there. `None` in clear, with a
    /// pre-shared key, and where nobody is asked.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.parts.asking.as_ref()?.asked.channel.fingerprint()
    }

    /// What was sealed and opened of admission control. All zero where that is in clear.
    #[must_use]
    pub fn seal_stats(&self) -> SealStats {
        let asking = self.parts.asking.as_ref();
        asking.map_or_else(SealStats::default, |asking| asking.asked.channel.stats())
    }

    /// Hears and says what admission needs: for a sender that has nothing to send for
    /// a while but wants to keep its lease. Returns what changed.
    ///
    /// # Errors
    /// [`Error::NoAdmission`], [`Error::Broken`].
    pub fn tend(&mut self) -> Result<Option<RequesterEvent>, Error> {
        let now = self.clock.now();
        let asking = self.parts.asking.as_mut().ok_or(Error::NoAdmission)?;
        asking.tend(now)?;
        Ok(asking.asked.requester.poll_event())
    }

    fn with_requester<T>(
        &mut self,
        call: impl FnOnce(&mut Requester, Instant) -> Result<T, spec_defrag::admission::TooMany>,
    ) -> Result<T, Error> {
        let now = self.clock.now();
        let asking = self.parts.asking.as_mut().ok_or(Error::NoAdmission)?;
        let result = call(&mut asking.asked.requester, now)?;
        asking.tend(now)?;
        Ok(result)
    }

    /// Waits until a packet of this many bytes may be sent to whom the head names.
    pub(super) fn admit(&mut self, head: &[u8], len: u64) -> Result<(), Error> {
        if self.parts.asking.as_ref().is_none_or(|asking| !asking.concerns(head)) {
            return Ok(());
        }
        let (clock, mut waiting) = (self.clock, Admitting { sender: self, len });
        let is_slow = drive_alone(&mut waiting, clock, Wait::Block)?;
        self.give_way(is_slow)
    }

    /// What is sent slowly is sent with low priority as well, so that it disturbs less.
    fn give_way(&mut self, gives_way: bool) -> Result<(), Error> {
        let Some(asking) = self.parts.asking.as_mut() else { return Ok(()) };
        if std::mem::replace(&mut asking.gives_way, gives_way) != gives_way {
            // What is in line was admitted before.
            self.flush()?;
            self.parts.socket.give_way(gives_way)?;
        }
        Ok(())
    }

    /// When there is something to say, or to be looked at.
    fn next_wake(&self) -> Option<Instant> {
        /// Nobody is told when a sender may go on.
        const LONGEST: Duration = Duration::from_millis(10);
        let (now, asking) = (self.clock.now(), self.parts.asking.as_ref()?);
        let again = asking.asked.requester.allowance(now).again;
        let due = [again, asking.asked.poll_timeout(now)].into_iter().flatten();
        due.chain([now + LONGEST]).min()
    }

    /// What tells that there is something to hear.
    fn interest(&self) -> Option<Interest> {
        self.parts.asking.as_ref().map(|asking| asking.control.interest())
    }
}

/// A thread waits for the answer to a transfer.
struct Answering<'a> {
    sender: &'a mut Sender,
    transfer: TransferId,
    until: Instant,
}

impl Answering<'_> {
    fn look(&mut self, now: Instant) -> Result<Answer, Error> {
        let asking = self.sender.parts.asking.as_mut().ok_or(Error::NoAdmission)?;
        asking.tend(now)?;
        Ok(asking.asked.requester.answer(now, self.transfer))
    }
}

impl Source for Answering<'_> {
    type Output = Result<Answer, Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        match self.look(now) {
            Ok(Answer::Pending) if now < self.until => ControlFlow::Continue(false),
            looked => ControlFlow::Break(looked),
        }
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend(self.sender.interest());
    }

    fn next_wake(&self) -> Option<Instant> {
        self.sender.next_wake()
    }
}

/// A thread waits until a packet of this many bytes may be sent.
struct Admitting<'a> {
    sender: &'a mut Sender,
    len: u64,
}

impl Admitting<'_> {
    /// Whether it is sent slowly, once it may be sent.
    fn look(&mut self, now: Instant) -> Result<Option<bool>, Error> {
        let Some(asking) = self.sender.parts.asking.as_mut() else { return Ok(Some(false)) };
        asking.tend(now)?;
        let allowance = asking.asked.requester.allowance(now);
        if allowance.bytes > 0 {
            asking.asked.requester.handle_sent(now, self.len);
            return Ok(Some(allowance.mode == Mode::Slow));
        }
        self.sender.stats.throttled += 1;
        // What is in line was sent before.
        self.sender.flush()?;
        Ok(None)
    }
}

impl Source for Admitting<'_> {
    type Output = Result<bool, Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        match self.look(now).transpose() {
            Some(result) => ControlFlow::Break(result),
            None => ControlFlow::Continue(false),
        }
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend(self.sender.interest());
    }

    fn next_wake(&self) -> Option<Instant> {
        self.sender.next_wake()
    }
}

/// A socket for control frames, and for sending a frame now and then.
#[derive(Debug)]
pub(super) struct Control {
    socket: Socket,
    posted: Posted,
}

/// This many frames are looked at in a turn.
const BURST: u16 = 8;

const _: () = assert!(ENVELOPE_MAX <= HEAD_SLOT as usize);

impl Control {
    pub(super) fn open(interface: &Interface, regions: &Regions) -> Result<Self, OpenError> {
        let config = Config {
            socket_buffer: 256 << 10,
            ..Config::new(interface.clone(), Filter::ethertypes([ETHERTYPE]))
        };
        let socket = Socket::open(&config, regions)?;
        let posted = Posted::new(regions, BURST.into())?;
        Ok(Self { socket, posted })
    }

    pub(super) const fn station(&self) -> [u8; 6] {
        self.socket.station()
    }

    pub(super) fn interest(&self) -> Interest {
        Interest { writable: false, ..self.socket.interest() }
    }

    /// The frames that came, one after another. Returns how many.
    pub(super) fn receive(&mut self, mut heard: impl FnMut(&[u8])) -> io::Result<usize> {
        // A control frame fits in a head slot; of a longer frame the rest is padding.
        let one = Descriptor { head_len: ENVELOPE_MAX as u16, place: Span::default() };
        let list = (0..BURST).map(|_| one);
        self.posted.post(list).map_err(io::Error::other)?;
        let came = self.socket.receive(&mut self.posted)?;
        for slot in 0..came {
            heard(self.posted.head(slot as u16));
        }
        Ok(came)
    }

    /// Sends a frame, unless there is no room: then it is lost, as on a wire.
    pub(super) fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<()> {
        let frame = Outgoing { head: frame, payload: Span::default() };
        self.socket.send(now, &[frame]).map(drop)
    }
}
