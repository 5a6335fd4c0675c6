//! The kernel's own transports, each as good as it can be made.

use landfall_testbed::rivals::{
    Congestion, Polling, Scatter, TcpLatency, TcpOverhead, TcpThroughput, UdpLatency,
    UdpThroughput, UnixLatency, UnixThroughput,
};

use super::Protocol;
use super::local::Group;
use super::row::{Mode, Subject};
use crate::workload::{memcpy, stp};

const PLAIN: usize = 128 << 10;
/// As much memory as our Transfers go through.
const SPREAD: usize = 64 << 20;
/// IPv4 and UDP headers.
const HEADERS: u32 = 28;
/// The header of STP.
const HEAD: u32 = 40;
/// The longest payload of a datagram that is measured: a page or two, where it fits.
const LARGE: u32 = 8192;
/// What many programs hand to a socket at once, and ask it for.
const SMALL: usize = 16 << 10;

/// What datagrams carry over links of this MTU: a power of two where it fits, and otherwise
/// what fills them, in multiples of 16.
pub(crate) fn datagram(mtu: u32) -> u32 {
    let room = mtu.saturating_sub(HEADERS + HEAD);
    if room >= LARGE { LARGE } else { room / 16 * 16 }
}

/// What a packet has room for behind the header of STP.
fn unit(mtu: u32) -> u32 {
    let packet = mtu.saturating_sub(HEADERS).min(65_507);
    packet.saturating_sub(HEAD) / 8 * 8
}

fn rival(protocol: &'static str, mode: Mode, message_bytes: u64) -> Subject {
    Subject {
        protocol,
        transport: "kernel",
        peer: true,
        mode,
        polling: mode == Mode::Latency,
        message_bytes,
        payload_bytes: None,
        ..Subject::BASE
    }
}

/// TCP with several settings: which is best differs from machine to machine.
/// The machine's own congestion control may pace what crosses within it (BBR
/// does), so one without pacing competes too. The last one walks through as much
/// memory as our engines do, where a plain loop stays in the cache.
pub(super) fn add_tcp(group: &mut Group<'_>) {
    let plain = TcpThroughput::new(group.setting.plan.clone());
    let mut reno = plain.clone();
    reno.options.congestion = Some(Congestion::Reno);
    let mut window = reno.clone();
    window.options.receive_buffer = Some(4 << 20);
    let mut spread = reno.clone();
    spread.shape.memory = SPREAD;
    let small = |tcp: &TcpThroughput| {
        let mut tcp = tcp.clone();
        (tcp.shape.send_size, tcp.shape.receive_size) = (SMALL, SMALL);
        tcp.shape.memory = SMALL;
        tcp
    };
    let (small_reno, small_window) = (small(&reno), small(&window));
    let variants = [
        ("16 KiB loop, reno", small_reno),
        ("16 KiB loop, reno, 4 MiB window", small_window),
        ("128 KiB loop", plain),
        ("128 KiB loop, reno", reno),
        ("128 KiB loop, reno, 4 MiB window", window),
        ("128 KiB loop, reno, over 64 MiB", spread),
    ];
    for (variant, tcp) in variants {
        let message = tcp.shape.send_size as u64;
        let subject = Subject { variant: Some(variant), ..rival("tcp", Mode::Throughput, message) };
        group.add_rival(subject, move || tcp.run());
    }
}

/// UDP without a protocol: what batching alone gives, and what it gives who gathers and
/// scatters heads and payloads, through as much memory as our engines.
pub(super) fn add_udp(group: &mut Group<'_>) {
    let mtu = group.setting.mtu;
    let scatter = Scatter { head: stp_core::wire::HEADER_LEN, memory: SPREAD };
    add_udp_batches(group, datagram(mtu), None);
    add_udp_batches(group, unit(mtu), Some(scatter));
}

fn add_udp_batches(group: &mut Group<'_>, payload: u32, scatter: Option<Scatter>) {
    let mut udp = UdpThroughput::new(group.setting.plan.clone(), payload as usize);
    udp.scatter = scatter;
    let batch = udp.batch() as u64;
    let subject = Subject {
        payload_bytes: Some(payload.into()),
        variant: scatter.map(|_| "bare, heads and payloads apart, over 64 MiB"),
        ..rival("udp", Mode::Throughput, batch)
    };
    group.add_rival(subject, move || udp.run());
}

/// One copy within the machine, without a protocol.
pub(super) fn add_memcpy(group: &mut Group<'_>) {
    let plan = group.setting.plan;
    let (transport, variant) = ("memory", Some("1 MiB from a memfd, over 64 MiB"));
    let message = stp::SHAPE.message as u64;
    let subject = Subject { transport, variant, ..rival("memcpy", Mode::Throughput, message) };
    group.add(subject, move || memcpy::stream(plan, stp::SHAPE));
}

/// Unix sockets, which exist within one machine only.
pub(super) fn add_unix(group: &mut Group<'_>) {
    let unix = UnixThroughput::new(group.setting.plan.clone());
    let subject =
        Subject { variant: Some("128 KiB loop"), ..rival("unix", Mode::Throughput, PLAIN as u64) };
    group.add_rival(subject, move || unix.run());
}

/// One byte handed to a socket and taken out of another.
pub(crate) fn add_overhead(group: &mut Group<'_>) {
    let tcp = TcpOverhead::new(group.setting.plan.clone(), 1);
    group.add_rival(rival("tcp", Mode::Overhead, 1), move || tcp.run());
}

/// One byte there and back, spinning.
pub(crate) fn add_latency(group: &mut Group<'_>, wants: impl Fn(Protocol) -> bool) {
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let tcp = TcpLatency::new(plan.clone(), 1);
    group.add_rival(rival("tcp", Mode::Latency, 1), move || tcp.run());
    if wants(Protocol::Udp) {
        let udp = UdpLatency::new(plan.clone(), 1);
        let subject = Subject { payload_bytes: Some(1), ..rival("udp", Mode::Latency, 1) };
        group.add_rival(subject, move || udp.run());
    }
    if wants(Protocol::Unix) && group.setting.pair.is_none() {
        let unix = UnixLatency::new(plan, 1);
        group.add_rival(rival("unix", Mode::Latency, 1), move || unix.run());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_fit_the_mtu() {
        assert_eq!([1500, 9000, 65_536, 1280].map(datagram), [1424, 8192, 8192, 1200]);
        assert_eq!([1500, 9000, 65_536].map(unit), [1432, 8928, 65_464]);
    }
}
