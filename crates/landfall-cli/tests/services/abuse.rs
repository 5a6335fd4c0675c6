//! Clients that are up to no good, beside one that is not. As an ordinary user this skips with
//! one line.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, require_namespaces};
use landfall_testkit::skip_unless;
use socket2::{Domain, Socket, Type};

use super::{Directory, client_in, printed, why_missing};
use crate::serve::{PATIENCE, Serving, noise};

const SERVER: &str = "10.9.0.2:80";
const BAD_SOURCE: &str = "10.9.0.66";

/// A connection of a source of its own; an error where it is not let in.
fn connect(host: &Namespace, receive_buffer: Option<usize>) -> std::io::Result<TcpStream> {
    host.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if let Some(len) = receive_buffer {
            socket.set_recv_buffer_size(len)?;
        }
        socket.bind(&SocketAddr::new(BAD_SOURCE.parse().unwrap(), 0).into())?;
        socket.connect_timeout(&SERVER.parse::<SocketAddr>().unwrap().into(), PATIENCE)?;
        Ok(TcpStream::from(socket))
    })
    .expect("a namespace")
}

/// What is there until the server ends the connection, orderly or not.
fn until_over(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return got,
            Ok(len) => got.extend_from_slice(&part[..len]),
            Err(why) if why.kind() == ErrorKind::WouldBlock => panic!("it holds on to a client"),
            Err(_) => return got,
        }
    }
}

/// An honest client fetches the long file again and again, and gets it whole each time.
fn honest(host: &Namespace, directory: &Directory, until: impl Fn() -> bool) {
    let expected = directory.hash("long.bin");
    loop {
        let is_last = until();
        let got = printed(client_in(host, &["curl", "-sSf", "http://10.9.0.2/long.bin"]));
        assert_eq!(blake3::hash(&got), expected);
        if is_last {
            return;
        }
    }
}

#[test]
fn abuse_disturbs_nobody_else() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let options = "--patience 2 --idle 4 --per-source 48 --clients 64 --drain 2";
    let site = directory.site();
    let serving = Serving::start_in(&host, &format!("http --dir {} {options}", site.display()));
    let address = format!("{BAD_SOURCE}/24");
    let add = ["addr", "add", &address, "dev", "landfall0"];
    assert!(host.enter(|| Command::new("ip").args(add).status()).unwrap().unwrap().success());

    // They never end a request, or never read the response.
    let slow: Vec<_> = (0..20).filter_map(|_| connect(&host, None).ok()).collect();
    for mut stream in &slow {
        stream.write_all(b"GET /long.bin HTTP/1.1\r\nHost: x\r\nX-").unwrap();
    }
    let deaf: Vec<_> = (0..10).filter_map(|_| connect(&host, Some(4096)).ok()).collect();
    for mut stream in &deaf {
        stream.write_all(b"GET /long.bin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    assert_eq!((slow.len(), deaf.len()), (20, 10), "their source may have more");
    thread::scope(|scope| {
        let bad = scope.spawn(|| {
            // A letter at a time is no progress of a request.
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                for mut stream in &slow {
                    let _ = stream.write_all(b"a");
                }
                thread::sleep(Duration::from_millis(100));
            }
            // More connections than one source may have, again and again.
            for _ in 0..30 {
                drop((0..60).map(|_| connect(&host, None)).collect::<Vec<_>>());
            }
            // What is no HTTP.
            for nonsense in [
                &b"\0\0\0\0\r\n\r\n"[..],
                b"GET\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                &noise(50_000),
            ] {
                if let Ok(mut stream) = connect(&host, None) {
                    let _ = stream.write_all(nonsense);
                    let got = until_over(stream);
                    assert!(got.is_empty() || got.starts_with(b"HTTP/1.1 4"), "{got:?}");
                }
            }
        });
        honest(&host, &directory, || bad.is_finished());
        bad.join().unwrap();
    });
    // The slow ones and the deaf ones were given up.
    for stream in slow {
        let got = until_over(stream);
        assert!(!got.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&got));
    }
    thread::sleep(Duration::from_secs(5));
    for stream in deaf {
        assert!(until_over(stream).len() < 3_000_001, "it waited for one who does not read");
    }
    honest(&host, &directory, || true);
    let (summary, said) = serving.end_by("-TERM");
    assert!(summary["turned_away"].as_u64() > Some(0), "{summary} {said}");
    assert!(summary["most_at_once"].as_u64() <= Some(64), "{summary}");
}
