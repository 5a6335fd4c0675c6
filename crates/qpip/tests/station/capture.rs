//! Captures of an interface, and what tshark says of them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landfall_testbed::{Namespace, privileges};
use landfall_testkit::{TemporaryFolder, tshark};
use landfall_transport::wait;

/// Why frames cannot be looked at here.
pub fn why_no_tshark() -> Option<String> {
    let run = |program| Command::new(program).arg("--version").output();
    match ["tshark", "dumpcap"].into_iter().find_map(|program| run(program).err()) {
        Some(error) => Some(format!("needs tshark and dumpcap: {error}")),
        None => privileges::why_no_namespaces(),
    }
}

/// A capture under way. Dropped, it ends and leaves nothing but a file that was asked for.
pub struct Capture {
    child: Child,
    file: PathBuf,
    folder: Option<TemporaryFolder>,
}

impl Capture {
    /// Captures an interface from now on.
    pub fn start(namespace: &Namespace, interface: &str, name: &str) -> Self {
        let folder = TemporaryFolder::new(name);
        let file = folder.join("capture.pcapng");
        let mut capture = Self::to(namespace, interface, file);
        capture.folder = Some(folder);
        capture
    }

    /// The same to this file.
    pub fn to(namespace: &Namespace, interface: &str, file: PathBuf) -> Self {
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
        Self { child, file, folder: None }
    }

    /// Ends the capture, once what was on the cable before is in the file: the
    /// kernel hands frames over in blocks, at the latest after a quarter of a
    /// second, and those of a block that is not full would be missing.
    pub fn finish(mut self) -> Captured {
        wait::until_ready(&[], Duration::from_millis(800)).unwrap();
        self.stop();
        Captured { file: std::mem::take(&mut self.file), _folder: self.folder.take() }
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
        }
    }
}

/// A capture that is over.
pub struct Captured {
    file: PathBuf,
    _folder: Option<TemporaryFolder>,
}

impl Captured {
    /// These fields of each frame that the filter lets through, a line each,
    /// with a bar between two fields.
    pub fn fields(&self, filter: &str, fields: &[&str]) -> Vec<String> {
        // Random bytes look like the messages of some protocol sooner or later.
        let options = ["-d", "tcp.port==1-65535,data", "-Y", filter];
        let packets = tshark::fields(&self.file, fields, &options).expect("there is a tshark");
        packets.into_iter().map(|cells| cells.join("|")).collect()
    }

    pub fn count(&self, filter: &str) -> usize {
        self.fields(filter, &["frame.number"]).len()
    }
}
