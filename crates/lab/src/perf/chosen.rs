//! What was asked for, where it is not all that there is: messages of one length, this many
//! connections, so much loss, what happens to the bytes. A row for each transport that can
//! do it beside kernel TCP, and a reason for each that cannot.

use landfall::stp::Faults;
use landfall_placement::Seed;
use landfall_testbed::rivals::{
    Congestion, Polling, TcpLatency, TcpThroughput, UdpLatency, UdpThroughput, UnixLatency,
    UnixThroughput, Workload,
};

use super::local::Group;
use super::rivals::datagram;
use super::row::{Mode, Subject};
use super::{Protocol, clan, qpip, stp};
use crate::workload::qpip::LONGEST_TALK;

/// What a socket is given at once if nobody says otherwise.
const PLAIN: usize = 128 << 10;
/// What segments have beside their payload: IPv4 and TCP headers.
const HEADERS: u32 = 40;

/// What TCP's rows with a congestion control that does not pace are called.
pub(crate) const UNPACED: &str = "reno";

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    /// Bytes that are handed over at once; what is usual for each transport if not given.
    pub(crate) message: Option<usize>,
    pub(crate) connections: u32,
    /// The share of units that is lost on purpose.
    pub(crate) loss: f64,
    /// Beside [`Workload::Plain`], which is always there.
    pub(crate) workloads: Vec<Workload>,
    /// The STU of STP; the largest that fits if not given.
    pub(crate) stu: Option<u32>,
    /// TCP's segments are as long as the link's MTU allows, though this link is loopback.
    pub(crate) bounds_segments: bool,
}

impl Chosen {
    /// As usual in all respects.
    pub(crate) const fn usual() -> Self {
        Self {
            message: None,
            connections: 1,
            loss: 0.0,
            workloads: Vec::new(),
            stu: None,
            bounds_segments: false,
        }
    }
}

/// What loses this share of units: they are thrown away where they arrive, so that what is
/// sent costs what it costs without.
pub(crate) fn faults_of(loss: f64) -> Option<(Faults, Seed)> {
    let loss_at_place = (loss * 1e6).round().clamp(0.0, 1e6) as u32;
    let faults = Faults { loss_at_place, ..Faults::default() };
    (loss_at_place > 0).then_some((faults, [3; 32]))
}

fn rival(protocol: &'static str, chosen: &Chosen, message_bytes: u64) -> Subject {
    let connections = chosen.connections;
    Subject { protocol, peer: true, message_bytes, connections, ..Subject::BASE }
}

/// As many bytes one way as possible.
pub(crate) fn add_throughput(
    group: &mut Group<'_>,
    chosen: &Chosen,
    wants: impl Fn(Protocol) -> bool,
) {
    add_machines_tcp(group, chosen);
    add_tcp(group, chosen);
    if chosen.loss > 0.0 {
        let why = "loss is put around drivers of ours, and nothing can be put around a socket \
                   of the kernel: its rows are without loss";
        group.lacks(("tcp", "kernel"), Mode::Throughput, why);
    }
    if wants(Protocol::Udp) {
        add_udp(group, chosen);
    }
    if wants(Protocol::Unix) && group.setting.pair.is_none() {
        add_unix(group, chosen);
    }
    if wants(Protocol::Stp) {
        stp::add_chosen(group, chosen);
        lacks_workloads(group, ("stp", "udp"), chosen, &[Workload::Touch]);
    }
    if wants(Protocol::Qpip) {
        qpip::add_chosen(group, chosen);
    }
    if wants(Protocol::Clan) {
        clan::add_chosen(group, chosen);
    }
    if wants(Protocol::Nbd) {
        let why = "its requests are those of block devices: measured without these options";
        group.lacks(("nbd", "all"), Mode::Throughput, why);
    }
    if wants(Protocol::Defrag) {
        let why = "its rows have messages and conditions of their own: measured without these \
                   options";
        group.lacks(("defrag", "all"), Mode::Throughput, why);
    }
}

/// Says which workloads a transport does not have.
pub(crate) fn lacks_workloads(
    group: &mut Group<'_>,
    named: (&'static str, &'static str),
    chosen: &Chosen,
    has: &[Workload],
) {
    let lacking = |it: &&Workload| **it != Workload::Plain && !has.contains(it);
    for workload in chosen.workloads.iter().filter(lacking) {
        let why = match workload {
            Workload::Touch => "no workload `touch`: its receiver does not read what came",
            _ => "no workload with `sendfile` or `trunc`: nothing is copied that they would save",
        };
        group.lacks(named, Mode::Throughput, why);
    }
}

/// Kernel TCP as it was asked for.
fn tcp_of(group: &Group<'_>, chosen: &Chosen) -> (TcpThroughput, Subject) {
    let mut tcp = TcpThroughput::new(group.setting.plan.clone());
    tcp.connections = chosen.connections;
    let message = chosen.message.unwrap_or(PLAIN);
    (tcp.shape.send_size, tcp.shape.receive_size, tcp.shape.memory) = (message, message, message);
    if chosen.bounds_segments {
        tcp.options.segment = u16::try_from(group.setting.mtu.saturating_sub(HEADERS)).ok();
    }
    (tcp, rival("tcp", chosen, message as u64))
}

