//! The other carrier between hosts: the cases of `cases.c` and `connected.c` over QPIP, whose
//! segments are TCP's; a socket of the kernel at the other end; and peers that have chosen another
//! carrier.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::or_skip;
use landfall_testkit::trials::{count_kills, kills};
use landfall_testkit::{TemporaryFolder, tshark};

use crate::cases::{LIMIT, OURS, check_between, program};
use crate::mpi::{self, EXCHANGE, Machines, expect_all_well, mpirun};
use crate::tools::{finish, provider_folder, run, text};

/// The address of the adapter at an end of a cable, which no kernel has.
fn adapter(end: &VethEnd) -> Ipv4Addr {
    let [a, b, c, d] = end.ipv4.octets();
    Ipv4Addr::new(a, b, c, 100 + d)
}

/// The same in the other version of IP.
fn adapter6(end: &VethEnd) -> Ipv6Addr {
    let mut octets = end.ipv6.octets();
    octets[14] = 100;
    octets.into()
}

/// What opens an adapter there, with its address of IPv4.
fn settings(end: &VethEnd) -> [(String, String); 3] {
    settings_of(end, &format!("{}/24", adapter(end)))
}

fn settings_of(end: &VethEnd, address: &str) -> [(String, String); 3] {
    let prefixed = |name: &str, value: String| (format!("FI_LANDFALL_{name}"), value);
    [
        prefixed("CARRIER", "qpip".to_owned()),
        prefixed("QPIP_LINK", format!("packet:{}", end.name)),
        prefixed("QPIP_ADDRESS", address.to_owned()),
    ]
}

/// For the first process, and for the second.
fn over_qpip(cable: &VethPair, command: &mut Command) {
    with_settings([&cable.a, &cable.b].map(settings), command);
}

fn with_settings([first, second]: [[(String, String); 3]; 2], command: &mut Command) {
    command.envs(first);
    command.envs(second.map(|(name, value)| (format!("SECOND_{name}"), value)));
    command.env("FI_LANDFALL_PLAINTEXT", "1");
}

fn check_over(cable: &VethPair, program: &Path, case: &str) {
    let addresses = [&cable.a, &cable.b].map(|end| IpAddr::from(adapter(end)));
    check_between([&cable.a, &cable.b], addresses, program, case, |command| {
        over_qpip(cable, command);
        // Peers that are gone are given up sooner than users would like; others may be slow here.
        if ["dead_connection", "dead_peer", "absent_peer"].contains(&case) {
            command.env("FI_LANDFALL_PATIENCE", "2");
        }
    });
}

fn check(case: &str) {
    require_namespaces!();
    let program = or_skip!(program(), case);
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let is_deadly = case.starts_with("dead_");
    for _ in 0..if is_deadly { kills(1) } else { 1 } {
        check_over(&cable, program, case);
        if is_deadly {
            count_kills("a peer of libfabric", 1);
        }
    }
}

