//! `landfall receive`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall::stp::blocking::{Connection, Endpoint, Listener};
use landfall_transport::signals::{self, Endings};

use crate::leaving;

use super::code::{Code, CodeKey, Seals, Side};
use super::folder::{self, Folder};
use super::greet::{self, Greeted};
use super::meter::{Meter, Tally};
use super::options::Common;
use super::outcome::{Failure, Outcome};
use super::pipe::{Inlet, Outlet};
use super::report::{Report, Ways};
use super::sink::{self, Place, Sink};
use super::ways::{self, Choice, Local};
use super::wire::{MOST_PIECE, SERVICE, ToSender};
use super::{Came, new_tally, part, watch};

const EXAMPLES: &str = "\
Examples:
  landfall receive --dir incoming              makes a code and prints it
  landfall receive --dir incoming --code three-words-of-ours
  landfall receive --dir /srv/in --local eth0 --local eth1 --keep
  landfall receive --dir - | tar x             one file, to standard output

Nobody sends without the code, and three wrong tries end the program. But there is NO
ENCRYPTION yet: names and contents can be READ by everybody on the way.

Nothing is written outside of the folder. A file has its name only when all of it came and
its BLAKE3 hash is equal; until then it is a hidden .landfall-….part beside a .journal, from
where the next session resumes. Folders get the permissions and times of those that are
sent, also where they were there before. If the sender goes away, this waits for it to come
again. Exit codes: 0 all is in place, 1 something is not (stderr says what), 2 the arguments
make no sense, 130 interrupted (Ctrl-C), 143 ended by SIGTERM.";

/// Options of `landfall receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder for what comes; `-` is standard output, for one file
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The code that senders have to know; without this option, one is made and printed
    #[arg(long, value_parser = Code::given)]
    code: Option<Code>,
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
    #[command(flatten)]
    common: Common,
}

/// So many wrong proofs of the code end the program.
const TRIES: u8 = 3;
/// How long accepting waits at a time.
const ACCEPT: Duration = Duration::from_millis(100);

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
    let code = args.code.clone().map_or_else(Code::random, Ok)?;
    let choice = Choice { locals: args.local.clone(), patience: args.common.patience };
    let endpoint = ways::open_receiver(&choice)?;
    let listener = endpoint.listen(SERVICE)?;
    invite(args, &code, &ways::addresses_of(&endpoint));
    let mut door = Door { endpoint: &endpoint, listener, key: code.key(), tries: TRIES };
    loop {
        let Some((connection, seals)) = door.admit(&endings)? else {
            eprintln!("landfall: interrupted while waiting for a sender");
            return Ok(ExitCode::from(leaving::code_of_ending(&endings)));
        };
        match session(args, &endpoint, &connection, &seals, &endings)? {
            Over::Interrupted => return Ok(ExitCode::from(leaving::code_of_ending(&endings))),
            Over::Gone => eprintln!("waiting for the sender to come again (Ctrl-C to end)"),
            Over::Failed(why) if !args.keep => bail!("{why}"),
            Over::Failed(why) => eprintln!("landfall: {why}"),
            Over::Finished { .. } if args.keep => {}
            Over::Finished { is_ok } => {
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

    fn place(&self) -> Result<Place> {
        Ok(if self.is_to_output() {
            Place::Output { is_used: false }
        } else {
            Place::Folder(Folder::open(&self.dir, self.overwrite, self.sync)?)
        })
    }
}

/// Says where and with what code, so that it can be copied.
fn invite(args: &Args, code: &Code, addresses: &[SocketAddr]) {
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    eprintln!("listening on {}", shown.join(" and "));
    eprintln!("code: {code}");
    if code.is_short() {
        eprintln!(
            "landfall: the code is short: who listens to a greeting can guess it at leisure, and \
             send in its place; without --code a better one is made"
        );
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
        eprintln!("on the other machine: landfall send --code {code} PATH… {host}");
        eprintln!("not encrypted: contents can be read on the way");
    }
}

/// Where senders knock.
struct Door<'a> {
    endpoint: &'a Endpoint,
    listener: Listener,
    key: CodeKey,
    /// Wrong tries that are left.
    tries: u8,
}

impl Door<'_> {
    /// Waits for a sender that knows the code. Nothing: the program shall end.
    fn admit(&mut self, endings: &Endings) -> Result<Option<(Connection, Seals)>> {
        loop {
            if endings.wait(Duration::ZERO).context("cannot wait for signals")? {
                return Ok(None);
            }
            let Some(connection) = self.listener.accept_within(ACCEPT)? else { continue };
            let from = connection.as_async().peer();
            let port = ways::addresses_of(self.endpoint)
                .get(usize::from(connection.as_async().path().0))
                .map_or(0, SocketAddr::port);
            match greet::as_receiver(self.endpoint, &connection, &self.key, port, self.tries - 1)? {
                Greeted::Knows(seals) => return Ok(Some((connection, seals))),
                Greeted::Nobody(why) => eprintln!("landfall: {from} knocked: {why}"),
                Greeted::Wrong => {
                    self.tries -= 1;
                    eprintln!("landfall: {from} does not know the code");
                    if self.tries == 0 {
                        // The refusal is heard before the connection is gone.
                        let _ = connection.close();
                        bail!(
                            "{TRIES} wrong codes: ended, so that nobody guesses on. If it was you, \
                             start again and compare the code; if not, somebody else is trying"
                        );
                    }
                }
            }
        }
    }
}

