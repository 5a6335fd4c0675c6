//! Bytes through a stream: messages behind each other, or each acknowledged before
//! the next.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use landfall::clan::layer::stream::{Config, Reader, Stream, Writer};
use landfall::clan::{Error, Fabric};
use landfall_testbed::RttHistogram;
use landfall_testbed::cpu::{CpuMeter, TaskUse};

use super::job::{Answered, InitiatorResult, Job, Meet};
use crate::workload::Pattern;

/// Both sides walk through as much memory as the kernel's rivals do in their widest
/// loop: it does not stay in the cache.
pub(crate) const WALK: usize = 64 << 20;
/// Room for several of the largest messages, and for many small ones.
const RING: u64 = 512 << 10;

/// Message length, and whether each is acknowledged.
type Shape = (u32, bool);

fn config(job: &Job) -> Config {
    Config::new(RING).wait(job.wait())
}

fn open<F: Fabric>(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<Stream<F>> {
    let opening = Stream::open(fabric, config(job))?;
    let others = meet.exchange(&opening.cookies())?;
    let others = others.try_into().ok().context("the other side gave no two cookies")?;
    Ok(opening.connect(&others)?)
}

/// Where message `nth` begins in memory that is walked through.
fn slot(nth: u64, message: usize) -> usize {
    (nth as usize % (WALK / message).max(1)) * message
}

pub(super) fn write<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
    (message, acknowledged): Shape,
) -> Result<InitiatorResult> {
    let message = message as usize;
    let mut memory = vec![0; WALK.max(message)];
    Pattern(0).fill(&mut memory);
    let (mut reader, mut writer) = open(fabric, meet, job)?.into_split();
    let deadline = Some(job.deadline());
    let meter = CpuMeter::start()?;
    let started = Instant::now();
    let mut round_trips = RttHistogram::new();
    let (mut messages, mut now) = (0, started);
    while now - started < job.time {
        write_all(&mut writer, &memory[slot(messages, message)..][..message], deadline)?;
        messages += 1;
        if acknowledged {
            let mut receipt = [0];
            read_exact(&mut reader, &mut receipt, deadline)?;
        }
        let then = std::mem::replace(&mut now, Instant::now());
        if acknowledged {
            round_trips.record(now - then);
        }
    }
    writer.finish()?;
    writer.drain(deadline)?;
    let seconds = started.elapsed().as_secs_f64();
    let (bytes, cpu) = (messages * message as u64, meter.stop()?);
    meet.part()?;
    Ok(InitiatorResult { bytes, messages, seconds, round_trips, cpu })
}

pub(super) fn read<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
    (message, acknowledged): Shape,
) -> Result<Answered> {
    let message = message as usize;
    let mut memory = vec![0; WALK.max(message)];
    let (mut reader, mut writer) = open(fabric, meet, job)?.into_split();
    let deadline = Some(job.deadline());
    let before = TaskUse::of_this_thread()?;
    let mut messages = 0;
    while read_exact(&mut reader, &mut memory[slot(messages, message)..][..message], deadline)? {
        messages += 1;
        if acknowledged {
            write_all(&mut writer, &[1], deadline)?;
        }
    }
    let used = TaskUse::of_this_thread()? - before;
    meet.part()?;
    let filled = usize::try_from(messages)?.saturating_mul(message).min(WALK / message * message);
    let wrong = Pattern(0).first_difference(&memory[..filled]);
    ensure!(wrong.is_none(), "byte {} is wrong", wrong.unwrap_or_default());
    Ok(used.into())
}

fn write_all<F: Fabric>(
    writer: &mut Writer<F>,
    mut bytes: &[u8],
    deadline: Option<Instant>,
) -> Result<()> {
    while !bytes.is_empty() {
        bytes = &bytes[writer.write_some(bytes, deadline)?..];
    }
    Ok(())
}

/// False: the stream is over, at the end of a message.
fn read_exact<F: Fabric>(
    reader: &mut Reader<F>,
    into: &mut [u8],
    deadline: Option<Instant>,
) -> Result<bool> {
    let mut done = 0;
    while done < into.len() {
        match reader.read_some(&mut into[done..], deadline) {
            Ok(len) => done += len,
            Err(Error::Closed) => {
                ensure!(done == 0, "the stream is over within a message");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
