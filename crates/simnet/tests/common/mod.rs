//! What several tests need.
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use landfall_placement::Instant;
use landfall_simnet::{Frame, Node, Outbox, PortId, Sim};

/// A node that keeps every frame it gets.
#[derive(Default)]
pub struct Inbox {
    pub frames: Vec<(Instant, PortId, Frame)>,
}

impl Inbox {
    /// The first bytes of the frames, as numbers.
    pub fn numbers(&self) -> Vec<u32> {
        self.frames.iter().map(|(_, _, frame)| number(frame)).collect()
    }
}

impl Node for Inbox {
    fn handle_frame(&mut self, now: Instant, port: PortId, frame: Frame, _: &mut Outbox<'_>) {
        self.frames.push((now, port, frame));
    }
}

/// A frame of `len` bytes that starts with a number.
pub fn numbered(number: u32, len: usize) -> Frame {
    let mut bytes = vec![0; len.max(4)];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Frame::raw(bytes)
}

/// The number that a frame starts with.
pub fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.bytes[..4].try_into().unwrap())
}

/// A node that does nothing with what it gets.
pub fn silent(_: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>) {}

/// A list that a closure in a simulation and the test both hold.
pub fn shared<T>() -> Rc<RefCell<Vec<T>>> {
    Rc::default()
}

/// Runs until nothing happens any more.
pub fn run_dry(sim: &mut Sim) {
    sim.run_until(Instant::FAR_FUTURE).unwrap();
}

/// A file that is gone when the test is over, also when it fails.
pub struct TemporaryFile(pub PathBuf);

impl TemporaryFile {
    pub fn new(bytes: &[u8], name: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the name of a file, nothing of the run")]
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("landfall-{process}-{name}.pcapng"));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What tshark says of a capture, a line for each packet; `None` without tshark.
pub fn tshark(capture: &TemporaryFile, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&capture.0).args(["-T", "fields"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let text = landfall_testkit::tshark::run(&mut command)?;
    Some(text.lines().map(str::to_owned).collect())
}
