//! Each operation with its parameters by name.
//!
//! Data is here for completeness, tests and tools; the hot paths read and write
//! its header as it lies in the packet.

use landfall_placement::{WordFunction, WordWidth};

use super::op::Op;
use super::proof::Secret;
use super::reason::Reason;

/// What every packet has: for which port and connection it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The port of who receives it.
    pub d_port: u16,
    /// The port of who sends it.
    pub s_port: u16,
    /// The key that who receives it gave out; zero in a Request_Connection.
    pub d_key: u32,
}

/// What the two ends of a connection tell each other of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The version of this encoding.
    pub version: u8,
    /// No STU is to be longer than this power of two.
    pub max_stu: u8,
    /// How many bytes of each packet with Data are to stay free for what seals it.
    pub tail: u8,
    /// The size of receive buffers, as a power of two: no STU crosses a
    /// multiple of it.
    pub buffer: u8,
    /// How many requests may be unanswered at a time.
    pub slots: u8,
    /// The key that packets to who sends this must have.
    pub s_key: u32,
    /// The connection's identifier at who sends this.
    pub s_id: u16,
    /// Eight bytes from user to user.
    pub hello: u64,
    /// What proofs between the two sides are made with: [`super::proof`].
    pub secret: Secret,
}

/// The two identifiers that a packet is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// What who receives the packet calls it.
    pub d_id: u16,
    /// What who sends it calls it.
    pub s_id: u16,
}

/// The Request_To_Receive that a Request_To_Send answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredRead {
    /// What who asked calls it.
    pub id: u16,
    /// Its serial number.
    pub serial: u32,
}

/// A region that the other side may use, as Memory_Region_Available describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableRegion {
    /// What packets to the region call it.
    pub handle: u32,
    /// How many bytes it has.
    pub len: u64,
    /// What may be done with it.
    pub rights: u8,
    /// How many packets beyond those that took effect are taken in, in any order that they
    /// allow. 0 says nothing.
    pub window: u16,
}

/// What becomes of a request that gets no grant, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was heard, and waits for memory.
    Pending,
    /// Only this many bytes are taken.
    Limited(u64),
    /// It is refused.
    Rejected(Reason),
}

/// Which STUs of a Block are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The next ones, from the offset on.
    Next {
        /// How far into its first Block the Transfer begins.
        lead: u32,
        /// How many STUs.
        count: u16,
        /// All Blocks are acknowledged but the last this many before this one.
        behind: u16,
    },
    /// Those that did not come: bit `n` is the STU `n` behind the offset.
    Again(u64),
}

/// A Clear_To_Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearToSend {
    /// The Transfer.
    pub ids: Ids,
    /// The low bits of the Transfer's serial number.
    pub sync: u16,
    /// The number of the Block in its Transfer.
    pub block: u32,
    /// What Data of this Block must name.
    pub bufx: u32,
    /// Where in the buffer the first granted STU begins.
    pub offset: u32,
    /// Counts the grants of this Block, modulo 64: a duplicate is not a new grant.
    pub attempt: u8,
    /// The size of an STU: of all but the last of the Block. Not zero.
    pub stu: u16,
    /// The size of a Block, as a power of two.
    pub block_size: u8,
    /// Who grants takes messages of up to this many bytes right behind their Request_To_Send.
    pub eager: u16,
    /// The receiver takes less than was offered: the Request_Answer says how much.
    pub is_limited: bool,
    /// Which STUs.
    pub granted: Granted,
}

/// A Get: a grant for what the other side reads from a region of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// What who asks calls it; Data comes back with it.
    pub s_id: u16,
    /// How many Puts and FetchOps of this connection must have taken effect before.
    pub after: u32,
    /// The region at the other side.
    pub handle: u32,
    /// Where in it.
    pub at: u64,
    /// How many bytes.
    pub len: u32,
    /// The serial number that Data comes back with.
    pub serial: u32,
    /// The number of the Block.
    pub block: u32,
    /// What Data of this Block must name.
    pub bufx: u32,
    /// Where in the buffer the first byte belongs.
    pub offset: u32,
    /// The size of an STU: of all but the last. Not zero.
    pub stu: u16,
}

/// What a Request_State asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Is the connection alive? The token comes back.
    Connection {
        /// The connection.
        ids: Ids,
        /// This link belongs to the connection too.
        is_link: bool,
        /// Comes back in the answer.
        token: u64,
    },
    /// The same from who hears nothing any more: perhaps its packets come from another
    /// address now. If that is so, this link takes the place of those on its path.
    Moved {
        /// The connection.
        ids: Ids,
        /// Comes back in the answer.
        token: u64,
    },
    /// How far is a Transfer?
    Transfer {
        /// The Transfer.
        ids: Ids,
        /// Its serial number.
        serial: u32,
    },
    /// Which Puts and FetchOps took effect?
    Memory,
    /// Do packets of this size arrive? The answer is as long as that.
    Size {
        /// The connection.
        ids: Ids,
        /// The size of a packet, with its header.
        size: u32,
        /// Comes back in the answer.
        token: u64,
    },
}

