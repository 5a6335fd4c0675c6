//! What each side of a run saw, and what both come to.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use landfall_testbed::cpu::{CpuMeter, CpuUse, TaskUse};
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{CoresBusy, CpuSplit, RttHistogram, Sample};

/// Rounds at the start that are not recorded, as with the kernel's rivals.
const WARM_UP: u64 = 1000;

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
    pub(crate) rounds: RoundTrips,
    pub(crate) copied: u64,
}

/// Round trips that were timed one by one.
pub(crate) struct RoundTrips {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    pub(crate) times: RttHistogram,
    /// By this thread, with those before the clock started.
    pub(crate) used: CpuUse,
}

/// For how long a plan has round trips made.
pub(crate) fn time_of(plan: &Plan) -> Result<Duration> {
    let Amount::Time(time) = plan.amount else { bail!("round trips are measured for a time") };
    Ok(time)
}

/// Makes round trips for this long, behind those that warm up. `ask` is told how many there were, and
/// says when the answer came.
pub(crate) fn round_trips(
    time: Duration,
    mut ask: impl FnMut(u64) -> Result<Instant>,
) -> Result<RoundTrips> {
    let (mut times, meter) = (RttHistogram::new(), CpuMeter::start()?);
    let (mut started, mut round) = (Instant::now(), 0);
    loop {
        let asked = Instant::now();
        if round == WARM_UP {
            started = asked;
        }
        if round > WARM_UP && asked - started >= time {
            break;
        }
        let heard = ask(round)?;
        if round >= WARM_UP {
            times.record(heard - asked);
        }
        round += 1;
    }
    let (seconds, used) = (started.elapsed().as_secs_f64(), meter.stop()?);
    Ok(RoundTrips { count: round - WARM_UP, seconds, times, used })
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
    let RoundTrips { count, seconds, times, used } = &asked.rounds;
    Sample {
        bytes: count * asked.len as u64,
        messages: *count,
        seconds: *seconds,
        cpu: CpuSplit {
            send_s: used.thread.busy_s(),
            receive_s: answered.cpu.busy_s(),
            machine_s: used.machine_s,
        },
        rtt: times.summary(),
        wakeups: used.thread.sleeps + answered.cpu.sleeps,
        user_copied_bytes: asked.copied + answered.copied,
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_behind_those_that_warm_up_are_timed() {
        let mut rounds = Vec::new();
        let made = round_trips(Duration::ZERO, |round| {
            rounds.push(round);
            Ok(Instant::now())
        });
        let made = made.unwrap();
        // Of no time there is one, so that there is something to show.
        assert!(rounds.into_iter().eq(0..=WARM_UP));
        assert_eq!((made.count, made.times.summary().unwrap().count), (1, 1));
    }

    #[test]
    fn round_trips_end_with_the_first_that_fails() {
        let mut asked = 0;
        let made = round_trips(Duration::MAX, |round| {
            asked = round;
            if round == 7 {
                bail!("no answer to round {round}")
            }
            Ok(Instant::now())
        });
        let error = made.err().unwrap().to_string();
        assert_eq!((asked, error.as_str()), (7, "no answer to round 7"));
    }
}
