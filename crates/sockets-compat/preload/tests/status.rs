//! What programs say of their connections, to anyone who looks at all of them; the switch for
//! programs that run; and how much the log tells.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::example;
use landfall_socket_status::read::{Process, Reader};
use landfall_socket_status::{Reason, Role, Transport};
use landfall_testbed::privileges::is_root;
use landfall_testbed::{Namespace, require_namespaces, skip_unless, with_own_mounts};

/// Does as it is told, line by line: opens connections to itself, moves bytes, becomes two.
const PROGRAM: &str = r"
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
pairs = []
def move(a, b, count=9):
    for turn in range(count):
        for one, other in ((a, b), (b, a)):
            one.sendall(b'word')
            assert other.recv(4) == b'word'
def open_one():
    a = socket.create_connection(listener.getsockname())
    b, _ = listener.accept()
    move(a, b)
    pairs.append((a, b))
for line in sys.stdin:
    word = line.strip()
    if word == 'open': open_one()
    if word == 'move': move(*pairs[-1])
    if word == 'close': [end.close() for end in pairs.pop()]
    if word == 'fork':
        told, tell = os.pipe()
        if os.fork() == 0:
            os.write(tell, b'x')
            os.read(0, 1)
            os._exit(0)
        os.read(told, 1)
    if word == 'exec': os.execvp('sleep', ['sleep', '600'])
    print('done', flush=True)
";

/// Not a script that stands before it and starts other programs, where there is the program itself.
fn python() -> &'static str {
    let program = "/usr/bin/python3";
    if std::path::Path::new(program).exists() { program } else { "python3" }
}

/// A Python under the library, which ends with this.
struct Program {
    child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
    port: u16,
    log: PathBuf,
}

