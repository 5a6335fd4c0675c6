//! `landfall receive`.

use std::io;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall_transport::signals;
use landfall_transport::signals::Endings;

use super::accept_thread::{AcceptThread, Admitted};
use super::admission::{Limits, USUAL_ENTRIES};
use super::ask::CodeArgs;
use super::code::Code;
use super::folder::{Denied, Folder};
use super::meter::{Meter, Tally};
use super::options::Common;
use super::outcome::{Failure, Outcome};
use super::pipe::{Frame, Inlet, Outlet, WhenFull};
use super::report::{Report, Ways};
use super::seals::Seals;
use super::sink::{Place, Sink};
use super::ways::{Choice, Local};
use super::wire::{MOST_PIECE, ToSender};
use super::{LOOK, Presence, Waited, folder, new_tally, options, part, sink, watch, ways};
use crate::leaving;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  landfall receive --dir incoming              makes a code and prints it
  landfall receive --dir incoming --code-file ~/.landfall-code   a code of ours
  landfall receive --dir /srv/in --local eth0 --local eth1 --keep
  landfall receive --dir - | tar x             one file, to standard output

Nobody sends without the code, however often somebody tries. Everything is encrypted: who is
on the way can read neither names nor contents, and nothing is written that was changed there.

Without an option for it, the code is the one in the environment variable LANDFALL_CODE, or
one is made and printed. One of your own has to be hard to guess: four words or more.

Nothing is written outside of the folder. A file has its name only when all of it came and
its BLAKE3 hash is equal; until then it is a hidden .landfall-….part beside a .journal, from
where the next session resumes. Files and new folders get the permissions of those that are
sent, less what the umask takes; folders that were there keep theirs. If the sender goes away, this waits for it to come
again. Exit codes: 0 all is in place, 1 something is not (stderr says what), 2 the arguments
make no sense, 130 interrupted (Ctrl-C), 143 ended by SIGTERM.";

/// Options of `landfall receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder for what comes; `-` is standard output, for one file
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    code: CodeArgs,
    /// Listen at this address or interface (ADDRESS, ADDRESS:PORT, INTERFACE), usually at all
    /// of IPv4 and port 8181; given several times, the contents are striped over all of them
    #[arg(long, value_name = "ADDRESS", value_parser = Local::parse)]
    local: Vec<Local>,
    /// Replace files that are there by the same name
    #[arg(long)]
    overwrite: bool,
    /// Wait for the disk before a file has its name (fsync)
    #[arg(long)]
    sync: bool,
    /// Go on after a sender has finished, for the next one
    #[arg(long)]
    keep: bool,
    /// Take no more bytes than this of one sender, holes included: 500M, 20G
    #[arg(long, value_name = "SIZE", value_parser = options::parse_size)]
    max_size: Option<u64>,
    /// Take no more files, folders and links than this of one sender
    #[arg(long, value_name = "NUMBER", default_value_t = USUAL_ENTRIES)]
    max_entries: u64,
    #[command(flatten)]
    common: Common,
}

