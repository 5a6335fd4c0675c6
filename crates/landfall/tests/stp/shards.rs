//! Endpoints of several engines: connections are spread over them, and handles look the same
//! as with one.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{PATIENCE, PORT, loopback, memory_with, noise, run, within};
use landfall::stp::{
    BindError, ChannelConfig, Config, Connection, Ended, Endpoint, Error, Identity, KnownPeers,
    Listener, Memory, PathId, Peer, Reason, RemoteRights, Stats, Transport, blocking,
};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_transport::packet::PacketDriver;

const SHARDS: usize = 4;

fn endpoint(threads: usize) -> Endpoint {
    Endpoint::builder().path(loopback()).threads(threads).bind().expect("loopback")
}

/// This many connections between two endpoints, in the order of their `hello`, which is counted
/// from 0 on.
async fn connections(
    from: &Endpoint,
    listener: &Listener,
    to: Peer,
    count: u64,
) -> Vec<(Connection, Connection)> {
    let connecting = async {
        let mut out = Vec::new();
        for hello in 0..count {
            out.push(within(from.connect_over(PathId(0), to, PORT, hello)).await.unwrap());
        }
        out
    };
    let accepting = async {
        let mut accepted = BTreeMap::new();
        for _ in 0..count {
            let connection = within(listener.accept()).await.unwrap();
            accepted.insert(connection.hello(), connection);
        }
        accepted
    };
    let (out, accepted) = tokio::join!(connecting, accepting);
    assert!(accepted.keys().copied().eq(0..count), "each is accepted once");
    out.into_iter().zip(accepted.into_values()).collect()
}

/// What came in at each engine's part of the port, and what each sent from a port of its own.
fn shares(stats: &Stats) -> (Vec<u64>, Vec<u64>) {
    let paths = stats.paths.as_chunks::<2>().0;
    let came = paths.iter().map(|[_, listening]| listening.counters.units_received);
    (came.collect(), paths.iter().map(|[own, _]| own.counters.units_sent).collect())
}

