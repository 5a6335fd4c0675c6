//! Connections that end while drivers are at something of theirs: once a driver
//! has given its last ticket back, nothing is held and nothing is left.

use std::collections::VecDeque;
use std::time::Duration;

use crate::two::{PORT, Two, Wire, decode, encode, noise, offer, op, small, ticket};
use landfall_placement::{
    Engine, Landing, Peer, Placement, Refusal, Spans, Ticket, WordFunction, WordWidth,
};
use proptest::prelude::*;
use stp_core::wire::message::{Ahead, Ids, State};
use stp_core::wire::{Message, Op, Reason};
use stp_core::{Config, Connect, Error, Event, PutOptions, RemoteRegion};

/// What the other side of a side says that wants the connection to be over and
/// forgotten at once.
fn end_at_once(two: &Two, side: usize, like: &[u8]) -> [Vec<u8>; 2] {
    let (envelope, _) = decode(like);
    let ids = Ids::default();
    let abort = Message::RequestDisconnect { ids, abort: Some(Reason::Cancelled) };
    [abort, Message::DisconnectComplete { ids }].map(|message| {
        let mut packet = encode(envelope, &message);
        two.prove(side, &mut packet);
        packet
    })
}

fn is_revoked(event: &Event) -> bool {
    matches!(event, Event::Revoked { .. })
}

