//! What these tests share.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use landfall_storage::client::{Client, Options};
use landfall_storage::server::{Offer, Server};
use landfall_storage::stream::Stream;

/// Long for whatever a test waits for.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A folder that goes with its test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("landfall-storage-{}-{nth}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file of this many bytes, all zero.
    pub(crate) fn disk(&self, name: &str, size: u64) -> PathBuf {
        let path = self.file(name);
        File::create(&path).and_then(|file| file.set_len(size)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server with one export, `disk`, over TCP.
pub(crate) fn serve(offer: Offer) -> (Server, SocketAddr) {
    let server = Server::builder().offer(offer).start().unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    (server, address)
}

pub(crate) fn connect(address: SocketAddr) -> Client {
    Client::connect_tcp(address, &Options::export("disk")).unwrap()
}

/// Bytes that are those of this number and no other.
pub(crate) fn pattern(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_be_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Is the program here?
pub(crate) fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}

/// Runs a program that has to end by itself; it does not hang.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program}: {error}"));
    wait(&mut child).unwrap_or_else(|error| {
        let _ = child.kill();
        panic!("{program} {arguments:?}: {error}")
    });
    child.wait_with_output().unwrap()
}

/// The same for a program that has to succeed.
pub(crate) fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{program} {arguments:?}: {said:?}");
    said[0].clone()
}

/// Waits for a process to end.
pub(crate) fn wait(child: &mut Child) -> io::Result<()> {
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > LIMIT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "it did not come to this: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn hash(path: &Path) -> String {
    blake3::hash(&std::fs::read(path).unwrap()).to_string()
}

/// A stream of which nobody reads while the gate is shut.
pub(crate) struct Gate {
    below: Arc<dyn Stream>,
    is_shut: AtomicBool,
}

impl Gate {
    pub(crate) fn new(below: Arc<dyn Stream>) -> Self {
        Self { below, is_shut: AtomicBool::new(false) }
    }

    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }

    pub(crate) fn open(&self) {
        self.is_shut.store(false, Ordering::Release);
    }
}

impl Stream for Gate {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        while self.is_shut.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        self.below.read(into)
    }

    fn write(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        self.below.write(head, payload)
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_write_timeout(timeout)
    }

    fn shut_down(&self) {
        self.below.shut_down();
    }
}
