//! Servers of the web, and databases.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{Server, free_port, number_behind, percentile, run};
use crate::{Figure, Kind, Row, Workspace};

pub(crate) const ROWS: &[Row] = &[
    ("nginx, 32 connections that stay", |ground, kind| web(ground, kind, false, false)),
    ("nginx, a connection for each request", |ground, kind| web(ground, kind, false, true)),
    ("nginx behind haproxy, 32 connections", |ground, kind| web(ground, kind, true, false)),
    ("memcached, get, 8 threads", memcached),
    ("MariaDB, point selects, 8 threads", mariadb),
    ("gRPC unary, Python, one client", grpc),
];

/// A folder that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Option<Self> {
        let name = format!("landfall-speed-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Option<String> {
        let path = self.0.join(name);
        std::fs::write(&path, text).ok()?;
        path.to_str().map(str::to_owned)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NGINX: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log stderr;
events { worker_connections 256; }
http {
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f;
    uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
    server { listen 127.0.0.1:PORT; root FOLDER; }
}
";

const HAPROXY: &str = "\
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend here
    bind 127.0.0.1:FRONT
    default_backend there
backend there
    http-reuse always
    server one 127.0.0.1:BACK
";

/// `wrk` asks for a small page. It has no Unix sockets.
fn web(ground: &Workspace, kind: Kind, is_behind: bool, closes: bool) -> Option<Figure> {
    if kind == Kind::Unix {
        return None;
    }
    let folder = Folder::new("web")?;
    folder.write("page", &"a page ".repeat(190))?;
    let back = free_port()?;
    let text = NGINX.replace("FOLDER", folder.0.to_str()?).replace("PORT", &back.to_string());
    let file = folder.write("nginx.conf", &text)?;
    let mut nginx = ground.command("nginx", if is_behind { 1 } else { 0 }, kind);
    let nginx = Server::start(nginx.args(["-c", &file, "-e", "stderr"]), back)?;
    let mut proxy = None;
    let mut port = back;
    if is_behind {
        port = free_port()?;
        let text = HAPROXY.replace("FRONT", &port.to_string()).replace("BACK", &back.to_string());
        let file = folder.write("haproxy.cfg", &text)?;
        let mut command = ground.command("haproxy", 0, kind);
        proxy = Some(Server::start(command.args(["-db", "-f", &file]), port)?);
    }
    let header = if closes { "Connection: close" } else { "X-Other: nothing" };
    let url = format!("http://127.0.0.1:{port}/page");
    let mut client = ground.command("wrk", 1, kind);
    client.args(["-t1", "-c32", "-d3s", "--latency", "-H", header, &url]);
    let (said, of_client) = run(&mut client)?;
    let of_proxy = match proxy {
        Some(proxy) => proxy.end()?,
        None => 0.0,
    };
    let cpu = nginx.end()? + of_client + of_proxy;
    if said.contains("Socket errors") || said.contains("Non-2xx") {
        return None;
    }
    let time = |begin: &str| {
        let line = said.lines().map(str::trim).find(|line| line.starts_with(begin))?;
        in_microseconds(line.split_whitespace().nth(1)?)
    };
    let per_second = number_behind(&said, "Requests/sec:")?;
    let line = said.lines().find(|line| line.contains(" requests in "))?;
    let count: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Figure {
        per_second,
        median_us: time("50%")?,
        p99_us: time("99%")?,
        cpu: cpu * 1e6 / count,
    })
}

/// A time as `wrk` says it.
fn in_microseconds(text: &str) -> Option<f64> {
    let (unit, scale) = [("us", 1.0), ("ms", 1e3), ("s", 1e6)]
        .into_iter()
        .find(|(unit, _)| text.ends_with(unit))?;
    text.strip_suffix(unit)?.parse::<f64>().ok().map(|number| number * scale)
}

/// libmemcached's client says how long all took, and takes addresses of TCP alone.
fn memcached(ground: &Workspace, kind: Kind) -> Option<Figure> {
    const COUNT: usize = 20_000;
    const THREADS: usize = 8;
    if kind == Kind::Unix {
        return None;
    }
    let port = free_port()?;
    let mut server = ground.command("memcached", 0, kind);
    // Both ends have to be one user.
    server.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
    let server = Server::start(&mut server, port)?;
    let mut client = ground.command("memcslap", 1, kind);
    client.args(["--test=get", &format!("--concurrency={THREADS}")]);
    client.args([&format!("--execute-number={COUNT}"), &format!("--servers=127.0.0.1:{port}")]);
    let (said, of_client) = run(&mut client)?;
    let cpu = server.end()? + of_client;
    let line = said.lines().find(|line| line.starts_with("Time to get"))?;
    let seconds = line.split_whitespace().rev().find_map(|word| word.parse::<f64>().ok())?;
    let count = (COUNT * THREADS) as f64;
    Some(Figure {
        per_second: count / seconds,
        median_us: 0.0,
        p99_us: 0.0,
        cpu: cpu * 1e6 / count,
    })
}

