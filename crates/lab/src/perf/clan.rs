//! Shared memory with tripwires: between two processes of this machine, and what the
//! machine itself gives; over a network, between two nodes.

use std::time::Duration;

use landfall_testbed::rivals::{Amount, Plan, Polling, TcpLatency, UnixLatency};

use super::chosen::{Chosen, lacks_workloads};
use super::local::Group;
use super::row::{Mode, Subject};
use crate::workload::clan::job::{Job, Waiting, Work};
use crate::workload::clan::network::{self, Carrier, Crossing};
use crate::workload::clan::{bare, process};

/// Round trips within a machine that are timed as one.
pub(crate) const TOGETHER: u32 = 16;
/// What is written to a stream at once.
const MESSAGE: u32 = 64 << 10;
/// The longest that is written at once where somebody chooses.
const LONGEST_MESSAGE: u32 = 1 << 20;
/// What one request to the DMA engine has.
const REQUEST: u32 = 1 << 20;
/// Elements of the queue that are published together.
const BATCH: u32 = 64;
const WORD: u64 = 8;
const ELEMENT: u64 = 32;

const WITHIN_ONE_MACHINE: &str = "shared memory is between processes of one machine: measured \
                                  without --veth";

fn subject(transport: &'static str, mode: Mode, polling: bool, message_bytes: u64) -> Subject {
    Subject {
        protocol: "clan",
        transport,
        mode,
        polling,
        message_bytes,
        payload_bytes: Some(message_bytes),
        ..Subject::BASE
    }
}

/// Memory into memory, without a layer above.
fn subject_of_dma(transport: &'static str) -> Subject {
    let dma = subject(transport, Mode::Throughput, false, REQUEST.into());
    Subject { variant: Some("DMA"), ..dma }
}

/// What the machine gives without anything of ours.
fn machine(mode: Mode, message_bytes: u64, variant: &'static str) -> Subject {
    let (protocol, transport) = ("memory", "bare");
    let polling = mode == Mode::Latency;
    let bare = subject(transport, mode, polling, message_bytes);
    Subject { protocol, peer: true, variant: Some(variant), ..bare }
}

fn job(plan: &Plan, work: Work, waiting: Waiting) -> Job {
    Job { work, waiting, time: time(plan), limit: plan.limit, core: None }
}

fn time(plan: &Plan) -> Duration {
    match plan.amount {
        Amount::Time(time) => time,
        Amount::Bytes(_) | Amount::Messages(_) => Duration::from_secs(1),
    }
}

fn add_process(group: &mut Group<'_>, subject: Subject, work: Work, waiting: Waiting) {
    let plan = group.setting.plan;
    let job = job(plan, work, waiting);
    group.add(subject, move || process::run(&plan.endpoints, &job));
}

/// What nodes are joined by here, and how that is called.
fn networks<'a>(group: &Group<'a>) -> Vec<(&'static str, Carrier<'a>)> {
    let udp = ("udp", Carrier::Udp { mtu: group.setting.mtu });
    let ethernet = group.setting.pair.map(|pair| ("0x88b5", Carrier::Ethernet(pair)));
    std::iter::once(udp).chain(ethernet).collect()
}

fn add_network<'a>(
    group: &mut Group<'a>,
    subject: Subject,
    (work, waiting): (Work, Waiting),
    over: (Carrier<'a>, Crossing),
) {
    let plan = group.setting.plan;
    let job = job(plan, work, waiting);
    group.add(subject, move || network::run(&plan.endpoints, &job, over));
}

