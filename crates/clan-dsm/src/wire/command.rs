//! Commands: what adapters ask of each other, and answer.
//!
//! A command is a packet of kind [`Kind::Command`]: the slot of its address is
//! the code, the offset how many bytes of parameters follow. It is never split
//! and never joined with others. All numbers are in network byte order; bytes
//! without a meaning are zero, and refused where they are not.

use arrayvec::ArrayVec;
use landfall_placement::{Refusal, WordFunction, WordWidth};

use crate::address::{Address, HostId, Key, Kind, WHOLE};
use crate::error::Reason;
use crate::event::GroupKey;
use crate::wire::frame::MAX_PARAMETERS;

/// The parameters of a command.
pub type Parameters = ArrayVec<u8, MAX_PARAMETERS>;

/// Bytes of an out-of-band message, as `endpoint` lays them out.
pub const OUT_OF_BAND_LEN: usize = 72;

/// Whom an answer is for: a slot of who asked, and the proof that it is the
/// answer to this question and no earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The slot.
    pub slot: u16,
    /// The proof.
    pub nonce: Key,
}

/// What an adapter asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send this many bytes from there; they come as packets of [`Kind::Reply`].
    Read {
        /// The first word; its first enabled byte is the first byte that is read.
        from: Address,
        /// How many bytes.
        len: u32,
        /// Where they go.
        reply: ReplyTo,
    },
    /// That read gets nothing.
    ReadRefused {
        /// Which.
        reply: ReplyTo,
        /// Why.
        reason: Reason,
    },
    /// Read and change a word in one step. Alone in its frame.
    WordOp {
        /// The word; the mask says which half, or all of it.
        at: Address,
        /// What is done. The width is that of the mask.
        function: WordFunction,
        /// Who wants to know what it held.
        reply: ReplyTo,
    },
    /// The word held this before, or was not touched.
    WordReply {
        /// For whom.
        reply: ReplyTo,
        /// What.
        result: Result<u64, Reason>,
    },
    /// A message between endpoints.
    OutOfBand([u8; OUT_OF_BAND_LEN]),
    /// A packet to this address was refused.
    Exception {
        /// The address of the packet.
        address: Address,
        /// Why.
        reason: Reason,
    },
    /// Say when all before this is in place. For links that do not acknowledge.
    Barrier {
        /// The asker's number.
        number: u32,
    },
    /// It is.
    BarrierReached {
        /// The asker's number.
        number: u32,
    },
    /// What is written to this group may come by the group's network address.
    GroupInvite {
        /// The first word of the group's memory, with its key.
        group: Address,
        /// The proof that its frames carry.
        tag: u64,
        /// The proof that acknowledgements of this member carry.
        ack_tag: u64,
        /// The number of the next frame.
        seq: u32,
        /// The key that its frames are sealed with, where they are; else both are zero.
        key: Option<GroupKey>,
    },
    /// From this frame of the group's stream on, all are meant for this member.
    GroupStart {
        /// The proof that the frames carry.
        tag: u64,
        /// The number of the frame.
        seq: u32,
    },
    /// No frame of that stream is meant for this member any more.
    GroupEnd {
        /// The proof that the frames carry.
        tag: u64,
    },
}

/// The codes, as they stand in the slot of the address.
mod code {
    pub(super) const READ: u16 = 1;
    pub(super) const READ_REFUSED: u16 = 2;
    pub(super) const WORD_OP: u16 = 3;
    pub(super) const WORD_REPLY: u16 = 4;
    pub(super) const OUT_OF_BAND: u16 = 5;
    pub(super) const EXCEPTION: u16 = 6;
    pub(super) const BARRIER: u16 = 7;
    pub(super) const BARRIER_REACHED: u16 = 8;
    pub(super) const GROUP_INVITE: u16 = 9;
    pub(super) const GROUP_START: u16 = 10;
    pub(super) const GROUP_END: u16 = 11;
}

