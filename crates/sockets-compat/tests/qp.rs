//! Byte streams and datagrams over queue pairs.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use landfall::qpip::{Adapter, ChannelConfig};
use sockets_compat::{Landed, QpHost, QpListener, QpOptions, QpStream};

use crate::support::{TOO_LONG, likeness, until, within};

/// Two hosts, joined within this process.
fn hosts() -> (QpHost, QpHost) {
    let joined = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default());
    let (one, two) = joined.expect("a channel");
    let host = |adapter| QpHost::new(adapter, QpOptions::default()).expect("an adapter");
    let one = one.address("10.0.0.1/24").open().expect("an adapter");
    let two = two.address("10.0.0.2/24").open().expect("an adapter");
    (host(one), host(two))
}

const SERVER: &str = "qp://10.0.0.2:7000";

static ALONE: Mutex<()> = Mutex::new(());

fn streams() -> (QpStream, QpStream) {
    static HOSTS: OnceLock<(QpHost, QpListener)> = OnceLock::new();
    let (client, listener) = HOSTS.get_or_init(|| {
        let (client, server) = hosts();
        (client, server.listen(SERVER).expect("its address"))
    });
    // Of two that connect at a time each shall get its own.
    let _alone = crate::support::locked(&ALONE);
    let client = client.connect(SERVER).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

#[test]
fn streams_are_like_the_kernels() {
    likeness::is_like_the_kernels(streams);
}

/// Reads of both kinds take the bytes in order, and each of them once.
#[test]
fn bytes_are_read_where_they_landed_and_copied_by_turns() {
    within(|| {
        let (client, server) = streams();
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|at| (at * 7 + at / 4099) as u8).collect();
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || {
            (&client).write_all(&sent).unwrap();
            client
        });
        let (mut came, mut nth) = (Vec::new(), 0);
        while came.len() < bytes.len() {
            let most = [1, 7, 4096, 1 << 20][nth % 4];
            let before = came.len();
            if nth % 3 == 0 {
                let mut into = vec![0; most];
                let len = (&server).read(&mut into).unwrap();
                came.extend_from_slice(&into[..len]);
            } else {
                let mut take = |landed: Landed<'_>| {
                    assert!(landed.len() <= most);
                    assert!(landed.copy_out(&mut vec![0; landed.len() + 1]).is_err());
                    let mut into = vec![0; landed.len()];
                    landed.copy_out(&mut into).unwrap();
                    came.extend(into);
                };
                let len = server.read_landed(most, &mut take).unwrap();
                assert_eq!(came.len(), before + len);
            }
            assert!(came.len() > before && came[before..] == bytes[before..came.len()], "{nth}");
            nth += 1;
        }
        // What was looked at is read as it was copied, and the end is the end.
        let client = writer.join().unwrap();
        (&client).write_all(b"once more").unwrap();
        server.peek(&mut [0; 4]).unwrap();
        let refused = server.read_landed(9, |_| panic!("it is read later")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        (&server).read_exact(&mut [0; 9]).unwrap();
        drop(client);
        assert_eq!(server.read_landed(9, |_| panic!("there is nothing")).unwrap(), 0);
    });
}

