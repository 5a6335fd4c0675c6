//! What a reader may see: for each byte of the other side's memory, everything
//! that was written to it, and when it was asked for.

use alloc::vec;
use alloc::vec::Vec;

/// One aperture of the other side, as its only writer knows it.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// Of each byte, its values, each with the number of the request that wrote it.
    versions: Vec<Vec<(u64, u8)>>,
    /// Something may have been lost: nothing is known any more.
    pub(super) is_unknown: bool,
}

impl Shadow {
    pub(super) fn new(len: usize) -> Self {
        Self { versions: vec![vec![(0, 0)]; len], is_unknown: false }
    }

    pub(super) fn write(&mut self, serial: u64, at: usize, bytes: &[u8]) {
        for (versions, byte) in self.versions[at..].iter_mut().zip(bytes) {
            versions.push((serial, *byte));
        }
    }

    /// What the bytes are when all that was asked for has been done.
    pub(super) fn last(&self, at: usize, len: usize) -> impl Iterator<Item = u8> + '_ {
        self.versions[at..at + len].iter().map(|versions| versions.last().map_or(0, |(_, b)| *b))
    }

    /// Could a read that was asked for at `serial` have seen this? It sees all
    /// that was written before it, and maybe some of what came later.
    pub(super) fn may_be(&self, serial: u64, at: usize, bytes: &[u8]) -> bool {
        let may_be = |(versions, byte): (&Vec<(u64, u8)>, &u8)| {
            let known = versions.iter().rposition(|(when, _)| *when < serial).unwrap_or(0);
            versions[known..].iter().any(|(_, value)| value == byte)
        };
        self.is_unknown || self.versions[at..].iter().zip(bytes).all(may_be)
    }
}
