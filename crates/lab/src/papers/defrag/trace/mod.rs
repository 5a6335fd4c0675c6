//! What arrives at the stations of a small cluster: traffic in virtual time,
//! shaped like that of the paper's applications. The same seed gives the same
//! frames.
//!
//! | file | what it is |
//! | --- | --- |
//! | `wire` | real headers: Ethernet, IPv4, TCP, UDP, fragments |
//! | `station` | a processor, a driver, an adapter, a program |
//! | `tpcd` | a distributed database: two hosts answer one master |
//! | `ttcp` | one long transfer, and what disturbs it; the driver's part in admission control |
//! | `sor` | distributed shared memory: pages to the hosts and back |

pub(crate) mod sor;
mod station;
pub(crate) mod tpcd;
pub(crate) mod ttcp;
mod wire;

use std::time::Duration;

use anyhow::{Result, ensure};
use landfall_placement::{Instant, Random};
use landfall_simnet::{LinkConfig, Outcome, Sim};

use station::{Costs, Program, Station};
use ttcp::Admission;
pub(crate) use wire::{Headers, Host, Service};
use wire::{KEPT, Switch, stations};

/// A frame that arrived at a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When its last bit was there.
    pub(crate) at: Instant,
    /// The length of the frame.
    pub(crate) len: u16,
    /// Its first bytes; those behind are zeros.
    head: [u8; KEPT],
}

impl Arrival {
    fn new(at: Instant, frame: &[u8]) -> Self {
        let mut head = [0; KEPT];
        let kept = frame.len().min(KEPT);
        head[..kept].copy_from_slice(&frame[..kept]);
        Self { at, len: frame.len() as u16, head }
    }

    /// All of the frame.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head[..KEPT.min(self.len.into())].to_vec();
        bytes.resize(self.len.into(), 0);
        bytes
    }

    /// Its first bytes.
    #[cfg(test)]
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Who sent it.
    pub(crate) fn from(&self) -> Option<Host> {
        stations(&self.head).map(|(_, from)| from)
    }

    /// Whether it is the last piece of a packet that was cut.
    pub(crate) fn ends_packet(&self) -> bool {
        Headers::read(&self.head).is_some_and(|headers| headers.is_fragment() && !headers.more)
    }
}

/// Between two stations and a switch: a cable of the paper's cluster.
const RATE: u64 = 1_000_000_000;
/// A run that has not ended by then hangs.
const LONG_ENOUGH: Instant = Instant::from_millis(3_600_000);

/// What the stations and the switch between them are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) service: Service,
    pub(crate) costs: Costs,
    /// Bursts to the master are admitted one at a time.
    pub(crate) is_gated: bool,
}

impl Network {
    /// The paper's machines, a switch that serves its inputs in turn.
    const CLUSTER: Self =
        Self { service: Service::InTurn, costs: Costs::PENTIUM_II, is_gated: false };
}

/// Runs programs on stations around a switch, the master's first, until nothing
/// happens any more; gives what arrived at each.
fn run<const N: usize>(
    seed: u64,
    network: Network,
    programs: [Box<dyn Program>; N],
) -> Result<[Vec<Arrival>; N]> {
    let mut random = Random::from_number(seed);
    let mut sim = Sim::new(random.fork());
    let switch = sim.add("switch", Switch::new(network.service, programs.len()))?;
    let mut stations = Vec::new();
    for (host, program) in (0..).zip(programs) {
        let (luck, mut secrets) = (Random::new(random.fork()), Random::new(random.fork()));
        let admission = if network.is_gated {
            Admission::of_station(host, &mut secrets)?
        } else {
            Admission::Off
        };
        let station = Station::new(host, network.costs, luck, admission, program);
        stations.push(sim.add(&format!("host {host}"), station)?);
    }
    // The frames that wait for a station are in the switch, not in its link.
    let to_switch = LinkConfig::ethernet(RATE);
    let from_switch = to_switch.queue_frames(0);
    let links: Vec<_> = stations
        .iter()
        .map(|station| sim.connect_each(*station, switch, to_switch, from_switch))
        .collect::<Result<_, _>>()?;
    let outcome = sim.run_until(LONG_ENOUGH)?;
    ensure!(outcome == Outcome::Idle, "the simulated programs did not end");
    for way in links.into_iter().flat_map(|link| [link.there(), link.back()]) {
        let dropped = sim.stats(way).dropped_total();
        ensure!(dropped == 0, "{dropped} frames were dropped at {way}");
    }
    let mut arrivals = [const { Vec::new() }; N];
    for (station, arrivals) in stations.into_iter().zip(&mut arrivals) {
        *arrivals = sim.node_mut(station)?.take_arrivals();
    }
    Ok(arrivals)
}

/// A time up to this, by chance.
fn up_to(most: Duration, random: &mut Random) -> Duration {
    Duration::from_nanos(random.below(most.as_nanos() as u64 + 1))
}
