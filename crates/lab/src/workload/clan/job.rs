//! What two nodes do with each other, and what came of it; how the two sides exchange their
//! cookies, before there is anything to do it with.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::clan::Cookie;
use landfall_testbed::cpu::{CpuUse, TaskUse};
use landfall_testbed::{CpuSplit, RttHistogram, Sample};
use landfall_transport::Wait;
use serde::{Deserialize, Serialize};

use crate::style::hex;
use crate::workload::side::OtherSideEnded;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// A word there and back, again and again.
    Word {
        /// This many round trips are timed as one: a clock costs as much as one of
        /// them within a machine.
        together: u32,
    },
    /// A message into the other side's memory, and a word back when its last word is
    /// there. Both sides spin, whatever the job says.
    Message {
        /// Its length, a multiple of eight.
        bytes: u32,
        /// The adapter fetches it; otherwise the processor copies it.
        dma: bool,
        /// This many round trips are timed as one.
        together: u32,
    },
    /// Elements of 32 bytes through a queue.
    Elements {
        /// This many are published together.
        batch: u32,
    },
    /// Memory into the other side's memory, request after request, and nothing else.
    Dma {
        /// This many bytes a request has.
        request: u32,
    },
    /// Bytes through a stream.
    Bytes {
        /// This many are written and published at once.
        message: u32,
        /// The next message waits until the one before has been received.
        acknowledged: bool,
    },
}

/// How both sides wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waiting {
    /// They never sleep.
    Spin,
    /// They look for as long as a wake would take, then sleep: what there is by default.
    Balanced,
    /// They sleep at once.
    Block,
}

/// Work, and how it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// What is done.
    pub(crate) work: Work,
    /// How both sides wait.
    pub(crate) waiting: Waiting,
    /// For so long.
    pub(crate) time: Duration,
    /// If it takes longer than that and this, it has failed.
    pub(crate) limit: Duration,
    /// The core of the side that answers.
    pub(crate) core: Option<usize>,
}

impl Job {
    pub(crate) fn wait(&self) -> Wait {
        match self.waiting {
            Waiting::Spin => Wait::Spin,
            Waiting::Balanced => Wait::BALANCED,
            Waiting::Block => Wait::Block,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.time + self.limit
    }
}

/// What the side saw that began.
#[derive(Debug)]
pub(crate) struct InitiatorResult {
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
    pub(crate) round_trips: RttHistogram,
    pub(crate) cpu: CpuUse,
}

/// What the other side used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) cpu_s: f64,
    pub(crate) sleeps: u64,
}

impl From<TaskUse> for Answered {
    fn from(used: TaskUse) -> Self {
        Self { cpu_s: used.busy_s(), sleeps: used.sleeps }
    }
}

/// Both, as any other run gives it.
pub(crate) fn sample(job: &Job, asked: &InitiatorResult, answered: Answered) -> Sample {
    let InitiatorResult { bytes, messages, seconds, cpu, .. } = *asked;
    Sample {
        bytes,
        messages,
        seconds,
        cpu: CpuSplit {
            send_s: cpu.thread.busy_s(),
            receive_s: answered.cpu_s,
            machine_s: cpu.machine_s,
        },
        rtt: asked.round_trips.summary(),
        wakeups: cpu.thread.sleeps + answered.sleeps,
        user_copied_bytes: match job.work {
            // To its place.
            Work::Dma { .. } => bytes,
            // Into the shared memory, and out of it.
            _ => 2 * bytes,
        },
        ..Sample::default()
    }
}

/// The way to the other side.
pub(super) trait Meet {
    /// Gives the own cookies away, and gets as many.
    fn exchange(&mut self, own: &[Cookie]) -> Result<Vec<Cookie>>;

    /// Both have done their last: before that, neither takes its memory away. Who hears
    /// the last word may be faster than the call that says it.
    fn part(&mut self) -> Result<()> {
        self.exchange(&[]).map(drop)
    }
}

/// Between two threads.
pub(super) struct ByChannel {
    pub(super) tell: Sender<Vec<Cookie>>,
    pub(super) hear: Receiver<Vec<Cookie>>,
    pub(super) limit: Duration,
}

impl Meet for ByChannel {
    fn exchange(&mut self, own: &[Cookie]) -> Result<Vec<Cookie>> {
        self.tell.send(own.to_vec()).map_err(|_| OtherSideEnded)?;
        Ok(self.hear.recv_timeout(self.limit).map_err(|_| OtherSideEnded)?)
    }
}

/// Between two processes, over the pipes of the one that was started.
pub(crate) struct ByPipe<R: Read, W: Write> {
    hear: BufReader<R>,
    tell: W,
}

/// The longest line: a report, or a few cookies.
const LONGEST: u64 = 4096;

impl<R: Read, W: Write> ByPipe<R, W> {
    pub(crate) fn new(hear: R, tell: W) -> Self {
        Self { hear: BufReader::new(hear), tell }
    }

    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.tell, "{line}").and_then(|()| self.tell.flush()).context("the other process")
    }

    pub(crate) fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        let mut bounded = (&mut self.hear).take(LONGEST);
        let len = bounded.read_line(&mut line).context("the other process")?;
        if len == 0 {
            return Err(OtherSideEnded.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl<R: Read, W: Write> Meet for ByPipe<R, W> {
    fn exchange(&mut self, own: &[Cookie]) -> Result<Vec<Cookie>> {
        let words: Vec<_> = own.iter().map(|cookie| hex(&cookie.to_bytes())).collect();
        self.say(&words.join(" "))?;
        self.hear()?.split_whitespace().map(parse).collect()
    }
}

fn parse(word: &str) -> Result<Cookie> {
    let mut bytes = [0; Cookie::LEN];
    ensure!(word.len() == 2 * bytes.len() && word.is_ascii(), "`{word}` is no cookie");
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&word[at..at + 2], 16)?;
    }
    Ok(Cookie::from_bytes(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_cross_a_pipe_unharmed_and_nothing_else_does() {
        use landfall::clan::{Fabric, Rights, Threads};
        let (node, _) = Threads::pair().unwrap();
        let (_local, cookie) = node.expose(64, Rights::Write).unwrap();
        let line = format!("{}\n", hex(&cookie.to_bytes()));
        let mut pipe = ByPipe::new(line.as_bytes(), Vec::new());
        assert_eq!(pipe.exchange(&[cookie]).unwrap(), [cookie]);
        assert_eq!(pipe.tell, line.as_bytes());
        let mut ended = ByPipe::new(&b""[..], Vec::new());
        assert!(ended.exchange(&[cookie]).unwrap_err().is::<OtherSideEnded>());
        let mut noise = ByPipe::new(&b"\xc3\xa9 hello\n"[..], Vec::new());
        assert!(noise.exchange(&[cookie]).is_err());
    }
}
