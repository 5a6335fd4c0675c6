//! The figures for people, ours beside the paper's.

use std::time::Duration;

use anyhow::Result;
use landfall_testbed::rivals::Endpoints;

use super::server::Server;
use super::sweep::{Curve, Sweep};
use super::{Report, Scale, ip, paper, server};
use crate::reproduce::live::Found;
use crate::style::{Progress, Style, bytes};
use crate::table::Table;

const ABOUT_WORD: &str = "\
A word of 8 bytes (the paper's: 4) written into the other side's memory, seen there, answered in the\n\
same way; both sides spin. shm: two processes of this machine. udp: two nodes over loopback. Sockets:\n\
as many bytes there and back. bare: two words that two cores hand to each other.";

const ABOUT_7: &str = "\
From the first byte written until the last word is seen: a round trip answered with a word, less half\n\
of one of words; of sockets half of one of messages. The paper's interval begins when the first word\n\
arrives, and has no latency in it: ours is the stricter one. Its figure states a peak alone.";

const ABOUT_10: &str = "\
Messages in one direction: (a) each acknowledged before the next, (b) streaming. clan: a byte stream\n\
out of 64 MiB into as much. set-up: what the shortest message takes beyond its bytes at the peak. The\n\
paper states numbers of (b) alone.";

const ABOUT_SERVER: &str = "\
One thread serves all endpoints from one queue of events, and polls for 50 µs (the paper's: 15) before\n\
it sleeps. One client spins for replies of 16 bytes. busy: one request behind the other, on an endpoint\n\
at random. idle: 200 µs after each reply. requests/s: one under way on every endpoint at a time. CPU:\n\
of the server's thread for each of them, kernel included. flat within: the round trip farthest from\n\
the middle one. channel: the adapters of both nodes hand frames to each other in memory. epoll:\n\
sockets, served by one thread of tokio.";

const ABOUT_OVERLOAD: &str = "\
Requests that come at a rate, whether or not those before were answered: this many times what the row\n\
above serves. What finds its endpoint waiting is turned away by the client.";

const ABOUT_1: &str = "\
TCP, blocking. 1 KiB: its bits, one way, in the time that it takes there and back, which is what the\n\
paper's figures for Ethernet come to; stream: sent in pieces of 1 KiB in one direction.";

/// The tables, and what they show.
pub(super) fn describe(report: &Report, style: Style) -> String {
    let rounds = report.rounds;
    let mut text = format!("{}\nmedians of {rounds} rounds in turn\n", report.machine.describe());
    if report.quick || report.machine.debug_build {
        text += &style.warn("a quick look or a debug build: these figures say nothing\n");
    }
    let mut part = |title: &str, table: &str, about: &str| {
        text += &format!("\n{}\n{table}\n{about}\n", style.strong(title));
    };
    part("Section 5.2: a word there and back", &words(report).to_string(), ABOUT_WORD);
    let of_7 = &report.figure_7;
    let title = "Figure 7: bandwidth against size, Mbit/s";
    part(title, &curves(&of_7.paper, &of_7.ours), ABOUT_7);
    part("Section 5.3.1, Figures 8 and 9: the event-driven server", &servers(report), ABOUT_SERVER);
    part("Figure 9, overloaded", &overload(&report.server.ours).to_string(), ABOUT_OVERLOAD);
    let of_10 = &report.figure_10;
    let title = "Section 5.3.2, Figure 10: messages in one direction, Mbit/s";
    part(title, &curves(&of_10.paper, &of_10.ours), ABOUT_10);
    match &report.why_not_table_1 {
        Some(why) => text += &format!("\nTable 1, IP over CLAN, on this machine: {why}\n"),
        None => part("Table 1: IP over CLAN", &table_1(report).to_string(), ABOUT_1),
    }
    text
}

/// As many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn or_nothing(value: Option<f64>) -> String {
    value.map(number).unwrap_or_default()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

const PAPER: &str = "the paper";

fn words(report: &Report) -> Table {
    let paper::Word { round_trip_us, one_way_us } = report.word.paper;
    let mut table = Table::new(["", "round trip µs", "one way µs"]);
    table.row([PAPER.to_owned(), number(round_trip_us), number(one_way_us)]);
    for trip in &report.word.ours {
        table.row([trip.name.to_owned(), number(trip.us), number(trip.us / 2.0)]);
    }
    table
}

