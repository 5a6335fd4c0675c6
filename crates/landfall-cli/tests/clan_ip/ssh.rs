//! OpenSSH as it is installed, with keys that live as long as the test.

use std::fs;
use std::process::Command;

use landfall_testbed::{require_namespaces, skip_unless};

use crate::hosts::{Folder, Server, Triangle, address, bytes, found, stop_all, why_missing};

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
