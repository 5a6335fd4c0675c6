//! [`Work`]: what a device has to do for a command, and [`Failure`]: why it could not.

use alloc::vec::Vec;

use crate::cdb::Check;
use crate::sense::{Code, Key, Response, Sense};

/// What a device has to do. All offsets and lengths are in bytes, and within the device. Data
/// of the command are beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// These bytes are wanted.
    Read {
        /// Where they begin.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// The data are written.
    Write {
        /// Where they begin.
        offset: u64,
        /// They are on the medium before the answer.
        fua: bool,
        /// They are read back and compared.
        verify: bool,
    },
    /// The medium is read and compared with the data.
    Verify {
        /// Where it begins.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// What with.
        check: Check,
    },
    /// The first half of the data is compared, and where it is the same the second half is
    /// written; nobody writes between.
    CompareAndWrite {
        /// Where they begin.
        offset: u64,
        /// They are on the medium before the answer.
        fua: bool,
    },
    /// Bits of the data are set; nobody writes between reading and writing.
    OrWrite {
        /// Where they begin.
        offset: u64,
        /// They are on the medium before the answer.
        fua: bool,
    },
    /// The data, one block, are written again and again; no data are zeroes.
    WriteSame {
        /// Where they begin.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Zeroes need not stay allocated.
        unmap: bool,
    },
    /// These ranges (offsets and lengths) become zeroes, and need not stay allocated.
    Unmap(Vec<(u64, u64)>),
    /// What was written is on the medium before the answer.
    Flush,
    /// These bytes will be read soon.
    Prefetch {
        /// Where they begin.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// What is allocated.
    LbaStatus {
        /// Where the question begins.
        offset: u64,
        /// How far it goes at most.
        length: u64,
        /// The size of a block.
        block: u32,
        /// The longest answer.
        allocation: u32,
    },
}

/// A stretch of a device that is all allocated, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaExtent {
    /// How many bytes.
    pub len: u64,
    /// Nothing is allocated for them.
    pub is_hole: bool,
}

impl Work {
    /// Does it write?
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::CompareAndWrite { .. }
                | Self::OrWrite { .. }
                | Self::WriteSame { .. }
                | Self::Unmap(_)
        )
    }

    /// Does nobody else write meanwhile?
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        matches!(self, Self::CompareAndWrite { .. } | Self::OrWrite { .. })
    }

    /// How many bytes it gives at most.
    #[must_use]
    pub const fn data_in(&self) -> u32 {
        match self {
            Self::Read { length, .. } => *length,
            Self::LbaStatus { allocation, .. } => *allocation,
            _ => 0,
        }
    }
}

/// The answer to GET LBA STATUS: what is allocated from `offset` on.
#[must_use]
pub fn lba_status(offset: u64, block: u32, extents: &[LbaExtent], allocation: u32) -> Vec<u8> {
    let block = u64::from(block.max(1));
    let (mut data, mut at) = (alloc::vec![0; 8], offset);
    let mut last: Option<(u64, u64, bool)> = None;
    let push = |data: &mut Vec<u8>, (begin, end, is_hole): (u64, u64, bool)| {
        let (mut begin, end) = (begin / block, end / block);
        while begin < end && data.len() < 8 + 16 * 64 {
            let count = (end - begin).min(u32::MAX.into());
            data.extend_from_slice(&begin.to_be_bytes());
            data.extend_from_slice(&(count as u32).to_be_bytes());
            data.extend_from_slice(&[u8::from(is_hole), 0, 0, 0]);
            begin += count;
        }
    };
    for extent in extents {
        let end = at.saturating_add(extent.len);
        // What is partly a hole is no hole.
        let edge = if extent.is_hole { end - end % block } else { end.next_multiple_of(block) };
        let begin = last.map_or(offset, |(_, end, _)| end);
        match &mut last {
            Some((_, until, is_hole)) if *is_hole == extent.is_hole => *until = edge.max(*until),
            _ if edge > begin => {
                if let Some(whole) = last.replace((begin, edge, extent.is_hole)) {
                    push(&mut data, whole);
                }
            }
            _ => {}
        }
        at = end;
    }
    if let Some(whole) = last {
        push(&mut data, whole);
    }
    let length = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data.truncate(allocation as usize);
    data
}

/// Why a device could not do what it had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Bytes could not be read.
    #[error("the medium cannot be read")]
    Read,
    /// Bytes could not be written, or are not known to be on the medium.
    #[error("the medium cannot be written")]
    Write,
    /// There is no room for them.
    #[error("there is no room on the medium")]
    NoSpace,
    /// Nobody may write.
    #[error("the medium is protected")]
    Protected,
    /// The bytes at this offset of the data differ.
    #[error("the bytes at {0} differ")]
    Miscompare(u64),
}

impl Failure {
    /// The sense data that say so.
    #[must_use]
    pub const fn sense(self) -> Sense {
        match self {
            Self::Read => Sense::new(Key::MediumError, Code::READ_ERROR),
            Self::Write => Sense::new(Key::MediumError, Code::WRITE_ERROR),
            Self::NoSpace => Sense::new(Key::DataProtect, Code::NO_SPACE),
            Self::Protected => Sense::new(Key::DataProtect, Code::WRITE_PROTECTED),
            Self::Miscompare(at) => {
                let sense = Sense::new(Key::Miscompare, Code::MISCOMPARE);
                Sense { information: Some(at), ..sense }
            }
        }
    }
}

impl From<Failure> for Response {
    fn from(failure: Failure) -> Self {
        Self::failed(failure.sense())
    }
}
