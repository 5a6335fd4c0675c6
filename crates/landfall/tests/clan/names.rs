//! Names: one program over shared memory and over networks; found by links, by a list, by a
//! multicast group; forged announcements; rights.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clan_dsm::Error as EngineError;
use clan_dsm::discovery::{Announcement, MAX_DATAGRAM, Message};
use landfall::clan::layer::queue::{Config, Receiver, Sender};
use landfall::clan::layer::{publish, stream};
use landfall::clan::names::{Found as _, NameRequest as _, Names, Offer as _};
use landfall::clan::network::{
    Builder, Discovery, HostId, Identity, KnownPeers, NAME_PORT, Node, Peer, PeerIdentity,
    PortAddress, Reason,
};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{Error, Fabric};
use landfall_testkit::TemporaryFolder;

use super::{builder, channel_pair, linked, loopback, soon, udp_pair};

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A group for each test: they run at the same time.
fn group(port: u16) -> SocketAddr {
    SocketAddr::from(([239, 255, 76, 80], port))
}

fn at_group(port: u16) -> Discovery {
    Discovery::multicast().interface(LOOPBACK).group(group(port))
}

fn keyed(number: u16) -> (Builder, Identity) {
    let identity = Identity::generate().unwrap();
    let builder = builder(number).path(loopback()).encrypt_loopback();
    (builder.identity(identity.clone()).known_peers(KnownPeers::in_memory()), identity)
}

/// Words, bytes both ways and a publication between two nodes that know a name.
fn one_program<N: Names>(here: &N, there: &N) {
    let config = Config::new(8, 16);
    let offer = here.offer("one program").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let sender = Sender::open(here, config.singly()).unwrap();
            let mut sender = offer.accept(soon()).unwrap().join(sender).unwrap();
            sender.put(&7u64.to_le_bytes(), soon()).unwrap();
            let opening = stream::Stream::open(here, stream::Config::new(4096)).unwrap();
            let joined = offer.accept(soon()).unwrap().join_stream(opening).unwrap();
            let (mut reader, mut writer) = joined.into_split();
            let mut word = [0; 5];
            reader.read_exact(&mut word).unwrap();
            writer.write_all(&word).unwrap();
            writer.flush().unwrap();
            let config = publish::Config::new(64, 4);
            let mut publisher = publish::Publisher::open(here, config).unwrap();
            offer.accept(soon()).unwrap().subscribe(&mut publisher).unwrap();
            publisher.publish(b"to all").unwrap();
            // The other side has all of it before this side goes.
            offer.accept(soon()).unwrap().answer(b"bye").unwrap();
            drop(sender);
        });
        let found = there.find("one program", soon()).unwrap();
        let receiver = Receiver::open(there, config).unwrap();
        let mut receiver = found.join(receiver, soon()).unwrap();
        let mut word = [0; 8];
        receiver.get(&mut word, soon()).unwrap();
        assert_eq!(u64::from_le_bytes(word), 7);
        let opening = stream::Stream::open(there, stream::Config::new(4096)).unwrap();
        let joined = found.join_stream(opening, soon()).unwrap();
        let (mut reader, mut writer) = joined.into_split();
        writer.write_all(b"hello").unwrap();
        writer.flush().unwrap();
        let mut echo = [0; 5];
        reader.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, b"hello");
        let subscriber = publish::Subscriber::open(there, publish::Config::new(64, 4)).unwrap();
        let mut subscriber = found.join(subscriber, soon()).unwrap();
        assert_eq!(subscriber.next(soon()).unwrap().bytes, b"to all");
        assert_eq!(found.ask(b"", soon()).unwrap(), b"bye");
    });
}

#[test]
fn one_program_finds_names_between_processes_and_over_networks() {
    let folder = TemporaryFolder::new("names");
    let open = || SharedNode::open(SharedConfig::new(folder.path())).unwrap();
    one_program(&open(), &open());
    for (here, there) in [udp_pair(), channel_pair()] {
        one_program(&here, &there);
        // And the other way, over the same link.
        one_program(&there, &here);
    }
}

