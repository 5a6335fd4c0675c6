//! Programs as they are, on a mount.

use std::path::Path;
use std::process::Command;

use landfall_testkit::skip_unless;

use super::{Carrier, Mounted, names, why_no_mounts};

fn run(program: &str, args: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into()
}

/// Files of all lengths, links, a pipe, and a directory of many.
fn fill(at: &Path) {
    std::fs::create_dir_all(at.join("a/b/c")).unwrap();
    for (nth, len) in [0, 1, 100, 4095, 4096, 4097, 1 << 20, 3_000_001].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|byte| (byte * 7 + nth) as u8).collect();
        std::fs::write(at.join(format!("a/file {nth}")), bytes).unwrap();
    }
    for nth in 0..1500 {
        std::fs::write(at.join(format!("a/b/c/{nth}")), nth.to_string()).unwrap();
    }
    std::os::unix::fs::symlink("../a/file 3", at.join("a/link")).unwrap();
    std::fs::hard_link(at.join("a/file 4"), at.join("a/b/other name")).unwrap();
    run("mkfifo", &["pipe"], at);
}

#[test]
fn tar_and_diff_find_every_byte_and_attribute_again() {
    skip_unless!(why_no_mounts());
    for carrier in [Carrier::Host, Carrier::Udp] {
        let files = Mounted::new(carrier);
        fill(&files.beside("meet"));
        let archive = files.beside("all.tar");
        let archive = archive.to_str().unwrap();
        run("tar", &["-cf", archive, "a", "pipe"], &files.beside("meet"));
        run("tar", &["-xpf", archive], files.mount.path());
        let (bare, mounted) = (files.bare("a"), files.path("a"));
        let both = |path: &Path| path.to_str().unwrap().to_owned();
        let original = both(&files.beside("meet").join("a"));
        run("diff", &["-r", "--no-dereference", &original, &both(&bare)], Path::new("/"));
        run("diff", &["-r", "--no-dereference", &original, &both(&mounted)], Path::new("/"));
        run("tar", &["-df", archive], files.mount.path());
        assert_eq!(names(&files.path("a/b/c")).len(), 1500, "{carrier:?}");
        run("cp", &["-a", "a", "copy"], files.mount.path());
        run("diff", &["-r", "--no-dereference", "a", "copy"], files.mount.path());
        run("rm", &["-r", "a", "copy", "pipe"], files.mount.path());
        assert_eq!(names(&files.exported), [""; 0]);
    }
}