/// A line for each length, a column for each curve; below it what comes of the curve.
fn curves(paper: &paper::Bandwidth, curves: &[Curve]) -> String {
    let header = ["", PAPER].into_iter().chain(curves.iter().map(|curve| curve.name));
    let mut table = Table::new(header);
    let lengths = curves.first().map(|curve| curve.points.as_slice()).unwrap_or_default();
    for length in lengths.iter().map(|point| point.bytes) {
        let cells = curves.iter().map(|curve| curve.at(length).map(|point| point.mbit_per_s));
        let row = [bytes(length), String::new()].into_iter().chain(cells.map(or_nothing));
        table.row(row);
    }
    let mut line = |name: &str, paper: Option<f64>, ours: fn(&Curve) -> Option<f64>| {
        let cells = curves.iter().map(ours).map(or_nothing);
        table.row([name.to_owned(), or_nothing(paper)].into_iter().chain(cells));
    };
    line("peak", Some(paper.peak_mbit_per_s), |curve| Some(curve.peak_mbit_per_s));
    line("half of it at, bytes", paper.half_of_peak_bytes, |curve| curve.half_of_peak_bytes);
    line("set-up µs", paper.set_up_us, |curve| Some(curve.set_up_us));
    table.to_string()
}

fn servers(report: &Report) -> String {
    let paper = report.server.paper;
    let columns = ["", "endpoints", "busy µs", "idle µs", "requests/s", "CPU µs"];
    let mut table = Table::new(columns);
    table.row([
        PAPER.to_owned(),
        "all alike".to_owned(),
        number(paper.busy_round_trip_us),
        number(paper.idle_round_trip_us),
        format!("towards {}", paper.requests_per_s),
        number(paper.overhead_us),
    ]);
    for server in &report.server.ours {
        for point in &server.points {
            table.row([
                server.name.to_owned(),
                point.endpoints.to_string(),
                number(point.busy_us),
                number(point.idle_us),
                number(point.requests_per_s),
                or_nothing(point.server_us_per_request),
            ]);
        }
        table.row([
            server.name.to_owned(),
            "flat within".to_owned(),
            percent(server.busy_flat_within),
            percent(server.idle_flat_within),
            format!("{} kept", percent(server.kept_with_most_endpoints)),
            String::new(),
        ]);
    }
    let mut text = table.to_string();
    for absent in &report.server_absent {
        text += &format!("\n{}, {} endpoints: {}", absent.name, absent.endpoints, absent.reason);
    }
    text
}

fn overload(servers: &[Server]) -> Table {
    let columns = ["", "endpoints", "offered/s", "served/s", "turned away/s", "of the most served"];
    let mut table = Table::new(columns);
    for server in servers {
        let most = server.overload.iter().map(|overload| overload.served_per_s).fold(0.0, f64::max);
        for overload in &server.overload {
            table.row([
                server.name.to_owned(),
                server.overload_endpoints.to_string(),
                number(overload.offered_per_s),
                number(overload.served_per_s),
                number(overload.turned_away_per_s),
                percent(overload.served_per_s / most),
            ]);
        }
    }
    table
}

fn table_1(report: &Report) -> Table {
    let mut table =
        Table::new(["", "round trip µs", "Mbit/s with 1 KiB", "Mbit/s, stream of 1 KiB"]);
    for paper in report.table_1.paper {
        let (from, to) = paper.mbit_per_s;
        let range = if from < to { format!("{from}-{to}") } else { from.to_string() };
        let name = format!("{PAPER}: {}", paper.name);
        table.row([name, number(paper.round_trip_us), range, String::new()]);
    }
    for line in &report.table_1.ours {
        table.row([
            line.name.to_owned(),
            number(line.round_trip_us),
            number(line.mbit_per_s),
            number(line.stream_mbit_per_s),
        ]);
    }
    table
}

// What was measured, for the page that has the paper and the model of its adapter: each
// value with the exhibit, the row and the column that it belongs to.

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
        let row = "(b) half of the bandwidth, at messages of this many bytes";
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
