//! [`Pdu`]: the messages of iSCSI: a head of 48 bytes, data, and sums over both.

use alloc::vec::Vec;

use landfall_placement::crc32c::{crc32c, extend};

use super::ProtocolError;
use crate::wire::{number, put, u32_at, u64_at};

/// The bytes of a head.
pub(crate) const HEAD: usize = 48;
/// No task, and no transfer.
pub(crate) const NONE: u32 = u32::MAX;
/// The last message of a sequence, or a whole one.
pub(crate) const FINAL: u8 = 0x80;

/// What a message is.
pub(crate) mod opcode {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const TASK: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const RESPONSE: u8 = 0x21;
    pub(crate) const TASK_RESPONSE: u8 = 0x22;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const TEXT_RESPONSE: u8 = 0x24;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// Which sums messages have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pdu<'a> {
    pub(crate) head: &'a [u8; HEAD],
    pub(crate) data: &'a [u8],
}

impl<'a> Pdu<'a> {
    /// Reads a message off the front, with the bytes that it takes. None: it is not there as a
    /// whole.
    pub(crate) fn decode(
        input: &'a [u8],
        digests: Digests,
        most: u32,
    ) -> Result<Option<(Self, usize)>, ProtocolError> {
        let Some(head) = input.first_chunk::<HEAD>() else { return Ok(None) };
        let (extra, len) = (4 * usize::from(head[4]), number(head, 5, 3) as u32);
        if len > most {
            return Err(ProtocolError::TooLong(len));
        }
        let (len, sum) = (len as usize, if digests.header { 4 } else { 0 });
        let begin = HEAD + extra + sum;
        let padded = len.next_multiple_of(4);
        let behind = begin + padded;
        let end = behind + if digests.data && len > 0 { 4 } else { 0 };
        if input.len() < end {
            // What is damaged may say any length.
            if digests.header && input.len() >= begin {
                check(&input[..HEAD + extra], &input[HEAD + extra..begin])
                    .then_some(())
                    .ok_or(ProtocolError::HeaderDigest)?;
            }
            return Ok(None);
        }
        if digests.header && !check(&input[..HEAD + extra], &input[HEAD + extra..begin]) {
            return Err(ProtocolError::HeaderDigest);
        }
        if digests.data && len > 0 && !check(&input[begin..behind], &input[behind..end]) {
            return Err(ProtocolError::DataDigest);
        }
        Ok(Some((Self { head, data: &input[begin..begin + len] }, end)))
    }

    pub(crate) const fn opcode(&self) -> u8 {
        self.head[0] & 0x3f
    }

    pub(crate) const fn is_immediate(&self) -> bool {
        self.head[0] & 0x40 != 0
    }

    pub(crate) const fn is_final(&self) -> bool {
        self.flags() & FINAL != 0
    }

    pub(crate) const fn flags(&self) -> u8 {
        self.head[1]
    }

    pub(crate) fn lun(&self) -> [u8; 8] {
        u64_at(self.head, 8).to_be_bytes()
    }

    /// The tag of its task.
    pub(crate) fn tag(&self) -> u32 {
        self.u32(16)
    }

    /// The tag of its transfer.
    pub(crate) fn transfer(&self) -> u32 {
        self.u32(20)
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32_at(self.head, at)
    }
}

fn check(bytes: &[u8], sum: &[u8]) -> bool {
    sum == crc32c(bytes).to_le_bytes()
}

/// The head of a message that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head([u8; HEAD]);

impl Head {
    pub(crate) const fn new(opcode: u8, flags: u8) -> Self {
        let mut head = [0; HEAD];
        head[0] = opcode;
        head[1] = flags;
        Self(head)
    }

    pub(crate) fn put(mut self, at: usize, value: &[u8]) -> Self {
        put(&mut self.0, at, value);
        self
    }

    pub(crate) fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_be_bytes())
    }

    /// Adds the head of a message with this many bytes of data.
    pub(crate) fn encode(self, len: usize, digests: Digests, out: &mut Vec<u8>) {
        let head = self.put(5, &(len as u32).to_be_bytes()[1..]).0;
        out.extend_from_slice(&head);
        if digests.header {
            out.extend_from_slice(&crc32c(&head).to_le_bytes());
        }
    }

    /// The whole message.
    pub(crate) fn with(self, data: &[u8], digests: Digests) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + data.len() + 12);
        self.encode(data.len(), digests, &mut out);
        out.extend_from_slice(data);
        trail(data, digests, &mut out);
        out
    }
}

/// Adds what follows the data of a message: zeroes up to four bytes, and the sum.
pub(crate) fn trail(data: &[u8], digests: Digests, out: &mut Vec<u8>) {
    let pad = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
    out.extend_from_slice(pad);
    if digests.data && !data.is_empty() {
        out.extend_from_slice(&extend(crc32c(data), pad).to_le_bytes());
    }
}
