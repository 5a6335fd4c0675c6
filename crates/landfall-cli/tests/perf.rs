//! `perf local` end to end: every row has exactly the documented fields, and
//! what they say is possible. How fast it was is nobody's business here.

use std::collections::BTreeSet;

use landfall_testbed::require_namespaces;
use serde_json::Value;

use crate::common::{json, landfall, schema};
use crate::xml;

const CPU: [&str; 3] = ["cpu_s_per_gb_send", "cpu_s_per_gb_receive", "cpu_s_per_gb_total"];
const CORE_BUSY: [&str; 2] = ["cpu_core_percent_send", "cpu_core_percent_receive"];
const RTT: [&str; 4] = ["rtt_ns_p50", "rtt_ns_p90", "rtt_ns_p99", "rtt_ns_p999"];

fn for_each(fields: &[&str], check: impl Fn(&str)) {
    fields.iter().for_each(|field| check(field));
}

/// Runs it with short runs; gives the report.
fn measure(more: &[&str]) -> Value {
    let short = ["perf", "local", "--json", "--rounds", "1", "--seconds", "0.05"];
    let output = landfall(&[&short, more].concat());
    let report = json(&output);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{problems}\n{report:#}");
    let keys: BTreeSet<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["machine", "rows"]));
    for absent in report["machine"]["absent"].as_array().unwrap() {
        let transport = absent["transport"].as_str().unwrap();
        assert!(problems.contains(&format!("/{transport}: ")), "said aloud: {absent}\n{problems}");
    }
    report
}

fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().unwrap()
}

fn find<'a>(report: &'a Value, protocol: &str, transport: &str, mode: &str) -> Vec<&'a Value> {
    let is_it = |row: &&Value| {
        row["protocol"] == protocol && row["transport"] == transport && row["mode"] == mode
    };
    rows(report).iter().filter(is_it).collect()
}

fn check(row: &Value) {
    schema::check(row, "A row");
    let positive = |field: &str| assert!(row[field].as_f64().is_some_and(|v| v > 0.0), "{row:#}");
    let null = |field: &str| assert!(row[field].is_null(), "{field} of {row:#}");
    for field in ["user_copied_bytes", "retransmitted", "wakeups", "lost_bytes"] {
        assert!(row[field].is_u64(), "{field} of {row:#}");
    }
    for field in ["mtu", "message_bytes", "connections", "ratio_to_tcp"] {
        positive(field);
    }
    assert_eq!(row["ratio_basis"], "best-row", "{row:#}");
    if row["mode"] == "throughput" {
        positive("goodput_bytes_per_s");
        positive("messages_per_s");
        assert!(CPU.iter().all(|field| row[field].is_number()), "{row:#}");
        for_each(&RTT, null);
    } else if row["mode"] == "overhead" {
        positive("overhead_ns_per_message");
        for_each(&RTT, null);
        for_each(&CPU, null);
        for_each(&["goodput_bytes_per_s", "messages_per_s"], null);
    } else {
        assert_eq!(row["mode"], "latency");
        null("overhead_ns_per_message");
        for_each(&RTT, positive);
        let rtts = RTT.map(|field| row[field].as_f64().unwrap());
        assert!(rtts.is_sorted(), "{row:#}");
        for_each(&CPU, null);
        for_each(&["goodput_bytes_per_s", "messages_per_s"], null);
    }
    let kernel = ["tcp", "udp", "unix"].iter().any(|name| row["protocol"] == *name);
    assert_eq!(row["transport"] == "kernel", kernel, "{row:#}");
    assert_eq!(
        row["peer"] == true,
        kernel || ["memory", "memcpy"].iter().any(|name| row["protocol"] == *name),
        "{row:#}"
    );
}

#[test]
fn loopback_needs_no_privilege_and_every_row_has_every_field() {
    let report = measure(&[]);
    rows(&report).iter().for_each(check);
    schema::check_settings(&report["machine"]);
    assert!(rows(&report).iter().all(|row| row[CORE_BUSY[0]].is_null()), "nobody asked for it");
    assert_eq!(report["machine"]["link"], "loopback");
    for (protocol, transport) in [("tcp", "kernel"), ("udp", "kernel"), ("stp", "udp")] {
        for mode in ["throughput", "latency"] {
            assert!(!find(&report, protocol, transport, mode).is_empty(), "{protocol} {mode}");
        }
    }
    // As it is, encrypted, with the paper's STU, over many connections, by Puts, and with loss.
    let transfers = find(&report, "stp", "udp", "throughput");
    let variants: BTreeSet<_> = transfers.iter().map(|row| row["variant"].as_str()).collect();
    let others = [Some("Puts of 1 MiB"), Some("1 % lost"), Some("1 % lost, 2 % tolerated")];
    let wanted = [None, Some("encrypted"), Some("100 connections"), Some("STU of 1024")];
    assert_eq!(variants, wanted.into_iter().chain(others).collect());
    let best = find(&report, "tcp", "kernel", "latency");
    assert_eq!(best[0]["ratio_to_tcp"], 1.0, "TCP's only row is its best");
    let loops = find(&report, "tcp", "kernel", "throughput");
    assert!(loops.iter().all(|row| row["ratio_to_tcp_same_message"].is_number()), "{loops:#?}");
    for (transport, modes) in
        [("tunnel", &["throughput", "latency"][..]), ("channel", &["throughput"])]
    {
        for mode in modes {
            assert!(!find(&report, "qpip", transport, mode).is_empty(), "{transport} {mode}");
        }
    }
    // A block device over what carries its bytes.
    for (transport, mode) in
        [("tcp", "throughput"), ("tcp", "latency"), ("stp", "throughput"), ("stp", "latency")]
    {
        assert_eq!(find(&report, "nbd", transport, mode).len(), 1, "{transport} {mode}");
    }
    // Between two processes: asleep and awake; a stream, and queues.
    assert_eq!(find(&report, "clan", "shm", "latency").len(), 2);
    assert_eq!(find(&report, "clan", "shm", "throughput").len(), 3);
    // Plain and encrypted.
    assert_eq!(find(&report, "clan", "udp", "latency").len(), 2);
    let absent = report["machine"]["absent"].as_array().unwrap();
    assert!(absent.iter().any(|row| row["transport"] == "packet"), "{absent:?}");
}

