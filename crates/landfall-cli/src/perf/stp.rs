//! The Scheduled Transfer Protocol, over each of its encapsulations.

use anyhow::Result;
use landfall_testbed::Sample;
use landfall_testbed::rivals::{Plan, Polling};
use landfall_transport::fault::Faults;
use landfall_transport::memory::{Arena, ArenaConfig};

use super::group::Group;
use super::row::{Mode, Subject};
use crate::lane::bulk::{self, Tables};
use crate::lane::stp::StpWork;
use crate::lane::stp_paths::{Ethertype, OverIp, Rings};
use crate::lane::talk;
use crate::lane::transport::{Transport, Udp, UringUdp, WithFaults};

/// So many connections share a path.
const MANY: u32 = 100;

/// What is written to the other side when round trips are measured.
const WORD: usize = 8;

fn subject(transport: &'static str, mode: Mode, message_bytes: u64, payload: u64) -> Subject {
    Subject {
        protocol: "stp",
        transport,
        peer: false,
        mode,
        polling: mode == Mode::Latency,
        message_bytes,
        payload_bytes: Some(payload),
        variant: None,
    }
}

/// The STUs that are measured over links of this MTU: the largest power of two
/// that fits, and 1024 bytes, which the paper measured.
fn stus(mtu: u32) -> Vec<u32> {
    let largest = 1 << mtu.saturating_sub(28 + 40).max(64).ilog2().min(13);
    if largest > 1024 { vec![1024, largest] } else { vec![largest] }
}

fn add_stream<'a, T: Transport + Copy + 'a>(
    group: &mut Group<'a>,
    (name, variant): (&'static str, Option<&'static str>),
    transport: T,
    (stu, work): (u32, StpWork),
    arena: &Arena,
) where
    T::Driver: Send,
{
    let (plan, arena, shape) = (group.setting.plan, arena.clone(), StpWork::SHAPE);
    let named = subject(name, Mode::Throughput, shape.message as u64, stu.into());
    group.add(Subject { variant, ..named }, move || {
        Ok(bulk::run(plan, shape, (&transport, &work), &arena, &Tables::new())?.sample)
    });
}

/// Transfers of 1 MiB, one stream of them.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let config = ArenaConfig { chunk: 64 << 20, max_bytes: 256 << 20, ..ArenaConfig::default() };
    let arena = Arena::new(config);
    let with = |stu| (stu, StpWork::with_stu(stu));
    for stu in stus(mtu) {
        add_stream(group, ("udp", None), Udp { mtu }, with(stu), &arena);
    }
    let Some(largest) = stus(mtu).last().copied() else { return };
    let many = StpWork { connections: MANY, ..StpWork::with_stu(largest) };
    add_stream(group, ("udp", Some("100 connections")), Udp { mtu }, (largest, many), &arena);
    // Thrown away where it arrives: what is sent costs what it costs without.
    let faults = Faults { loss_at_place: 10_000, ..Faults::loss(0) };
    let lossy = WithFaults { inner: Udp { mtu }, faults, seed: [3; 32] };
    let impatient = StpWork::with_stu(largest).impatient();
    add_stream(group, ("udp", Some("1 % lost")), lossy, (largest, impatient), &arena);
    add_stream(group, ("uring-udp", None), UringUdp { mtu }, with(largest), &arena);
    let Some(pair) = group.setting.pair else { return };
    add_stream(group, ("0x8181", None), Ethertype { pair }, with(largest), &arena);
    add_stream(group, ("ip-118", None), OverIp { mtu }, with(largest), &arena);
    add_stream(group, ("xdp-0x8181", None), Rings { pair }, with(largest), &arena);
}

fn put<T: Transport>(plan: &Plan, transport: &T, work: &StpWork) -> Result<Sample> {
    talk::run(plan, WORD, (transport, work), &Tables::new())
}

/// A Put of 8 bytes and its acknowledgement, spinning.
pub(super) fn add_latency(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let work = StpWork::with_stu(1024);
    let named = |transport| subject(transport, Mode::Latency, WORD as u64, WORD as u64);
    if let Some(pair) = group.setting.pair {
        let (own, spinning) = (work.clone(), plan.clone());
        group.add(named("0x8181"), move || put(&spinning, &Ethertype { pair }, &own));
        let (own, spinning) = (work.clone(), plan.clone());
        group.add(named("ip-118"), move || put(&spinning, &OverIp { mtu }, &own));
        let (own, spinning) = (work.clone(), plan.clone());
        group.add(named("xdp-0x8181"), move || put(&spinning, &Rings { pair }, &own));
    }
    group.add(named("udp"), move || put(&plan, &Udp { mtu }, &work));
}
