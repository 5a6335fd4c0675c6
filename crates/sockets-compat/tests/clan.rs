//! Byte streams over shared memory, on one host; and messages, on one host and across hosts.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use sockets_compat::{
    Clan, ClanListener, ClanNetwork, ClanOptions, ClanSeqPacket, ClanSeqPacketListener, ClanStream,
};

use crate::support::{Folder, TOO_LONG, likeness, packets, until, within};

static ALONE: Mutex<()> = Mutex::new(());

/// A new connection each time.
fn pair() -> (ClanStream, ClanStream) {
    static LISTENER: OnceLock<(Folder, ClanListener)> = OnceLock::new();
    let (folder, listener) = LISTENER.get_or_init(|| {
        let folder = Folder::new("pairs");
        let listener = ClanListener::bind(folder.address("all")).expect("a name");
        (folder, listener)
    });
    // Of two that connect at a time each shall get its own.
    let _alone = crate::support::locked(&ALONE);
    let client = ClanStream::connect(folder.address("all")).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

#[test]
fn streams_are_like_the_kernels() {
    likeness::is_like_the_kernels(pair);
}

#[test]
fn nobody_there_is_refused_and_a_taken_name_says_so() {
    let folder = Folder::new("names");
    let nobody = ClanStream::connect(folder.address("nobody")).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused);
    let listener = ClanListener::bind(folder.address("mine")).unwrap();
    let taken = ClanListener::bind(folder.address("mine")).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    drop(listener);
    ClanListener::bind(folder.address("mine")).unwrap();
    let wrong = ClanStream::connect("qp://10.0.0.1:7").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
}

#[test]
fn whatever_is_done_nothing_is_lost() {
    crate::support::model::nothing_is_lost(64, pair);
}

#[test]
fn the_model_is_right_about_sockets() {
    crate::support::model::the_model_fits_the_kernel();
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_wait_give_up_and_split() {
    crate::support::tasks::all(pair);
}

/// A test of two sockets, on one host and across hosts.
fn both(test: fn(packets::Pair<Clan>)) {
    // Tests run side by side: each has a folder of its own.
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let folder = format!("packets-{}", FOLDERS.fetch_add(1, Ordering::Relaxed));
    within(move || {
        let folder = Folder::new(&folder);
        for address in [folder.address("packets"), "clan://127.0.0.1:9/udp/0".into()] {
            let listener = ClanSeqPacketListener::bind(&address).unwrap();
            let one = ClanSeqPacket::connect(listener.local_addr().unwrap()).unwrap();
            test((one, listener.accept().unwrap().0));
        }
    });
}

#[test]
fn each_write_is_one_message_and_each_read_takes_a_whole_one() {
    both(packets::each_write_is_one_message_and_each_read_takes_a_whole_one);
}

#[test]
fn what_is_too_long_comes_back_and_the_next_one_gets_through() {
    both(|(one, two)| {
        assert_eq!((one.peer_message_limit(), two.message_limit()), (Some(1 << 20), 1 << 20));
        packets::what_is_too_long_comes_back_and_the_next_one_gets_through((one, two));
    });
}

#[test]
fn a_message_stays_for_a_buffer_that_is_long_enough() {
    both(packets::a_message_stays_for_a_buffer_that_is_long_enough);
}

/// Longer than the ring, and written by one that is gone before it is read.
#[test]
fn a_message_that_was_begun_arrives_though_its_writer_is_gone() {
    both(|(one, two)| {
        let long: Vec<u8> = (0..1_000_000).map(|at| (at % 251) as u8).collect();
        one.send(b"first").unwrap();
        one.send(&long).unwrap();
        drop(one);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(two.recv_message().unwrap().unwrap(), &b"first"[..]);
        assert!(two.recv_message().unwrap().unwrap() == long);
        assert_eq!(two.recv_message().unwrap(), None);
    });
}

#[test]
fn without_waiting_nothing_waits() {
    both(packets::without_waiting_nothing_waits);
}

#[test]
fn there_is_a_bound_on_what_nobody_reads() {
    both(|(one, two)| {
        one.set_nonblocking(true).unwrap();
        let mut sent = 0u8;
        let full = loop {
            match one.send(&vec![sent; 64 << 10]) {
                Ok(_) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 100, "there has to be a bound");
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        for number in 0..sent {
            assert_eq!(two.recv_message().unwrap().unwrap()[0], number);
        }
        until("there is room again", || one.send(b"and on").is_ok());
        assert_eq!(two.recv_message().unwrap().unwrap(), &b"and on"[..]);
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    both(packets::one_direction_ends_and_the_other_goes_on);
}

#[test]
fn a_stream_is_no_socket_for_messages() {
    within(|| {
        let listener = ClanListener::bind("clan://127.0.0.1:9/udp/0").unwrap();
        let there = listener.local_addr().unwrap();
        let refused = ClanSeqPacket::connect(&there).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        ClanStream::connect(&there).unwrap();

        // Within a host the two have names of their own.
        let folder = Folder::new("kinds");
        let _listener = ClanListener::bind(folder.address("same")).unwrap();
        let refused = ClanSeqPacket::connect(folder.address("same")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    });
}

/// The sender hears of the other side's bound, which need not be its own.
#[test]
fn each_side_has_its_own_bound() {
    within(|| {
        let network = |message| {
            let mut options = ClanOptions::default();
            options.message = message;
            ClanNetwork::bind_udp("127.0.0.1:0".parse().unwrap(), options).unwrap()
        };
        let listener = network(10).listen_messages(0).unwrap();
        let one = network(20).connect_messages(listener.local_addr().unwrap()).unwrap();
        let (two, _) = listener.accept().unwrap();
        assert_eq!(one.send(&[0; 11]).unwrap_err().raw_os_error(), TOO_LONG);
        assert_eq!(two.send(&[0; 11]).unwrap(), 11);
        assert_eq!(one.recv(&mut [0; 20]).unwrap(), 11);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_send_and_receive_messages() {
    use sockets_compat::tokio::{ClanSeqPacket, ClanSeqPacketListener};
    use tokio::io::AsyncWriteExt;
    crate::support::tasks::run(async {
        let listener = ClanSeqPacketListener::bind("clan://127.0.0.1:13/udp/0").unwrap();
        let there = listener.local_addr().unwrap();
        let (one, accepted) = tokio::join!(ClanSeqPacket::connect(there), listener.accept());
        let (mut one, (two, _)) = (one.unwrap(), accepted.unwrap());
        assert_eq!(one.send(b"a message").await.unwrap(), 9);
        assert_eq!(two.recv(&mut [0; 3]).await.unwrap_err().raw_os_error(), TOO_LONG);
        assert_eq!(two.recv(&mut [0; 9]).await.unwrap(), 9);
        // A receive that is given up takes nothing.
        tokio::select! {
            biased;
            _ = two.recv_message() => panic!("there is none"),
            () = tokio::task::yield_now() => {}
        }
        let long = vec![7; 900_000];
        let writing = tokio::spawn(async move {
            for _ in 0..3 {
                one.write_all(&long).await.unwrap();
            }
            one.flush().await.unwrap();
            one.shutdown().await.unwrap();
        });
        for _ in 0..3 {
            assert_eq!(two.recv_message().await.unwrap().unwrap().len(), 900_000);
        }
        assert_eq!(two.recv_message().await.unwrap(), None);
        writing.await.unwrap();
    });
}
