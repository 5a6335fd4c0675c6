//! The processes that it takes, and how they are ended: each with a bound.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall_testbed::Namespace;
use rustix::process::{Pid, Signal, kill_process};

use crate::leaving;

/// Long for a program that sets something up.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it looks whether something is so.
const TICK: Duration = Duration::from_millis(2);

/// Is a program of this name where shells look for it, or where root's are?
pub(super) fn is_there(program: &str) -> bool {
    path_of(program).is_some()
}

fn path_of(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let root = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut paths = std::env::split_paths(&paths).chain(root);
    paths.find_map(|path| Some(path.join(program)).filter(|path| path.is_file()))
}

/// Runs a program to its end, and gives what it printed.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let path = path_of(program).with_context(|| format!("there is no `{program}`"))?;
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut out = child.stdout.take().context("it is piped")?;
    let mut error = child.stderr.take().context("it is piped")?;
    let ended = until(LIMIT, || Ok(child.try_wait()?.is_some()))?;
    if !ended {
        let _ = child.kill();
        bail!("{program} has not ended within {LIMIT:?}");
    }
    let (mut printed, mut said) = (String::new(), String::new());
    out.read_to_string(&mut printed)?;
    error.read_to_string(&mut said)?;
    ensure!(child.wait()?.success(), "{program}: {}", said.trim());
    Ok(printed)
}

/// Waits until something is so; false: it did not come to that.
pub(super) fn until(limit: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > limit {
            return Ok(false);
        }
        thread::sleep(TICK);
    }
    Ok(true)
}

/// Another process of this program, which runs until it is told to end.
pub(super) struct Program {
    child: Child,
    name: &'static str,
    complaints: PathBuf,
}

impl Program {
    /// Starts it on a host, and waits for the line that it says when it is ready.
    pub(super) fn start(
        host: &Namespace,
        name: &'static str,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self> {
        let complaints = folder.join(format!("{name}.log"));
        let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(&complaints)?);
        // An identity of its own: nobody's is touched.
        command.env("LANDFALL_STATE", folder.join("state"));
        let child = host.enter(|| command.spawn())?.with_context(|| format!("the {name}"))?;
        let mut program = Self { child, name, complaints };
        let pid = Pid::from_child(&program.child);
        // A number is not given to another process before this one was waited for, or this
        // program has ended.
        leaving::before_signals_end_it(move || {
            let _ = kill_process(pid, Signal::TERM);
        });
        let out = program.child.stdout.take().context("it is piped")?;
        let (says, hears) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(out).read_line(&mut line);
            // Nobody listens any more if it took too long.
            let _ = says.send(read.map(|_| line));
        });
        match hears.recv_timeout(LIMIT) {
            Ok(Ok(line)) if !line.is_empty() => Ok(program),
            _ => bail!("the {name} does not come up: {}", program.complaint()),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn complaint(&self) -> String {
        let text = fs::read_to_string(&self.complaints).unwrap_or_default();
        text.trim().to_owned()
    }

    /// Tells it to end, and waits until it has.
    pub(super) fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("the {} has ended by itself", self.name))?;
        let ended = until(LIMIT, || Ok(self.child.try_wait()?.is_some()))?;
        ensure!(ended, "the {} does not end: {}", self.name, self.complaint());
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} failed: {}", self.name, self.complaint());
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_heard() {
        assert_eq!(run("echo", &["a", "b"]).unwrap(), "a b\n");
        let failed = run("ls", &["/no/such/folder"]).unwrap_err().to_string();
        assert!(failed.starts_with("ls: ") && failed.contains("/no/such/folder"), "{failed}");
        assert!(run("no-such-program", &[]).is_err() && !is_there("no-such-program"));
    }
}
