//! `landfall proxy`: a kernel's TCP at both outer ends, queue pairs in a tunnel between them. No
//! privileges are needed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use landfall_testkit::skip_unless;
use landfall_testkit::trials::{count_kills, kills};
use socket2::SockRef;

use super::{Directory, client, printed, why_missing};
use crate::serve::{PATIENCE, Serving, noise};

/// A proxy from a port of this host, by a tunnel to whom listens in it at port 80.
fn entrance(tunnel: &str, options: &str) -> (Serving, SocketAddr) {
    let words = "proxy --listen 127.0.0.1:0 --to qp://10.9.0.2:80 --address 10.9.0.3/24 --tunnel";
    let near = Serving::command(&format!("{words} 127.0.0.1:0 --peer {tunnel} -v{options}"));
    let at = near.word_behind("on").parse().unwrap();
    (near, at)
}

/// Two proxies: from a port of this host to queue pairs, and from there to a server of this host.
fn chain(server: SocketAddr, options: &str) -> (Serving, Serving, SocketAddr) {
    let words = format!("proxy --listen qp://10.9.0.2:80 --to {server} --tunnel 127.0.0.1:0 -v");
    let far = Serving::command(&format!("{words}{options}"));
    let (near, at) = entrance(&far.word_behind("at"), options);
    (near, far, at)
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn curl_goes_by_queue_pairs_to_files() {
    skip_unless!(why_missing(&["curl"]));
    let directory = Directory::new();
    let words = format!("http --dir {} --tunnel 127.0.0.1:0", directory.site().display());
    let files = Serving::start(&words);
    let (proxy, at) = entrance(&files.word_behind("at"), "");
    for name in ["long.bin", "short.txt", "empty"] {
        let got = printed(client(&["curl", "-sSf", &format!("http://{at}/{name}")]));
        assert_eq!(blake3::hash(&got), directory.hash(name), "{name}");
    }
    let (summary, said) = proxy.end_by("-TERM");
    assert_eq!(summary["clients"], 3, "{said}");
    assert!(summary["sent_bytes"].as_u64() > Some(3_000_000), "{summary}");
    let (summary, said) = files.end_by("-TERM");
    assert_eq!(summary["clients"], 3, "{said}");
}

/// Ends with the test.
struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pythons_server_is_reached_by_queue_pairs() {
    skip_unless!(why_missing(&["curl", "python3"]));
    let directory = Directory::new();
    let mut python = Command::new("python3");
    python.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]);
    python.current_dir(directory.site()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut python = Python(python.spawn().unwrap());
    let mut said = String::new();
    let out = python.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).unwrap();
    let port: u16 =
        said.split(' ').skip_while(|word| *word != "port").nth(1).unwrap().parse().unwrap();
    let (near, far, at) = chain(SocketAddr::from(([127, 0, 0, 1], port)), "");
    for name in ["long.bin", "short.txt"] {
        let got = printed(client(&["curl", "-sSf", &format!("http://{at}/{name}")]));
        assert_eq!(blake3::hash(&got), directory.hash(name), "{name}");
    }
    near.end_by("-TERM");
    far.end_by("-TERM");
}

#[test]
fn half_of_a_connection_ends_and_the_other_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far, at) = chain(listener.local_addr().unwrap(), "");
    let mut client = connect(at);
    let sent = noise(700_000);
    thread::scope(|scope| {
        // It hears everything, and the end, before it says a word.
        let server = scope.spawn(|| {
            let mut server = accept(&listener);
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).unwrap();
            server.write_all(&heard).unwrap();
            heard.len()
        });
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert!(back == sent);
        assert_eq!(server.join().unwrap(), sent.len());
    });
    let (_, said) = near.end_by("-TERM");
    assert!(said.contains("finished") && !said.contains("reset"), "{said}");
    far.end_by("-TERM");
}