/// How a session ended.
enum Over {
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
    seals: &Seals,
    endings: &Endings,
) -> Result<Over> {
    let tally = new_tally();
    let mut meter = Meter::new(args.common.quiet);
    let (done, result) = sync_channel(1);
    let work = {
        let (endpoint, connection) = (endpoint.clone(), connection.clone());
        let (seals, tally) = (seals.clone(), Arc::clone(&tally));
        let place = (args.place()?, args.common.idle);
        move || {
            // The command may have been interrupted: nobody waits then.
            let _ = done.send(converse(&endpoint, &connection, &seals, place, &tally));
        }
    };
    std::thread::Builder::new().name("landfall-receive".into()).spawn(work)?;
    let came = watch(&result, endings, &mut meter, &tally)?;
    let elapsed = meter.elapsed();
    drop(meter);
    let (outcome, failure, ways) = match came {
        Came::Done(done) => done?,
        Came::Interrupted => {
            connection.abort();
            // What was open is put away by its thread.
            let _ = result.recv_timeout(Duration::from_secs(5));
            eprintln!("landfall: interrupted. {}", kept(&args.dir));
            return Ok(Over::Interrupted);
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
            Ok(Over::Gone)
        }
        Some(error) => Ok(Over::Failed(error)),
        None => {
            report.say(args.common.quiet);
            Ok(Over::Finished { is_ok: report.is_ok() })
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
    seals: &Seals,
    (place, idle): (Place, Duration),
    tally: &Arc<Tally>,
) -> Result<(Outcome, Option<Failure>, Ways)> {
    /// So many transfers wait to be written, beside those that are under way.
    const WRITE_BEHIND: usize = 4;
    let inlet = Inlet::open(endpoint, connection, seals, Side::Sender, MOST_PIECE)?;
    let outlet = Outlet::new(connection, seals, Side::Receiver, idle);
    let ready = ToSender::Ready { ways: ways::addresses_of(endpoint) };
    let sink = Sink::new(place, outlet, tally, &ready)?;
    let (to_sink, frames) = sync_channel(WRITE_BEHIND);
    let taking = part("landfall-take", connection, move || sink::take(inlet, &to_sink))?;
    let (outcome, result) = sink.run(&frames);
    drop(frames);
    let mut ways = Ways::of(endpoint, connection);
    ways.count = ways.count.max(outcome.links_used);
    let Err(failure) = result else {
        // The sender closes, which is no failure; if it does not, it is gone.
        wait_for_close(endpoint, connection);
        return Ok((outcome, None, ways));
    };
    // A sender that was told why ends by itself; one that talks nonsense is cut off.
    if matches!(failure, Failure::Ours(_)) {
        wait_for_close(endpoint, connection);
    }
    connection.abort();
    let failure = match taking.join() {
        Some(Err(broken)) => failure.graver(broken.into()),
        _ => failure,
    };
    Ok((outcome, Some(failure), ways))
}

/// Lets the sender have the last word, for a while: it closes the connection.
fn wait_for_close(endpoint: &Endpoint, connection: &Connection) {
    const LIMIT: Duration = Duration::from_secs(5);
    // Nothing more comes, so this ends with the connection, or with the limit.
    if let Ok(memory) = endpoint.memory(1) {
        let _ = connection.receive(memory).wait_for(LIMIT);
    }
}
