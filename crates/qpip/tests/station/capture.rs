//! Captures of an interface, and what tshark says of them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_testbed::{Namespace, privileges};
use landfall_transport::wait;

/// Why frames cannot be looked at here.
pub fn why_no_tshark() -> Option<String> {
    let run = |program| Command::new(program).arg("--version").output();
    match ["tshark", "dumpcap"].into_iter().find_map(|program| run(program).err()) {
        Some(error) => Some(format!("needs tshark and dumpcap: {error}")),
        None => privileges::why_no_namespaces(),
    }
}

/// How many there were: tests run side by side.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// A capture under way. Dropped, it ends and leaves nothing.
pub struct Capture {
    child: Child,
    file: PathBuf,
    /// The file stays.
    is_kept: bool,
}

impl Capture {
    /// Captures an interface from now on.
    pub fn start(namespace: &Namespace, interface: &str, name: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the name of a file, nothing of the run")]
        let process = std::process::id();
        let number = CAPTURES.fetch_add(1, Ordering::Relaxed);
        let name = format!("landfall-{process}-{number}-{name}.pcapng");
        let file = std::env::temp_dir().join(name);
        Self::to(namespace, interface, file, false)
    }

    /// The same to this file.
    pub fn to(namespace: &Namespace, interface: &str, file: PathBuf, is_kept: bool) -> Self {
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-B", "64", "-i", interface, "-w"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = namespace.enter(|| command.spawn()).unwrap().unwrap();
        // It says where it writes to once it captures.
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("File:") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "dumpcap has nothing more to say");
        }
        // Nobody reads what it says at its end: that is less than a pipe holds.
        child.stderr = Some(said.into_inner());
        Self { child, file, is_kept }
    }

    /// Ends the capture, once what was on the cable before is in the file: the
    /// kernel hands frames over in blocks, at the latest after a quarter of a
    /// second, and those of a block that is not full would be missing.
    pub fn finish(mut self) -> Captured {
        wait::until_ready(&[], Duration::from_millis(800)).unwrap();
        self.stop();
        Captured { file: std::mem::take(&mut self.file) }
    }

    fn stop(&mut self) {
        // What it has buffered it writes when it is told to stop, not when it is killed.
        let process = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &process]).status();
        let _ = self.child.wait();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.file.as_os_str().is_empty() {
            self.stop();
            if !self.is_kept {
                let _ = std::fs::remove_file(&self.file);
            }
        }
    }
}

/// A capture that is over.
pub struct Captured {
    file: PathBuf,
}

impl Captured {
    /// These fields of each frame that the filter lets through, a line each,
    /// with a bar between two fields.
    pub fn fields(&self, filter: &str, fields: &[&str]) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file);
        // Random bytes look like the messages of some protocol sooner or later.
        command.args(["-d", "tcp.port==1-65535,data"]);
        command.args(["-Y", filter, "-T", "fields", "-E", "separator=|"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(str::to_owned).collect()
    }

    pub fn count(&self, filter: &str) -> usize {
        self.fields(filter, &["frame.number"]).len()
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
