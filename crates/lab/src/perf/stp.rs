//! The Scheduled Transfer Protocol, over each of its encapsulations, as its users have it.

use landfall::stp::Config;
use landfall_testbed::rivals::{Polling, Workload};

use super::chosen::{Chosen, faults_of};
use super::local::Group;
use super::row::{Mode, Subject};
use super::{NEEDS_CABLE, why_no_ring};
use crate::workload::Shape;
use crate::workload::stp::{self, LowerLayer, SHAPE, Setup};

/// This many connections share a path.
const MANY: u32 = 100;
/// This share of units is lost on purpose.
const LOSS: f64 = 0.01;
/// Of a million units this many may be lost without being taken for congestion, as long as no
/// queue stands: twice the loss.
const TOLERATED: u32 = 20_000;
/// The STU that the paper measured.
const PAPERS_STU: u32 = 1024;
/// UDP as it is by default, where both ends are on one host.
const NEIGHBOURS: &str = "same-host";
/// A short Transfer.
const SHORT: usize = 64;
/// What is written to the other side when round trips are measured.
const WORD: usize = 8;
/// The MTU of the loopback interface.
pub(crate) const LOOPBACK_MTU: u32 = 65_536;

/// What is measured: an encapsulation under a name, and what differs from the defaults.
#[derive(Clone)]
struct Candidate<'a> {
    name: &'static str,
    variant: Option<&'static str>,
    setup: Setup<'a>,
    loss: f64,
}

impl<'a> Candidate<'a> {
    fn over(name: &'static str, below: LowerLayer<'a>) -> Self {
        Self { name, variant: None, setup: Setup::over(below), loss: 0.0 }
    }

    fn named(self, variant: &'static str) -> Self {
        Self { variant: Some(variant), ..self }
    }

    /// With everything encrypted.
    fn encrypted(mut self) -> Self {
        self.setup.encrypts = true;
        self.named("encrypted")
    }

    fn with_loss(mut self, loss: f64) -> Self {
        (self.setup.faults, self.loss) = (faults_of(loss), loss);
        self
    }

    fn subject(&self, mode: Mode, message: u64) -> Subject {
        let throughput = mode == Mode::Throughput;
        Subject {
            protocol: "stp",
            transport: self.name,
            mode,
            polling: !throughput,
            message_bytes: message,
            payload_bytes: if throughput { self.setup.stu.map(u64::from) } else { Some(message) },
            variant: self.variant,
            connections: if throughput { self.setup.connections } else { 1 },
            loss: self.loss,
            ..Subject::BASE
        }
    }

    /// Transfers of this shape, one stream of them.
    fn add_stream(self, group: &mut Group<'a>, shape: Shape) {
        let plan = group.setting.plan;
        let named = self.subject(Mode::Throughput, shape.message as u64);
        let workload = if self.setup.touches { Workload::Touch } else { Workload::Plain };
        group.add(Subject { workload, ..named }, move || {
            Ok(stp::stream(plan, &self.setup, shape)?.sample)
        });
    }

    /// Puts of this shape, one stream of them.
    fn add_put_stream(self, group: &mut Group<'a>, shape: Shape) {
        let plan = group.setting.plan;
        let named = self.named("Puts of 1 MiB");
        let subject = named.subject(Mode::Throughput, shape.message as u64);
        group.add(subject, move || Ok(stp::put_stream(plan, &named.setup, shape)?.sample));
    }

    /// Transfers of this length there and back, spinning.
    fn add_transfers(self, group: &mut Group<'a>, message: usize) {
        let plan = group.setting.plan.clone().polling(Polling::Spin);
        let named = self.named("a Transfer each way");
        group.add(named.subject(Mode::Latency, message as u64), move || {
            stp::transfers(&plan, &named.setup, message)
        });
    }

    /// Puts of this length and their acknowledgements, spinning.
    fn add_puts(self, group: &mut Group<'a>, message: usize) {
        let plan = group.setting.plan.clone().polling(Polling::Spin);
        let named = self.subject(Mode::Latency, message as u64);
        group.add(named, move || stp::puts(&plan, &self.setup, message));
    }
}

/// UDP by itself where a link has an MTU of its own; loopback, for units of another.
fn udp<'a>(group: &Group<'a>) -> LowerLayer<'a> {
    let mtu = group.setting.mtu;
    let is_told = group.setting.pair.is_none() && mtu != LOOPBACK_MTU;
    if is_told { LowerLayer::UdpOf(mtu) } else { LowerLayer::Udp }
}

