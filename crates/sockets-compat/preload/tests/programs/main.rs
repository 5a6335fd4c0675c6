//! Programs that know nothing of it: at both ends, at one end, at the other.

mod between;
mod brokers;
#[path = "../common/mod.rs"]
mod common;
mod containers;
mod corba;
mod event_loops;
mod grpc;
mod hosts;
mod java;
mod own_functions;
mod servers;
mod services;
mod test_folder;
mod users;

use landfall_testbed::skip_unless;
use test_folder::{TestFolder, Where, each, missing};

const LEN: usize = 3 << 20;

/// Where `bash .ci/run tools` puts what it has of PyPI under this name: beside what cargo builds.
/// `package` is in it if it is whole.
fn packages(name: &str, package: &str) -> Option<std::path::PathBuf> {
    let test = std::env::current_exe().ok()?;
    let mut places = test.ancestors().map(|folder| folder.join("tools").join(name));
    places.find(|place| place.join(package).exists())
}

#[test]
fn curl_fetches_from_python() {
    skip_unless!(missing(&["python3", "curl"]));
    let test_folder = TestFolder::new();
    let port = test_folder.port();
    let file = test_folder.file("page", LEN);
    each(|place| {
        let arguments = [
            "-m",
            "http.server",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "-d",
            test_folder.folder(),
        ];
        let _server = test_folder.serve(place, port, "python3", &arguments);
        let url = format!("http://127.0.0.1:{port}/page");
        // Twice over one connection, and once more.
        let got = test_folder.run(place, "curl", &["-sSf", &url, &url]);
        assert_eq!(got.len(), 2 * LEN);
        assert!(got[..LEN] == file[..] && got[LEN..] == file[..], "{place:?}");
        assert!(test_folder.run(place, "curl", &["-sSf", &url]) == file);
    });
}

const NGINX: &str = "\
daemon off; worker_processes 2; pid FOLDER/nginx.pid; error_log stderr;
events { worker_connections 128; }
http {
    access_log off; sendfile on; keepalive_requests 100000;
    client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f;
    uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
    server { listen 127.0.0.1:PORT; root FOLDER; }
}
";

#[test]
fn curl_and_wrk_ask_nginx() {
    skip_unless!(missing(&["nginx", "curl", "wrk"]));
    let test_folder = TestFolder::new();
    let port = test_folder.port();
    let file = test_folder.file("page", LEN);
    test_folder.file("small", 100);
    let configuration =
        NGINX.replace("FOLDER", test_folder.folder()).replace("PORT", &port.to_string());
    let path = test_folder.write("nginx.conf", configuration.as_bytes());
    each(|place| {
        let _server = test_folder.serve(place, port, "nginx", &["-c", &path, "-e", "stderr"]);
        let url = format!("http://127.0.0.1:{port}");
        assert!(
            test_folder.run(place, "curl", &["-sSf", &format!("{url}/page")]) == file,
            "{place:?}"
        );
        let small = format!("{url}/small");
        let said = test_folder.run_text(place, "wrk", &["-d", "1s", "-c", "20", "-t", "2", &small]);
        assert!(said.contains("requests in") && !said.contains("Socket errors"), "{said}");
        assert!(!said.contains("Non-2xx"), "{said}");
    });
}

#[test]
fn redis_is_asked_and_measured() {
    skip_unless!(missing(&["redis-server", "redis-cli", "redis-benchmark"]));
    let test_folder = TestFolder::new();
    let port = test_folder.port();
    let number = port.to_string();
    each(|place| {
        let arguments = ["--port", &number, "--save", "", "--dir", test_folder.folder()];
        let _server = test_folder.serve(place, port, "redis-server", &arguments);
        let ask = |words: &[&str]| {
            test_folder.run_text(place, "redis-cli", &[&["-p", number.as_str()], words].concat())
        };
        assert_eq!(ask(&["set", "key", "value"]).trim(), "OK");
        assert_eq!(ask(&["get", "key"]).trim(), "value");
        for depth in ["1", "16"] {
            let arguments =
                ["-p", &number, "-t", "set,get,lrange_100", "-n", "5000", "-q", "-P", depth];
            let said = test_folder.run_text(place, "redis-benchmark", &arguments);
            assert!(said.contains("GET") && !said.contains("rror"), "{said}");
        }
    });
}

