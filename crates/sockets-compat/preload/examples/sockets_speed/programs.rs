//! Programs that know nothing of us.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ends::{end_of, end_within};
use crate::{Figure, Kind, Row, Workspace};

pub(crate) const ROWS: &[Row] = &[
    ("redis GET, one client", |ground, kind| redis(ground, kind, "get", 1, 1, 60_000)),
    ("redis GET, 50 clients", |ground, kind| redis(ground, kind, "get", 50, 1, 150_000)),
    ("redis SET, 50 clients", |ground, kind| redis(ground, kind, "set", 50, 1, 150_000)),
    ("redis GET, 50 clients, 16 at once", |ground, kind| {
        redis(ground, kind, "get", 50, 16, 1_000_000)
    }),
    ("redis SET, 50 clients, 16 at once", |ground, kind| {
        redis(ground, kind, "set", 50, 16, 1_000_000)
    }),
    ("iperf3, Gbit/s", |ground, kind| iperf(ground, kind)),
    ("pgbench -S, one client", |ground, kind| postgres(ground, kind, 1)),
    ("pgbench -S, 8 clients", |ground, kind| postgres(ground, kind, 8)),
];

/// A server that is ended with this.
pub(crate) struct Server {
    child: Child,
    is_ended: bool,
}

impl Server {
    /// Starts one and waits until it listens.
    pub(crate) fn start(command: &mut Command, port: u16) -> Option<Self> {
        Self::start_until(command, || TcpListener::bind(("127.0.0.1", port)).is_err())
    }

    /// The same of one that listens at a path.
    pub(crate) fn start_at(command: &mut Command, path: &Path) -> Option<Self> {
        Self::start_until(command, || UnixStream::connect(path).is_ok())
    }

    fn start_until(command: &mut Command, listens: impl Fn() -> bool) -> Option<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let server = Self { child, is_ended: false };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !listens() {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// Ends it; what it has used of its core.
    pub(crate) fn end(mut self) -> Option<f64> {
        self.is_ended = true;
        // MariaDB takes SIGINT for its debugger's; redis takes a second signal, while it ends,
        // for the wish to end at once, and may stand still in its memory's lock then.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
            // SAFETY: a child of ours.
            unsafe { libc::kill(self.child.id().cast_signed(), signal) };
            if let Some((_, used)) = end_within(&self.child, Duration::from_secs(3)) {
                return Some(used);
            }
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The first number behind these words.
pub(crate) fn number_behind(said: &str, words: &str) -> Option<f64> {
    let rest = &said[said.find(words)? + words.len()..];
    rest.split_whitespace().find_map(|word| word.parse().ok())
}

/// Of times in order.
pub(crate) fn percentile(times: &[f64], part: usize) -> Option<f64> {
    times.get(times.len() * part / 100).copied()
}

pub(crate) fn free_port() -> Option<u16> {
    Some(TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port())
}

/// Runs a client to its end: what it said, and what it used; `None` if it failed.
pub(crate) fn run(command: &mut Command) -> Option<(String, f64)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take()?, &mut said).ok()?;
    let (went_well, used) = end_of(&child)?;
    went_well.then_some((said, used))
}

fn redis(
    ground: &Workspace,
    kind: Kind,
    what: &str,
    clients: usize,
    at_once: usize,
    count: usize,
) -> Option<Figure> {
    let port = free_port()?;
    let socket = std::env::temp_dir().join(format!("landfall-redis-{}", std::process::id()));
    let mut server = ground.command("redis-server", 0, kind);
    server.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    let server = Server::start(server.arg("--unixsocket").arg(&socket), port)?;
    let mut client = ground.command("redis-benchmark", 1, kind);
    client.args(["--csv", "-t", what]);
    match kind {
        Kind::Unix => client.arg("-s").arg(&socket),
        _ => client.args(["-p", &port.to_string()]),
    };
    client.args(["-c", &clients.to_string(), "-P", &at_once.to_string()]);
    let (said, of_client) = run(client.args(["-n", &count.to_string()]))?;
    let cpu = server.end()? + of_client;
    // "GET","rps","avg","min","p50","p95","p99","max"
    let line = said.lines().find(|line| line.starts_with(&format!("\"{}", what.to_uppercase())))?;
    let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Figure {
        per_second: number(1)?,
        median_us: number(4)? * 1e3,
        p99_us: number(6)? * 1e3,
        cpu: cpu * 1e6 / count as f64,
    })
}

