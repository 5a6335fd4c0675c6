//! Cookies, packets in flight, connections: what the statistics of `clan-ip` say after
//! traffic that is known to the packet.

use std::net::UdpSocket;
use std::time::Duration;

use landfall_testbed::require_namespaces;

use super::hosts::{Host, PATIENCE, Triangle, address, stop_all};

const PORT: u16 = 5000;

/// A socket at a host; it gives up where nothing comes any more.
fn socket(triangle: &Triangle, here: usize) -> UdpSocket {
    let socket = triangle.enter(here, || UdpSocket::bind((address(here), PORT)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The connection is there, and each of the two knows the other's station.
fn meet(from: &UdpSocket, to: &UdpSocket, there: usize) {
    let mut word = [0; 1];
    to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let met = (0..100).any(|_| {
        from.send_to(b"?", (address(there), PORT)).unwrap();
        to.recv_from(&mut word).is_ok_and(|(_, peer)| to.send_to(b"!", peer).is_ok())
    });
    assert!(met && from.recv(&mut word).is_ok());
    // None of those that were asked before an answer came is left over.
    while to.recv(&mut word).is_ok() {}
    from.set_nonblocking(true).unwrap();
    while from.recv(&mut word).is_ok() {}
    from.set_nonblocking(false).unwrap();
    to.set_read_timeout(Some(PATIENCE)).unwrap();
}

/// The number that stands before (or after) these words in what a host said last.
fn number(said: &str, before: &str, after: &str) -> u64 {
    let (_, rest) = said.split_once(before).unwrap_or_else(|| panic!("{before:?} in {said}"));
    let (number, _) = rest.split_once(after).unwrap_or_else(|| panic!("{after:?} in {said}"));
    number.parse().unwrap_or_else(|_| panic!("{number:?} in {said}"))
}

fn connections(said: &str) -> u64 {
    number(said, "Connections: ", ";")
}

/// Ends all, of whom none may have been accused; gives what they said.
fn last_words<const N: usize>(hosts: [Host; N]) -> [String; N] {
    hosts.map(|host| stop_all([host]).remove(0))
}

#[test]
fn the_queue_of_cookies_does_not_run_empty_in_steady_state() {
    const ROUNDS: usize = 150;
    // Not even with those that the receiver gives back 16 at a time is half of the
    // buffers with the sender's packets.
    const BURST: usize = 40;
    require_namespaces!();
    let triangle = Triangle::new();
    let hosts = [0, 1].map(|here| triangle.start(here));
    let [a, b] = [0, 1].map(|here| socket(&triangle, here));
    meet(&a, &b, 1);
    let mut packet = [0; 1000];
    for round in 0..ROUNDS {
        for _ in 0..BURST {
            a.send_to(&[round as u8; 1000], (address(1), PORT)).unwrap();
        }
        // The next ones are sent when all of these have arrived and are answered.
        for _ in 0..BURST {
            let (len, peer) = b.recv_from(&mut packet).unwrap();
            assert_eq!(packet[..len], [round as u8; 1000]);
            b.send_to(&packet, peer).unwrap();
        }
        for _ in 0..BURST {
            assert_eq!(a.recv(&mut packet).unwrap(), packet.len());
        }
    }
    let said = last_words(hosts);
    for said in said {
        // Each buffer was used again and again.
        assert!(number(&said, "Out: ", " packets") >= (ROUNDS * BURST) as u64, "{said}");
        assert_eq!(number(&said, "of which ", " ("), 0, "{said}");
    }
}

/// Frames that left a host over its cables so far.
fn frames_out(triangle: &Triangle, here: usize) -> u64 {
    // The table of the namespace that the thread is in: behind a name eight columns of what
    // came, then bytes and packets that left.
    let table = triangle.enter(here, || std::fs::read_to_string("/proc/thread-self/net/dev"));
    let table = table.unwrap();
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let cables = lines.filter(|(name, _)| !matches!(name.trim(), "lo" | "clan0"));
    let packets = cables.map(|(_, columns)| columns.split_ascii_whitespace().nth(9).unwrap());
    packets.map(|packets| packets.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_short_packet_and_its_answer_take_few_frames() {
    const ROUNDS: u64 = 500;
    require_namespaces!();
    let triangle = Triangle::new();
    let hosts = [0, 1].map(|here| triangle.start(here));
    let [a, b] = [0, 1].map(|here| socket(&triangle, here));
    meet(&a, &b, 1);
    let before = frames_out(&triangle, 0);
    let mut packet = [0; 64];
    for round in 0..ROUNDS {
        a.send_to(&round.to_le_bytes(), (address(1), PORT)).unwrap();
        let (len, peer) = b.recv_from(&mut packet).unwrap();
        b.send_to(&packet[..len], peer).unwrap();
        assert_eq!(a.recv(&mut packet).unwrap(), 8);
        assert_eq!(packet[..8], round.to_le_bytes());
    }
    let frames = frames_out(&triangle, 0) - before;
    // One with the packet and its completion, which confirms the last one that came. Where
    // the machine pauses it is confirmed by a frame of its own. A word about each buffer and
    // each completion would be six.
    assert!((ROUNDS..3 * ROUNDS).contains(&frames), "{frames} frames");
    last_words(hosts);
}

#[test]
fn many_packets_are_in_flight_at_a_time() {
    const PACKETS: u8 = 100;
    require_namespaces!();
    let triangle = Triangle::new();
    let hosts = [0, 1].map(|here| triangle.start(here));
    let [a, b] = [0, 1].map(|here| socket(&triangle, here));
    meet(&a, &b, 1);
    // The receiver stands still: nothing is taken, nothing is confirmed.
    hosts[1].signal("STOP");
    for nth in 0..PACKETS {
        a.send_to(&[nth; 500], (address(1), PORT)).unwrap();
    }
    // For so long that one who waited for the first before the second would have had to
    // drop most of them.
    std::thread::sleep(Duration::from_millis(300));
    hosts[1].signal("CONT");
    let mut packet = [0; 500];
    for nth in 0..PACKETS {
        assert_eq!(b.recv(&mut packet).unwrap(), packet.len());
        assert_eq!(packet, [nth; 500]);
    }
    last_words(hosts);
}

#[test]
fn a_neighbour_that_stands_still_costs_packets_and_not_the_connection() {
    require_namespaces!();
    let triangle = Triangle::new();
    let hosts = [0, 1].map(|here| triangle.start(here));
    let [a, b] = [0, 1].map(|here| socket(&triangle, here));
    meet(&a, &b, 1);
    hosts[1].signal("STOP");
    // More than there are buffers, and more than the way holds.
    for _ in 0..400 {
        a.send_to(&[1; 8000], (address(1), PORT)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    hosts[1].signal("CONT");
    let mut packet = [0; 8000];
    // What comes in the end was sent after the others.
    let mut came = |wanted: u8| loop {
        match b.recv(&mut packet) {
            Ok(len) if packet[..len] == [wanted; 100] => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    };
    b.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let goes_on = (0..100).any(|_| {
        a.send_to(&[2; 100], (address(1), PORT)).unwrap();
        came(2)
    });
    assert!(goes_on);
    let said = last_words(hosts);
    assert_eq!(said.map(|said| connections(&said)), [1, 1]);
}

#[test]
fn connections_are_made_by_those_who_have_something_to_say() {
    require_namespaces!();
    let triangle = Triangle::new();
    let silent = last_words([0, 1, 2].map(|here| triangle.start(here)));
    assert_eq!(silent.map(|said| connections(&said)), [0, 0, 0]);
    // Questions for stations go to all: one host asks the two others, who have nothing
    // to say to each other.
    let hosts = [0, 1, 2].map(|here| triangle.start(here));
    let sockets = [0, 1, 2].map(|here| socket(&triangle, here));
    meet(&sockets[0], &sockets[1], 1);
    meet(&sockets[0], &sockets[2], 2);
    // Until these have: between any two of three there is one connection.
    meet(&sockets[1], &sockets[2], 2);
    let said = last_words(hosts);
    assert_eq!(said.map(|said| connections(&said)), [2, 2, 2]);
}
