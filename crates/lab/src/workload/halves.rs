//! What each side of a run saw, and what both come to.

use std::time::{Duration, Instant};

use landfall_testbed::cpu::{CpuUse, TaskUse};
use landfall_testbed::{CoresBusy, CpuSplit, RttHistogram, Sample};

/// What the sender saw.
pub(crate) struct Streamed {
    pub(crate) started: Instant,
    pub(crate) cpu: TaskUse,
    pub(crate) machine_s: f64,
    pub(crate) busy: Option<CoresBusy>,
    pub(crate) retransmitted: u64,
    pub(crate) copied: u64,
}

/// What the receiver saw.
pub(crate) struct Received {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) compared: u64,
    pub(crate) cpu: TaskUse,
    pub(crate) copied: u64,
}

/// What the side saw that asked.
pub(crate) struct InitiatorResult {
    /// Bytes of a message.
    pub(crate) len: usize,
    pub(crate) rounds: u64,
    pub(crate) seconds: f64,
    pub(crate) round_trips: RttHistogram,
    pub(crate) used: CpuUse,
    pub(crate) copied: u64,
}

/// What the side saw that answered.
pub(crate) struct Answered {
    pub(crate) cpu: TaskUse,
    pub(crate) copied: u64,
}

/// Both sides of a stream.
pub(crate) fn of_stream(sent: &Streamed, came: &Received) -> Sample {
    let time = came.ended.saturating_duration_since(sent.started);
    Sample {
        bytes: came.bytes,
        messages: came.messages,
        seconds: time.max(Duration::from_nanos(1)).as_secs_f64(),
        cpu: CpuSplit {
            send_s: sent.cpu.busy_s(),
            receive_s: came.cpu.busy_s(),
            machine_s: sent.machine_s,
        },
        busy: sent.busy,
        wakeups: sent.cpu.sleeps + came.cpu.sleeps,
        retransmitted: sent.retransmitted,
        user_copied_bytes: sent.copied + came.copied,
        ..Sample::default()
    }
}

/// Both sides of a conversation.
pub(crate) fn of_talk(asked: &InitiatorResult, answered: &Answered) -> Sample {
    Sample {
        bytes: asked.rounds * asked.len as u64,
        messages: asked.rounds,
        seconds: asked.seconds,
        cpu: CpuSplit {
            send_s: asked.used.thread.busy_s(),
            receive_s: answered.cpu.busy_s(),
            machine_s: asked.used.machine_s,
        },
        rtt: asked.round_trips.summary(),
        wakeups: asked.used.thread.sleeps + answered.cpu.sleeps,
        user_copied_bytes: asked.copied + answered.copied,
        ..Sample::default()
    }
}
