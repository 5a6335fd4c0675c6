//! What must hold, judged from outside: from the frames that a gate sent, and from what
//! the senders say of themselves.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::Instant;
use landfall_testkit::model::Findings;

use super::super::frame::{ControlFrame, Mac, Message, Nonce};
use super::super::{Allowance, Gate, Mode, Requester, RequesterConfig};

/// So many sendings are looked back at.
const LOOK_BACK: usize = 128;

/// The longest packet that a world sends.
pub(super) const LONGEST_PACKET: u64 = 65_535;

/// A naive account of who was told what.
#[derive(Debug, Default)]
pub(super) struct Judge {
    pub(super) findings: Findings,
    /// Up to when each sender was ever granted something.
    granted: BTreeMap<Mac, Instant>,
    /// Who was told a place in the queue, in that order.
    placed: Vec<(Mac, Nonce)>,
    /// What each sender sent in slow mode.
    slow: BTreeMap<Mac, Vec<(Instant, u64)>>,
    /// Whether all frames arrived as they were sent, and nobody died: then the order
    /// of the queue is exact.
    pub(super) orderly: bool,
}

impl Judge {
    pub(super) fn new(orderly: bool) -> Self {
        Self { orderly, ..Self::default() }
    }

    pub(super) fn find(&mut self, what: String) {
        self.findings.fail(what);
    }

    /// The gate sends a frame.
    pub(super) fn gate_sends(&mut self, now: Instant, bytes: &[u8], streams: u16) {
        let frame = match ControlFrame::parse(bytes) {
            Ok(frame) => frame,
            Err(refusal) => return self.find(format!("the gate sent a bad frame: {refusal}")),
        };
        let name = (frame.to, frame.nonce);
        match frame.message {
            Message::FastAck { time, .. } => {
                let until = self.granted.entry(frame.to).or_default();
                *until = (*until).max(now + time);
                if let Some(at) = self.placed.iter().position(|placed| *placed == name) {
                    if self.orderly && at >= usize::from(streams) {
                        self.find(format!("{now}: {:?} was served before {at} others", frame.to));
                    }
                    self.placed.remove(at);
                }
            }
            Message::FastNAck { position: Some(_), .. } if !self.placed.contains(&name) => {
                self.placed.push(name);
            }
            Message::FastNAck { .. } => {}
            _ => self.find(format!("the gate sent {:?}", frame.message)),
        }
    }

    /// The gate is told that a lease or a place is not wanted any more.
    pub(super) fn gate_hears(&mut self, bytes: &[u8]) {
        if let Ok(ControlFrame { from, nonce, message: Message::Release { .. }, .. }) =
            ControlFrame::parse(bytes)
        {
            self.placed.retain(|placed| *placed != (from, nonce));
        }
    }

    /// The gate starts again: nobody has a place.
    pub(super) fn gate_forgets(&mut self) {
        self.placed.clear();
    }

    /// After each thing that happened.
    pub(super) fn check<'a>(
        &mut self,
        now: Instant,
        gate: &Gate,
        streams: u16,
        gate_knows: bool,
        senders: impl Iterator<Item = (Mac, &'a Requester)>,
    ) {
        let leases = gate.fast(now).count();
        if leases > usize::from(streams) {
            self.find(format!("{now}: {leases} leases on {streams} streams"));
        }
        let mut believers = 0;
        for (mac, requester) in senders {
            let Mode::Fast { until } = requester.mode(now) else { continue };
            believers += 1;
            let granted = self.granted.get(&mac).copied().unwrap_or_default();
            if until > granted {
                self.find(format!("{now}: {mac:?} believes until {until}, had {granted}"));
            }
            let has = gate.fast(now).any(|(fast, known)| fast == mac && known >= until);
            if gate_knows && !has {
                self.find(format!("{now}: {mac:?} believes in a lease that the gate has not"));
            }
        }
        if believers > usize::from(streams) {
            self.find(format!("{now}: {believers} believe in {streams} streams"));
        }
    }

    /// What a sender may send is never nothing for ever.
    pub(super) fn check_allowance(
        &mut self,
        now: Instant,
        config: &RequesterConfig,
        requester: &Requester,
    ) -> Allowance {
        let allowance = requester.allowance(now);
        match allowance {
            Allowance { bytes: 0, again: Some(again), .. } => {
                let debt = LONGEST_PACKET * 1_000_000_000 / config.slow_rate + 1_000;
                let most = now + config.delay.max(core::time::Duration::from_nanos(debt));
                if again <= now || again > most {
                    self.find(format!("{now}: nothing before {again}"));
                }
                if requester.allowance(again).bytes == 0 {
                    self.find(format!("{now}: nothing at {again} either"));
                }
            }
            Allowance { bytes: 0, again: None, .. } => {
                self.find(format!("{now}: nothing, for ever"));
            }
            _ => {}
        }
        allowance
    }

    /// A sender has sent in slow mode: never more than the rate and one burst.
    pub(super) fn sent_slowly(
        &mut self,
        now: Instant,
        mac: Mac,
        bytes: u64,
        config: &RequesterConfig,
    ) {
        let sent = self.slow.entry(mac).or_default();
        if sent.len() == LOOK_BACK {
            sent.remove(0);
        }
        sent.push((now, bytes));
        let (mut sum, mut worst) = (0, 0);
        for (at, bytes) in sent.iter().rev() {
            sum += bytes;
            let nanos = u128::from(config.slow_rate) * now.since(*at).as_nanos();
            let may = (nanos / 1_000_000_000) as u64 + u64::from(config.slow_burst);
            worst = worst.max(sum.saturating_sub(may + LONGEST_PACKET + 1));
        }
        if worst > 0 {
            self.find(format!("{now}: {mac:?} sent {worst} bytes too much in slow mode"));
        }
    }

    /// A sender begins anew: its bucket is full again.
    pub(super) fn forget(&mut self, mac: Mac) {
        self.slow.remove(&mac);
    }
}
