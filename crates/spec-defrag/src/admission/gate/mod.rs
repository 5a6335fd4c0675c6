//! The receiver's side: a gate that lets few streams at a time be fast.

mod queue;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use landfall_placement::{Duration, Instant, Random, Refusal, Refusals, Seed, assumed};
use queue::{Call, Queue, Waiter};

use super::frame::{ControlFrame, FRAME_LEN, Lease, Mac, Message, Nonce, Priority, Ticket};
use super::{ConfigError, SHORTEST, address, number, time};

/// Frames that wait for [`Gate::poll_transmit`]. There is one for each frame that came
/// and one for each stream that became free: only who does not drain has more.
const MOST_FRAMES: usize = 256;

/// Events that wait for [`Gate::poll_event`]; older ones are forgotten.
const MOST_EVENTS: usize = 256;

/// What one sender was granted.
#[derive(Clone, Copy, Debug)]
struct Grant {
    source: Mac,
    nonce: Nonce,
    lease: Lease,
    /// The start of its turn.
    since: Instant,
    until: Instant,
    /// Whether it has shown that it got an answer.
    proven: bool,
}

/// Admits fast streams to one receiver.
///
/// ```
/// use landfall_placement::Instant;
/// use spec_defrag::admission::{Gate, GateConfig, Mode, Requester, RequesterConfig};
///
/// let (sender, receiver) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
/// let mut gate = Gate::new(GateConfig::new(receiver), [1; 32])?;
/// let mut requester = Requester::new(RequesterConfig::new(sender, receiver), [2; 32])?;
///
/// let now = Instant::from_millis(1);
/// requester.begin(now, 10_000_000)?;
/// assert_eq!(requester.mode(now), Mode::Slow); // It may send already.
/// let request = requester.poll_transmit(now).expect("it asks at once");
/// gate.handle_frame(now, &request)?;
/// let answer = gate.poll_transmit(now).expect("a request is answered");
/// requester.handle_frame(now, &answer)?;
/// assert!(matches!(requester.mode(now), Mode::Fast { .. }));
/// assert!(gate.is_fast(now, sender));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Gate {
    config: GateConfig,
    random: Random,
    /// Makes tickets.
    secret: [u8; 18],
    /// Nothing is granted before.
    opens: Instant,
    /// At most as many as there are streams.
    grants: Vec<Grant>,
    queue: Queue,
    frames: VecDeque<[u8; FRAME_LEN]>,
    events: VecDeque<GateEvent>,
    refusals: Refusals,
    unsent: u64,
    unreported: u64,
}

/// What a [`Gate`] dropped because a queue of its was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflows {
    /// Frames that were not sent.
    pub frames: u64,
    /// Events that were not reported.
    pub events: u64,
}

