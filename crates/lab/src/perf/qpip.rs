//! Queue pairs: to each other, to and from ordinary sockets, and round trips.

use landfall_testbed::rivals::Polling;
use landfall_transport::memory::{Arena, ArenaConfig};

use super::chosen::{Chosen, lacks_workloads, lossy};
use super::group::Group;
use super::ours::{NEEDS_CABLE, why_no_ring};
use super::row::{Mode, Subject};
use crate::workload::bulk::{self, Tables};
use crate::workload::overhead;
use crate::workload::qpip::QpipWork;
use crate::workload::qpip_socket::{self, Direction};
use crate::workload::talk;
use crate::workload::transport::Tunnel;
use crate::workload::transport::{Channel, Packet, Transport, UringPacket};

/// IPv4 and TCP headers, with the timestamp option.
const HEADERS: u32 = 20 + 20 + 12;

/// What applications send at once: what a socket is often given, and the most
/// that a device is sure to take in one piece.
const MESSAGES: [(&str, usize); 2] = [("16 KiB messages", 16 << 10), ("56 KiB messages", 56 << 10)];

fn subject(group: &Group<'_>, transport: &'static str, mode: Mode, message: usize) -> Subject {
    let payload = u64::from(group.setting.mtu.saturating_sub(HEADERS));
    Subject {
        protocol: "qpip",
        transport,
        mode,
        polling: mode == Mode::Latency,
        message_bytes: message as u64,
        payload_bytes: Some(payload.min(message as u64)),
        ..Subject::BASE
    }
}

/// Messages of both lengths from queue pair to queue pair.
fn add_messages<'a, T: Transport + Copy + 'a>(
    group: &mut Group<'a>,
    name: &'static str,
    (transport, work): (T, QpipWork),
    arena: &Arena,
) where
    T::Driver: Send,
{
    let plan = group.setting.plan;
    for (variant, message) in MESSAGES {
        let (shape, arena) = (QpipWork::shape(message), arena.clone());
        let named = subject(group, name, Mode::Throughput, message);
        group.add(Subject { variant: Some(variant), ..named }, move || {
            Ok(bulk::run(plan, shape, (&transport, &work), &arena, &Tables::new())?.sample)
        });
    }
}

/// As many messages as possible, and as many bytes to and from a socket.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let arena = arena();
    let Some(pair) = group.setting.pair else {
        for transport in ["packet", "uring-packet"] {
            group.lacks(("qpip", transport), Mode::Throughput, NEEDS_CABLE);
        }
        let mtu = group.setting.mtu;
        add_messages(group, "tunnel", (Tunnel { mtu }, QpipWork::alone()), &arena);
        return add_channel(group, &arena);
    };
    let work = QpipWork::over(pair);
    add_messages(group, "packet", (Packet { pair }, work), &arena);
    match why_no_ring() {
        Some(why) => group.lacks(("qpip", "uring-packet"), Mode::Throughput, &why),
        None => add_messages(group, "uring-packet", (UringPacket { pair }, work), &arena),
    }
    let plan = group.setting.plan;
    let directions =
        [("to a socket", Direction::ToSocket), ("from a socket", Direction::FromSocket)];
    for (variant, direction) in directions {
        let named = subject(group, "packet", Mode::Throughput, qpip_socket::PIECE);
        let arena = arena.clone();
        group.add(Subject { variant: Some(variant), ..named }, move || {
            qpip_socket::run(plan, pair, direction, &arena)
        });
    }
}

/// What was asked for, in frames over a cable or in a tunnel.
pub(crate) fn add_chosen(group: &mut Group<'_>, chosen: &Chosen) {
    /// What one request may have, so that a device is sure to take it in one piece.
    const MOST: usize = 56 << 10;
    let (pair, mtu, loss) = (group.setting.pair, group.setting.mtu, chosen.loss);
    let name = if pair.is_some() { "packet" } else { "tunnel" };
    let message = chosen.message.unwrap_or(MESSAGES[0].1);
    if message > MOST || chosen.connections > 1 {
        let why = format!("one queue pair at each end, and messages of at most {MOST} bytes");
        return group.lacks(("qpip", name), Mode::Throughput, &why);
    }
    lacks_workloads(group, ("qpip", name), chosen, &[]);
    let arena = arena();
    let path = (name, message, loss);
    match (pair, loss > 0.0) {
        (Some(pair), false) => {
            add_path(group, path, (Packet { pair }, QpipWork::over(pair)), &arena);
        }
        (Some(pair), true) => {
            add_path(group, path, (lossy(Packet { pair }, loss), QpipWork::over(pair)), &arena);
        }
        (None, false) => add_path(group, path, (Tunnel { mtu }, QpipWork::alone()), &arena),
        (None, true) => {
            add_path(group, path, (lossy(Tunnel { mtu }, loss), QpipWork::alone()), &arena);
        }
    }
}

