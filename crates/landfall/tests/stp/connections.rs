//! Connections come and go: many at once, closed in the middle, refused.
//! What people do with handles goes well over bad networks too.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{PORT, joined, loopback, noise, pairs, run, udp_pair, within};
use crate::support::PATIENCE;
use landfall::stp::{
    Config, Ended, Endpoint, Error, Failed, Identity, KnownPeers, Memory, OperationSet,
    OrderedReceiver, OrderedSender, Peer, RemoteRights, Transport, blocking,
};
use landfall_placement::{Duration, PathId};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::udp::{UdpConfig, UdpDriver};

#[test]
fn many_connections_carry_transfers_at_once() {
    run(async {
        for (name, (a, b, to_b)) in pairs() {
            let listener = b.listen(PORT).unwrap();
            let clients: Vec<_> = (0..100u32)
                .map(|n| {
                    let a = a.clone();
                    tokio::spawn(async move {
                        let here = a.connect_over(PathId(0), to_b, PORT, n.into()).await?;
                        let bytes = noise(n.into(), 50_000);
                        here.send(bytes.clone()).await?;
                        let back = here.receive(Memory::zeroed(50_000)).await?;
                        assert!(*back == bytes);
                        here.close().await
                    })
                })
                .collect();
            let serving = tokio::spawn(async move {
                for _ in 0..100 {
                    let there = listener.accept().await.unwrap();
                    tokio::spawn(async move {
                        let message = there.receive(Memory::zeroed(50_000)).await?;
                        assert!(*message == noise(there.hello(), 50_000));
                        there.send(message.into_memory()).await?;
                        there.closed().await
                    });
                }
            });
            for client in clients {
                within(client).await.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            within(serving).await.unwrap();
        }
    });
}

#[test]
fn a_close_waits_for_what_is_under_way() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let bytes = noise(1, 8 << 20);
            let sending = here.send(bytes.clone()).start();
            let receiving = there.receive(Memory::zeroed(bytes.len())).start();
            let closing = here.close();
            let (closed, message, sent) =
                within(async { tokio::join!(closing, receiving, sending) }).await;
            closed.unwrap();
            assert!(*message.unwrap() == bytes, "{name}");
            assert_eq!(sent.unwrap().len, 8 << 20);
            let error = within(there.receive(Memory::zeroed(1))).await.unwrap_err();
            assert!(error.is_graceful_close(), "{name}: {error}");
            within(there.closed()).await.unwrap();
        }
    });
}

#[test]
fn an_abort_ends_what_is_under_way_on_both_sides() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send(noise(1, 8 << 20)).start();
            let receiving = there.receive(Memory::zeroed(8 << 20)).start();
            let waiting = there.receive(Memory::zeroed(1)).start();
            let unwanted = there.send("nobody has memory for this").start();
            here.abort();
            // Within one process eight megabytes may be there before the abort is: then both
            // sides say so.
            let (sent, received) = (within(sending).await, within(receiving).await);
            let is_ended = matches!(sent.as_ref().map_err(Failed::why), Err(Error::Ended { .. }));
            assert!(is_ended || received.is_ok(), "{name}: {sent:?}, {received:?}");
            let is_ended = matches!(
                received.as_ref().map_err(Failed::why),
                Err(Error::Ended { .. } | Error::Closed { .. })
            );
            assert!(is_ended || received.is_ok(), "{name}: {received:?}");
            let unwanted = within(unwanted).await;
            let is_ended = matches!(
                unwanted.as_ref().map_err(Failed::why),
                Err(Error::Ended { .. } | Error::Closed { .. })
            );
            assert!(is_ended, "{name}: {unwanted:?}");
            let error = within(waiting).await.unwrap_err();
            assert!(matches!(*error, Error::Closed { why: Some(_) }), "{name}: {error}");
            within(there.closed()).await.unwrap_err();
        }
    });
}

#[test]
fn dropped_handles_close_in_the_background() {
    run(async {
        for (_, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send("goodbye").start();
            drop(here);
            assert_eq!(&*within(there.receive(Memory::zeroed(7))).await.unwrap(), b"goodbye");
            within(sending).await.unwrap();
            within(there.closed()).await.unwrap();
        }
    });
}

