//! Any message, for property tests.

use landfall_placement::{WordFunction, WordWidth};
use proptest::prelude::*;
use stp_core::wire::message::{
    Ahead, AnsweredRead, AvailableRegion, ClearToSend, Ending, Envelope, Get, Granted, Ids,
    Message, Offer, Question, State, Verdict,
};
use stp_core::wire::proof::Secret;
use stp_core::wire::reason::Reason;

pub fn envelope() -> impl Strategy<Value = Envelope> {
    any::<(u16, u16, u32)>().prop_map(|(d_port, s_port, d_key)| Envelope { d_port, s_port, d_key })
}

/// Any message that can be encoded.
pub fn message() -> impl Strategy<Value = Message> {
    prop_oneof![connection(), request(), grant(), data(), region(), access(), state(), end()]
}

fn ids() -> impl Strategy<Value = Ids> {
    any::<(u16, u16)>().prop_map(|(d_id, s_id)| Ids { d_id, s_id })
}

fn reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(&Reason::ALL[..])
}

fn log_size() -> impl Strategy<Value = u8> {
    0..32u8
}

/// Numbers of 64 bits, the ends of their range among them.
fn long() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u32>().prop_map(u64::from), any::<u64>()]
}

fn offer() -> impl Strategy<Value = Offer> {
    let sizes = (0..64u8, log_size(), log_size());
    (sizes, any::<(u8, u8, u32, u16)>(), long(), long()).prop_map(
        |((version, max_stu, buffer), (tail, slots, s_key, s_id), hello, secret)| Offer {
            version,
            max_stu,
            tail,
            buffer,
            slots,
            s_key,
            s_id,
            hello,
            secret: Secret(secret),
        },
    )
}

fn connection() -> impl Strategy<Value = Message> {
    prop_oneof![
        offer().prop_map(Message::RequestConnection),
        (any::<u16>(), prop::result::maybe_ok(offer(), reason()))
            .prop_map(|(d_id, result)| Message::ConnectionAnswer { d_id, result }),
        (ids(), prop::option::of(reason()))
            .prop_map(|(ids, abort)| Message::RequestDisconnect { ids, abort }),
        ids().prop_map(|ids| Message::DisconnectAnswer { ids }),
        ids().prop_map(|ids| Message::DisconnectComplete { ids }),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Pending),
        long().prop_map(Verdict::Limited),
        reason().prop_map(Verdict::Rejected),
    ]
}

fn request() -> impl Strategy<Value = Message> {
    let numbers = any::<(u16, u32, u32)>();
    prop_oneof![
        (numbers, long(), log_size(), any::<(Option<(u16, u32)>, bool)>()).prop_map(
            |((s_id, serial, opaque), len, max_block, (read, is_eager))| {
                Message::RequestToSend {
                    s_id,
                    serial,
                    len,
                    max_block,
                    opaque,
                    answers: read.map(|(id, serial)| AnsweredRead { id, serial }),
                    is_eager: is_eager && len <= 1_024,
                }
            }
        ),
        (ids(), any::<(u32, bool)>(), verdict()).prop_map(|(ids, (serial, is_read), verdict)| {
            Message::RequestAnswer { ids, serial, is_read, verdict }
        }),
        (numbers, long()).prop_map(|((s_id, serial, opaque), len)| {
            Message::RequestToReceive { s_id, serial, len, opaque }
        }),
    ]
}

fn granted() -> impl Strategy<Value = Granted> {
    prop_oneof![
        (any::<u32>(), 1..=u16::MAX, any::<u16>())
            .prop_map(|(lead, count, behind)| Granted::Next { lead, count, behind }),
        (1..=u64::MAX).prop_map(Granted::Again),
    ]
}

fn grant() -> impl Strategy<Value = Message> {
    let numbers = any::<(u16, u32, u32, u32, u16, bool)>();
    (ids(), numbers, (0..64u8, 1..=u16::MAX, log_size()), granted()).prop_map(
        |(
            ids,
            (sync, block, bufx, offset, eager, is_limited),
            (attempt, stu, block_size),
            granted,
        )| {
            Message::ClearToSend(ClearToSend {
                ids,
                sync,
                block,
                bufx,
                offset,
                attempt,
                stu,
                block_size,
                eager,
                is_limited,
                granted,
            })
        },
    )
}

fn data() -> impl Strategy<Value = Message> {
    any::<(u16, u32, u32, u32, u16, u32, u32, bool)>().prop_map(
        |(d_id, block, bufx, offset, hold, serial, opaque, is_last)| Message::Data {
            d_id,
            block,
            bufx,
            offset,
            hold,
            serial,
            opaque,
            is_last,
        },
    )
}

