//! How sockets behave with the library is how they behave without it: a few hundred small
//! observations, on the kernel's sockets and on ours, compared word for word.

mod common;

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use common::example;

fn run(with_library: bool) -> Vec<String> {
    let mut command = Command::new(example("socket_cases"));
    if with_library {
        command.env("LD_PRELOAD", example("libpreload_for_tests.so")).env("EXPECT_SHARED", "1");
    }
    let output = command.output().expect("the cases start");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "with the library: {with_library}; {}\n{}last seen: {:?}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        said.lines().last(),
    );
    said.lines().map(str::to_owned).collect()
}

#[test]
fn with_and_without_it_sockets_are_the_same() {
    let (kernel, ours) = (run(false), run(true));
    assert!(kernel.len() > 300, "only {} observations", kernel.len());
    let different: Vec<String> = kernel
        .iter()
        .zip(&ours)
        .filter(|(kernel, ours)| kernel != ours)
        .map(|(kernel, ours)| format!("kernel: {kernel}\n  ours: {ours}"))
        .collect();
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert_eq!(kernel.len(), ours.len());
}

/// Names of connections that processes of this user have left behind, in this network.
fn names() -> usize {
    const LEN: usize = 72;
    let network = std::fs::metadata("/proc/self/ns/net").expect("it has a network").ino();
    let network = format!("-{:08x}", network as u32);
    let folders = std::fs::read_dir("/dev/shm").expect("there is shared memory").flatten();
    let owner = |path: &std::path::Path| std::fs::metadata(path).map(|data| data.uid()).ok();
    let me = owner("/proc/self".as_ref());
    folders
        .filter(|folder| owner(&folder.path()) == me)
        .filter(|folder| folder.file_name().to_string_lossy().starts_with("landfall-sockets-"))
        .filter(|folder| folder.file_name().to_string_lossy().ends_with(&network))
        .filter_map(|folder| std::fs::read_dir(folder.path()).ok())
        .map(|names| names.flatten().filter(|name| name.file_name().len() == LEN).count())
        .sum()
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let mut command = Command::new(example("socket_cases"));
    command.args(["many", "10000"]).env("LD_PRELOAD", example("libpreload_for_tests.so"));
    let output = command.env("EXPECT_SHARED", "1").output().expect("the cases start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn who_is_killed_is_swept_up_after() {
    // A case that forks and kills, ended itself in the middle.
    let mut killed = Command::new(example("socket_cases"));
    killed.arg("killed_while_open").env("LD_PRELOAD", example("libpreload_for_tests.so"));
    let ended = killed.output().expect("the cases start").status;
    assert!(!ended.success(), "it was to be killed");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while names() > 0 {
        assert!(std::time::Instant::now() < deadline, "names are left behind");
        let mut next = Command::new("true");
        next.env("LD_PRELOAD", example("libpreload_for_tests.so"));
        assert!(next.status().expect("it starts").success());
    }
}
