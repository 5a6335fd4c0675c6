//! Peers that are no Landfall: raw packets over UDP on loopback, from somebody who
//! speaks the protocol, and from somebody else.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::{PORT, loopback};
use landfall::stp::blocking::{Connection, Endpoint, Listener};
use landfall::stp::{Config, Error, Memory, Peer, RemoteRights};
use landfall_testbed::offload::send_in_batches;
use stp_core::wire::message::{ClearToSend, Granted, Ids, Offer, Question, State};
use stp_core::wire::proof::{self, Secret, Secrets};
use stp_core::wire::{Envelope, HEADER_LEN, Header, LONGEST_HEAD, Message, Op, Reason};
use zerocopy::IntoBytes;

/// Nothing on loopback takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A peer of raw packets.
struct Raw {
    socket: UdpSocket,
    server: SocketAddr,
    envelope: Envelope,
    secrets: Secrets,
    ids: Ids,
}

impl Raw {
    /// Asks for a connection, and proves that it hears the answer.
    fn connect(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mine = Secret(0x5ec7e7);
        let envelope = Envelope { d_port: PORT, s_port: 50_000, d_key: 0 };
        let ids = Ids { d_id: 0, s_id: 7 };
        let mut raw = Self { socket, server, envelope, secrets: Secrets::default(), ids };
        let (version, max_stu, tail, buffer, slots) = (3, 13, 0, 21, 64);
        let (s_key, s_id, hello, secret) = (0x1000, ids.s_id, 0, mine);
        let offer = Offer { version, max_stu, tail, buffer, slots, s_key, s_id, hello, secret };
        raw.say(&Message::RequestConnection(offer));
        let given = raw.hear(|message| match message {
            Message::ConnectionAnswer { result, .. } => Some(result.unwrap()),
            _ => None,
        });
        raw.envelope.d_key = given.s_key;
        raw.ids.d_id = given.s_id;
        raw.secrets = Secrets { receiver: given.secret, sender: mine };
        raw.ask();
        raw
    }

    fn packet(&self, message: &Message) -> Vec<u8> {
        let mut head = [0; LONGEST_HEAD];
        let len = message.encode(self.envelope, &mut head).unwrap();
        proof::seal(&mut head[..len], self.secrets);
        head[..len].to_vec()
    }

    fn say(&self, message: &Message) {
        self.socket.send_to(&self.packet(message), self.server).unwrap();
    }

    /// What comes until this is found; questions are answered.
    fn hear<T>(&self, found: impl Fn(Message) -> Option<T>) -> T {
        let mut bytes = [0; 2048];
        loop {
            let (len, _) = self.socket.recv_from(&mut bytes).expect("an answer in time");
            let Ok((_, message)) = Message::decode(&bytes[..len]) else { continue };
            if let Message::RequestState(Question::Connection { token, .. }) = message {
                let answer = State::Connection { ids: self.ids, is_link: false, token };
                self.say(&Message::RequestStateResponse(answer));
            }
            if let Some(found) = found(message) {
                return found;
            }
        }
    }

    /// Asks whether the other side is alive, and waits for the answer.
    fn ask(&self) {
        let token = 0x700d;
        let question = Question::Connection { ids: self.ids, is_link: false, token };
        self.say(&Message::RequestState(question));
        self.hear(|message| match message {
            Message::RequestStateResponse(State::Connection { token: 0x700d, .. }) => Some(()),
            _ => None,
        });
    }
}

fn serve() -> (Endpoint, SocketAddr) {
    let server = Endpoint::bind(loopback()).unwrap();
    let Some(Peer::Socket(address)) = server.local() else { panic!("UDP has an address") };
    (server, address)
}

