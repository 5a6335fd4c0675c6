//! An interface with a large MTU above an ordinary cable, with the kernel's own
//! protocols on it. As an ordinary user each test skips with one line.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, noise};
use landfall::defrag::bigmtu::{BigMtu, BigMtuBuilder, BigMtuError, BigMtuStats, MTU_MAX, TcpMode};
use landfall::defrag::{Fate, Technique};
use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};

/// As much each way.
const LEN: usize = 8 << 20;

/// Packets were cut, and came out joined where they lay.
fn assert_joined_in_place(stats: &BigMtuStats) {
    let joined = stats.joined.joined;
    assert!(joined.speculated > 0, "{stats:?}");
    assert!(stats.cut.frames > stats.from_kernel.packets, "{stats:?}");
    assert_eq!((stats.not_taken, stats.not_cut, stats.stuck), (0, 0, 0), "{stats:?}");
}

#[test]
fn kernel_tcp_runs_through_two_ends() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    for (mtu, is_ipv4) in
        [(4096, true), (9000, false), (9000, true), (MTU_MAX, true), (MTU_MAX, false)]
    {
        let cable = cable();
        let [a, b] = cable
            .ends()
            .map(|end| big(end, is_ipv4, |builder| builder.tcp(TcpMode::Fragments).mtu(mtu)));
        assert_eq!((a.mtu(), a.lower_mtu(), a.station()), (mtu, 1500, cable.a.mac.0));
        exchange(&cable.a, &cable.b, is_ipv4, LEN);
        for end in [a, b] {
            let stats = end.stop().unwrap();
            assert_joined_in_place(&stats);
            assert!(stats.to_kernel.bytes > LEN as u64, "{stats:?}");
        }
    }
}

/// The kernel passes them from one interface to the other by itself, super-packets whole.
#[test]
fn segments_that_fit_the_link_stay_in_the_kernel() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    skip_unless!(why_no_redirect());
    for is_ipv4 in [true, false] {
        let cable = cable();
        let [a, b] = cable.ends().map(|end| big(end, is_ipv4, |builder| builder.mtu(9000)));
        exchange(&cable.a, &cable.b, is_ipv4, LEN);
        for end in [a, b] {
            assert!(end.is_passed_by_kernel());
            let stats = end.stop().unwrap();
            let (down, up) = (stats.passed_down, stats.passed_up);
            assert!(down.bytes > LEN as u64 && up.bytes > LEN as u64, "{stats:?}");
            assert!(down.bytes / down.packets > 1514, "none was a super-packet: {stats:?}");
            assert_eq!(stats.announced, 1, "{stats:?}");
            let joined = stats.joined.joined;
            assert_eq!(joined.speculated + joined.conventional, 0, "{stats:?}");
        }
    }
}

/// What is too long for a frame goes beside it, in pieces.
#[test]
fn datagrams_that_do_not_fit_are_cut_and_joined() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    for is_ipv4 in [true, false] {
        let cable = cable();
        let [a, b] = cable.ends().map(|end| big(end, is_ipv4, |builder| builder));
        datagrams(&cable.a, &cable.b, is_ipv4, &[100, 1472, 1473, 4096, 20_001, 60_000]);
        let (out, into) = (a.stop().unwrap(), b.stop().unwrap());
        // With the header of IPv6 one more of them is too long.
        let cut = if is_ipv4 { 4 } else { 5 };
        // The kernel finishes their checksums, too.
        assert_eq!(out.cut.cut_by_kernel, cut, "{out:?}");
        let joined = into.joined.joined;
        assert_eq!(joined.speculated + joined.conventional, cut, "{into:?}");
        assert_eq!((into.not_taken, out.not_cut, out.stuck), (0, 0, 0));
    }
}

