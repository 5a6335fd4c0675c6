//! Programs on two hosts, whose bytes go by STP or by queue pairs.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use landfall_testbed::{VethConfig, VethPair, require_namespaces, skip_unless};
use landfall_testkit::trials::{count_kills, kills};
use sockets_compat::StpStream;

use crate::common::example;
use crate::hosts::{
    CARRIERS, FalsePeer, Host, Hosts, PORT, SECRET, carriers_orders, frame, sockets_of_carriers,
};
use crate::test_folder::{Running, TestFolder, missing};

const SCRIPT: &str = include_str!("between.py");
const WAYS: [&str; 2] = ["stp", "qpip"];

/// Two parts of the script: one that is called, and one that calls.
struct Two<'a> {
    hosts: &'a Hosts,
    script: String,
    address: String,
}

impl<'a> Two<'a> {
    fn new(hosts: &'a Hosts) -> Self {
        let script = hosts.ground.write("between.py", SCRIPT.as_bytes());
        Self { hosts, script, address: hosts.address(Host::There).to_string() }
    }

    fn called(&self, part: &str) -> Running {
        let port = PORT.to_string();
        self.hosts.serve(Host::There, "python3", &[&self.script, part, &self.address, &port])
    }

    fn calls(&self, part: &str) -> Running {
        let port = PORT.to_string();
        self.hosts.start(Host::Here, "python3", &[&self.script, part, &self.address, &port])
    }

    /// What the one who calls says in the end.
    fn says(&self, called: &str, calls: &str) -> String {
        let _called = self.called(called);
        String::from_utf8_lossy(&self.calls(calls).output()).trim().to_owned()
    }
}

#[test]
fn each_byte_comes_back_and_few_go_by_tcp() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    for way in WAYS {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let two = Two::new(&hosts);
        for part in ["ask", "wait", "fork"] {
            assert_eq!(two.says("echo", part), "all came back", "{way}: {part}");
        }
        hosts.expect_carried();
    }
}

#[test]
fn ipv6_carries_it_as_well() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    for way in WAYS {
        let (hosts, _carriers) = Hosts::with_carriers_by_ipv6(way);
        let two = Two::new(&hosts);
        assert_eq!(two.says("echo", "ask"), "all came back", "{way}");
        hosts.expect_carried();
    }
}

#[test]
fn curl_fetches_from_python() {
    require_namespaces!();
    skip_unless!(missing(&["python3", "curl"]));
    for way in WAYS {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let file = hosts.ground.file("page", 20 << 20);
        let (address, port) = (hosts.address(Host::There).to_string(), PORT.to_string());
        let arguments =
            ["-m", "http.server", &port, "--bind", &address, "-d", hosts.ground.folder()];
        let _server = hosts.serve(Host::There, "python3", &arguments);
        let url = format!("http://{address}:{port}/page");
        hosts.until_carried(|| {
            let got = hosts.run(Host::Here, "curl", &["-sSf", &url, &url]);
            assert_eq!(got.len(), 2 * file.len());
            assert!(got[..file.len()] == file[..] && got[file.len()..] == file[..], "{way}");
        });
    }
}

#[test]
fn redis_answers() {
    require_namespaces!();
    skip_unless!(missing(&["redis-server", "redis-cli"]));
    for way in WAYS {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let (address, port) = (hosts.address(Host::There).to_string(), PORT.to_string());
        let arguments =
            ["--port", &port, "--bind", &address, "--protected-mode", "no", "--save", ""];
        let _server = hosts.serve(Host::There, "redis-server", &arguments);
        let of = ["-h", &address, "-p", &port];
        // The same question several times over one connection.
        let ask = |words: &[&str]| {
            let all = [&of[..], &["-r", "200", "-i", "0"], words].concat();
            String::from_utf8_lossy(&hosts.run(Host::Here, "redis-cli", &all)).into_owned()
        };
        let word = "x".repeat(50_000);
        hosts.until_carried(|| {
            assert_eq!(ask(&["SET", "key", &word]).matches("OK").count(), 200, "{way}");
            assert_eq!(ask(&["GET", "key"]).matches(&word).count(), 200, "{way}");
        });
    }
}

