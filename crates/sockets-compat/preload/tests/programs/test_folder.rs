//! Where programs meet: a folder, ports, and processes that end with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::example;

/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The names of the library, of its log and of rules in the folder of a test.
const LIBRARY: &str = "libpreload.so";
const LOG: &str = "connections.log";
const RULES: &str = "connections.rules";

/// Who of the two has the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Both,
    ServerOnly,
    ClientOnly,
    /// So that a test which asks too much is not taken for a fault of the library.
    Neither,
}

impl Where {
    pub(crate) fn server(self) -> bool {
        matches!(self, Self::Both | Self::ServerOnly)
    }

    pub(crate) fn client(self) -> bool {
        matches!(self, Self::Both | Self::ClientOnly)
    }
}

pub(crate) fn each(mut with: impl FnMut(Where)) {
    for place in [Where::Neither, Where::Both, Where::ServerOnly, Where::ClientOnly] {
        with(place);
    }
}

/// Why a test cannot be done here.
pub(crate) fn missing(programs: &[&str]) -> Option<String> {
    let folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let absent = |name: &&&str| !folders.iter().any(|folder| folder.join(name).exists());
    programs.iter().find(absent).map(|name| format!("needs the program {name}"))
}

/// What the library says once a connection goes through memory.
const BY_MEMORY: &str = ": memory: both ends have the library";

