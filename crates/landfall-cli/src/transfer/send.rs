//! `landfall send`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall_transport::signals::Endings;

use crate::leaving;

use super::code::{Code, Seals, Side};
use super::greet;
use super::meter::{Meter, Tally};
use super::options::Common;
use super::outcome::{Failure, Outcome};
use super::pace::{self, Pace};
use super::pipe::{Frame, Inlet, Outlet};
use super::report::{Report, Ways};
use super::source::{self, Source};
use super::walk::Roots;
use super::ways::{self, Choice, Local};
use super::wire::{Address, MOST_ANNOUNCED, MOST_ANSWERS, ToSender};
use super::{Came, new_tally, part, watch};

const EXAMPLES: &str = "\
Examples:
  landfall send --code 2d8n-x0rv-9k3c-wp5t film.mkv photos/ laptop.local
  landfall send --code CODE big.img 192.0.2.7:9000
  landfall send --code CODE --local eth0 --local eth1 data/ 192.0.2.7
  landfall send --code CODE --name all.tar - 192.0.2.7   what `tar c .` writes, say

The code is the receiver's: `landfall receive` prints it. It is proven and never sent, and
who does not know it can change nothing on the way. But there is NO ENCRYPTION yet: names
and contents can be READ by everybody on the way. Do not send secrets over networks that
you do not trust.

Symbolic links in folders are sent as links, if they stay within what is sent; those that
you name are followed. Interrupted? Send the same again: the receiver keeps what came, and
only the rest is sent. Exit codes: 0 all is in place, 1 something is not (stderr says what),
2 the arguments make no sense, 130 interrupted (Ctrl-C), 143 ended by SIGTERM.";

/// Options of `landfall send`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The receiver's code; without this option, the environment variable LANDFALL_CODE
    #[arg(long, value_parser = Code::given)]
    code: Option<Code>,
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
    /// No faster than so many bytes a second: 500K, 20M, 1G
    #[arg(long, value_name = "RATE", value_parser = pace::parse)]
    limit: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Sends what is named.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let code = code_of(args)?;
    let to = ways::resolve_host(&args.host)?;
    let roots = Roots::new(&args.paths, &args.name)?;
    let choice = Choice { locals: args.local.clone(), patience: args.common.patience };
    let endpoint = ways::open_sender(&choice, to)?;
    let tally = new_tally();
    let mut meter = Meter::new(args.common.quiet);

    let (done, result) = sync_channel(1);
    let (open, limits) = (Arc::new(OnceLock::new()), (args.limit, args.common.idle));
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
        Came::Done(session) => session?,
        Came::Interrupted => {
            let elapsed = meter.elapsed();
            drop(meter);
            if let Some(connection) = open.get() {
                Connection::abort(connection);
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

fn code_of(args: &Args) -> Result<Code> {
    if let Some(code) = &args.code {
        return Ok(code.clone());
    }
    match std::env::var("LANDFALL_CODE") {
        Ok(text) => Code::given(&text).map_err(anyhow::Error::msg),
        Err(_) => bail!(
            "the receiver's code is missing: give the one that `landfall receive` printed with \
             --code, or in the environment variable LANDFALL_CODE"
        ),
    }
}

/// No more bytes a second than this, and no longer without a word of the other side.
type Limits = (Option<u64>, Duration);

/// A session that is over.
struct Session {
    outcome: Outcome,
    failure: Option<Failure>,
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

fn greet_and_send(
    endpoint: &Endpoint,
    code: &Code,
    to: Address,
    (roots, limits): (&Roots, Limits),
    (tally, open): (&Arc<Tally>, &OnceLock<Connection>),
) -> Result<Session> {
    tally.say(format!("connecting to {to}"));
    let connection = ways::connect(endpoint, to)?;
    // For the one who hears signals.
    let _ = open.set(connection.clone());
    let seals = greet::as_sender(endpoint, &connection, &code.key(), to.port())?;
    tally.say("counting what there is".into());
    let plan = roots.count();
    tally.total_files.store(plan.0, std::sync::atomic::Ordering::Relaxed);
    tally.total_bytes.store(plan.1, std::sync::atomic::Ordering::Relaxed);
    converse(endpoint, connection, &seals, to, (roots.clone(), plan, limits), tally)
}

fn converse(
    endpoint: &Endpoint,
    connection: Connection,
    seals: &Seals,
    to: Address,
    (roots, plan, (rate, idle)): (Roots, (u64, u64), Limits),
    tally: &Arc<Tally>,
) -> Result<Session> {
    /// So many pieces wait to be sent, beside those that are under way.
    const READ_AHEAD: usize = 4;
    let mut inlet = Inlet::open(endpoint, &connection, seals, Side::Receiver, MOST_ANSWERS)?;
    let outlet = Outlet::new(&connection, seals, Side::Sender, idle);
    let others = match ready(&mut inlet) {
        Ok(others) => others,
        Err(failure) => {
            let ways = Ways::of(endpoint, &connection);
            return Ok(Session { outcome: Outcome::default(), failure: Some(failure), ways });
        }
    };
    ways::stripe(endpoint, &connection, to, &others);

    let (to_pump, from_source) = sync_channel(READ_AHEAD);
    // As many answers as may be waited for: hearing never waits for the source.
    let (to_source, answers) = sync_channel(2 * MOST_ANNOUNCED);
    let source = Source::new(endpoint, (to_pump, answers), tally, Pace::new(rate), idle);
    let pumping = part("landfall-pump", &connection, move || source::pump(outlet, &from_source))?;
    let hearing = part("landfall-hear", &connection, move || source::hear(inlet, &to_source))?;
    let working = part("landfall-read", &connection, move || source.run(&roots, plan))?;

    let (mut outcome, mut failure) = (Outcome::default(), None);
    let mut note = |part: Failure| {
        failure = Some(match failure.take() {
            Some(other) => part.graver(other),
            None => part,
        });
    };
    match working.join() {
        Some(Ok(done)) => outcome = done,
        Some(Err(why)) => note(why),
        None => note(Failure::Elsewhere),
    }
    for part in [pumping, hearing] {
        match part.join() {
            Some(Ok(())) => {}
            Some(Err(why)) => note(why),
            None => note(Failure::Elsewhere),
        }
    }
    let ways = Ways::of(endpoint, &connection);
    // The receiver has said the last word: what becomes of the connection is no matter.
    let _ = connection.close();
    Ok(Session { outcome, failure, ways })
}

/// The receiver's first word: the ways to it.
fn ready(inlet: &mut Inlet) -> Result<Vec<Address>, Failure> {
    let Frame::Bundle(bundle) = inlet.next()? else {
        return Err(Failure::nonsense("a receiver sends no contents"));
    };
    match ToSender::all(&bundle).next() {
        Some(Ok(ToSender::Ready { ways })) => Ok(ways),
        Some(Ok(ToSender::Abort { why })) => Err(Failure::Theirs(super::path::printable(&why))),
        Some(Err(malformed)) => Err(malformed.into()),
        _ => Err(Failure::nonsense("it does not begin")),
    }
}