#[test]
fn a_name_is_asked_for_over_a_link_and_answered_or_refused() {
    let (here, there) = udp_pair();
    assert!(matches!(there.find("prices", Some(Instant::now())), Err(Error::TimedOut)));
    // Who waits for it finds it when it comes.
    let waiting = thread::spawn({
        let there = there.clone();
        move || there.find("prices", soon())
    });
    let offer = here.offer("prices").unwrap();
    assert!(matches!(here.offer("prices"), Err(Error::BadConfig(_))), "it is taken");
    for name in [String::new(), "x".repeat(65)] {
        let offered = here.offer(&name).map(drop);
        assert!(matches!(offered, Err(Error::BadConfig(_))), "{offered:?}");
    }
    let found = waiting.join().unwrap().unwrap();
    assert_eq!((found.host(), offer.name()), (here.host(), "prices"));

    let long = [7; 128];
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = offer.accept(soon()).unwrap();
            assert_eq!((request.host(), request.greeting()), (there.host(), &long[..]));
            request.answer(&long).unwrap();
            drop(offer.accept(soon()).unwrap());
            let too_long = offer.accept(soon()).unwrap().answer(&[0; 129]);
            assert!(matches!(too_long, Err(Error::TooLong { len: 129, most: 128 })));
        });
        assert_eq!(found.ask(&long, soon()).unwrap(), long);
        for _ in 0..2 {
            let refused = found.ask(b"", soon());
            assert!(matches!(refused, Err(Error::Refused(Reason::Refused))), "{refused:?}");
        }
    });
    assert!(matches!(found.ask(&[0; 129], soon()), Err(Error::TooLong { .. })));
    assert!(matches!(offer.accept(Some(Instant::now())), Err(Error::TimedOut)));

    // Who has asked when the offer ends is refused, and so is who comes later.
    thread::scope(|scope| {
        let asking = scope.spawn(|| found.ask(b"late", soon()));
        super::until(&here, || !offer.is_empty());
        drop(offer);
        assert!(matches!(asking.join().unwrap(), Err(Error::Refused(_))));
    });
    assert!(matches!(found.ask(b"later", soon()), Err(Error::Refused(_))));
    assert!(matches!(there.find("prices", Some(Instant::now())), Err(Error::TimedOut)));

    // The end of a node is the end of what it offers, and of what is searched there.
    let offer = here.offer("prices").unwrap();
    there.find("prices", soon()).unwrap();
    let searching = thread::spawn({
        let here = here.clone();
        move || here.find("others", soon()).map(drop)
    });
    thread::scope(|scope| {
        scope.spawn(|| here.wait_for(here.clone().close(), soon()).unwrap());
        let end = offer.accept(soon());
        assert!(matches!(end, Err(Error::NodeGone)), "{end:?}");
    });
    assert!(matches!(searching.join().unwrap(), Err(Error::NodeGone)));
}

#[test]
fn a_name_is_found_by_a_group_or_a_list() {
    // No address is known; who searches may be there before.
    let open = |number| builder(number).path(loopback()).discovery(at_group(8701)).open().unwrap();
    let (here, there) = (open(1), open(2));
    let waiting = thread::spawn({
        let there = there.clone();
        move || there.find("prices", soon()).unwrap()
    });
    let _offer = here.offer("prices").unwrap();
    assert_eq!(waiting.join().unwrap().host(), here.host());
    assert_eq!(open(3).find("prices", soon()).unwrap().host(), here.host());

    // One of the list need not be there yet.
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap();
    drop(probe);
    let list = Discovery::list().peer(SocketAddr::from((LOOPBACK, 9))).peer(address);
    let late = builder(4).path(loopback()).discovery(list).open().unwrap();
    let waiting = thread::spawn(move || late.find("late", soon()).map(|found| found.host()));
    thread::sleep(Duration::from_millis(300));
    let path = landfall::clan::network::Transport::udp(address);
    let node = builder(5).path(path).open().unwrap();
    let _offer = node.offer("late").unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), node.host());
}

