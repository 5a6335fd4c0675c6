//! curl and iperf3, between any two of three hosts, and after one of them was killed.

use std::fs;
use std::process::{Command, Stdio};

use landfall_testbed::{require_namespaces, skip_unless};

use crate::hosts::{Folder, Server, Triangle, address, bytes, stop_all, why_missing};

/// Files of many lengths, none like another.
fn plant(tree: &Folder) -> Vec<(String, Vec<u8>)> {
    let lengths = [0, 1, 1500, 8_959, 8_960, 70_000, 3_000_000];
    let files = lengths.iter().enumerate().map(|(nth, len)| {
        let name = format!("{nth}/file-{len}");
        let bytes = bytes(nth, *len);
        fs::create_dir_all(tree.path(&nth.to_string())).unwrap();
        fs::write(tree.path(&name), &bytes).unwrap();
        (name, bytes)
    });
    files.collect()
}

fn serve_http(triangle: &Triangle, here: usize, tree: &Folder) -> Server {
    let mut command = Command::new("python3");
    command.args(["-m", "http.server", "--bind", &address(here), "--directory", &tree.path("")]);
    command.arg("8080").stdout(Stdio::null()).stderr(Stdio::null());
    triangle.start_server(here, command)
}

#[test]
fn curl_gets_files_between_any_two_of_three_hosts() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl", "python3"]));
    let triangle = Triangle::new();
    let hosts = [0, 1, 2].map(|here| triangle.start(here));
    let folder = Folder::new("web");
    let files = plant(&folder);
    for server in 0..3 {
        let _server = serve_http(&triangle, server, &folder);
        for client in (0..3).filter(|client| *client != server) {
            for (name, bytes) in &files {
                let to = folder.path("fetched");
                let from = format!("http://{}:8080/{name}", address(server));
                triangle.run_until_it_succeeds(client, &["curl", "-sf", "-o", &to, &from]);
                assert!(fs::read(&to).unwrap() == *bytes, "{name} from {server} to {client}");
                fs::remove_file(&to).unwrap();
            }
        }
    }
    stop_all(hosts);
    for here in 0..3 {
        assert!(!triangle.run(here, &["ip", "link"]).contains("clan0"));
    }
}

#[test]
fn a_host_that_was_killed_is_connected_to_again() {
    require_namespaces!();
    skip_unless!(why_missing(&["iperf3"]));
    let triangle = Triangle::new();
    let mut hosts = [0, 1].map(|here| triangle.start(here));
    let listen = |here: usize| {
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "-B", &address(here)]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        triangle.start_server(here, command)
    };
    let to = address(1);
    let send = ["iperf3", "-c", &to, "-n", "2M", "--connect-timeout", "2000"];
    let first = listen(1);
    triangle.run_until_it_succeeds(0, &send);
    drop(first);
    hosts[1].kill();
    hosts[1] = triangle.start(1);
    let _second = listen(1);
    triangle.run_until_it_succeeds(0, &send);
    let [one, _two] = hosts;
    stop_all([one]);
}
