//! The figure as a table for people, and what the paper says of it.

use serde::Serialize;

use super::{Figures, Report};
use crate::style::Style;
use crate::table::Table;

/// What the paper's words state: the figure itself only draws bars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Stated {
    /// QPIP's throughput to that of sockets, from the least to the most of both networks.
    pub(crate) ratio: [f64; 2],
    /// "up to 133% better CPU effectiveness".
    pub(crate) most_cpu_ratio: f64,
}

/// Section 4.2.3.
pub(crate) const STATED: Stated = Stated { ratio: [1.40, 2.37], most_cpu_ratio: 2.33 };

const COLUMNS: [&str; 9] = [
    "transport",
    "MTU",
    "what",
    "MB/s",
    "± %",
    "× sockets",
    "MB per CPU-s, client",
    "× sockets",
    "both, × sockets",
];

const ABOUT: &str = "\
MB: 10^6 bytes. Writes end when `sync` has returned; the file system is unmounted before it is read.\n\
client: the processor time of the program that has the device, of the one that writes and reads, and\n\
of the kernel's threads (loop device, write-back); both: that and the server's. × sockets: the median\n\
of the ratios, round by round, to kernel sockets with the same MTU; ±: between the slowest round and\n\
the fastest. In the paper an adapter runs TCP; here both ends' processors do, by sockets or by us. And\n\
both ends are one machine: what a receiver does is in part done on the sender's account.";

/// The table, and what it shows.
pub(super) fn describe(report: &Report, style: Style) -> String {
    let mut text = format!(
        "{}\n{} MB in one file on {}, on a network block device; medians of {} rounds in turn\n",
        style.strong(report.machine.describe()),
        report.bytes / 1_000_000,
        report.file_system,
        report.rounds,
    );
    if report.machine.debug_build || report.bytes < 100_000_000 {
        text += &style.warn("a quick look or a debug build: these figures say nothing\n");
    }
    for (offload, frames) in [(false, "each frame crosses"), (true, "super-packets")] {
        let title = format!("Figure 7: NBD client throughput and CPU effectiveness; {frames}");
        text += &format!("\n{}\n{}\n", style.strong(title), table(report, offload));
    }
    let Stated { ratio: [least, most], most_cpu_ratio } = report.paper;
    text += &format!(
        "\nThe paper: {least:.2} to {most:.2} × the throughput of sockets, over reads, writes and two \
         networks\n(Gigabit Ethernet with MTU 1500, Myrinet with MTU 9000; QPIP with MTU 9000), at up \
         to {most_cpu_ratio:.2} × the\nMB per CPU-second of the client.\n\n{ABOUT}\n"
    );
    text
}

fn table(report: &Report, offload: bool) -> Table {
    let mut table = Table::new(COLUMNS);
    for row in report.rows.iter().filter(|row| row.offload == offload) {
        for (what, figures) in [("write", row.write), ("read", row.read)] {
            let transport = row.transport.to_owned();
            let cells = cells(figures);
            table.row([transport, row.mtu.to_string(), what.to_owned()].into_iter().chain(cells));
        }
    }
    table
}

fn cells(figures: Figures) -> [String; 6] {
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".into(), |it| format!("{it:.2}"));
    [
        format!("{:.0}", figures.mb_per_s),
        format!("{:.0}", figures.spread * 100.0),
        ratio(figures.ratio),
        format!("{:.0}", figures.mb_per_client_cpu_s),
        ratio(figures.client_cpu_ratio),
        ratio(figures.cpu_ratio),
    ]
}
