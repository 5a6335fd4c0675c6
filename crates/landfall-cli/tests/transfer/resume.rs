//! Anyone who is killed, at whatever moment: the next run sends the rest, and only that.

use std::fs;
use std::path::{Path, PathBuf};

use landfall_testkit::trials::{count_kills, kills};
use rustix::process::Signal;

use super::ends::{Listening, Running, Scratch, leftovers, noise, receive, send, until};

/// Slow enough that there is something to kill.
const PACE: [&str; 2] = ["--limit", "10M"];
const SIZE: usize = 12 << 20;

/// How much of the one unfinished file has come.
fn came(dir: &Path) -> u64 {
    let parts = leftovers(dir);
    let part = parts.iter().find(|path| path.extension().is_some_and(|end| end == "part"));
    part.and_then(|path| fs::metadata(path).ok()).map_or(0, |metadata| metadata.len())
}

/// Starts to send, and stops to look when so much has come.
fn begun(file: &Path, dir: &Path, at_least: u64) -> (Listening, Running) {
    let receiver = receive(dir, &["--json"]);
    let mut sender = send(&[file], &receiver.at, &PACE);
    until("the start of the file", || came(dir) >= at_least || sender.is_over());
    (receiver, sender)
}

struct Case {
    scratch: Scratch,
    file: PathBuf,
    dir: PathBuf,
}

fn case(name: &str) -> Case {
    let scratch = Scratch::new(name);
    let file = scratch.write("file", &noise(5, SIZE));
    let dir = scratch.path("to");
    Case { scratch, file, dir }
}

#[test]
fn kills_at_any_moment_cost_only_what_was_under_way() {
    for round in 0..kills(1) {
        kill_and_resume(11 + round);
        count_kills("both ends of a transfer", 12);
    }
}

fn kill_and_resume(seed: u64) {
    let Case { scratch: _scratch, file, dir } = case("killed");
    // Moments by bytes, from a seed: who is killed, and after how much.
    let moments = noise(seed, 6);
    let mut at = 0;
    for moment in moments {
        at += 1 + u64::from(moment) * (SIZE as u64 / 7) / 256;
        let (receiver, sender) = begun(&file, &dir, at);
        assert!(!dir.join("file").exists(), "no name before it is whole");
        if moment % 2 == 0 {
            sender.kill();
            receiver.running.kill();
        } else {
            receiver.running.kill();
            sender.kill();
        }
        let now = came(&dir);
        assert!(now >= at, "seed {seed}: what came stays: {now} of {at}");
        at = now;
    }
    let (receiver, sender) = begun(&file, &dir, 0);
    let sent = sender.end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
    assert_eq!(sent["files_resumed"], 1, "seed {seed}: {sent}");
    assert_eq!(sent["bytes_there"], at, "seed {seed}: {sent}");
    assert_eq!(sent["bytes_moved"], SIZE as u64 - at, "seed {seed}: only the rest: {sent}");
    assert_eq!(leftovers(&dir), Vec::<PathBuf>::new());
}