fn iperf(ground: &Workspace, kind: Kind) -> Option<Figure> {
    if kind == Kind::Unix {
        return None;
    }
    let port = free_port()?;
    let mut server = ground.command("iperf3", 0, kind);
    let server = Server::start(server.args(["-s", "-p", &port.to_string()]), port)?;
    let mut client = ground.command("iperf3", 1, kind);
    client.args(["-c", "127.0.0.1", "-t", "2", "-f", "g", "-p", &port.to_string()]);
    let (said, of_client) = run(&mut client)?;
    let cpu = server.end()? + of_client;
    let line = said.lines().find(|line| line.ends_with("receiver"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Gbits/sec")?;
    let per_second: f64 = words.get(at.checked_sub(1)?)?.parse().ok()?;
    let cpu = cpu / (per_second * 2.0);
    Some(Figure { per_second, median_us: 0.0, p99_us: 0.0, cpu })
}

/// A folder with a database in it, made once and removed at the end.
struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    /// It refuses to run as root, and both ends have to be one user.
    user: Option<(u32, u32)>,
}

impl Cluster {
    fn command(&self, ground: &Workspace, name: &str, core: usize, kind: Kind) -> Command {
        let mut command = ground.command(self.programs.join(name), core, kind);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    fn make(ground: &Workspace) -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        let programs = versions.map(|version| version.path().join("bin")).max()?;
        // SAFETY: a name that ends with zero; the answer is read at once.
        let user = unsafe {
            let found = libc::getpwnam(c"postgres".as_ptr());
            (libc::geteuid() == 0 && !found.is_null()).then(|| ((*found).pw_uid, (*found).pw_gid))
        };
        let folder = std::env::temp_dir().join(format!("landfall-pgbench-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        std::os::unix::fs::chown(&folder, user.map(|user| user.0), user.map(|user| user.1)).ok()?;
        let cluster = Self { folder, programs, user };
        let mut init = cluster.command(ground, "initdb", 0, Kind::Kernel);
        run(init.args(["-A", "trust", "-U", "bench", "-N", "-D"]).arg(cluster.data()))?;
        Some(cluster)
    }

    /// What `pgbench` has written down of each transaction, in microseconds and in order.
    fn times(&self) -> Option<Vec<f64>> {
        let files = std::fs::read_dir(&self.folder).ok()?.flatten().map(|file| file.path());
        let name = |path: &PathBuf| path.file_name().map(|it| it.to_string_lossy().into_owned());
        let files = files.filter(|path| name(path).is_some_and(|it| it.starts_with("times")));
        let mut times: Vec<f64> = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(file).ok()?;
            times.extend(
                text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()),
            );
        }
        times.sort_by(f64::total_cmp);
        Some(times)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn serve(&self, ground: &Workspace, kind: Kind, port: u16) -> Option<Server> {
        let mut server = self.command(ground, "postgres", 0, kind);
        server.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        Server::start(server.args(["-p", &port.to_string(), "-F"]), port)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn postgres(ground: &Workspace, kind: Kind, clients: usize) -> Option<Figure> {
    if !Path::new("/usr/lib/postgresql").exists() {
        return None;
    }
    let cluster = Cluster::make(ground)?;
    let port = free_port()?;
    let server = cluster.serve(ground, kind, port)?;
    let bench = || {
        let mut bench = cluster.command(ground, "pgbench", 1, kind);
        match kind {
            Kind::Unix => bench.arg("-h").arg(&cluster.folder),
            _ => bench.args(["-h", "127.0.0.1"]),
        };
        bench.args(["-U", "bench", "-p", &port.to_string()]);
        bench
    };
    // It accepts a moment after it listens.
    let deadline = Instant::now() + Duration::from_secs(20);
    while run(bench().args(["-i", "-q", "-s", "1", "postgres"])).is_none() {
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut client = bench();
    client.args(["-S", "-M", "prepared", "-T", "2", "-c", &clients.to_string(), "-l"]);
    client.arg("--log-prefix").arg(cluster.folder.join("times"));
    let (said, of_client) = run(client.arg("postgres"))?;
    let cpu = server.end()? + of_client;
    let per_second = number_behind(&said, "tps = ")?;
    let times = cluster.times()?;
    Some(Figure {
        per_second,
        median_us: percentile(&times, 50)?,
        p99_us: percentile(&times, 99)?,
        cpu: cpu * 1e6 / times.len() as f64,
    })
}
