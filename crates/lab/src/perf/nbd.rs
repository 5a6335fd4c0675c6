//! A network block device: reads of memory at a server, over what carries its bytes.

use landfall_testbed::rivals::{Amount, Plan, Polling, TcpLatency};

use super::local::Group;
use super::row::{Mode, Subject};
use crate::workload::nbd::{self, Carrier, Reads};

/// A usual request of a copy, and how many of them are under way.
const PIECE: u32 = 256 << 10;
const DEPTH: usize = 16;
/// A page.
const PAGE: u32 = 4096;

const CARRIERS: [(&str, Carrier); 3] =
    [("tcp", Carrier::Tcp), ("stp", Carrier::Stp), ("qp", Carrier::Qp)];

const LOOPBACK_ALONE: &str = "server and client are in one process: measured without --veth";

/// The name of the protocol in rows.
pub(super) const NAME: &str = "nbd";

fn subject(transport: &'static str, mode: Mode, bytes: u32) -> Subject {
    Subject { protocol: NAME, transport, mode, message_bytes: bytes.into(), ..Subject::BASE }
}

fn add(group: &mut Group<'_>, mode: Mode, reads: Reads) {
    for (transport, carrier) in CARRIERS {
        if group.setting.pair.is_some() {
            group.lacks((NAME, transport), mode, LOOPBACK_ALONE);
            continue;
        }
        let plan = group.setting.plan;
        let subject = subject(transport, mode, reads.len);
        group.add(subject, move || nbd::run(carrier, reads, (time(plan), plan.limit)));
    }
}

fn time(plan: &Plan) -> std::time::Duration {
    match plan.amount {
        Amount::Time(time) => time,
        Amount::Bytes(_) | Amount::Messages(_) => std::time::Duration::from_secs(1),
    }
}

/// Reads in order.
pub(super) fn add_throughput(group: &mut Group<'_>) {
    add(group, Mode::Throughput, Reads { len: PIECE, depth: DEPTH });
}

/// One page after another; everybody sleeps while there is nothing to do.
pub(super) fn add_latency(group: &mut Group<'_>) {
    add(group, Mode::Latency, Reads { len: PAGE, depth: 1 });
    if !group.has("tcp", Mode::Latency, false) {
        let plan = group.setting.plan.clone().polling(Polling::Block);
        let tcp = TcpLatency::new(plan, 1);
        let rival = Subject { mode: Mode::Latency, peer: true, ..Subject::BASE };
        group.add_rival(rival, move || tcp.run());
    }
}