#[test]
fn a_receiver_waits_for_a_killed_sender_to_come_again() {
    let Case { scratch: _scratch, file, dir } = case("waits");
    let (mut receiver, sender) = begun(&file, &dir, 1);
    sender.kill();
    receiver.running.line("waiting for the sender");
    let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
    assert_eq!(sent["files_resumed"], 1, "{sent}");
    receiver.running.end().expect(0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
}

#[test]
fn a_sender_tells_that_the_receiver_is_gone() {
    let Case { scratch: _scratch, file, dir } = case("gone");
    let (receiver, sender) = begun(&file, &dir, 1);
    receiver.running.kill();
    let ended = sender.end().expect(1);
    ended.says("the receiver is gone");
    ended.says("only the rest is sent");
    assert_eq!(ended.json()["ok"], false);
    assert!(came(&dir) > 0);
}

#[test]
fn a_source_that_changed_is_sent_anew() {
    let Case { scratch, file, dir } = case("changed");
    let (receiver, sender) = begun(&file, &dir, 2 << 20);
    sender.kill();
    receiver.running.kill();
    // Another length.
    let longer = noise(6, SIZE + 1);
    fs::write(&file, &longer).unwrap();
    let (receiver, sender) = begun(&file, &dir, u64::MAX);
    assert_eq!(sender.end().expect(0).json()["bytes_there"], 0);
    receiver.running.end().expect(0);
    assert_eq!(fs::read(dir.join("file")).unwrap(), longer);

    // The same length and time, but other bytes in the start: the hash tells.
    let file = scratch.write("other", &longer);
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    let (receiver, sender) = begun(&file, &dir, 2 << 20);
    sender.kill();
    receiver.running.kill();
    let mut other = longer;
    other[100] ^= 1;
    fs::write(&file, &other).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let (receiver, sender) = begun(&file, &dir, u64::MAX);
    let sent = sender.end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!((&sent["files_resumed"], &sent["bytes_there"]), (&0.into(), &0.into()), "{sent}");
    assert_eq!(fs::read(dir.join("other")).unwrap(), other);
}

#[test]
fn a_journal_that_is_torn_or_lies_costs_a_new_start_and_no_wrong_byte() {
    for (name, spoil) in [("torn", 20), ("empty", 0)] {
        let Case { scratch: _scratch, file, dir } = case(name);
        let (receiver, sender) = begun(&file, &dir, 1 << 20);
        sender.kill();
        receiver.running.kill();
        let journals = leftovers(&dir);
        let journal = journals.iter().find(|path| path.extension().unwrap() == "journal").unwrap();
        let text = fs::read(journal).unwrap();
        fs::write(journal, &text[..spoil]).unwrap();
        let (receiver, sender) = begun(&file, &dir, u64::MAX);
        assert_eq!(sender.end().expect(0).json()["bytes_there"], 0);
        receiver.running.end().expect(0);
        assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
    }
    // The partial file itself was spoilt.
    let Case { scratch: _scratch, file, dir } = case("spoilt");
    let (receiver, sender) = begun(&file, &dir, 1 << 20);
    sender.kill();
    receiver.running.kill();
    let parts = leftovers(&dir);
    let part = parts.iter().find(|path| path.extension().unwrap() == "part").unwrap();
    let mut bytes = fs::read(part).unwrap();
    bytes[77] ^= 1;
    fs::write(part, bytes).unwrap();
    let (receiver, sender) = begun(&file, &dir, u64::MAX);
    assert_eq!(sender.end().expect(0).json()["files_resumed"], 0);
    receiver.running.end().expect(0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
}

#[test]
fn the_exit_code_names_the_signal() {
    let Case { scratch: _scratch, file, dir } = case("signals");
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let (receiver, sender) = begun(&file, &dir, came(&dir) + 1);
        sender.signal(signal);
        sender.end().expect(code);
        receiver.running.signal(signal);
        receiver.running.end().expect(code);
    }
    // In the middle of a session as well.
    let (receiver, sender) = begun(&file, &dir, came(&dir) + 1);
    receiver.running.signal(Signal::TERM);
    receiver.running.end().expect(143).says("is kept in");
    sender.end().expect(1);
}

#[test]
fn ctrl_c_keeps_what_came_and_says_how_to_go_on() {
    let Case { scratch: _scratch, file, dir } = case("interrupted");
    let (mut receiver, sender) = begun(&file, &dir, 1 << 20);
    sender.interrupt();
    let ended = sender.end().expect(130);
    ended.says("run the same command again, and only the rest is sent");
    receiver.running.line("waiting for the sender");
    let kept = came(&dir);
    assert!(kept >= 1 << 20);
    receiver.running.interrupt();
    receiver.running.end().expect(130);

    let (receiver, sender) = begun(&file, &dir, kept + 1);
    receiver.running.interrupt();
    receiver.running.end().expect(130).says("is kept in");
    // It was told, and needs no patience.
    sender.end().expect(1).says("the receiver is gone");
    let (receiver, sender) = begun(&file, &dir, u64::MAX);
    assert_eq!(sender.end().expect(0).json()["files_resumed"], 1);
    receiver.running.end().expect(0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
}
