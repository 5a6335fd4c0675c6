//! `perf local` end to end: every row has exactly the documented fields, and
//! what they say is possible. How fast it was is nobody's business here.

mod common;

use std::collections::BTreeSet;

use common::{json, landfall};
use landfall_testbed::require_namespaces;
use serde_json::Value;

/// The fields of a row. They are promised to users: adding one means adding it
/// here and in `docs/perf-json.md`; none goes.
const FIELDS: [&str; 30] = [
    "protocol",
    "transport",
    "peer",
    "mode",
    "polling",
    "mtu",
    "message_bytes",
    "goodput_bytes_per_s",
    "messages_per_s",
    "cpu_s_per_gb_send",
    "cpu_s_per_gb_receive",
    "cpu_s_per_gb_total",
    "payload_bytes",
    "variant",
    "rtt_ns_p50",
    "rtt_ns_p99",
    "user_copied_bytes",
    "retransmitted",
    "wakeups",
    "offload",
    "connections",
    "loss",
    "workload",
    "spread",
    "ratio_to_tcp",
    "ratio_basis",
    "ratio_to_tcp_same_message",
    "overhead_ns_per_message",
    "in_place",
    "lost_bytes",
];

const CPU: [&str; 3] = ["cpu_s_per_gb_send", "cpu_s_per_gb_receive", "cpu_s_per_gb_total"];
const RTT: [&str; 2] = ["rtt_ns_p50", "rtt_ns_p99"];

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
    let fields: BTreeSet<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(FIELDS), "{row:#}");
    let positive = |field: &str| assert!(row[field].as_f64().is_some_and(|v| v > 0.0), "{row:#}");
    let null = |field: &str| assert!(row[field].is_null(), "{field} of {row:#}");
    for field in ["protocol", "transport", "mode", "workload"] {
        assert!(row[field].is_string(), "{field} of {row:#}");
    }
    for field in ["peer", "polling", "offload"] {
        assert!(row[field].is_boolean(), "{field} of {row:#}");
    }
    for field in ["user_copied_bytes", "retransmitted", "wakeups", "lost_bytes"] {
        assert!(row[field].is_u64(), "{field} of {row:#}");
    }
    for field in ["mtu", "message_bytes", "connections", "ratio_to_tcp"] {
        positive(field);
    }
    assert!(row["loss"].is_number() && row["spread"].is_number(), "{row:#}");
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
        for_each(&CPU, null);
        for_each(&["goodput_bytes_per_s", "messages_per_s"], null);
    }
    let kernel = ["tcp", "udp", "unix"].iter().any(|name| row["protocol"] == *name);
    assert_eq!(row["transport"] == "kernel", kernel, "{row:#}");
    assert_eq!(row["peer"] == true, kernel || row["protocol"] == "memory", "{row:#}");
}

#[test]
fn loopback_needs_no_privilege_and_every_row_has_every_field() {
    let report = measure(&[]);
    rows(&report).iter().for_each(check);
    assert_eq!(report["machine"]["link"], "loopback");
    for (protocol, transport) in [("tcp", "kernel"), ("udp", "kernel"), ("test", "udp")] {
        for mode in ["throughput", "latency"] {
            assert!(!find(&report, protocol, transport, mode).is_empty(), "{protocol} {mode}");
        }
    }
    assert_eq!(find(&report, "test", "channel", "throughput").len(), 1);
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
    // Between two processes: asleep and awake; a stream, and queues.
    assert_eq!(find(&report, "clan", "shm", "latency").len(), 2);
    assert_eq!(find(&report, "clan", "shm", "throughput").len(), 3);
    assert_eq!(find(&report, "clan", "udp", "latency").len(), 1);
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
    // What was sent again is copied once more, or twice if it came through.
    assert!(copied <= 2 * (delivered + again * number("payload_bytes")), "{facts}");
}

#[test]
fn a_cable_gives_both_kinds_of_rows() {
    require_namespaces!();
    let report = measure(&["--veth", "--mtu", "1500"]);
    rows(&report).iter().for_each(check);
    assert_eq!(report["machine"]["link"], "veth");
    for transport in ["udp", "packet"] {
        let ours = find(&report, "test", transport, "throughput");
        for offload in [true, false] {
            assert!(ours.iter().any(|row| row["offload"] == offload), "{transport} {offload}");
        }
        assert_eq!(find(&report, "test", transport, "latency").len(), 1, "{transport}");
    }
    let payloads: BTreeSet<_> = find(&report, "test", "udp", "throughput")
        .iter()
        .map(|row| row["payload_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(payloads, BTreeSet::from([1024, 1424]));
}

/// Whoever joins, nothing is lost in silence, and what is counted as in place was not
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