#[test]
fn an_endpoint_closes_its_connections() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let (a, b, to_b) = pair;
            let listener = a.listen(9).unwrap();
            within(a.clone().close()).await;
            within(there.closed()).await.unwrap();
            let error = within(here.send("x")).await.unwrap_err();
            assert!(matches!(*error, Error::Closed { .. }), "{name}: {error}");
            assert!(matches!(within(a.connect(to_b, PORT)).await, Err(Error::EndpointClosed)));
            assert!(matches!(within(listener.accept()).await, Err(Error::EndpointClosed)));
            assert!(matches!(a.listen(10), Err(Error::EndpointClosed)));
            drop(b);
        }
    });
}

#[test]
fn what_cannot_be_is_said() {
    run(async {
        let (a, b, to_b) = udp_pair();
        let error = within(a.connect(to_b, 99)).await.unwrap_err();
        assert_eq!(error.to_string(), "no connection: nobody listens at that port");
        let error = within(a.connect(Peer::Ethernet([2; 6]), 1)).await.unwrap_err();
        assert!(error.to_string().contains("no path of this endpoint leads to"), "{error}");
        let error = within(a.connect_over(PathId(5), to_b, 1, 0)).await.unwrap_err();
        assert!(matches!(error, Error::UnknownPath(PathId(5))));
        let _listener = b.listen(PORT).unwrap();
        assert!(matches!(b.listen(PORT), Err(Error::Refused(_))));
        let error = Endpoint::builder().bind().unwrap_err();
        assert!(error.to_string().contains("at least one path"), "{error}");
        let taken = match to_b {
            Peer::Socket(address) => address,
            other => panic!("{other}"),
        };
        let error = Endpoint::bind(landfall::stp::Transport::udp(taken)).unwrap_err();
        assert!(error.to_string().contains("UDP on 127.0.0.1"), "{error}");
        let many = (0..9).fold(Endpoint::builder(), |builder, _| builder.path(loopback()));
        assert!(many.bind().unwrap_err().to_string().contains("raise `Config::paths`"));

        let region = b.register(Memory::zeroed(100)).unwrap();
        let here = within(a.connect(to_b, PORT)).await.unwrap();
        let error = within(here.send(&region)).await.unwrap_err();
        assert!(matches!(*error, Error::ForeignMemory), "{error}");
        assert!(matches!(region.part(10..101), Err(Error::OutOfBounds { .. })));
    });
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    run(async {
        let config = Config {
            keep_alive: Some(Duration::from_millis(50)),
            retry_after: Duration::from_millis(5),
            give_up_after: 5,
            ..Config::default()
        };
        let bind = || Endpoint::builder().path(loopback()).config(config.clone()).bind().unwrap();
        let (a, b) = (bind(), bind());
        let to_b = b.local().unwrap();
        let (here, _there) = joined(&(a, b.clone(), to_b)).await;
        let sending = here.send(vec![1; 100]).start();
        b.set_path_up(PathId(0), false).unwrap();
        let error = within(sending).await.unwrap_err();
        assert!(matches!(*error, Error::Ended { .. } | Error::Closed { .. }), "{error}");
        let error = within(here.closed()).await.unwrap_err();
        assert!(error.to_string().contains("stopped answering"), "{error}");
    });
}

#[test]
fn a_backlog_that_is_full_refuses() {
    run(async {
        let a = Endpoint::bind(loopback()).unwrap();
        let b = Endpoint::builder().path(loopback()).backlog(2).bind().unwrap();
        let listener = b.listen(PORT).unwrap();
        let mut open = Vec::new();
        for _ in 0..2 {
            open.push(within(a.connect(b.local().unwrap(), PORT)).await.unwrap());
        }
        // The third is refused, or ended once it is open: anyone who is first to notice.
        match within(a.connect(b.local().unwrap(), PORT)).await {
            Ok(third) => {
                let error = within(third.closed()).await.unwrap_err();
                assert!(error.to_string().contains("no room"), "{error}");
            }
            Err(error) => assert!(matches!(error, Error::NotConnected(_)), "{error}"),
        }
        for here in &open[..2] {
            let there = within(listener.accept()).await.unwrap();
            let sending = here.send("hello").start();
            assert_eq!(&*within(there.receive(Memory::zeroed(5))).await.unwrap(), b"hello");
            within(sending).await.unwrap();
        }
    });
}

