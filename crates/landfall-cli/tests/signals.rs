//! Ctrl-C and SIGTERM in the middle of the work: a clear exit code, and nothing is left:
//! no process, no interface, no temporary file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, require_namespaces};
use landfall_testkit::TemporaryFolder;

/// Long for whatever a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run, which ends with the test.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(words: &str, temporary: &Path) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(words.split(' ')).env("TMPDIR", temporary);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Run(command.spawn().expect("the program starts"))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Processes that were started with this folder for their temporary files.
fn processes(temporary: &Path) -> Vec<u32> {
    let wanted = format!("TMPDIR={}", temporary.display());
    let is_of_it = |id: &u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(is_of_it).collect()
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

fn interfaces(namespace: &Namespace) -> BTreeSet<String> {
    let links = || Command::new("ip").args(["-brief", "link"]).output();
    let output = namespace.enter(links).unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn shared_memory() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    // Programs under the preloaded library, of whomever, have folders of their own there.
    let is_ours = |path: &PathBuf| {
        let path = path.to_string_lossy();
        path.contains("landfall") && !path.contains("landfall-sockets-")
    };
    paths.filter(is_ours).collect()
}

/// Ends a run by this signal as soon as it is in the middle of its work.
fn end_in_the_middle(
    words: &str,
    name: &str,
    code: i32,
    here: Option<&Namespace>,
    is_at_work: impl Fn(&Path) -> bool,
) {
    let scratch =
        TemporaryFolder::new(&format!("{}-{name}", words.replace([' ', '/', '.', ','], "-")));
    let (shared, links) = (shared_memory(), here.map(interfaces));
    let mut run = match here {
        Some(namespace) => namespace.enter(|| start(words, scratch.path())).unwrap(),
        None => start(words, scratch.path()),
    };
    until(&format!("`{words}` gets to work"), || {
        assert!(run.0.try_wait().unwrap().is_none(), "`{words}` ended by itself");
        is_at_work(scratch.path())
    });
    signal(&run.0, name);
    until("it ends", || run.0.try_wait().unwrap().is_some());
    let status = run.0.wait().unwrap();
    assert_eq!(status.code(), Some(code), "`{words}` after {name}: {status}");
    until("its processes end", || processes(scratch.path()).is_empty());
    let left: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "`{words}` after {name} leaves {left:?}");
    assert_eq!(here.map(interfaces), links, "`{words}` after {name}");
    assert_eq!(shared_memory(), shared, "`{words}` after {name}");
}

fn has_temporary_files(temporary: &Path) -> bool {
    fs::read_dir(temporary).unwrap().next().is_some()
}

fn has_another_process(temporary: &Path) -> bool {
    processes(temporary).len() > 1
}

#[test]
fn the_demonstration_leaves_nothing() {
    end_in_the_middle("demo", "-INT", 130, None, has_another_process);
    end_in_the_middle("demo", "-TERM", 143, None, has_another_process);
}

#[test]
fn a_measurement_between_processes_leaves_nothing() {
    let words = "perf local --protocol clan --seconds 0.3 --rounds 100";
    end_in_the_middle(words, "-INT", 130, None, has_temporary_files);
    end_in_the_middle(words, "-TERM", 143, None, has_temporary_files);
}

#[test]
fn a_measurement_on_a_cable_leaves_nothing() {
    require_namespaces!();
    let here = Namespace::new().unwrap();
    // Its threads are in namespaces of their own as soon as it has made its cable.
    let is_elsewhere = |temporary: &Path| {
        processes(temporary).iter().any(|id| {
            let own = fs::read_link(format!("/proc/{id}/ns/net")).ok();
            let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten();
            let of = |thread: fs::DirEntry| fs::read_link(thread.path().join("ns/net")).ok();
            threads.flatten().map(of).any(|namespace| namespace != own)
        })
    };
    let words = "perf local --veth --seconds 30";
    end_in_the_middle(words, "-INT", 130, Some(&here), is_elsewhere);
}

#[test]
fn a_service_leaves_nothing() {
    require_namespaces!();
    let here = Namespace::new().unwrap();
    let is_up = |_: &Path| interfaces(&here).contains("tap7");
    for name in ["-INT", "-TERM"] {
        end_in_the_middle("serve echo --tap tap7 --seconds 100", name, 0, Some(&here), is_up);
    }
}

#[test]
fn a_captured_command_ends_with_its_capture() {
    require_namespaces!();
    let here = Namespace::new().unwrap();
    let folder = TemporaryFolder::new("signals");
    let file = folder.join("capture.pcapng");
    let words = format!("capture --out {} -- serve echo --over stp --seconds 100", file.display());
    end_in_the_middle(&words, "-TERM", 0, Some(&here), has_another_process);
    let captured = fs::read(&file).unwrap();
    assert!(captured.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "the first block of pcapng");
}