/// Anyone who is called sends all and is gone: the end by TCP overtakes the last bytes.
#[test]
fn an_end_comes_behind_all_bytes() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    for way in WAYS {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let two = Two::new(&hosts);
        assert_eq!(two.says("close_at_once", "hear"), "whole", "{way}");
        // Who is killed may leave a ring unread: then TCP itself says that it was reset.
        let said = two.says("die", "hear");
        assert!(said == "whole" || said.ends_with("Connection reset by peer"), "{way}: {said}");
        hosts.expect_carried();
    }
}

/// A program whose kernel has forgotten the connection, since both directions of TCP are over,
/// still gets what the end has overtaken: here since a carrier stood still.
#[test]
fn a_word_that_comes_long_after_the_end_by_tcp_is_heard() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (hosts, carriers) = Hosts::with_carriers("stp");
    let two = Two::new(&hosts);
    let mut says = two.called("say_bye");
    let mut hears = two.calls("hear_bye");
    says.until_it_says("knows");
    carriers[1].signal("STOP");
    says.ends_well();
    std::thread::sleep(Duration::from_secs(3));
    carriers[1].signal("CONT");
    assert_eq!(String::from_utf8_lossy(&hears.output()).trim(), "all came back");
    hosts.expect_carried();
}

/// The kernel's edge was before the carriers had said a word of the end.
#[test]
fn an_end_that_has_overtaken_its_word_is_an_edge_of_epoll() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (hosts, carriers) = Hosts::with_carriers("stp");
    let two = Two::new(&hosts);
    let mut says = two.called("bye_and_gone");
    let mut hears = two.calls("hear_edges");
    hears.until_it_says("heard");
    says.until_it_says("knows");
    carriers[1].signal("STOP");
    says.ends_well();
    std::thread::sleep(Duration::from_secs(1));
    carriers[1].signal("CONT");
    hears.ends_well();
    hosts.expect_carried();
}

#[test]
fn who_sends_to_a_killed_program_hears_of_it() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let rounds = kills(1);
    for way in (0..rounds).flat_map(|_| WAYS) {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let two = Two::new(&hosts);
        let mut sits = two.called("sit");
        let mut floods = two.calls("flood");
        floods.until_it_says("floods");
        sits.kill();
        floods.ends_well();
        count_kills("a program that is carried", 1);
    }
}

/// Whichever of the two carriers is killed: both programs hear of a reset, in time.
#[test]
fn a_lost_carrier_is_a_reset_for_both() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let all = [("stp", 0), ("stp", 1), ("qpip", 0), ("qpip", 1)];
    for (way, which) in (0..kills(1)).flat_map(|_| all) {
        let (hosts, mut carriers) = Hosts::with_carriers(way);
        let two = Two::new(&hosts);
        let mut called = two.called("stay_called");
        let mut calls = two.calls("stay_calling");
        called.until_it_says("stays");
        calls.until_it_says("stays");
        carriers[which].kill();
        called.ends_well();
        calls.ends_well();
        count_kills("a carrier", 1);
        // Another takes its place.
        let host = [Host::Here, Host::There][which];
        carriers[which] = hosts.carry(host, "key");
        assert_eq!(two.says("echo", "ask"), "all came back");
    }
}

/// Whichever of the two is told: the connection that is there comes to its end with all its
/// bytes, a new one is TCP, and then the carrier ends by itself.
#[test]
fn a_carrier_that_a_signal_ends_lets_connections_end_and_takes_no_new_ones() {
    const LONG: &str = "drain=100";
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let endings = [("stp", 0, "TERM"), ("stp", 1, "INT"), ("qpip", 0, "TERM"), ("qpip", 1, "TERM")];
    for (way, which, signal) in endings {
        let hosts = Hosts::new(way);
        let both = [Host::Here, Host::There];
        let mut carriers = both.map(|host| hosts.carry_told(host, "key", LONG));
        let two = Two::new(&hosts);
        let mut answers = two.called("echo_also");
        let mut asks = two.calls("ask_when_told");
        asks.until_it_says("called");
        carriers[which].signal(signal);
        hosts.ground.forget_log();
        let said = two.calls("plain").output();
        assert_eq!(String::from_utf8_lossy(&said).trim(), "all came back", "{way}");
        // The one there says no as to a carrier that has no room, the one here why.
        let why = ["this host's carrier comes to its end", "the carrier there does not take it"];
        hosts.ground.until(|| hosts.ground.log().contains(why[which]));
        assert!(!hosts.ground.log().contains(&format!(": {way}: ")), "{}", hosts.ground.log());
        asks.is_told("go on");
        asks.ends_well();
        answers.ends_well();
        assert_eq!(carriers[which].exit_code(), Some(0), "{way}");
        // The other heard of the end, and works with the next one.
        carriers[which] = hosts.carry(both[which], "key");
        assert_eq!(two.says("echo", "ask"), "all came back", "{way}");
    }
}

