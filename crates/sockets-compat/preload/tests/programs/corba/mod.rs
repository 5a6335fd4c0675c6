//! CORBA, which the paper on CLAN plans to carry: omniORB with an echo and a ping-pong.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use landfall_testbed::{require_namespaces, skip_unless};
use landfall_testkit::trials::{count_kills, kills};

use crate::hosts::{Host, Hosts, PORT};
use crate::test_folder::{Running, TestFolder, Where, each, missing};

/// How the server spreads calls: a thread for each connection, or some threads for all, which
/// wait for the others in one `poll`.
const THREADS: [[&str; 2]; 2] =
    [["-ORBthreadPerConnectionPolicy", "1"], ["-ORBthreadPerConnectionPolicy", "0"]];

fn why_not() -> Option<String> {
    let header = Path::new("/usr/include/omniORB4/CORBA.h");
    let absent = (!header.exists()).then(|| format!("needs {}", header.display()));
    missing(&["c++", "omniidl"]).or(absent)
}

/// The program, made once for all tests of this process.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/corba");
        let user = fs::metadata("/proc/self").expect("there is /proc").uid();
        let folder = std::env::temp_dir();
        let binary = folder.join(format!("landfall-echo-over-corba-{user}"));
        let folder = folder.join(format!("landfall-corba-{user}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let make = |command: &mut Command| {
            let output = command.current_dir(&folder).output().expect("it starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let flags = ["-bcxx", "-Wbh=.hh", "-Wbs=_stub.cc"];
        make(Command::new("omniidl").args(flags).arg(source.join("echo.idl")));
        let flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-I.", "-o", "program", "echo_stub.cc"];
        let compiler = &mut Command::new("c++");
        compiler.args(flags).arg(source.join("program.cc"));
        make(compiler.args(["-lomniORB4", "-lomnithread"]));
        // Another run may be at it, too: each puts a whole one in the place.
        fs::rename(folder.join("program"), &binary).expect("it can be renamed");
        let _ = fs::remove_dir_all(PathBuf::from(&folder));
        binary.to_string_lossy().into_owned()
    })
}

fn endpoint(address: &str, port: u16) -> String {
    format!("giop:tcp:{address}:{port}")
}

fn uri(address: &str, port: u16) -> String {
    format!("corbaloc::{address}:{port}/echo")
}

fn serve(ground: &TestFolder, place: Where, port: u16, threads: &[&str]) -> Running {
    let endpoint = endpoint("127.0.0.1", port);
    let words = [&["-ORBendPoint", &endpoint], threads, &["serve"]].concat();
    ground.serve(place, port, program(), &words)
}

#[test]
fn omniorb_answers_omniorb() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    each(|place| {
        for threads in THREADS {
            ground.forget_log();
            let port = ground.port();
            let _server = serve(&ground, place, port, &threads);
            let uri = uri("127.0.0.1", port);
            let said = ground.run_text(place, program(), &["ask", &uri]);
            assert_eq!(said.trim(), "all came back", "{place:?}");
            ground.expect_memory(place);
            let said = ground.run_text(place, program(), &["called-back", &uri]);
            assert_eq!(said.trim(), "was called back", "{place:?}");
            ground.expect_memory(place);
            let said = ground.run_text(place, program(), &["ping", &uri, "5000"]);
            assert!(said.trim_end().ends_with(" us a call"), "{place:?}: {said}");
            println!("{place:?}, {threads:?}: {}", said.trim_end());
            ground.expect_memory(place);
        }
    });
}

/// With the library as without it: the client hears `COMM_FAILURE` or `TRANSIENT`, and a
/// server that has lost a client in the middle of a call answers the others.
#[test]
fn omniorb_hears_of_an_end_that_is_killed() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    for _ in 0..kills(1) {
        each(|place| {
            for threads in THREADS {
                // The end that was not waited for may have spoken late; it is gone now.
                ground.forget_log();
                let port = ground.port();
                let uri = uri("127.0.0.1", port);
                let mut server = serve(&ground, place, port, &threads);
                let calls = || {
                    let mut client = ground.start(place.client(), program(), &["until-gone", &uri]);
                    client.until_it_says("calls");
                    // Not before it is what it will be.
                    ground.until(|| place != Where::Both || ground.log().contains(": memory: "));
                    ground.expect_memory(place);
                    client
                };
                calls().kill();
                let said = ground.run_text(place, program(), &["ask", &uri]);
                assert_eq!(said.trim(), "all came back", "{place:?}");
                ground.expect_memory(place);
                let mut client = calls();
                server.kill();
                client.ends_well();
                count_kills("an end of CORBA", 2);
            }
        });
    }
}

#[test]
fn omniorb_answers_another_host() {
    require_namespaces!();
    skip_unless!(why_not());
    for way in ["stp", "qpip"] {
        let (hosts, _carriers) = Hosts::with_carriers(way);
        let address = hosts.address(Host::There).to_string();
        let (endpoint, uri) = (endpoint(&address, PORT), uri(&address, PORT));
        let _server = hosts.serve(Host::There, program(), &["-ORBendPoint", &endpoint, "serve"]);
        hosts.until_carried(|| {
            let said = hosts.run(Host::Here, program(), &["ask", &uri]);
            assert_eq!(String::from_utf8_lossy(&said).trim(), "all came back", "{way}");
        });
        // A client with objects of its own calls itself when it ends, and that is TCP: so it is not asked which way all went.
        let said = hosts.run(Host::Here, program(), &["called-back", &uri]);
        assert_eq!(String::from_utf8_lossy(&said).trim(), "was called back", "{way}");
    }
}
