//! Who may send fast, below unmodified sockets: each station that is sent long packets is asked by
//! itself, and what it has refused leaves slowly.
//!
//! A packet over the rate of the slow mode is held, up to a bound for each station, and leaves when
//! its time comes, with low priority; beyond the bound it is lost, as in a full queue, and TCP slows
//! down. What fits into a frame is never held: it disturbs nobody's guesses, and acknowledgements
//! must not wait for data.

use std::collections::VecDeque;
use std::io;

use landfall_inet::ethernet::is_group;
use landfall_placement::{Duration, Instant, Random};
use landfall_transport::driver::Interest;
use spec_defrag::admission::{
    Allowance, Answer, Mac, Mode, Requester, RequesterConfig, TransferId,
};

use super::super::asking::{AskedReceiver, Control};
use super::super::channel::{Channel, ReceiverAddress};
use super::super::error::OpenError;
use crate::security::Security;

/// More stations are sent to without being asked.
const MOST_STATIONS: usize = 64;
/// This many bytes of packets wait for each of them.
const MOST_HELD: usize = 256 << 10;

/// The stations that are sent to, and what waits for them.
#[derive(Debug)]
pub(super) struct Admission {
    control: Control,
    config: RequesterConfig,
    security: Security,
    random: Random,
    stations: Vec<Station>,
    done: AdmissionStats,
}

/// What admission control made of long packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionStats {
    /// Packets that were sent with a lease.
    pub fast: u64,
    /// Packets that were sent slowly.
    pub slow: u64,
    /// Packets that were sent as ever: little was sent, or the receiver has no gate.
    pub plain: u64,
    /// Packets that had to wait.
    pub held: u64,
    /// Packets that were lost since too many waited.
    pub given_up: u64,
}

impl std::ops::AddAssign for AdmissionStats {
    fn add_assign(&mut self, other: Self) {
        let Self { fast, slow, plain, held, given_up } = other;
        self.fast += fast;
        self.slow += slow;
        self.plain += plain;
        self.held += held;
        self.given_up += given_up;
    }
}

/// A station that is asked.
#[derive(Debug)]
struct Station {
    asked: AskedReceiver,
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// Transfers of the control socket.
    explicit: usize,
    used: Instant,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Sent {
        gives_way: bool,
    },
    Held,
    /// It cannot be sent.
    Refused,
}

impl Verdict {
    /// Without further ado.
    pub(super) const NOW: Self = Self::Sent { gives_way: false };
}

impl Station {
    /// It is not needed now.
    fn is_idle(&self, now: Instant) -> bool {
        let is_plain = self.asked.requester.mode(now) == Mode::Plain;
        is_plain && self.held.is_empty() && self.explicit == 0
    }

    /// Takes a packet of this many bytes into account, if it may be sent now.
    fn admit(&mut self, now: Instant, len: usize, done: &mut AdmissionStats) -> Verdict {
        let Allowance { mode, bytes, .. } = self.asked.requester.allowance(now);
        if bytes == 0 {
            return Verdict::Held;
        }
        self.asked.requester.handle_sent(now, len as u64);
        self.used = now;
        let counted = match mode {
            Mode::Plain => &mut done.plain,
            Mode::Slow => &mut done.slow,
            Mode::Fast { .. } => &mut done.fast,
        };
        *counted += 1;
        Verdict::Sent { gives_way: mode == Mode::Slow }
    }
}

impl Admission {
    /// Nobody is asked yet. The receiver's address is filled in for each.
    pub(super) fn new(
        control: Control,
        config: RequesterConfig,
        security: Security,
        mut random: Random,
    ) -> Result<Self, OpenError> {
        let mut receiver = control.station();
        receiver[5] ^= 1;
        let config = RequesterConfig { address: control.station(), receiver, ..config };
        // Here it is said what is wrong with them, and not when somebody is to be asked.
        Requester::new(config, random.fork())?;
        let security = if security.is_plain { security } else { security.ready()? };
        let (stations, done) = (Vec::new(), AdmissionStats::default());
        Ok(Self { control, config, security, random, stations, done })
    }

    pub(super) const fn stats(&self) -> AdmissionStats {
        self.done
    }

    /// May a packet of this many bytes, longer than a frame, be sent to this station now?
    pub(super) fn admit(&mut self, now: Instant, to: Mac, len: usize) -> Verdict {
        let Some(at) = self.station(now, to) else {
            self.done.plain += 1;
            return Verdict::NOW;
        };
        let station = &mut self.stations[at];
        // In their order.
        if !station.held.is_empty() {
            return Verdict::Held;
        }
        station.admit(now, len, &mut self.done)
    }

