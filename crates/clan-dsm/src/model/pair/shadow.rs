//! What a reader may see: everything that was written to the other side's memory, and
//! when it was asked for.

use alloc::vec;
use alloc::vec::Vec;

/// One aperture of the other side, as its only writer knows it.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// All writes, in the order in which they were asked for.
    writes: Vec<Written>,
    /// What the bytes are once all of them are done.
    last: Vec<u8>,
    /// Something may have been lost: nothing is known any more.
    pub(super) is_unknown: bool,
}

/// A write, with the number of the request that made it.
#[derive(Clone, Debug)]
struct Written {
    serial: u64,
    at: usize,
    bytes: Vec<u8>,
}

impl Shadow {
    /// An aperture of so many zeros.
    pub(super) fn new(len: usize) -> Self {
        Self { writes: Vec::new(), last: vec![0; len], is_unknown: false }
    }

    pub(super) fn write(&mut self, serial: u64, at: usize, bytes: &[u8]) {
        self.last[at..at + bytes.len()].copy_from_slice(bytes);
        self.writes.push(Written { serial, at, bytes: bytes.to_vec() });
    }

    /// What the bytes are when all that was asked for has been done.
    pub(super) fn last(&self, at: usize, len: usize) -> &[u8] {
        &self.last[at..at + len]
    }

    /// Could a read that was asked for at `serial` have seen this? It sees all
    /// that was written before it, and maybe some of what came later.
    pub(super) fn may_be(&self, serial: u64, at: usize, bytes: &[u8]) -> bool {
        if self.is_unknown {
            return true;
        }
        // Of each byte: has it this value at the time of the read, or later?
        let mut may_be: Vec<bool> = bytes.iter().map(|byte| *byte == 0).collect();
        for write in &self.writes {
            let from = write.at.max(at);
            let to = (write.at + write.bytes.len()).min(at + bytes.len());
            for place in from..to {
                let is_it = write.bytes[place - write.at] == bytes[place - at];
                let seen = &mut may_be[place - at];
                *seen = is_it || *seen && write.serial >= serial;
            }
        }
        may_be.into_iter().all(|seen| seen)
    }
}
