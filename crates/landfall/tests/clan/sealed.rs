//! Encryption: what is encrypted by default, who is believed, and that nothing is seen.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use landfall::clan::network::{
    Builder, ChannelConfig, Config, Ended, Faults, HandshakeError, Identity, KnownPeers,
    NativeConfig, Node, Notice, OpenError, PathId, Peer, PeerIdentity, Port, PortAddress, Reason,
    SecurityError, Transport, Window, WordFunction,
};
use landfall::clan::{Access, Cookie, Error, Fabric, Local, Remote, Rights, Stage, Tripwire};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::TemporaryFolder;
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Ring, RingConfig};

use super::{builder, host, linked, loopback, noise, soon, until};

/// No other text on the wire has it.
const TEXT: &[u8] = b"nobody on the way reads this text. ";

fn text(len: usize) -> Vec<u8> {
    TEXT.iter().copied().cycle().take(len).collect()
}

fn shows(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|part| part == what)
}

/// A node with an identity of its own, which remembers peers as long as it lives.
fn keyed(number: u16, path: Transport) -> Builder {
    let identity = Identity::generate().unwrap();
    builder(number).path(path).identity(identity).known_peers(KnownPeers::in_memory())
}

fn sealed(number: u16) -> Builder {
    keyed(number, loopback()).encrypt_loopback()
}

fn sealed_pair() -> (Node, Node) {
    linked((sealed(1).open().unwrap(), sealed(2).open().unwrap()), None)
}

/// Writes of all kinds, a tripwire, a read and a word, to the memory of `here`.
fn exchange(here: &Node, there: &Node) {
    let (memory, cookie) = here.expose(1 << 20, Rights::ReadWrite).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    for round in 1..=10 {
        let bytes = noise(round, 200_003);
        tripwire.arm();
        window.write(1001, &bytes).unwrap();
        window.write(300_001, &bytes[..100]).unwrap();
        window.store(0, round).unwrap();
        window.commit().unwrap();
        assert!(tripwire.wait(soon()).unwrap());
        until(here, || memory.load(0).unwrap() == round);
        let mut found = vec![0; bytes.len()];
        memory.copy_out(1001, &mut found).unwrap();
        assert!(found == bytes, "round {round}");
        assert_eq!(window.wait_change(8, WordFunction::Add(1), soon()).unwrap(), round - 1);
        let mut read = [0; 100];
        window.read(300_001, &mut read, soon()).unwrap();
        assert_eq!(read[..], bytes[..100]);
        window.wait_for(Stage::Delivered, soon()).unwrap();
    }
}

