//! Programs of several users: those in a group that they are told share memory, others do not. And
//! programs that do not see each other's processes, as in two containers of one pod.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use landfall_socket_status::Transport;
use landfall_socket_status::read::Reader;
use landfall_testbed::{Namespace, require_namespaces, skip_unless};

use crate::test_folder::{TestFolder, missing};

const GROUP: &str = "4713";
pub(crate) const BY_MEMORY: &str = ": memory: ";

/// The words that run a program as a user who is in these groups, besides one of his own.
fn as_user<'a>(number: &'a str, groups: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let become_user = ["--reuid", number, "--regid", number, "--groups", groups];
    [&["setpriv"], &become_user[..], words].concat()
}

/// In a network of its own, where nobody else has folders; in the end there are none.
pub(crate) fn in_a_network(work: impl FnOnce(&TestFolder) + Send) {
    let network = Namespace::new().expect("a network of its own");
    let run = || {
        network.set_interface("lo", true).expect("it can be used");
        work(&TestFolder::new());
        // Anyone may have made the folder of the group, and only he and root can remove it.
        Reader::new().expect("there is memory").look().expect("it can be looked at");
        assert_eq!(folders("landfall-group-"), Vec::<PathBuf>::new());
        // Whether processes that were killed in a namespace of their own have ended nobody knows.
        // The number of this network will be another's.
        for folder in folders("landfall-sockets-") {
            fs::remove_dir_all(folder).expect("root may remove it");
        }
    };
    network.enter(run).expect("the network can be entered");
}

/// Folders of this network whose names begin so.
fn folders(beginning: &str) -> Vec<PathBuf> {
    let network = fs::metadata("/proc/thread-self/ns/net").expect("a thread has a network").ino();
    let end = format!("-{:08x}", network as u32);
    let all = fs::read_dir("/dev/shm").expect("there is memory").flatten();
    let found = all.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(beginning) && name.ends_with(&end)
    });
    found.collect()
}

fn redis_is_asked(folder: &TestFolder, server_groups: &str, client_groups: &str) -> String {
    let (port, group) = (folder.port(), [("LANDFALL_GROUP", GROUP)]);
    let number = port.to_string();
    let serve = ["redis-server", "--port", &number, "--save", "", "--dir", "/"];
    let serve = as_user("4711", server_groups, &serve);
    let _server = folder.start_told(true, serve[0], &serve[1..], &group);
    folder.wait_for_listener(port);
    folder.forget_log();
    let benchmark =
        ["redis-benchmark", "-p", &number, "-t", "set,get", "-n", "2000", "-c", "4", "-q"];
    let benchmark = as_user("4712", client_groups, &benchmark);
    let mut asks = folder.start_told(true, benchmark[0], &benchmark[1..], &group);
    let said = String::from_utf8_lossy(&asks.output()).into_owned();
    assert!(said.contains("GET") && !said.contains("rror"), "{said}");
    folder.log()
}

#[test]
fn programs_of_two_users_share_memory_by_a_group() {
    require_namespaces!();
    skip_unless!(missing(&["redis-server", "redis-benchmark", "setpriv"]));
    in_a_network(|folder| {
        let log = redis_is_asked(folder, GROUP, GROUP);
        for program in ["redis-server", "redis-benchmark"] {
            let is_shared = |line: &&str| line.contains(program) && line.contains(BY_MEMORY);
            assert!(log.lines().filter(is_shared).count() >= 4, "{program}: {log}");
        }
    });
}

#[test]
fn a_program_of_a_user_who_is_not_in_the_group_stays_with_tcp() {
    require_namespaces!();
    skip_unless!(missing(&["redis-server", "redis-benchmark", "setpriv"]));
    in_a_network(|folder| {
        let log = redis_is_asked(folder, GROUP, "4712");
        assert!(!log.contains(BY_MEMORY), "{log}");
        assert!(log.contains("is this user in group 4713?"), "{log}");
        let log = redis_is_asked(folder, "4711", GROUP);
        assert!(!log.contains(BY_MEMORY), "{log}");
    });
}

