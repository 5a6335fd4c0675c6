//! Services as they are behind web sites: a proxy before a server, caches, languages of their own
//! event loops, and a database.

use std::process::Command;

use landfall_testbed::skip_unless;

use crate::test_folder::{TestFolder, Where, each, missing};

const LEN: usize = 1 << 20;

/// Before two servers, over connections that it keeps, and that it does not.
const HAPROXY: &str = "\
global
    maxconn 256
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend here
    bind 127.0.0.1:PORT
    default_backend there
backend there
    option splice-auto
    http-reuse always
    server one 127.0.0.1:ONE
";

const NGINX: &str = "\
daemon off; worker_processes 1; USER pid FOLDER/nginx.pid; error_log stderr;
events { worker_connections 128; }
http {
    access_log off; sendfile on;
    client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f;
    uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
    server { listen 127.0.0.1:PORT; root FOLDER; }
}
";

/// The library is at the proxy and, beside it, at the client or at the server behind.
#[test]
fn haproxy_stands_before_nginx() {
    skip_unless!(missing(&["haproxy", "nginx", "curl", "wrk"]));
    let ground = TestFolder::new();
    let (front, back) = (ground.port(), ground.port());
    let file = ground.file("page", LEN);
    ground.file("small", 300);
    // Memory is between processes of one user: workers stay who the master is.
    let user = if landfall_testbed::privileges::is_root() { "user root;" } else { "" };
    let nginx = NGINX.replace("FOLDER", ground.folder()).replace("USER", user);
    let nginx = nginx.replace("PORT", &back.to_string());
    let nginx = ground.write("nginx.conf", nginx.as_bytes());
    let haproxy = HAPROXY.replace("PORT", &front.to_string()).replace("ONE", &back.to_string());
    let haproxy = ground.write("haproxy.cfg", haproxy.as_bytes());
    each(|place| {
        let _server = ground.serve(place, back, "nginx", &["-c", &nginx, "-e", "stderr"]);
        let _proxy = ground.serve(Where::Both, front, "haproxy", &["-db", "-f", &haproxy]);
        let url = format!("http://127.0.0.1:{front}");
        let page = format!("{url}/page");
        // Several over one connection of the client's.
        let got = ground.run(place, "curl", &["-sSf", &page, &page, &page]);
        assert_eq!(got.len(), 3 * LEN, "{place:?}");
        assert!(got.chunks(LEN).all(|copy| copy == file), "{place:?}");
        let small = format!("{url}/small");
        for header in ["X-Other: nothing", "Connection: close"] {
            let words = ["-d", "1s", "-c", "8", "-t", "1", "-H", header, &small];
            let said = ground.run_text(place, "wrk", &words);
            assert!(said.contains("requests in") && !said.contains("Socket errors"), "{said}");
            assert!(!said.contains("Non-2xx"), "{said}");
        }
        let log = ground.log();
        ground.forget_log();
        // The proxy's other neighbour has it, whichever that is.
        let is_memory = log.contains("memory: both ends have the library");
        assert_eq!(is_memory, place != Where::Neither, "{place:?}: {log}");
    });
}

/// The text protocol of memcached: keys of all lengths, many at once, and one at a time.
const MEMCACHED: &str = "\
import socket, sys, threading
def value(client, at): return bytes([65 + client, 97 + at % 26]) * (1 + at * 977 % 30000)
def talk(client):
    with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as connection:
        stream = connection.makefile('rwb')
        for at in range(60):
            stored = value(client, at)
            stream.write(b'set k%d-%d 0 0 %d\\r\\n%s\\r\\n' % (client, at, len(stored), stored))
            stream.flush()
            assert stream.readline() == b'STORED\\r\\n'
        # All at once.
        stream.write(b'get ' + b' '.join(b'k%d-%d' % (client, at) for at in range(60)) + b'\\r\\n')
        stream.flush()
        for at in range(60):
            words = stream.readline().split()
            assert words[1] == b'k%d-%d' % (client, at), words
            assert stream.read(int(words[3]) + 2) == value(client, at) + b'\\r\\n'
        assert stream.readline() == b'END\\r\\n'
threads = [threading.Thread(target=talk, args=(client,)) for client in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('all came back')
";

#[test]
fn memcached_keeps_what_it_is_given() {
    skip_unless!(missing(&["memcached", "python3"]));
    let ground = TestFolder::new();
    let port = ground.port().to_string();
    let script = ground.write("ask.py", MEMCACHED.as_bytes());
    each(|place| {
        let number: u16 = port.parse().expect("a port");
        let words = ["-p", &port, "-l", "127.0.0.1", "-U", "0", "-u", "root", "-t", "2"];
        let _server = ground.serve(place, number, "memcached", &words);
        let said = ground.run_text(place, "python3", &[&script, &port]);
        assert_eq!(said.trim(), "all came back", "{place:?}");
        ground.expect_memory(place);
    });
}

/// Requests over connections that stay, and a stream in both directions.
const NODE: &str = "\
const http = require('http'), crypto = require('crypto');
const port = Number(process.argv[3]);
const hash = bytes => crypto.createHash('sha256').update(bytes).digest('hex');
if (process.argv[2] === 'serve') {
  http.createServer((request, response) => {
    const parts = [];
    request.on('data', part => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      response.setHeader('x-hash', hash(body));
      response.end(body);
    });
  }).listen(port, '127.0.0.1');
} else {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const ask = length => new Promise((done, failed) => {
    const body = crypto.randomBytes(length);
    const request = http.request({ port, host: '127.0.0.1', method: 'POST', agent }, response => {
      const parts = [];
      response.on('data', part => parts.push(part));
      response.on('end', () => {
        const back = Buffer.concat(parts);
        const same = back.equals(body) && response.headers['x-hash'] === hash(body);
        same ? done() : failed(new Error(`${length} bytes came back as ${back.length}`));
      });
    });
    request.on('error', failed);
    request.end(body);
  });
  (async () => {
    for (let turn = 0; turn < 12; turn += 1) {
      await Promise.all([1, 77, 4096, 70000, 900000].map(length => ask(length + turn)));
    }
    console.log('all came back');
    agent.destroy();
  })();
}
";

