//! The Scheduled Transfer Protocol, over each of its encapsulations.

use std::sync::Arc;

use anyhow::Result;
use landfall::stp::Transport as Transports;
use landfall_testbed::Sample;
use landfall_testbed::rivals::{Plan, Polling, Workload};
use landfall_transport::memory::{Arena, ArenaConfig};

use super::chosen::{Chosen, lossy};
use super::group::Group;
use super::ours::NEEDS_CABLE;
use super::row::{Mode, Subject};
use crate::workload::bulk::{self, Tables};
use crate::workload::front_door::{self, OpenPath};
use crate::workload::stp::{StpWork, Touch};
use crate::workload::talk;
use crate::workload::transport::{Ethertype, OverIp, Rings};
use crate::workload::transport::{Transport, Udp, UringUdp, WithFaults};

/// So many connections share a path.
const MANY: u32 = 100;
/// This share of units is lost on purpose.
const LOSS: f64 = 0.01;

/// What is written to the other side when round trips are measured.
const WORD: usize = 8;

fn subject(transport: &'static str, mode: Mode, message_bytes: u64, payload: u64) -> Subject {
    Subject {
        protocol: "stp",
        transport,
        mode,
        polling: mode == Mode::Latency,
        message_bytes,
        payload_bytes: Some(payload),
        ..Subject::BASE
    }
}

/// The STUs that are measured over links of this MTU: what fills a packet of UDP over IPv4,
/// and 1024 bytes, which the paper measured.
pub(crate) fn stus(mtu: u32) -> Vec<u32> {
    let largest = full_stu(mtu, 28);
    if largest > 1024 { vec![1024, largest] } else { vec![largest] }
}

/// What fills a packet behind the headers of its carrier.
fn full_stu(mtu: u32, headers: u32) -> u32 {
    let packet = mtu.saturating_sub(headers).min(65_507);
    (packet.saturating_sub(40) / 8 * 8).max(64)
}

/// Memory is used again from run to run; both sides fit.
fn arena() -> Arena {
    Arena::new(ArenaConfig { chunk: 64 << 20, max_bytes: 256 << 20, ..ArenaConfig::default() })
}

/// One candidate: a transport under a name, and what goes over it.
struct StpPath<T> {
    name: &'static str,
    variant: Option<&'static str>,
    transport: T,
    stu: u32,
    work: StpWork,
    loss: f64,
}

impl<T> StpPath<T> {
    fn new(name: &'static str, transport: T, stu: u32) -> Self {
        let work = StpWork::with_stu(stu);
        Self { name, variant: None, transport, stu, work, loss: 0.0 }
    }

    fn subject(&self, mode: Mode, message: u64) -> Subject {
        let named = subject(self.name, mode, message, u64::from(self.stu).min(message));
        let connections = if mode == Mode::Throughput { self.work.connections } else { 1 };
        Subject { variant: self.variant, connections, loss: self.loss, ..named }
    }
}

