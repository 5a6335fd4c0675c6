//! Both tables for people, ours beside the paper's.

use super::Report;
use super::adapter::Score;
use super::tables::{Application, Disturbed, Station};
use super::trace::ttcp::Disturber;
use crate::style::Style;
use crate::table::Table;

const ABOUT_1: &str = "\
Foreign packets at moments of chance in one transfer of zero-copy packets, in virtual time: from the\n\
sender itself they come between its packets, from a third station between fragments too. failed:\n\
packets that the conventional path joined. learned: flows and their order are learned instead.\n\
MB/s: the sender is as fast as the paper's (75 MB/s), and nothing here costs the receiver time.";

const ABOUT_2: &str = "\
Frames and packets received, in virtual time, by stations as fast as the paper's, at 1 Gbit/s. In\n\
the paper's TPC-D the master's column is the sum of its hosts in every line: theirs are what it got\n\
from each, and so are ours. successful: with the paper's predictor, one stream at a time. admission:\n\
the same, and a gate lets one burst at a time be fast. learned: no gate; the engine learns flows and\n\
their order. The switch serves its inputs in turn; in order: it forwards as frames come.";

/// The tables, and what they show.
pub(super) fn describe(report: &Report, style: Style) -> String {
    let mut text = style.strong("Table 1: a disturbed transfer") + "\n";
    text += &format!("{}\n{ABOUT_1}\n", table_1(&report.table_1));
    for application in &report.table_2 {
        let title = style.strong(format!("Table 2: {}", application.name));
        text += &format!("\n{title}\n{}\n", table_2(application));
    }
    text + ABOUT_2 + &format!("\nseed {}: the same seed gives the same frames\n", report.seed)
}

fn table_1(lines: &[Disturbed]) -> Table {
    let mut table = Table::new([
        "foreign packets",
        "failed, paper",
        "ours",
        "learned",
        "of packets",
        "MB/s, paper",
        "ours",
    ]);
    for line in lines {
        let from = match (line.paper.foreign, line.from) {
            (0, _) => "",
            (_, Disturber::Sender) => " from the sender",
            (_, Disturber::Another) => " from a third",
        };
        table.row([
            format!("{}{from}", line.paper.foreign),
            line.paper.failed.to_string(),
            line.failed.to_string(),
            line.failed_learned.to_string(),
            line.packets.to_string(),
            line.paper.megabytes_per_second.to_string(),
            format!("{:.0}", line.megabytes_per_second),
        ]);
    }
    table
}

/// What a line of Table 2 shows of a column: the paper's, ours.
type TableRow = (&'static str, fn(&Station) -> [String; 2]);

const LINES: [TableRow; 10] = [
    ("frames", |s| [s.paper.total.to_string(), s.frames.total.to_string()]),
    ("large (data)", |s| [s.paper.large.to_string(), s.frames.large.to_string()]),
    ("small (control)", |s| [s.paper.small.to_string(), s.frames.small.to_string()]),
    ("packets, potential", |s| [s.paper.potential.to_string(), s.single.packets.to_string()]),
    ("successful", |s| [s.paper.successful.to_string(), s.single.successful.to_string()]),
    ("success rate", |s| {
        let paper = f64::from(s.paper.successful) / f64::from(s.paper.potential);
        [percent(paper), rate(&s.single)]
    }),
    ("with admission", |s| [String::new(), rate(&s.admitted)]),
    ("learned", |s| [String::new(), rate(&s.learned)]),
    ("in order: rate", |s| [String::new(), rate(&s.single_in_order)]),
    ("in order: learned", |s| [String::new(), rate(&s.learned_in_order)]),
];

fn table_2(application: &Application) -> Table {
    let names = application.stations.iter().map(|station| station.name);
    let header = names.flat_map(|name| [format!("{name}, paper"), "ours".to_owned()]);
    let mut table = Table::new([application.name.to_owned()].into_iter().chain(header));
    for (name, show) in LINES {
        let cells = application.stations.iter().flat_map(show);
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    table
}

fn rate(score: &Score) -> String {
    percent(score.rate())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