impl Gate {
    /// A gate that admits nobody yet.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: GateConfig, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = Random::new(seed);
        let fork = random.fork();
        Ok(Self {
            config,
            random,
            secret: core::array::from_fn(|n| fork[n]),
            opens: Instant::ZERO,
            grants: Vec::new(),
            queue: Queue::new(config.waiting.into()),
            frames: VecDeque::new(),
            events: VecDeque::new(),
            refusals: Refusals::new(),
            unsent: 0,
            unreported: 0,
        })
    }

    /// Grants nothing before that moment. For a receiver that was started again: what
    /// its predecessor granted has run out when the time of a lease has passed.
    #[must_use]
    pub fn closed_until(mut self, opens: Instant) -> Self {
        self.opens = opens;
        self
    }

    /// A control frame came.
    ///
    /// # Errors
    /// Why it was not accepted; it is counted, and nothing else changed. It may be
    /// answered all the same: a sender with a lease that is over should hear that.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) -> Result<(), Refusal> {
        self.handle_timeout(now);
        let accepted = ControlFrame::parse(frame).and_then(|frame| self.accept(now, &frame));
        self.invite_next(now);
        accepted.map_err(|refusal| self.refusals.count(refusal))
    }

    /// A moment of [`Gate::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(at) = self.grants.iter().position(|grant| grant.until <= now) {
            let grant = self.grants.swap_remove(at);
            self.report(GateEvent::Ended { source: grant.source, why: Ended::RanOut });
        }
        self.queue.expire(now);
        self.invite_next(now);
    }

    /// When to call [`Gate::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let grants = self.grants.iter().map(|grant| grant.until).min();
        let opening = (self.opens > Instant::ZERO).then_some(self.opens);
        [grants, opening, self.queue.poll_timeout()].into_iter().flatten().min()
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self, _now: Instant) -> Option<[u8; FRAME_LEN]> {
        self.frames.pop_front()
    }

    /// What has changed.
    pub fn poll_event(&mut self) -> Option<GateEvent> {
        self.events.pop_front()
    }

    /// Whether this sender has a lease that has not run out.
    #[must_use]
    pub fn is_fast(&self, now: Instant, source: Mac) -> bool {
        self.fast(now).any(|(fast, _)| fast == source)
    }

    /// Who has a lease, and up to when.
    pub fn fast(&self, now: Instant) -> impl Iterator<Item = (Mac, Instant)> + '_ {
        let valid = self.grants.iter().filter(move |grant| grant.until > now);
        valid.map(|grant| (grant.source, grant.until))
    }

    /// How many wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What was not accepted, by reason.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What was dropped because nobody had taken what came before it.
    #[must_use]
    pub fn overflows(&self) -> Overflows {
        Overflows { frames: self.unsent, events: self.unreported }
    }

    fn accept(&mut self, now: Instant, frame: &ControlFrame) -> Result<(), Refusal> {
        if frame.to != self.config.address || frame.from == self.config.address {
            return Err(Refusal::WrongAddress);
        }
        match frame.message {
            Message::FastReq { ticket } => self.handle_request(now, frame, ticket),
            Message::Refresh { lease } => self.handle_refresh(now, frame, lease),
            Message::Release { what } => self.handle_release(frame, what),
            Message::FastAck { .. } | Message::FastNAck { .. } => Err(Refusal::Unexpected),
        }
    }

    fn handle_request(
        &mut self,
        now: Instant,
        frame: &ControlFrame,
        shown: Option<Ticket>,
    ) -> Result<(), Refusal> {
        let (source, nonce) = (frame.from, frame.nonce);
        if let Some(at) = self.grants.iter().position(|grant| grant.source == source) {
            // The answer was lost. Or else a series ended without our hearing of it: it
            // has to run out, since a forged request must not end what it did not begin.
            if self.grants[at].nonce == nonce && self.renew(now, frame, at) {
                return Ok(());
            }
            let left = self.grants[at].until.since(now).min(self.config.ask_again);
            self.refuse(frame, None, None, left);
            return Ok(());
        }
        let ticket = self.ticket(source, nonce);
        let proven = shown == Some(ticket);
        if let Some(at) = self.queue.find(source) {
            if self.queue.get(at).is_some_and(|waiter| waiter.nonce != nonce) {
                // A series that was left, or a forged one: its place is lost soon.
                self.refuse(frame, Some(ticket), None, self.config.ask_again);
            } else {
                self.handle_repeated_request(now, frame, ticket, at);
            }
            return Ok(());
        }
        if self.open_streams(now) > 0 {
            self.grant(now, frame, proven);
        } else if proven {
            let until = now + self.config.patience();
            let serial = frame.serial;
            let waiter = Waiter { source, nonce, serial, ticket, until, call: Call::Waiting };
            let position = self.queue.push(waiter);
            self.refuse(frame, Some(ticket), position, self.config.ask_again);
        } else {
            // Places are for those who are where they say. It may show that at once.
            self.refuse(frame, Some(ticket), None, Duration::ZERO);
        }
        Ok(())
    }

    /// One that has a place asks again.
    fn handle_repeated_request(
        &mut self,
        now: Instant,
        frame: &ControlFrame,
        ticket: Ticket,
        at: usize,
    ) {
        let open = self.open_streams(now) > 0;
        let until = now + self.config.patience();
        let Some(waiter) = assumed(self.queue.get_mut(at), "its place was found just before")
        else {
            return;
        };
        waiter.until = until;
        waiter.serial = waiter.serial.max(frame.serial);
        let invited = matches!(waiter.call, Call::Invited(_)) && now >= self.opens;
        if waiter.call == Call::Missed {
            waiter.call = Call::Waiting;
        }
        if invited || open {
            self.queue.remove(at);
            self.grant(now, frame, true);
        } else {
            self.refuse(frame, Some(ticket), Some(at), self.config.ask_again);
        }
    }

    fn handle_refresh(
        &mut self,
        now: Instant,
        frame: &ControlFrame,
        lease: Lease,
    ) -> Result<(), Refusal> {
        let Some(at) = self.find_grant(frame, lease.0) else {
            self.refuse(frame, None, None, Duration::ZERO);
            return Err(Refusal::UnknownId);
        };
        self.grants[at].proven = true;
        if !self.renew(now, frame, at) {
            // It stays valid until it runs out: who has it may not hear this. It may
            // queue again at once, but not before those for whom there was no room.
            let full = self.queue.is_full();
            let wait = if full { self.config.ask_again } else { Duration::ZERO };
            self.refuse(frame, None, None, wait);
        }
        Ok(())
    }

    fn handle_release(&mut self, frame: &ControlFrame, what: NonZeroU64) -> Result<(), Refusal> {
        if let Some(at) = self.find_grant(frame, what) {
            self.grants.swap_remove(at);
            self.report(GateEvent::Ended { source: frame.from, why: Ended::Released });
            return Ok(());
        }
        let place = self.queue.find(frame.from).filter(|at| {
            self.queue
                .get(*at)
                .is_some_and(|waiter| waiter.nonce == frame.nonce && waiter.ticket.0 == what)
        });
        self.queue.remove(place.ok_or(Refusal::UnknownId)?);
        Ok(())
    }

    fn find_grant(&self, frame: &ControlFrame, what: NonZeroU64) -> Option<usize> {
        self.grants.iter().position(|grant| {
            grant.source == frame.from && grant.nonce == frame.nonce && grant.lease.0 == what
        })
    }

    /// How many streams are neither granted nor kept free for somebody.
    fn open_streams(&self, now: Instant) -> usize {
        if now < self.opens {
            return 0;
        }
        usize::from(self.config.streams).saturating_sub(self.grants.len() + self.queue.invited())
    }

    fn grant(&mut self, now: Instant, frame: &ControlFrame, proven: bool) {
        let time = if proven { self.config.lease } else { self.config.trial };
        let grant = Grant {
            source: frame.from,
            nonce: frame.nonce,
            lease: Lease::from_number(self.random.next_u64()),
            since: now,
            until: now + time,
            proven,
        };
        self.grants.push(grant);
        self.report(GateEvent::Granted { source: grant.source, until: grant.until });
        self.answer(frame, Message::FastAck { lease: grant.lease, time });
    }

    /// Makes a lease last longer, unless its turn is over and others wait. One on trial
    /// is only told again what is left of it: else who forges could go on for ever.
    fn renew(&mut self, now: Instant, frame: &ControlFrame, at: usize) -> bool {
        let grant = &mut self.grants[at];
        let mut time = self.config.lease;
        if !grant.proven {
            time = grant.until.since(now);
            if time < SHORTEST {
                return false;
            }
        } else if !self.queue.is_empty() {
            let left = (grant.since + self.config.turn).since(now);
            // What is left of a turn is not worth its frames when it is this short.
            if left < self.config.trial {
                return false;
            }
            time = time.min(left);
        }
        grant.until = grant.until.max(now + time);
        let lease = grant.lease;
        self.answer(frame, Message::FastAck { lease, time });
        true
    }

    /// Invites as many as there are open streams.
    fn invite_next(&mut self, now: Instant) {
        if now >= self.opens {
            self.opens = Instant::ZERO;
        }
        while self.open_streams(now) > 0
            && let Some(next) = self.queue.invite(now, self.config.reserve)
        {
            let wait = Duration::ZERO;
            let message = Message::FastNAck { ticket: Some(next.ticket), position: Some(0), wait };
            self.send(next.source, next.nonce, next.serial, message);
        }
    }

    fn refuse(
        &mut self,
        frame: &ControlFrame,
        ticket: Option<Ticket>,
        position: Option<usize>,
        wait: Duration,
    ) {
        let position = position.map(|position| position as u16);
        self.answer(frame, Message::FastNAck { ticket, position, wait });
    }

    fn answer(&mut self, frame: &ControlFrame, message: Message) {
        self.send(frame.from, frame.nonce, frame.serial, message);
    }

    fn send(&mut self, to: Mac, nonce: Nonce, serial: u32, message: Message) {
        let (from, priority) = (self.config.address, self.config.priority);
        if self.frames.len() >= MOST_FRAMES {
            self.unsent += 1;
            return;
        }
        let frame = ControlFrame { to, from, priority, nonce, serial, message };
        self.frames.push_back(frame.to_bytes());
    }

    fn report(&mut self, event: GateEvent) {
        landfall_placement::trace!(?event);
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
            self.unreported += 1;
        }
        self.events.push_back(event);
    }

    /// What a sender of this address gets to show. It is made anew each time, so that
    /// nothing has to be kept for addresses that may be forged.
    fn ticket(&self, source: Mac, nonce: Nonce) -> Ticket {
        let mut seed = [0; 32];
        seed[..18].copy_from_slice(&self.secret);
        seed[18..24].copy_from_slice(&source);
        seed[24..].copy_from_slice(&nonce.number().to_be_bytes());
        Ticket::from_number(Random::new(seed).next_u64())
    }
}

