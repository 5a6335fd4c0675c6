//! [`Unit`]: a logical unit as an initiator over STP uses it.

use std::collections::VecDeque;
use std::error::Error;

use landfall::stp::Memory;

use super::{Completion, Initiator, InitiatorError, Pending};
use crate::scsi::{Key, Lun};

/// The bytes of a block.
pub const BLOCK: u64 = 512;

/// Commands of a copy that are under way at a time.
const DEPTH: usize = 8;

/// The most that a unit may have to tell before it is ready.
const MOST_TOLD: usize = 8;

/// The most units that are asked for.
const MOST_UNITS: usize = 1024;

/// What a unit says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Who made it.
    pub vendor: String,
    /// What it is.
    pub product: String,
    /// Which one of these.
    pub revision: String,
}

/// A disk with blocks of 512 bytes at a target.
///
/// ```
/// use landfall::stp::{Endpoint, Memory, Transport, blocking};
/// use landfall_storage::device::MemoryDevice;
/// use landfall_storage::scsi::sst::{Initiator, Unit};
/// use landfall_storage::scsi::{Lun, Server};
///
/// let server = Server::builder("iqn.2026-01.example:disks").unit(0, MemoryDevice::new(1 << 20)).start()?;
/// let at = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// server.listen_sst(&at, 3260)?;
///
/// let endpoint = blocking::Endpoint::from(Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?);
/// let connection = endpoint.connect(at.local().unwrap(), 3260)?;
/// let initiator = Initiator::new(connection.as_async().clone(), "iqn.2026-01.example:me")?;
/// let unit = Unit::open(&initiator, Lun::new(0).unwrap())?;
/// unit.write(4096, Memory::from_bytes(&[7; 512])).wait()?;
/// assert_eq!(&unit.read(4096, Memory::zeroed(512)).wait()?.memory[..], [7; 512]);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Unit<'a> {
    initiator: &'a Initiator,
    lun: Lun,
    size: u64,
}

/// What a caller does with a piece may fail in its own way.
pub type UnitError = Box<dyn Error + Send + Sync>;

