//! `landfall perf server`: the other end of `landfall perf client`.
//!
//! One client is served at a time, since two would measure each other; anyone who comes
//! meanwhile is told so. A client that goes away, however it goes, ends its own session and
//! nothing else.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use landfall_transport::signals::Endings;

use super::control::{
    CloseHandle, Control, ControlMessage, Failure, PORT, PROTOCOL, boot, conduct, plain,
};
use super::half::{Kind, Test};
use crate::machine::{Interface, Machine};
use crate::printable::printable;
use crate::workload::Role;
use crate::{leaving, style};

const EXAMPLES: &str = "\
Examples:
  landfall perf server                          on one machine
  landfall perf client 192.0.2.7                on another
  landfall perf server --listen 127.0.0.1 --port 0

Anyone who reaches the port may measure: open it to nobody else. A test takes some ports of UDP
and TCP beside, which the kernel chooses. Ctrl-C ends it.";

/// A client that says nothing for so long is not waited for.
const IDLE: Duration = Duration::from_secs(60);
/// Who connects has to begin within this time.
const TO_BEGIN: Duration = Duration::from_secs(5);
/// How often the port is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Options of `landfall perf server`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The address to listen at; all of this machine's if not given
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    listen: IpAddr,
    /// The port for clients; 0 lets the kernel choose
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// What may be measured; everything if not given
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_kind)]
    protocol: Vec<Kind>,
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    let names = Kind::ALL.map(Kind::name).join(", ");
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("between two programs there are {names}"))
}

/// Who is served, if anybody is.
#[derive(Debug, Default)]
struct CurrentTest {
    is_busy: AtomicBool,
    ender: Mutex<Option<CloseHandle>>,
}

/// Serves until it is told to end.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let address = SocketAddr::new(args.listen, args.port);
    let listener = TcpListener::bind(address).or_else(|error| match args.listen {
        // A machine without IPv6.
        IpAddr::V6(all) if all.is_unspecified() && error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", args.port))
        }
        _ => Err(error),
    });
    let listener = listener.with_context(|| {
        format!("cannot listen at {address}: another server may be there (try --port 0)")
    })?;
    listener.set_nonblocking(true)?;
    let kinds = if args.protocol.is_empty() { Kind::ALL.to_vec() } else { args.protocol.clone() };
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    style::print(&format!(
        "listening at {}\noffers {} (qpip in frames inside of UDP); Ctrl-C ends it\n",
        listener.local_addr()?,
        names.join(", ")
    ))?;
    let desk = Arc::new(CurrentTest::default());
    let mut sessions = Vec::new();
    while !endings.wait(LOOK_EVERY)? {
        match listener.accept() {
            Ok((stream, _)) => sessions.extend(begin(stream, &desk, &kinds)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Of one connection, or for want of descriptors: the next may go well.
            Err(error) => eprintln!("landfall: a client did not get through: {error}"),
        }
        sessions.retain(|session: &thread::JoinHandle<()>| !session.is_finished());
    }
    leaving::end_at_next_signal(&endings)?;
    if let Some(ender) = &*desk.ender.lock().unwrap_or_else(PoisonError::into_inner) {
        ender.end();
    }
    for session in sessions {
        // What it had to say it has said.
        let _ = session.join();
    }
    style::print("ended\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Serves a client on a thread of its own, or tells it that another is being served.
fn begin(
    stream: TcpStream,
    desk: &Arc<CurrentTest>,
    kinds: &[Kind],
) -> Option<thread::JoinHandle<()>> {
    let is_free = !desk.is_busy.swap(true, Ordering::AcqRel);
    let (desk, kinds) = (Arc::clone(desk), kinds.to_vec());
    let session = thread::Builder::new().name("landfall-session".into()).spawn(move || {
        if is_free {
            let who =
                stream.peer_addr().map_or_else(|_| "?".into(), |peer| plain(peer).to_string());
            match serve(stream, &desk, &kinds) {
                Ok(count) => say(&format!("{who}: done, {count} runs\n")),
                Err(error) => say(&format!("{who}: {}\n", printable(&format!("{error:#}")))),
            }
            *desk.ender.lock().unwrap_or_else(PoisonError::into_inner) = None;
            desk.is_busy.store(false, Ordering::Release);
        } else {
            let reason = "it is measuring with another client: try again later".into();
            // Who does not wait for the answer needs none.
            let _ =
                Control::over(stream).and_then(|it| it.say(&ControlMessage::Refused { reason }));
        }
    });
    session.inspect_err(|error| eprintln!("landfall: a client was not served: {error}")).ok()
}

/// Nobody reads it: then nobody misses it.
fn say(line: &str) {
    let _ = style::print(line);
}

/// A session: who it is, what there is, test after test. Gives how many there were.
fn serve(stream: TcpStream, desk: &CurrentTest, kinds: &[Kind]) -> Result<u32> {
    stream.set_nonblocking(false)?;
    let control = Control::over(stream)?;
    *desk.ender.lock().unwrap_or_else(PoisonError::into_inner) = Some(control.ender()?);
    let refuse = |reason: String| -> Result<u32> {
        control.say(&ControlMessage::Refused { reason: reason.clone() })?;
        bail!("refused: {reason}")
    };
    match control.hear(TO_BEGIN)? {
        ControlMessage::Hello { landfall_perf: PROTOCOL, version } if version == own_version() => {}
        ControlMessage::Hello { landfall_perf, version } => {
            return refuse(format!(
                "the server is landfall {} (measuring protocol {PROTOCOL}), the client {version} \
                 ({landfall_perf}): use one version at both ends",
                own_version()
            ));
        }
        _ => return refuse("the first word has to be `hello`".into()),
    }
    control.say(&ControlMessage::hello())?;
    let protocols = kinds.iter().map(|kind| kind.name().to_owned()).collect();
    let machine = serde_json::to_value(Machine::read())?;
    let interface = Interface::at(control.local());
    control.say(&ControlMessage::Offer { protocols, machine, interface, boot: boot() })?;
    let mut count = 0;
    loop {
        let test = match control.hear(IDLE) {
            Ok(ControlMessage::Test(test)) => test,
            Ok(ControlMessage::Over) => return Ok(count),
            Ok(other) => return refuse(format!("out of step: {other:?}")),
            Err(error) => return Err(error),
        };
        if let Err(error) = acceptable(&test, kinds) {
            control.say(&ControlMessage::Refused { reason: format!("{error:#}") })?;
            continue;
        }
        match conduct(&control, &test, Role::Receive) {
            Ok(_) => count += 1,
            // The client has been told.
            Err(Failure::Test(error)) => say(&format!("{}: {error:#}\n", test.kind.name())),
            Err(Failure::Connection(error)) => return Err(error),
        }
    }
}

fn own_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn acceptable(test: &Test, kinds: &[Kind]) -> Result<()> {
    ensure!(kinds.contains(&test.kind), "this server does not offer {}", test.kind.name());
    test.check()
}