/// Something about a fast stream has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEvent {
    /// This sender may send fast.
    Granted {
        /// Who.
        source: Mac,
        /// Up to when, unless it is renewed.
        until: Instant,
    },
    /// This sender's lease is over.
    Ended {
        /// Who.
        source: Mac,
        /// Why.
        why: Ended,
    },
}

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sender said so.
    Released,
    /// It ran out: the sender was silent, or its turn was over.
    RanOut,
}

// What a gate is told once.

/// How a receiver admits fast streams. The defaults are for a local network: a round
/// trip of tens of microseconds, transfers of milliseconds to seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateConfig {
    /// The address of the receiver.
    pub address: Mac,
    /// How many streams may be fast at once, 1 to 64. One, as in the paper, unless
    /// the receiver predicts several flows.
    pub streams: u16,
    /// For how long a stream is fast without saying again that it is there.
    pub lease: Duration,
    /// The same for the first lease of a sender that has not shown yet that the
    /// address in its frames is its own: so long a forged request holds a stream.
    pub trial: Duration,
    /// How long a stream may be fast while others wait.
    pub turn: Duration,
    /// How many may have a place in the queue, 1 to 4,096.
    pub waiting: u16,
    /// After how long those who wait ask again. Who does not ask for three times as
    /// long loses its place.
    pub ask_again: Duration,
    /// For how long a stream is kept free for the one whose turn has come. One that
    /// does not come in time keeps its place, but the next one may go first.
    pub reserve: Duration,
    /// The priority tag of what the gate sends.
    pub priority: Option<Priority>,
}

impl GateConfig {
    /// The defaults for a receiver with this address.
    #[must_use]
    pub const fn new(address: Mac) -> Self {
        Self {
            address,
            streams: 1,
            lease: Duration::from_millis(100),
            trial: Duration::from_millis(20),
            turn: Duration::from_millis(500),
            waiting: 256,
            ask_again: Duration::from_millis(20),
            reserve: Duration::from_millis(5),
            priority: None,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        address(self.address)?;
        number("streams", self.streams.into(), 1, 64)?;
        number("waiting", self.waiting.into(), 1, 4_096)?;
        time("trial", self.trial, SHORTEST)?;
        time("lease", self.lease, self.trial)?;
        time("turn", self.turn, self.lease)?;
        time("ask_again", self.ask_again, SHORTEST)?;
        time("reserve", self.reserve, SHORTEST)
    }

    /// For how long a place in the queue is kept for one that is silent.
    fn patience(&self) -> Duration {
        self.ask_again.saturating_mul(3)
    }
}