fn key_of(from: &Node, to: &Node) -> landfall::clan::network::Fingerprint {
    let link = from.link_to(to.host()).expect("it is up");
    assert!(link.is_encrypted());
    match link.peer_identity() {
        Some(PeerIdentity::PublicKey(key)) => key.fingerprint(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_ends_of_an_encrypted_link_know_each_other() {
    let (here, there) = sealed_pair();
    assert_eq!(Some(key_of(&here, &there)), there.fingerprint());
    assert_eq!(Some(key_of(&there, &here)), here.fingerprint());
    let link = here.link_to(there.host()).unwrap();
    assert_eq!(link.peer(), there.local());
    assert_eq!(there.link_to(here.host()).unwrap().peer(), here.local());
    assert!(here.link_with(there.local().unwrap()).is_some());
    let again = here.link(there.local().unwrap());
    assert!(matches!(again, Err(Error::Engine(_))), "there is a link already: {again:?}");
    exchange(&here, &there);
    exchange(&there, &here);
    for node in [&here, &there] {
        let stats = node.stats().seal;
        assert!(stats.opened > 100 && stats.forged == 0 && stats.plain == 0, "{stats:?}");
    }
    link.close();
    assert!(link.wait_down(soon()).unwrap().is_some());
    linked((here, there), None);
}

#[test]
fn memory_of_loopback_and_of_one_process_is_plain() {
    // One end leaves the host as well: all that it says to others is encrypted.
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let here = keyed(1, Transport::udp(any)).open().unwrap();
    let there = Node::open(host(2), loopback()).unwrap();
    assert!(here.fingerprint().is_some() && there.fingerprint().is_none());
    let Some(Peer::Socket(bound)) = here.local() else { panic!("no address") };
    let at = Peer::Socket(([127, 0, 0, 1], bound.port()).into());
    let (there, here) = linked((there, here), Some(at));
    assert!(!here.link_to(there.host()).unwrap().is_encrypted());
    exchange(&here, &there);
    exchange(&there, &here);
    let pinned = here.fingerprint().unwrap();
    let other = Node::open(host(3), loopback()).unwrap();
    let error = other.link_pinned(at, pinned).unwrap_err();
    assert!(matches!(error, Error::NotEncrypted { .. }), "{error}");
    assert!(error.to_string().contains("encrypt_loopback()"), "{error}");
    let (one, two) = builder(1).open_pair(builder(2), ChannelConfig::default()).unwrap();
    let (one, two) = linked((one, two), Some(Peer::Node(1)));
    assert!(!one.link_to(two.host()).unwrap().is_encrypted());
    assert_eq!(one.stats().seal.sealed + two.stats().seal.sealed, 0);
}

#[test]
fn a_link_to_another_key_than_the_pinned_one_says_what_to_do() {
    let (here, there) = (sealed(1).open().unwrap(), sealed(2).open().unwrap());
    let (to, right) = (there.local().unwrap(), there.fingerprint().unwrap());
    let wrong = Identity::generate().unwrap().fingerprint();
    let error = here.link_pinned(to, wrong).unwrap().wait_up(soon()).unwrap_err();
    let Error::NoKeys { why: HandshakeError::WrongPeer(shown), peer, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((shown, peer), (right, to));
    assert!(error.to_string().contains("link_pinned"), "{error}");
    let link = here.link_pinned(to, right).unwrap();
    assert_eq!(link.wait_up(soon()).unwrap(), there.host());
}

/// Opens a node at an address that another one has just left.
fn reopened(build: impl Fn() -> Builder) -> Node {
    let started = Instant::now();
    loop {
        match build().open() {
            Ok(node) => return node,
            Err(OpenError::Path { .. }) if started.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn close(node: Node) {
    let closing = node.clone().close();
    node.wait_for(closing, soon()).unwrap();
    drop(node);
}

fn socket_of(node: &Node) -> SocketAddr {
    match node.local() {
        Some(Peer::Socket(address)) => address,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_at_a_known_address_with_another_key_gets_no_link() {
    let (here, there) = sealed_pair();
    let address = socket_of(&there);
    close(there);
    let other = reopened(|| keyed(3, Transport::udp(address)).encrypt_loopback());
    let error = here.link(address).unwrap().wait_up(soon()).unwrap_err();
    assert!(matches!(error, Error::NoKeys { why: HandshakeError::WrongPeer(_), .. }), "{error}");
    assert_eq!(other.stats().links, 0);
}

#[test]
fn a_host_that_says_to_be_another_ones_is_refused() {
    let (here, there) = sealed_pair();
    close(there);
    // Anyone who calls, and anyone who is called.
    let other = sealed(2).open().unwrap();
    let refused = other.link(here.local().unwrap()).unwrap().wait_up(soon());
    assert!(matches!(refused, Err(Error::Refused(Reason::Refused))), "{refused:?}");
    let error = here.link(other.local().unwrap()).unwrap().wait_up(soon()).unwrap_err();
    let Error::NoKeys { why: HandshakeError::WrongPeer(shown), .. } = error else {
        panic!("{error}");
    };
    assert_eq!(Some(shown), other.fingerprint());
    assert!(error.to_string().contains("number of its host"), "{error}");
    assert_eq!((here.stats().links, other.stats().links), (0, 0));
    // Under a number of its own it may.
    linked((sealed(4).open().unwrap(), here), None);
}

#[test]
fn a_host_whose_key_is_named_is_nobody_elses() {
    let friend = Identity::generate().unwrap();
    let here = sealed(1).host_key(host(2), friend.fingerprint()).open().unwrap();
    let stranger = sealed(2).open().unwrap();
    let refused = stranger.link(here.local().unwrap()).unwrap().wait_up(soon());
    assert!(matches!(refused, Err(Error::Refused(Reason::Refused))), "{refused:?}");
    linked((sealed(2).identity(friend).open().unwrap(), here), None);
}

#[test]
fn only_those_link_that_may() {
    let friend = Identity::generate().unwrap();
    let here = sealed(1).only_peers([friend.fingerprint()]).open().unwrap();
    let at = here.local().unwrap();
    let stranger = sealed(3).open().unwrap();
    let soon_over = Some(Instant::now() + Duration::from_millis(300));
    assert!(stranger.link(at).unwrap().wait_up(soon_over).is_err());
    let friend = sealed(2).identity(friend).open().unwrap();
    friend.link(at).unwrap().wait_up(soon()).unwrap();
    let stats = here.stats();
    assert!(stats.links == 1 && stats.seal.failed > 0, "{stats:?}");
}

#[test]
fn a_preshared_key_links_those_who_have_it() {
    let with = |number, key| {
        builder(number).path(loopback()).preshared_key([key; 32]).encrypt_loopback().open().unwrap()
    };
    let (here, there) = linked((with(1, 1), with(2, 1)), None);
    let link = here.link_to(there.host()).unwrap();
    assert_eq!(link.peer_identity(), Some(PeerIdentity::PresharedKey));
    assert_eq!(here.fingerprint(), None);
    exchange(&here, &there);
    let stranger = with(3, 2);
    let soon_over = Some(Instant::now() + Duration::from_millis(300));
    assert!(stranger.link(here.local().unwrap()).unwrap().wait_up(soon_over).is_err());
    let stats = here.stats();
    assert!(stats.links == 1 && stats.seal.failed > 0, "it tried, and failed: {stats:?}");
}

#[test]
fn an_end_that_encrypts_nothing_gets_no_link() {
    let here = sealed(1).open().unwrap();
    let plain = builder(2).path(loopback()).config(Config::default()).open().unwrap();
    let link = plain.link(here.local().unwrap()).unwrap();
    assert!(link.wait_up(Some(Instant::now() + Duration::from_millis(300))).is_err());
    let stats = here.stats();
    assert!(stats.seal.plain > 0 && stats.links == 0, "{stats:?}");
}

#[test]
fn encrypted_links_survive_faults() {
    let faults = Faults {
        loss: 20_000,
        duplication: 20_000,
        reordering: 20_000,
        corruption: 10_000,
        ..Faults::default()
    };
    // No checksum: what was damaged is not genuine.
    let open = |number: u16| {
        let path = loopback().with_faults(faults, [number as u8; 32]);
        keyed(number, path).encrypt_loopback().open().unwrap()
    };
    let (here, there) = linked((open(1), open(2)), None);
    exchange(&here, &there);
    exchange(&there, &here);
    let stats = [here.stats().seal, there.stats().seal];
    assert!(stats.iter().all(|stats| stats.forged > 0), "{stats:?}");
}

#[test]
fn ends_that_call_each_other_at_the_same_time_get_through() {
    for _ in 0..10 {
        let (here, there) = (sealed(1).open().unwrap(), sealed(2).open().unwrap());
        let links = [here.link(there.local().unwrap()), there.link(here.local().unwrap())];
        for link in links {
            // One may have come from the other side already.
            match link {
                Ok(link) => drop(link.wait_up(soon()).unwrap()),
                Err(error) => assert!(matches!(error, Error::Engine(_)), "{error}"),
            }
        }
        exchange(&here, &there);
        exchange(&there, &here);
    }
}

/// What the killed process does: it has a link, and lives on.
///
/// Without the variables that the test below gives to its process it does nothing.
#[test]
fn sealed_node_that_will_be_killed() {
    let Ok(address) = std::env::var("CLAN_SEALED_PEER") else { return };
    let file = std::env::var("CLAN_SEALED_IDENTITY").unwrap();
    let identity = Identity::load_or_create(file.as_ref()).unwrap();
    let node = sealed(2).identity(identity).open().unwrap();
    let to: SocketAddr = address.parse().unwrap();
    node.link(to).unwrap().wait_up(soon()).unwrap();
    loop {
        std::thread::park();
    }
}

/// A process that is killed says no goodbye, and its next life has no keys of the one before.
#[test]
fn a_node_started_anew_takes_the_place_of_its_old_life() {
    let folder = TemporaryFolder::new("clan-identity");
    let file = folder.join("identity");
    let here = sealed(1).config(Config::default()).open().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clan::sealed::sealed_node_that_will_be_killed"])
        .env("CLAN_SEALED_PEER", socket_of(&here).to_string())
        .env("CLAN_SEALED_IDENTITY", &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let old = here.wait_reached(host(2), soon());
    // Whatever became of it: nothing of it runs on.
    child.kill().unwrap();
    child.wait().unwrap();
    let old = old.unwrap();
    let Some(Peer::Socket(address)) = old.peer() else { panic!("no address") };
    let second = reopened(|| {
        let identity = Identity::load_or_create(&file).unwrap();
        keyed(2, Transport::udp(address)).identity(identity).encrypt_loopback()
    });
    let (second, here) = linked((second, here), None);
    assert_eq!(old.wait_down(soon()).unwrap(), Some(Ended::Restarted));
    exchange(&here, &second);
    exchange(&second, &here);
}

#[test]
fn a_native_link_that_leaves_the_host_is_not_opened_in_clear() {
    let config = || {
        let native = NativeConfig { path: PathId(0), ..NativeConfig::default() };
        Config { native: Some(native), ..Config::default() }
    };
    let open = |builder: Builder| builder.config(config()).encrypt_loopback().open();
    let error = open(keyed(1, loopback())).unwrap_err();
    assert!(matches!(error, OpenError::NativeInClear { path: 0 }), "{error}");
    assert!(error.to_string().contains("plaintext()"), "{error}");
    open(keyed(1, loopback()).plaintext()).unwrap();
}

#[test]
fn keys_of_links_are_written_down_where_it_is_said() {
    let folder = TemporaryFolder::new("clan-key-log");
    let file = folder.join("keys");
    let open = |number| {
        let builder = builder(number).path(loopback()).preshared_key([1; 32]);
        builder.encrypt_loopback().key_log(&file).open().unwrap()
    };
    linked((open(1), open(2)), None);
    // Each end writes both directions.
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 4, "{lines}");
    let nowhere = builder(3).path(loopback()).preshared_key([1; 32]).encrypt_loopback();
    let error = nowhere.key_log(folder.join("nowhere/keys")).open().unwrap_err();
    assert!(matches!(error, OpenError::Security(SecurityError::KeyLog { .. })), "{error}");
}

#[test]
fn a_group_is_written_over_encrypted_links() {
    let writer = sealed(1).open().unwrap();
    let members = [2, 3].map(|number| sealed(number).open().unwrap());
    let mut group = writer.found_group(100_000).unwrap();
    let memories = members.each_ref().map(|member| {
        let link = writer.link(member.local().unwrap()).unwrap();
        link.wait_up(soon()).unwrap();
        assert!(link.is_encrypted());
        let (memory, _) = member.expose(100_000, Rights::Write).unwrap();
        member.join_group(&group.cookie(), &memory).unwrap();
        group.add(member.host()).unwrap();
        memory
    });
    let bytes = text(90_000);
    let told = group.publish(&[(64, &bytes), (0, &1u64.to_le_bytes())]).unwrap();
    assert!(told.iter().all(|told| told.result.is_ok()));
    group.wait_delivered(soon()).unwrap();
    for memory in &memories {
        let mut found = vec![0; bytes.len()];
        memory.copy_out(64, &mut found).unwrap();
        assert!(found == bytes && memory.load(0).unwrap() == 1);
    }
    // A member knows the cookie, and is not the founder: it writes nobody's memory.
    let [one, two] = &members;
    one.link(two.local().unwrap()).unwrap().wait_up(soon()).unwrap();
    let forged = one.map(&group.cookie());
    if let Ok(mut window) = forged {
        let _ = window.store(0, 9);
        let _ = window.commit();
        until(one, || window.check().is_err());
    }
    assert_eq!(memories[1].load(0).unwrap(), 1);
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

/// A cookie crosses by a message, a text by a long write and by short ones; both are given back.
fn talk((here, there): (Node, Node)) -> Cookie {
    let (memory, cookie) = there.expose(1 << 17, Rights::ReadWrite).unwrap();
    let listener = there.endpoint(Some(Port(7))).unwrap();
    listener.listen().unwrap();
    let caller = here.endpoint(None).unwrap();
    let to = PortAddress { host: there.host(), port: Port(7) };
    caller.connect(to, [0; 40]).unwrap();
    let Some(Notice::Request(request)) = listener.wait_next(soon()).unwrap() else { panic!() };
    let mut body = [0; 40];
    body[..Cookie::LEN].copy_from_slice(&cookie.to_bytes());
    let accepting = there.endpoint(None).unwrap();
    accepting.accept(&request, body).unwrap();
    let notice = caller.wait_next(soon()).unwrap();
    let Some(Notice::Accepted { body, .. }) = notice else { panic!("{notice:?}") };
    let told = Cookie::from_bytes(body.first_chunk().unwrap()).unwrap();
    let mut window: Window = here.map(&told).unwrap();
    window.write(0, &text(60_000)).unwrap();
    window.write(70_001, &text(100)).unwrap();
    window.commit().unwrap();
    window.wait_for(Stage::Delivered, soon()).unwrap();
    let mut read = vec![0; 60_000];
    window.read(0, &mut read, soon()).unwrap();
    assert!(read == text(60_000));
    let mut found = vec![0; 100];
    memory.copy_out(70_001, &mut found).unwrap();
    assert!(found == text(100));
    told
}

/// What two ends of a cable say to each other meanwhile, as somebody hears it, and the cookie.
fn overhear(
    cable: &VethPair,
    ethertypes: [u16; 2],
    build: impl Fn(u16, &VethEnd) -> Builder + Sync,
    peer: impl Fn(&VethEnd) -> Peer,
) -> (Vec<Vec<u8>>, Cookie) {
    let regions = Regions::new(8);
    let config = |end: &VethEnd| RingConfig::new(&*end.name, Filter::ethertypes(ethertypes));
    let ring = |end: &VethEnd| {
        end.namespace.enter(|| Ring::open(&config(end), &regions)).unwrap().unwrap()
    };
    let mut rings = [ring(&cable.a), ring(&cable.b)];
    let open = |number, end: &VethEnd| {
        let builder = || build(number, end).config(Config::default());
        end.namespace.enter(|| builder().open()).unwrap().unwrap()
    };
    let pair = (open(1, &cable.a), open(2, &cable.b));
    let cookie = talk(linked(pair, Some(peer(&cable.b))));
    let mut frames = Vec::new();
    // Blocks that are not full are handed over after a while.
    for _ in 0..20 {
        frames.extend(heard(&mut rings));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(frames.len() > 10, "{}", frames.len());
    (frames, cookie)
}

/// The default, over each kind of path: nobody on the way reads memory, or a cookie. And with
/// `plaintext()`, so that the listener is known to hear.
#[test]
fn who_listens_to_a_network_sees_neither_memory_nor_cookies() {
    require_namespaces!();
    const UDP_PORT: u16 = 8182;
    type Path = (&'static str, fn(&VethEnd) -> Transport, fn(&VethEnd) -> Peer);
    let paths: [Path; 2] = [
        (
            "UDP",
            |end| Transport::udp(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
        ),
        ("Ethernet", |end| Transport::ethernet(&*end.name), |end| Peer::Ethernet(end.mac.0)),
    ];
    for (name, transport, peer) in paths {
        let config = || VethConfig { mtu: 1500, ..VethConfig::default() };
        let [cable, other] = [config(), config()].map(|config| VethPair::new(config).unwrap());
        let ethertypes = [0x0800, landfall::clan::network::ETHERTYPE];
        let build = |number, end: &VethEnd| keyed(number, transport(end));
        let (frames, cookie) = overhear(&cable, ethertypes, build, peer);
        // The key of a cookie is its bytes 16 to 23.
        let key = &cookie.to_bytes()[17..24];
        let shown = |frames: &[Vec<u8>], what: &[u8]| frames.iter().any(|frame| shows(frame, what));
        assert!(!shown(&frames, &TEXT[..16]), "{name} shows what it carries");
        assert!(!shown(&frames, key), "{name} shows a cookie");
        let build = |number, end: &VethEnd| keyed(number, transport(end)).plaintext();
        let (frames, cookie) = overhear(&other, ethertypes, build, peer);
        assert!(shown(&frames, &TEXT[..16]), "{name}: nothing was heard");
        assert!(shown(&frames, &cookie.to_bytes()[17..24]), "{name}: no cookie was heard");
    }
}
