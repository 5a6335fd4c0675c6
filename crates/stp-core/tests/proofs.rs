//! Who is believed: what ends or answers something is proved with secrets of the
//! set-up, and a link belongs to who is heard there.

use crate::two::{Two, Wire, decode, encode, offer, op, place, seal, small};
use landfall_placement::{Engine, Peer, Placement, Refusal, Spans};
use proptest::prelude::*;
use stp_core::wire::message::{
    Ahead, AvailableRegion, Ending, Ids, Message, Offer, Question, State, Verdict,
};
use stp_core::wire::proof::{Secret, Secrets};
use stp_core::wire::{Envelope, HEADER_LEN, Header, Op, Reason, proof};
use stp_core::{Admission, Config, Connect, Ended, Endpoint, Event};

/// Where the second link of side 0 leads, and how side 1 sees it; and where
/// somebody else is.
const THERE: Peer = Peer::Node(7);
const HERE: Peer = Peer::Node(8);
const ELSEWHERE: Peer = Peer::Node(9);

/// What a side says, and to whom.
fn said(two: &mut Two, side: usize) -> Vec<(Peer, Vec<u8>)> {
    let (now, mut packets) = (two.wire.now, Vec::new());
    let (mut head, mut from) = ([0; 256], Spans::new());
    let engine = two.endpoint(side);
    while let Some(sent) = engine.poll_transmit(now, Wire::PATH, &mut head, &mut from) {
        engine.handle_sent(now, sent.ticket);
        packets.push((sent.to, head[..usize::from(sent.head_len)].to_vec()));
        from.clear();
    }
    packets
}

/// A side takes in a packet from somewhere.
fn hear(two: &mut Two, side: usize, from: Peer, packet: &[u8]) -> Result<Placement, Refusal> {
    let now = two.wire.now;
    let result = place(&mut two.wire.sides[side].engine, now, packet, from);
    two.hear();
    result
}

/// What packets for a side carry, from the other side of its connection.
fn envelope_to(two: &mut Two, side: usize) -> Envelope {
    let (now, id) = (two.wire.now, two.ids[1 - side]);
    let empty = two.lend(1 - side, 0, &[]);
    let send = two.endpoint(1 - side).send(now, id, empty, 0).unwrap();
    let packets = said(two, 1 - side);
    two.endpoint(1 - side).cancel_send(now, send).unwrap();
    said(two, 1 - side);
    decode(&packets[0].1).0
}

fn links(two: &mut Two, side: usize) -> usize {
    let id = two.ids[side];
    two.endpoint(side).links_of(id).map_or(0, |links| links.len())
}

/// All that must carry a proof, by the rule that it ends or answers something.
fn proved_operations() -> Vec<Message> {
    let (ids, serial) = (Ids::default(), 0);
    let abort = Some(Reason::Cancelled);
    let ending = Ending { ids, serial, by_receiver: true };
    let region = AvailableRegion { handle: 1, len: 8, rights: 7, window: 0 };
    let answer = |is_read, verdict| Message::RequestAnswer { ids, serial, is_read, verdict };
    let transfer = |is_complete| State::Transfer { ids, serial, acked: 0, len: 0, is_complete };
    vec![
        Message::ConnectionAnswer { d_id: 0, result: Err(Reason::Busy) },
        Message::RequestDisconnect { ids, abort },
        Message::RequestDisconnect { ids, abort: None },
        Message::DisconnectAnswer { ids },
        Message::DisconnectComplete { ids },
        answer(false, Verdict::Rejected(Reason::Refused)),
        answer(true, Verdict::Pending),
        Message::End { ending, reason: Reason::Cancelled },
        Message::EndAck(ending),
        Message::MemoryRegionAvailable { d_id: 0, serial, result: Err(Reason::Gone) },
        Message::MemoryRegionAvailable { d_id: 0, serial, result: Ok(region) },
        Message::FetchOpComplete { below: 1 },
        Message::RequestState(Question::Connection { ids, is_link: false, token: 1 }),
        Message::RequestState(Question::Connection { ids, is_link: true, token: 1 }),
        Message::RequestState(Question::Memory),
        Message::RequestStateResponse(State::Connection { ids, is_link: false, token: 1 }),
        Message::RequestStateResponse(State::Connection { ids, is_link: true, token: 1 }),
        Message::RequestStateResponse(transfer(true)),
        Message::RequestStateResponse(transfer(false)),
        Message::RequestStateResponse(State::Memory {
            applied: 0,
            refused: Some(Reason::Gone),
            ahead: Ahead::default(),
        }),
        Message::RequestStateResponse(State::Fetched { serial, old: 1 }),
    ]
}

