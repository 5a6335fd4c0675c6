//! PostgreSQL with pgbench over TCP. It refuses to serve as root: then both are nobody.

use std::path::PathBuf;
use std::process::Command;

use landfall_testbed::skip_unless;

use crate::test_folder::{TestFolder, each, missing};

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
    let ground = TestFolder::new();
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

/// A file tree served by nfs-ganesha (its VFS backend, NFS 4 alone) and read and written by
/// libnfs: RPC over sockets, as in section 6.2 of the paper on CLAN.
///
/// The tree lies in a tmpfs that only the server sees: the backend asks for file handles,
/// which not every file system that a temporary folder may be on can give.
mod nfs {
    use landfall_testbed::skip_unless;

    use crate::test_folder::{TestFolder, each, missing};

    fn why_not() -> Option<String> {
        missing(&["ganesha.nfsd", "nfs-ls", "nfs-cp", "nfs-cat", "unshare", "sh"])
            .or_else(landfall_testbed::privileges::why_no_namespaces)
    }

    fn configuration(port: u16) -> String {
        format!(
            "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1;\n\
             \x20   Enable_NLM = false; Enable_RQUOTA = false; }}\n\
             NFS_KRB5 {{ Active_krb5 = false; }}\n\
             NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = /run/recovery; }}\n\
             EXPORT {{ Export_Id = 1; Path = /run/tree; Pseudo = /tree; Protocols = 4;\n\
             \x20   Transports = TCP; Access_Type = RW; Squash = none; SecType = sys;\n\
             \x20   FSAL {{ Name = VFS; }} }}\n"
        )
    }

    #[test]
    fn nfs_files_are_read_and_written() {
        skip_unless!(why_not());
        let ground = TestFolder::new();
        std::fs::create_dir_all(ground.path("tree")).expect("a folder");
        let lengths = [1, 4095, 4097, 65_536, 1 << 20, 3_145_729];
        for len in lengths {
            ground.file(&format!("tree/{len}"), len);
        }
        each(|place| {
            let port = ground.port();
            let config = ground.write("ganesha.conf", configuration(port).as_bytes());
            let script = format!(
                "mount -t tmpfs none /run && mkdir /run/recovery /run/tree \
                 && cp '{}'/* /run/tree/ \
                 && exec ganesha.nfsd -F -L STDERR -p /run/ganesha.pid -f '{config}'",
                ground.path("tree")
            );
            let _server = ground.serve(place, port, "unshare", &["-m", "sh", "-c", &script]);
            let url = |name: &str| format!("nfs://127.0.0.1/tree/{name}?version=4&nfsport={port}");
            let listing = ground.run_text(place, "nfs-ls", &[&url("")]);
            for len in lengths {
                let name = len.to_string();
                assert!(
                    listing.lines().any(|line| line.ends_with(&format!(" {name}"))),
                    "{listing}"
                );
                let (copy, there) = (ground.path("copy"), ground.path(&format!("tree/{name}")));
                let bytes = std::fs::read(&there).expect("the file");
                ground.run(place, "nfs-cp", &[&url(&name), &copy]);
                assert!(std::fs::read(&copy).expect("a copy") == bytes, "{place:?}: {name}");
                std::fs::remove_file(copy).expect("the copy");
            }
            // What `nfs-cp` writes at once: of longer files this server refuses its writes,
            // with or without the library.
            for len in 1..20 {
                let (note, there) = (vec![len; 40 * usize::from(len)], url(&format!("note-{len}")));
                let here = ground.write("note", &note);
                ground.run(place, "nfs-cp", &[&here, &there]);
                assert!(ground.run(place, "nfs-cat", &[&there]) == note, "{place:?}: {len} back");
            }
            ground.expect_memory(place);
        });
    }
}

/// OpenSSH as it is installed, on a port of the loopback, with keys that live as long as the
/// test. Its server locks its children in (seccomp) before it trusts the caller.
mod ssh {
    use std::process::Command;

    use landfall_testbed::skip_unless;

    use crate::test_folder::{TestFolder, each, missing};

    fn why_not() -> Option<String> {
        let rights = landfall_testbed::privileges::why_no_namespaces();
        missing(&["ssh", "ssh-keygen", "unshare", "sh"])
            .or_else(|| (!sshd().is_file()).then(|| "needs the program sshd".to_owned()))
            .or(rights)
    }

    /// It is not in everybody's path.
    fn sshd() -> std::path::PathBuf {
        "/usr/sbin/sshd".into()
    }

    fn make_key(path: &str) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path]);
        assert!(command.status().expect("ssh-keygen starts").success());
    }

    #[test]
    fn ssh_runs_commands_and_carries_a_file() {
        skip_unless!(why_not());
        let ground = TestFolder::new();
        let port = ground.port();
        let [host, user] = ["host", "user"].map(|name| ground.path(name));
        make_key(&host);
        make_key(&user);
        let file = ground.file("page", 3 << 20);
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {user}.pub\n\
             PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\n"
        );
        let config = ground.write("sshd_config", config.as_bytes());
        // It wants an empty folder there: one that only it sees.
        let script = format!(
            "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec {} -D -e -f '{config}'",
            sshd().display()
        );
        let known = format!("UserKnownHostsFile={}", ground.path("known"));
        let (number, identity) = (port.to_string(), user.clone());
        let mut client = vec!["-F", "none", "-p", &number, "-i", &identity, "-o", &known];
        for option in ["BatchMode=yes", "StrictHostKeyChecking=accept-new", "IdentitiesOnly=yes"] {
            client.extend(["-o", option]);
        }
        client.push("root@127.0.0.1");
        each(|place| {
            let _server = ground.serve(place, port, "unshare", &["-m", "sh", "-c", &script]);
            let ssh = |command: &str, input: &[u8]| {
                ground.run_with_input(place, "ssh", &[&client[..], &[command]].concat(), input)
            };
            assert_eq!(ssh("echo over $((6 * 7))", b""), b"over 42\n", "{place:?}");
            assert!(ssh("cat", &file) == file, "{place:?}");
            ground.expect_memory(place);
        });
    }
}
