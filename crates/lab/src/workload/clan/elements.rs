//! Elements of 32 bytes through the distributed queue.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::clan::Fabric;
use landfall::clan::layer::queue::{Config, Receiver, Sender};
use landfall_testbed::RttHistogram;
use landfall_testbed::cpu::{CpuMeter, TaskUse};

use super::job::{Answered, Asked, Job};
use super::meet::Meet;

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
) -> Result<Asked> {
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
    Ok(Asked { bytes, messages: count, seconds, round_trips, cpu })
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
