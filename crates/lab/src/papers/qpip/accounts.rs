//! Whose processor time it was: of processes by number, and of the kernel's own threads.

use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result, ensure};
use landfall_testbed::cpu::TaskUse;
use serde::Serialize;

/// Seconds of processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Used {
    /// The program that has the device as a file.
    pub(crate) program_s: f64,
    /// The thread that writes and reads the file, with its part of the file system.
    pub(crate) user_s: f64,
    /// The kernel's own threads: loop devices, what writes pages back, and packets that no
    /// process is charged for.
    pub(crate) kernel_s: f64,
    /// The server.
    pub(crate) server_s: f64,
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            program_s: self.program_s - earlier.program_s,
            user_s: self.user_s - earlier.user_s,
            kernel_s: self.kernel_s - earlier.kernel_s,
            server_s: self.server_s - earlier.server_s,
        }
    }
}

/// What was used so far by a client's program, a server, the calling thread and the kernel.
pub(crate) fn used(program: u32, server: u32) -> Result<Used> {
    Ok(Used {
        program_s: of_process(program)?,
        user_s: TaskUse::of_this_thread()?.busy_s(),
        kernel_s: of_the_kernel()?,
        server_s: of_process(server)?,
    })
}

/// All threads of a process that live.
fn of_process(pid: u32) -> Result<f64> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).with_context(|| format!("process {pid} has ended"))?;
    let (mut seconds, mut found) = (0.0, 0);
    for task in tasks {
        // Threads end at any time; that of the program itself is there.
        if let Ok(of_task) = of_task(&task?.path().join("schedstat")) {
            seconds += of_task;
            found += 1;
        }
    }
    ensure!(found > 0, "nothing is counted for process {pid}: this needs CONFIG_SCHED_INFO");
    Ok(seconds)
}

/// All children of `kthreadd`, which is process 2.
fn of_the_kernel() -> Result<f64> {
    let mut seconds = 0.0;
    for entry in fs::read_dir("/proc").context("there is no /proc")? {
        let path = entry?.path();
        // Others have come and gone meanwhile, and not all of it are processes.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        if parent(&stat) == Some(2) {
            seconds += of_task(&path.join("schedstat")).unwrap_or(0.0);
        }
    }
    Ok(seconds)
}

/// `proc_pid_schedstat(5)`: nanoseconds on a processor come first.
fn of_task(path: &std::path::Path) -> Result<f64> {
    let text = fs::read_to_string(path)?;
    let first = text.split_ascii_whitespace().next().and_then(|first| first.parse::<u64>().ok());
    Ok(first.context("a schedstat begins with a number")? as f64 / 1e9)
}

/// `proc_pid_stat(5)`: the parent comes second behind the name, which may have anything in it.
fn parent(stat: &str) -> Option<u32> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_whatever_the_name() {
        assert_eq!(parent("7 (kworker/u4:1-loop0) I 2 0 0 0 -1 69238880 0"), Some(2));
        assert_eq!(parent("7 (a) b (c) S 1 0 0"), Some(1));
        assert_eq!(parent("7 sh"), None);
    }

    /// A program of one thread: of this one threads end meanwhile, other tests.
    #[test]
    fn work_is_charged_to_the_program_that_does_it() {
        let mut program = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("there is a shell");
        let before = used(program.id(), program.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let seen = loop {
            let seen = used(program.id(), program.id()).unwrap() - before;
            let least = seen.program_s.min(seen.user_s).min(seen.server_s);
            if least >= 0.02 || std::time::Instant::now() > deadline {
                break seen;
            }
        };
        program.kill().unwrap();
        program.wait().unwrap();
        let least = seen.program_s.min(seen.user_s).min(seen.server_s);
        assert!(least >= 0.02, "{seen:?}");
        assert!(of_process(u32::MAX).is_err());
    }
}
