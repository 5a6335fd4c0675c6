//! `landfall clan-ip` as people use it: three hosts, whose programs know nothing of it.
//! As an ordinary user these tests skip with one line.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces};

const PORT: u16 = 7100;
/// A busy machine may take its time; nothing here takes for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three namespaces, each joined to each other by a cable.
struct Triangle {
    hosts: [Namespace; 3],
    cables: [VethPair; 3],
}

impl Triangle {
    fn new() -> Self {
        let hosts = [(); 3].map(|()| Namespace::new().unwrap());
        let cable = |cable, a: usize, b: usize| {
            let config = VethConfig { cable, ..VethConfig::default() };
            VethPair::between(&hosts[a], &hosts[b], config).unwrap()
        };
        let cables = [cable(0, 0, 1), cable(1, 1, 2), cable(2, 2, 0)];
        Self { hosts, cables }
    }

    /// What `--neighbour` says of host `there` at host `here`.
    fn neighbour(&self, here: usize, there: usize) -> String {
        let ends =
            self.cables.iter().flat_map(|cable| [(&cable.a, &cable.b), (&cable.b, &cable.a)]);
        let mut ends = ends.filter(|(near, far)| {
            near.namespace == self.hosts[here] && far.namespace == self.hosts[there]
        });
        let (_, far) = ends.next().unwrap();
        format!("{}={}:{PORT}", there + 1, far.ipv4)
    }

    /// Starts one host, and waits until its interface is up.
    fn start(&self, here: usize) -> Host {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        let number = (here + 1).to_string();
        command.args(["clan-ip", "--host", &number, "--bind", &format!("0.0.0.0:{PORT}")]);
        command.args(["--address", &format!("{}/24", address(here)), "--mtu", "9000"]);
        // Ends by itself, should the test not end it.
        command.args(["--stats", "0", "--seconds", "300"]);
        for there in (0..3).filter(|there| *there != here) {
            command.args(["--neighbour", &self.neighbour(here, there)]);
        }
        command.stdout(Stdio::piped());
        let mut child = self.hosts[here].enter(|| command.spawn()).unwrap().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        assert!(first.starts_with("clan0 is up"), "{first}");
        Host { child, said }
    }

    /// Runs a program at a host until it succeeds; gives what it printed.
    fn run(&self, here: usize, words: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let run = self.hosts[here].enter(|| Command::new(words[0]).args(&words[1..]).output());
            let output = run.unwrap().unwrap();
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            assert!(Instant::now() < deadline, "{words:?}: {output:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn address(host: usize) -> String {
    format!("10.7.0.{}", host + 1)
}

/// A running `landfall clan-ip`; killed if the test does not end it.
struct Host {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Host {
    /// Ends it as people do; gives its last words.
    fn stop(mut self) -> String {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert!(self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has ended already where the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends a server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("clan-ip-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Files of many lengths, none like another.
fn plant(tree: &Path) -> Vec<(String, Vec<u8>)> {
    let lengths = [0, 1, 1500, 8_959, 8_960, 70_000, 3_000_000];
    let files = lengths.iter().enumerate().map(|(nth, len)| {
        let name = format!("{nth}/file-{len}");
        let bytes: Vec<_> = (0..*len).map(|at: usize| (at * 31 + at / 251 + nth) as u8).collect();
        fs::create_dir_all(tree.join(nth.to_string())).unwrap();
        fs::write(tree.join(&name), &bytes).unwrap();
        (name, bytes)
    });
    files.collect()
}

#[test]
fn unmodified_programs_of_three_hosts_talk_to_each_other() {
    require_namespaces!();
    let triangle = Triangle::new();
    let hosts = [0, 1, 2].map(|here| triangle.start(here));
    let folder = Folder::new("tree");
    let files = plant(&folder.0);
    for server in 0..3 {
        let serve = || {
            let root = folder.0.to_string_lossy().into_owned();
            let bind = ["-m", "http.server", "--bind", &address(server), "--directory", &root];
            let mut command = Command::new("python3");
            command.args(bind).arg("8080").stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let _server = Server(triangle.hosts[server].enter(serve).unwrap().unwrap());
        for client in (0..3).filter(|client| *client != server) {
            for (name, bytes) in &files {
                let to = folder.0.join("fetched").to_string_lossy().into_owned();
                let from = format!("http://{}:8080/{name}", address(server));
                triangle.run(client, &["curl", "-sf", "--max-time", "60", "-o", &to, &from]);
                assert!(fs::read(&to).unwrap() == *bytes, "{name} from {server} to {client}");
                fs::remove_file(&to).unwrap();
            }
        }
    }
    for host in hosts {
        let last = host.stop();
        assert!(last.contains("misbehaved: 0."), "{last}");
    }
    for here in 0..3 {
        assert!(!triangle.run(here, &["ip", "link"]).contains("clan0"));
    }
}

#[test]
fn a_host_that_was_killed_is_connected_to_again() {
    require_namespaces!();
    let triangle = Triangle::new();
    let mut hosts = [0, 1].map(|here| triangle.start(here));
    let listen = |here: usize| {
        let spawn = || {
            let mut command = Command::new("iperf3");
            command.args(["-s", "-1", "-B", &address(here)]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        Server(triangle.hosts[here].enter(spawn).unwrap().unwrap())
    };
    let to = address(1);
    let send = ["iperf3", "-c", &to, "-n", "2M", "--connect-timeout", "2000"];
    let first = listen(1);
    triangle.run(0, &send);
    drop(first);
    hosts[1].child.kill().unwrap();
    hosts[1].child.wait().unwrap();
    hosts[1] = triangle.start(1);
    let _second = listen(1);
    triangle.run(0, &send);
    let [one, _two] = hosts;
    let last = one.stop();
    assert!(last.contains("misbehaved: 0."), "{last}");
}
