//! `landfall clan-ip` as people use it: three hosts, whose programs know nothing of it.
//! As an ordinary user these tests skip with one line.
//!
//! | file | what it is |
//! | --- | --- |
//! | `hosts` | three hosts with cables between them, and programs that run there |
//! | `flow` | cookies, packets in flight, connections on demand |
//! | `web` | curl and iperf3; a host that is killed and comes again |
//! | `ssh` | OpenSSH: a command, and files there and back |
//! | `nfs` | a file tree of nfs-ganesha, copied by libnfs at two hosts at a time |

mod flow;
mod hosts;
mod nfs;

/// curl and iperf3, between any two of three hosts, and after one of them was killed.
mod web {
    use std::fs;
    use std::process::{Command, Stdio};

    use landfall_testbed::{require_namespaces, skip_unless};

    use super::hosts::{Folder, Server, Triangle, address, bytes, stop_all, why_missing};

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
        command.args([
            "-m",
            "http.server",
            "--bind",
            &address(here),
            "--directory",
            &tree.path(""),
        ]);
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
}

/// OpenSSH as it is installed, with keys that live as long as the test.
mod ssh {
    use std::fs;
    use std::process::Command;

    use landfall_testbed::{require_namespaces, skip_unless};

    use super::hosts::{Folder, Server, Triangle, address, bytes, found, stop_all, why_missing};

    const PORT: &str = "2222";

    fn make_key(folder: &Folder, name: &str) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &folder.path(name)]);
        assert!(command.status().unwrap().success());
    }

    /// Only the key that was made for the test opens it.
    fn serve_ssh(triangle: &Triangle, here: usize, folder: &Folder) -> Server {
        let (host_key, user_key) = (folder.path("host"), folder.path("user.pub"));
        let config = format!(
            "Port {PORT}\nListenAddress {}\nHostKey {host_key}\nAuthorizedKeysFile {user_key}\n\
             PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
            address(here)
        );
        let config = folder.write("sshd_config", &config);
        let sshd = found("sshd").unwrap();
        // It wants an empty folder there, which is not made where it is no service.
        let script = format!(
            "mount -t tmpfs none /run\nmkdir -m 755 /run/sshd\nexec {} -D -e -f '{}'\n",
            sshd.display(),
            config.display()
        );
        triangle.serve(here, &folder.write("serve.sh", &script))
    }

    /// The words before the host's name: `ssh` and `scp` understand the same.
    fn client(program: &str, folder: &Folder) -> Vec<String> {
        let mut words = vec![program.to_owned(), "-F".into(), "none".into()];
        let options = [
            format!("Port={PORT}"),
            format!("IdentityFile={}", folder.path("user")),
            format!("UserKnownHostsFile={}", folder.path("known")),
            "IdentitiesOnly=yes".into(),
            "BatchMode=yes".into(),
            "StrictHostKeyChecking=accept-new".into(),
        ];
        words.extend(options.into_iter().flat_map(|option| ["-o".into(), option]));
        words
    }

    #[test]
    fn ssh_runs_a_command_and_scp_copies_a_file_there_and_back() {
        require_namespaces!();
        skip_unless!(why_missing(&["ssh", "scp", "sshd", "ssh-keygen", "unshare", "sha256sum"]));
        let triangle = Triangle::new();
        let hosts = [0, 1, 2].map(|here| triangle.start(here));
        let folder = Folder::new("ssh");
        make_key(&folder, "host");
        make_key(&folder, "user");
        let _server = serve_ssh(&triangle, 2, &folder);
        let content = bytes(7, 5_000_003);
        let file = folder.path("file");
        fs::write(&file, &content).unwrap();
        for here in [0, 1] {
            let there = format!("root@{}", address(2));
            let run = |command: &str| {
                let words = [client("ssh", &folder), vec![there.clone(), command.into()]].concat();
                triangle.run_until_it_succeeds(here, &words)
            };
            // It says where it comes from, and has gone over the interface.
            let says = run("echo $SSH_CONNECTION");
            let [from, to] = [here, 2].map(address);
            assert!(says.starts_with(&from) && says.contains(&format!(" {to} {PORT}")), "{says}");

            let sent = folder.path(&format!("sent-{here}"));
            let copy = |from: String, to: String| {
                triangle.run(here, &[client("scp", &folder), vec!["-q".into(), from, to]].concat());
            };
            copy(file.clone(), format!("{there}:{sent}"));
            let digest = run(&format!("sha256sum < '{sent}'"));
            let expected = triangle.run(here, &["sh", "-c", &format!("sha256sum < '{file}'")]);
            assert_eq!(digest, expected);
            let got = folder.path(&format!("got-{here}"));
            copy(format!("{there}:{sent}"), got.clone());
            assert!(fs::read(got).unwrap() == content);
        }
        stop_all(hosts);
    }
}
