//! Byte streams over the memory of other hosts.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use sockets_compat::{Address, ClanListener, ClanNetwork, ClanOptions, ClanStream};

use crate::support::{likeness, until, within};

static ALONE: Mutex<()> = Mutex::new(());

/// A new connection each time.
fn pair() -> (ClanStream, ClanStream) {
    static LISTENER: OnceLock<ClanListener> = OnceLock::new();
    let bind = || ClanListener::bind("clan://127.0.0.1:7/udp/0").expect("loopback");
    let listener = LISTENER.get_or_init(bind);
    // Of two that connect at a time each shall get its own.
    let _alone = crate::support::locked(&ALONE);
    let client = ClanStream::connect(listener.local_addr().unwrap()).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

fn network() -> ClanNetwork {
    ClanNetwork::bind_udp("127.0.0.1:0".parse().unwrap(), ClanOptions::default()).unwrap()
}

#[test]
fn streams_are_like_the_kernels() {
    likeness::is_like_the_kernels(pair);
}

#[test]
fn whatever_is_done_nothing_is_lost() {
    crate::support::model::nothing_is_lost(64, pair);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_wait_give_up_and_split() {
    crate::support::tasks::all(pair);
}

/// Writer, node and all are gone long before the reader looks.
#[test]
fn the_last_bytes_arrive_though_their_whole_host_is_dropped_at_once() {
    within(|| {
        for len in [1, 5_000, 400_000] {
            let (server, client) = (network(), network());
            let listener = server.listen(0).unwrap();
            let mut writer = client.connect(listener.local_addr().unwrap()).unwrap();
            let (mut reader, _) = listener.accept().unwrap();
            let bytes: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
            writer.write_all(&bytes).unwrap();
            drop((writer, client));
            std::thread::sleep(Duration::from_millis(5));
            let mut came = Vec::new();
            reader.read_to_end(&mut came).unwrap();
            assert!(came == bytes, "{} of {len} bytes", came.len());
        }
    });
}

#[test]
fn addresses_say_where_both_ends_are() {
    within(|| {
        let listener = ClanListener::bind("clan://127.0.0.1:19/udp/0").unwrap();
        let there = listener.local_addr().unwrap();
        let client = ClanStream::connect(there.to_string()).unwrap();
        let (server, from) = listener.accept().unwrap();
        assert_eq!(there.port(), Some(19));
        assert_eq!(client.peer_addr().unwrap(), there);
        assert_eq!(server.local_addr().unwrap(), there);
        assert_eq!(server.peer_addr().unwrap(), from);
        let udp = |address: Address| match address {
            Address::ClanPort { udp, .. } => udp,
            other => panic!("{other}"),
        };
        assert_eq!(udp(from.clone()), udp(client.local_addr().unwrap()), "{from}");
        assert_eq!(from.ip(), Some([127, 0, 0, 1].into()));
    });
}

#[test]
fn nobody_there_is_refused_and_a_taken_port_says_so() {
    within(|| {
        let server = network();
        let listener = server.listen(21).unwrap();
        assert_eq!(server.listen(21).unwrap_err().kind(), ErrorKind::AddrInUse);
        let there = listener.local_addr().unwrap();
        drop(listener);
        let nobody = ClanStream::connect(&there).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused, "{nobody}");
        until("the port is free again", || server.listen(21).is_ok());
        let wrong = ClanStream::connect("qp://10.0.0.1:7").unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn no_process_there_is_silence_and_another_ring_is_told() {
    within(|| {
        let mut options = ClanOptions::default();
        options.patience = Duration::from_millis(200);
        let local = "127.0.0.1:0".parse().unwrap();
        let hasty = ClanNetwork::bind_udp(local, options).unwrap();
        let taken = std::net::UdpSocket::bind(local).unwrap();
        let there = Address::ClanPort {
            host: [127, 0, 0, 1].into(),
            port: 7,
            udp: taken.local_addr().unwrap().port(),
        };
        assert_eq!(hasty.connect(there).unwrap_err().kind(), ErrorKind::TimedOut);

        let listener = network().listen(0).unwrap();
        let mut options = ClanOptions::default();
        options.ring = 4096;
        let other = ClanNetwork::bind_udp(local, options).unwrap();
        let why = other.connect(listener.local_addr().unwrap()).unwrap_err();
        assert!(why.to_string().contains("ClanOptions::ring"), "{why}");
    });
}

/// A host whose number somebody has already draws another, and nobody notices.
#[test]
fn many_processes_find_numbers_of_their_own() {
    use landfall::clan::network::{HostId, Node, Transport};
    within(|| {
        let node = |number| {
            let path = Transport::udp("127.0.0.1:0".parse().unwrap());
            Node::open(HostId::new(number).unwrap(), path).unwrap()
        };
        let server = ClanNetwork::new(node(7), ClanOptions::default());
        let listener = server.listen(0).unwrap();
        let there = listener.local_addr().unwrap();
        let first = ClanNetwork::new(node(8), ClanOptions::default());
        let one = first.connect(&there).unwrap();
        for number in [7, 8] {
            let second = ClanNetwork::new(node(number), ClanOptions::default());
            let why = second.connect(&there).unwrap_err();
            assert_eq!(why.kind(), ErrorKind::ConnectionRefused, "{why}");
        }
        let (mut other, _) = listener.accept().unwrap();
        (&one).write_all(b"not disturbed").unwrap();
        drop(one);
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "not disturbed");
        ClanStream::connect(&there).unwrap();
    });
}

#[test]
fn connections_come_in_from_many_threads_at_a_time() {
    within(|| {
        // However long they wait for each other.
        let patient = || {
            let mut options = ClanOptions::default();
            options.patience = crate::support::PATIENCE;
            ClanNetwork::bind_udp("127.0.0.1:0".parse().unwrap(), options).unwrap()
        };
        let (server, client) = (patient(), patient());
        let listener = server.listen(23).unwrap();
        let there = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..150u8)
            .map(|number| {
                let (there, client) = (there.clone(), client.clone());
                std::thread::spawn(move || {
                    let mut stream = client.connect(there).unwrap();
                    stream.write_all(&[number]).unwrap();
                    let mut answer = [0];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer[0], number);
                })
            })
            .collect();
        for _ in 0..clients.len() {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}
