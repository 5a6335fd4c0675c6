//! The drivers, each with the test engine that suits it.

use anyhow::Result;
use io_uring::IoUring;
use landfall_placement::Peer;
use landfall_testbed::rivals::{Plan, Polling};
use landfall_testbed::{Sample, VethPair};
use landfall_testkit::engines::stream::Framing;
use landfall_transport::memory::{Arena, ArenaConfig};

use super::group::Group;
use super::row::{Mode, Subject};
use crate::workload::Workload;
use crate::workload::bulk::{self, Shape, Tables};
use crate::workload::numbered::NumberedWork;
use crate::workload::stream::StreamWork;
use crate::workload::talk;
use crate::workload::transport::{
    Channel, Packet, RawIp, Transport, Udp, UringPacket, UringUdp, Xdp, station,
};

/// IPv4 and UDP headers, and the head of the numbered engine.
const HEADERS: u32 = 28 + 40;
/// IPv4 and TCP headers, with the timestamp option.
const TCP_HEADERS: u32 = 20 + 20 + 12;
const SMALL: u32 = 1024;
const LARGE: u32 = 8192;
pub(super) const NEEDS_CABLE: &str = "needs a cable: run `sudo landfall perf local --veth`";

/// The payloads that are measured over links of this MTU: a small one, and the
/// one that fills it (a multiple of 16; a power of two where that fits).
pub(crate) fn payloads(mtu: u32) -> Vec<u32> {
    let room = mtu.saturating_sub(HEADERS);
    let filling = if room >= LARGE { LARGE } else { room / 16 * 16 };
    vec![SMALL.min(filling), filling]
}

fn subject(transport: &'static str, mode: Mode, message_bytes: u64, payload: u64) -> Subject {
    Subject {
        protocol: "test",
        transport,
        mode,
        polling: mode == Mode::Latency,
        message_bytes,
        payload_bytes: Some(payload),
        ..Subject::BASE
    }
}

fn throughput_subject(transport: &'static str, shape: Shape, payload: u32) -> Subject {
    subject(transport, Mode::Throughput, shape.message as u64, payload.into())
}

/// Memory is used again from run to run; both sides fit.
fn arena() -> Arena {
    Arena::new(ArenaConfig { chunk: 64 << 20, max_bytes: 256 << 20, ..ArenaConfig::default() })
}

/// One run of endless messages.
fn stream<T: Transport, W: Workload>(
    (plan, shape): (&Plan, Shape),
    pieces: (&T, &W),
    arena: &Arena,
    tables: &Tables,
) -> Result<Sample>
where
    T::Driver: Send,
{
    Ok(bulk::run(plan, shape, pieces, arena, tables)?.sample)
}

/// Every driver that can carry endless messages here.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let arena = arena();
    let plan = group.setting.plan;
    for payload in payloads(mtu) {
        let (udp, work) = (Udp { mtu }, NumberedWork::with_unit(payload));
        let (arena, shape) = (arena.clone(), work.shape());
        group.add(throughput_subject("udp", shape, payload), move || {
            stream((plan, shape), (&udp, &work), &arena, &Tables::new())
        });
    }
    add_uring(group, &arena);
    add_packet(group, &arena);
    add_without_offload(group, &arena);
    if group.setting.pair.is_none() {
        let work = NumberedWork::with_unit(LARGE);
        let shape = work.shape();
        group.add(throughput_subject("channel", shape, LARGE), move || {
            let tables = Tables::new();
            let channel = Channel::new(&tables.send, &tables.receive)?;
            stream((plan, shape), (&channel, &work), &arena, &tables)
        });
    }
}

/// The same by io_uring, with payloads that fill the MTU.
fn add_uring(group: &mut Group<'_>, arena: &Arena) {
    if let Some(why) = why_no_ring() {
        return group.lacks(("test", "uring-udp"), Mode::Throughput, &why);
    }
    let (mtu, plan, arena) = (group.setting.mtu, group.setting.plan, arena.clone());
    let Some(payload) = payloads(mtu).last().copied() else { return };
    let (udp, work) = (UringUdp { mtu }, NumberedWork::with_unit(payload));
    let shape = work.shape();
    group.add(throughput_subject("uring-udp", shape, payload), move || {
        stream((plan, shape), (&udp, &work), &arena, &Tables::new())
    });
}