async fn quiet(endpoint: &Endpoint) {
    within(async {
        while endpoint.stats().connections > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[test]
fn sixty_four_connections_of_four_shards_deliver_and_are_counted_together() {
    run(async {
        const LEN: usize = 50_000;
        let (server, client) = (endpoint(SHARDS), endpoint(SHARDS));
        assert_eq!((server.threads(), client.threads()), (SHARDS, SHARDS));
        let listener = server.listen(PORT).unwrap();
        let to = server.local().unwrap();
        let all = connections(&client, &listener, to, 64).await;
        assert_eq!((client.stats().connections, server.stats().connections), (64, 64));

        let conversations: Vec<_> = all
            .into_iter()
            .zip(0u64..)
            .map(|((here, there), n)| {
                tokio::spawn(async move {
                    let sending = here.send(memory_with(&noise(n, LEN))).start();
                    let answering = there.send(memory_with(&noise(n + 100, LEN))).start();
                    let came = within(there.receive(Memory::zeroed(LEN))).await.unwrap();
                    assert!(*came == noise(n, LEN), "{n}");
                    let came = within(here.receive(Memory::zeroed(LEN))).await.unwrap();
                    assert!(*came == noise(n + 100, LEN), "{n}");
                    within(sending).await.unwrap();
                    within(answering).await.unwrap();
                    (here, there)
                })
            })
            .collect();
        let mut all = Vec::new();
        for conversation in conversations {
            all.push(within(conversation).await.unwrap());
        }

        for endpoint in [&server, &client] {
            let stats = endpoint.stats();
            assert_eq!(stats.engine.bytes_received, 64 * LEN as u64);
            assert_eq!((stats.operations, stats.regions, stats.granted_bytes), (0, 0, 0));
            assert_eq!(stats.paths.len(), 2 * SHARDS);
        }
        // Each of the client's engines has its part, and hears from its own port alone.
        let (came, sent) = shares(&client.stats());
        assert_eq!(came, [0; SHARDS]);
        assert!(sent.iter().all(|sent| *sent > 0), "{sent:?}");
        assert_eq!(shares(&server.stats()).1, [0; SHARDS]);

        for (here, there) in all {
            within(here.close()).await.unwrap();
            within(there.closed()).await.unwrap();
        }
        quiet(&client).await;
        quiet(&server).await;
    });
}

#[test]
fn peers_are_spread_over_the_engines_that_listen() {
    run(async {
        let server = endpoint(SHARDS);
        let listener = server.listen(PORT).unwrap();
        let to = server.local().unwrap();
        // With sixteen peers all in one place are one chance in a billion.
        let mut all = Vec::new();
        for n in 0..16u64 {
            let client = endpoint(1);
            let pair = connections(&client, &listener, to, 1).await.remove(0);
            let sending = pair.0.send(memory_with(&noise(n, 10_000))).start();
            let came = within(pair.1.receive(Memory::zeroed(10_000))).await.unwrap();
            assert!(*came == noise(n, 10_000), "{n}");
            within(sending).await.unwrap();
            all.push((client, pair));
        }
        let (came, _) = shares(&server.stats());
        assert!(came.iter().filter(|came| **came > 0).count() > 1, "{came:?}");
    });
}

#[test]
fn registered_memory_serves_the_connections_of_all_engines() {
    run(async {
        const LEN: u64 = 20_000;
        let (server, client) = (endpoint(SHARDS), endpoint(SHARDS));
        let listener = server.listen(PORT).unwrap();
        let to = server.local().unwrap();
        let all = connections(&client, &listener, to, 8).await;
        let bytes = noise(1, 8 * LEN as usize);
        let source = client.register(memory_with(&bytes)).unwrap();
        let target = server.register(Memory::zeroed(bytes.len())).unwrap();
        for ((here, there), n) in all.iter().zip(0..) {
            let range = n * LEN..(n + 1) * LEN;
            let sending = here.send(source.part(range.clone()).unwrap()).start();
            let into = target.part(range).unwrap();
            within(there.receive_into(&into)).await.unwrap();
            within(sending).await.unwrap();
        }
        // All of them count in one word.
        let mut exposed = Vec::new();
        for ((here, there), n) in all.iter().zip(0..) {
            let asking = here.request_region(1, 8, RemoteRights::ALL).start();
            let asked = within(there.region_request()).await.unwrap();
            exposed.push(asked.expose(&target.part(0..8).unwrap(), RemoteRights::ALL).unwrap());
            let before = within(within(asking).await.unwrap().fetch_add(0, 1)).await.unwrap();
            let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(before, first.wrapping_add(n));
        }
        for exposed in exposed {
            within(exposed.revoke()).await;
        }
        assert_eq!((client.stats().regions, server.stats().regions), (1, 1));
        let came = within(target.take_back()).await.unwrap();
        assert!(came[8..] == bytes[8..]);
        within(source.take_back()).await.unwrap();
        assert_eq!((client.stats().regions, server.stats().regions), (0, 0));
    });
}

#[test]
fn closing_an_endpoint_closes_the_connections_of_all_its_engines() {
    run(async {
        let (server, client) = (endpoint(SHARDS), endpoint(SHARDS));
        let listener = server.listen(PORT).unwrap();
        let to = server.local().unwrap();
        let all = connections(&client, &listener, to, 16).await;
        // What is under way goes on to its end.
        let mut under_way = Vec::new();
        for ((here, there), n) in all.iter().zip(0..) {
            let sending = here.send(memory_with(&noise(n, 300_000))).start();
            let mut receiving = there.receive(Memory::zeroed(300_000));
            // It has begun on both sides: a request may still be on its way otherwise.
            within(receiving.progress().next()).await.unwrap();
            under_way.push((sending, receiving, n));
        }
        within(client.clone().close()).await;
        for (sending, receiving, n) in under_way {
            assert!(*within(receiving).await.unwrap() == noise(n, 300_000), "{n}");
            within(sending).await.unwrap();
        }
        for (_, there) in &all {
            within(there.closed()).await.unwrap();
        }
        let error = within(client.connect(to, PORT)).await.unwrap_err();
        assert!(matches!(error, Error::EndpointClosed | Error::NotConnected(_)), "{error}");

        let accepting = tokio::spawn(async move { listener.accept().await });
        within(server.close()).await;
        let error = within(accepting).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::EndpointClosed), "{error}");
    });
}

#[test]
fn one_connection_lives_on_when_all_other_handles_are_dropped() {
    run(async {
        for kept in 0..8 {
            let server = endpoint(SHARDS);
            let listener = server.listen(PORT).unwrap();
            let to = server.local().unwrap();
            let client = endpoint(SHARDS);
            let mut all = connections(&client, &listener, to, 8).await;
            let (here, there) = all.swap_remove(kept);
            drop((server, listener));
            for (out, accepted) in all {
                drop(accepted);
                within(out.closed()).await.unwrap();
            }
            for n in 0..5 {
                let sending = here.send(memory_with(&noise(n, 100_000))).start();
                let came = within(there.receive(Memory::zeroed(100_000))).await.unwrap();
                assert!(*came == noise(n, 100_000), "{kept}");
                within(sending).await.unwrap();
            }
            // Whatever engine is asked says that the port is closed to others.
            for _ in 0..SHARDS {
                let error = within(client.connect(to, PORT)).await.unwrap_err();
                assert!(
                    matches!(error, Error::NotConnected(Ended::There(Reason::NoListener))),
                    "{error}"
                );
            }
            within(here.close()).await.unwrap();
        }
    });
}

#[test]
fn threads_that_wait_are_served_whatever_engine_a_connection_has() {
    let server = blocking::Endpoint::from(endpoint(SHARDS));
    let client = blocking::Endpoint::from(endpoint(SHARDS));
    let listener = server.listen(PORT).unwrap();
    let to = server.local().unwrap();
    thread::scope(|scope| {
        for n in 0..12u64 {
            let connection = client.connect(to, PORT).unwrap();
            let accepted = listener.accept_within(PATIENCE).unwrap().unwrap();
            scope.spawn(move || {
                for round in 0..20 {
                    let sending = connection.send(noise(n + round, 5_000)).start();
                    let came = accepted.receive(Memory::zeroed(5_000)).wait().unwrap();
                    assert!(*came == noise(n + round, 5_000));
                    sending.wait().unwrap();
                }
                let closing = thread::spawn(move || connection.close());
                accepted.closed().unwrap();
                closing.join().unwrap().unwrap();
            });
        }
    });
    client.close();
    server.close();
}

#[test]
fn paths_of_engines_are_not_seen_and_their_port_is_one() {
    run(async {
        let server = endpoint(SHARDS);
        assert_eq!(server.paths(), [PathId(0)]);
        assert_eq!(server.local(), server.local_of(PathId(0)));
        assert_eq!(server.local_of(PathId(1)), None);
        let Some(Peer::Socket(local)) = server.local() else { panic!("UDP has an address") };
        let hidden = server.set_path_up(PathId(1), false).unwrap_err();
        assert!(matches!(hidden, Error::UnknownPath(PathId(1))), "{hidden}");
        let hidden = within(server.connect_over(PathId(1), local, PORT, 0)).await.unwrap_err();
        assert!(matches!(hidden, Error::UnknownPath(PathId(1))), "{hidden}");
        // Nobody else gets it, though they would share it.
        for threads in [1, 2] {
            let other = Endpoint::builder().path(Transport::udp(local)).threads(threads);
            let error = other.bind().unwrap_err();
            assert!(
                matches!(&error, BindError::Path { source, .. }
                if source.kind() == std::io::ErrorKind::AddrInUse),
                "{error}"
            );
        }
        // Switched off all are silent, and switched on they answer.
        let client = endpoint(1);
        let listener = server.listen(PORT).unwrap();
        server.set_path_up(PathId(0), false).unwrap();
        assert!(server.stats().paths.iter().all(|path| !path.is_up));
        server.set_path_up(PathId(0), true).unwrap();
        connections(&client, &listener, Peer::Socket(local), 4).await;
        let taken = server.listen(PORT).unwrap_err();
        assert!(matches!(taken, Error::Refused(_)), "{taken}");
        drop(listener);
        server.listen(PORT).unwrap();
    });
}

#[test]
fn what_threads_cannot_share_is_refused() {
    let shared = || Endpoint::builder().threads(2);
    let is_not_shared = |error: BindError| {
        assert!(matches!(error, BindError::NotShared), "{error}");
        assert!(error.to_string().contains("Transport::udp"), "{error}");
    };
    is_not_shared(shared().path(loopback()).path(loopback()).bind().unwrap_err());
    is_not_shared(shared().path(Transport::ip([127, 0, 0, 1].into())).bind().unwrap_err());
    is_not_shared(shared().path(loopback()).bind_without_thread().unwrap_err());
    let channel = ChannelConfig::default();
    is_not_shared(shared().bind_pair(Endpoint::builder(), channel).unwrap_err());
    assert!(matches!(shared().bind().unwrap_err(), BindError::NoPath));
    assert_eq!(endpoint(0).threads(), 1);
}

/// Endpoints of several engines at both ends of a cable, encrypted as on every network.
fn over_a_cable(
    cable: &VethPair,
    transport: impl Fn(&VethEnd) -> Transport + Sync,
) -> [Endpoint; 2] {
    [&cable.a, &cable.b].map(|end| {
        let bind = || {
            let (identity, known) = (Identity::generate().unwrap(), KnownPeers::in_memory());
            let builder = Endpoint::builder().path(transport(end)).threads(SHARDS);
            builder.identity(identity).known_peers(known).bind().unwrap()
        };
        end.namespace.enter(bind).unwrap()
    })
}

/// Messages over each connection, both ways.
async fn converse(all: &[(Connection, Connection)]) {
    for ((here, there), n) in all.iter().zip(0u64..) {
        for (from, to) in [(here, there), (there, here)] {
            let sending = from.send(memory_with(&noise(n, 100_000))).start();
            let came = within(to.receive(Memory::zeroed(100_000))).await.unwrap();
            assert!(*came == noise(n, 100_000), "{n}");
            within(sending).await.unwrap();
        }
    }
}

#[test]
fn engines_share_a_port_of_packet_sockets() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let at = |end: &VethEnd| Transport::udp_packet(SocketAddr::new(end.ipv4.into(), 7700));
    let [client, server] = over_a_cable(&cable, at);
    run(async {
        let listener = server.listen(PORT).unwrap();
        assert_eq!(server.paths(), [PathId(0)]);
        let to = Peer::Socket(SocketAddr::new(cable.b.ipv4.into(), 7700));
        assert_eq!(server.local(), Some(to));
        let all = connections(&client, &listener, to, 16).await;
        converse(&all).await;
        let (came, sent) = shares(&client.stats());
        assert_eq!(came, [0; SHARDS], "answers come to the port that asked");
        assert!(sent.iter().all(|sent| *sent > 0), "{sent:?}");
        assert_eq!(server.stats().engine.bytes_received, 16 * 100_000);
    });
}

