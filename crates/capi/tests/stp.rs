//! The same over STP: messages and shared memory between programs in Rust, C and Python, plain
//! and with a key.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Memory, RemoteRights, Transport};
use landfall_testkit::TemporaryFolder;

use super::languages::{CProgram, Language, Other, patience};

const COUNT: u32 = 100;
const PORT: u16 = 7;
const LONG: usize = 300_000;
const KEYS: [&str; 2] = ["plain", "7"];

fn command(language: Language) -> Option<Command> {
    static BUILT: CProgram = OnceLock::new();
    language.command(&BUILT, "examples/stp")
}

/// Starts a side; none where the machine lacks the language.
fn start(language: Language, what: &str, place: &Path, key: &str) -> Option<Box<dyn FnOnce()>> {
    if language == Language::Rust {
        let (what, place, key) = (what.to_owned(), place.to_owned(), key.to_owned());
        let thread = std::thread::spawn(move || match &*what {
            "serve" => serve(&place, &key),
            _ => ask(&place, &key),
        });
        return Some(Box::new(move || thread.join().unwrap()));
    }
    let mut other = started(language, what, place, key)?;
    Some(Box::new(move || other.ended_well()))
}

fn started(language: Language, what: &str, place: &Path, key: &str) -> Option<Other> {
    let mut command = command(language)?;
    command.arg(language.task(what)).arg(place).arg(key);
    Some(Other(command.spawn().unwrap()))
}

pub(super) fn endpoint(key: &str) -> Endpoint {
    let mut builder = Endpoint::builder().path(Transport::udp("127.0.0.1:0".parse().unwrap()));
    if let Ok(byte) = key.parse() {
        builder = builder.preshared_key([byte; 32]).encrypt_loopback();
    }
    builder.bind().unwrap().into()
}

pub(super) fn tell(endpoint: &Endpoint, place: &Path) {
    let beside = place.with_extension("new");
    fs::write(&beside, endpoint.local().unwrap().to_string()).unwrap();
    fs::rename(beside, place).unwrap();
}

