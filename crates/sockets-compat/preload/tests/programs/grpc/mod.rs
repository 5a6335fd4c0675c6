//! gRPC in two languages: its library for C++, as Debian has it, and the one of today for Python,
//! which wait in ways of their own. All four kinds of call, between all of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use landfall_testbed::skip_unless;
use landfall_testkit::trials::{count_kills, kills};

use crate::packages;
use crate::test_folder::{Running, TestFolder, Where, each, missing};

fn why_not() -> Option<String> {
    let absent = || packages("grpcio", "grpc").is_none();
    let absent = || absent().then(|| "needs grpcio: bash .ci/run tools".to_owned());
    let header = Path::new("/usr/include/grpcpp/grpcpp.h");
    let headers = || (!header.exists()).then(|| format!("needs {}", header.display()));
    missing(&["python3", "c++", "pkg-config", "protoc", "grpc_cpp_plugin"])
        .or_else(headers)
        .or_else(absent)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/grpc").join(name)
}

/// The program in C++, made once for all tests of this process.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let user = fs::metadata("/proc/self").expect("there is /proc").uid();
        let folder = std::env::temp_dir();
        let binary = folder.join(format!("landfall-echo-over-grpc-{user}"));
        let folder = folder.join(format!("landfall-grpc-{user}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        for name in ["echo.proto", "program.cc"] {
            fs::copy(source(name), folder.join(name)).expect("it can be copied");
        }
        let script = "protoc --cpp_out=. --grpc_out=. \
             --plugin=protoc-gen-grpc=\"$(command -v grpc_cpp_plugin)\" echo.proto && \
             c++ -O1 -Wall -Wextra -o program program.cc echo.pb.cc echo.grpc.pb.cc \
             $(pkg-config --cflags --libs grpc++ protobuf)";
        let made = Command::new("sh").args(["-c", script]).current_dir(&folder).output();
        let made = made.expect("a shell starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Another run may be at it, too: each puts a whole one in the place.
        fs::rename(folder.join("program"), &binary).expect("it can be renamed");
        let _ = fs::remove_dir_all(&folder);
        binary.to_string_lossy().into_owned()
    })
}

/// One of the two programs, and what it is told to do.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Cpp(&'static str),
    Python(&'static str),
}

use Peer::{Cpp, Python};

fn start(ground: &TestFolder, with_library: bool, peer: Peer, address: &str) -> Running {
    match peer {
        Cpp(what) => ground.start(with_library, program(), &[what, address]),
        Python(what) => {
            let script = source("program.py").display().to_string();
            let packages = packages("grpcio", "grpc").expect("it was looked for");
            let variables = [("PYTHONPATH", &*packages.display().to_string())];
            ground.start_told(with_library, "python3", &[&script, what, address], &variables)
        }
    }
}

fn serve(ground: &TestFolder, place: Where, peer: Peer) -> (Running, String) {
    let port = ground.port();
    let address = format!("127.0.0.1:{port}");
    let server = start(ground, place.server(), peer, &address);
    ground.wait_for_listener(port);
    (server, address)
}

fn ask(ground: &TestFolder, place: Where, peer: Peer, address: &str) {
    let said = start(ground, place.client(), peer, address).output();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(said.trim(), "all came back", "{place:?}: {peer:?}");
    ground.expect_memory(place);
}

#[test]
fn grpc_answers_grpc() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    each(|place| {
        for server in [Cpp("serve"), Python("serve"), Python("serve-async")] {
            let (_server, address) = serve(&ground, place, server);
            for client in [Cpp("ask"), Python("ask"), Python("ask-async")] {
                // Each with each where both have the library.
                let is_short = place != Where::Both && !matches!(client, Cpp(_));
                if !is_short {
                    ask(&ground, place, client, &address);
                }
            }
        }
    });
}

#[test]
fn grpc_hears_of_an_end_that_is_killed() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    for _ in 0..kills(1) {
        for place in [Where::Neither, Where::Both] {
            for server in [Cpp("serve"), Python("serve")] {
                let (mut server, address) = serve(&ground, place, server);
                for client in [Cpp("until-gone"), Python("until-gone")] {
                    let mut client = start(&ground, place.client(), client, &address);
                    client.until_it_says("asks");
                    client.kill();
                }
                // The server has not gone with them.
                ground.forget_log();
                ask(&ground, place, Cpp("ask"), &address);
                let clients = [Cpp("until-gone"), Python("until-gone")].map(|client| {
                    let mut client = start(&ground, place.client(), client, &address);
                    client.until_it_says("asks");
                    client
                });
                server.kill();
                clients.into_iter().for_each(|mut client| client.ends_well());
                ground.expect_memory(place);
                count_kills("an end of gRPC", 3);
            }
        }
    }
}
