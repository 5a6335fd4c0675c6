//! Two hosts, which are network namespaces with a cable between them, and a carrier on each.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use landfall::stp::{Config, Endpoint, Transport};
use landfall_seal::{Handshake as _, Noise, NoiseConfig, Role, Secret, Seed, Suite};
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair};
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Ring, RingConfig};
use sockets_compat::{StpHost, StpOptions, StpStream, StpStreamListener};

use crate::test_folder::{Running, TestFolder};

/// The port of UDP of all carriers.
pub(crate) const CARRIERS: u16 = 8183;
/// Where servers listen; nobody else is in these networks.
pub(crate) const PORT: u16 = 8000;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Here,
    There,
}

pub(crate) struct Hosts {
    pub(crate) ground: TestFolder,
    pub(crate) way: &'static str,
    pair: VethPair,
    /// Of the one here, and of the one there.
    addresses: [IpAddr; 2],
}

impl Hosts {
    /// Without carriers yet; programs follow the rule that all goes this way.
    pub(crate) fn new(way: &'static str) -> Self {
        Self::with_addresses(way, |end| end.ipv4.into())
    }

    fn with_addresses(way: &'static str, address: fn(&VethEnd) -> IpAddr) -> Self {
        let ground = TestFolder::new();
        ground.follow(way);
        for key in ["key", "another-key"] {
            let path = ground.write(key, format!("{key} of some length").as_bytes());
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("its mode");
        }
        let pair = VethPair::new(VethConfig::default()).expect("two hosts");
        let addresses = [address(&pair.a), address(&pair.b)];
        Self { ground, way, pair, addresses }
    }

    /// Both with a carrier.
    pub(crate) fn with_carriers(way: &'static str) -> (Self, [Running; 2]) {
        Self::new(way).and_carriers()
    }

    /// The same where hosts have addresses of IPv6.
    pub(crate) fn with_carriers_by_ipv6(way: &'static str) -> (Self, [Running; 2]) {
        Self::with_addresses(way, |end| end.ipv6.into()).and_carriers()
    }

    fn and_carriers(self) -> (Self, [Running; 2]) {
        let carriers = [Host::Here, Host::There].map(|host| self.carry(host, "key"));
        (self, carriers)
    }

    fn namespace(&self, host: Host) -> &Namespace {
        match host {
            Host::Here => &self.pair.a.namespace,
            Host::There => &self.pair.b.namespace,
        }
    }

    pub(crate) fn address(&self, host: Host) -> IpAddr {
        match host {
            Host::Here => self.addresses[0],
            Host::There => self.addresses[1],
        }
    }

    /// What a thread of that host does.
    pub(crate) fn on<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> T {
        self.namespace(host).enter(work).expect("the namespace can be entered")
    }

    pub(crate) fn carry(&self, host: Host, key: &str) -> Running {
        self.carry_told(host, key, "")
    }

    /// The same, where the operator has said more.
    pub(crate) fn carry_told(&self, host: Host, key: &str, more: &str) -> Running {
        let other = if host == Host::Here { Host::There } else { Host::Here };
        let said = carriers_orders(self.way, self.address(host), self.address(other), &{
            self.ground.path(key)
        });
        let said = format!("{said}\n{more}");
        let mut carrier = self
            .on(host, || self.ground.start_told(true, "true", &[], &[("LANDFALL_CARRY", &said)]));
        carrier.until_it_says("carries by");
        carrier
    }

