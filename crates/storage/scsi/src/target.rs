//! [`Target`]: logical units, the initiators that use them, and what each of these is told.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::cdb::Command;
use crate::inquiry;
use crate::reservation::Consequences;
use crate::sense::{Code, Key, Response, Sense, Status};
use crate::unit::{Disk, Outcome, Unit};
use crate::work::{Failure, Work};

/// The number of a logical unit within its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lun(u16);

impl Lun {
    /// The unit of this number, up to 16,383.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < 1 << 14 { Some(Self(number)) } else { None }
    }

    /// What the eight bytes of a message name, in one level.
    #[must_use]
    pub fn decode(bytes: [u8; 8]) -> Option<Self> {
        let [high, low, rest @ ..] = bytes;
        let number = u16::from_be_bytes([high & 0x3f, low]);
        // By peripheral device, on bus 0; or flat.
        let is_known = match high >> 6 {
            0 => high == 0,
            1 => true,
            _ => false,
        };
        (is_known && rest == [0; 6]).then_some(Self(number))
    }

    /// The eight bytes that name it.
    #[must_use]
    pub const fn encode(self) -> [u8; 8] {
        let [high, low] = self.0.to_be_bytes();
        let flat = if self.0 < 256 { 0 } else { 0x40 };
        [high | flat, low, 0, 0, 0, 0, 0, 0]
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// An initiator that is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NexusId(u64);

impl NexusId {
    /// A number that is not 0, for a protocol that needs one.
    pub(crate) const fn number(self) -> u16 {
        (self.0 % 0xffff) as u16 + 1
    }
}

#[derive(Debug, Default)]
struct Nexus {
    initiator: String,
    /// What it has to be told by the next command to a unit.
    attentions: BTreeMap<Lun, VecDeque<Code>>,
    /// Its tasks at a unit that began before this one were aborted.
    aborted_before: BTreeMap<Lun, u64>,
}

/// A command that waits for its data, or for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    command: Command,
    lun: Lun,
    order: u64,
    data_out: u64,
}

impl Pending {
    /// How many bytes of data the command has.
    #[must_use]
    pub const fn data_out(&self) -> u64 {
        self.data_out
    }

    /// The unit that it is for.
    #[must_use]
    pub const fn lun(&self) -> Lun {
        self.lun
    }

    /// What is asked for.
    #[must_use]
    pub const fn command(&self) -> &Command {
        &self.command
    }
}

/// How it goes on with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has ended.
    Done(Response),
    /// Its data are needed: [`Target::supply`].
    Data(Pending),
    /// A device has something to do: [`Target::finish`].
    Work(Pending, Work),
}

/// What an initiator asks of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagement {
    /// Its own tasks at a unit end.
    AbortTaskSet,
    /// The tasks of all at a unit end.
    ClearTaskSet,
    /// A unit begins anew.
    UnitReset,
    /// All units begin anew.
    TargetReset,
}

/// Logical units, and the initiators that use them. It does no I/O: what a device has to do is
/// [`Work`], and its data and result are given back.
///
/// ```
/// use landfall_scsi::{Disk, Lun, Step, Target, Work};
///
/// let mut target = Target::new("iqn.2026-01.example:disk");
/// let lun = Lun::new(0).unwrap();
/// target.add(lun, Disk::of_bytes("0001", 1 << 20));
/// let nexus = target.attach("iqn.2026-01.example:initiator");
/// let ready = [0; 6];
/// // The first command to a unit is told that it is new.
/// assert!(matches!(target.begin(nexus, lun.encode(), &ready, 0), Step::Done(told) if told.sense.is_some()));
/// let read = [0x28, 0, 0, 0, 0, 8, 0, 0, 2, 0];
/// let Step::Work(_, work) = target.begin(nexus, lun.encode(), &read, 0) else { panic!() };
/// assert_eq!(work, Work::Read { offset: 4096, length: 1024 });
/// ```
pub struct Target {
    name: String,
    units: BTreeMap<Lun, Unit>,
    nexuses: BTreeMap<NexusId, Nexus>,
    next_nexus: u64,
    next_order: u64,
}

impl core::fmt::Debug for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target {
    /// A target of this name without units.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            units: BTreeMap::new(),
            nexuses: BTreeMap::new(),
            next_nexus: 0,
            next_order: 0,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a unit; false where the number is taken.
    pub fn add(&mut self, lun: Lun, disk: Disk) -> bool {
        let is_free = !self.units.contains_key(&lun);
        if is_free {
            self.units.insert(lun, Unit::new(disk));
        }
        is_free
    }

    /// Its units.
    pub fn luns(&self) -> impl Iterator<Item = Lun> {
        self.units.keys().copied()
    }

    /// What a unit is like.
    #[must_use]
    pub fn disk(&self, lun: Lun) -> Option<&Disk> {
        self.units.get(&lun).map(|unit| &unit.disk)
    }

