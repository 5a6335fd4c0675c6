//! A neighbour within the host that is stopped for a while: what was told of to it is taken back,
//! and comes again when it goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use landfall::clan::network::{Peer, Transport, Window};
use landfall::clan::{Cookie, Error, Fabric, Local, Remote, Rights, Stage};
use landfall_testkit::TemporaryFolder;
use landfall_transport::udp::UdpConfig;

use super::other::Other;
use super::{builder, noise, soon, until};

const FOLDER: &str = "LANDFALL_TEST_STOPPED";
const PART: usize = 1 << 20;
/// Each is written once: what is lost is missing.
const PARTS: usize = 64;
/// A word that says that all is there.
const FLAG: u64 = (PART * PARTS) as u64;

/// Those that meet behind their addresses of UDP.
fn within_the_host() -> Transport {
    Transport::udp_with(UdpConfig::discover("127.0.0.1:0".parse().unwrap()))
}

#[test]
fn what_was_under_way_to_a_neighbour_that_was_stopped_arrives() {
    let folder = TemporaryFolder::new("stopped");
    let mut other = Other::start("clan::stopped::the_neighbour", |command| {
        command.env(FOLDER, folder.path());
    });
    let here = builder(1).path(within_the_host()).open().unwrap();
    let (to, cookie) = told(&folder.path().join("told"));
    let link = here.link(to).unwrap();
    link.wait_up(soon()).unwrap();
    let mut window = here.map(&cookie).unwrap();
    let (source, _) = here.expose(FLAG, Rights::Read).unwrap();
    for part in 0..PARTS {
        source.copy_in((part * PART) as u64, &noise(part as u64, PART)).unwrap();
    }
    let write = |window: &mut Window, part: usize| loop {
        let at = (part * PART) as u64;
        match window.write_from(at, &source, at..at + PART as u64) {
            Ok(sent) => break sent,
            Err(Error::Busy) => window.wait_for(Stage::Room, soon()).unwrap(),
            Err(error) => panic!("{error}"),
        }
    };
    // By then the two have met.
    let first = write(&mut window, 0);
    window.wait_for(Stage::Sent(first), soon()).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // In the middle of what comes; longer than neighbours wait for each other, and shorter
            // than links do.
            other.stop();
            std::thread::sleep(Duration::from_millis(1500));
            other.go_on();
        });
        for part in 1..PARTS {
            let _ = write(&mut window, part);
        }
        window.wait_for(Stage::Delivered, soon()).unwrap();
    });
    window.store(FLAG, 1).unwrap();
    window.commit().unwrap();
    window.wait_for(Stage::Delivered, soon()).unwrap();
    assert!(other.ended_well(), "something is missing there");
}

/// Where the neighbour is, and what leads to its memory, once it says so.
fn told(at: &Path) -> (Peer, Cookie) {
    let until = soon();
    let told = loop {
        match std::fs::read(at) {
            Ok(told) => break told,
            Err(error) => assert!(Some(Instant::now()) < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let (cookie, to) = told.split_first_chunk().unwrap();
    let to: std::net::SocketAddr = std::str::from_utf8(to).unwrap().parse().unwrap();
    (to.into(), Cookie::from_bytes(cookie).unwrap())
}

/// The other process of the test above; by itself nothing.
#[test]
fn the_neighbour() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let node = builder(2).path(within_the_host()).open().unwrap();
    let (memory, cookie) = node.expose(FLAG + 8, Rights::ReadWrite).unwrap();
    let Some(Peer::Socket(at)) = node.local() else { panic!("UDP has an address") };
    let folder = Path::new(&folder);
    let mut told = cookie.to_bytes().to_vec();
    told.extend_from_slice(at.to_string().as_bytes());
    std::fs::write(folder.join("told.new"), told).unwrap();
    std::fs::rename(folder.join("told.new"), folder.join("told")).unwrap();
    until(&node, || memory.load(FLAG).unwrap() == 1);
    let mut found = vec![0; PART];
    for part in 0..PARTS {
        memory.copy_out((part * PART) as u64, &mut found).unwrap();
        assert!(found == noise(part as u64, PART), "part {part}");
    }
    let lost = node.stats().paths[0].counters.misplaced;
    eprintln!("{lost} payloads were lost on their way, and came again");
    // The other one hears that it has all.
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        node.turn();
    }
}
