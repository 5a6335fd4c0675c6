//! Encryption: what is encrypted by default, who is believed, and that nothing is seen.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use landfall::stp::{
    BindError, Builder, ChannelConfig, Config, Connection, Endpoint, Error, Faults, HandshakeError,
    Identity, KnownPeers, Memory, Peer, PeerIdentity, SecurityError, Transport, UDP_PORT,
};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::TemporaryFolder;
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Ring, RingConfig};

use super::{PORT, joined, loopback, noise, run, within};

/// No other text on the wire has it.
const TEXT: &[u8] = b"nobody on the way reads this text. ";

fn text(len: usize) -> Vec<u8> {
    TEXT.iter().copied().cycle().take(len).collect()
}

fn shows_text(bytes: &[u8]) -> bool {
    bytes.windows(16).any(|part| part == &TEXT[..16])
}

/// An endpoint with an identity of its own, which remembers peers as long as it lives.
fn builder(transport: Transport) -> Builder {
    let identity = Identity::generate().unwrap();
    Endpoint::builder().path(transport).identity(identity).known_peers(KnownPeers::in_memory())
}

fn pair_of(builders: [Builder; 2]) -> (Endpoint, Endpoint, Peer) {
    let [a, b] = builders.map(|builder| builder.bind().unwrap());
    let to_b = b.local().unwrap();
    (a, b, to_b)
}

async fn transfer(from: &Connection, to: &Connection, bytes: Vec<u8>) {
    let sending = from.send(bytes.clone()).start();
    let message = within(to.receive(Memory::zeroed(bytes.len()))).await.unwrap();
    assert!(*message == bytes);
    within(sending).await.unwrap();
}

#[test]
fn both_ends_of_an_encrypted_connection_know_each_other() {
    let pair = pair_of([(); 2].map(|()| builder(loopback()).encrypt_loopback()));
    run(async {
        let (here, there) = joined(&pair).await;
        let key_of = |connection: &Connection| match connection.peer_identity() {
            Some(PeerIdentity::PublicKey(key)) => Some(key.fingerprint()),
            other => panic!("{other:?}"),
        };
        assert_eq!(key_of(&here), pair.1.fingerprint());
        assert_eq!(key_of(&there), pair.0.fingerprint());
        assert!(here.is_encrypted() && there.is_encrypted());
        assert_eq!((here.peer(), here.links()[0].peer), (pair.2, pair.2));
        assert_eq!(Some(there.peer()), pair.0.local());
        for len in [1, 1_000, 3_000_000] {
            transfer(&here, &there, noise(len as u64, len)).await;
            transfer(&there, &here, noise(len as u64, len)).await;
        }
        let stats = pair.1.stats().seal;
        assert!(stats.opened > 40 && stats.forged == 0 && stats.plain == 0, "{stats:?}");
        within(here.close()).await.unwrap();
        within(there.closed()).await.unwrap();
    });
}

#[test]
fn loopback_and_what_stays_in_the_process_is_plain() {
    // One end leaves the host as well: all that it says to others is encrypted.
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let server = builder(Transport::udp(any)).bind().unwrap();
    let Some(Peer::Socket(bound)) = server.local() else { panic!("no address") };
    let to = Peer::Socket(SocketAddr::new("127.0.0.1".parse().unwrap(), bound.port()));
    let client = Endpoint::bind(loopback()).unwrap();
    assert!(server.fingerprint().is_some() && client.fingerprint().is_none());
    let pair = (client, server, to);
    run(async {
        let (here, there) = joined(&pair).await;
        assert!(!here.is_encrypted() && !there.is_encrypted());
        transfer(&here, &there, noise(1, 1_000_000)).await;
        let pinned = pair.1.fingerprint().unwrap();
        let error = pair.0.connect_pinned(to, PORT, pinned).await.unwrap_err();
        assert!(matches!(error, Error::NotEncrypted { .. }), "{error}");
        assert!(error.to_string().contains("encrypt_loopback()"), "{error}");
    });
    let ends = Endpoint::builder().bind_pair(Endpoint::builder(), ChannelConfig::default());
    let (a, b) = ends.unwrap();
    let pair = (a, b, Peer::Node(1));
    run(async {
        let (here, there) = joined(&pair).await;
        assert!(!here.is_encrypted() && !there.is_encrypted());
    });
}

