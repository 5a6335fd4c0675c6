//! The sender's side, towards one receiver: asks, refreshes, and keeps to what it got.

mod answers;
#[cfg(test)]
mod tests;
mod throttle;

use alloc::collections::VecDeque;

use landfall_placement::{Duration, Instant, Random, Refusal, Refusals, Seed};
use landfall_tables::{EntryKey, Table};

use super::frame::{ControlFrame, FRAME_LEN, Lease, Message};
use super::{ConfigError, TooMany};
use answers::Series;
pub use throttle::{Allowance, Answer, Lost, Mode, RequesterConfig, RequesterEvent};
use throttle::{Meter, Throttle};

/// Events that wait for [`Requester::poll_event`]; older ones are forgotten.
const MOST_EVENTS: usize = 64;

/// Two requests of one series have at least so much time between them.
const GAP: Duration = Duration::from_micros(100);

/// Names a transfer of a [`Requester`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId {
    index: u32,
    generation: u32,
}

/// What a requester is about.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing was asked for.
    Idle,
    /// It wants to be fast.
    Asking(Asking),
    /// It is.
    Holding(Holding),
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    series: Series,
    /// When to send the next request.
    due: Instant,
    /// When the last one was sent.
    sent: Instant,
    /// Requests since the last answer.
    unanswered: u16,
    /// Answers one after another that wanted to be asked again at once.
    hurried: u16,
    standing: RequestState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// No answer yet.
    Asked,
    /// Since then the answer is no.
    Refused { since: Instant, position: Option<u16> },
    /// Nobody answers.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    series: Series,
    lease: Lease,
    /// For how long it was granted last.
    time: Duration,
    until: Instant,
    /// When to send the next Refresh.
    due: Instant,
}

/// Asks one receiver for fast mode, and says how much may be sent to it meanwhile.
///
/// [`Gate`](super::Gate) has an example of both sides.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
    random: Random,
    state: State,
    /// Each says whether it asks.
    transfers: Table<bool>,
    /// How many of them do.
    asking: u32,
    /// Enough was sent of late for it to ask.
    flowing: bool,
    meter: Meter,
    throttle: Throttle,
    /// The receiver did not answer: up to then it is taken for one without a gate.
    silent_until: Instant,
    /// To be sent: a lease or a place that is given back.
    farewell: Option<[u8; FRAME_LEN]>,
    events: VecDeque<RequesterEvent>,
    refusals: Refusals,
}

impl Requester {
    /// A requester that wants nothing yet.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: RequesterConfig, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            random: Random::new(seed),
            state: State::Idle,
            transfers: Table::new(config.transfers.into()),
            asking: 0,
            flowing: false,
            meter: Meter::new(config.window),
            throttle: Throttle::new(config.slow_rate, config.slow_burst),
            silent_until: Instant::ZERO,
            farewell: None,
            events: VecDeque::new(),
            refusals: Refusals::new(),
        })
    }
}

/// What its user does.
impl Requester {
    /// A transfer of this many bytes begins. If it is a large one, it asks by itself.
    ///
    /// # Errors
    /// [`TooMany`] transfers; it may be sent all the same.
    pub fn begin(&mut self, now: Instant, bytes: u64) -> Result<TransferId, TooMany> {
        let asks = self.config.implicit.is_some_and(|least| bytes >= least);
        self.admit(now, asks)
    }

    /// A transfer of any length begins that is to be fast: the explicit way. The answer
    /// comes as an event, and [`Requester::answer`] says how it stands.
    ///
    /// # Errors
    /// [`TooMany`] transfers.
    pub fn ask(&mut self, now: Instant) -> Result<TransferId, TooMany> {
        self.admit(now, true)
    }

    fn admit(&mut self, now: Instant, asks: bool) -> Result<TransferId, TooMany> {
        let most = self.config.transfers;
        let EntryKey { index, generation } = self.transfers.insert(asks).ok_or(TooMany { most })?;
        if asks {
            self.asking += 1;
            self.want(now);
        }
        Ok(TransferId { index, generation })
    }

