//! What the receiver's answers do to a requester.

use landfall_placement::{Duration, Instant, Random, Refusal};

use super::super::frame::{ControlFrame, Lease, Message, Nonce, Ticket};
use super::{Asking, GAP, Holding, Lost, RequestState, Requester, RequesterEvent, State};

/// Nobody has to wait longer before it may ask again, whatever the receiver says.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Requester {
    pub(super) fn accept(&mut self, now: Instant, frame: &ControlFrame) -> Result<(), Refusal> {
        if frame.to != self.config.address || frame.from != self.config.receiver {
            return Err(Refusal::WrongAddress);
        }
        let series = match &self.state {
            State::Idle => None,
            State::Asking(asking) => Some(&asking.series),
            State::Holding(holding) => Some(&holding.series),
        };
        match frame.message {
            Message::FastReq { .. } | Message::Refresh { .. } | Message::Release { .. } => {
                Err(Refusal::Unexpected)
            }
            _ if series.is_none_or(|series| series.nonce != frame.nonce) => Err(Refusal::WrongKey),
            Message::FastAck { lease, time } => self.granted(now, frame.serial, lease, time),
            Message::FastNAck { ticket, position, wait } => match self.state {
                State::Idle => Err(Refusal::WrongKey),
                State::Holding(holding) => {
                    self.not_renewed(now, frame.serial, holding, wait.min(LONGEST_WAIT))
                }
                State::Asking(asking) => {
                    let wait = wait.min(LONGEST_WAIT);
                    self.refused(now, frame.serial, asking, ticket, position, wait)
                }
            },
        }
    }

    /// The lease counts from when the request was sent, whenever the answer comes.
    fn granted(
        &mut self,
        now: Instant,
        serial: u32,
        lease: Lease,
        time: Duration,
    ) -> Result<(), Refusal> {
        let (mut series, held) = match self.state {
            State::Idle => return Err(Refusal::WrongKey),
            State::Asking(asking) => (asking.series, None),
            State::Holding(holding) => (holding.series, Some(holding)),
        };
        let sent = series.grant(serial).ok_or(Refusal::Duplicate)?;
        let mut until = sent + time;
        if until <= now {
            return Err(Refusal::OutOfBounds);
        }
        match held {
            Some(held) if held.lease == lease => until = until.max(held.until),
            Some(_) => {}
            None => self.report(RequesterEvent::Granted { until }),
        }
        self.silent_until = Instant::ZERO;
        self.state = State::Holding(Holding { series, lease, time, until, due: sent + time / 2 });
        Ok(())
    }

    fn not_renewed(
        &mut self,
        now: Instant,
        serial: u32,
        mut holding: Holding,
        wait: Duration,
    ) -> Result<(), Refusal> {
        if holding.series.refuse(serial) != Some(Refused::First) {
            return Err(Refusal::Duplicate);
        }
        self.send_release(holding.series, Message::Release { what: holding.lease.0 });
        self.report(RequesterEvent::Lost(Lost::TurnOver));
        self.request_again(now, wait);
        Ok(())
    }

    fn refused(
        &mut self,
        now: Instant,
        serial: u32,
        mut asking: Asking,
        ticket: Option<Ticket>,
        position: Option<u16>,
        wait: Duration,
    ) -> Result<(), Refusal> {
        let refused = asking.series.refuse(serial).ok_or(Refusal::Duplicate)?;
        asking.series.ticket = ticket.or(asking.series.ticket);
        let due = if wait.is_zero() {
            // At once; but two that only hurry each other slow down.
            let doubled = 1 << asking.hurried.min(10);
            asking.hurried = asking.hurried.saturating_add(1);
            now.max(asking.sent + GAP.saturating_mul(doubled))
        } else {
            if refused == Refused::First {
                asking.hurried = 0;
            }
            now + wait.max(GAP)
        };
        asking.due = match refused {
            Refused::First => due,
            // A repetition must not put off what is due before.
            Refused::Again => asking.due.min(due),
        };
        asking.unanswered = 0;
        self.silent_until = Instant::ZERO;
        let (since, before) = match asking.standing {
            RequestState::Refused { since, position } => (since, Some(position)),
            RequestState::Asked | RequestState::Silent => (now, None),
        };
        asking.standing = RequestState::Refused { since, position };
        self.state = State::Asking(asking);
        if before != Some(position) {
            self.report(RequesterEvent::Refused { position, wait });
        }
        Ok(())
    }
}

// One series of requests: its nonce, and which of them may still be answered.

/// The most requests under way; older ones are forgotten.
const UNDER_WAY: usize = 8;

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Probe {
    serial: u32,
    sent: Instant,
    refused: bool,
}

/// What a series of requests remembers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) nonce: Nonce,
    /// What to show when asking again.
    pub(super) ticket: Option<Ticket>,
    /// The last request.
    serial: u32,
    /// The last one that was granted: none up to it matters any more.
    granted: u32,
    probes: [Option<Probe>; UNDER_WAY],
}

/// What a refusal is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is the first one of that request.
    First,
    /// That request was refused before: an invitation, or a repetition.
    Again,
}

impl Series {
    pub(super) fn new(random: &mut Random) -> Self {
        let nonce = Nonce::from_number(random.next_u64());
        Self { nonce, ticket: None, serial: 0, granted: 0, probes: [None; UNDER_WAY] }
    }

    /// The number of a request that is sent now. Nothing after four billion of them.
    pub(super) fn next(&mut self, now: Instant) -> Option<u32> {
        self.serial = self.serial.checked_add(1)?;
        let probe = Probe { serial: self.serial, sent: now, refused: false };
        self.probes[self.serial as usize % UNDER_WAY] = Some(probe);
        Some(self.serial)
    }

    /// The number of the last request.
    pub(super) fn last(&self) -> u32 {
        self.serial
    }

    fn probe(&mut self, serial: u32) -> Option<&mut Probe> {
        let granted = self.granted;
        let probe = self.probes[serial as usize % UNDER_WAY].as_mut()?;
        (probe.serial == serial && serial > granted).then_some(probe)
    }

    /// A request is granted: gives when it was sent. Only once, and none before the
    /// last one that was.
    pub(super) fn grant(&mut self, serial: u32) -> Option<Instant> {
        let sent = self.probe(serial)?.sent;
        self.granted = serial;
        Some(sent)
    }

    /// A request is refused.
    pub(super) fn refuse(&mut self, serial: u32) -> Option<Refused> {
        let probe = self.probe(serial)?;
        let before = core::mem::replace(&mut probe.refused, true);
        Some(if before { Refused::Again } else { Refused::First })
    }
}
