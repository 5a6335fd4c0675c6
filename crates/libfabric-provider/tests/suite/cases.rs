//! What a provider has to do: `cases.c` with `tcp;ofi_rxm` of libfabric, with ours, and with
//! `ofi_rxm` above ours; `connected.c`, where endpoints are connected, with `tcp` and with ours.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::TemporaryFolder;
use landfall_testkit::or_skip;
use landfall_testkit::trials::{count_kills, kills};

use crate::tools::{compile, here, need_headers, provider_folder, run, text};

pub(crate) const OURS: &str = "landfall";
const OTHER: &str = "tcp;ofi_rxm";
/// libfabric's own layer, which makes `FI_EP_RDM` of our `FI_EP_MSG`.
pub(crate) const LAYERED: &str = "landfall;ofi_rxm";
/// The other one where endpoints are connected.
const OTHER_CONNECTED: &str = "tcp";

/// No case takes longer, not even one that waits for a peer to be given up.
pub(crate) const LIMIT: Duration = Duration::from_secs(45);

pub(crate) fn program() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<(TemporaryFolder, PathBuf), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        need_headers()?;
        let folder = TemporaryFolder::new("fabric-cases");
        let program = folder.path().join("cases");
        let sources = ["cases.c", "abuse.c", "connected.c", "fabric.c"]
            .map(|name| here().join("tests/suite").join(name));
        compile("cc", &sources, &program, &["-lfabric"])?;
        Ok((folder, program))
    });
    built.as_ref().map(|(_, program)| &**program).map_err(String::as_str)
}

fn check(provider: &str, case: &str) {
    let program = or_skip!(program(), case);
    let is_deadly = case.starts_with("dead_");
    for _ in 0..if is_deadly { kills(1) } else { 1 } {
        let mut command = Command::new(program);
        command.args([provider, case]).env("FI_PROVIDER_PATH", provider_folder());
        // Peers that are gone are given up sooner than users would like.
        command.env("FI_LANDFALL_PATIENCE", if case == "stopped_peer" { "30" } else { "1" });
        let output = run(command, LIMIT);
        assert!(output.status.success(), "{provider}: {case}: {}", text(&output));
        if is_deadly {
            count_kills("a peer of libfabric", 1);
        }
    }
}

/// Two processes with a cable between them, and a key: everything is encrypted.
#[test]
fn cases_hold_between_hosts() {
    require_namespaces!();
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let all = ["all_lengths", "connection", "crossing", "remote_memory", "atomics"];
    for (case, key) in all.into_iter().zip([true, false].into_iter().cycle()) {
        let addresses = [&cable.a, &cable.b].map(|end| end.ipv4.into());
        check_between([&cable.a, &cable.b], addresses, program, case, |command| {
            encrypt(command, key);
        });
    }
}

#[test]
fn cases_hold_between_hosts_over_ipv6() {
    require_namespaces!();
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let addresses = [&cable.a, &cable.b].map(|end| IpAddr::from(end.ipv6));
    let all = ["sources", "all_lengths", "connection", "remote_memory", "atomics", "datagrams"];
    for (case, key) in all.into_iter().zip([true, false].into_iter().cycle()) {
        check_between([&cable.a, &cable.b], addresses, program, case, |command| {
            encrypt(command, key);
        });
    }
}

/// With the key that both have, or in the clear.
pub(crate) fn encrypt(command: &mut Command, key: bool) {
    match key {
        true => command.env("FI_LANDFALL_KEY", "5a".repeat(32)),
        false => command.env("FI_LANDFALL_PLAINTEXT", "1"),
    };
}

/// One process at each end of a cable, at these addresses.
pub(crate) fn check_between(
    [here, there]: [&VethEnd; 2],
    addresses: [IpAddr; 2],
    program: &Path,
    case: &str,
    set: impl FnOnce(&mut Command),
) {
    let descriptor = there.namespace.as_fd().as_raw_fd();
    let namespace = format!("/proc/{}/fd/{descriptor}", std::process::id());
    let [own, other] = addresses.map(|address| address.to_string());
    let mut command = Command::new(program);
    command.args([OURS, case, &own, &namespace, &other]);
    command.env("FI_PROVIDER_PATH", provider_folder());
    set(&mut command);
    let output = here.namespace.enter(move || run(command, LIMIT)).unwrap();
    assert!(output.status.success(), "{case}: {}", text(&output));
}

/// The one of libfabric's whose messages may be lost.
const OTHER_OF_DATAGRAMS: &str = "udp";

mod datagrams {
    #[test]
    fn ours() {
        super::check(super::OURS, "datagrams");
    }

    #[test]
    fn other() {
        super::check(super::OTHER_OF_DATAGRAMS, "datagrams");
    }
}

macro_rules! cases {
    ($($case:ident $(, not with the other: $why:literal)?;)*) => {
        mod ours {
            $(#[test] fn $case() { super::check(super::OURS, stringify!($case)); })*
        }
        mod other {
            $(cases!(@both OTHER $case $($why)?);)*
        }
        mod layered {
            $(cases!(@both LAYERED $case $($why)?);)*
        }
    };
    (@both $provider:ident $case:ident) => {
        #[test] fn $case() { super::check(super::$provider, stringify!($case)); }
    };
    // What it says of the other is so for the layer that both have.
    (@both $provider:ident $case:ident $why:literal) => {};
}

macro_rules! connected_cases {
    ($($case:ident;)*) => {
        mod connected {
            $(#[test] fn $case() { super::check(super::OURS, stringify!($case)); })*
        }
        mod other_connected {
            $(#[test] fn $case() { super::check(super::OTHER_CONNECTED, stringify!($case)); })*
        }
    };
}

connected_cases! {
    connection;
    rejected;
    connected_memory;
    several_connections;
    event_descriptor;
    dead_connection;
    nobody_listens;
}

cases! {
    tagged;
    ignored_bits;
    all_lengths;
    order;
    empty_messages;
    injected_data;
    pieces;
    truncated, not with the other: "a message of the ring that is too long ends its connection";
    cancelled;
    peeked;
    remote_memory;
    remote_data;
    atomics;
    forbidden_memory, not with the other: "a key that is not there ends the connection";
    selective;
    descriptor;
    several;
    counters, not with the other: "it has no fi_cntr_wait without a wait object";
    self_sends;
    crossing;
    delivered;
    dead_peer, not with the other: "it offers its room again and again, and no error";
    stopped_peer;
    absent_peer, not with the other: "it offers its room again and again, and no error";
    overflowing_queue, not with the other: "a queue that is full loses what comes, or takes all the memory there is";
    unread_messages, not with the other: "receives are posted whatever the queue holds";
    renewed_memory, not with the other: "a key that is not there ends the connection";
    forked, not with the other: "a child that uses what it has inherited speaks for its parent";
    addresses;
    sources;
    offers, not with the other: "it takes any name of a domain";
}