/// What a Request_State_Response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection is alive.
    Connection {
        /// The connection.
        ids: Ids,
        /// This link is not known yet: who asked must ask again with this token,
        /// to prove that it hears what is sent there.
        is_link: bool,
        /// As it was asked with.
        token: u64,
    },
    /// How far a Transfer is.
    Transfer {
        /// The Transfer.
        ids: Ids,
        /// Its serial number.
        serial: u32,
        /// All Blocks below this one are in place.
        acked: u32,
        /// The length that the receiver takes.
        len: u64,
        /// All is in place.
        is_complete: bool,
    },
    /// Which Puts and FetchOps took effect.
    Memory {
        /// All below this one did.
        applied: u32,
        /// And this one is refused.
        refused: Option<Reason>,
        /// What is in place beyond, where it is not.
        ahead: Ahead,
    },
    /// A FetchOp took effect.
    Fetched {
        /// Its serial number.
        serial: u32,
        /// What the word held before.
        old: u64,
    },
    /// A Get cannot be answered.
    GetRefused {
        /// The Get, as who asked calls it.
        d_id: u16,
        /// Its serial number.
        serial: u32,
        /// Why.
        reason: Reason,
    },
    /// A packet of this size: behind the header are bytes that mean nothing.
    Size {
        /// The connection.
        ids: Ids,
        /// The size of the packet, with its header.
        size: u32,
        /// As it was asked with.
        token: u64,
    },
}

/// Which Puts are in place behind those that took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// How far behind the first that did not take effect the lowest bit stands.
    pub first: u16,
    /// Bit `n`: the Put `n` behind that is in place.
    pub bits: u64,
    /// How many Puts came that the network had marked, modulo 2^16.
    pub marked: u16,
}

/// Names a Transfer in End and `End_Ack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The Transfer.
    pub ids: Ids,
    /// Its serial number.
    pub serial: u32,
    /// Who receives the Transfer ends it (in an `End_Ack`: ended it).
    pub by_receiver: bool,
}

/// An operation with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the variants are the operations, their fields are documented above"
)]
pub enum Message {
    RequestConnection(Offer),
    ConnectionAnswer {
        d_id: u16,
        result: Result<Offer, Reason>,
    },
    RequestDisconnect {
        ids: Ids,
        abort: Option<Reason>,
    },
    DisconnectAnswer {
        ids: Ids,
    },
    DisconnectComplete {
        ids: Ids,
    },
    RequestToSend {
        s_id: u16,
        serial: u32,
        len: u64,
        max_block: u8,
        opaque: u32,
        /// The Request_To_Receive that this answers.
        answers: Option<AnsweredRead>,
        /// All of the Transfer is right behind the request.
        is_eager: bool,
    },
    RequestAnswer {
        ids: Ids,
        serial: u32,
        is_read: bool,
        verdict: Verdict,
    },
    RequestToReceive {
        s_id: u16,
        serial: u32,
        len: u64,
        opaque: u32,
    },
    ClearToSend(ClearToSend),
    Data {
        d_id: u16,
        block: u32,
        bufx: u32,
        offset: u32,
        /// How long the grant waited at the sender: [`super::hold`].
        hold: u16,
        serial: u32,
        opaque: u32,
        is_last: bool,
    },
    RequestMemoryRegion {
        s_id: u16,
        serial: u32,
        len: u64,
        name: u32,
        rights: u8,
    },
    MemoryRegionAvailable {
        d_id: u16,
        serial: u32,
        result: Result<AvailableRegion, Reason>,
    },
    Put {
        serial: u32,
        handle: u32,
        at: u64,
        /// How many bytes of payload there are: what is behind them is padding.
        len: u32,
        wants_answer: bool,
        wants_notice: bool,
        /// It was refused before: only its number counts.
        is_void: bool,
        /// How many packets before it may land after it.
        overtakes: u16,
        /// Where the user is to be told: how far behind the start of its Put this packet
        /// begins, in units of 8 bytes.
        behind: u32,
    },
    Get(Get),
    FetchOp {
        serial: u32,
        handle: u32,
        at: u64,
        width: WordWidth,
        function: WordFunction,
    },
    FetchOpComplete {
        below: u32,
    },
    RequestState(Question),
    RequestStateResponse(State),
    End {
        ending: Ending,
        reason: Reason,
    },
    EndAck(Ending),
}

impl Message {
    /// Which operation it is.
    #[must_use]
    pub const fn op(&self) -> Op {
        match self {
            Self::RequestConnection(_) => Op::RequestConnection,
            Self::ConnectionAnswer { .. } => Op::ConnectionAnswer,
            Self::RequestDisconnect { .. } => Op::RequestDisconnect,
            Self::DisconnectAnswer { .. } => Op::DisconnectAnswer,
            Self::DisconnectComplete { .. } => Op::DisconnectComplete,
            Self::RequestToSend { .. } => Op::RequestToSend,
            Self::RequestAnswer { .. } => Op::RequestAnswer,
            Self::RequestToReceive { .. } => Op::RequestToReceive,
            Self::ClearToSend(_) => Op::ClearToSend,
            Self::Data { .. } => Op::Data,
            Self::RequestMemoryRegion { .. } => Op::RequestMemoryRegion,
            Self::MemoryRegionAvailable { .. } => Op::MemoryRegionAvailable,
            Self::Put { .. } => Op::Put,
            Self::Get(_) => Op::Get,
            Self::FetchOp { .. } => Op::FetchOp,
            Self::FetchOpComplete { .. } => Op::FetchOpComplete,
            Self::RequestState(_) => Op::RequestState,
            Self::RequestStateResponse(_) => Op::RequestStateResponse,
            Self::End { .. } => Op::End,
            Self::EndAck(_) => Op::EndAck,
        }
    }
}
