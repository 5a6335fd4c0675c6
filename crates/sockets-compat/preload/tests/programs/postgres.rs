//! PostgreSQL with pgbench over TCP. It refuses to serve as root: then both are nobody.

use std::path::PathBuf;
use std::process::Command;

use landfall_testbed::skip_unless;

use crate::ground::{Ground, each, missing};

/// Debian keeps the server's own programs out of the path.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = std::env::split_paths(&path).chain(versions.map(|it| it.path().join("bin")));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The words that run a program as an ordinary user.
fn as_ordinary_user(program: &str, arguments: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    if landfall_testbed::privileges::is_root() {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        words.extend(nobody.map(str::to_owned));
    }
    let program = found(program).expect("it was looked for").to_string_lossy().into_owned();
    words.push(program);
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    words
}

fn why_not() -> Option<String> {
    let absent = ["initdb", "postgres", "pgbench", "pg_isready"].into_iter();
    let absent = absent.filter(|name| found(name).is_none()).map(|name| format!("needs {name}"));
    absent.chain(missing(&["setpriv"])).next()
}

#[test]
fn pgbench_asks_postgresql() {
    skip_unless!(why_not());
    let ground = Ground::new();
    let port = ground.port().to_string();
    let data = format!("{}/data", ground.open_folder("postgres"));
    let initdb = ["-D", &data, "-A", "trust", "-U", "tester", "--no-sync", "--locale=C"];
    let words = as_ordinary_user("initdb", &initdb);
    let made = Command::new(&words[0]).args(&words[1..]).current_dir("/").output();
    let made = made.expect("initdb starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    each(|place| {
        let serve = |name: &str, value: &str| ["-c".to_owned(), format!("{name}={value}")];
        let options = [
            serve("listen_addresses", "127.0.0.1"),
            serve("unix_socket_directories", ""),
            serve("fsync", "off"),
        ]
        .concat();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let words =
            as_ordinary_user("postgres", &[&["-D", &data, "-p", &port], &options[..]].concat());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _server = ground.start(place.server(), words[0], &words[1..]);
        let run = |program: &str, more: &[&str]| {
            let there = ["-h", "127.0.0.1", "-p", &port, "-U", "tester"];
            let words = as_ordinary_user(program, &[&there, more].concat());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            ground.run_text(place, words[0], &words[1..])
        };
        ground.until(|| {
            let ready = found("pg_isready").expect("it was looked for");
            let asked = Command::new(ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            asked.is_ok_and(|status| status.success())
        });
        run("pgbench", &["-i", "-q", "postgres"]);
        for (kind, each) in [("select-only", 250), ("tpcb-like", 25)] {
            let (count, sum) = (each.to_string(), each * 4);
            let said =
                run("pgbench", &["-b", kind, "-c", "4", "-j", "2", "-t", &count, "postgres"]);
            assert!(said.contains(&format!("actually processed: {sum}/{sum}")), "{said}");
            assert!(!said.contains("rror") && said.contains("failed transactions: 0 "), "{said}");
        }
        ground.expect_memory(place);
    });
}