/// Receives until a sender has finished.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    signals::hold_back_file_limit().context("cannot block SIGXFSZ")?;
    if args.is_to_output() && (args.common.json || args.keep) {
        bail!("--json and --keep do not go with `--dir -`: stdout is for one file");
    }
    // Says early what cannot be.
    drop(args.place()?);
    let (code, is_made) = match args.code.find(&endings)? {
        Waited::Done(Some(code)) => (code, false),
        Waited::Done(None) => (Code::random()?, true),
        Waited::Interrupted => return Ok(ExitCode::from(leaving::code_of_ending(&endings))),
    };
    let choice = Choice { locals: args.local.clone(), patience: args.common.patience };
    let endpoint = ways::open_receiver(&choice)?;
    let senders = AcceptThread::open(&endpoint, code.clone())?;
    invite(args, is_made.then_some(&code), &ways::addresses_of(&endpoint));
    loop {
        if endings.wait(Duration::ZERO).context("cannot wait for signals")? {
            eprintln!("landfall: interrupted while waiting for a sender");
            return Ok(ExitCode::from(leaving::code_of_ending(&endings)));
        }
        let Some(admitted) = senders.next(LOOK)? else { continue };
        let Admitted { connection, seals, place: _place } = admitted;
        match session(args, &endpoint, &connection, seals, &endings)? {
            SessionEnd::Interrupted => {
                return Ok(ExitCode::from(leaving::code_of_ending(&endings)));
            }
            SessionEnd::Gone => eprintln!("waiting for the sender to come again (Ctrl-C to end)"),
            SessionEnd::Failed(why) if !args.keep => bail!("{why}"),
            SessionEnd::Failed(why) => eprintln!("landfall: {}", printable(&why)),
            SessionEnd::Finished { .. } if args.keep => {}
            SessionEnd::Finished { is_ok } => {
                drop(senders);
                endpoint.close();
                return Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
    }
}

impl Args {
    fn is_to_output(&self) -> bool {
        self.dir.as_os_str() == "-"
    }

    fn limits(&self) -> Limits {
        Limits { bytes: self.max_size.unwrap_or(u64::MAX), entries: self.max_entries }
    }

    fn place(&self) -> Result<Place> {
        Ok(if self.is_to_output() {
            Place::Output { is_used: false }
        } else {
            Place::Folder(Folder::open(&self.dir, self.overwrite, self.sync)?)
        })
    }
}

/// Says where and with what code, so that it can be copied.
fn invite(args: &Args, made: Option<&Code>, addresses: &[SocketAddr]) {
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    eprintln!("listening on {}", shown.join(" and "));
    match made {
        Some(code) => eprintln!("code: {code}"),
        // Anyone who gave it knows it, and others may look at this screen.
        None => eprintln!("code: the one that was given"),
    }
    if !args.common.quiet {
        let host = addresses.first().map_or_else(String::new, |address| {
            let port = address.port();
            let usual = port == landfall::stp::UDP_PORT;
            match (address.ip().is_unspecified(), usual) {
                (true, true) => "THIS-HOST".into(),
                (true, false) => format!("THIS-HOST:{port}"),
                (false, true) => address.ip().to_string(),
                (false, false) => address.to_string(),
            }
        });
        // Without the code: everybody can read the command line there.
        eprintln!("on the other machine: landfall send PATH… {host}   (it asks for the code)");
    }
}

/// How a session ended.
enum SessionEnd {
    Finished {
        is_ok: bool,
    },
    /// The sender went away.
    Gone,
    Failed(String),
    Interrupted,
}

fn session(
    args: &Args,
    endpoint: &Endpoint,
    connection: &Connection,
    seals: Seals,
    endings: &Endings,
) -> Result<SessionEnd> {
    let tally = new_tally();
    let mut meter = Meter::new(args.common.quiet);
    let (done, result) = sync_channel(1);
    let work = {
        let (endpoint, connection) = (endpoint.clone(), connection.clone());
        let tally = Arc::clone(&tally);
        let place = (args.place()?, args.limits(), args.common.idle);
        move || {
            // The command may have been interrupted: nobody waits then.
            let _ = done.send(converse(&endpoint, &connection, seals, place, &tally));
        }
    };
    std::thread::Builder::new().name("landfall-receive".into()).spawn(work)?;
    let came = watch(&result, endings, &mut meter, &tally)?;
    let elapsed = meter.elapsed();
    drop(meter);
    let (outcome, failure, ways) = match came {
        Waited::Done(done) => done?,
        Waited::Interrupted => {
            connection.abort();
            // What was open is put away by its thread.
            let _ = result.recv_timeout(Duration::from_secs(5));
            eprintln!("landfall: interrupted. {}", kept(&args.dir));
            return Ok(SessionEnd::Interrupted);
        }
    };
    let error = failure.as_ref().map(|failure| explain(failure, &args.dir));
    let report = Report {
        command: "receive",
        outcome: &outcome,
        error: error.as_deref(),
        elapsed,
        ways: &ways,
    };
    let is_gone = matches!(failure, Some(Failure::Lost(_) | Failure::Elsewhere));
    // One summary for each program run, unless it goes on for ever.
    if args.common.json && (!is_gone || args.is_to_output()) {
        report.print_json()?;
    }
    match error {
        Some(error) if is_gone && !args.is_to_output() => {
            eprintln!("landfall: {error}");
            Ok(SessionEnd::Gone)
        }
        Some(error) => Ok(SessionEnd::Failed(error)),
        None => {
            report.say(args.common.quiet);
            Ok(SessionEnd::Finished { is_ok: report.is_ok() })
        }
    }
}

fn kept(dir: &Path) -> String {
    if dir.as_os_str() == "-" {
        return "What was written to standard output is not whole".into();
    }
    format!(
        "What came of unfinished files is kept in {} (.landfall-….part): receive there again, and \
         let the sender send the same, and only the rest is sent",
        folder::describe(dir)
    )
}

fn explain(failure: &Failure, dir: &Path) -> String {
    match failure {
        Failure::Lost(why) => format!("the sender is gone: {why}. {}", kept(dir)),
        Failure::Theirs(why) => format!("the sender stopped: {why}"),
        Failure::Nonsense(why) | Failure::Ours(why) => why.clone(),
        Failure::Elsewhere => format!("the session ended early. {}", kept(dir)),
    }
}

pub(super) fn converse(
    endpoint: &Endpoint,
    connection: &Connection,
    seals: Seals,
    (place, limits, idle): (Place, Limits, Duration),
    tally: &Arc<Tally>,
) -> Result<(Outcome, Option<Failure>, Ways)> {
    /// This many transfers wait to be written, beside those that are under way.
    const WRITE_BEHIND: usize = 4;
    let (sealer, opening) = seals.split();
    let outlet = Outlet::new(connection, sealer, idle);
    let (taking, inlet) = Inlet::open(endpoint, connection, opening, MOST_PIECE)?
        .confirming(&outlet, WhenFull::End)
        .split();
    let taking = taking.map(|taking| part("landfall-take", connection, move || taking.run()));
    let taking = taking.transpose()?;
    let ready = ToSender::Ready { ways: ways::addresses_of(endpoint) };
    let sink = Sink::new((place, limits), outlet, tally, &ready);
    let (to_sink, frames) = sync_channel(WRITE_BEHIND);
    let checking = part("landfall-check", connection, move || sink::check(inlet, &to_sink))?;
    let (outcome, result) = sink.run(&frames);
    let mut ways = Ways::of(endpoint, connection);
    ways.count = ways.count.max(outcome.links_used);
    let Err(mut failure) = result else {
        // The sender closes once it has heard the last word, which is no failure. Until then
        // somebody on the way may have changed it, and the sender asks for it again.
        linger(&frames, idle);
        return Ok((outcome, None, ways));
    };
    // A sender that was told why ends by itself; one that talks nonsense is cut off.
    if matches!(failure, Failure::Ours(_)) {
        linger(&frames, idle);
    }
    drop(frames);
    connection.abort();
    for part in [Some(checking), taking].into_iter().flatten() {
        if let Some(Err(broken)) = part.join() {
            failure = failure.graver(broken.into());
        }
    }
    Ok((outcome, Some(failure), ways))
}

/// Stays until the sender ends the connection, so that it can ask again for the last word: one
/// that is gone ends it by its silence, and one that does neither is let go after this time.
fn linger(frames: &Receiver<Frame>, idle: Duration) {
    let until = Instant::now() + idle;
    while frames.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
}

// Standard output, as the place of one file.

/// Writes a hole, as long as somebody is there who wants it.
pub(super) fn print_zeros(len: u64, presence: &Presence) -> Result<(), Denied> {
    let zeros = vec![0; MOST_PIECE.min(usize::try_from(len).unwrap_or(MOST_PIECE))];
    let mut left = len;
    while left > 0 {
        presence.check().map_err(|gone| Denied::Fatal(gone.to_string()))?;
        let part = left.min(zeros.len() as u64);
        print(&zeros[..part as usize])?;
        left -= part;
    }
    Ok(())
}

/// Writes contents.
pub(super) fn print(bytes: &[u8]) -> Result<(), Denied> {
    io::stdout().lock().write_all(bytes).map_err(|error| output_denied(&error))
}

/// All that was written is out.
pub(super) fn flush_output() -> Result<(), Denied> {
    io::stdout().lock().flush().map_err(|error| output_denied(&error))
}

fn output_denied(error: &io::Error) -> Denied {
    Denied::Fatal(format!("the receiver's standard output: {error}"))
}
