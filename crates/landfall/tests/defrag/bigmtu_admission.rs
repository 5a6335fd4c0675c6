//! Admission control inside an interface with a large MTU: real senders through a bridge, with
//! ordinary sockets, and programs that ask by the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::bigmtu::{big, cable, datagrams, ip, soon};
use crate::support::{PATIENCE, noise};
use landfall::defrag::bigmtu::{BigMtuBuilder, BigMtuError, BigMtuStats, TcpMode};
use landfall_testbed::bridge::BridgedNetwork;
use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::{VethEnd, require_namespaces, skip_unless};

/// Much more than asks by itself.
const LEN: usize = 6 << 20;

/// The first line of a program that wants to be fast.
fn ask(path: &Path, line: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Reads answers up to this one.
fn until(answers: &mut BufReader<UnixStream>, wanted: &str) {
    let mut line = String::new();
    while line != wanted {
        line.clear();
        assert!(answers.read_line(&mut line).unwrap() > 0, "it ended before {wanted:?}");
    }
}

fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("landfall-{name}-{}.sock", std::process::id()))
}

/// Each sends to the last one, all at once, over TCP. Gives what each interface did.
fn senders(count: u8, adjust: fn(BigMtuBuilder) -> BigMtuBuilder) -> Vec<BigMtuStats> {
    let network = BridgedNetwork::new(count + 1).unwrap();
    let ends = network.ends();
    let start =
        |end: &VethEnd| big(end, true, |builder| adjust(builder.tcp(TcpMode::Fragments).mtu(9000)));
    let interfaces: Vec<_> = ends.iter().map(start).collect();
    let (receiver, senders) = ends.split_last().unwrap();
    let address = SocketAddr::new(ip(receiver, true), 7100);
    let listen = || receiver.namespace.enter(|| TcpListener::bind(address)).unwrap();
    let listener = soon("listen", listen);
    listener.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        for (seed, sender) in (1..).zip(senders) {
            let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
            let connect = || sender.namespace.enter(connect).unwrap();
            let mut stream = soon("connect", connect);
            let (mut taken, _) = soon("accept", || listener.accept());
            taken.set_nonblocking(false).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            taken.set_read_timeout(Some(PATIENCE)).unwrap();
            scope.spawn(move || {
                stream.write_all(&noise(seed, LEN)).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut came = Vec::new();
                taken.read_to_end(&mut came).unwrap();
                assert!(came == noise(seed, LEN), "{} of {LEN} bytes, or others", came.len());
            });
        }
    });
    interfaces.into_iter().map(|interface| interface.stop().unwrap()).collect()
}

/// Section 4.2 of the paper: nobody above knows of it. What one has, others are refused; all
/// arrive, with it and without.
#[test]
fn of_several_senders_some_are_fast_and_some_wait() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    for count in [2, 3] {
        let all = senders(count, |builder| builder.admission().preshared_key([7; 32]));
        let (receiver, senders) = all.split_last().unwrap();
        let sum = |of: fn(&BigMtuStats) -> u64| senders.iter().map(of).sum::<u64>();
        assert!(sum(|stats| stats.admission.fast) > 0, "nobody was fast: {senders:?}");
        assert!(sum(|stats| stats.admission.slow) > 0, "nobody was refused: {senders:?}");
        assert!(sum(|stats| stats.admission.held) > 0, "nothing had to wait: {senders:?}");
        assert!(receiver.joined.joined.speculated > 0, "{receiver:?}");
        let all = senders_alone(count);
        assert!(all.iter().all(|stats| stats.admission == BigMtuStats::default().admission));
    }
}

fn senders_alone(count: u8) -> Vec<BigMtuStats> {
    senders(count, |builder| builder)
}

#[test]
fn programs_ask_by_the_control_socket() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let (cable, path) = (cable(), socket_path("ask"));
    // As one that was killed has left it.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let with = |builder: BigMtuBuilder| builder.admission().plaintext();
    let a = big(&cable.a, true, |builder| with(builder).control_socket(&path));
    let b = big(&cable.b, true, with);
    // So that the station is known.
    datagrams(&cable.a, &cable.b, true, &[4000]);
    let mut first = ask(&path, &format!("ask {}\n", cable.b.ipv4));
    until(&mut first, "fast\n");
    let station = cable.b.mac.0.map(|byte| format!("{byte:02x}")).join(":");
    let mut second = ask(&path, &format!("ask {station}\n"));
    until(&mut second, "fast\n");
    for bad in ["ask 10.77.0.77\n", "hello\n", &"x".repeat(64)] {
        let mut answer = String::new();
        ask(&path, bad).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("error "), "{answer:?}");
    }
    datagrams(&cable.a, &cable.b, true, &[4000, 9000]);
    drop((first, second));
    let stats = a.stop().unwrap();
    assert!(stats.admission.fast >= 2, "{stats:?}");
    assert!(!path.exists());
    b.stop().unwrap();
}

/// Another kernel, or an interface without admission control.
#[test]
fn a_station_without_a_gate_is_sent_to_as_ever() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let (cable, path) = (cable(), socket_path("no-gate"));
    let a = big(&cable.a, true, |builder| builder.admission().plaintext().control_socket(&path));
    let b = big(&cable.b, true, |builder| builder);
    datagrams(&cable.a, &cable.b, true, &[4000]);
    let mut asked = ask(&path, &format!("ask {}\n", cable.b.ipv4));
    until(&mut asked, "no gate\n");
    datagrams(&cable.a, &cable.b, true, &[4000, 60_000, 60_000]);
    let stats = a.stop().unwrap();
    assert_eq!((stats.admission.fast, stats.admission.given_up), (0, 0), "{stats:?}");
    assert!(stats.admission.plain >= 3, "{stats:?}");
    b.stop().unwrap();
}

#[test]
fn what_cannot_be_asked_is_refused() {
    require_namespaces!();
    let cable = cable();
    let flush = ["ip", "address", "flush", "dev", &cable.a.name];
    super::bigmtu::run(&cable.a.namespace, &flush);
    let start = |adjust: fn(BigMtuBuilder) -> BigMtuBuilder| {
        let builder = adjust(landfall::defrag::bigmtu::BigMtu::builder(cable.a.name.as_str()));
        cable.a.namespace.enter(|| builder.start().map(drop)).unwrap().unwrap_err()
    };
    let error = start(|builder| builder.control_socket(socket_path("alone")));
    assert!(matches!(error, BigMtuError::ControlWithoutAdmission), "{error}");
    let error = start(|builder| {
        builder.admission().plaintext().control_socket(socket_path("none").join("nowhere"))
    });
    assert!(matches!(error, BigMtuError::Control { .. }), "{error}");
}
