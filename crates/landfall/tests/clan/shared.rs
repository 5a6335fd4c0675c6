//! The fabric between two real processes, one of which is killed. (The programming
//! layer over it is tested with that.)
//!
//! The other process is this program itself, started again for one test that does
//! nothing unless it finds in its environment what it is for.

use std::time::{Duration, Instant};

use landfall::clan::layer::queue;
use landfall::clan::shared::{SharedConfig, SharedLocal, SharedNode, SharedRemote, SharedTripwire};
use landfall::clan::{
    Access, Cookie, Error, Event, EventQueue, Eventful, Fabric, Local, Remote, Rights, Tripwire,
};
use landfall_testkit::TemporaryFolder;
use landfall_testkit::trials::{count_kills, kills};
use landfall_transport::wait::until_ready;

use super::other::{Other, long, node_in};

/// Where the other process meets us, and what it has to do there.
const FOLDER: &str = "LANDFALL_CLAN_FOLDER";
const COOKIE: &str = "LANDFALL_CLAN_COOKIE";
const NAME: &str = "LANDFALL_CLAN_NAME";

fn hex(cookie: &Cookie) -> String {
    cookie.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Cookie {
    let bytes: Vec<_> = (0..Cookie::LEN)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    Cookie::from_bytes(&bytes.try_into().unwrap()).unwrap()
}

/// One that uses this memory.
fn start(folder: &TemporaryFolder, cookie: &Cookie) -> Other {
    Other::start("clan::shared::the_other_process", |command| {
        command.env(FOLDER, folder.path()).env(COOKIE, hex(cookie));
    })
}

/// One that offers a name.
fn offer(folder: &TemporaryFolder) -> Other {
    Other::start("clan::shared::the_offering_process", |command| {
        command.env(FOLDER, folder.path()).env(NAME, "prices");
    })
}

/// Where things lie in the memory that both use.
const COUNTER: u64 = 0;
const TOKEN: u64 = 64;
const BODY: u64 = 512;
const BODY_LEN: usize = 1000;

/// Sleeps until the first word is more than it was; none if the peer is lost.
fn next_word(
    node: &SharedNode,
    memory: &SharedLocal,
    wire: &SharedTripwire,
    peer: Option<&SharedRemote>,
    old: u64,
) -> Option<u64> {
    loop {
        wire.arm();
        // Asked before the look: what it wrote before its end is seen.
        let is_lost = peer.is_some_and(|peer| peer.check().is_err());
        let word = memory.load(COUNTER).unwrap();
        if word > old {
            return Some(word);
        }
        if is_lost {
            return None;
        }
        assert!(node.wait(&[wire], long()).unwrap(), "it hangs at {old}");
    }
}

/// Meets the other process: its cookie comes through memory.
fn meet(node: &SharedNode, memory: &SharedLocal) -> (Cookie, SharedRemote) {
    let wire = node.watch(memory, COUNTER..COUNTER + 8, Access::Write, None).unwrap();
    next_word(node, memory, &wire, None, 0).unwrap();
    let mut bytes = [0; Cookie::LEN];
    memory.copy_out(TOKEN, &mut bytes).unwrap();
    let cookie = Cookie::from_bytes(&bytes).unwrap();
    (cookie, node.map(&cookie).unwrap())
}

#[test]
fn two_processes_wake_each_other_and_a_cookie_is_passed_on() {
    const ROUNDS: u64 = 1_000;
    let folder = TemporaryFolder::new("clan");
    let node = node_in(&folder);
    let (memory, cookie) = node.expose(4096, Rights::Write).unwrap();
    let mut other = start(&folder, &cookie);
    let (theirs, mut remote) = meet(&node, &memory);
    let wire = node.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap();
    let mut word = 1;
    while word < ROUNDS {
        remote.store(COUNTER, word).unwrap();
        remote.commit().unwrap();
        word = next_word(&node, &memory, &wire, Some(&remote), word).expect("it lives");
        let mut body = [0; BODY_LEN];
        memory.copy_out(BODY, &mut body).unwrap();
        assert_eq!(body, [word as u8; BODY_LEN]);
    }
    // Anyone who gets the cookie maps the memory: here a third node, that never met it.
    let stranger = node_in(&folder);
    let mut third = stranger.map(&theirs).unwrap();
    let mut found = [0; 8];
    third.read(COUNTER, &mut found, None).unwrap();
    assert_eq!(u64::from_le_bytes(found), ROUNDS - 1);
    drop((remote, wire, memory, node, third));
    assert!(other.ended_well(), "it has noticed that we are gone");
}

#[test]
fn a_process_that_is_killed_is_lost_and_what_it_published_is_whole() {
    let times = kills(100);
    let folder = TemporaryFolder::new("clan");
    let node = node_in(&folder);
    for time in 0..times {
        let (memory, cookie) = node.expose(4096, Rights::Write).unwrap();
        let mut other = start(&folder, &cookie);
        let (theirs, mut remote) = meet(&node, &memory);
        let wire = node.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap();
        let until = 1 + time * 7919 % 97;
        let mut word = 1;
        loop {
            let _ = remote.store(COUNTER, word).and_then(|()| remote.commit());
            if word == until {
                other.kill();
            }
            match next_word(&node, &memory, &wire, Some(&remote), word) {
                Some(next) => word = next,
                None => break,
            }
            // It waits for the answer before it writes the next.
            let mut body = [0; BODY_LEN];
            memory.copy_out(BODY, &mut body).unwrap();
            assert_eq!(body, [word as u8; BODY_LEN]);
        }
        assert!(wire.has_fired(), "a tripwire with a peer fires when that is lost");
        assert!(matches!(remote.store(0, 1), Err(Error::PeerLost)));
        assert!(node.map(&theirs).is_err());
    }
    count_kills("a process with shared memory of CLAN", times);
    let deadline = long().unwrap();
    while node.peers() > 0 {
        assert!(Instant::now() < deadline, "what was for the dead is not given back");
        std::thread::yield_now();
    }
}

#[test]
fn events_of_another_process_and_its_death_make_the_descriptor_readable() {
    let folder = TemporaryFolder::new("clan");
    let node = node_in(&folder);
    let (memory, cookie) = node.expose(4096, Rights::Write).unwrap();
    let mut other = start(&folder, &cookie);
    let (_, mut remote) = meet(&node, &memory);
    let wire = node.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap();
    let mut events = node.events(4).unwrap();
    events.register(&wire, 5).unwrap();
    // Sleeps where other descriptors might be, too.
    let mut next = || {
        while events.arm() {
            assert!(until_ready(&[events.interest()], Duration::from_secs(60)).unwrap());
        }
        events.next()
    };
    for word in 1..=300 {
        remote.store(COUNTER, word).unwrap();
        remote.commit().unwrap();
        while memory.load(COUNTER).unwrap() <= word {
            assert_eq!(next(), Some(Event::Tripwire(5)));
        }
    }
    other.kill();
    while remote.check().is_ok() {
        assert_eq!(next(), Some(Event::Tripwire(5)));
    }
    assert!(wire.has_fired());
}

/// A process that offers a name is killed, time and again, at whatever it does: who has found
/// it loses it and gets no half element, nobody finds the name any more, and the next process
/// takes it over.
#[test]
fn a_name_survives_the_death_of_who_offers_it() {
    let folder = TemporaryFolder::new("clan");
    let node = node_in(&folder);
    let config = queue::Config::new(64, 8);
    for time in 0..20 {
        let mut other = offer(&folder);
        let found = node.find("prices", long()).unwrap();
        assert_eq!(node.names().unwrap(), ["prices"]);
        let half = queue::Receiver::open(&node, config).unwrap();
        let mut receiver = found.join(half, long()).unwrap();
        let mut next = 0u64;
        let lost = loop {
            let elements = match receiver.elements(long()) {
                Ok(elements) => elements,
                Err(error) => break error,
            };
            for element in elements.iter() {
                assert_eq!(element.get::<[u64; 8]>(0).unwrap(), [next; 8]);
                next += 1;
            }
            if next > time * 37 {
                other.kill();
            }
        };
        assert!(matches!(lost, Error::PeerLost), "{lost}");
        other.0.wait().unwrap();
        assert!(node.try_find("prices").unwrap().is_none(), "nobody offers it");
        assert!(node.names().unwrap().is_empty());
        assert!(found.ask(b"still there?", long()).is_err());
    }
}

/// Not a test but a process: it offers a name, and sends numbers to anyone who comes.
#[test]
fn the_offering_process() {
    let (Some(folder), Ok(name)) = (std::env::var_os(FOLDER), std::env::var(NAME)) else { return };
    let node = SharedNode::open(SharedConfig::new(folder.as_ref())).unwrap();
    let offer = node.offer(&name).unwrap();
    let half = queue::Sender::open(&node, queue::Config::new(64, 8).singly()).unwrap();
    let mut sender = offer.accept(long()).unwrap().join(half).unwrap();
    for number in 0u64.. {
        let Ok(mut loan) = sender.loan(long()) else { return };
        loan.put(0, &[number; 8]).and_then(|()| loan.publish()).unwrap();
    }
}

/// Not a test but a process: what it finds in its environment it is made for.
#[test]
fn the_other_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let Ok(cookie) = std::env::var(COOKIE) else { return };
    let cookie = from_hex(&cookie);
    let node = SharedNode::open(SharedConfig::new(folder.as_ref())).unwrap();
    let mut remote = node.map(&cookie).unwrap();
    let (memory, token) = node.expose(64, Rights::ReadWrite).unwrap();
    let wire = node.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap();
    let say = |remote: &mut SharedRemote, word: u64| {
        remote.write(BODY, &[word as u8; BODY_LEN])?;
        remote.store(COUNTER, word)?;
        remote.commit()
    };
    remote.write(TOKEN, &token.to_bytes()).unwrap();
    let mut word = 1;
    loop {
        if say(&mut remote, word).is_err() {
            break;
        }
        // The answer to this one, and then the next.
        match next_word(&node, &memory, &wire, Some(&remote), word - 1) {
            Some(answered) => word = answered + 1,
            None => break,
        }
    }
    assert!(matches!(remote.check(), Err(Error::PeerLost | Error::Refused(_))));
}
