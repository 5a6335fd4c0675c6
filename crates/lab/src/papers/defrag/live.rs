//! The figures of the paper on a cable of this machine: Table 1, and Figures 4 and 5.
//! All bars take turns, and one sender serves them all.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result};
use landfall::defrag::{Delivery, Prediction, Technique, Wanted};
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use landfall_testbed::{Candidate, Error, Measured, VethConfig, VethPair, interleave, privileges};
use serde::Serialize;

use super::paper;
use super::paper::Bar as PaperBar;
use super::tables::Scale;
use crate::reproduce::live::Found;
use crate::workload::defrag;
use crate::workload::defrag::{Cut, Foreign, Join, Work, papers_predictor};

/// A page of memory.
const PAGE: u32 = 4096;
/// As many as in Table 1.
const PAGES: u32 = 100_000;

/// A bar of a figure.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub(super) figure: u8,
    pub(super) paper: PaperBar,
    pub(super) megabytes_per_second: f64,
    /// Of the standard at both ends, round by round.
    pub(super) of_standard: f64,
    pub(super) receiver_cpu_s_per_gb: f64,
    pub(super) user_copied_bytes: u64,
    /// The share of packets that were joined without a copy; nothing where the kernel
    /// joins.
    pub(super) in_place: Option<f64>,
}

/// A line of Table 1.
#[derive(Debug, Serialize)]
pub(super) struct Disturbed {
    pub(super) paper: paper::Disturbed,
    pub(super) predictor: &'static str,
    pub(super) packets: u64,
    /// In the round with most of them.
    pub(super) failed: u64,
    pub(super) megabytes_per_second: f64,
    /// Of the undisturbed transfer, round by round.
    pub(super) of_undisturbed: f64,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    pub(super) rounds: usize,
    pub(super) table_1: Vec<Disturbed>,
    pub(super) bars: Vec<Bar>,
}

/// Why nothing can be measured here; `None` when it can.
pub(super) fn why_not() -> Option<String> {
    privileges::why_no_namespaces().or_else(defrag::why_not)
}

/// What a bar or a line is measured by.
struct Subject {
    label: String,
    work: Work,
    /// Packets, where they are counted.
    pages: Option<u64>,
    failed: Cell<u64>,
}

impl Subject {
    fn new(label: String, work: Work, pages: Option<u64>) -> Self {
        Self { label, work, pages, failed: Cell::new(0) }
    }
}

const PREDICTORS: [&str; 2] = ["the paper's", "learned"];

/// Table 1, with both predictors.
fn disturbed(scale: Scale) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for (name, prediction) in
        PREDICTORS.into_iter().zip([papers_predictor(), Prediction::default()])
    {
        for line in paper::TABLE_1 {
            let every = PAGES.checked_div(line.foreign);
            let join = Join { prediction, wanted: Wanted::Ip, ..Join::guessing(Technique::Packet) };
            let work = Work {
                page: PAGE,
                cut: Cut::Sender,
                join: Some(join),
                foreign: every.map(|every| Foreign { every }),
            };
            let label = format!("Table 1, {} foreign packets, {name} predictor", line.foreign);
            subjects.push(Subject::new(label, work, Some(scale.of(PAGES).into())));
        }
    }
    subjects
}

/// Figures 4 and 5, in the order of `paper::BARS`.
fn bars() -> [Work; paper::BARS.len()] {
    let standard = Work { page: PAGE, cut: Cut::Socket, join: None, foreign: None };
    let cut_by_us = Work { cut: Cut::Sender, ..standard };
    let guessing = Join::guessing(Technique::Packet);
    let with = |delivery| Work { join: Some(Join { delivery, ..guessing }), ..cut_by_us };
    let disturbed = Join { wanted: Wanted::Ip, prediction: papers_predictor(), ..guessing };
    [
        standard,
        with(Delivery::Copy),
        with(Delivery::Remap),
        with(Delivery::FastBuffers),
        cut_by_us,
        Work { join: Some(guessing), ..standard },
        Work { join: Some(disturbed), foreign: Some(Foreign { every: 1 }), ..cut_by_us },
    ]
}

