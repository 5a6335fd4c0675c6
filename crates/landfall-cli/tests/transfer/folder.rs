//! What a sender's names, permissions and holes do to the receiver's folder.

use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_testbed::{privileges, skip_unless};

use super::ends::{CODE, Scratch, landfall, leftovers, listening, noise, receive, send, until};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_folder_that_is_there_keeps_its_permissions() {
    let scratch = Scratch::new("kept");
    let file = scratch.write("from/tree/file", b"contents");
    set_mode(&scratch.path("from/tree"), 0o777);
    scratch.write("to/tree/private", b"of the receiver");
    for (dir, bits) in [("to", 0o1770), ("to/tree", 0o700)] {
        set_mode(&scratch.path(dir), bits);
    }
    for more in [&[][..], &["--overwrite"]] {
        fs::write(&file, format!("contents {}", more.len())).unwrap();
        let _ = fs::remove_file(scratch.path("to/tree/file"));
        let receiver = receive(&scratch.path("to"), more);
        send(&[&scratch.path("from/tree")], &receiver.at, &[]).end().expect(0);
        receiver.running.end().expect(0);
        assert_eq!(fs::read(&file).unwrap(), fs::read(scratch.path("to/tree/file")).unwrap());
        assert_eq!(mode(&scratch.path("to/tree")), 0o700, "{more:?}");
        assert_eq!(mode(&scratch.path("to")), 0o1770, "{more:?}");
    }
}

#[test]
fn a_folder_that_is_there_keeps_its_time_if_nothing_comes_into_it() {
    let scratch = Scratch::new("untouched");
    scratch.write("from/tree/file", b"contents");
    scratch.write("to/tree/file", b"contents");
    let tree = scratch.path("to/tree");
    let before = fs::metadata(&tree).unwrap().modified().unwrap();
    let receiver = receive(&scratch.path("to"), &[]);
    let sent = send(&[&scratch.path("from/tree")], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["files_same"], 1, "{sent}");
    assert_eq!(fs::metadata(&tree).unwrap().modified().unwrap(), before);
}

/// The receiver, started by a shell that sets something first.
fn after(script: &str, dir: &Path) -> super::ends::Listening {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script} && exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_landfall")).arg("receive").arg("--dir").arg(dir);
    listening(command.args(["--code", CODE, "--local", "127.0.0.1:0", "--patience", "6"]))
}

#[test]
fn permissions_are_masked_by_the_receivers_umask() {
    let scratch = Scratch::new("umask");
    let tree = scratch.path("from/tree");
    for (name, bytes) in [("small", 5), ("large", 200_000)] {
        set_mode(&scratch.write(&format!("from/tree/{name}"), &noise(1, bytes)), 0o777);
    }
    set_mode(&tree, 0o2777);
    fs::create_dir_all(scratch.path("to")).unwrap();
    let receiver = after("umask 027", &scratch.path("to"));
    send(&[&tree], &receiver.at, &[]).end().expect(0);
    receiver.running.end().expect(0);
    for name in ["tree", "tree/small", "tree/large"] {
        assert_eq!(mode(&scratch.path("to").join(name)), 0o750, "{name}");
    }
}

/// A folder whose group is inherited by what is made in it goes on to be one.
#[test]
fn what_a_folder_hands_down_is_not_taken_away() {
    let scratch = Scratch::new("inherits");
    scratch.write("from/tree/deep/file", b"contents");
    fs::create_dir_all(scratch.path("to")).unwrap();
    set_mode(&scratch.path("to"), 0o2755);
    let receiver = receive(&scratch.path("to"), &[]);
    send(&[&scratch.path("from/tree")], &receiver.at, &[]).end().expect(0);
    receiver.running.end().expect(0);
    assert_eq!(mode(&scratch.path("to/tree/deep")) & 0o7000, 0o2000);
}