/// A folder of a test's own.
#[derive(Debug)]
pub(crate) struct TestFolder {
    folder: String,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "landfall-programs-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        // nginx changes to another user for its workers.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&folder, open).expect("its mode can be set");
        // Where anyone who a program becomes can read it, and write what it says.
        std::fs::copy(example("libpreload_for_tests.so"), folder.join(LIBRARY))
            .expect("the library can be copied");
        let ground = Self { folder: folder.to_string_lossy().into_owned() };
        let log = ground.write(LOG, b"");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(log, open).expect("its mode can be set");
        ground
    }

    /// Connections that went through memory at both ends are in the log from here on; that
    /// of others not.
    pub(crate) fn expect_memory(&self, place: Where) {
        let said = self.log();
        self.forget_log();
        assert_eq!(said.contains(BY_MEMORY), place == Where::Both, "{place:?}: {said}");
    }

    /// What the log says, from its beginning.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path(LOG)).expect("there is a log")
    }

    /// What was said until now is of no interest.
    pub(crate) fn forget_log(&self) {
        self.write(LOG, b"");
    }

    /// Rules for all that is started with the library from here on.
    pub(crate) fn follow(&self, rules: &str) {
        self.write(RULES, rules.as_bytes());
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// A folder within, which everybody may use.
    pub(crate) fn open_folder(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, open).expect("its mode can be set");
        path
    }

    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        path
    }

    /// A file of bytes that differ, and what is in it.
    pub(crate) fn file(&self, name: &str, len: usize) -> Vec<u8> {
        let word = |at: usize| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).take(len).collect();
        self.write(name, &bytes);
        bytes
    }

    /// A port that was free a moment ago.
    pub(crate) fn port(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("it has an address").port()
    }

    pub(crate) fn start(&self, with_library: bool, program: &str, arguments: &[&str]) -> Running {
        self.start_told(with_library, program, arguments, &[])
    }

    /// The same with some variables of its environment.
    pub(crate) fn start_told(
        &self,
        with_library: bool,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).env("HOME", &self.folder);
        if with_library {
            command.env("LD_PRELOAD", self.path(LIBRARY)).env("LANDFALL_LOG", self.path(LOG));
            if Path::new(&self.path(RULES)).exists() {
                command.env("LANDFALL_RULES", self.path(RULES));
            }
        }
        command.envs(variables.iter().copied());
        let child = command.spawn().unwrap_or_else(|why| panic!("{program}: {why}"));
        Running { name: program.to_owned(), child }
    }

    /// Starts a server and waits until it answers.
    pub(crate) fn serve(
        &self,
        place: Where,
        port: u16,
        program: &str,
        arguments: &[&str],
    ) -> Running {
        let mut running = self.start(place.server(), program, arguments);
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < PATIENCE, "{program} does not listen");
            if let Ok(Some(status)) = running.child.try_wait() {
                panic!("{program} has ended: {status}\n{}", running.complaints());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    /// The same for a server that a question would disturb.
    /// It is looked for in the network of this thread.
    pub(crate) fn wait_for_listener(&self, port: u16) {
        let (short, long) = ("00000000", "00000000000000000000000000000000");
        let listens = |file: &str, nobody: &str| {
            let wanted = format!(":{port:04X} {nobody}:0000 0A");
            std::fs::read_to_string(file).is_ok_and(|all| all.contains(&wanted))
        };
        let begin = Instant::now();
        while !listens("/proc/thread-self/net/tcp", short)
            && !listens("/proc/thread-self/net/tcp6", long)
        {
            assert!(begin.elapsed() < PATIENCE, "nobody listens");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Until a server is ready that answers before it is.
    pub(crate) fn until(&self, mut is_ready: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_ready() {
            assert!(begin.elapsed() < PATIENCE, "it is not ready");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a client; what it said.
    pub(crate) fn run(&self, place: Where, program: &str, arguments: &[&str]) -> Vec<u8> {
        self.run_with_input(place, program, arguments, &[])
    }

    pub(crate) fn run_text(&self, place: Where, program: &str, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.run(place, program, arguments)).into_owned()
    }

    pub(crate) fn run_with_input(
        &self,
        place: Where,
        program: &str,
        arguments: &[&str],
        input: &[u8],
    ) -> Vec<u8> {
        let mut running = self.start(place.client(), program, arguments);
        let mut stdin = running.child.stdin.take().expect("it is piped");
        std::thread::scope(|scope| {
            // Who does not read to the end may close before.
            scope.spawn(move || stdin.write_all(input));
            running.output()
        })
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<&str> = log.lines().rev().take(40).collect();
            println!("the last connections, the last one first: {last:#?}");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    child: Child,
}

impl Running {
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Lets it stand still (`STOP`), or go on (`CONT`).
    pub(crate) fn signal(&self, signal: &str) {
        let told = Command::new("kill").args(["-s", signal, &self.process().to_string()]).status();
        assert!(told.expect("kill starts").success());
    }

    /// Writes a line to its input.
    pub(crate) fn is_told(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it listens");
    }

    /// Ends it as nobody can expect.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// Until its output has a line that begins so.
    pub(crate) fn until_it_says(&mut self, beginning: &str) {
        let stdout = self.child.stdout.take().expect("it is piped");
        let (teller, tells) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout);
            loop {
                let mut line = String::new();
                let len = lines.read_line(&mut line).unwrap_or(0);
                if len == 0 || teller.send(line).is_err() {
                    return lines.into_inner();
                }
            }
        });
        let mut said = String::new();
        while !said.lines().any(|line| line.starts_with(beginning)) {
            match tells.recv_timeout(PATIENCE) {
                Ok(line) => said.push_str(&line),
                Err(_) => {
                    let complaints = self.complaints();
                    panic!("{} says only: {said}{complaints}", self.name);
                }
            }
        }
        // What it says later nobody asks for.
        drop((tells, reader));
    }

    /// All that it says until it ends by itself, in time and well.
    pub(crate) fn output(&mut self) -> Vec<u8> {
        self.output_within(PATIENCE)
    }

    /// The same of one that has much to do.
    pub(crate) fn output_within(&mut self, patience: Duration) -> Vec<u8> {
        let mut stdout = self.child.stdout.take().expect("it is piped");
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            stdout.read_to_end(&mut said).map(|_| said)
        });
        let status = self.status(patience);
        let said = reader.join().expect("a reader").expect("its output can be read");
        let words = String::from_utf8_lossy(&said[..said.len().min(2000)]).into_owned();
        if !status.success() {
            let complaints = self.complaints();
            panic!("{}: {status}\n{words}{complaints}", self.name);
        }
        said
    }

    /// The same of one whose words were heard already.
    pub(crate) fn ends_well(&mut self) {
        let status = self.status(PATIENCE);
        if !status.success() {
            let complaints = self.complaints();
            panic!("{}: {status}\n{complaints}", self.name);
        }
    }

    /// The code that it ends with by itself, in time.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.status(PATIENCE).code()
    }

    /// How it ends, if it does so in time.
    fn status(&mut self, patience: Duration) -> ExitStatus {
        let begin = Instant::now();
        loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => return status,
                None if begin.elapsed() > patience => {
                    let _ = self.child.kill();
                    let said = self.complaints();
                    panic!("{} stands still\n{said}", self.name);
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn complaints(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = self.child.kill();
            let _ = stderr.read_to_string(&mut said);
        }
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Politely first: nginx has children.
        let asked =
            Command::new("kill").arg(self.child.id().to_string()).stderr(Stdio::null()).status();
        let begin = Instant::now();
        while asked.is_ok() && begin.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