/// A Put, an abort and the word that all is over come at once, again and again: the
/// memory that was shown comes back each time, and with it the connection is over.
#[test]
fn memory_comes_back_from_a_peer_that_ends_all_at_once() {
    let (server, address) = serve();
    let listener = server.listen(PORT).unwrap();
    for _ in 0..20 {
        let peer = std::thread::spawn(move || {
            let raw = Raw::connect(address);
            let (len, name, rights) = (4096, 1, 7);
            raw.say(&Message::RequestMemoryRegion { s_id: 3, serial: 0, len, name, rights });
            let handle = raw.hear(|message| match message {
                Message::MemoryRegionAvailable { result, .. } => Some(result.unwrap().handle),
                _ => None,
            });
            // All three in one batch: a driver places each before it tells of any.
            const DATAGRAM: usize = HEADER_LEN + 6;
            let put = Message::Put {
                serial: 0,
                handle,
                at: 0,
                len: 6,
                wants_answer: false,
                wants_notice: false,
                is_void: false,
                overtakes: 0,
                behind: 0,
            };
            let abort = Message::RequestDisconnect { ids: raw.ids, abort: Some(Reason::Cancelled) };
            let complete = Message::DisconnectComplete { ids: raw.ids };
            let batch = [put, abort, complete].map(|message| {
                let mut packet = raw.packet(&message);
                packet.resize(DATAGRAM, b'A');
                packet
            });
            send_in_batches(&raw.socket, DATAGRAM as u16).unwrap();
            raw.socket.send_to(&batch.concat(), raw.server).unwrap();
        });
        let connection = listener.accept_within(PATIENCE).unwrap().expect("a connection");
        let region = server.register(Memory::zeroed(4096)).unwrap();
        let exposed = connection.region_request().unwrap();
        let exposed = exposed.expose(&region.whole(), RemoteRights::ALL).unwrap();
        let ended = connection.closed();
        assert!(matches!(ended, Err(Error::Closed { why: Some(_) })), "{ended:?}");
        peer.join().unwrap();
        drop(exposed);
        let (tell, told) = std::sync::mpsc::channel();
        let endpoint = server.clone();
        std::thread::spawn(move || {
            tell.send(endpoint.take_back(region).map(|memory| memory.len()))
        });
        let len = told.recv_timeout(PATIENCE).expect("the memory comes back").unwrap();
        assert_eq!(len, 4096);
    }
}

/// Somebody at another address knows the key. It can neither join nor abort; who the
/// connection belongs to can do both, and goes on until then.
#[test]
fn a_stranger_with_the_key_neither_joins_nor_aborts() {
    let (server, address) = serve();
    let listener = server.listen(PORT).unwrap();
    let raw = Raw::connect(address);
    let connection = listener.accept_within(PATIENCE).unwrap().expect("a connection");
    let link = Question::Connection { ids: raw.ids, is_link: true, token: 0x4242 };
    let link = Message::RequestState(link);
    let abort = Message::RequestDisconnect { ids: raw.ids, abort: Some(Reason::Cancelled) };
    // The key and all that the headers say, and no secret.
    let own = Raw::connect(address);
    let own_end = listener.accept_within(PATIENCE).unwrap().expect("a connection");
    let guess = Secrets { receiver: own.secrets.receiver, sender: raw.secrets.sender };
    let (socket, envelope) = (own.socket.try_clone().unwrap(), raw.envelope);
    let (server_address, ids) = (address, raw.ids);
    let stranger = Raw { socket, server: server_address, envelope, secrets: guess, ids };
    for _ in 0..10 {
        stranger.say(&link);
        stranger.say(&abort);
    }
    // What the owner said, repeated from elsewhere: one challenge for each.
    let overheard = raw.packet(&link);
    for _ in 0..10 {
        stranger.socket.send_to(&overheard, address).unwrap();
        let token = stranger.hear(|message| match message {
            Message::RequestStateResponse(State::Connection { is_link: true, token, .. }) => {
                Some(token)
            }
            _ => None,
        });
        let again = Question::Connection { ids, is_link: true, token };
        stranger.say(&Message::RequestState(again));
        stranger.socket.send_to(&raw.packet(&abort), address).unwrap();
    }
    own.ask();
    raw.ask();
    assert_eq!(connection.links().len(), 1);
    // The owner at a second address: asked to prove that it hears there, it does.
    let second = UdpSocket::bind("127.0.0.1:0").unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    let Raw { server, envelope, secrets, ids, .. } = raw;
    let second = Raw { socket: second, server, envelope, secrets, ids };
    second.say(&link);
    let token = second.hear(|message| match message {
        Message::RequestStateResponse(State::Connection { is_link: true, token, .. }) => {
            Some(token)
        }
        _ => None,
    });
    let again = Question::Connection { ids, is_link: true, token };
    second.say(&Message::RequestState(again));
    second.hear(|message| match message {
        Message::RequestStateResponse(State::Connection { is_link: false, .. }) => Some(()),
        _ => None,
    });
    assert_eq!(connection.links().len(), 2);
    second.say(&abort);
    // Its owner aborts it, from either address.
    let ended = connection.closed();
    assert!(matches!(ended, Err(Error::Closed { why: Some(_) })), "{ended:?}");
    own.ask();
    assert_eq!(own_end.links().len(), 1, "the stranger's own one is left alone");
}

