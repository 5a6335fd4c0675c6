//! Memory written into the other side's memory by DMA, request after request: no layer
//! above, no copy of ours where it leaves, and none where it is used.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use landfall::clan::{Access, Error, Fabric, Local, Remote, Rights, Stage, Tripwire, WORD};
use landfall_testbed::RttHistogram;
use landfall_testbed::cpu::{CpuMeter, TaskUse};

use super::bytes::WALK;
use super::job::{Answered, Asked, Job};
use super::meet::Meet;
use crate::workload::Pattern;

/// So many requests are under way.
const UNDER_WAY: usize = 8;
/// Where it says how many requests there were, and one more.
const COUNT: u64 = WALK as u64;
/// Memory is filled and looked at in such pieces.
const PIECE: usize = 64 << 10;

/// The place of request `nth`.
fn slot(nth: u64, request: u64) -> u64 {
    nth % (WALK as u64 / request).max(1) * request
}

pub(super) fn write<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
    request: u32,
) -> Result<Asked> {
    let request = u64::from(request);
    let (memory, _) = fabric.expose(WALK as u64, Rights::Read)?;
    let mut bytes = vec![0; WALK];
    Pattern(0).fill(&mut bytes);
    memory.copy_in(0, &bytes)?;
    drop(bytes);
    let others = meet.exchange(&[])?;
    ensure!(others.len() == 1, "the other side gave {} cookies", others.len());
    let mut remote = fabric.map(others.first().context("the other side gave no cookie")?)?;
    let deadline = Some(job.deadline());
    let meter = CpuMeter::start()?;
    let started = Instant::now();
    let (mut requests, mut under_way) = (0, VecDeque::new());
    while started.elapsed() < job.time {
        let at = slot(requests, request);
        let dma = loop {
            match remote.write_from(at, &memory, at..at + request) {
                Err(Error::Busy) => remote.wait_for(Stage::Room, deadline)?,
                begun => break begun?,
            }
        };
        remote.commit()?;
        requests += 1;
        under_way.push_back(dma);
        if under_way.len() >= UNDER_WAY
            && let Some(oldest) = under_way.pop_front()
        {
            remote.wait_for(Stage::Sent(oldest), deadline)?;
        }
    }
    remote.wait_for(Stage::Delivered, deadline)?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = meter.stop()?;
    remote.store(COUNT, requests + 1)?;
    remote.commit()?;
    remote.wait_for(Stage::Delivered, deadline)?;
    meet.part()?;
    let (bytes, round_trips) = (requests * request, RttHistogram::new());
    Ok(Asked { bytes, messages: requests, seconds, round_trips, cpu })
}

pub(super) fn receive<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
    request: u32,
) -> Result<Answered> {
    let (memory, cookie) = fabric.expose(COUNT + WORD, Rights::Write)?;
    let wire = fabric.watch(&memory, COUNT..COUNT + WORD, Access::Write, None)?;
    meet.exchange(&[cookie])?;
    let deadline = job.deadline();
    let before = TaskUse::of_this_thread()?;
    let count = loop {
        wire.arm();
        match memory.load(COUNT)? {
            0 => fabric.wait(&[&wire], Some(deadline))?,
            count => break count - 1,
        };
        ensure!(Instant::now() < deadline, "the end was not told in time");
    };
    let used = TaskUse::of_this_thread()? - before;
    meet.part()?;
    let filled = count.saturating_mul(request.into()).min(WALK as u64) as usize;
    let mut bytes = vec![0; filled];
    for (at, piece) in (0..).step_by(PIECE).zip(bytes.chunks_mut(PIECE)) {
        memory.copy_out(at, piece)?;
    }
    let wrong = Pattern(0).first_difference(&bytes);
    ensure!(wrong.is_none(), "byte {} is wrong", wrong.unwrap_or_default());
    Ok(used.into())
}
