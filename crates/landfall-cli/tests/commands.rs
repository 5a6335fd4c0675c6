//! The program as people use it: `doctor`, `demo`, help, arguments that make no sense; and
//! `landfall bigmtu`, which runs until a signal comes, and leaves nothing.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};

use crate::common::{json, landfall};

#[test]
fn help_has_examples_and_exit_codes() {
    let output = landfall(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["doctor", "perf", "demo", "paper", "reproduce", "Examples:", "Exit codes:"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    let papers = [["paper", "defrag"], ["paper", "clan"]];
    let commands =
        [&["doctor"][..], &["demo"], &["perf", "local"], &papers[0], &papers[1], &["reproduce"]];
    for command in commands {
        let output = landfall(&[command, &["--help"]].concat());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"), "{command:?}");
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let senseless: [&[&str]; 11] = [
        &[],
        &["doctr"],
        &["doctor", "--require", "telepathy"],
        &["perf"],
        &["paper"],
        &["perf", "local", "--rounds", "0"],
        &["perf", "local", "--seconds", "soon"],
        &["perf", "local", "--seconds", "-1"],
        &["perf", "local", "--mtu", "68"],
        &["perf", "local", "--protocol", "smoke-signals"],
        &["paper", "defrag", "--seed", "-1"],
    ];
    for arguments in senseless {
        let output = landfall(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn doctor_names_what_is_there_and_a_remedy_for_the_rest() {
    let output = landfall(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "what is missing is no failure");
    let report = json(&output);
    assert!(report["machine"]["cores"].as_u64() > Some(0));
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() > 10);
    for finding in findings {
        let present = finding["present"].as_bool().unwrap();
        assert_eq!(finding["remedy"].is_null(), present, "{finding}");
        let feature = finding["feature"].as_str().unwrap();
        let output = landfall(&["doctor", "--require", feature]);
        assert_eq!(output.status.code(), Some(if present { 0 } else { 3 }), "{feature}");
    }
}

#[test]
fn doctor_is_plain_where_nobody_looks() {
    let output = landfall(&["doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("AF_PACKET") && text.contains("io_uring"));
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn the_demonstration_shows_every_act() {
    let output = landfall(&["demo", "--quick"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("as it should be").count(), 11, "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn the_demonstration_as_json_says_what_was_seen() {
    let output = landfall(&["demo", "--quick", "--json"]);
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let act = |name: &str| {
        let acts = report["acts"].as_array().unwrap();
        let act = acts.iter().find(|act| act["name"] == name).unwrap();
        assert_eq!((&act["ok"], &act["error"]), (&true.into(), &().into()), "{act:#}");
        act["facts"].clone()
    };
    let bulk = act("bulk");
    assert!(bulk["compared_bytes"].as_u64() > Some(0) && bulk["ratio_to_tcp"].is_f64());
    assert_eq!(bulk["hash"].as_str().map(str::len), Some(64), "{bulk}");
    let striping = act("striping");
    let packets = |field: &str| striping[field][1].as_u64();
    assert!(packets("packets_at_half") > Some(0), "both paths carried some: {striping}");
    assert!(packets("packets_at_end") >= packets("packets_at_half"), "{striping}");
    let remote = act("remote-memory");
    for count in ["puts", "fetch_ops", "gets"] {
        assert!(remote[count].as_u64() > Some(0), "{remote}");
    }
    assert!(remote["ratio_to_tcp"].is_f64() && remote["tcp_rtt_ns_p50"].is_f64(), "{remote}");
    let firmware = act("firmware");
    let way = |way: &str, field: &str| firmware[way][field].as_u64().unwrap();
    assert_eq!(way("adapters", "user_copied_bytes"), 0, "the cards place: {firmware}");
    assert!(way("host", "user_copied_bytes") > 0, "a channel copies: {firmware}");
    for name in ["host", "adapters", "adapters_of_the_period"] {
        assert!(way(name, "units") >= way(name, "notifications"), "{firmware}");
        assert!(way(name, "notifications") > 0, "{firmware}");
    }
    let pairs = act("queue-pairs");
    assert!(pairs["overhead_ns"].as_f64() > Some(0.0) && pairs["ratio_to_tcp"].is_f64(), "{pairs}");
    assert!(pairs["compared_bytes"].as_u64() > Some(0), "{pairs}");
    assert_eq!(pairs["kernel"].is_null(), pairs["why_no_kernel"].is_string(), "{pairs}");
    let fragments = act("fragments");
    let in_place = |field: &str| fragments[field].as_u64().unwrap();
    assert!(in_place("in_place_disturbed") < in_place("in_place_before"), "{fragments}");
    assert!(fragments["compared_bytes"].as_u64() > Some(0), "{fragments}");
    assert_eq!(fragments["live"].is_null(), fragments["why_not_live"].is_string(), "{fragments}");
    let faults = act("faults");
    assert_eq!(faults["compared_bytes"], faults["sent_bytes"], "every byte was compared");
    assert!(faults["lost"].as_u64() > Some(0) && faults["retransmitted"].as_u64() > Some(0));
    // In and out of a frame: two copies of each byte, and of what came twice.
    let channel = act("channel");
    let copied = channel["user_copied_bytes"].as_u64();
    assert!(copied >= channel["delivered_bytes"].as_u64().map(|bytes| 2 * bytes), "{channel}");
    assert_eq!(act("regions")["read_where_it_landed"], true);
    let simulated = act("simulated");
    assert_eq!(simulated["digest"], simulated["digest_again"]);
    assert_ne!(simulated["digest"], simulated["digest_of_another_seed"]);
    // Blocks of 64 units: one notification for each, as in the paper.
    let number = |field: &str| simulated[field].as_u64().unwrap();
    assert_eq!(number("units"), number("message_bytes") / 1024);
    assert_eq!(number("notifications"), number("units") / 64);
    assert_eq!(number("notifications_saved_per_mille"), 984);
    assert!(number("lost") > 0 && number("retransmitted") > 0);
    assert!(
        simulated["link_bytes"].as_array().unwrap().iter().all(|bytes| bytes.as_u64() > Some(0))
    );
}

#[test]
fn the_tables_of_a_paper_come_with_its_own_numbers_beside() {
    let output = landfall(&["paper", "defrag", "--simulated", "--quick"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["Table 1", "Table 2: TPC-D", "Table 2: SOR", "129835", "48.1 %", "learned"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn the_tables_of_a_paper_as_json_replay_by_their_seed() {
    let run = |seed| {
        json(&landfall(&["paper", "defrag", "--simulated", "--quick", "--json", "--seed", seed]))
    };
    let first = run("7");
    assert_eq!(first, run("7"));
    assert_eq!(first["seed"], 7);
    let applications = first["table_2"].as_array().unwrap();
    assert_eq!(applications.len(), 2);
    for application in applications {
        for station in application["stations"].as_array().unwrap() {
            let packets = station["single"]["packets"].as_u64();
            assert!(packets > Some(0), "{station:#}");
            for way in ["single", "learned"] {
                assert!(station[way]["successful"].as_u64() <= packets, "{station:#}");
                assert_eq!(station[way]["packets"].as_u64(), packets, "{station:#}");
            }
        }
    }
    assert_eq!(first["table_1"].as_array().unwrap().len(), 5);
}

#[test]
fn the_figures_of_a_paper_are_measured_on_a_cable() {
    landfall_testbed::require_namespaces!();
    landfall_testbed::skip_unless!(landfall_testbed::ingress::why_no_ingress());
    let report = json(&landfall(&["paper", "defrag", "--quick", "--json"]));
    assert!(report["why_not_live"].is_null(), "{report:#}");
    let bars = report["live"]["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 7);
    for bar in bars {
        assert!(bar["megabytes_per_second"].as_f64() > Some(0.0), "{bar:#}");
    }
    let lines = report["live"]["table_1"].as_array().unwrap();
    assert_eq!(lines.len(), 6, "three lines for each of two predictors");
    for line in lines {
        assert_eq!(line["packets"], 10_000, "{line:#}");
        assert!(line["failed"].as_u64() <= line["packets"].as_u64(), "{line:#}");
    }
    let text = landfall(&["paper", "defrag", "--quick"]);
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["with page remapping", "with fast buffers", "standard sender", "of undisturbed"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
}

/// Runs a program in a namespace; gives what it printed.
fn run(namespace: &Namespace, words: &[&str]) -> String {
    let output = namespace.enter(|| Command::new(words[0]).args(&words[1..]).output());
    let output = output.unwrap().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Ends by itself, should the test not end it.
fn bigmtu(lower: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["bigmtu", "--lower", lower, "--mtu", "9000", "--seconds", "60"]);
    command.args(["--stats", "0", "--address", "10.9.0.1/24"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let end = &cable.a;
    run(&end.namespace, &["ip", "address", "flush", "dev", &end.name]);
    for signal in ["-INT", "-TERM"] {
        let mut child = end.namespace.enter(|| bigmtu(&end.name).spawn()).unwrap().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        assert!(first.starts_with("big0 is up: MTU 9000"), "{first}");
        assert!(run(&end.namespace, &["ip", "address"]).contains("10.9.0.1/24"));
        run(&end.namespace, &["kill", signal, &child.id().to_string()]);
        assert!(child.wait().unwrap().success());
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(rest.starts_with("big0 is gone."), "{rest}");
        assert!(!run(&end.namespace, &["ip", "link"]).contains("big0"));
        assert!(run(&end.namespace, &["nft", "list", "tables"]).is_empty());
    }
}

#[test]
fn a_link_in_use_is_refused_with_advice() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let output = cable.a.namespace.enter(|| bigmtu(&cable.a.name).output()).unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ip address flush dev"), "{said}");
}

#[test]
fn a_program_runs_while_a_fast_stream_is_asked_for() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let socket = std::env::temp_dir().join(format!("landfall-ask-{}.sock", std::process::id()));
    let start = |end: &VethEnd, more: &[&str]| {
        run(&end.namespace, &["ip", "address", "flush", "dev", &end.name]);
        let start = || bigmtu(&end.name).args(["--admission", "clear"]).args(more).spawn();
        let mut child = end.namespace.enter(start).unwrap().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("big0 is up"), "{first}");
        child
    };
    let path = socket.to_str().unwrap();
    let children = [start(&cable.a, &["--control", path]), start(&cable.b, &[])];
    let station = cable.b.mac.0.map(|byte| format!("{byte:02x}")).join(":");
    let station = station.as_str();
    let ask = |words: &[&str]| landfall(&[&["bigmtu-ask", path], words].concat());
    for (program, code) in [("true", 0), ("false", 1)] {
        let output = ask(&[station, "--", program]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "it was fast: {output:?}");
    }
    let told = ask(&[station, "--seconds", "1"]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("fast"), "{told:?}");
    let wrong = ask(&["nobody"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("a station is"), "{wrong:?}");
    for mut child in children {
        run(&cable.a.namespace, &["kill", "-INT", &child.id().to_string()]);
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(landfall(&["bigmtu-ask", path, station]).status.code(), Some(1), "it is gone");
}
