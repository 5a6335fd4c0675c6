//! Who does not know the code: says nothing, guesses, comes in crowds. It gets nothing in,
//! and keeps nobody out.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use landfall::stp::Memory;
use landfall::stp::blocking::{Connection, Endpoint};
use landfall_seal::{Handshake, Pake, Seed, Suite};

use super::ends::{Running, Scratch, landfall, leftovers, noise, receive, send, until};
use super::middle::endpoint;

/// The port of STP at which receivers listen.
const SERVICE: u16 = 8182;
const LIMIT: Duration = Duration::from_secs(240);

fn somewhere() -> Endpoint {
    endpoint(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// Connects, and says nothing. The receiver may have sent it away again.
fn silent(endpoint: &Endpoint, at: &str, many: usize) -> Vec<Connection> {
    let to: SocketAddr = at.parse().unwrap();
    (0..many).filter_map(|_| endpoint.connect(to, SERVICE).ok()).collect()
}

fn say(connection: &Connection, bytes: Vec<u8>) -> Option<()> {
    connection.send(bytes).wait_for(LIMIT).ok()?.ok().map(drop)
}

fn hear(connection: &Connection) -> Option<Vec<u8>> {
    let heard = connection.receive(Memory::zeroed(64)).wait_for(LIMIT).ok()?.ok()?;
    Some(heard.to_vec())
}

/// Greets with a proof that is none; gives what the receiver says to that.
fn guess(endpoint: &Endpoint, at: &str) -> Option<Vec<u8>> {
    let connection = endpoint.connect(at.parse::<SocketAddr>().unwrap(), SERVICE).ok()?;
    let mut pake = Pake::initiator(b"a guess", b"", Suite::Aes128Gcm, Seed::new([1; 32]));
    let message =
        |which: &[u8], pake: &mut Pake| [b"LFft", which, &pake.poll_message().unwrap()].concat();
    say(&connection, message(b"\x01\x03\x00", &mut pake))?;
    let challenge = hear(&connection)?;
    if challenge[4] != 2 {
        return Some(challenge);
    }
    pake.handle_message(&challenge[7..]).unwrap();
    say(&connection, message(b"\x03", &mut pake))?;
    hear(&connection)
}

fn one_file(scratch: &Scratch) -> PathBuf {
    scratch.write("file", b"contents")
}

#[track_caller]
fn comes_through(file: &Path, at: &str, dir: &Path) {
    send(&[file], at, &[]).end().expect(0);
    let name = file.file_name().unwrap();
    assert_eq!(fs::read(file).unwrap(), fs::read(dir.join(name)).unwrap());
}

#[test]
fn a_hundred_silent_clients_keep_nobody_out() {
    let scratch = Scratch::new("silent");
    let (file, dir) = (one_file(&scratch), scratch.path("to"));
    let receiver = receive(&dir, &[]);
    let endpoint = somewhere();
    let before = silent(&endpoint, &receiver.at, 100);
    assert!(before.len() > 50, "{} got in", before.len());
    comes_through(&file, &receiver.at, &dir);
    receiver.running.end().expect(0);
}

#[test]
fn a_hundred_wrong_proofs_end_no_receiver() {
    for keep in [&["--keep"][..], &[]] {
        let scratch = Scratch::new(if keep.is_empty() { "guesses" } else { "guesses-keep" });
        let (file, dir) = (one_file(&scratch), scratch.path("to"));
        let mut receiver = receive(&dir, keep);
        let endpoint = somewhere();
        let answers: Vec<_> = (0..100).map(|_| guess(&endpoint, &receiver.at)).collect();
        let count = |why: u8| {
            let refused = [b"LFft\x05\x03\x00".as_slice(), &[why]].concat();
            answers.iter().flatten().filter(|answer| **answer == refused).count()
        };
        assert!(count(1) >= 32, "that many are heard at once: {answers:?}");
        assert!(count(2) > 0, "and then guessing has a rate: {answers:?}");
        assert_eq!(count(1) + count(2), 100, "{answers:?}");
        assert!(!receiver.running.is_over());
        // It knows the code, and is of the same address: it waits for its turn.
        comes_through(&file, &receiver.at, &dir);
        if keep.is_empty() {
            receiver.running.end().expect(0).says("does not know the code");
        } else {
            receiver.running.line("received ");
            assert!(guess(&endpoint, &receiver.at).is_some());
            let other = scratch.write("other", b"more contents");
            comes_through(&other, &receiver.at, &dir);
            receiver.running.interrupt();
            receiver.running.end().expect(130);
        }
        assert_eq!(leftovers(&dir), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_sender_comes_through_a_crowd_and_stays() {
    let scratch = Scratch::new("crowd");
    let file = scratch.write("file", &noise(1, 4 << 20));
    let dir = scratch.path("to");
    let receiver = receive(&dir, &[]);
    let at = receiver.at.clone();
    let crowd = |many: usize| {
        let at = at.clone();
        std::thread::spawn(move || {
            let endpoint = somewhere();
            let silent = silent(&endpoint, &at, many);
            for _ in 0..many {
                guess(&endpoint, &at);
            }
            drop(silent);
        })
    };
    let crowds = [crowd(100), crowd(100)];
    // Slow enough that the crowds come and go meanwhile.
    let mut sender = send(&[&file], &at, &["--limit", "1M"]);
    until("the start of the file", || !leftovers(&dir).is_empty() || sender.is_over());
    let more = crowd(100);
    let sent = sender.end().expect(0).json();
    assert_eq!(sent["files"], 1, "{sent}");
    receiver.running.end().expect(0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("file")).unwrap());
    for crowd in crowds.into_iter().chain([more]) {
        crowd.join().unwrap();
    }
}

#[test]
fn a_second_sender_is_told_that_the_receiver_is_busy() {
    let scratch = Scratch::new("busy");
    let file = scratch.write("file", &noise(1, 8 << 20));
    let other = scratch.write("other", b"contents");
    let dir = scratch.path("to");
    let receiver = receive(&dir, &["--keep"]);
    let first = send(&[&file], &receiver.at, &["--limit", "200K"]);
    until("the start of the file", || !leftovers(&dir).is_empty());
    send(&[&other], &receiver.at, &[]).end().expect(1).says("busy with another sender");
    first.kill();
    // It waits until the one that is gone has been given up.
    until("the place", || send(&[&other], &receiver.at, &[]).end().code() == Some(0));
    assert_eq!(fs::read(dir.join("other")).unwrap(), b"contents");
}

#[test]
fn a_wrong_code_gets_nothing_in_and_spoils_nothing() {
    let scratch = Scratch::new("wrong");
    let file = one_file(&scratch);
    let dir = scratch.path("to");
    let receiver = receive(&dir, &[]);
    for _ in 0..4 {
        let mut command = landfall();
        command.env("LANDFALL_CODE", "another code entirely");
        command.arg("send").arg(&file).arg(&receiver.at);
        Running::start(&mut command).end().expect(1).says("the receiver has another code");
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    comes_through(&file, &receiver.at, &dir);
    let ended = receiver.running.end().expect(0);
    assert_eq!(ended.said.matches("does not know the code").count(), 4, "{}", ended.said);
}