/// A thousand peers ask to send, are granted something, and say nothing more: others are
/// served as if they were not there, and their window is not used up.
#[test]
fn a_thousand_silent_peers_hold_up_nobody() {
    const SILENT: usize = 1_000;
    let config = Config {
        connections: 4_096,
        links: 4_096,
        receives: 4_096,
        blocks: 4_096,
        ..Config::default()
    };
    let window = config.window;
    let server = landfall::stp::Endpoint::builder().path(loopback()).config(config).bind().unwrap();
    let Some(Peer::Socket(at)) = server.local() else { panic!("UDP has an address") };
    let server = Endpoint::from(server);
    let listener = server.listen(PORT).unwrap();
    let mut kept = Vec::new();
    for _ in 0..SILENT {
        let raw = Raw::connect(at);
        let connection = listener.accept_within(PATIENCE).unwrap().expect("it came in");
        let receiving = connection.receive(Memory::zeroed(1 << 20)).start();
        raw.offer(1 << 20);
        kept.push((raw, connection, receiving));
    }
    let client = Endpoint::bind(loopback()).unwrap();
    let here = client.connect(at, PORT).unwrap();
    let there = listener.accept_within(PATIENCE).unwrap().expect("it came in");
    let bytes = landfall_testkit::trials::noise(5, 10 << 20);
    for _ in 0..5 {
        let sending = here.send(bytes.clone()).start();
        let message = there.receive(Memory::zeroed(bytes.len())).wait().unwrap();
        assert!(*message == bytes);
        sending.wait().unwrap();
    }
    let granted = server.stats().granted_bytes;
    assert!(granted <= window, "{granted} bytes count as granted");
    drop(kept);
}

impl Raw {
    /// Offers a Transfer.
    fn offer(&self, len: u64) {
        let (s_id, serial, max_block) = (3, 0, 21);
        let (opaque, answers, is_eager) = (0, None, false);
        let offer =
            Message::RequestToSend { s_id, serial, len, max_block, opaque, answers, is_eager };
        self.say(&offer);
    }

    /// Sends an STU of a grant, counted from where that begins, of this many bytes.
    fn data(&self, granted: &ClearToSend, stu: u32, len: usize) {
        let header = Header {
            op: Op::Data as u8,
            d_port: self.envelope.d_port.into(),
            s_port: self.envelope.s_port.into(),
            d_key: self.envelope.d_key.into(),
            sync: granted.sync.into(),
            b_num: granted.block.into(),
            bufx: granted.bufx.into(),
            offset: (granted.offset + stu * u32::from(granted.stu)).into(),
            d_id: granted.ids.s_id.into(),
            ..Header::default()
        };
        let mut packet = header.as_bytes().to_vec();
        packet.resize(HEADER_LEN + len, b'S');
        self.socket.send_to(&packet, self.server).unwrap();
    }