    /// A unit has become larger or smaller; all initiators are told.
    pub fn resize(&mut self, lun: Lun, blocks: u64) {
        let Some(unit) = self.units.get_mut(&lun) else { return };
        if core::mem::replace(&mut unit.disk.blocks, blocks) != blocks {
            for nexus in self.nexuses.values_mut() {
                attend(nexus, lun, Code::CAPACITY_CHANGED);
            }
        }
    }

    /// An initiator has connected, with a name that is the same when it comes again.
    pub fn attach(&mut self, initiator: &str) -> NexusId {
        let id = NexusId(self.next_nexus);
        self.next_nexus += 1;
        let mut nexus = Nexus { initiator: initiator.to_owned(), ..Nexus::default() };
        for lun in self.units.keys() {
            attend(&mut nexus, *lun, Code::POWER_ON_OR_RESET);
        }
        self.nexuses.insert(id, nexus);
        id
    }

    /// An initiator comes again under its name: whatever it was connected by is gone, as by
    /// [`detach`](Self::detach), and its tasks have ended. Gives what was.
    pub fn reinstate(&mut self, initiator: &str) -> Vec<NexusId> {
        let earlier = self.nexuses.iter().filter(|(_, nexus)| nexus.initiator == initiator);
        let earlier: Vec<NexusId> = earlier.map(|(id, _)| *id).collect();
        for nexus in &earlier {
            self.detach(*nexus);
        }
        earlier
    }

    /// It is gone. What is persistent stays.
    pub fn detach(&mut self, nexus: NexusId) {
        let Some(gone) = self.nexuses.remove(&nexus) else { return };
        for unit in self.units.values_mut() {
            unit.reservations.forget(&gone.initiator);
        }
    }

    /// Begins a command to the unit that eight bytes name. The initiator has `data` bytes to send
    /// with it.
    pub fn begin(&mut self, nexus: NexusId, lun: [u8; 8], cdb: &[u8], data: u64) -> Step {
        self.plan(nexus, lun, cdb, data).unwrap_or_else(Step::Done)
    }

