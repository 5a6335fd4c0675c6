//! The driver's part in admission control: a gate at the master, and at each host
//! someone who asks it, by the engine's own state machines.

use std::collections::VecDeque;

use anyhow::Result;
use landfall_placement::{Instant, Random};
use spec_defrag::admission::{
    Allowance, Gate, GateConfig, Mode, Requester, RequesterConfig, TransferId,
};

use super::wire::{Host, ethernet};

/// The station that others send bursts to.
const MASTER: Host = 0;

/// What a station has to do with admission control.
pub(super) enum Admission {
    /// Nothing: everybody sends as fast as it can.
    Off,
    Receiver(Box<Gate>),
    Sender(Box<Sender>),
}

/// One that asks the master before it sends fast.
pub(super) struct Sender {
    requester: Requester,
    /// Writes under way, in their order.
    transfers: VecDeque<Option<TransferId>>,
}

impl Admission {
    pub(super) fn of_station(me: Host, random: &mut Random) -> Result<Self> {
        if me == MASTER {
            let config = GateConfig::new(ethernet(me));
            return Ok(Self::Receiver(Box::new(Gate::new(config, random.fork())?)));
        }
        let config = RequesterConfig::new(ethernet(me), ethernet(MASTER));
        let requester = Requester::new(config, random.fork())?;
        Ok(Self::Sender(Box::new(Sender { requester, transfers: VecDeque::new() })))
    }

    fn sender(&mut self, to: Host) -> Option<&mut Sender> {
        match self {
            Self::Sender(sender) if to == MASTER => Some(sender),
            _ => None,
        }
    }

    /// The application writes so many bytes.
    pub(super) fn begin(&mut self, now: Instant, to: Host, bytes: u32) {
        if let Some(sender) = self.sender(to) {
            let transfer = sender.requester.begin(now, bytes.into()).ok();
            sender.transfers.push_back(transfer);
        }
    }

    /// The last packet of the oldest write has left.
    pub(super) fn end(&mut self, now: Instant, to: Host) {
        if let Some(sender) = self.sender(to)
            && let Some(Some(transfer)) = sender.transfers.pop_front()
        {
            sender.requester.end(now, transfer);
        }
    }

    /// How much may be sent, and how.
    pub(super) fn allowance(&mut self, now: Instant, to: Host) -> Allowance {
        let free = Allowance { mode: Mode::Plain, bytes: u64::MAX, again: None };
        self.sender(to).map_or(free, |sender| sender.requester.allowance(now))
    }

    pub(super) fn handle_sent(&mut self, now: Instant, to: Host, bytes: u32) {
        if let Some(sender) = self.sender(to) {
            sender.requester.handle_sent(now, bytes.into());
        }
    }

    /// A control frame came. What is refused is counted by the machines.
    pub(super) fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        let _ = match self {
            Self::Off => Ok(()),
            Self::Receiver(gate) => gate.handle_frame(now, frame),
            Self::Sender(sender) => sender.requester.handle_frame(now, frame),
        };
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Off => {}
            Self::Receiver(gate) => gate.handle_timeout(now),
            Self::Sender(sender) => sender.requester.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Off => None,
            Self::Receiver(gate) => gate.poll_timeout(),
            Self::Sender(sender) => sender.requester.poll_timeout(),
        }
    }

    /// The next control frame to send.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let frame = match self {
            Self::Off => None,
            Self::Receiver(gate) => gate.poll_transmit(now),
            Self::Sender(sender) => sender.requester.poll_transmit(now),
        };
        frame.map(Vec::from)
    }
}
