//! The fields of persistent memory: regions, Put, Get, FetchOp.

use landfall_placement::{Refusal, WordFunction, WordWidth};
use zerocopy::FromBytes;

use super::super::header::{EXTENSION_LEN, Header, two_words};
use super::super::message::{AvailableRegion, Get, Message};
use super::super::op::{Flags, Op};
use super::{fill_rejected, fill_serial, is_rejected, reason, serial};

/// The numbers of the functions of FetchOp.
mod function {
    pub(super) const LOAD: u8 = 1;
    pub(super) const STORE: u8 = 2;
    pub(super) const SWAP: u8 = 3;
    pub(super) const ADD: u8 = 4;
    pub(super) const AND: u8 = 5;
    pub(super) const OR: u8 = 6;
    pub(super) const XOR: u8 = 7;
    pub(super) const COMPARE_SWAP: u8 = 8;
}

pub(super) fn fill(
    message: &Message,
    header: &mut Header,
    extension: &mut [u8; EXTENSION_LEN],
) -> Option<()> {
    match *message {
        Message::RequestMemoryRegion { s_id, serial, len, name, rights } => {
            header.s_id = s_id.into();
            fill_serial(header, serial);
            header.t_len = len.into();
            header.offset = name.into();
            header.param = u16::from(rights).into();
        }
        Message::MemoryRegionAvailable { d_id, serial, result } => {
            header.d_id = d_id.into();
            fill_serial(header, serial);
            match result {
                Ok(AvailableRegion { handle, len, rights, window }) => {
                    header.bufx = handle.into();
                    header.s_id = window.into();
                    header.t_len = len.into();
                    header.param = u16::from(rights).into();
                }
                Err(reason) => fill_rejected(header, reason),
            }
        }
        Message::Put {
            serial,
            handle,
            at,
            len,
            wants_answer,
            wants_notice,
            is_void,
            overtakes,
            behind,
        } => {
            fill_serial(header, serial);
            header.param = overtakes.into();
            header.d_id = ((behind >> 16) as u16).into();
            header.s_id = (behind as u16).into();
            header.bufx = handle.into();
            header.t_len = at.into();
            header.offset = len.into();
            header.flags |= Flags::NONE
                .with_if(wants_answer, Flags::LAST)
                .with_if(wants_notice, Flags::NOTIFY)
                .with_if(is_void, Flags::REJECTED)
                .0;
        }
        Message::Get(get) => fill_get(header, extension, &get)?,
        Message::FetchOp { serial, handle, at, width, function } => {
            fill_serial(header, serial);
            header.bufx = handle.into();
            header.t_len = at.into();
            let (code, operand, expected) = split_function(function);
            header.param = (u16::from(width.bytes() as u8) << 8 | u16::from(code)).into();
            let words = [operand >> 32, operand, expected >> 32, expected];
            put_words(extension, words.map(|word| word as u32));
        }
        Message::FetchOpComplete { below } => fill_serial(header, below),
        _ => {}
    }
    Some(())
}

pub(super) fn parse(op: Op, header: &Header, extension: &[u8]) -> Result<Message, Refusal> {
    let serial = serial(header)?;
    let (flags, param) = (header.flags(), header.param.get());
    Ok(match op {
        Op::RequestMemoryRegion => Message::RequestMemoryRegion {
            s_id: header.s_id.get(),
            serial,
            len: header.t_len.get(),
            name: header.offset.get(),
            rights: param as u8,
        },
        Op::MemoryRegionAvailable => {
            let result = if is_rejected(header) {
                Err(reason(header))
            } else {
                Ok(AvailableRegion {
                    handle: header.bufx.get(),
                    len: header.t_len.get(),
                    rights: param as u8,
                    window: header.s_id.get(),
                })
            };
            Message::MemoryRegionAvailable { d_id: header.d_id.get(), serial, result }
        }
        Op::Put => Message::Put {
            serial,
            handle: header.bufx.get(),
            at: header.t_len.get(),
            len: header.offset.get(),
            wants_answer: flags.has(Flags::LAST),
            wants_notice: flags.has(Flags::NOTIFY),
            is_void: is_rejected(header),
            overtakes: param,
            behind: u32::from(header.d_id.get()) << 16 | u32::from(header.s_id.get()),
        },
        Op::Get => Message::Get(parse_get(header, serial, extension)?),
        Op::FetchOp => {
            let [a, b, c, d] = words(extension)?;
            let (operand, expected) = (two_words(a, b), two_words(c, d));
            Message::FetchOp {
                serial,
                handle: header.bufx.get(),
                at: header.t_len.get(),
                width: match param >> 8 {
                    4 => WordWidth::Four,
                    8 => WordWidth::Eight,
                    _ => return Err(Refusal::Malformed),
                },
                function: join_function(param as u8, operand, expected)?,
            }
        }
        _ => Message::FetchOpComplete { below: serial },
    })
}

fn fill_get(header: &mut Header, extension: &mut [u8; EXTENSION_LEN], get: &Get) -> Option<()> {
    if get.stu == 0 {
        return None;
    }
    header.s_id = get.s_id.into();
    fill_serial(header, get.after);
    header.param = get.stu.into();
    header.bufx = get.bufx.into();
    header.offset = get.offset.into();
    header.t_len = get.at.into();
    put_words(extension, [get.handle, get.len, get.serial, get.block]);
    Some(())
}

fn parse_get(header: &Header, after: u32, extension: &[u8]) -> Result<Get, Refusal> {
    let [handle, len, serial, block] = words(extension)?;
    let stu = header.param.get();
    if stu == 0 {
        return Err(Refusal::Malformed);
    }
    Ok(Get {
        s_id: header.s_id.get(),
        after,
        handle,
        at: header.t_len.get(),
        len,
        serial,
        block,
        bufx: header.bufx.get(),
        offset: header.offset.get(),
        stu,
    })
}

fn put_words(extension: &mut [u8; EXTENSION_LEN], words: [u32; 4]) {
    for (place, word) in extension.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
}

fn words(extension: &[u8]) -> Result<[u32; 4], Refusal> {
    let bytes = <[[u8; 4]; 4]>::read_from_bytes(extension).map_err(|_| Refusal::Truncated)?;
    Ok(bytes.map(u32::from_be_bytes))
}

fn split_function(function: WordFunction) -> (u8, u64, u64) {
    match function {
        WordFunction::Load => (function::LOAD, 0, 0),
        WordFunction::Store(value) => (function::STORE, value, 0),
        WordFunction::Swap(value) => (function::SWAP, value, 0),
        WordFunction::Add(value) => (function::ADD, value, 0),
        WordFunction::And(value) => (function::AND, value, 0),
        WordFunction::Or(value) => (function::OR, value, 0),
        WordFunction::Xor(value) => (function::XOR, value, 0),
        WordFunction::CompareSwap { expected, new } => (function::COMPARE_SWAP, new, expected),
    }
}

fn join_function(code: u8, operand: u64, expected: u64) -> Result<WordFunction, Refusal> {
    Ok(match code {
        function::LOAD => WordFunction::Load,
        function::STORE => WordFunction::Store(operand),
        function::SWAP => WordFunction::Swap(operand),
        function::ADD => WordFunction::Add(operand),
        function::AND => WordFunction::And(operand),
        function::OR => WordFunction::Or(operand),
        function::XOR => WordFunction::Xor(operand),
        function::COMPARE_SWAP => WordFunction::CompareSwap { expected, new: operand },
        _ => return Err(Refusal::Unsupported),
    })
}
