//! [`Input`]: bytes that were received and not used yet.

use std::io;

use crate::stream::Stream;

/// Bytes that were received.
pub(crate) struct Input {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new(room: usize) -> Self {
        Self { bytes: vec![0; room], begin: 0, end: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    pub(crate) const fn consume(&mut self, count: usize) {
        self.begin += count;
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Receives more; false at the end.
    pub(crate) fn fill(&mut self, stream: &dyn Stream) -> io::Result<bool> {
        self.fill_up_to(usize::MAX, stream)
    }

    /// Receives this many bytes more at most, and at least one; false at the end.
    pub(crate) fn fill_up_to(&mut self, most: usize, stream: &dyn Stream) -> io::Result<bool> {
        if self.end == self.bytes.len() {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let room = &mut self.bytes[self.end..];
        let len = room.len().min(most);
        let count = stream.read(&mut room[..len])?;
        self.end += count;
        Ok(count > 0)
    }
}