#[test]
fn node_answers_node() {
    skip_unless!(missing(&["node"]));
    let ground = TestFolder::new();
    let port = ground.port();
    let number = port.to_string();
    let script = ground.write("echo.js", NODE.as_bytes());
    each(|place| {
        let _server = ground.serve(place, port, "node", &[&script, "serve", &number]);
        let said = ground.run_text(place, "node", &[&script, "ask", &number]);
        assert_eq!(said.trim(), "all came back", "{place:?}");
        ground.expect_memory(place);
    });
}

const WSGI: &str = "\
def app(environment, start):
    length = int(environment['QUERY_STRING'] or 0)
    start('200 OK', [('Content-Length', str(length))])
    return [bytes(at * 7 % 251 for at in range(length))]
";

/// Processes that fork others, each with threads.
#[test]
fn gunicorn_answers_curl() {
    skip_unless!(missing(&["gunicorn", "curl"]));
    let ground = TestFolder::new();
    let port = ground.port();
    ground.write("pages.py", WSGI.as_bytes());
    let at = format!("127.0.0.1:{port}");
    each(|place| {
        let words = ["-b", &at, "-w", "2", "-k", "gthread", "--threads", "2", "--keep-alive", "9"];
        let words =
            [&words[..], &["--graceful-timeout", "1", "--chdir", ground.folder(), "pages:app"]]
                .concat();
        let _server = ground.serve(place, port, "gunicorn", &words);
        let lengths = [1, 1000, 300_000, 5, 0, 70_000];
        let urls: Vec<String> = lengths.iter().map(|len| format!("http://{at}/?{len}")).collect();
        let words: Vec<&str> = std::iter::once("-sSf").chain(urls.iter().map(|it| &**it)).collect();
        let got = ground.run(place, "curl", &words);
        let page = |len: usize| (0..len).map(|at| (at * 7 % 251) as u8);
        let wanted: Vec<u8> = lengths.into_iter().flat_map(page).collect();
        assert!(got == wanted, "{place:?}: {} bytes", got.len());
        ground.expect_memory(place);
    });
}

/// MariaDB's server keeps to a folder of this test; its own load generator asks over TCP.
#[test]
fn mariadb_is_asked_and_measured() {
    skip_unless!(missing(&["mariadbd", "mariadb-install-db", "mariadb", "mariadb-slap"]));
    let ground = TestFolder::new();
    let port = ground.port();
    let data = ground.open_folder("mariadb");
    let user = if landfall_testbed::privileges::is_root() { "--user=root" } else { "--silent" };
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .args([user, &format!("--datadir={data}")])
        .output()
        .expect("it starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    each(|place| {
        let options = [
            "--no-defaults".to_owned(),
            format!("--datadir={data}"),
            format!("--port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--socket={}/mariadb.sock", ground.folder()),
            format!("--pid-file={}/mariadb.pid", ground.folder()),
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            "--skip-name-resolve".to_owned(),
            user.replace("--silent", "--skip-slave-start"),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut server = ground.start(place.server(), "mariadbd", &options);
        ground.wait_for_listener(port);
        let there = ["--no-defaults", "-h", "127.0.0.1", "-u", "root"];
        let number = format!("--port={port}");
        let ask = |sql: &str| {
            ground.run_text(place, "mariadb", &[&there[..], &[&number, "-N", "-e", sql]].concat())
        };
        ask("drop database if exists kept; create database kept; create table kept.pages \
             (id int primary key, page longtext)");
        for id in 1..20 {
            ask(&format!(
                "insert into kept.pages values ({id}, repeat('page {id} ', {}))",
                id * 900
            ));
        }
        let sums = ask("select id, length(page), md5(page) from kept.pages order by id");
        let wanted = "select n, length(repeat(concat('page ', n, ' '), n * 900)), \
             md5(repeat(concat('page ', n, ' '), n * 900)) from \
             (select seq as n from seq_1_to_19) as numbers order by n";
        assert_eq!(sums, ask(&format!("use kept; {wanted}")), "{place:?}");
        assert_eq!(sums.lines().count(), 19);
        let page = ask("select page from kept.pages where id = 19");
        assert_eq!(page.trim_end(), "page 19 ".repeat(19 * 900).trim_end(), "{place:?}");
        let slap = ["--auto-generate-sql", "-c", "4", "--number-of-queries", "2000"];
        let said = ground
            .run_text(place, "mariadb-slap", &{ [&there[..], &[&number], &slap[..]].concat() });
        assert!(said.contains("Number of clients running queries: 4"), "{said}");
        ground.expect_memory(place);
        server.signal("TERM");
        server.ends_well();
    });
}