/// Says the same to a group until it is done.
fn forger(to: u16, said: &Announcement, done: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let (bytes, done) = (said.encode(), Arc::clone(done));
    thread::spawn(move || {
        while !done.load(Ordering::SeqCst) {
            socket.send_to(&bytes, group(to)).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    })
}

/// Somebody announces the name in the name of another, and with a key of its own: who wants one
/// key finds who has it, and the forger is asked nothing.
#[test]
fn forged_announcements_are_refused_by_key() {
    const PORT: u16 = 8702;
    let (honest, identity) = keyed(1);
    let (false_one, its_own) = keyed(2);
    let (finder, _) = keyed(3);
    let honest = honest.discovery(at_group(PORT)).open().unwrap();
    // It offers the name as well, with its own key, and answers anyone who comes.
    let false_one = false_one.discovery(at_group(PORT)).open().unwrap();
    let its_offer = false_one.offer("prices").unwrap();
    let name = b"prices"[..].try_into().unwrap();
    let forged = Announcement {
        nonce: 0,
        name,
        host: honest.host(),
        fingerprint: Some(identity.fingerprint().0),
        peers: [false_one.local().unwrap()].into_iter().collect(),
    };
    let done = Arc::default();
    let forging = forger(PORT, &forged, &done);
    let finder = finder.discovery(at_group(PORT)).open().unwrap();

    let key = identity.fingerprint();
    let early =
        finder.find_with_key("prices", key, Some(Instant::now() + Duration::from_millis(700)));
    assert!(matches!(early, Err(Error::TimedOut)), "the forger has not that key: {early:?}");
    let offer = honest.offer("prices").unwrap();
    let found = finder.find_with_key("prices", key, soon()).unwrap();
    assert_eq!(found.host(), honest.host());
    let Some(PeerIdentity::PublicKey(proven)) = found.link().peer_identity() else { panic!() };
    assert_eq!(proven.fingerprint(), key);
    let waiting = thread::spawn(move || found.ask(b"secret", soon()));
    assert_eq!(offer.accept(soon()).unwrap().greeting(), b"secret");
    assert!(matches!(waiting.join().unwrap(), Err(Error::Refused(_))), "it was not answered");
    assert!(its_offer.try_accept().unwrap().is_none(), "the forger was asked nothing");

    // The other key leads to the other host.
    let found = finder.find_with_key("prices", its_own.fingerprint(), soon()).unwrap();
    assert_eq!(found.host(), false_one.host());
    done.store(true, Ordering::SeqCst);
    forging.join().unwrap();
}

/// Thousands of announcements that lead nowhere take a bounded number of links, and end when the
/// search does.
#[test]
fn announcements_that_lead_nowhere_are_bounded() {
    const PORT: u16 = 8703;
    let node = builder(1).path(loopback()).discovery(at_group(PORT)).open().unwrap();
    let finder = node.clone();
    let searching = thread::spawn(move || {
        finder.find("prices", Some(Instant::now() + Duration::from_millis(600))).map(drop)
    });
    let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let place = |port: u16| Peer::Socket(SocketAddr::from(([127, 9, 9, 9], port)));
    let mut most = 0;
    for port in 1..3000u16 {
        let said = Announcement {
            nonce: 0,
            name: b"prices"[..].try_into().unwrap(),
            host: HostId::new(9).unwrap(),
            fingerprint: None,
            peers: [place(port)].into_iter().collect(),
        };
        socket.send_to(&said.encode(), group(PORT)).unwrap();
        if port % 64 == 0 {
            most = most.max((1..port).filter(|at| node.link_with(place(*at)).is_some()).count());
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(matches!(searching.join().unwrap(), Err(Error::TimedOut)));
    assert!((1..=8).contains(&most), "{most} links at a time");
    assert!(!(1..3000).any(|port| node.link_with(place(port)).is_some()), "they end with it");
}

/// A query with a forged source makes nobody send more than was sent.
#[test]
fn a_node_answers_a_query_with_no_more_than_it_heard() {
    const PORT: u16 = 8704;
    let node = builder(1).path(loopback()).discovery(at_group(PORT)).open().unwrap();
    let _offer = node.offer("prices").unwrap();
    let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let query = |nonce, name: &[u8]| {
        clan_dsm::discovery::Query { nonce, name: name.try_into().unwrap() }.encode()
    };
    // Cut ones, other names and garbage have no answer; the last one has.
    socket.send_to(&query(1, b"prices")[..50], group(PORT)).unwrap();
    socket.send_to(&query(2, b"other"), group(PORT)).unwrap();
    socket.send_to(&[0xff; 1400], group(PORT)).unwrap();
    let whole = query(3, b"prices");
    socket.send_to(&whole, group(PORT)).unwrap();
    let mut bytes = [0; MAX_DATAGRAM + 1];
    let (len, _) = socket.recv_from(&mut bytes).unwrap();
    assert!(len <= whole.len());
    let Some(Message::Announcement(said)) = Message::decode(&bytes[..len]) else { panic!() };
    assert_eq!((said.nonce, said.host), (3, node.host()));
    assert_eq!(said.peers[..], [node.local().unwrap()]);
    // A name for some only is not told.
    let _secret = node.offer_to("secret", []).unwrap();
    socket.send_to(&query(4, b"secret"), group(PORT)).unwrap();
    socket.send_to(&query(5, b"prices"), group(PORT)).unwrap();
    let (len, _) = socket.recv_from(&mut bytes).unwrap();
    let Some(Message::Announcement(said)) = Message::decode(&bytes[..len]) else { panic!() };
    assert_eq!(said.nonce, 5);
}

#[test]
fn a_name_is_for_those_who_have_proven_a_key() {
    let [(owner, _), (friend, its_key), (stranger, _)] = [1, 2, 3].map(keyed);
    let [owner, friend, stranger] = [owner, friend, stranger].map(|node| node.open().unwrap());
    let (owner, friend) = linked((owner, friend), None);
    let (owner, stranger) = linked((owner, stranger), None);
    let offer = owner.offer_to("prices", [its_key.fingerprint()]).unwrap();
    let late = Some(Instant::now() + Duration::from_millis(200));
    assert!(matches!(stranger.find("prices", late), Err(Error::TimedOut)));
    let found = friend.find("prices", soon()).unwrap();
    let asking = thread::spawn(move || found.ask(b"", soon()));
    let request = offer.accept(soon()).unwrap();
    let Some(PeerIdentity::PublicKey(key)) = request.peer_identity() else { panic!() };
    assert_eq!((request.host(), key.fingerprint()), (friend.host(), its_key.fingerprint()));
    // So a cookie for it alone may be given.
    let (memory, _) = owner.expose(64, landfall::clan::Rights::Write).unwrap();
    let cookie = memory.cookie_for(landfall::clan::Rights::Write, request.host()).unwrap();
    request.answer(&cookie.to_bytes()).unwrap();
    let answer = asking.join().unwrap().unwrap();
    assert_eq!(answer, cookie.to_bytes());
}

/// A host that speaks to the port of names as it likes: it is refused, and the others are served.
#[test]
fn a_lawless_asker_spoils_its_own_question_only() {
    let (here, there) = channel_pair();
    let offer = here.offer("prices").unwrap();
    let to = PortAddress { host: here.host(), port: NAME_PORT };
    let mut kept = Vec::new();
    for nth in 0..200u8 {
        let endpoint = there.endpoint(None).unwrap();
        let mut body = [nth; 40];
        match nth % 4 {
            0 => {}
            // The bytes of the name never come.
            1 => body[..4].copy_from_slice(&[1, 1, 64, 128]),
            // No name, and a greeting that is too long.
            2 => body[..4].copy_from_slice(&[1, 1, 0, 0]),
            _ => body[..4].copy_from_slice(&[1, 1, 6, 129]),
        }
        endpoint.connect(to, body).unwrap();
        let notice = endpoint.wait_next(soon()).unwrap().unwrap();
        if nth % 4 == 1 && !notice.is_last() {
            kept.push(endpoint);
        }
    }
    assert!(kept.len() <= 64, "{} conversations of one host", kept.len());
    // Those that it keeps open are its own: when it lets go it may ask again.
    kept.clear();
    let found = there.find("prices", soon()).unwrap();
    let asking = thread::spawn(move || found.ask(b"me", soon()));
    offer.accept(soon()).unwrap().answer(b"you").unwrap();
    assert_eq!(asking.join().unwrap().unwrap(), b"you");
    let taken = here.endpoint(Some(NAME_PORT)).map(drop);
    assert!(matches!(taken, Err(Error::Engine(EngineError::Taken))), "{taken:?}");
    drop::<Node>(there);
}