impl Program {
    fn start(name: &str, change: impl FnOnce(&mut Command)) -> Self {
        let log =
            std::env::temp_dir().join(format!("landfall-status-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&log);
        let mut command = Command::new(python());
        command.args(["-c", PROGRAM]).env("LD_PRELOAD", example("libpreload_for_tests.so"));
        command.env("LANDFALL_LOG", &log).stdin(Stdio::piped()).stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().expect("python3 starts");
        let say = child.stdin.take().expect("it has a stdin");
        let hear = BufReader::new(child.stdout.take().expect("it has a stdout"));
        let mut program = Self { child, say, hear, port: 0, log };
        program.port = program.line().parse().expect("it says its port");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.hear.read_line(&mut line).expect("it can be heard");
        line.trim().to_owned()
    }

    /// Tells it to do something, and waits until that is done.
    fn does(&mut self, word: &str) {
        writeln!(self.say, "{word}").expect("it hears");
        assert_eq!(self.line(), "done", "{word}");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What it says of itself.
    fn seen(&self) -> Option<Process> {
        seen(self.pid())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

fn seen(pid: u32) -> Option<Process> {
    let view = Reader::new().expect("/proc is mounted").look().expect("there is shared memory");
    view.processes.into_iter().find(|process| process.name.process == pid)
}

/// Waits for something that comes soon, and for ten seconds at most.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn both_ends_say_how_their_bytes_go_and_how_many() {
    let mut program = Program::start("both", |_| {});
    assert!(program.seen().is_none(), "a program without connections has no file");
    program.does("open");
    let process = program.seen().expect("it says something");
    assert_eq!((process.program.as_str(), process.unseen), ("python3", 0));
    assert_eq!(process.connections.len(), 2);
    for end in &process.connections {
        assert_eq!(end.record.transport, Transport::Memory);
        assert_eq!(end.record.explanation.reason, Reason::BothHere);
        assert_eq!((end.sent, end.received), (Some(36), Some(36)));
        assert_eq!(end.acceptor().port(), program.port);
        let is_local = end.local().port() == program.port;
        assert_eq!(is_local, end.record.role == Role::Acceptor);
    }
    let process = until("more bytes", || {
        program.does("move");
        program.seen().filter(|process| process.connections[0].sent >= Some(72))
    });
    assert_eq!(process.connections[0].sent, process.connections[1].received);
    program.does("close");
    assert!(program.seen().expect("its file stays").connections.is_empty());
}

#[test]
fn what_stays_tcp_says_why_and_the_kernel_says_how_much() {
    let rules = std::env::temp_dir().join(format!("landfall-status-{}-rules", std::process::id()));
    fs::write(&rules, "memory port=1\ntcp address=127.0.0.0/8\n").expect("it can be written");
    let mut program = Program::start("tcp", |command| {
        command.env("LANDFALL_RULES", &rules);
    });
    fs::remove_file(rules).expect("it was read");
    program.does("open");
    program.does("open");
    program.does("close");
    let process = program.seen().expect("it says something");
    assert_eq!(process.connections.len(), 2, "those of the second were closed");
    for end in &process.connections {
        assert_eq!(end.record.transport, Transport::Tcp);
        assert_eq!(end.record.explanation.to_string(), "rule in line 2");
        assert_eq!((end.sent, end.received), (Some(36), Some(36)));
    }
}

#[test]
fn a_child_says_what_it_has_of_its_parent() {
    let mut program = Program::start("fork", |_| {});
    program.does("open");
    program.does("fork");
    let children = format!("/proc/{0}/task/{0}/children", program.pid());
    let children = fs::read_to_string(children).expect("the kernel tells of children");
    let child: u32 = children.trim().parse().expect("there is one child");
    let (parent, child) = (program.seen().expect("a parent"), seen(child).expect("a child"));
    assert_eq!(parent.connections, child.connections);
    assert_eq!(child.connections.len(), 2);
}

#[test]
fn a_program_that_has_become_another_is_not_believed_any_more() {
    let mut program = Program::start("exec", |command| {
        // `sleep` is not to write a file of its own, which would take the place of that.
        command.env("LANDFALL_LOG_LEVEL", "errors");
    });
    program.does("open");
    assert!(program.seen().is_some());
    writeln!(program.say, "exec").expect("it hears");
    let pid = program.pid();
    until("another program", || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "sleep").then_some(())
    });
    let said = program.seen();
    assert!(
        said.is_none_or(|process| process.program == "sleep" || process.connections.is_empty())
    );
}

/// The folder of this namespace of networks, if there is one.
fn folders_of(network: u64) -> Vec<PathBuf> {
    let end = format!("-{:08x}", network as u32);
    let entries = fs::read_dir("/dev/shm").expect("there is shared memory").flatten();
    let folders = entries.map(|entry| entry.path());
    folders.filter(|path| path.to_string_lossy().ends_with(&end)).collect()
}

#[test]
fn the_last_program_takes_the_folder_with_it_and_of_a_killed_one_the_next_look_does() {
    require_namespaces!();
    let namespace = Namespace::new().expect("a namespace");
    namespace
        .enter(|| {
            namespace.set_interface("lo", true).expect("loopback");
            let network = number_of("/proc/thread-self/ns/net");
            let mut program = Program::start("folder", |_| {});
            program.does("open");
            assert_eq!(folders_of(network).len(), 1);
            let Program { child, say, .. } = &mut program;
            drop(std::mem::replace(say, other_stdin()));
            child.wait().expect("it ends");
            assert_eq!(folders_of(network), Vec::<PathBuf>::new(), "the last one has ended");

            let mut killed = Program::start("killed", |_| {});
            killed.does("open");
            killed.child.kill().expect("it is there");
            killed.child.wait().expect("it was killed");
            assert_eq!(folders_of(network).len(), 1);
            let view = Reader::new().expect("/proc").look().expect("shared memory");
            assert!(view.removed > 0);
            assert_eq!(folders_of(network), Vec::<PathBuf>::new(), "nobody is left");
        })
        .expect("it can be entered");
}

/// The number of a namespace.
fn number_of(path: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).expect("it is there").ino()
}

/// Somebody else's stdin, to close the first.
fn other_stdin() -> ChildStdin {
    let mut other = Command::new("true").stdin(Stdio::piped()).spawn().expect("it starts");
    let stdin = other.stdin.take().expect("it has one");
    other.wait().expect("it ends");
    stdin
}

#[test]
fn a_file_switches_new_connections_off_and_on_again_in_a_program_that_runs() {
    // The switch is that of all programs of a user, so other tests would hear of it.
    skip_unless!((!is_root()).then(|| "needs root, for a user that no other test is".to_owned()));
    let user = 1_000_000 + std::process::id();
    // That user may not look into each folder that root builds in.
    let library = std::env::temp_dir().join(format!("landfall-status-{}.so", std::process::id()));
    fs::copy(example("libpreload_for_tests.so"), &library).expect("it can be copied");
    let mut program = Program::start("switch", |command| {
        command.uid(user).env("LANDFALL_LOG", "/dev/null").env("LD_PRELOAD", &library);
        command.current_dir("/");
    });
    fs::remove_file(library).expect("it is loaded");
    let switch = PathBuf::from(format!("/dev/shm/landfall-sockets-off-{user}"));
    let _ = fs::remove_file(&switch);
    let reasons = |program: &Program| -> Vec<Reason> {
        let process = program.seen().expect("it says something");
        process.connections.iter().map(|end| end.record.explanation.reason).collect()
    };
    program.does("open");
    assert_eq!(reasons(&program), [Reason::BothHere; 2]);

    fs::write(&switch, "").expect("root may");
    // What was seen a moment ago is believed for a moment.
    std::thread::sleep(Duration::from_millis(150));
    program.does("move");
    program.does("open");
    let expected = [Reason::BothHere, Reason::BothHere, Reason::SwitchedOff, Reason::SwitchedOff];
    assert_eq!(reasons(&program), expected, "what there was goes on");
    program.does("close");

    fs::remove_file(&switch).expect("it was there");
    std::thread::sleep(Duration::from_millis(150));
    program.does("open");
    assert_eq!(reasons(&program), [Reason::BothHere; 4]);

    // Another user's file is no switch.
    fs::write(&switch, "").expect("root may");
    std::os::unix::fs::chown(&switch, Some(user + 1), None).expect("root may");
    std::thread::sleep(Duration::from_millis(150));
    program.does("open");
    fs::remove_file(&switch).expect("it was there");
    assert_eq!(reasons(&program), [Reason::BothHere; 6]);
}

#[test]
fn a_file_of_root_s_switches_the_host_off() {
    require_namespaces!();
    with_own_mounts(|| {
        // Of this thread and what it starts alone: the host's own stays as it is.
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status();
        assert!(mounted.expect("mount starts").success());
        let mut program = Program::start("host", |_| {});
        program.does("open");
        fs::create_dir("/run/landfall").expect("it is empty");
        fs::write("/run/landfall/sockets-off", "").expect("it can be made");
        std::thread::sleep(Duration::from_millis(150));
        program.does("open");
        let process = program.seen().expect("it says something");
        let words: Vec<_> =
            process.connections.iter().map(|end| end.record.explanation.to_string()).collect();
        let off = "/run/landfall/sockets-off switches the library off";
        assert_eq!(words, ["both ends have the library", "both ends have the library", off, off]);
        let log = program.log();
        let told = log.lines().filter(|line| line.ends_with(&format!(": tcp: {off}"))).count();
        assert_eq!(told, 2, "{log}");
        assert!(log.contains("new connections stay TCP: switched off"), "{log}");
    })
    .expect("mounts of its own");
}

#[test]
fn the_log_tells_as_much_as_it_is_asked_for() {
    let logged = |name: &str, level: &str| {
        let mut program = Program::start(name, |command| {
            command.env("LANDFALL_LOG_LEVEL", level);
        });
        program.does("open");
        program.does("close");
        program.log()
    };
    assert_eq!(logged("errors", "errors"), "");
    let connections = logged("connections", "connections");
    assert_eq!(connections.lines().count(), 2, "{connections}");
    let all = logged("all", "all");
    let ends: Vec<_> = all.lines().filter(|line| line.contains("closed after ")).collect();
    assert_eq!((all.lines().count(), ends.len()), (4, 2), "{all}");
    assert!(ends[0].ends_with(", 36 bytes sent, 36 received"), "{all}");
    let wrong = logged("wrong", "loud");
    let said = "LANDFALL_LOG_LEVEL is `errors`, `connections` or `all`, not `loud`";
    assert!(wrong.lines().next().is_some_and(|line| line.ends_with(said)), "{wrong}");
    assert_eq!(wrong.lines().count(), 3, "{wrong}");
}