#[test]
fn names_of_the_user_that_start_like_ours_are_sent_and_partial_files_are_told() {
    let scratch = Scratch::new("own");
    let tree = scratch.path("from/tree");
    for name in [".landfall-notes", ".landfall-settings/file", "file"] {
        scratch.write(&format!("from/tree/{name}"), name.as_bytes());
    }
    let receiver = receive(&scratch.path("to"), &[]);
    send(&[&tree], &receiver.at, &[]).end().expect(0);
    receiver.running.end().expect(0);
    for name in [".landfall-notes", ".landfall-settings/file", "file"] {
        let there = fs::read(scratch.path("to/tree").join(name)).unwrap();
        assert_eq!(there, name.as_bytes());
    }

    // An unfinished file of a receiver, and what only looks like one.
    let part = format!(".landfall-{}.part", "0".repeat(24));
    fs::write(tree.join(&part), b"start").unwrap();
    fs::write(
        tree.join(part.replace(".part", ".journal")),
        "landfall partial file 1\nsize 100000\nmodified 0 0\nname 78\n",
    )
    .unwrap();
    let orphan = format!(".landfall-{}.part", "1".repeat(24));
    fs::write(tree.join(&orphan), b"of somebody").unwrap();
    let receiver = receive(&scratch.path("to"), &[]);
    let sent = send(&[&tree], &receiver.at, &[]).end().expect(1).json();
    receiver.running.end().expect(0);
    let refused = sent["refused"].to_string();
    assert_eq!(sent["refusals"], 2, "{sent}");
    assert!(refused.contains(&part) && refused.contains("unfinished file"), "{refused}");
    assert!(refused.contains(&orphan) && refused.contains("rename it"), "{refused}");
}

#[test]
fn partial_files_of_another_user_are_not_written_to() {
    skip_unless!((!privileges::is_root()).then(|| "needs root".to_owned()));
    let scratch = Scratch::new("squatted");
    let bytes = noise(3, 300_000);
    let file = scratch.write("file", &bytes);
    let dir = scratch.path("to");
    let stem = format!(".landfall-{}", &blake3::hash(b"file").to_hex()[..24]);
    for sticky in [0o1777, 0o777] {
        let _ = fs::remove_dir_all(&dir);
        for end in ["part", "journal"] {
            let squat = scratch.write(&format!("to/{stem}.{end}"), b"of another");
            chown(&squat, Some(65_534), Some(65_534)).unwrap();
            set_mode(&squat, 0o666);
        }
        set_mode(&dir, sticky);
        let receiver = receive(&dir, &[]);
        send(&[&file], &receiver.at, &[]).end().expect(0);
        receiver.running.end().expect(0);
        assert_eq!(fs::read(dir.join("file")).unwrap(), bytes);
        let us = fs::metadata(&file).unwrap().uid();
        assert_eq!(fs::metadata(dir.join("file")).unwrap().uid(), us, "it is ours");
        for left in leftovers(&dir) {
            assert_eq!(fs::read(&left).unwrap(), b"of another", "{}", left.display());
        }
    }
}

/// A file with contents at these places, and holes between them.
fn sparse(path: &Path, len: u64, contents: &[(u64, usize)]) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(path).unwrap();
    for (at, bytes) in contents {
        file.write_all_at(&noise(*at, *bytes), *at).unwrap();
    }
    file.set_len(len).unwrap();
    path.into()
}

/// How much of the disk a file takes.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

const WITH_HOLES: u64 = 300 << 20;

#[test]
fn holes_stay_holes() {
    let scratch = Scratch::new("holes");
    let cases: [&[(u64, usize)]; 4] = [
        &[],
        &[(0, 70_000), (100 << 20, 3 << 20), (WITH_HOLES - 5, 5)],
        // Not where blocks begin, and with holes that are too short to be told.
        &[(123_457, 1), (200_001, 65_537), (150_000_001, 4_000_000), (160 << 20, 1 << 20)],
        &[(WITH_HOLES - (1 << 20), 1 << 20)],
    ];
    for (nth, contents) in cases.into_iter().enumerate() {
        let file = sparse(&scratch.path(&format!("from/{nth}")), WITH_HOLES, contents);
        skip_unless!((taken(&file) > 20 << 20).then(|| "needs a disk with holes".to_owned()));
        let receiver = receive(&scratch.path("to"), &["--json"]);
        let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
        let received = receiver.running.end().expect(0).json();
        let there = scratch.path("to").join(nth.to_string());
        assert_eq!(sent["bytes_moved"], received["bytes_moved"]);
        assert!(sent["bytes_moved"].as_u64().unwrap() < 20 << 20, "{sent}");
        assert!(taken(&there) < 20 << 20, "case {nth}: {} are taken", taken(&there));
        assert!(fs::read(&file).unwrap() == fs::read(&there).unwrap(), "case {nth} differs");
        // What is there is found to be the same, holes or not.
        let receiver = receive(&scratch.path("to"), &[]);
        let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
        receiver.running.end().expect(0);
        assert_eq!(sent["files_same"], 1, "{sent}");
    }
    // Zeros that are written out are the same contents.
    let file = scratch.path("from/1");
    fs::write(scratch.path("to/1"), fs::read(&file).unwrap()).unwrap();
    let receiver = receive(&scratch.path("to"), &[]);
    let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["files_same"], 1, "{sent}");
}

