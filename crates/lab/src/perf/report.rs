//! Rows as tables for people; rows as a picture: throughput over the length of messages where
//! several were measured, otherwise a bar for each row, with its ratio to TCP. Round trips beside,
//! in the same way.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nic_firmware_model::reproduce::Value;

use super::row::{Mode, Row};
use super::{MachineAndSettings, Report};
use crate::plot;
use crate::plot::panel::{Bars, Curve, Curves, Panel};
use crate::style::{Style, bytes};
use crate::table::Table;

const COMMON: [&str; 6] = ["", "message", "payload", "MTU", "frames", "waits"];
const THROUGHPUT: [&str; 10] = [
    "GB/s",
    "spread",
    "CPU s+r/all per GB",
    "copied",
    "in place",
    "again",
    "lost",
    "woken",
    "× same",
    "× TCP",
];
const OVERHEAD: [&str; 3] = ["ns per message", "spread", "× TCP"];
/// Behind the CPU column.
const CORE_AT: usize = 3;
const CORE_BUSY: &str = "cores s+r %";
const LATENCY: [&str; 7] = ["p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "spread", "copied", "× TCP"];

pub(super) const KINDS: &str = "\
frames `super`: super-packets of up to 64 KiB cross the link whole, as within one machine; `real`:\n\
the sender's offloads are off, so that each frame of the MTU really crosses, as on a cable.";
pub(super) const COLUMNS: &str = "\
× TCP: median of the per-round ratios to kernel TCP's best row of the same MTU, frames and waiting\n\
(of goodput: more is better; of round trips: less is better); × same: to the best of those that\n\
hand over as many bytes at once. spread: (max - min) / median of the rounds. CPU: seconds of the\n\
sending and the receiving thread, and of the whole machine with its softirqs. copied: payload bytes\n\
copied in user space. cores: how busy both were, by what was left for a thread of the lowest\n\
priority. in place: packets that came in fragments and were joined without a copy.\n\
again: units sent again. lost: sent, and never came. woken: how often a thread slept and was woken.\n\
ns per message: what the calling thread spends on handing a message of one byte over and taking it\n\
out at the other end, without waiting. Of counts the largest of all rounds is shown.";

/// Header, tables, and what the columns mean.
pub(super) fn describe(report: &Report, style: Style) -> String {
    let mut text = format!("{}\n", style.strong(header(&report.machine)));
    if report.machine.machine.debug_build {
        let warning = "This is a debug build: the figures say nothing. Use --release.";
        text += &format!("{}\n", style.warn(warning));
    }
    for (_, table) in tables(&report.rows) {
        text += &format!("\n{table}\n");
    }
    text + "\n" + KINDS + "\n" + COLUMNS + "\n"
}

/// A table for each mode of which there are rows.
pub(super) fn tables(rows: &[Row]) -> Vec<(Mode, Table)> {
    let of = |mode| {
        let rows: Vec<_> = rows.iter().filter(|row| row.mode == mode).collect();
        (!rows.is_empty()).then(|| (mode, table(mode, &rows)))
    };
    [Mode::Throughput, Mode::Latency, Mode::Overhead].into_iter().filter_map(of).collect()
}

fn header(machine: &MachineAndSettings) -> String {
    let pinned = if machine.pinned {
        "sender pinned to the first core, receiver to the second"
    } else {
        "sender and receiver share a core"
    };
    format!(
        "{}\n{}, {pinned}; median of {} interleaved rounds of {} s; throughput blocking, round \
         trips polling",
        machine.machine.describe(),
        machine.link,
        machine.rounds,
        machine.seconds,
    )
}

fn table(mode: Mode, rows: &[&Row]) -> Table {
    let is_metered = rows.iter().any(|row| row.cpu_core_percent_send.is_some());
    let mut columns: Vec<&str> = THROUGHPUT.into();
    if is_metered {
        columns.insert(CORE_AT, CORE_BUSY);
    }
    let mut table = match mode {
        Mode::Throughput => Table::new(COMMON.into_iter().chain(columns)),
        Mode::Latency => Table::new(COMMON.into_iter().chain(LATENCY)),
        Mode::Overhead => Table::new(COMMON.into_iter().chain(OVERHEAD)),
    };
    for row in rows {
        let figures = match mode {
            Mode::Throughput => throughput(row, is_metered),
            Mode::Latency => latency(row),
            Mode::Overhead => vec![
                decimals(row.overhead_ns_per_message, 0),
                percent(row.spread),
                decimals(row.ratio_to_tcp, 3),
            ],
        };
        table.row(common(row).into_iter().chain(figures));
    }
    table
}

fn common(row: &Row) -> Vec<String> {
    let mut variant = row.variant.map_or_else(String::new, |variant| format!(", {variant}"));
    if row.workload != "plain" {
        variant += &format!(", {}", row.workload);
    }
    if row.connections > 1 && row.variant.is_none_or(|it| !it.contains("connections")) {
        variant += &format!(", {} connections", row.connections);
    }
    if row.loss > 0.0 && row.variant.is_none_or(|it| !it.contains("lost")) {
        variant += &format!(", {:.2} % lost", row.loss * 100.0);
    }
    let name = match row.transport {
        "kernel" => format!("kernel {}{variant}", row.protocol),
        transport => format!("{}/{transport}{variant}", row.protocol),
    };
    vec![
        name,
        bytes(row.message_bytes),
        row.payload_bytes.map_or_else(String::new, |payload| payload.to_string()),
        row.mtu.to_string(),
        if row.offload { "super" } else { "real" }.to_owned(),
        if row.polling { "polls" } else { "blocks" }.to_owned(),
    ]
}

fn throughput(row: &Row, is_metered: bool) -> Vec<String> {
    let [send, receive, all] =
        [row.cpu_s_per_gb_send, row.cpu_s_per_gb_receive, row.cpu_s_per_gb_total]
            .map(|cpu| decimals(cpu, 2));
    let mut cells = vec![
        decimals(row.goodput_bytes_per_s.map(|goodput| goodput / 1e9), 2),
        percent(row.spread),
        format!("{send}+{receive}/{all}"),
        bytes(row.user_copied_bytes),
        row.in_place.map_or_else(String::new, percent),
        row.retransmitted.to_string(),
        bytes(row.lost_bytes),
        row.wakeups.to_string(),
        decimals(row.ratio_to_tcp_same_message, 2),
        decimals(row.ratio_to_tcp, 2),
    ];
    if is_metered {
        let [send, receive] = [row.cpu_core_percent_send, row.cpu_core_percent_receive]
            .map(|percent| decimals(percent, 0));
        cells.insert(CORE_AT, format!("{send}+{receive}"));
    }
    cells
}

fn latency(row: &Row) -> Vec<String> {
    let us = |ns: Option<f64>| decimals(ns.map(|ns| ns / 1e3), 2);
    vec![
        us(row.rtt_ns_p50),
        us(row.rtt_ns_p90),
        us(row.rtt_ns_p99),
        us(row.rtt_ns_p999),
        percent(row.spread),
        bytes(row.user_copied_bytes),
        decimals(row.ratio_to_tcp, 2),
    ]
}

fn decimals(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Whether a picture can be written there: nobody measures for minutes to hear that it
/// cannot.
pub(crate) fn check(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    if path.extension().is_none_or(|extension| extension != "svg") {
        bail!("--plot {}: it is written as SVG: give it a name that ends in .svg", path.display());
    }
    check_place("--plot", path)
}

/// Whether a file that an option names can be written where it says.
pub(super) fn check_place(option: &str, path: &Path) -> Result<()> {
    let shown = path.display();
    if path.is_dir() {
        bail!("{option} {shown}: that is a folder: give the name of a file");
    }
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            bail!("{option} {shown}: there is no folder {}", folder.display())
        }
        _ => Ok(()),
    }
}

