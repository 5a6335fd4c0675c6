//! The headers of the Internet are read and written in `crates/inet`: elsewhere nobody spells
//! out their numbers.

use std::collections::BTreeSet;

use landfall_tidy::{File, Repository, code, expect_none, is_test};

const CODEC: &str = "crates/inet/";

/// What somebody who reads or writes a header by hand cannot do without: the numbers of what
/// Ethernet carries, the first byte of IPv4, the masks of its fragments.
const BY_HAND: [&str; 13] = [
    "0x0800",
    "0x0806",
    "0x8100",
    "0x86dd",
    "0x88a8",
    "[8, 0]",
    "[8, 6]",
    "[0x08, 0x00]",
    "[0x86, 0xdd]",
    "[8, 0, 0x45",
    "0x1fff",
    "0x3fff",
    "vec![0x45",
];

/// Who does so all the same, and why.
const EXCEPTIONS: [(&str, &str); 7] = [
    ("crates/soak/src/datagram.rs", "what a stack would find judges what was received"),
    ("crates/soak/src/net.rs", "damages frames as a network does, whatever is in them"),
    ("crates/soak/src/story.rs", "tells of frames, damaged ones too"),
    ("crates/testbed/src/ingress.rs", "rules in the words of nftables"),
    ("crates/transport/src/packet/filter.rs", "a program that the kernel runs"),
    ("crates/transport/src/scatter/send.rs", "asks which kind of packet the kernel is to cut"),
    ("crates/transport/src/xdp/program.rs", "a program that the kernel runs"),
];

#[test]
fn headers_are_read_and_written_in_one_crate() {
    let found: Vec<_> = by_hand()
        .into_iter()
        .filter(|(path, _)| !EXCEPTIONS.iter().any(|(excepted, _)| path == excepted))
        .map(|(path, line)| format!("{path}: {line}"))
        .collect();
    expect_none("read and write these with landfall-inet", &found);
}

#[test]
fn every_exception_from_the_codec_is_still_needed() {
    let there: BTreeSet<_> = by_hand().into_iter().map(|(path, _)| path).collect();
    let gone: Vec<_> = EXCEPTIONS
        .iter()
        .filter(|(path, _)| !there.contains(*path))
        .map(|(path, why)| format!("{path}: {why}"))
        .collect();
    expect_none("take these out of the list", &gone);
}

fn by_hand() -> Vec<(String, String)> {
    let files = Repository::here().files("rs").into_iter();
    files.filter(|file| is_meant(&file.path)).flat_map(|file| in_file(&file)).collect()
}

/// A naive model reads headers by itself, so that it can be another opinion.
fn is_meant(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && !path.starts_with(CODEC)
        && !path.contains("/model/")
        && !is_test(path)
}

fn in_file(file: &File) -> Vec<(String, String)> {
    code(&file.text)
        .filter(|line| BY_HAND.iter().any(|needle| line.contains(needle)))
        .map(|line| (file.path.clone(), line.trim().to_owned()))
        .collect()
}

#[test]
fn a_header_that_is_read_by_hand_is_found() {
    let text = "// 0x0800\nif half(frame, 12) == 0x86dd {\n}\nmod tests {\nlet x = [8, 0];\n}";
    let file = File { path: "crates/new/src/lib.rs".to_owned(), text: text.to_owned() };
    let found: Vec<_> = in_file(&file).into_iter().map(|(_, line)| line).collect();
    assert_eq!(found, ["if half(frame, 12) == 0x86dd {"]);
    assert!(is_meant(&file.path) && is_meant("crates/simnet/src/capture.rs"));
    assert!(!is_meant("crates/inet/src/ipv4.rs") && !is_meant("crates/qpip/src/model/frame.rs"));
}
