//! The examples run, and print what they promise.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use landfall_testkit::skip::skip;

use crate::support::within;

/// `cargo test` builds examples beside tests; with `--test` it does not.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(|folder| folder.parent()).expect("target/PROFILE/deps");
    folder.join("examples").join(name)
}

fn says(name: &'static str, what: &[&str]) {
    let path = built(name);
    if !path.exists() {
        skip(name, "is not built: cargo build -p sockets-compat --examples");
        return;
    }
    let child = Command::new(path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("an example runs");
    let done = within(move || child.wait_with_output().expect("it ends"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complained = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{name} said:\n{said}{complained}");
    for what in what {
        assert!(said.contains(what), "{name} does not say {what:?}:\n{said}");
    }
}

#[test]
fn an_axum_server_and_a_client_of_hyper_talk_over_shared_memory() {
    says("http_over_clan", &["hello, clan", "3145728 bytes went there and came back"]);
}

#[test]
fn an_axum_server_and_a_client_of_hyper_talk_over_stp() {
    says("http_over_stp", &["hello, stp", "3145728 bytes went there and came back"]);
}

#[test]
fn an_axum_server_and_a_client_of_hyper_talk_https_over_queue_pairs() {
    says(
        "https_over_qp",
        &[
            "hello, nobody else reads this",
            "3145728 bytes went there and came back",
            "other.example is refused",
        ],
    );
}

#[test]
fn grpc_runs_over_queue_pairs() {
    says(
        "grpc_over_qp",
        &["ecalp sti sah etyb yreve", "InvalidArgument: nothing has no other end"],
    );
}