/// Frames with real headers, by plain calls and by io_uring.
fn add_packet(group: &mut Group<'_>, arena: &Arena) {
    let Some(pair) = group.setting.pair else {
        group.lacks(("test", "packet"), Mode::Throughput, NEEDS_CABLE);
        return group.lacks(("test", "uring-packet"), Mode::Throughput, NEEDS_CABLE);
    };
    let payload = group.setting.mtu.saturating_sub(TCP_HEADERS);
    let (plan, work) = (group.setting.plan, over_ethernet(pair));
    let (packet, memory) = (Packet { pair }, arena.clone());
    group.add(throughput_subject("packet", Shape::STREAM, payload), move || {
        stream((plan, Shape::STREAM), (&packet, &work), &memory, &Tables::new())
    });
    if let Some(why) = why_no_ring() {
        return group.lacks(("test", "uring-packet"), Mode::Throughput, &why);
    }
    let (packet, memory) = (UringPacket { pair }, arena.clone());
    group.add(throughput_subject("uring-packet", Shape::STREAM, payload), move || {
        stream((plan, Shape::STREAM), (&packet, &work), &memory, &Tables::new())
    });
}

/// Protocols that no device or kernel cuts and joins: a number of their own on
/// IP, and an ethertype of their own through mapped rings.
fn add_without_offload(group: &mut Group<'_>, arena: &Arena) {
    let Some(pair) = group.setting.pair else {
        group.lacks(("test", "rawip"), Mode::Throughput, NEEDS_CABLE);
        return group.lacks(("test", "xdp"), Mode::Throughput, NEEDS_CABLE);
    };
    let (mtu, plan) = (group.setting.mtu, group.setting.plan);
    for payload in payloads(mtu) {
        let work = NumberedWork::with_unit(payload);
        let (shape, raw_ip, memory) = (work.shape(), RawIp { mtu }, arena.clone());
        group.add(throughput_subject("rawip", shape, payload), move || {
            stream((plan, shape), (&raw_ip, &work), &memory, &Tables::new())
        });
        let (xdp, memory) = (Xdp { pair }, arena.clone());
        group.add(throughput_subject("xdp", shape, payload), move || {
            stream((plan, shape), (&xdp, &work), &memory, &Tables::new())
        });
    }
}

pub(super) fn why_no_ring() -> Option<String> {
    let error = IoUring::new(8).err()?;
    Some(format!("io_uring: {error}; `landfall doctor` says what to do"))
}

/// A byte stream with real Ethernet, IP and TCP headers along this cable.
fn over_ethernet(pair: &VethPair) -> StreamWork {
    let (local, remote) = (station(&pair.a), station(&pair.b));
    let send = Framing::EthernetIpv4Tcp { local, remote };
    StreamWork::new(send, send.reversed(Peer::Unaddressed))
}

/// One byte there and back, spinning.
pub(super) fn add_latency(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    match group.setting.pair {
        None => {
            for transport in ["packet", "rawip", "xdp"] {
                group.lacks(("test", transport), Mode::Latency, NEEDS_CABLE);
            }
        }
        Some(pair) => {
            let (raw_ip, xdp, work) = (RawIp { mtu }, Xdp { pair }, NumberedWork::with_unit(SMALL));
            let spinning = plan.clone();
            group.add(subject("rawip", Mode::Latency, 1, 1), move || {
                talk::run(&spinning, 1, (&raw_ip, &work), &Tables::new())
            });
            let spinning = plan.clone();
            group.add(subject("xdp", Mode::Latency, 1, 1), move || {
                talk::run(&spinning, 1, (&xdp, &work), &Tables::new())
            });
            let (packet, work, plan) = (Packet { pair }, over_ethernet(pair), plan.clone());
            group.add(subject("packet", Mode::Latency, 1, 1), move || {
                talk::run(&plan, 1, (&packet, &work), &Tables::new())
            });
        }
    }
    let (udp, work) = (Udp { mtu }, NumberedWork::with_unit(SMALL));
    group.add(subject("udp", Mode::Latency, 1, 1), move || {
        talk::run(&plan, 1, (&udp, &work), &Tables::new())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_fit_the_mtu() {
        assert_eq!(payloads(1500), [1024, 1424]);
        assert_eq!(payloads(9000), [1024, 8192]);
        assert_eq!(payloads(65_536), [1024, 8192]);
        assert_eq!(payloads(1280), [1024, 1200]);
    }
}
