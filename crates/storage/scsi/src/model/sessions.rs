//! iSCSI: an initiator that keeps the rules behind a network that cuts anywhere, and a stranger
//! who knows how messages begin.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use landfall_testkit::model::Choices;

use super::disk::Medium;
use crate::iscsi::pdu::{Digests, FINAL, Head, NONE, Pdu, opcode};
use crate::iscsi::{Config, Job, LONGEST_DATA, Session};
use crate::wire::u32_at;
use crate::{Disk, Lun, Target};

const NAME: &str = "iqn.2026-01.example:model";
/// How many blocks each command of an honest initiator has for itself.
const SHARE: u32 = 32;
/// The most that is said for each message that comes, but for what a device gives.
const MOST_OUTPUT: usize = 64 << 10;

/// Has an initiator do what these bytes say, and tells what is wrong.
#[must_use]
pub fn sessions(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut end = TargetEnd::new();
    if choices.flag() {
        Honest::new(&mut choices).run(&mut end, &mut choices);
    } else {
        stranger(&mut end, &mut choices);
    }
    end.failures.append(&mut end.medium.failures);
    end.failures
}

/// The target's end, with its medium.
struct TargetEnd {
    session: Session,
    target: Target,
    medium: Medium,
    /// What came and was not taken.
    input: Vec<u8>,
    /// What it said and nobody has heard.
    output: Vec<u8>,
    jobs: Vec<Job>,
    failures: Vec<String>,
    is_over: bool,
}

impl TargetEnd {
    fn new() -> Self {
        let mut target = Target::new(NAME);
        let size = 8 * SHARE as usize * 512;
        let lun = Lun::decode([0; 8]).expect("it is the first");
        target.add(lun, Disk::of_bytes("model", size as u64));
        Self {
            session: Session::new(Config { portal: Some("host:1".into()), ..Config::default() }),
            target,
            medium: Medium::new(size),
            input: Vec::new(),
            output: Vec::new(),
            jobs: Vec::new(),
            failures: Vec::new(),
            is_over: false,
        }
    }

    /// Takes what came, as far as it goes.
    fn take(&mut self) {
        while !self.is_over {
            let handled = self.session.handle(&self.input, &mut self.target);
            let mut said = 0;
            while let Some(output) = self.session.poll_output() {
                said += output.len();
                self.output.extend(output);
            }
            if said > MOST_OUTPUT {
                self.failures.push(format!("it says {said} bytes at once"));
            }
            self.jobs.extend(core::iter::from_fn(|| self.session.poll_job()));
            match handled {
                Ok(0) => break,
                Ok(used) if used > self.input.len() => {
                    self.failures.push(format!("it used {used} bytes"));
                    self.is_over = true;
                }
                Ok(used) => drop(self.input.drain(..used)),
                Err(_) => self.is_over = true,
            }
            self.is_over |= self.session.is_over();
        }
        if self.session.tasks() > 200 {
            self.failures.push(format!("{} tasks", self.session.tasks()));
        }
    }

    /// The device ends one of its jobs.
    fn work(&mut self, choices: &mut Choices<'_>) {
        if self.jobs.is_empty() {
            return;
        }
        let job = self.jobs.swap_remove(choices.below(self.jobs.len()));
        let done = self.medium.carry_out(&job.work, &job.data);
        let reply = self.session.finish(&self.target, job.task, done);
        self.output.extend(reply.concat());
    }
}

/// What the honest initiator knows of a command.
struct Outstanding {
    data: Vec<u8>,
    is_write: bool,
    lba: u32,
    /// How many messages of data have come, and how many bytes.
    landed: (u32, usize),
}

struct Honest {
    digests: Digests,
    immediate: bool,
    initial_r2t: bool,
    first_burst: usize,
    command: u32,
    asked: BTreeMap<u32, Outstanding>,
}

impl Honest {
    fn new(choices: &mut Choices<'_>) -> Self {
        Self {
            digests: Digests { header: choices.flag(), data: choices.flag() },
            immediate: choices.flag(),
            initial_r2t: choices.flag(),
            first_burst: 512 + choices.below(8) * 1000,
            command: 7,
            asked: BTreeMap::new(),
        }
    }

    fn run(mut self, end: &mut TargetEnd, choices: &mut Choices<'_>) {
        self.log_in(end, choices);
        // The first command is told that the unit is new.
        self.command(end, &[0; 6], 0, 0x80, &[]);
        self.settle(end, choices);
        for round in 0..3 {
            for nth in 0..1 + choices.below(4) as u32 {
                self.write(end, choices, nth, round);
            }
            self.settle(end, choices);
            for nth in 0..4 {
                self.read(end, choices, nth);
            }
            self.settle(end, choices);
        }
        if end.is_over || !self.asked.is_empty() {
            let left = self.asked.len();
            end.failures.push(format!("{left} commands are left, over: {}", end.is_over));
        }
    }

