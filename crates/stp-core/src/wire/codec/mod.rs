//! Between messages and bytes.
//!
//! | module | whose fields |
//! | --- | --- |
//! | `connection` | set-up and tear-down |
//! | `transfer` | requests, grants, Data, ends |
//! | `memory` | regions, Put, Get, FetchOp |
//! | `state` | questions and answers about how things stand |
//!
//! Here is what they have in common, and which of them is asked.

mod connection;
mod memory;
mod state;
mod transfer;

pub(super) use state::SIZE;

use landfall_placement::Refusal;
use zerocopy::IntoBytes;

use super::header::{EXTENSION_LEN, HEADER_LEN, Header, LONGEST_HEAD, seal};
use super::message::{Envelope, Ids, Message};
use super::op::{Flags, Op};
use super::reason::Reason;

/// The largest power of two that a size is given as, plus one.
const LOG_SIZES: u8 = 32;

impl Message {
    /// How long the head of an operation with these flags is.
    #[must_use]
    #[inline]
    pub const fn head_len(op: Op, flags: Flags) -> usize {
        match op {
            Op::ClearToSend | Op::Get | Op::FetchOp => LONGEST_HEAD,
            Op::ConnectionAnswer if !flags.has(Flags::REJECTED) => LONGEST_HEAD,
            _ => HEADER_LEN,
        }
    }

    /// Writes the head of a packet. A message without payload gets its
    /// checksum; for Data and Put the driver adds it where it is wanted. Where
    /// a proof belongs are zeros: [`super::proof::seal`] puts it in.
    ///
    /// Returns the length, or nothing where `head` is too short or a value
    /// does not fit its place: a size of 2^32 or more, a version above 63, a
    /// grant of nothing, or in STUs of nothing.
    #[must_use]
    pub fn encode(&self, envelope: Envelope, head: &mut [u8]) -> Option<usize> {
        let op = self.op();
        let mut header = Header {
            op: op as u8,
            d_port: envelope.d_port.into(),
            s_port: envelope.s_port.into(),
            d_key: envelope.d_key.into(),
            ..Header::default()
        };
        let mut extension = [0; EXTENSION_LEN];
        self.fill(&mut header, &mut extension)?;
        let len = Self::head_len(op, header.flags());
        let head = head.get_mut(..len)?;
        let is_sealed = must_be_sealed(op);
        if is_sealed {
            header.flags |= Flags::SUM.0;
        }
        let (front, behind) = head.split_at_mut(HEADER_LEN);
        front.copy_from_slice(header.as_bytes());
        behind.copy_from_slice(&extension[..behind.len()]);
        if is_sealed {
            seal(head);
        }
        Some(len)
    }

    fn fill(&self, header: &mut Header, extension: &mut [u8; EXTENSION_LEN]) -> Option<()> {
        match self.op() {
            Op::RequestConnection
            | Op::ConnectionAnswer
            | Op::RequestDisconnect
            | Op::DisconnectAnswer
            | Op::DisconnectComplete => connection::fill(self, header, extension),
            Op::RequestToSend
            | Op::RequestAnswer
            | Op::RequestToReceive
            | Op::ClearToSend
            | Op::Data
            | Op::End
            | Op::EndAck => transfer::fill(self, header, extension),
            Op::RequestMemoryRegion
            | Op::MemoryRegionAvailable
            | Op::Put
            | Op::Get
            | Op::FetchOp
            | Op::FetchOpComplete => memory::fill(self, header, extension),
            Op::RequestState | Op::RequestStateResponse => {
                state::fill(self, header);
                Some(())
            }
        }
    }