    /// Offers a Transfer, sends half of what is granted of it first, and stops.
    fn send_and_stop(&self, len: u64) {
        self.offer(len);
        let (granted, count) = self.hear(|message| match message {
            Message::ClearToSend(granted) => match granted.granted {
                Granted::Next { count, .. } => Some((granted, count)),
                Granted::Again(_) => None,
            },
            _ => None,
        });
        for stu in 0..u32::from(count.div_ceil(2)) {
            self.data(&granted, stu, granted.stu.into());
        }
    }
}

/// A peer that sends one packet of its Transfer each time that it is told to.
struct Slow {
    raw: Raw,
    /// What it may send: STUs of a grant.
    granted: VecDeque<(ClearToSend, u32)>,
    is_complete: bool,
}

impl Slow {
    const STUS: u64 = 6;
    const STU: u64 = 8_192;

    fn new(raw: Raw) -> Self {
        raw.offer(Self::STUS * Self::STU);
        raw.socket.set_nonblocking(true).unwrap();
        Self { raw, granted: VecDeque::new(), is_complete: false }
    }

    /// Hears what came, and sends one packet.
    fn step(&mut self) {
        let mut bytes = [0; 2048];
        while let Ok((len, _)) = self.raw.socket.recv_from(&mut bytes) {
            match Message::decode(&bytes[..len]) {
                Ok((_, Message::ClearToSend(granted))) => self.note(&granted),
                Ok((_, Message::RequestState(Question::Connection { token, .. }))) => {
                    let ids = self.raw.ids;
                    let answer = State::Connection { ids, is_link: false, token };
                    self.raw.say(&Message::RequestStateResponse(answer));
                }
                Ok((_, Message::RequestStateResponse(State::Transfer { is_complete, .. }))) => {
                    self.is_complete |= is_complete;
                }
                _ => {}
            }
        }
        if let Some((granted, stu)) = self.granted.pop_front() {
            self.raw.data(&granted, stu, granted.stu.into());
        }
    }

    fn note(&mut self, granted: &ClearToSend) {
        match granted.granted {
            Granted::Next { count, .. } => {
                self.granted.extend((0..u32::from(count)).map(|stu| (*granted, stu)));
            }
            Granted::Again(bits) => {
                let missing = (0..64).filter(|stu| bits >> stu & 1 == 1);
                // What was granted before has another mark by now.
                self.granted = missing.map(|stu| (*granted, stu)).collect();
            }
        }
    }
}

/// A server with room for very many peers, and a connection with one that behaves.
struct ServerWithManyPeers {
    server: Endpoint,
    at: SocketAddr,
    window: u64,
    client: Endpoint,
    listener: Listener,
    here: Connection,
    there: Connection,
}

impl ServerWithManyPeers {
    fn new() -> Self {
        let many = 4_096;
        let config = Config {
            connections: many,
            half_open: many,
            links: many,
            receives: many,
            blocks: many,
            ..Config::default()
        };
        // The first ones say nothing until the last has come, which takes long where others work.
        let config = config.patient_for(PATIENCE);
        let window = config.window;
        let server =
            landfall::stp::Endpoint::builder().path(loopback()).config(config).bind().unwrap();
        let Some(Peer::Socket(at)) = server.local() else { panic!("UDP has an address") };
        let server = Endpoint::from(server);
        let listener = server.listen(PORT).unwrap();
        let client = Endpoint::bind(loopback()).unwrap();
        let here = client.connect(at, PORT).unwrap();
        let there = listener.accept_within(PATIENCE).unwrap().expect("it came in");
        Self { server, at, window, client, listener, here, there }
    }
}

