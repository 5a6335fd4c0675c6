//! What the machine itself gives, without anything of ours: two words of memory that
//! two cores hand to each other, and copies.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall_testbed::cpu::CpuMeter;
use landfall_testbed::rivals::Endpoints;
use landfall_testbed::{CpuSplit, RttHistogram, Sample};

use super::bytes::WALK;
use crate::workload::side::{both, joined, place_thread};

/// A word, alone on its lines of the cache.
#[repr(align(256))]
#[derive(Default)]
struct Word(AtomicU64);

const END: u64 = u64::MAX;
/// Looks at the word, for each at the clock.
const LOOKS: u32 = 4096;

/// Two words, written and seen by two threads that spin.
pub(crate) fn ping_pong(
    endpoints: &Endpoints,
    (time, limit): (Duration, Duration),
    together: u32,
) -> Result<Sample> {
    let (there, back) = (Word::default(), Word::default());
    let deadline = Instant::now() + time + limit;
    let ask = || -> Result<Sample> {
        place_thread(&endpoints.send)?;
        let mut round_trips = RttHistogram::new();
        let meter = CpuMeter::start()?;
        let (started, mut word) = (Instant::now(), 0);
        let mut now = started;
        while now - started < time {
            for _ in 0..together {
                word += 1;
                there.0.store(word, Ordering::Release);
                hear(&back, word - 1, deadline)?;
            }
            let then = std::mem::replace(&mut now, Instant::now());
            round_trips.record((now - then) / together);
        }
        let cpu = meter.stop()?;
        let cpu =
            CpuSplit { send_s: cpu.thread.busy_s(), receive_s: 0.0, machine_s: cpu.machine_s };
        let (rtt, seconds) = (round_trips.summary(), (now - started).as_secs_f64());
        Ok(Sample { bytes: 8 * word, messages: word, seconds, cpu, rtt, ..Sample::default() })
    };
    let answer = || -> Result<()> {
        place_thread(&endpoints.receive)?;
        let mut word = 0;
        loop {
            word = hear(&there, word, deadline)?;
            if word == END {
                return Ok(());
            }
            back.0.store(word, Ordering::Release);
        }
    };
    let (sample, ()) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let asked = ask();
            there.0.store(END, Ordering::Release);
            asked
        });
        let answering = scope.spawn(answer);
        both(joined(asking.join()), joined(answering.join()))
    })?;
    Ok(sample)
}

#[inline]
fn hear(word: &Word, last: u64, deadline: Instant) -> Result<u64> {
    loop {
        for _ in 0..LOOKS {
            let now = word.0.load(Ordering::Acquire);
            if now != last {
                return Ok(now);
            }
            spin_loop();
        }
        (Instant::now() < deadline).then_some(()).context("no word came in time")?;
    }
}

/// Copies of this many bytes, from and to as much memory as a stream walks through.
pub(crate) fn copies(endpoints: &Endpoints, piece: usize, time: Duration) -> Result<Sample> {
    let copy = || -> Result<Sample> {
        place_thread(&endpoints.send)?;
        let (from, mut to) = (vec![1u8; WALK], vec![2u8; WALK]);
        let meter = CpuMeter::start()?;
        let started = Instant::now();
        let (mut at, mut messages) = (0, 0u64);
        while started.elapsed() < time {
            to[at..at + piece].copy_from_slice(std::hint::black_box(&from[at..at + piece]));
            messages += 1;
            at += piece;
            if at + piece > WALK {
                at = 0;
            }
        }
        std::hint::black_box(&to);
        let seconds = started.elapsed().as_secs_f64();
        let cpu = meter.stop()?;
        let bytes = messages * piece as u64;
        let cpu =
            CpuSplit { send_s: cpu.thread.busy_s(), receive_s: 0.0, machine_s: cpu.machine_s };
        Ok(Sample { bytes, messages, seconds, cpu, user_copied_bytes: bytes, ..Sample::default() })
    };
    thread::scope(|scope| joined(scope.spawn(copy).join()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_gives_something() {
        let endpoints = Endpoints::loopback().unwrap();
        let (time, limit) = (Duration::from_millis(5), Duration::from_secs(60));
        let talk = ping_pong(&endpoints, (time, limit), 4).unwrap();
        let rtt = talk.rtt.unwrap();
        // One time for each four words.
        assert!(4 * rtt.count == talk.messages && 0 < rtt.min_ns && rtt.min_ns <= rtt.max_ns);
        let copied = copies(&endpoints, 65_536, time).unwrap();
        assert!(copied.bytes > 0 && copied.bytes.is_multiple_of(65_536), "{copied:?}");
        assert!(copied.seconds >= time.as_secs_f64(), "{copied:?}");
    }
}