    fn log_in(&self, end: &mut TargetEnd, choices: &mut Choices<'_>) {
        let flag = |is_set: bool| if is_set { "Yes" } else { "No" };
        let digest = |is_on: bool| if is_on { "CRC32C,None" } else { "None" };
        let text = format!(
            "InitiatorName=iqn.2026-01.example:honest\0TargetName={NAME}\0HeaderDigest={}\0\
             DataDigest={}\0ImmediateData={}\0InitialR2T={}\0FirstBurstLength={}\0\
             MaxBurstLength={}\0MaxRecvDataSegmentLength={}\0",
            digest(self.digests.header),
            digest(self.digests.data),
            flag(self.immediate),
            flag(self.initial_r2t),
            self.first_burst,
            self.first_burst + choices.below(4) * 3000,
            512 + choices.below(4) * 1500,
        );
        let head = Head::new(opcode::LOGIN | 0x40, 0x87).u32(16, 1).u32(24, self.command);
        end.input.extend(head.with(text.as_bytes(), Digests::default()));
        end.take();
        let said = core::mem::take(&mut end.output);
        match Pdu::decode(&said, Digests::default(), LONGEST_DATA) {
            Ok(Some((pdu, _))) if pdu.flags() == 0x87 && pdu.head[36..38] == [0, 0] => {}
            other => end.failures.push(format!("no login: {other:?}")),
        }
    }

    /// Sends a command with what comes unasked, and gives how many bytes these were.
    fn command(
        &mut self,
        end: &mut TargetEnd,
        cdb: &[u8],
        expected: u32,
        flags: u8,
        data: &[u8],
    ) -> usize {
        let tag = self.command + 1000;
        let immediate = if self.immediate { data.len().min(self.first_burst) } else { 0 };
        let unasked = if self.initial_r2t { immediate } else { data.len().min(self.first_burst) };
        let flags = if unasked > immediate { flags & !FINAL } else { flags };
        let head = Head::new(opcode::COMMAND, flags)
            .u32(16, tag)
            .u32(20, expected)
            .u32(24, self.command)
            .put(32, cdb);
        end.input.extend(head.with(&data[..immediate], self.digests));
        self.command += 1;
        if unasked > immediate {
            self.send(end, tag, NONE, (immediate, unasked), data);
        }
        unasked
    }

    /// Sends a part of a command's data, in messages.
    fn send(
        &self,
        end: &mut TargetEnd,
        tag: u32,
        transfer: u32,
        (begin, until): (usize, usize),
        data: &[u8],
    ) {
        let (mut at, mut number) = (begin, 0);
        while at < until {
            let len = (until - at).min(1777);
            let flags = if at + len == until { FINAL } else { 0 };
            let head = Head::new(opcode::DATA_OUT, flags)
                .u32(16, tag)
                .u32(20, transfer)
                .u32(36, number)
                .u32(40, at as u32);
            end.input.extend(head.with(&data[at..at + len], self.digests));
            at += len;
            number += 1;
        }
    }

    fn write(&mut self, end: &mut TargetEnd, choices: &mut Choices<'_>, nth: u32, round: u8) {
        let count = 1 + choices.below(SHARE as usize) as u32;
        let (lba, fill) = (nth * SHARE, choices.byte());
        let data: Vec<u8> = (0..count * 512)
            .map(|at| fill.wrapping_mul(3).wrapping_add((at / 5) as u8).wrapping_add(round))
            .collect();
        let mut cdb = vec![0x2a, 0, 0, 0, 0, lba as u8, 0, 0, count as u8, 0];
        cdb.resize(16, 0);
        let tag = self.command + 1000;
        self.command(end, &cdb, count * 512, 0xa0, &data);
        self.asked.insert(tag, Outstanding { data, is_write: true, lba, landed: (0, 0) });
    }

    fn read(&mut self, end: &mut TargetEnd, choices: &mut Choices<'_>, nth: u32) {
        let count = 1 + choices.below(SHARE as usize) as u32;
        let lba = nth * SHARE;
        let mut cdb = vec![0x28, 0, 0, 0, 0, lba as u8, 0, 0, count as u8, 0];
        cdb.resize(16, 0);
        let tag = self.command + 1000;
        self.command(end, &cdb, count * 512, 0xc0, &[]);
        let data = vec![0; count as usize * 512];
        self.asked.insert(tag, Outstanding { data, is_write: false, lba, landed: (0, 0) });
    }

    /// Lets all commands come to their ends; the network cuts anywhere.
    fn settle(&mut self, end: &mut TargetEnd, choices: &mut Choices<'_>) {
        for _ in 0..10_000 {
            let whole = core::mem::take(&mut end.input);
            let cut = choices.scaled(whole.len() as u32 + 1) as usize;
            end.input = whole[..cut].to_vec();
            end.take();
            end.input.extend_from_slice(&whole[cut..]);
            end.take();
            if choices.is_over() || choices.flag() {
                end.work(choices);
            }
            let said = core::mem::take(&mut end.output);
            if said.is_empty() && end.jobs.is_empty() {
                return;
            }
            self.hear(end, &said);
        }
        end.failures.push(String::from("it goes on for ever"));
    }

