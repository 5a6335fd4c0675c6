//! The event-driven server: Figures 8 and 9, and what happens when more is asked of it
//! than it can do.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | which servers take turns, and what is said of each |
//! | `clients` | what a client does, written once for all servers; connections of the kernel behind `epoll` |
//! | `ours` | endpoints, tripwires and the event queue |

mod clients;
mod ours;

use std::fs;

use anyhow::Result;
use landfall_testbed::rivals::Endpoints;
use serde::Serialize;

use super::Scale;
use super::sweep::{median, most, unevenness};
use crate::style::Progress;

/// What carries requests to a server, and replies back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// Memory between two nodes of one process: no kernel on the way.
    Channel,
    /// Memory that two nodes of this host share, as processes do.
    Shared,
    /// UDP on loopback.
    Udp,
    Unix,
    Tcp,
}

/// In the order in which they take turns.
const SERVERS: [(Carrier, &str); 5] = [
    (Carrier::Channel, "clan/channel"),
    (Carrier::Shared, "clan/shm"),
    (Carrier::Udp, "clan/udp"),
    (Carrier::Unix, "unix/kernel, epoll"),
    (Carrier::Tcp, "tcp/kernel, epoll"),
];

/// This many times what it can do is asked of it.
const OFFERED: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
/// On this many endpoints, where there are as many.
const OVERLOADED: usize = 1000;

/// What clients saw in one round.
#[derive(Clone, Debug, Default)]
struct Seen {
    busy_ns: f64,
    idle_ns: f64,
    requests_per_s: f64,
    /// On the processor, for each request; not a number where the kernel does not say.
    server_ns: f64,
    /// Offered, served and turned away, per second.
    overload: Vec<[f64; 3]>,
}

/// With this many endpoints.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) endpoints: usize,
    pub(super) busy_us: f64,
    pub(super) idle_us: f64,
    /// One request under way on each endpoint.
    pub(super) requests_per_s: f64,
    /// What the server's thread spent on each of them, the kernel on its behalf included;
    /// `null` where the kernel does not say.
    pub(super) server_us_per_request: Option<f64>,
}

/// Requests come whether or not those before them were answered.
#[derive(Debug, Serialize)]
pub(super) struct Overload {
    pub(super) offered_per_s: f64,
    pub(super) served_per_s: f64,
    /// Found their endpoint waiting for a reply, and were not sent.
    pub(super) turned_away_per_s: f64,
}

/// Figures 8 and 9 of one server.
#[derive(Debug, Serialize)]
pub(super) struct Server {
    pub(super) name: &'static str,
    /// What the kernel offers, for comparison.
    pub(super) peer: bool,
    pub(super) points: Vec<Point>,
    /// How far the round trip is from the middle one, at most: 0.1 is flat within 10 %.
    pub(super) busy_flat_within: f64,
    pub(super) idle_flat_within: f64,
    pub(super) most_requests_per_s: f64,
    /// With most endpoints, as a share of the most.
    pub(super) kept_with_most_endpoints: f64,
    pub(super) overload_endpoints: usize,
    pub(super) overload: Vec<Overload>,
    /// What is served when most is offered, as a share of the most that is served.
    pub(super) kept_when_overloaded: f64,
}

/// What was not measured, or not in each round, and why.
#[derive(Debug, Serialize)]
pub(super) struct Absent {
    pub(super) name: &'static str,
    pub(super) endpoints: usize,
    pub(super) reason: String,
    /// It was tried, and went wrong.
    pub(super) failed: bool,
}

/// All servers, in turns.
pub(super) fn measure(
    at: &Endpoints,
    scale: Scale,
    progress: &Progress,
) -> (Vec<Server>, Vec<Absent>) {
    let mut seen = vec![vec![Vec::new(); scale.endpoints.len()]; SERVERS.len()];
    let mut absent: Vec<Absent> = Vec::new();
    for round in 0..scale.rounds {
        for (&(carrier, name), seen) in SERVERS.iter().zip(&mut seen) {
            for (&endpoints, seen) in scale.endpoints.iter().zip(seen) {
                // What failed once would take as long again.
                if absent.iter().any(|gone| gone.name == name && gone.endpoints == endpoints) {
                    continue;
                }
                let (nth, of) = (round + 1, scale.rounds);
                progress.say(&format!(
                    "Figures 8 and 9, round {nth} of {of}: {name}, {endpoints} endpoints"
                ));
                let mut lacks = |reason: String, failed: bool| {
                    absent.push(Absent { name, endpoints, reason, failed });
                };
                match why_not(carrier, endpoints) {
                    Some(reason) => lacks(reason, false),
                    None => match run(carrier, at, scale, endpoints) {
                        Ok(round) => seen.push(round),
                        Err(error) => lacks(format!("{error:#}"), true),
                    },
                }
            }
        }
    }
    let servers = SERVERS.iter().zip(&seen).filter_map(|(&(carrier, name), seen)| {
        let peer = matches!(carrier, Carrier::Unix | Carrier::Tcp);
        server(name, peer, scale, seen)
    });
    (servers.collect(), absent)
}

