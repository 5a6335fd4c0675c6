//! Bad input and abuse: what others send, and others fail to send, costs
//! nobody else anything, and ends in bounded time.

use crate::two;
use crate::two::{
    Two, decode, encode, is_received, is_sent, noise, offer, op, place, seal, small, ticket,
};
use landfall_placement::{Engine, Landing, Peer, Placement, Refusal, WordFunction, WordWidth};
use stp_core::wire::message::{
    Ahead, AvailableRegion, ClearToSend, Ending, Get, Granted, Ids, Message, Question, State,
    Verdict,
};
use stp_core::wire::{Envelope, Flags, Op, Reason};
use stp_core::{Config, Ended, Event, PutOptions, RemoteRegion, Rights};

const REGION: AvailableRegion = AvailableRegion { handle: 0, len: 100, rights: 7, window: 64 };

/// One of every operation, as somebody says them who has the key.
fn every_operation() -> Vec<Message> {
    let ids = Ids { d_id: 0, s_id: 0 };
    let offer = offer(77);
    let ending = Ending { ids, serial: 0, by_receiver: true };
    let grant = ClearToSend {
        ids,
        sync: 0,
        block: 0,
        bufx: 1 << 16,
        offset: 0,
        attempt: 1,
        stu: 128,
        block_size: 9,
        eager: 0,
        is_limited: false,
        granted: Granted::Next { lead: 0, count: 1, behind: 0 },
    };
    let get = Get {
        s_id: 0,
        after: 0,
        handle: 0,
        at: 0,
        len: 8,
        serial: 0,
        block: 0,
        bufx: 1 << 16,
        offset: 0,
        stu: 128,
    };
    let (serial, handle, opaque, s_id, at) = (0, 0, 0, 0, 0);
    let (max_block, answers, is_eager) = (9, None, false);
    let (width, function) = (WordWidth::Eight, WordFunction::CompareSwap { expected: 1, new: 2 });
    vec![
        Message::RequestConnection(offer),
        Message::ConnectionAnswer { d_id: 0, result: Ok(offer) },
        Message::RequestToSend { s_id, serial, len: 100, max_block, opaque, answers, is_eager },
        Message::RequestAnswer { ids, serial, is_read: false, verdict: Verdict::Limited(5) },
        Message::RequestToReceive { s_id: 0, serial, len: 100, opaque },
        Message::ClearToSend(grant),
        Message::ClearToSend(ClearToSend { granted: Granted::Again(5), attempt: 2, ..grant }),
        Message::RequestMemoryRegion { s_id: 0, serial, len: 100, name: 1, rights: 7 },
        Message::MemoryRegionAvailable { d_id: 0, serial, result: Ok(REGION) },
        Message::Get(get),
        Message::FetchOp { serial, handle, at, width, function },
        Message::FetchOpComplete { below: 1 },
        Message::RequestState(Question::Connection { ids, is_link: true, token: 1 }),
        Message::RequestState(Question::Transfer { ids, serial }),
        Message::RequestState(Question::Memory),
        Message::RequestStateResponse(State::Connection { ids, is_link: false, token: 1 }),
        Message::RequestStateResponse(State::Connection { ids, is_link: true, token: 1 }),
        Message::RequestStateResponse(State::Transfer {
            ids,
            serial,
            acked: 1,
            len: 100,
            is_complete: false,
        }),
        Message::RequestStateResponse(State::Memory {
            applied: 1,
            refused: None,
            ahead: Ahead::default(),
        }),
        Message::RequestStateResponse(State::Fetched { serial, old: 1 }),
        Message::RequestStateResponse(State::GetRefused { d_id: 0, serial, reason: Reason::Gone }),
        Message::End { ending, reason: Reason::Cancelled },
        Message::EndAck(ending),
        Message::DisconnectAnswer { ids },
        Message::DisconnectComplete { ids },
        Message::RequestDisconnect { ids, abort: None },
        Message::RequestDisconnect { ids, abort: Some(Reason::Cancelled) },
    ]
}

/// What packets of side 0 on a connection carry.
fn envelope_of(two: &mut Two, at: usize) -> Envelope {
    let (now, id) = (two.wire.now, two.ids[0]);
    let area = two.lend(0, 0, &noise(at as u64, 10));
    let send = two.endpoint(0).send(now, id, area, 0).unwrap();
    let packets = two.said(0);
    let envelope = packets.iter().find(|packet| op(packet) == Op::RequestToSend).unwrap();
    let envelope = decode(envelope).0;
    two.endpoint(0).cancel_send(now, send).unwrap();
    two.said(0);
    envelope
}