    fn hear(&mut self, end: &mut TargetEnd, said: &[u8]) {
        let mut rest = said;
        while !rest.is_empty() {
            let Ok(Some((pdu, used))) = Pdu::decode(rest, self.digests, LONGEST_DATA) else {
                end.failures.push(format!("no message: {rest:02x?}"));
                return;
            };
            rest = &rest[used..];
            let tag = pdu.tag();
            match pdu.opcode() {
                opcode::R2T => {
                    let (begin, len) = (pdu.u32(40) as usize, pdu.u32(44) as usize);
                    let Some(asked) = self.asked.get(&tag) else { continue };
                    if begin + len > asked.data.len() {
                        end.failures.push(format!("{len} bytes at {begin} are asked for"));
                        return;
                    }
                    let data = asked.data.clone();
                    self.send(end, tag, pdu.transfer(), (begin, begin + len), &data);
                }
                opcode::DATA_IN => self.data(end, &pdu),
                opcode::RESPONSE => self.end(end, tag, pdu.head[3]),
                other => end.failures.push(format!("a message {other:#x}")),
            }
        }
    }

    fn data(&mut self, end: &mut TargetEnd, pdu: &Pdu<'_>) {
        let (tag, at) = (pdu.tag(), u32_at(pdu.head, 40) as usize);
        let number = pdu.u32(36);
        let asked = self.asked.get_mut(&tag);
        let asked = asked.filter(|asked| !asked.is_write && asked.landed == (number, at));
        let room = asked.and_then(|asked| {
            asked.landed = (number + 1, at + pdu.data.len());
            asked.data.get_mut(at..at + pdu.data.len())
        });
        match room {
            Some(room) => room.copy_from_slice(pdu.data),
            None => end.failures.push(format!("data of {tag} at {at}")),
        }
        if pdu.flags() & 1 != 0 {
            self.end(end, tag, pdu.head[3]);
        }
    }

    fn end(&mut self, end: &mut TargetEnd, tag: u32, status: u8) {
        let Some(asked) = self.asked.remove(&tag) else {
            // The first one, which is told that the unit is new.
            if status != 2 {
                end.failures.push(format!("{tag} has ended, which was not under way"));
            }
            return;
        };
        let begin = asked.lba as usize * 512;
        let there = &end.medium.bytes()[begin..begin + asked.data.len()];
        if status != 0 || there != asked.data {
            end.failures.push(format!("{tag} has ended with {status}, and bytes that differ"));
        }
    }
}

/// Messages that begin as messages do, with anything behind.
fn stranger(end: &mut TargetEnd, choices: &mut Choices<'_>) {
    const OPCODES: [u8; 10] = [0x01, 0x41, 0x02, 0x42, 0x03, 0x43, 0x04, 0x05, 0x06, 0x00];
    const TEXTS: [&str; 6] = [
        "InitiatorName=iqn.x:y\0TargetName=iqn.2026-01.example:model\0",
        "InitiatorName=iqn.x:y\0SessionType=Discovery\0",
        "HeaderDigest=CRC32C\0InitialR2T=No\0",
        "MaxBurstLength=512\0FirstBurstLength=65536\0",
        "SendTargets=All\0",
        "AuthMethod=CHAP\0",
    ];
    let mut number = 0;
    if choices.flag() {
        let head = Head::new(opcode::LOGIN | 0x40, 0x87).u32(16, 1);
        let text = [TEXTS[0], TEXTS[2]][choices.below(2)].as_bytes();
        let text = [
            TEXTS[0].as_bytes(),
            if text == TEXTS[0].as_bytes() { b"" } else { b"InitialR2T=No\0" },
        ]
        .concat();
        end.input.extend(head.with(&text, Digests::default()));
        end.take();
    }
    for _ in 0..64 {
        if choices.is_over() || end.is_over {
            break;
        }
        if choices.below(8) == 0 {
            end.input.extend_from_slice(choices.raw(48));
        } else {
            let mut head = Head::new(choices.pick(&OPCODES), choices.byte())
                .u32(16, choices.below(4) as u32)
                .u32(20, choices.pick(&[NONE, 0, 1, 512, 4096, u32::MAX - 1]))
                .u32(24, number)
                .put(32, &choices.array::<16>());
            if choices.flag() {
                head = head.put(32, &[choices.pick(&[0x28, 0x2a, 0x88, 0x8a, 0x42, 0x93])]);
            }
            number += u32::from(choices.flag());
            let text = choices.pick(&TEXTS);
            let data = if choices.flag() { text.as_bytes() } else { choices.raw(40) };
            end.input.extend(head.with(data, Digests::default()));
        }
        end.take();
        if choices.flag() {
            end.work(choices);
        }
    }
    while !end.jobs.is_empty() {
        end.work(choices);
    }
    end.session.close(&mut end.target);
    if end.session.tasks() > 0 {
        end.failures.push(String::from("tasks are left"));
    }
}
