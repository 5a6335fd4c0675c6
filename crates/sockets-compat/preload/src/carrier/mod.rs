//! The carrier of a host: takes what programs say to other hosts there, and brings what
//! programs there say.
//!
//! It is a process that an operator starts (`landfall carry`), for one user and one network
//! namespace, with this library in it, so that the layout of the memory is one thing. A
//! program that calls another host offers memory as it does within a host, and leaves a
//! note at the [`Desk`]. The carrier takes the other end of that memory, calls the
//! carrier of the other host, and that one makes such a memory for the program there. From
//! then on a `line` keeps the two alike: what is put into one is put into the other, and so
//! are the words that say who is there, who has changed its way and what has ended.
//!
//! | module | what it is |
//! | --- | --- |
//! | `wire` | what is said on such a stream, and how two carriers know that they have the same key; streams between carriers, by STP or by queue pairs |
//! | `line` | one connection: a thread for each way |
//!
//! Who is killed takes its connections with it: programs see that their carrier is gone,
//! the other carrier that nothing is heard any more ([`crate::far`]).
//!
//! A [`Desk`] is a socket beside the memory that programs of this host offer. A note that
//! they leave there is the name of a connection; all else is in its memory. Who may leave one
//! may enter the folder, which is proven to belong to this user alone ([`crate::folder`]); and
//! as whoever may do so can name any connection, the carrier asks the kernel before it takes one.
//!
//! What the operator has said: one word and its value in each line.
//!
//! `landfall carry` writes these lines out of its options, and this reads them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::exit;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use landfall_socket_rules::Way;
use line::{Line, Mapping};
use wire::{Road, Roads, Welcome};

use crate::connection::{ELSEWHERE, Offer, make};
use crate::far::Answer;
use crate::folder::Folder;
use crate::log::Verdict;
use crate::registry::Name;
use crate::segment::Side;
use crate::witness::{ANY, Doubt, Known, Witness};
use crate::{far, kernel, log, registry};

mod line;
mod wire;

/// What the operator has said, if this process shall be a carrier.
pub(crate) fn asked_for() -> Option<String> {
    std::env::var("LANDFALL_CARRY").ok().filter(|text| !text.is_empty())
}

/// Carries until the process is ended.
pub(crate) fn run(text: &str) -> ! {
    let why = match Carrier::begin(text) {
        Ok(carrier) => carrier.work(),
        Err(why) => why,
    };
    eprintln!("landfall: cannot carry: {why}");
    exit(1)
}

struct Carrier {
    config: Config,
    roads: Roads,
    desk: Desk,
    /// Connections that it carries, or is about to.
    taken: AtomicUsize,
    /// Hosts where nobody answered, and when that was.
    silent: Mutex<Vec<(IpAddr, Instant)>>,
}