    /// What is on the cable while this runs.
    pub(crate) fn overhear<T: Send>(&self, work: impl FnOnce() -> T + Send) -> (T, Vec<Vec<u8>>) {
        let config = RingConfig::new(&*self.pair.b.name, Filter::any());
        let regions = Regions::new(8);
        let opened = self.on(Host::There, || Ring::open(&config, &regions));
        let mut ring = opened.expect("root hears all");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let listens = scope.spawn(|| {
                let mut frames = Vec::new();
                let mut rests = 0;
                // Blocks that are not full are handed over after a while.
                while rests < 20 {
                    if let Some(block) = ring.next_block() {
                        frames.extend(block.frames().map(|frame| frame.bytes.to_vec()));
                    } else {
                        rests = if is_over.load(Ordering::Acquire) { rests + 1 } else { 0 };
                        thread::sleep(Duration::from_millis(5));
                    }
                }
                frames
            });
            let result = work();
            is_over.store(true, Ordering::Release);
            (result, listens.join().expect("it listens"))
        })
    }

    /// Waits until there is memory for two connections whose names begin so, and exchanges
    /// the names, as a third of the same user may.
    pub(crate) fn exchange_memory(&self, host: Host, beginning: &str) {
        // Names of memory for the carrier begin so, and then with a number as all others do.
        const TO_THE_CARRIER: &str = "to-";
        let folder = self.on(host, folder_of_this_network);
        let names = || -> Vec<PathBuf> {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let names = entries.filter(|entry| {
                let name = entry.file_name();
                let rest = name.to_str().and_then(|name| name.strip_prefix(beginning));
                let is_offer = |rest: &str| rest.len() == 72 && !rest.starts_with(TO_THE_CARRIER);
                rest.is_some_and(is_offer)
            });
            names.map(|entry| entry.path()).collect()
        };
        self.ground.until(|| names().len() == 2);
        let (names, aside) = (names(), folder.join("aside"));
        let moves = [(&names[0], &aside), (&names[1], &names[0]), (&aside, &names[1])];
        for (from, to) in moves {
            fs::rename(from, to).expect("its own files");
        }
    }

    pub(crate) fn start(&self, host: Host, program: &str, arguments: &[&str]) -> Running {
        self.on(host, || self.ground.start(true, program, arguments))
    }

    /// Starts a server, and waits until it listens.
    pub(crate) fn serve(&self, host: Host, program: &str, arguments: &[&str]) -> Running {
        let running = self.start(host, program, arguments);
        self.on(host, || self.ground.wait_for_listener(PORT));
        running
    }

    /// Runs a client; what it said.
    pub(crate) fn run(&self, host: Host, program: &str, arguments: &[&str]) -> Vec<u8> {
        self.start(host, program, arguments).output()
    }

    /// How each connection went, as both its ends say in the log.
    pub(crate) fn verdicts(&self) -> Vec<String> {
        let log = self.ground.log();
        let ends =
            log.lines().filter(|line| line.contains("] calls ") || line.contains("] is called"));
        ends.filter_map(|line| line.rsplit_once(": ")?.0.rsplit_once(": ").map(|(_, way)| way))
            .map(str::to_owned)
            .collect()
    }

    /// Does it again until all went the way of the rule: who is done before both ends have
    /// found each other has had TCP.
    pub(crate) fn until_carried(&self, mut work: impl FnMut()) {
        for _ in 0..50 {
            self.ground.forget_log();
            work();
            if self.are_carried() {
                return;
            }
        }
        self.expect_carried();
    }

    /// Whether all went the way of the rule, at both ends.
    pub(crate) fn are_carried(&self) -> bool {
        let verdicts = self.verdicts();
        verdicts.len() >= 2 && verdicts.iter().all(|way| way == self.way)
    }

    pub(crate) fn expect_carried(&self) {
        assert!(self.are_carried(), "{}", self.ground.log());
    }
}

/// Where programs of this user and of this thread's network find each other.
fn folder_of_this_network() -> PathBuf {
    let network = fs::metadata("/proc/thread-self/ns/net").expect("a thread has a network").ino();
    let end = format!("-{:08x}", network as u32);
    let me = fs::metadata("/proc/self").expect("there is a process").uid();
    let folders = fs::read_dir("/dev/shm").expect("there is shared memory").flatten();
    let is_it = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.contains("landfall-sockets-")
            && name.ends_with(&end)
            && fs::metadata(path).is_ok_and(|folder| folder.uid() == me)
    };
    folders.map(|folder| folder.path()).find(is_it).expect("a carrier has made it")
}

/// What a carrier is told by `landfall carry`.
pub(crate) fn carriers_orders(way: &str, own: IpAddr, other: IpAddr, key: &str) -> String {
    let at = |host| SocketAddr::new(host, CARRIERS);
    format!("over={way}\nlisten={}\npeer={}\nkey={key}", at(own), at(other))
}

// The carrier of another host as it should not be: it has the key, takes each connection, and
// then says whatever it likes.

