//! `landfall perf local`: both ends on this machine.
//!
//! Candidates that are compared with each other: over one link, in one
//! setting, in turn.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use landfall_testbed::interleave::interleave_with;
use landfall_testbed::rivals::{Amount, Endpoints, Plan, Workload};
use landfall_testbed::{
    Candidate, Error, IdleMeter, Measured, Sample, VethConfig, VethPair, privileges,
};

use super::chosen::{self, Chosen};
use super::options::{Options, Protocol};
use super::row::{Absent, Mode, Row, Subject, Tcp, figure};
use super::{Report, Results, clan, defrag, nbd, qpip, rivals, stp};
use crate::style::Progress;

/// The MTU of the loopback interface.
const LOOPBACK_MTU: u32 = 65_536;
/// What a cable may have; see `VethConfig`.
const MTU_RANGE: std::ops::RangeInclusive<i64> = 1280..=65_536;

/// A run that takes so much longer than it should has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long idle meters run alone, to learn how far they come.
const CALIBRATION: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  landfall perf local                          over loopback
  sudo landfall perf local --veth              between two namespaces
  sudo landfall perf local --veth --mtu 1500 --rounds 9 --seconds 2
  landfall perf local --sweep --protocol stp,qpip --plot sweep.svg
  landfall perf local --connections 100 --protocol stp
  landfall perf local --loss 0.01 --protocol stp,qpip
  landfall perf local --workload all --idle-meter --protocol stp
  landfall perf local --json | jq '.rows[] | {protocol, transport, ratio_to_tcp}'

Kernel TCP is always measured, since the others are compared with it.
With --message, --sweep, --connections, --loss or --workload there is a row for each transport
that can do it, and a reason on stderr for each that cannot.
The fields of --json are described in docs/perf-json.md.";

/// Options of `landfall perf local`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Between two network namespaces of our own (as root) instead of loopback
    #[arg(long)]
    veth: bool,
    /// MTU of the link; over loopback units are only sized for it
    /// [default: 1500,9000 with --veth, else 65536]
    #[arg(long, value_name = "BYTES", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(MTU_RANGE))]
    mtu: Vec<u32>,
    #[command(flatten)]
    options: Options,
}

impl Args {
    fn mtus(&self) -> Vec<u32> {
        let mut mtus = match (&self.mtu[..], self.veth) {
            ([], true) => vec![1500, 9000],
            ([], false) => vec![LOOPBACK_MTU],
            (given, _) => given.to_vec(),
        };
        let mut seen = Vec::new();
        mtus.retain(|mtu| {
            !seen.contains(mtu) && {
                seen.push(*mtu);
                true
            }
        });
        mtus
    }
}

/// A thread of the lowest priority on each core that a side has.
pub(crate) fn idle_meter(endpoints: &Endpoints) -> Result<Arc<IdleMeter>> {
    let cores: Vec<usize> =
        [endpoints.send.core, endpoints.receive.core].into_iter().flatten().collect();
    Ok(Arc::new(IdleMeter::start(&cores, CALIBRATION)?))
}

/// Measures, and prints the result.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.veth
        && let Some(why) = privileges::why_no_namespaces()
    {
        bail!(
            "--veth: {why}; `landfall doctor` says what to do, and without --veth no \
               privilege is needed"
        );
    }
    let options = &args.options;
    super::report::check(options.plot.as_deref())?;
    let mut results = Results::default();
    let progress = Progress::on_stderr();
    let idle_meter =
        if options.idle_meter { Some(idle_meter(&Endpoints::loopback()?)?) } else { None };
    for mtu in args.mtus() {
        let pair = if args.veth {
            Some(VethPair::new(VethConfig { mtu, ..VethConfig::default() })?)
        } else {
            None
        };
        let endpoints = pair.as_ref().map_or_else(Endpoints::loopback, Endpoints::over)?;
        results.pinned &= endpoints.send.core != endpoints.receive.core;
        let mut plan = Plan::new(endpoints, Amount::Time(options.seconds));
        (plan.limit, plan.idle_meter) = (PATIENCE, idle_meter.clone());
        let link = Link { plan: &plan, pair: pair.as_ref(), mtu };
        let chosen = options.chosen();
        if chosen.is_empty() {
            everything(options, link, &mut results, &progress)?;
        }
        for chosen in &chosen {
            chosen_groups(options, link, chosen, &mut results, &progress)?;
        }
    }
    drop((progress, idle_meter));
    Report::new(options, results, if args.veth { "veth" } else { "loopback" }).present(options)
}