/// With the right key, ports and address and without a proof, or with a wrong one,
/// nothing ends: it is counted, and nothing else changes.
#[test]
fn invariant_3_without_a_proof_nothing_ends() {
    let mut two = Two::new(small());
    let envelope = envelope_to(&mut two, 1);
    for message in proved_operations() {
        let bare = encode(envelope, &message);
        let at = proof::place(Header::read(&bare).unwrap()).expect("it carries a proof");
        let mut wrong = bare.clone();
        wrong[at].copy_from_slice(&[0x5a; 8][..at_len(&bare)]);
        seal(&mut wrong);
        for packet in [bare, wrong] {
            let is_link = matches!(
                message,
                Message::RequestState(Question::Connection { is_link: true, .. })
            );
            let far = if is_link { Refusal::BadProof } else { Refusal::WrongAddress };
            for (from, refusal) in [(Peer::Node(0), Refusal::BadProof), (ELSEWHERE, far)] {
                let (before, count) = (two.state(1), two.refusals(1).of(refusal));
                assert_eq!(hear(&mut two, 1, from, &packet), Err(refusal), "{message:?}");
                assert_eq!(two.refusals(1).of(refusal), count + 1, "{message:?}");
                assert_eq!(two.state(1), before, "{message:?}");
                assert_eq!(said(&mut two, 1), [], "{message:?}");
            }
        }
    }
    assert_eq!(links(&mut two, 1), 1);
    let id = two.ids[1];
    assert!(two.endpoint(1).is_open(id));
}

fn at_len(packet: &[u8]) -> usize {
    proof::place(Header::read(packet).unwrap()).unwrap().len()
}

/// With a proof an abort ends the connection, but only from where it has a link.
#[test]
fn an_abort_counts_from_its_links_alone() {
    let mut two = Two::new(small());
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).abort(now, id, Reason::Cancelled).unwrap();
    let [(_, abort)] = &said(&mut two, 0)[..] else { panic!("an abort and nothing else") };
    assert_eq!(hear(&mut two, 1, ELSEWHERE, abort), Err(Refusal::WrongAddress));
    let closed = |event: &Event| matches!(event, Event::Closed { .. });
    assert!(!two.log[1].iter().any(closed));
    assert_eq!(hear(&mut two, 1, Peer::Node(0), abort), Ok(Placement::Consumed));
    assert!(two.log[1].iter().any(closed));
}

/// What was heard of a connection that is over is of no use against the next one
/// between the same two (invariant 7).
#[test]
fn invariant_7_proofs_of_an_earlier_connection_prove_nothing() {
    let mut two = Two::new(small());
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).add_link(now, id, Wire::PATH, THERE).unwrap();
    let mut old = said(&mut two, 0);
    two.endpoint(0).abort(now, id, Reason::Cancelled).unwrap();
    old.extend(said(&mut two, 0));
    for (_, packet) in &old {
        let _ = hear(&mut two, 1, Peer::Node(0), packet);
    }
    two.ids = two.connect();
    let envelope = envelope_to(&mut two, 1);
    for (_, packet) in old {
        let mut packet = packet;
        packet[4..8]
            .copy_from_slice(&[envelope.d_port, envelope.s_port].map(u16::to_be_bytes).concat());
        packet[8..12].copy_from_slice(&envelope.d_key.to_be_bytes());
        seal(&mut packet);
        let before = two.state(1);
        assert_eq!(hear(&mut two, 1, Peer::Node(0), &packet), Err(Refusal::BadProof));
        assert_eq!(two.state(1), before);
    }
}

