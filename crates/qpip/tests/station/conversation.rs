//! One connection of a station: its queue pair, the memory of its requests, and
//! the program behind it.

use std::net::SocketAddr;

use landfall_placement::RegionId;
use landfall_transport::memory::Regions;
use qpip::{Buffer, CloseReason, MemoryKey};

use super::program::{Program, Say};

/// How much is posted at a time.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub receives: u32,
    pub sends: u32,
    /// Bytes of each request.
    pub bytes: u32,
}

impl Shape {
    /// For much.
    pub const BULK: Self = Self { receives: 8, sends: 8, bytes: 256 << 10 };
    /// For little.
    pub const SMALL: Self = Self { receives: 2, sends: 2, bytes: 4 << 10 };

    pub fn requests(self) -> u32 {
        self.receives + self.sends
    }
}

/// What came of a connection so far.
#[derive(Clone, Debug)]
pub struct Report {
    /// Both ends, once it was open.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    pub received: u64,
    pub hash: blake3::Hash,
    /// Bytes whose requests completed with success.
    pub sent: u64,
    /// Requests that completed otherwise.
    pub failed_sends: u32,
    pub peer_finished: bool,
    pub closed: Option<CloseReason>,
}

/// One connection.
pub struct Conversation {
    pub(super) program: Box<dyn Program>,
    pub(super) region: RegionId,
    pub(super) key: MemoryKey,
    pub(super) shape: Shape,
    /// Requests, by number, that can be posted.
    pub(super) free_receives: Vec<u32>,
    pub(super) free_sends: Vec<u32>,
    /// Posted, and not complete.
    pub(super) under_way: u32,
    /// Receives are posted as they become free.
    pub(super) is_reading: bool,
    pub(super) has_ended: bool,
    pub(super) hasher: blake3::Hasher,
    pub(super) report: Report,
}

impl Conversation {
    pub(super) fn new(
        program: Box<dyn Program>,
        region: RegionId,
        key: MemoryKey,
        shape: Shape,
    ) -> Self {
        let hasher = blake3::Hasher::new();
        let report = Report {
            ends: None,
            received: 0,
            hash: hasher.finalize(),
            sent: 0,
            failed_sends: 0,
            peer_finished: false,
            closed: None,
        };
        Self {
            program,
            region,
            key,
            shape,
            free_receives: (0..shape.receives).rev().collect(),
            free_sends: (shape.receives..shape.requests()).rev().collect(),
            under_way: 0,
            is_reading: true,
            has_ended: false,
            hasher,
            report,
        }
    }

    /// The buffer of a request, or its first `len` bytes.
    pub(super) fn buffer(&self, request: u32, len: u32) -> Buffer {
        Buffer::new(self.key, u64::from(request) * u64::from(self.shape.bytes), len)
    }

    pub(super) fn hear(&mut self, regions: &Regions, request: u32, offset: u32, len: u32) {
        let at = u64::from(request) * u64::from(self.shape.bytes) + u64::from(offset);
        let mut bytes = vec![0; len as usize];
        regions.read(&self.region.span(at, len), &mut bytes).unwrap();
        self.hasher.update(&bytes);
        self.report.received += u64::from(len);
        self.program.hear(&bytes);
    }

    /// What the program says next; its bytes are in the request's memory then.
    pub(super) fn say(&mut self, regions: &Regions, request: u32) -> Say {
        let mut bytes = vec![0; self.shape.bytes as usize];
        let say = self.program.say(&mut bytes);
        if let Say::Bytes(len) = say {
            let at = u64::from(request) * u64::from(self.shape.bytes);
            regions.write(&self.region.span(at, len as u32), &bytes[..len]).unwrap();
        }
        say
    }

    pub fn report(&self) -> Report {
        Report { hash: self.hasher.finalize(), ..self.report.clone() }
    }
}
