//! `landfall serve http` and `landfall proxy` in bad company: clients that waste what they are
//! given, hosts that forge what others said, and a link that changes under all of them. Those
//! who are honest get every byte, whether they came before or come in the midst of it. As an
//! ordinary user these skip with one line.
//!
//! | file | who is there |
//! | --- | --- |
//! | this | the honest ones, and what they may expect |
//! | `clients` | clients that never read, read a byte a second, never end a request |
//! | `frames` | blind segments, lies of ICMP, options of every length, another with our address |
//! | `link` | a neighbour with another station, an interface that goes down and comes back |
//!
//! Some seconds of it are part of every run of the tests; `LANDFALL_ABUSE_MINUTES` says for how
//! long instead (`bash .ci/run abuse`).

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, require_namespaces};
use landfall_testkit::skip_unless;
use socket2::{Domain, Socket, Type};

use super::{Directory, client_in, why_missing};
use crate::serve::{PATIENCE, Serving, noise};
use link::Outages;

mod clients;
mod frames;
mod link;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Who is honest comes from here.
const HONEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// And who is not, from here on.
const BAD: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 9, 0, 66),
    Ipv4Addr::new(10, 9, 0, 67),
    Ipv4Addr::new(10, 9, 0, 68),
    Ipv4Addr::new(10, 9, 0, 69),
];
const PORT: u16 = 80;
const INTERFACE: &str = "landfall0";
const LONG: usize = 3_000_001;
/// Longer than a client waits, outages included.
const MOST_WAIT: Duration = Duration::from_secs(55);

/// For how long it goes on, and whether that is long enough for what takes time.
fn duration() -> Duration {
    let minutes = std::env::var("LANDFALL_ABUSE_MINUTES").ok();
    let minutes = minutes.map(|text| text.parse::<u64>().expect("minutes, as a number"));
    minutes.map_or(Duration::from_secs(12), |minutes| Duration::from_secs(60 * minutes))
}

/// What all parts of the scene share.
struct Scene {
    host: Namespace,
    until: Instant,
    is_over: AtomicBool,
    /// The port from which the honest connection that stays comes.
    kept_port: AtomicU16,
    /// What the honest ones got.
    newcomers: AtomicU64,
    kept_bytes: AtomicU64,
    outages: Outages,
}

impl Scene {
    fn new(host: Namespace) -> Self {
        for address in BAD {
            let words = ["ip", "addr", "add", &format!("{address}/24"), "dev", INTERFACE];
            assert!(client_in(&host, &words).status.success());
        }
        Self {
            host,
            until: Instant::now() + duration(),
            is_over: AtomicBool::new(false),
            kept_port: AtomicU16::new(0),
            newcomers: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            outages: Outages::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits, but not beyond the end.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            thread::sleep(Duration::from_millis(20).min(time));
        }
    }

    /// A connection to the server from this address.
    fn connect(&self, from: Ipv4Addr, receive_buffer: Option<usize>) -> std::io::Result<TcpStream> {
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            if let Some(len) = receive_buffer {
                socket.set_recv_buffer_size(len)?;
            }
            socket.bind(&SocketAddr::new(from.into(), 0).into())?;
            let to = SocketAddr::new(IpAddr::V4(SERVER), PORT);
            socket.connect_timeout(&to.into(), Duration::from_secs(10))?;
            Ok(TcpStream::from(socket))
        };
        self.host.enter(connect).expect("a namespace")
    }
}

/// One connection that stays, request after request: its bytes are right, and go on.
fn stay(scene: &Scene, expected: blake3::Hash) {
    let mut stream = scene.connect(HONEST, None).expect("an honest client comes in");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    scene.kept_port.store(stream.local_addr().unwrap().port(), Ordering::Relaxed);
    let mut body = vec![0; LONG];
    while !scene.is_over() {
        stream.write_all(b"GET /long.bin HTTP/1.1\r\nHost: x\r\n\r\n").expect("it stays");
        let head = read_head(&mut stream).expect("it stays");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream.read_exact(&mut body).expect("it stays");
        assert_eq!(blake3::hash(&body), expected);
        scene.kept_bytes.fetch_add(LONG as u64, Ordering::Relaxed);
    }
}

