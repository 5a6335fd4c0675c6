//! `landfall send`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall_transport::signals::Endings;

use crate::leaving;

use super::ask::CodeArgs;
use super::code::Code;
use super::greet::{MOST_PROOFS, Rejected};
use super::meter::{Meter, Tally};
use super::options::{Common, Pace};
use super::outcome::{Failure, Outcome};
use super::pipe::{Frame, Inlet, Outlet, WhenFull};
use super::report::{Report, Ways};
use super::seals::Seals;
use super::source::Source;
use super::walk::Roots;
use super::ways::{Choice, Local};
use super::wire::{Address, MOST_ANNOUNCED, MOST_ANSWERS, ToSender};
use super::{Presence, Waited, greet, new_tally, options, part, source, watch, ways};

const EXAMPLES: &str = "\
Examples:
  landfall send film.mkv photos/ laptop.local       asks for the code
  landfall send --code-file code big.img 192.0.2.7:9000
  landfall send --local eth0 --local eth1 data/ 192.0.2.7
  LANDFALL_CODE=… landfall send --name all.tar - 192.0.2.7   what `tar c .` writes, say

The code is the receiver's: `landfall receive` prints it. Without an option for it, it is the
one in the environment variable LANDFALL_CODE, or is asked for at the terminal. It is proven
and never sent, and nobody can guess it from what is sent. Everything is encrypted: who is on
the way can read neither names nor contents, and can change nothing unnoticed.

Symbolic links in folders are sent as links, if they stay within what is sent; those that
you name are followed. Interrupted? Send the same again: the receiver keeps what came, and
only the rest is sent. Exit codes: 0 all is in place, 1 something is not (stderr says what),
2 the arguments make no sense, 130 interrupted (Ctrl-C), 143 ended by SIGTERM.";

/// Options of `landfall send`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    code: CodeArgs,
    /// Files and folders; `-` is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The machine where `landfall receive` runs: HOST, or HOST:PORT (UDP, usually 8181)
    #[arg(required = true)]
    host: String,
    /// Send from this address or interface (ADDRESS, ADDRESS:PORT, INTERFACE); given several
    /// times, the contents are striped over all of them
    #[arg(long, value_name = "ADDRESS", value_parser = Local::parse)]
    local: Vec<Local>,
    /// What standard input is called at the other side
    #[arg(long, default_value = "stdin")]
    name: String,
    /// No faster than this many bytes a second: 500K, 20M, 1G
    #[arg(long, value_name = "RATE", value_parser = options::parse_rate)]
    limit: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Sends what is named.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    if args.code.is_stdin() && args.paths.iter().any(|path| path.as_os_str() == "-") {
        bail!(
            "standard input cannot be both the code and a file: give the code by --code-file, by \
             the environment variable LANDFALL_CODE, or at the terminal"
        );
    }
    let code = match args.code.find_or_ask(&endings)? {
        Waited::Done(code) => code,
        Waited::Interrupted => return Ok(ExitCode::from(leaving::code_of_ending(&endings))),
    };
    let to = ways::resolve_host(&args.host)?;
    let roots = Roots::new(&args.paths, &args.name)?;
    let choice = Choice { locals: args.local.clone(), patience: args.common.patience };
    let endpoint = ways::open_sender(&choice, to)?;
    let tally = new_tally();
    let mut meter = Meter::new(args.common.quiet);

    let (done, result) = sync_channel(1);
    let (open, limits) = (Arc::new(OpenConnection::default()), (args.limit, args.common.idle));
    let session = {
        let (endpoint, tally, open) = (endpoint.clone(), Arc::clone(&tally), Arc::clone(&open));
        move || {
            let result = greet_and_send(&endpoint, &code, to, (&roots, limits), (&tally, &open));
            // The command may have been interrupted: nobody waits then.
            let _ = done.send(result);
        }
    };
    std::thread::Builder::new().name("landfall-send".into()).spawn(session)?;
    let session = match watch(&result, &endings, &mut meter, &tally)? {
        Waited::Done(session) => session?,
        Waited::Interrupted => {
            let elapsed = meter.elapsed();
            drop(meter);
            if let Some(connection) = &*open.lock().unwrap_or_else(PoisonError::into_inner) {
                connection.abort();
            }
            endpoint.close();
            eprintln!(
                "landfall: interrupted after {:.1} s. The receiver keeps what came: run the same \
                 command again, and only the rest is sent",
                elapsed.as_secs_f64()
            );
            return Ok(ExitCode::from(leaving::code_of_ending(&endings)));
        }
    };
    let elapsed = meter.elapsed();
    drop(meter);
    finish(args, &session, elapsed)
}

/// The connection, once there is one.
pub(super) type OpenConnection = Mutex<Option<Connection>>;

/// No more bytes a second than this, and no longer without a word of the other side.
pub(super) type Limits = (Option<u64>, Duration);

/// A session that is over.
pub(super) struct Session {
    pub(super) outcome: Outcome,
    pub(super) failure: Option<Failure>,
    ways: Ways,
}