impl<'a> Unit<'a> {
    /// Hears what the unit has to tell, and how large it is.
    ///
    /// # Errors
    /// There is none, it does not become ready, or its blocks are of another size.
    pub fn open(initiator: &'a Initiator, lun: Lun) -> Result<Self, UnitError> {
        let mut told = 0;
        while let Err(error) = initiator.ready(lun).wait() {
            let is_news = matches!(&error, InitiatorError::Failed { sense: Some(sense), .. }
                if sense.key == Key::UnitAttention);
            told += 1;
            if !is_news || told > MOST_TOLD {
                return Err(error.into());
            }
        }
        let Completion { memory, len } = initiator.capacity(lun).wait()?;
        let (Some(last), Some(block), 12..) =
            (memory.first_chunk(), memory.get(8..).and_then(<[u8]>::first_chunk), len)
        else {
            return Err("the unit does not say how large it is".into());
        };
        let (last, block) = (u64::from_be_bytes(*last), u32::from_be_bytes(*block));
        let size = last.checked_add(1).and_then(|blocks| blocks.checked_mul(BLOCK));
        match size {
            Some(size) if u64::from(block) == BLOCK => Ok(Self { initiator, lun, size }),
            _ => Err(format!("the unit has blocks of {block} bytes: {BLOCK} are used here").into()),
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// What it is.
    ///
    /// # Errors
    /// It does not say so.
    pub fn inquiry(&self) -> Result<Inquiry, UnitError> {
        let Completion { memory, len } = self.initiator.inquiry(self.lun).wait()?;
        let Some(told) = memory.get(..len.min(memory.len())).filter(|told| told.len() >= 36) else {
            return Err("the unit does not say what it is".into());
        };
        // Not all that a target says is for terminals.
        let text = |bytes: &[u8]| -> String {
            let plain =
                |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
            bytes.iter().map(plain).collect::<String>().trim().to_owned()
        };
        let (vendor, product, revision) = (&told[8..16], &told[16..32], &told[32..36]);
        Ok(Inquiry { vendor: text(vendor), product: text(product), revision: text(revision) })
    }

    /// Fills memory from a multiple of 512 bytes on.
    pub fn read(&self, offset: u64, into: Memory) -> Pending {
        self.initiator.read(self.lun, offset / BLOCK, into)
    }

    /// Writes memory from a multiple of 512 bytes on.
    pub fn write(&self, offset: u64, from: Memory) -> Pending {
        self.initiator.write(self.lun, offset / BLOCK, from)
    }

    /// Whatever was answered before is on the medium when this returns.
    ///
    /// # Errors
    /// It is not known to be.
    pub fn flush(&self) -> Result<(), InitiatorError> {
        self.initiator.flush(self.lun).wait().map(drop)
    }

    /// Reads everything, in pieces of this many bytes, in order.
    ///
    /// # Errors
    /// A read fails, or `take` does.
    pub fn read_all(
        &self,
        piece: usize,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), UnitError>,
    ) -> Result<(), UnitError> {
        let (mut under_way, mut next) = (VecDeque::new(), 0);
        loop {
            while next < self.size && under_way.len() < DEPTH {
                let len = (self.size - next).min(piece as u64);
                under_way.push_back((next, self.read(next, Memory::zeroed(len as usize))));
                next += len;
            }
            let Some((offset, pending)) = under_way.pop_front() else { return Ok(()) };
            let Completion { memory, len } = pending.wait()?;
            if len < memory.len() {
                return Err(format!("the target gave {len} bytes at {offset}").into());
            }
            take(offset, &memory)?;
        }
    }

    /// Writes this many bytes from the beginning on, in pieces that `fill` gives, and has all of it on
    /// the medium. The last block is filled up with what is there.
    ///
    /// # Errors
    /// The unit is too small, a write fails, or `fill` does.
    pub fn write_all(
        &self,
        piece: usize,
        size: u64,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), UnitError>,
    ) -> Result<(), UnitError> {
        if size > self.size {
            return Err(
                format!("the unit is too small: it has {} bytes of {size}", self.size).into()
            );
        }
        let (mut under_way, mut next) = (VecDeque::new(), 0);
        loop {
            while next < size && under_way.len() < DEPTH {
                let len = (size - next).min(piece as u64);
                let whole = len.next_multiple_of(BLOCK);
                let mut memory = Memory::zeroed(whole as usize);
                if whole > len {
                    memory = self.read(next, memory).wait()?.memory;
                }
                fill(next, &mut memory[..len as usize])?;
                under_way.push_back(self.write(next, memory));
                next += len;
            }
            let Some(pending) = under_way.pop_front() else { break };
            pending.wait()?;
        }
        Ok(self.flush()?)
    }
}

/// The numbers of a target's units (REPORT LUNS).
///
/// # Errors
/// The target does not say.
pub fn units_of(initiator: &Initiator) -> Result<Vec<u16>, UnitError> {
    let (mut cdb, room) = ([0; 12], 8 + 8 * MOST_UNITS);
    cdb[0] = 0xa0;
    cdb[6..10].copy_from_slice(&(room as u32).to_be_bytes());
    let zero = Lun::new(0).ok_or("zero is the number of a unit")?;
    let done = initiator.command(zero, &cdb, None, Memory::zeroed(room)).wait()?;
    let told = &done.memory[..done.len.min(done.memory.len())];
    let listed = told.get(8..).ok_or("the target does not list its units")?;
    // Peripheral and flat addressing: the number is in the first two bytes.
    let number = |lun: &[u8]| u16::from_be_bytes([lun[0] & 0x3f, lun[1]]);
    Ok(listed.chunks_exact(8).map(number).collect())
}