/// The four packets by which a link joins. Each is there, and no other.
#[test]
fn a_link_joins_who_proves_to_be_heard_there() {
    let mut two = Two::new(small());
    let (now, ids) = (two.wire.now, two.ids);
    two.endpoint(0).add_link(now, ids[0], Wire::PATH, THERE).unwrap();
    let [(THERE, link)] = &said(&mut two, 0)[..] else { panic!("a question") };
    assert_eq!(hear(&mut two, 1, HERE, link), Ok(Placement::Consumed));
    assert_eq!(links(&mut two, 1), 1, "it may be anybody who sends that");
    let [(HERE, challenge)] = &said(&mut two, 1)[..] else { panic!("a challenge") };
    assert_eq!(challenge.len(), link.len(), "nobody is flooded by that");
    assert_eq!(hear(&mut two, 0, THERE, challenge), Ok(Placement::Consumed));
    let [(THERE, again)] = &said(&mut two, 0)[..] else { panic!("the question again") };
    assert_eq!(hear(&mut two, 1, HERE, again), Ok(Placement::Consumed));
    assert_eq!(links(&mut two, 1), 2);
    let up = |event: &&Event| matches!(event, Event::LinkUp { peer: HERE, .. });
    assert_eq!(two.log[1].iter().filter(up).count(), 1);
    let [(HERE, answer)] = &said(&mut two, 1)[..] else { panic!("the answer") };
    assert_eq!(hear(&mut two, 0, THERE, answer), Ok(Placement::Consumed));
    assert_eq!(said(&mut two, 0), []);
    // Each again, late: the link is there once, and nothing begins anew.
    for (side, from, packet) in
        [(1, HERE, link), (0, THERE, challenge), (1, HERE, again), (0, THERE, answer)]
    {
        let _ = hear(&mut two, side, from, packet);
    }
    assert_eq!((links(&mut two, 0), links(&mut two, 1)), (2, 2));
    let answers = said(&mut two, 1);
    assert_eq!(answers.len(), 2, "both questions come from a link that is known: {answers:?}");
    assert_eq!(said(&mut two, 0), []);
}

/// Somebody elsewhere repeats what it heard of a link that joins. It gets one
/// packet for each of its own, as long as that, and no link.
#[test]
fn who_repeats_a_link_from_elsewhere_joins_nothing() {
    let mut two = Two::new(small());
    let (now, ids) = (two.wire.now, two.ids);
    two.endpoint(0).add_link(now, ids[0], Wire::PATH, THERE).unwrap();
    let link = said(&mut two, 0).remove(0).1;
    hear(&mut two, 1, HERE, &link).unwrap();
    let challenge = said(&mut two, 1).remove(0).1;
    hear(&mut two, 0, THERE, &challenge).unwrap();
    let again = said(&mut two, 0).remove(0).1;
    let before = two.state(1);
    for packet in [&link, &again] {
        for _ in 0..50 {
            assert_eq!(hear(&mut two, 1, ELSEWHERE, packet), Ok(Placement::Consumed));
            let [(ELSEWHERE, answer)] = &said(&mut two, 1)[..] else { panic!("one packet") };
            assert_eq!(answer.len(), packet.len());
        }
    }
    assert_eq!(links(&mut two, 1), 1);
    let but_counters = |state: &str| {
        let (before, behind) = state.split_once("control_sent: ").unwrap();
        let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap();
        before.to_owned() + &behind[digits..]
    };
    assert_eq!(but_counters(&before), but_counters(&two.state(1)), "nothing is remembered");
    // A challenge counts where it was asked for alone.
    assert_eq!(hear(&mut two, 0, ELSEWHERE, &challenge), Err(Refusal::WrongAddress));
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &challenge), Err(Refusal::Duplicate));
    // Who was asked for joins all the same.
    assert_eq!(hear(&mut two, 1, HERE, &again), Ok(Placement::Consumed));
    assert_eq!(links(&mut two, 1), 2);
}

