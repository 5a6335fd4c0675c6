//! What was measured on a cable of this machine, for people.

use super::live::{Bar, Disturbed, Live};
use crate::style::{Style, bytes};
use crate::table::Table;

const ABOUT_1: &str = "\
Foreign packets at moments of chance, from another station, between fragments too. failed: packets\n\
that the conventional path joined, in the round with most of them. Posted lists (recvmmsg), fast\n\
buffers. of undisturbed: median of the ratios round by round.";

const ABOUT_BARS: &str = "\
Pages of 4 KiB over a cable between two namespaces, each bar in turn, medians. standard: sockets at\n\
both ends, whose kernels cut and join. All others but `standard sender` get their fragments from our\n\
sender; `every packet missed`: something foreign is between the fragments of each packet, as where a\n\
standard sender interrupts the burst of another. This machine moves other amounts than one of 2000:\n\
what compares is each bar with its standard.";

/// Tables, or why there are none.
pub(super) fn describe(live: Option<&Live>, why_not: Option<&str>, style: Style) -> String {
    let Some(live) = live else {
        let why = why_not.unwrap_or("it was not measured");
        return format!("\nTable 1 and Figures 4 and 5 on this machine: {why}\n");
    };
    let mut text = format!(
        "\n{}\n{}\n{ABOUT_1}\n",
        style.strong(format!("Table 1, on this machine ({} rounds)", live.rounds)),
        table_1(&live.table_1)
    );
    text += &format!("\n{}\n", style.strong("Figures 4 and 5, on this machine"));
    text + &format!("{}\n{ABOUT_BARS}\n", figures(&live.bars))
}

fn table_1(lines: &[Disturbed]) -> Table {
    let mut table = Table::new([
        "foreign packets",
        "predictor",
        "failed, paper",
        "ours",
        "of packets",
        "MB/s, paper",
        "ours",
        "of undisturbed, paper",
        "ours",
    ])
    .with_words(2);
    let best = lines.iter().map(|line| line.paper.megabytes_per_second).max().unwrap_or(1);
    for line in lines {
        let speed = line.paper.megabytes_per_second;
        table.row([
            line.paper.foreign.to_string(),
            line.predictor.to_owned(),
            line.paper.failed.to_string(),
            line.failed.to_string(),
            line.packets.to_string(),
            speed.to_string(),
            format!("{:.0}", line.megabytes_per_second),
            format!("{:.2}", f64::from(speed) / f64::from(best)),
            format!("{:.2}", line.of_undisturbed),
        ]);
    }
    table
}

fn figures(bars: &[Bar]) -> Table {
    let mut table = Table::new([
        "Figure",
        "",
        "MB/s, paper",
        "ours",
        "of standard, paper",
        "ours",
        "receiver CPU s/GB",
        "copied",
        "in place",
    ])
    .with_words(2);
    let standard = bars.first().and_then(|bar| bar.paper.megabytes_per_second).unwrap_or(1);
    for bar in bars {
        let or_nothing = |text: Option<String>| text.unwrap_or_default();
        let speed = bar.paper.megabytes_per_second;
        let ratio = speed.map(|speed| f64::from(speed) / f64::from(standard));
        table.row([
            bar.figure.to_string(),
            bar.paper.name.to_owned(),
            or_nothing(speed.map(|speed| speed.to_string())),
            format!("{:.0}", bar.megabytes_per_second),
            or_nothing(ratio.map(|ratio| format!("{ratio:.2}"))),
            format!("{:.2}", bar.of_standard),
            format!("{:.2}", bar.receiver_cpu_s_per_gb),
            bytes(bar.user_copied_bytes),
            or_nothing(bar.in_place.map(|share| format!("{:.1} %", share * 100.0))),
        ]);
    }
    table
}
