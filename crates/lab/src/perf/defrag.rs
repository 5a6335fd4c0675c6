//! Pages over a wire that carries less: joined by each technique that there is, where
//! they land or by copies, beside a socket whose kernel joins them. Anyone who joins,
//! the same sender sends.

use landfall::defrag::{Technique, Wanted};

use super::NEEDS_CABLE;
use super::local::Group;
use super::row::{Mode, Subject};
use crate::workload::defrag::{self, Cut, Foreign, Join, Work};

/// The pages that are measured, and how rows with them are called.
const PAGE: u32 = 4096;
const LONGER: [(u32, [&str; 4]); 3] = [
    (8 << 10, ["8 KiB", "8 KiB, copied", "8 KiB, by default", "8 KiB, joined by the kernel"]),
    (16 << 10, ["16 KiB", "16 KiB, copied", "16 KiB, by default", "16 KiB, joined by the kernel"]),
    (60 << 10, ["60 KiB", "60 KiB, copied", "60 KiB, by default", "60 KiB, joined by the kernel"]),
];
/// IPv4 and UDP headers.
const HEADERS: u32 = 20 + 8;

/// A row that is to be.
struct Candidate {
    protocol: &'static str,
    transport: &'static str,
    variant: Option<&'static str>,
    work: Work,
}

/// A page to one of our receivers.
fn ours(
    (protocol, transport): (&'static str, &'static str),
    variant: Option<&'static str>,
    (page, join): (u32, Join),
) -> Candidate {
    let work = Work { page, cut: Cut::Sender, join: Some(join), foreign: None };
    Candidate { protocol, transport, variant, work }
}

/// A page to a socket.
fn kernel(variant: &'static str, page: u32, cut: Cut) -> Candidate {
    let work = Work { page, cut, join: None, foreign: None };
    Candidate { protocol: "udp", transport: "kernel", variant: Some(variant), work }
}

fn name(technique: Technique) -> &'static str {
    match technique {
        Technique::PacketRing => "packet-ring",
        Technique::PacketUring => "uring-packet",
        Technique::Xdp => "xdp",
        _ => "packet",
    }
}

/// A page of memory, by every technique.
fn pages() -> Vec<Candidate> {
    let mut list = Vec::new();
    for technique in [Technique::Packet, Technique::PacketUring] {
        let name = name(technique);
        list.push(ours(("defrag", name), None, (PAGE, Join::guessing(technique))));
        let copied = (PAGE, Join::copying(technique));
        list.push(ours(("conventional", name), Some("copied"), copied));
    }
    for technique in [Technique::PacketRing, Technique::Xdp] {
        let name = name(technique);
        let copied = (PAGE, Join::copying(technique));
        list.push(ours(("conventional", name), Some("copied"), copied));
        list.push(ours(("defrag", name), Some("lent"), (PAGE, Join::lending(technique))));
    }
    list.push(ours(("defrag", "default"), Some("4 KiB, by default"), (PAGE, Join::by_default())));
    list.push(kernel("joined by the kernel", PAGE, Cut::Sender));
    list.push(kernel("sockets at both ends", PAGE, Cut::Socket));
    list
}

/// The kernel cuts whole datagrams, far below.
fn cut_by_the_kernel() -> Vec<Candidate> {
    let below = |candidate: Candidate, variant| Candidate {
        variant: Some(variant),
        work: Work { cut: Cut::Kernel, ..candidate.work },
        ..candidate
    };
    let (packet, ring) = (Technique::Packet, Technique::PacketRing);
    vec![
        below(ours(("defrag", "packet"), None, (PAGE, Join::guessing(packet))), "kernel cuts"),
        below(
            ours(("conventional", "packet"), None, (PAGE, Join::copying(packet))),
            "copied, kernel cuts",
        ),
        below(
            ours(("conventional", "packet-ring"), None, (PAGE, Join::copying(ring))),
            "copied, kernel cuts",
        ),
        below(
            ours(("defrag", "packet-ring"), None, (PAGE, Join::lending(ring))),
            "lent, kernel cuts",
        ),
        kernel("joined by the kernel, kernel cuts", PAGE, Cut::Kernel),
    ]
}

/// In each packet something foreign, where nobody expects it. The paper's predictor
/// expects it nowhere, so that every packet is a miss; one that learns is right now and
/// then.
fn missed() -> Vec<Candidate> {
    let disturbed = |candidate: Candidate| {
        let join = candidate.work.join.map(|join| Join { wanted: Wanted::Ip, ..join });
        let work = Work { join, foreign: Some(Foreign { every: 1 }), ..candidate.work };
        Candidate { work, ..candidate }
    };
    let technique = Technique::Packet;
    let learned = Join::guessing(technique);
    let single = Join { prediction: defrag::papers_predictor(), ..learned };
    vec![
        disturbed(ours(("defrag", "packet"), Some("every packet a miss"), (PAGE, single))),
        disturbed(ours(("defrag", "packet"), Some("every packet disturbed"), (PAGE, learned))),
        disturbed(ours(
            ("conventional", "packet"),
            Some("copied, every packet disturbed"),
            (PAGE, Join::copying(technique)),
        )),
    ]
}

/// Longer pages, by what was best for short ones.
fn longer() -> Vec<Candidate> {
    let mut list = Vec::new();
    for (page, [guessed, copied, default, joined]) in LONGER {
        let packet = (page, Join::guessing(Technique::Packet));
        list.push(ours(("defrag", "packet"), Some(guessed), packet));
        let ring = (page, Join::copying(Technique::PacketRing));
        list.push(ours(("conventional", "packet-ring"), Some(copied), ring));
        list.push(ours(("defrag", "default"), Some(default), (page, Join::by_default())));
        list.push(kernel(joined, page, Cut::Sender));
    }
    list
}

/// Every receiver, from the same sender.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    let Some(pair) = group.setting.pair else {
        for transport in ["packet", "uring-packet", "packet-ring", "xdp"] {
            group.lacks(("defrag", transport), Mode::Throughput, NEEDS_CABLE);
        }
        return;
    };
    if let Some(why) = defrag::why_not() {
        return group.lacks(("defrag", "packet"), Mode::Throughput, &why);
    }
    let mtu = group.setting.mtu;
    let is_cut = |candidate: &Candidate| candidate.work.page + HEADERS > mtu;
    let mut list = pages();
    // Super-packets change nothing here: fragments are frames of the MTU anyway.
    if group.setting.offload {
        list.extend(cut_by_the_kernel());
        list.extend(missed());
        list.extend(longer());
    }
    for candidate in list.into_iter().filter(is_cut) {
        let Candidate { protocol, transport, variant, work } = candidate;
        if let Some(why) = work.join.and_then(|join| join.why_not(work.page, pair)) {
            group.lacks((protocol, transport), Mode::Throughput, &why);
            continue;
        }
        let payload = u64::from(mtu - 20) / 8 * 8;
        let subject = Subject {
            protocol,
            transport,
            peer: protocol == "udp",
            mode: Mode::Throughput,
            polling: false,
            message_bytes: work.page.into(),
            payload_bytes: Some(payload),
            variant,
            ..Subject::BASE
        };
        let plan = group.setting.plan;
        group.add(subject, move || Ok(defrag::run(plan, pair, work)?.sample));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_can_be_told_apart() {
        let mut names = BTreeSet::new();
        let all = [pages(), cut_by_the_kernel(), missed(), longer()].into_iter().flatten();
        for Candidate { protocol, transport, variant, work } in all {
            assert!(names.insert((protocol, transport, variant)), "{protocol}/{transport}");
            assert_eq!(work.join.is_none(), protocol == "udp");
        }
    }
}
