//! One long transfer, as `ttcp` makes it, and short datagrams that come between; the driver's part
//! in admission control: a gate at the master, and at each host someone who asks it, by the
//! engine's own state machines.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use landfall_placement::{Instant, Random};
use spec_defrag::admission::{
    Allowance, Gate, GateConfig, Mode, Requester, RequesterConfig, TransferId,
};

use super::station::{Program, Turn};
use super::wire::{Host, Message, PAGE, ethernet};
use super::{Arrival, Network, run, up_to};

/// From where the datagrams come that disturb the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disturber {
    /// From the sender itself, which has other traffic too: between its packets.
    Sender,
    /// From a third station: at any moment, between fragments too.
    Another,
}

/// A transfer, and how often it is disturbed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Zero-copy packets.
    pub(crate) pages: u32,
    /// Foreign packets, each at a moment of its own.
    pub(crate) foreign: u32,
    pub(crate) disturber: Disturber,
    pub(crate) network: Network,
}

impl Workload {
    /// The transfer of the paper.
    pub(crate) const fn table_1(foreign: u32, disturber: Disturber) -> Self {
        Self { pages: 100_000, foreign, disturber, network: Network::CLUSTER }
    }
}

/// All has been sent.
const END: u8 = 1;
/// What disturbs.
const FOREIGN: u8 = 2;

const RECEIVER: Host = 0;
/// The bytes of what disturbs.
const SHORT: u32 = 64;

/// Gives what arrived at the receiver.
pub(crate) fn arrivals(seed: u64, workload: &Workload) -> Result<Vec<Arrival>> {
    let costs = workload.network.costs;
    let each = costs.send + costs.send_kib * (PAGE / 1024);
    let busy = each * workload.pages;
    let disturbs = |by| if workload.disturber == by { workload.foreign } else { 0 };
    let station = |pages, foreign| Box::new(Station { pages, foreign, busy }) as Box<dyn Program>;
    let programs = [
        station(0, 0),
        station(workload.pages, disturbs(Disturber::Sender)),
        station(0, disturbs(Disturber::Another)),
    ];
    let [receiver, ..] = run(seed, workload.network, programs)?;
    Ok(receiver)
}

/// What a station has to send.
struct Station {
    pages: u32,
    foreign: u32,
    /// How long the transfer takes, about.
    busy: Duration,
}

impl Program for Station {
    fn start(&mut self, turn: &mut Turn<'_>) {
        for number in 0..self.foreign {
            let at = up_to(self.busy, turn.random());
            turn.later(at, Message { verb: FOREIGN, number });
        }
        if self.pages > 0 {
            turn.write(RECEIVER, self.pages * PAGE, Message { verb: END, number: 0 });
        }
    }

    fn hear(&mut self, _: Host, _: Message, _: &mut Turn<'_>) {}

    fn wake(&mut self, alarm: Message, turn: &mut Turn<'_>) {
        turn.send(RECEIVER, SHORT, alarm);
    }
}

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

    /// The application writes this many bytes.
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
