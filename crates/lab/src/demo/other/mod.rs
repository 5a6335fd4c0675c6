//! The other process of the acts on STP: this program, started again, so that nothing
//! goes from one side to the other but by way of the network.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | how it is started, and what it is asked and tells |
//! | `answer` | what it does |

mod answer;

use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use landfall::stp::Transport;
use landfall::stp::blocking::{Connection, Endpoint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::workload::clan::job::ByPipe;

pub use answer::answer;
pub(super) use answer::read_word;

/// The port of STP, and what both sides call the memory of the other process.
pub(super) const PORT: u16 = 7;
pub(super) const NAME: u32 = 1;
/// How long that memory is.
pub(super) const EXPOSED: usize = 4096;
/// Nothing here takes so long.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Where the other process can be reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Addresses {
    pub(super) stp: [SocketAddr; 2],
    pub(super) tcp: SocketAddr,
}

/// What it is asked to do next.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Take a Transfer of this many bytes.
    Transfer { len: usize },
    /// The same, and give the second path up when half of them have come.
    TransferLosingAPath { len: usize },
    /// Take this many bytes by TCP, and say when they are there.
    Stream { len: usize },
    /// Send words back by TCP until the connection ends, spinning or sleeping.
    Words { spins: bool },
    /// Let this side into its memory, for as long as the connection lives.
    Expose,
}

/// What it tells when that is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Of the bytes that came.
    pub(super) hash: String,
    /// How often the process slept and was woken meanwhile.
    pub(super) wakeups: u64,
    /// Bytes that were moved in user space.
    pub(super) copied: u64,
    /// Packets that came over each path, when half of the bytes had, and at the end.
    pub(super) at_half: [u64; 2],
    pub(super) at_end: [u64; 2],
    /// Blocks that were sent over another path than was meant.
    pub(super) moved: u64,
}

/// The other process; killed if it is still there when nobody asks any more.
pub(super) struct OtherProcess {
    child: Child,
    meet: ByPipe<ChildStdout, ChildStdin>,
    pub(super) doors: Addresses,
}

impl OtherProcess {
    pub(super) fn start() -> Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command = Command::new(program);
        command.arg("demo-peer").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start another process")?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (hear, tell) = pipes.context("the other process has no pipes")?;
        let mut meet = ByPipe::new(hear, tell);
        let doors = serde_json::from_str(&meet.hear()?)?;
        Ok(Self { child, meet, doors })
    }

    /// Asks for something; it is under way when this returns.
    pub(super) fn ask(&mut self, what: Ask) -> Result<()> {
        self.meet.say(&serde_json::to_string(&what)?)?;
        let answer = self.meet.hear()?;
        ensure!(answer == READY, "the other process says `{answer}`");
        Ok(())
    }

    /// The work with its memory is over: what it finds there?
    pub(super) fn finish_exposing<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.meet.say("over")?;
        self.told()
    }

    /// What it tells in the end.
    pub(super) fn told<T: DeserializeOwned>(&mut self) -> Result<T> {
        serde_json::from_str(&self.meet.hear()?).context("the other process reports nonsense")
    }
}

/// What it says before it begins.
const READY: &str = "ready";

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // Gone already is just as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An endpoint with two paths on the loopback.
pub(super) fn endpoint() -> Result<Endpoint> {
    let path = || Transport::udp(([127, 0, 0, 1], 0).into());
    let endpoint = Endpoint::builder().path(path()).path(path()).bind()?;
    Ok(endpoint.into())
}

/// Connects to the other process, over one path or both.
pub(super) fn connect(endpoint: &Endpoint, doors: &Addresses, paths: usize) -> Result<Connection> {
    let connection = endpoint.connect(doors.stp[0], PORT)?;
    let own = endpoint.as_async().paths();
    for (path, door) in own.into_iter().zip(doors.stp).take(paths).skip(1) {
        connection.add_link(path, door)?;
    }
    Ok(connection)
}

/// Waits for something that has an end.
macro_rules! within_limit {
    ($operation:expr) => {
        match $operation.wait_for($crate::demo::other::LIMIT) {
            Ok(outcome) => anyhow::Ok(outcome?),
            Err(_) => Err(anyhow::anyhow!("no end after {:?}", $crate::demo::other::LIMIT)),
        }
    };
}
pub(super) use within_limit;
