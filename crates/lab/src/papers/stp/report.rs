//! The tables for people, ours beside the paper's.
//!
//! The numbers of the paper: Tables 1 and 2. A megabyte is 2^20 bytes there, and 100 % are
//! both processors of a machine.

use landfall_testbed::rivals::Workload;
use serde::Serialize;

use super::{Comparison, MeasuredRow, Report};
use crate::perf::row::lines_of_absent;
use crate::style::Style;
use crate::table::Table;

const COLUMNS: [&str; 10] = [
    "test",
    "packet",
    "MB/s, paper",
    "ours",
    "× TCP, paper",
    "ours",
    "receiver %, paper",
    "ours",
    "sender %, paper",
    "ours",
];

const ABOUT: &str = "\
MB: 2^20 bytes, as in the paper. × TCP: of TCP by write() (Table 2: of TCP) with the same MTU, ours\n\
the median of the ratios round by round. receiver, sender: how busy a side's core was, by what was\n\
left of it for a thread of the lowest priority that ran meanwhile; the paper's are of two processors\n\
of a machine of its own, ours of one core each, and on one machine much of what a receiver does is\n\
done on the sender's core. TCP: 128 KiB at a time, reno. STP: Transfers of 1 MiB, in STUs of the\n\
paper's size over UDP, and (0x8181) directly on Ethernet, as in the paper.";

const ABOUT_2: &str = "\
The receiver reads every byte: of TCP what each call brought, of STP a whole Transfer where it lies,\n\
before its place is used again. The paper's touched what it received; whether it also wrote, it does\n\
not say.";

/// The tables, and what they show.
pub(super) fn describe(report: &Report, style: Style) -> String {
    let mut text = format!(
        "{}\n{}; medians of {} rounds of {} s in turn, beside an idle meter on each core\n",
        style.strong(report.machine.describe()),
        link(report),
        report.rounds,
        report.seconds
    );
    if report.machine.debug_build || report.seconds < 0.2 {
        text += &style.warn("a quick look or a debug build: these figures say nothing\n");
    }
    for (title, lines, about) in [
        ("Table 1: TCP and STP performance", &report.table_1, ""),
        ("Table 2: the receiver touches the data", &report.table_2, ABOUT_2),
    ] {
        for (offload, frames) in [(false, "each frame crosses"), (true, "super-packets")] {
            if lines.iter().any(|line| line.ours.iter().any(|ours| ours.offload == offload)) {
                let title = style.strong(format!("{title}; {frames}"));
                text += &format!("\n{title}\n{}\n", table(lines, offload));
            }
        }
        if !about.is_empty() {
            text += &format!("{about}\n");
        }
    }
    text += &format!("\n{ABOUT}\n");
    for line in lines_of_absent(&report.absent) {
        text += &format!("{line}\n");
    }
    text
}

fn link(report: &Report) -> &'static str {
    if report.link == "veth" {
        "a cable between two namespaces"
    } else {
        "loopback, with segments and STUs as on links of the MTU (as root: a cable)"
    }
}

fn table(lines: &[Comparison], offload: bool) -> Table {
    let mut table = Table::new(COLUMNS);
    for line in lines {
        for ours in line.ours.iter().filter(|ours| ours.offload == offload) {
            table.row(row(line, ours, tcp_of(lines, line)));
        }
    }
    table
}

/// What the paper has for TCP by `write()` beside a line: the last such line before it.
fn tcp_of(lines: &[Comparison], line: &Comparison) -> Option<Stated> {
    let at = lines.iter().position(|one| std::ptr::eq(one, line))?;
    let before = lines[..=at].iter().rev();
    before.filter(|one| matches!(one.test, "TCP write()" | "TCP")).map(|one| one.paper).next()
}

