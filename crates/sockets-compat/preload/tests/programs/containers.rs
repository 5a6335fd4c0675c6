//! Programs that are closed in as containers and services are, by the means of the kernel that those
//! use: mounts, processes, users and rights of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use landfall_socket_status::Transport;
use landfall_socket_status::read::Reader;
use landfall_testbed::{require_namespaces, skip_unless};

use crate::test_folder::{Running, TestFolder, missing};
use crate::users::{BY_MEMORY, in_a_network};

const NEEDS: &[&str] = &["redis-server", "redis-cli", "unshare", "mount", "setpriv"];

/// A volume in memory, as `emptyDir` of medium `Memory` is one.
struct Volume(PathBuf);

impl Volume {
    fn new() -> Self {
        let path = PathBuf::from(format!("/dev/shm/landfall-test-volume-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("there is shared memory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).expect("it is root's");
        Self(path)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program in mounts and processes of its own, after `prepare` was done there by a shell.
fn apart(folder: &TestFolder, prepare: &str, words: &[&str]) -> Running {
    let script = format!("set -e; {prepare}; exec \"$@\"");
    let begin = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"];
    folder.start(true, "unshare", &[&begin[..], &[&script, "sh"], words].concat())
}

/// Asks a server of redis, both prepared so: that the answers are right, and what both logs say.
fn redis_is_asked_apart(folder: &TestFolder, prepare: &str) -> String {
    folder.forget_log();
    let port = folder.port();
    let number = port.to_string();
    let serve = ["redis-server", "--port", &number, "--save", "", "--dir", "/"];
    let _server = apart(folder, prepare, &serve);
    folder.wait_for_listener(port);
    folder.forget_log();
    let mut asks = apart(folder, prepare, &["redis-cli", "-p", &number]);
    let value = "v".repeat(50_000);
    for line in [&format!("set key {value}"), "get key", "get key", "quit"] {
        asks.is_told(line);
    }
    let said = String::from_utf8_lossy(&asks.output()).into_owned();
    assert_eq!(said.matches(&value).count(), 2, "{}", said.len());
    folder.log()
}

/// As in a pod: one network, and nothing else in common but a volume, which is mounted where shared
/// memory is looked for.
#[test]
fn two_containers_of_a_pod_share_memory_by_a_volume_and_have_tcp_without() {
    require_namespaces!();
    skip_unless!(missing(NEEDS));
    in_a_network(|folder| {
        let volume = Volume::new();
        let mounts = format!("mount --bind {} /dev/shm", volume.0.display());
        let log = redis_is_asked_apart(folder, &mounts);
        assert_eq!(log.matches(BY_MEMORY).count(), 2, "{log}");
        let log = redis_is_asked_apart(folder, "mount -t tmpfs tmpfs /dev/shm");
        assert!(!log.contains(BY_MEMORY), "{log}");
    });
}

/// What `ProtectSystem=strict`, `ProtectHome=`, `PrivateTmp=`, `NoNewPrivileges=` and `DynamicUser=` make
/// of mounts, users and rights: nothing can be written but `/dev/shm` and what is the service's own.
const CLOSED_IN: &str = "mount -t tmpfs tmpfs /mnt; cp \"$LD_PRELOAD\" /mnt/library.so; chmod 755 /mnt; \
    mount -t tmpfs -o mode=1777 tmpfs /tmp; mount -t tmpfs tmpfs /home; \
    mount -o remount,bind,ro /; export LD_PRELOAD=/mnt/library.so LANDFALL_LOG=; \
    if touch /written 2>/dev/null; then exit 9; fi; \
    set -- setpriv --reuid 61184 --regid 61184 --clear-groups --no-new-privs --inh-caps=-all \
    --bounding-set=-all \"$@\"";

#[test]
fn services_that_are_closed_in_as_systemd_does_it_share_memory() {
    require_namespaces!();
    skip_unless!(missing(NEEDS));
    in_a_network(|folder| {
        let port = folder.port();
        let number = port.to_string();
        let serve = ["redis-server", "--port", &number, "--save", "", "--dir", "/tmp"];
        let _server = apart(folder, CLOSED_IN, &serve);
        folder.wait_for_listener(port);
        let mut asks = apart(folder, CLOSED_IN, &["redis-cli", "-p", &number]);
        for line in ["set key value", "get key", "get key"] {
            asks.is_told(line);
        }
        folder.until(|| {
            let view = Reader::new().and_then(|reader| reader.look()).expect("it can be looked at");
            let ends = view.connections().map(|(process, one)| (process.user, one.record));
            let of_service = ends
                .filter(|(user, record)| *user == 61184 && record.transport == Transport::Memory);
            of_service.count() == 2
        });
        asks.is_told("quit");
        let said = String::from_utf8_lossy(&asks.output()).into_owned();
        assert_eq!(said.matches("value").count(), 2, "{said}");
    });
}