/// Between what it is measured.
#[derive(Clone, Copy)]
struct Link<'a> {
    plan: &'a Plan,
    pair: Option<&'a VethPair>,
    mtu: u32,
}

impl<'a> Link<'a> {
    /// Measures a group with super-packets, and another where each frame of the MTU
    /// really crosses.
    fn both_ways(
        self,
        make: &dyn Fn(Setting<'a>) -> Group<'a>,
        mut measure: impl FnMut(Group<'a>),
    ) -> Result<()> {
        measure(make(self.setting(true)));
        if let Some(pair) = self.pair {
            pair.set_real_frames(true)?;
            measure(make(self.setting(false)));
            pair.set_real_frames(false)?;
        }
        Ok(())
    }

    fn setting(self, offload: bool) -> Setting<'a> {
        let Self { plan, pair, mtu } = self;
        Setting { plan, pair, mtu, offload }
    }
}

fn everything(
    options: &Options,
    link: Link<'_>,
    results: &mut Results,
    progress: &Progress,
) -> Result<()> {
    let rounds = options.rounds.into();
    link.both_ways(&|setting| throughput(options, setting), |group| {
        results.add(group.measure(rounds, progress));
    })?;
    results.add(latency(options, link.setting(true)).measure(rounds, progress));
    if options.wants(Protocol::Qpip) {
        results.add(overhead(link.setting(true)).measure(rounds, progress));
    }
    Ok(())
}

fn chosen_groups(
    options: &Options,
    link: Link<'_>,
    chosen: &Chosen,
    results: &mut Results,
    progress: &Progress,
) -> Result<()> {
    let rounds = options.rounds.into();
    let wants = |protocol| options.wants(protocol);
    let throughput = |setting| {
        let mut group = Group::new(setting);
        chosen::add_throughput(&mut group, chosen, wants);
        group
    };
    link.both_ways(&throughput, |group| results.add(group.measure(rounds, progress)))?;
    let mut latency = Group::new(link.setting(true));
    chosen::add_latency(&mut latency, chosen, wants);
    results.add(latency.measure(rounds, progress));
    Ok(())
}

/// Adds the candidates of a protocol to a group.
type Add = for<'a> fn(&mut Group<'a>);

/// What each protocol of ours adds: to what is streamed, and to what goes there and back.
const OURS: [(Protocol, Add, Option<Add>); 5] = [
    (Protocol::Stp, stp::add_throughput, Some(stp::add_latency)),
    (Protocol::Qpip, qpip::add_throughput, Some(qpip::add_latency)),
    (Protocol::Defrag, defrag::add_throughput, None),
    (Protocol::Clan, clan::add_throughput, Some(clan::add_latency)),
    (Protocol::Nbd, nbd::add_throughput, Some(nbd::add_latency)),
];

fn throughput<'a>(options: &Options, setting: Setting<'a>) -> Group<'a> {
    let mut group = Group::new(setting);
    rivals::add_tcp(&mut group);
    if options.wants(Protocol::Udp) {
        rivals::add_udp(&mut group);
    }
    if options.wants(Protocol::Unix) && setting.pair.is_none() {
        rivals::add_unix(&mut group);
    }
    if options.wants(Protocol::Stp) && setting.pair.is_none() {
        rivals::add_memcpy(&mut group);
    }
    let wanted = OURS.iter().filter(|(protocol, ..)| options.wants(*protocol));
    wanted.for_each(|(_, add, _)| add(&mut group));
    group
}

fn latency<'a>(options: &Options, setting: Setting<'a>) -> Group<'a> {
    let mut group = Group::new(setting);
    rivals::add_latency(&mut group, |protocol| options.wants(protocol));
    let wanted = OURS.iter().filter(|(protocol, ..)| options.wants(*protocol));
    wanted.filter_map(|(_, _, add)| *add).for_each(|add| add(&mut group));
    group
}

/// Only queue pairs can leave the work to somebody else.
pub(crate) fn overhead(setting: Setting<'_>) -> Group<'_> {
    let mut group = Group::new(setting);
    rivals::add_overhead(&mut group);
    qpip::add_overhead(&mut group);
    group
}

/// Where and how a group is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) plan: &'a Plan,
    /// The cable; `None` over loopback.
    pub(crate) pair: Option<&'a VethPair>,
    pub(crate) mtu: u32,
    /// Super-packets may cross the link whole.
    pub(crate) offload: bool,
}

/// Candidates, in the order in which they take turns.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) setting: Setting<'a>,
    subjects: Vec<Subject>,
    candidates: Vec<Candidate<'a>>,
    absent: Vec<Absent>,
}