/// Of a million packets.
const MANY: u32 = 100_000;

fn bad_udp(seed: u8) -> Transport {
    let faults = Faults {
        loss: MANY,
        duplication: MANY,
        reordering: MANY,
        corruption: MANY / 5,
        ..Faults::default()
    };
    Transport::driver(move |path, regions| {
        let config = UdpConfig::new(([127, 0, 0, 1], 0).into(), 1500);
        let driver = UdpDriver::open(path, config, regions)?;
        PORTS.with(|ports| ports.borrow_mut().push(driver.local_address()));
        Faulty::new(driver, faults, [seed; 32], regions).map_err(io::Error::other)
    })
}

thread_local! {
    /// A driver that was handed in has an address that only it knows.
    static PORTS: std::cell::RefCell<Vec<std::net::SocketAddr>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn bad_pair() -> (Endpoint, Endpoint, Peer) {
    let config =
        Config { give_up_after: 100, retry_after: Duration::from_millis(10), ..Config::default() }
            .with_checksum();
    let bind = |seed| {
        let builder = Endpoint::builder().config(config.clone());
        // A driver that was handed in is sealed. What the user keeps is not the test's.
        let identity = Identity::generate().expect("random bytes");
        let builder = builder.identity(identity).known_peers(KnownPeers::in_memory());
        builder.path(bad_udp(seed)).bind().expect("loopback")
    };
    let (a, b) = (bind(1), bind(2));
    let to_b = PORTS.with(|ports| ports.take()).pop().expect("an address");
    (a, b, Peer::from(to_b))
}

#[test]
fn transfers_reads_and_remote_memory_survive_every_fault() {
    run(async {
        let pair = bad_pair();
        let (here, there) = joined(&pair).await;
        let sending: Vec<_> =
            (0..10u32).map(|n| here.send(noise(n.into(), 100_000)).opaque(n).start()).collect();
        let mut arrived = Vec::new();
        for _ in 0..10 {
            let message = within(there.receive(Memory::zeroed(100_000))).await.unwrap();
            assert!(*message == noise(message.opaque().into(), 100_000));
            arrived.push(message.opaque());
        }
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..10), "each once");
        for sending in sending {
            within(sending).await.unwrap();
        }

        let reading = here.read(Memory::zeroed(50_000), 1).start();
        let request = within(there.read_request()).await.unwrap();
        let answering = request.answer(noise(50, 50_000)).start();
        assert!(*within(reading).await.unwrap() == noise(50, 50_000));
        within(answering).await.unwrap();

        let region = pair.1.register(Memory::zeroed(4096)).unwrap();
        let asking = here.request_region(1, 4096, RemoteRights::ALL).start();
        let asked = within(there.region_request()).await.unwrap();
        let exposed = asked.expose(&region.whole(), RemoteRights::ALL).unwrap();
        let remote = within(asking).await.unwrap();
        let adding: Vec<_> = (0..100).map(|_| remote.fetch_add(0, 1).start()).collect();
        for (n, adding) in adding.into_iter().enumerate() {
            assert_eq!(within(adding).await.unwrap(), n as u64, "each once, in order");
        }
        within(exposed.revoke()).await;
        let memory = within(region.take_back()).await.unwrap();
        assert_eq!(memory[..8], 100u64.to_le_bytes());

        within(here.close()).await.unwrap();
        within(there.closed()).await.unwrap();
        let stats = pair.1.stats();
        assert_eq!((stats.operations, stats.granted_bytes), (0, 0));
    });
}

