//! Queue pairs as their users have them: messages that are posted, sent, received in place
//! and reaped through the public API of `landfall`, by adapters that run inline.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | both sides of a run, and how they are set up |
//! | `datagrams` | round trips by QPIP's own UDP |
//! | `side` | an adapter with a queue pair and its memory |
//! | `socket` | a queue pair at one end, a kernel socket at the other |

mod datagrams;
mod side;
pub(crate) mod socket;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall::qpip::{
    Adapter, Builder, ChannelConfig, Faults, Link, Mapping, Operation, Status, TunnelConfig, Wait,
    XdpConfig,
};
use landfall_placement::{Peer, Seed};
use landfall_testbed::cpu::TaskUse;
use landfall_testbed::rivals::{Amount, Plan, Polling};
use landfall_testbed::{Sample, VethEnd, VethPair};

pub(crate) use datagrams::talk_by_datagrams;

use super::halves::{self, Answered, InitiatorResult, Received, Streamed};
use super::side::{Rendezvous, place_thread};
use super::{Pattern, Role, Shape, TwoSided};
use side::{QueuePairEnd, stream_from};

/// Both sides use this port.
const PORT: u16 = 7000;
/// Messages that stay where they landed, to be compared when the clock has stopped.
const KEPT: u64 = 4;
/// The longest message of a conversation.
pub(crate) const LONGEST_TALK: usize = 1 << 10;
/// Receives that a conversation has posted.
const TALK_DEPTH: u64 = 8;

/// Who a side is: a station with one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    mac: [u8; 6],
    ip: Ipv4Addr,
}

impl Station {
    /// A station at an end of a cable, with addresses that the kernel does not have: to its
    /// own IP address it would answer that nobody listens.
    fn at(end: &VethEnd) -> Self {
        let [a, b, c, d] = end.ipv4.octets();
        let mut mac = end.mac.0;
        mac[5] ^= 0x80;
        Self { mac, ip: Ipv4Addr::new(a, b, c, d ^ 0x80) }
    }

    /// The same on a link of which nobody else is part.
    const fn nth(n: u8) -> Self {
        Self { mac: [2, b'l', b'f', 0, 0, n], ip: Ipv4Addr::new(10, 79, 0, n) }
    }

    pub(crate) const fn address(self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(self.ip), PORT)
    }
}

/// What carries the frames of queue pairs.
#[derive(Clone, Copy, Debug)]
pub enum LowerLayer<'a> {
    /// A cable, by AF_PACKET.
    Packet(&'a VethPair),
    /// The same by io_uring.
    UringPacket(&'a VethPair),
    /// A cable, by AF_XDP.
    Xdp(&'a VethPair),
    /// UDP, for links of this MTU.
    Tunnel(u32),
    /// A channel within this process.
    Process,
}

impl LowerLayer<'_> {
    /// The station of a side.
    pub(crate) fn station(self, role: Role) -> Station {
        match self {
            Self::Packet(pair) | Self::UringPacket(pair) | Self::Xdp(pair) => {
                Station::at(end(pair, role))
            }
            Self::Tunnel(_) | Self::Process => Station::nth(role as u8 + 1),
        }
    }
}

fn end(pair: &VethPair, role: Role) -> &VethEnd {
    if role == Role::Send { &pair.a } else { &pair.b }
}

/// How both sides are set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// What is below.
    pub below: LowerLayer<'a>,
    /// What goes wrong on the path, in both directions.
    pub faults: Option<(Faults, Seed)>,
}

impl<'a> Setup<'a> {
    /// As a user gets it who chooses nothing but the link.
    pub const fn over(below: LowerLayer<'a>) -> Self {
        Self { below, faults: None }
    }
}

/// Messages of this length through memory that a cache of the second or third level holds, as
/// a socket's buffer and a loop's would.
pub const fn shape(message: usize) -> Shape {
    const ROOM: usize = 4 << 20;
    /// As deep as a queue is allowed to be, with room for both directions.
    const MOST: usize = 256;
    let slots = if ROOM / message < MOST { ROOM / message } else { MOST };
    Shape { message, send_slots: slots, receive_slots: slots - 1 }
}

/// What a run of messages gave.
#[derive(Debug)]
pub struct Outcome {
    /// In the terms that all candidates share.
    pub sample: Sample,
    /// Bytes that were compared with what was sent, after the clock stopped.
    pub compared: u64,
}