/// Both programs hear of a reset as soon as the time is over, or the operator insists.
#[test]
fn a_carrier_cuts_off_what_does_not_end() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let endings =
        [("stp", "drain=1", 1, 0), ("qpip", "drain=1", 1, 0), ("stp", "drain=100", 2, 143)];
    for (way, drain, signals, code) in endings {
        let hosts = Hosts::new(way);
        let mut carriers =
            [Host::Here, Host::There].map(|host| hosts.carry_told(host, "key", drain));
        let two = Two::new(&hosts);
        let mut called = two.called("stay_called");
        let mut calls = two.calls("stay_calling");
        called.until_it_says("stays");
        calls.until_it_says("stays");
        for _ in 0..signals {
            carriers[0].signal("TERM");
            // Two signals that wait are one.
            std::thread::sleep(Duration::from_millis(300));
        }
        assert_eq!(carriers[0].exit_code(), Some(code), "{way}");
        called.ends_well();
        calls.ends_well();
    }
}

#[test]
fn without_carriers_that_understand_each_other_it_is_tcp() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (key, other) = (Some("key"), Some("another-key"));
    for (what, way, here, there, reason) in [
        ("nobody", "stp", None, None, "tcp: no carrier on this host (landfall carry --over stp)"),
        // To who has another key it is silent.
        ("another key", "stp", key, other, "no carrier at 10."),
        ("another key", "qpip", key, other, "the carrier there does not take it"),
        ("one alone", "stp", key, None, "no carrier at 10."),
    ] {
        let hosts = Hosts::new(way);
        let carriers = [
            here.map(|key| hosts.carry(Host::Here, key)),
            there.map(|key| hosts.carry(Host::There, key)),
        ];
        let two = Two::new(&hosts);
        let _server = two.called("echo_many");
        for _ in 0..3 {
            let said = two.calls("plain").output();
            assert_eq!(String::from_utf8_lossy(&said).trim(), "all came back", "{what}");
        }
        // A carrier knows that nobody answers when these programs have ended.
        hosts.ground.until(|| hosts.ground.log().contains(reason));
        let log = hosts.ground.log();
        assert!(!log.contains("both hosts have"), "{what}: {log}");
        drop(carriers);
    }
}

/// What a carrier has, which must not grow.
fn holds(carrier: &Running) -> (usize, usize) {
    let count = |what: &str| {
        let folder = format!("/proc/{}/{what}", carrier.process());
        std::fs::read_dir(folder).expect("it runs").count()
    };
    (count("task"), count("fd"))
}

#[test]
fn hundreds_of_connections_leave_nothing_behind() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (hosts, carriers) = Hosts::with_carriers("stp");
    let two = Two::new(&hosts);
    let _server = two.called("echo_many");
    let before = carriers.each_ref().map(holds);
    let said = two.calls("many").output();
    assert_eq!(String::from_utf8_lossy(&said).trim(), "all came back");
    let begin = Instant::now();
    loop {
        let now = carriers.each_ref().map(holds);
        let is_back = now.iter().zip(&before).all(|(now, before)| now <= before);
        if is_back {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(90), "{before:?} became {now:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn strangers_are_turned_away() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (hosts, carriers) = Hosts::with_carriers("stp");
    let there = hosts.address(Host::There);
    hosts.on(Host::Here, || {
        use std::io::{Read, Write};
        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a port");
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
            socket.send_to(&bytes, (there, CARRIERS)).expect("it goes");
        }
        // To plain STP, and to who has another secret, nobody answers.
        let at = || format!("stp://{there}:118/udp/{CARRIERS}");
        let any = || SocketAddr::new(hosts.address(Host::Here), 0);
        StpStream::connect(at()).expect_err("it is not encrypted");
        let other = sockets_of_carriers(any(), b"another-key of some length");
        other.connect_stream(at()).expect_err("it has another secret");
        // One that has the secret and proves something else; one that stays silent; one that
        // goes at once.
        let host = sockets_of_carriers(any(), SECRET);
        let call = || host.connect_stream(at());
        let mut talks = call().expect("a carrier listens");
        talks.write_all(&[b"LFcarry3".as_slice(), &[7; 48]].concat()).expect("it goes");
        let mut answer = Vec::new();
        talks.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let _ = talks.read_to_end(&mut answer);
        assert_eq!(answer, [], "it says nothing to who has not proven itself");
        let _silent = call().expect("a carrier listens");
        drop(call().expect("a carrier listens"));
    });
    let two = Two::new(&hosts);
    assert_eq!(two.says("echo", "ask"), "all came back");
    hosts.expect_carried();
    assert!(hosts.ground.log().contains("a stranger is turned away: it has another key"));
    drop(carriers);
}

