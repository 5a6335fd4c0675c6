//! `landfall perf client`: measures with a server, interleaved as `perf local` is.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, Workload};
use landfall_testbed::{Sample, cpu};

use super::control::{Control, ControlMessage, Failure, PORT, boot, conduct};
use super::half;
use super::half::{Kind, Test};
use crate::machine::Interface;
use crate::perf::chosen::{Chosen, UNPACED};
use crate::perf::local::{Group, Setting};
use crate::perf::options::{Options, Protocol};
use crate::perf::row::{Mode, Subject};
use crate::perf::{Report, Results, report, rivals};
use crate::printable::printable;
use crate::style::Progress;
use crate::workload::Role;
use crate::workload::qpip::LONGEST_TALK;

const EXAMPLES: &str = "\
Examples:
  landfall perf server                              on one machine
  landfall perf client 192.0.2.7                    on another
  landfall perf client host.example --mtu 9000 --sweep --plot sweep.svg
  landfall perf client 127.0.0.1 --protocol stp,tcp --json

The client sends, or asks; both programs have to be of one version. Kernel TCP is always
measured, since the others are compared with it. The fields of --json are described in
docs/perf-json.md.";

/// A server answers within this time, or is not there.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// The MTU of the loopback interface.
const LOOPBACK_MTU: u32 = 65_536;
/// What most links have.
const USUAL_MTU: u32 = 1500;

/// Options of `landfall perf client`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where `landfall perf server` runs: a name or an address
    host: String,
    /// The server's port
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// MTU of the network between [default: 1500, within this machine 65536]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65_536))]
    mtu: Option<u32>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// Measures, and prints the result.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut all = args.options.chosen();
    if all.is_empty() {
        all.push(Chosen::usual());
    }
    measure(args, &all)?.present(&args.options)
}

/// Measures all of these with a server.
pub(super) fn measure(args: &Args, all: &[Chosen]) -> Result<Report> {
    let options = &args.options;
    report::check(options.plot.as_deref())?;
    ensure!(
        !options.idle_meter,
        "--idle-meter: it watches the cores of both sides, and is there for `perf local` only"
    );
    let session = Session::begin(&args.host, args.port)?;
    let is_loopback = session.control.remote().ip().is_loopback();
    let mtu = args.mtu.unwrap_or(if is_loopback { LOOPBACK_MTU } else { USUAL_MTU });
    let pinned = cpu::allowed_cores()?.len() > 1 || !session.is_one_machine;
    let mut results = Results { pinned, ..Results::default() };
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(options.seconds));
    let setting = Setting { plan: &plan, pair: None, mtu, offload: true };
    let progress = Progress::on_stderr();
    for chosen in all {
        for latency in [false, true] {
            let mut group = Group::new(setting);
            add(&mut group, &session, (chosen, latency), args);
            results.add(group.measure(options.rounds.into(), &progress));
            session.check()?;
        }
    }
    drop(progress);
    let mut report = Report::new(options, results, "network");
    report.machine.interface = Interface::at(session.control.local());
    report.machine.server_interface = session.interface.clone();
    report.machine.server = Some(session.machine.clone());
    session.end();
    Ok(report)
}

/// What is measured with a server.
struct Session {
    control: Control,
    protocols: Vec<String>,
    machine: serde_json::Value,
    interface: Option<Interface>,
    is_one_machine: bool,
    /// Why there is no server any more.
    lost: RefCell<Option<anyhow::Error>>,
}

impl Session {
    fn begin(host: &str, port: u16) -> Result<Self> {
        let stream = connect(host, port)?;
        let control = Control::over(stream)?;
        let not_ours = || format!("{host}, port {port}: that is no `landfall perf server`");
        control.say(&ControlMessage::hello()).with_context(not_ours)?;
        match control.hear(TO_ANSWER).with_context(not_ours)? {
            ControlMessage::Hello { .. } => {}
            ControlMessage::Refused { reason } => {
                bail!("the server at {host} refuses: {}", printable(&reason))
            }
            _ => bail!(not_ours()),
        }
        let ControlMessage::Offer { protocols, machine, interface, boot: theirs } =
            control.hear(TO_ANSWER).with_context(not_ours)?
        else {
            bail!(not_ours())
        };
        ensure!(machine.is_object(), not_ours());
        let is_one_machine = theirs.is_some() && theirs == boot();
        let lost = RefCell::new(None);
        Ok(Self { control, protocols, machine, interface, is_one_machine, lost })
    }

    fn offers(&self, kind: Kind) -> bool {
        self.protocols.iter().any(|name| name == kind.name())
    }

    /// One run of one candidate.
    fn run(&self, test: &Test) -> Result<Sample> {
        ensure!(self.lost.borrow().is_none(), "there is no server any more");
        let outcome =
            self.control.say(&ControlMessage::Test(test.clone())).map_err(Failure::Connection);
        match outcome.and_then(|()| conduct(&self.control, test, Role::Send)) {
            Ok((ours, theirs)) => half::sample(test, &ours, &theirs, self.is_one_machine),
            Err(Failure::Test(error)) => Err(error),
            Err(Failure::Connection(error)) => {
                let why = anyhow!("{error:#}");
                *self.lost.borrow_mut() = Some(error);
                Err(why)
            }
        }
    }

    /// An error once the server is lost.
    fn check(&self) -> Result<()> {
        match self.lost.take() {
            Some(error) => Err(error.context("the server is lost, and with it the measurement")),
            None => Ok(()),
        }
    }

    fn end(self) {
        // The end of the connection says the same.
        let _ = self.control.say(&ControlMessage::Over);
    }
}

fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let addresses = (host, port).to_socket_addrs();
    let addresses: Vec<SocketAddr> = addresses
        .with_context(|| {
            format!(
                "`{host}` is no host that can be found: give a name or an address, and another \
                 port with --port"
            )
        })?
        .collect();
    let mut last = anyhow!("`{host}` has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, TO_ANSWER) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = anyhow!(error).context(format!("{address}")),
        }
    }
    Err(last.context(format!(
        "no server answers at {host}, port {port}: start `landfall perf server` there, and let \
         the port through"
    )))
}

fn protocol(kind: Kind) -> Protocol {
    match kind {
        Kind::Stp => Protocol::Stp,
        Kind::Qpip => Protocol::Qpip,
        Kind::Tcp => Protocol::Tcp,
        Kind::Udp => Protocol::Udp,
    }
}

/// What was asked for of each protocol, and why not where it is not.
fn add<'a>(
    group: &mut Group<'a>,
    session: &'a Session,
    (chosen, latency): (&Chosen, bool),
    args: &Args,
) {
    let options = &args.options;
    let mode = if latency { Mode::Latency } else { Mode::Throughput };
    let elsewhere = [
        (Protocol::Clan, "clan"),
        (Protocol::Defrag, "defrag"),
        (Protocol::Nbd, "nbd"),
        (Protocol::Unix, "unix"),
    ];
    for (_, name) in elsewhere.into_iter().filter(|(one, _)| options.protocol.contains(one)) {
        let why = "not measured between two programs: `landfall perf local` does";
        group.lacks((name, "all"), mode, why);
    }
    if latency && chosen.message.is_some_and(|message| message > LONGEST_TALK) {
        let why = format!("round trips are measured with at most {} bytes", LONGEST_TALK);
        return group.lacks(("all", "all"), mode, &why);
    }
    let mtu = (group.setting.mtu, args.mtu.is_some());
    for kind in Kind::ALL {
        if kind != Kind::Tcp && !options.wants(protocol(kind)) {
            continue;
        }
        if !session.offers(kind) {
            group.lacks((kind.name(), transport(kind)), mode, "the server does not offer it");
            continue;
        }
        for test in tests(kind, (chosen, latency), mtu, options.seconds) {
            match test.check() {
                Ok(()) => add_test(group, session, test),
                Err(why) => group.lacks((kind.name(), transport(kind)), mode, &why.to_string()),
            }
        }
    }
}

/// What a protocol is measured with.
fn tests(
    kind: Kind,
    (chosen, latency): (&Chosen, bool),
    (mtu, is_mtu_chosen): (u32, bool),
    time: Duration,
) -> Vec<Test> {
    let usual = match (kind, latency) {
        (Kind::Stp, true) => 8,
        (_, true) => 1,
        (Kind::Stp, false) => 1 << 20,
        (Kind::Qpip, false) => 16 << 10,
        (Kind::Tcp, false) => 128 << 10,
        (Kind::Udp, false) => rivals::datagram(mtu) as usize,
    };
    let is_ours = matches!(kind, Kind::Stp | Kind::Qpip);
    let one = Test {
        kind,
        latency,
        message: chosen.message.unwrap_or(usual),
        stu: chosen.stu,
        seconds: time.as_secs_f64(),
        connections: if latency { 1 } else { chosen.connections },
        loss: if is_ours { chosen.loss } else { 0.0 },
        workload: Workload::Plain.name().into(),
        mtu,
        is_mtu_chosen,
        unpaced: false,
        encrypts: false,
    };
    let mut tests = vec![one.clone()];
    if kind == Kind::Stp {
        tests.push(Test { encrypts: true, ..one.clone() });
    }
    if latency {
        return tests;
    }
    let unpaced = kind == Kind::Tcp;
    if unpaced {
        tests.push(Test { unpaced, ..one.clone() });
    }
    let others = chosen.workloads.iter().filter(|it| **it != Workload::Plain);
    tests.extend(others.map(|it| Test { workload: it.name().into(), unpaced, ..one.clone() }));
    tests
}

const fn transport(kind: Kind) -> &'static str {
    match kind {
        Kind::Stp => "udp",
        Kind::Qpip => "tunnel",
        Kind::Tcp | Kind::Udp => "kernel",
    }
}

fn add_test<'a>(group: &mut Group<'a>, session: &'a Session, test: Test) {
    let peer = matches!(test.kind, Kind::Tcp | Kind::Udp);
    let message = test.message as u64;
    let payload_bytes = match (test.kind, test.latency) {
        (Kind::Tcp, _) => None,
        (_, true) | (Kind::Udp, _) => Some(message),
        (Kind::Stp, false) => test.stu.map(|stu| message.min(stu.into())),
        (Kind::Qpip, false) => Some(message.min(u64::from(test.mtu.saturating_sub(52)))),
    };
    let variant = match (test.kind, test.latency, test.unpaced) {
        (Kind::Tcp, false, true) => Some(UNPACED),
        (Kind::Tcp, false, false) => Some("congestion control of the machine"),
        _ if test.encrypts => Some("encrypted"),
        _ => None,
    };
    let subject = Subject {
        protocol: test.kind.name(),
        transport: transport(test.kind),
        peer,
        mode: if test.latency { Mode::Latency } else { Mode::Throughput },
        polling: test.latency,
        message_bytes: message,
        payload_bytes,
        variant,
        connections: test.connections,
        loss: test.loss,
        workload: test.workload().unwrap_or_default(),
    };
    group.add(subject, move || session.run(&test));
}
