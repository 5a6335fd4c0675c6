//! Words and messages of growing length between two processes of this machine, between
//! two nodes over UDP on loopback, and through the kernel's own sockets. All take turns.

use anyhow::{Context, Result};
use landfall_testbed::interleave::interleave_with;
use landfall_testbed::rivals::{
    Amount, Endpoints, Plan, Polling, StreamShape, TcpLatency, TcpThroughput, UnixLatency,
    UnixThroughput,
};
use landfall_testbed::{Candidate, Error, Measured, Sample, Spread};
use serde::Serialize;

use super::Scale;
use crate::style::Progress;
use crate::workload::clan::job::{Job, Waiting, Work};
use crate::workload::clan::network::{Carrier, Crossing};
use crate::workload::clan::{bare, network, process};

/// Round trips of short messages that are timed as one, where a clock costs as much as
/// one of them.
const TOGETHER: u32 = 16;
/// Messages up to here are short.
const SHORT: u32 = 4096;
/// What UDP on loopback takes whole.
const MTU: u32 = 65_536;

/// How bytes get from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Memory of another process.
    Shm,
    /// Memory of another node, over UDP.
    Udp,
    /// The same, fetched by the adapter.
    UdpDma,
    /// A stream through shared memory, each message acknowledged before the next.
    ShmStopAndGo,
    UdpStopAndGo,
    /// Sockets.
    Unix,
    Tcp,
}

impl Method {
    const fn is_peer(self) -> bool {
        matches!(self, Self::Unix | Self::Tcp)
    }
}

/// A word there and back.
#[derive(Debug, Serialize)]
pub(super) struct RoundTrip {
    pub(super) name: &'static str,
    pub(super) peer: bool,
    pub(super) us: f64,
}

/// Something that takes its turn: a name, and what is done.
struct Subject {
    name: &'static str,
    method: Method,
    bytes: u32,
}

/// What the whole sweep needs.
pub(super) struct Sweep<'a> {
    pub(super) endpoints: &'a Endpoints,
    pub(super) scale: Scale,
    pub(super) progress: &'a Progress,
}