    /// A transfer is over. With the last one that asked, the lease is given back. One
    /// that is over already stays so.
    pub fn end(&mut self, now: Instant, transfer: TransferId) {
        // It is over already, and stays so.
        let Some(asks) = self.transfers.named(transfer.index, transfer.generation).copied() else {
            return;
        };
        self.transfers.remove(transfer.index);
        if asks {
            self.asking -= 1;
            if self.asking == 0 {
                // What was sent counted for the transfer: it is no reason to go on.
                self.flowing = false;
                self.meter.clear();
            }
        }
        self.leave_if_content();
        self.advance(now);
    }

    /// How it stands with a transfer that asked.
    #[must_use]
    pub fn answer(&self, now: Instant, transfer: TransferId) -> Answer {
        if self.transfers.named(transfer.index, transfer.generation) != Some(&true) {
            return Answer::NotAsked;
        }
        match self.state {
            State::Idle => Answer::NotAsked,
            State::Holding(Holding { until, .. }) if now < until => Answer::Granted { until },
            State::Holding(_) => Answer::Pending,
            State::Asking(Asking { standing, due, .. }) => match standing {
                RequestState::Asked => Answer::Pending,
                RequestState::Refused { position, .. } => {
                    Answer::Refused { position, ask_again: due }
                }
                RequestState::Silent => Answer::NoGate,
            },
        }
    }

    /// How one may send now.
    #[must_use]
    pub fn mode(&self, now: Instant) -> Mode {
        match self.state {
            State::Idle => Mode::Plain,
            State::Asking(Asking { standing: RequestState::Silent, .. }) => Mode::Plain,
            // It must not depend on how soon anybody looks at the timer.
            State::Holding(Holding { until, .. }) if now < until => Mode::Fast { until },
            State::Asking(_) | State::Holding(_) => Mode::Slow,
        }
    }

    /// How much may be sent now, and how.
    #[must_use]
    pub fn allowance(&self, now: Instant) -> Allowance {
        let mode = self.mode(now);
        if mode != Mode::Slow {
            return Allowance { mode, bytes: u64::MAX, again: None };
        }
        let held_until = self.held_until();
        match self.throttle.bytes(now) {
            bytes if bytes > 0 && held_until <= now => Allowance { mode, bytes, again: None },
            _ => {
                let again = self.throttle.open_at(now).max(held_until);
                Allowance { mode, bytes: 0, again: Some(again) }
            }
        }
    }

    /// Counts bytes that were sent to the receiver, in either mode.
    pub fn handle_sent(&mut self, now: Instant, bytes: u64) {
        if self.mode(now) == Mode::Slow {
            self.throttle.take(now, bytes);
        }
        let recent = self.meter.count(now, bytes);
        if self.config.implicit.is_some_and(|least| recent >= least) {
            self.flowing = true;
            self.want(now);
        }
    }
}

/// What its driver does.
impl Requester {
    /// A control frame came.
    ///
    /// # Errors
    /// Why it was not accepted; it is counted, and nothing else changed.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) -> Result<(), Refusal> {
        self.advance(now);
        let accepted = ControlFrame::parse(frame).and_then(|frame| self.accept(now, &frame));
        accepted.map_err(|refusal| self.refusals.count(refusal))
    }

    /// A moment of [`Requester::poll_timeout`] has come: then
    /// [`Requester::poll_transmit`] may have something.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// When something is to be done: a frame to be sent, or a lease runs out.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            State::Idle => None,
            State::Asking(asking) => Some(asking.due),
            State::Holding(holding) => Some(holding.due.min(holding.until)),
        };
        [state, self.quiet_at()].into_iter().flatten().min()
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<[u8; FRAME_LEN]> {
        self.advance(now);
        if let Some(frame) = self.farewell.take() {
            return Some(frame);
        }
        match self.state {
            State::Asking(asking) if asking.due <= now => Some(self.send_request(now, asking)),
            State::Holding(holding) if holding.due <= now => self.send_refresh(now, holding),
            _ => None,
        }
    }

    /// What has changed.
    pub fn poll_event(&mut self) -> Option<RequesterEvent> {
        self.events.pop_front()
    }

    /// What was not accepted, by reason.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

/// What it does by itself.
impl Requester {
    /// Up to when a refused transfer is delayed.
    fn held_until(&self) -> Instant {
        match self.state {
            State::Asking(Asking { standing: RequestState::Refused { since, .. }, .. }) => {
                since + self.config.delay
            }
            _ => Instant::ZERO,
        }
    }