/// With the machine's own congestion control: it may pace what crosses within the machine,
/// and may be better elsewhere.
fn add_machines_tcp(group: &mut Group<'_>, chosen: &Chosen) {
    let (tcp, named) = tcp_of(group, chosen);
    let variant = Some("congestion control of the machine");
    group.add_rival(Subject { variant, ..named }, move || tcp.run());
}

/// Kernel TCP with one that does not pace, by each workload.
pub(crate) fn add_tcp(group: &mut Group<'_>, chosen: &Chosen) {
    let others = chosen.workloads.iter().copied().filter(|it| *it != Workload::Plain);
    for workload in std::iter::once(Workload::Plain).chain(others) {
        let (mut tcp, named) = tcp_of(group, chosen);
        (tcp.options.congestion, tcp.shape.workload) = (Some(Congestion::Reno), workload);
        let subject = Subject { variant: Some(UNPACED), workload, ..named };
        group.add_rival(subject, move || tcp.run());
    }
}

fn add_udp(group: &mut Group<'_>, chosen: &Chosen) {
    let most = datagram(group.setting.mtu);
    let payload = chosen.message.unwrap_or(most as usize);
    if chosen.connections > 1 || payload > most as usize {
        let why = format!(
            "batches of datagrams from one socket to another, of at most {most} bytes each: no \
             longer message, and no connections"
        );
        return group.lacks(("udp", "kernel"), Mode::Throughput, &why);
    }
    let named =
        Subject { payload_bytes: Some(payload as u64), ..rival("udp", chosen, payload as u64) };
    let udp = UdpThroughput::new(group.setting.plan.clone(), payload);
    let has = [Workload::Touch];
    lacks_workloads(group, ("udp", "kernel"), chosen, &has);
    if chosen.workloads.contains(&Workload::Touch) {
        let mut touching = udp.clone();
        touching.workload = Workload::Touch;
        let subject = Subject { workload: Workload::Touch, ..named.clone() };
        group.add_rival(subject, move || touching.run());
    }
    group.add_rival(named, move || udp.run());
}

/// Unix sockets, which exist within one machine only.
fn add_unix(group: &mut Group<'_>, chosen: &Chosen) {
    let mut unix = UnixThroughput::new(group.setting.plan.clone());
    unix.connections = chosen.connections;
    let message = chosen.message.unwrap_or(PLAIN);
    (unix.shape.send_size, unix.shape.receive_size, unix.shape.memory) =
        (message, message, message);
    let named = rival("unix", chosen, message as u64);
    let has = [Workload::Plain, Workload::Sendfile, Workload::Touch];
    lacks_workloads(group, ("unix", "kernel"), chosen, &has);
    for workload in has {
        if workload != Workload::Plain && !chosen.workloads.contains(&workload) {
            continue;
        }
        let mut unix = unix.clone();
        unix.shape.workload = workload;
        group.add_rival(Subject { workload, ..named.clone() }, move || unix.run());
    }
}

/// Messages there and back, spinning.
pub(crate) fn add_latency(
    group: &mut Group<'_>,
    chosen: &Chosen,
    wants: impl Fn(Protocol) -> bool,
) {
    let message = chosen.message.unwrap_or(1);
    if message > LONGEST_TALK {
        let why = format!("round trips are measured with at most {} bytes", LONGEST_TALK);
        return group.lacks(("all", "all"), Mode::Latency, &why);
    }
    let plan = group.setting.plan.clone().polling(Polling::Spin);
    let bytes = Some(message as u64);
    let named = |protocol| {
        let one = Chosen { connections: 1, ..chosen.clone() };
        let (mode, polling) = (Mode::Latency, true);
        Subject { mode, polling, payload_bytes: bytes, ..rival(protocol, &one, message as u64) }
    };
    let tcp = TcpLatency::new(plan.clone(), message);
    group.add_rival(Subject { payload_bytes: None, ..named("tcp") }, move || tcp.run());
    if wants(Protocol::Udp) {
        let udp = UdpLatency::new(plan.clone(), message);
        group.add_rival(named("udp"), move || udp.run());
    }
    if wants(Protocol::Unix) && group.setting.pair.is_none() {
        let unix = UnixLatency::new(plan, message);
        group.add_rival(Subject { payload_bytes: None, ..named("unix") }, move || unix.run());
    }
    if wants(Protocol::Stp) {
        stp::add_chosen_latency(group, chosen);
    }
    if wants(Protocol::Qpip) {
        qpip::add_chosen_latency(group, chosen);
    }
    if wants(Protocol::Clan) {
        let why = "its round trips are of words, of 8 bytes: measured without these options";
        group.lacks(("clan", "all"), Mode::Latency, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_becomes_parts_per_million() {
        let lost = |loss| faults_of(loss).map(|(faults, _)| faults.loss_at_place);
        assert_eq!(lost(0.01), Some(10_000));
        assert_eq!(lost(0.0), None);
        assert_eq!(lost(7.0), Some(1_000_000));
    }
}
