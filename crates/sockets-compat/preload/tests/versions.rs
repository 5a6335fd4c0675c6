//! Two versions of the library on one host: they understand each other or stay with TCP, and those
//! who look at all connections say of a file that they cannot read whose it is.
//!
//! The other version is this library with other numbers of its layouts, or the one that
//! `LANDFALL_OTHER_PRELOAD` names: `bash .ci/run versions` names those of releases, and their tool in
//! `LANDFALL_OTHER_TOOL`.

mod common;

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use common::example;
use landfall_socket_status::Transport;
use landfall_socket_status::read::Reader;
use landfall_testbed::leave_out_unless;

/// Answers each word with the same, of all lengths that matter; waits when all is said.
const SERVES: &str = r"
import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
while True:
    got = connection.recv(1 << 20)
    if not got: break
    connection.sendall(got)
";

/// More turns than anyone waits for an answer to an offer.
const ASKS: &str = r"
import socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def ask(turn, length):
    said = bytes((turn + at) & 255 for at in range(251)) * (length // 251 + 1)
    connection.sendall(said)
    assert connection.recv(len(said), socket.MSG_WAITALL) == said
for turn in range(200): ask(turn, (1, 1000, 30000)[turn % 3])
print('all said', flush=True)
sys.stdin.read()
ask(7, 100)
print('and more')
";

/// Both ends of a connection, which it has made memory of; then a child gets one of them.
const HANDS_DOWN: &str = r"
import os, socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
def move(count):
    for turn in range(count):
        for one, other in ((a, b), (b, a)):
            one.sendall(b'word')
            assert other.recv(4) == b'word'
move(20)
a.sendall(b'word')
child = '''
import socket, sys
end = socket.socket(fileno=int(sys.argv[1]))
for call in (lambda: end.recv(4), lambda: end.send(b'more'), lambda: end.recv(4, socket.MSG_DONTWAIT)):
    try: print(call())
    except OSError as why: print(type(why).__name__)
'''
environment = dict(os.environ, LD_PRELOAD=sys.argv[1])
heard = subprocess.run([sys.executable, '-c', child, str(b.fileno())], env=environment,
    pass_fds=[b.fileno()], capture_output=True, text=True, timeout=60)
is_understood = 'Reset' not in heard.stdout
left = a.recv(4) if is_understood else b.recv(4)
move(20)
print(*heard.stdout.split(), left, heard.stderr)
";

/// A script that stands before Python in the path and starts other programs is not what is meant.
fn python(words: &[&str], library: &Path, log: &Path) -> Command {
    let program = "/usr/bin/python3";
    let mut command = Command::new(if Path::new(program).exists() { program } else { "python3" });
    command.arg("-c").args(words).env("LD_PRELOAD", library).env("LANDFALL_LOG", log);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn own() -> PathBuf {
    example("libpreload_for_tests.so")
}

fn named(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

/// Another version of the library.
fn other() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    named("LANDFALL_OTHER_PRELOAD").map_or_else(|| MADE.get_or_init(renumbered).clone(), Into::into)
}

/// The library that is tested, with other numbers of its layouts: of the memory of a connection, and
/// of what a process says of its connections. They are words of eight letters, and stand in the
/// code as the processor has them.
fn renumbered() -> PathBuf {
    let mut library = fs::read(own()).expect("it is built");
    for number in [*b"landfal", *b"lfstatu"] {
        let letters: Vec<u8> = number.iter().rev().copied().collect();
        let places: Vec<usize> = (1..library.len() - letters.len())
            .filter(|&at| library[at..].starts_with(&letters) && library[at - 1].is_ascii_digit())
            .collect();
        assert!(!places.is_empty(), "{} is not in the library", String::from_utf8_lossy(&number));
        places.into_iter().for_each(|at| library[at - 1] = b'~');
    }
    let place = std::env::temp_dir().join(format!("landfall-other-{}.so", std::process::id()));
    fs::write(&place, library).expect("it can be written");
    place
}

/// A file of its own that goes with this.
struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("landfall-versions-{}-{count}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    fn says_memory(&self) -> bool {
        self.text().contains(": memory: both ends have the library")
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What it says next. Nothing behind that line is taken.
fn line(child: &mut Child) -> String {
    let (mut said, mut byte) = (Vec::new(), [0]);
    let stdout = child.stdout.as_mut().expect("it is piped");
    while stdout.read(&mut byte).expect("it can be heard") == 1 && byte != *b"\n" {
        said.extend(byte);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn ended(child: Child) -> Output {
    let output = child.wait_with_output().expect("it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A server by the first and a client by the second have talked; `meanwhile` runs while both are
/// there still. What both logs say.
fn talk(server: &Path, client: &Path, meanwhile: impl FnOnce(&Child, &Child)) -> [Log; 2] {
    let logs = ["server", "client"].map(Log::new);
    let mut serves = python(&[SERVES], server, &logs[0].0).spawn().expect("python3 starts");
    let port = line(&mut serves);
    let mut asks = python(&[ASKS, &port], client, &logs[1].0).spawn().expect("python3 starts");
    assert_eq!(line(&mut asks), "all said", "{} and {}", server.display(), client.display());
    meanwhile(&serves, &asks);
    let said = ended(asks);
    assert_eq!(said.stdout, b"and more\n");
    ended(serves);
    logs
}

#[test]
fn two_versions_talk_by_tcp_and_each_with_its_own_by_memory() {
    let (own, other) = (own(), other());
    let may_understand = named("LANDFALL_OTHER_PRELOAD").is_some();
    for (server, client) in [(&own, &own), (&other, &other), (&own, &other), (&other, &own)] {
        let logs = talk(server, client, |_, _| {});
        let by_memory = [logs[0].says_memory(), logs[1].says_memory()];
        let said = || format!("{}{}", logs[0].text(), logs[1].text());
        assert_eq!(by_memory[0], by_memory[1], "both ends say the same: {}", said());
        if server == client {
            assert!(by_memory[0], "{}", said());
        } else if !may_understand {
            assert!(!by_memory[0], "{}", said());
            assert!(
                logs[0].text().contains(": tcp: the offer is of another version"),
                "{}",
                said()
            );
            assert!(
                logs[1].text().contains(": tcp: nobody has taken the memory that was offered"),
                "{}",
                said()
            );
        }
    }
}

#[test]
fn who_inherits_memory_of_another_version_hears_of_a_reset_and_others_go_on() {
    let log = Log::new("inherited");
    let own = own();
    let words = [HANDS_DOWN, own.to_str().expect("a path of letters")];
    let output = ended(python(&words, &other(), &log.0).spawn().expect("python3 starts"));
    let said = String::from_utf8_lossy(&output.stdout);
    if named("LANDFALL_OTHER_PRELOAD").is_some() && !said.contains("Reset") {
        assert_eq!(said.trim(), "b'word' 4 BlockingIOError b'more'", "{}", log.text());
        return;
    }
    let resets = "ConnectionResetError ConnectionResetError ConnectionResetError b'word'";
    assert_eq!(said.trim(), resets, "{}", log.text());
    assert!(log.text().contains(": tcp: the offer is of another version"), "{}", log.text());
}

/// What this version's reader says of a process: how its connections go, or that it cannot be read.
fn looked_at(child: &Child) -> Result<Vec<Transport>, String> {
    let view = Reader::new().expect("/proc is mounted").look().expect("there is shared memory");
    let its = |fault: &&String| fault.contains(&format!("/process-{:08x}-", child.id()));
    if let Some(fault) = view.faults.iter().find(its) {
        return Err(fault.clone());
    }
    let process = view.processes.into_iter().find(|process| process.name.process == child.id());
    let connections = process.expect("it says something").connections;
    Ok(connections.iter().map(|end| end.record.transport).collect())
}

#[test]
fn who_looks_at_all_connections_says_which_are_of_another_version() {
    let (own, other) = (own(), other());
    let may_understand = named("LANDFALL_OTHER_PRELOAD").is_some();
    talk(&other, &own, |serves, asks| {
        assert_eq!(looked_at(asks).expect("its own version").len(), 1);
        match looked_at(serves) {
            Ok(connections) => assert!(may_understand && connections.len() == 1),
            Err(fault) => {
                assert!(fault.contains("of another version of the library"), "{fault}");
            }
        }
    });
}

/// The tool of a release: it shows what it can read, and says what it cannot.
#[test]
fn the_tool_of_a_release_looks_at_programs_of_this_version() {
    let tool = named("LANDFALL_OTHER_TOOL");
    leave_out_unless!(tool.is_none().then(|| "needs a release: bash .ci/run versions".to_owned()));
    talk(&own(), &own(), |serves, _| {
        let mut command = Command::new(tool.expect("it was asked for"));
        let shown = command.args(["ss", "--pid", &serves.id().to_string(), "--json"]).output();
        let shown = shown.expect("it starts");
        let said = [&shown.stdout[..], &shown.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(shown.status.success(), "{said}");
        let is_told = said.contains("\"memory\"") || said.contains("of another version");
        assert!(is_told, "{said}");
    });
}
