//! Bursts of frames through a ring. As an ordinary user, or where there is no
//! `io_uring`, each test skips with one line.
use std::thread;
use std::time::Instant as StdInstant;

use crate::support::packet::{EXPERIMENTAL, cable, numbered_frame};
use crate::support::scatter::{Receiver, pages, socket};
use crate::support::uring::why_no_uring;
use crate::support::{PATIENCE, assert_same, pattern};
use landfall_placement::{Instant, Span};
use landfall_testbed::{require_namespaces, skip_unless};
use landfall_transport::packet::Filter;
use landfall_transport::scatter::{Descriptor, Outgoing, Socket};
use landfall_transport::uring::UringBurst;

/// Sends numbered frames with a payload, a few a call.
fn send_numbered(from: &mut Socket, heads: &[Vec<u8>], payload: Span, a_call: usize) {
    for some in heads.chunks(a_call) {
        let frames: Vec<_> = some.iter().map(|head| Outgoing { head, payload }).collect();
        assert_eq!(from.send(Instant::ZERO, &frames).unwrap(), frames.len());
    }
}

#[test]
fn a_burst_goes_where_it_was_posted_in_its_order() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let (regions, region) = pages(4096);
    let sent = pattern(1000, 7);
    regions.write(&region.span(0, 1000), &sent).unwrap();
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    at_b.ring = Some(UringBurst::open().unwrap());
    let heads: Vec<_> = (0..300u32)
        .map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number)[..18].to_vec())
        .collect();
    send_numbered(&mut at_a, &heads, region.span(0, 1000), 128);
    let arrived = at_b.receive(300, |slot| {
        let place = [0, 500, 1000, 2000][slot % 4];
        Descriptor { head_len: 18, place: Span { len: place, ..Span::default() } }
    });
    // All waited before the first call, so no descriptor was passed over.
    for (frame, head) in arrived.iter().zip(&heads) {
        assert_same(frame, &[head, &sent[..]].concat());
    }
    assert_eq!(at_b.socket.counters().units_received, 300);
    assert!(at_b.calls() <= 20, "many a call: {}", at_b.calls());
}

#[test]
fn frames_that_come_meanwhile_keep_their_order() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    const FRAMES: u32 = 20_000;
    let cable = cable();
    let (regions, region) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    at_b.ring = Some(UringBurst::open().unwrap());
    let heads: Vec<_> =
        (0..FRAMES).map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number)).collect();
    thread::scope(|scope| {
        scope.spawn(|| send_numbered(&mut at_a, &heads, region.span(0, 0), 3));
        let deadline = StdInstant::now() + PATIENCE;
        let mut next = 0;
        while next < FRAMES {
            assert!(StdInstant::now() < deadline, "{next} of {FRAMES} frames came");
            at_b.try_receive(|_| Descriptor { head_len: 60, place: Span::default() });
            // A descriptor that was passed over has no frame, but those behind
            // it have.
            for frame in at_b.gathered().iter().filter(|frame| !frame.is_empty()) {
                let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
                assert_eq!(number, next);
                next += 1;
            }
        }
    });
    let counters = *at_b.socket.counters();
    assert_eq!((counters.units_received, counters.malformed), (FRAMES.into(), 0));
}

#[test]
fn silence_and_an_interface_that_is_down_are_no_errors() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    at_b.ring = Some(UringBurst::open().unwrap());
    let anything = |_| Descriptor { head_len: 60, place: Span::default() };
    assert_eq!(at_b.try_receive(anything), 0);
    assert_eq!(at_b.socket.counters().empty_calls, 1);
    cable.b.set_up(false).unwrap();
    assert_eq!(at_b.try_receive(anything), 0, "it may come up again");
}