/// A way, and how it is called.
type Named = (Method, &'static str);

const WORDS: [Named; 4] = [
    (Method::Shm, "clan/shm"),
    (Method::Udp, "clan/udp"),
    (Method::Unix, "unix/kernel"),
    (Method::Tcp, "tcp/kernel"),
];

const FIGURE_7: [Named; 5] = [
    (Method::Shm, "clan/shm"),
    (Method::Udp, "clan/udp"),
    (Method::UdpDma, "clan/udp, DMA"),
    (Method::Unix, "unix/kernel"),
    (Method::Tcp, "tcp/kernel"),
];

const FIGURE_10: [Named; 6] = [
    (Method::ShmStopAndGo, "clan/shm (a)"),
    (Method::Shm, "clan/shm (b)"),
    (Method::UdpStopAndGo, "clan/udp (a)"),
    (Method::Udp, "clan/udp (b)"),
    (Method::Unix, "unix/kernel (b)"),
    (Method::Tcp, "tcp/kernel (b)"),
];

impl Sweep<'_> {
    fn plan(&self) -> Plan {
        let plan = Plan::new(self.endpoints.clone(), Amount::Time(self.scale.time));
        Plan { limit: self.scale.limit, ..plan }
    }

    fn job(&self, work: Work, waiting: Waiting) -> Job {
        Job { work, waiting, time: self.scale.time, limit: self.scale.limit, core: None }
    }

    /// A word there and back, spinning; last what two cores give without anything.
    pub(super) fn words(&self) -> Result<Vec<RoundTrip>> {
        let subject = |&(method, name): &Named| Subject { name, method, bytes: 8 };
        let subjects: Vec<Subject> = WORDS.iter().map(subject).collect();
        let measured =
            self.take_turns("word", &subjects, |subject| self.there_and_back(subject))?;
        let mut trips = Vec::new();
        for (subject, measured) in subjects.iter().zip(&measured) {
            let us = measured.median(Sample::rtt_p50_ns).context("no round was completed")? / 1e3;
            trips.push(RoundTrip { name: subject.name, peer: subject.method.is_peer(), us });
        }
        let time = (self.scale.time, self.scale.limit);
        let us = bare::ping_pong(self.endpoints, time, TOGETHER)?.rtt_p50_ns() / 1e3;
        trips.push(RoundTrip { name: "memory/bare, two words", peer: true, us });
        Ok(trips)
    }

    /// Messages written, and their end seen. How long one takes is what it takes there,
    /// answered with a word, less half a round trip of words; of sockets, which return
    /// the message, it is half of that.
    pub(super) fn figure_7(&self) -> Result<Vec<Curve>> {
        let run = |subject: &Subject| self.there_and_back(subject);
        self.curves("Figure 7", &FIGURE_7, run, |method, _, measured, shortest| {
            let trip = |measured: &Measured| measured.median(Sample::rtt_p50_ns);
            let there_and_back = trip(measured)?;
            let of_word = if method.is_peer() { there_and_back } else { trip(shortest)? };
            // A word takes no longer than a message, whatever the machine did meanwhile.
            Some(there_and_back - of_word.min(there_and_back) / 2.0)
        })
    }

    /// Messages in one direction: (a) each acknowledged before the next, (b) streaming.
    pub(super) fn figure_10(&self) -> Result<Vec<Curve>> {
        let run = |subject: &Subject| self.in_one_direction(subject);
        self.curves("Figure 10", &FIGURE_10, run, |_, bytes, measured, _| {
            measured.median(|sample| f64::from(bytes) * 1e9 / sample.goodput())
        })
    }

    /// Measures each way at each length. `time` says how many nanoseconds a message of
    /// this length took; last it is given what the shortest did.
    fn curves(
        &self,
        figure: &str,
        ways: &[Named],
        run: impl Fn(&Subject) -> Result<Sample>,
        time: impl Fn(Method, u32, &Measured, &Measured) -> Option<f64>,
    ) -> Result<Vec<Curve>> {
        let sizes = self.scale.sizes;
        let all = |&(method, name): &Named| {
            sizes.iter().map(move |&bytes| Subject { name, method, bytes })
        };
        let subjects: Vec<Subject> = ways.iter().flat_map(all).collect();
        let measured = self.take_turns(figure, &subjects, run)?;
        let curve = |(&(method, name), measured): (&Named, &[Measured])| {
            let point = |(&bytes, of_it): (&u32, &Measured)| {
                Some(Point::new(bytes.into(), time(method, bytes, of_it, measured.first()?)?))
            };
            let points = sizes.iter().zip(measured).map(point).collect::<Option<_>>()?;
            Curve::new(name, method.is_peer(), points)
        };
        let curves = ways.iter().zip(measured.chunks(sizes.len())).map(curve);
        curves.collect::<Option<_>>().context("no round was completed")
    }

    fn take_turns(
        &self,
        what: &str,
        subjects: &[Subject],
        run: impl Fn(&Subject) -> Result<Sample>,
    ) -> Result<Vec<Measured>> {
        let label = |subject: &Subject| format!("{}, {} bytes", subject.name, subject.bytes);
        let run = &run;
        let candidate = |subject| {
            Candidate::new(label(subject), move || {
                run(subject).map_err(|error| Error::Candidate {
                    label: label(subject),
                    source: error.into(),
                })
            })
        };
        let mut candidates: Vec<Candidate<'_>> = subjects.iter().map(candidate).collect();
        let rounds = self.scale.rounds;
        let comparison = interleave_with(rounds, &mut candidates, |round, label| {
            self.progress.say(&format!("{what}, round {} of {rounds}: {label}", round + 1));
        });
        drop(candidates);
        let mut measured = comparison.measured;
        match measured.iter_mut().find_map(|measured| measured.failure.take()) {
            Some(failure) => Err(failure.into()),
            None => Ok(measured),
        }
    }

    fn there_and_back(&self, subject: &Subject) -> Result<Sample> {
        let Subject { method, bytes, .. } = *subject;
        let is_short = method == Method::Shm && bytes <= SHORT;
        let together = if is_short { TOGETHER } else { 1 };
        let work = Work::Message { bytes, dma: method == Method::UdpDma, together };
        // The sides spin; the threads of their own that nodes have do not.
        let job = self.job(work, Waiting::Balanced);
        let (plan, message) = (self.plan().polling(Polling::Spin), bytes as usize);
        let warm_up = self.scale.warm_up;
        match method {
            Method::Shm | Method::ShmStopAndGo => process::run(self.endpoints, &job),
            Method::Unix => Ok(UnixLatency { warm_up, ..UnixLatency::new(plan, message) }.run()?),
            Method::Tcp => Ok(TcpLatency { warm_up, ..TcpLatency::new(plan, message) }.run()?),
            Method::Udp | Method::UdpDma | Method::UdpStopAndGo => {
                network::run(self.endpoints, &job, (Carrier::Udp { mtu: MTU }, Crossing::Plain))
            }
        }
    }

    fn in_one_direction(&self, subject: &Subject) -> Result<Sample> {
        let Subject { method, bytes, .. } = *subject;
        let acknowledged = matches!(method, Method::ShmStopAndGo | Method::UdpStopAndGo);
        // They sleep when it takes longer than a wake: that is how programs use it.
        let job = self.job(Work::Bytes { message: bytes, acknowledged }, Waiting::Balanced);
        let (send_size, usual) = (bytes as usize, StreamShape::default());
        let shape = StreamShape { send_size, memory: usual.memory.max(send_size), ..usual };
        match method {
            Method::Shm | Method::ShmStopAndGo => process::run(self.endpoints, &job),
            Method::Unix => Ok(UnixThroughput { shape, ..UnixThroughput::new(self.plan()) }.run()?),
            Method::Tcp => Ok(TcpThroughput { shape, ..TcpThroughput::new(self.plan()) }.run()?),
            Method::Udp | Method::UdpDma | Method::UdpStopAndGo => {
                network::run(self.endpoints, &job, (Carrier::Udp { mtu: MTU }, Crossing::Plain))
            }
        }
    }
}