    /// A packet waits, unless too much does.
    pub(super) fn hold(&mut self, now: Instant, to: Mac, packet: Vec<u8>) {
        let Some(at) = self.station(now, to) else { return };
        let station = &mut self.stations[at];
        if station.held_bytes + packet.len() > MOST_HELD {
            self.done.given_up += 1;
            return;
        }
        self.done.held += 1;
        station.held_bytes += packet.len();
        station.held.push_back(packet);
    }

    /// The next packet whose time has come, and whether it gives way to others.
    pub(super) fn release(&mut self, now: Instant) -> Option<(Vec<u8>, bool)> {
        let Self { stations, done, .. } = self;
        stations.iter_mut().find_map(|station| {
            let len = station.held.front()?.len();
            let Verdict::Sent { gives_way } = station.admit(now, len, done) else { return None };
            station.held_bytes -= len;
            Some((station.held.pop_front()?, gives_way))
        })
    }

    /// Hears what came, and says what is to be said.
    pub(super) fn tend(&mut self, now: Instant) -> io::Result<()> {
        let Self { control, stations, .. } = self;
        control.receive(|frame| {
            let from = frame.get(6..12).unwrap_or_default();
            let asked = stations.iter_mut().find(|station| station.asked.receiver == *from);
            if let Some(station) = asked {
                station.asked.handle_frame(now, frame);
            }
        })?;
        for station in stations {
            station.asked.tend(now, control)?;
            // Nobody asks what has changed: the answer is looked at when it matters.
            while station.asked.requester.poll_event().is_some() {}
        }
        Ok(())
    }

    /// When there is something to say, or to be sent.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let due = |station: &Station| {
            let again = station.asked.requester.allowance(now).again.unwrap_or(now);
            let held = (!station.held.is_empty()).then_some(again);
            [station.asked.poll_timeout(now), held].into_iter().flatten().min()
        };
        self.stations.iter().filter_map(due).min()
    }

    pub(super) fn interest(&self) -> Interest {
        self.control.interest()
    }

    /// Which of them it is; a new one, if there is room.
    fn station(&mut self, now: Instant, receiver: Mac) -> Option<usize> {
        let found = self.stations.iter().position(|station| station.asked.receiver == receiver);
        if found.is_some() || is_group(receiver) || receiver == self.config.address {
            return found;
        }
        if self.stations.len() >= MOST_STATIONS {
            let idle = self.stations.iter().enumerate().filter(|(_, station)| station.is_idle(now));
            let (oldest, _) = idle.min_by_key(|(_, station)| station.used)?;
            self.stations.swap_remove(oldest);
        }
        let config = RequesterConfig { receiver, ..self.config };
        let requester = Requester::new(config, self.random.fork()).ok()?;
        let (security, callee) =
            (self.security.clone(), ReceiverAddress { station: receiver, name: None });
        let channel = Channel::of_sender(security, config.address, callee, config.priority).ok()?;
        self.stations.push(Station {
            asked: AskedReceiver::new(channel, requester, receiver),
            held: VecDeque::new(),
            held_bytes: 0,
            explicit: 0,
            used: now,
        });
        Some(self.stations.len() - 1)
    }
}

/// What the control socket asks for.
impl Admission {
    /// A transfer to this station begins that is to be fast; `None`: there are too many.
    pub(super) fn ask(&mut self, now: Instant, receiver: Mac) -> Option<TransferId> {
        let at = self.station(now, receiver)?;
        let station = &mut self.stations[at];
        let transfer = station.asked.requester.ask(now).ok()?;
        station.explicit += 1;
        Some(transfer)
    }

    /// How it stands with it.
    pub(super) fn answer(&self, now: Instant, receiver: Mac, transfer: TransferId) -> Answer {
        let station = self.stations.iter().find(|station| station.asked.receiver == receiver);
        station.map_or(Answer::NotAsked, |station| station.asked.requester.answer(now, transfer))
    }

    /// It is over.
    pub(super) fn end(&mut self, now: Instant, receiver: Mac, transfer: TransferId) {
        let station = self.stations.iter_mut().find(|station| station.asked.receiver == receiver);
        if let Some(station) = station {
            station.asked.requester.end(now, transfer);
            station.explicit = station.explicit.saturating_sub(1);
        }
    }

    /// How soon a changed answer is told to those who wait for it.
    pub(super) const LOOK: Duration = Duration::from_millis(1);
}