#[test]
fn only_what_was_asked_for_is_measured_beside_tcp() {
    let report = measure(&["--protocol", "udp", "--mtu", "1500,1500"]);
    let protocols: BTreeSet<_> =
        rows(&report).iter().map(|row| row["protocol"].as_str().unwrap()).collect();
    assert_eq!(protocols, BTreeSet::from(["tcp", "udp"]));
    assert!(rows(&report).iter().all(|row| row["mtu"] == 1500));
    assert_eq!(find(&report, "udp", "kernel", "latency").len(), 1, "an MTU counts once");
}

/// Over a channel each byte is copied into a frame and out of it again. What
/// was delivered is known from goodput and the counts of the application: with
/// nothing sent again, the copies must be exactly twice that.
#[test]
fn user_copied_bytes_are_what_was_copied() {
    let output = landfall(&["demo", "--quick", "--json"]);
    let report = json(&output);
    let acts = report["acts"].as_array().unwrap();
    let facts = &acts.iter().find(|act| act["name"] == "channel").unwrap()["facts"];
    let number = |field: &str| facts[field].as_u64().unwrap();
    let (copied, delivered) = (number("user_copied_bytes"), number("delivered_bytes"));
    let again = number("retransmitted");
    assert!(delivered > 0);
    assert!(copied >= 2 * delivered);
    // What was sent again is copied once more, or twice if it came through: in frames of
    // a channel, which hold no more than this.
    assert!(copied <= 2 * (delivered + again * 65_536), "{facts}");
}

#[test]
fn a_cable_gives_both_kinds_of_rows() {
    require_namespaces!();
    let report = measure(&["--veth", "--mtu", "1500"]);
    rows(&report).iter().for_each(check);
    assert_eq!(report["machine"]["link"], "veth");
    for (protocol, transport) in [
        ("stp", "udp"),
        ("stp", "0x8181"),
        ("stp", "ip-118"),
        ("stp", "xdp-0x8181"),
        ("stp", "uring-udp-packet"),
        ("qpip", "packet"),
    ] {
        let ours = find(&report, protocol, transport, "throughput");
        for offload in [true, false] {
            assert!(ours.iter().any(|row| row["offload"] == offload), "{transport} {offload}");
        }
        let trips = find(&report, protocol, transport, "latency");
        let plain = trips.iter().filter(|row| row["variant"].is_null());
        assert_eq!(plain.count(), 1, "{transport}");
    }
    let streams = find(&report, "qpip", "xdp", "throughput");
    assert_eq!(streams.len(), 2, "messages of two lengths");
    assert!(streams.iter().all(|row| row["offload"] == false));
    assert_eq!(find(&report, "qpip", "xdp", "latency").len(), 1);
}

/// No matter who joins, nothing is lost in silence, and what is counted as in place was not
/// copied.
#[test]
fn pages_in_fragments_are_joined_by_us_and_by_the_kernel() {
    require_namespaces!();
    landfall_testbed::skip_unless!(landfall_testbed::ingress::why_no_ingress());
    let report = measure(&["--veth", "--mtu", "1500", "--protocol", "defrag"]);
    rows(&report).iter().for_each(check);
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
    for row in find(&report, "conventional", "packet", "throughput") {
        assert_eq!(row["in_place"], 0.0, "{row:#}");
        assert!(row["user_copied_bytes"].as_u64() > Some(0), "{row:#}");
    }
    let posted = find(&report, "defrag", "packet", "throughput");
    for size in [4096, 8192, 16_384, 61_440] {
        assert!(posted.iter().any(|row| row["message_bytes"] == size), "{size}");
    }
    let share = |row: &&Value| (0.0..=1.0).contains(&number(row, "in_place"));
    assert!(posted.iter().all(share), "{posted:#?}");
    let lent = find(&report, "defrag", "packet-ring", "throughput");
    assert!(!lent.is_empty() && lent.iter().all(share), "{lent:#?}");
    let kernel = find(&report, "udp", "kernel", "throughput");
    assert!(kernel.len() >= 5, "{kernel:#?}");
    assert!(kernel.iter().all(|row| row["in_place"].is_null() && row["peer"] == true));
}