#[test]
fn holes_come_out_of_standard_output_as_zeros() {
    let scratch = Scratch::new("zeros");
    let file = sparse(&scratch.path("file"), 9 << 20, &[(3 << 20, 100), (5_000_001, 100_000)]);
    let receiver = receive(Path::new("-"), &[]);
    send(&[&file], &receiver.at, &[]).end().expect(0);
    assert!(receiver.running.end().expect(0).stdout == fs::read(&file).unwrap());
}

#[test]
fn a_file_with_holes_is_resumed() {
    let scratch = Scratch::new("holes-resumed");
    let contents = [(0, 4 << 20), (100 << 20, 6 << 20), (250 << 20, 2 << 20)];
    let file = sparse(&scratch.path("file"), WITH_HOLES, &contents);
    let dir = scratch.path("to");
    let came = || {
        let part = leftovers(&dir).into_iter().find(|path| path.extension().unwrap() == "part");
        part.and_then(|path| fs::metadata(path).ok()).map_or(0, |metadata| metadata.len())
    };
    let mut before = 0;
    // In the first contents, and behind the hole.
    for at_least in [2 << 20, 102 << 20] {
        let receiver = receive(&dir, &["--json"]);
        let mut sender = send(&[&file], &receiver.at, &["--limit", "10M"]);
        until("the start of the file", || came() >= at_least || sender.is_over());
        sender.kill();
        receiver.running.kill();
        assert!(came() >= at_least && came() > before);
        before = came();
    }
    let receiver = receive(&dir, &["--json"]);
    let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!((&sent["files_resumed"], &sent["bytes_there"]), (&1.into(), &before.into()));
    assert!(sent["bytes_moved"].as_u64().unwrap() < 10 << 20, "{sent}");
    assert!(fs::read(&file).unwrap() == fs::read(dir.join("file")).unwrap());
    assert!(taken(&dir.join("file")) < 20 << 20);
}

#[test]
fn a_hole_that_is_filled_meanwhile_is_noticed() {
    let scratch = Scratch::new("filled");
    let file = sparse(&scratch.path("file"), 40 << 20, &[(0, 4 << 20), (30 << 20, 4 << 20)]);
    let dir = scratch.path("to");
    let receiver = receive(&dir, &[]);
    let mut sender = send(&[&file], &receiver.at, &["--limit", "4M"]);
    until("the start of the file", || !leftovers(&dir).is_empty() || sender.is_over());
    let mut open = File::options().write(true).open(&file).unwrap();
    open.seek(SeekFrom::Start(10 << 20)).unwrap();
    open.write_all(b"something").unwrap();
    sender.end().expect(1).says("");
    receiver.running.end().expect(1);
    assert!(!dir.join("file").exists());
}

#[test]
fn what_is_more_than_the_receiver_takes_is_refused_and_told() {
    let scratch = Scratch::new("more");
    for (name, len) in [("a", 300_000), ("b", 900_000), ("c", 10)] {
        scratch.write(&format!("from/tree/{name}"), &noise(1, len));
    }
    let tree = scratch.path("from/tree");
    let receiver = receive(&scratch.path("to"), &["--max-size", "1M"]);
    let sent = send(&[&tree], &receiver.at, &[]).end().expect(1).json();
    receiver.running.end().expect(1).says("--max-size");
    assert_eq!((&sent["refusals"], &sent["refused"][0]["path"]), (&1.into(), &"tree/b".into()));
    assert_eq!(fs::read(scratch.path("to/tree/c")).unwrap().len(), 10);

    // Of a stream nobody knows it before.
    let receiver = receive(&scratch.path("other"), &["--max-size", "500K"]);
    let mut command = landfall();
    command.args(["send", "--code", CODE, "-", &receiver.at]);
    let input = File::open(tree.join("b")).unwrap();
    let ended = super::ends::Running::start(command.stdin(input)).end().expect(1);
    ended.says("--max-size");
    receiver.running.end().expect(1).says("--max-size");
    assert_eq!(fs::read_dir(scratch.path("other")).unwrap().count(), 0);

    let receiver = receive(&scratch.path("few"), &["--max-entries", "3"]);
    send(&[&tree], &receiver.at, &[]).end().expect(1).says("--max-entries");
    receiver.running.end().expect(1).says("--max-entries");
}