fn finish(args: &Args, session: &Session, elapsed: Duration) -> Result<ExitCode> {
    let error = session.failure.as_ref().map(explain);
    let Session { outcome, ways, .. } = session;
    let report = Report { command: "send", outcome, error: error.as_deref(), elapsed, ways };
    if args.common.json {
        report.print_json()?;
    }
    match &error {
        Some(error) => bail!("{error}"),
        None => report.say(args.common.quiet),
    }
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn explain(failure: &Failure) -> String {
    const AGAIN: &str =
        "The receiver keeps what came: send the same again, and only the rest is sent";
    match failure {
        Failure::Lost(why) => format!("the receiver is gone: {why}. {AGAIN}"),
        Failure::Theirs(why) => format!("the receiver stopped: {why}"),
        Failure::Nonsense(why) | Failure::Ours(why) => why.clone(),
        Failure::Elsewhere => format!("the session ended early. {AGAIN}"),
    }
}

pub(super) fn greet_and_send(
    endpoint: &Endpoint,
    code: &Code,
    to: Address,
    (roots, limits): (&Roots, Limits),
    (tally, open): (&Arc<Tally>, &OpenConnection),
) -> Result<Session> {
    let (connection, seals) = connect_and_greet(endpoint, code, to, (tally, open))?;
    tally.say("counting what there is".into());
    let plan = roots.count();
    tally.total_files.store(plan.0, std::sync::atomic::Ordering::Relaxed);
    tally.total_bytes.store(plan.1, std::sync::atomic::Ordering::Relaxed);
    converse(endpoint, connection, seals, to, (roots.clone(), plan, limits), tally)
}

/// Connects, and proves the code; comes again where the receiver is pestered by others.
fn connect_and_greet(
    endpoint: &Endpoint,
    code: &Code,
    to: Address,
    (tally, open): (&Arc<Tally>, &OpenConnection),
) -> Result<(Connection, Seals)> {
    const LIMIT: Duration = Duration::from_secs(60);
    let until = Instant::now() + LIMIT;
    let mut proofs = 0;
    loop {
        tally.say(format!("connecting to {to}"));
        let connection = ways::connect(endpoint, to)?;
        // For the one who hears signals.
        *open.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
        match greet::as_sender(&connection, code, to.port(), &mut proofs) {
            Ok(seals) => return Ok((connection, seals)),
            Err(Rejected::Later | Rejected::Ended(_))
                if Instant::now() < until && proofs < MOST_PROOFS =>
            {
                connection.abort();
                // Not in step with anyone who else waits.
                let [more] = greet::random()?;
                std::thread::sleep(Duration::from_millis(200 + u64::from(more)));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn converse(
    endpoint: &Endpoint,
    connection: Connection,
    seals: Seals,
    to: Address,
    (roots, plan, (rate, idle)): (Roots, (u64, u64), Limits),
    tally: &Arc<Tally>,
) -> Result<Session> {
    /// This many pieces wait to be sent, beside those that are under way.
    const READ_AHEAD: usize = 4;
    let (sealer, opening) = seals.split();
    let outlet = Outlet::new(&connection, sealer, idle);
    let mut inlet = Inlet::open(endpoint, &connection, opening, MOST_ANSWERS)?
        .confirming(&outlet, WhenFull::Wait);
    let others = match ready(&mut inlet) {
        Ok(others) => others,
        Err(failure) => {
            let ways = Ways::of(endpoint, &connection);
            return Ok(Session { outcome: Outcome::default(), failure: Some(failure), ways });
        }
    };
    ways::stripe(endpoint, &connection, to, &others);

    let (to_pump, from_source) = sync_channel(READ_AHEAD);
    // More answers than may be waited for: hearing never waits for the source.
    let (to_source, answers) = sync_channel(4 * MOST_ANNOUNCED);
    let waits = (idle, Presence::of(&connection));
    let source = Source::new(endpoint, (to_pump, answers), tally, Pace::new(rate), waits);
    let pumping = part("landfall-pump", &connection, move || source::pump(outlet, &from_source))?;
    let hearing = part("landfall-hear", &connection, move || source::hear(inlet, &to_source))?;
    let working = part("landfall-read", &connection, move || source.run(&roots, plan))?;

    let (outcome, failure) = match working.join() {
        // The receiver has said that all is in place: whatever is still under way was sent
        // twice.
        Some(Ok(done)) => (done, None),
        ended => {
            let mut failure = ended.and_then(Result::err).unwrap_or(Failure::Elsewhere);
            for part in [pumping, hearing] {
                if let Some(Err(why)) = part.join() {
                    failure = failure.graver(why);
                }
            }
            (Outcome::default(), Some(failure))
        }
    };
    let ways = Ways::of(endpoint, &connection);
    // The receiver has said the last word: what becomes of the connection is no matter.
    let _ = connection.close();
    Ok(Session { outcome, failure, ways })
}

/// The receiver's first word: the ways to it.
fn ready(inlet: &mut Inlet) -> Result<Vec<Address>, Failure> {
    let Frame::Messages(bundle) = inlet.next()? else {
        return Err(Failure::nonsense("a receiver sends no contents"));
    };
    match ToSender::all(&bundle).next() {
        Some(Ok(ToSender::Ready { ways })) => Ok(ways),
        Some(Ok(ToSender::Abort { why })) => Err(Failure::Theirs(why)),
        Some(Err(malformed)) => Err(malformed.into()),
        _ => Err(Failure::nonsense("it does not begin")),
    }
}