    fn plan(&mut self, id: NexusId, lun: [u8; 8], cdb: &[u8], data: u64) -> Result<Step, Response> {
        let parsed = Command::parse(cdb);
        let found = Lun::decode(lun).filter(|lun| self.units.contains_key(lun));
        if let Ok(Command::ReportLuns { select, allocation }) = parsed {
            return Ok(Step::Done(self.report_luns(select, allocation)));
        }
        let Some(lun) = found else { return Ok(Step::Done(absent(parsed))) };
        let (Some(unit), Some(nexus)) = (self.units.get_mut(&lun), self.nexuses.get_mut(&id))
        else {
            return Err(Response::status(Status::TaskAborted));
        };
        let attentions = nexus.attentions.get_mut(&lun);
        if let Ok(Command::RequestSense { descriptors, allocation }) = parsed {
            let code = attentions.and_then(VecDeque::pop_front);
            let sense = code.map_or(Sense::new(Key::NoSense, Code::NONE), attention);
            let mut data = sense.encode(descriptors);
            data.truncate(allocation as usize);
            return Ok(Step::Done(Response::data(data)));
        }
        let is_inquiry = matches!(parsed, Ok(Command::Inquiry { .. }));
        if !is_inquiry && let Some(code) = attentions.and_then(VecDeque::pop_front) {
            return Err(attention(code).into());
        }
        let command = parsed?;
        if !unit.reservations.allows(&nexus.initiator, &command) {
            return Err(Response::status(Status::ReservationConflict));
        }
        if let Command::Inquiry { page, allocation } = command {
            let mut data = unit.inquire(page, &self.name)?;
            data.truncate(allocation as usize);
            return Ok(Step::Done(Response::data(data)));
        }
        unit.check(&command)?;
        let order = self.next_order;
        self.next_order += 1;
        let data_out = command.data_out(unit.disk.block);
        if command.is_exact() && data != data_out {
            return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB).into());
        }
        let pending = Pending { command, lun, order, data_out };
        if data_out > 0 { Ok(Step::Data(pending)) } else { Ok(self.supply(id, pending, &[])) }
    }

    /// Goes on with a command whose data are there. What is missing of them is not written.
    pub fn supply(&mut self, id: NexusId, pending: Pending, data: &[u8]) -> Step {
        self.carry_out(id, pending, data).unwrap_or_else(Step::Done)
    }

    fn carry_out(&mut self, id: NexusId, pending: Pending, data: &[u8]) -> Result<Step, Response> {
        if !self.is_current(id, &pending) {
            return Err(Response::status(Status::TaskAborted));
        }
        let lun = pending.lun;
        let (Some(unit), Some(nexus)) = (self.units.get_mut(&lun), self.nexuses.get(&id)) else {
            return Err(Response::status(Status::TaskAborted));
        };
        match pending.command {
            Command::Reserve => return Err(unit.reservations.reserve(&nexus.initiator)),
            Command::Release => return Err(unit.reservations.release(&nexus.initiator)),
            Command::ReserveOut { .. } => {
                let initiator = nexus.initiator.clone();
                let (response, told) = unit.reserve(&initiator, &pending.command, data)?;
                self.tell(lun, &told);
                return Ok(Step::Done(response));
            }
            _ => {}
        }
        let before = unit.mode;
        match unit.carry_out(&pending.command, data)? {
            Outcome::Device(work) => Ok(Step::Work(pending, work)),
            Outcome::Done(mut response) => {
                if let Some(allocation) = pending.command.allocation() {
                    response.data.truncate(allocation as usize);
                }
                if unit.mode != before {
                    let others = self.nexuses.iter_mut().filter(|(other, _)| **other != id);
                    others.for_each(|(_, nexus)| attend(nexus, lun, Code::MODE_CHANGED));
                }
                Ok(Step::Done(response))
            }
        }
    }

    /// Gives what the initiator is told of a command whose device has ended.
    #[must_use]
    pub fn finish(
        &self,
        id: NexusId,
        pending: &Pending,
        done: Result<Vec<u8>, Failure>,
    ) -> Response {
        if !self.is_current(id, pending) {
            return Response::status(Status::TaskAborted);
        }
        done.map_or_else(Response::from, Response::data)
    }

    /// Are sense data of this unit descriptors?
    #[must_use]
    pub fn has_descriptors(&self, lun: [u8; 8]) -> bool {
        let unit = Lun::decode(lun).and_then(|lun| self.units.get(&lun));
        unit.is_some_and(|unit| unit.mode.descriptors)
    }

    fn is_current(&self, id: NexusId, pending: &Pending) -> bool {
        let unit = self.units.get(&pending.lun).map_or(u64::MAX, |unit| unit.aborted_before);
        let nexus = self.nexuses.get(&id);
        let own = nexus
            .map_or(u64::MAX, |nexus| nexus.aborted_before.get(&pending.lun).copied().unwrap_or(0));
        pending.order >= unit.max(own)
    }

    /// Has tasks ended as an initiator asks; false where there is no such unit. Of the tasks
    /// that an initiator has itself, its session knows.
    pub fn manage(&mut self, id: NexusId, lun: [u8; 8], what: TaskManagement) -> bool {
        let found = Lun::decode(lun).filter(|lun| self.units.contains_key(lun));
        let luns: Vec<Lun> = match (what, found) {
            (TaskManagement::TargetReset, _) => self.luns().collect(),
            (_, Some(lun)) => vec![lun],
            (_, None) => return false,
        };
        for lun in luns {
            self.manage_unit(id, lun, what);
        }
        true
    }

    fn manage_unit(&mut self, id: NexusId, lun: Lun, what: TaskManagement) {
        let now = self.next_order;
        if what == TaskManagement::AbortTaskSet {
            if let Some(nexus) = self.nexuses.get_mut(&id) {
                nexus.aborted_before.insert(lun, now);
            }
            return;
        }
        let Some(unit) = self.units.get_mut(&lun) else { return };
        unit.aborted_before = now;
        if what == TaskManagement::ClearTaskSet {
            return;
        }
        unit.reservations.reset();
        unit.mode = crate::mode::ModePages::default();
        for nexus in self.nexuses.values_mut() {
            nexus.attentions.remove(&lun);
            attend(nexus, lun, Code::UNIT_RESET);
        }
    }

    /// Others are told what became of their registrations.
    fn tell(&mut self, lun: Lun, told: &Consequences) {
        let now = self.next_order;
        for nexus in self.nexuses.values_mut() {
            for (name, code) in &told.attentions {
                if *name == nexus.initiator {
                    attend(nexus, lun, *code);
                }
            }
            if told.aborted.contains(&nexus.initiator) {
                nexus.aborted_before.insert(lun, now);
            }
        }
    }

    fn report_luns(&self, select: u8, allocation: u32) -> Response {
        if select > 2 {
            return Sense::invalid_field(2, 7).into();
        }
        if allocation < 16 {
            return Sense::invalid_field(6, 7).into();
        }
        let mut data = vec![0; 8];
        // There are no well-known units.
        if select != 1 {
            self.luns().for_each(|lun| data.extend_from_slice(&lun.encode()));
        }
        let len = (data.len() - 8) as u32;
        data[..4].copy_from_slice(&len.to_be_bytes());
        data.truncate(allocation as usize);
        Response::data(data)
    }
}

/// What is answered where there is no unit.
fn absent(parsed: Result<Command, Sense>) -> Response {
    let none = Sense::new(Key::IllegalRequest, Code::UNIT_NOT_SUPPORTED);
    let (mut data, allocation) = match parsed {
        Ok(Command::Inquiry { page: None, allocation }) => (inquiry::standard(None), allocation),
        Ok(Command::RequestSense { descriptors, allocation }) => {
            (none.encode(descriptors), allocation)
        }
        _ => return none.into(),
    };
    data.truncate(allocation as usize);
    Response::data(data)
}

const fn attention(code: Code) -> Sense {
    Sense::new(Key::UnitAttention, code)
}

/// Has an initiator told, once.
fn attend(nexus: &mut Nexus, lun: Lun, code: Code) {
    let waiting = nexus.attentions.entry(lun).or_default();
    if !waiting.contains(&code) {
        waiting.push_back(code);
    }
}
