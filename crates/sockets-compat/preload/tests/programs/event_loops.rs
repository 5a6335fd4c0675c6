//! Event loops that watch their sockets in ways of their own.

use std::path::Path;
use std::process::Command;

use landfall_testbed::{leave_out_unless, skip_unless};

use crate::packages;
use crate::test_folder::{TestFolder, Where, each, missing};

const PAGES: &str = "\
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    length = int(scope['query_string'] or b'0')
    page = bytes(at * 7 % 251 for at in range(length))
    size = str(length).encode()
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', size)]})
    await send({'type': 'http.response.body', 'body': page})
";

const LENGTHS: [usize; 6] = [1, 1000, 300_000, 5, 0, 70_000];

fn why_not() -> Option<String> {
    let packages = || {
        packages("uvicorn", "uvloop")
            .is_none()
            .then(|| "needs uvicorn: bash .ci/run tools".to_owned())
    };
    missing(&["python3", "curl"]).or_else(packages)
}

/// Some kernels have none, and some containers must not.
fn why_no_io_uring() -> Option<String> {
    let mut parameters = [0_u8; 120];
    // SAFETY: as many bytes as the kernel asks for.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
    if made < 0 {
        return Some(format!("needs io_uring: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: made just now.
    unsafe { libc::close(made as i32) };
    None
}

/// Serves pages by uvicorn on such a loop, and fetches them over one connection.
fn uvicorn_answers_curl(ground: &TestFolder, place: Where, event_loop: &str) {
    let port = ground.port();
    ground.write("pages.py", PAGES.as_bytes());
    let packages = packages("uvicorn", "uvloop").expect("it was looked for").display().to_string();
    let number = port.to_string();
    let words = ["-m", "uvicorn", "--port", &number, "--loop", event_loop, "--log-level", "error"];
    let words = [&words[..], &["--app-dir", ground.folder(), "pages:app"]].concat();
    let variables = [("PYTHONPATH", &*packages)];
    let _server = ground.start_told(place.server(), "python3", &words, &variables);
    ground.wait_for_listener(port);
    let urls: Vec<String> =
        LENGTHS.iter().map(|len| format!("http://127.0.0.1:{port}/?{len}")).collect();
    let words: Vec<&str> = std::iter::once("-sSf").chain(urls.iter().map(|it| &**it)).collect();
    let got = ground.run(place, "curl", &words);
    let page = |len: usize| (0..len).map(|at| (at * 7 % 251) as u8);
    let wanted: Vec<u8> = LENGTHS.into_iter().flat_map(page).collect();
    assert!(got == wanted, "{place:?}: {} bytes", got.len());
}

#[test]
fn uvicorn_answers_curl_by_asyncio() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    each(|place| {
        uvicorn_answers_curl(&ground, place, "asyncio");
        ground.expect_memory(place);
    });
}

/// It would change what it watches by an `io_uring`, of which nobody hears.
#[test]
fn uvicorn_answers_curl_by_uvloop() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    each(|place| {
        uvicorn_answers_curl(&ground, place, "uvloop");
        ground.expect_memory(place);
    });
}

/// A server that asks for an `io_uring`, and uses it or not: what it did by that nobody would hear.
const RINGS: &str = "\
import ctypes, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
ring = libc.syscall(425, 8, ctypes.create_string_buffer(120))
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
connection, _ = listener.accept()
while True:
    got = connection.recv(65536)
    if not got: break
    connection.sendall(got)
print('a ring' if ring >= 0 else 'no ring')
";

const ASKS: &str = "\
import socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
for turn in range(50):
    connection.sendall(bytes([turn]) * 1000)
    got = b''
    while len(got) < 1000: got += connection.recv(65536)
    assert got == bytes([turn]) * 1000
";

#[test]
fn a_program_with_an_io_uring_stays_with_tcp() {
    skip_unless!(missing(&["python3"]));
    leave_out_unless!(why_no_io_uring());
    let ground = TestFolder::new();
    let number = ground.port().to_string();
    let mut server = ground.start(true, "python3", &["-c", RINGS, &number]);
    ground.wait_for_listener(number.parse().expect("a number"));
    ground.run(Where::Both, "python3", &["-c", ASKS, &number]);
    assert_eq!(String::from_utf8_lossy(&server.output()).trim(), "a ring");
    let log = ground.log();
    assert!(!log.contains(": memory: "), "{log}");
    assert!(log.contains("tcp: the program uses io_uring"), "{log}");
}

/// Serves one connection by a program that asks the kernel for a ring by itself. What the log says.
fn with_a_ring_of_its_own(what: &str) -> String {
    let ground = TestFolder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ring.c");
    let (source, program) = (source.to_string_lossy(), ground.path("ring"));
    let flags = ["-O1", "-Wall", "-Wextra", "-o", &program, &source];
    let made = Command::new("cc").args(flags).output().expect("cc starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let number = ground.port().to_string();
    let mut server = ground.start(true, &program, &[what, &number]);
    ground.wait_for_listener(number.parse().expect("a number"));
    ground.run(Where::Both, "python3", &["-c", ASKS, &number]);
    assert_eq!(String::from_utf8_lossy(&server.output()).trim(), "a ring");
    ground.log()
}

#[test]
fn a_program_that_waits_by_a_ring_of_its_own_stays_with_tcp() {
    skip_unless!(missing(&["python3", "cc"]));
    leave_out_unless!(why_no_io_uring());
    let log = with_a_ring_of_its_own("polls");
    assert!(!log.contains(": memory: "), "{log}");
    assert!(log.contains("tcp: the program uses io_uring"), "{log}");
}

#[test]
fn a_program_with_a_ring_for_files_has_memory() {
    skip_unless!(missing(&["python3", "cc"]));
    leave_out_unless!(why_no_io_uring());
    let log = with_a_ring_of_its_own("files");
    assert!(log.contains(": memory: both ends have the library"), "{log}");
    assert!(!log.contains("io_uring"), "{log}");
}
