//! The fields of Transfers: requests, grants, Data, ends.

use landfall_placement::Refusal;

use crate::config::MOST_EAGER;

use super::super::header::{EXTENSION_LEN, Header, two_words};
use super::super::message::{AnsweredRead, ClearToSend, Ending, Granted, Ids, Message, Verdict};
use super::super::op::{Flags, Op};
use super::{
    LOG_SIZES, fill_ids, fill_rejected, fill_serial, ids, is_rejected, log_size, pack_sizes,
    reason, serial, unpack_sizes,
};

pub(super) fn fill(
    message: &Message,
    header: &mut Header,
    extension: &mut [u8; EXTENSION_LEN],
) -> Option<()> {
    match *message {
        Message::RequestToSend { s_id, serial, len, max_block, opaque, answers, is_eager } => {
            if max_block >= LOG_SIZES || is_eager && len > MOST_EAGER.into() {
                return None;
            }
            fill_ids(header, Ids { d_id: answers.map_or(0, |read| read.id), s_id });
            fill_serial(header, serial);
            header.t_len = len.into();
            header.param = u16::from(max_block).into();
            header.offset = opaque.into();
            header.flags |= Flags::NONE.with_if(is_eager, Flags::LAST).0;
            if let Some(read) = answers {
                header.flags |= Flags::ANSWER.0;
                header.bufx = read.serial.into();
            }
        }
        Message::RequestAnswer { ids, serial, is_read, verdict } => {
            fill_ids(header, ids);
            fill_serial(header, serial);
            header.flags |= Flags::NONE.with_if(is_read, Flags::ANSWER).0;
            match verdict {
                Verdict::Pending => {}
                Verdict::Limited(len) => {
                    header.flags |= Flags::LIMITED.0;
                    header.t_len = len.into();
                }
                Verdict::Rejected(reason) => fill_rejected(header, reason),
            }
        }
        Message::RequestToReceive { s_id, serial, len, opaque } => {
            fill_ids(header, Ids { d_id: 0, s_id });
            fill_serial(header, serial);
            header.t_len = len.into();
            header.offset = opaque.into();
        }
        Message::ClearToSend(grant) => fill_grant(header, extension, &grant)?,
        Message::Data { d_id, block, bufx, offset, hold, serial, opaque, is_last } => {
            header.d_id = d_id.into();
            header.sync = (serial as u16).into();
            header.b_num = block.into();
            header.bufx = bufx.into();
            header.offset = offset.into();
            header.param = hold.into();
            header.t_len = two_words(serial, opaque).into();
            header.flags |= Flags::NONE.with_if(is_last, Flags::LAST).0;
        }
        Message::End { ending, reason } => {
            fill_ending(header, ending);
            header.param = u16::from(reason as u8).into();
        }
        Message::EndAck(ending) => fill_ending(header, ending),
        _ => {}
    }
    Some(())
}

pub(super) fn parse(op: Op, header: &Header, extension: &[u8]) -> Result<Message, Refusal> {
    let ids = ids(header);
    let flags = header.flags();
    let is_answer = flags.has(Flags::ANSWER);
    let ending = || Ok(Ending { ids, serial: serial(header)?, by_receiver: is_answer });
    Ok(match op {
        Op::RequestToSend if flags.has(Flags::LAST) && header.t_len.get() > MOST_EAGER.into() => {
            return Err(Refusal::Malformed);
        }
        Op::RequestToSend => Message::RequestToSend {
            s_id: ids.s_id,
            serial: serial(header)?,
            len: header.t_len.get(),
            max_block: log_size(header)?,
            opaque: header.offset.get(),
            answers: is_answer.then_some(AnsweredRead { id: ids.d_id, serial: header.bufx.get() }),
            is_eager: flags.has(Flags::LAST),
        },
        Op::RequestAnswer => {
            let verdict = match (is_rejected(header), flags.has(Flags::LIMITED)) {
                (true, false) => Verdict::Rejected(reason(header)),
                (false, true) => Verdict::Limited(header.t_len.get()),
                (false, false) => Verdict::Pending,
                (true, true) => return Err(Refusal::Malformed),
            };
            Message::RequestAnswer { ids, serial: serial(header)?, is_read: is_answer, verdict }
        }
        Op::RequestToReceive => Message::RequestToReceive {
            s_id: ids.s_id,
            serial: serial(header)?,
            len: header.t_len.get(),
            opaque: header.offset.get(),
        },
        Op::ClearToSend => Message::ClearToSend(parse_grant(header, extension)?),
        Op::Data => parse_data(header)?,
        Op::End => Message::End { ending: ending()?, reason: reason(header) },
        _ => Message::EndAck(ending()?),
    })
}

