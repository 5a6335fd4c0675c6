//! Unmodified clients of HTTP. As an ordinary user these skip with one line.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use landfall_testbed::{Namespace, require_namespaces};
use landfall_testkit::skip_unless;

use super::{Directory, client_in, printed, text, why_missing};
use crate::serve::{PATIENCE, Serving};

fn serve(host: &Namespace, directory: &Directory, options: &str) -> Serving {
    let site = directory.site();
    Serving::start_in(host, &format!("http --dir {}{options}", site.display()))
}

/// Fetches with one connection, then with another for each request, and prints their hashes.
const PYTHON: &str = "
import http.client, hashlib, sys
kept = http.client.HTTPConnection('10.9.0.2', timeout=30)
for kept in [kept, None]:
    for name in sys.argv[1:]:
        used = kept or http.client.HTTPConnection('10.9.0.2', timeout=30)
        used.request('GET', '/' + name)
        answer = used.getresponse()
        body = answer.read()
        assert answer.status == 200 and int(answer.headers['Content-Length']) == len(body)
        print(hashlib.sha256(body).hexdigest())
";

#[test]
fn unmodified_clients_get_every_byte() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl", "nc", "python3", "sha256sum"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let serving = serve(&host, &directory, "");
    for name in ["long.bin", "short.txt", "empty", "stays", "indexed/index.html"] {
        let got = printed(client_in(&host, &["curl", "-sSf", &format!("http://10.9.0.2/{name}")]));
        assert_eq!(blake3::hash(&got), directory.hash(name), "{name}");
    }
    // A download that was interrupted goes on.
    let part = directory.0.join("part");
    fs::write(&part, &fs::read(directory.site().join("long.bin")).unwrap()[..1_000_000]).unwrap();
    let resumed = ["curl", "-sSf", "-C", "-", "-o", part.to_str().unwrap()];
    printed(client_in(&host, &[&resumed[..], &["http://10.9.0.2/long.bin"]].concat()));
    assert_eq!(blake3::hash(&fs::read(&part).unwrap()), directory.hash("long.bin"));
    // Python, with one connection and with many.
    let names = ["long.bin", "short.txt", "empty"];
    let said = text(client_in(&host, &[&["python3", "-c", PYTHON][..], &names].concat()));
    let mut hashes = String::new();
    for name in names {
        let path = directory.site().join(name);
        let line = text(client_in(&host, &["sha256sum", path.to_str().unwrap()]));
        hashes += &format!("{}\n", line.split(' ').next().unwrap());
    }
    assert_eq!(said, hashes.repeat(2));
    // By hand, in HTTP/1.0: the connection ends behind the response.
    let script = "printf 'GET /short.txt HTTP/1.0\\r\\n\\r\\n' | nc -q 30 10.9.0.2 80";
    let said = text(client_in(&host, &["sh", "-c", script]));
    assert!(said.starts_with("HTTP/1.0 200 OK\r\n"), "{said}");
    assert!(said.ends_with("\r\n\r\nevery byte has its place\n"), "{said}");
    let (summary, said) = serving.end_by("-TERM");
    assert_eq!(summary["turned_away"], 0, "{said}");
}

