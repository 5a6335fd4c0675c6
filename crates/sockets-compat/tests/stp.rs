//! Messages and byte streams over the Scheduled Transfer Protocol.

use std::io::ErrorKind;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use sockets_compat::{
    Stp, StpHost, StpListener, StpOptions, StpSeqPacket, StpStream, StpStreamListener,
};

use crate::support::{TOO_LONG, likeness, packets, until, within};

static STREAMS: Mutex<()> = Mutex::new(());
static PACKETS: Mutex<()> = Mutex::new(());

fn streams() -> (StpStream, StpStream) {
    static LISTENER: OnceLock<StpStreamListener> = OnceLock::new();
    let bind = || StpStreamListener::bind("stp://127.0.0.1:7/udp/0").expect("loopback");
    let listener = LISTENER.get_or_init(bind);
    // Of two that connect at a time each shall get its own.
    let _alone = crate::support::locked(&STREAMS);
    let client = StpStream::connect(listener.local_addr().unwrap()).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

fn connected() -> packets::Pair<Stp> {
    static LISTENER: OnceLock<StpListener> = OnceLock::new();
    let bind = || StpListener::bind("stp://127.0.0.1:9/udp/0").expect("loopback");
    let listener = LISTENER.get_or_init(bind);
    let _alone = crate::support::locked(&PACKETS);
    let client = StpSeqPacket::connect(listener.local_addr().unwrap()).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

/// A test of two sockets for messages.
fn both(test: fn(packets::Pair<Stp>)) {
    within(move || test(connected()));
}

#[test]
fn streams_are_like_the_kernels() {
    likeness::is_like_the_kernels(streams);
}

#[test]
fn each_write_is_one_message_and_each_read_takes_a_whole_one() {
    both(packets::each_write_is_one_message_and_each_read_takes_a_whole_one);
}

#[test]
fn what_is_too_long_comes_back_and_the_next_one_gets_through() {
    both(|(one, two)| {
        two.set_message_limit(100);
        packets::what_is_too_long_comes_back_and_the_next_one_gets_through((one, two));
    });
}

#[test]
fn who_does_not_wait_hears_later_of_what_was_too_long() {
    both(|(one, two)| {
        two.set_message_limit(100);
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.send(&[4; 200]).unwrap(), 200);
        let mut late = None;
        until("it comes back", || {
            late = one.take_error().unwrap();
            late.is_some()
        });
        assert_eq!(late.unwrap().raw_os_error(), TOO_LONG);
        assert_eq!(one.send(b"and on").unwrap(), 6);
        assert_eq!(two.recv_message().unwrap().unwrap(), &b"and on"[..]);
    });
}

#[test]
fn a_message_stays_for_a_buffer_that_is_long_enough() {
    both(packets::a_message_stays_for_a_buffer_that_is_long_enough);
}

#[test]
fn messages_are_taken_in_while_nobody_reads_as_far_as_there_is_room() {
    within(|| {
        let options = StpOptions::default();
        let server = StpHost::bind_udp("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let listener = server.listen(0).unwrap();
        let one = StpSeqPacket::connect(listener.local_addr().unwrap()).unwrap();
        let two = listener.accept().unwrap().0;
        // These writes wait until they are taken, though nobody reads.
        for number in 0..16u8 {
            one.send(&vec![number; 32 << 10]).unwrap();
        }
        one.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut sent = 16u8;
        let full = loop {
            match one.send(&vec![sent; 64 << 10]) {
                Ok(_) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 200, "there has to be a bound");
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        // The one that was on its way still is, and comes next.
        for number in 0..=sent {
            assert_eq!(two.recv_message().unwrap().unwrap()[0], number);
        }
    });
}

#[test]
fn without_waiting_nothing_waits() {
    both(packets::without_waiting_nothing_waits);
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    both(packets::one_direction_ends_and_the_other_goes_on);
}

#[test]
fn nobody_there_is_refused_and_a_taken_port_says_so() {
    within(|| {
        let server = StpHost::bind_udp("127.0.0.1:0".parse().unwrap(), StpOptions::default());
        let server = server.unwrap();
        let listener = server.listen(21).unwrap();
        assert_eq!(server.listen(21).unwrap_err().kind(), ErrorKind::AddrInUse);
        let there = listener.local_addr().unwrap();
        drop(listener);
        let nobody = StpSeqPacket::connect(&there).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused, "{nobody}");
        let wrong = StpSeqPacket::connect("qp://10.0.0.2:7").unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    });
}

/// What a sender that knows nothing of sockets sends is taken as it comes.
#[test]
fn a_plain_endpoint_of_stp_is_as_good_a_peer() {
    use landfall::stp::{Memory, Transport, blocking::Endpoint};
    within(|| {
        let listener = StpListener::bind("stp://127.0.0.1:11/udp/0").unwrap();
        let plain = Endpoint::bind(Transport::udp("127.0.0.1:0".parse().unwrap())).unwrap();
        let sockets_compat::Address::Stp { host, port, carrier: sockets_compat::Carrier::Udp(udp) } =
            listener.local_addr().unwrap()
        else {
            panic!("it is over UDP")
        };
        let there = std::net::SocketAddr::new(host, udp);
        let connection = plain.connect(there, port).unwrap();
        let (socket, _) = listener.accept().unwrap();
        for text in ["one", "two"] {
            assert_eq!(connection.send(text).wait().unwrap().len, 3);
            assert_eq!(socket.recv_message().unwrap().unwrap(), text.as_bytes());
        }
        let receiving = connection.receive(Memory::zeroed(4)).start();
        assert_eq!(socket.send(b"five!").unwrap_err().raw_os_error(), TOO_LONG);
        assert!(receiving.wait().is_err());
        let receiving = connection.receive(Memory::zeroed(5)).start();
        assert_eq!(socket.send(b"five!").unwrap(), 5);
        assert_eq!(&*receiving.wait().unwrap(), b"five!");
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
fn tasks_send_and_receive_messages() {
    use sockets_compat::tokio::{StpListener, StpSeqPacket};
    use tokio::io::AsyncWriteExt;
    crate::support::tasks::run(async {
        let listener = StpListener::bind("stp://127.0.0.1:13/udp/0").unwrap();
        let there = listener.local_addr().unwrap();
        let (one, accepted) = tokio::join!(StpSeqPacket::connect(there), listener.accept());
        let (mut one, (two, _)) = (one.unwrap(), accepted.unwrap());
        two.set_message_limit(1000);
        assert_eq!(one.send(b"a message").await.unwrap(), 9);
        assert_eq!(one.send(&[0; 1001]).await.unwrap_err().raw_os_error(), TOO_LONG);
        assert_eq!(two.recv(&mut [0; 3]).await.unwrap_err().raw_os_error(), TOO_LONG);
        assert_eq!(two.recv(&mut [0; 9]).await.unwrap(), 9);

        // A receive that is given up takes nothing.
        tokio::select! {
            biased;
            _ = two.recv_message() => panic!("there is none"),
            () = tokio::task::yield_now() => {}
        }
        // By the trait: on its way at once, and the flush hears what became of it.
        one.write_all(b"one").await.unwrap();
        one.write_all(&[0; 1001]).await.unwrap();
        let refused = one.flush().await.unwrap_err();
        assert_eq!(refused.raw_os_error(), TOO_LONG);
        one.write_all(b"two").await.unwrap();
        one.shutdown().await.unwrap();
        assert_eq!(two.recv_message().await.unwrap().unwrap(), &b"one"[..]);
        assert_eq!(two.recv_message().await.unwrap().unwrap(), &b"two"[..]);
        assert_eq!(two.recv_message().await.unwrap(), None);
    });
}

#[test]
fn thousands_of_connections_are_open_at_a_time_and_one_too_many_says_so() {
    within(|| {
        let listener = StpListener::bind("stp://127.0.0.1:11/udp/0").unwrap();
        let there = listener.local_addr().unwrap();
        let mut pairs = Vec::new();
        for _ in 0..3000 {
            let client = StpSeqPacket::connect(&there).unwrap();
            pairs.push((client, listener.accept().unwrap().0));
        }
        for (client, server) in &pairs {
            client.send(b"still here").unwrap();
            assert_eq!(server.recv(&mut [0; 10]).unwrap(), 10);
        }

        let mut options = StpOptions::default();
        options.connections = 2;
        let small = StpHost::bind_udp("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let _two = [small.connect(&there).unwrap(), small.connect(&there).unwrap()];
        let why = small.connect(&there).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::QuotaExceeded, "{why}");
        assert!(why.to_string().contains("StpOptions::connections"), "{why}");
    });
}