/// A stream and a queue between two processes, and a stream and DMA between two nodes.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    for (transport, over) in networks(group) {
        let stream = subject(transport, Mode::Throughput, false, MESSAGE.into());
        let work = Work::Bytes { message: MESSAGE, acknowledged: false };
        let subject = Subject { variant: Some("stream"), ..stream };
        add_network(group, subject, (work, Waiting::Balanced), (over, Crossing::Plain));
        let dma = (Work::Dma { request: REQUEST }, Waiting::Balanced);
        add_network(group, subject_of_dma(transport), dma, (over, Crossing::Plain));
        let encrypted = Subject { variant: Some("DMA, encrypted"), ..subject_of_dma(transport) };
        add_network(group, encrypted, dma, (over, Crossing::Encrypted));
    }
    if group.setting.pair.is_some() {
        return group.lacks(("clan", "shm"), Mode::Throughput, WITHIN_ONE_MACHINE);
    }
    let plan = group.setting.plan;
    let copies = machine(Mode::Throughput, MESSAGE.into(), "copies of 64 KiB");
    group.add(copies, move || bare::copies(&plan.endpoints, MESSAGE as usize, time(plan)));
    // They sleep when it takes longer than a wake: that is how programs use it.
    let stream = subject("shm", Mode::Throughput, false, MESSAGE.into());
    let work = Work::Bytes { message: MESSAGE, acknowledged: false };
    add_process(group, Subject { variant: Some("stream"), ..stream }, work, Waiting::Balanced);
    for (variant, batch) in [("queue, published 64 at once", BATCH), ("queue, published singly", 1)]
    {
        let queue = subject("shm", Mode::Throughput, false, ELEMENT);
        let subject = Subject { variant: Some(variant), ..queue };
        add_process(group, subject, Work::Elements { batch }, Waiting::Balanced);
    }
}

/// Streams of what was asked for: between two processes, and between two nodes.
pub(super) fn add_chosen(group: &mut Group<'_>, chosen: &Chosen) {
    let message = chosen.message.unwrap_or(MESSAGE as usize);
    if chosen.loss > 0.0 || chosen.connections > 1 {
        let why = "one stream, whose path has no faults put around it: measured without these \
                   options";
        return group.lacks(("clan", "all"), Mode::Throughput, why);
    }
    let Some(bytes) = u32::try_from(message).ok().filter(|bytes| *bytes <= LONGEST_MESSAGE) else {
        let why =
            format!("what is written to a stream at once has at most {LONGEST_MESSAGE} bytes");
        return group.lacks(("clan", "all"), Mode::Throughput, &why);
    };
    lacks_workloads(group, ("clan", "all"), chosen, &[]);
    let work = Work::Bytes { message: bytes, acknowledged: false };
    let named = |transport| {
        let stream = subject(transport, Mode::Throughput, false, message as u64);
        Subject { variant: Some("stream"), ..stream }
    };
    for (transport, over) in networks(group) {
        add_network(group, named(transport), (work, Waiting::Balanced), (over, Crossing::Plain));
    }
    match group.setting.pair {
        Some(_) => group.lacks(("clan", "shm"), Mode::Throughput, WITHIN_ONE_MACHINE),
        None => add_process(group, named("shm"), work, Waiting::Balanced),
    }
}

/// A word there and back.
pub(super) fn add_latency(group: &mut Group<'_>) {
    for (transport, over) in networks(group) {
        let word = subject(transport, Mode::Latency, true, WORD);
        let work = (Work::Word { together: 1 }, Waiting::Spin);
        let encrypted = Subject { variant: Some("encrypted"), ..word.clone() };
        add_network(group, word, work, (over, Crossing::Plain));
        add_network(group, encrypted, work, (over, Crossing::Encrypted));
    }
    if group.setting.pair.is_some() {
        return group.lacks(("clan", "shm"), Mode::Latency, WITHIN_ONE_MACHINE);
    }
    let plan = group.setting.plan;
    let words = machine(Mode::Latency, WORD, "two words");
    group.add(words, move || bare::ping_pong(&plan.endpoints, (time(plan), plan.limit), TOGETHER));
    let spinning = subject("shm", Mode::Latency, true, WORD);
    add_process(group, spinning, Work::Word { together: TOGETHER }, Waiting::Spin);
    let sleeping = subject("shm", Mode::Latency, false, WORD);
    add_process(group, sleeping, Work::Word { together: 1 }, Waiting::Block);
    let blocking = plan.clone().polling(Polling::Block);
    let (tcp, unix) = (TcpLatency::new(blocking.clone(), 1), UnixLatency::new(blocking, 1));
    let rival = |protocol| {
        let ours = subject("kernel", Mode::Latency, false, 1);
        Subject { protocol, peer: true, payload_bytes: None, ..ours }
    };
    group.add_rival(rival("tcp"), move || tcp.run());
    group.add_rival(rival("unix"), move || unix.run());
}