/// A plan and a set-up: what both sides of a run know.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    plan: &'a Plan,
    setup: &'a Setup<'a>,
    /// What each side is built of by role, where both are joined before.
    joined: Mutex<[Option<Builder>; 2]>,
}

/// Messages of one length from queue pair to queue pair.
pub fn stream(plan: &Plan, setup: &Setup<'_>, shape: Shape) -> Result<Outcome> {
    let run = &Run::new(plan, setup)?;
    Stream { run, shape }.run(Rendezvous::between_two(plan.limit))
}

/// Messages of `len` bytes there and back, timed one by one.
pub(crate) fn talk(plan: &Plan, setup: &Setup<'_>, len: usize) -> Result<Sample> {
    let run = &Run::new(plan, setup)?;
    RoundTrips { run, len }.run(Rendezvous::between_two(plan.limit))
}

/// One stream of messages.
pub(crate) struct Stream<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) shape: Shape,
}

impl TwoSided for Stream<'_> {
    type Meeting = Rendezvous;
    type Begun = Streamed;
    type Served = Received;
    type Outcome = Outcome;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<Streamed> {
        self.run.send(self.run.open(Role::Send, meeting)?, self.shape, meeting)
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Received> {
        self.run.receive(self.run.open(Role::Receive, meeting)?, self.shape, meeting)
    }

    fn outcome(&self, sent: Streamed, came: Received) -> Result<Outcome> {
        Ok(Outcome { sample: halves::of_stream(&sent, &came), compared: came.compared })
    }
}

/// Messages there and back.
pub(crate) struct RoundTrips<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) len: usize,
}