fn parse_data(header: &Header) -> Result<Message, Refusal> {
    let serial = header.high();
    if header.sync.get() != serial as u16 {
        return Err(Refusal::Malformed);
    }
    Ok(Message::Data {
        d_id: header.d_id.get(),
        block: header.b_num.get(),
        bufx: header.bufx.get(),
        offset: header.offset.get(),
        hold: header.param.get(),
        serial,
        opaque: header.low(),
        is_last: header.flags().has(Flags::LAST),
    })
}

fn fill_ending(header: &mut Header, ending: Ending) {
    fill_ids(header, ending.ids);
    fill_serial(header, ending.serial);
    header.flags |= Flags::NONE.with_if(ending.by_receiver, Flags::ANSWER).0;
}

fn fill_grant(
    header: &mut Header,
    extension: &mut [u8; EXTENSION_LEN],
    grant: &ClearToSend,
) -> Option<()> {
    if is_of_nothing(grant.granted) || grant.stu == 0 {
        return None;
    }
    fill_ids(header, grant.ids);
    header.sync = grant.sync.into();
    header.b_num = grant.block.into();
    header.bufx = grant.bufx.into();
    header.offset = grant.offset.into();
    header.param = pack_sizes(grant.attempt & 63, 0, grant.block_size)?.into();
    extension[..2].copy_from_slice(&grant.stu.to_be_bytes());
    extension[2..4].copy_from_slice(&grant.eager.to_be_bytes());
    header.flags |= Flags::NONE.with_if(grant.is_limited, Flags::LIMITED).0;
    header.t_len = match grant.granted {
        Granted::Next { lead, count, behind } => {
            two_words(lead, u32::from(count) << 16 | u32::from(behind))
        }
        Granted::Again(bits) => {
            header.flags |= Flags::RESEND.0;
            bits
        }
    }
    .into();
    Some(())
}

fn parse_grant(header: &Header, extension: &[u8]) -> Result<ClearToSend, Refusal> {
    let flags = header.flags();
    let granted = if flags.has(Flags::RESEND) {
        Granted::Again(header.t_len.get())
    } else {
        let low = header.low();
        Granted::Next { lead: header.high(), count: (low >> 16) as u16, behind: low as u16 }
    };
    let (stu, behind) = extension.split_first_chunk().ok_or(Refusal::Truncated)?;
    let eager = u16::from_be_bytes(*behind.first_chunk().ok_or(Refusal::Truncated)?);
    let stu = u16::from_be_bytes(*stu);
    if is_of_nothing(granted) || stu == 0 {
        return Err(Refusal::Malformed);
    }
    let (attempt, _, block_size) = unpack_sizes(header.param.get());
    Ok(ClearToSend {
        ids: ids(header),
        sync: header.sync.get(),
        block: header.b_num.get(),
        bufx: header.bufx.get(),
        offset: header.offset.get(),
        attempt,
        stu,
        block_size,
        eager,
        is_limited: flags.has(Flags::LIMITED),
        granted,
    })
}

const fn is_of_nothing(granted: Granted) -> bool {
    matches!(granted, Granted::Again(0) | Granted::Next { count: 0, .. })
}