/// All that goes to a station and comes from it is one engine's, so that answers find it.
#[test]
fn engines_share_an_interface_by_the_stations_of_peers() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let [client, server] = over_a_cable(&cable, |end| Transport::ethernet(&*end.name));
    run(async {
        let listener = server.listen(PORT).unwrap();
        let all = connections(&client, &listener, Peer::Ethernet(cable.b.mac.0), 6).await;
        converse(&all).await;
        for (endpoint, peer) in [(&client, cable.b.mac.0), (&server, cable.a.mac.0)] {
            assert_eq!(endpoint.paths(), [PathId(0)]);
            let stats = endpoint.stats();
            let member = PacketDriver::member_of(peer, SHARDS).unwrap();
            let came = stats.paths.iter().map(|path| path.counters.units_received > 0);
            assert!(came.eq((0..SHARDS).map(|nth| nth == member)), "{:?}", stats.paths);
        }
        // The other direction, and switched off and on again.
        client.set_path_up(PathId(0), false).unwrap();
        client.set_path_up(PathId(0), true).unwrap();
        let listener = client.listen(PORT).unwrap();
        let all = connections(&server, &listener, Peer::Ethernet(cable.a.mac.0), 2).await;
        converse(&all).await;
    });
}

/// What is between a client and a server, and changes the client's address as a NAT does.
struct AddressTranslator {
    inside: UdpSocket,
    outside: Mutex<Arc<UdpSocket>>,
    is_over: AtomicBool,
}