const MAGIC: &[u8; 8] = b"LFcarry3";
/// A frame without what follows it, and the name of a connection, which follows one that opens
/// it: address and port of both ends.
const HEAD: usize = 16;
const NAME: usize = 36;
const PATIENCE: Duration = Duration::from_secs(60);

/// What the key of carriers is made of.
pub(crate) const SECRET: &[u8] = b"key of some length";

fn key_of(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("landfall 2026-11 between the carriers of two hosts", secret)
}

/// Sockets over STP that is encrypted as between carriers which have this secret.
pub(crate) fn sockets_of_carriers(at: SocketAddr, secret: &[u8]) -> StpHost {
    let context = "landfall 2026-11 encryption between two carriers";
    let key = blake3::derive_key(context, &key_of(secret));
    let builder = Endpoint::builder().path(Transport::udp(at)).config(Config::shared_network());
    let endpoint = builder.preshared_key(key).bind().expect("the port is free");
    StpHost::new(endpoint, StpOptions::default())
}

pub(crate) struct FalsePeer {
    _host: StpHost,
    listener: StpStreamListener,
    key: [u8; 32],
    /// The link that there is.
    link: Mutex<Option<StpStream>>,
}

impl FalsePeer {
    /// To be called on its host.
    pub(crate) fn new(address: IpAddr, secret: &[u8]) -> Self {
        let host = sockets_of_carriers(SocketAddr::new(address, CARRIERS), secret);
        let listener = host.listen_streams(118).expect("nobody listens there");
        Self { _host: host, listener, key: key_of(secret), link: Mutex::default() }
    }

    /// Takes the next connection that is offered, and says so much of it. If that is the end
    /// of the link, hears whether the other carrier has had enough.
    pub(crate) fn says(&self, nonsense: impl FnOnce(u32) -> Vec<u8>, ends_the_link: bool) {
        let mut link = self.link.lock().expect("no test has failed before");
        let stream = link.get_or_insert_with(|| {
            let (mut stream, _) = self.listener.accept().expect("the other carrier calls");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time");
            self.greets(&mut stream);
            stream
        });
        let connection = next_opened(stream);
        let opened = frame(2, connection, 1, 0);
        stream.write_all(&opened).expect("it listens");
        let nonsense = nonsense(connection);
        if !nonsense.is_empty() {
            // It may have gone before all of it was said.
            let _ = stream.write_all(&nonsense);
        }
        if ends_the_link && let Some(mut stream) = link.take() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut said = Vec::new();
            if let Err(why) = stream.read_to_end(&mut said) {
                assert_ne!(why.kind(), std::io::ErrorKind::WouldBlock, "it goes on: {said:?}");
            }
        }
    }

    fn greets(&self, stream: &mut StpStream) {
        let mut hello = [0; 56];
        stream.read_exact(&mut hello).expect("it says what it is");
        let (magic, message) = hello.split_at(MAGIC.len());
        assert_eq!(magic, MAGIC);
        let key = blake3::derive_key("landfall 2026-11 greeting of two carriers", &self.key);
        let (key, seed) = (NoiseConfig::PresharedKey(&Secret::new(key)), Seed::new([7; 32]));
        let mut noise = Noise::new(&key, Role::Responder, MAGIC, Suite::Aes128Gcm, seed);
        noise.handle_message(message).expect("it has the key");
        stream.write_all(&noise.poll_message().expect("an answer")).expect("it listens");
        stream.read_exact(&mut [0; 32]).expect("it proves that it has the key");
        stream.write_all(&[1]).expect("it is told that it is welcome");
    }
}

/// Reads frames up to one that opens a connection; its number.
fn next_opened(stream: &mut StpStream) -> u32 {
    loop {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head).expect("it tells of a connection");
        let small = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        let has_tail = matches!(head[0], 1 | 6);
        stream.read_exact(&mut vec![0; if has_tail { small } else { 0 }]).expect("what follows");
        if head[0] == 1 {
            assert_eq!(small, NAME);
            return u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        }
    }
}

/// Something that carriers tell: what it is, of which connection, and two numbers.
pub(crate) fn frame(kind: u8, connection: u32, small: u32, large: u64) -> Vec<u8> {
    let mut head = small.to_be_bytes();
    head[0] = kind;
    [&head[..], &connection.to_be_bytes(), &large.to_be_bytes()].concat()
}
