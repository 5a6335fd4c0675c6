//! `landfall bigmtu-ask`: asks for a fast stream by the control socket of `landfall bigmtu`, and
//! keeps it for as long as it runs, or a program that it starts does.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall::defrag::bigmtu::FastStream;
use landfall_transport::signals::Endings;

use crate::style;

const EXAMPLES: &str = "\
Examples, beside a `landfall bigmtu --admission identity --control /run/big0.sock`:
  landfall bigmtu-ask /run/big0.sock 10.9.0.2 -- iperf3 -c 10.9.0.2
  landfall bigmtu-ask /run/big0.sock 02:00:00:00:00:01 --seconds 10

Answers: fast; slow, and how many get their turn before; no gate (the station admits nobody in
particular). A stream is given back at the end.";

/// Options of `landfall bigmtu-ask`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The control socket
    socket: PathBuf,
    /// The station that is to be sent to: its address, or that of a neighbour over IPv4
    station: String,
    /// End by itself after this many seconds
    #[arg(long, conflicts_with = "command")]
    seconds: Option<u64>,
    /// A program to run once there is an answer, which is then only told if it is not fast
    #[arg(last = true)]
    command: Vec<String>,
}

/// How long an answer is waited for before it is looked whether to end.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Asks, and runs until it is told to end.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let mut stream = FastStream::ask(&args.socket, &args.station)
        .with_context(|| format!("nothing answers at {}", args.socket.display()))?;
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while !endings.wait(Duration::ZERO)? && until.is_none_or(|until| Instant::now() < until) {
        let answer = stream.answer_within(LOOK_UP).with_context(|| args.station.clone())?;
        let Some(answer) = answer else { continue };
        match args.command.split_first() {
            None => style::print(&format!("{answer}\n"))?,
            Some(_) if answer == "asked" => {}
            Some((program, words)) => {
                if answer != "fast" {
                    style::print(&format!("{answer}\n"))?;
                }
                let status = Command::new(program).args(words).status();
                let status = status.with_context(|| format!("cannot run {program}"))?;
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