fn add_path<'a, T: Transport + 'a>(
    group: &mut Group<'a>,
    (name, message, loss): (&'static str, usize, f64),
    (transport, work): (T, QpipWork),
    arena: &Arena,
) where
    T::Driver: Send,
{
    let (plan, arena, shape) = (group.setting.plan, arena.clone(), QpipWork::shape(message));
    let named = subject(group, name, Mode::Throughput, message);
    group.add(Subject { loss, ..named }, move || {
        Ok(bulk::run(plan, shape, (&transport, &work), &arena, &Tables::new())?.sample)
    });
}

/// Round trips of what was asked for; a connection that loses a message waits for the
/// patience of TCP, so that there is nothing to be seen with loss but that.
pub(crate) fn add_chosen_latency(group: &mut Group<'_>, chosen: &Chosen) {
    if chosen.loss > 0.0 {
        let why = "a message that is lost is sent again after TCP's time-out: that is all that \
                   round trips would show";
        return group.lacks(("qpip", "all"), Mode::Latency, why);
    }
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let (mtu, message) = (group.setting.mtu, chosen.message.unwrap_or(1));
    let named = |group: &Group<'_>, name| subject(group, name, Mode::Latency, message);
    match group.setting.pair {
        Some(pair) => {
            let (packet, work) = (Packet { pair }, QpipWork::over(pair));
            group.add(named(group, "packet"), move || {
                talk::run(&plan, message, (&packet, &work), &Tables::new())
            });
        }
        None => {
            let (tunnel, work) = (Tunnel { mtu }, QpipWork::alone());
            group.add(named(group, "tunnel"), move || {
                talk::run(&plan, message, (&tunnel, &work), &Tables::new())
            });
        }
    }
}

fn arena() -> Arena {
    Arena::new(ArenaConfig { chunk: 8 << 20, max_bytes: 64 << 20, ..ArenaConfig::default() })
}

/// Within this process.
fn add_channel(group: &mut Group<'_>, arena: &Arena) {
    let plan = group.setting.plan;
    for (variant, message) in MESSAGES {
        let (shape, arena) = (QpipWork::shape(message), arena.clone());
        let named = subject(group, "channel", Mode::Throughput, message);
        let named = Subject { payload_bytes: Some(message as u64), ..named };
        group.add(Subject { variant: Some(variant), ..named }, move || {
            let tables = Tables::new();
            let channel = Channel::new(&tables.send, &tables.receive)?;
            let pieces = (&channel, &QpipWork::alone());
            Ok(bulk::run(plan, shape, pieces, &arena, &tables)?.sample)
        });
    }
}

/// One byte posted and reaped at both ends, while adapters work on threads of
/// their own.
pub(crate) fn add_overhead(group: &mut Group<'_>) {
    let plan = group.setting.plan;
    let named = subject(group, "channel", Mode::Overhead, 1);
    group.add(named, move || overhead::run(plan));
}

/// One byte there and back, spinning.
pub(super) fn add_latency(group: &mut Group<'_>) {
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let mtu = group.setting.mtu;
    let named = |group: &Group<'_>, transport| subject(group, transport, Mode::Latency, 1);
    let Some(pair) = group.setting.pair else {
        group.lacks(("qpip", "packet"), Mode::Latency, NEEDS_CABLE);
        let (tunnel, work) = (Tunnel { mtu }, QpipWork::alone());
        return group.add(named(group, "tunnel"), move || {
            talk::run(&plan, 1, (&tunnel, &work), &Tables::new())
        });
    };
    let (packet, work, spinning) = (Packet { pair }, QpipWork::over(pair), plan.clone());
    group.add(named(group, "packet"), move || {
        talk::run(&spinning, 1, (&packet, &work), &Tables::new())
    });
    if why_no_ring().is_none() {
        let packet = UringPacket { pair };
        group.add(named(group, "uring-packet"), move || {
            talk::run(&plan, 1, (&packet, &work), &Tables::new())
        });
    }
}