/// Once two programs have found each other. By TCP, without carriers, so that the listener is
/// known to hear.
#[test]
fn who_listens_between_carriers_reads_nothing() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    // A part of what `ask` sends that is nowhere else.
    let text: Vec<u8> = (200..232).collect();
    let reads = |frames: &[Vec<u8>]| {
        frames.iter().any(|frame| frame.windows(text.len()).any(|part| part == text))
    };
    for way in WAYS {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let two = Two::new(&hosts);
        let (said, frames) = hosts.overhear(|| two.says("echo", "ask"));
        assert_eq!(said, "all came back", "{way}");
        let heard: usize = frames.iter().map(Vec::len).sum();
        assert!(heard > 1_000_000, "{way}: {heard} bytes");
        assert!(!reads(&frames), "{way} is read");
    }
    let hosts = Hosts::new("stp");
    let two = Two::new(&hosts);
    let (said, frames) = hosts.overhear(|| {
        let _called = two.called("echo_many");
        String::from_utf8_lossy(&two.calls("plain").output()).trim().to_owned()
    });
    assert_eq!(said, "all came back");
    assert!(reads(&frames));
}

/// What a program offers to its carrier is looked up by the name in a note: an exchanged file
/// is that of another connection.
#[test]
fn a_carrier_takes_memory_of_the_connection_that_the_note_names() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (hosts, carriers) = Hosts::with_carriers("stp");
    let two = Two::new(&hosts);
    let mut called = two.called("say_who");
    carriers[0].signal("STOP");
    let mut calls = two.calls("ask_who");
    calls.until_it_says("called");
    hosts.exchange_memory(Host::Here, "to-");
    carriers[0].signal("CONT");
    called.is_told("go on");
    calls.is_told("go on");
    calls.ends_well();
    called.ends_well();
    let log = hosts.ground.log();
    assert_eq!(
        log.matches("is not taken: tcp: the offer is that of another connection").count(),
        2
    );
    assert!(!log.contains(": is carried"), "{log}");
}

/// What a carrier offers to a program of its host says for which socket it is.
#[test]
fn a_program_takes_what_a_carrier_offers_for_its_own_socket_only() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let (hosts, _carriers) = Hosts::with_carriers("stp");
    let two = Two::new(&hosts);
    let mut called = two.called("say_who");
    let mut calls = two.calls("ask_who");
    calls.until_it_says("called");
    hosts.exchange_memory(Host::There, "");
    called.is_told("go on");
    calls.is_told("go on");
    calls.ends_well();
    called.ends_well();
    assert!(hosts.verdicts().iter().all(|way| way == "tcp"), "{}", hosts.ground.log());
}