fn region() -> impl Strategy<Value = Message> {
    let given = (any::<u32>(), long(), any::<u8>(), any::<u16>());
    let given = given.prop_map(|(handle, len, rights, window)| AvailableRegion {
        handle,
        len,
        rights,
        window,
    });
    prop_oneof![
        (any::<(u16, u32, u32, u8)>(), long()).prop_map(|((s_id, serial, name, rights), len)| {
            Message::RequestMemoryRegion { s_id, serial, len, name, rights }
        }),
        (any::<(u16, u32)>(), prop::result::maybe_ok(given, reason())).prop_map(
            |((d_id, serial), result)| Message::MemoryRegionAvailable { d_id, serial, result }
        ),
    ]
}

fn function() -> impl Strategy<Value = WordFunction> {
    prop_oneof![
        Just(WordFunction::Load),
        long().prop_map(WordFunction::Store),
        long().prop_map(WordFunction::Swap),
        long().prop_map(WordFunction::Add),
        long().prop_map(WordFunction::And),
        long().prop_map(WordFunction::Or),
        long().prop_map(WordFunction::Xor),
        (long(), long()).prop_map(|(expected, new)| WordFunction::CompareSwap { expected, new }),
    ]
}

fn access() -> impl Strategy<Value = Message> {
    let width = prop::sample::select(&[WordWidth::Four, WordWidth::Eight][..]);
    prop_oneof![
        (any::<(u32, u32, u32, bool, bool, bool, u16, u32)>(), long()).prop_map(
            |(
                (serial, handle, len, wants_answer, wants_notice, is_void, overtakes, behind),
                at,
            )| Message::Put {
                serial,
                handle,
                at,
                len,
                wants_answer,
                wants_notice,
                is_void,
                overtakes,
                behind,
            }
        ),
        (any::<(u16, u32, u32, u32, u32, u32, u32, u32)>(), long(), 1..=u16::MAX).prop_map(
            |((s_id, after, handle, len, serial, block, bufx, offset), at, stu)| {
                Message::Get(Get { s_id, after, handle, at, len, serial, block, bufx, offset, stu })
            }
        ),
        (any::<(u32, u32)>(), long(), width, function()).prop_map(
            |((serial, handle), at, width, function)| Message::FetchOp {
                serial,
                handle,
                at,
                width,
                function,
            }
        ),
        any::<u32>().prop_map(|below| Message::FetchOpComplete { below }),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    prop_oneof![
        (ids(), any::<bool>(), long()).prop_map(|(ids, is_link, token)| Question::Connection {
            ids,
            is_link,
            token
        }),
        (ids(), long()).prop_map(|(ids, token)| Question::Moved { ids, token }),
        (ids(), any::<u32>()).prop_map(|(ids, serial)| Question::Transfer { ids, serial }),
        Just(Question::Memory),
        (ids(), 40u32.., long()).prop_map(|(ids, size, token)| Question::Size { ids, size, token }),
    ]
}

fn answer() -> impl Strategy<Value = State> {
    prop_oneof![
        (ids(), any::<bool>(), long()).prop_map(|(ids, is_link, token)| State::Connection {
            ids,
            is_link,
            token
        }),
        (ids(), any::<(u32, u32, bool)>(), long()).prop_map(
            |(ids, (serial, acked, is_complete), len)| State::Transfer {
                ids,
                serial,
                acked,
                len,
                is_complete,
            }
        ),
        (any::<u32>(), reason()).prop_map(|(applied, reason)| State::Memory {
            applied,
            refused: Some(reason),
            ahead: Ahead::default(),
        }),
        (any::<(u32, u16, u16)>(), long()).prop_map(|((applied, first, marked), bits)| {
            State::Memory { applied, refused: None, ahead: Ahead { first, bits, marked } }
        }),
        (any::<u32>(), long()).prop_map(|(serial, old)| State::Fetched { serial, old }),
        (any::<(u16, u32)>(), reason()).prop_map(|((d_id, serial), reason)| State::GetRefused {
            d_id,
            serial,
            reason
        }),
        (ids(), 40u32.., long()).prop_map(|(ids, size, token)| State::Size { ids, size, token }),
    ]
}

fn state() -> impl Strategy<Value = Message> {
    prop_oneof![
        question().prop_map(Message::RequestState),
        answer().prop_map(Message::RequestStateResponse),
    ]
}

fn end() -> impl Strategy<Value = Message> {
    let ending = (ids(), any::<(u32, bool)>()).prop_map(|(ids, (serial, by_receiver))| Ending {
        ids,
        serial,
        by_receiver,
    });
    (ending, prop::option::of(reason())).prop_map(|(ending, reason)| match reason {
        Some(reason) => Message::End { ending, reason },
        None => Message::EndAck(ending),
    })
}
