//! `landfall capture`: what goes over an interface, or over all of a command's own
//! network, as pcapng for Wireshark.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the options, and the command that is watched |
//! | `recorder` | frames out of the kernel's ring into the file, on a thread of its own |
//! | `ours` | which frames of an interface belong to this family |

mod ours;
mod recorder;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall_testbed::Namespace;
use landfall_transport::signals::Endings;
use rustix::process::{Pid, Signal, kill_process};

use crate::style;
use ours::CaptureFilter;
use recorder::{Recorder, Summary};

const EXAMPLES: &str = "\
Examples:
  sudo landfall capture --out demo.pcapng -- demo
  sudo landfall capture --out echo.pcapng --interface eth0 --port 7 -- serve echo --interface eth0 --address 192.168.1.77/24
  sudo landfall capture --out lan.pcapng --interface eth0 --seconds 60

Without --interface the command runs in a network of its own, where nothing is but its
loopback: all that goes over that is recorded. With it the command runs here, or there is
none, and what belongs to this family is recorded: ethertypes 0x8181 and 0x88b5, IP
protocol 118, UDP ports 8181 and 8182, and TCP and UDP to and from each --port.

docs/wireshark has dissectors: tshark -X lua_script:stp.lua -r demo.pcapng

It needs CAP_NET_RAW, and for a network of its own CAP_SYS_ADMIN; as an ordinary user
`unshare -Urn landfall capture …` may do. It ends with its command, with that one's exit
code, or at SIGINT or SIGTERM.";

/// Options of `landfall capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file to be written
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Record this interface; several times for several
    #[arg(long, value_name = "INTERFACE")]
    interface: Vec<String>,
    /// Record what goes to or comes from this port of TCP or UDP, too
    #[arg(long, value_name = "PORT", requires = "interface")]
    port: Vec<u16>,
    /// Record whatever goes over the interface
    #[arg(long, requires = "interface", conflicts_with = "port")]
    all: bool,
    /// Keep at most this many bytes of each frame
    #[arg(long, value_name = "BYTES", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(64..=65_536))]
    snap: u32,
    /// Write at most this many MiB; what comes then is counted
    #[arg(long, value_name = "MIB", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    most: u64,
    /// End by itself after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// One JSON object about the capture at the end, on stderr
    #[arg(long)]
    json: bool,
    /// A command of this program, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How often it looks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a command may take to end that was asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// Records until the command ends, or somebody ends this.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let is_its_own = args.interface.is_empty();
    ensure!(
        !is_its_own || !args.command.is_empty(),
        "nothing to record: name an interface with --interface, or a command behind `--`"
    );
    let place = if is_its_own { own_network()? } else { Namespace::of_this_thread()? };
    let (interfaces, ours) = match is_its_own {
        true => (vec!["lo".to_owned()], CaptureFilter::everything()),
        false if args.all => (args.interface.clone(), CaptureFilter::everything()),
        false => (args.interface.clone(), CaptureFilter::with_ports(&args.port)),
    };
    let most = args.most << 20;
    let start = || Recorder::start(&args.out, &interfaces, args.snap, most, ours);
    let recorder = place.enter(start)??;
    let code = match args.command.as_slice() {
        [] => wait_for_the_end(&endings, args.seconds).map(|()| ExitCode::SUCCESS),
        words => watch(words, &place, &endings, args.seconds),
    };
    let summary = recorder.finish()?;
    tell(args, &summary)?;
    code
}

fn own_network() -> Result<Namespace> {
    Namespace::new().context(
        "a command's own network cannot be made: run as root, try `unshare -Urn landfall capture \
         …`, or record an interface with --interface",
    )
}

fn tell(args: &Args, summary: &Summary) -> Result<()> {
    if args.json {
        eprintln!("{}", serde_json::to_string(summary)?);
        return Ok(());
    }
    let Summary { frames, file_bytes, not_written, lost } = summary;
    let size = style::bytes(*file_bytes);
    eprintln!("{}: {frames} frames, {size}", args.out.display());
    if *not_written > 0 {
        eprintln!("{not_written} more did not fit: raise --most, or lower --snap");
    }
    if *lost > 0 {
        eprintln!("{lost} came faster than they were written, and are missing: lower --snap");
    }
    Ok(())
}

fn wait_for_the_end(endings: &Endings, seconds: Option<u64>) -> Result<()> {
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while until.is_none_or(|until| Instant::now() < until) {
        if endings.wait(LOOK_EVERY)? {
            break;
        }
    }
    Ok(())
}

/// A command that is asked to end, and then made to, should nobody wait for it any more.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        // Gone already is just as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command of this program there, until it ends.
fn watch(
    words: &[String],
    place: &Namespace,
    endings: &Endings,
    seconds: Option<u64>,
) -> Result<ExitCode> {
    let program = std::env::current_exe().context("where is this program?")?;
    let start = || Command::new(program).args(words).spawn();
    let mut child = Watched(place.enter(start)?.context("cannot start the command")?);
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.0.try_wait()? {
            // Ended by a signal it has no code.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
        let time_is_over = until.is_some_and(|until| Instant::now() >= until);
        match asked {
            None if endings.wait(LOOK_EVERY)? || time_is_over => {
                asked = Some(Instant::now());
                let id = i32::try_from(child.0.id()).ok().and_then(Pid::from_raw);
                // Gone already is just as well.
                let _ = id.map(|id| kill_process(id, Signal::TERM));
            }
            None => {}
            Some(asked) => {
                ensure!(asked.elapsed() < PATIENCE, "the command does not end");
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}