impl<'a, T: Transport + Copy + 'a> StpPath<T>
where
    T::Driver: Send,
{
    /// Messages of the usual length, one stream of them.
    fn add_to(self, group: &mut Group<'a>, arena: &Arena) {
        self.add_messages_to(group, arena, StpWork::SHAPE.message);
    }

    fn add_messages_to(self, group: &mut Group<'a>, arena: &Arena, message: usize) {
        let (plan, arena, shape) = (group.setting.plan, arena.clone(), StpWork::shape(message));
        group.add(self.subject(Mode::Throughput, message as u64), move || {
            let pieces = (&self.transport, &self.work);
            Ok(bulk::run(plan, shape, pieces, &arena, &Tables::new())?.sample)
        });
    }

    /// The same, where the receiver reads every byte of a message before its place is
    /// used again.
    fn add_touched_to(self, group: &mut Group<'a>, arena: &Arena, message: usize) {
        let (plan, arena, shape) = (group.setting.plan, arena.clone(), StpWork::shape(message));
        let sums = Touch::sums(shape);
        let named = self.subject(Mode::Throughput, message as u64);
        group.add(Subject { workload: Workload::Touch, ..named }, move || {
            let tables = Tables::new();
            let touch = Touch { regions: tables.receive.clone(), sums: Arc::clone(&sums) };
            let work = StpWork { touch: Some(touch), ..self.work.clone() };
            Ok(bulk::run(plan, shape, (&self.transport, &work), &arena, &tables)?.sample)
        });
    }

    /// Puts of this length and their acknowledgements, spinning.
    fn add_puts_to(self, group: &mut Group<'a>, message: usize) {
        let plan = group.setting.plan.clone().polling(Polling::Spin);
        let named = self.subject(Mode::Latency, message as u64);
        let named = Subject { payload_bytes: Some(message as u64), ..named };
        group.add(named, move || put(&plan, message, &self.transport, &self.work));
    }
}

/// What a user gets who chooses nothing.
const SHIPPED: Option<&str> = Some("as shipped");

/// The ways that are measured through the public API: UDP, and UDP by packets where there is
/// a cable.
fn shipped(group: &mut Group<'_>, mode: Mode) -> Vec<(&'static str, OpenPath)> {
    let mut ways: Vec<(_, OpenPath)> = vec![("udp", Transports::udp)];
    match group.setting.pair {
        Some(_) => ways.push(("udp-packet", Transports::udp_packet)),
        None => group.lacks(("stp", "udp-packet"), mode, NEEDS_CABLE),
    }
    ways
}

/// Transfers of 1 MiB through the public API with its defaults.
fn add_shipped(group: &mut Group<'_>) {
    let (plan, shape) = (group.setting.plan, StpWork::SHAPE);
    for (name, open) in shipped(group, Mode::Throughput) {
        let named = subject(name, Mode::Throughput, shape.message as u64, 0);
        let named = Subject { variant: SHIPPED, payload_bytes: None, ..named };
        group.add(named, move || front_door::stream(open, plan, shape));
    }
}

/// Puts of 8 bytes through the public API, spinning.
fn add_shipped_latency(group: &mut Group<'_>) {
    for (name, open) in shipped(group, Mode::Latency) {
        let plan = group.setting.plan.clone().polling(Polling::Spin);
        let named = subject(name, Mode::Latency, WORD as u64, WORD as u64);
        let named = Subject { variant: SHIPPED, ..named };
        group.add(named, move || front_door::puts(open, &plan, WORD));
    }
}

/// Transfers of 1 MiB, one stream of them.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let arena = arena();
    add_shipped(group);
    for stu in stus(mtu) {
        StpPath::new("udp", Udp { mtu }, stu).add_to(group, &arena);
    }
    let Some(largest) = stus(mtu).last().copied() else { return };
    let mut many = StpPath::new("udp", Udp { mtu }, largest);
    (many.variant, many.work.connections) = (Some("100 connections"), MANY);
    many.add_to(group, &arena);
    let mut with_loss = StpPath::new("udp", lossy(Udp { mtu }, LOSS), largest);
    (with_loss.variant, with_loss.loss) = (Some("1 % lost"), LOSS);
    with_loss.work = with_loss.work.impatient();
    with_loss.add_to(group, &arena);
    StpPath::new("uring-udp", UringUdp { mtu }, largest).add_to(group, &arena);
    let Some(pair) = group.setting.pair else { return };
    let (frame, packet) = (full_stu(mtu, 0), full_stu(mtu, 20));
    StpPath::new("0x8181", Ethertype { pair }, frame).add_to(group, &arena);
    StpPath::new("ip-118", OverIp { mtu }, packet).add_to(group, &arena);
    StpPath::new("xdp-0x8181", Rings { pair }, frame).add_to(group, &arena);
}

