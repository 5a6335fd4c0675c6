//! `landfall bigmtu-ask`: asks for a fast stream by the control socket of `landfall bigmtu`, and
//! keeps it for as long as it runs, or a program that it starts does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
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
    let mut stream = UnixStream::connect(&args.socket)
        .with_context(|| format!("nothing answers at {}", args.socket.display()))?;
    writeln!(stream, "ask {}", args.station)?;
    stream.set_read_timeout(Some(LOOK_UP))?;
    let mut answers = BufReader::new(stream);
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut line = String::new();
    while !endings.wait(Duration::ZERO)? && until.is_none_or(|until| Instant::now() < until) {
        match answers.read_line(&mut line) {
            Ok(0) => bail!("the interface is gone"),
            Ok(_) => {}
            // What came of the line stays in it.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).context("the interface is gone"),
        }
        let answer = std::mem::take(&mut line);
        if let Some(why) = answer.strip_prefix("error ") {
            bail!("{}: {}", args.station, why.trim_end());
        }
        match args.command.split_first() {
            None => style::print(&answer)?,
            Some(_) if answer == "asked\n" => {}
            Some((program, words)) => {
                if answer != "fast\n" {
                    style::print(&answer)?;
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