/// Each way below STP that there is here.
fn ways<'a>(group: &Group<'a>) -> Vec<(&'static str, LowerLayer<'a>)> {
    let mut ways = vec![("udp", udp(group))];
    if why_no_ring().is_none() {
        ways.push(("uring-udp", LowerLayer::UringUdp(group.setting.mtu)));
    }
    if let Some(pair) = group.setting.pair {
        ways.push(("udp-packet", LowerLayer::UdpPacket));
        if why_no_ring().is_none() {
            ways.push(("uring-udp-packet", LowerLayer::UringUdpPacket));
        }
        ways.push(("0x8181", LowerLayer::Ethernet(pair)));
        ways.push(("ip-118", LowerLayer::Ip(group.setting.mtu)));
        ways.push(("xdp-0x8181", LowerLayer::Xdp(pair)));
    }
    ways
}

/// Transfers of 1 MiB, one stream of them.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    for (name, below) in ways(group) {
        Candidate::over(name, below).add_stream(group, SHAPE);
    }
    if group.setting.pair.is_none() {
        Candidate::over(NEIGHBOURS, LowerLayer::SameHost).add_stream(group, SHAPE);
    }
    let udp = Candidate::over("udp", udp(group));
    udp.clone().encrypted().add_stream(group, SHAPE);
    udp.clone().add_put_stream(group, SHAPE);
    let mut short = udp.clone().named("STU of 1024");
    short.setup = short.setup.with_stu(Some(PAPERS_STU));
    short.add_stream(group, SHAPE);
    let mut many = udp.clone().named("100 connections");
    many.setup.connections = MANY;
    many.add_stream(group, SHAPE);
    add_lossy(group, &udp);
    if let Some(why) = why_no_ring() {
        group.lacks(("stp", "uring-udp"), Mode::Throughput, &why);
    }
    if group.setting.pair.is_none() {
        group.lacks(("stp", "udp-packet"), Mode::Throughput, NEEDS_CABLE);
        group.lacks(("stp", "0x8181"), Mode::Throughput, NEEDS_CABLE);
    }
}

/// The same while 1 % is lost, with the defaults and where that much is tolerated: frames of
/// the MTU on the cable, and where it has none, units of the endpoint.
fn add_lossy<'a>(group: &mut Group<'a>, udp: &Candidate<'a>) {
    let lossy = match group.lossy_cable() {
        Some(cable) => {
            let mut lossy = udp.clone();
            lossy.setup.cable = Some((cable, 0));
            lossy.clone().named("cable as in the next rows, none lost").add_stream(group, SHAPE);
            (lossy.setup.cable, lossy.loss) = (Some((cable, (LOSS * 1e6) as u32)), LOSS);
            lossy
        }
        None => udp.clone().with_loss(LOSS),
    };
    let mut tolerant = lossy.clone().named("1 % lost, 2 % tolerated");
    let mut config = Config::shared_network();
    if let Some(congestion) = &mut config.congestion {
        congestion.loss_tolerance = TOLERATED;
    }
    tolerant.setup.config = Some(config);
    lossy.named("1 % lost").add_stream(group, SHAPE);
    tolerant.add_stream(group, SHAPE);
}

/// What was asked for, over UDP, and over Ethernet where there is a cable.
fn chosen_ways<'a>(group: &Group<'a>, chosen: &Chosen) -> Vec<Candidate<'a>> {
    let ethernet =
        group.setting.pair.map(|pair| Candidate::over("0x8181", LowerLayer::Ethernet(pair)));
    let ways = [Some(Candidate::over("udp", udp(group))), ethernet];
    let configured = |mut way: Candidate<'a>| {
        (way.setup.stu, way.setup.connections) = (chosen.stu, chosen.connections);
        way.with_loss(chosen.loss)
    };
    ways.into_iter().flatten().map(configured).collect()
}

pub(crate) fn add_chosen(group: &mut Group<'_>, chosen: &Chosen) {
    let shape = stp::shape(chosen.message.unwrap_or(SHAPE.message));
    for way in chosen_ways(group, chosen) {
        way.clone().add_stream(group, shape);
        if chosen.workloads.contains(&Workload::Touch) {
            let mut touching = way;
            touching.setup.touches = true;
            touching.add_stream(group, shape);
        }
    }
}

/// Round trips of what was asked for.
pub(super) fn add_chosen_latency(group: &mut Group<'_>, chosen: &Chosen) {
    for mut way in chosen_ways(group, chosen) {
        way.setup.connections = 1;
        way.add_puts(group, chosen.message.unwrap_or(WORD));
    }
}

/// A Put of 8 bytes and its acknowledgement, spinning.
pub(super) fn add_latency(group: &mut Group<'_>) {
    for (name, below) in ways(group) {
        Candidate::over(name, below).add_puts(group, WORD);
    }
    Candidate::over("udp", udp(group)).encrypted().add_puts(group, WORD);
    if group.setting.pair.is_none() {
        let neighbours = Candidate::over(NEIGHBOURS, LowerLayer::SameHost);
        neighbours.clone().add_puts(group, WORD);
        neighbours.add_transfers(group, SHORT);
        Candidate::over("udp", udp(group)).add_transfers(group, SHORT);
    }
}