#[test]
fn load_generators_find_no_fault() {
    require_namespaces!();
    skip_unless!(why_missing(&["ab", "wrk", "h2load"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let serving = serve(&host, &directory, "");
    let (short, long) = ("http://10.9.0.2/short.txt", "http://10.9.0.2/long.bin");
    for words in [
        &["ab", "-q", "-n", "400", "-c", "16", short][..],
        &["ab", "-q", "-k", "-n", "400", "-c", "16", short],
        &["ab", "-q", "-n", "24", "-c", "8", long],
    ] {
        let said = text(client_in(&host, words));
        assert!(said.contains("Failed requests:        0\n"), "{words:?}: {said}");
        assert!(!said.contains("Non-2xx"), "{words:?}: {said}");
    }
    let header = ["-H", "Connection: close"];
    let kept = ["wrk", "-t1", "-c16", "-d1", "--timeout", "30", short];
    for words in [kept.to_vec(), [&kept[..], &header].concat()] {
        let said = text(client_in(&host, &words));
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{words:?}: {said}");
        assert!(said.contains(" requests in ") && !said.contains("\n  0 requests"), "{said}");
    }
    for (count, url) in [("400", short), ("24", long)] {
        let words = ["h2load", "--h1", "-n", count, "-c", "8", url];
        let said = text(client_in(&host, &words));
        assert!(said.contains(&format!("{count} succeeded, 0 failed, 0 errored")), "{said}");
    }
    let (summary, said) = serving.end_by("-TERM");
    assert_eq!(summary["turned_away"], 0, "{said}");
}

#[test]
fn curl_gets_every_byte_over_tls() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let serving = serve(&host, &directory, " --tls-self-signed");
    let url = "https://10.9.0.2/long.bin";
    let got = printed(client_in(&host, &["curl", "-sSfk", url, url]));
    let (first, second) = got.split_at(got.len() / 2);
    assert_eq!(blake3::hash(first), directory.hash("long.bin"));
    assert!(first == second, "the second request has the same connection");
    // Nobody vouches for it, and without TLS there is no answer.
    assert!(!client_in(&host, &["curl", "-sSf", url]).status.success());
    let plain = client_in(&host, &["curl", "-sS", "http://10.9.0.2:443/"]);
    assert!(!plain.status.success(), "{plain:?}");
    assert!(serving.ready.starts_with("https on 10.9.0.2:443"), "{}", serving.ready);
    serving.end_by("-TERM");
}

/// The status that curl gets.
fn status(host: &Namespace, options: &str, path: &str) -> String {
    let mut words = vec!["curl", "-s", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}"];
    words.extend(options.split('|').filter(|word| !word.is_empty()));
    let url = format!("http://10.9.0.2{path}");
    words.push(&url);
    text(client_in(host, &words))
}

#[test]
fn each_request_has_its_status() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let serving = serve(&host, &directory, "");
    for (options, path, expected) in [
        ("", "/short.txt?query", "200"),
        ("-I", "/long.bin", "200"),
        ("", "/indexed/", "200"),
        ("", "/indexed", "301"),
        ("-r|0-9", "/long.bin", "206"),
        ("-r|-5", "/short.txt", "206"),
        ("-r|0-1,4-5", "/short.txt", "200"),
        ("-r|3000001-", "/long.bin", "416"),
        ("-H|If-None-Match: *", "/short.txt", "304"),
        ("-H|If-None-Match: \"other\"", "/short.txt", "200"),
        ("-H|If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", "/short.txt", "304"),
        ("-H|If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT", "/short.txt", "200"),
        ("-H|If-Match: \"other\"", "/short.txt", "412"),
        ("-r|0-1|-H|If-Range: \"other\"", "/short.txt", "200"),
        ("", "/bare/", "403"),
        ("", "/missing", "404"),
        ("", "/short.txt/", "404"),
        ("-X|DELETE", "/short.txt", "405"),
        ("-d|x=y", "/short.txt", "405"),
        ("", "/%zz", "400"),
    ] {
        assert_eq!(status(&host, options, path), expected, "{options} {path}");
    }
    // More fields than may be.
    let many: Vec<_> = (0..70).map(|number| format!("-H|X-{number}: y")).collect();
    assert_eq!(status(&host, &many.join("|"), "/short.txt"), "431");
    serving.end_by("-TERM");
}

#[test]
fn nothing_outside_of_the_directory_is_served() {
    require_namespaces!();
    skip_unless!(why_missing(&["curl"]));
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let absolute = directory.site().join("absolute");
    std::os::unix::fs::symlink(directory.0.join("secret.txt"), absolute).unwrap();
    std::os::unix::fs::symlink("..", directory.site().join("up")).unwrap();
    let serving = serve(&host, &directory, " --listing");
    for (path, expected) in [
        ("/../secret.txt", "403"),
        ("/bare/../../secret.txt", "403"),
        ("/%2e%2e/secret.txt", "403"),
        ("/.%2E/secret.txt", "403"),
        ("/..%2fsecret.txt", "404"),
        ("/%2e%2e%2fsecret.txt", "404"),
        ("/..%5csecret.txt", "404"),
        ("/short.txt%00.html", "404"),
        ("//etc/passwd", "404"),
        ("/leads-out", "403"),
        ("/absolute", "403"),
        ("/up/secret.txt", "403"),
        ("/up/", "403"),
        ("/%252e%252e/secret.txt", "404"),
    ] {
        assert_eq!(status(&host, "", path), expected, "{path}");
    }
    // A redirect never leads to another host.
    let redirect = client_in(&host, &["curl", "-sSI", "http://10.9.0.2//bare"]);
    assert!(text(redirect).contains("location: /bare/\r\n"));
    serving.end_by("-TERM");
}

#[test]
fn a_signal_lets_a_response_end() {
    require_namespaces!();
    let (host, directory) = (Namespace::new().unwrap(), Directory::new());
    let serving = serve(&host, &directory, "");
    let connect = || TcpStream::connect_timeout(&"10.9.0.2:80".parse().unwrap(), PATIENCE);
    let mut stream = host.enter(connect).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /long.bin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut got = vec![0; 1000];
    stream.read_exact(&mut got).unwrap();
    // The rest is read while it ends, and then the connection is over.
    let reading = std::thread::spawn(move || stream.read_to_end(&mut got).map(|_| got));
    let (summary, said) = serving.end_by("-TERM");
    assert_eq!(summary["ended"], "a signal", "{said}");
    assert!(!said.contains("cut off"), "{said}");
    let got = reading.join().unwrap().unwrap();
    let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(blake3::hash(&got[body..]), directory.hash("long.bin"));
}