/// A thousand peers: some say nothing, some stop in the midst, some are slow. Others complete
/// Transfer after Transfer while those that are slow get one packet out, and these complete
/// theirs too.
#[test]
fn a_thousand_peers_of_all_kinds_hold_up_nobody() {
    const EACH: usize = 333;
    // What gets lost is granted again by timers, each later than the one before.
    const LIMIT: Duration = Duration::from_secs(120);
    let ServerWithManyPeers { server, at, window, here, there, client: _client, listener } =
        ServerWithManyPeers::new();
    let bytes = landfall_testkit::trials::noise(5, 2 << 20);
    let exchange = || {
        let sending = here.send(bytes.clone()).start();
        let message = there.receive(Memory::zeroed(bytes.len())).wait().unwrap();
        assert!(*message == bytes);
        sending.wait().unwrap();
    };
    exchange();
    let (mut kept, mut slow) = (Vec::new(), Vec::new());
    for nth in 0..3 * EACH {
        let raw = Raw::connect(at);
        let connection = listener.accept_within(PATIENCE).unwrap().expect("it came in");
        let receiving = connection.receive(Memory::zeroed(1 << 20)).start();
        if nth % 3 == 0 {
            slow.push(Slow::new(raw));
            kept.push((None, connection, receiving));
            continue;
        }
        match nth % 3 {
            1 => raw.offer(1 << 20),
            _ => raw.send_and_stop(1 << 20),
        }
        // Its socket stays open: another with its address would be it again.
        kept.push((Some(raw), connection, receiving));
    }
    let (mut rounds, began) = (0, Instant::now());
    while slow.iter().any(|peer| !peer.is_complete) {
        rounds += 1;
        let left = slow.iter().filter(|peer| !peer.is_complete).count();
        assert!(began.elapsed() < LIMIT, "{left} of {EACH} slow peers are not done");
        slow.iter_mut().filter(|peer| !peer.is_complete).for_each(Slow::step);
        exchange();
    }
    let stats = server.stats();
    assert!(stats.granted_bytes <= window, "{} bytes count as granted", stats.granted_bytes);
    assert!(stats.engine.bytes_unused > 0, "{:?}", stats.engine);
    println!("{EACH} slow peers were done in {rounds} rounds");
}

/// Peers send a part of a Transfer each, and stop: others are served as if
/// they were not there. By hand with more of them: `LANDFALL_STOPPED_PEERS=1000`, and
/// `--nocapture` shows the rates.
#[test]
fn peers_that_stop_hold_up_nobody() {
    const ROUNDS: u32 = 8;
    let asked = std::env::var("LANDFALL_STOPPED_PEERS").ok().and_then(|n| n.parse().ok());
    let stopped: usize = asked.unwrap_or(50);
    let ServerWithManyPeers { server, at, window, here, there, client: _client, listener } =
        ServerWithManyPeers::new();
    let bytes = landfall_testkit::trials::noise(5, 10 << 20);
    let exchange = || {
        let began = Instant::now();
        for _ in 0..ROUNDS {
            let sending = here.send(bytes.clone()).start();
            let message = there.receive(Memory::zeroed(bytes.len())).wait().unwrap();
            assert!(*message == bytes);
            sending.wait().unwrap();
        }
        f64::from(ROUNDS) * bytes.len() as f64 / 1e6 / began.elapsed().as_secs_f64()
    };
    exchange();
    let alone = exchange();
    let mut kept = Vec::new();
    for _ in 0..stopped {
        let raw = Raw::connect(at);
        let connection = listener.accept_within(PATIENCE).unwrap().expect("it came in");
        let receiving = connection.receive(Memory::zeroed(1 << 20)).start();
        kept.push((raw, connection, receiving));
    }
    for (raw, ..) in &kept {
        raw.send_and_stop(1 << 20);
    }
    let beside = exchange();
    eprintln!("{alone:.0} MB/s alone, {beside:.0} MB/s beside {stopped} that stopped");
    let stats = server.stats();
    assert!(stats.granted_bytes <= window, "{} bytes count as granted", stats.granted_bytes);
    assert!(stats.engine.bytes_unused > 0, "{:?}", stats.engine);
}
