//! What the tests run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use landfall_testkit::TemporaryFolder;

pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the provider: beside the folder of this test, or in it.
pub(crate) fn provider_folder() -> &'static Path {
    static FOUND: OnceLock<TemporaryFolder> = OnceLock::new();
    // libfabric loads all providers of a folder: it is the only one there.
    let folder = FOUND.get_or_init(|| {
        const NAME: &str = "liblandfall_fi.so";
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().skip(1).take(2).map(|folder| folder.join(NAME));
        let built = built.filter(|library| library.exists());
        let newest = built.max_by_key(|library| library.metadata().unwrap().modified().unwrap());
        let folder = TemporaryFolder::new("provider");
        let to = folder.path().join("liblandfall-fi.so");
        let newest = newest.expect("cargo builds the library with this test");
        std::os::unix::fs::symlink(newest, to).unwrap();
        folder
    });
    folder.path()
}

/// Compiles a program with libfabric, or another compiler's libraries. The error: what there
/// is not.
pub(crate) fn compile(
    compiler: impl AsRef<Path>,
    sources: &[PathBuf],
    program: &Path,
    libraries: &[&str],
) -> Result<(), String> {
    let compiler = compiler.as_ref();
    let mut command = Command::new(compiler);
    command.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(program);
    command.args(sources).args(libraries).stdin(Stdio::null());
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{sources:?} does not compile:\n{errors}");
            Ok(())
        }
        Err(error) => Err(format!("{} is needed: {error}", compiler.display())),
    }
}

/// The headers of libfabric. The error: there are none.
pub(crate) fn need_headers() -> Result<(), String> {
    let header = Path::new("/usr/include/rdma/fi_domain.h");
    if header.exists() { Ok(()) } else { Err("libfabric-dev is needed".to_owned()) }
}

/// Runs a program to its end, for so long at most.
pub(crate) fn run(mut command: Command, limit: Duration) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    finish(child, limit)
}

/// Waits for the end of a program, for so long at most.
pub(crate) fn finish(mut child: Child, limit: Duration) -> Output {
    let until = Instant::now() + limit;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= until {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("a program does not end within {limit:?}:\n{}", text(&output));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// All that a program said.
pub(crate) fn text(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error))
}
