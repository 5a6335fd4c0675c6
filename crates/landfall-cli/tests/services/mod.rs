//! `landfall serve http` and `landfall proxy` as people use them, with unmodified programs as
//! clients and servers.
//!
//! | file | what it shows |
//! | --- | --- |
//! | this | a directory to serve, and clients in other programs |
//! | `clients` | curl, python, nc, ab, wrk and h2load get every byte (root) |
//! | `abuse` | slow, greedy and senseless clients disturb no other (root) |
//! | `hostile` | clients, hosts and a link that are up to no good disturb no other (root) |
//! | `proxy` | a kernel's TCP by queue pairs, as anybody |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_testbed::Namespace;

use crate::serve::noise;

mod abuse;
mod clients;
mod hostile;
mod proxy;

/// A directory that is gone with the test.
struct Directory(PathBuf);

impl Directory {
    /// With a long file (`long.bin`), a short one, an empty one, a folder with an index and one
    /// without, and links.
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("landfall-services-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let site = path.join("site");
        fs::create_dir_all(site.join("indexed")).unwrap();
        fs::create_dir_all(site.join("bare")).unwrap();
        fs::write(path.join("secret.txt"), "nobody shall see this").unwrap();
        fs::write(site.join("long.bin"), noise(3_000_001)).unwrap();
        fs::write(site.join("short.txt"), "every byte has its place\n").unwrap();
        fs::write(site.join("empty"), "").unwrap();
        fs::write(site.join("indexed/index.html"), "<p>index</p>").unwrap();
        std::os::unix::fs::symlink("../secret.txt", site.join("leads-out")).unwrap();
        std::os::unix::fs::symlink("short.txt", site.join("stays")).unwrap();
        Self(path)
    }

    fn site(&self) -> PathBuf {
        self.0.join("site")
    }

    fn hash(&self, name: &str) -> blake3::Hash {
        blake3::hash(&fs::read(self.site().join(name)).unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Why a test cannot run: one of these programs is missing.
pub(crate) fn why_missing(programs: &[&str]) -> Option<String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&paths).any(|path| is_file(&path.join(name)));
    let missing = programs.iter().find(|name| !has(name))?;
    Some(format!("needs {missing}: bash .ci/run tools"))
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Runs a client, which gets a minute.
fn client(words: &[&str]) -> Output {
    Command::new("timeout").arg("60").args(words).output().expect("timeout is there")
}

pub(crate) fn client_in(namespace: &Namespace, words: &[&str]) -> Output {
    namespace.enter(|| client(words)).expect("a namespace")
}

/// What it printed; it must have succeeded.
#[track_caller]
fn printed(output: Output) -> Vec<u8> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    output.stdout
}

/// The same as text.
#[track_caller]
pub(crate) fn text(output: Output) -> String {
    String::from_utf8_lossy(&printed(output)).into_owned()
}
