//! How sockets behave with the library is how they behave without it: a few hundred small
//! observations, on the kernel's sockets and on ours, compared word for word.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use common::{example, fault_of};
use landfall_testkit::trials::{count_kills, kills};

fn run(with_library: bool) -> Vec<String> {
    let mut command = Command::new(example("socket_cases"));
    if with_library {
        command.env("LD_PRELOAD", example("libpreload_for_tests.so")).env("EXPECT_SHARED", "1");
    }
    let output = command.output().expect("the cases start");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "with the library: {with_library}; {}\n{}last seen: {:?}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        said.lines().last(),
    );
    said.lines().map(str::to_owned).collect()
}

#[test]
fn with_and_without_it_sockets_are_the_same() {
    // Beside each other: most of it is waiting.
    let (kernel, ours) = thread::scope(|scope| {
        let kernel = scope.spawn(|| run(false));
        let ours = run(true);
        (kernel.join().expect("the kernel's sockets are asked"), ours)
    });
    assert!(kernel.len() > 300, "only {} observations", kernel.len());
    let different: Vec<String> = kernel
        .iter()
        .zip(&ours)
        .filter(|(kernel, ours)| kernel != ours)
        .map(|(kernel, ours)| format!("kernel: {kernel}\n  ours: {ours}"))
        .collect();
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert_eq!(kernel.len(), ours.len());
}

/// Names of connections that processes of this user have left behind, in this network.
fn names() -> usize {
    const LEN: usize = 72;
    let network = fs::metadata("/proc/self/ns/net").expect("it has a network").ino();
    let network = format!("-{:08x}", network as u32);
    let folders = fs::read_dir("/dev/shm").expect("there is shared memory").flatten();
    let owner = |path: &Path| fs::metadata(path).map(|data| data.uid()).ok();
    let me = owner("/proc/self".as_ref());
    folders
        .filter(|folder| owner(&folder.path()) == me)
        .filter(|folder| folder.file_name().to_string_lossy().starts_with("landfall-sockets-"))
        .filter(|folder| folder.file_name().to_string_lossy().ends_with(&network))
        .filter_map(|folder| fs::read_dir(folder.path()).ok())
        .map(|names| names.flatten().filter(|name| name.file_name().len() == LEN).count())
        .sum()
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let mut command = Command::new(example("socket_cases"));
    command.args(["many", "10000"]).env("LD_PRELOAD", example("libpreload_for_tests.so"));
    let output = command.env("EXPECT_SHARED", "1").output().expect("the cases start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// 16 KiB for each end are what one would accept; it is a record of some hundred bytes.
#[test]
fn idle_connections_take_no_memory_but_a_record() {
    const MOST: usize = 2048;
    let mut command = Command::new(example("socket_cases"));
    command.args(["idle", "5000"]).env("LD_PRELOAD", example("libpreload_for_tests.so"));
    let output = command.env("EXPECT_SHARED", "1").output().expect("the cases start");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers: Vec<usize> = said.split([' ', '\n']).filter_map(|it| it.parse().ok()).collect();
    let [count, bytes, rings, after_fork] = numbers[..] else { panic!("{said}") };
    // A user's processes may have a thousand descriptors, as a rule.
    assert!(count > 400 && bytes <= MOST && rings == 0, "{said}");
    assert!((100..=256).contains(&after_fork), "{said}");
}

/// Of the cases above, the one that kills, as often as one likes.
#[test]
fn who_is_killed_in_the_middle_keeps_nothing_from_others() {
    for _ in 0..kills(1) {
        let mut command = Command::new(example("socket_cases"));
        command
            .arg("a_sender_is_killed_in_the_middle")
            .env("LD_PRELOAD", example("libpreload_for_tests.so"));
        let output = command.env("EXPECT_SHARED", "1").output().expect("the case starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.matches("last = ").count(), 20, "{said}");
        count_kills("a program with one end of a socket", 20);
    }
}

#[test]
fn who_is_killed_is_swept_up_after() {
    // A case that forks and kills, ended itself in the middle.
    let mut killed = Command::new(example("socket_cases"));
    killed.arg("killed_while_open").env("LD_PRELOAD", example("libpreload_for_tests.so"));
    let ended = killed.output().expect("the cases start").status;
    assert!(!ended.success(), "it was to be killed");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while names() > 0 {
        assert!(std::time::Instant::now() < deadline, "names are left behind");
        let mut next = Command::new("true");
        next.env("LD_PRELOAD", example("libpreload_for_tests.so"));
        assert!(next.status().expect("it starts").success());
    }
}

#[test]
fn an_example_that_is_older_than_its_sources_is_refused() {
    let folder = std::env::temp_dir().join(format!("landfall-stale-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (source, other) = (write("a source.rs", "1"), write("other.rs", "1"));
    let built = write("library.so", "1");
    let list = |sources: &[&Path]| {
        let escaped = sources.iter().map(|path| path.to_str().unwrap().replace(' ', "\\ "));
        let sources: Vec<String> = escaped.collect();
        write("library.d", &format!("library.so: {}\n", sources.join(" ")));
    };
    let at = |path: &Path, seconds| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    let fault = || fault_of(&built, &folder);

    assert_eq!(fault().unwrap(), "has no list of its sources beside it");
    list(&[&source, &other]);
    at(&source, 10);
    at(&other, 20);
    at(&built, 20);
    assert_eq!(fault(), None);
    at(&source, 21);
    assert_eq!(fault().unwrap(), format!("is older than {}", source.display()));
    at(&source, 10);
    fs::remove_file(&other).unwrap();
    assert_eq!(fault().unwrap(), format!("is built from {}, which is gone", other.display()));
    list(&["/elsewhere/lib.rs".as_ref()]);
    assert!(fault().unwrap().starts_with("is built from other sources than "));
    fs::remove_file(&built).unwrap();
    assert_eq!(fault().unwrap(), "is missing");
    fs::remove_dir_all(&folder).unwrap();
}