/// Somebody between the two gives each packet another address: they do not make
/// each other speak for ever.
#[test]
fn challenges_are_answered_a_bounded_number_of_times() {
    let mut two = Two::new(small());
    let (now, ids) = (two.wire.now, two.ids);
    two.endpoint(0).add_link(now, ids[0], Wire::PATH, THERE).unwrap();
    let mut packet = said(&mut two, 0).remove(0).1;
    let mut answered = 0;
    for nth in 0..1_000 {
        hear(&mut two, 1, Peer::Node(100 + nth), &packet).unwrap();
        let challenge = said(&mut two, 1).remove(0).1;
        if hear(&mut two, 0, THERE, &challenge) == Err(Refusal::Unexpected) {
            break;
        }
        packet = said(&mut two, 0).remove(0).1;
        answered += 1;
    }
    assert!((1..50).contains(&answered), "{answered}");
}

/// Somebody guesses the key of a connection that came in. Only a proof says that
/// its other side hears.
#[test]
fn a_connection_is_open_once_its_secret_was_heard() {
    let mut two = Two::new(small());
    two.endpoint(1).listen(9, Admission::Ask).unwrap();
    let ports = Envelope { d_port: crate::two::PORT, s_port: 60, d_key: 0 };
    hear(&mut two, 1, ELSEWHERE, &encode(ports, &Message::RequestConnection(offer(77)))).unwrap();
    let answer = said(&mut two, 1).remove(0).1;
    let (_, Message::ConnectionAnswer { result: Ok(given), .. }) = decode(&answer) else {
        panic!("{answer:?}")
    };
    let envelope = Envelope { d_key: given.s_key, ..ports };
    let request = Message::RequestToSend {
        s_id: 0,
        serial: 0,
        len: 9,
        max_block: 9,
        opaque: 0,
        answers: None,
        is_eager: false,
    };
    let request = encode(envelope, &request);
    let seen = two.log[1].len();
    assert_eq!(hear(&mut two, 1, ELSEWHERE, &request), Err(Refusal::Unexpected));
    let ids = Ids { d_id: given.s_id, s_id: 77 };
    let question = Question::Connection { ids, is_link: false, token: 1 };
    let mut question = encode(envelope, &Message::RequestState(question));
    assert_eq!(hear(&mut two, 1, ELSEWHERE, &question), Err(Refusal::BadProof));
    assert_eq!(two.log[1].len(), seen);
    two.prove(1, &mut question);
    assert_eq!(hear(&mut two, 1, ELSEWHERE, &question), Ok(Placement::Consumed));
    assert!(matches!(two.log[1][seen], Event::Accepted { .. }));
    assert_eq!(hear(&mut two, 1, ELSEWHERE, &request), Ok(Placement::Consumed));
}

/// Side 0 asks for a connection. Gives its request.
fn asking(two: &mut Two) -> (stp_core::ConnectionId, Vec<u8>) {
    let now = two.wire.now;
    let connect = Connect { port: crate::two::PORT, local_port: None, hello: 1 };
    let id = two.endpoint(0).connect(now, Wire::PATH, Peer::Node(1), connect).unwrap();
    (id, said(two, 0).remove(0).1)
}