/// Nonsense from one who has the key ends the connection that it is said of, and no other.
#[test]
fn a_carrier_that_talks_nonsense_resets_its_connection() {
    require_namespaces!();
    skip_unless!(missing(&["python3"]));
    let hosts = Hosts::new("stp");
    let _carrier = hosts.carry(Host::Here, "key");
    let there = hosts.address(Host::There);
    let two = Two::new(&hosts);
    let liar = hosts.on(Host::There, || FalsePeer::new(there, SECRET));
    let server = two.called("echo_many");
    let here = |id| frame(3, id, 0, 0);
    let switched = |id| frame(4, id, 0, 1);
    let word = |id, at| [frame(6, id, 4, at), b"word".to_vec()].concat();
    let ended = |id, how, at| frame(8, id, how, at);
    type Nonsense<'a> = (&'a str, bool, &'a dyn Fn(u32) -> Vec<u8>);
    let all: [Nonsense<'_>; 14] = [
        ("bytes before the change of ways", false, &|id| [here(id), word(id, 0)].concat()),
        ("bytes in another place", false, &|id| [switched(id), word(id, 1 << 40)].concat()),
        ("two changes of ways", false, &|id| [switched(id), switched(id)].concat()),
        ("bytes behind the end", false, &|id| {
            [switched(id), ended(id, 1, 0), word(id, 0)].concat()
        }),
        ("an end that nothing comes to", false, &|id| ended(id, 1, 1 << 40)),
        ("more was taken than sent", false, &|id| frame(7, id, 0, 1 << 40)),
        ("it is opened twice", false, &|id| frame(2, id, 1, 0)),
        ("no such word", true, &|id| frame(12, id, 0, 0)),
        ("a number too many", true, &|id| frame(3, id, 0, 7)),
        ("more bytes than may be", true, &|id| [switched(id), frame(6, id, 1 << 20, 0)].concat()),
        ("no such end", true, &|id| ended(id, 9, 0)),
        ("half a word", true, &|id| here(id)[..5].to_vec()),
        ("an end in the middle", true, &|id| [switched(id), word(id, 0)[..18].to_vec()].concat()),
        ("nothing at all", true, &|_| Vec::new()),
    ];
    for (what, ends_the_link, nonsense) in all {
        let mut calls = two.calls("until_reset");
        liar.says(nonsense, ends_the_link);
        let said = calls.output();
        assert_eq!(String::from_utf8_lossy(&said).trim(), "reset", "{what}");
    }
    drop((liar, server));
    // One that tells the truth takes its place, once the last streams of the other are over.
    let is_free = || UdpSocket::bind((there, CARRIERS)).is_ok();
    hosts.ground.until(|| hosts.on(Host::There, is_free));
    let _carrier_there = hosts.carry(Host::There, "key");
    assert_eq!(two.says("echo", "ask"), "all came back");
}

/// The cases that compare sockets with the kernel's, by way of a carrier that calls itself:
/// two addresses of one host are two hosts for anyone who follows the rule.
#[test]
fn sockets_are_the_same_between_hosts() {
    const LONGEST: &str = "150";
    const LONG: Duration = Duration::from_secs(600);
    require_namespaces!();
    let one = VethPair::new(VethConfig::default()).expect("two hosts");
    let two = VethPair::between(
        &one.a.namespace,
        &one.b.namespace,
        VethConfig { cable: 1, ..VethConfig::default() },
    )
    .expect("another cable");
    let ground = TestFolder::new();
    ground.follow("stp");
    let key = ground.write("key", b"a key of some length");
    let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, only_ours).expect("its mode");
    let (from, at) = (one.a.ipv4, two.a.ipv4);
    let said = carriers_orders("stp", at.into(), at.into(), &key);
    let home = &one.a.namespace;
    let start = |library: bool, arguments: &[&str], variables: &[(&str, &str)]| {
        let program = example("socket_cases").to_string_lossy().into_owned();
        home.enter(|| ground.start_told(library, &program, arguments, variables))
            .expect("it starts")
    };
    let mut carrier = home
        .enter(|| ground.start_told(true, "true", &[], &[("LANDFALL_CARRY", &said)]))
        .expect("it starts");
    carrier.until_it_says("carries by");

    let lines = |mut running: Running| -> Vec<String> {
        let said = String::from_utf8(running.output_within(LONG)).expect("text");
        said.lines().map(str::to_owned).collect()
    };
    let (from, at) = (from.to_string(), at.to_string());
    let far = |cases: &[&str], settle: &str| {
        let places =
            [("CASES_FROM", from.as_str()), ("CASES_AT", &at), ("CASES_SETTLE_MS", settle)];
        lines(start(true, cases, &[&places[..], &[("EXPECT_SHARED", "1")]].concat()))
    };
    let kernel = lines(start(false, &[], &[]));
    let ours = far(&[], "8");
    assert_eq!(kernel.len(), ours.len());
    let mut names: Vec<&str> = kernel
        .iter()
        .zip(&ours)
        .filter(|(kernel, ours)| kernel != ours)
        .filter_map(|(kernel, _)| kernel.split(':').next())
        .collect();
    names.dedup();
    // What is seen depends on when one looks: those that differ are given more time.
    for settle in ["60", LONGEST] {
        names.retain(|name| {
            let wanted = lines(start(false, &[name], &[]));
            let seen = far(&[name], settle);
            if wanted != seen && settle == LONGEST {
                panic!("kernel: {wanted:#?}\nours: {seen:#?}");
            }
            wanted != seen
        });
    }
}