/// What stands in front of a body, or of the end of a request.
fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// One honest client after another, each a program of its own. Only that there is no way to the
/// server excuses one, and only where the link was down.
fn come_anew(scene: &Scene, expected: blake3::Hash, began: Instant) {
    const COULD_NOT_CONNECT: i32 = 7;
    while !scene.is_over() {
        let start = Instant::now();
        let got = client_in(&scene.host, &["curl", "-sSf", "http://10.9.0.2/long.bin"]);
        let (took, at) = (start.elapsed(), start - began);
        let was_refused = got.status.code() == Some(COULD_NOT_CONNECT);
        if was_refused && scene.outages.was_down(start) {
            continue;
        }
        let said = String::from_utf8_lossy(&got.stderr);
        let outages = scene.outages.since(start);
        assert!(
            got.status.success() && took < MOST_WAIT,
            "{} {said} after {took:?}, {at:?} from the start; outages since: {outages}",
            got.status
        );
        assert_eq!(blake3::hash(&got.stdout), expected);
        scene.newcomers.fetch_add(1, Ordering::Relaxed);
        scene.pause(Duration::from_millis(50));
    }
}

/// Everybody at once, until it is over; whether nobody who is honest was disturbed.
#[must_use]
fn play(scene: &Scene, expected: blake3::Hash) -> bool {
    let began = Instant::now();
    let mut honest_failed = false;
    thread::scope(|scope| {
        let honest = [
            scope.spawn(|| stay(scene, expected)),
            scope.spawn(|| come_anew(scene, expected, began)),
        ];
        clients::start(scope, scene);
        frames::start(scope, scene);
        scope.spawn(|| link::change(scene));
        while Instant::now() < scene.until && !honest.iter().any(|one| one.is_finished()) {
            thread::sleep(Duration::from_millis(50));
        }
        scene.is_over.store(true, Ordering::Relaxed);
        for one in honest {
            honest_failed |= one.join().is_err();
        }
    });
    let (newcomers, kept) =
        (scene.newcomers.load(Ordering::Relaxed), scene.kept_bytes.load(Ordering::Relaxed));
    eprintln!(
        "{newcomers} newcomers and {kept} bytes of the one that stays; {:?}",
        began.elapsed()
    );
    if honest_failed {
        return false;
    }
    assert!(newcomers > 0 && kept > 0);
    if duration() >= Duration::from_secs(600) {
        assert!(kept > u64::from(u32::MAX), "sequence numbers wrapped around under load");
    }
    true
}

/// The last that a server said of its honest clients.
fn of_honest(said: &str) -> String {
    let honest = HONEST.to_string() + ":";
    let lines: Vec<_> = said.lines().filter(|line| line.contains(&honest)).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// The options of a server that is to hold among all of them.
fn options() -> String {
    let seconds = duration().as_secs() + 240;
    let bounds = "--per-source 48 --clients 256 --drain 2 -v";
    format!("{bounds} --seconds {seconds}")
}

#[test]
fn files_are_served_among_those_who_are_up_to_no_good() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl", "ip"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let site = directory.site();
    let words = format!("http --dir {} {}", site.display(), options());
    let serving = Serving::start_in(&host, &words);
    let scene = Scene::new(host);
    let is_well = play(&scene, directory.hash("long.bin"));
    let (summary, said) = serving.end_by("-TERM");
    assert!(is_well, "an honest client was disturbed; {}", of_honest(&said));
    assert!(summary["turned_away"].as_u64() > Some(0), "{summary} {said}");
    assert!(summary["most_at_once"].as_u64() <= Some(256), "{summary}");
}

/// Serves the long file to whatever is asked, until the listener is gone.
fn serve_long(listener: &TcpListener, body: &[u8]) {
    thread::scope(|scope| {
        while let Ok((mut stream, _)) = listener.accept() {
            scope.spawn(move || {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                while let Ok(asked) = read_head(&mut stream) {
                    if asked.contains("END OF ALL") {
                        return true;
                    }
                    let sent = stream.write_all(head.as_bytes());
                    if sent.and_then(|()| stream.write_all(body)).is_err() {
                        break;
                    }
                }
                false
            });
        }
    });
}

#[test]
fn connections_are_passed_on_among_those_who_are_up_to_no_good() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl", "ip"]));
    let host = Namespace::new().unwrap();
    let body = noise(LONG);
    let expected = blake3::hash(&body);
    let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = host.enter(bind).unwrap();
    let to = listener.local_addr().unwrap();
    thread::spawn(move || serve_long(&listener, &body));
    let words = format!("proxy --listen qp://10.9.0.2:80 --to {to} {}", options());
    let proxy = Serving::command_in(&host, &words);
    let scene = Scene::new(host);
    let is_well = play(&scene, expected);
    let (summary, said) = proxy.end_by("-TERM");
    assert!(is_well, "an honest client was disturbed; {}", of_honest(&said));
    assert!(summary["turned_away"].as_u64() > Some(0), "{summary} {said}");
}