#[test]
fn nobody_there_is_refused_and_a_taken_port_says_so() {
    within(|| {
        let (client, server) = hosts();
        let nobody = client.connect("qp://10.0.0.2:1").unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused, "{nobody}");
        let _listener = server.listen(SERVER).unwrap();
        assert_eq!(server.listen(SERVER).unwrap_err().kind(), ErrorKind::AddrInUse);
        let wrong = client.connect("clan:///run#name").unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn datagrams_come_whole_and_stay_for_a_buffer_that_is_long_enough() {
    within(|| {
        let (one, two) = hosts();
        let here = one.datagram("qp://10.0.0.1:0").unwrap();
        let there = two.datagram("qp://10.0.0.2:53").unwrap();
        assert_eq!(here.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        there.set_nonblocking(true).unwrap();
        let none = there.recv_from(&mut [0; 9]).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        there.set_nonblocking(false).unwrap();

        here.connect("qp://10.0.0.2:53").unwrap();
        assert_eq!(here.send(b"question").unwrap(), 8);
        assert_eq!(there.recv_from(&mut [0; 7]).unwrap_err().raw_os_error(), TOO_LONG);
        let mut into = [0; 16];
        assert_eq!(there.peek_from(&mut into).unwrap().0, 8);
        let (len, from) = there.recv_from(&mut into).unwrap();
        assert_eq!(
            (&into[..len], Some(from)),
            (&b"question"[..], here.local_addr().unwrap().socket())
        );
        there.send_to(b"answer", from).unwrap();
        assert_eq!(here.recv(&mut into).unwrap(), 6);

        // As long as they may be, in fragments; and longer.
        let long = vec![5; 60_000];
        there.send_to(&long, from).unwrap();
        let mut room = vec![0; 65_536];
        assert_eq!(here.recv(&mut room).unwrap(), long.len());
        assert!(room[..long.len()] == long[..]);
        assert_eq!(there.send_to(&room, from).unwrap_err().raw_os_error(), TOO_LONG);
        assert_eq!(there.send_to(b"", from).unwrap_err().kind(), ErrorKind::InvalidInput);
        here.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        assert_eq!(here.recv(&mut into).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_datagram_goes_from_several_buffers_into_several() {
    within(|| {
        let (one, two) = hosts();
        let here = one.datagram("qp://10.0.0.1:4000").unwrap();
        let there = two.datagram("qp://10.0.0.2:53").unwrap();
        here.connect("qp://10.0.0.2:53").unwrap();
        let parts = [&b"of "[..], b"", b"several ", b"parts"].map(IoSlice::new);
        assert_eq!(here.send_vectored(&parts).unwrap(), 16);

        let (mut first, mut second) = ([0; 5], [0; 10]);
        let mut short = [&mut first[..], &mut second].map(IoSliceMut::new);
        let error = there.recv_from_vectored(&mut short).unwrap_err();
        assert_eq!(error.raw_os_error(), TOO_LONG, "together they are too short, and it stays");
        let mut last = [0; 4];
        let mut room = [&mut first[..], &mut [], &mut second, &mut last].map(IoSliceMut::new);
        let (len, from) = there.recv_from_vectored(&mut room).unwrap();
        assert_eq!((len, Some(from)), (16, here.local_addr().unwrap().socket()));
        assert_eq!((&first, &second, &last), (b"of se", b"veral part", b"s\0\0\0"));

        assert_eq!(there.send_to_vectored(&parts[2..], from).unwrap(), 13);
        let mut room = [&mut first[..], &mut second].map(IoSliceMut::new);
        assert_eq!(here.recv_vectored(&mut room).unwrap(), 13);
        assert_eq!((&first, &second[..8]), (b"sever", &b"al parts"[..]));

        let half = vec![0; 40_000];
        let error = here.send_vectored(&[IoSlice::new(&half), IoSlice::new(&half)]).unwrap_err();
        assert_eq!(error.raw_os_error(), TOO_LONG, "together they are too long");
        let error = here.send_vectored(&[IoSlice::new(&[])]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

/// What is sent lies in a ring: a datagram's parts may go over its end anywhere.
#[test]
fn parts_of_a_datagram_may_lie_around_the_end_of_the_memory_for_them() {
    within(|| {
        let (one, two) = hosts();
        let here = one.datagram("qp://10.0.0.1:4000").unwrap();
        let there = two.datagram("qp://10.0.0.2:53").unwrap();
        let mut into = vec![0; 65_536];
        for round in 0..40_u8 {
            let datagram: Vec<u8> = (0..30_011_u32).map(|at| (at % 251) as u8 ^ round).collect();
            let parts: Vec<_> = datagram.chunks(7_001).map(IoSlice::new).collect();
            assert_eq!(here.send_to_vectored(&parts, "qp://10.0.0.2:53").unwrap(), 30_011);
            let (first, second) = into.split_at_mut(11 + usize::from(round));
            let mut room = [first, second].map(IoSliceMut::new);
            assert_eq!(there.recv_vectored(&mut room).unwrap(), 30_011);
            assert!(into[..30_011] == datagram[..], "round {round}");
        }
    });
}

#[test]
fn whom_a_socket_is_connected_to_is_all_that_it_hears() {
    within(|| {
        let (one, two) = hosts();
        let here = one.datagram("qp://10.0.0.1:4000").unwrap();
        let friend = two.datagram("qp://10.0.0.2:1").unwrap();
        let stranger = two.datagram("qp://10.0.0.2:2").unwrap();
        stranger.send_to(b"before", "qp://10.0.0.1:4000").unwrap();
        until("it is there", || here.peek_from(&mut [0; 16]).is_ok());
        here.connect("qp://10.0.0.2:1").unwrap();
        // More than there is room for: none of it takes the room of the friend's.
        for _ in 0..40 {
            stranger.send_to(b"noise", "qp://10.0.0.1:4000").unwrap();
        }
        here.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut into = [0; 16];
        // Datagrams may be lost, as everywhere; the friend says it until it is heard.
        until("the friend is heard", || {
            friend.send_to(b"hello", "qp://10.0.0.1:4000").unwrap();
            here.recv(&mut into).is_ok_and(|len| &into[..len] == b"hello")
        });
    });
}

#[test]
fn whatever_is_done_nothing_is_lost() {
    crate::support::model::nothing_is_lost(64, streams);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_wait_give_up_and_split() {
    crate::support::tasks::all(streams);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_exchange_datagrams() {
    use sockets_compat::tokio::QpDatagram;
    let (one, two) = hosts();
    let here = one.datagram("qp://10.0.0.1:4000").unwrap();
    let there = two.datagram("qp://10.0.0.2:53").unwrap();
    crate::support::tasks::run(async {
        let here = QpDatagram::from_std(here).unwrap();
        let there = QpDatagram::from_std(there).unwrap();
        here.connect("qp://10.0.0.2:53").unwrap();
        let mut into = [0; 16];
        // A receive that is given up takes nothing.
        tokio::select! {
            biased;
            _ = there.recv_from(&mut into) => panic!("there is none"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(here.send(b"question").await.unwrap(), 8);
        let (len, from) = there.recv_from(&mut into).await.unwrap();
        assert_eq!(&into[..len], b"question");
        assert_eq!(there.send_to(b"answer", from).await.unwrap(), 6);
        assert_eq!(here.recv(&mut into).await.unwrap(), 6);

        let parts = [&b"of several "[..], b"parts"].map(IoSlice::new);
        assert_eq!(here.send_vectored(&parts).await.unwrap(), 16);
        let (first, second) = into.split_at_mut(5);
        let mut room = [first, second].map(IoSliceMut::new);
        assert_eq!(there.recv_from_vectored(&mut room).await.unwrap(), (16, from));
        assert_eq!(&into, b"of several parts");
        assert_eq!(there.send_to_vectored(&parts[1..], from).await.unwrap(), 5);
        let (first, second) = into.split_at_mut(2);
        let mut room = [first, second].map(IoSliceMut::new);
        assert_eq!(here.recv_vectored(&mut room).await.unwrap(), 5);
        assert_eq!(&into[..5], b"parts");
    });
}