fn run(carrier: Carrier, at: &Endpoints, scale: Scale, endpoints: usize) -> Result<Seen> {
    match carrier {
        Carrier::Channel => ours::run(ours::Carrier::Channel, at, scale, endpoints),
        Carrier::Shared => ours::run(ours::Carrier::Shared, at, scale, endpoints),
        Carrier::Udp => ours::run(ours::Carrier::Udp, at, scale, endpoints),
        Carrier::Unix => clients::run(clients::Kind::Unix, at, scale, endpoints),
        Carrier::Tcp => clients::run(clients::Kind::Tcp, at, scale, endpoints),
    }
}

/// A connection of the kernel takes a descriptor at each end, both of this process; memory that is
/// shared, two, of bytes and filter.
fn why_not(carrier: Carrier, endpoints: usize) -> Option<String> {
    /// What the rest of the process has open.
    const REST: usize = 100;
    let each = match carrier {
        Carrier::Channel | Carrier::Udp => return None,
        Carrier::Shared => 4,
        Carrier::Unix | Carrier::Tcp => 2,
    };
    let needed = each * endpoints + REST;
    let most = open_files()?;
    let reason = || format!("{needed} open files are needed, {most} are allowed (ulimit -n)");
    (needed > most).then(reason)
}

/// How many files this process may have open, if the kernel says and it is bounded.
fn open_files() -> Option<usize> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// What the rounds come to; nothing where none was completed.
fn server(name: &'static str, peer: bool, scale: Scale, seen: &[Vec<Seen>]) -> Option<Server> {
    let middle = |of: &[Seen], figure: fn(&Seen) -> f64| median(of.iter().map(figure));
    let measured = || scale.endpoints.iter().zip(seen).filter(|(_, rounds)| !rounds.is_empty());
    let point = |(&endpoints, rounds): (&usize, &Vec<Seen>)| {
        Some(Point {
            endpoints,
            busy_us: middle(rounds, |seen| seen.busy_ns)? / 1e3,
            idle_us: middle(rounds, |seen| seen.idle_ns)? / 1e3,
            requests_per_s: middle(rounds, |seen| seen.requests_per_s)?,
            server_us_per_request: middle(rounds, |seen| seen.server_ns).map(|ns| ns / 1e3),
        })
    };
    let points: Vec<Point> = measured().map(point).collect::<Option<_>>()?;
    let (&overload_endpoints, rounds) =
        measured().rfind(|(endpoints, _)| **endpoints <= OVERLOADED)?;
    let overload: Vec<Overload> = (0..OFFERED.len())
        .map(|nth| {
            let [offered, served, turned_away] = [0, 1, 2]
                .map(|column| median(rounds.iter().map(|seen| seen.overload[nth][column])));
            Some(Overload {
                offered_per_s: offered?,
                served_per_s: served?,
                turned_away_per_s: turned_away?,
            })
        })
        .collect::<Option<_>>()?;
    let most_requests_per_s = most(points.iter().map(|point| point.requests_per_s))?;
    let most_served = most(overload.iter().map(|overload| overload.served_per_s))?;
    Some(Server {
        name,
        peer,
        busy_flat_within: unevenness(points.iter().map(|point| point.busy_us))?,
        idle_flat_within: unevenness(points.iter().map(|point| point.idle_us))?,
        most_requests_per_s,
        kept_with_most_endpoints: points.last()?.requests_per_s / most_requests_per_s,
        overload_endpoints,
        kept_when_overloaded: overload.last()?.served_per_s / most_served,
        points,
        overload,
    })
}
