//! What one program does of a test, and what came of both halves; what is measured between two
//! programs, as the client asks for it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use landfall_placement::Peer;
use landfall_testbed::rivals::far::{self, Conversation};
use landfall_testbed::rivals::{
    Amount, Congestion, Endpoints, Plan, Polling, StreamShape, TcpOptions, WorkerPlace, Workload,
};
use landfall_testbed::{CpuSplit, Rtt, Sample, cpu};
use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::control::Control;
use crate::perf::chosen::faults_of;
use crate::workload::halves::{Answered, InitiatorResult, Received, RoundTrips, Streamed};
use crate::workload::side::{Rendezvous, RunState};
use crate::workload::{Role, TwoSided, qpip, stp};

/// A run that takes so much longer than it should has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Rounds at the start that are not recorded, as elsewhere.
const WARM_UP: u64 = 1000;

/// What one side saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Half {
    bytes: u64,
    messages: u64,
    seconds: f64,
    cpu_s: f64,
    sleeps: u64,
    machine_s: f64,
    user_copied_bytes: u64,
    retransmitted: u64,
    sum: u64,
    /// For who asked, which is the program that shows it.
    #[serde(skip)]
    rtt: Option<Rtt>,
}

impl From<far::Half> for Half {
    fn from(half: far::Half) -> Self {
        Self {
            bytes: half.bytes,
            messages: half.messages,
            seconds: half.seconds,
            cpu_s: half.cpu.busy_s(),
            sleeps: half.cpu.sleeps,
            machine_s: half.machine_s,
            user_copied_bytes: 0,
            retransmitted: half.retransmitted,
            sum: half.sum,
            rtt: half.rtt,
        }
    }
}

impl From<Streamed> for Half {
    fn from(sent: Streamed) -> Self {
        Self {
            cpu_s: sent.cpu.busy_s(),
            sleeps: sent.cpu.sleeps,
            machine_s: sent.machine_s,
            user_copied_bytes: sent.copied,
            retransmitted: sent.retransmitted,
            ..Self::default()
        }
    }
}

impl From<Received> for Half {
    fn from(came: Received) -> Self {
        Self {
            bytes: came.bytes,
            messages: came.messages,
            seconds: came.ended.saturating_duration_since(came.started).as_secs_f64(),
            cpu_s: came.cpu.busy_s(),
            sleeps: came.cpu.sleeps,
            user_copied_bytes: came.copied,
            ..Self::default()
        }
    }
}

impl From<Answered> for Half {
    fn from(Answered { cpu, copied }: Answered) -> Self {
        let (cpu_s, sleeps) = (cpu.busy_s(), cpu.sleeps);
        Self { cpu_s, sleeps, user_copied_bytes: copied, ..Self::default() }
    }
}

impl From<InitiatorResult> for Half {
    fn from(asked: InitiatorResult) -> Self {
        let RoundTrips { count, seconds, times, used } = asked.rounds;
        Self {
            bytes: count * asked.len as u64,
            messages: count,
            seconds,
            cpu_s: used.thread.busy_s(),
            sleeps: used.thread.sleeps,
            machine_s: used.machine_s,
            user_copied_bytes: asked.copied,
            rtt: times.summary(),
            ..Self::default()
        }
    }
}

/// What a side saw beside what its endpoint did.
impl<T: Into<Half>, S> From<(T, S)> for Half {
    fn from((seen, _): (T, S)) -> Self {
        seen.into()
    }
}

/// Both halves as any other run gives them. The client sends, or asks.
pub(super) fn sample(
    test: &Test,
    client: &Half,
    server: &Half,
    is_one_machine: bool,
) -> Result<Sample> {
    let told = if test.latency { client } else { server };
    let lost_bytes = match (test.kind, test.latency) {
        (Kind::Udp, false) => client.bytes.saturating_sub(server.bytes),
        (Kind::Tcp, false) => {
            let (sent, arrived) = (client.bytes, server.bytes);
            ensure!(sent == arrived, "{sent} bytes were sent, {arrived} arrived");
            let is_right = test.workload()? != Workload::Touch || client.sum == server.sum;
            ensure!(is_right, "the bytes that arrived have another sum");
            0
        }
        _ => 0,
    };
    let machine_s = if is_one_machine {
        client.machine_s.max(server.machine_s)
    } else {
        client.machine_s + server.machine_s
    };
    ensure!(told.bytes > 0, "nothing arrived");
    Ok(Sample {
        bytes: told.bytes,
        messages: told.messages,
        seconds: told.seconds.max(1e-9),
        cpu: CpuSplit { send_s: client.cpu_s, receive_s: server.cpu_s, machine_s },
        rtt: client.rtt,
        wakeups: client.sleeps + server.sleeps,
        retransmitted: client.retransmitted + server.retransmitted,
        user_copied_bytes: client.user_copied_bytes + server.user_copied_bytes,
        lost_bytes,
        ..Sample::default()
    })
}

