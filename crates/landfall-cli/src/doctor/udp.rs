//! UDP batching, tried with two endpoints over loopback; socket buffers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use landfall::stp::PathStats;
use landfall_testbed::privileges::{self, Privilege};
use landfall_transport::Missing;
use landfall_transport::udp::UdpConfig;

use super::{Feature, Finding};
use crate::machine;
use crate::style::bytes;
use landfall_lab::workload::trial::{Trial, over_udp};

/// Old kernels are the one thing that a user can change.
const NEWER_KERNEL: &str = "use Linux 5.0 or newer; until then datagrams go one by one";
const LIMITS: [(&str, &str); 2] = [
    ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
    ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
];

pub(super) fn examine() -> Vec<Finding> {
    let [gso, gro] = match over_udp(Duration::from_secs(3)) {
        Ok(trial) => batching(&trial),
        Err(error) => [(Feature::UdpGso, GSO), (Feature::UdpGro, GRO)].map(|(feature, name)| {
            let what = format!("a megabyte over loopback failed: {error:#}");
            Finding::missing(feature, name, what, "allow UDP on the loopback interface")
        }),
    };
    vec![gso, gro, buffers()]
}

const GSO: &str = "UDP batched send";
const GRO: &str = "UDP batched receive";

fn batching(trial: &Trial) -> [Finding; 2] {
    let Trial { sender, receiver, .. } = trial;
    let missing = |path: &PathStats, feature| path.capabilities.require(feature).err();
    let per_send = ratio(sender.counters.units_sent, sender.counters.send_calls);
    let per_receive = receiver.counters.units_per_receive();
    let send = missing(sender, landfall_transport::Feature::BatchedSend);
    let receive = missing(receiver, landfall_transport::Feature::BatchedReceive);
    [
        batch(Feature::UdpGso, GSO, per_send, "send", send.as_ref()),
        batch(Feature::UdpGro, GRO, per_receive, "receive", receive.as_ref()),
    ]
}

fn batch(
    feature: Feature,
    name: &'static str,
    units: f64,
    call: &str,
    missing: Option<&Missing>,
) -> Finding {
    match missing {
        Some(missing) => Finding::missing(feature, name, missing.why.clone(), NEWER_KERNEL),
        None => {
            let seen = format!("tried over loopback: {units:.0} units per {call} call");
            Finding::present(feature, name, seen)
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn buffers() -> Finding {
    let (feature, name) = (Feature::SocketBuffers, "socket buffers");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let wanted = UdpConfig::new(any, 1500).socket_buffer as u64;
    let limits = LIMITS.map(|(name, path)| (name, machine::number(path)));
    let seen = limits.map(|(name, limit)| {
        format!("{name} = {}", limit.map_or_else(|| "unknown".to_owned(), bytes))
    });
    let seen = format!("{}; the driver asks for {}", seen.join(", "), bytes(wanted));
    if privileges::has(Privilege::NetAdmin) {
        return Finding::present(feature, name, format!("{seen} and may exceed the limits"));
    }
    let low: Vec<_> = limits
        .iter()
        .filter(|(_, limit)| limit.is_none_or(|limit| limit < wanted))
        .map(|(name, _)| format!("{name}={wanted}"))
        .collect();
    if low.is_empty() {
        return Finding::present(feature, name, seen);
    }
    Finding::missing(feature, name, seen, format!("sudo sysctl -w {}", low.join(" ")))
}
