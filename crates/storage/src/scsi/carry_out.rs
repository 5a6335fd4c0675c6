//! [`UnitDevice`]: what a device does for a command.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use landfall_scsi::{Check, Failure, LbaExtent, Work, lba_status};

use crate::device::BlockDevice;

/// What is compared or written again at a time.
const PIECE: usize = 1 << 20;
/// This many extents are told of at a time.
const MOST_EXTENTS: usize = 64;

/// A device, and who may write to it now.
pub(crate) struct UnitDevice {
    device: Arc<dyn BlockDevice>,
    /// Held alone by what reads and then writes.
    writing: RwLock<()>,
}

/// The failure, and what the device said.
pub(crate) type Failed = (Failure, io::Error);

fn cannot_read(error: io::Error) -> Failed {
    (Failure::Read, error)
}

fn cannot_write(error: io::Error) -> Failed {
    // ENOSPC, EFBIG, EDQUOT; EACCES, EROFS.
    let failure = match (error.raw_os_error(), error.kind()) {
        (Some(27 | 28 | 122), _) => Failure::NoSpace,
        (Some(13 | 30), _) => Failure::Protected,
        (None, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Failure::NoSpace,
        (None, io::ErrorKind::ReadOnlyFilesystem) => Failure::Protected,
        _ => Failure::Write,
    };
    (failure, error)
}

fn differs(at: u64) -> Failed {
    (Failure::Miscompare(at), io::Error::other("the bytes differ"))
}

impl UnitDevice {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, writing: RwLock::new(()) }
    }

    /// Does the work, if that needs no waiting for a medium. None: somebody who may wait has to.
    pub(crate) fn carry_out_now(
        &self,
        work: &Work,
        data: &[u8],
    ) -> Option<Result<Vec<u8>, Failed>> {
        match *work {
            Work::Read { offset, length } => {
                let mut into = vec![0; length as usize];
                self.read_now(offset, &mut into).map(|done| done.map(|()| into))
            }
            Work::Write { fua: false, verify: false, .. } => {
                // Not behind something that reads first.
                let _writing = self.writing.try_read().ok()?;
                Some(self.write(work, data))
            }
            _ => None,
        }
    }

    /// Does the work.
    pub(crate) fn carry_out(&self, work: &Work, data: &[u8]) -> Result<Vec<u8>, Failed> {
        if work.is_alone() {
            let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
            return self.write(work, data);
        }
        if work.writes() {
            let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
            return self.write(work, data);
        }
        match *work {
            Work::Read { offset, length } => self.read(offset, length as usize),
            Work::Verify { offset, length, check } => {
                self.verify(offset, length, check, data).map(|()| Vec::new())
            }
            Work::Prefetch { offset, length } => {
                self.device.cache(offset, length).map_err(cannot_read).map(|()| Vec::new())
            }
            Work::LbaStatus { offset, length, block, allocation } => {
                let extents = self.device.extents(offset, length, MOST_EXTENTS);
                let extents = extents.map_err(cannot_read)?.into_iter();
                let extents: Vec<_> = extents
                    .map(|extent| LbaExtent { len: extent.len, is_hole: extent.is_hole })
                    .collect();
                Ok(lba_status(offset, block, &extents, allocation))
            }
            _ => self.flush().map(|()| Vec::new()),
        }
    }

    /// Reads, if that needs no waiting for a medium. None: somebody who may wait has to.
    pub(crate) fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<Result<(), Failed>> {
        match self.device.read_if_cached(offset, into) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(cannot_read(error))),
        }
    }

    pub(crate) fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<(), Failed> {
        self.device.read(offset, into).map_err(cannot_read)
    }

    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Failed> {
        let mut into = vec![0; length];
        self.read_into(offset, &mut into)?;
        Ok(into)
    }

    fn flush(&self) -> Result<(), Failed> {
        self.device.flush().map_err(cannot_write)
    }

    fn write(&self, work: &Work, data: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut is_durable = false;
        match *work {
            Work::Write { offset, fua, verify } => {
                self.device.write(offset, data).map_err(cannot_write)?;
                if verify {
                    self.flush()?;
                    self.verify(offset, data.len() as u64, Check::Data, data)?;
                }
                is_durable = fua && !verify;
            }
            Work::CompareAndWrite { offset, fua } => {
                let (old, new) = data.split_at(data.len() / 2);
                self.verify(offset, old.len() as u64, Check::Data, old)?;
                self.device.write(offset, new).map_err(cannot_write)?;
                is_durable = fua;
            }
            Work::OrWrite { offset, fua } => {
                let mut there = self.read(offset, data.len())?;
                for (byte, set) in there.iter_mut().zip(data) {
                    *byte |= set;
                }
                self.device.write(offset, &there).map_err(cannot_write)?;
                is_durable = fua;
            }
            Work::WriteSame { offset, length, unmap } => {
                self.write_same(offset, length, unmap, data)?;
            }
            Work::Unmap(ref ranges) => {
                for (offset, length) in ranges {
                    self.zero(*offset, *length, true)?;
                }
            }
            _ => {}
        }
        if is_durable {
            self.flush()?;
        }
        Ok(Vec::new())
    }

    /// What is unmapped reads as zeroes: so says the target.
    fn zero(&self, offset: u64, length: u64, may_punch: bool) -> Result<(), Failed> {
        self.device.write_zeroes(offset, length, may_punch, false).map_err(cannot_write)
    }

    fn write_same(
        &self,
        offset: u64,
        length: u64,
        unmap: bool,
        block: &[u8],
    ) -> Result<(), Failed> {
        if block.iter().all(|byte| *byte == 0) {
            return self.zero(offset, length, unmap);
        }
        let most = PIECE.min(usize::try_from(length).unwrap_or(PIECE));
        let piece = block.repeat(most.div_ceil(block.len()));
        let mut done = 0;
        while done < length {
            let len = (length - done).min(piece.len() as u64);
            let written = self.device.write(offset + done, &piece[..len as usize]);
            written.map_err(cannot_write)?;
            done += len;
        }
        Ok(())
    }

    fn verify(&self, offset: u64, length: u64, check: Check, data: &[u8]) -> Result<(), Failed> {
        let mut done = 0;
        while done < length {
            let len = (length - done).min(PIECE as u64) as usize;
            let there = self.read(offset + done, len)?;
            let same = |(at, byte): (usize, &u8)| match check {
                Check::Readable => true,
                Check::Data => data.get(done as usize + at) == Some(byte),
                Check::OneBlock => data.get((done as usize + at) % data.len().max(1)) == Some(byte),
            };
            if let Some(at) = there.iter().enumerate().position(|it| !same(it)) {
                return Err(differs(done + at as u64));
            }
            done += len as u64;
        }
        Ok(())
    }
}