#[test]
fn iperf3_measures() {
    skip_unless!(missing(&["iperf3"]));
    let test_folder = TestFolder::new();
    each(|place| {
        for way in [&[][..], &["-R"], &["-P", "4"], &["--bidir"]] {
            // One server for each, since one that is not done yet refuses the next.
            let port = test_folder.port();
            let number = port.to_string();
            let _server = test_folder.start(place.server(), "iperf3", &["-s", "-1", "-p", &number]);
            test_folder.wait_for_listener(port);
            let arguments = [&["-c", "127.0.0.1", "-p", &number, "-t", "1"], way].concat();
            let said = test_folder.run_text(place, "iperf3", &arguments);
            assert!(said.contains("receiver") && !said.contains("error"), "{place:?}: {said}");
        }
    });
}

#[test]
fn netcat_carries_a_file() {
    skip_unless!(missing(&["nc"]));
    let test_folder = TestFolder::new();
    let file = test_folder.file("page", LEN);
    each(|place| {
        let port = test_folder.port();
        let number = port.to_string();
        let mut server =
            test_folder.start(place.server(), "nc", &["-d", "-l", "127.0.0.1", &number]);
        // It takes one connection only: so nobody may ask whether it listens already.
        test_folder.wait_for_listener(port);
        let received = std::thread::spawn(move || server.output());
        test_folder.run_with_input(place, "nc", &["-N", "127.0.0.1", &number], &file);
        assert!(received.join().expect("it ends well") == file, "{place:?}");
    });
}

#[test]
fn nbdcopy_copies_from_nbdkit() {
    skip_unless!(missing(&["nbdkit", "nbdcopy"]));
    let test_folder = TestFolder::new();
    let port = test_folder.port();
    let number = port.to_string();
    each(|place| {
        let arguments = ["-f", "-p", &number, "-i", "127.0.0.1", "pattern", "size=8M"];
        let _server = test_folder.serve(place, port, "nbdkit", &arguments);
        let copy = format!("{}/copy", test_folder.folder());
        let from = format!("nbd://127.0.0.1:{port}");
        test_folder.run(place, "nbdcopy", &[&from, &copy]);
        let copied = std::fs::read(&copy).expect("there is a copy");
        let mut words = copied.chunks_exact(8).enumerate();
        assert_eq!(copied.len(), 8 << 20);
        assert!(words.all(|(at, word)| word == (8 * at as u64).to_be_bytes()), "{place:?}");
    });
}

#[test]
fn rsync_fetches_a_folder() {
    skip_unless!(missing(&["rsync"]));
    let test_folder = TestFolder::new();
    let port = test_folder.port();
    std::fs::create_dir_all(format!("{}/from", test_folder.folder())).expect("a folder");
    for at in 0..50 {
        test_folder.file(&format!("from/{at}"), at * 997);
    }
    let configuration = format!("use chroot = no\n[from]\npath = {}/from\n", test_folder.folder());
    let path = test_folder.write("rsyncd.conf", configuration.as_bytes());
    each(|place| {
        let number = port.to_string();
        let config = format!("--config={path}");
        let arguments =
            ["--daemon", "--no-detach", "--address=127.0.0.1", "--port", &number, &config];
        let _server = test_folder.serve(place, port, "rsync", &arguments);
        let to = format!("{}/to-{place:?}", test_folder.folder());
        test_folder.run(place, "rsync", &["-a", &format!("rsync://127.0.0.1:{port}/from/"), &to]);
        for at in 0..50 {
            let read = |folder: &str| std::fs::read(format!("{folder}/{at}")).expect("a file");
            assert!(
                read(&to) == read(&format!("{}/from", test_folder.folder())),
                "{place:?}: {at}"
            );
        }
    });
}

const ASYNCIO: &str = "\
import asyncio, sys
async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def ask(port, client):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    for turn in range(60):
        message = bytes([client, turn]) * (1 + turn * client * 311 % 20000)
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    writer.write_eof()
    assert await reader.read() == b''
    writer.close()
async def main(what, port):
    if what == 'serve':
        await (await asyncio.start_server(serve, '127.0.0.1', port)).serve_forever()
    await asyncio.gather(*[ask(port, client) for client in range(1, 20)])
    print('all came back')
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
";

#[test]
fn asyncio_echoes() {
    skip_unless!(missing(&["python3"]));
    let test_folder = TestFolder::new();
    let port = test_folder.port();
    let number = port.to_string();
    let script = test_folder.write("echo.py", ASYNCIO.as_bytes());
    each(|place: Where| {
        let _server = test_folder.serve(place, port, "python3", &[&script, "serve", &number]);
        let said = test_folder.run_text(place, "python3", &[&script, "ask", &number]);
        assert_eq!(said.trim(), "all came back", "{place:?}");
    });
}