/// Several addresses at one end: what is between two of them has one queue, and others another.
#[test]
fn several_queues_share_what_comes_and_goes_by_addresses() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    const SOURCES: u8 = 24;
    const LENS: [usize; 4] = [100, 3000, 20_001, 60_000];
    for technique in [Technique::Packet, Technique::PacketRing] {
        let cable = cable();
        let [a, b] = cable
            .ends()
            .map(|end| big(end, true, |builder| builder.queues(3).technique(technique)));
        assert_eq!((a.queues(), b.queues()), (3, 3));
        let receiver = socket(&cable.b, true, 7002);
        let to = receiver.local_addr().unwrap();
        find(&socket(&cable.a, true, 7003), &receiver, to);
        for nth in 1..=SOURCES {
            let from = Ipv4Addr::new(10, 98, nth, 7);
            let address = format!("{from}/32");
            run(&cable.a.namespace, &["ip", "address", "add", &address, "dev", "big0"]);
            let bind = || cable.a.namespace.enter(|| UdpSocket::bind((from, 7001))).unwrap();
            let sender = soon("bind", bind);
            for len in LENS {
                sender.send_to(&noise(nth.into(), len), to).unwrap();
                let mut came = vec![0; 1 << 16];
                let (len, _) = receiver.recv_from(&mut came).unwrap();
                assert!(came[..len] == noise(nth.into(), len), "{len} bytes of {from}");
            }
        }
        let cut = LENS.len() as u64 - 1;
        let used = |big: &BigMtu, of: fn(&BigMtuStats) -> u64| {
            let busy = big.queue_stats().iter().map(of).filter(|count| *count > 0).count();
            assert!(busy > 1, "one queue had everything: {:?}", big.queue_stats());
        };
        let sent = |stats: &BigMtuStats| stats.cut.packets;
        let joined =
            |stats: &BigMtuStats| stats.joined.joined.speculated + stats.joined.joined.conventional;
        soon("all is told", || {
            let all = sent(&a.stats()).min(joined(&b.stats()));
            if all >= u64::from(SOURCES) * cut {
                Ok(())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        });
        used(&a, sent);
        used(&b, joined);
        let (out, into) = (a.stop().unwrap(), b.stop().unwrap());
        assert_eq!((into.not_taken, out.not_cut, out.stuck), (0, 0, 0), "{out:?} {into:?}");
    }
}

/// Admission control lets one receiver choose, and each queue has its own.
#[test]
fn queues_that_cannot_be_are_refused() {
    require_namespaces!();
    let cable = cable();
    let start = |adjust: fn(BigMtuBuilder) -> BigMtuBuilder| {
        let builder = adjust(BigMtu::builder(cable.a.name.as_str()));
        cable.a.namespace.enter(|| builder.start().map(drop)).unwrap().unwrap_err()
    };
    let error = start(|builder| builder.queues(2).admission().plaintext());
    assert!(matches!(error, BigMtuError::AdmissionWithQueues(2)), "{error}");
    for count in [0, 65] {
        let error = match count {
            0 => start(|builder| builder.queues(0)),
            _ => start(|builder| builder.queues(65)),
        };
        assert!(matches!(error, BigMtuError::Queues(found) if found == count), "{error}");
    }
}

/// Each end announces how it wants TCP.
#[test]
fn the_end_that_receives_says_how_tcp_comes() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    skip_unless!(why_no_redirect());
    let cable = cable();
    let a = big(&cable.a, true, |builder| builder.mtu(9000));
    let b = big(&cable.b, true, |builder| builder.tcp(TcpMode::Fragments).mtu(9000));
    exchange(&cable.a, &cable.b, true, LEN);
    let (a, b) = (a.stop().unwrap(), b.stop().unwrap());
    assert_joined_in_place(&BigMtuStats { cut: a.cut, from_kernel: a.from_kernel, ..b });
    assert!(a.passed_up.bytes > LEN as u64, "{a:?}");
    assert_eq!(a.joined.joined.speculated + a.joined.joined.conventional, 0, "{a:?}");
    assert_eq!((a.announced, b.announced), (1, 0));
}

/// TCX came with Linux 6.6.
fn why_no_redirect() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (version < (6, 6)).then(|| format!("needs TCX, of Linux 6.6: this is {}", release.trim()))
}

#[test]
fn a_ring_serves_as_well() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let cable = cable();
    let ring = |end| {
        big(end, true, |builder| {
            builder.tcp(TcpMode::Fragments).technique(Technique::PacketRing).mtu(9000)
        })
    };
    let [a, b] = cable.ends().map(ring);
    assert_eq!(a.chosen().technique, Technique::PacketRing);
    exchange(&cable.a, &cable.b, true, LEN);
    for end in [a, b] {
        // Its frames lie in memory already, and are joined by copying.
        let stats = end.stop().unwrap();
        assert!(stats.joined.joined.conventional > 0, "{stats:?}");
    }
}