#[test]
fn a_key_that_is_not_the_pinned_one_is_an_error_that_says_what_to_do() {
    let pair = pair_of([(); 2].map(|()| builder(loopback()).encrypt_loopback()));
    run(async {
        let listener = pair.1.listen(PORT).unwrap();
        let right = pair.1.fingerprint().unwrap();
        let both =
            async { tokio::join!(pair.0.connect_pinned(pair.2, PORT, right), listener.accept()) };
        let (here, there) = within(both).await;
        let (here, there) = (here.unwrap(), there.unwrap());
        transfer(&here, &there, text(100)).await;
        let wrong = Identity::generate().unwrap().fingerprint();
        let error = within(pair.0.connect_pinned(pair.2, PORT, wrong)).await.unwrap_err();
        let Error::NoKeys { why: HandshakeError::WrongPeer(shown), .. } = error else {
            panic!("{error}");
        };
        assert_eq!(shown, right);
        assert!(error.to_string().contains("connect_pinned"), "{error}");
    });
}

#[test]
fn a_peer_that_shows_another_key_than_before_is_refused() {
    let known = KnownPeers::in_memory();
    let client = builder(loopback()).known_peers(known).encrypt_loopback().bind().unwrap();
    let first = builder(loopback()).encrypt_loopback().bind().unwrap();
    let Some(Peer::Socket(address)) = first.local() else { panic!("no address") };
    run(async {
        let pair = (client, first, Peer::Socket(address));
        drop(joined(&pair).await);
        let (client, first, to) = pair;
        within(first.close()).await;
        // The port is free when the last of the endpoint is gone.
        let again = || builder(Transport::udp(address)).encrypt_loopback().bind();
        let other = (0..100).find_map(|_| {
            again().ok().or_else(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                None
            })
        });
        let other = other.expect("the port comes free");
        let _listener = other.listen(PORT).unwrap();
        let error = within(client.connect(to, PORT)).await.unwrap_err();
        assert!(matches!(error, Error::NoKeys { why: HandshakeError::WrongPeer(_), .. }));
        assert_eq!(other.stats().connections, 0);
    });
}

#[test]
fn only_those_that_may_connect_do() {
    let friend = Identity::generate().unwrap();
    let only = [friend.fingerprint()];
    let server = builder(loopback()).only_peers(only).encrypt_loopback().bind().unwrap();
    let to = server.local().unwrap();
    let friend = builder(loopback()).identity(friend).encrypt_loopback().bind().unwrap();
    let stranger = builder(loopback()).encrypt_loopback().bind().unwrap();
    run(async {
        let pair = (friend, server, to);
        let _connections = joined(&pair).await;
        let connecting = stranger.connect(to, PORT);
        let tried = tokio::time::timeout(std::time::Duration::from_millis(300), connecting).await;
        assert!(!matches!(tried, Ok(Ok(_))));
        assert_eq!(pair.1.stats().connections, 1);
        assert!(pair.1.stats().seal.failed > 0);
    });
}

#[test]
fn a_preshared_key_joins_those_who_have_it() {
    let with = |key| {
        let builder = Endpoint::builder().path(loopback());
        builder.preshared_key([key; 32]).encrypt_loopback()
    };
    let pair = pair_of([with(1), with(1)]);
    let stranger = with(2).bind().unwrap();
    run(async {
        let (here, there) = joined(&pair).await;
        assert_eq!(here.peer_identity(), Some(PeerIdentity::PresharedKey));
        transfer(&here, &there, text(100_000)).await;
        let connecting = stranger.connect(pair.2, PORT);
        let tried = tokio::time::timeout(std::time::Duration::from_millis(300), connecting).await;
        assert!(!matches!(tried, Ok(Ok(_))));
    });
}

