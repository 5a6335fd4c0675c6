//! OpenSSH as it is installed, on a port of the loopback, with keys that live as long as the
//! test. Its server locks its children in (seccomp) before it trusts the caller.

use std::process::Command;

use landfall_testbed::skip_unless;

use crate::ground::{Ground, each, missing};

fn why_not() -> Option<String> {
    let rights = landfall_testbed::privileges::why_no_namespaces();
    missing(&["ssh", "ssh-keygen", "unshare", "sh"])
        .or_else(|| (!sshd().is_file()).then(|| "needs the program sshd".to_owned()))
        .or(rights)
}

/// It is not in everybody's path.
fn sshd() -> std::path::PathBuf {
    "/usr/sbin/sshd".into()
}

fn make_key(path: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path]);
    assert!(command.status().expect("ssh-keygen starts").success());
}

#[test]
fn ssh_runs_commands_and_carries_a_file() {
    skip_unless!(why_not());
    let ground = Ground::new();
    let port = ground.port();
    let [host, user] = ["host", "user"].map(|name| ground.path(name));
    make_key(&host);
    make_key(&user);
    let file = ground.file("page", 3 << 20);
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {user}.pub\n\
         PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n\
         PermitRootLogin prohibit-password\n"
    );
    let config = ground.write("sshd_config", config.as_bytes());
    // It wants an empty folder there: one that only it sees.
    let script = format!(
        "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec {} -D -e -f '{config}'",
        sshd().display()
    );
    let known = format!("UserKnownHostsFile={}", ground.path("known"));
    let (number, identity) = (port.to_string(), user.clone());
    let mut client = vec!["-F", "none", "-p", &number, "-i", &identity, "-o", &known];
    for option in ["BatchMode=yes", "StrictHostKeyChecking=accept-new", "IdentitiesOnly=yes"] {
        client.extend(["-o", option]);
    }
    client.push("root@127.0.0.1");
    each(|place| {
        let _server = ground.serve(place, port, "unshare", &["-m", "sh", "-c", &script]);
        let ssh = |command: &str, input: &[u8]| {
            ground.run_with_input(place, "ssh", &[&client[..], &[command]].concat(), input)
        };
        assert_eq!(ssh("echo over $((6 * 7))", b""), b"over 42\n", "{place:?}");
        assert!(ssh("cat", &file) == file, "{place:?}");
        ground.expect_memory(place);
    });
}