macro_rules! cases {
    ($($case:ident;)*) => {
        $(#[test] fn $case() { check(stringify!($case)); })*
    };
}

cases! {
    connection;
    rejected;
    several_connections;
    event_descriptor;
    dead_connection;
    tagged;
    ignored_bits;
    all_lengths;
    order;
    empty_messages;
    injected_data;
    pieces;
    truncated;
    cancelled;
    peeked;
    selective;
    descriptor;
    several;
    counters;
    crossing;
    delivered;
    dead_peer;
    datagrams;
    unread_messages;
    stopped_peer;
    absent_peer;
    forked;
    sources;
    addresses;
    unreached;
}

#[test]
fn cases_hold_over_ipv6() {
    require_namespaces!();
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let ends = [&cable.a, &cable.b];
    for case in ["connection", "sources", "all_lengths", "datagrams"] {
        let addresses = ends.map(|end| IpAddr::from(adapter6(end)));
        check_between(ends, addresses, program, case, |command| {
            let both = ends.map(|end| settings_of(end, &format!("{}/64", adapter6(end))));
            with_settings(both, command);
        });
    }
}

/// Two adapters of one host that send each other frames within UDP, which needs no privileges.
#[test]
fn cases_hold_within_udp_on_one_host() {
    let program = or_skip!(program());
    for case in ["connection", "all_lengths", "crossing"] {
        let ends = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [one, two] = ends.each_ref().map(|end| end.local_addr().unwrap());
        drop(ends);
        let mut command = Command::new(program);
        command.args([OURS, case, "10.77.0.1", "-", "10.77.0.2"]);
        command.env("FI_PROVIDER_PATH", provider_folder());
        command.env("FI_LANDFALL_CARRIER", "qpip").env("FI_LANDFALL_PLAINTEXT", "1");
        command.env("FI_LANDFALL_QPIP_LINK", format!("udp:{one},{two}"));
        command.env("FI_LANDFALL_QPIP_ADDRESS", "10.77.0.1/24");
        command.env("SECOND_FI_LANDFALL_QPIP_LINK", format!("udp:{two},{one}"));
        command.env("SECOND_FI_LANDFALL_QPIP_ADDRESS", "10.77.0.2/24");
        let output = run(command, LIMIT);
        assert!(output.status.success(), "{case}: {}", text(&output));
    }
}

/// Lines of a program, one after the other.
fn next_line(said: &mut BufReader<impl std::io::Read>) -> String {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Captures this many frames of TCP at an end of a cable, from now on.
fn capture(end: &VethEnd, file: &Path, count: usize) -> Option<Child> {
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-f", "tcp", "-c", &count.to_string(), "-i", &end.name, "-w"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = end.namespace.enter(|| command.spawn()).unwrap().ok()?;
    let mut said = BufReader::new(child.stderr.take().unwrap());
    // It says where it writes to once it captures.
    while !next_line(&mut said).starts_with("File:") {
        assert!(child.try_wait().unwrap().is_none(), "dumpcap does not begin");
    }
    // Nobody reads what it says at its end: that is less than a pipe holds.
    child.stderr = Some(said.into_inner());
    Some(child)
}

#[test]
fn what_is_on_the_wire_is_tcp() {
    const FRAMES: usize = 100;
    require_namespaces!();
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let folder = TemporaryFolder::new("fabric-capture");
    let file = folder.path().join("capture.pcapng");
    let capturing = or_skip!(capture(&cable.b, &file, FRAMES).ok_or("there is no dumpcap"));
    check_over(&cable, program, "connection");
    let output = finish(capturing, LIMIT);
    assert!(output.status.success(), "{}", text(&output));
    let fields = ["ip.src", "tcp.flags", "_ws.malformed", "tcp.checksum.status"];
    // Random bytes look like the messages of some protocol sooner or later.
    let options = ["-d", "tcp.port==1-65535,data"];
    let Some(frames) = tshark::fields(&file, &fields, &options) else { return };
    assert_eq!(frames.len(), FRAMES);
    let both = [&cable.a, &cable.b].map(|end| adapter(end).to_string());
    for frame in &frames {
        assert!(
            both.contains(&frame[0]) && !frame[1].is_empty() && frame[2].is_empty(),
            "{frame:?}"
        );
    }
    let opens = |syn: &str| frames.iter().filter(|frame| frame[1] == syn).count();
    assert_eq!((opens("0x0002"), opens("0x0012")), (1, 1), "a handshake: {frames:?}");
}

/// A record as it is in the stream: see `docs/libfabric.md`.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    kind: u8,
    total: u64,
    id: u32,
    payload: Vec<u8>,
}

const HEADER: usize = 64;
const PAD: u8 = 1;
const MESSAGE: u8 = 2;
const OFFER: u8 = 3;
const ACKNOWLEDGE: u8 = 4;
const CREDIT: u8 = 5;
const REQUEST: u8 = 7;
const ACCEPT: u8 = 8;
const SHUTDOWN: u8 = 10;
const GREETING: u8 = 13;
const ASK: u8 = 14;
const PIECE: u8 = 15;
/// Length of a ring.
const RING: u64 = 256 << 10;
/// The longest payload.
const MOST_PAYLOAD: usize = 17 << 10;

/// A socket of the kernel that speaks what the provider does.
struct Socket {
    stream: TcpStream,
    sent: u64,
    read: u64,
}

impl Socket {
    fn connect(to: SocketAddr) -> Self {
        Self::over(TcpStream::connect_timeout(&to, LIMIT).unwrap())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Self { stream, sent: 0, read: 0 }
    }

    fn send(&mut self, kind: u8, (total, id): (u64, u32), payload: &[u8]) {
        let room = (HEADER + payload.len().next_multiple_of(HEADER)) as u64;
        let left = RING - self.sent % RING;
        if room > left {
            self.write(PAD, (0, 0), &vec![0; left as usize - HEADER]);
        }
        self.write(kind, (total, id), payload);
    }

    /// A header alone, which may lie about its length and place.
    fn write_as(&mut self, kind: u8, len: u32, further: u64) {
        let mut bytes = [0; HEADER];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        bytes[24..32].copy_from_slice(&u64::from(len).to_le_bytes());
        bytes[48..56].copy_from_slice(&(self.sent + further).to_le_bytes());
        self.stream.write_all(&bytes).unwrap();
    }

    fn write(&mut self, kind: u8, (total, id): (u64, u32), payload: &[u8]) {
        let mut bytes = vec![0; HEADER + payload.len().next_multiple_of(HEADER)];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&total.to_le_bytes());
        bytes[32..36].copy_from_slice(&id.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.read.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.sent.to_le_bytes());
        bytes[HEADER..HEADER + payload.len()].copy_from_slice(payload);
        self.stream.write_all(&bytes).unwrap();
        self.sent += bytes.len() as u64;
    }

    /// The next record that says more than how much was read.
    fn next(&mut self) -> Record {
        loop {
            let mut header = [0; HEADER];
            self.stream.read_exact(&mut header).unwrap();
            let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
            let half = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
            assert_eq!(word(48), self.read, "{header:?}");
            let len = half(4) as usize;
            let mut payload = vec![0; len.next_multiple_of(HEADER)];
            self.stream.read_exact(&mut payload).unwrap();
            payload.truncate(len);
            self.read += (HEADER + len.next_multiple_of(HEADER)) as u64;
            if ![PAD, CREDIT].contains(&header[0]) {
                return Record { kind: header[0], total: word(24), id: half(32), payload };
            }
        }
    }
}

