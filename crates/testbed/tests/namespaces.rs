//! Real namespaces and veth pairs. As an ordinary user each test skips with
//! one line.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use landfall_testbed::{Error, Namespace, Offload, VethConfig, VethPair, require_namespaces};

const LIMIT: Duration = Duration::from_secs(20);

fn interfaces(namespace: &Namespace) -> Vec<String> {
    let text = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
    let text = text.unwrap();
    let names = text.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Sends a few bytes from `a` to `b` by TCP and back.
fn ping(pair: &VethPair, to: IpAddr) {
    let listener = pair.b.namespace.enter(|| TcpListener::bind((to, 0))).unwrap().unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let client = pair.a.namespace.enter(|| TcpStream::connect_timeout(&address, LIMIT));
    let mut client = client.unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
    }
    client.write_all(b"out").unwrap();
    let mut bytes = [0; 3];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"out");
    server.write_all(b"and").unwrap();
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"and");
}

#[test]
fn tcp_crosses_the_pair_over_both_families_at_once() {
    require_namespaces!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    ping(&pair, pair.b.ipv4.into());
    ping(&pair, pair.b.ipv6.into());
    assert!(pair.b.counters().unwrap().received_packets > 0);
}

#[test]
fn a_dropped_pair_leaves_nothing() {
    require_namespaces!();
    let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let pair = VethPair::between(&a, &b, VethConfig::default()).unwrap();
    assert_eq!(interfaces(&a), ["lo", "veth0a"]);
    assert_eq!(interfaces(&b), ["lo", "veth0b"]);
    drop(pair);
    assert_eq!(interfaces(&a), ["lo"]);
    assert_eq!(interfaces(&b), ["lo"]);
}

#[test]
fn a_panic_leaves_nothing_either() {
    require_namespaces!();
    let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let (a2, b2) = (a.clone(), b.clone());
    let outcome = thread::spawn(move || {
        let _pair = VethPair::between(&a2, &b2, VethConfig::default()).unwrap();
        panic!("on purpose");
    })
    .join();
    assert!(outcome.is_err());
    assert_eq!(interfaces(&a), ["lo"]);
    assert_eq!(interfaces(&b), ["lo"]);
}

#[test]
fn namespaces_have_no_names_and_are_apart() {
    require_namespaces!();
    let named = || fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let before = named();
    let ours = Namespace::of_this_thread().unwrap();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    assert_eq!(named(), before);
    assert_ne!(pair.a.namespace, pair.b.namespace);
    assert_ne!(pair.a.namespace, ours);
    assert_eq!(pair.a.namespace, pair.a.namespace.clone());
    // Entering one from a thread leaves the caller where it is.
    let inside = pair.a.namespace.enter(|| Namespace::of_this_thread().unwrap()).unwrap();
    assert_eq!(inside, pair.a.namespace);
    assert_eq!(Namespace::of_this_thread().unwrap(), ours);
}

#[test]
fn several_cables_join_the_same_namespaces() {
    require_namespaces!();
    let first = VethPair::new(VethConfig::default()).unwrap();
    let (a, b) = (&first.a.namespace, &first.b.namespace);
    let config = VethConfig { cable: 1, mtu: 9000, ..VethConfig::default() };
    let second = VethPair::between(a, b, config).unwrap();
    ping(&first, first.b.ipv4.into());
    ping(&second, second.b.ipv6.into());
    // The same cable twice is refused, and the refusal removes nothing.
    assert!(matches!(VethPair::between(a, b, config), Err(Error::System { .. })));
    ping(&second, second.b.ipv4.into());
    assert!(matches!(VethPair::between(a, a, config), Err(Error::BadRequest(_))));
}

fn forbid_fragments(socket: &UdpSocket) {
    let on = libc::IP_PMTUDISC_DO;
    // SAFETY: the option's value is an `int` that lives across the call, and
    // its length is given; the descriptor is open.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(outcome, 0);
}

#[test]
fn the_mtu_is_the_one_asked_for() {
    require_namespaces!();
    let config = VethConfig { mtu: 9000, ..VethConfig::default() };
    let pair = VethPair::new(config).unwrap();
    // A datagram of the MTU with the fragmenting bit forbidden leaves; one
    // more byte does not.
    let fits = |len: usize| {
        let socket = pair.a.namespace.enter(|| UdpSocket::bind((pair.a.ipv4, 0))).unwrap();
        let socket = socket.unwrap();
        forbid_fragments(&socket);
        socket.send_to(&vec![0; len - 28], (pair.b.ipv4, 9)).is_ok()
    };
    assert!(fits(9000) && !fits(9001));
    pair.set_mtu(1500).unwrap();
    assert!(fits(1500) && !fits(1501));
    assert!(matches!(pair.set_mtu(100), Err(Error::BadRequest(_))));
}

#[test]
fn a_spawned_thread_works_inside_and_a_panic_inside_reaches_the_caller() {
    require_namespaces!();
    let namespace = Namespace::new().unwrap();
    let thread = namespace.spawn("inside", || {
        (thread::current().name().map(str::to_owned), Namespace::of_this_thread().unwrap())
    });
    let (name, inside) = thread.unwrap().join().unwrap().unwrap();
    assert_eq!(name.as_deref(), Some("inside"));
    assert_eq!(inside, namespace);
    let outcome = std::panic::catch_unwind(|| namespace.enter(|| panic!("on purpose")));
    assert!(outcome.is_err());
}

#[test]
fn offloads_change_and_read_back() {
    require_namespaces!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let groups = [
        Offload::TcpSegmentation,
        Offload::UdpSegmentation,
        Offload::GenericSegmentation,
        Offload::GenericReceive,
        Offload::TransmitChecksum,
    ];
    for offload in groups {
        let was = pair.a.offload(offload).unwrap();
        pair.a.set_offload(offload, !was).unwrap();
        assert_eq!(pair.a.offload(offload).unwrap(), !was, "{offload:?}");
        pair.a.set_offload(offload, was).unwrap();
        assert_eq!(pair.a.offload(offload).unwrap(), was, "{offload:?}");
    }
    assert!(pair.b.features().unwrap().iter().any(|f| f.name == "tx-udp-segmentation"));
}

#[test]
fn real_frames_cross_one_by_one() {
    require_namespaces!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let fresh = pair.a.features().unwrap();
    assert!(!pair.has_real_frames().unwrap());
    let packets_for_a_megabyte = || {
        let listener = pair.b.namespace.enter(|| TcpListener::bind((pair.b.ipv4, 0)));
        let listener = listener.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let client = pair.a.namespace.enter(|| TcpStream::connect_timeout(&address, LIMIT));
        let mut client = client.unwrap().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(LIMIT)).unwrap();
        client.set_write_timeout(Some(LIMIT)).unwrap();
        let before = pair.a.counters().unwrap().sent_packets;
        let sender = thread::spawn(move || client.write_all(&[7; 1 << 20]));
        let mut bytes = Vec::new();
        server.read_to_end(&mut bytes).unwrap();
        sender.join().unwrap().unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        pair.a.counters().unwrap().sent_packets - before
    };
    // 1,048,576 bytes in segments of at most 1460.
    const FRAMES: u64 = (1 << 20) / 1460;
    assert!(packets_for_a_megabyte() < FRAMES);
    pair.set_real_frames(true).unwrap();
    assert!(pair.has_real_frames().unwrap());
    assert!(packets_for_a_megabyte() >= FRAMES);
    pair.set_real_frames(false).unwrap();
    assert_eq!(pair.a.features().unwrap(), fresh);
}
