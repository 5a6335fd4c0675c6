//! Both tables, from simulated traffic: what arrives is shown to receivers that
//! guess in several ways.

use anyhow::Result;
use serde::Serialize;
use spec_defrag::{HeadLens, PayloadLens, Prediction, Shape};

use super::adapter::{Score, score};
use super::paper;
use super::trace::ttcp::Disturber;
use super::trace::{Arrival, Host, Service, sor, tpcd, ttcp};

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// As much as in the paper.
    Full,
    /// A tenth: for a look at it.
    Tenth,
}

impl Scale {
    pub(super) fn of(self, full: u32) -> u32 {
        match self {
            Self::Full => full,
            Self::Tenth => full.div_ceil(10),
        }
    }
}

/// A page in fragments of an Ethernet: the lengths that the paper agrees on
/// beforehand. TCP without options.
pub(super) fn tcp() -> Prediction {
    single(HeadLens { first: 54, rest: 34 }, PayloadLens { first: 1460, middle: 1480, last: 1156 })
}

/// The same over UDP.
pub(super) fn udp() -> Prediction {
    single(HeadLens { first: 42, rest: 34 }, PayloadLens { first: 1472, middle: 1480, last: 1144 })
}

fn single(heads: HeadLens, payloads: PayloadLens) -> Prediction {
    Shape::new(3, heads, payloads).map_or(Prediction::Off, Prediction::Single)
}

/// A line of Table 1.
#[derive(Debug, Serialize)]
pub(super) struct Disturbed {
    pub(super) paper: paper::Disturbed,
    /// From where the foreign packets came.
    pub(super) from: Disturber,
    pub(super) packets: u64,
    /// With the paper's predictor.
    pub(super) failed: u64,
    /// With flows and their order learned.
    pub(super) failed_learned: u64,
    /// In virtual time, as fast as the simulated sender is.
    pub(super) megabytes_per_second: f64,
}

/// Table 1, for both places from where a disturbance may come.
pub(super) fn table_1(seed: u64, scale: Scale) -> Result<Vec<Disturbed>> {
    let mut lines = Vec::new();
    for from in [Disturber::Sender, Disturber::Another] {
        for paper in paper::TABLE_1 {
            if paper.foreign == 0 && from == Disturber::Another {
                continue; // Nobody is the same nobody.
            }
            lines.push(disturbed(seed, scale, paper, from)?);
        }
    }
    Ok(lines)
}

fn disturbed(
    seed: u64,
    scale: Scale,
    paper: paper::Disturbed,
    from: Disturber,
) -> Result<Disturbed> {
    let mut workload = ttcp::Workload::table_1(scale.of(paper.foreign), from);
    workload.pages = scale.of(workload.pages);
    let arrivals = ttcp::arrivals(seed, &workload)?;
    let (single, learned) = (score(&arrivals, tcp())?, score(&arrivals, Prediction::default())?);
    let time = match (arrivals.first(), arrivals.last()) {
        (Some(first), Some(last)) => last.at.since(first.at).as_secs_f64(),
        _ => 0.0,
    };
    Ok(Disturbed {
        paper,
        from,
        packets: single.packets,
        failed: single.failed(),
        failed_learned: learned.failed(),
        megabytes_per_second: f64::from(workload.pages) * 4096.0 / time / 1e6,
    })
}

/// Frames and packets that a station received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) total: u32,
    /// Data.
    pub(super) large: u32,
    /// Control.
    pub(super) small: u32,
}

impl Counts {
    /// Longer frames carry data. No control message of the traces is longer, no piece
    /// of a page shorter.
    const LONGEST_CONTROL: u16 = 512;

    fn of<'a>(arrivals: impl Iterator<Item = &'a Arrival>) -> Self {
        let mut counts = Self::default();
        for arrival in arrivals {
            let is_large = arrival.len > Self::LONGEST_CONTROL;
            counts.total += 1;
            *(if is_large { &mut counts.large } else { &mut counts.small }) += 1;
        }
        counts
    }
}

/// A column of Table 2.
#[derive(Debug, Serialize)]
pub(super) struct Station {
    pub(super) name: &'static str,
    pub(super) paper: paper::Station,
    pub(super) frames: Counts,
    /// The paper's predictor, nothing that prevents interference.
    pub(super) single: Score,
    /// The paper's predictor, and one fast stream at a time.
    pub(super) admitted: Score,
    /// Flows and their order are learned; nothing prevents interference.
    pub(super) learned: Score,
    /// The paper's predictor behind a switch that forwards in the order of arrival.
    pub(super) single_in_order: Score,
    /// The same, learned.
    pub(super) learned_in_order: Score,
}

/// An application of Table 2: master, host 1, host 2.
#[derive(Debug, Serialize)]
pub(super) struct Application {
    pub(super) name: &'static str,
    pub(super) stations: Vec<Station>,
}

const NAMES: [&str; 3] = ["master", "host 1", "host 2"];

/// What arrived in the three columns of an application.
type Columns = [Vec<Arrival>; 3];

/// The database: what the master received, and from each host alone.
pub(super) fn tpc_d(seed: u64, scale: Scale) -> Result<Application> {
    let mut full = tpcd::Workload::TABLE_2;
    full.queries = scale.of(full.queries);
    application("TPC-D", paper::TPC_D, tcp(), |service, is_gated| {
        let mut workload = full.clone();
        (workload.network.service, workload.network.is_gated) = (service, is_gated);
        let [master, ..] = tpcd::arrivals(seed, &workload)?;
        let from = |host: Host| {
            let is_from = |arrival: &&Arrival| arrival.from() == Some(host);
            master.iter().filter(is_from).copied().collect()
        };
        let (one, two) = (from(1), from(2));
        Ok([master, one, two])
    })
}

/// Distributed shared memory: what each station received.
pub(super) fn tread_marks(seed: u64, scale: Scale) -> Result<Application> {
    let mut full = sor::Workload::TABLE_2;
    full.sections = scale.of(full.sections);
    application("SOR", paper::SOR, udp(), |service, is_gated| {
        let mut workload = full;
        (workload.network.service, workload.network.is_gated) = (service, is_gated);
        sor::arrivals(seed, &workload)
    })
}

/// Runs an application on three networks and shows what arrived to receivers.
fn application(
    name: &'static str,
    paper: [paper::Station; 3],
    single: Prediction,
    run: impl Fn(Service, bool) -> Result<Columns>,
) -> Result<Application> {
    let plain = run(Service::InTurn, false)?;
    let gated = run(Service::InTurn, true)?;
    let in_order = run(Service::InOrder, false)?;
    let stations = (0..3).map(|n| {
        Ok(Station {
            name: NAMES[n],
            paper: paper[n],
            frames: Counts::of(plain[n].iter()),
            single: score(&plain[n], single)?,
            admitted: score(&gated[n], single)?,
            learned: score(&plain[n], Prediction::default())?,
            single_in_order: score(&in_order[n], single)?,
            learned_in_order: score(&in_order[n], Prediction::default())?,
        })
    });
    Ok(Application { name, stations: stations.collect::<Result<_>>()? })
}