fn row(line: &Comparison, ours: &MeasuredRow, tcp: Option<Stated>) -> [String; 10] {
    let paper = line.paper;
    let test = match ours.transport {
        "kernel" | "udp" => line.test.to_owned(),
        other => format!("{}, {other}", line.test),
    };
    let ratio = tcp.map(|tcp| paper.megabytes_per_s / tcp.megabytes_per_s);
    let whole = |value: Option<f64>| value.map_or_else(|| "-".into(), |it| format!("{it:.0}"));
    let ratios = |value: Option<f64>| value.map_or_else(|| "-".into(), |it| format!("{it:.2}"));
    [
        test,
        line.packet_bytes.to_string(),
        whole(Some(paper.megabytes_per_s)),
        whole(Some(ours.megabytes_per_s)),
        ratios(ratio),
        ratios(ours.ratio_to_tcp),
        whole(Some(paper.cpu_percent_receive)),
        whole(ours.cpu_core_percent_receive),
        whole(Some(paper.cpu_percent_send)),
        whole(ours.cpu_core_percent_send),
    ]
}

/// What a line of a table states.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Stated {
    pub(crate) megabytes_per_s: f64,
    pub(crate) cpu_percent_receive: f64,
    pub(crate) cpu_percent_send: f64,
}

/// A line, with what it takes to do the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportRow {
    pub(crate) test: &'static str,
    /// What the paper calls the size of a packet: of STP the STU with its header.
    pub(crate) packet_bytes: u32,
    pub(super) protocol: &'static str,
    /// Of the link.
    pub(super) mtu: u32,
    pub(super) workload: Workload,
    pub(crate) stated: Stated,
}

const fn tcp(test: &'static str, mtu: u32, workload: Workload, stated: [u8; 3]) -> ReportRow {
    ReportRow { test, packet_bytes: mtu, protocol: "tcp", mtu, workload, stated: of(stated) }
}

const fn stp(test: &'static str, mtu: u32, workload: Workload, stated: [u8; 3]) -> ReportRow {
    let packet_bytes = stu(mtu) + 40;
    ReportRow { test, packet_bytes, protocol: "stp", mtu, workload, stated: of(stated) }
}

const fn of([rate, receive, send]: [u8; 3]) -> Stated {
    Stated {
        megabytes_per_s: rate as f64,
        cpu_percent_receive: receive as f64,
        cpu_percent_send: send as f64,
    }
}

/// The payload of an STU over a link of this MTU: a page with jumbo frames, else a quarter.
pub(super) const fn stu(mtu: u32) -> u32 {
    if mtu < 4096 + 68 { 1024 } else { 4096 }
}

/// "TCP and STP performance". The paper prints the lines of `sendfile()` with `MSG_TRUNC`
/// as "MSG_TRUNC", too.
pub(crate) const TABLE_1: [ReportRow; 10] = [
    tcp("TCP write()", 9000, Workload::Plain, [75, 55, 48]),
    tcp("MSG_TRUNC", 9000, Workload::Trunc, [99, 35, 55]),
    tcp("TCP sendfile()", 9000, Workload::Sendfile, [74, 55, 12]),
    tcp("MSG_TRUNC, sendfile()", 9000, Workload::SendfileTrunc, [99, 31, 19]),
    stp("STP write()", 9000, Workload::Plain, [98, 8, 17]),
    tcp("TCP write()", 1500, Workload::Plain, [52, 55, 50]),
    tcp("MSG_TRUNC", 1500, Workload::Trunc, [70, 52, 70]),
    tcp("TCP sendfile()", 1500, Workload::Sendfile, [45, 50, 12]),
    tcp("MSG_TRUNC, sendfile()", 1500, Workload::SendfileTrunc, [70, 52, 39]),
    stp("STP write()", 1500, Workload::Plain, [53, 8, 17]),
];

/// "Results when receiver touches the data".
pub(crate) const TABLE_2: [ReportRow; 4] = [
    tcp("TCP", 9000, Workload::Touch, [49, 62, 22]),
    stp("STP", 9000, Workload::Touch, [53, 23, 9]),
    tcp("TCP", 1500, Workload::Touch, [14, 53, 11]),
    stp("STP", 1500, Workload::Touch, [34, 16, 11]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_the_paper() {
        let packets = TABLE_1.iter().map(|line| line.packet_bytes);
        let expected = [9000, 9000, 9000, 9000, 4136, 1500, 1500, 1500, 1500, 1064];
        assert_eq!(packets.collect::<Vec<_>>(), expected);
    }
}