#[test]
fn iperf3_runs_through_it_both_ways() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    skip_unless!(why_no_iperf3());
    let cable = cable();
    let [a, b] =
        cable.ends().map(|end| big(end, true, |builder| builder.tcp(TcpMode::Fragments).mtu(9000)));
    let address = cable.b.ipv4.to_string();
    for more in [&[][..], &["-R"]] {
        let mut server = serve_iperf3(&cable);
        let client = ["timeout", "60", "iperf3", "-c", &address, "-n", "32M", "--connect-timeout"];
        let client = [&client[..], &["5000"], more].concat();
        // Its server may not be there yet.
        soon("iperf3", || {
            let done = cable.a.namespace.enter(|| command(&client).status()).unwrap()?;
            if done.success() { Ok(()) } else { Err(io::Error::other(done.to_string())) }
        });
        assert!(server.wait().unwrap().success());
    }
    for end in [a, b] {
        let stats = end.stop().unwrap();
        assert_joined_in_place(&stats);
        assert!(stats.to_kernel.bytes > 16 << 20, "{stats:?}");
    }
}

fn why_no_iperf3() -> Option<String> {
    let why = Command::new("iperf3").arg("--version").output().err()?;
    Some(format!("needs iperf3: {why}"))
}

fn serve_iperf3(cable: &landfall_testbed::VethPair) -> std::process::Child {
    let server = ["timeout", "120", "iperf3", "-s", "-1"];
    cable.b.namespace.enter(|| command(&server).spawn()).unwrap().unwrap()
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Fallbacks 1 and 2 of the paper: at the other end is a kernel with an MTU of 1500
/// and nothing of ours. It joins our pieces, and cuts what is joined here.
#[test]
fn a_kernel_alone_understands_it_and_is_understood() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    /// Some fit in a frame; one is longer than the interface's own MTU.
    const LENS: [usize; 6] = [100, 1472, 4096, 8192, 20_001, 60_000];
    for is_ipv4 in [true, false] {
        let cable = cable();
        let a = big(&cable.a, is_ipv4, |builder| builder.tcp(TcpMode::Fragments).mtu(9000));
        datagrams(&cable.a, &cable.b, is_ipv4, &LENS);
        datagrams(&cable.b, &cable.a, is_ipv4, &LENS);
        // With the metric of the route that came with the address.
        let (subnet, version, metric) = match is_ipv4 {
            true => ("10.77.0.0/24", "-4", "0"),
            false => ("fd00:77::/64", "-6", "256"),
        };
        // So that it lets others send it segments that its own link could not carry.
        let route = ["ip", version, "route", "replace", subnet, "dev", &cable.b.name];
        run(&cable.b.namespace, &[&route[..], &["metric", metric, "advmss", "8900"]].concat());
        exchange(&cable.a, &cable.b, is_ipv4, LEN);
        let stats = a.stop().unwrap();
        let pieces_per_packet = stats.cut.frames as f64 / stats.from_kernel.packets as f64;
        assert!(pieces_per_packet > 1.5, "{stats:?}");
        let joined = stats.joined.joined;
        assert!(joined.speculated + joined.conventional >= 4, "{stats:?}");
        assert_eq!((stats.not_taken, stats.not_cut, stats.stuck), (0, 0, 0), "{stats:?}");
    }
}

/// The kernel of the lower link does not take a second time what passes through ours.
#[test]
fn each_packet_comes_once() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    const MARK: usize = 77;
    let cable = cable();
    let a = big(&cable.a, true, |builder| builder.mtu(9000));
    let (sender, receiver) = (socket(&cable.b, true, 7001), socket(&cable.a, true, 7002));
    // Some fit in a frame, others the kernel of the lower link would have joined too.
    let mut came = vec![0; 1 << 16];
    for len in [100, 4000].repeat(20) {
        soon("send", || sender.send_to(&noise(1, len), receiver.local_addr().unwrap()));
        assert_eq!(receiver.recv_from(&mut came).unwrap().0, len);
    }
    sender.send_to(&noise(1, MARK), receiver.local_addr().unwrap()).unwrap();
    assert_eq!(receiver.recv_from(&mut came).unwrap().0, MARK, "something came twice");
    a.stop().unwrap();
}