/// One of the connections that may be carried at a time; given back when it is over.
struct Turn(Arc<Carrier>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Carrier {
    fn begin(text: &str) -> io::Result<Arc<Self>> {
        let config: Config = text.parse().map_err(io::Error::other)?;
        let desk = Desk::open(config.over)?;
        desk.is_cleared_at_the_end()?;
        let roads = Roads::open(&config)?;
        Ok(Arc::new(Self {
            config,
            roads,
            desk,
            taken: AtomicUsize::new(0),
            silent: Mutex::default(),
        }))
    }

    fn work(self: Arc<Self>) -> io::Error {
        let (way, at) = (self.config.over.word(), self.config.listen);
        let host = Arc::clone(&self);
        let started = thread::Builder::new().name("accept".into()).spawn(move || {
            loop {
                host.accept();
            }
        });
        if let Err(why) = started {
            return why;
        }
        println!("carries by {way} at {at}, at most {} connections", self.config.most);
        loop {
            match self.desk.next() {
                Ok(Some(name)) => self.calls(name),
                Ok(None) => {}
                Err(why) => return why,
            }
        }
    }

    fn turn(self: &Arc<Self>) -> Option<Turn> {
        let turn = Turn(Arc::clone(self));
        (self.taken.fetch_add(1, Ordering::AcqRel) < self.config.most).then_some(turn)
    }

    /// A program of this host has left a note.
    fn calls(self: &Arc<Self>, name: Name) {
        let name = name.for_the_carrier();
        let memory = match self.takes(&name) {
            Ok(memory) => memory,
            Err(why) => return tell(&name, format_args!("is not taken: {why}")),
        };
        let far = memory.far();
        let Some(turn) = self.turn() else {
            return say_no(&name, &memory, Answer::Full);
        };
        let memory = Arc::new(memory);
        let for_thread = Arc::clone(&memory);
        let started =
            thread::Builder::new().name("line".into()).spawn(move || match turn.0.reaches(&name) {
                Ok(road) => {
                    for_thread.far().verdict.store(Answer::Offered as u32, Ordering::Release);
                    carry(for_thread, Side::Connector, name, road);
                }
                Err(answer) => say_no(&name, &for_thread, answer),
            });
        if started.is_err() {
            far.verdict.store(Answer::Full as u32, Ordering::Release);
        }
    }

    /// The memory that a program offers, if it is for this carrier, and of the socket that
    /// the kernel knows at that end of the connection: a note may name any.
    fn takes(&self, name: &Name) -> Result<Mapping, Verdict> {
        let offer = Offer::find(name, Side::Acceptor)?;
        let far = offer.far();
        if far.way() != Some(self.config.over) {
            return Err(Verdict::NoOffer);
        }
        let witness = witness()?;
        let connector = offer.end(Side::Connector);
        witness.vouches(name, Side::Connector, connector).map_err(Verdict::Doubtful)?;
        let acceptor = offer.end(Side::Acceptor);
        let own = kernel::process();
        far.carrier
            .compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Verdict::NoOffer)?;
        witness.introduces(acceptor);
        acceptor.cookie.store(ELSEWHERE, Ordering::Release);
        Ok(Mapping::of(offer.keep()))
    }

    /// Calls the carrier of the other host.
    fn reaches(&self, name: &Name) -> Result<Road, Answer> {
        let host = name.acceptor.socket_address().ip();
        if self.was_silent(host) {
            return Err(Answer::Unreached);
        }
        let road = self.roads.connect(host).map_err(|why| {
            log::say(format_args!("no carrier at {host}: {why}"));
            self.silent_since(host);
            Answer::Unreached
        })?;
        match wire::call(&road, &self.config.key, name) {
            Ok(Welcome::Yes) => Ok(road),
            Ok(Welcome::No) => Err(Answer::Refused),
            Err(why) => {
                log::say(format_args!("the carrier at {host} is not understood: {why}"));
                Err(Answer::Refused)
            }
        }
    }

    /// Whether nobody answered there a moment ago: then nobody is asked for a while.
    fn was_silent(&self, host: IpAddr) -> bool {
        const A_WHILE: Duration = Duration::from_secs(5);
        let mut silent = self.silent();
        silent.retain(|(_, since)| since.elapsed() < A_WHILE);
        silent.iter().any(|(known, _)| *known == host)
    }

    fn silent_since(&self, host: IpAddr) {
        self.silent().push((host, Instant::now()));
    }

    fn silent(&self) -> MutexGuard<'_, Vec<(IpAddr, Instant)>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another carrier calls.
    fn accept(self: &Arc<Self>) {
        const PAUSE: Duration = Duration::from_millis(100);
        let road = match self.roads.accept() {
            Ok(road) => road,
            Err(why) => {
                log::say(format_args!("nobody can be accepted: {why}"));
                return thread::sleep(PAUSE);
            }
        };
        let Some(turn) = self.turn() else { return };
        // Who cannot have a thread is dropped, and its carrier hears of that.
        let _ = thread::Builder::new().name("line".into()).spawn(move || {
            match turn.0.is_called(&road) {
                Ok(Some((name, memory))) => carry(Arc::new(memory), Side::Acceptor, name, road),
                Ok(None) => {}
                Err(why) => log::say(format_args!("a stranger is turned away: {why}")),
            }
        });
    }

    /// Makes memory for a program of this host, if there is such a connection.
    fn is_called(&self, road: &Road) -> io::Result<Option<(Name, Mapping)>> {
        let caller = wire::hear(road, &self.config.key)?;
        let name = caller.name;
        let made = match expected(&name) {
            Some(addressee) => self.offers(&name, addressee),
            None => Err(Verdict::Doubtful(Doubt::Gone)),
        };
        caller.answer(road, if made.is_ok() { Welcome::Yes } else { Welcome::No })?;
        match made {
            Ok(memory) => Ok(Some((name, memory))),
            Err(why) => {
                tell(&name, format_args!("is not offered here: {why}"));
                Ok(None)
            }
        }
    }

    /// Memory for the socket with this number, which the kernel knows as that end.
    fn offers(&self, name: &Name, addressee: u64) -> Result<Mapping, Verdict> {
        let witness = witness()?;
        let memory = Mapping::of(make(name)?);
        let connector = memory.end(Side::Connector);
        witness.introduces(connector);
        memory.identity().addressee.store(addressee, Ordering::Relaxed);
        connector.cookie.store(ELSEWHERE, Ordering::Relaxed);
        let far = memory.far();
        far.carrier.store(kernel::process(), Ordering::Relaxed);
        far.has_news();
        far.way.store(far::number_of(self.config.over), Ordering::Release);
        Ok(memory)
    }
}

