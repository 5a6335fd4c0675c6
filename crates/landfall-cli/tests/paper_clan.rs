//! `landfall paper clan` as people use it: what is printed has its shape, whatever the
//! speed of the machine.

mod common;

use common::{json, landfall};
use serde_json::Value;

const SIZES: [u64; 3] = [8, 752, 16_384];
const ENDPOINTS: [u64; 3] = [1, 10, 100];

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` is no list in {value:#}"))
}

fn names(ours: &[Value]) -> Vec<&str> {
    ours.iter().map(|one| one["name"].as_str().unwrap()).collect()
}

fn positive(value: &Value, name: &str) -> f64 {
    let number = value[name].as_f64().unwrap_or(f64::NAN);
    assert!(number > 0.0, "`{name}` in {value:#}");
    number
}

fn numbers(points: &[Value], name: &str) -> Vec<u64> {
    points.iter().map(|point| point[name].as_u64().unwrap()).collect()
}

#[test]
fn the_figures_come_with_the_paper_s_own_numbers_beside() {
    let output = landfall(&["paper", "clan", "--quick"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "Figure 7",
        "Figures 8 and 9",
        "Figure 9, overloaded",
        "Figure 10",
        "Table 1",
        "3.70",
        "1.90",
        "910",
        "7.90",
        "16.8",
        "340000",
        "2.90",
        "750",
        "6.00",
        "clan/shm",
        "clan/udp",
        "clan/channel",
        "unix/kernel",
        "tcp/kernel",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn the_figures_as_json_have_a_point_for_each_length_and_number_of_endpoints() {
    let report = json(&landfall(&["paper", "clan", "--quick", "--json"]));
    assert_eq!((&report["rounds"], &report["quick"]), (&1.into(), &true.into()));

    let words = list(&report["word"], "ours");
    assert_eq!(names(words)[..2], ["clan/shm", "clan/udp"]);
    assert_eq!(words.iter().filter(|word| word["peer"] == true).count(), 3, "{words:#?}");
    words.iter().for_each(|word| assert!(positive(word, "us") > 0.0));

    for (figure, curves) in [("figure_7", 5), ("figure_10", 6)] {
        let ours = list(&report[figure], "ours");
        assert_eq!(ours.len(), curves, "{figure}: {:?}", names(ours));
        for curve in ours {
            let points = list(curve, "points");
            assert_eq!(numbers(points, "bytes"), SIZES);
            let peak = positive(curve, "peak_mbit_per_s");
            let speeds = points.iter().map(|point| positive(point, "mbit_per_s"));
            assert_eq!(speeds.fold(0.0, f64::max), peak, "{curve:#}");
            let half = &curve["half_of_peak_bytes"];
            let is_within = |half: f64| (8.0..=16_384.0).contains(&half);
            assert!(half.as_f64().map_or(half.is_null(), is_within), "{curve:#}");
        }
    }

    let servers = list(&report["server"], "ours");
    assert_eq!(names(servers)[..2], ["clan/channel", "clan/udp"]);
    assert_eq!(servers.len(), 4);
    for server in servers {
        let points = list(server, "points");
        assert_eq!(numbers(points, "endpoints"), ENDPOINTS);
        for point in points {
            for figure in ["busy_us", "idle_us", "requests_per_s"] {
                positive(point, figure);
            }
        }
        assert_eq!(server["overload_endpoints"], 100, "{server:#}");
        assert_eq!(list(server, "overload").len(), 4, "{server:#}");
        for share in ["kept_with_most_endpoints", "kept_when_overloaded"] {
            assert!(positive(server, share) <= 1.0, "{server:#}");
        }
    }
    assert_eq!(list(&report, "server_absent"), [] as [Value; 0]);

    let why_not = &report["why_not_table_1"];
    let lines = list(&report["table_1"], "ours");
    assert_eq!(why_not.is_null(), !lines.is_empty(), "{report:#}");
    assert!(why_not.is_null() || why_not.as_str().unwrap().contains("root"), "{why_not}");
    landfall_testbed::require_namespaces!();
    assert_eq!(lines.len(), 2, "{report:#}");
    for line in lines {
        for figure in ["round_trip_us", "mbit_per_s", "stream_mbit_per_s"] {
            positive(line, figure);
        }
    }
}
