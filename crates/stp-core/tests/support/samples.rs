//! The messages that the vectors in `docs/spec/stp.md` stand for, by name.

use landfall_placement::{WordFunction, WordWidth};
use stp_core::wire::header::seal;
use stp_core::wire::message::{
    Ahead, AnsweredRead, AvailableRegion, ClearToSend, Ending, Envelope, Get, Granted, Ids,
    Message, Offer, Question, State, Verdict,
};
use stp_core::wire::proof::{self, Secret, Secrets};
use stp_core::wire::{Flags, LONGEST_HEAD, Op, Reason};

/// A message, and what is around it.
pub struct Sample {
    pub name: &'static str,
    pub envelope: Envelope,
    pub message: Message,
    pub payload: &'static [u8],
    /// Of Data and Put: they have a checksum.
    pub is_summed: bool,
}

impl Sample {
    fn new(name: &'static str, message: Message) -> Self {
        let (envelope, payload, is_summed) = (TO_LISTENER, &[][..], false);
        Self { name, envelope, message, payload, is_summed }
    }

    fn back(self) -> Self {
        let envelope = Envelope { d_port: 50_000, s_port: 5_000, d_key: THEIR_KEY };
        Self { envelope, ..self }
    }

    fn with(self, payload: &'static [u8]) -> Self {
        Self { payload, ..self }
    }

    fn summed(self) -> Self {
        Self { is_summed: true, ..self }
    }

    pub fn op(&self) -> Op {
        self.message.op()
    }

    /// What its proof is made with.
    pub fn secrets(&self) -> Secrets {
        let (there, here) = (LISTENERS_SECRET, ASKERS_SECRET);
        if self.envelope.d_key == THEIR_KEY {
            Secrets { receiver: here, sender: there }
        } else {
            Secrets { receiver: there, sender: here }
        }
    }

    /// The whole packet.
    pub fn packet(&self) -> Vec<u8> {
        let mut head = [0; LONGEST_HEAD];
        let len = self.message.encode(self.envelope, &mut head).expect("samples fit");
        proof::seal(&mut head[..len], self.secrets());
        let mut packet = [&head[..len], self.payload].concat();
        if self.is_summed {
            packet[1] |= Flags::SUM.0;
            packet[12..14].fill(0);
            seal(&mut packet);
        }
        packet
    }
}

const ASKERS_SECRET: Secret = Secret(0x0011_2233_4455_6677);
const LISTENERS_SECRET: Secret = Secret(0x8899_aabb_ccdd_eeff);
const KEY: u32 = 0xc0ff_ee01;
const THEIR_KEY: u32 = 0xa1b2_c3d4;
const TO_LISTENER: Envelope = Envelope { d_port: 5_000, s_port: 50_000, d_key: KEY };
const SERIAL: u32 = 65_538;
const HANDLE: u32 = 0x0002_0007;

const BYTES: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

const fn ids(d_id: u16, s_id: u16) -> Ids {
    Ids { d_id, s_id }
}

/// All of them, in the order of the document.
pub fn all() -> Vec<Sample> {
    [connections(), transfers(), grants_and_data(), ends(), regions(), accesses(), states()]
        .into_iter()
        .flatten()
        .collect()
}

fn connections() -> Vec<Sample> {
    let asked = Offer {
        version: 3,
        max_stu: 16,
        tail: 24,
        buffer: 21,
        slots: 64,
        s_key: THEIR_KEY,
        s_id: 7,
        hello: u64::from_be_bytes(*b"hello!!!"),
        secret: ASKERS_SECRET,
    };
    let given = Offer {
        max_stu: 13,
        tail: 0,
        buffer: 16,
        slots: 8,
        s_key: KEY,
        s_id: 300,
        hello: 0,
        secret: LISTENERS_SECRET,
        ..asked
    };
    let result = |result| Message::ConnectionAnswer { d_id: 7, result };
    let (out, back) = (ids(300, 7), ids(7, 300));
    let abort = Some(Reason::Cancelled);
    let mut request = Sample::new("Request_Connection", Message::RequestConnection(asked));
    request.envelope.d_key = 0;
    vec![
        request,
        Sample::new("Connection_Answer", result(Ok(given))).back(),
        Sample::new("Connection_Answer rejected", result(Err(Reason::NoListener))).back(),
        Sample::new("Request_Disconnect", Message::RequestDisconnect { ids: out, abort: None }),
        Sample::new("Request_Disconnect abort", Message::RequestDisconnect { ids: out, abort }),
        Sample::new("Disconnect_Answer", Message::DisconnectAnswer { ids: back }).back(),
        Sample::new("Disconnect_Complete", Message::DisconnectComplete { ids: out }),
    ]
}

