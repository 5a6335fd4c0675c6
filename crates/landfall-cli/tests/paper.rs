//! `landfall paper clan`, `landfall paper stp` and `landfall paper qpip` as people use them: what is printed has its
//! shape, whatever the speed of the machine.

use landfall_testbed::privileges;
use serde_json::Value;

use crate::common::{json, landfall, schema};

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
    assert_eq!(names(servers)[..3], ["clan/channel", "clan/shm", "clan/udp"]);
    assert_eq!(servers.len(), 5);
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

const OF_A_LINE: &str = "What `landfall paper stp --json` prints";

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
            for field in ["cpu_core_percent_receive", "cpu_core_percent_send"] {
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
    for part in ["Table 1", "Table 2", "TCP sendfile()", "MSG_TRUNC", "4136", "1064", "idle meter"]
    {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    let is_cable = privileges::why_no_namespaces().is_none();
    assert_eq!(text.contains("each frame crosses"), is_cable, "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

/// Why Figure 7 of QPIP cannot be measured here.
fn why_no_file_system() -> Option<String> {
    if !privileges::is_root() {
        return Some("needs root to mount a file system".into());
    }
    let lacks = |path: &&str| !std::path::Path::new(path).exists();
    let needed = ["/dev/fuse", "/dev/loop-control", "/usr/sbin/losetup", "/usr/sbin/mkfs.ext2"];
    needed.iter().find(|path| lacks(path)).map(|path| format!("needs {path}"))
}

/// One after another: loop devices are those of the whole machine, and none may be left.
static LOOP_DEVICES: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_file_system_on_a_network_block_device_is_written_and_read() {
    landfall_testkit::skip_unless!(why_no_file_system());
    landfall_testbed::require_namespaces!();
    let _alone = LOOP_DEVICES.lock();
    for (file_system, more) in [("ext2", [].as_slice()), ("ext4", &["--file-system", "ext4"])] {
        let words = [&["paper", "qpip", "--quick", "--json"], more].concat();
        let report = json(&landfall(&words));
        schema::check(&report, "What `landfall paper qpip --json` prints");
        assert_eq!(report["file_system"], file_system);
        assert_eq!((&report["bytes"], &report["rounds"]), (&8_000_000.into(), &1.into()));
        assert_eq!(report["paper"]["most_cpu_ratio"], 2.33);
        let rows = list(&report, "rows");
        assert_eq!(rows.len(), 6, "{report:#}");
        for row in rows {
            schema::check(row, "A row of `paper qpip`");
            let is_ours = row["transport"] == "queue pairs";
            for phase in ["write", "read"] {
                let figures = &row[phase];
                schema::check(figures, "Figures of `paper qpip`");
                for name in ["mb_per_s", "mb_per_client_cpu_s", "mb_per_cpu_s", "client_cores"] {
                    positive(figures, name);
                }
                assert_eq!(figures["ratio"].is_number(), is_ours, "{row:#}");
                assert_eq!(figures["client_cpu_ratio"].is_number(), is_ours, "{row:#}");
            }
        }
    }
    let loops = std::process::Command::new("losetup").arg("--all").output().unwrap();
    let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
    assert!(!loops.contains("landfall-"), "a loop device is left: {loops}");
}

#[test]
fn figure_7_of_qpip_has_the_paper_s_words_beside() {
    landfall_testkit::skip_unless!(why_no_file_system());
    landfall_testbed::require_namespaces!();
    let _alone = LOOP_DEVICES.lock();
    let output = landfall(&["paper", "qpip", "--quick"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["Figure 7", "each frame crosses", "super-packets", "ext2", "1.40 to 2.37", "2.33"]
    {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn without_root_figure_7_of_qpip_says_what_helps() {
    use std::os::unix::process::CommandExt;
    if !privileges::is_root() {
        let output = landfall(&["paper", "qpip", "--quick"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("sudo"));
        return;
    }
    // Where anybody may start it.
    let copy = std::env::temp_dir().join(format!("landfall-anybody-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_landfall"), &copy).unwrap();
    let mut command = std::process::Command::new(&copy);
    let output = command.args(["paper", "qpip", "--quick"]).uid(65_534).gid(65_534).output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("needs root: run it with sudo"), "{said}");
}