/// Who speaks version 1 neither hangs nor is misunderstood, on either side.
#[test]
fn who_speaks_an_older_version_is_told_so() {
    let mut two = Two::new(small());
    // It listens: our request is one that it can read, and it says that it cannot
    // speak with us, without a proof.
    let (id, request) = asking(&mut two);
    assert_eq!(request.len(), HEADER_LEN, "older versions know no longer one");
    let (ports, Message::RequestConnection(offer)) = decode(&request) else {
        panic!("{request:?}")
    };
    let back = Envelope { d_port: ports.s_port, s_port: ports.d_port, d_key: offer.s_key };
    let refused =
        |reason| encode(back, &Message::ConnectionAnswer { d_id: offer.s_id, result: Err(reason) });
    let busy = refused(Reason::Busy);
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &busy), Err(Refusal::BadProof));
    assert!(two.endpoint(0).is_opening(id), "anybody may say that");
    let old = refused(Reason::Incompatible);
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &old), Ok(Placement::Consumed));
    let why = Some(Ended::There(Reason::Incompatible));
    assert_eq!(two.log[0].last(), Some(&Event::Closed { connection: id, why }));
    // It asks: it is refused in a form that it knows.
    let old = Offer { version: 1, secret: Secret(0), ..offer };
    is_told(&mut two, &encode(ports, &Message::RequestConnection(old)), offer);
}

/// Somebody hears in a form of 40 bytes that its request cannot be understood.
fn is_told(two: &mut Two, request: &[u8], offer: Offer) {
    assert_eq!(hear(two, 1, Peer::Node(0), request), Err(Refusal::Unsupported));
    let answer = said(two, 1).remove(0).1;
    assert_eq!(answer.len(), HEADER_LEN);
    let result = Err(Reason::Incompatible);
    assert_eq!(decode(&answer).1, Message::ConnectionAnswer { d_id: offer.s_id, result });
}

/// STUs are powers of two there, and slots have all of Offset: it reads our request, for
/// what it takes for slots is below 65,536, and we read its.
#[test]
fn who_speaks_version_2_is_told_so() {
    let mut two = Two::new(Config { tail: 255, slots: 64, ..small() });
    let (_, mut request) = asking(&mut two);
    let (ports, Message::RequestConnection(offer)) = decode(&request) else {
        panic!("{request:?}")
    };
    let header = Header::read(&request).unwrap();
    assert_eq!((offer.version, header.param.get() >> 10), (3, 3));
    assert!(header.offset.get() <= 65_535, "version 2 refuses more without a word");
    // Version 2, STUs of up to 2^13, buffers of 2^21, 40,000 slots.
    request[2..4].copy_from_slice(&(2u16 << 10 | 13 << 5 | 21).to_be_bytes());
    request[24..28].copy_from_slice(&40_000u32.to_be_bytes());
    seal(&mut request);
    is_told(&mut two, &request, offer);
    // It says so with a proof, as in this version.
    let back = Envelope { d_port: ports.s_port, s_port: ports.d_port, d_key: offer.s_key };
    let result = Err(Reason::Incompatible);
    let mut answer = encode(back, &Message::ConnectionAnswer { d_id: offer.s_id, result });
    proof::seal(&mut answer, Secrets { receiver: offer.secret, sender: Secret(0) });
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &answer), Ok(Placement::Consumed));
    let why = Some(Ended::There(Reason::Incompatible));
    assert!(matches!(two.log[0].last(), Some(Event::Closed { why: w, .. }) if *w == why));
}

#[test]
fn a_refusal_is_proved_with_what_was_asked_with() {
    let mut two = Two::new(small());
    let now = two.wire.now;
    let connect = Connect { port: 99, local_port: None, hello: 1 };
    let id = two.endpoint(0).connect(now, Wire::PATH, Peer::Node(1), connect).unwrap();
    let request = said(&mut two, 0).remove(0).1;
    assert_eq!(hear(&mut two, 1, Peer::Node(0), &request), Err(Refusal::WrongAddress));
    let mut answer = said(&mut two, 1).remove(0).1;
    answer[25] ^= 1;
    seal(&mut answer);
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &answer), Err(Refusal::BadProof));
    answer[25] ^= 1;
    seal(&mut answer);
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &answer), Ok(Placement::Consumed));
    let why = Some(Ended::There(Reason::NoListener));
    assert_eq!(two.log[0].last(), Some(&Event::Closed { connection: id, why }));
}