#[test]
fn a_cable_without_privilege_is_refused_in_clear_words() {
    if landfall_testbed::privileges::why_no_namespaces().is_none() {
        return; // Privileged: the test above is the one that counts.
    }
    let output = landfall(&["perf", "local", "--veth"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--veth") && text.contains("landfall doctor"), "{text}");
}

/// What its own rows say agrees with what was asked for.
#[test]
fn each_message_length_has_its_rows_and_the_picture_a_curve() {
    let folder = std::env::temp_dir().join(format!("landfall-perf-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let plot = folder.join("sweep.svg");
    let more = ["--message", "64,16K", "--protocol", "stp,qpip,unix,udp,clan", "--plot"];
    let report = measure(&[&more[..], &[plot.to_str().unwrap()]].concat());
    let picture = std::fs::read_to_string(&plot).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    rows(&report).iter().for_each(check);
    for (protocol, transport) in
        [("tcp", "kernel"), ("unix", "kernel"), ("stp", "udp"), ("qpip", "tunnel"), ("clan", "shm")]
    {
        let lengths: BTreeSet<_> = find(&report, protocol, transport, "throughput")
            .iter()
            .map(|row| row["message_bytes"].as_u64().unwrap())
            .collect();
        assert_eq!(lengths, BTreeSet::from([64, 16 << 10]), "{protocol}/{transport}");
    }
    // Round trips up to a kibibyte.
    let trips = find(&report, "stp", "udp", "latency");
    assert!(trips.len() == 1 && trips[0]["message_bytes"] == 64, "{trips:#?}");
    let elements = xml::check(&picture).unwrap();
    xml::check_numbers(&elements).unwrap();
    assert!(elements.iter().any(|element| element.name == "polyline"), "{picture}");
    assert!(picture.contains("bytes a message") && picture.contains(">stp/udp<"), "{picture}");
}

#[test]
fn every_workload_has_its_row_and_the_idle_meter_says_how_busy_each_core_was() {
    let report = measure(&["--workload", "all", "--idle-meter", "--protocol", "stp,unix"]);
    rows(&report).iter().for_each(check);
    let workloads = |protocol, transport| -> BTreeSet<String> {
        let rows = find(&report, protocol, transport, "throughput");
        rows.iter().map(|row| row["workload"].as_str().unwrap().to_owned()).collect()
    };
    let all = ["plain", "sendfile", "trunc", "sendfile-trunc", "touch"].map(str::to_owned);
    assert_eq!(workloads("tcp", "kernel"), all.into());
    assert_eq!(workloads("stp", "udp"), ["plain", "touch"].map(str::to_owned).into());
    for row in rows(&report).iter().filter(|row| row["mode"] == "throughput") {
        for field in CORE_BUSY {
            let percent = row[field].as_f64().unwrap_or(f64::NAN);
            assert!((0.0..=100.0).contains(&percent), "{field} of {row:#}");
        }
    }
    // Who reads what came is compared with who reads it, too.
    let touching = find(&report, "tcp", "kernel", "throughput");
    let touching: Vec<_> = touching.iter().filter(|row| row["workload"] == "touch").collect();
    assert_eq!(touching[0]["ratio_to_tcp"], 1.0);
}

#[test]
fn many_connections_and_losses_are_counted() {
    let report =
        measure(&["--connections", "7", "--loss", "0.01", "--protocol", "stp,qpip,unix,udp"]);
    rows(&report).iter().for_each(check);
    for (protocol, transport) in [("tcp", "kernel"), ("unix", "kernel"), ("stp", "udp")] {
        for row in find(&report, protocol, transport, "throughput") {
            assert_eq!(row["connections"], 7, "{row:#}");
            assert_eq!(row["loss"], if protocol == "stp" { 0.01 } else { 0.0 }, "{row:#}");
        }
    }
    let absent = report["machine"]["absent"].as_array().unwrap();
    for (protocol, word) in [("tcp", "loss"), ("udp", "connections"), ("qpip", "queue pair")] {
        let said = |row: &&Value| row["reason"].as_str().unwrap().contains(word);
        let of_it = |row: &&Value| row["protocol"] == protocol;
        assert!(absent.iter().filter(of_it).any(|row| said(&row)), "{protocol}: {absent:#?}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_told_before_anything_is_measured() {
    for place in ["/tmp", "plot.png", "/no/such/folder/plot.svg"] {
        let output = landfall(&["perf", "local", "--seconds", "600", "--plot", place]);
        assert_eq!(output.status.code(), Some(1), "{place}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("--plot") && text.contains(place), "{text}");
    }
}