/// Measures all of it, in turns.
pub(super) fn measure(scale: Scale) -> Result<Live> {
    let (rounds, time) = match scale {
        Scale::Full => (5, Duration::from_millis(500)),
        Scale::Tenth => (1, Duration::from_millis(30)),
    };
    let pair = VethPair::new(VethConfig::default())?;
    let plan = Plan::new(Endpoints::over(&pair)?, Amount::Time(time));
    let mut subjects = disturbed(scale);
    let lines = subjects.len();
    let named = paper::BARS.iter().zip(bars());
    subjects.extend(named.map(|(bar, work)| Subject::new(bar.name.to_owned(), work, None)));
    let run = |subject: &Subject| {
        let amount = subject.pages.map_or(plan.amount, Amount::Messages);
        let plan = Plan { amount, ..plan.clone() };
        let outcome = defrag::run(&plan, &pair, subject.work).map_err(|error| {
            Error::Candidate { label: subject.label.clone(), source: error.into() }
        })?;
        subject.failed.set(subject.failed.get().max(outcome.failed));
        Ok(outcome.sample)
    };
    let mut candidates: Vec<_> = subjects
        .iter()
        .map(|subject| Candidate::new(subject.label.clone(), || run(subject)))
        .collect();
    let mut measured = interleave(rounds, &mut candidates).measured;
    drop(candidates);
    for measured in &mut measured {
        if let Some(failure) = measured.failure.take() {
            return Err(failure.into());
        }
    }
    let (first, second) = measured.split_at(lines);
    let table_1 = lines_of(first, &subjects).context("no round was completed")?;
    let bars = bars_of(second).context("no round was completed")?;
    Ok(Live { rounds, table_1, bars })
}

fn speed(measured: &Measured) -> Option<f64> {
    Some(measured.median(|sample| sample.goodput())? / 1e6)
}

fn lines_of(measured: &[Measured], subjects: &[Subject]) -> Option<Vec<Disturbed>> {
    let count = paper::TABLE_1.len();
    measured
        .iter()
        .enumerate()
        .map(|(nth, one)| {
            let undisturbed = &measured[nth / count * count];
            Some(Disturbed {
                paper: paper::TABLE_1[nth % count],
                predictor: PREDICTORS[nth / count],
                packets: subjects[nth].pages?,
                failed: subjects[nth].failed.get(),
                megabytes_per_second: speed(one)?,
                of_undisturbed: one.ratio_to(undisturbed, |sample| sample.goodput())?,
            })
        })
        .collect()
}

fn bars_of(measured: &[Measured]) -> Option<Vec<Bar>> {
    let standard = measured.first()?;
    let bar = |(paper, one): (&PaperBar, &Measured)| {
        Some(Bar {
            figure: paper.figure,
            paper: *paper,
            megabytes_per_second: speed(one)?,
            of_standard: one.ratio_to(standard, |sample| sample.goodput())?,
            receiver_cpu_s_per_gb: one.median(|sample| sample.cpu_per_gb().receive_s)?,
            user_copied_bytes: one.samples.iter().map(|sample| sample.user_copied_bytes).max()?,
            in_place: one.samples.iter().filter_map(|sample| sample.in_place).next_back(),
        })
    };
    paper::BARS.iter().zip(measured).map(bar).collect()
}

// What was measured on a cable of this machine, for the page that has the paper and the
// model of its adapter.

/// The rows of Figures 4 and 5 there, in the order of `paper::BARS`.
const ROWS: [&str; super::paper::BARS.len()] = [
    "standard",
    "defragmented in place, but copied to the user",
    "with page remapping",
    "with fast buffers",
    "our fragments, standard receiver",
    "standard sender, our receiver",
    "standard sender, our receiver, every guess missed",
];

/// Measures in some twenty seconds; gives what was found, and what could not be.
pub(crate) fn found(quick: bool) -> Result<(Vec<Found>, Vec<String>)> {
    if let Some(why) = why_not() {
        return Ok((Vec::new(), vec![format!("Figures 4 and 5, Table 1: {why}")]));
    }
    let measured = measure(if quick { Scale::Tenth } else { Scale::Full })?;
    let mut found = Vec::new();
    for (bar, row) in measured.bars.iter().zip(ROWS) {
        let exhibit = if bar.figure == 4 { "Figure 4" } else { "Figure 5" };
        let by = format!("pages of 4 KiB on a cable; {:.2} of standard", bar.of_standard);
        found.push(Found::new(exhibit, row, "MB/s (10^6)", bar.megabytes_per_second, by));
    }
    for line in &measured.table_1 {
        let row = match line.paper.foreign {
            0 => "0 packets interfered".to_owned(),
            10_000 => "10,000".to_owned(),
            other => other.to_string(),
        };
        let by = format!("{} packets, {} predictor", line.packets, line.predictor);
        let failed = line.failed as f64;
        found.push(Found::new("Table 1", row.clone(), "failed packets", failed, by.clone()));
        found.push(Found::new("Table 1", row, "MB/s (10^6)", line.megabytes_per_second, by));
    }
    Ok((found, Vec::new()))
}