// Bandwidth against size: its peak, where half of it is reached, and what a message
// costs whatever its length. And order in a handful of figures.

/// A point of a curve: a message of this length takes this long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) bytes: u64,
    pub(super) ns: f64,
    pub(super) mbit_per_s: f64,
}

impl Point {
    pub(super) fn new(bytes: u64, ns: f64) -> Self {
        Self { bytes, ns, mbit_per_s: bytes as f64 * 8e3 / ns }
    }
}

/// How fast one way of sending is at each length, and what sums that up: its peak, the length
/// that has half of it, and what it takes to begin.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// What the kernel offers, for comparison.
    pub(super) peer: bool,
    pub(super) points: Vec<Point>,
    pub(super) peak_mbit_per_s: f64,
    /// The length with half of the peak; nothing where the shortest message has more.
    pub(super) half_of_peak_bytes: Option<f64>,
    /// What the shortest message takes beyond its bytes at the peak.
    pub(super) set_up_us: f64,
}

impl Curve {
    /// From points in the order of their lengths; nothing without points.
    pub(super) fn new(name: &'static str, peer: bool, points: Vec<Point>) -> Option<Self> {
        let peak_mbit_per_s = most(points.iter().map(|point| point.mbit_per_s))?;
        let shortest = points.first()?;
        let set_up_us = (shortest.ns - shortest.bytes as f64 * 8e3 / peak_mbit_per_s) / 1e3;
        let half_of_peak_bytes = half(&points, peak_mbit_per_s / 2.0);
        Some(Self { name, peer, points, peak_mbit_per_s, half_of_peak_bytes, set_up_us })
    }

    pub(super) fn at(&self, bytes: u64) -> Option<&Point> {
        self.points.iter().find(|point| point.bytes == bytes)
    }
}

/// The length that first reaches this bandwidth: between two points a byte more takes
/// the same time each.
fn half(points: &[Point], mbit_per_s: f64) -> Option<f64> {
    let reaches = points.iter().position(|point| point.mbit_per_s >= mbit_per_s)?;
    let (before, after) = (points.get(reaches.checked_sub(1)?)?, &points[reaches]);
    let (from, to) = (before.bytes as f64, after.bytes as f64);
    let ns_per_byte = (after.ns - before.ns) / (to - from);
    let bytes_per_ns = mbit_per_s / 8e3;
    // bytes = bytes_per_ns × (before.ns + (bytes - from) × ns_per_byte)
    let bytes =
        bytes_per_ns * (before.ns - from * ns_per_byte) / (1.0 - bytes_per_ns * ns_per_byte);
    Some(bytes.clamp(from, to))
}

/// The middle of them; nothing of nothing.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Spread::of(values)?.median)
}

pub(super) fn most(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Spread::of(values)?.max)
}

/// How far the one farthest away is from the middle, as a share of it: 0.1 is "flat
/// within 10 %".
pub(super) fn unevenness(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let spread = Spread::of(values)?;
    let farthest = (spread.max - spread.median).max(spread.median - spread.min);
    Some(farthest / spread.median)
}
