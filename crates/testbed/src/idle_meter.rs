//! CPU use measured from outside: what a thread of the lowest priority gets of a core.
//!
//! A thread that spins at the lowest priority (`SCHED_IDLE`) gets what nobody else wants.
//! How far it comes in a second, compared with how far it came while the machine had
//! nothing else to do, says how busy its core was: with the work of threads, with what the
//! kernel did for them, and with interrupts, which `getrusage` charges to nobody or to
//! anyone who was there.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::cpu;
use crate::error::{Error, Tried};
use crate::sys;

/// What is counted as one: some 100 ns of arithmetic that no cache or memory is part of.
const STEPS: u64 = 256;
/// The calibration looks so often: the best look is one in which nobody else ran.
const LOOKS: u32 = 10;

/// Somebody else needs all of a core for so long at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread of the lowest priority on each of some cores. It ends when dropped.
#[derive(Debug)]
pub struct IdleMeter {
    threads: Vec<MeterThread>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct MeterThread {
    core: usize,
    turns: Arc<AtomicU64>,
    /// What it gets in a second when nobody else wants the core.
    unloaded_per_s: f64,
    thread: Option<JoinHandle<()>>,
}

/// How far each thread was at a moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    turns: Vec<u64>,
}

impl IdleMeter {
    /// Starts a thread on each of these cores, and lets all of them run for this long to
    /// learn how far they come when there is nothing else to do. All at once, as later: two
    /// cores may share what is inside of one.
    pub fn start(cores: &[usize], calibration: Duration) -> Result<Self, Error> {
        let mut meter = Self { threads: Vec::new(), stop: Arc::default() };
        let mut cores = cores.to_vec();
        cores.sort_unstable();
        cores.dedup();
        for core in cores {
            let thread = meter.spawn(core)?;
            meter.threads.push(thread);
        }
        meter.calibrate(calibration)?;
        Ok(meter)
    }

    fn spawn(&self, core: usize) -> Result<MeterThread, Error> {
        let turns = Arc::new(AtomicU64::new(0));
        let (count, stop) = (Arc::clone(&turns), Arc::clone(&self.stop));
        let (tell, hear) = channel();
        let thread = thread::Builder::new()
            .name("landfall-idle-meter".into())
            .spawn(move || count_turns(core, &count, &stop, &tell))
            .tried("start an idle meter")?;
        hear.recv().unwrap_or_else(|_| Err(Error::Panicked("an idle meter".into())))?;
        Ok(MeterThread { core, turns, unloaded_per_s: 0.0, thread: Some(thread) })
    }

    fn calibrate(&mut self, time: Duration) -> Result<(), Error> {
        let mut before = self.read();
        let started = before.at;
        let mut looks = 0;
        // On a machine that is busy with something else they may have to wait for a turn.
        while looks < LOOKS || (self.lacks_a_turn() && started.elapsed() < time + PATIENCE) {
            looks += 1;
            thread::sleep(time / LOOKS);
            let now = self.read();
            for (nth, thread) in self.threads.iter_mut().enumerate() {
                thread.unloaded_per_s = thread.unloaded_per_s.max(rate(nth, &before, &now));
            }
            before = now;
        }
        self.check()
    }

    fn lacks_a_turn(&self) -> bool {
        self.check().is_err()
    }

    fn check(&self) -> Result<(), Error> {
        match self.threads.iter().find(|thread| thread.unloaded_per_s <= 0.0) {
            Some(thread) => Err(Error::Unsupported(format!(
                "measuring CPU by an idle meter: core {} has no time to spare; end what keeps it busy",
                thread.core
            ))),
            None => Ok(()),
        }
    }

    /// How far the threads are.
    #[must_use]
    pub fn read(&self) -> Reading {
        let turns = self.threads.iter().map(|thread| thread.turns.load(Ordering::Relaxed));
        Reading { turns: turns.collect(), at: Instant::now() }
    }

    /// How busy a core was between two readings, in percent; nothing for a core without an
    /// idle meter.
    #[must_use]
    pub fn busy_percent(&self, core: usize, start: &Reading, end: &Reading) -> Option<f64> {
        let nth = self.threads.iter().position(|thread| thread.core == core)?;
        let left = rate(nth, start, end) / self.threads[nth].unloaded_per_s;
        Some(((1.0 - left) * 100.0).clamp(0.0, 100.0))
    }
}

impl Drop for IdleMeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.iter_mut().filter_map(|thread| thread.thread.take()) {
            // It cannot have panicked: it counts.
            let _ = thread.join();
        }
    }
}

/// Turns per second between two readings.
fn rate(nth: usize, start: &Reading, end: &Reading) -> f64 {
    let turns = |reading: &Reading| reading.turns.get(nth).copied().unwrap_or(0);
    let seconds = end.at.saturating_duration_since(start.at).as_secs_f64();
    turns(end).saturating_sub(turns(start)) as f64 / seconds.max(1e-9)
}

/// Counts until told to end.
fn count_turns(
    core: usize,
    turns: &AtomicU64,
    stop: &AtomicBool,
    tell: &Sender<Result<(), Error>>,
) {
    let ready = cpu::pin_this_thread(core)
        .and_then(|()| sys::run_when_idle().tried("take the lowest priority"));
    let is_ready = ready.is_ok();
    if tell.send(ready).is_err() || !is_ready {
        return;
    }
    let mut state = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..STEPS {
            state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        }
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{TaskUse, allowed_cores, pin_this_thread};

    #[test]
    fn a_core_that_somebody_keeps_busy_is_busy() {
        let core = *allowed_cores().unwrap().last().unwrap();
        let Ok(idle_meter) = IdleMeter::start(&[core], Duration::from_millis(200)) else {
            return; // Somebody else needs all of this core: nothing to be seen here.
        };
        let (start, end) = thread::spawn(move || {
            pin_this_thread(core).unwrap();
            let start = idle_meter.read();
            let before = TaskUse::of_this_thread().unwrap();
            while (TaskUse::of_this_thread().unwrap() - before).busy_s() < 0.2 {
                black_box(());
            }
            let end = idle_meter.read();
            let busy = idle_meter.busy_percent(core, &start, &end).unwrap();
            // Nearly all of it, however many others want it too.
            assert!(busy > 50.0, "{busy} %");
            assert_eq!(idle_meter.busy_percent(usize::MAX, &start, &end), None);
            (start, end)
        })
        .join()
        .unwrap();
        assert!(end.at > start.at);
    }

    #[test]
    fn a_core_that_is_not_there_is_told() {
        let error = IdleMeter::start(&[usize::MAX], Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("pin"), "{error}");
    }
}
