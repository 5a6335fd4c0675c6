//! What two nodes do with each other, and what came of it.

use std::time::{Duration, Instant};

use landfall_testbed::cpu::{CpuUse, TaskUse};
use landfall_testbed::{CpuSplit, RttHistogram, Sample};
use landfall_transport::Wait;
use serde::{Deserialize, Serialize};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// A word there and back, again and again.
    Word {
        /// So many round trips are timed as one: a clock costs as much as one of
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
        /// So many round trips are timed as one.
        together: u32,
    },
    /// Elements of 32 bytes through a queue.
    Elements {
        /// So many are published together.
        batch: u32,
    },
    /// Memory into the other side's memory, request after request, and nothing else.
    Dma {
        /// So many bytes a request has.
        request: u32,
    },
    /// Bytes through a stream.
    Bytes {
        /// So many are written and published at once.
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
pub(crate) struct Asked {
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
pub(crate) fn sample(job: &Job, asked: &Asked, answered: Answered) -> Sample {
    let Asked { bytes, messages, seconds, cpu, .. } = *asked;
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
