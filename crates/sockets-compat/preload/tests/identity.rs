//! Anyone who is not the other end of a connection does not get into its memory: neither another
//! user nor one of the same who moves files about. All bytes arrive right, by TCP, and the log
//! says why. Nor does another user end programs by leaving them no memory.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::example;
use landfall_testbed::{Namespace, require_namespaces};

/// Runs a case by itself, with the library or without; what it saw, and the lines of the log.
fn run(case: &str, name: &str, with_library: bool) -> (String, Vec<String>) {
    let log = std::env::temp_dir().join(format!("landfall-identity-{}-{name}", std::process::id()));
    let mut command = Command::new(example("socket_cases"));
    command.arg(case);
    if with_library {
        command.env("LD_PRELOAD", example("libpreload_for_tests.so")).env("LANDFALL_LOG", &log);
    }
    let output = command.output().expect("the cases start");
    let said = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(log);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    (seen, said.lines().map(str::to_owned).collect())
}

/// The case sees what it sees on the kernel's sockets, nothing of it goes by memory, and one
/// of the ends says why.
#[track_caller]
fn goes_by_tcp(case: &str, name: &str, why: &str) {
    let (kernel, _) = run(case, name, false);
    let (ours, lines) = run(case, name, true);
    assert!(!kernel.is_empty() && kernel == ours, "kernel: {kernel}\nours: {ours}\n{lines:#?}");
    assert!(lines.iter().all(|line| line.contains(": tcp: ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains(why)), "{lines:#?}");
}

#[test]
fn exchanged_names_do_not_cross_two_connections() {
    goes_by_tcp(
        "offers_that_are_exchanged",
        "exchanged",
        "the offer is that of another connection",
    );
}

#[test]
fn an_offer_with_two_names_is_not_taken() {
    goes_by_tcp("an_offer_with_another_name", "linked", "the offer has 2 names");
}

#[test]
fn a_copy_of_an_offer_is_not_taken() {
    goes_by_tcp("an_offer_that_is_a_copy", "copied", "the offer is that of another connection");
}

#[test]
fn an_offer_of_another_socket_than_the_callers_is_not_taken() {
    goes_by_tcp("an_offer_that_lies", "lying", "another socket is at the other end");
}

#[test]
fn an_impostor_s_answer_is_not_believed() {
    goes_by_tcp("an_answer_of_an_impostor", "impostor", "another socket is at the other end");
}

/// Where the ends of connections within this network find each other, if they are root's.
fn folder_of_root() -> PathBuf {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot has a number");
    let network = fs::metadata("/proc/thread-self/ns/net").expect("a thread has a network").ino();
    let name = format!("landfall-sockets-00000000-{}-{:08x}", &boot[..8], network as u32);
    Path::new("/dev/shm").join(name)
}

/// Removes what a test has put there, however it ends.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let is_folder = fs::symlink_metadata(&self.0).is_ok_and(|it| it.is_dir());
        let _ = if is_folder { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
    }
}

/// In a network of its own somebody puts something in the folder's place before us.
fn in_its_place(name: &str, why: &str, put: impl FnOnce(&Path) + Send) {
    let network = Namespace::new().expect("a network of its own");
    let work = || {
        network.set_interface("lo", true).expect("it can be used");
        let place = folder_of_root();
        // A network that is no more had this number, and its folder stayed.
        drop(Removed(place.clone()));
        put(&place);
        let before = fs::symlink_metadata(&place).expect("it was put there");
        let _removed = Removed(place.clone());
        goes_by_tcp("a_duplicate_by_fcntl", name, why);
        let after = fs::symlink_metadata(&place).expect("it is left alone");
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
        if after.is_dir() {
            assert_eq!(fs::read_dir(place).expect("it can be read").count(), 0, "it is used");
        }
    };
    network.enter(work).expect("the network can be entered");
}

fn make(folder: &Path, mode: u32) {
    fs::create_dir(folder).expect("nobody has made it yet");
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("its mode can be set");
}

#[test]
fn a_folder_that_another_user_made_first_is_not_used() {
    require_namespaces!();
    in_its_place("owner", "belongs to user 4711: remove it", |place| {
        make(place, 0o700);
        chown(place, Some(4711), Some(4711)).expect("root can give it away");
    });
    in_its_place("generous", "belongs to user 4711: remove it", |place| {
        make(place, 0o777);
        chown(place, Some(4711), Some(4711)).expect("root can give it away");
    });
}

#[test]
fn a_folder_that_others_may_enter_is_not_used() {
    require_namespaces!();
    in_its_place("mode", "is open to others (mode 0777): remove it", |place| make(place, 0o777));
}

#[test]
fn a_link_to_a_folder_is_not_followed() {
    require_namespaces!();
    let target = Removed(std::env::temp_dir().join(format!("landfall-{}", std::process::id())));
    make(&target.0, 0o700);
    in_its_place("link", "is no folder: remove it", |place| {
        symlink(&target.0, place).expect("a link can be made");
    });
    assert_eq!(fs::read_dir(&target.0).expect("it is there").count(), 0, "the link was followed");
}

/// In a small memory of its own, which is full after a part of what fits into a connection.
#[test]
fn no_memory_for_a_connection_ends_that_connection_and_not_the_program() {
    require_namespaces!();
    const MOUNT: &str = "mount -t tmpfs -o size=64k none /dev/shm && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MOUNT, "sh"]);
    command.arg(example("socket_cases")).arg("without_memory");
    command.env("LD_PRELOAD", example("libpreload_for_tests.so")).env("EXPECT_SHARED", "1");
    let output = command.output().expect("unshare starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said.trim(), "it came to an end");
}
