//! [`Command`]: what an initiator asks of a logical unit.

use crate::opcodes::{find, has_actions};
use crate::sense::{Code, Key, Sense};
use crate::wire::{number, u16_at, u32_at, u64_at};

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first.
    pub lba: u64,
    /// How many.
    pub count: u32,
}

impl Blocks {
    /// The block behind the last, if there is such a number.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        self.lba.checked_add(self.count as u64)
    }
}

/// What a medium is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing: it only has to be readable.
    Readable,
    /// The data that come with the command.
    Data,
    /// One block, with each.
    OneBlock,
}

impl Check {
    fn of(cdb: &[u8; 16]) -> Result<Self, Sense> {
        match cdb[1] >> 1 & 3 {
            0 => Ok(Self::Readable),
            1 => Ok(Self::Data),
            3 => Ok(Self::OneBlock),
            _ => Err(Sense::invalid_field(1, 2)),
        }
    }

    /// How many blocks of data come with a command about these.
    pub(crate) const fn blocks(self, blocks: Blocks) -> u32 {
        match self {
            Self::Readable => 0,
            Self::Data => blocks.count,
            Self::OneBlock => {
                if blocks.count == 0 {
                    0
                } else {
                    1
                }
            }
        }
    }
}

/// How one block is written to many places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSame {
    /// Which.
    pub blocks: Blocks,
    /// Nothing needs to stay allocated, where the block is zero.
    pub unmap: bool,
    /// The block is zero, and does not come with the command.
    pub no_data: bool,
}

/// What a PERSISTENT RESERVE OUT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveAction {
    /// REGISTER
    Register,
    /// RESERVE
    Reserve,
    /// RELEASE
    Release,
    /// CLEAR
    Clear,
    /// PREEMPT
    Preempt,
    /// PREEMPT AND ABORT
    PreemptAndAbort,
    /// REGISTER AND IGNORE EXISTING KEY
    RegisterAndIgnore,
}

/// What an initiator asks of a logical unit.
///
/// ```
/// use landfall_scsi::{Blocks, Command};
///
/// let read = [0x28, 0, 0, 0, 0, 8, 0, 0, 2, 0];
/// let blocks = Blocks { lba: 8, count: 2 };
/// assert_eq!(Command::parse(&read), Ok(Command::Read { blocks, fua: false }));
/// assert!(Command::parse(&[0xff]).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the standard")]
pub enum Command {
    /// TEST UNIT READY
    TestUnitReady,
    /// REQUEST SENSE
    RequestSense { descriptors: bool, allocation: u32 },
    /// INQUIRY, of a page of vital product data or the standard one
    Inquiry { page: Option<u8>, allocation: u32 },
    /// MODE SENSE (6) and (10)
    ModeSense { long: bool, no_blocks: bool, control: u8, page: u8, subpage: u8, allocation: u32 },
    /// MODE SELECT (6) and (10)
    ModeSelect { long: bool, pages: bool, save: bool, length: u32 },
    /// RESERVE (6)
    Reserve,
    /// RELEASE (6)
    Release,
    /// START STOP UNIT
    StartStop,
    /// READ CAPACITY (10) and (16)
    ReadCapacity { long: bool, allocation: u32 },
    /// GET LBA STATUS
    LbaStatus { lba: u64, allocation: u32 },
    /// READ (6), (10), (12) and (16)
    Read { blocks: Blocks, fua: bool },
    /// WRITE (6), (10), (12) and (16)
    Write { blocks: Blocks, fua: bool },
    /// WRITE AND VERIFY (10), (12) and (16)
    WriteAndVerify { blocks: Blocks, compare: bool },
    /// VERIFY (10), (12) and (16)
    Verify { blocks: Blocks, check: Check },
    /// PRE-FETCH (10) and (16)
    Prefetch { blocks: Blocks },
    /// SYNCHRONIZE CACHE (10) and (16)
    SynchronizeCache { blocks: Blocks },
    /// WRITE SAME (10) and (16)
    WriteSame(WriteSame),
    /// UNMAP
    Unmap { length: u32 },
    /// COMPARE AND WRITE
    CompareAndWrite { blocks: Blocks, fua: bool },
    /// ORWRITE (16)
    OrWrite { blocks: Blocks, fua: bool },
    /// REPORT LUNS
    ReportLuns { select: u8, allocation: u32 },
    /// REPORT SUPPORTED OPERATION CODES
    ReportOpcodes { timeouts: bool, options: u8, code: u8, action: u16, allocation: u32 },
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    ReportTaskManagement { extended: bool, allocation: u32 },
    /// PERSISTENT RESERVE IN
    ReserveIn { action: u8, allocation: u32 },
    /// PERSISTENT RESERVE OUT
    ReserveOut { action: ReserveAction, scope: u8, kind: u8, length: u32 },
}

