//! Java: streams, a selector, and channels that complete by themselves.

use std::fs;
use std::path::Path;
use std::process::Command;

use landfall_testbed::skip_unless;
use landfall_testkit::trials::{count_kills, kills};

use crate::test_folder::{Running, TestFolder, Where, each, missing};

/// How a server waits for its clients, and so does each of the clients.
const WAYS: [&str; 3] = ["plain", "selector", "async"];

fn why_not() -> Option<String> {
    missing(&["java", "javac"])
}

/// The folder of the program, which is compiled in it.
fn compiled(ground: &TestFolder) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/java/Echo.java");
    let folder = ground.open_folder("java");
    let made = Command::new("javac").args(["-d", &folder]).arg(source).output();
    let made = made.expect("javac starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(fs::exists(format!("{folder}/Echo.class")).expect("it can be looked for"));
    folder
}

/// The words that run it: what it is about takes no longer than its start.
fn words<'a>(folder: &'a str, what: &'a str, port: &'a str) -> Vec<&'a str> {
    vec!["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", folder, "Echo", what, port]
}

fn serve(ground: &TestFolder, place: Where, folder: &str, way: &str, port: u16) -> Running {
    let number = port.to_string();
    let server =
        ground.start(place.server(), "java", &words(folder, &format!("serve-{way}"), &number));
    ground.wait_for_listener(port);
    server
}

#[test]
fn java_answers_java() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    let folder = compiled(&ground);
    each(|place| {
        for (turn, way) in WAYS.into_iter().enumerate() {
            let port = ground.port();
            let number = port.to_string();
            let _server = serve(&ground, place, &folder, way, port);
            // Each kind of client meets each kind of server where both have the library.
            let asks = if place == Where::Both { &WAYS[..] } else { &WAYS[turn..=turn] };
            for ask in asks.iter().map(|way| format!("ask-{way}")) {
                let said = ground.run_text(place, "java", &words(&folder, &ask, &number));
                assert_eq!(said.trim(), "all came back", "{place:?}: {way}, {ask}");
                ground.expect_memory(place);
            }
        }
    });
}

/// Java puts another descriptor in the place of one that threads wait for, and wakes them by signals.
#[test]
fn java_closes_sockets_that_others_wait_for() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    let folder = compiled(&ground);
    each(|place| {
        let port = ground.port();
        let number = port.to_string();
        let _server = serve(&ground, place, &folder, "selector", port);
        let said = ground.run_text(place, "java", &words(&folder, "closed-by-another", &number));
        assert_eq!(said.trim(), "all came back", "{place:?}");
        ground.expect_memory(place);
    });
}

#[test]
fn java_hears_of_an_end_that_is_killed() {
    skip_unless!(why_not());
    let ground = TestFolder::new();
    let folder = compiled(&ground);
    for _ in 0..kills(1) {
        for place in [Where::Neither, Where::Both] {
            let port = ground.port();
            let number = port.to_string();
            let mut server = serve(&ground, place, &folder, "selector", port);
            let asks = || {
                let words = words(&folder, "until-gone", &number);
                let mut client = ground.start(place.client(), "java", &words);
                client.until_it_says("asks");
                client
            };
            asks().kill();
            // The server has not gone with it.
            let said = ground.run_text(place, "java", &words(&folder, "ask-plain", &number));
            assert_eq!(said.trim(), "all came back", "{place:?}");
            let mut client = asks();
            server.kill();
            client.ends_well();
            ground.expect_memory(place);
            count_kills("an end of Java", 2);
        }
    }
}