/// Passes datagrams on as an address translator does, and forgets in the middle what it
/// translated to: from then on the server sees another port.
fn forgetful_translator(server: SocketAddr, remembers: Duration) -> (SocketAddr, Arc<AtomicBool>) {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("loopback"));
    let (at, is_over) = (front.local_addr().expect("an address"), Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let outside = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            socket.connect(server).expect("loopback");
            socket.set_nonblocking(true).expect("a socket");
            socket
        };
        front.set_nonblocking(true).expect("a socket");
        let (mut back, mut client, started) = (outside(), None, Instant::now());
        let (mut has_forgotten, mut packet) = (false, vec![0; 65_536]);
        while !over.load(Ordering::Relaxed) {
            if !has_forgotten && started.elapsed() > remembers {
                (back, has_forgotten) = (outside(), true);
            }
            let mut moved = false;
            while let Ok((len, from)) = front.recv_from(&mut packet) {
                client = Some(from);
                let _ = back.send(&packet[..len]);
                moved = true;
            }
            while let Ok(len) = back.recv(&mut packet) {
                if let Some(client) = client {
                    let _ = front.send_to(&packet[..len], client);
                }
                moved = true;
            }
            if !moved {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    (at, is_over)
}

#[test]
fn a_connection_outlives_a_translator_that_forgets_it() {
    let server = blocking::Endpoint::bind(loopback()).expect("loopback");
    let listener = server.listen(PORT).expect("a free port");
    let Some(Peer::Socket(to)) = server.local() else { panic!("UDP has an address") };
    let (at, is_over) = forgetful_translator(to, Duration::from_millis(300));
    let client = blocking::Endpoint::bind(loopback()).expect("loopback");
    let connection = client.connect(at, PORT).expect("connected");
    let accepted = listener.accept_within(PATIENCE).expect("listening").expect("in time");
    let before = accepted.links();
    // Both directions, until the server has seen the client at another address, and after.
    let (bytes, started) = (noise(5, 300_000), Instant::now());
    let mut rounds_after = 0;
    while rounds_after < 3 {
        assert!(started.elapsed() < PATIENCE, "the client is not found at its new address");
        for (from, into) in [(&connection, &accepted), (&accepted, &connection)] {
            let taking = into.receive(Memory::zeroed(bytes.len())).start();
            let sending = from.send(bytes.clone()).start();
            let came = taking.wait_for(PATIENCE).expect("in time").expect("it comes");
            sending.wait_for(PATIENCE).expect("in time").expect("it is taken");
            assert!(*came == bytes[..]);
        }
        rounds_after += usize::from(accepted.links().len() > before.len());
    }
    connection.close().expect("closed");
    is_over.store(true, Ordering::Relaxed);
}

/// A host may be given by its name, and all that the name means is tried.
#[test]
fn a_connection_is_opened_to_a_host_by_name() {
    run(async {
        let (a, b, to_b) = udp_pair();
        let listener = b.listen(PORT).unwrap();
        let Peer::Socket(address) = to_b else { panic!("{to_b}") };
        let nobody: SocketAddr = "[::1]:9".parse().unwrap();
        let several = [nobody, address];
        let names = (format!("localhost:{}", address.port()), ("localhost", address.port()));
        for nth in 0..4 {
            let here = match nth {
                0 => within(a.connect(&names.0, PORT)).await,
                1 => within(a.connect(names.1, PORT)).await,
                2 => within(a.connect(&several[..], PORT)).await,
                _ => within(a.connect(address.to_string(), PORT)).await,
            };
            let here = here.unwrap();
            let there = within(listener.accept()).await.unwrap();
            assert_eq!(here.peer(), to_b);
            within(here.close()).await.unwrap();
            within(there.closed()).await.unwrap();
        }
        let unknown = within(a.connect("no such host", PORT)).await.unwrap_err();
        assert!(matches!(unknown, Error::Name { .. }), "{unknown}");
    });
}

/// Where nobody answers a connection is given up: after what the configuration says, or
/// after what the call says.
#[test]
fn a_connection_to_nobody_is_given_up() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let config = Config { connect_within: Duration::from_millis(300), ..Config::shared_network() };
    let endpoint = blocking::Endpoint::from(
        Endpoint::builder().path(loopback()).config(config).bind().unwrap(),
    );
    let error = endpoint.connect(to, PORT).unwrap_err();
    assert!(matches!(error, Error::NotConnected(Ended::Silent)), "{error}");
    let patient = blocking::Endpoint::bind(loopback()).unwrap();
    let limit = Duration::from_millis(50);
    let error = patient.connect_within(to, PORT, limit).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

/// Where nobody receives the host there says so (ICMP port unreachable), and a connection is
/// not waited for. The other connections of the endpoint go on.
#[test]
fn a_connection_to_a_closed_port_is_refused_at_once() {
    let long = Duration::from_secs(600);
    // An address of its own, so that no other test is given the port that has to stay closed.
    for (local, remote, encrypts) in [
        ("127.0.0.1:0", "127.81.0.1:0", false),
        ("[::1]:0", "[::1]:0", false),
        ("[::]:0", "127.81.0.1:0", false),
        ("127.0.0.1:0", "127.81.0.1:0", true),
    ] {
        let bind = |local: &str| {
            let config = Config { connect_within: long, ..Config::default() };
            let identity = Identity::generate().unwrap();
            let builder = Endpoint::builder().path(Transport::udp(local.parse().unwrap()));
            let builder = builder.config(config).identity(identity);
            let builder = builder.known_peers(KnownPeers::in_memory());
            if encrypts { builder.encrypt_loopback() } else { builder }.bind().unwrap()
        };
        let (client, server) = (bind(local), bind(remote));
        let to = server.local().unwrap();
        let closed = UdpSocket::bind(remote).unwrap().local_addr().unwrap();
        run(async {
            let (here, there) = joined(&(client.clone(), server, to)).await;
            let sending = here.send(noise(1, 100_000)).start();
            let error = within(client.connect(closed, PORT)).await.unwrap_err();
            let is_it = matches!(error, Error::NotConnected(Ended::Unreachable));
            assert!(is_it, "{local} to {remote}: {error}");
            let message = within(there.receive(Memory::zeroed(100_000))).await.unwrap();
            assert!(*message == noise(1, 100_000));
            within(sending).await.unwrap();
            // Somebody is there the next time.
            let late = Endpoint::builder().path(Transport::udp(closed)).plaintext();
            if !encrypts && let Ok(late) = late.bind() {
                let listener = late.listen(PORT).unwrap();
                // Together: a connection that is closed before it was accepted is not told of.
                let both = async { tokio::join!(client.connect(closed, PORT), listener.accept()) };
                let (here, there) = within(both).await;
                drop((here.unwrap(), there.unwrap()));
            }
        });
    }
}

/// What is sent in an order comes in it, though the network reorders and loses.
#[test]
fn ordered_messages_come_in_their_order() {
    let faults =
        Faults { loss: 20_000, reordering: 200_000, duplication: 50_000, ..Faults::default() };
    let bind = |seed| Endpoint::bind(loopback().with_faults(faults, [seed; 32])).unwrap();
    let (a, b) = (bind(1), bind(2));
    let pair = (a, b.clone(), b.local().unwrap());
    run(async {
        let (here, there) = joined(&pair).await;
        let (mut sender, mut receiver) = (OrderedSender::new(&here), OrderedReceiver::new(&there));
        let mut sends = OperationSet::new();
        for nth in 0..200u32 {
            sends.push(nth, sender.send(noise(nth.into(), nth as usize * 10)));
        }
        for nth in 0..200u32 {
            let offer = within(receiver.offer()).await.unwrap();
            let memory = Memory::zeroed(usize::try_from(offer.len()).unwrap());
            let message = within(offer.accept(memory)).await.unwrap();
            assert!(*message == noise(nth.into(), nth as usize * 10), "message {nth}");
        }
        let mut count = 0;
        while let Some((nth, result)) = within(sends.next()).await {
            assert_eq!(result.unwrap().len, u64::from(nth) * 10);
            count += 1;
        }
        assert_eq!(count, 200);
    });
}
