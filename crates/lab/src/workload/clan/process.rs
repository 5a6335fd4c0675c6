//! The other side as a process of its own: this program, started again.

use std::io::{stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall_testbed::rivals::Endpoints;
use landfall_testbed::{Sample, cpu};

use super::job::{Answered, ByPipe, Job, sample};
use crate::leaving::{TemporaryFolder, end_with_parent};
use crate::workload::side::place_thread;

/// Options of the command that the other process is started with.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder in which nodes meet
    folder: PathBuf,
    /// What to do, as the process that starts this one puts it
    job: String,
}

/// The other process; killed if it is still there when nobody asks any more.
struct OtherProcess(Child);

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // Gone already is just as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does the job with another process, over shared memory.
pub(crate) fn run(endpoints: &Endpoints, job: &Job) -> Result<Sample> {
    let folder = TemporaryFolder::new()?;
    let job = Job { core: endpoints.receive.core, ..*job };
    let mut other = start(folder.path(), &job)?;
    let (hear, tell) = (other.0.stdout.take(), other.0.stdin.take());
    let (hear, tell) = hear.zip(tell).context("the other process has no pipes")?;
    let (done, finished) = channel();
    let asking = thread::Builder::new().name("landfall-ask".into());
    let (endpoints, folder_path) = (endpoints.clone(), folder.path().to_owned());
    let asking = asking.spawn(move || {
        let mut meet = ByPipe::new(hear, tell);
        let result = ask(&endpoints, &folder_path, &mut meet, &job);
        // Nobody waits any more: it took too long.
        let _ = done.send(result);
    })?;
    let result = match finished.recv_timeout(job.time.saturating_add(2 * job.limit)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => bail!("a thread panicked"),
        Err(RecvTimeoutError::Timeout) => {
            // Its pipes close, and with them ends whatever waits for it.
            drop(other);
            bail!("no end after {:?}", job.time + 2 * job.limit)
        }
    };
    if asking.join().is_err() {
        bail!("a thread panicked");
    }
    if result.is_ok() {
        wait_for(&mut other.0, job.limit)?;
    }
    result
}

fn start(folder: &Path, job: &Job) -> Result<OtherProcess> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut command = Command::new(program);
    command.arg("peer").arg(folder).arg(serde_json::to_string(job)?);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(OtherProcess(command.spawn().context("cannot start another process")?))
}

fn ask<R: std::io::Read, W: std::io::Write>(
    endpoints: &Endpoints,
    folder: &Path,
    meet: &mut ByPipe<R, W>,
    job: &Job,
) -> Result<Sample> {
    place_thread(&endpoints.send)?;
    let node = SharedNode::open(SharedConfig::new(folder))?;
    let asked = super::ask(&node, meet, job)?;
    let answered: Answered =
        serde_json::from_str(&meet.hear()?).context("the other process reports nonsense")?;
    Ok(sample(job, &asked, answered))
}

fn wait_for(child: &mut Child, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("the other process: {status}") };
        }
        thread::sleep(Duration::from_millis(1));
    }
    bail!("the other process does not end")
}

/// What the other process does.
pub fn answer(args: &Args) -> Result<()> {
    end_with_parent()?;
    let job: Job = serde_json::from_str(&args.job).context("no job that is known here")?;
    if let Some(core) = job.core {
        cpu::pin_this_thread(core)?;
    }
    let mut meet = ByPipe::new(stdin(), stdout());
    let node = SharedNode::open(SharedConfig::new(&args.folder))?;
    let answered = super::answer(&node, &mut meet, &job)?;
    meet.say(&serde_json::to_string(&answered)?)
}
