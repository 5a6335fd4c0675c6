//! [`Unit`]: one logical unit: which commands it answers by itself, and what a device has to do
//! for the others.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::cdb::{Blocks, Command, WriteSame};
use crate::inquiry;
use crate::mode::ModePages;
use crate::opcodes::{self, OPCODES, Opcode};
use crate::reservation::{Consequences, PARAMETERS, Reservations};
use crate::sense::{Code, Key, Response, Sense};
use crate::wire::{put, u16_at, u32_at, u64_at};
use crate::work::Work;

/// The most bytes of data of one command.
pub const MOST_TRANSFER: u32 = 8 << 20;
/// The most blocks that COMPARE AND WRITE compares.
pub(crate) const MOST_COMPARED: u8 = 128;
/// The most ranges of one UNMAP.
pub(crate) const MOST_UNMAPS: u32 = 256;
/// The most bytes that one WRITE SAME writes.
const MOST_SAME: u32 = 16 << 20;
/// The longest list of parameters.
const MOST_PARAMETERS: u32 = 8 + 16 * MOST_UNMAPS;

/// What a logical unit is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its serial number, which nothing else has.
    pub serial: String,
    /// The size of a logical block: a power of two, from 512.
    pub block: u32,
    /// How many blocks it has.
    pub blocks: u64,
    /// Nobody writes.
    pub read_only: bool,
}

impl Disk {
    /// A disk of as many blocks of 512 bytes as this number of bytes has room for.
    #[must_use]
    pub fn of_bytes(serial: impl Into<String>, bytes: u64) -> Self {
        Self { serial: serial.into(), block: 512, blocks: bytes / 512, read_only: false }
    }

    pub(crate) const fn most_blocks(&self) -> u32 {
        MOST_TRANSFER / self.block
    }

    pub(crate) const fn most_same(&self) -> u32 {
        MOST_SAME / self.block
    }

    fn bytes(&self, blocks: Blocks) -> (u64, u64) {
        (blocks.lba * u64::from(self.block), u64::from(blocks.count) * u64::from(self.block))
    }
}

/// What comes of a command whose data are there.
pub(crate) enum Outcome {
    Done(Response),
    Device(Work),
}

pub(crate) struct Unit {
    pub(crate) disk: Disk,
    pub(crate) mode: ModePages,
    pub(crate) reservations: Reservations,
    /// Tasks that began before this one were aborted.
    pub(crate) aborted_before: u64,
}

impl Unit {
    pub(crate) fn new(disk: Disk) -> Self {
        Self {
            disk,
            mode: ModePages::default(),
            reservations: Reservations::default(),
            aborted_before: 0,
        }
    }

