//! Queue pairs as their users have them: to each other, to and from ordinary sockets, and
//! round trips. Their adapters run inline, on the thread that posts.

use landfall_testbed::rivals::Polling;

use super::chosen::{Chosen, faults_of, lacks_workloads};
use super::local::Group;
use super::row::{Mode, Subject};
use super::{NEEDS_CABLE, why_no_ring};
use crate::workload::overhead;
use crate::workload::qpip::socket::{self, Direction};
use crate::workload::qpip::{self, LowerLayer, Setup};

const NEEDS_SHORT_FRAMES: &str = "takes frames of up to half a page: with an MTU of 1500, and \
                                  without super-packets";

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

/// Each way below queue pairs that there is here.
fn ways<'a>(group: &Group<'a>, mode: Mode) -> Vec<(&'static str, LowerLayer<'a>)> {
    let Some(pair) = group.setting.pair else {
        return vec![
            ("tunnel", LowerLayer::Tunnel(group.setting.mtu)),
            ("channel", LowerLayer::Process),
        ];
    };
    let mut ways = vec![("packet", LowerLayer::Packet(pair))];
    if why_no_ring().is_none() {
        ways.push(("uring-packet", LowerLayer::UringPacket(pair)));
    }
    if has_xdp(group, mode) {
        ways.push(("xdp", LowerLayer::Xdp(pair)));
    }
    ways
}

/// What comes by AF_XDP has to fit a page: each frame of such a link does. It is compared with
/// others that have real frames; a byte there and back is one for all.
fn has_xdp(group: &Group<'_>, mode: Mode) -> bool {
    /// Half a page stays for what device and driver need.
    const MOST: u32 = 2048;
    group.setting.mtu <= MOST && (mode == Mode::Latency || !group.setting.offload)
}

/// As many messages as possible, and as many bytes to and from a socket.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let plan = group.setting.plan;
    for (name, below) in ways(group, Mode::Throughput) {
        for (variant, message) in MESSAGES {
            let named = subject(group, name, Mode::Throughput, message);
            group.add(Subject { variant: Some(variant), ..named }, move || {
                Ok(qpip::stream(plan, &Setup::over(below), qpip::shape(message))?.sample)
            });
        }
    }
    if let Some(why) = why_no_ring() {
        group.lacks(("qpip", "uring-packet"), Mode::Throughput, &why);
    }
    let Some(pair) = group.setting.pair else {
        return group.lacks(("qpip", "packet"), Mode::Throughput, NEEDS_CABLE);
    };
    if !has_xdp(group, Mode::Throughput) {
        group.lacks(("qpip", "xdp"), Mode::Throughput, NEEDS_SHORT_FRAMES);
    }
    let directions =
        [("to a socket", Direction::ToSocket), ("from a socket", Direction::FromSocket)];
    for (variant, direction) in directions {
        let named = subject(group, "packet", Mode::Throughput, socket::PIECE);
        group.add(Subject { variant: Some(variant), ..named }, move || {
            socket::run(plan, pair, direction)
        });
    }
}

/// What was asked for, in frames over a cable or in a tunnel.
pub(crate) fn add_chosen(group: &mut Group<'_>, chosen: &Chosen) {
    /// What one request may have, so that a device is sure to take it in one piece.
    const MOST: usize = 56 << 10;
    let Some((name, below)) = ways(group, Mode::Throughput).first().copied() else { return };
    let message = chosen.message.unwrap_or(MESSAGES[0].1);
    if message > MOST || chosen.connections > 1 {
        let why = format!("one queue pair at each end, and messages of at most {MOST} bytes");
        return group.lacks(("qpip", name), Mode::Throughput, &why);
    }
    lacks_workloads(group, ("qpip", name), chosen, &[]);
    let (plan, setup) = (group.setting.plan, Setup { below, faults: faults_of(chosen.loss) });
    let named = subject(group, name, Mode::Throughput, message);
    group.add(Subject { loss: chosen.loss, ..named }, move || {
        Ok(qpip::stream(plan, &setup, qpip::shape(message))?.sample)
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
    let Some((name, below)) = ways(group, Mode::Latency).first().copied() else { return };
    add_talk(group, (name, below), chosen.message.unwrap_or(1));
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
    for way in ways(group, Mode::Latency) {
        add_talk(group, way, 1);
    }
    add_datagrams(group);
    if group.setting.pair.is_none() {
        group.lacks(("qpip", "packet"), Mode::Latency, NEEDS_CABLE);
    }
}

/// The same by QPIP's own UDP.
pub(crate) const DATAGRAMS: &str = "datagrams";

/// One byte there and back by datagrams, over the first way there is.
pub(crate) fn add_datagrams(group: &mut Group<'_>) {
    let Some((name, below)) = ways(group, Mode::Latency).first().copied() else { return };
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let named = subject(group, name, Mode::Latency, 1);
    group.add(Subject { variant: Some(DATAGRAMS), ..named }, move || {
        qpip::talk_by_datagrams(&plan, &Setup::over(below), 1)
    });
}

fn add_talk<'a>(
    group: &mut Group<'a>,
    (name, below): (&'static str, LowerLayer<'a>),
    message: usize,
) {
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let named = subject(group, name, Mode::Latency, message);
    group.add(named, move || qpip::talk(&plan, &Setup::over(below), message));
}
