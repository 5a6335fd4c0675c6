//! [`Reply`]: data for the initiator in messages as long as it takes, and the status.

use alloc::vec::Vec;
use core::ops::Range;

use super::keys::Parameters;
use super::pdu::{FINAL, Head, NONE, opcode, trail};
use super::session::Numbers;
use crate::sense::{Response, Status};

/// Bytes that are sent, and then a part of a reply's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What is sent first.
    pub head: Vec<u8>,
    /// Which of the data follow.
    pub data: Range<usize>,
}

/// What is sent for a command that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Data for the initiator.
    pub data: Vec<u8>,
    /// What is sent, in this order.
    pub pieces: Vec<Piece>,
}

impl Reply {
    /// All of it, one after another.
    #[must_use]
    pub fn concat(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for Piece { head, data } in &self.pieces {
            all.extend_from_slice(head);
            all.extend_from_slice(&self.data[data.clone()]);
        }
        all
    }
}

/// What a command said of its data, and what became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) tag: u32,
    /// What the initiator expects to be transferred.
    pub(crate) expected: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// What the command has, by itself.
    pub(crate) data_out: u64,
    /// What was asked for.
    pub(crate) requests: u32,
    /// Sense data have the format of descriptors.
    pub(crate) descriptors: bool,
}

const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

impl Transfer {
    /// The flag and the number of bytes that were too many or too few.
    fn residual(&self, response: &Response) -> (u8, u32) {
        let data_in = response.data.len() as u64;
        let is_over = response.status == Status::Good;
        let expected = u64::from(self.expected);
        let room = if self.reads || self.writes { expected } else { 0 };
        let real = match (self.reads, is_over) {
            _ if data_in > 0 => data_in,
            (true, _) => 0,
            (false, true) => self.data_out,
            // What was not asked for of a command that failed.
            (false, false) => self.data_out.min(room),
        };
        let cut = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match real.cmp(&room) {
            core::cmp::Ordering::Greater => (OVERFLOW, cut(real - room)),
            core::cmp::Ordering::Less => (UNDERFLOW, cut(room - real)),
            core::cmp::Ordering::Equal => (0, 0),
        }
    }

    /// Writes the messages of a response.
    pub(crate) fn reply(
        &self,
        response: Response,
        numbers: &mut Numbers,
        parameters: &Parameters,
    ) -> Reply {
        let (flag, residual) = self.residual(&response);
        let room = if self.reads { self.expected as usize } else { 0 };
        let Response { status, sense, mut data } = response;
        data.truncate(room);
        let digests = parameters.digests;
        let (mut pieces, mut at, mut number) = (Vec::new(), 0, 0);
        let (mut head, mut in_burst) = (Vec::new(), 0);
        let carries_status = status == Status::Good && !data.is_empty();
        while at < data.len() {
            let burst = parameters.burst as usize;
            let len = (data.len() - at).min(parameters.send as usize).min(burst - in_burst);
            let is_last = at + len == data.len();
            in_burst += len;
            let ends = is_last || in_burst == burst;
            let mut message = Head::new(opcode::DATA_IN, if ends { FINAL } else { 0 })
                .u32(16, self.tag)
                .u32(20, NONE)
                .u32(36, number)
                .u32(40, at as u32);
            if is_last && carries_status {
                message = message
                    .put(1, &[FINAL | STATUS | flag, 0, status.byte()])
                    .u32(24, numbers.next_status())
                    .u32(44, residual);
            }
            message = numbers.window(message);
            message.encode(len, digests, &mut head);
            pieces.push(Piece { head: core::mem::take(&mut head), data: at..at + len });
            trail(&data[at..at + len], digests, &mut head);
            at += len;
            number += 1;
            in_burst = if ends { 0 } else { in_burst };
        }
        if !carries_status {
            let said = sense.map(|sense| {
                let sense = sense.encode(self.descriptors);
                [&(sense.len() as u16).to_be_bytes()[..], &sense].concat()
            });
            let message = Head::new(opcode::RESPONSE, FINAL | flag)
                .put(3, &[status.byte()])
                .u32(16, self.tag)
                .u32(24, numbers.next_status())
                .u32(36, number + self.requests)
                .u32(44, residual);
            head.extend(numbers.window(message).with(&said.unwrap_or_default(), digests));
        }
        if !head.is_empty() {
            pieces.push(Piece { head, data: 0..0 });
        }
        Reply { data, pieces }
    }
}
