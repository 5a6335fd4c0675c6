//! What is sent arrives as it was.

use std::fs::{self, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::ends::{CODE, Running, Scratch, describe, landfall, leftovers, noise, receive, send};

fn set(path: &Path, mode: u32, seconds: u64) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    let file = fs::File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
}

#[test]
fn a_tree_arrives_as_it_was() {
    let scratch = Scratch::new("tree");
    let large = noise(1, (3 << 20) + 12_345);
    for (name, bytes) in [
        ("from/tree/large", &large[..]),
        ("from/tree/piece", &large[..1 << 20]),
        ("from/tree/small", &large[..1000]),
        ("from/tree/edge", &large[..64 << 10]),
        ("from/tree/over the edge", &large[..(64 << 10) + 1]),
        ("from/tree/empty", &[]),
        ("from/tree/deep/er/down", b"here"),
    ] {
        scratch.write(name, bytes);
    }
    let tree = scratch.path("from/tree");
    let odd = std::ffi::OsStr::from_bytes(b"not \xff UTF-8 \n \x1b[31m");
    fs::write(tree.join(odd), b"odd").unwrap();
    fs::write(tree.join("x".repeat(255)), b"long").unwrap();
    fs::create_dir(tree.join("nothing in it")).unwrap();
    symlink("../small", tree.join("deep/link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    set(&tree.join("small"), 0o640, 1_000_000_000);
    set(&tree.join("large"), 0o755, 1_100_000_000);
    set(&tree.join("empty"), 0o444, 1);
    set(&tree.join("nothing in it"), 0o711, 1_200_000_000);
    set(&tree.join("deep"), 0o550, 1_300_000_000);
    let alone = scratch.write("from/alone", b"a file beside the folder");

    let receiver = receive(&scratch.path("to"), &["--json"]);
    let sent = send(&[&tree, &alone], &receiver.at, &[]).end().expect(0).json();
    let received = receiver.running.end().expect(0).json();
    assert_eq!(describe(&scratch.path("from")), describe(&scratch.path("to")));
    for summary in [&sent, &received] {
        assert_eq!(summary["ok"], true, "{summary}");
        assert_eq!(summary["files"], 10, "{summary}");
        assert_eq!((&summary["folders"], &summary["links"]), (&4.into(), &2.into()), "{summary}");
        assert_eq!(summary["bytes_moved"], sent["bytes_moved"]);
    }
    assert_eq!(leftovers(&scratch.path("to")), Vec::<std::path::PathBuf>::new());
}

#[test]
fn many_small_files_arrive() {
    let scratch = Scratch::new("many");
    // More than may be announced at a time.
    for nth in 0..10_000 {
        scratch.write(&format!("from/tree/{}/{nth}", nth % 16), &noise(nth, nth as usize % 300));
    }
    let receiver = receive(&scratch.path("to"), &[]);
    let sent = send(&[&scratch.path("from/tree")], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["files"], 10_000);
    assert_eq!(describe(&scratch.path("from")), describe(&scratch.path("to")));
}

#[test]
fn standard_input_and_output_are_files_too() {
    let scratch = Scratch::new("standard");
    let bytes = noise(7, (2 << 20) + 77);
    // From standard input, under a name, into a folder.
    let receiver = receive(&scratch.path("to"), &[]);
    let mut command = landfall();
    command.args(["send", "--code", CODE, "--name", "fed", "-", &receiver.at]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    receiver.running.end().expect(0);
    assert_eq!(fs::read(scratch.path("to/fed")).unwrap(), bytes);

    // A file to standard output; and a second one is refused, for there is one output.
    let (one, two) = (scratch.write("one", &bytes), scratch.write("two", b"another"));
    let receiver = receive(Path::new("-"), &[]);
    let sender = send(&[&one, &two], &receiver.at, &[]).end().expect(1);
    assert_eq!(sender.json()["refused"][0]["path"], "two");
    let receiver = receiver.running.end().expect(1);
    assert_eq!(receiver.stdout, bytes);

    // Nothing is a file as well.
    let empty = scratch.write("empty", b"");
    let receiver = receive(Path::new("-"), &[]);
    send(&[&empty], &receiver.at, &[]).end().expect(0);
    assert_eq!(receiver.running.end().expect(0).stdout, b"");
}

#[test]
fn contents_are_striped_over_several_addresses() {
    let scratch = Scratch::new("striped");
    let file = scratch.write("file", &noise(3, 24 << 20));
    let both = ["--local", "127.0.0.1:0", "--local", "127.0.0.2:0", "--json"];
    let receiver = receive(&scratch.path("to"), &both);
    let from = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let sent = send(&[&file], &receiver.at, &from).end().expect(0).json();
    let received = receiver.running.end().expect(0).json();
    assert_eq!((&sent["ways"], &received["ways"]), (&2.into(), &2.into()), "{sent} {received}");
    for summary in [sent, received] {
        let each: Vec<u64> = serde_json::from_value(summary["packets_by_path"].clone()).unwrap();
        assert_eq!(each.len(), 2, "{summary}");
        assert!(each.iter().all(|packets| *packets > 100), "both carry some: {summary}");
    }
    assert_eq!(fs::read(file).unwrap(), fs::read(scratch.path("to/file")).unwrap());
}

#[test]
fn a_made_code_is_printed_and_works_however_it_is_typed() {
    let scratch = Scratch::new("made");
    let file = scratch.write("file", b"contents");
    let mut command = landfall();
    command.arg("receive").arg("--dir").arg(scratch.path("to"));
    let mut running = Running::start(command.args(["--local", "127.0.0.1:0"]));
    let at = running.line("listening on ");
    let code = running.line("code: ");
    let typed = code.to_uppercase().replace('-', " ");
    let mut sender = landfall();
    // As well without an option.
    sender.env("LANDFALL_CODE", typed).args(["send".as_ref(), file.as_os_str()]).arg(&at);
    Running::start(&mut sender).end().expect(0).says("BLAKE3 equal");
    running.end().expect(0);
    assert_eq!(fs::read(scratch.path("to/file")).unwrap(), b"contents");
}

#[test]
fn a_receiver_that_is_to_stay_takes_one_sender_after_another() {
    let scratch = Scratch::new("stays");
    let mut receiver = receive(&scratch.path("to"), &["--keep"]);
    for name in ["one", "two"] {
        let file = scratch.write(name, name.as_bytes());
        send(&[&file], &receiver.at, &[]).end().expect(0);
        receiver.running.line("received ");
        assert_eq!(fs::read(scratch.path("to").join(name)).unwrap(), name.as_bytes());
    }
    receiver.running.interrupt();
    receiver.running.end().expect(130);
}

#[test]
fn arguments_and_paths_that_make_no_sense_are_refused_at_once() {
    let scratch = Scratch::new("senseless");
    let file = scratch.write("a/x", b"");
    let other = scratch.write("b/x", b"");
    let run = |command: &mut Command| Running::start(command).end();
    run(landfall().args(["send", "--code", CODE])).expect(2);
    run(landfall().args(["receive"])).expect(2);
    run(landfall().args(["receive", "--dir", "x", "--patience", "0"])).expect(2);
    run(landfall().args(["send", "--code", "-", "x", "localhost"])).expect(2);
    run(landfall().args(["receive", "--dir", "x", "--local", "a/b"])).expect(2);
    let missing = run(landfall().args(["send", "--code", CODE, "/no/such/file", "127.0.0.1"]));
    missing.expect(1).says("/no/such/file");
    let paths = [file.as_os_str(), other.as_os_str()];
    run(landfall().args(["send", "--code", CODE]).args(paths).arg("127.0.0.1:9"))
        .expect(1)
        .says("two of the paths are called x");
    run(landfall().arg("send").arg(&file).arg("127.0.0.1:9")).expect(1).says("LANDFALL_CODE");
    // Nobody is there.
    run(landfall().args(["send", "--code", CODE, "--patience", "1"]).arg(&file).arg("127.0.0.1:9"))
        .expect(1)
        .says("nobody answers at 127.0.0.1:9");
    // The folder is a file.
    run(landfall().args(["receive", "--code", CODE, "--local", "127.0.0.1:0", "--dir"]).arg(&file))
        .expect(1)
        .says("cannot make the folder");
    let mut taken = receive(&scratch.path("to"), &[]);
    run(landfall().args(["receive", "--dir", "x", "--local", &taken.at])).expect(1).says("in use");
    assert!(!taken.running.is_over());
}
