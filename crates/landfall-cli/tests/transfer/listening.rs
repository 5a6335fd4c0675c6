//! Who records what goes by learns neither names nor contents.

use std::collections::HashSet;
use std::fs;
use std::sync::{Arc, Mutex};

use super::ends::{Scratch, noise, receive, send};
use super::middle::{Passing, stand_before};

/// All that went by, in both directions.
type Recording = Arc<Mutex<Vec<u8>>>;

/// What is looked for: long enough that it is nowhere by chance.
const PART: usize = 8;

/// Every part of the recording, wherever it begins.
fn parts(recording: &[u8]) -> HashSet<[u8; PART]> {
    recording.windows(PART).filter_map(|part| part.try_into().ok()).collect()
}

/// The first part of these bytes that was heard.
fn heard<'a>(parts: &HashSet<[u8; PART]>, bytes: &'a [u8]) -> Option<&'a [u8; PART]> {
    bytes.windows(PART).filter_map(|part| part.try_into().ok()).find(|part| parts.contains(*part))
}

fn recorder(into: &Recording) -> impl FnMut(&mut Passing) + Send + 'static {
    let into = Arc::clone(into);
    move |passing| into.lock().unwrap().extend_from_slice(&passing.bytes)
}

#[test]
fn a_recording_has_no_name_and_no_contents() {
    let scratch = Scratch::new("listening");
    let words = "the same words over and over, which are easily found; ".repeat(8000);
    let contents = [noise(7, 1 << 20), words.into_bytes(), b"small but secret".to_vec()];
    let names = ["a-name-that-nobody-reads", "a-folder-within/another-name", "and-a-third-name"];
    for (name, contents) in names.iter().zip(&contents) {
        scratch.write(&format!("from/the-tree-itself/{name}"), contents);
    }
    std::os::unix::fs::symlink(names[0], scratch.path("from/the-tree-itself/link-to-it")).unwrap();
    let dir = scratch.path("into-this-folder");
    // A name that is taken is refused with a reason, which is a text for people.
    fs::create_dir_all(dir.join("the-tree-itself")).unwrap();
    fs::write(dir.join("the-tree-itself/and-a-third-name"), b"other contents").unwrap();
    let receiver = receive(&dir, &[]);
    let recording = Recording::default();
    let at = stand_before(&receiver.at, recorder(&recording), recorder(&recording));
    let sent = send(&[&scratch.path("from/the-tree-itself")], &at, &[]).end().expect(1).json();
    receiver.running.end().expect(1);
    assert_eq!((&sent["files"], &sent["refusals"]), (&2.into(), &1.into()), "{sent}");
    for (name, contents) in names.iter().zip(&contents).take(2) {
        assert_eq!(&fs::read(dir.join("the-tree-itself").join(name)).unwrap(), contents);
    }

    let recording = recording.lock().unwrap();
    let recorded = parts(&recording);
    let all: usize = contents.iter().map(Vec::len).sum();
    assert!(recording.len() > all - 100 && recorded.len() > all - 10_000, "all of it went by");
    // It would be found if it were there.
    assert!(recording.starts_with(b"LFft\x01\x03\x00"), "the greeting begins in the clear");
    assert!(heard(&recorded, &recording[recording.len() / 2..][..PART]).is_some());
    for bytes in contents.iter().map(Vec::as_slice).chain(names.map(str::as_bytes)).chain([
        &b"the-tree-itself"[..],
        b"link-to-it",
        b"already there",
        b"into-this-folder",
    ]) {
        assert_eq!(heard(&recorded, bytes), None);
    }
}
