//! Services through shared memory: each client is a process of its own.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use landfall_testkit::TemporaryFolder;
use landfall_testkit::skip::skip;
use sockets_compat::ClanStream;

use super::{PATIENCE, Serving, is_characters, noise};
use crate::common::landfall;

const LEN: usize = 2_000_000;

/// A folder where processes meet, gone with the test.
struct Meeting(TemporaryFolder);

impl Meeting {
    fn new() -> Self {
        Self(TemporaryFolder::new("serve"))
    }

    fn serve(&self, words: &str) -> Serving {
        Serving::start(&format!("{words} --over clan --shared {} -v", self.0.path().display()))
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.0.path()).unwrap().next().is_none()
    }
}

fn connect(serving: &Serving) -> ClanStream {
    let stream = ClanStream::connect(serving.word_behind("at")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends all, says that this was all, and hears what comes.
fn converse(stream: &ClanStream, bytes: &[u8]) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(move || {
            (&mut &*stream).write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut heard = Vec::new();
        (&mut &*stream).read_to_end(&mut heard).unwrap();
        heard
    })
}

#[test]
fn echo_gives_every_byte_back_to_several_at_once_and_leaves_nothing() {
    let meeting = Meeting::new();
    let serving = meeting.serve("echo");
    thread::scope(|scope| {
        for len in [1, 4096, LEN] {
            let serving = &serving;
            scope.spawn(move || {
                let bytes = noise(len);
                assert!(converse(&connect(serving), &bytes) == bytes, "{len} bytes");
            });
        }
    });
    assert!(converse(&connect(&serving), &[]).is_empty());
    // One that is silent keeps nobody from ending.
    let silent = connect(&serving);
    (&mut &silent).write_all(b"here").unwrap();
    (&mut &silent).read_exact(&mut [0; 4]).unwrap();
    let (summary, said) = serving.end_by("-TERM");
    assert_eq!((&summary["over"], &summary["ended"]), (&"clan".into(), &"a signal".into()));
    assert!(summary["port"].is_null() && summary["clients"] == 5, "{summary}");
    let all = 1 + 4096 + LEN + 4;
    assert_eq!((&summary["received_bytes"], &summary["sent_bytes"]), (&all.into(), &all.into()));
    assert!(said.contains("finished") && said.contains("the server ended"), "{said}");
    drop(silent);
    assert!(meeting.is_empty(), "{:?}", std::fs::read_dir(meeting.0.path()).unwrap().next());
}

/// What a ring holds outlives a server that ends as soon as it has sent it.
#[test]
fn a_client_that_reads_late_still_gets_every_byte() {
    let meeting = Meeting::new();
    let serving = meeting.serve("echo --once");
    let bytes = noise(300_000);
    let stream = connect(&serving);
    (&mut &stream).write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let (summary, said) = serving.end();
    assert_eq!(summary["sent_bytes"], bytes.len(), "{said}");
    let mut heard = Vec::new();
    (&mut &stream).read_to_end(&mut heard).unwrap();
    assert!(heard == bytes, "{} bytes came back", heard.len());
}

#[test]
fn discard_and_source_do_what_their_rfcs_say() {
    let meeting = Meeting::new();
    let serving = meeting.serve("discard --once");
    assert!(converse(&connect(&serving), &noise(LEN)).is_empty());
    let (summary, said) = serving.end();
    assert_eq!(summary["ended"], "the first client has gone", "{said}");
    assert_eq!((&summary["received_bytes"], &summary["sent_bytes"]), (&LEN.into(), &0.into()));

    let serving = meeting.serve("source --once");
    let mut stream = connect(&serving);
    // What is sent to it is thrown away, and more than a ring holds does not stop it.
    stream.write_all(&noise(LEN)).unwrap();
    let mut text = vec![0; LEN];
    stream.read_exact(&mut text).unwrap();
    assert!(text.starts_with(b" !\"#$%&'()") && is_characters(&text));
    drop(stream);
    let (summary, said) = serving.end();
    assert_eq!(summary["received_bytes"], LEN, "{said}");
    assert!(summary["sent_bytes"].as_u64() >= Some(LEN as u64), "{summary}");
    assert!(said.contains("finished"), "{said}");
}

/// The example that the documentation names, as a process of its own.
fn talk(serving: &Serving) -> Option<Child> {
    let test = std::env::current_exe().unwrap();
    let talk = test.parent().and_then(Path::parent).unwrap().join("examples/talk");
    if !talk.exists() {
        skip("talk", "is not built: cargo build -p landfall-cli --examples");
        return None;
    }
    let mut command = Command::new(talk);
    command.arg(serving.word_behind("at")).stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(command.spawn().unwrap())
}

#[test]
fn another_process_is_a_client_and_one_that_is_killed_leaves_its_place() {
    let meeting = Meeting::new();
    let serving = meeting.serve("echo --clients 1");
    let Some(mut killed) = talk(&serving) else { return };
    killed.stdin.as_mut().unwrap().write_all(b"here").unwrap();
    killed.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    // There is one place.
    assert!(converse_or_reset(&serving).is_none());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let started = Instant::now();
    while converse_or_reset(&serving).is_none() {
        assert!(started.elapsed() < PATIENCE, "its place is never free");
        thread::sleep(Duration::from_millis(20));
    }
    let bytes = noise(LEN);
    let started = Instant::now();
    let output = loop {
        let mut client = talk(&serving).unwrap();
        let (mut stdin, sent) = (client.stdin.take().unwrap(), bytes.clone());
        // Who is turned away takes nothing.
        let sending = thread::spawn(move || stdin.write_all(&sent));
        let output = client.wait_with_output().unwrap();
        let sent = sending.join().unwrap();
        if sent.is_ok() && output.status.success() && !output.stdout.is_empty() {
            break output;
        }
        assert!(started.elapsed() < PATIENCE, "the place of the one before is never free");
    };
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    let (summary, said) = serving.end_by("-INT");
    assert_eq!(summary["most_at_once"], 1, "{said}");
    assert!(summary["turned_away"].as_u64() >= Some(1), "{said}");
}

/// A word there and back, or nothing where there was no place.
fn converse_or_reset(serving: &Serving) -> Option<()> {
    let mut stream = ClanStream::connect(serving.word_behind("at")).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = [0; 4];
    stream.write_all(b"more").ok()?;
    stream.read_exact(&mut heard).ok()?;
    assert_eq!(&heard, b"more");
    Some(())
}

#[test]
fn a_folder_that_is_not_there_and_a_name_that_is_taken_are_told() {
    let meeting = Meeting::new();
    let folder = meeting.0.path().to_str().unwrap().to_owned();
    let nowhere = format!("{folder}/nowhere");
    let serve = |folder: &str, more: &[&str]| {
        let words = ["serve", "echo", "--over", "clan", "--shared", folder, "--seconds", "1"];
        let output = landfall(&[&words[..], more].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = serve(&nowhere, &[]);
    assert!(code == Some(1) && said.contains("make it"), "{said}");
    let (code, said) = serve(&folder, &["--port", "8"]);
    assert!(code == Some(2) && said.contains("--port"), "{said}");
    let serving = meeting.serve("echo");
    let (code, said) = serve(&folder, &[]);
    assert!(code == Some(1) && said.contains("#echo"), "{said}");
    serving.end_by("-TERM");
}
