//! Sockets of the kernel as clients. As an ordinary user these skip with one line.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces};
use landfall_testkit::skip::skip;
use socket2::SockRef;

use super::{PATIENCE, Serving, is_characters, noise};

const LEN: usize = 400_000;

fn links(namespace: &Namespace) -> String {
    let output = namespace.enter(|| Command::new("ip").arg("link").output()).unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn connect(namespace: &Namespace, to: SocketAddr) -> TcpStream {
    let connected = namespace.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    let stream = connected.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes in parts of this length, says that this was all, and hears what comes.
fn converse(mut stream: TcpStream, bytes: &[u8], part: usize) -> Vec<u8> {
    stream.set_nodelay(true).unwrap();
    let mut sender = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for part in bytes.chunks(part) {
                sender.write_all(part).unwrap();
            }
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    })
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn echo_over_tap_gives_every_byte_back_and_leaves_nothing() {
    require_namespaces!();
    let host = Namespace::new().unwrap();
    let serving = Serving::start_in(&host, "echo --tap tap0 -v");
    assert!(links(&host).contains("tap0"));
    let echo = at("10.9.0.2:7");
    // Many at once; one of them byte by byte, one resets in the middle.
    let bytes = noise(LEN);
    thread::scope(|scope| {
        for part in [LEN, 1448, 7000] {
            let (host, bytes) = (&host, &bytes);
            scope.spawn(move || assert!(converse(connect(host, echo), bytes, part) == *bytes));
        }
        let (host, bytes) = (&host, &bytes[..5000]);
        scope.spawn(move || assert!(converse(connect(host, echo), bytes, 1) == *bytes));
        scope.spawn(move || {
            let mut rude = connect(host, echo);
            rude.write_all(bytes).unwrap();
            rude.read_exact(&mut [0; 100]).unwrap();
            // Closed with a reset.
            SockRef::from(&rude).set_linger(Some(Duration::ZERO)).unwrap();
        });
    });
    // Somebody who connects and says nothing at all.
    assert!(converse(connect(&host, echo), &[], 1).is_empty());
    let datagrams = echo_datagrams(&host, echo, "10.9.0.1".parse().unwrap());
    let (summary, said) = serving.end_by("-INT");
    assert_eq!(summary["ended"], "a signal");
    assert_eq!(summary["clients"], 6, "{said}");
    assert!(summary["most_at_once"].as_u64() >= Some(1) && summary["turned_away"] == 0);
    assert!(summary["received_bytes"].as_u64() >= Some(3 * LEN as u64 + 5000), "{summary}");
    assert_eq!(summary["datagrams_sent"], datagrams);
    for part in ["10.9.0.1:", "finished", "reset by the client", "came", "went"] {
        assert!(said.contains(part), "{part} in:\n{said}");
    }
    assert!(!links(&host).contains("tap0"), "it is gone");
}

/// Datagrams of several lengths come back as they were; how many.
fn echo_datagrams(host: &Namespace, echo: SocketAddr, from: IpAddr) -> u64 {
    let socket = host.enter(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let lengths = [1, 100, 1472, 1473, 9000];
    for len in lengths {
        let bytes = noise(len);
        socket.send_to(&bytes, echo).unwrap();
        let mut buffer = vec![0; 65_536];
        let (came, whom) = socket.recv_from(&mut buffer).unwrap();
        assert!(whom == echo && buffer[..came] == bytes, "{came} of {len} bytes");
    }
    // A service that answers anything is not answered: it could go on for ever.
    let other = host.enter(|| UdpSocket::bind((from, 19))).unwrap().unwrap();
    other.send_to(b"x", echo).unwrap();
    other.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(other.recv_from(&mut [0; 16]).is_err());
    lengths.len() as u64
}

#[test]
fn nc_is_a_client() {
    require_namespaces!();
    let host = Namespace::new().unwrap();
    let words = ["-N", "-w", "30", "10.9.0.2", "7"];
    let nc = || {
        let mut nc = Command::new("nc");
        nc.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    if Command::new("nc").arg("-h").output().is_err() {
        skip("nc_is_a_client", "needs nc: apt-get install netcat-openbsd");
        return;
    }
    let serving = Serving::start_in(&host, "echo --once");
    let mut nc = host.enter(nc).unwrap().unwrap();
    let bytes = noise(LEN);
    let mut stdin = nc.stdin.take().unwrap();
    let sent = bytes.clone();
    let sending = thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = nc.wait_with_output().unwrap();
    sending.join().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    let (summary, said) = serving.end();
    assert_eq!(summary["ended"], "the first client has gone", "{said}");
    assert_eq!(summary["sent_bytes"], LEN);
}

#[test]
fn discard_and_source_do_what_their_rfcs_say_over_an_interface() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let [a, b, c, _] = cable.a.ipv4.octets();
    let options = format!("--interface {} --address {a}.{b}.{c}.100/24", cable.a.name);
    let (here, there) = (&cable.b.namespace, format!("{a}.{b}.{c}.100"));

    let serving = Serving::start_in(&cable.a.namespace, &format!("discard {options}"));
    let heard = converse(connect(here, at(&format!("{there}:9"))), &noise(LEN), LEN);
    assert!(heard.is_empty());
    let (summary, _) = serving.end_by("-TERM");
    assert_eq!((&summary["received_bytes"], &summary["sent_bytes"]), (&LEN.into(), &0.into()));

    let serving = Serving::start_in(&cable.a.namespace, &format!("source {options} -v"));
    let source = at(&format!("{there}:19"));
    let mut stream = connect(here, source);
    let mut text = vec![0; LEN];
    stream.read_exact(&mut text).unwrap();
    assert!(text.starts_with(b" !\"#$%&'()") && is_characters(&text));
    drop(stream);
    let socket = here.enter(|| UdpSocket::bind((cable.b.ipv4, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..20 {
        socket.send_to(b"anything", source).unwrap();
        let len = socket.recv_from(&mut text).unwrap().0;
        assert!((1..=512).contains(&len));
        assert!(text[..len].iter().all(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n')));
    }
    let (summary, said) = serving.end_by("-TERM");
    assert_eq!(summary["datagrams_sent"], 20, "{said}");
    assert!(said.contains("reset by the client"), "{said}");
}

#[test]
fn whom_there_is_no_place_for_waits_for_one() {
    require_namespaces!();
    let host = Namespace::new().unwrap();
    let serving = Serving::start_in(&host, "echo --clients 1");
    let echo = at("10.9.0.2:7");
    let mut first = connect(&host, echo);
    first.write_all(b"here").unwrap();
    first.read_exact(&mut [0; 4]).unwrap();
    let mut second = connect(&host, echo);
    second.write_all(b"there").unwrap();
    second.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(second.read(&mut [0; 5]).is_err(), "it has no place yet");
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    // The place is free when the first has gone.
    assert!(converse(first, b"", 1).is_empty());
    assert_eq!(converse(second, b", too", 5), b"there, too");
    let (summary, _) = serving.end_by("-TERM");
    assert_eq!((&summary["clients"], &summary["most_at_once"]), (&2.into(), &1.into()));
}

#[test]
fn those_who_are_silent_make_room_for_who_waits() {
    require_namespaces!();
    let host = Namespace::new().unwrap();
    let serving = Serving::start_in(&host, "echo --clients 4");
    let echo = at("10.9.0.2:7");
    // All places are taken by clients that say nothing and stay.
    let silent: Vec<TcpStream> = (0..4).map(|_| connect(&host, echo)).collect();
    let others = [b"one", b"two"].map(|bytes| (connect(&host, echo), bytes));
    for (stream, bytes) in others {
        assert_eq!(converse(stream, bytes, 3), bytes);
    }
    drop(silent);
    let (summary, _) = serving.end_by("-TERM");
    assert!(summary["clients"].as_u64() >= Some(5), "{summary}");
    assert_eq!(summary["most_at_once"], 4, "{summary}");
}