/// Every byte of every operation takes many values, with checksum, key and proof
/// right: nothing panics, and a transfer on another connection goes on.
#[test]
fn every_field_of_every_operation_mutated() {
    let mut two = Two::new(Config { give_up_after: 60, ..small() });
    let envelope = envelope_of(&mut two, 1);
    let others = two.connect();
    let bytes = noise(2, 20_000);
    let area = two.transfer(others, &bytes);
    let mut packets: Vec<Vec<u8>> =
        every_operation().iter().map(|message| encode(envelope, message)).collect();
    let data = Message::Data {
        d_id: 0,
        block: 0,
        bufx: 1 << 16,
        offset: 0,
        hold: 0,
        serial: 0,
        opaque: 0,
        is_last: true,
    };
    packets.push([&encode(envelope, &data)[..], &[7; 60]].concat());
    let put = Message::Put {
        serial: 0,
        handle: 0,
        at: 0,
        len: 60,
        wants_answer: true,
        wants_notice: true,
        is_void: false,
        overtakes: 0,
        behind: 0,
    };
    packets.push([&encode(envelope, &put)[..], &[7; 60]].concat());
    let values = [0, 1, 2, 7, 0x20, 0x3f, 0x7f, 0x80, 0xfe, 0xff];
    for (n, packet) in packets.iter().enumerate() {
        for at in 0..packet.len().min(56) {
            for value in values {
                let mut bad = packet.clone();
                bad[at] = value;
                seal(&mut bad);
                two.prove(1, &mut bad);
                let now = two.wire.now;
                if let Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) =
                    two.place(1, &bad)
                {
                    two.wire.sides[1].engine.handle_placed(now, ticket, Landing::Unchecked);
                }
            }
            if at % 8 == 0 {
                two.wire.turn();
                two.hear();
            }
        }
        two.wire.pass_time();
        assert!(two.endpoint(0).is_open(others[0]), "after packet {n}");
    }
    two.run_until("the other transfer", |log| {
        log[0].iter().any(is_sent) && log[1].iter().any(is_received)
    });
    assert_eq!(two.bytes(1, area), bytes);
}

/// Packets for other ports, with other keys, from other addresses, for what does
/// not exist: refused, each under its reason, and nothing else changes.
#[test]
fn packets_for_others_change_nothing_but_a_counter() {
    let mut two = Two::new(small());
    let envelope = envelope_of(&mut two, 1);
    let message = Message::RequestToReceive { s_id: 0, serial: 9, len: 5, opaque: 0 };
    let mut cases = vec![
        (Envelope { d_key: envelope.d_key ^ 1, ..envelope }, message, Refusal::WrongKey),
        (Envelope { d_key: 0, ..envelope }, message, Refusal::WrongKey),
        (Envelope { d_port: 99, ..envelope }, message, Refusal::WrongAddress),
        (Envelope { s_port: 99, ..envelope }, message, Refusal::WrongAddress),
    ];
    let ids = Ids { d_id: 3, s_id: 0 };
    let (serial, verdict) = (0, Verdict::Pending);
    let dead = [
        Message::RequestAnswer { ids, serial, is_read: false, verdict },
        Message::RequestAnswer { ids, serial, is_read: true, verdict },
        Message::EndAck(Ending { ids, serial, by_receiver: true }),
        Message::EndAck(Ending { ids, serial, by_receiver: false }),
        Message::MemoryRegionAvailable { d_id: 3, serial, result: Err(Reason::Gone) },
        Message::RequestStateResponse(State::GetRefused { d_id: 3, serial, reason: Reason::Gone }),
        Message::RequestState(Question::Transfer { ids, serial: 5 }),
    ];
    cases.extend(dead.map(|message| (envelope, message, Refusal::UnknownId)));
    for (envelope, message, refusal) in cases {
        let before = (two.state(1), two.refusals(1).of(refusal));
        let mut packet = encode(envelope, &message);
        two.prove(1, &mut packet);
        assert_eq!(two.place(1, &packet), Err(refusal), "{message:?}");
        assert_eq!((two.state(1), two.refusals(1).of(refusal) - 1), before, "{message:?}");
    }
    let (now, before) = (two.wire.now, two.state(1));
    let packet = encode(envelope, &message);
    let stranger = place(&mut two.wire.sides[1].engine, now, &packet, Peer::Node(9));
    assert_eq!((stranger, two.state(1)), (Err(Refusal::WrongAddress), before));
}

