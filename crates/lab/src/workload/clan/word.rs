//! A word written into the other side's memory, seen there, and answered in the same
//! way: nothing but the fabric.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall::clan::{Access, Error, Fabric, Local, Remote, Rights, Stage, Tripwire, WORD};
use landfall_testbed::RttHistogram;
use landfall_testbed::cpu::{CpuMeter, TaskUse};

use super::job::{Answered, InitiatorResult, Job, Meet, Waiting, Work};

/// Round trips at the start that are not recorded, as with the kernel's rivals.
const WARM_UP: u64 = 1000;
/// Who asks has had enough.
const END: u64 = u64::MAX;
/// A line of the cache for each side, and room for its neighbours.
const MEMORY: u64 = 256;
/// Looks at the memory, for each at the clock.
const LOOKS: u32 = 4096;

/// A word of ours that the other side writes, and one of the other side that we do.
struct Words<F: Fabric> {
    fabric: F,
    local: F::Local,
    remote: F::Remote,
    wire: F::Tripwire,
    spin: bool,
    deadline: Instant,
}

impl<F: Fabric> Words<F> {
    fn open(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<Self> {
        let (local, cookie) = fabric.expose(MEMORY, Rights::Write)?;
        let others = meet.exchange(&[cookie])?;
        let remote = fabric.map(others.first().context("the other side gave no cookie")?)?;
        let wire = fabric.watch(&local, 0..WORD, Access::Write, Some(&remote))?;
        // Both have mapped it before either begins.
        meet.exchange(&[])?;
        let fabric = fabric.clone();
        Ok(Self {
            fabric,
            local,
            remote,
            wire,
            spin: job.waiting == Waiting::Spin,
            deadline: job.deadline(),
        })
    }

    #[inline]
    fn say(&mut self, word: u64) -> Result<()> {
        loop {
            match self.remote.store(0, word).and_then(|()| self.remote.commit()) {
                Err(Error::Busy) => self.remote.wait_for(Stage::Room, Some(self.deadline))?,
                told => return Ok(told?),
            }
        }
    }

    /// The word, once it is another than this.
    #[inline]
    fn hear(&self, last: u64) -> Result<u64> {
        loop {
            for _ in 0..LOOKS {
                let word = self.local.load(0)?;
                if word != last {
                    return Ok(word);
                }
                if self.spin {
                    self.fabric.relax();
                } else {
                    self.sleep(last)?;
                }
            }
            self.unless_it_has_come(last, self.remote.check())?;
            ensure!(Instant::now() < self.deadline, "no word came in time");
        }
    }

    /// Unless it comes just now.
    fn sleep(&self, last: u64) -> Result<()> {
        self.wire.arm();
        if self.local.load(0)? == last {
            let woken = self.fabric.wait(&[&self.wire], Some(self.deadline));
            self.unless_it_has_come(last, woken)?;
            ensure!(Instant::now() < self.deadline, "no word came in time");
        }
        self.wire.disarm();
        Ok(())
    }

    /// Who has said its last word goes, and may be gone before the word is looked at.
    fn unless_it_has_come<T>(&self, last: u64, result: Result<T, Error>) -> Result<()> {
        match result {
            Err(error) if self.local.load(0)? == last => Err(error.into()),
            _ => Ok(()),
        }
    }
}

pub(super) fn ask<F: Fabric>(
    fabric: &F,
    meet: &mut dyn Meet,
    job: &Job,
) -> Result<InitiatorResult> {
    let Work::Word { together } = job.work else { bail!("that is no work with words") };
    let mut words = Words::open(fabric, meet, job)?;
    let mut round_trips = RttHistogram::new();
    let meter = CpuMeter::start()?;
    let mut word = 0;
    for _ in 0..WARM_UP {
        round(&mut words, &mut word)?;
    }
    let (started, warm) = (Instant::now(), word);
    let mut now = started;
    while now - started < job.time {
        for _ in 0..together.max(1) {
            round(&mut words, &mut word)?;
        }
        let then = std::mem::replace(&mut now, Instant::now());
        round_trips.record((now - then) / together.max(1));
    }
    words.say(END)?;
    let cpu = meter.stop()?;
    meet.part()?;
    let messages = word - warm;
    let seconds = (now - started).max(Duration::from_nanos(1)).as_secs_f64();
    Ok(InitiatorResult { bytes: messages * WORD, messages, seconds, round_trips, cpu })
}

#[inline]
fn round<F: Fabric>(words: &mut Words<F>, word: &mut u64) -> Result<()> {
    let last = *word;
    *word += 1;
    words.say(*word)?;
    let answer = words.hear(last)?;
    ensure!(answer == *word, "{answer} is no answer to {word}");
    Ok(())
}

pub(super) fn answer<F: Fabric>(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<Answered> {
    let mut words = Words::open(fabric, meet, job)?;
    let before = TaskUse::of_this_thread()?;
    let mut word = 0;
    loop {
        word = words.hear(word)?;
        if word == END {
            let used = TaskUse::of_this_thread()? - before;
            meet.part()?;
            return Ok(used.into());
        }
        words.say(word)?;
    }
}
