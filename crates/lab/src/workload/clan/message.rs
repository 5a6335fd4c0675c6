//! A message written into the other side's memory, its last word seen there, and
//! answered with a word. Both sides spin.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use landfall::clan::{Error, Fabric, Local, Remote, Rights, Stage, WORD};
use landfall_testbed::RttHistogram;
use landfall_testbed::cpu::{CpuMeter, TaskUse};

use super::job::{Answered, InitiatorResult, Job, Meet, Work};

/// This many round trips at the start are not recorded, or as many as fit into the time.
const WARM_UP: u64 = 100;
/// Who asks has had enough.
const END: u64 = u64::MAX;
/// A line of the cache for each word, and room for its neighbours.
const LEAST: u64 = 256;
/// Looks at the memory, for each at the clock.
const LOOKS: u32 = 4096;

/// Memory of ours that the other side writes, and its own that we do.
struct Ends<F: Fabric> {
    fabric: F,
    local: F::Local,
    remote: F::Remote,
    deadline: Instant,
}

impl<F: Fabric> Ends<F> {
    fn open(fabric: &F, meet: &mut dyn Meet, job: &Job, len: u64) -> Result<Self> {
        let (local, cookie) = fabric.expose(len.max(LEAST), Rights::Write)?;
        let others = meet.exchange(&[cookie])?;
        let remote = fabric.map(others.first().context("the other side gave no cookie")?)?;
        // Both have mapped it before either begins.
        meet.exchange(&[])?;
        Ok(Self { fabric: fabric.clone(), local, remote, deadline: job.deadline() })
    }

    /// Does it as soon as the way has room for it.
    fn take_room(
        &mut self,
        mut write: impl FnMut(&mut F::Remote) -> Result<(), Error>,
    ) -> Result<()> {
        loop {
            match write(&mut self.remote) {
                Err(Error::Busy) => self.remote.wait_for(Stage::Room, Some(self.deadline))?,
                written => return Ok(written?),
            }
        }
    }

    fn say(&mut self, offset: u64, word: u64) -> Result<()> {
        self.take_room(|remote| remote.store(offset, word))?;
        Ok(self.remote.commit()?)
    }

    /// The word at this place, once it is another than this.
    #[inline]
    fn hear(&self, offset: u64, last: u64) -> Result<u64> {
        loop {
            for _ in 0..LOOKS {
                let word = self.local.load(offset)?;
                if word != last {
                    return Ok(word);
                }
                self.fabric.relax();
            }
            // Who has said its last word goes, and may be gone before the word is looked at.
            if let Err(error) = self.remote.check()
                && self.local.load(offset)? == last
            {
                return Err(error.into());
            }
            ensure!(Instant::now() < self.deadline, "no word came in time");
        }
    }
}

/// What a message is made of.
enum Body<L> {
    /// Copied from here.
    Copied(Vec<u8>),
    /// Taken from here by the adapter.
    Dma(L),
}

impl<L: Local> Body<L> {
    /// Writes the message. The word comes first in it, and by itself last.
    fn write<F: Fabric<Local = L>>(
        &mut self,
        ends: &mut Ends<F>,
        len: u64,
        word: u64,
    ) -> Result<()> {
        let last = len - WORD;
        match self {
            Self::Copied(bytes) => {
                if let Some(first) = bytes.first_chunk_mut() {
                    *first = word.to_le_bytes();
                }
                ends.take_room(|remote| remote.write(0, bytes))?;
            }
            Self::Dma(source) => {
                source.store(0, word)?;
                ends.take_room(|remote| remote.write_from(0, source, 0..last).map(drop))?;
            }
        }
        ends.say(last, word)
    }
}

/// Bytes, and whether the adapter fetches them itself.
fn shape(job: &Job) -> Result<(u64, bool, u32)> {
    let Work::Message { bytes, dma, together } = job.work else {
        bail!("that is no work with messages");
    };
    ensure!(bytes >= WORD as u32 && bytes % WORD as u32 == 0, "messages are of whole words");
    Ok((bytes.into(), dma, together.max(1)))
}

pub(super) fn ask<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
) -> Result<InitiatorResult> {
    let (len, dma, together) = shape(job)?;
    let mut ends = Ends::open(fabric, meet, job, WORD)?;
    let mut body = match dma {
        true => Body::Dma(fabric.expose(len, Rights::Read)?.0),
        false => Body::Copied(vec![0; (len - WORD) as usize]),
    };
    let mut word = 0;
    let mut round = |ends: &mut Ends<F>| -> Result<u64> {
        word += 1;
        body.write(ends, len, word)?;
        let answer = ends.hear(0, word - 1)?;
        ensure!(answer == word, "{answer} is no answer to {word}");
        Ok(word)
    };
    let mut round_trips = RttHistogram::new();
    let meter = CpuMeter::start()?;
    let (warming, mut warm) = (Instant::now(), 0);
    while warm < WARM_UP && warming.elapsed() < job.time {
        warm = round(&mut ends)?;
    }
    let started = Instant::now();
    let (mut now, mut words) = (started, warm);
    while now - started < job.time {
        for _ in 0..together {
            words = round(&mut ends)?;
        }
        let then = std::mem::replace(&mut now, Instant::now());
        round_trips.record((now - then) / together);
    }
    ends.say(len - WORD, END)?;
    let cpu = meter.stop()?;
    meet.part()?;
    let messages = words - warm;
    let seconds = (now - started).as_secs_f64().max(f64::MIN_POSITIVE);
    Ok(InitiatorResult { bytes: messages * len, messages, seconds, round_trips, cpu })
}

pub(super) fn answer<F: Fabric>(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<Answered> {
    let (len, ..) = shape(job)?;
    let mut ends = Ends::open(fabric, meet, job, len)?;
    let before = TaskUse::of_this_thread()?;
    let mut word = 0;
    loop {
        word = ends.hear(len - WORD, word)?;
        if word == END {
            let used = TaskUse::of_this_thread()? - before;
            meet.part()?;
            return Ok(used.into());
        }
        let first = ends.local.load(0)?;
        ensure!(first == word, "the end of message {word} was there before its beginning");
        ends.say(0, word)?;
    }
}