impl Command {
    /// What a command descriptor block means. Bytes behind it do not matter.
    ///
    /// # Errors
    /// The sense data of a command that there is not, or that has a field that it cannot have.
    pub fn parse(bytes: &[u8]) -> Result<Self, Sense> {
        let mut cdb = [0; 16];
        let there = bytes.len().min(16);
        cdb[..there].copy_from_slice(&bytes[..there]);
        let code = cdb[0];
        let action = if code == 0x5e || code == 0x5f || code >= 0x80 { cdb[1] & 0x1f } else { 0 };
        let found = find(code, action.into()).ok_or_else(|| {
            if has_actions(code) {
                Sense::invalid_field(1, 4)
            } else {
                Sense::new(Key::IllegalRequest, Code::INVALID_OPCODE)
            }
        })?;
        if there < found.usage.len() {
            return Err(Sense::invalid_field(there as u16, 7));
        }
        // The first byte was found by what it is.
        for (at, (byte, usage)) in cdb.iter().zip(found.usage).enumerate().skip(1) {
            let wrong = byte & !usage;
            if wrong != 0 {
                return Err(Sense::invalid_field(at as u16, 7 - wrong.leading_zeros() as u8));
            }
        }
        match found.usage.len() {
            6 => Self::six(&cdb),
            10 => Self::ten(&cdb),
            12 => Self::twelve(&cdb),
            _ => Self::sixteen(&cdb),
        }
    }

    fn six(cdb: &[u8; 16]) -> Result<Self, Sense> {
        let short = u32::from(cdb[4]);
        let lba = number(cdb, 1, 3) & 0x1f_ffff;
        let blocks = Blocks { lba, count: if short == 0 { 256 } else { short } };
        Ok(match cdb[0] {
            0x00 => Self::TestUnitReady,
            0x03 => Self::RequestSense { descriptors: cdb[1] & 1 != 0, allocation: short },
            0x08 => Self::Read { blocks, fua: false },
            0x0a => Self::Write { blocks, fua: false },
            0x12 => {
                let has_page = cdb[1] & 1 != 0;
                if !has_page && cdb[2] != 0 {
                    return Err(Sense::invalid_field(2, 7));
                }
                let allocation = u16_at(cdb, 3).into();
                Self::Inquiry { page: has_page.then_some(cdb[2]), allocation }
            }
            0x15 => Self::mode_select(cdb, false, short),
            0x16 => Self::Reserve,
            0x17 => Self::Release,
            0x1a => Self::mode_sense(cdb, false, short),
            _ => Self::StartStop,
        })
    }

    const fn mode_sense(cdb: &[u8; 16], long: bool, allocation: u32) -> Self {
        Self::ModeSense {
            long,
            no_blocks: cdb[1] & 0x08 != 0,
            control: cdb[2] >> 6,
            page: cdb[2] & 0x3f,
            subpage: cdb[3],
            allocation,
        }
    }

    const fn mode_select(cdb: &[u8; 16], long: bool, length: u32) -> Self {
        Self::ModeSelect { long, pages: cdb[1] & 0x10 != 0, save: cdb[1] & 1 != 0, length }
    }

    fn ten(cdb: &[u8; 16]) -> Result<Self, Sense> {
        let length = u32::from(u16_at(cdb, 7));
        let blocks = Blocks { lba: u32_at(cdb, 2).into(), count: length };
        let fua = cdb[1] & 0x08 != 0;
        Ok(match cdb[0] {
            0x25 => Self::ReadCapacity { long: false, allocation: 8 },
            0x28 => Self::Read { blocks, fua },
            0x2a => Self::Write { blocks, fua },
            0x2e => Self::WriteAndVerify { blocks, compare: compares(cdb)? },
            0x2f => Self::Verify { blocks, check: Check::of(cdb)? },
            0x34 => Self::Prefetch { blocks },
            0x35 => Self::SynchronizeCache { blocks },
            0x41 => {
                Self::WriteSame(WriteSame { blocks, unmap: cdb[1] & 0x08 != 0, no_data: false })
            }
            0x42 => Self::Unmap { length },
            0x55 => Self::mode_select(cdb, true, length),
            0x5a => Self::mode_sense(cdb, true, length),
            0x5e => Self::ReserveIn { action: cdb[1] & 0x1f, allocation: length },
            _ => Self::ReserveOut {
                action: match cdb[1] & 0x1f {
                    0 => ReserveAction::Register,
                    1 => ReserveAction::Reserve,
                    2 => ReserveAction::Release,
                    3 => ReserveAction::Clear,
                    4 => ReserveAction::Preempt,
                    5 => ReserveAction::PreemptAndAbort,
                    _ => ReserveAction::RegisterAndIgnore,
                },
                scope: cdb[2] >> 4,
                kind: cdb[2] & 0xf,
                length: u32_at(cdb, 5),
            },
        })
    }

