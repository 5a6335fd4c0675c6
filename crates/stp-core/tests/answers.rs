//! What is said again is said in the same words, of what is not known nothing is said, and
//! what the page says of single fields.

use crate::two::{Two, decode, encode, is_sent, noise, op, small};
use landfall_placement::{Placement, Refusal};
use stp_core::wire::message::{ClearToSend, Get, Granted, Ids, Question, State, Verdict};
use stp_core::wire::{Envelope, Message, Op, Reason};
use stp_core::{Ended, Event, Rights};

/// What side 1 says to a packet of side 0, but for whether the two are alive.
fn answers(two: &mut Two, packet: &[u8]) -> Vec<Message> {
    two.wire.hand_in(1, &[packet.to_vec()]);
    two.hear();
    let is_alive = |message: &Message| {
        matches!(
            message,
            Message::RequestState(Question::Connection { .. })
                | Message::RequestStateResponse(State::Connection { .. })
        )
    };
    let said = two.said(1).into_iter().map(|packet| decode(&packet).1);
    said.filter(|message| !is_alive(message)).collect()
}

/// A Request_To_Send with this number, as its sender would have said it.
fn renumbered(packet: &[u8], number: u32) -> Vec<u8> {
    let (envelope, message) = decode(packet);
    let Message::RequestToSend { s_id, len, max_block, opaque, answers, .. } = message else {
        panic!("{message:?}");
    };
    let message = Message::RequestToSend {
        s_id,
        serial: number,
        len,
        max_block,
        opaque,
        answers,
        is_eager: false,
    };
    encode(envelope, &message)
}