/// Draws the rows into a file.
pub(super) fn write(path: &Path, report: &Report) -> Result<()> {
    let panels = panels(&report.rows);
    if panels.is_empty() {
        bail!("--plot {}: nothing was measured that could be drawn", path.display());
    }
    let title =
        format!("landfall perf, {}: {}", report.machine.link, report.machine.machine.describe());
    fs::write(path, plot::of_panels(&title, &panels).file())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// What is drawn in one panel: rows of one mode, over one link.
type Kind = (Mode, u32, bool);

fn panels(rows: &[Row]) -> Vec<Panel> {
    let mut kinds: Vec<Kind> = Vec::new();
    for row in rows.iter().filter(|row| row.mode != Mode::Overhead) {
        let kind = (row.mode, row.mtu, row.offload);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.into_iter().map(|kind| panel(kind, rows)).collect()
}

fn panel(kind: Kind, rows: &[Row]) -> Panel {
    let of_kind = |row: &&Row| (row.mode, row.mtu, row.offload) == kind;
    let rows: Vec<(&Row, f64)> =
        rows.iter().filter(of_kind).filter_map(|row| Some((row, figure(row)?))).collect();
    let mut lines: Vec<Curve> = Vec::new();
    for (row, value) in &rows {
        let (name, point) = (name(row), (row.message_bytes as f64, Value::alone(*value)));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Curve { name, points: vec![point] }),
        }
    }
    // What was measured with one length alone is a curve only among others.
    if lines.iter().any(|line| line.points.len() > 1) {
        for line in &mut lines {
            line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        return Panel::Curves(Curves { axis: axis(kind), over: "bytes a message".into(), lines });
    }
    let rows = rows.into_iter().map(|(row, value)| (label(row), vec![Some(Value::alone(value))]));
    Panel::Bars(Bars { axis: axis(kind), series: vec!["value".into()], rows: rows.collect() })
}

fn axis((mode, mtu, offload): Kind) -> String {
    let unit = if mode == Mode::Throughput { "GB/s" } else { "round trip µs" };
    let frames = if offload { "super-packets" } else { "real frames" };
    format!("{unit}, MTU {mtu}, {frames}")
}

fn figure(row: &Row) -> Option<f64> {
    match row.mode {
        Mode::Throughput => row.goodput_bytes_per_s.map(|goodput| goodput / 1e9),
        _ => row.rtt_ns_p50.map(|ns| ns / 1e3),
    }
}

/// What stays the same from length to length.
fn name(row: &Row) -> String {
    let mut name = format!("{}/{}", row.protocol, row.transport);
    if let Some(variant) = row.variant {
        name += &format!(", {variant}");
    }
    if row.workload != "plain" {
        name += &format!(", {}", row.workload);
    }
    if !row.polling && row.mode == Mode::Latency {
        name += ", asleep";
    }
    name
}

fn label(row: &Row) -> String {
    let payload = row.payload_bytes.map_or_else(String::new, |bytes| format!(", {bytes} B"));
    let ratio = row.ratio_to_tcp.map_or_else(String::new, |ratio| format!(": {ratio:.2} × TCP"));
    format!("{}{payload}{ratio}", name(row))
}