impl<'a> Group<'a> {
    pub(crate) fn new(setting: Setting<'a>) -> Self {
        Self { setting, subjects: Vec::new(), candidates: Vec::new(), absent: Vec::new() }
    }

    /// The cable, where it carries frames of the MTU and some of them can be lost.
    pub(crate) fn lossy_cable(&self) -> Option<&'a VethPair> {
        self.setting.pair.filter(|_| !self.setting.offload)
    }

    /// Adds a rival, whose run is the testbed's.
    pub(crate) fn add_rival(
        &mut self,
        subject: Subject,
        run: impl FnMut() -> Result<Sample, Error> + 'a,
    ) {
        self.candidates.push(Candidate::new(subject.label(), run));
        self.subjects.push(subject);
    }

    /// Adds one of ours.
    pub(crate) fn add(&mut self, subject: Subject, mut run: impl FnMut() -> Result<Sample> + 'a) {
        let label = subject.label();
        let named = label.clone();
        let run = move || {
            run().map_err(|error| Error::Candidate { label: named.clone(), source: error.into() })
        };
        self.candidates.push(Candidate::new(label, run));
        self.subjects.push(subject);
    }

    /// Is there such a candidate already?
    pub(crate) fn has(&self, protocol: &str, mode: Mode, polling: bool) -> bool {
        let is_it = |subject: &Subject| {
            (subject.protocol, subject.mode, subject.polling) == (protocol, mode, polling)
        };
        self.subjects.iter().any(is_it)
    }

    /// Notes what cannot be measured here.
    pub(crate) fn lacks(
        &mut self,
        (protocol, transport): (&'static str, &'static str),
        mode: Mode,
        reason: &str,
    ) {
        self.absent.push(Absent {
            protocol,
            transport,
            mode: mode.as_str(),
            mtu: self.setting.mtu,
            offload: self.setting.offload,
            reason: reason.to_owned(),
            failed: false,
        });
    }

    /// Lets all take their turns. Gives the rows, and what is absent.
    pub(crate) fn measure(self, rounds: usize, progress: &Progress) -> (Vec<Row>, Vec<Absent>) {
        let Self { setting, subjects, mut candidates, mut absent } = self;
        let Setting { mtu, offload, .. } = setting;
        let count = candidates.len();
        let mut nth = 0;
        let comparison = interleave_with(rounds, &mut candidates, |round, label| {
            nth = nth % count + 1;
            let round = round + 1;
            progress.say(&format!("MTU {mtu}, round {round} of {rounds}, {nth}/{count}: {label}"));
        });
        let all: Vec<_> = subjects.into_iter().zip(comparison.measured).collect();
        let mut rows = Vec::new();
        for (subject, measured) in &all {
            let tcp = Tcp {
                best: best_tcp(&all, subject, |_| true),
                same: best_tcp(&all, subject, |tcp| tcp.message_bytes == subject.message_bytes),
            };
            rows.extend(Row::new(subject, (mtu, offload), measured, tcp));
            if let Some(failure) = &measured.failure {
                absent.push(Absent {
                    protocol: subject.protocol,
                    transport: subject.transport,
                    mode: subject.mode.as_str(),
                    mtu,
                    offload,
                    reason: with_causes(failure),
                    failed: true,
                });
            }
        }
        (rows, absent)
    }
}

/// The best row of kernel TCP in the subject's mode and way of waiting, of those
/// that compete: of those that deliver the bytes, and read them where the subject does.
fn best_tcp<'m>(
    all: &'m [(Subject, Measured)],
    subject: &Subject,
    competes: impl Fn(&Subject) -> bool,
) -> Option<&'m Measured> {
    let median = |measured: &Measured| {
        let median = measured.median(|sample| figure(subject.mode, sample))?;
        Some(if subject.mode == Mode::Throughput { median } else { -median })
    };
    let workload =
        if subject.workload == Workload::Touch { Workload::Touch } else { Workload::Plain };
    // What is lost on purpose is compared with TCP that loses as much, where there is one.
    let lossy = |other: &Subject| other.protocol == "tcp" && other.loss == subject.loss;
    let loss = if all.iter().any(|(other, _)| lossy(other)) { subject.loss } else { 0.0 };
    let tcp = all.iter().filter(|(other, _)| {
        other.protocol == "tcp"
            && other.loss == loss
            && other.mode == subject.mode
            && other.polling == subject.polling
            && other.workload == workload
            && competes(other)
    });
    let best = tcp.filter_map(|(_, measured)| Some((median(measured)?, measured)));
    best.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, measured)| measured)
}

fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text += &format!(": {next}");
        }
        cause = error.source();
    }
    text
}
