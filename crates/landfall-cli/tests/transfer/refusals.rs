//! What is there already, what cannot be written, and full disks: both sides are told, and
//! nothing half-written has a name.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landfall_testbed::{privileges, skip_unless};

use super::ends::{CODE, Scratch, landfall, leftovers, listening, noise, receive, send};

#[test]
fn what_is_there_is_replaced_only_where_that_was_asked_for() {
    let scratch = Scratch::new("there");
    let bytes = noise(1, 200_000);
    for (name, theirs) in [("same", &bytes[..]), ("other", &bytes[1..]), ("long", &bytes[..5])] {
        scratch.write(&format!("from/tree/{name}"), theirs);
    }
    let mut flipped = bytes[1..].to_vec();
    flipped[9] ^= 1;
    scratch.write("to/tree/same", &bytes);
    scratch.write("to/tree/other", &flipped);
    scratch.write("to/tree/long", b"another length");
    let tree = scratch.path("from/tree");

    let receiver = receive(&scratch.path("to"), &["--json"]);
    let sent = send(&[&tree], &receiver.at, &[]).end().expect(1).json();
    let received = receiver.running.end().expect(1).json();
    for summary in [&sent, &received] {
        assert_eq!(
            (&summary["files"], &summary["files_same"]),
            (&0.into(), &1.into()),
            "{summary}"
        );
        assert_eq!(summary["refusals"], 2, "{summary}");
        let text = summary["refused"].to_string();
        assert!(text.contains("tree/other") && text.contains("--overwrite"), "{text}");
    }
    assert_eq!(fs::read(scratch.path("to/tree/other")).unwrap(), flipped, "nothing is replaced");

    let receiver = receive(&scratch.path("to"), &["--overwrite"]);
    let sent = send(&[&tree], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!((&sent["files"], &sent["files_same"]), (&2.into(), &1.into()), "{sent}");
    for name in ["same", "other", "long"] {
        let (from, to) = (tree.join(name), scratch.path("to/tree").join(name));
        assert_eq!(fs::read(from).unwrap(), fs::read(to).unwrap(), "{name}");
    }
}

#[test]
fn links_that_are_there_are_not_followed_out_of_the_folder() {
    let scratch = Scratch::new("links");
    let file = scratch.write("from/tree/sub/file", b"contents");
    fs::create_dir_all(scratch.path("outside")).unwrap();
    fs::create_dir_all(scratch.path("to/tree")).unwrap();
    symlink(scratch.path("outside"), scratch.path("to/tree/sub")).unwrap();
    let receiver = receive(&scratch.path("to"), &["--overwrite"]);
    let ended = send(&[&scratch.path("from/tree")], &receiver.at, &[]).end().expect(1);
    ended.says("no folder");
    receiver.running.end().expect(1);
    assert_eq!(fs::read_dir(scratch.path("outside")).unwrap().count(), 0);

    // A link in the place of a file is replaced, and what it points to is not.
    let target = scratch.write("outside/precious", b"precious");
    symlink(&target, scratch.path("to/file")).unwrap();
    let receiver = receive(&scratch.path("to"), &["--overwrite"]);
    send(&[&file], &receiver.at, &[]).end().expect(0);
    receiver.running.end().expect(0);
    assert_eq!(fs::read(target).unwrap(), b"precious");
    assert_eq!(fs::read(scratch.path("to/file")).unwrap(), b"contents");
}

#[test]
fn what_cannot_be_sent_is_told_and_the_rest_is_sent() {
    let scratch = Scratch::new("special");
    let tree = scratch.path("from/tree");
    scratch.write("from/tree/file", b"contents");
    symlink("/etc/passwd", tree.join("out")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let receiver = receive(&scratch.path("to"), &[]);
    let sent = send(&[&tree], &receiver.at, &[]).end().expect(1).json();
    // What the sender could not send is no failure of the receiver.
    receiver.running.end().expect(0);
    let refused = sent["refused"].to_string();
    assert!(refused.contains("points out of what is sent") && refused.contains("pipe"), "{sent}");
    assert_eq!(fs::read(scratch.path("to/tree/file")).unwrap(), b"contents");
}

/// The program as one to whom permissions apply: root gives up that they do not.
fn obeying_permissions() -> Command {
    if !privileges::is_root() {
        return Command::new(env!("CARGO_BIN_EXE_landfall"));
    }
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-dac_override,-dac_read_search");
    command.arg(env!("CARGO_BIN_EXE_landfall"));
    command
}

#[test]
fn a_folder_that_may_not_be_written_to_is_told_to_both() {
    let scratch = Scratch::new("unwritable");
    let file = scratch.write("from/closed/file", b"contents");
    let closed = scratch.path("to/closed");
    fs::create_dir_all(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    let receiver = receiving(obeying_permissions(), &scratch.path("to"));
    let ended = send(&[file.parent().unwrap()], &receiver.at, &[]).end().expect(1);
    ended.says("may not write there");
    receiver.running.end().expect(1).says("may not write there");
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
}

/// As root, a disk of a few megabytes in a mount namespace of the receiver's own.
fn on_small_disk(dir: &Path) -> Option<Command> {
    let script = "mount -t tmpfs -o size=4m none \"$1\" && shift && exec \"$@\"";
    let mut probe = Command::new("unshare");
    probe.args(["-m", "sh", "-c", script, "sh"]).arg(dir).arg("true");
    probe.stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(dir).arg(env!("CARGO_BIN_EXE_landfall"));
    Some(command)
}

fn receiving(mut command: Command, dir: &Path) -> super::ends::Listening {
    command.arg("receive").arg("--dir").arg(dir).args(["--code", CODE]);
    listening(command.stdin(Stdio::null()).args(["--local", "127.0.0.1:0"]))
}

#[test]
fn a_full_disk_is_told_to_both() {
    let scratch = Scratch::new("full");
    let dir = scratch.path("to");
    fs::create_dir_all(&dir).unwrap();
    skip_unless!(on_small_disk(&dir).is_none().then(|| "needs root and unshare".to_owned()));
    let file = scratch.write("file", &noise(1, 8 << 20));
    let receiver = receiving(on_small_disk(&dir).unwrap(), &dir);
    let ended = send(&[&file], &receiver.at, &[]).end().expect(1);
    ended.says("the receiver's disk is full");
    ended.says("only the rest is sent");
    receiver.running.end().expect(1).says("disk is full");

    // What nobody knows the length of, too; nothing is kept of that.
    let receiver = receiving(on_small_disk(&dir).unwrap(), &dir);
    let mut command = landfall();
    command.args(["send", "--code", CODE, "-", &receiver.at]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It goes away before it has read all.
    let _ = child.stdin.take().unwrap().write_all(&noise(2, 8 << 20));
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("disk is full"), "{said}");
    receiver.running.end().expect(1).says("disk is full");
}

#[test]
fn a_limit_on_the_length_of_files_is_told_to_both() {
    let scratch = Scratch::new("limit");
    let file = scratch.write("file", &noise(1, 8 << 20));
    let dir = scratch.path("to");
    let mut command = Command::new("sh");
    // In blocks of 512 or 1024 bytes, as the shell has it.
    command.args(["-c", "ulimit -f 2048 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_landfall")]);
    let receiver = receiving(command, &dir);
    let ended = send(&[&file], &receiver.at, &[]).end().expect(1);
    ended.says("ulimit -f");
    receiver.running.end().expect(1).says("ulimit -f");
    assert!(!dir.join("file").exists(), "nothing half-written has a name");
    // It is kept for a receiver without that limit.
    assert_eq!(leftovers(&dir).len(), 2);
    let receiver = receive(&dir, &[]);
    let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["files_resumed"], 1, "{sent}");
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
    assert_eq!(leftovers(&dir), Vec::<PathBuf>::new());
}