impl TwoSided for RoundTrips<'_> {
    type Meeting = Rendezvous;
    type Begun = InitiatorResult;
    type Served = Answered;
    type Outcome = Sample;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<InitiatorResult> {
        self.run.ask(self.run.open(Role::Send, meeting)?, self.len, meeting)
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Answered> {
        self.run.answer(self.run.open(Role::Receive, meeting)?, self.len, meeting)
    }

    fn outcome(&self, asked: InitiatorResult, answered: Answered) -> Result<Sample> {
        Ok(halves::of_talk(&asked, &answered))
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, setup: &'a Setup<'a>) -> Result<Self> {
        let mut run = Self { plan, setup, joined: Mutex::default() };
        if let LowerLayer::Process = setup.below {
            let (one, two) = run.builder().pair(run.builder(), ChannelConfig::default())?;
            run.joined = Mutex::new([Some(one), Some(two)]);
        }
        Ok(run)
    }

    fn builder(&self) -> Builder {
        let builder = Adapter::builder();
        // By itself an adapter spins for a while before it sleeps.
        if self.plan.polling == Polling::Spin { builder.wait(Wait::Spin) } else { builder }
    }

    /// The adapter of a side, which knows the other; this thread moves to where the side is.
    fn open(&self, role: Role, meeting: &Rendezvous) -> Result<Adapter> {
        let side = role.side(self.plan);
        place_thread(side)?;
        let here = SocketAddr::new(side.address, 0);
        let joined =
            self.joined.lock().unwrap_or_else(PoisonError::into_inner)[role as usize].take();
        let adapter = match (joined, self.setup.below) {
            (Some(builder), _) => self.addressed(builder, role)?,
            (None, LowerLayer::Tunnel(mtu)) => return self.open_tunnel(role, (here, mtu), meeting),
            (None, _) => self.plugged(role)?,
        };
        meeting.exchange(here.into())?;
        Ok(adapter)
    }

    /// The adapter at an end of a cable.
    pub(crate) fn plugged(&self, role: Role) -> Result<Adapter> {
        let link = match self.setup.below {
            LowerLayer::Packet(pair) => Link::packet(end(pair, role).name.as_str()),
            LowerLayer::UringPacket(pair) => Link::packet_uring(end(pair, role).name.as_str()),
            LowerLayer::Xdp(pair) => {
                // Who connects asks everybody where the other is.
                let interface = end(pair, role).name.as_str();
                Link::xdp_with(XdpConfig::station_and_groups(interface, [0; 6]))
            }
            LowerLayer::Tunnel(_) | LowerLayer::Process => bail!("there is no cable"),
        };
        self.addressed(self.linked(link, role), role)
    }

    /// The sender has to know where the receiver's end of the tunnel is, which learns who
    /// sends.
    fn open_tunnel(
        &self,
        role: Role,
        (here, mtu): (SocketAddr, u32),
        meeting: &Rendezvous,
    ) -> Result<Adapter> {
        let config = TunnelConfig::new(here, mtu);
        if role == Role::Receive {
            let config = TunnelConfig { learn_peers: true, ..config };
            let adapter = self.addressed(self.linked(Link::tunnel_with(config), role), role)?;
            let own = adapter.links().first().and_then(|link| link.tunnel_address);
            meeting.exchange(own.context("a tunnel has an address")?.into())?;
            return Ok(adapter);
        }
        let Peer::Socket(there) = meeting.exchange(here.into())? else {
            bail!("a tunnel without an address");
        };
        let config = TunnelConfig { peers: vec![there], ..config };
        self.addressed(self.linked(Link::tunnel_with(config), role), role)
    }

    fn linked(&self, link: Link, role: Role) -> Builder {
        let link = match self.setup.faults {
            Some((faults, mut seed)) => {
                seed[0] ^= role as u8; // each direction has its own bad luck
                link.with_faults(faults, seed)
            }
            None => link,
        };
        self.builder().link(link)
    }

    fn addressed(&self, builder: Builder, role: Role) -> Result<Adapter> {
        let own = self.setup.below.station(role);
        let builder = builder.address(format!("{}/24", own.ip)).mac(own.mac);
        builder.open_inline().context("cannot open an adapter")
    }

    fn side(&self, adapter: Adapter, (message, slots): (usize, usize)) -> Result<QueuePairEnd> {
        QueuePairEnd::new(adapter, Mapping::Message, (message, slots), limit_of(self.plan))
    }

    /// Sends for as long, or as many messages, as the plan says.
    fn send(&self, adapter: Adapter, shape: Shape, meeting: &Rendezvous) -> Result<Streamed> {
        let mut side = self.side(adapter, (shape.message, shape.send_slots))?;
        side.fill()?;
        meeting.ready()?;
        side.connect(self.setup.below.station(Role::Receive).address())?;
        let sent = stream_from(&mut side, self.plan)?;
        side.finish()?;
        Ok(sent)
    }

    /// Receives until the sender has finished.
    fn receive(&self, adapter: Adapter, shape: Shape, meeting: &Rendezvous) -> Result<Received> {
        let mut side = self.side(adapter, (shape.message, shape.receive_slots))?;
        (0..side.slots).try_for_each(|slot| side.post_receive(slot))?;
        let listener = side.listen(self.setup.below.station(Role::Receive).address())?;
        meeting.ready()?;
        side.accept(&listener)?;
        let (before, started) = (TaskUse::of_this_thread()?, Instant::now());
        let keep = match self.plan.amount {
            Amount::Messages(most) if most <= side.slots => most,
            _ => KEPT.min(side.slots - 1),
        };
        let (mut ended, mut messages, mut kept) = (started, 0, VecDeque::new());
        loop {
            let done = side.next()?;
            if done.status == Status::Flushed {
                break;
            }
            let is_whole = done.status.is_success() && u64::from(done.len) == side.message;
            ensure!(is_whole && done.ends_message, "{done:?} after {messages} messages");
            ended = Instant::now();
            kept.push_back((messages, done.id));
            messages += 1;
            if kept.len() as u64 > keep
                && let Some((_, request)) = kept.pop_front()
            {
                side.post_receive(request + side.slots)?;
            }
        }
        let cpu = TaskUse::of_this_thread()? - before;
        let mut bytes = vec![0; shape.message];
        for (message, request) in &kept {
            side.memory.copy_out(request % side.slots * side.message, &mut bytes)?;
            let sent = Pattern(message % shape.send_slots as u64);
            if let Some(wrong) = sent.first_difference(&bytes) {
                bail!("message {message} is wrong from its byte {wrong} on");
            }
        }
        let compared = kept.len() as u64 * side.message;
        let (bytes, copied) = (messages * side.message, side.copied());
        side.finish()?;
        Ok(Received { started, ended, bytes, messages, compared, cpu, copied })
    }

    /// Asks until the plan's time is over.
    fn ask(&self, adapter: Adapter, len: usize, meeting: &Rendezvous) -> Result<InitiatorResult> {
        let time = halves::time_of(self.plan)?;
        ensure!((1..=LONGEST_TALK).contains(&len), "{len} bytes a message; 1 to {LONGEST_TALK}");
        let mut talk = self.talker(adapter, len)?;
        meeting.ready()?;
        talk.connect(self.setup.below.station(Role::Receive).address())?;
        let rounds = halves::round_trips(time, |round| {
            talk.post_send(2 * round)?;
            ensure!(hear(&mut talk, round)?, "the other side has finished");
            Ok(Instant::now())
        })?;
        let copied = talk.copied();
        talk.finish()?;
        Ok(InitiatorResult { len, rounds, copied })
    }

    /// Answers until the other side has finished.
    fn answer(&self, adapter: Adapter, len: usize, meeting: &Rendezvous) -> Result<Answered> {
        let mut talk = self.talker(adapter, len)?;
        let listener = talk.listen(self.setup.below.station(Role::Receive).address())?;
        meeting.ready()?;
        talk.accept(&listener)?;
        let before = TaskUse::of_this_thread()?;
        let mut round = 0;
        while hear(&mut talk, round)? {
            talk.post_send(2 * round)?;
            round += 1;
        }
        let cpu = TaskUse::of_this_thread()? - before;
        let copied = talk.copied();
        talk.finish()?;
        Ok(Answered { cpu, copied })
    }

    /// Even slots are for what goes out, odd ones for what comes in.
    fn talker(&self, adapter: Adapter, len: usize) -> Result<QueuePairEnd> {
        let mut talk = self.side(adapter, (len, 4 * TALK_DEPTH as usize))?;
        for round in 0..TALK_DEPTH {
            talk.post_receive(2 * round + 1)?;
        }
        Ok(talk)
    }
}

