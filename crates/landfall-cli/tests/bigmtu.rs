//! `landfall bigmtu` as people use it: it runs until a signal comes, and leaves nothing.
//! As an ordinary user these tests skip with one line.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces, skip_unless};

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
