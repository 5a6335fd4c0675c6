//! What several tests need.
use std::cell::RefCell;
use std::rc::Rc;

use landfall_placement::Instant;
use landfall_simnet::{Frame, Node, Outbox, PortId, Sim};
use landfall_testkit::tshark::CaptureFile;

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

/// What tshark says of a capture, a line for each packet; `None` without tshark.
pub fn tshark(capture: &CaptureFile, fields: &[&str]) -> Option<Vec<String>> {
    let options = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"];
    let packets = landfall_testkit::tshark::fields(capture.path(), fields, &options)?;
    Some(packets.into_iter().map(|cells| cells.join("\t")).collect())
}