impl Command {
    /// The code.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::Read { .. } => code::READ,
            Self::ReadRefused { .. } => code::READ_REFUSED,
            Self::WordOp { .. } => code::WORD_OP,
            Self::WordReply { .. } => code::WORD_REPLY,
            Self::OutOfBand(_) => code::OUT_OF_BAND,
            Self::Exception { .. } => code::EXCEPTION,
            Self::Barrier { .. } => code::BARRIER,
            Self::BarrierReached { .. } => code::BARRIER_REACHED,
            Self::GroupInvite { .. } => code::GROUP_INVITE,
            Self::GroupStart { .. } => code::GROUP_START,
            Self::GroupEnd { .. } => code::GROUP_END,
        }
    }

    /// Is it an answer? Who asked has kept room for it, so it may always be
    /// sent; whatever else is a request, and may have to wait.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::ReadRefused { .. }
                | Self::WordReply { .. }
                | Self::Exception { .. }
                | Self::BarrierReached { .. }
        )
    }

    /// The address and the parameters of a command for `host`.
    #[must_use]
    pub fn encode(&self, host: HostId) -> (Address, Parameters) {
        let mut to = Writer(Parameters::new());
        match *self {
            Self::Read { from, len, reply } => {
                to.put(&from.to_bytes());
                to.put_reply(reply);
                to.put(&len.to_be_bytes());
            }
            Self::ReadRefused { reply, reason } => {
                to.put_reply(reply);
                to.put(&[reason as u8]);
            }
            Self::WordOp { at, function, reply } => {
                let (code, operands) = function_code(function);
                to.put(&at.to_bytes());
                to.put_reply(reply);
                to.put(&[code]);
                for operand in operands {
                    to.put(&operand.to_be_bytes());
                }
            }
            Self::WordReply { reply, result } => {
                to.put_reply(reply);
                to.put(&[result.err().map_or(0, |reason| reason as u8)]);
                to.put(&result.unwrap_or(0).to_be_bytes());
            }
            Self::OutOfBand(message) => to.put(&message),
            Self::Exception { address, reason } => {
                to.put(&address.to_bytes());
                to.put(&[reason as u8]);
            }
            Self::Barrier { number } | Self::BarrierReached { number } => {
                to.put(&number.to_be_bytes());
            }
            Self::GroupInvite { group, tag, ack_tag, seq, key } => {
                let GroupKey { number, secret } =
                    key.unwrap_or(GroupKey { number: 0, secret: [0; 32] });
                to.put(&group.to_bytes());
                to.put(&tag.to_be_bytes());
                to.put(&ack_tag.to_be_bytes());
                to.put(&seq.to_be_bytes());
                to.put(&number.to_be_bytes());
                to.put(&secret);
            }
            Self::GroupStart { tag, seq } => {
                to.put(&tag.to_be_bytes());
                to.put(&seq.to_be_bytes());
            }
            Self::GroupEnd { tag } => to.put(&tag.to_be_bytes()),
        }
        let Writer(parameters) = to;
        let (slot, word, key) = (self.code(), parameters.len() as u32, Key::default());
        (Address { kind: Kind::Command, host, slot, word, mask: WHOLE, key }, parameters)
    }

    /// Reads the command that stands behind this address.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for a code that is not known, else
    /// [`Refusal::Malformed`].
    pub fn parse(address: &Address, parameters: &[u8]) -> Result<Self, Refusal> {
        if address.kind != Kind::Command || address.mask != WHOLE || address.key != Key::default() {
            return Err(Refusal::Malformed);
        }
        if address.word as usize != parameters.len() {
            return Err(Refusal::Malformed);
        }
        if !(code::READ..=code::GROUP_END).contains(&address.slot) {
            return Err(Refusal::Unsupported);
        }
        let mut from = Reader(parameters);
        let command = from.command(address.slot).ok_or(Refusal::Malformed)?;
        if from.0.is_empty() { Ok(command) } else { Err(Refusal::Malformed) }
    }
}

/// How wide the word is that an operation is about: four bytes, or all eight.
#[must_use]
pub const fn word_width(at: &Address) -> Option<WordWidth> {
    match at.mask {
        0x0f | 0xf0 => Some(WordWidth::Four),
        WHOLE => Some(WordWidth::Eight),
        _ => None,
    }
}

const fn function_code(function: WordFunction) -> (u8, [u64; 2]) {
    match function {
        WordFunction::Load => (0, [0, 0]),
        WordFunction::Store(v) => (1, [v, 0]),
        WordFunction::Swap(v) => (2, [v, 0]),
        WordFunction::Add(v) => (3, [v, 0]),
        WordFunction::And(v) => (4, [v, 0]),
        WordFunction::Or(v) => (5, [v, 0]),
        WordFunction::Xor(v) => (6, [v, 0]),
        WordFunction::CompareSwap { expected, new } => (7, [new, expected]),
    }
}

