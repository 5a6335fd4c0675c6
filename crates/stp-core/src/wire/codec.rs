//! Between messages and bytes.

use landfall_placement::{Refusal, WordFunction, WordWidth};
use zerocopy::{FromBytes, IntoBytes};

use super::header::{EXTENSION_LEN, HEADER_LEN, Header, LONGEST_HEAD, seal, two_words};
use super::message::{
    ClearToSend, Ending, Envelope, Get, Granted, Ids, Message, Offer, Question, State, Verdict,
};
use super::op::{Flags, Op};
use super::reason::Reason;

/// Which question or answer a state operation carries: the low byte of `param`.
mod topic {
    pub(super) const CONNECTION: u8 = 0;
    pub(super) const TRANSFER: u8 = 1;
    pub(super) const MEMORY: u8 = 2;
    pub(super) const FETCHED: u8 = 3;
    pub(super) const GET_REFUSED: u8 = 4;
}

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

impl Message {
    /// How long the head of an operation is.
    #[must_use]
    #[inline]
    pub const fn head_len(op: Op) -> usize {
        match op {
            Op::Get | Op::FetchOp => LONGEST_HEAD,
            _ => HEADER_LEN,
        }
    }

    /// Writes the head of a packet. A message without payload gets its
    /// checksum; for Data and Put the driver adds it where it is wanted.
    ///
    /// Returns the length, or nothing where `head` is too short.
    #[must_use]
    pub fn encode(&self, envelope: Envelope, head: &mut [u8]) -> Option<usize> {
        let op = self.op();
        let len = Self::head_len(op);
        let head = head.get_mut(..len)?;
        let mut header = Header {
            op: op as u8,
            d_port: envelope.d_port.into(),
            s_port: envelope.s_port.into(),
            d_key: envelope.d_key.into(),
            ..Header::default()
        };
        let mut extension = [0; EXTENSION_LEN];
        self.fill(&mut header, &mut extension);
        let is_sealed = !matches!(op, Op::Data | Op::Put);
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

    fn fill(&self, header: &mut Header, extension: &mut [u8; EXTENSION_LEN]) {
        match *self {
            Self::RequestConnection(offer) => fill_offer(header, &offer),
            Self::ConnectionAnswer { d_id, result } => {
                header.d_id = d_id.into();
                match result {
                    Ok(offer) => fill_offer(header, &offer),
                    Err(reason) => fill_rejected(header, reason),
                }
            }
            Self::RequestDisconnect { ids, abort } => {
                fill_ids(header, ids);
                if let Some(reason) = abort {
                    fill_rejected(header, reason);
                }
            }
            Self::DisconnectAnswer { ids } | Self::DisconnectComplete { ids } => {
                fill_ids(header, ids);
            }
            Self::RequestToSend { s_id, serial, len, max_block, opaque, answers } => {
                fill_ids(header, Ids { d_id: answers.map_or(0, |(id, _)| id), s_id });
                fill_serial(header, serial);
                header.t_len = len.into();
                header.param = u16::from(max_block).into();
                header.offset = opaque.into();
                if let Some((_, serial)) = answers {
                    header.flags |= Flags::ANSWER.0;
                    header.bufx = serial.into();
                }
            }
            Self::RequestAnswer { ids, serial, is_read, verdict } => {
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
            Self::RequestToReceive { s_id, serial, len, opaque } => {
                fill_ids(header, Ids { d_id: 0, s_id });
                fill_serial(header, serial);
                header.t_len = len.into();
                header.offset = opaque.into();
            }
            Self::ClearToSend(grant) => fill_grant(header, &grant),
            Self::Data { d_id, block, bufx, offset, hold, serial, opaque, is_last } => {
                header.d_id = d_id.into();
                header.sync = (serial as u16).into();
                header.b_num = block.into();
                header.bufx = bufx.into();
                header.offset = offset.into();
                header.param = hold.into();
                header.t_len = two_words(serial, opaque).into();
                header.flags |= Flags::NONE.with_if(is_last, Flags::LAST).0;
            }
            Self::End { ending, reason } => {
                fill_ending(header, ending);
                header.param = u16::from(reason as u8).into();
            }
            Self::EndAck(ending) => fill_ending(header, ending),
            _ => self.fill_memory(header, extension),
        }
    }

    fn fill_memory(&self, header: &mut Header, extension: &mut [u8; EXTENSION_LEN]) {
        match *self {
            Self::RequestMemoryRegion { s_id, serial, len, name, rights } => {
                header.s_id = s_id.into();
                fill_serial(header, serial);
                header.t_len = len.into();
                header.offset = name.into();
                header.param = u16::from(rights).into();
            }
            Self::MemoryRegionAvailable { d_id, serial, result } => {
                header.d_id = d_id.into();
                fill_serial(header, serial);
                match result {
                    Ok((handle, len, rights)) => {
                        header.bufx = handle.into();
                        header.t_len = len.into();
                        header.param = u16::from(rights).into();
                    }
                    Err(reason) => fill_rejected(header, reason),
                }
            }
            Self::Put { serial, handle, at, wants_answer, wants_notice, is_void } => {
                fill_serial(header, serial);
                header.bufx = handle.into();
                header.t_len = at.into();
                header.flags |= Flags::NONE
                    .with_if(wants_answer, Flags::LAST)
                    .with_if(wants_notice, Flags::NOTIFY)
                    .with_if(is_void, Flags::REJECTED)
                    .0;
            }
            Self::Get(get) => {
                header.s_id = get.s_id.into();
                fill_serial(header, get.after);
                header.param = u16::from(get.stu).into();
                header.bufx = get.bufx.into();
                header.offset = get.offset.into();
                header.t_len = get.at.into();
                put_words(extension, [get.handle, get.len, get.serial, get.block]);
            }
            Self::FetchOp { serial, handle, at, width, function } => {
                fill_serial(header, serial);
                header.bufx = handle.into();
                header.t_len = at.into();
                let (code, operand, expected) = split_function(function);
                header.param = (u16::from(width.bytes() as u8) << 8 | u16::from(code)).into();
                let words = [operand >> 32, operand, expected >> 32, expected];
                put_words(extension, words.map(|word| word as u32));
            }
            Self::FetchOpComplete { below } => fill_serial(header, below),
            Self::RequestState(question) => fill_question(header, question),
            Self::RequestStateResponse(state) => fill_state(header, state),
            _ => {}
        }
    }

    /// Reads the head of a packet. Does not look at the checksum.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] where `head` is shorter than the operation needs,
    /// [`Refusal::Unsupported`] for an operation that is unknown,
    /// [`Refusal::Malformed`] where a field holds what it may not.
    pub fn decode(head: &[u8]) -> Result<(Envelope, Self), Refusal> {
        let header = Header::read(head).ok_or(Refusal::Truncated)?;
        let op = header.operation()?;
        let extension = head.get(HEADER_LEN..Self::head_len(op)).ok_or(Refusal::Truncated)?;
        if header.flags().has_besides(Self::flags_of(op)) {
            return Err(Refusal::Malformed);
        }
        let envelope = Envelope {
            d_port: header.d_port.get(),
            s_port: header.s_port.get(),
            d_key: header.d_key.get(),
        };
        Ok((envelope, Self::parse(op, header, extension)?))
    }

    /// The flags that an operation may have.
    const fn flags_of(op: Op) -> Flags {
        let flags = match op {
            Op::ConnectionAnswer | Op::RequestDisconnect | Op::MemoryRegionAvailable => {
                Flags::REJECTED
            }
            Op::RequestToSend | Op::End | Op::EndAck => Flags::ANSWER,
            Op::RequestAnswer => Flags::REJECTED.with(Flags::LIMITED).with(Flags::ANSWER),
            Op::ClearToSend => Flags::RESEND.with(Flags::LIMITED),
            Op::Data => Flags::LAST,
            Op::Put => Flags::LAST.with(Flags::NOTIFY).with(Flags::REJECTED),
            Op::RequestState => Flags::LINK,
            Op::RequestStateResponse => Flags::LAST.with(Flags::REJECTED),
            _ => Flags::NONE,
        };
        flags.with(Flags::SUM)
    }

    fn parse(op: Op, header: &Header, extension: &[u8]) -> Result<Self, Refusal> {
        let ids = Ids { d_id: header.d_id.get(), s_id: header.s_id.get() };
        let serial = header.b_num.get();
        let flags = header.flags();
        let reason = Reason::from_number((header.param.get() & 0xff) as u8);
        let is_rejected = flags.has(Flags::REJECTED);
        let ending = Ending { ids, serial, by_receiver: flags.has(Flags::ANSWER) };
        Ok(match op {
            Op::RequestConnection => Self::RequestConnection(parse_offer(header)?),
            Op::ConnectionAnswer => {
                let result = if is_rejected { Err(reason) } else { Ok(parse_offer(header)?) };
                Self::ConnectionAnswer { d_id: ids.d_id, result }
            }
            Op::RequestDisconnect => {
                Self::RequestDisconnect { ids, abort: is_rejected.then_some(reason) }
            }
            Op::DisconnectAnswer => Self::DisconnectAnswer { ids },
            Op::DisconnectComplete => Self::DisconnectComplete { ids },
            Op::RequestToSend => Self::RequestToSend {
                s_id: ids.s_id,
                serial,
                len: header.t_len.get(),
                max_block: log_size(header.param.get())?,
                opaque: header.offset.get(),
                answers: flags.has(Flags::ANSWER).then_some((ids.d_id, header.bufx.get())),
            },
            Op::RequestAnswer => {
                let verdict = match (is_rejected, flags.has(Flags::LIMITED)) {
                    (true, false) => Verdict::Rejected(reason),
                    (false, true) => Verdict::Limited(header.t_len.get()),
                    (false, false) => Verdict::Pending,
                    (true, true) => return Err(Refusal::Malformed),
                };
                Self::RequestAnswer { ids, serial, is_read: flags.has(Flags::ANSWER), verdict }
            }
            Op::RequestToReceive => Self::RequestToReceive {
                s_id: ids.s_id,
                serial,
                len: header.t_len.get(),
                opaque: header.offset.get(),
            },
            Op::ClearToSend => Self::ClearToSend(parse_grant(header)?),
            Op::Data => Self::Data {
                d_id: ids.d_id,
                block: header.b_num.get(),
                bufx: header.bufx.get(),
                offset: header.offset.get(),
                hold: header.param.get(),
                serial: header.high(),
                opaque: header.low(),
                is_last: flags.has(Flags::LAST),
            },
            Op::End => Self::End { ending, reason },
            Op::EndAck => Self::EndAck(ending),
            _ => Self::parse_memory(op, header, extension)?,
        })
    }

    fn parse_memory(op: Op, header: &Header, extension: &[u8]) -> Result<Self, Refusal> {
        let ids = Ids { d_id: header.d_id.get(), s_id: header.s_id.get() };
        let serial = header.b_num.get();
        let (flags, param) = (header.flags(), header.param.get());
        Ok(match op {
            Op::RequestMemoryRegion => Self::RequestMemoryRegion {
                s_id: ids.s_id,
                serial,
                len: header.t_len.get(),
                name: header.offset.get(),
                rights: param as u8,
            },
            Op::MemoryRegionAvailable => {
                let result = if flags.has(Flags::REJECTED) {
                    Err(Reason::from_number(param as u8))
                } else {
                    Ok((header.bufx.get(), header.t_len.get(), param as u8))
                };
                Self::MemoryRegionAvailable { d_id: ids.d_id, serial, result }
            }
            Op::Put => Self::Put {
                serial,
                handle: header.bufx.get(),
                at: header.t_len.get(),
                wants_answer: flags.has(Flags::LAST),
                wants_notice: flags.has(Flags::NOTIFY),
                is_void: flags.has(Flags::REJECTED),
            },
            Op::Get => {
                let [handle, len, get_serial, block] = words(extension)?;
                Self::Get(Get {
                    s_id: ids.s_id,
                    after: serial,
                    handle,
                    at: header.t_len.get(),
                    len,
                    serial: get_serial,
                    block,
                    bufx: header.bufx.get(),
                    offset: header.offset.get(),
                    stu: log_size(param)?,
                })
            }
            Op::FetchOp => {
                let [a, b, c, d] = words(extension)?;
                let (operand, expected) = (two_words(a, b), two_words(c, d));
                Self::FetchOp {
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
            Op::FetchOpComplete => Self::FetchOpComplete { below: serial },
            Op::RequestState => Self::RequestState(parse_question(header, ids)?),
            _ => Self::RequestStateResponse(parse_state(header, ids)?),
        })
    }
}

fn fill_ids(header: &mut Header, ids: Ids) {
    header.d_id = ids.d_id.into();
    header.s_id = ids.s_id.into();
}

fn fill_serial(header: &mut Header, serial: u32) {
    header.b_num = serial.into();
    header.sync = (serial as u16).into();
}

fn fill_rejected(header: &mut Header, reason: Reason) {
    header.flags |= Flags::REJECTED.0;
    header.param = (header.param.get() & 0xff00 | u16::from(reason as u8)).into();
}

fn fill_ending(header: &mut Header, ending: Ending) {
    fill_ids(header, ending.ids);
    fill_serial(header, ending.serial);
    header.flags |= Flags::NONE.with_if(ending.by_receiver, Flags::ANSWER).0;
}

fn fill_offer(header: &mut Header, offer: &Offer) {
    let sizes = u16::from(offer.max_stu & 31) << 5 | u16::from(offer.buffer & 31);
    header.param = (u16::from(offer.version) << 10 | sizes).into();
    header.offset = u32::from(offer.slots).into();
    header.bufx = offer.s_key.into();
    header.s_id = offer.s_id.into();
    header.t_len = offer.hello.into();
}

fn parse_offer(header: &Header) -> Result<Offer, Refusal> {
    let param = header.param.get();
    Ok(Offer {
        version: (param >> 10) as u8,
        max_stu: (param >> 5 & 31) as u8,
        buffer: (param & 31) as u8,
        slots: u16::try_from(header.offset.get()).map_err(|_| Refusal::Malformed)?,
        s_key: header.bufx.get(),
        s_id: header.s_id.get(),
        hello: header.t_len.get(),
    })
}

fn fill_grant(header: &mut Header, grant: &ClearToSend) {
    fill_ids(header, grant.ids);
    header.sync = grant.sync.into();
    header.b_num = grant.block.into();
    header.bufx = grant.bufx.into();
    header.offset = grant.offset.into();
    let sizes = u16::from(grant.stu & 31) << 5 | u16::from(grant.block_size & 31);
    header.param = (u16::from(grant.attempt & 63) << 10 | sizes).into();
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
}

fn parse_grant(header: &Header) -> Result<ClearToSend, Refusal> {
    let (param, flags) = (header.param.get(), header.flags());
    let granted = if flags.has(Flags::RESEND) {
        Granted::Again(header.t_len.get())
    } else {
        let low = header.low();
        Granted::Next { lead: header.high(), count: (low >> 16) as u16, behind: low as u16 }
    };
    if matches!(granted, Granted::Again(0) | Granted::Next { count: 0, .. }) {
        return Err(Refusal::Malformed);
    }
    Ok(ClearToSend {
        ids: Ids { d_id: header.d_id.get(), s_id: header.s_id.get() },
        sync: header.sync.get(),
        block: header.b_num.get(),
        bufx: header.bufx.get(),
        offset: header.offset.get(),
        attempt: (param >> 10) as u8,
        stu: (param >> 5 & 31) as u8,
        block_size: (param & 31) as u8,
        is_limited: flags.has(Flags::LIMITED),
        granted,
    })
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

fn parse_question(header: &Header, ids: Ids) -> Result<Question, Refusal> {
    let is_link = header.flags().has(Flags::LINK);
    Ok(match header.param.get() as u8 {
        topic::CONNECTION => Question::Connection { ids, is_link, token: header.t_len.get() },
        topic::TRANSFER => Question::Transfer { ids, serial: header.b_num.get() },
        topic::MEMORY => Question::Memory,
        _ => return Err(Refusal::Malformed),
    })
}

fn fill_state(header: &mut Header, state: State) {
    let mut param = 0;
    let topic = match state {
        State::Connection { ids, token } => {
            fill_ids(header, ids);
            header.t_len = token.into();
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
        State::Memory { applied, refused } => {
            fill_serial(header, applied);
            if let Some(reason) = refused {
                header.flags |= Flags::REJECTED.0;
                param = u16::from(reason as u8) << 8;
            }
            topic::MEMORY
        }
        State::Fetched { serial, old } => {
            fill_serial(header, serial);
            header.t_len = old.into();
            topic::FETCHED
        }
        State::GetRefused { d_id, serial, reason } => {
            header.d_id = d_id.into();
            fill_serial(header, serial);
            header.flags |= Flags::REJECTED.0;
            param = u16::from(reason as u8) << 8;
            topic::GET_REFUSED
        }
    };
    header.param = (param | u16::from(topic)).into();
}

fn parse_state(header: &Header, ids: Ids) -> Result<State, Refusal> {
    let (param, flags, serial) = (header.param.get(), header.flags(), header.b_num.get());
    let reason = Reason::from_number((param >> 8) as u8);
    Ok(match param as u8 {
        topic::CONNECTION => State::Connection { ids, token: header.t_len.get() },
        topic::TRANSFER => State::Transfer {
            ids,
            serial,
            acked: header.offset.get(),
            len: header.t_len.get(),
            is_complete: flags.has(Flags::LAST),
        },
        topic::MEMORY => {
            State::Memory { applied: serial, refused: flags.has(Flags::REJECTED).then_some(reason) }
        }
        topic::FETCHED => State::Fetched { serial, old: header.t_len.get() },
        topic::GET_REFUSED => State::GetRefused { d_id: ids.d_id, serial, reason },
        _ => return Err(Refusal::Malformed),
    })
}

/// A size as a power of two, below 2^32.
fn log_size(param: u16) -> Result<u8, Refusal> {
    if param < 32 { Ok(param as u8) } else { Err(Refusal::Malformed) }
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