#[test]
fn tcp_recovers_from_lost_pieces() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    for (is_ipv4, at) in [(true, 20), (false, 54)] {
        let cable = cable();
        let lost = Arc::new(AtomicU64::new(0));
        let ends = cable.ends().map(|end| {
            let (lost, mut pieces) = (Arc::clone(&lost), 0_u32);
            big(end, is_ipv4, |builder| {
                builder.tcp(TcpMode::Fragments).mtu(9000).fate(move |head, _| {
                    // IPv4: flags and offset; IPv6: behind a fragment header's first bytes.
                    let is_piece = match is_ipv4 {
                        true => head[12..14] == [8, 0] && head[at] & 0x3f | head[at + 1] != 0,
                        false => head[12..14] == [0x86, 0xdd] && head[20] == 44,
                    };
                    pieces += u32::from(is_piece);
                    if !is_piece || !pieces.is_multiple_of(300) {
                        return Fate::Sent;
                    }
                    lost.fetch_add(1, Ordering::Relaxed);
                    Fate::Lost
                })
            })
        });
        exchange(&cable.a, &cable.b, is_ipv4, LEN / 2);
        assert!(lost.load(Ordering::Relaxed) > 4);
        for end in ends {
            let joined = end.stop().unwrap().joined.joined;
            assert!(joined.speculated > 0 && joined.broken > 0, "{joined:?}");
        }
    }
}

#[test]
fn nothing_is_left_behind() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let cable = cable();
    let end = &cable.a;
    let there = || {
        let links = run(&end.namespace, &["ip", "link"]);
        let tables = run(&end.namespace, &["nft", "list", "tables"]);
        let features = run(&end.namespace, &["ethtool", "-k", &end.name]);
        let joins = features.contains("generic-receive-offload: on");
        assert_eq!(joins, links.contains("big0") && why_no_redirect().is_none());
        (links.contains("big0"), tables.contains("landfall_bigmtu"))
    };
    // As one that was killed leaves it.
    run(
        &end.namespace,
        &["nft", "add", "table", "netdev", &format!("landfall_bigmtu_{}", end.name)],
    );
    for drop_it in [false, true] {
        let big = big(end, true, |builder| builder);
        assert_eq!(there(), (true, true));
        assert!(big.is_running() && big.mtu() == MTU_MAX);
        if drop_it {
            drop(big);
        } else {
            big.stop().unwrap();
        }
        assert_eq!(there(), (false, false));
    }
}

#[test]
fn a_link_that_goes_away_is_told() {
    require_namespaces!();
    skip_unless!(why_no_ingress());
    let cable = cable();
    let big = big(&cable.a, true, |builder| builder);
    cable.a.namespace.remove_interface(&cable.a.name).unwrap();
    soon("notice", || match big.is_running() {
        true => Err(io::Error::other("it is still running")),
        false => Ok(()),
    });
    big.stop().unwrap_err();
    assert!(!run(&cable.a.namespace, &["ip", "link"]).contains("big0"));
}

#[test]
fn what_cannot_work_is_refused() {
    require_namespaces!();
    let cable = cable();
    let start = |adjust: fn(&str) -> landfall::defrag::bigmtu::BigMtuBuilder| {
        cable.a.namespace.enter(|| adjust(&cable.a.name).start()).unwrap().map(drop).unwrap_err()
    };
    let error = start(|lower| BigMtu::builder(lower));
    assert!(matches!(error, BigMtuError::LowerInUse { .. }), "{error}");
    assert!(error.to_string().contains("ip address flush"), "{error}");
    run(&cable.a.namespace, &["ip", "address", "flush", "dev", &cable.a.name]);
    for mtu in [1500, 4095, MTU_MAX + 1] {
        let builder = BigMtu::builder(cable.a.name.as_str()).mtu(mtu);
        let error = cable.a.namespace.enter(|| builder.start().map(drop)).unwrap().unwrap_err();
        assert!(matches!(error, BigMtuError::Mtu(found) if found == mtu), "{error}");
    }
    let error = start(|_| BigMtu::builder("nowhere0"));
    assert!(matches!(error, BigMtuError::Lower(_)), "{error}");
    cable.set_mtu(9000).unwrap();
    let error = start(|lower| BigMtu::builder(lower).mtu(9000));
    assert!(matches!(error, BigMtuError::NothingToDo { .. }), "{error}");
}