const fn function_of(code: u8, [v, second]: [u64; 2]) -> Option<WordFunction> {
    let function = match code {
        0 => WordFunction::Load,
        1 => WordFunction::Store(v),
        2 => WordFunction::Swap(v),
        3 => WordFunction::Add(v),
        4 => WordFunction::And(v),
        5 => WordFunction::Or(v),
        6 => WordFunction::Xor(v),
        7 => WordFunction::CompareSwap { expected: second, new: v },
        _ => return None,
    };
    let is_unused_zero = match function {
        WordFunction::CompareSwap { .. } => true,
        WordFunction::Load => v == 0 && second == 0,
        _ => second == 0,
    };
    if is_unused_zero { Some(function) } else { None }
}

struct Writer(Parameters);

impl Writer {
    /// No command is longer than there is room.
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().copied());
    }

    fn put_reply(&mut self, reply: ReplyTo) {
        self.put(&reply.slot.to_be_bytes());
        self.put(&reply.nonce.bits().to_be_bytes()[1..]);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn address(&mut self) -> Option<Address> {
        Address::from_bytes(self.take()?)
    }

    fn reason(&mut self) -> Option<Reason> {
        let [code] = self.take()?;
        Reason::from_code(code)
    }

    fn reply(&mut self) -> Option<ReplyTo> {
        let slot = u16::from_be_bytes(self.take()?);
        let mut nonce = [0; 8];
        nonce[1..].copy_from_slice(&self.take::<7>()?);
        Some(ReplyTo { slot, nonce: Key::from_bits(u64::from_be_bytes(nonce)) })
    }

    fn command(&mut self, code: u16) -> Option<Command> {
        Some(match code {
            code::READ => {
                let (from, reply) = (self.address()?, self.reply()?);
                Command::Read { from, len: self.word()?, reply }
            }
            code::READ_REFUSED => {
                Command::ReadRefused { reply: self.reply()?, reason: self.reason()? }
            }
            code::WORD_OP => {
                let (at, reply, [code]) = (self.address()?, self.reply()?, self.take()?);
                word_width(&at)?;
                let function = function_of(code, [self.long()?, self.long()?])?;
                Command::WordOp { at, function, reply }
            }
            code::WORD_REPLY => {
                let (reply, [code], old) = (self.reply()?, self.take()?, self.long()?);
                let result = match (code, old) {
                    (0, old) => Ok(old),
                    (code, 0) => Err(Reason::from_code(code)?),
                    _ => return None,
                };
                Command::WordReply { reply, result }
            }
            code::OUT_OF_BAND => Command::OutOfBand(self.take()?),
            code::EXCEPTION => {
                Command::Exception { address: self.address()?, reason: self.reason()? }
            }
            code::BARRIER => Command::Barrier { number: self.word()? },
            code::BARRIER_REACHED => Command::BarrierReached { number: self.word()? },
            code::GROUP_INVITE => {
                let (group, tag, ack_tag) = (self.address()?, self.long()?, self.long()?);
                let (seq, number, secret) = (self.word()?, self.word()?, self.take()?);
                let key = match (number, secret) {
                    (0, secret) if secret == [0; 32] => None,
                    (0, _) => return None,
                    (number, secret) => Some(GroupKey { number, secret }),
                };
                Command::GroupInvite { group, tag, ack_tag, seq, key }
            }
            code::GROUP_START => Command::GroupStart { tag: self.long()?, seq: self.word()? },
            code::GROUP_END => Command::GroupEnd { tag: self.long()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_address()(place: u64, kind in 0u64..4, run in 0u32..8, len in 1u32..=8, key: u64)
            -> Address
        {
            let mask = Address::mask_of(run, len.min(8 - run)).unwrap();
            let place = place & !(3 << 60) | kind << 60;
            let proof = u64::from(mask) << 56 | key >> 8;
            Address::from_bytes((u128::from(place) << 64 | u128::from(proof)).to_be_bytes()).unwrap()
        }
    }

    prop_compose! {
        fn any_reply()(slot: u16, nonce: u64) -> ReplyTo {
            ReplyTo { slot, nonce: Key::from_bits(nonce) }
        }
    }

    fn any_reason() -> impl Strategy<Value = Reason> {
        (1u8..=8).prop_map(|code| Reason::from_code(code).unwrap())
    }

    fn any_command() -> impl Strategy<Value = Command> {
        let masks = prop::sample::select(std::vec![0x0fu8, 0xf0, 0xff]);
        prop_oneof![
            (any_address(), any::<u32>(), any_reply())
                .prop_map(|(from, len, reply)| Command::Read { from, len, reply }),
            (any_reply(), any_reason())
                .prop_map(|(reply, reason)| Command::ReadRefused { reply, reason }),
            (any_address(), masks, 0u8..8, any::<[u64; 2]>(), any_reply()).prop_map(
                |(at, mask, code, [v, second], reply)| {
                    let second = if code == 7 { second } else { 0 };
                    let v = if code == 0 { 0 } else { v };
                    let function = function_of(code, [v, second]).unwrap();
                    Command::WordOp { at: Address { mask, ..at }, function, reply }
                }
            ),
            (any_reply(), prop_oneof![any::<u64>().prop_map(Ok), any_reason().prop_map(Err)])
                .prop_map(|(reply, result)| Command::WordReply { reply, result }),
            any::<[[u8; 8]; 9]>()
                .prop_map(|words| Command::OutOfBand(words.as_flattened().try_into().unwrap())),
            (any_address(), any_reason())
                .prop_map(|(address, reason)| Command::Exception { address, reason }),
            any::<u32>().prop_map(|number| Command::Barrier { number }),
            any::<u32>().prop_map(|number| Command::BarrierReached { number }),
            (any_address(), any::<[u64; 2]>(), any::<[u32; 2]>(), any::<[u8; 32]>()).prop_map(
                |(group, [tag, ack_tag], [seq, number], secret)| {
                    let key = (number % 2 == 1).then_some(GroupKey { number, secret });
                    Command::GroupInvite { group, tag, ack_tag, seq, key }
                }
            ),
            any::<(u64, u32)>().prop_map(|(tag, seq)| Command::GroupStart { tag, seq }),
            any::<u64>().prop_map(|tag| Command::GroupEnd { tag }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read(command in any_command(), host in 0..=HostId::MAX) {
            let host = HostId::new(host).unwrap();
            let (address, parameters) = command.encode(host);
            prop_assert_eq!(address.host, host);
            prop_assert_eq!(Command::parse(&address, &parameters), Ok(command));
            for len in 0..parameters.len() {
                let cut = Address { word: len as u32, ..address };
                let refused = Err(Refusal::Malformed);
                prop_assert_eq!(Command::parse(&cut, &parameters[..len]), refused);
                prop_assert_eq!(Command::parse(&address, &parameters[..len]), refused);
            }
        }

        /// A command with one of its bytes changed: it is another one, to the last bit, or none.
        #[test]
        fn whatever_is_read_is_written_alike(
            command in any_command(), at: prop::sample::Index, flip in 1u8..,
        ) {
            let (address, written) = command.encode(HostId::default());
            let mut parameters = written.to_vec();
            let at = at.index(parameters.len());
            parameters[at] ^= flip;
            if let Ok(other) = Command::parse(&address, &parameters) {
                prop_assert_ne!(other, command);
                let (again, written) = other.encode(HostId::default());
                prop_assert_eq!((again, &written[..]), (address, &parameters[..]));
            }
        }

        #[test]
        fn any_parameters_are_read_or_refused(slot in 0u16..14, bytes: [[u8; 8]; 12], len in 0usize..=96) {
            let parameters = &bytes.as_flattened()[..len];
            let (any, _) = Command::Barrier { number: 0 }.encode(HostId::default());
            let address = Address { slot, word: len as u32, ..any };
            if let Ok(command) = Command::parse(&address, parameters) {
                let (again, written) = command.encode(HostId::default());
                prop_assert_eq!((again, &written[..]), (address, parameters));
            }
        }
    }

    #[test]
    fn an_unknown_code_is_told_from_a_malformed_command() {
        let (known, parameters) = Command::Barrier { number: 7 }.encode(HostId::default());
        for slot in [0, 12, u16::MAX] {
            let address = Address { slot, ..known };
            assert_eq!(Command::parse(&address, &parameters), Err(Refusal::Unsupported));
        }
        let keyed = Address { key: Key::from_bits(1), ..known };
        assert_eq!(Command::parse(&keyed, &parameters), Err(Refusal::Malformed));
    }
}