/// What root sees of a connection whose memory lies in the folder of a group.
#[test]
fn bytes_between_two_users_are_counted_for_who_looks_at_all_connections() {
    require_namespaces!();
    skip_unless!(missing(&["redis-server", "redis-cli", "setpriv"]));
    in_a_network(|folder| {
        let (port, group) = (folder.port(), [("LANDFALL_GROUP", GROUP)]);
        let number = port.to_string();
        let serve = ["redis-server", "--port", &number, "--save", "", "--dir", "/"];
        let serve = as_user("4711", GROUP, &serve);
        let _server = folder.start_told(true, serve[0], &serve[1..], &group);
        folder.wait_for_listener(port);
        let ask = as_user("4712", GROUP, &["redis-cli", "-p", &number]);
        let mut asks = folder.start_told(true, ask[0], &ask[1..], &group);
        let value = "v".repeat(5000);
        for line in [&format!("set key {value}"), "get key", "get key"] {
            asks.is_told(line);
        }
        folder.until(|| {
            let view = Reader::new().and_then(|reader| reader.look()).expect("it can be looked at");
            let of_memory = view.connections().map(|(_, connection)| connection);
            let of_memory = of_memory.filter(|it| it.record.transport == Transport::Memory);
            let bytes: Vec<_> = of_memory.filter_map(|it| it.sent.zip(it.received)).collect();
            // The one end has sent what the other has received.
            bytes.len() == 2
                && bytes[0] == (bytes[1].1, bytes[1].0)
                && bytes.iter().all(|(sent, received)| sent + received > 15_000)
        });
    });
}

/// In a namespace of processes of its own, as a container has it, with the same network and memory.
#[test]
fn programs_that_do_not_see_each_other_s_processes_share_memory() {
    require_namespaces!();
    skip_unless!(missing(&["redis-server", "redis-cli", "unshare"]));
    in_a_network(|folder| {
        let port = folder.port();
        let number = port.to_string();
        let apart = ["--pid", "--fork", "--mount-proc", "--kill-child"];
        let serve = ["redis-server", "--port", &number, "--save", "", "--dir", "/"];
        let mut server = folder.start(true, "unshare", &[&apart[..], &serve].concat());
        folder.wait_for_listener(port);
        folder.forget_log();
        let value = "v".repeat(100_000);
        let asks = || {
            let mut asks = folder.start(true, "redis-cli", &["-p", &number]);
            for line in [&format!("set key {value}"), "get key", "get key"] {
                asks.is_told(line);
            }
            asks
        };
        let mut reads = asks();
        reads.is_told("quit");
        let said = String::from_utf8_lossy(&reads.output()).into_owned();
        assert_eq!(said.matches(&value).count(), 2, "{}", said.len());
        assert_eq!(folder.log().matches(BY_MEMORY).count(), 2, "{}", folder.log());
        folder.forget_log();

        // The end of the server is noticed, though nobody here could look for its process.
        let mut waits = asks();
        folder.until(|| folder.log().matches(BY_MEMORY).count() == 2);
        server.kill();
        waits.is_told("get key");
        waits.is_told("quit");
        waits.output();
    });
}

const NGINX: &str = "\
daemon off; user nobody nogroup; worker_processes 1; pid FOLDER/nginx.pid; error_log stderr;
events { worker_connections 128; }
http {
    access_log off;
    client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f;
    uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
    server { listen 127.0.0.1:PORT; root FOLDER; }
}
";

/// Its first process is root's, and those that serve become another's.
#[test]
fn a_server_that_changes_its_user_shares_memory_by_a_group() {
    require_namespaces!();
    skip_unless!(missing(&["nginx", "curl"]));
    in_a_network(|folder| {
        let (port, group) = (folder.port(), [("LANDFALL_GROUP", "65534")]);
        let page = folder.file("page", 100_000);
        let text = NGINX.replace("FOLDER", folder.folder()).replace("PORT", &port.to_string());
        let path = folder.write("nginx.conf", text.as_bytes());
        let arguments = ["-c", &path, "-e", "stderr"];
        let _server = folder.start_told(true, "nginx", &arguments, &group);
        folder.wait_for_listener(port);
        let url = format!("http://127.0.0.1:{port}/page");
        for (variables, is_shared) in [(&group[..], true), (&[], false)] {
            folder.forget_log();
            let mut fetch = folder.start_told(true, "curl", &["-sSf", &url, &url, &url], variables);
            assert!(fetch.output() == page.repeat(3));
            let log = folder.log();
            assert_eq!(log.contains(BY_MEMORY), is_shared, "{log}");
        }
    });
}
