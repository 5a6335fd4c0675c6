//! Who changes bytes on the way gets none of them written, and costs no more than the pieces
//! that it changed.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::ends::{Scratch, leftovers, noise, receive, send};
use super::middle::{Passing, stand_before};

const SIZE: usize = (6 << 20) + 4321;

fn nothing(_: &mut Passing) {}

/// What an attacker would have extracted by `tar`.
fn replace(passing: &mut Passing) {
    let script = b"#!/bin/sh\nid > was-here\n";
    for (at, byte) in passing.bytes.iter_mut().enumerate() {
        *byte = script[at % script.len()];
    }
}

fn flip(passing: &mut Passing) {
    let at = passing.bytes.len() / 2;
    passing.bytes[at] ^= 0x10;
}

#[test]
fn no_forged_piece_reaches_standard_output() {
    let scratch = Scratch::new("forged-output");
    let bytes = noise(1, SIZE);
    let file = scratch.write("file", &bytes);
    for change in [replace, flip] {
        let receiver = receive(Path::new("-"), &[]);
        let forge = move |passing: &mut Passing| {
            if passing.is_piece() && passing.nth > 5 {
                change(passing);
            }
        };
        let at = stand_before(&receiver.at, forge, nothing);
        send(&[&file], &at, &[]).end().expect(1);
        let ended = receiver.running.end().expect(1);
        ended.says("somebody on the way changes it");
        assert!(bytes.starts_with(&ended.stdout), "{} bytes got out", ended.stdout.len());
        assert!(ended.stdout.len() < SIZE);
    }
}

#[test]
fn a_piece_that_was_changed_on_the_way_is_asked_for_again() {
    let scratch = Scratch::new("again");
    let bytes = noise(2, SIZE);
    let file = scratch.write("file", &bytes);
    for dir in [Path::new("-"), &scratch.path("to")] {
        let receiver = receive(dir, &[]);
        let count = Arc::new(AtomicU64::new(0));
        let forged = Arc::clone(&count);
        let forge = move |passing: &mut Passing| {
            if passing.is_piece() && forged.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                replace(passing);
            }
        };
        let at = stand_before(&receiver.at, forge, nothing);
        send(&[&file], &at, &[]).end().expect(0);
        let ended = receiver.running.end().expect(0);
        assert!(count.load(Ordering::Relaxed) > 8, "they went by, and some again");
        let came =
            if dir == Path::new("-") { ended.stdout } else { fs::read(dir.join("file")).unwrap() };
        assert_eq!(came, bytes);
    }
}

/// Every kind of transfer, in both directions: announcements, answers, what says what came.
#[test]
fn any_transfer_that_was_changed_on_the_way_is_asked_for_again() {
    let scratch = Scratch::new("any");
    let bytes = noise(3, SIZE);
    scratch.write("from/tree/large", &bytes);
    for nth in 0..600u64 {
        scratch.write(&format!("from/tree/{nth}"), &noise(nth, 4000));
    }
    let receiver = receive(&scratch.path("to"), &[]);
    let every_third = |passing: &mut Passing| {
        if !passing.is_greeting() && passing.nth % 3 == 2 {
            flip(passing);
        }
    };
    let at = stand_before(&receiver.at, every_third, every_third);
    let sent = send(&[&scratch.path("from/tree")], &at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["files"], 601, "{sent}");
    assert_eq!(fs::read(scratch.path("to/tree/large")).unwrap(), bytes);
}

/// All is in place; the receiver's last word comes changed, and whatever the sender asks then does
/// so for a while, too. The receiver stays until the sender has heard it.
#[test]
fn a_last_word_that_was_changed_is_heard_in_the_end() {
    const WHILE: Duration = Duration::from_secs(8);
    let scratch = Scratch::new("last-word");
    let file = scratch.write("file", b"contents");
    let receiver = receive(&scratch.path("to"), &[]);
    let changed = Arc::new(OnceLock::new());
    let since: Arc<OnceLock<Instant>> = Arc::clone(&changed);
    let deafen = move |passing: &mut Passing| {
        if since.get().is_some_and(|since| since.elapsed() < WHILE) {
            flip(passing);
        }
    };
    let mut bundles = 0;
    let spoil = move |passing: &mut Passing| {
        bundles += u32::from(passing.is_bundle());
        // The ways to it, an answer, and the last word; the next of them is that one again.
        if passing.is_bundle() && bundles == 3 {
            changed.set(Instant::now()).unwrap();
            flip(passing);
        }
    };
    let at = stand_before(&receiver.at, deafen, spoil);
    let sent = send(&[&file], &at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["files"], 1, "{sent}");
    assert_eq!(fs::read(scratch.path("to/file")).unwrap(), b"contents");
}

#[test]
fn labels_that_lie_cost_no_more() {
    let scratch = Scratch::new("labels");
    let bytes = noise(4, SIZE);
    let file = scratch.write("file", &bytes);
    let receiver = receive(&scratch.path("to"), &[]);
    let relabel = |passing: &mut Passing| match passing.nth {
        4 => passing.label ^= 1,
        6 => passing.label ^= 1 << 20,
        8 => passing.label ^= 1 << 30,
        10 => passing.label ^= 1 << 31,
        _ => {}
    };
    let at = stand_before(&receiver.at, relabel, nothing);
    send(&[&file], &at, &[]).end().expect(0);
    receiver.running.end().expect(0);
    assert_eq!(fs::read(scratch.path("to/file")).unwrap(), bytes);
}

#[test]
fn no_forged_piece_is_kept_for_resuming() {
    let scratch = Scratch::new("poisoned");
    let bytes = noise(5, SIZE);
    let (file, dir) = (scratch.write("file", &bytes), scratch.path("to"));
    let receiver = receive(&dir, &["--json"]);
    let forge = |passing: &mut Passing| {
        if passing.is_piece() && passing.nth > 6 {
            replace(passing);
        }
    };
    let at = stand_before(&receiver.at, forge, nothing);
    send(&[&file], &at, &[]).end().expect(1);
    receiver.running.end().expect(1).says("somebody on the way changes it");
    let parts = leftovers(&dir);
    let part = parts.iter().find(|path| path.extension().unwrap() == "part").unwrap();
    let kept = fs::read(part).unwrap();
    assert!(!kept.is_empty() && bytes.starts_with(&kept), "{} bytes are kept", kept.len());

    let receiver = receive(&dir, &[]);
    let sent = send(&[&file], &receiver.at, &[]).end().expect(0).json();
    receiver.running.end().expect(0);
    assert_eq!(sent["bytes_there"], kept.len(), "{sent}");
    assert_eq!(fs::read(dir.join("file")).unwrap(), bytes);
}