/// By `sysbench` (apt install sysbench), the server's data in a folder of its own.
fn mariadb(ground: &Workspace, kind: Kind) -> Option<Figure> {
    let folder = Folder::new("mariadb")?;
    let (data, socket, port) = (folder.path("data"), folder.path("socket"), free_port()?);
    let plain = ["--no-defaults", "--user=root"];
    let mut install = Command::new("mariadb-install-db");
    install.args(plain).args(["--auth-root-authentication-method=normal"]);
    run(install.arg(format!("--datadir={data}")))?;
    let mut server = ground.command("mariadbd", 0, kind);
    server.args(plain).arg("--bind-address=127.0.0.1").arg(format!("--datadir={data}"));
    server.arg(format!("--socket={socket}")).arg(format!("--port={port}"));
    let server = Server::start(&mut server, port)?;
    let root = ["--no-defaults", "-u", "root", "-S", &socket, "-e"];
    let make = "create database sbtest; create user bench@'%'; grant all on sbtest.* to bench@'%'; \
        create user bench@localhost; grant all on sbtest.* to bench@localhost";
    run(Command::new("mariadb").args(root).arg(make))?;
    let bench = |kind, what: &str, seconds: &str| {
        let mut bench = ground.command("sysbench", 1, kind);
        bench.args(["oltp_point_select", "--mysql-user=bench", "--tables=1", "--table-size=10000"]);
        bench.args(["--threads=8", "--percentile=99", &format!("--time={seconds}")]);
        match kind {
            Kind::Unix => bench.arg(format!("--mysql-socket={socket}")),
            _ => bench.args(["--mysql-host=127.0.0.1", &format!("--mysql-port={port}")]),
        };
        bench.arg(what);
        run(&mut bench)
    };
    let made = bench(Kind::Unix, "prepare", "0");
    let measured = made.and_then(|_| bench(kind, "run", "3"));
    let of_server = server.end()?;
    let (said, of_client) = measured?;
    let count = number_behind(&said, "transactions:")?;
    let milliseconds = |what| number_behind(&said, what);
    Some(Figure {
        per_second: count / 3.0,
        median_us: milliseconds("avg:")? * 1e3,
        p99_us: milliseconds("99th percentile:")? * 1e3,
        cpu: (of_server + of_client) * 1e6 / count,
    })
}

/// Both ends in one text: `serve ADDRESS`, or `call ADDRESS`, which says a time for each call.
const GRPC: &str = r"
import grpc, sys, time
from concurrent import futures
same = lambda it: it
if sys.argv[1] == 'serve':
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request, same, same)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('Echo', {'Call': handler}),))
    assert server.add_insecure_port(sys.argv[2])
    server.start()
    import signal
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    server.wait_for_termination()
channel = grpc.insecure_channel(sys.argv[2])
grpc.channel_ready_future(channel).result(20)
call = channel.unary_unary('/Echo/Call', same, same)
for turn in range(300): call(bytes(100))
begin, times = time.perf_counter(), []
while time.perf_counter() - begin < 2:
    before = time.perf_counter()
    assert len(call(bytes(100))) == 100
    times.append(round((time.perf_counter() - before) * 1e9))
print(*times)
";

fn grpc(ground: &Workspace, kind: Kind) -> Option<Figure> {
    let own = std::env::current_exe().ok()?;
    // Where `bash .ci/run tools` puts it.
    let packages = own.ancestors().map(|folder| folder.join("tools/grpcio"));
    let packages = packages.into_iter().find(|folder| folder.join("grpc").exists())?;
    let folder = Folder::new("grpc")?;
    let (program, port) = (folder.write("grpc_echo.py", GRPC)?, free_port()?);
    let address = match kind {
        Kind::Unix => format!("unix:{}", folder.path("socket")),
        _ => format!("127.0.0.1:{port}"),
    };
    let end = |what: &str, core| {
        let mut command = ground.command("python3", core, kind);
        command.args([&*program, what, &address]).env("PYTHONPATH", &packages);
        command
    };
    let server = match kind {
        Kind::Unix => Server::start_at(&mut end("serve", 0), Path::new(&folder.path("socket")))?,
        _ => Server::start(&mut end("serve", 0), port)?,
    };
    let measured = run(&mut end("call", 1));
    let of_server = server.end()?;
    let (said, of_client) = measured?;
    let mut times: Vec<f64> = said
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .map(|ns: f64| ns / 1e3)
        .collect();
    times.sort_by(f64::total_cmp);
    let (count, sum) = (times.len() as f64, times.iter().sum::<f64>());
    Some(Figure {
        per_second: count * 1e6 / sum,
        median_us: percentile(&times, 50)?,
        p99_us: percentile(&times, 99)?,
        cpu: (of_server + of_client) * 1e6 / count,
    })
}
