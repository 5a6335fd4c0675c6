//! A small initiator of iSCSI, for what no other one can be made to do.

use std::sync::Arc;

use landfall_storage::scsi::{Key, Sense};
use landfall_storage::stream::Stream;

use crate::support::LIMIT;

pub(crate) const TARGET: &str = "iqn.2026-01.example:disks";

pub(crate) struct Initiator {
    pub(crate) stream: Arc<dyn Stream>,
    number: u32,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    pub(crate) sense: Option<Sense>,
}

impl Initiator {
    /// Asks to log in, and hears the answer, if there is one.
    pub(crate) fn try_log_in(stream: Arc<dyn Stream>, name: &str) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let initiator = Self { stream, number: 1 };
        let text = format!(
            "InitiatorName=iqn.2026-01.example:{name}\0TargetName={TARGET}\0\
             InitialR2T=Yes\0ImmediateData=No\0MaxRecvDataSegmentLength=65536\0"
        );
        let mut head = head(0x43, 0x87, 0);
        head[24..28].copy_from_slice(&1_u32.to_be_bytes());
        initiator.send(head, text.as_bytes());
        let mut first = [0; 1];
        if initiator.stream.read(&mut first)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(initiator)
    }

    /// Logs in, and hears that unit 0 is new.
    pub(crate) fn log_in(stream: Arc<dyn Stream>, name: &str) -> Self {
        let mut initiator = Self::try_log_in(stream, name).unwrap();
        let (answer, _) = initiator.receive_behind(&[0x23]);
        assert_eq!(answer[36], 0, "{answer:02x?}");
        let told = initiator.command(0, &[0; 6], &[], 0).sense.unwrap();
        assert_eq!(told.key, Key::UnitAttention);
        initiator
    }

    fn send(&self, mut head: [u8; 48], data: &[u8]) {
        head[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        self.stream.write(&head, &padded).unwrap();
    }

    fn receive(&self) -> ([u8; 48], Vec<u8>) {
        self.receive_behind(&[])
    }

    /// A message whose first bytes have been read.
    fn receive_behind(&self, read: &[u8]) -> ([u8; 48], Vec<u8>) {
        let mut head = [0; 48];
        head[..read.len()].copy_from_slice(read);
        self.fill(&mut head[read.len()..]);
        let len = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.fill(&mut data);
        data.truncate(len);
        (head, data)
    }

    fn fill(&self, mut into: &mut [u8]) {
        while !into.is_empty() {
            let count = self.stream.read(into).unwrap();
            assert!(count > 0, "the target has gone");
            into = &mut into[count..];
        }
    }

    /// Begins a command, and sends nothing more.
    pub(crate) fn begin(&mut self, unit: u8, cdb: &[u8], out: usize, expected: usize) {
        let is_write = if out > 0 { 0x20 } else { 0 };
        let is_read = if expected > 0 { 0x40 } else { 0 };
        let mut head = head(0x01, 0x80 | is_write | is_read, self.number);
        head[9] = unit;
        head[20..24].copy_from_slice(&(out.max(expected) as u32).to_be_bytes());
        head[24..28].copy_from_slice(&self.number.to_be_bytes());
        head[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        self.send(head, &[]);
    }

    /// Has a command carried out, with data as they are asked for.
    pub(crate) fn command(&mut self, unit: u8, cdb: &[u8], out: &[u8], expected: usize) -> Ended {
        self.begin(unit, cdb, out.len(), expected);
        let mut ended = Ended { status: 0, data: Vec::new(), sense: None };
        loop {
            let (answer, data) = self.receive();
            let at = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
            match answer[0] {
                0x31 => {
                    let (begin, len) = (at(40) as usize, at(44) as usize);
                    for (nth, part) in out[begin..begin + len].chunks(65_536).enumerate() {
                        let offset = begin + nth * 65_536;
                        let is_last = offset + part.len() == begin + len;
                        let mut head = head(0x05, if is_last { 0x80 } else { 0 }, at(16));
                        head[20..24].copy_from_slice(&answer[20..24]);
                        head[36..40].copy_from_slice(&(nth as u32).to_be_bytes());
                        head[40..44].copy_from_slice(&(offset as u32).to_be_bytes());
                        self.send(head, part);
                    }
                }
                0x25 => {
                    assert_eq!(at(40) as usize, ended.data.len());
                    ended.data.extend(data);
                    if answer[1] & 1 != 0 {
                        return ended;
                    }
                }
                0x21 => {
                    ended.status = answer[3];
                    ended.sense = data.get(2..).and_then(Sense::decode);
                    return ended;
                }
                other => panic!("a message {other:#x}"),
            }
        }
    }

    pub(crate) fn write(&mut self, unit: u8, lba: u32, data: &[u8]) -> Ended {
        self.command(unit, &cdb(0x2a, lba, data.len()), data, 0)
    }

    pub(crate) fn read(&mut self, unit: u8, lba: u32, len: usize) -> Ended {
        self.command(unit, &cdb(0x28, lba, len), &[], len)
    }
}

fn head(opcode: u8, flags: u8, tag: u32) -> [u8; 48] {
    let mut head = [0; 48];
    (head[0], head[1]) = (opcode, flags);
    head[16..20].copy_from_slice(&tag.to_be_bytes());
    head
}

pub(crate) fn cdb(code: u8, lba: u32, len: usize) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = ((len / 512) as u16).to_be_bytes();
    [code, 0, a, b, c, d, 0, high, low, 0]
}