#[test]
fn a_reset_is_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far, at) = chain(listener.local_addr().unwrap(), "");
    let ends = || {
        let mut client = connect(at);
        client.write_all(b"hello").unwrap();
        let mut server = accept(&listener);
        server.read_exact(&mut [0; 5]).unwrap();
        (client, server)
    };
    for is_clients in [true, false] {
        let (client, server) = ends();
        let (leaver, mut other) = if is_clients { (client, server) } else { (server, client) };
        SockRef::from(&leaver).set_linger(Some(Duration::ZERO)).unwrap();
        drop(leaver);
        let heard = other.read(&mut [0; 8]);
        let kind = heard.map_err(|why| why.kind());
        assert_eq!(kind, Err(ErrorKind::ConnectionReset), "the client's: {is_clients}");
    }
    // Nobody listens any more: the same.
    drop(listener);
    let mut client = connect(at);
    let heard = client.read(&mut [0; 8]).map_err(|why| why.kind());
    assert_eq!(heard, Err(ErrorKind::ConnectionReset));
    near.end_by("-TERM");
    far.end_by("-TERM");
}

/// A connection through two proxies, of which the near one was told to end by a signal: nobody
/// else comes in.
fn draining(drain: &str) -> (Serving, Serving, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far, at) = chain(listener.local_addr().unwrap(), drain);
    let mut client = connect(at);
    client.write_all(b"hello").unwrap();
    let mut server = accept(&listener);
    server.read_exact(&mut [0; 5]).unwrap();
    near.signal("-TERM");
    // Until it has heard of it.
    let started = Instant::now();
    while TcpStream::connect(at).is_ok() {
        assert!(started.elapsed() < PATIENCE, "it takes new connections");
        thread::sleep(Duration::from_millis(5));
    }
    (near, far, client, server)
}

#[test]
fn a_signal_lets_connections_of_a_proxy_end_within_a_bound() {
    let (near, far, mut client, mut server) = draining(" --drain 200");
    let sent = noise(700_000);
    let (words, mut heard) = (sent.clone(), vec![0; sent.len()]);
    let sending = thread::spawn(move || client.write_all(&words));
    server.read_exact(&mut heard).unwrap();
    sending.join().unwrap().unwrap();
    assert!(heard == sent);
    drop(server);
    let (summary, said) = near.end();
    assert_eq!(summary["ended"], "a signal", "{said}");
    assert!(!said.contains("cut off"), "{said}");
    far.end_by("-TERM");
    // One that does not end.
    let (near, far, mut client, _server) = draining(" --drain 1");
    let (_, said) = near.end();
    assert!(said.contains("cut off"), "{said}");
    assert!(!matches!(client.read(&mut [0; 8]), Ok(1..)));
    far.end_by("-TERM");
}

#[test]
fn a_second_signal_ends_a_server_that_drains() {
    let (near, _far, mut client, _server) = draining(" --drain 200");
    assert_eq!(near.end_by_second("-TERM"), Some(143));
    let heard = client.read(&mut [0; 8]);
    assert!(matches!(heard, Ok(0) | Err(_)), "{heard:?}");
}

#[test]
fn neither_end_waits_for_a_proxy_that_was_killed() {
    let rounds = kills(2);
    for kills_near in (0..rounds).map(|round| round % 2 == 0) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (near, far, at) = chain(listener.local_addr().unwrap(), " --idle 2");
        let mut client = connect(at);
        client.write_all(b"hello").unwrap();
        let mut server = accept(&listener);
        server.read_exact(&mut [0; 5]).unwrap();
        let (killed, left) = if kills_near { (near, far) } else { (far, near) };
        killed.kill();
        let started = Instant::now();
        for end in [&mut client, &mut server] {
            // An end or an error, and not the end of the test's patience.
            let heard = end.read(&mut [0; 8]).map_err(|why| why.kind());
            assert!(!matches!(heard, Err(ErrorKind::WouldBlock) | Ok(1..)), "{heard:?}");
        }
        assert!(started.elapsed() < PATIENCE);
        let (_, said) = left.end_by("-TERM");
        assert!(said.contains("no progress for 2s"), "{said}");
    }
    count_kills("a proxy", rounds);
}