/// Two namespaces with a cable. The kernels find each other's stations by themselves.
pub(crate) fn cable() -> VethPair {
    VethPair::new(VethConfig { static_neighbours: false, ..VethConfig::default() }).unwrap()
}

/// Starts an interface above one end, which loses its addresses to it: that of one
/// version of IP.
pub(crate) fn big(
    end: &VethEnd,
    is_ipv4: bool,
    adjust: impl FnOnce(BigMtuBuilder) -> BigMtuBuilder + Send,
) -> BigMtu {
    run(&end.namespace, &["ip", "address", "flush", "dev", &end.name]);
    let prefix = if is_ipv4 { 24 } else { 64 };
    let builder = BigMtu::builder(end.name.as_str()).name("big0").address(ip(end, is_ipv4), prefix);
    end.namespace.enter(|| adjust(builder).start()).unwrap().unwrap()
}

pub(crate) fn ip(end: &VethEnd, is_ipv4: bool) -> IpAddr {
    if is_ipv4 { end.ipv4.into() } else { end.ipv6.into() }
}

/// Runs a program in a namespace; it has to succeed.
pub(crate) fn run(namespace: &Namespace, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = namespace
        .enter(|| Command::new(words[0]).args(&words[1..]).output())
        .unwrap()
        .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{words:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Tries until it works: an interface or an address is not there at once.
pub(crate) fn soon<T>(what: &str, mut attempt: impl FnMut() -> io::Result<T>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{what}: {error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A socket of an ordinary program.
pub(crate) fn socket(end: &VethEnd, is_ipv4: bool, port: u16) -> UdpSocket {
    let address = SocketAddr::new(ip(end, is_ipv4), port);
    let bind = || end.namespace.enter(|| UdpSocket::bind(address)).unwrap();
    let socket = soon("bind", bind);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends bytes over one TCP connection, other ones each way at once, and compares what
/// came.
pub(crate) fn exchange(client: &VethEnd, server: &VethEnd, is_ipv4: bool, len: usize) {
    let address = SocketAddr::new(ip(server, is_ipv4), 7000);
    let listener =
        soon("listen", || server.namespace.enter(|| TcpListener::bind(address)).unwrap());
    let connect = || {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
        client.namespace.enter(connect).unwrap()
    };
    let near = soon("connect", connect);
    let far = accept(&listener);
    thread::scope(|scope| {
        for (stream, own, others) in [(&near, 1, 2), (&far, 2, 1)] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            scope.spawn(move || {
                let mut stream = stream;
                stream.write_all(&noise(own, len)).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut stream = stream;
                let mut came = Vec::new();
                stream.read_to_end(&mut came).unwrap();
                assert!(came == noise(others, len), "{} of {len} bytes, or others", came.len());
            });
        }
    });
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let (stream, _) = soon("accept", || listener.accept());
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Sends datagrams one by one, and compares what comes.
pub(crate) fn datagrams(from: &VethEnd, to: &VethEnd, is_ipv4: bool, lens: &[usize]) {
    let (sender, receiver) = (socket(from, is_ipv4, 7001), socket(to, is_ipv4, 7002));
    let address = receiver.local_addr().unwrap();
    find(&sender, &receiver, address);
    let mut came = vec![0; 1 << 16];
    for (seed, len) in (1..).zip(lens) {
        let payload = noise(seed, *len);
        soon("send", || sender.send_to(&payload, address));
        let (len, from) = receiver.recv_from(&mut came).unwrap();
        assert_eq!(from, sender.local_addr().unwrap());
        assert!(came[..len] == payload, "{len} of {} bytes, or others", payload.len());
    }
}

/// Until the kernels know each other's stations the first datagrams may be lost.
fn find(sender: &UdpSocket, receiver: &UdpSocket, address: SocketAddr) {
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    soon("find the other end", || {
        sender.send_to(&[], address)?;
        receiver.recv_from(&mut [])
    });
    // All of them.
    while receiver.recv_from(&mut []).is_ok() {}
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
}