impl AddressTranslator {
    fn outside() -> Arc<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Arc::new(socket)
    }

    fn new() -> Self {
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        inside.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Self { inside, outside: Mutex::new(Self::outside()), is_over: AtomicBool::new(false) }
    }

    /// It forgets the client: what comes from now on has another address.
    fn forget(&self) {
        *self.outside.lock().unwrap() = Self::outside();
    }

    fn carry(&self, server: SocketAddr) {
        let (mut buffer, mut client) = (vec![0; 1 << 16], None);
        while !self.is_over.load(Ordering::Relaxed) {
            let outside = Arc::clone(&self.outside.lock().unwrap());
            if let Ok((len, from)) = self.inside.recv_from(&mut buffer) {
                client = Some(from);
                let _ = outside.send_to(&buffer[..len], server);
            }
            outside.set_nonblocking(true).unwrap();
            while let (Ok(len), Some(client)) = (outside.recv(&mut buffer), client) {
                let _ = self.inside.send_to(&buffer[..len], client);
            }
        }
    }
}

/// Whether the kernel finds the same engine for the new address is its choice: where it does
/// not, the connection ends, and nobody waits for it in vain.
#[test]
fn a_peer_whose_address_changes_is_heard_or_falls_silent_and_its_neighbours_go_on() {
    let config = Config {
        retry_after: Duration::from_millis(10),
        give_up_after: 6,
        ..Config::shared_network()
    };
    let builder = || Endpoint::builder().config(config.clone()).path(loopback());
    let server = builder().threads(SHARDS).bind().unwrap();
    let Some(Peer::Socket(to)) = server.local() else { panic!("UDP has an address") };
    let nats: Vec<_> = (0..6).map(|_| AddressTranslator::new()).collect();
    thread::scope(|scope| {
        for nat in &nats {
            scope.spawn(move || nat.carry(to));
        }
        // However this ends, the threads do.
        let _over = EndOnDrop(&nats);
        run(async {
            let listener = server.listen(PORT).unwrap();
            let neighbour = builder().bind().unwrap();
            let steady = connections(&neighbour, &listener, Peer::Socket(to), 1).await.remove(0);
            let mut all = Vec::new();
            for nat in &nats {
                let client = builder().bind().unwrap();
                let address = Peer::Socket(nat.inside.local_addr().unwrap());
                let pair = connections(&client, &listener, address, 1).await.remove(0);
                all.push((client, pair));
            }
            for round in 0..2 {
                for (_, (here, there)) in &all {
                    let receiving = there.receive(Memory::zeroed(1_000)).start();
                    match within(here.send(noise(round, 1_000))).await {
                        Ok(sent) => {
                            assert_eq!(sent.len, 1_000);
                            assert!(*within(receiving).await.unwrap() == noise(round, 1_000));
                        }
                        Err(failed) => {
                            assert!(round > 0, "{failed}");
                            let is_silent = matches!(
                                *failed,
                                Error::Ended { why: Ended::Silent | Ended::ConnectionGone, .. }
                                    | Error::Closed { .. }
                            );
                            assert!(is_silent, "{failed}");
                        }
                    }
                }
                nats.iter().for_each(AddressTranslator::forget);
                let sending = steady.0.send(noise(9, 100_000)).start();
                let came = within(steady.1.receive(Memory::zeroed(100_000))).await.unwrap();
                assert!(*came == noise(9, 100_000));
                within(sending).await.unwrap();
            }
        });
    });
}

struct EndOnDrop<'a>(&'a [AddressTranslator]);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|nat| nat.is_over.store(true, Ordering::Relaxed));
    }
}