    /// Does the command make sense for this disk?
    pub(crate) fn check(&self, command: &Command) -> Result<(), Sense> {
        if let Some(blocks) = command.blocks() {
            if blocks.end().is_none_or(|end| end > self.disk.blocks) {
                return Err(Sense::new(Key::IllegalRequest, Code::LBA_OUT_OF_RANGE));
            }
            let most = match command {
                Command::WriteSame(_) => self.disk.most_same(),
                Command::CompareAndWrite { .. } => MOST_COMPARED.into(),
                Command::Prefetch { .. } | Command::SynchronizeCache { .. } => u32::MAX,
                _ => self.disk.most_blocks(),
            };
            if blocks.count > most {
                return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB));
            }
        }
        match *command {
            Command::WriteSame(WriteSame { blocks: Blocks { count: 0, .. }, .. }) => {
                return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB));
            }
            Command::Unmap { length } | Command::ModeSelect { length, .. }
                if length > MOST_PARAMETERS =>
            {
                return Err(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
            }
            Command::ModeSelect { save: true, .. } => return Err(Sense::invalid_field(1, 0)),
            Command::ModeSelect { pages: false, length, .. } if length > 0 => {
                return Err(Sense::invalid_field(1, 4));
            }
            Command::ReserveOut { length, .. } if length != PARAMETERS => {
                return Err(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
            }
            _ => {}
        }
        if command.writes() && (self.disk.read_only || self.mode.protected) {
            return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
        }
        Ok(())
    }

    /// Carries out a command whose data are there. Of blocks that come with it there may be
    /// fewer than it says; whole ones are used.
    pub(crate) fn carry_out(&mut self, command: &Command, data: &[u8]) -> Result<Outcome, Sense> {
        let is_short = (data.len() as u64) < command.data_out(self.disk.block);
        Ok(match *command {
            Command::TestUnitReady | Command::StartStop => Outcome::Done(Response::good()),
            Command::ReadCapacity { long, .. } => self.capacity(long),
            Command::ModeSense { long, no_blocks, control, page, subpage, .. } => {
                let format = (long, no_blocks);
                let data = self.mode.sense(&self.disk, format, control, (page, subpage))?;
                Outcome::Done(Response::data(data))
            }
            Command::ModeSelect { long, .. } => {
                self.mode = self.mode.select(long, data)?;
                Outcome::Done(Response::good())
            }
            Command::ReserveIn { action, .. } => {
                Outcome::Done(Response::data(self.reservations.report(action)))
            }
            Command::ReportOpcodes { timeouts, options, code, action, .. } => {
                report_opcodes(timeouts, options, code, action)?
            }
            Command::ReportTaskManagement { extended, .. } => {
                // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET; TARGET RESET.
                let mut data = vec![0xd8 | 0x02, 0, 0, 0];
                if extended {
                    data.resize(16, 0);
                    data[3] = 12;
                }
                Outcome::Done(Response::data(data))
            }
            Command::Unmap { .. } => self.unmap(data)?,
            Command::CompareAndWrite { .. } | Command::WriteSame(_) | Command::Verify { .. }
                if is_short =>
            {
                return Err(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
            }
            _ => self.blocks(command),
        })
    }

    /// What a device does for a command about blocks.
    fn blocks(&self, command: &Command) -> Outcome {
        let blocks = command.blocks().unwrap_or(Blocks { lba: 0, count: 0 });
        let (offset, length) = self.disk.bytes(blocks);
        let work = match *command {
            Command::SynchronizeCache { .. } => Work::Flush,
            Command::LbaStatus { allocation, .. } => {
                let length = self.disk.blocks * u64::from(self.disk.block) - offset;
                Work::LbaStatus { offset, length, block: self.disk.block, allocation }
            }
            _ if blocks.count == 0 => return Outcome::Done(Response::good()),
            Command::Read { .. } => Work::Read { offset, length: length as u32 },
            Command::Write { fua, .. } => Work::Write { offset, fua, verify: false },
            Command::WriteAndVerify { .. } => Work::Write { offset, fua: true, verify: true },
            Command::Verify { check, .. } => Work::Verify { offset, length, check },
            Command::CompareAndWrite { fua, .. } => Work::CompareAndWrite { offset, fua },
            Command::OrWrite { fua, .. } => Work::OrWrite { offset, fua },
            Command::WriteSame(WriteSame { unmap, .. }) => {
                Work::WriteSame { offset, length, unmap }
            }
            _ => Work::Prefetch { offset, length },
        };
        Outcome::Device(work)
    }

    fn capacity(&self, long: bool) -> Outcome {
        let last = self.disk.blocks.saturating_sub(1);
        let mut data = vec![0; if long { 32 } else { 8 }];
        if long {
            put(&mut data, 0, &last.to_be_bytes());
            put(&mut data, 8, &self.disk.block.to_be_bytes());
            // Physical blocks of 4096 bytes; blocks can be unmapped, and are zero then.
            let exponent =
                4096_u32.checked_div(self.disk.block).map_or(0, |many| many.max(1).ilog2());
            put(&mut data, 13, &[exponent as u8, 0xc0]);
        } else {
            put(&mut data, 0, &u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes());
            put(&mut data, 4, &self.disk.block.to_be_bytes());
        }
        Outcome::Done(Response::data(data))
    }

    fn unmap(&self, list: &[u8]) -> Result<Outcome, Sense> {
        if list.is_empty() {
            return Ok(Outcome::Done(Response::good()));
        }
        if list.len() < 8 {
            return Err(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
        }
        // A descriptor that is cut off is none.
        let there = (list.len() - 8) / 16;
        let count = (usize::from(u16_at(list, 2)) / 16).min(there);
        if count > MOST_UNMAPS as usize {
            return Err(Sense::invalid_parameter(2));
        }
        let mut ranges = Vec::with_capacity(count);
        for nth in 0..count {
            let at = 8 + 16 * nth;
            let blocks = Blocks { lba: u64_at(list, at), count: u32_at(list, at + 8) };
            if blocks.end().is_none_or(|end| end > self.disk.blocks) {
                return Err(Sense::new(Key::IllegalRequest, Code::LBA_OUT_OF_RANGE));
            }
            if blocks.count > 0 {
                ranges.push(self.disk.bytes(blocks));
            }
        }
        Ok(Outcome::Device(Work::Unmap(ranges)))
    }

    /// PERSISTENT RESERVE OUT.
    pub(crate) fn reserve(
        &mut self,
        initiator: &str,
        command: &Command,
        list: &[u8],
    ) -> Result<(Response, Consequences), Sense> {
        let Command::ReserveOut { action, scope, kind, .. } = *command else {
            return Ok((Response::good(), Consequences::default()));
        };
        self.reservations.change(initiator, (action, scope, kind), list)
    }

    /// A page of INQUIRY.
    pub(crate) fn inquire(&self, page: Option<u8>, target: &str) -> Result<Vec<u8>, Sense> {
        match page {
            None => Ok(inquiry::standard(Some(&self.disk))),
            Some(page) => inquiry::page(page, &self.disk, target),
        }
    }
}

/// The answer to REPORT SUPPORTED OPERATION CODES.
fn report_opcodes(timeouts: bool, options: u8, code: u8, action: u16) -> Result<Outcome, Sense> {
    // None is known.
    const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if options == 0 {
        let mut data = vec![0; 4];
        for opcode in OPCODES {
            let [high, low] = opcode.action.unwrap_or(0).to_be_bytes();
            let flags = u8::from(timeouts) << 1 | u8::from(opcode.action.is_some());
            let len = opcode.usage.len() as u8;
            data.extend_from_slice(&[opcode.code, 0, high, low, 0, flags, 0, len]);
            data.extend_from_slice(if timeouts { &TIMEOUTS } else { &[] });
        }
        let len = (data.len() - 4) as u32;
        put(&mut data, 0, &len.to_be_bytes());
        return Ok(Outcome::Done(Response::data(data)));
    }
    let has_actions = opcodes::has_actions(code);
    let wrong = match options {
        1 => has_actions,
        2 => !has_actions && opcodes::find(code, 0).is_some(),
        3 => false,
        _ => return Err(Sense::invalid_field(2, 2)),
    };
    if wrong {
        return Err(Sense::invalid_field(2, 2));
    }
    let is_meant = |opcode: &&Opcode| has_actions || action == 0 || opcode.action.is_some();
    let found = opcodes::find(code, action).filter(is_meant);
    let mut data = vec![0, 1, 0, 0];
    if let Some(opcode) = found {
        data[1] = u8::from(timeouts) << 7 | 3;
        data[3] = opcode.usage.len() as u8;
        data.extend_from_slice(opcode.usage);
        data[4] = opcode.code;
        if let Some(action) = opcode.action {
            data[5] = action as u8 & 0x1f;
        }
        if timeouts {
            data.extend_from_slice(&TIMEOUTS);
        }
    }
    Ok(Outcome::Done(Response::data(data)))
}
