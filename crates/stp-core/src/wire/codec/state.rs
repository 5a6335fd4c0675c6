//! The fields of questions and answers about how things stand.

use landfall_placement::Refusal;

use super::super::header::Header;
use super::super::message::{Message, Question, State};
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
}

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
        Question::Transfer { ids, serial } => {
            fill_ids(header, ids);
            fill_serial(header, serial);
            topic::TRANSFER
        }
        Question::Memory => topic::MEMORY,
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
            let is_link = header.flags().has(Flags::LINK);
            Question::Connection { ids, is_link, token: header.t_len.get() }
        }
        topic::TRANSFER => Question::Transfer { ids, serial: serial(header)? },
        topic::MEMORY => Question::Memory,
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
        State::Memory { applied, .. } => {
            fill_serial(header, applied);
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
        topic::MEMORY => State::Memory { applied: serial(header)?, refused: reason },
        topic::FETCHED => State::Fetched { serial: serial(header)?, old: header.t_len.get() },
        topic::GET_REFUSED => {
            let reason = reason.ok_or(Refusal::Malformed)?;
            State::GetRefused { d_id: ids.d_id, serial: serial(header)?, reason }
        }
        _ => return Err(Refusal::Malformed),
    })
}

const fn flags_of(topic: u8) -> Flags {
    match topic {
        topic::CONNECTION => Flags::LINK,
        topic::TRANSFER => Flags::LAST,
        topic::MEMORY | topic::GET_REFUSED => Flags::REJECTED,
        _ => Flags::NONE,
    }
}
