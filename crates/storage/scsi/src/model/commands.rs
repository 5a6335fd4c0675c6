//! Initiators with commands that a naive disk understands as well, and with any bytes.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use landfall_testkit::model::Choices;

use super::disk::{Medium, Naive};
use crate::{Code, Disk, Key, Lun, NexusId, Response, Sense, Status, Step, Target};

/// How many blocks the disk has.
const BLOCKS: u32 = 64;
/// The most commands of one run.
const MOST: usize = 64;

/// Has initiators do what these bytes say, and tells what is wrong.
#[must_use]
pub fn commands(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut world = World::new();
    for _ in 0..MOST {
        if choices.is_over() {
            break;
        }
        let nexus = world.nexuses[choices.below(2)];
        if choices.below(4) == 0 {
            world.raw(nexus, &mut choices);
        } else {
            world.meaningful(nexus, &mut choices);
        }
    }
    world.failures.append(&mut world.medium.failures);
    world.failures
}

struct World {
    target: Target,
    nexuses: [NexusId; 2],
    lun: [u8; 8],
    medium: Medium,
    naive: Naive,
    failures: Vec<String>,
}

impl World {
    fn new() -> Self {
        let mut target = Target::new("iqn.2026-01.example:model");
        let lun = Lun::new(0).unwrap_or(Lun::decode([0; 8]).expect("it is the first"));
        target.add(lun, Disk::of_bytes("model", u64::from(BLOCKS) * 512));
        let nexuses = ["one", "two"].map(|name| target.attach(name));
        let size = BLOCKS as usize * 512;
        let (medium, naive) = (Medium::new(size), Naive::new(BLOCKS as usize));
        Self { target, nexuses, lun: lun.encode(), medium, naive, failures: Vec::new() }
    }

    /// Has a command carried out, with as much of its data as there is.
    fn run(&mut self, nexus: NexusId, cdb: &[u8], data: &[u8]) -> Response {
        let mut step = self.target.begin(nexus, self.lun, cdb, data.len() as u64);
        let mut given: &[u8] = &[];
        if let Step::Data(pending) = step {
            given = &data[..data.len().min(usize::try_from(pending.data_out()).unwrap_or(0))];
            step = self.target.supply(nexus, pending, given);
        }
        match step {
            Step::Done(response) => response,
            Step::Work(pending, work) => {
                let most = work.data_in() as usize;
                let done = self.medium.carry_out(&work, given);
                if done.as_ref().is_ok_and(|data| data.len() > most) {
                    self.failures.push(format!("{work:?} gives too much"));
                }
                self.target.finish(nexus, &pending, done)
            }
            Step::Data(pending) => {
                self.failures.push(format!("{pending:?} wants data twice"));
                Response::good()
            }
        }
    }

    /// Any bytes: nothing is claimed but that the medium is left alone beyond its end, and by
    /// what does not write.
    fn raw(&mut self, nexus: NexusId, choices: &mut Choices<'_>) {
        const CODES: [u8; 24] = [
            0x00, 0x03, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x25, 0x34, 0x35, 0x42, 0x55, 0x5a, 0x5e,
            0x5f, 0x89, 0x93, 0x9e, 0xa0, 0xa3, 0x8f, 0x7f, 0xff, 0x1b,
        ];
        let mut cdb = choices.array::<16>();
        if choices.flag() {
            cdb[0] = choices.pick(&CODES);
        }
        // Such commands would change both disks differently.
        let is_write = matches!(
            crate::Command::parse(&cdb),
            Ok(command) if command.writes() || matches!(command, crate::Command::ModeSelect { .. })
        );
        let len = choices.below(17);
        if is_write && len == 16 {
            return;
        }
        let before = self.medium.bytes().to_vec();
        let parameters = choices.raw(64).to_vec();
        let response = self.run(nexus, &cdb[..len], if is_write { &[] } else { &parameters });
        if response.sense.is_some() != (response.status == Status::CheckCondition) {
            self.failures.push(format!("{response:?} of {cdb:02x?}"));
        }
        if self.medium.bytes() != before && !is_write {
            self.failures.push(format!("{cdb:02x?} wrote"));
        }
        // Reservations end here, and nothing else is asked about them.
        self.lift();
    }

    /// Both initiators get what they are to be told, and no reservation is left.
    fn lift(&mut self) {
        for nexus in self.nexuses {
            for _ in 0..16 {
                if self.target.begin(nexus, self.lun, &[0x03, 0, 0, 0, 18, 0], 0) == nothing() {
                    break;
                }
            }
        }
        let lun = self.lun;
        let reset = crate::TaskManagement::UnitReset;
        if !self.target.manage(self.nexuses[0], lun, reset) {
            self.failures.push(String::from("no unit to be reset"));
        }
        for nexus in self.nexuses {
            // REGISTER AND IGNORE, CLEAR.
            let mut list = vec![0; 24];
            list[15] = 1;
            let register = [0x5f, 6, 0, 0, 0, 0, 0, 0, 24, 0];
            self.run(nexus, &[0; 6], &[]);
            self.run(nexus, &[0; 6], &[]);
            self.run(nexus, &register, &list);
            list.swap(7, 15);
            self.run(nexus, &[0x5f, 3, 0, 0, 0, 0, 0, 0, 24, 0], &list);
        }
        for nexus in self.nexuses {
            for _ in 0..16 {
                if self.target.begin(nexus, self.lun, &[0x03, 0, 0, 0, 18, 0], 0) == nothing() {
                    break;
                }
            }
        }
    }

