//! `landfall paper stp` as people use it: both tables, line by line, whatever the speed of
//! the machine.

mod common;
#[path = "common/schema.rs"]
mod schema;

use common::{json, landfall};
use landfall_testbed::privileges;
use serde_json::Value;

const OF_A_LINE: &str = "What `landfall paper stp --json` prints";

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` is no list in {value:#}"))
}

/// Every line is there with what the paper states, and was measured.
fn check(report: &Value, is_cable: bool) {
    schema::check(report, OF_A_LINE);
    assert_eq!(report["link"], if is_cable { "veth" } else { "loopback" });
    assert_eq!(list(report, "absent"), [] as [Value; 0], "{report:#}");
    let (first, second) = (list(report, "table_1"), list(report, "table_2"));
    assert_eq!((first.len(), second.len()), (10, 4));
    assert_eq!(first[4]["paper"]["megabytes_per_s"], 98.0);
    assert_eq!(second[2]["paper"]["cpu_percent_receive"], 53.0);
    for line in first.iter().chain(second) {
        let is_stp = line["test"].as_str().unwrap().starts_with("STP");
        let ours = list(line, "ours");
        // Frames and super-packets; STP by UDP and, on a cable, by Ethernet.
        let expected = if is_cable { 2 } else { 1 } * if is_stp && is_cable { 2 } else { 1 };
        assert_eq!(ours.len(), expected, "{line:#}");
        for one in ours {
            schema::check(one, "A line has");
            assert!(one["megabytes_per_s"].as_f64() > Some(0.0), "{line:#}");
            assert!(one["ratio_to_tcp"].as_f64() > Some(0.0), "{line:#}");
            for field in ["cpu_soaker_percent_receive", "cpu_soaker_percent_send"] {
                let percent = one[field].as_f64().unwrap_or(f64::NAN);
                assert!((0.0..=100.0).contains(&percent), "{field} of {line:#}");
            }
        }
    }
}

#[test]
fn both_tables_come_out_of_one_command_without_privileges() {
    check(&json(&landfall(&["paper", "stp", "--quick", "--loopback", "--json"])), false);
}

#[test]
fn on_a_cable_frames_really_cross() {
    landfall_testbed::require_namespaces!();
    check(&json(&landfall(&["paper", "stp", "--quick", "--json"])), true);
}

#[test]
fn the_tables_show_the_paper_beside() {
    let output = landfall(&["paper", "stp", "--quick"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["Table 1", "Table 2", "TCP sendfile()", "MSG_TRUNC", "4136", "1064", "soaker"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    let is_cable = privileges::why_no_namespaces().is_none();
    assert_eq!(text.contains("each frame crosses"), is_cable, "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}