fn transfers() -> Vec<Sample> {
    let write = Message::RequestToSend {
        s_id: 12,
        serial: SERIAL,
        len: 5_000_000_000,
        max_block: 20,
        opaque: 0xdead_beef,
        answers: None,
        is_eager: false,
    };
    let eager = Message::RequestToSend {
        s_id: 14,
        serial: 4,
        len: 16,
        max_block: 16,
        opaque: 7,
        answers: None,
        is_eager: true,
    };
    let answering = Message::RequestToSend {
        s_id: 13,
        serial: 3,
        len: 4096,
        max_block: 16,
        opaque: 0,
        answers: Some(AnsweredRead { id: 40, serial: 9 }),
        is_eager: false,
    };
    let answer = |verdict| Message::RequestAnswer {
        ids: ids(12, 21),
        serial: SERIAL,
        is_read: false,
        verdict,
    };
    let too_long = Message::RequestAnswer {
        ids: ids(40, 0),
        serial: 9,
        is_read: true,
        verdict: Verdict::Rejected(Reason::TooLong),
    };
    let read = Message::RequestToReceive { s_id: 40, serial: 9, len: 1 << 40, opaque: 77 };
    vec![
        Sample::new("Request_To_Send", write),
        Sample::new("Request_To_Send eager", eager).with(BYTES).summed(),
        Sample::new("Request_To_Send answering", answering),
        Sample::new("Request_Answer pending", answer(Verdict::Pending)),
        Sample::new("Request_Answer limited", answer(Verdict::Limited(1_000_000))),
        Sample::new("Request_Answer rejected", too_long),
        Sample::new("Request_To_Receive", read),
    ]
}

fn grants_and_data() -> Vec<Sample> {
    let next = ClearToSend {
        ids: ids(12, 21),
        sync: 2,
        block: 3,
        bufx: 0x0005_0011,
        offset: 65_536,
        attempt: 1,
        stu: 1432,
        block_size: 18,
        eager: 256,
        is_limited: false,
        granted: Granted::Next { lead: 512, count: 64, behind: 1 },
    };
    let again = ClearToSend {
        block: 4,
        bufx: 0x0006_0012,
        offset: 81_920,
        attempt: 63,
        stu: 8928,
        block_size: 20,
        is_limited: true,
        granted: Granted::Again(1 << 63 | 1 << 2 | 1),
        ..next
    };
    let data = |offset, hold, is_last| Message::Data {
        d_id: 21,
        block: 3,
        bufx: 0x0005_0011,
        offset,
        hold,
        serial: SERIAL,
        opaque: 0xdead_beef,
        is_last,
    };
    vec![
        Sample::new("Clear_To_Send", Message::ClearToSend(next)),
        Sample::new("Clear_To_Send again", Message::ClearToSend(again)),
        Sample::new("Data", data(66_560, 0x1801, false)).with(BYTES),
        Sample::new("Data with checksum", data(130_048, 0, true))
            .with(&[0xff, 0, 1, 0x80, 0x7f])
            .summed(),
    ]
}

fn ends() -> Vec<Sample> {
    let ending = |ids| Ending { ids, serial: SERIAL, by_receiver: true };
    let end = Message::End { ending: ending(ids(12, 21)), reason: Reason::Cancelled };
    vec![Sample::new("End", end), Sample::new("End_Ack", Message::EndAck(ending(ids(21, 12))))]
}

fn regions() -> Vec<Sample> {
    let name = u32::from_be_bytes(*b"MEM1");
    let request =
        Message::RequestMemoryRegion { s_id: 2, serial: 4, len: 65_536, name, rights: 1 | 4 };
    const REGION: AvailableRegion =
        AvailableRegion { handle: HANDLE, len: 32_768, rights: 1, window: 1024 };
    let available = |result| Message::MemoryRegionAvailable { d_id: 2, serial: 4, result };
    vec![
        Sample::new("Request_Memory_Region", request),
        Sample::new("Memory_Region_Available", available(Ok(REGION))),
        Sample::new("Memory_Region_Available rejected", available(Err(Reason::NoRegion))),
    ]
}

