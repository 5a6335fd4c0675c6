//! One long transfer, as `ttcp` makes it, and short datagrams that come between.

use std::time::Duration;

use anyhow::Result;

use super::station::{Program, Turn};
use super::wire::{Host, Message, PAGE};
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