    fn twelve(cdb: &[u8; 16]) -> Result<Self, Sense> {
        let blocks = Blocks { lba: u32_at(cdb, 2).into(), count: u32_at(cdb, 6) };
        let (fua, allocation) = (cdb[1] & 0x08 != 0, u32_at(cdb, 6));
        Ok(match cdb[0] {
            0xa0 => Self::ReportLuns { select: cdb[2], allocation },
            0xa3 if cdb[1] & 0x1f == 0x0c => Self::ReportOpcodes {
                timeouts: cdb[2] & 0x80 != 0,
                options: cdb[2] & 7,
                code: cdb[3],
                action: u16_at(cdb, 4),
                allocation,
            },
            0xa3 => Self::ReportTaskManagement { extended: cdb[2] & 0x80 != 0, allocation },
            0xa8 => Self::Read { blocks, fua },
            0xaa => Self::Write { blocks, fua },
            0xae => Self::WriteAndVerify { blocks, compare: compares(cdb)? },
            _ => Self::Verify { blocks, check: Check::of(cdb)? },
        })
    }

    fn sixteen(cdb: &[u8; 16]) -> Result<Self, Sense> {
        let blocks = Blocks { lba: u64_at(cdb, 2), count: u32_at(cdb, 10) };
        let fua = cdb[1] & 0x08 != 0;
        Ok(match cdb[0] {
            0x88 => Self::Read { blocks, fua },
            0x89 => {
                let blocks = Blocks { count: cdb[13].into(), ..blocks };
                Self::CompareAndWrite { blocks, fua }
            }
            0x8a => Self::Write { blocks, fua },
            0x8b => Self::OrWrite { blocks, fua },
            0x8e => Self::WriteAndVerify { blocks, compare: compares(cdb)? },
            0x8f => Self::Verify { blocks, check: Check::of(cdb)? },
            0x90 => Self::Prefetch { blocks },
            0x91 => Self::SynchronizeCache { blocks },
            0x93 => Self::WriteSame(WriteSame {
                blocks,
                unmap: cdb[1] & 0x08 != 0,
                no_data: cdb[1] & 0x01 != 0,
            }),
            _ if cdb[1] & 0x1f == 0x10 => {
                Self::ReadCapacity { long: true, allocation: u32_at(cdb, 10) }
            }
            _ => Self::LbaStatus { lba: u64_at(cdb, 2), allocation: u32_at(cdb, 10) },
        })
    }

    /// The blocks that it is about, if it is about some.
    #[must_use]
    pub const fn blocks(&self) -> Option<Blocks> {
        Some(match *self {
            Self::Read { blocks, .. }
            | Self::Write { blocks, .. }
            | Self::WriteAndVerify { blocks, .. }
            | Self::Verify { blocks, .. }
            | Self::Prefetch { blocks }
            | Self::SynchronizeCache { blocks }
            | Self::WriteSame(WriteSame { blocks, .. })
            | Self::CompareAndWrite { blocks, .. }
            | Self::OrWrite { blocks, .. } => blocks,
            Self::LbaStatus { lba, .. } => Blocks { lba, count: 1 },
            _ => return None,
        })
    }

    /// How many bytes of data come with it, where a block has this size.
    #[must_use]
    pub const fn data_out(&self, block: u32) -> u64 {
        let blocks = match *self {
            Self::Write { blocks, .. }
            | Self::WriteAndVerify { blocks, .. }
            | Self::OrWrite { blocks, .. } => blocks.count as u64,
            Self::CompareAndWrite { blocks, .. } => 2 * blocks.count as u64,
            Self::Verify { blocks, check } => check.blocks(blocks) as u64,
            Self::WriteSame(WriteSame { no_data, .. }) => !no_data as u64,
            Self::Unmap { length } | Self::ModeSelect { length, .. } => return length as u64,
            Self::ReserveOut { length, .. } => return length as u64,
            _ => 0,
        };
        blocks * block as u64
    }

    /// Do its data mean something else where there are more or fewer of them than it says?
    pub(crate) const fn is_exact(&self) -> bool {
        matches!(self, Self::CompareAndWrite { .. } | Self::WriteSame(_))
    }

    /// The longest data that it gives to the initiator.
    pub(crate) const fn allocation(&self) -> Option<u32> {
        Some(match *self {
            Self::RequestSense { allocation, .. }
            | Self::Inquiry { allocation, .. }
            | Self::ModeSense { allocation, .. }
            | Self::ReadCapacity { allocation, .. }
            | Self::LbaStatus { allocation, .. }
            | Self::ReportLuns { allocation, .. }
            | Self::ReportOpcodes { allocation, .. }
            | Self::ReportTaskManagement { allocation, .. }
            | Self::ReserveIn { allocation, .. } => allocation,
            _ => return None,
        })
    }

    /// Does it change the medium?
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::WriteAndVerify { .. }
                | Self::WriteSame(_)
                | Self::Unmap { .. }
                | Self::CompareAndWrite { .. }
                | Self::OrWrite { .. }
        )
    }
}

/// Does a WRITE AND VERIFY compare bytes?
fn compares(cdb: &[u8; 16]) -> Result<bool, Sense> {
    match Check::of(cdb)? {
        Check::Readable => Ok(false),
        Check::Data => Ok(true),
        Check::OneBlock => Err(Sense::invalid_field(1, 2)),
    }
}
