//! Candidates that are compared with each other: over one link, in one
//! setting, in turn.

use anyhow::Result;
use landfall_testbed::interleave::interleave_with;
use landfall_testbed::rivals::{Plan, Workload};
use landfall_testbed::{Candidate, Error, Measured, Sample, VethPair};

use super::row::Absent;
use super::row::{Mode, Row, Subject, Tcp, figure};
use crate::style::Progress;

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
    let tcp = all.iter().filter(|(other, _)| {
        other.protocol == "tcp"
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