/// Grants that name more than the transfer has, or what cannot be: refused, and
/// the sender reads nothing outside of its memory.
#[test]
fn grants_beyond_what_was_asked_are_refused() {
    let mut two = Two::new(small());
    let bytes = noise(1, 1_000);
    let area = two.transfer(two.ids, &bytes);
    two.exchange(0);
    let said = two.said(1);
    let is_grant = |packet: &&Vec<u8>| op(packet) == Op::ClearToSend;
    let good = said.iter().find(is_grant).unwrap();
    let (envelope, message) = decode(good);
    let Message::ClearToSend(grant) = message else { panic!("{message:?}") };
    let far = |lead, count, behind| Granted::Next { lead, count, behind };
    let bad = [
        (ClearToSend { block: 2, ..grant }, Refusal::OutOfBounds),
        (ClearToSend { block: u32::MAX, ..grant }, Refusal::OutOfBounds),
        (ClearToSend { granted: far(5, 5, 0), ..grant }, Refusal::OutOfBounds),
        (ClearToSend { granted: far(5, u16::MAX, 0), ..grant }, Refusal::OutOfBounds),
        (ClearToSend { granted: far(512, 1, 0), ..grant }, Refusal::Malformed),
        (ClearToSend { granted: far(5, 1, 1), ..grant }, Refusal::Malformed),
        (ClearToSend { stu: 4096, block_size: 12, ..grant }, Refusal::Malformed),
        (ClearToSend { stu: 513, ..grant }, Refusal::Malformed),
        (ClearToSend { offset: grant.offset + 128, stu: 96, ..grant }, Refusal::OutOfBounds),
        (ClearToSend { offset: grant.offset + 1, ..grant }, Refusal::OutOfBounds),
        (ClearToSend { sync: 7, ..grant }, Refusal::UnknownId),
        (ClearToSend { ids: Ids { d_id: 2, ..grant.ids }, ..grant }, Refusal::UnknownId),
        (ClearToSend { is_limited: true, ..grant }, Refusal::Unexpected),
        (ClearToSend { granted: Granted::Again(1 << 63 | 1), ..grant }, Refusal::Unexpected),
    ];
    for (grant, refusal) in bad {
        let packet = encode(envelope, &Message::ClearToSend(grant));
        let before = two.state(0);
        assert_eq!(two.place(0, &packet), Err(refusal), "{grant:?}");
        assert_eq!(two.state(0), before, "{grant:?}");
    }
    for packet in said {
        two.wire.inject(0, packet);
    }
    two.run_until("the transfer", |log| log[0].iter().any(is_sent));
    assert_eq!(two.bytes(1, area), bytes);
}

/// STUs outside of the granted Block, beyond the grant, of another length, and
/// again with other bytes.
#[test]
fn stus_that_were_not_granted_are_refused() {
    let mut two = Two::new(Config { window: 256, ..small() });
    let (area, packets) = two.granted(1_000);
    let with = |at: usize, bytes: &[u8]| {
        let mut packet = packets[0].clone();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        packet
    };
    let offset = |offset: u32| with(24, &offset.to_be_bytes());
    let bad = [
        (offset(0), Refusal::OutOfBounds),
        (offset(6), Refusal::Malformed),
        (offset(512), Refusal::OutOfBounds),
        (offset(u32::MAX), Refusal::OutOfBounds),
        // Of the Block, and not granted yet.
        (offset(384), Refusal::OutOfBounds),
        (with(16, &9u32.to_be_bytes()), Refusal::UnknownId),
        (packets[0][..100].to_vec(), Refusal::Truncated),
        ([&packets[0][..], &[0; 99]].concat(), Refusal::Malformed),
        (with(1, &[Flags::RESEND.0]), Refusal::Malformed),
    ];
    for (packet, refusal) in bad {
        let before = two.state(1);
        assert_eq!(two.place(1, &packet), Err(refusal));
        assert_eq!(two.state(1), before);
    }
    let mut twin = packets[0].clone();
    twin[40..].fill(0xee);
    for packet in &packets {
        two.wire.inject(1, packet.clone());
        two.wire.inject(1, twin.clone());
    }
    two.run_until("the transfer", |log| log[0].iter().any(is_sent));
    assert_eq!(two.bytes(1, area), noise(1_000, 1_000));
    two.check_contract();
}