/// The answer is lost, and with it the secret that the abort is proved with. Who
/// asks again is told, and does not wait for ever.
#[test]
fn who_lost_the_answer_hears_of_the_abort() {
    let mut two = Two::new(small());
    let (id, request) = asking(&mut two);
    two.endpoint(1).stop_listening(crate::two::PORT);
    two.endpoint(1).listen(crate::two::PORT, Admission::Ask).unwrap();
    hear(&mut two, 1, Peer::Node(0), &request).unwrap();
    let Some(Event::Incoming { connection, .. }) = two.log[1].last().copied() else {
        panic!("{:?}", two.log[1])
    };
    let now = two.wire.now;
    two.endpoint(1).admit(now, connection, 0).unwrap();
    two.endpoint(1).abort(now, connection, Reason::Cancelled).unwrap();
    let lost = said(&mut two, 1);
    let abort = &lost.last().unwrap().1;
    assert_eq!(op(abort), Op::RequestDisconnect);
    assert_eq!(hear(&mut two, 0, Peer::Node(1), abort), Err(Refusal::BadProof));
    assert_eq!(hear(&mut two, 1, Peer::Node(0), &request), Err(Refusal::Duplicate));
    let answer = said(&mut two, 1).remove(0).1;
    assert_eq!(hear(&mut two, 0, Peer::Node(1), &answer), Ok(Placement::Consumed));
    let why = Some(Ended::There(Reason::Cancelled));
    assert_eq!(two.log[0].last(), Some(&Event::Closed { connection: id, why }));
}

/// A Put writes to memory with no more than key, name and number: the name is one
/// that only this connection's other side was told.
#[test]
fn the_name_of_a_region_says_nothing_about_those_of_others() {
    let mut two = Two::new(Config { exposed: 4, ..small() });
    let (mine, _, _) = two.region(two.ids, 64);
    let others = two.connect();
    let (theirs, _, _) = two.region(others, 64);
    assert_ne!(mine.handle >> 16, theirs.handle >> 16, "{mine:?}, {theirs:?}");
    assert!(mine.handle > 0xffff && theirs.handle > 0xffff, "they begin nowhere in particular");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    /// Any proof but the right one, on a packet that would abort.
    #[test]
    fn no_guess_of_a_proof_is_right(guess: u64, bit in 0u32..64) {
        let mut two = Two::new(small());
        let envelope = envelope_to(&mut two, 1);
        let abort = Some(Reason::Cancelled);
        let abort = Message::RequestDisconnect { ids: Ids::default(), abort };
        let mut right = encode(envelope, &abort);
        two.prove(1, &mut right);
        let proof = u64::from_be_bytes(right[20..28].try_into().unwrap());
        for wrong in [guess, proof ^ 1 << bit, proof.swap_bytes(), !proof] {
            prop_assume!(wrong != proof);
            let mut packet = right.clone();
            packet[20..28].copy_from_slice(&wrong.to_be_bytes());
            seal(&mut packet);
            prop_assert_eq!(hear(&mut two, 1, Peer::Node(0), &packet), Err(Refusal::BadProof));
        }
        prop_assert_eq!(hear(&mut two, 1, Peer::Node(0), &right), Ok(Placement::Consumed));
    }
}

/// A secret is not in what an engine prints.
#[test]
fn secrets_are_not_printed() {
    let mut two = Two::new(small());
    let (_, request) = asking(&mut two);
    let (_, Message::RequestConnection(Offer { secret: Secret(secret), .. })) = decode(&request)
    else {
        panic!("{request:?}")
    };
    assert!(!format!("{:?}", decode(&request)).contains(&secret.to_string()));
    let engine: &Endpoint = &two.wire.sides[0].engine.engine;
    assert!(!format!("{engine:?}").contains(&secret.to_string()));
    assert_ne!(secret, 0);
}
