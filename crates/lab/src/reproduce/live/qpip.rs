//! QPIP's figures by the paths of `perf`: queue pairs over a cable, or in a tunnel, beside the
//! kernel's sockets; live values as text: in Markdown, in HTML, and as lines of CSV.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use landfall_testbed::{VethConfig, VethPair, privileges};
use nic_firmware_model::reproduce::report::number;

use super::{Found, Live, LiveExhibit, LiveValue};
use crate::perf::chosen::{self, Chosen, UNPACED};
use crate::perf::local::{Group, Setting, overhead};
use crate::perf::row::{Absent, Mode, Row};
use crate::perf::{Protocol, qpip, rivals};
use crate::plot::svg::escape;
use crate::style::Progress;
use crate::table::{csv_number, csv_record};

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
    lacks.push("Figure 7 takes minutes: `landfall paper qpip`, as root, measures it".into());
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
    qpip::add_datagrams(&mut group);
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
            let (exhibit, place, column) = figure_3(row.protocol, row.variant)?;
            let by = format!("{by}, spinning");
            Some(Found::new(exhibit, place, column, row.rtt_ns_p50? / 1e3, by))
        }
        Mode::Overhead => {
            let place = if is_ours { "QPIP" } else { "Host-based IP" };
            let us = row.overhead_ns_per_message? / 1e3;
            Some(Found::new("Table 1", place, "µs", us, by))
        }
        Mode::Throughput => None,
    }
}

/// Where a byte there and back belongs: queue pairs by their own TCP and UDP in Figure 3, and the
/// kernel's sockets beside them.
fn figure_3(
    protocol: &str,
    variant: Option<&str>,
) -> Option<(&'static str, &'static str, &'static str)> {
    const QUEUE_PAIRS: &str = "Section 4.2.1, Figure 3";
    const SOCKETS: &str = "Section 4.2.1, Figure 3, sockets";
    let in_firmware = "checksum in firmware, µs";
    Some(match (protocol, variant) {
        ("qpip", Some(qpip::DATAGRAMS)) => (QUEUE_PAIRS, "UDP", in_firmware),
        ("qpip", _) => (QUEUE_PAIRS, "TCP", in_firmware),
        ("tcp", _) => (SOCKETS, "this machine's sockets", "TCP, µs"),
        ("udp", _) => (SOCKETS, "this machine's sockets", "UDP, µs"),
        _ => return None,
    })
}

/// What all pages say of live values.
const ABOUT: &str = "Measured live on this machine, which is not the paper's: what compares is \
                     each value with others of its table. The paper's value and the model's \
                     stand beside where there are any.";

const WARNING: &str = "A quick look or a debug build: these values say nothing.";

/// As many digits as say something; nothing where there is no value.
fn or_nothing(value: Option<f64>) -> String {
    value.map(number).unwrap_or_default()
}

/// The lines of a CSV file.
pub(in super::super) fn csv(exhibit: &LiveExhibit) -> String {
    let mut text = String::from("row,column,paper,model,live,by\r\n");
    for value in &exhibit.values {
        text += &csv_record([
            &value.row,
            value.column,
            &csv_number(value.paper),
            &csv_number(value.model),
            &csv_number(Some(value.live)),
            &value.by,
        ]);
    }
    text
}

impl Live {
    fn says_nothing(&self) -> bool {
        self.quick || self.machine.debug_build
    }
}

/// A chapter at the end of the page in Markdown.
pub(in super::super) fn markdown(live: &Live) -> String {
    let mut page =
        format!("\n## Live, on this machine\n\n{ABOUT}\n\n{}\n", live.machine.describe());
    if live.says_nothing() {
        let _ = write!(page, "\n**{WARNING}**\n");
    }
    for exhibit in &live.exhibits {
        let LiveExhibit { id, name, title, values } = exhibit;
        let _ = write!(page, "\n### Live: {name}: {title} ({id})\n\n");
        page.push_str(
            "| | | paper | model | **live** | by |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for LiveValue { row, column, paper, model, live, by } in values {
            let (paper, model) = (or_nothing(*paper), or_nothing(*model));
            let _ = writeln!(
                page,
                "| {row} | {column} | {paper} | {model} | **{}** | {by} |",
                number(*live)
            );
        }
    }
    if !live.absent.is_empty() {
        page.push_str("\n### Not measured\n\n");
        for absent in &live.absent {
            let _ = writeln!(page, "- {}: {}", absent.design, absent.reason);
        }
    }
    page
}

/// What belongs below an exhibit in HTML; nothing where nothing was measured for it.
pub(in super::super) fn html(live: &Live, id: &str) -> String {
    let Some(exhibit) = live.exhibits.iter().find(|exhibit| exhibit.id == id) else {
        return String::new();
    };
    let mut page = format!(
        "<details class=\"live\" open=\"open\">\n<summary><span class=\"badge\">live</span> on this \
         machine</summary>\n<p>{}</p>\n",
        escape(live.machine.describe())
    );
    if live.says_nothing() {
        let _ = writeln!(page, "<p class=\"off\">{}</p>", escape(WARNING));
    }
    page.push_str(
        "<div class=\"wide\"><table>\n<tr><th></th><th></th><th>paper</th><th>model</th>\
         <th>live</th><th>by</th></tr>\n",
    );
    for value in &exhibit.values {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number live\"><strong>{}</strong></td><td class=\"kind\">{}</td></tr>",
            escape(&value.row),
            escape(value.column),
            or_nothing(value.paper),
            or_nothing(value.model),
            number(value.live),
            escape(&value.by)
        );
    }
    let _ = writeln!(
        page,
        "</table></div>\n<p>File: <a href=\"{id}-live.csv\">{id}-live.csv</a></p>\n</details>"
    );
    page
}

/// What the page in HTML says at its beginning.
pub(in super::super) fn introduction(live: &Live) -> String {
    let mut text = format!(
        "<p><span class=\"badge\">live</span> {} {}</p>\n",
        escape(ABOUT),
        escape(live.machine.describe())
    );
    if !live.absent.is_empty() {
        text.push_str("<p>Not measured:</p>\n<ul>\n");
        for absent in &live.absent {
            let _ = writeln!(text, "<li>{}: {}</li>", absent.design, escape(&absent.reason));
        }
        text.push_str("</ul>\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_trip_has_a_row_of_its_own() {
        let by = [("qpip", None), ("qpip", Some(qpip::DATAGRAMS)), ("tcp", None), ("udp", None)];
        let mut places = by.map(|(protocol, variant)| figure_3(protocol, variant).unwrap());
        assert_eq!(places[1], ("Section 4.2.1, Figure 3", "UDP", "checksum in firmware, µs"));
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[0] != two[1]), "{places:?}");
        assert_eq!(figure_3("unix", None), None);
    }
}