fn find(place: &Path) -> String {
    let deadline = patience();
    loop {
        if let Ok(address) = fs::read_to_string(place) {
            return address;
        }
        assert!(Some(Instant::now()) < deadline, "{} is not there", place.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn answer(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

/// What the programs in the other languages do, in Rust.
fn serve(place: &Path, key: &str) {
    let endpoint = endpoint(key);
    let listener = endpoint.listen(PORT).unwrap();
    tell(&endpoint, place);
    let limit = Duration::from_secs(60);
    let connection = listener.accept_within(limit).unwrap().expect("a client");
    let region = endpoint.register(Memory::zeroed(4096)).unwrap();
    let shared = [&0x1234_5678u32.to_le_bytes()[..], &4096u64.to_le_bytes(), &[7]].concat();
    connection.send(shared).wait().unwrap();
    let request = connection.region_request().unwrap();
    assert_eq!((request.name(), request.len()), (0x1234_5678, 4096));
    assert_eq!(request.rights(), RemoteRights::ALL);
    let exposed = request.expose(&region.whole(), RemoteRights::ALL).unwrap();
    // C and Python also ask for what is not there.
    while let Some(offer) = next_offer(&connection) {
        let memory = Memory::zeroed(offer.len() as usize);
        let message = offer.accept(memory).wait().unwrap();
        let (back, opaque) = (answer(&message), message.opaque() + 1);
        connection.send(back).opaque(opaque).wait().unwrap();
    }
    let mut words = [0; 16];
    region.copy_out(0, &mut words).unwrap();
    assert_eq!(words[..8], (5 * u64::from(COUNT)).to_le_bytes());
    assert_eq!(words[8..], [1, 2, 3, 4, 5, 6, 7, 8]);
    drop(exposed);
    endpoint.close();
}

/// The next message, and none after the end. Requests for other memory are refused meanwhile.
fn next_offer(connection: &Connection) -> Option<landfall::stp::Offer> {
    let deadline = patience();
    loop {
        let asked = connection.as_async().region_request();
        let moment = Duration::from_millis(1);
        // A request is refused where it is dropped.
        let _ = connection.wait(connection.as_async().within(moment, asked));
        match connection.offer_within(moment) {
            Ok(Some(offer)) => return Some(offer),
            Ok(None) => assert!(Some(Instant::now()) < deadline, "nothing comes"),
            Err(error) if error.is_graceful_close() => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn ask(place: &Path, key: &str) {
    let endpoint = endpoint(key);
    let connection = endpoint.connect(find(place), PORT).unwrap();
    let shared = connection.receive(Memory::zeroed(13)).wait().unwrap();
    let name = u32::from_le_bytes(shared[..4].try_into().unwrap());
    assert_eq!(shared[4..], [0, 16, 0, 0, 0, 0, 0, 0, 7]);
    let remote = connection.request_region(name, 4096, RemoteRights::ALL).wait().unwrap();
    for number in 0..u64::from(COUNT) {
        assert_eq!(remote.fetch_add(0, 5).wait().unwrap(), 5 * number);
    }
    remote.put(8, vec![1, 2, 3, 4, 5, 6, 7, 8]).wait().unwrap();
    assert_eq!(*remote.get(8, Memory::zeroed(2)).wait().unwrap(), [1, 2]);
    for number in 0..COUNT {
        let len = if number % 10 == 9 { LONG } else { number as usize };
        let bytes: Vec<u8> = (0..len).map(|at| (number as usize + at) as u8).collect();
        connection.send(bytes.clone()).opaque(number).wait().unwrap();
        let back = connection.receive(Memory::zeroed(LONG)).wait().unwrap();
        assert_eq!(back.opaque(), number + 1);
        assert!(*back == *answer(&bytes), "message {number} is wrong");
    }
    connection.close().unwrap();
}

fn place(folder: &TemporaryFolder) -> PathBuf {
    folder.path().join("address")
}

/// Messages and shared memory, each pair of languages in both roles.
fn each_pair(key: &str) {
    const ALL: [Language; 4] = [Language::C, Language::Python, Language::Asyncio, Language::Rust];
    for (one, two) in ALL.into_iter().flat_map(|one| ALL.map(|two| (one, two))) {
        println!("{one:?} serves {two:?}, {key}");
        let folder = TemporaryFolder::new("languages");
        let Some(serving) = start(one, "serve", &place(&folder), key) else { continue };
        let Some(asking) = start(two, "ask", &place(&folder), key) else { continue };
        asking();
        serving();
    }
}

#[test]
fn messages_and_memory_over_stp_pass_between_languages() {
    each_pair("plain");
}

#[test]
fn messages_and_memory_over_stp_pass_between_languages_with_a_key() {
    each_pair("7");
}

/// The server has one key and the client another, or none: an error, and no connection.
#[test]
fn another_key_makes_no_connection_in_any_language() {
    for (language, keys) in [
        (Language::C, ["7", "8"]),
        (Language::Python, ["7", "8"]),
        (Language::C, ["plain", "8"]),
        (Language::Python, ["7", "plain"]),
    ] {
        let folder = TemporaryFolder::new("languages");
        let server = endpoint(keys[0]);
        let _listener = server.listen(PORT).unwrap();
        tell(&server, &place(&folder));
        if let Some(client) = start(language, "other-key", &place(&folder), keys[1]) {
            client();
        }
    }
}

/// The other side is killed: what waits for it ends with an error, and so does what follows.
#[test]
fn a_peer_that_is_killed_is_reported_in_every_language() {
    let mut running = Vec::new();
    for (language, key) in [
        (Language::C, KEYS[0]),
        (Language::C, KEYS[1]),
        (Language::Python, KEYS[0]),
        (Language::Python, KEYS[1]),
    ] {
        let folder = TemporaryFolder::new("languages");
        let Some(dying) = started(Language::C, "die", &place(&folder), key) else { continue };
        let Some(left) = start(language, "wait-for-nothing", &place(&folder), key) else {
            continue;
        };
        running.push((left, dying, folder));
    }
    for (left, mut dying, _folder) in running {
        left();
        assert!(!dying.0.wait().unwrap().success(), "it was killed");
    }
}

#[test]
fn what_makes_no_sense_over_stp_is_refused_in_every_language() {
    for key in KEYS {
        for language in [Language::C, Language::Python] {
            let folder = TemporaryFolder::new("languages");
            if let Some(other) = start(language, "mistakes", &place(&folder), key) {
                other();
            }
        }
    }
}
