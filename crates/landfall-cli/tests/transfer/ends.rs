//! Both programs: started, watched, killed, and never left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use landfall_testkit::TemporaryFolder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Long for whatever a test asks, on however slow a machine.
const LIMIT: Duration = Duration::from_secs(240);
pub(crate) const CODE: &str = "a-code-of-the-tests";

/// A folder that is not left behind.
pub(crate) struct Scratch(TemporaryFolder);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        Self(TemporaryFolder::new(name))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and the folders that it lies in.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Folders that may not be written to are to go, too.
        for entry in walk(self.0.path()) {
            if entry.is_dir() && !entry.is_symlink() {
                let _ = fs::set_permissions(&entry, PermissionsOf::all());
            }
        }
    }
}

struct PermissionsOf;

impl PermissionsOf {
    fn all() -> fs::Permissions {
        std::os::unix::fs::PermissionsExt::from_mode(0o755)
    }
}

/// Bytes that differ everywhere, and for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    reader.fill(&mut bytes);
    bytes
}

/// Every path below a folder, folders before what is in them.
pub(crate) fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        found.push(path.clone());
        if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path));
        }
    }
    found
}

/// What there is to compare of a tree, by name.
pub(crate) fn describe(folder: &Path) -> Vec<String> {
    let mut lines: Vec<String> = walk(folder).iter().map(|path| line(folder, path)).collect();
    lines.sort();
    lines
}

fn line(folder: &Path, path: &Path) -> String {
    let metadata = fs::symlink_metadata(path).unwrap();
    let name = path.strip_prefix(folder).unwrap().as_os_str().as_bytes().escape_ascii();
    let (mode, time) = (metadata.mode() & 0o777, (metadata.mtime(), metadata.mtime_nsec()));
    if metadata.is_symlink() {
        format!("{name} -> {:?} {time:?}", fs::read_link(path).unwrap())
    } else if metadata.is_dir() {
        format!("{name}/ {mode:o} {time:?}")
    } else {
        let hash = blake3::hash(&fs::read(path).unwrap());
        format!("{name} {mode:o} {time:?} {hash}")
    }
}

/// What is left of partial files.
pub(crate) fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| path.file_name().unwrap().as_bytes().starts_with(b".landfall-");
    walk(folder).into_iter().filter(is_ours).collect()
}

/// A program that runs.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    stdout: Option<thread::JoinHandle<Vec<u8>>>,
    pub(crate) said: Vec<String>,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) said: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{}", self.said);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.stdout);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in:\n{text}\n{}", self.said))
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        assert!(self.said.contains(text), "{text:?} is not in:\n{}", self.said);
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (to, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = to.send(line);
            }
        });
        let mut stdout = child.stdout.take().unwrap();
        let stdout = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            bytes
        });
        Self { child, lines, stdout: Some(stdout), said: Vec::new() }
    }

    /// Waits for a line on stderr that starts so, and gives the rest of it.
    #[track_caller]
    pub(crate) fn line(&mut self, start: &str) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if let Some(rest) = line.strip_prefix(start) {
                        return rest.to_owned();
                    }
                }
                Err(_) => panic!("no line {start:?}:\n{}", self.said.join("\n")),
            }
        }
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: it can do nothing about it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGINT, as by Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let until = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > until {
                self.child.kill().unwrap();
                let said: Vec<_> = self.lines.try_iter().collect();
                panic!("it did not end:\n{}\n{}", self.said.join("\n"), said.join("\n"));
            }
            thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout.take().unwrap().join().unwrap();
        self.said.extend(self.lines.iter());
        Ended { status, stdout, said: self.said.join("\n") }
    }
}

impl Drop for Running {
    /// Whatever a test forgot, or left by a panic.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn landfall() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.stdin(Stdio::null()).env_remove("LANDFALL_CODE");
    command
}

/// A receiver that listens, and where.
pub(crate) struct Listening {
    pub(crate) running: Running,
    pub(crate) at: String,
}

/// Starts a receiver with the code of the tests on loopback.
#[track_caller]
pub(crate) fn receive(dir: &Path, more: &[&str]) -> Listening {
    let mut command = landfall();
    command.arg("receive").arg("--dir").arg(dir).args(["--code", CODE, "--patience", "6"]);
    if !more.contains(&"--local") {
        command.args(["--local", "127.0.0.1:0"]);
    }
    command.args(more);
    listening(&mut command)
}

#[track_caller]
pub(crate) fn listening(command: &mut Command) -> Listening {
    let mut running = Running::start(command);
    let at = running.line("listening on ");
    let at = at.split(' ').next().unwrap().to_owned();
    running.line("code: ");
    Listening { running, at }
}

/// Starts a sender of these paths.
pub(crate) fn send(paths: &[&Path], at: &str, more: &[&str]) -> Running {
    let mut command = landfall();
    command.args(["send", "--code", CODE, "--patience", "6", "--json"]).args(more);
    command.args(paths).arg(at);
    Running::start(&mut command)
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "{what} did not come");
        thread::sleep(Duration::from_millis(1));
    }
}
