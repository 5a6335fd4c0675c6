//! Rows as a picture: throughput over the length of messages where several were measured,
//! otherwise a bar for each row, with its ratio to TCP. Round trips beside, in the same way.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nic_firmware_model::reproduce::Value;

use super::Report;
use super::row::{Mode, Row};
use crate::plot;
use crate::plot::panel::{Bars, Curves, Line, Panel};

/// Whether a picture can be written there: nobody measures for minutes to hear that it
/// cannot.
pub(crate) fn check(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    if path.extension().is_none_or(|extension| extension != "svg") {
        bail!("--plot {}: it is written as SVG: give it a name that ends in .svg", path.display());
    }
    if path.is_dir() {
        bail!("--plot {}: that is a folder: give the name of a file", path.display());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            bail!("--plot {}: there is no folder {}", path.display(), folder.display())
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
    let mut lines: Vec<Line> = Vec::new();
    for (row, value) in &rows {
        let (name, point) = (name(row), (row.message_bytes as f64, Value::alone(*value)));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
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