/// What was asked for, over UDP, and over Ethernet where there is a cable.
pub(crate) fn add_chosen(group: &mut Group<'_>, chosen: &Chosen) {
    let mtu = group.setting.mtu;
    let arena = arena();
    add_chosen_over(group, ("udp", Udp { mtu }), chosen, &arena);
    if let Some(pair) = group.setting.pair {
        add_chosen_over(group, ("0x8181", Ethertype { pair }), chosen, &arena);
    }
}

/// The path that was asked for, without its loss.
fn path_of<T>((name, transport): (&'static str, T), chosen: &Chosen, mtu: u32) -> StpPath<T> {
    let largest = stus(mtu).last().copied().unwrap_or(1024);
    let mut path = StpPath::new(name, transport, chosen.stu.unwrap_or(largest).min(largest));
    path.work.connections = chosen.connections;
    path
}

/// The same on a path that loses as much as was asked for.
fn lossy_path_of<T>(named: (&'static str, T), chosen: &Chosen, mtu: u32) -> StpPath<WithFaults<T>> {
    let StpPath { name, transport, stu, work, .. } = path_of(named, chosen, mtu);
    let (work, loss) = (work.impatient(), chosen.loss);
    StpPath { name, variant: None, transport: lossy(transport, loss), stu, work, loss }
}

fn add_chosen_over<'a, T: Transport + Copy + 'a>(
    group: &mut Group<'a>,
    named: (&'static str, T),
    chosen: &Chosen,
    arena: &Arena,
) where
    T::Driver: Send,
{
    let mtu = group.setting.mtu;
    if chosen.loss > 0.0 {
        add_workloads(group, &|| lossy_path_of(named, chosen, mtu), chosen, arena);
    } else {
        add_workloads(group, &|| path_of(named, chosen, mtu), chosen, arena);
    }
}

fn add_workloads<'a, T: Transport + Copy + 'a>(
    group: &mut Group<'a>,
    path: &dyn Fn() -> StpPath<T>,
    chosen: &Chosen,
    arena: &Arena,
) where
    T::Driver: Send,
{
    let message = chosen.message.unwrap_or(StpWork::SHAPE.message);
    path().add_messages_to(group, arena, message);
    if chosen.workloads.contains(&Workload::Touch) {
        path().add_touched_to(group, arena, message);
    }
}

/// Round trips of what was asked for.
pub(super) fn add_chosen_latency(group: &mut Group<'_>, chosen: &Chosen) {
    let mtu = group.setting.mtu;
    let message = chosen.message.unwrap_or(WORD);
    let named = ("udp", Udp { mtu });
    if chosen.loss > 0.0 {
        lossy_path_of(named, chosen, mtu).add_puts_to(group, message);
    } else {
        path_of(named, chosen, mtu).add_puts_to(group, message);
    }
    let (Some(pair), false) = (group.setting.pair, chosen.loss > 0.0) else { return };
    path_of(("0x8181", Ethertype { pair }), chosen, mtu).add_puts_to(group, message);
}

fn put<T: Transport>(plan: &Plan, len: usize, transport: &T, work: &StpWork) -> Result<Sample> {
    talk::run(plan, len, (transport, work), &Tables::new())
}

/// A Put of 8 bytes and its acknowledgement, spinning.
pub(super) fn add_latency(group: &mut Group<'_>) {
    const STU: u32 = 1024;
    let mtu = group.setting.mtu;
    if let Some(pair) = group.setting.pair {
        StpPath::new("0x8181", Ethertype { pair }, STU).add_puts_to(group, WORD);
        StpPath::new("ip-118", OverIp { mtu }, STU).add_puts_to(group, WORD);
        StpPath::new("xdp-0x8181", Rings { pair }, STU).add_puts_to(group, WORD);
    }
    StpPath::new("udp", Udp { mtu }, STU).add_puts_to(group, WORD);
    add_shipped_latency(group);
}