    /// A command about blocks, in one of its forms; both disks do it.
    fn meaningful(&mut self, nexus: NexusId, choices: &mut Choices<'_>) {
        // What an initiator is told when it comes.
        while self.target.begin(nexus, self.lun, &[0x03, 0, 0, 0, 18, 0], 0) != nothing() {}
        let lba = choices.below(BLOCKS as usize + 2) as u64;
        let count = choices.below(6) as u32;
        let fill = choices.byte();
        let bytes = |count: u32| -> Vec<u8> {
            (0..count * 512).map(|at| fill.wrapping_add((at / 7) as u8)).collect()
        };
        let is_there = self.naive.has(lba, count);
        let kind = choices.below(8);
        let (cdb, data) = match kind {
            0 => (form(choices, [0x28, 0xa8, 0x88], lba, count), Vec::new()),
            1 => (form(choices, [0x2a, 0xaa, 0x8a], lba, count), bytes(count)),
            2 => (form(choices, [0x2e, 0xae, 0x8e], lba, count), bytes(count)),
            3 => (sixteen(0x8b, lba, count), bytes(count)),
            4 => (form(choices, [0x41, 0x93, 0x93], lba, count), bytes(1)),
            5 => {
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend_from_slice(&lba.to_be_bytes());
                list.extend_from_slice(&count.to_be_bytes());
                list.extend_from_slice(&[0; 4]);
                (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list)
            }
            6 => {
                let mut cdb = sixteen(0x89, lba, 0);
                cdb[13] = count as u8;
                let mut data = if is_there { self.naive.read(lba, count) } else { bytes(count) };
                if choices.flag() && !data.is_empty() {
                    data[choices.scaled(count * 512) as usize] ^= 1;
                }
                data.extend(bytes(count));
                (cdb, data)
            }
            _ => {
                let mut cdb = sixteen(0x8f, lba, count);
                cdb[1] = 2;
                (cdb, if is_there { self.naive.read(lba, count) } else { bytes(count) })
            }
        };
        let expected = self.expect(kind, lba, count, &data);
        let response = self.run(nexus, &cdb, &data);
        if response != expected {
            self.failures.push(format!("{cdb:02x?}: {response:?} and not {expected:?}"));
        }
    }

    /// What the naive disk answers.
    fn expect(&mut self, kind: usize, lba: u64, count: u32, data: &[u8]) -> Response {
        if !self.naive.has(lba, count) {
            return Sense::new(Key::IllegalRequest, Code::LBA_OUT_OF_RANGE).into();
        }
        match kind {
            0 => return Response::data(self.naive.read(lba, count)),
            1 | 2 => self.naive.write(lba, data),
            3 => self.naive.or(lba, data),
            4 if count == 0 => {
                return Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB).into();
            }
            4 => self.naive.write(lba, &data.repeat(count as usize)),
            5 => self.naive.write(lba, &vec![0; count as usize * 512]),
            6 => {
                let (old, new) = data.split_at(data.len() / 2);
                let there = self.naive.read(lba, count);
                let differs = there.iter().zip(old).position(|(one, other)| one != other);
                if let Some(at) = differs {
                    let sense = Sense::new(Key::Miscompare, Code::MISCOMPARE);
                    return Sense { information: Some(at as u64), ..sense }.into();
                }
                self.naive.write(lba, new);
            }
            _ => {}
        }
        Response::good()
    }
}

/// The answer to REQUEST SENSE where there is nothing to be told.
fn nothing() -> Step {
    Step::Done(Response::data(Sense::new(Key::NoSense, Code::NONE).encode(false)))
}

fn sixteen(code: u8, lba: u64, count: u32) -> Vec<u8> {
    let mut cdb = vec![code, 0];
    cdb.extend_from_slice(&lba.to_be_bytes());
    cdb.extend_from_slice(&count.to_be_bytes());
    cdb.extend_from_slice(&[0, 0]);
    cdb
}

/// A command in one of its three forms.
fn form(choices: &mut Choices<'_>, codes: [u8; 3], lba: u64, count: u32) -> Vec<u8> {
    let code = choices.pick(&codes);
    let mut cdb = vec![code, 0];
    match code >> 5 {
        1 | 2 => {
            cdb.extend_from_slice(&(lba as u32).to_be_bytes());
            cdb.push(0);
            cdb.extend_from_slice(&(count as u16).to_be_bytes());
            cdb.push(0);
        }
        5 => {
            cdb.extend_from_slice(&(lba as u32).to_be_bytes());
            cdb.extend_from_slice(&count.to_be_bytes());
            cdb.extend_from_slice(&[0, 0]);
        }
        _ => return sixteen(code, lba, count),
    }
    cdb
}