/// Operations on foreign, revoked and unaligned memory, out of bounds and
/// without the right: each is answered, and has no effect.
#[test]
fn operations_on_what_is_not_theirs_are_answered_and_have_no_effect() {
    let mut two = Two::new(small());
    let (mine, _, _) = two.region(two.ids, 64);
    let others = two.connect();
    let (theirs, exposed, area) = two.region(others, 64);
    let before = two.bytes(1, area).to_vec();
    let wider = RemoteRegion { len: 1 << 40, ..mine };
    let ids = two.ids;
    let cases = [
        (ids, theirs, 0, Reason::NoRegion),
        (ids, RemoteRegion { handle: 0xffff_ffff, ..mine }, 0, Reason::NoRegion),
        (ids, wider, 60, Reason::OutOfBounds),
        (ids, wider, (1 << 40) - 8, Reason::OutOfBounds),
        (others, theirs, 0, Reason::NoRegion),
    ];
    two.endpoint(1).revoke(exposed).unwrap();
    for (ids, region, at, reason) in cases {
        let (now, seen) = (two.wire.now, two.log[0].len());
        let from = two.lend(0, 0, &noise(1, 8));
        two.endpoint(0).put(now, ids[0], &region, at, from, PutOptions::WITH_NOTICE).unwrap();
        let add = WordFunction::Add(1);
        let at = at / 8 * 8;
        two.endpoint(0).fetch_op(now, ids[0], &region, at, WordWidth::Eight, add).unwrap();
        let into = two.lend(0, 0, &[0; 8]);
        two.endpoint(0).get(now, ids[0], &region, at, into).unwrap();
        let is_end = |event: &Event| {
            matches!(
                event,
                Event::OperationEnded { why: Ended::There(_), .. }
                    | Event::ReceiveEnded { why: Ended::There(_), .. }
                    | Event::Fetched { .. }
                    | Event::GetDone { .. }
            )
        };
        two.run_until("three answers", |log| {
            log[0][seen..].iter().filter(|event| is_end(event)).count() == 3
        });
        let wanted = Ended::There(reason);
        let first = two.log[0][seen..].iter().find_map(|event| match event {
            Event::OperationEnded { why, .. } => Some(*why),
            _ => None,
        });
        assert_eq!(first, Some(wanted));
    }
    assert_eq!(two.bytes(1, area), before);
    assert!(!two.log[1].iter().any(|event| matches!(event, Event::Written { .. })));
    // The caller is told at once of what cannot be.
    let (now, id) = (two.wire.now, ids[0]);
    let add = WordFunction::Add(1);
    let unaligned = two.endpoint(0).fetch_op(now, id, &mine, 4, WordWidth::Eight, add);
    assert_eq!(unaligned, Err(stp_core::Error::Unaligned));
    let none = RemoteRegion { rights: Rights::NONE, ..mine };
    let forbidden = two.endpoint(0).fetch_op(now, id, &none, 8, WordWidth::Eight, add);
    assert_eq!(forbidden, Err(stp_core::Error::Forbidden));
    two.check_contract();
}

/// A flood of Request_Connection from ever new strangers: bounded state, and
/// the transfers of who is there go on.
#[test]
fn a_flood_of_requests_leaves_established_connections_alone() {
    let mut two = Two::new(small());
    let bytes = noise(1, 50_000);
    let area = two.transfer(two.ids, &bytes);
    let mut stranger = 0u32;
    for _ in 0..2_000 {
        for _ in 0..20 {
            stranger += 1;
            let offer = offer(stranger);
            let envelope = Envelope { d_port: two::PORT, s_port: 3, d_key: 0 };
            let packet = encode(envelope, &Message::RequestConnection(offer));
            let now = two.wire.now;
            let from = Peer::Node(100 + stranger);
            let _ = place(&mut two.wire.sides[1].engine, now, &packet, from);
            assert!(two.endpoint(1).connections() <= 3);
        }
        two.wire.turn();
        two.hear();
        if two.log[0].iter().any(is_sent) {
            break;
        }
    }
    two.run_until("the transfer", |log| log[0].iter().any(is_sent));
    assert_eq!(two.bytes(1, area), bytes);
    assert!(two.endpoint(1).stats().half_open_dropped > 0);
}

/// Lets time pass at one side alone, until it is so: the other is silent.
fn pass_time_alone(two: &mut Two, side: usize, what: &str, is_over: fn(&Event) -> bool) {
    for _ in 0..2_000 {
        two.hear();
        if two.log[side].iter().any(is_over) {
            return;
        }
        let engine = &mut two.wire.sides[side].engine;
        let Some(timeout) = engine.poll_timeout() else { break };
        two.wire.now = two.wire.now.max(timeout.at);
        engine.handle_timeout(two.wire.now);
        two.said(side);
    }
    panic!("{what} did not end: {:?}", two.log[side]);
}

#[test]
fn a_receiver_that_grants_and_falls_silent_is_given_up() {
    let mut two = Two::new(small());
    two.transfer(two.ids, &noise(1, 9_000));
    two.exchange(0);
    two.exchange(1);
    two.said(0);
    let ended = |event: &Event| matches!(event, Event::SendEnded { .. });
    pass_time_alone(&mut two, 0, "the send", ended);
}

#[test]
fn a_sender_that_never_finishes_is_given_up() {
    let mut two = Two::new(small());
    let (_, packets) = two.granted(3_000);
    let first = ticket(two.place(1, &packets[0]));
    let now = two.wire.now;
    two.wire.sides[1].engine.handle_placed(now, first, Landing::Unchecked);
    let ended = |event: &Event| matches!(event, Event::ReceiveEnded { .. });
    pass_time_alone(&mut two, 1, "the receive", ended);
    assert_eq!(two.endpoint(1).granted_bytes(), 0);
}