/// Sockets that are shut when the other side is gone, so that nobody waits at them.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<Vec<Socket>>);

impl Open {
    fn add(&self, socket: &Socket) -> Result<()> {
        let other = socket.try_clone().context("cannot keep hold of a socket")?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(other);
        Ok(())
    }

    pub(super) fn shut(&self) {
        for socket in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // The peer may have gone first.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A side of a test: where it is, how it meets the other, and what it leaves open.
pub(super) struct TestSide<'a> {
    pub(super) test: &'a Test,
    pub(super) role: Role,
    pub(super) plan: Plan,
    pub(super) meeting: &'a mut Rendezvous,
    pub(super) shared: &'a RunState,
    pub(super) open: &'a Open,
}

/// Where both sides are. A client pins itself to the first core, a server to the last: on
/// one machine they are out of each other's way.
pub(super) fn plan(test: &Test, role: Role, control: &Control) -> Result<Plan> {
    let cores = cpu::allowed_cores()?;
    let core = if role == Role::Send { cores.first() } else { cores.last() };
    let side = |address, core| WorkerPlace { namespace: None, address, core };
    let (own, other) = (side(control.local(), core.copied()), side(control.remote().ip(), None));
    let (send, receive) = if role == Role::Send { (own, other) } else { (other, own) };
    let mut plan = Plan::new(Endpoints { send, receive }, Amount::Time(test.time()));
    plan.limit = PATIENCE;
    plan.polling = if test.latency { Polling::Spin } else { Polling::Block };
    Ok(plan)
}

/// Does one side's half.
pub(super) fn run(seat: &mut TestSide<'_>) -> Result<Half> {
    match seat.test.kind {
        Kind::Tcp => tcp(seat),
        Kind::Udp => udp(seat),
        Kind::Stp => transfers(seat),
        Kind::Qpip => queue_pairs(seat),
    }
}

/// Transfers or Puts of ours.
fn transfers(seat: &mut TestSide<'_>) -> Result<Half> {
    let TestSide { test, role, plan, meeting, .. } = seat;
    let below =
        if test.is_mtu_chosen { stp::LowerLayer::UdpOf(test.mtu) } else { stp::LowerLayer::Udp };
    let setup = stp::Setup {
        stu: test.stu,
        connections: test.connections,
        faults: faults_of(test.loss),
        touches: test.workload()? == Workload::Touch,
        encrypts: test.encrypts,
        ..stp::Setup::over(below)
    };
    let (run, shape) = (&stp::Run::new(plan, &setup)?, stp::shape(test.message));
    match test.latency {
        true => side_of(&stp::Puts { run, len: test.message }, *role, meeting),
        false => side_of(&stp::Stream { run, shape }, *role, meeting),
    }
}

/// Messages of ours, in frames inside of UDP.
fn queue_pairs(seat: &mut TestSide<'_>) -> Result<Half> {
    let TestSide { test, role, plan, meeting, .. } = seat;
    let setup =
        qpip::Setup { below: qpip::LowerLayer::Tunnel(test.mtu), faults: faults_of(test.loss) };
    let (run, shape) = (&qpip::Run::new(plan, &setup)?, qpip::shape(test.message));
    match test.latency {
        true => side_of(&qpip::RoundTrips { run, len: test.message }, *role, meeting),
        false => side_of(&qpip::Stream { run, shape }, *role, meeting),
    }
}

/// One side of a workload.
fn side_of<W>(workload: &W, role: Role, meeting: &mut Rendezvous) -> Result<Half>
where
    W: TwoSided<Meeting = Rendezvous, Begun: Into<Half>, Served: Into<Half>>,
{
    match role {
        Role::Send => workload.begin(meeting).map(Into::into),
        Role::Receive => workload.serve(meeting).map(Into::into),
    }
}

fn name_of(peer: Peer) -> Result<SocketAddr> {
    let Peer::Socket(name) = peer else { bail!("a side without an address") };
    Ok(name)
}

fn local_name(socket: &Socket) -> Result<SocketAddr> {
    socket.local_addr()?.as_socket().context("a socket without an address")
}

fn tcp(seat: &mut TestSide<'_>) -> Result<Half> {
    let TestSide { test, role, plan, meeting, open, .. } = seat;
    let congestion = test.unpaced.then_some(Congestion::Reno);
    let options = TcpOptions { no_delay: test.latency, congestion, ..TcpOptions::default() };
    let sockets = match role {
        Role::Send => {
            let own = SocketAddr::new(plan.endpoints.send.address, 0);
            let to = name_of(meeting.exchange(own.into())?)?;
            let connect = |_| far::connect(own.ip(), to, &options, PATIENCE);
            (0..test.connections).map(connect).collect::<Result<Vec<_>, _>>()?
        }
        Role::Receive => {
            let own = plan.endpoints.receive.address;
            let listener = far::listen(own, &options, test.connections, PATIENCE)?;
            open.add(&listener)?;
            let peer = name_of(meeting.exchange(local_name(&listener)?.into())?)?;
            accept_from(&listener, peer, test.connections)?
        }
    };
    for socket in &sockets {
        open.add(socket)?;
    }
    meeting.ready()?;
    let all: Vec<&Socket> = sockets.iter().collect();
    let shape = StreamShape {
        send_size: test.message,
        receive_size: test.message,
        memory: test.message,
        workload: test.workload()?,
    };
    let talk = Conversation { message: test.message, datagrams: false, warm_up: WARM_UP };
    let half = match (role, test.latency) {
        (Role::Send, false) => far::send_stream(plan, shape, &all)?,
        (Role::Receive, false) => far::receive_stream(plan, shape, &all)?,
        (Role::Send, true) => talk.ask(plan, all[0])?,
        (Role::Receive, true) => talk.answer(plan, all[0])?,
    };
    Ok(half.into())
}

/// This many connections of the client's; others that come are none of ours.
fn accept_from(listener: &Socket, peer: SocketAddr, connections: u32) -> Result<Vec<Socket>> {
    /// This many strangers are put up with.
    const STRANGERS: u32 = 16;
    let mut sockets = Vec::new();
    for _ in 0..connections + STRANGERS {
        if sockets.len() == connections as usize {
            break;
        }
        let (socket, from) = listener.accept().context("nobody connected")?;
        if from.as_socket().is_some_and(|from| from.ip() == peer.ip()) {
            sockets.push(socket);
        }
    }
    ensure!(sockets.len() == connections as usize, "strangers connect, and {peer} does not");
    Ok(sockets)
}

fn udp(seat: &mut TestSide<'_>) -> Result<Half> {
    let TestSide { test, role, plan, meeting, shared, open } = seat;
    let side = match role {
        Role::Send => &plan.endpoints.send,
        Role::Receive => &plan.endpoints.receive,
    };
    let socket = far::udp_socket(side.address)?;
    open.add(&socket)?;
    let peer = name_of(meeting.exchange(local_name(&socket)?.into())?)?;
    socket.connect(&peer.into()).with_context(|| format!("cannot connect to {peer}"))?;
    meeting.ready()?;
    let talk = Conversation { message: test.message, datagrams: true, warm_up: WARM_UP };
    let touches = test.workload()? == Workload::Touch;
    let half = match (role, test.latency) {
        (Role::Send, false) => far::send_datagrams(plan, test.message, &socket)?,
        (Role::Receive, false) => {
            far::receive_datagrams(plan, touches, &socket, &|| shared.is_over())?
        }
        (Role::Send, true) => talk.ask(plan, &socket)?,
        (Role::Receive, true) => talk.answer(plan, &socket)?,
    };
    Ok(half.into())
}

/// The protocols that can be measured between two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Stp,
    /// In frames inside of UDP.
    Qpip,
    Tcp,
    Udp,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Stp, Self::Qpip, Self::Tcp, Self::Udp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stp => "stp",
            Self::Qpip => "qpip",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One run of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) kind: Kind,
    /// Messages there and back; otherwise as many bytes one way as possible.
    pub(super) latency: bool,
    /// What is handed over at once.
    pub(super) message: usize,
    /// The longest of STP; without it, what fills a packet.
    pub(super) stu: Option<u32>,
    pub(super) seconds: f64,
    pub(super) connections: u32,
    pub(super) loss: f64,
    /// By its name.
    pub(super) workload: String,
    /// What units are sized for; of STP where it was chosen, which finds its own otherwise.
    pub(super) mtu: u32,
    pub(super) is_mtu_chosen: bool,
    /// TCP's congestion control does not pace.
    pub(super) unpaced: bool,
    /// Only STP can.
    pub(super) encrypts: bool,
}

