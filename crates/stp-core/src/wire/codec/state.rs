//! The fields of questions and answers about how things stand.

use landfall_placement::Refusal;

use super::super::header::{HEADER_LEN, Header};
use super::super::message::{Ahead, Ids, Message, Question, State};
use super::super::op::Flags;
use super::super::reason::Reason;
use super::{fill_ids, fill_serial, ids, is_rejected, only_flags, serial};

/// Which question or answer it is: the low byte of `param`. The high byte is
/// the reason in an answer that has one.
mod topic {
    pub(super) const CONNECTION: u8 = 0;
    pub(super) const TRANSFER: u8 = 1;
    pub(super) const MEMORY: u8 = 2;
    pub(super) const FETCHED: u8 = 3;
    pub(super) const GET_REFUSED: u8 = 4;
    pub(in crate::wire) const SIZE: u8 = 5;
}

pub(in crate::wire) use self::topic::SIZE;

pub(super) fn fill(message: &Message, header: &mut Header) {
    match *message {
        Message::RequestState(question) => fill_question(header, question),
        Message::RequestStateResponse(state) => fill_state(header, state),
        _ => {}
    }
}

fn fill_question(header: &mut Header, question: Question) {
    let topic = match question {
        Question::Connection { ids, is_link, token } => {
            fill_ids(header, ids);
            header.t_len = token.into();
            header.flags |= Flags::NONE.with_if(is_link, Flags::LINK).0;
            topic::CONNECTION
        }
        Question::Moved { ids, token } => {
            fill_ids(header, ids);
            header.t_len = token.into();
            header.flags |= Flags::LINK.0 | Flags::LAST.0;
            topic::CONNECTION
        }
        Question::Transfer { ids, serial } => {
            fill_ids(header, ids);
            fill_serial(header, serial);
            topic::TRANSFER
        }
        Question::Memory => topic::MEMORY,
        Question::Size { ids, size, token } => {
            fill_size(header, ids, size, token);
            topic::SIZE
        }
    };
    header.param = u16::from(topic).into();
}

pub(super) fn parse_question(header: &Header) -> Result<Question, Refusal> {
    let ids = ids(header);
    let topic = header.param.get() as u8;
    if topic != topic::CONNECTION {
        only_flags(header, Flags::NONE)?;
    }
    Ok(match topic {
        topic::CONNECTION => {
            let (is_link, token) = (header.flags().has(Flags::LINK), header.t_len.get());
            match header.flags().has(Flags::LAST) {
                true if is_link => Question::Moved { ids, token },
                true => return Err(Refusal::Malformed),
                false => Question::Connection { ids, is_link, token },
            }
        }
        topic::TRANSFER => Question::Transfer { ids, serial: serial(header)? },
        topic::MEMORY => Question::Memory,
        topic::SIZE => {
            let size = size(header)?;
            Question::Size { ids, size, token: header.t_len.get() }
        }
        _ => return Err(Refusal::Malformed),
    })
}

fn fill_state(header: &mut Header, state: State) {
    let topic = match state {
        State::Connection { ids, is_link, token } => {
            fill_ids(header, ids);
            header.t_len = token.into();
            header.flags |= Flags::NONE.with_if(is_link, Flags::LINK).0;
            topic::CONNECTION
        }
        State::Transfer { ids, serial, acked, len, is_complete } => {
            fill_ids(header, ids);
            fill_serial(header, serial);
            header.offset = acked.into();
            header.t_len = len.into();
            header.flags |= Flags::NONE.with_if(is_complete, Flags::LAST).0;
            topic::TRANSFER
        }
        State::Memory { applied, refused, ahead } => {
            fill_serial(header, applied);
            if refused.is_none() {
                header.d_id = ahead.first.into();
                header.s_id = ahead.marked.into();
                header.t_len = ahead.bits.into();
            }
            topic::MEMORY
        }
        State::Fetched { serial, old } => {
            fill_serial(header, serial);
            header.t_len = old.into();
            topic::FETCHED
        }
        State::GetRefused { d_id, serial, .. } => {
            header.d_id = d_id.into();
            fill_serial(header, serial);
            topic::GET_REFUSED
        }
        State::Size { ids, size, token } => {
            fill_size(header, ids, size, token);
            topic::SIZE
        }
    };
    header.param = u16::from(topic).into();
    if let State::Memory { refused: Some(reason), .. } | State::GetRefused { reason, .. } = state {
        header.flags |= Flags::REJECTED.0;
        header.param = (u16::from(reason as u8) << 8 | u16::from(topic)).into();
    }
}

pub(super) fn parse_state(header: &Header) -> Result<State, Refusal> {
    let ids = ids(header);
    let param = header.param.get();
    let topic = param as u8;
    only_flags(header, flags_of(topic))?;
    let reason = is_rejected(header).then(|| Reason::from_number((param >> 8) as u8));
    Ok(match topic {
        topic::CONNECTION => {
            let is_link = header.flags().has(Flags::LINK);
            State::Connection { ids, is_link, token: header.t_len.get() }
        }
        topic::TRANSFER => State::Transfer {
            ids,
            serial: serial(header)?,
            acked: header.offset.get(),
            len: header.t_len.get(),
            is_complete: header.flags().has(Flags::LAST),
        },
        topic::MEMORY => {
            let said = Ahead { first: ids.d_id, bits: header.t_len.get(), marked: ids.s_id };
            // In the rejected form these fields are not used.
            let ahead = if reason.is_some() { Ahead::default() } else { said };
            State::Memory { applied: serial(header)?, refused: reason, ahead }
        }
        topic::FETCHED => State::Fetched { serial: serial(header)?, old: header.t_len.get() },
        topic::GET_REFUSED => {
            let reason = reason.ok_or(Refusal::Malformed)?;
            State::GetRefused { d_id: ids.d_id, serial: serial(header)?, reason }
        }
        topic::SIZE => {
            let size = size(header)?;
            State::Size { ids, size, token: header.t_len.get() }
        }
        _ => return Err(Refusal::Malformed),
    })
}

fn fill_size(header: &mut Header, ids: Ids, size: u32, token: u64) {
    fill_ids(header, ids);
    fill_serial(header, size);
    header.t_len = token.into();
}

/// The size of a packet, where a serial number is otherwise. None is shorter than its header.
fn size(header: &Header) -> Result<u32, Refusal> {
    let size = serial(header)?;
    if size < HEADER_LEN as u32 { Err(Refusal::Malformed) } else { Ok(size) }
}

const fn flags_of(topic: u8) -> Flags {
    match topic {
        topic::CONNECTION => Flags::LINK,
        topic::TRANSFER => Flags::LAST,
        topic::MEMORY | topic::GET_REFUSED => Flags::REJECTED,
        _ => Flags::NONE,
    }
}