/// As a carrier does for programs of its own host. At an address of its own, and at each one.
#[test]
fn an_endpoint_calls_itself() {
    let keyed = || Endpoint::builder().preshared_key([1; 32]);
    let everywhere = |keyed: Builder| keyed.path(Transport::udp("0.0.0.0:0".parse().unwrap()));
    let itself = |endpoint: &Endpoint| match endpoint.local() {
        Some(Peer::Socket(at)) => Peer::Socket((Ipv4Addr::LOCALHOST, at.port()).into()),
        other => panic!("{other:?}"),
    };
    let builders = [keyed().path(loopback()), everywhere(keyed()), builder(loopback())];
    for builder in builders {
        let endpoint = builder.encrypt_loopback().bind().unwrap();
        let to = itself(&endpoint);
        run(async {
            let listener = endpoint.listen(PORT).unwrap();
            let both = async { tokio::join!(endpoint.connect(to, PORT), listener.accept()) };
            let (here, there) = within(both).await;
            let (here, there) = (here.unwrap(), there.unwrap());
            assert!(here.peer_identity().is_some());
            transfer(&here, &there, text(100_000)).await;
            transfer(&there, &here, text(100_000)).await;
        });
    }
}

#[test]
fn an_encrypted_connection_survives_faults() {
    let faults = Faults {
        loss: 10_000,
        duplication: 10_000,
        reordering: 20_000,
        corruption: 10_000,
        ..Faults::default()
    };
    let with = |seed| {
        let transport = loopback().with_faults(faults, [seed; 32]);
        let builder = Endpoint::builder().path(transport);
        builder.preshared_key([1; 32]).encrypt_loopback()
    };
    let pair = pair_of([with(1), with(2)]);
    run(async {
        let (here, there) = joined(&pair).await;
        transfer(&here, &there, noise(1, 2_000_000)).await;
        transfer(&there, &here, noise(2, 2_000_000)).await;
        let stats = [pair.0.stats().seal, pair.1.stats().seal];
        assert!(stats.iter().all(|stats| stats.forged > 0), "{stats:?}");
    });
}

#[test]
fn several_threads_share_an_identity() {
    let server = builder(loopback()).threads(2).encrypt_loopback().bind().unwrap();
    let to = server.local().unwrap();
    let clients: Vec<_> =
        (0..4).map(|_| builder(loopback()).encrypt_loopback().bind().unwrap()).collect();
    run(async {
        let listener = server.listen(PORT).unwrap();
        for client in &clients {
            let pinned = server.fingerprint().unwrap();
            let both =
                async { tokio::join!(client.connect_pinned(to, PORT, pinned), listener.accept()) };
            let (here, there) = within(both).await;
            let (here, there) = (here.unwrap(), there.unwrap());
            transfer(&here, &there, noise(1, 100_000)).await;
        }
    });
}

#[test]
fn a_key_log_that_cannot_be_kept_is_an_error_that_says_what_to_do() {
    let folder = TemporaryFolder::new("key-log");
    let bind = |file: &Path| {
        let builder = Endpoint::builder().path(loopback()).preshared_key([1; 32]);
        builder.encrypt_loopback().key_log(file).bind()
    };
    let lines = || std::fs::read_to_string(folder.join("keys")).unwrap();
    let pair = [bind(&folder.join("keys")), bind(&folder.join("keys"))].map(Result::unwrap);
    assert!(lines().is_empty(), "nothing is written before there is a connection");
    let to = pair[1].local().unwrap();
    let [here, there] = pair;
    run(async { drop(joined(&(here, there, to)).await) });
    let lines = lines();
    // Each end writes both directions.
    assert_eq!(
        lines.lines().filter(|line| line.starts_with("LANDFALL_TO_RESPONDER_0 01")).count(),
        2
    );
    assert_eq!(lines.lines().count(), 4);
    let open = folder.write("open", b"");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = bind(&open).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
    let error = bind(&folder.join("nowhere/keys")).unwrap_err();
    assert!(matches!(error, BindError::Security(SecurityError::KeyLog { .. })), "{error}");
}