impl Test {
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.0, 600.0))
    }

    pub(super) fn workload(&self) -> Result<Workload> {
        let all = [
            Workload::Plain,
            Workload::Sendfile,
            Workload::Trunc,
            Workload::SendfileTrunc,
            Workload::Touch,
        ];
        let found = all.into_iter().find(|one| one.name() == self.workload);
        found.ok_or_else(|| anyhow::anyhow!("there is no workload `{}`", self.workload))
    }

    /// Whatever a client asks for stays within what a server can bear.
    pub(super) fn check(&self) -> Result<()> {
        let workload = self.workload()?;
        let longest = if self.latency { 1 << 10 } else { 8 << 20 };
        let bounds = [
            ("message", self.message as f64, 1.0, f64::from(longest)),
            ("stu", f64::from(self.stu.unwrap_or(1024)), 64.0, 65_536.0),
            ("seconds", self.seconds, 0.01, 600.0),
            ("connections", f64::from(self.connections), 1.0, 1000.0),
            ("loss", self.loss, 0.0, 0.5),
            ("mtu", f64::from(self.mtu), 1280.0, 65_536.0),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                bail!("{name} {value}: {least} to {most} are possible");
            }
        }
        let is_plain = workload == Workload::Plain;
        let can = match self.kind {
            Kind::Tcp => true,
            Kind::Stp | Kind::Udp => is_plain || workload == Workload::Touch,
            Kind::Qpip => is_plain && self.message <= 56 << 10,
        };
        if self.encrypts && self.kind != Kind::Stp {
            bail!("{} is measured plain, as it is", self.kind.name());
        }
        let has_many = matches!(self.kind, Kind::Stp | Kind::Tcp) || self.connections == 1;
        if !can || !has_many || (self.kind == Kind::Udp && self.message > 65_507) {
            bail!(
                "{} with workload {workload}, messages of {} bytes and {} connections is not \
                 possible",
                self.kind.name(),
                self.message,
                self.connections
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test() -> Test {
        Test {
            kind: Kind::Stp,
            latency: false,
            message: 1 << 20,
            stu: Some(1024),
            seconds: 1.0,
            connections: 1,
            loss: 0.0,
            workload: "plain".into(),
            mtu: 1500,
            is_mtu_chosen: false,
            unpaced: false,
            encrypts: false,
        }
    }

    #[test]
    fn what_a_server_cannot_bear_is_refused() {
        test().check().unwrap();
        let senseless = [
            Test { message: 0, ..test() },
            Test { message: usize::MAX, ..test() },
            Test { latency: true, ..test() },
            Test { stu: Some(0), ..test() },
            Test { seconds: f64::NAN, ..test() },
            Test { seconds: 1e300, ..test() },
            Test { connections: u32::MAX, ..test() },
            Test { loss: -1.0, ..test() },
            Test { workload: "juggle".into(), ..test() },
            Test { workload: "trunc".into(), ..test() },
            Test { mtu: 1, ..test() },
            Test { kind: Kind::Qpip, ..test() },
            Test { kind: Kind::Tcp, encrypts: true, ..test() },
            Test { kind: Kind::Udp, message: 1000, connections: 2, ..test() },
        ];
        for test in senseless {
            assert!(test.check().is_err(), "{test:?}");
        }
    }
}
