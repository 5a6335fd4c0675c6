//! Junk through a packet socket: refused with a counter, no panic, and nothing
//! written outside of a guess. As an ordinary user the tests skip with one line.

use crate::support::packet::{
    EXPERIMENTAL, IPV4, TCP_HEAD, cable, numbered_frame, open, place_tcp, tcp_frame,
};
use crate::support::{Scripted, contents, lent, turn_until};
use landfall_placement::{Check, Guess, Landing, Peer, Placement, Random, Refusal, Ticket};
use landfall_testbed::require_namespaces;
use landfall_transport::Driver;
use landfall_transport::memory::Rights;
use landfall_transport::packet::Filter;

const FRAMES: usize = 500;
const CANARY: u8 = 0xc5;

fn fill(random: &mut Random, bytes: &mut [u8]) {
    bytes.fill_with(|| random.next_u32() as u8);
}

#[test]
fn random_frames_change_nothing_outside_of_the_guess() {
    require_namespaces!();
    let cable = cable();
    let junk_len = 1 << 16;
    let mut random = Random::new([7; 32]);
    let mut junk = vec![0; junk_len];
    fill(&mut random, &mut junk);
    let (send_regions, source) = lent(&junk, Rights::READ);
    let (regions, target) = lent(&[CANARY; 8192], Rights::WRITE);
    let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut receiver = open(&cable.b, Filter::ethertypes([EXPERIMENTAL]), &regions);
    let (mut from, mut sizes) = (Scripted::sender(), Vec::new());
    for number in 0..FRAMES {
        let head_len = 14 + random.below(120) as usize;
        let mut head = numbered_frame(&cable.b, EXPERIMENTAL, number as u32);
        head.resize(head_len.max(18), 0);
        fill(&mut random, &mut head[14..]);
        let len = random.below(1514 - head.len() as u64 + 1);
        let payload = source.span(random.below(junk_len as u64 - len), len as u32);
        sizes.push(head.len() as u32 + payload.len);
        from.send(Peer::Unaddressed, head, &[payload]);
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == FRAMES);
    // Frames shorter and longer than guessed, with heads shorter and longer.
    let mut to = Scripted::new(|unit, _| {
        if unit.head.len() < 100 && unit.len >= 100 {
            return Ok(Placement::NeedHead(100));
        }
        Err(Refusal::Malformed)
    });
    let span = target.span(2048, 700);
    to.guesses = vec![Guess { span, head_len: 66, payload_len: 700 }];
    turn_until(&mut receiver, &mut to, |_, driver| driver.counters().refused == FRAMES as u64);
    assert_eq!(to.landings, []);
    // A frame that needed a longer head was offered twice.
    let mut seen: Vec<u32> = to.seen.iter().map(|(_, _, len)| *len).collect();
    seen.dedup();
    sizes.dedup();
    assert_eq!(seen, sizes, "every frame was offered with its length");
    let memory = contents(&regions, target);
    assert!(memory[..2048].iter().all(|byte| *byte == CANARY));
    assert!(memory[2748..].iter().all(|byte| *byte == CANARY));
}

#[test]
fn a_placement_that_lies_about_the_unit_is_not_carried_out() {
    require_namespaces!();
    let cable = cable();
    let (regions, target) = lent(&[CANARY; 4096], Rights::WRITE);
    let mut receiver = open(&cable.b, Filter::ethertypes([EXPERIMENTAL]), &regions);
    let (send_regions, _) = lent(&[0], Rights::READ);
    let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut from = Scripted::sender();
    for number in 0..3 {
        let frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
        from.send(Peer::Unaddressed, frame, &[]);
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 3);
    let mut ticket = 0;
    let mut to = Scripted::new(move |_, into| {
        // More than the unit has, beyond the region, and a head without end.
        let span = match ticket {
            0 => target.span(0, 61),
            1 => target.span(4090, 10),
            _ => return Ok(Placement::NeedHead(61)),
        };
        into.push(span).unwrap();
        ticket += 1;
        let check = Check::None;
        Ok(Placement::Into { at: 14, check, ticket: Ticket::from_raw(ticket) })
    });
    turn_until(&mut receiver, &mut to, |to, _| to.seen.len() >= 3);
    let failed = Landing::Failed;
    assert_eq!(to.landings, [(Ticket::from_raw(1), failed), (Ticket::from_raw(2), failed)]);
    assert_eq!((receiver.counters().malformed, receiver.counters().misplaced), (2, 1));
    assert_eq!(contents(&regions, target), [CANARY; 4096]);
}

#[test]
fn a_frame_that_was_cut_does_not_pass_for_a_whole_one() {
    require_namespaces!();
    let cable = cable();
    let (send_regions, source) = lent(&[1; 1000], Rights::READ);
    let (regions, target) = lent(&[CANARY; 2000], Rights::WRITE);
    let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut receiver = open(&cable.b, Filter::ethertypes([IPV4]), &regions);
    let mut from = Scripted::sender();
    let whole = tcp_frame(&cable.b, source.span(0, 1000), 0, None);
    let head = whole.head.clone();
    // The header promises 1000 bytes; 999, none, and not all of itself come.
    from.send(whole.to, head.clone(), &[source.span(0, 999)]);
    from.send(whole.to, head.clone(), &[]);
    from.send(whole.to, head[..TCP_HEAD - 1].to_vec(), &[]);
    from.to_send.push_back(whole);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 4);
    let mut to = Scripted::new(move |unit, into| place_tcp(target, unit, into));
    turn_until(&mut receiver, &mut to, |_, driver| driver.counters().payload_bytes == 1000);
    let failed = to.landings.iter().filter(|(_, l)| *l == Landing::Failed);
    assert_eq!(failed.count(), 2);
    assert_eq!((receiver.counters().malformed, receiver.counters().refused), (2, 1));
    let memory = contents(&regions, target);
    assert_eq!((&memory[..1000], &memory[1000..]), (&[1; 1000][..], &[CANARY; 1000][..]));
}