/// Waits for the message of a round, and posts its place again. False: there is no more.
fn hear(talk: &mut QueuePairEnd, round: u64) -> Result<bool> {
    loop {
        let done = talk.next()?;
        match (done.operation, done.status) {
            (Operation::Send, Status::Success) => {}
            (Operation::Receive, Status::Success) => {
                ensure!(done.id == 2 * (round % TALK_DEPTH) + 1, "{done:?} in round {round}");
                talk.post_receive(done.id)?;
                return Ok(true);
            }
            (_, Status::Flushed) => return Ok(false),
            _ => bail!("{done:?} in round {round}"),
        }
    }
}

/// A run that takes longer than its time and the patience of the plan has failed.
pub(crate) const fn limit_of(plan: &Plan) -> Duration {
    let own = match plan.amount {
        Amount::Time(time) => time,
        Amount::Bytes(_) | Amount::Messages(_) => Duration::ZERO,
    };
    own.saturating_add(plan.limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_testbed::rivals::Endpoints;

    fn plan(amount: Amount) -> Plan {
        Plan::new(Endpoints::loopback().unwrap(), amount)
    }

    #[test]
    fn messages_cross_and_are_compared() {
        for below in [LowerLayer::Tunnel(1500), LowerLayer::Process] {
            let plan = plan(Amount::Messages(40));
            let outcome = stream(&plan, &Setup::over(below), shape(16 << 10)).unwrap();
            let bytes = 40 * (16 << 10);
            assert_eq!((outcome.sample.bytes, outcome.compared), (bytes, bytes), "{below:?}");
        }
    }

    #[test]
    fn loss_is_mended() {
        let faults = Some((Faults { loss_at_place: 20_000, ..Faults::default() }, [3; 32]));
        let setup = Setup { faults, ..Setup::over(LowerLayer::Tunnel(1500)) };
        let outcome = stream(&plan(Amount::Messages(60)), &setup, shape(16 << 10)).unwrap();
        assert_eq!(outcome.compared, 60 * (16 << 10));
        assert!(outcome.sample.retransmitted > 0);
    }

    #[test]
    fn a_conversation_is_timed() {
        let plan = plan(Amount::Time(Duration::from_millis(20))).polling(Polling::Spin);
        let sample = talk(&plan, &Setup::over(LowerLayer::Tunnel(1500)), 100).unwrap();
        let rtt = sample.rtt.unwrap();
        assert!(rtt.count == sample.messages && 0 < rtt.min_ns && rtt.min_ns <= rtt.max_ns);
    }
}
