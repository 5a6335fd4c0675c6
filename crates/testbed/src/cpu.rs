//! CPU accounts: of the whole machine, of this process, of this thread; and
//! on which core a thread runs.
//!
//! On a veth much of the receiver's work runs in the sender's context, or in
//! a softirq that no thread is charged for: only the whole machine's account
//! compares two designs honestly.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::ops::Sub;

use crate::error::{Error, Tried};
use crate::sys;

/// CPU time and switches of a thread or a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskUse {
    /// Seconds in user code.
    pub user_s: f64,
    /// Seconds in the kernel on its behalf.
    pub system_s: f64,
    /// How often it went to sleep, and so had to be woken.
    pub sleeps: u64,
    /// How often it was made to give way to another.
    pub preemptions: u64,
}

impl TaskUse {
    /// What the calling thread has used so far.
    pub fn of_this_thread() -> Result<Self, Error> {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// What this process, all threads together, has used so far.
    pub fn of_this_process() -> Result<Self, Error> {
        Self::of(libc::RUSAGE_SELF)
    }

    /// User and kernel seconds together.
    #[must_use]
    pub fn busy_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    fn of(who: libc::c_int) -> Result<Self, Error> {
        let usage = sys::resource_usage(who).tried("read the resource usage")?;
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Ok(Self {
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            sleeps: usage.ru_nvcsw as u64,
            preemptions: usage.ru_nivcsw as u64,
        })
    }
}

impl Sub for TaskUse {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }
}

/// Seconds that all cores of the machine were busy since it started: user,
/// nice, system, irq and softirq. Idle, waiting for disks and time stolen by
/// a hypervisor are not busy. The kernel counts in ticks of 10 ms, so
/// measure over seconds.
pub fn machine_busy_s() -> Result<f64, Error> {
    let stat = fs::read_to_string("/proc/stat").tried("read /proc/stat")?;
    let ticks = busy_ticks(&stat).ok_or_else(|| {
        Error::system("understand /proc/stat", io::Error::from(io::ErrorKind::InvalidData))
    })?;
    Ok(ticks as f64 / sys::user_hz())
}

/// `proc_stat(5)`: user nice system idle iowait irq softirq steal guest …;
/// guest time is part of user already.
fn busy_ticks(stat: &str) -> Option<u64> {
    let row = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let columns: Vec<u64> = row.split_ascii_whitespace().flat_map(str::parse).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = columns[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq)
}

/// What was used between start and stop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// Busy seconds of the whole machine, everybody's work included.
    pub machine_s: f64,
    /// This process, all threads together.
    pub process: TaskUse,
    /// The thread that started and stopped the meter.
    pub thread: TaskUse,
}

/// Reads all three accounts twice and gives the difference.
#[derive(Debug)]
pub struct CpuMeter {
    start: CpuUse,
    /// Started and stopped by the same thread, whose account it reads.
    not_send: PhantomData<*const ()>,
}

impl CpuMeter {
    /// Reads the accounts.
    pub fn start() -> Result<Self, Error> {
        Ok(Self { start: read_all()?, not_send: PhantomData })
    }

    /// Reads the accounts again.
    pub fn stop(self) -> Result<CpuUse, Error> {
        let (start, end) = (self.start, read_all()?);
        Ok(CpuUse {
            machine_s: end.machine_s - start.machine_s,
            process: end.process - start.process,
            thread: end.thread - start.thread,
        })
    }
}

fn read_all() -> Result<CpuUse, Error> {
    Ok(CpuUse {
        machine_s: machine_busy_s()?,
        process: TaskUse::of_this_process()?,
        thread: TaskUse::of_this_thread()?,
    })
}

/// The cores on which the calling thread may run, lowest first.
pub fn allowed_cores() -> Result<Vec<usize>, Error> {
    sys::affinity().tried("read the cores of this thread")
}

/// Pins the calling thread to one core, for good.
pub fn pin_this_thread(core: usize) -> Result<(), Error> {
    sys::set_affinity(core).tried(&format!("pin a thread to core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::thread;

    #[test]
    fn only_busy_columns_count() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(7_600_321));
        assert_eq!(busy_ticks("cpu  1 2 3\n"), None);
        assert_eq!(busy_ticks("intr 5\n"), None);
    }

    #[test]
    fn work_is_charged_to_the_thread_that_does_it() {
        let meter = CpuMeter::start().unwrap();
        let worker = thread::spawn(|| {
            let start = TaskUse::of_this_thread().unwrap();
            let mut turns = 0u64;
            loop {
                turns = black_box(turns + 1);
                let used = TaskUse::of_this_thread().unwrap() - start;
                if used.busy_s() > 0.02 {
                    return used;
                }
            }
        });
        let worker = worker.join().unwrap();
        let used = meter.stop().unwrap();
        assert!(used.process.busy_s() >= worker.busy_s());
        assert!(used.thread.busy_s() < used.process.busy_s());
    }

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        thread::spawn(|| {
            let core = *allowed_cores().unwrap().last().unwrap();
            pin_this_thread(core).unwrap();
            assert_eq!(allowed_cores().unwrap(), [core]);
            assert!(matches!(pin_this_thread(usize::MAX), Err(Error::System { .. })));
        })
        .join()
        .unwrap();
    }
}
