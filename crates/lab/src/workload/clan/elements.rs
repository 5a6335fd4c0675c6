//! Elements of 32 bytes through the distributed queue; memory written into the other side's memory
//! by DMA, request after request: no layer above, no copy of ours where it leaves, and none where
//! it is used.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::clan::layer::queue::{Config, Receiver, Sender};
use landfall::clan::{Access, Error, Fabric, Local, Remote, Rights, Stage, Tripwire, WORD};
use landfall_testbed::RttHistogram;
use landfall_testbed::cpu::{CpuMeter, TaskUse};

use super::bytes::WALK;
use super::job::{Answered, InitiatorResult, Job, Meet};
use crate::workload::Pattern;

/// Bytes of an element.
pub(crate) const ELEMENT: usize = 32;
/// Elements under way.
const CAPACITY: u32 = 4096;
/// A batch is published after this time at the latest.
const WITHIN: Duration = Duration::from_micros(20);
/// Elements between two looks at the clock.
const STRIDE: u64 = 4096;
/// In the first word of the last element.
const END: u64 = u64::MAX;

fn config(job: &Job, batch: u32) -> Config {
    Config::new(ELEMENT as u32, CAPACITY).batch(batch.max(1), WITHIN).wait(job.wait())
}

pub(super) fn put<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
    batch: u32,
) -> Result<InitiatorResult> {
    let half = Sender::open(fabric, config(job, batch))?;
    let others = meet.exchange(&[half.cookie()])?;
    let mut queue = half.connect(others.first().context("the other side gave no cookie")?)?;
    let deadline = Some(job.deadline());
    let meter = CpuMeter::start()?;
    let started = Instant::now();
    let mut element = [0; ELEMENT];
    let mut count = 0u64;
    while !count.is_multiple_of(STRIDE) || started.elapsed() < job.time {
        element[..8].copy_from_slice(&count.to_le_bytes());
        queue.put(&element, deadline)?;
        count += 1;
    }
    element[..8].copy_from_slice(&END.to_le_bytes());
    queue.put(&element, deadline)?;
    queue.publish()?;
    queue.drain(deadline)?;
    let seconds = started.elapsed().as_secs_f64();
    let round_trips = RttHistogram::new();
    let (bytes, cpu) = (count * ELEMENT as u64, meter.stop()?);
    meet.part()?;
    Ok(InitiatorResult { bytes, messages: count, seconds, round_trips, cpu })
}

pub(super) fn get<F: Fabric>(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<Answered> {
    let half = Receiver::open(fabric, config(job, 1))?;
    let others = meet.exchange(&[half.cookie()])?;
    let mut queue = half.connect(others.first().context("the other side gave no cookie")?)?;
    let deadline = Some(job.deadline());
    let before = TaskUse::of_this_thread()?;
    let mut element = [0; ELEMENT];
    let mut next = 0u64;
    loop {
        queue.get(&mut element, deadline)?;
        let [number, ..] = words(&element);
        if number == END {
            let used = TaskUse::of_this_thread()? - before;
            // What was taken out is told when more is looked for, or now.
            queue.close()?;
            meet.part()?;
            return Ok(used.into());
        }
        ensure!(number == next, "element {number} came instead of {next}");
        next += 1;
    }
}

fn words(element: &[u8; ELEMENT]) -> [u64; ELEMENT / 8] {
    std::array::from_fn(|nth| {
        let mut word = [0; 8];
        word.copy_from_slice(&element[8 * nth..][..8]);
        u64::from_le_bytes(word)
    })
}

/// This many requests are under way.
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
) -> Result<InitiatorResult> {
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
    Ok(InitiatorResult { bytes, messages: requests, seconds, round_trips, cpu })
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