fn witness() -> Result<Witness, Verdict> {
    Witness::open().map_err(|why| Verdict::Doubtful(Doubt::Silent(why)))
}

fn carry(memory: Arc<Mapping>, side: Side, name: Name, road: Road) {
    tell(&name, format_args!("is carried"));
    let how = Line::new(memory, side, name, road).run();
    match how {
        Ok(()) => tell(&name, format_args!("has ended")),
        Err(why) => log::say(format_args!("{}: is broken: {why}", words(&name))),
    }
}

fn say_no(name: &Name, memory: &Mapping, answer: Answer) {
    tell(name, format_args!("is left to TCP"));
    memory.far().verdict.store(answer as u32, Ordering::Release);
}

fn tell(name: &Name, what: fmt::Arguments<'_>) {
    log::say(format_args!("{}: {what}", words(name)));
}

fn words(name: &Name) -> String {
    format!("{} to {}", name.connector.socket_address(), name.acceptor.socket_address())
}

/// The number of the socket that is the accepting end of such a connection, if this host has
/// it and it is this user's. The kernel may hear of it a moment later than we do.
fn expected(name: &Name) -> Option<u64> {
    const PATIENCE: Duration = Duration::from_secs(3);
    const PAUSE: Duration = Duration::from_millis(20);
    let witness = Witness::open().ok()?;
    let begin = Instant::now();
    loop {
        let known = witness.end_of(name, Side::Acceptor, ANY, 0).ok().flatten();
        if let Some(end) = known.filter(Known::is_connected) {
            return (end.user == kernel::user()).then_some(end.cookie);
        }
        if begin.elapsed() > PATIENCE {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// An address as the roads want it.
fn of_host(host: IpAddr) -> IpAddr {
    host.to_canonical()
}

/// The socket; its name is taken away with it.
struct Desk {
    socket: UnixDatagram,
    /// By way of the folder, which stays open.
    path: PathBuf,
    _folder: Folder,
}

impl Desk {
    fn open(way: Way) -> io::Result<Self> {
        let folder = Folder::open_or_make().map_err(|why| io::Error::other(why.to_string()))?;
        let path = folder.path_of(registry::carrier(way).as_c_str().to_bytes());
        let path = PathBuf::from(OsStr::from_bytes(path.as_c_str().to_bytes()));
        if UnixDatagram::unbound()?.connect(&path).is_ok() {
            let text = format!("another carrier for {} is at work here", way.word());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        // Of one that was killed.
        let _ = std::fs::remove_file(&path);
        Ok(Self { socket: UnixDatagram::bind(&path)?, path, _folder: folder })
    }

    /// When the operator ends the process, the name is taken away. To be called before
    /// there is another thread: all that are started later leave these signals to one.
    fn is_cleared_at_the_end(&self) -> io::Result<()> {
        const ENDS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        // SAFETY: a set of ours; a set of zeros is a valid one.
        let ends = unsafe {
            let mut ends: libc::sigset_t = std::mem::zeroed();
            for signal in ENDS {
                libc::sigaddset(&raw mut ends, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ends, std::ptr::null_mut());
            ends
        };
        let path = self.path.clone();
        let wait = move || {
            let mut signal = 0;
            // SAFETY: the set from above, and a place for a number.
            while unsafe { libc::sigwait(&raw const ends, &raw mut signal) } != 0 {}
            let _ = std::fs::remove_file(path);
            std::process::exit(128 + signal)
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }

    /// The next connection that is offered; nothing where the note makes no sense.
    fn next(&self) -> io::Result<Option<Name>> {
        let mut note = [0; Name::LEN + 1];
        let len = self.socket.recv(&mut note)?;
        Ok(note[..len].try_into().ok().map(|bytes: &[u8; Name::LEN]| Name::from_bytes(bytes)))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// So long a file may be that holds a key.
const LONGEST_KEY: u64 = 64 * 1024;
/// A shorter key could be guessed.
const SHORTEST_KEY: usize = 16;

/// What a carrier is like.
struct Config {
    over: Way,
    /// Where other carriers reach it, by UDP.
    listen: SocketAddr,
    /// The port of UDP at which others are reached.
    port: u16,
    /// For queue pairs: all other carriers.
    peers: Vec<SocketAddr>,
    /// So many connections at a time.
    most: usize,
    key: [u8; 32],
}

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut over = None;
        let mut listen = None;
        let (mut port, mut peers, mut most, mut key) = (None, Vec::new(), 256, None);
        for line in text.lines() {
            let (word, value) = line.split_once('=').ok_or_else(|| format!("`{line}`"))?;
            let wrong = || format!("{word}={value} makes no sense");
            match word {
                "over" => over = Some(value.parse().map_err(|_| wrong())?),
                "listen" => listen = Some(value.parse::<SocketAddr>().map_err(|_| wrong())?),
                "port" => port = Some(value.parse().map_err(|_| wrong())?),
                "peer" => peers.push(value.parse().map_err(|_| wrong())?),
                "most" => most = value.parse().map_err(|_| wrong())?,
                "key" => key = Some(read_key(value)?),
                _ => return Err(format!("`{word}` is not known to this version of the library")),
            }
        }
        let over = over.filter(|way| matches!(way, Way::Stp | Way::Qpip));
        let listen = listen.ok_or("it is not said where to listen")?;
        Ok(Self {
            over: over.ok_or("it is not said over what")?,
            listen,
            port: port.unwrap_or(listen.port()),
            peers,
            most,
            key: key.ok_or("no file with a key is named")?,
        })
    }
}

/// The key that is in a file which nobody else can read.
fn read_key(path: &str) -> Result<[u8; 32], String> {
    let failed = |why| format!("{path}: {why}");
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("{path}: others can read this key (chmod 600)"));
    }
    let mut secret = Vec::new();
    file.take(LONGEST_KEY).read_to_end(&mut secret).map_err(failed)?;
    // A line feed at its end is an editor's.
    let secret = secret.trim_ascii_end();
    if secret.len() < SHORTEST_KEY {
        return Err(format!("{path}: a key has at least {SHORTEST_KEY} bytes"));
    }
    Ok(blake3::derive_key("landfall 2026-11 between the carriers of two hosts", secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(name: &str, bytes: &[u8], mode: u32) -> String {
        let path = std::env::temp_dir().join(format!("landfall-key-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn what_is_said_is_read() {
        let key = key_file("good", b"a key of some length\n", 0o600);
        let text = format!("over=qpip\nlisten=10.0.0.1:7\npeer=10.0.0.2:8\nmost=3\nkey={key}");
        let config: Config = text.parse().unwrap();
        assert_eq!((config.over, config.most, config.port), (Way::Qpip, 3, 7));
        assert_eq!(config.peers, ["10.0.0.2:8".parse().unwrap()]);
        std::fs::write(&key, b"a key of some length").unwrap();
        assert_eq!(text.parse::<Config>().unwrap().key, config.key);
        std::fs::write(&key, b"another key of some length").unwrap();
        assert_ne!(text.parse::<Config>().unwrap().key, config.key);
        std::fs::remove_file(key).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = key_file("fine", &[7; 32], 0o600);
        let (open, short) = (key_file("open", &[7; 32], 0o640), key_file("short", b"abc\n", 0o600));
        for (text, said) in [
            (format!("over=tcp\nlisten=10.0.0.1:7\nkey={good}"), "over what"),
            (format!("over=stp\nkey={good}"), "where to listen"),
            ("over=stp\nlisten=10.0.0.1:7".to_owned(), "no file with a key"),
            (format!("over=stp\nlisten=10.0.0.1:7\nkey={open}"), "others can read"),
            (format!("over=stp\nlisten=10.0.0.1:7\nkey={short}"), "at least 16"),
            (format!("over=stp\nlisten=10.0.0.1\nkey={good}"), "listen=10.0.0.1 makes"),
            ("speed=9".to_owned(), "`speed` is not known"),
        ] {
            let why = text.parse::<Config>().map(|_| ()).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
        for file in [good, open, short] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
