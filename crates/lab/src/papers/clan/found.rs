//! What was measured, for the page that has the paper and the model of its adapter: each
//! value with the exhibit, the row and the column that it belongs to.

use std::time::Duration;

use anyhow::Result;
use landfall_testbed::rivals::Endpoints;

use super::Scale;
use super::curve::Curve;
use super::server::Server;
use super::sweep::Sweep;
use super::{ip, server};
use crate::reproduce::live::Found;
use crate::style::Progress;

const BRIEF: Scale = Scale {
    rounds: 1,
    time: Duration::from_millis(30),
    sizes: &[8, 256, 752, 1024, 4096, 16_384, 65_536],
    endpoints: &[1, 10, 100, 1000],
    idle: 50,
    ..Scale::FULL
};

/// Measures in some twenty seconds what `landfall paper clan` takes its time for; gives
/// what was found, and what could not be.
pub(crate) fn found(quick: bool, progress: &Progress) -> Result<(Vec<Found>, Vec<String>)> {
    let scale = if quick { Scale::QUICK } else { BRIEF };
    let endpoints = Endpoints::loopback()?;
    let sweep = Sweep { endpoints: &endpoints, scale, progress };
    let mut found = Vec::new();
    for word in sweep.words()? {
        let (row, us) = ("a word there and back, µs", word.us);
        found.push(Found::new("Section 5.2", row, "value", us, word.name));
    }
    for curve in sweep.figure_7()? {
        let column = if curve.name.contains("DMA") { "DMA" } else { "programmed I/O" };
        add_curve(&mut found, ("Figure 7", ""), column, &curve);
    }
    let (servers, absent) = server::measure(&endpoints, scale, progress);
    servers.iter().for_each(|server| add_server(&mut found, server));
    for curve in sweep.figure_10()? {
        let way =
            if curve.name.ends_with("(a)") { "(a) one at a time, " } else { "(b) streaming, " };
        add_curve(&mut found, ("Figure 10", way), "the adapter of the paper", &curve);
    }
    let mut lacks: Vec<String> = absent
        .into_iter()
        .map(|it| format!("{}, {} endpoints: {}", it.name, it.endpoints, it.reason))
        .collect();
    match ip::why_not() {
        Some(why) => lacks.push(format!("Table 1: {why}")),
        None => {
            for line in ip::measure(scale, progress)? {
                let (row, by) = ("CLAN IP", line.name);
                found.push(Found::new("Table 1", row, "round trip, µs", line.round_trip_us, by));
                found.push(Found::new("Table 1", row, "at 1 KByte, Mbit/s", line.mbit_per_s, by));
            }
        }
    }
    Ok((found, lacks))
}

fn add_curve(
    found: &mut Vec<Found>,
    (exhibit, way): (&'static str, &str),
    column: &'static str,
    curve: &Curve,
) {
    for point in &curve.points {
        let unit = if way.is_empty() { "" } else { ", Mbit/s" };
        let row = format!("{way}{} bytes{unit}", point.bytes);
        found.push(Found::new(exhibit, row, column, point.mbit_per_s, curve.name));
    }
    if let (Some(half), "(b) streaming, ") = (curve.half_of_peak_bytes, way) {
        let row = "(b) half of the bandwidth, at messages of so many bytes";
        found.push(Found::new(exhibit, row, column, half, curve.name));
    }
}

fn add_server(found: &mut Vec<Found>, server: &Server) {
    for point in &server.points {
        let row = format!("{} endpoints", point.endpoints);
        let mut add = |exhibit, column, value| {
            found.push(Found::new(exhibit, row.clone(), column, value, server.name));
        };
        add("Figure 8", "server idle, µs", point.idle_us);
        add("Figure 8", "server busy, µs", point.busy_us);
        add("Figure 9", "thousands", point.requests_per_s / 1e3);
    }
    let rows = [
        (
            "round trip, the server sleeps between requests, µs",
            server.points.first().map(|p| p.idle_us),
        ),
        ("round trip, the server is kept awake, µs", server.points.first().map(|p| p.busy_us)),
        (
            "requests per second that the curve tends to, thousands",
            Some(server.most_requests_per_s / 1e3),
        ),
    ];
    for (row, value) in rows {
        let Some(value) = value else { continue };
        found.push(Found::new("Section 5.3.1", row, "value", value, server.name));
    }
}