/// A process of its own, for all of a process have one environment.
#[test]
fn the_environment_names_a_key_log() {
    let folder = TemporaryFolder::new("key-log-of-environment");
    let keys = folder.join("keys");
    let test = "stp::sealed::a_preshared_key_joins_those_who_have_it";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test]).env("LANDFALL_KEYLOG", &keys).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let lines = std::fs::read_to_string(&keys).unwrap();
    assert!(lines.lines().count() >= 4 && lines.starts_with("LANDFALL_TO_"), "{lines}");
    assert_eq!(std::fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
}

/// All frames that came to either end so far.
fn heard(rings: &mut [Ring; 2]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for ring in rings {
        while let Some(block) = ring.next_block() {
            all.extend(block.frames().map(|frame| frame.bytes.to_vec()));
        }
    }
    all
}

/// What two ends of a cable say to each other while a text crosses, as somebody hears it.
fn overhear(
    cable: &VethPair,
    ethertypes: [u16; 2],
    build: impl Fn(&VethEnd) -> Builder + Sync,
    peer: impl Fn(&VethEnd) -> Peer,
) -> Vec<Vec<u8>> {
    let regions = Regions::new(8);
    let config = |end: &VethEnd| RingConfig::new(&*end.name, Filter::ethertypes(ethertypes));
    let ring = |end: &VethEnd| {
        end.namespace.enter(|| Ring::open(&config(end), &regions)).unwrap().unwrap()
    };
    let mut rings = [ring(&cable.a), ring(&cable.b)];
    let bind = |end: &VethEnd| {
        let builder = || build(end).config(Config::default());
        end.namespace.enter(|| builder().bind()).unwrap().unwrap()
    };
    let pair = (bind(&cable.a), bind(&cable.b), peer(&cable.b));
    let mut frames = Vec::new();
    run(async {
        let (here, there) = joined(&pair).await;
        transfer(&here, &there, text(60_000)).await;
        transfer(&there, &here, text(60_000)).await;
        within(here.close()).await.unwrap();
        within(there.closed()).await.unwrap();
        // Blocks that are not full are handed over after a while.
        for _ in 0..20 {
            frames.extend(heard(&mut rings));
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    assert!(frames.len() > 10, "{}", frames.len());
    frames
}

/// The default, over each kind of path: nobody on the way reads anything. And with
/// `plaintext()`, so that the listener is known to hear.
#[test]
fn who_listens_on_a_network_reads_nothing() {
    require_namespaces!();
    type Path = (&'static str, fn(&VethEnd) -> Transport, fn(&VethEnd) -> Peer);
    let paths: [Path; 4] = [
        (
            "UDP",
            |end| Transport::udp(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
        ),
        (
            "UDP by packets",
            |end| Transport::udp_packet(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
        ),
        ("IP", |end| Transport::ip(end.ipv4.into()), |end| Peer::Ip(end.ipv4.into())),
        ("Ethernet", |end| Transport::ethernet(&*end.name), |end| Peer::Ethernet(end.mac.0)),
    ];
    for (name, transport, peer) in paths {
        // One for each: an endpoint that was dropped holds its address until it has closed.
        let config = || VethConfig { mtu: 1500, ..VethConfig::default() };
        let [cable, other] = [config(), config()].map(|config| VethPair::new(config).unwrap());
        let ethertypes = [0x0800, 0x8181];
        let frames = overhear(&cable, ethertypes, |end| builder(transport(end)), peer);
        assert!(!frames.iter().any(|frame| shows_text(frame)), "{name} shows what it carries");
        let plain = |end: &VethEnd| builder(transport(end)).plaintext();
        let frames = overhear(&other, ethertypes, plain, peer);
        assert!(frames.iter().any(|frame| shows_text(frame)), "{name}: nothing was heard");
    }
}