fn accesses() -> Vec<Sample> {
    let put = |serial, at, len, wants_answer, wants_notice, is_void| Message::Put {
        serial,
        handle: HANDLE,
        at,
        len,
        wants_answer,
        wants_notice,
        is_void,
        overtakes: 0,
        behind: 0,
    };
    let last = Message::Put {
        serial: 9,
        handle: HANDLE,
        at: 2_864,
        len: 4,
        wants_answer: true,
        wants_notice: true,
        is_void: false,
        overtakes: 5,
        behind: 358,
    };
    let get = Get {
        s_id: 33,
        after: 2,
        handle: HANDLE,
        at: 1024,
        len: 3000,
        serial: 5,
        block: 0,
        bufx: 0x0001_0000,
        offset: 4096,
        stu: 1432,
    };
    let fetch = |serial, at, width, function| Message::FetchOp {
        serial,
        handle: HANDLE,
        at,
        width,
        function,
    };
    let swap = WordFunction::CompareSwap { expected: 0x5566_7788, new: 0x1122_3344 };
    let add = WordFunction::Add(u64::MAX);
    vec![
        Sample::new("Put", put(u32::MAX, (1 << 32) + 8, 3, true, true, false)).with(b"abc"),
        Sample::new("Put with checksum", put(0, 16, 8, false, false, false))
            .with(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef])
            .summed(),
        Sample::new("Put overtaking", last).with(b"last"),
        Sample::new("Put void", put(1, 0, 0, true, false, true)).summed(),
        Sample::new("Get", Message::Get(get)),
        Sample::new("FetchOp add", fetch(2, 64, WordWidth::Eight, add)),
        Sample::new("FetchOp compare and swap", fetch(3, 4, WordWidth::Four, swap)),
        Sample::new("FetchOp_Complete", Message::FetchOpComplete { below: 4 }),
    ]
}

fn states() -> Vec<Sample> {
    let token = 0x1122_3344_5566_7788;
    let link = Question::Connection { ids: ids(300, 7), is_link: true, token };
    let transfer = Question::Transfer { ids: ids(21, 12), serial: SERIAL };
    let alive = |is_link| State::Connection { ids: ids(7, 300), is_link, token };
    let ask = |name, question| Sample::new(name, Message::RequestState(question));
    let tell = |name, state| Sample::new(name, Message::RequestStateResponse(state));
    let complete = State::Transfer {
        ids: ids(12, 21),
        serial: SERIAL,
        acked: 20,
        len: 5_000_000_000,
        is_complete: true,
    };
    let refused = State::GetRefused { d_id: 33, serial: 5, reason: Reason::Forbidden };
    let memory = |refused| State::Memory { applied: 17, refused, ahead: Ahead::default() };
    let ahead = State::Memory {
        applied: 17,
        refused: None,
        ahead: Ahead { first: 36, bits: 0x8000_0000_0000_7ffe, marked: 2 },
    };
    vec![
        ask("Request_State connection", link),
        ask("Request_State moved", Question::Moved { ids: ids(300, 7), token }),
        ask("Request_State transfer", transfer),
        ask("Request_State memory", Question::Memory),
        tell("Request_State_Response connection", alive(false)).back(),
        tell("Request_State_Response challenge", alive(true)).back(),
        tell("Request_State_Response transfer", complete),
        tell("Request_State_Response memory", memory(None)),
        tell("Request_State_Response memory ahead", ahead),
        tell("Request_State_Response memory refused", memory(Some(Reason::OutOfBounds))),
        tell("Request_State_Response fetched", State::Fetched { serial: 3, old: 0x5566_7788 }),
        tell("Request_State_Response get refused", refused),
        ask("Request_State size", Question::Size { ids: ids(300, 7), size: 8232, token }),
        tell("Request_State_Response size", State::Size { ids: ids(7, 300), size: 48, token })
            .with(&[0; 8])
            .back(),
    ]
}