    /// Reads the head of a packet. Looks neither at the proof nor at the checksum,
    /// only that a packet says it has one where it must.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] where `head` is shorter than the operation needs,
    /// [`Refusal::Unsupported`] for an operation or function that is unknown,
    /// [`Refusal::BadChecksum`] where there is none and must be one,
    /// [`Refusal::Malformed`] where a field holds what it may not.
    pub fn decode(head: &[u8]) -> Result<(Envelope, Self), Refusal> {
        let header = Header::read(head).ok_or(Refusal::Truncated)?;
        let op = header.operation()?;
        let len = Self::head_len(op, header.flags());
        let extension = head.get(HEADER_LEN..len).ok_or(Refusal::Truncated)?;
        only_flags(header, flags_of(op))?;
        if must_be_sealed(op) && !header.flags().has(Flags::SUM) {
            return Err(Refusal::BadChecksum);
        }
        let envelope = Envelope {
            d_port: header.d_port.get(),
            s_port: header.s_port.get(),
            d_key: header.d_key.get(),
        };
        let message = match op {
            Op::RequestConnection
            | Op::ConnectionAnswer
            | Op::RequestDisconnect
            | Op::DisconnectAnswer
            | Op::DisconnectComplete => connection::parse(op, header, extension)?,
            Op::RequestToSend
            | Op::RequestAnswer
            | Op::RequestToReceive
            | Op::ClearToSend
            | Op::Data
            | Op::End
            | Op::EndAck => transfer::parse(op, header, extension)?,
            Op::RequestMemoryRegion
            | Op::MemoryRegionAvailable
            | Op::Put
            | Op::Get
            | Op::FetchOp
            | Op::FetchOpComplete => memory::parse(op, header, extension)?,
            Op::RequestState => Self::RequestState(state::parse_question(header)?),
            Op::RequestStateResponse => Self::RequestStateResponse(state::parse_state(header)?),
        };
        Ok((envelope, message))
    }
}

/// What has no payload costs nothing to sum, and is never sent without.
const fn must_be_sealed(op: Op) -> bool {
    !matches!(op, Op::Data | Op::Put)
}

/// The flags that an operation may have.
const fn flags_of(op: Op) -> Flags {
    match op {
        Op::ConnectionAnswer | Op::RequestDisconnect | Op::MemoryRegionAvailable => Flags::REJECTED,
        Op::RequestToSend => Flags::ANSWER.with(Flags::LAST),
        Op::End | Op::EndAck => Flags::ANSWER,
        Op::RequestAnswer => Flags::REJECTED.with(Flags::LIMITED).with(Flags::ANSWER),
        Op::ClearToSend => Flags::RESEND.with(Flags::LIMITED),
        Op::Data => Flags::LAST,
        Op::Put => Flags::LAST.with(Flags::NOTIFY).with(Flags::REJECTED),
        Op::RequestState => Flags::LINK.with(Flags::LAST),
        Op::RequestStateResponse => Flags::LAST.with(Flags::REJECTED).with(Flags::LINK),
        _ => Flags::NONE,
    }
}

fn only_flags(header: &Header, allowed: Flags) -> Result<(), Refusal> {
    let is_foreign = header.flags().has_besides(allowed.with(Flags::SUM));
    if is_foreign { Err(Refusal::Malformed) } else { Ok(()) }
}

fn ids(header: &Header) -> Ids {
    Ids { d_id: header.d_id.get(), s_id: header.s_id.get() }
}

fn fill_ids(header: &mut Header, ids: Ids) {
    header.d_id = ids.d_id.into();
    header.s_id = ids.s_id.into();
}

fn fill_serial(header: &mut Header, serial: u32) {
    header.b_num = serial.into();
    header.sync = (serial as u16).into();
}

/// The serial number in `b_num`. Its low half stands in `sync` as well: a
/// packet that contradicts itself is not believed.
fn serial(header: &Header) -> Result<u32, Refusal> {
    let serial = header.b_num.get();
    if header.sync.get() == serial as u16 { Ok(serial) } else { Err(Refusal::Malformed) }
}

fn fill_rejected(header: &mut Header, reason: Reason) {
    header.flags |= Flags::REJECTED.0;
    header.param = u16::from(reason as u8).into();
}

/// The reason in the low byte of `param`.
fn reason(header: &Header) -> Reason {
    Reason::from_number(header.param.get() as u8)
}

fn is_rejected(header: &Header) -> bool {
    header.flags().has(Flags::REJECTED)
}

/// A size alone in `param`, as a power of two.
fn log_size(header: &Header) -> Result<u8, Refusal> {
    let param = header.param.get();
    if param < u16::from(LOG_SIZES) { Ok(param as u8) } else { Err(Refusal::Malformed) }
}

/// A number of six bits and two sizes, as they share `param`.
const fn pack_sizes(number: u8, first: u8, second: u8) -> Option<u16> {
    if number >= 64 || first >= LOG_SIZES || second >= LOG_SIZES {
        return None;
    }
    Some((number as u16) << 10 | (first as u16) << 5 | second as u16)
}

const fn unpack_sizes(param: u16) -> (u8, u8, u8) {
    ((param >> 10) as u8, (param >> 5 & 31) as u8, (param & 31) as u8)
}
