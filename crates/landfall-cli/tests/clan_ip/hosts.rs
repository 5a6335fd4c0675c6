//! Three hosts with a cable between each two, `landfall clan-ip` at each, and programs
//! that run there. Whatever is started ends with the test, also where it panics, and
//! after [`LIFETIME`] should the test be killed.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, VethConfig, VethPair};

const PORT: u16 = 7100;
/// A busy machine may take its time; nothing here takes for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds after which everything ends by itself, should the test not end it.
const LIFETIME: &str = "300";
/// Seconds that a client may take.
const CLIENT: &str = "60";

/// Where programs are that are not in everybody's path.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where a program is.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Why a test cannot run that needs these programs.
pub(crate) fn why_missing(programs: &[&str]) -> Option<String> {
    let missing: Vec<_> =
        programs.iter().filter(|program| found(program).is_none()).copied().collect();
    (!missing.is_empty()).then(|| format!("needs what is not installed: {}", missing.join(", ")))
}

/// Three namespaces, each joined to each other by a cable.
pub(crate) struct Triangle {
    hosts: [Namespace; 3],
    cables: [VethPair; 3],
}

impl Triangle {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn start(&self, here: usize) -> Host {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        let number = (here + 1).to_string();
        command.args(["clan-ip", "--host", &number, "--bind", &format!("0.0.0.0:{PORT}")]);
        command.args(["--address", &format!("{}/24", address(here)), "--mtu", "9000"]);
        command.args(["--stats", "0", "--seconds", LIFETIME]);
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

    /// Does something at a host, such as making a socket.
    pub(crate) fn enter<T: Send>(&self, here: usize, work: impl FnOnce() -> T + Send) -> T {
        self.hosts[here].enter(work).unwrap()
    }

    /// Runs a program at a host, for a bounded time.
    fn output(&self, here: usize, words: &[&OsStr]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", CLIENT]).args(words).stdin(Stdio::null());
        self.hosts[here].enter(|| command.output()).unwrap().unwrap()
    }

    /// Runs a program at a host, which has to succeed; gives what it printed.
    pub(crate) fn run<W: AsRef<OsStr>>(&self, here: usize, words: &[W]) -> String {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        let output = self.output(here, &words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a program at a host until it succeeds, as the other side may not be ready.
    pub(crate) fn run_until_it_succeeds<W: AsRef<OsStr>>(
        &self,
        here: usize,
        words: &[W],
    ) -> String {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.output(here, &words);
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            assert!(Instant::now() < deadline, "{words:?}: {output:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs a script with a server at its end. It has mounts and process numbers of its
    /// own: with it all that it mounted goes, and all that it started.
    pub(crate) fn serve(&self, here: usize, script: &Path) -> Server {
        let log = fs::File::create(script.with_extension("log")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["timeout", "-s", "KILL", LIFETIME, "sh", "-e"]).arg(script);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.start_server(here, command)
    }

    /// Runs a program that serves.
    pub(crate) fn start_server(&self, here: usize, mut command: Command) -> Server {
        Server(self.hosts[here].enter(|| command.spawn()).unwrap().unwrap())
    }
}

/// The address of a host's interface.
pub(crate) fn address(host: usize) -> String {
    format!("10.7.0.{}", host + 1)
}

/// A running `landfall clan-ip`; killed if the test does not end it.
pub(crate) struct Host {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Host {
    /// Ends it as people do; gives its last words.
    pub(crate) fn stop(mut self) -> String {
        self.signal("INT");
        assert!(self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let (name, id) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([name, id]).status().unwrap().success());
    }

    /// Ends it as a power failure does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has ended already where the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends all hosts as people do, and gives their last words: nobody may have been accused
/// of anything.
pub(crate) fn stop_all(hosts: impl IntoIterator<Item = Host>) -> Vec<String> {
    let last_words: Vec<_> = hosts.into_iter().map(Host::stop).collect();
    for said in &last_words {
        assert!(said.contains("misbehaved: 0;") && said.ends_with("known: 0.\n"), "{said}");
    }
    last_words
}

/// Ends a server with the test.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("clan-ip-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of something in it, as an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// Writes a file, and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes of which no two places look alike, and no two seeds.
pub(crate) fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let words = std::iter::repeat_with(move || {
        // Knuth's linear congruential generator (MMIX); the high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    });
    words.flat_map(u32::to_le_bytes).take(len).collect()
}
