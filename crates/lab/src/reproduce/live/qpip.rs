//! QPIP's figures by the paths of `perf`: queue pairs over a cable, or in a tunnel, beside
//! the kernel's sockets.

use std::time::Duration;

use anyhow::Result;
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use landfall_testbed::{VethConfig, VethPair, privileges};

use super::Found;
use crate::perf::chosen::{self, Chosen, UNPACED};
use crate::perf::group::{Group, Setting};
use crate::perf::local::overhead;
use crate::perf::qpip;
use crate::perf::row::{Mode, Row};
use crate::perf::{Protocol, rivals, row::Absent};
use crate::style::Progress;

const PATIENCE: Duration = Duration::from_secs(10);
/// The paper's chunk.
const CHUNK: usize = 16 << 10;
const LOOPBACK_MTU: u32 = 65_536;

/// Gives what was found, and what could not be.
pub(super) fn found(quick: bool, progress: &Progress) -> Result<(Vec<Found>, Vec<String>)> {
    let has_cable = privileges::why_no_namespaces().is_none();
    let (rounds, time) = if quick { (1, 50) } else { (3, 200) };
    let mtus: &[u32] = if has_cable { &[9000, 1500] } else { &[LOOPBACK_MTU] };
    let (mut rows, mut lacks) = (Vec::new(), Vec::new());
    for (nth, &mtu) in mtus.iter().enumerate() {
        let pair = if has_cable {
            Some(VethPair::new(VethConfig { mtu, ..VethConfig::default() })?)
        } else {
            None
        };
        let endpoints = pair.as_ref().map_or_else(Endpoints::loopback, Endpoints::over)?;
        let mut plan = Plan::new(endpoints, Amount::Time(Duration::from_millis(time)));
        plan.limit = PATIENCE;
        let setting = Setting { plan: &plan, pair: pair.as_ref(), mtu, offload: true };
        let mut groups = vec![chunks(setting)];
        if nth == 0 {
            groups.extend([round_trips(setting), overhead(setting)]);
        }
        for group in groups {
            let (measured, absent) = group.measure(rounds, progress);
            rows.extend(measured);
            lacks.extend(absent.iter().map(Absent::line));
        }
    }
    if !has_cable {
        lacks.push("Figure 4 at MTU 9000 and 1500: a cable needs root".into());
    }
    lacks.push("Figure 7: a block device over QPIP is none of this program's measurements".into());
    Ok((rows.iter().filter_map(value).collect(), lacks))
}

fn chunks(setting: Setting<'_>) -> Group<'_> {
    let chosen = Chosen { message: Some(CHUNK), ..Chosen::usual() };
    let mut group = Group::new(setting);
    chosen::add_tcp(&mut group, &chosen);
    qpip::add_chosen(&mut group, &chosen);
    group
}

fn round_trips(setting: Setting<'_>) -> Group<'_> {
    let mut group = Group::new(setting);
    rivals::add_latency(&mut group, |protocol| protocol == Protocol::Udp);
    qpip::add_chosen_latency(&mut group, &Chosen::usual());
    group
}

/// Where a row belongs.
fn value(row: &Row) -> Option<Found> {
    let is_ours = row.protocol == "qpip";
    let by = format!("{}/{}", row.protocol, row.transport);
    match row.mode {
        Mode::Throughput if is_ours || row.variant == Some(UNPACED) => {
            let place = match (is_ours, row.mtu) {
                (true, LOOPBACK_MTU) => "native MTU".to_owned(),
                (true, mtu) => format!("MTU {mtu}"),
                (false, 1500) => "Gigabit Ethernet, MTU 1500".to_owned(),
                (false, mtu) => format!("sockets, MTU {mtu}"),
            };
            let rate = row.goodput_bytes_per_s? / 1e6;
            let by = format!("{by}, MTU {}, super-packets", row.mtu);
            Some(Found::new("Section 4.2.1, Figure 4", place, "MB/s (10^6)", rate, by))
        }
        Mode::Latency => {
            let place = if row.protocol == "udp" { "UDP" } else { "TCP" };
            let column = "checksum in firmware, µs";
            let by = format!("{by}, spinning");
            Some(Found::new("Section 4.2.1, Figure 3", place, column, row.rtt_ns_p50? / 1e3, by))
        }
        Mode::Overhead => {
            let place = if is_ours { "QPIP" } else { "Host-based IP" };
            let us = row.overhead_ns_per_message? / 1e3;
            Some(Found::new("Table 1", place, "µs", us, by))
        }
        Mode::Throughput => None,
    }
}