/// A Put and a FetchOp have places, and in the same batch the connection ends and
/// is forgotten: the region comes back with their landings, whatever those are.
#[test]
fn a_region_comes_back_when_operations_land_after_their_connection() {
    for landing in [Landing::Unchecked, Landing::Old(3), Landing::Corrupt, Landing::Failed] {
        let mut two = Two::new(small());
        let (region, _, area) = two.region(two.ids, 64);
        let (now, id) = (two.wire.now, two.ids[0]);
        let from = two.lend(0, 0, &noise(1, 8));
        let put = two.endpoint(0).put(now, id, &region, 0, from, PutOptions::default());
        let add = WordFunction::Add(1);
        let fetch = two.endpoint(0).fetch_op(now, id, &region, 8, WordWidth::Eight, add);
        assert!(put.is_ok() && fetch.is_ok());
        let packets = two.said(0);
        let tickets: Vec<_> = packets.iter().map(|packet| ticket(two.place(1, packet))).collect();
        for packet in end_at_once(&two, 1, &packets[0]) {
            assert_eq!(two.place(1, &packet), Ok(Placement::Consumed));
        }
        two.hear();
        assert!(!two.log[1].iter().any(is_revoked), "a driver writes to it");
        for ticket in tickets {
            assert_eq!(two.log[1].iter().filter(|event| is_revoked(event)).count(), 0);
            two.endpoint(1).handle_placed(now, ticket, landing);
        }
        two.hear();
        let revoked = two.log[1].iter().filter(|event| is_revoked(event));
        let memory: Vec<_> = revoked
            .map(|event| match event {
                Event::Revoked { memory, .. } => *memory,
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(memory, [area], "{landing:?}");
        assert_eq!(two.endpoint(1).connections(), 0, "{landing:?}");
        let closed = |event: &&Event| matches!(event, Event::Closed { .. });
        assert_eq!(two.log[1].iter().filter(closed).count(), 1, "told once: {landing:?}");
        assert_eq!(two.said(1).len(), 1, "the answer to the abort, and nothing after it");
    }
}

/// Who asks for the end has nothing more to begin; what the other side has under way is
/// served until that answers.
#[test]
fn a_get_goes_on_while_the_other_side_asks_for_the_end() {
    let mut two = Two::new(small());
    let (region, _, _) = two.region(two.ids, 64);
    let (now, [near, far]) = (two.wire.now, two.ids);
    let into = two.lend(0, 0, &[0xff; 64]);
    let get = two.endpoint(0).get(now, near, &region, 0, into).unwrap();
    let asked = two.said(0);
    two.endpoint(1).close(now, far).unwrap();
    let ends: Vec<_> = two.said(1).iter().map(|packet| op(packet)).collect();
    assert_eq!(ends, [Op::RequestDisconnect]);
    for packet in asked {
        assert_eq!(two.place(1, &packet), Ok(Placement::Consumed));
    }
    let is_closed = |event: &Event| matches!(event, Event::Closed { .. });
    two.run_until("the end", |log| log.iter().all(|events| events.iter().any(is_closed)));
    let is_it = |event: &Event| matches!(event, Event::GetDone { receive, .. } if *receive == get);
    assert!(two.log[0].iter().any(is_it), "{:?}", two.log[0]);
    assert_eq!(two.bytes(0, into), [0; 64]);
    two.check_contract();
}

/// A Transfer that was cancelled is the last that a connection waits for: then it asks for its
/// end, and waits for the answer before it asks again.
#[test]
fn a_close_that_waits_for_a_cancelled_transfer_asks_for_the_end_once() {
    let mut two = Two::new(small());
    let (area, _) = two.granted(64);
    two.wire.now += Duration::from_secs(1);
    let (now, far) = (two.wire.now, two.ids[1]);
    two.endpoint(1).close(now, far).unwrap();
    two.endpoint(1).withdraw(now, far, area).unwrap();
    two.exchange(1);
    two.exchange(0);
    let ops = |packets: Vec<Vec<u8>>| packets.iter().map(|packet| op(packet)).collect::<Vec<_>>();
    assert_eq!(ops(two.said(1)), [Op::RequestDisconnect], "the End was acknowledged");
    let now = two.wire.now;
    two.endpoint(1).handle_timeout(now);
    assert_eq!(ops(two.said(1)), [], "it has only just asked");
    let is_closed = |event: &Event| matches!(event, Event::Closed { .. });
    two.run_until("the end", |log| log.iter().all(|events| events.iter().any(is_closed)));
    two.check_contract();
}

/// A driver gives the ticket of a transmission out of a region back twice: that does not
/// count for what is written to the region (invariant 7).
#[test]
fn invariant_7_a_ticket_of_a_get_does_not_end_a_put() {
    let mut two = Two::new(small());
    let (region, exposed, _) = two.region(two.ids, 64);
    let (now, near) = (two.wire.now, two.ids[0]);
    let into = two.lend(0, 0, &[0; 8]);
    two.endpoint(0).get(now, near, &region, 0, into).unwrap();
    for packet in two.said(0) {
        assert_eq!(two.place(1, &packet), Ok(Placement::Consumed));
    }
    let (mut head, mut from) = ([0; 256], Spans::new());
    let sent = two.endpoint(1).poll_transmit(now, Wire::PATH, &mut head, &mut from).unwrap();
    assert_eq!(op(&head[..40]), Op::Data);
    two.endpoint(1).handle_sent(now, sent.ticket);
    let from = two.lend(0, 0, &noise(1, 8));
    two.endpoint(0).put(now, near, &region, 0, from, PutOptions::default()).unwrap();
    let packets = two.said(0);
    let put = packets.iter().find(|packet| op(packet) == Op::Put).unwrap();
    let placed = ticket(two.place(1, put));
    two.endpoint(1).revoke(exposed).unwrap();
    two.endpoint(1).handle_sent(now, sent.ticket);
    two.hear();
    assert!(!two.log[1].iter().any(is_revoked), "a driver writes to it");
    two.endpoint(1).handle_placed(now, placed, Landing::Unchecked);
    two.hear();
    assert!(two.log[1].iter().any(is_revoked));
}

/// The place in the table is used again: a ticket of who was there before must not
/// announce what is under way for who is there now (invariant 7).
#[test]
fn invariant_7_a_ticket_of_an_earlier_connection_lands_nothing() {
    let mut two = Two::new(small());
    let mut old = Vec::new();
    for round in 0..2 {
        let (region, _, _) = two.region(two.ids, 64);
        let (now, id) = (two.wire.now, two.ids[0]);
        let from = two.lend(0, 0, &noise(1, 8));
        two.endpoint(0).put(now, id, &region, 0, from, PutOptions::WITH_NOTICE).unwrap();
        let packets = two.said(0);
        let placed = ticket(two.place(1, &packets[0]));
        if let Some(old) = old.pop() {
            assert_ne!(old, placed);
            let before = two.state(1);
            for landing in [Landing::Unchecked, Landing::Failed, Landing::Old(1)] {
                two.endpoint(1).handle_placed(now, old, landing);
            }
            assert_eq!(two.state(1), before, "round {round}");
        }
        for packet in end_at_once(&two, 1, &packets[0]) {
            assert_eq!(two.place(1, &packet), Ok(Placement::Consumed));
        }
        two.endpoint(1).handle_placed(now, placed, Landing::Unchecked);
        old.push(placed);
        two.endpoint(0).abort(now, id, Reason::Cancelled).unwrap();
        two.said(0);
        assert_eq!(two.endpoint(1).connections(), 0);
        let (before, seen) = (two.ids[1], two.log[1].len());
        two.ids = two.connect();
        assert_ne!(two.ids[1], before);
        assert!(two.log[1].len() > seen);
    }
}

/// The serial numbers of two Puts may have the same low bits. A driver that lets
/// go of the second still reads the memory of the first (invariant 2).
#[test]
fn invariant_2_puts_whose_numbers_look_alike_are_told_apart() {
    /// The numbers of this many packets later look the same in 16 bits.
    const PACKETS: u32 = 1 << 16;
    let mut two = Two::new(small());
    let (region, _, _) = two.region(two.ids, 8);
    let region = RemoteRegion { len: 1 << 30, ..region };
    let (now, [id, other]) = (two.wire.now, two.ids);
    let long = two.lend(0, 0, &vec![1; (PACKETS as usize) << small().max_stu]);
    let short = two.lend(0, 0, &[2; 8]);
    two.endpoint(0).put(now, id, &region, 0, long, PutOptions::default()).unwrap();
    two.endpoint(0).put(now, id, &region, 0, short, PutOptions::default()).unwrap();
    let empty = two.lend(1, 0, &[]);
    two.endpoint(1).send(now, other, empty, 0).unwrap();
    let (answers, _) = decode(&two.said(1)[0]);
    let (mut head, mut from, mut next, mut held) = ([0; 256], Spans::new(), 0, Vec::new());
    while held.len() < 2 {
        from.clear();
        let engine = two.endpoint(0);
        if let Some(sent) = engine.poll_transmit(now, Wire::PATH, &mut head, &mut from) {
            let Message::Put { serial, .. } = decode(&head[..40]).1 else { panic!("a Put") };
            assert_eq!(serial, next);
            next += 1;
            if serial % PACKETS == 0 {
                held.push(sent.ticket);
            } else {
                engine.handle_sent(now, sent.ticket);
            }
        } else {
            let state = State::Memory { applied: next, refused: None, ahead: Ahead::default() };
            let mut answer = encode(answers, &Message::RequestStateResponse(state));
            two.prove(0, &mut answer);
            assert_eq!(two.place(0, &answer), Ok(Placement::Consumed));
        }
    }
    let state = State::Memory { applied: next, refused: None, ahead: Ahead::default() };
    let mut answer = encode(answers, &Message::RequestStateResponse(state));
    two.prove(0, &mut answer);
    assert_eq!(two.place(0, &answer), Ok(Placement::Consumed));
    let done = |two: &mut Two| {
        two.hear();
        two.log[0].iter().filter(|event| matches!(event, Event::PutDone { .. })).count()
    };
    assert_eq!(done(&mut two), 0, "a driver reads both");
    two.endpoint(0).handle_sent(now, held[1]);
    assert_eq!(done(&mut two), 0, "a driver reads the first, and they end in order");
    two.endpoint(0).handle_sent(now, held[0]);
    assert_eq!(done(&mut two), 2);
}

/// One side of the property below: what came, what has a place, what is sent.
#[derive(Default)]
struct Hands {
    inbox: VecDeque<Vec<u8>>,
    placed: VecDeque<(Ticket, bool)>,
    held: VecDeque<Ticket>,
}

impl Hands {
    /// Sends what there is, and lets go of nothing. What it reads counts for nothing.
    fn send(&mut self, two: &mut Two, side: usize) -> Vec<Vec<u8>> {
        let (now, mut packets) = (two.wire.now, Vec::new());
        let (mut head, mut from) = ([0; 256], Spans::new());
        while packets.len() < 64 {
            from.clear();
            let engine = two.endpoint(side);
            let Some(sent) = engine.poll_transmit(now, Wire::PATH, &mut head, &mut from) else {
                break;
            };
            self.held.push_back(sent.ticket);
            let mut packet = head[..usize::from(sent.head_len)].to_vec();
            packet.resize(packet.len() + from.total_len() as usize, 7);
            packets.push(packet);
        }
        packets
    }

    fn place(&mut self, two: &mut Two, side: usize) {
        let Some(packet) = self.inbox.pop_front() else { return };
        match two.place(side, &packet) {
            Ok(Placement::Into { ticket, .. }) => self.placed.push_back((ticket, false)),
            Ok(Placement::Word(_, ticket)) => self.placed.push_back((ticket, true)),
            _ => {}
        }
    }

    fn land(&mut self, two: &mut Two, side: usize, fails: bool) {
        let Some((ticket, is_word)) = self.placed.pop_front() else { return };
        let landing = match (fails, is_word) {
            (true, _) => Landing::Failed,
            (_, true) => Landing::Old(1),
            _ => Landing::Unchecked,
        };
        let now = two.wire.now;
        two.endpoint(side).handle_placed(now, ticket, landing);
    }

    fn release(&mut self, two: &mut Two, side: usize) {
        let now = two.wire.now;
        if let Some(ticket) = self.held.pop_front() {
            two.endpoint(side).handle_sent(now, ticket);
        }
    }
}

/// How many things of a user were begun, and how many came to their end.
fn ends(log: &[Event]) -> usize {
    let is_end = |event: &&Event| {
        matches!(
            event,
            Event::Sent { .. }
                | Event::SendEnded { .. }
                | Event::Received { .. }
                | Event::ReceiveEnded { .. }
                | Event::Unposted { .. }
                | Event::PutDone { .. }
                | Event::GetDone { .. }
                | Event::Fetched { .. }
                | Event::OperationEnded { .. }
                | Event::Revoked { .. }
        )
    };
    log.iter().filter(is_end).count()
}

/// Everything that takes memory, from both sides.
fn begin_all(two: &mut Two, regions: [RemoteRegion; 2]) -> [usize; 2] {
    let now = two.wire.now;
    for (side, region) in regions.iter().enumerate() {
        let id = two.ids[side];
        let [put, get, send, post] =
            [20, 200, 700, 700].map(|len| two.lend(side, 0, &vec![5; len]));
        let engine = two.endpoint(side);
        engine.post(now, id, post, false).unwrap();
        engine.send(now, id, send, 1).unwrap();
        engine.put(now, id, region, 0, put, PutOptions::WITH_NOTICE).unwrap();
        engine.fetch_op(now, id, region, 64, WordWidth::Eight, WordFunction::Add(1)).unwrap();
        engine.put(now, id, region, 0, put, PutOptions::default()).unwrap();
        engine.get(now, id, region, 0, get).unwrap();
    }
    // What was exposed comes back, too.
    [7; 2]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes in whatever order, with ends of connections and of regions
    /// between a place and its landing, and between a transmission and its end:
    /// once every ticket came back, and who waits for the other side has given up,
    /// all memory is its user's again and no connection is left.
    #[test]
    fn once_all_tickets_came_back_nothing_is_held(
        steps in prop::collection::vec((0u8..12, 0usize..2, 1usize..9), 0..60),
        is_summed: bool,
    ) {
        let config = Config { exposed: 4, checksum: is_summed, give_up_after: 2, ..small() };
        let mut two = Two::new(config);
        let (first, exposed, _) = two.region(two.ids, 256);
        let (second, other, _) = two.region_of(0, two.ids, 256);
        let begun = begin_all(&mut two, [first, second]);
        let mut hands = [Hands::default(), Hands::default()];
        for (what, side, count) in steps {
            let (now, id) = (two.wire.now, two.ids[side]);
            match what {
                0..=2 => {
                    let packets = hands[side].send(&mut two, side);
                    hands[1 - side].inbox.extend(packets);
                }
                3..=5 => (0..count).for_each(|_| hands[side].place(&mut two, side)),
                6 => (0..count).for_each(|_| hands[side].land(&mut two, side, count == 8)),
                7 => (0..count).for_each(|_| hands[side].release(&mut two, side)),
                8 => {
                    let _ = two.endpoint(side).abort(now, id, Reason::Cancelled);
                }
                9 => {
                    let _ = two.endpoint(side).close(now, id);
                }
                10 => {
                    let _ = two.endpoint(side).revoke([other, exposed][side]);
                }
                _ => {
                    let like = hands[side].inbox.iter().find(|packet| op(packet) == Op::Put);
                    if let Some(like) = like.cloned() {
                        hands[side].inbox.extend(end_at_once(&two, side, &like));
                    }
                }
            }
            two.hear();
        }
        for (side, hands) in hands.iter_mut().enumerate() {
            let (now, id) = (two.wire.now, two.ids[side]);
            let _ = two.endpoint(side).abort(now, id, Reason::Cancelled);
            while !hands.placed.is_empty() {
                hands.land(&mut two, side, false);
            }
            while !hands.held.is_empty() {
                hands.release(&mut two, side);
            }
        }
        for (side, begun) in begun.into_iter().enumerate() {
            for _ in 0..200 {
                let Some(timeout) = two.endpoint(side).poll_timeout() else { break };
                two.wire.now = two.wire.now.max(timeout.at);
                let now = two.wire.now;
                two.endpoint(side).handle_timeout(now);
                let engine = two.endpoint(side);
                let (mut head, mut from) = ([0; 256], Spans::new());
                while let Some(sent) = engine.poll_transmit(now, Wire::PATH, &mut head, &mut from) {
                    engine.handle_sent(now, sent.ticket);
                    from.clear();
                }
            }
            two.hear();
            prop_assert_eq!(two.endpoint(side).connections(), 0);
            prop_assert_eq!(two.endpoint(side).granted_bytes(), 0);
            prop_assert_eq!(ends(&two.log[side]), begun, "{:?}", two.log[side]);
        }
    }
}

/// One side has forgotten a connection; a request of old, doubled by the network, comes there
/// once more and is answered anew. Who still has the connection does not go over to the new one.
#[test]
fn an_old_request_that_is_answered_anew_moves_no_connection_that_was_proved() {
    let mut two = Two::new(small());
    two.wire.settle(20);
    let now = two.wire.now;
    let connect = Connect { port: PORT, local_port: None, hello: 1 };
    two.endpoint(0).connect(now, Wire::PATH, Peer::Node(1), connect).unwrap();
    let request = two.said(0).pop().unwrap();
    assert_eq!(op(&request), Op::RequestConnection);
    assert_eq!(two.place(1, &request), Ok(Placement::Consumed));
    two.wire.settle(20);
    while two.endpoint(1).connections() > 0 {
        two.wire.now = two.wire.sides[1].engine.poll_timeout().unwrap().at;
        let now = two.wire.now;
        two.wire.sides[1].engine.handle_timeout(now);
        two.said(1);
    }
    // It asks whether the other side is alive, and hears nothing yet.
    let now = two.wire.now;
    two.wire.sides[0].engine.handle_timeout(now);
    two.said(0);
    assert_eq!(two.place(1, &request), Ok(Placement::Consumed));
    let answer = two.said(1).pop().unwrap();
    assert_eq!(op(&answer), Op::ConnectionAnswer);
    assert_eq!(two.place(0, &answer), Err(Refusal::Duplicate));
}

/// Our request is answered twice, by two, and the first asked for something before it proved
/// itself. The connection ends: what was asked is not answered to somebody else.
#[test]
fn what_was_asked_by_who_answered_first_is_not_answered_to_another() {
    let mut two = Two::new(small());
    two.wire.settle(20);
    let now = two.wire.now;
    let connect = Connect { port: PORT, local_port: None, hello: 7 };
    let near = two.endpoint(0).connect(now, Wire::PATH, Peer::Node(1), connect).unwrap();
    let request = two.said(0).pop().unwrap();
    let Message::RequestConnection(own) = decode(&request).1 else { panic!("a request") };
    assert_eq!(two.place(1, &request), Ok(Placement::Consumed));
    let answer = two.said(1).pop().unwrap();
    assert_eq!(two.place(0, &answer), Ok(Placement::Consumed));
    two.exchange(0);
    let far = two.log[1].iter().find_map(|event| match event {
        Event::Accepted { connection, hello: 7, .. } => Some(*connection),
        _ => None,
    });
    let into = two.lend(1, 0, &[0; 8]);
    two.endpoint(1).read(now, far.unwrap(), into, 1).unwrap();
    // Its proof comes later.
    let read = two.said(1).into_iter().find(|packet| op(packet) == Op::RequestToReceive).unwrap();
    assert_eq!(two.place(0, &read), Ok(Placement::Consumed));
    two.hear();
    let asked = two.log[0].iter().find_map(|event| match event {
        Event::ReadRequested { read, connection, .. } if *connection == near => Some(*read),
        _ => None,
    });
    assert_eq!(answered_by_another(&mut two, own.s_id, &read), Err(Refusal::Duplicate));
    let is_closed =
        |event: &Event| matches!(event, Event::Closed { connection, .. } if *connection == near);
    assert!(two.log[0].iter().any(is_closed), "{:?}", two.log[0]);
    let from = two.lend(0, 0, &[1; 8]);
    assert_eq!(two.endpoint(0).answer_read(now, asked.unwrap(), from, 2), Err(Error::Unknown));
}

/// An old request met ours. Until it proved itself nothing begins, there or here: the true
/// answer is believed, and the connection is its own from the first byte.
#[test]
fn what_an_old_request_asks_is_not_taken_before_its_proof() {
    let mut two = Two::new(small());
    two.wire.settle(20);
    let now = two.wire.now;
    let ask = |local, port| Connect { port, local_port: Some(local), hello: 1 };
    let far = two.endpoint(1).connect(now, Wire::PATH, Peer::Node(0), ask(200, 100)).unwrap();
    let old = two.said(1).pop().unwrap();
    let near = two.endpoint(0).connect(now, Wire::PATH, Peer::Node(1), ask(100, 200)).unwrap();
    let request = two.said(0).pop().unwrap();
    let Message::RequestConnection(own) = decode(&request).1 else { panic!("a request") };
    assert_eq!(two.place(0, &old), Ok(Placement::Consumed));
    let area = two.lend(0, 0, &[1; 8]);
    assert_eq!(two.endpoint(0).send(now, near, area, 1), Err(Error::NotOpen));
    let answer = two.said(0).into_iter().find(|packet| op(packet) == Op::ConnectionAnswer);
    assert_eq!(two.place(1, &answer.unwrap()), Ok(Placement::Consumed));
    let into = two.lend(1, 0, &[0; 8]);
    two.endpoint(1).read(now, far, into, 1).unwrap();
    let read = two.said(1).into_iter().find(|packet| op(packet) == Op::RequestToReceive).unwrap();
    assert_eq!(two.place(0, &read), Err(Refusal::Unexpected));
    two.hear();
    let is_told =
        |event: &Event| matches!(event, Event::Connected { connection, .. } if *connection == near);
    assert!(!two.log[0].iter().any(is_told), "{:?}", two.log[0]);
    assert_eq!(answered_by_another(&mut two, own.s_id, &read), Ok(Placement::Consumed));
    assert_eq!(two.log[0].iter().filter(|event| is_told(event)).count(), 1);
    // The key is another now: who has the old one asks in vain.
    assert_eq!(two.place(0, &read), Err(Refusal::WrongKey));
    two.check_contract();
}

/// An answer to side 0 from who is neither of the two, in the envelope of a packet that came.
fn answered_by_another(two: &mut Two, d_id: u16, like: &[u8]) -> Result<Placement, Refusal> {
    let answers = Message::ConnectionAnswer { d_id, result: Ok(offer(77)) };
    let mut packet = encode(decode(like).0, &answers);
    two.prove(0, &mut packet);
    let placed = two.place(0, &packet);
    two.hear();
    placed
}
