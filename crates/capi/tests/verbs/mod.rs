//! Queue pairs over each carrier, between programs in C, Python and Rust.

mod in_rust;
mod sockets;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use landfall_testkit::TemporaryFolder;

use crate::languages::{CProgram, Language, Other, c_command, compiled};

const CARRIERS: [&str; 3] = ["node", "stp", "qpip"];

/// The program that exchanges messages by queue pairs.
fn command(language: Language) -> Option<Command> {
    static BUILT: CProgram = OnceLock::new();
    language.command(&BUILT, "examples/pairs")
}

/// What is refused, and how queue pairs end, in C.
fn misuse() -> Option<Command> {
    static BUILT: CProgram = OnceLock::new();
    Some(c_command(compiled(&BUILT, "tests/c/misuse")?))
}

/// Starts a side; none where the machine lacks the language.
fn start(
    language: Language,
    what: &str,
    carrier: &str,
    folder: &Path,
) -> Option<Box<dyn FnOnce()>> {
    if (language, what) == (Language::Rust, "serve") && carrier != "qpip" {
        let (carrier, folder) = (carrier.to_owned(), folder.to_owned());
        let thread = std::thread::spawn(move || in_rust::serve(&carrier, &folder));
        return Some(Box::new(move || thread.join().unwrap()));
    }
    let mut command = command(language)?;
    command.arg(language.task(what)).arg(carrier).arg(folder);
    let mut other = Other(command.spawn().unwrap());
    Some(Box::new(move || other.ended_well()))
}

/// Messages, and memory of the other side, each pair of languages in both roles.
fn each_pair(carrier: &str) {
    const ALL: [Language; 4] = [Language::C, Language::Python, Language::Asyncio, Language::Rust];
    for (one, two) in ALL.into_iter().flat_map(|one| ALL.map(|two| (one, two))) {
        println!("{one:?} serves {two:?} over {carrier}");
        let folder = TemporaryFolder::new("languages");
        if two == Language::Rust {
            continue;
        }
        let Some(serving) = start(one, "serve", carrier, folder.path()) else { continue };
        let Some(asking) = start(two, "ask", carrier, folder.path()) else { continue };
        asking();
        serving();
    }
}

#[test]
fn queue_pairs_of_a_host_pass_between_languages() {
    each_pair("node");
}

#[test]
fn queue_pairs_over_stp_pass_between_languages() {
    each_pair("stp");
}

#[test]
fn queue_pairs_over_qpip_pass_between_languages() {
    each_pair("qpip");
}

#[test]
fn what_makes_no_sense_of_queue_pairs_is_refused_in_c() {
    for carrier in CARRIERS {
        let folder = TemporaryFolder::new("languages");
        let Some(mut misuse) = misuse() else { return };
        misuse.args(["mistakes", carrier]).arg(folder.path());
        println!("over {carrier}");
        Other(misuse.spawn().unwrap()).ended_well();
    }
}

#[test]
fn what_makes_no_sense_of_queue_pairs_is_refused_in_python() {
    let folder = TemporaryFolder::new("languages");
    if let Some(python) = start(Language::Python, "mistakes", "stp", folder.path()) {
        python();
    }
}

/// The other side is killed: what waits completes with an error, and the pair is over.
#[test]
fn a_killed_peer_ends_a_queue_pair_in_every_language() {
    let start = |command: Option<Command>, what: &str, carrier: &str, folder: &Path| {
        Some(Other(command?.args([what, carrier]).arg(folder).spawn().unwrap()))
    };
    let mut running = Vec::new();
    for (language, carrier) in
        [Language::C, Language::Python].into_iter().flat_map(|one| CARRIERS.map(|two| (one, two)))
    {
        let folder = TemporaryFolder::new("languages");
        let left = if language == Language::C { misuse() } else { command(language) };
        let Some(dying) = start(misuse(), "die", carrier, folder.path()) else { return };
        let Some(left) = start(left, "be-left", carrier, folder.path()) else { continue };
        running.push((left, dying, folder));
    }
    for (mut left, mut dying, _folder) in running {
        left.ended_well();
        assert!(!dying.0.wait().unwrap().success(), "it was killed");
    }
}