    /// When what was sent of late is no reason to be fast any more. Who may not send is
    /// not silent: else a throttled stream would cease to ask, and not be throttled.
    fn quiet_at(&self) -> Option<Instant> {
        let last = self.meter.last().filter(|_| self.flowing)?;
        let may_send = match self.state {
            State::Idle | State::Holding(_) => last,
            State::Asking(_) => self.throttle.open_at(last).max(self.held_until()),
        };
        Some(may_send + self.config.linger)
    }

    fn want(&mut self, now: Instant) {
        if matches!(self.state, State::Idle) {
            self.request_again(now, Duration::ZERO);
        }
    }

    fn request_again(&mut self, now: Instant, wait: Duration) {
        let series = Series::new(&mut self.random);
        let (standing, due) = if now < self.silent_until {
            (RequestState::Silent, self.silent_until)
        } else {
            (RequestState::Asked, now + wait)
        };
        self.state = State::Asking(Asking {
            series,
            due,
            sent: Instant::ZERO,
            unanswered: 0,
            hurried: 0,
            standing,
        });
    }

    /// Returns back what nobody wants any more.
    fn leave_if_content(&mut self) {
        if self.asking > 0 || self.flowing {
            return;
        }
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Asking(Asking { series, .. }) => {
                if let Some(ticket) = series.ticket {
                    self.send_release(series, Message::Release { what: ticket.0 });
                }
            }
            State::Holding(Holding { series, lease, .. }) => {
                self.send_release(series, Message::Release { what: lease.0 });
            }
        }
    }

    fn send_release(&mut self, series: Series, message: Message) {
        self.farewell = Some(self.frame(&series, series.last(), message));
    }

    /// Takes note of what time has changed.
    fn advance(&mut self, now: Instant) {
        if self.quiet_at().is_some_and(|at| at <= now) {
            self.flowing = false;
            self.meter.clear();
            self.leave_if_content();
        }
        match &mut self.state {
            State::Holding(holding) if holding.until <= now => {
                self.report(RequesterEvent::Lost(Lost::RanOut));
                self.request_again(now, Duration::ZERO);
            }
            State::Asking(asking)
                if asking.due <= now
                    && asking.unanswered >= self.config.attempts
                    && asking.standing != RequestState::Silent =>
            {
                asking.standing = RequestState::Silent;
                asking.due = now + self.config.silent_retry;
                self.silent_until = asking.due;
                self.report(RequesterEvent::NoGate);
            }
            _ => {}
        }
    }

    fn send_request(&mut self, now: Instant, mut asking: Asking) -> [u8; FRAME_LEN] {
        let serial = asking.series.next(now).unwrap_or_else(|| {
            asking.series = Series::new(&mut self.random);
            asking.series.next(now).unwrap_or_default()
        });
        asking.sent = now;
        asking.unanswered = asking.unanswered.saturating_add(1);
        let pause = match asking.standing {
            RequestState::Silent => self.config.silent_retry,
            RequestState::Asked | RequestState::Refused { .. } => {
                let doubled = u32::from(asking.unanswered - 1).min(16);
                self.config.retry.saturating_mul(1 << doubled).min(self.config.silent_retry)
            }
        };
        asking.due = now + pause;
        if asking.standing == RequestState::Silent {
            self.silent_until = asking.due;
        }
        self.state = State::Asking(asking);
        self.frame(&asking.series, serial, Message::FastReq { ticket: asking.series.ticket })
    }

    fn send_refresh(&mut self, now: Instant, mut holding: Holding) -> Option<[u8; FRAME_LEN]> {
        holding.due = now + (holding.time / 8).max(GAP);
        let serial = holding.series.next(now);
        if serial.is_none() {
            holding.due = holding.until; // It runs out, and a new series begins.
        }
        self.state = State::Holding(holding);
        Some(self.frame(&holding.series, serial?, Message::Refresh { lease: holding.lease }))
    }

    fn frame(&self, series: &Series, serial: u32, message: Message) -> [u8; FRAME_LEN] {
        let (to, from, priority) =
            (self.config.receiver, self.config.address, self.config.priority);
        ControlFrame { to, from, priority, nonce: series.nonce, serial, message }.to_bytes()
    }

    fn report(&mut self, event: RequesterEvent) {
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
