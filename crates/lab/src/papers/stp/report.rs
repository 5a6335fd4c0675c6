//! The tables for people, ours beside the paper's.

use super::paper::Stated;
use super::{Beside, Ours, Report};
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
        "{}\n{}; medians of {} rounds of {} s in turn, beside a soaker on each core\n",
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

fn table(lines: &[Beside], offload: bool) -> Table {
    let mut table = Table::new(COLUMNS);
    for line in lines {
        for ours in line.ours.iter().filter(|ours| ours.offload == offload) {
            table.row(row(line, ours, tcp_of(lines, line)));
        }
    }
    table
}

/// What the paper has for TCP by `write()` beside a line: the last such line before it.
fn tcp_of(lines: &[Beside], line: &Beside) -> Option<Stated> {
    let at = lines.iter().position(|one| std::ptr::eq(one, line))?;
    let before = lines[..=at].iter().rev();
    before.filter(|one| matches!(one.test, "TCP write()" | "TCP")).map(|one| one.paper).next()
}

fn row(line: &Beside, ours: &Ours, tcp: Option<Stated>) -> [String; 10] {
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
        whole(ours.cpu_soaker_percent_receive),
        whole(Some(paper.cpu_percent_send)),
        whole(ours.cpu_soaker_percent_send),
    ]
}