#[test]
fn data_with_a_wrong_sync_is_refused() {
    let mut two = Two::new(small());
    let (area, packets) = two.granted(300);
    for bit in 0..16 {
        let mut wrong = packets[0].clone();
        wrong[14 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(two.place(1, &wrong), Err(Refusal::Malformed), "bit {bit}");
    }
    two.wire.hand_in(1, &packets);
    assert_eq!(two.bytes(1, area), noise(300, 300));
}

#[test]
fn data_names_nobody_who_sends_it() {
    let mut two = Two::new(small());
    let other = two.ids;
    two.transfer(other, &noise(1, 10));
    let (_, packets) = two.granted(300);
    assert!(packets.iter().all(|packet| packet[38..40] == [0, 0]), "{packets:x?}");
    assert!(packets.len() > 1);
}

/// Whatever is refused is refused again for the same reason.
#[test]
fn a_refusal_that_is_repeated_has_the_same_reason() {
    for reason in Reason::ALL {
        let mut two = Two::new(small());
        let (now, [near, far]) = (two.wire.now, two.ids);
        let from = two.lend(0, 0, &noise(1, 20));
        two.endpoint(0).send(now, near, from, 0).unwrap();
        two.endpoint(0).read(now, near, from, 0).unwrap();
        two.endpoint(0).request_region(now, near, 5, 20, Rights::ALL).unwrap();
        let asked = two.said(0);
        assert_eq!(asked.len(), 3);
        for packet in &asked {
            let _ = answers(&mut two, packet);
        }
        for event in two.log[1].clone() {
            match event {
                Event::Offered { receive, .. } => two.endpoint(1).refuse(receive, reason).unwrap(),
                Event::ReadRequested { read, .. } => {
                    two.endpoint(1).refuse_read(now, read, reason).unwrap();
                }
                Event::RegionRequested { request, .. } => {
                    two.endpoint(1).refuse_region(request, reason).unwrap();
                }
                _ => {}
            }
        }
        let said: Vec<_> = two.said(1).iter().map(|packet| decode(packet).1).collect();
        assert_eq!(said.len(), 3);
        for packet in &asked {
            let again = answers(&mut two, packet);
            assert!(again.iter().all(|message| said.contains(message)), "{again:?}: {said:?}");
            assert_eq!(again.len(), 1);
        }
        let _ = far;
    }
}

/// A Transfer that was refused is not called complete, however far back it lies; before the
/// first there is none.
#[test]
fn what_is_far_back_is_answered_as_it_ended() {
    let mut two = Two::new(small());
    let (now, near) = (two.wire.now, two.ids[0]);
    let from = two.lend(0, 0, &noise(1, 20));
    two.endpoint(0).send(now, near, from, 0).unwrap();
    let first = two.said(0).remove(0);
    assert_eq!(answers(&mut two, &renumbered(&first, u32::MAX)), []);
    let _ = answers(&mut two, &first);
    let offered = two.log[1].iter().find_map(|event| match event {
        Event::Offered { receive, .. } => Some(*receive),
        _ => None,
    });
    two.endpoint(1).refuse(offered.unwrap(), Reason::Refused).unwrap();
    for packet in two.said(1) {
        two.wire.hand_in(0, &[packet]);
    }
    two.hear();
    let is_refused = |event: &Event| {
        matches!(event, Event::SendEnded { why: Ended::There(Reason::Refused), .. })
    };
    assert!(two.log[0].iter().any(is_refused));
    for n in 0..200 {
        two.transfer(two.ids, &[1]);
        two.run_until("a transfer", |log| {
            log[0].iter().filter(|event| matches!(event, Event::Sent { .. })).count() == n + 1
        });
    }
    let again = answers(&mut two, &first);
    let is_refusal = |message: &Message| {
        let verdict = Verdict::Rejected(Reason::Refused);
        matches!(message, Message::RequestAnswer { verdict: said, .. } if *said == verdict)
    };
    assert!(again.len() == 1 && is_refusal(&again[0]), "{again:?}");
    let last = answers(&mut two, &renumbered(&first, 200));
    let is_complete = |message: &Message| {
        let state = State::Transfer {
            ids: Ids { d_id: 0, s_id: 0 },
            serial: 200,
            acked: 0,
            len: u64::MAX,
            is_complete: true,
        };
        *message == Message::RequestStateResponse(state)
    };
    assert!(last.len() == 1 && is_complete(&last[0]), "{last:?}");
}

/// What packets of side 1 to side 0 have.
fn envelope_of(two: &mut Two) -> Envelope {
    let (now, far) = (two.wire.now, two.ids[1]);
    two.endpoint(1).request_region(now, far, 1, 8, Rights::ALL).unwrap();
    decode(&two.said(1)[0]).0
}

/// The last Block of a receiver's memory may end where 32 bits do.
#[test]
fn a_block_may_end_at_two_to_the_32() {
    for lead in [0u32, 100] {
        let mut two = Two::new(small());
        let (now, near) = (two.wire.now, two.ids[0]);
        let bytes = noise(1, 512 - lead as usize);
        let from = two.lend(0, 0, &bytes);
        two.endpoint(0).send(now, near, from, 0).unwrap();
        let request = decode(&two.said(0)[0]).1;
        let Message::RequestToSend { s_id, serial, .. } = request else { panic!("{request:?}") };
        let start = 0u32.wrapping_sub(512) + lead;
        let grant = ClearToSend {
            ids: Ids { d_id: s_id, s_id: 3 },
            sync: serial as u16,
            block: 0,
            bufx: 7,
            offset: start,
            attempt: 1,
            stu: 128,
            block_size: 9,
            eager: 0,
            is_limited: false,
            granted: Granted::Next { lead, count: 4, behind: 0 },
        };
        let envelope = envelope_of(&mut two);
        let again = ClearToSend {
            attempt: 2,
            offset: start.wrapping_add(384),
            granted: Granted::Again(1),
            ..grant
        };
        for (grant, count) in [(grant, 4), (again, 1)] {
            let packet = encode(envelope, &Message::ClearToSend(grant));
            assert_eq!(two.place(0, &packet), Ok(Placement::Consumed));
            let data = two.said(0);
            let mut got = Vec::new();
            for packet in &data {
                let Message::Data { offset, is_last, .. } = decode(packet).1 else {
                    panic!("{packet:x?}");
                };
                assert_eq!(offset, grant.offset.wrapping_add(got.len() as u32));
                got.extend_from_slice(&packet[40..]);
                assert_eq!(is_last, offset.wrapping_add(packet.len() as u32 - 40) == 0);
            }
            assert_eq!(data.len(), count);
            assert!(bytes.ends_with(&got));
        }
    }
}

/// So may what a Get asks for.
#[test]
fn a_get_may_end_at_two_to_the_32() {
    let mut two = Two::new(small());
    let (region, _, _) = two.region(two.ids, 300);
    let (now, near) = (two.wire.now, two.ids[0]);
    let from = two.lend(0, 0, &[0; 8]);
    two.endpoint(0).send(now, near, from, 0).unwrap();
    let envelope = decode(&two.said(0)[0]).0;
    let get = |offset| Get {
        s_id: 3,
        after: 0,
        handle: region.handle,
        at: 0,
        len: 300,
        serial: 9,
        block: 0,
        bufx: 7,
        offset,
        stu: 128,
    };
    let fits = encode(envelope, &Message::Get(get(0u32.wrapping_sub(300))));
    assert_eq!(two.place(1, &fits), Ok(Placement::Consumed));
    let data = two.said(1);
    assert!(data.iter().all(|packet| op(packet) == Op::Data));
    assert_eq!(data.iter().map(|packet| packet.len() - 40).sum::<usize>(), 300);
    let too_far = encode(envelope, &Message::Get(get(0u32.wrapping_sub(299))));
    assert_eq!(two.place(1, &too_far), Err(Refusal::Malformed));
}

/// What its receiver said last of a Transfer is lost, and a later one is over: the first is asked
/// about after a round trip, and not after several in which nothing is heard.
#[test]
fn a_transfer_whose_completion_was_lost_is_asked_about_when_a_later_one_is_complete() {
    let mut two = Two::new(small());
    let (_, packets) = two.granted(300);
    two.wire.hand_in(1, &packets);
    let lost = two.said(1);
    assert!(lost.iter().any(|packet| op(packet) == Op::RequestStateResponse), "{lost:x?}");
    two.transfer(two.ids, &noise(2, 300));
    two.run_until("the second", |log| log[0].iter().any(is_sent));
    let (second, floor) = (two.wire.now, small().retry_floor);
    two.run_until("the first", |log| log[0].iter().filter(|event| is_sent(event)).count() == 2);
    let waited = two.wire.now.since(second);
    assert!(waited <= floor, "{waited:?}, and a time-out is at least {floor:?}");
    two.check_contract();
}