/// What follows the version: the type of endpoint.
const CONNECTED_PORT: u16 = 0xfab2;
const HELLO: u64 = 0x6c66_6669_0000_0003;

fn greeting(hello: u64) -> Vec<u8> {
    [&hello.to_le_bytes()[..], &CONNECTED_PORT.to_le_bytes()].concat()
}

/// The other end of `with_socket`.
fn talk(to: SocketAddr) {
    let mut socket = Socket::connect(to);
    socket.send(GREETING, (0, 0), &greeting(HELLO));
    socket.send(REQUEST, (0, 0), b"a socket");
    let greeted = socket.next();
    assert_eq!((greeted.kind, greeted.payload), (GREETING, greeting(HELLO)));
    let accepted = socket.next();
    assert_eq!((accepted.kind, &*accepted.payload), (ACCEPT, &b"come in"[..]));

    socket.send(MESSAGE, (5, 0), b"hello");
    let echo = socket.next();
    assert_eq!((echo.kind, echo.total, &*echo.payload), (MESSAGE, 5, &b"hello"[..]));

    // One that is too long for a record: it is offered, asked for, and comes in pieces.
    let long: Vec<u8> = (0..90_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    socket.send(OFFER, (long.len() as u64, 77), &[]);
    let asked = socket.next();
    assert_eq!((asked.kind, asked.total, asked.id), (ASK, long.len() as u64, 77));
    for piece in long.chunks(MOST_PAYLOAD) {
        socket.send(PIECE, (0, 77), piece);
    }
    let in_place = socket.next();
    assert_eq!((in_place.kind, in_place.id), (ACKNOWLEDGE, 77));
    let offered = socket.next();
    assert_eq!((offered.kind, offered.total), (OFFER, long.len() as u64));
    socket.send(ASK, (offered.total, offered.id), &[]);
    let mut come = Vec::new();
    while come.len() < long.len() {
        let piece = socket.next();
        assert_eq!((piece.kind, piece.id), (PIECE, offered.id));
        come.extend(piece.payload);
    }
    assert!(come == long, "what came back is something else");
    socket.send(ACKNOWLEDGE, (0, offered.id), &[]);
    socket.send(SHUTDOWN, (0, 0), &[]);
    // The other side closes: the end of the stream, in order.
    let mut rest = Vec::new();
    socket.stream.read_to_end(&mut rest).unwrap();
}

/// What is wrong with it, and how it is said.
type Nonsense = (&'static str, fn(&mut Socket));

/// What no provider says, in its first record behind the greeting.
const NONSENSE: [Nonsense; 10] = [
    ("a record of no kind", |socket| socket.send(99, (0, 0), &[])),
    ("a record that is longer than a ring", |socket| socket.write_as(MESSAGE, u32::MAX, 0)),
    ("a record somewhere else", |socket| socket.write_as(MESSAGE, 0, 64)),
    ("a message of another length", |socket| socket.send(MESSAGE, (7, 0), b"eight by")),
    ("an offer with bytes", |socket| socket.send(OFFER, (70_000, 1), b"some")),
    ("a piece that nobody has asked for", |socket| socket.send(PIECE, (0, 1), b"some")),
    ("what is not offered is asked for", |socket| socket.send(ASK, (1, 1), &[])),
    ("it has read what was not written", |socket| {
        socket.read = 1 << 20;
        socket.send(CREDIT, (0, 0), &[]);
    }),
    ("a connection that was not asked for is taken", |socket| socket.send(ACCEPT, (0, 0), &[])),
    ("it greets once more", |socket| socket.send(GREETING, (0, 0), &greeting(HELLO))),
];

/// The connection ends.
fn expect_end(mut socket: Socket, what: &str) {
    let mut rest = Vec::new();
    let read = socket.stream.read_to_end(&mut rest);
    // Not where nothing comes for a long time.
    let is_over = read.map_or_else(|why| why.kind() == ErrorKind::ConnectionReset, |_| true);
    assert!(is_over, "{what}");
}

/// A case that is alone, at one end of a cable, and where it listens.
fn begin(cable: &VethPair, program: &Path, case: &str) -> (Child, BufReader<ChildStdout>, u16) {
    let own = adapter(&cable.a).to_string();
    let mut command = Command::new(program);
    command.args([OURS, case, &own, "-", &own]);
    command.env("FI_PROVIDER_PATH", provider_folder());
    over_qpip(cable, &mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cable.a.namespace.enter(|| command.spawn()).unwrap().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    match next_line(&mut said).parse() {
        Ok(port) => (child, said, port),
        Err(_) => panic!("{}", text(&finish(child, LIMIT))),
    }
}

#[test]
fn a_socket_of_the_kernel_speaks_with_a_program_of_libfabric() {
    require_namespaces!();
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let (child, _said, port) = begin(&cable, program, "with_socket");
    let to = SocketAddr::from((adapter(&cable.a), port));
    cable
        .b
        .namespace
        .enter(move || {
            // One of another version hears which version this is, and its end; nobody else does.
            let mut old = Socket::connect(to);
            old.send(GREETING, (0, 0), &greeting(HELLO - 1));
            let greeted = old.next();
            assert_eq!((greeted.kind, greeted.payload), (GREETING, greeting(HELLO)));
            expect_end(old, "another version");
            let mut other = Socket::connect(to);
            other.stream.write_all(&[b'?'; 200]).unwrap();
            expect_end(other, "something else");
            for (what, say) in NONSENSE {
                let mut socket = Socket::connect(to);
                socket.send(GREETING, (0, 0), &greeting(HELLO));
                say(&mut socket);
                expect_end(socket, what);
            }
            talk(to);
        })
        .unwrap();
    let output = finish(child, LIMIT);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_program_of_libfabric_connects_to_a_socket_of_the_kernel() {
    require_namespaces!();
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let there = cable.b.ipv4;
    let listener = cable.b.namespace.enter(|| TcpListener::bind((there, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut command = Command::new(program);
    command.args([OURS, "to_socket", &there.to_string(), "-", &there.to_string()]);
    command.env("FI_PROVIDER_PATH", provider_folder()).env("CASES_PEER_PORT", port.to_string());
    over_qpip(&cable, &mut command);
    let serving = thread::spawn(move || {
        let mut socket = Socket::over(listener.accept().unwrap().0);
        let greeted = socket.next();
        assert_eq!((greeted.kind, greeted.payload), (GREETING, greeting(HELLO)));
        socket.send(GREETING, (0, 0), &greeting(HELLO));
        let asked = socket.next();
        assert_eq!((asked.kind, &*asked.payload), (REQUEST, &b"a program"[..]));
        socket.send(ACCEPT, (0, 0), b"a socket");
        let message = socket.next();
        assert_eq!((message.kind, message.total), (MESSAGE, 1000));
        socket.send(MESSAGE, (message.total, 0), &message.payload);
        // Its end is behind the message, which is not lost.
        socket.stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        socket.stream.read_to_end(&mut rest).unwrap();
    });
    let output = cable.a.namespace.enter(move || run(command, LIMIT)).unwrap();
    assert!(output.status.success(), "{}", text(&output));
    serving.join().unwrap();
}

/// The one who listens has these settings, and who connects those.
fn check_other_carrier(listens_over_qpip: bool) {
    let program = or_skip!(program());
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let (a, b) = (&cable.a, &cable.b);
    let addresses: [IpAddr; 2] = match listens_over_qpip {
        true => [adapter(a).into(), b.ipv4.into()],
        false => [a.ipv4.into(), adapter(b).into()],
    };
    check_between([a, b], addresses, program, "other_carrier", |command| {
        over_qpip(&cable, command);
        let other =
            if listens_over_qpip { "SECOND_FI_LANDFALL_CARRIER" } else { "FI_LANDFALL_CARRIER" };
        command.env(other, "stp");
    });
}

#[test]
fn one_that_connects_by_qpip_to_a_peer_of_stp_is_told() {
    require_namespaces!();
    check_other_carrier(false);
}

#[test]
fn one_that_connects_by_stp_to_a_peer_of_qpip_is_told() {
    require_namespaces!();
    check_other_carrier(true);
}

/// Each rank has an address of its own, and what opens its adapter.
#[test]
fn ranks_on_two_hosts_exchange_all_kinds_of_messages_over_qpip() {
    require_namespaces!();
    let program = or_skip!(EXCHANGE.path());
    let machines = Machines::new();
    let [here, there] = machines.addresses();
    let cable = machines.cable();
    let set =
        |end: &VethEnd| settings(end).map(|(name, value)| format!("{name}={value}")).join(" ");
    let script = format!(
        "case $OMPI_COMM_WORLD_RANK in 0) export {};; *) export {};; esac; exec \"$0\"",
        set(&cable.a),
        set(&cable.b),
    );
    let mut command = mpirun(2);
    command.arg("--host").arg(format!("{here}:1,{there}:1"));
    command.args(["--mca", "plm_rsh_agent"]).arg(machines.agent());
    command.env("FI_LANDFALL_PLAINTEXT", "1");
    command.args(["-x", "FI_PROVIDER_PATH", "-x", "FI_LANDFALL_PLAINTEXT"]);
    command.args(["bash", "-c", &script]).arg(program);
    expect_all_well(&machines.run(command, mpi::LIMIT));
}

/// Settings that make no sense are refused, before anything is opened.
#[test]
fn settings_of_the_other_carrier_are_refused() {
    let program = or_skip!(program());
    let base = [
        ("FI_LANDFALL_CARRIER", "qpip"),
        ("FI_LANDFALL_QPIP_LINK", "packet:nothing"),
        ("FI_LANDFALL_QPIP_ADDRESS", "192.0.2.1/24"),
        ("FI_LANDFALL_PLAINTEXT", "1"),
    ];
    let key = "5a".repeat(32);
    let wrong = [
        ("FI_LANDFALL_CARRIER", "tcp", "stp or qpip is meant"),
        ("FI_LANDFALL_QPIP_LINK", "nothing", "is no link"),
        ("FI_LANDFALL_QPIP_ADDRESS", "192.0.2.1", "192.0.2.100/24"),
        ("FI_LANDFALL_PLAINTEXT", "0", "QPIP encrypts nothing"),
        ("FI_LANDFALL_KEY", &key, "leave one out"),
        ("FI_LANDFALL_RAILS", "eth1", "leave one out"),
        ("FI_LANDFALL_WINDOW", "96", "leave one out"),
    ];
    for (name, value, why) in wrong {
        let mut command = Command::new(program);
        command.args([OURS, "nobody_listens"]).envs(base).env(name, value);
        command.env("FI_PROVIDER_PATH", provider_folder()).env("FI_LOG_LEVEL", "warn");
        let output = run(command, LIMIT);
        let said = text(&output);
        assert!(!output.status.success() && said.contains(why), "{name}={value}: {said}");
    }
}
