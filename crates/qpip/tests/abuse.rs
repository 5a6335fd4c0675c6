//! What peers that mean harm can try, and users who name what is not theirs: it
//! leaves counters, and anyone who is honest is served as before.
//!
//! Errors of ICMP and damaged frames of every kind are in `errors`, datagrams in
//! overlapping fragments in `udp`, rights in `memory`.

use crate::two;
use crate::two::{
    ACK, FIN, PSH, RST, SYN, TCP, Two, ack, address, flags, forge, noise, payload_at, plain, seq,
    set_ack, set_seq, window,
};
use landfall_placement::{Engine, Instant, Refusal};
use landfall_testkit::model::Faults;
use qpip::{
    Buffer, CloseReason, Config, Error, Event, Mapping, Object, PostError, ReceiveWork, SendWork,
    Service, TcpConfig,
};

fn open(mapping: Mapping) -> Two {
    Two::new(&plain(), mapping, Faults::default(), 1)
}

/// A message of side 0 that is under way to a side 1 that waits for it.
fn under_way(two: &mut Two, len: usize) -> (u64, landfall_placement::Area, Vec<Vec<u8>>) {
    let (id, area) = two.receive(1, len);
    two.settle();
    two.send(0, &noise(1, len));
    (id, area, two.said(0))
}

fn is_closed(two: &Two, side: usize) -> bool {
    two.events[side].iter().any(|event| matches!(event, Event::Closed { .. }))
}

/// A message still comes whole, in both directions.
fn still_works(two: &mut Two) {
    for side in [0, 1] {
        let (id, area) = two.receive(1 - side, 700);
        two.send(side, &noise(7, 700));
        two.until("a message", |two| two.is_done(1 - side, id));
        assert_eq!(two.bytes(1 - side, area), noise(7, 700));
    }
}

#[test]
fn blind_resets_and_openings_only_draw_a_few_challenges() {
    let mut two = open(Mapping::Message);
    let (_, _, frames) = under_way(&mut two, 600);
    let next = seq(&frames[0]);
    let bare = |flags: u8, seq: u32| {
        forge(&frames[0], |frame| {
            frame.truncate(payload_at(frame));
            frame[TCP + 13] = flags;
            set_seq(frame, seq);
        })
    };
    // All but the very next number: inside of the window, at its edges, outside.
    let guesses = [1, 2, 599, 600, 601, 65_535, 0x4000_0000, 0x8000_0000, u32::MAX - 5, u32::MAX];
    for ahead in guesses {
        for kind in [RST, RST | ACK, SYN, SYN | ACK, SYN | RST, SYN | FIN] {
            two.hand_in(1, &[bare(kind, next.wrapping_add(ahead))]);
        }
    }
    for kind in [SYN, SYN | ACK] {
        two.hand_in(1, &[bare(kind, next)]);
    }
    assert!(!is_closed(&two, 1), "{:?}", two.events[1]);
    let answers = two.said(1);
    assert!(answers.len() <= 10, "{} answers", answers.len());
    assert!(answers.iter().all(|frame| flags(frame) & (RST | SYN) == 0));
    two.hand_in(1, &frames);
    still_works(&mut two);
    two.check_contract();
}

#[test]
fn data_is_not_injected_blindly() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        let mut two = open(mapping);
        let (id, area, frames) = under_way(&mut two, 600);
        let (next, sent) = (seq(&frames[0]), ack(&frames[0]));
        let junk = |seq: u32, ack: u32| {
            forge(&frames[0], |frame| {
                let at = payload_at(frame);
                frame[at..].fill(0xee);
                set_seq(frame, seq);
                set_ack(frame, ack);
            })
        };
        let before = two.wire.sides[1].engine.refusals().of(Refusal::OutOfBounds);
        // Outside of the window, whatever is acknowledged.
        for ahead in [601, 70_000, 0x7fff_ffff, 0x8000_0000] {
            two.hand_in(1, &[junk(next.wrapping_add(ahead), sent)]);
        }
        // Inside, but with an acknowledgement that cannot be (RFC 5961, 5.2).
        for wrong in [1, 1_000, 0x4000_0000, 0x8000_0000, 0xc000_0000] {
            two.hand_in(1, &[junk(next, sent.wrapping_add(wrong))]);
        }
        let after = two.wire.sides[1].engine.refusals().of(Refusal::OutOfBounds);
        assert!(after >= before + 7, "{mapping:?}: {before} → {after}");
        assert_eq!(two.received(1), 0, "{mapping:?}");
        two.hand_in(1, &frames);
        two.until("the message", |two| two.received(1) == 600);
        assert!(two.is_done(1, id));
        // What was placed before its acknowledgement was looked at is overwritten.
        assert_eq!(two.bytes(1, area), noise(1, 600), "{mapping:?}");
    }
}

/// Somebody on the way repeats segments with other bytes, cut and moved: what was
/// accepted first stays, wherever the cuts lie.
#[test]
fn of_overlapping_segments_the_first_bytes_stay() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        let mut two = open(mapping);
        let (id, area, frames) = under_way(&mut two, 1_000);
        let (whole, first) = (&frames[0], seq(&frames[0]));
        let at = payload_at(whole);
        let part = |from: usize, to: usize, with: Option<u8>| {
            forge(whole, |frame| {
                let bytes = frame[at + from..at + to].to_vec();
                frame.truncate(at);
                frame.extend(with.map_or(bytes.clone(), |byte| vec![byte; to - from]));
                set_seq(frame, first.wrapping_add(from as u32));
                frame[TCP + 13] = if to == 1_000 { ACK | PSH } else { ACK };
            })
        };
        let pieces = [
            part(300, 600, None),
            part(200, 700, Some(0xee)),
            part(250, 400, Some(0xdd)),
            part(0, 300, None),
            part(0, 1_000, Some(0xcc)),
        ];
        two.hand_in(1, &pieces);
        two.until("all", |two| two.received(1) == 1_000);
        assert!(two.is_done(1, id));
        let bytes = two.bytes(1, area);
        let expected = noise(1, 1_000);
        assert_eq!(bytes[..200], expected[..200], "{mapping:?}");
        assert_eq!(bytes[200..300], [0xee; 100], "{mapping:?}: these came first");
        assert_eq!(bytes[300..600], expected[300..600], "{mapping:?}: overwritten");
        assert_eq!(bytes[600..], [0xcc; 400], "{mapping:?}");
        two.check_contract();
    }
}

/// A packet of IPv4 in pieces: `(from, to)` of what is behind its header.
fn piece(frame: &[u8], id: u16, (from, to): (usize, usize), is_last: bool) -> Vec<u8> {
    let mut piece = frame[..34].to_vec();
    piece.extend_from_slice(&frame[34 + from..34 + to]);
    let more = if is_last { 0 } else { 0x2000 };
    let len = (piece.len() - 14) as u16;
    piece[16..18].copy_from_slice(&len.to_be_bytes());
    piece[18..20].copy_from_slice(&id.to_be_bytes());
    piece[20..22].copy_from_slice(&(more | (from / 8) as u16).to_be_bytes());
    piece[24..26].fill(0);
    let sum = landfall_placement::checksum::checksum(&piece[14..34]);
    piece[24..26].copy_from_slice(&sum.to_be_bytes());
    piece
}

/// Of which packet, from where to where, and whether it is the last.
type Piece<'a> = (&'a [u8], usize, usize, bool);

/// RFC 1858 and 3128: a first fragment without all of the TCP header, or one that
/// a later fragment overwrites. RFC 5722: whatever overlaps is refused.
#[test]
fn tiny_and_overlapping_fragments_bring_nothing_in() {
    let mut two = open(Mapping::Message);
    let (id, area, frames) = under_way(&mut two, 600);
    let frame = &frames[0];
    let end = frame.len() - 34;
    let junk = forge(frame, |frame| frame[54..].fill(0xee));
    let attacks: [&[Piece<'_>]; 4] = [
        // The flags are in the second piece, and come twice.
        &[(frame, 0, 8, false), (frame, 8, end, true), (&junk, 8, 64, false)],
        &[(frame, 0, 24, false), (&junk, 16, 40, false), (frame, 24, end, true)],
        &[(frame, 0, 64, false), (&junk, 0, 64, false), (frame, 64, end, true)],
        &[(&junk, 8, end, true), (frame, 0, 16, false)],
    ];
    for (n, attack) in attacks.iter().enumerate() {
        let pieces: Vec<_> = attack
            .iter()
            .map(|(from, start, to, is_last)| piece(from, n as u16, (*start, *to), *is_last))
            .collect();
        // The overlap comes before the packet is whole.
        let order: &[usize] = if n == 0 { &[0, 2, 1] } else { &[0, 1, 2] };
        for nth in order.iter().filter_map(|nth| pieces.get(*nth)) {
            two.hand_in(1, std::slice::from_ref(nth));
        }
        let bytes = two.bytes(1, area);
        let is_clean = bytes.iter().all(|byte| *byte == 0) || bytes == noise(1, 600);
        assert!(is_clean, "attack {n} brought something in");
    }
    two.hand_in(1, &frames);
    assert!(two.is_done(1, id));
    assert_eq!(two.bytes(1, area), noise(1, 600));
    still_works(&mut two);
    two.check_contract();
}

/// Segments in fragments that nobody waits for: each is looked at when it is
/// whole, and its memory is free again.
#[test]
fn fragments_for_nobody_do_not_fill_the_memory_for_them() {
    let config = Config { reassemblies: 4, ..plain() };
    let mut two = Two::new(&config, Mapping::Segment, Faults::default(), 1);
    let (id, area) = two.receive(1, 4_000);
    two.settle();
    two.send(0, &noise(4, 4_000));
    let frames = two.said(0);
    assert!(frames.len() > 1, "it is longer than a packet");
    let mut stranger = frames[0][..34].to_vec();
    stranger[20..22].fill(0);
    stranger.extend_from_slice(&[
        0x12, 0x34, 0, 99, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, ACK, 0, 9, 0, 0, 0, 0,
    ]);
    stranger.extend_from_slice(&[0xee; 100]);
    let stranger = forge(&stranger, |_| {});
    for n in 0..50 {
        two.hand_in(
            1,
            &[
                piece(&stranger, 1_000 + n, (0, 64), false),
                piece(&stranger, 1_000 + n, (64, 120), true),
            ],
        );
    }
    two.said(1);
    two.hand_in(1, &frames);
    assert!(two.is_done(1, id), "no room was left for the fragments of friends");
    assert_eq!(two.bytes(1, area), noise(4, 4_000));
    two.check_contract();
}

#[test]
fn a_flood_of_openings_keeps_nobody_out() {
    let config = Config { half_open: 8, ..plain() };
    let mut two = Two::new(&config, Mapping::Message, Faults::default(), 1);
    two.connect(Mapping::Message);
    let opening = two.said(0).remove(0);
    assert_eq!(flags(&opening) & (SYN | ACK), SYN);
    let there = two.offer(Mapping::Message);
    for n in 0..3_000u32 {
        let forged = forge(&opening, |frame| {
            frame[TCP..TCP + 2].copy_from_slice(&(1_024 + n as u16).to_be_bytes());
            frame[29] = 100 + (n % 100) as u8;
            set_seq(frame, n.wrapping_mul(0x9e37_79b9));
        });
        two.hand_in(1, &[forged]);
        if n % 64 == 0 {
            two.said(1);
        }
    }
    two.said(1);
    assert!(two.adapter(1).stats().cookies_sent >= 2_900);
    assert_eq!(two.adapter(1).stats().half_open_dropped, 0);
    two.until("an honest client", |two| {
        two.events[1].iter().any(
            |event| matches!(event, Event::Accepted { queue_pair, .. } if *queue_pair == there),
        )
    });
    still_works(&mut two);
}

/// A window of a few bytes is not filled with a few bytes each time.
#[test]
fn silly_windows_draw_few_segments() {
    let mut two = open(Mapping::Stream);
    two.settle();
    two.send(0, &noise(1, 20_000));
    two.said(0);
    // Side 1 is somebody else now: it offers ten bytes more with each answer.
    let mut segments = 0;
    let answer = |window: u16, two: &mut Two, next: u32, have: u32| {
        let mut frame = vec![0; TCP + 20];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        frame[14] = 0x45;
        frame[22..24].copy_from_slice(&[64, 6]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        let local = two.wire.sides[0].engine.engine.local_address(two.pairs[0]).unwrap();
        frame[TCP..TCP + 2].copy_from_slice(&two::PORT.to_be_bytes());
        frame[TCP + 2..TCP + 4].copy_from_slice(&local.port().to_be_bytes());
        set_seq(&mut frame, next);
        set_ack(&mut frame, have);
        frame[TCP + 12] = 0x50;
        frame[TCP + 13] = ACK;
        frame[TCP + 14..TCP + 16].copy_from_slice(&window.to_be_bytes());
        forge(&frame, |_| {})
    };
    // Where both are: a question of the closed window says so.
    two.wire.pass_time();
    let question = two.said(0).pop().expect("a closed window is asked");
    let (next, have) = (ack(&question), seq(&question).wrapping_add(1));
    for n in 0..100 {
        let frame = answer(10 * (n + 1), &mut two, next, have);
        two.hand_in(0, &[frame]);
        segments += two.said(0).iter().filter(|frame| frame.len() > payload_at(frame)).count();
    }
    // One for each doubling of what was ever offered (RFC 9293, 3.8.6.2.1).
    assert!(segments <= 8, "{segments} segments into a window that grew by ten bytes at a time");
    two.check_contract();
}

/// A peer that never reads keeps its connection, and nothing but it.
#[test]
fn a_peer_that_never_reads_holds_up_itself_only() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        let mut two = open(mapping);
        two.receive(1, 1_000);
        for _ in 0..20 {
            two.send(0, &noise(1, 2_000));
        }
        let start = two.wire.now;
        while two.wire.now.since(start) < landfall_placement::Duration::from_secs(3_600) {
            two.pass(1);
        }
        assert!(!is_closed(&two, 0), "{mapping:?}: it still answers, so it still lives");
        let held = two.pairs;
        two.pairs = two.open(mapping);
        still_works(&mut two);
        two.pairs = held;
        for _ in 0..60 {
            two.receive(1, 1_000);
        }
        two.until("it reads at last", |two| {
            two.done[0].iter().filter(|done| done.status.is_success()).count() >= 21
        });
        two.check_contract();
    }
}

#[test]
fn options_of_every_malformed_length_are_passed_over_or_refused() {
    let mut two = open(Mapping::Message);
    two.connect(Mapping::Message);
    let opening = two.said(0).remove(0);
    let (id, _, frames) = under_way(&mut two, 600);
    for kind in 0..=255u8 {
        for len in [0, 1, 2, 3, 4, 8, 9, 10, 11, 18, 34, 39, 40, 41, 255] {
            for template in [&opening, &frames[0]] {
                for words in [6, 8, 15] {
                    let forged = forge(template, |frame| {
                        let at = payload_at(frame);
                        let payload = frame.split_off(at);
                        frame.truncate(TCP + 20);
                        frame.resize(TCP + words * 4, kind);
                        frame[TCP + 21] = len;
                        frame[TCP + 12] = (words as u8) << 4;
                        // Outside of the window: only its options are looked at.
                        set_seq(frame, u32::from(kind) << 24);
                        frame.extend(payload);
                    });
                    two.hand_in(1, &[forged]);
                }
            }
        }
    }
    two.said(1);
    two.hand_in(1, &frames);
    assert!(two.is_done(1, id));
    still_works(&mut two);
    two.check_contract();
}

/// The data offset reaches into nothing, or not even over the header.
#[test]
fn headers_that_end_nowhere_are_refused() {
    let mut two = open(Mapping::Message);
    let (id, _, frames) = under_way(&mut two, 30);
    for words in (0..5).chain(13..16) {
        let before = two.refusals(1);
        let forged = forge(&frames[0], |frame| frame[TCP + 12] = words << 4);
        two.hand_in(1, &[forged]);
        assert_eq!(two.refusals(1), before + 1, "{words} words");
    }
    assert_eq!(two.received(1), 0);
    two.hand_in(1, &frames);
    assert!(two.is_done(1, id));
    two.check_contract();
}

#[test]
fn work_that_names_what_is_not_its_own_is_refused_and_leaves_nothing() {
    let mut two = open(Mapping::Message);
    let (area, mine) = two.lend(0, vec![5; 100]);
    let other = two.adapter(0).create_domain().unwrap();
    let foreign = two.adapter(0).register(other, area, qpip::Access::ReadWrite).unwrap();
    let udp = two.queue_pair(0, Service::Udp);
    two.adapter(0).bind(udp, address(0, 99)).unwrap();
    let (now, tcp) = (two.wire.now, two.pairs[0]);
    let stale = qpip::MemoryKey::new(mine.key.index, mine.key.generation.wrapping_sub(1));
    let bad = [
        (Buffer::new(foreign, 0, 10), PostError::WrongDomain),
        (Buffer::new(stale, 0, 10), PostError::UnknownKey),
        (Buffer::new(qpip::MemoryKey::new(u32::MAX, 0), 0, 10), PostError::UnknownKey),
        (Buffer::new(mine.key, 91, 10), PostError::OutOfBounds),
        (Buffer::new(mine.key, u64::MAX, 10), PostError::OutOfBounds),
    ];
    for (pair, to) in [(tcp, None), (udp, Some(address(1, 9)))] {
        for (buffer, error) in bad {
            // The good one in front of it must not be taken either.
            for buffers in [&[buffer][..], &[Buffer { len: 5, ..mine }, buffer]] {
                let send =
                    SendWork { id: 1, from: buffers, to, is_signaled: true, immediate: None };
                assert_eq!(two.adapter(0).post_send(now, pair, &send), Err(error));
                let receive = ReceiveWork { id: 1, into: buffers };
                assert_eq!(two.adapter(0).post_receive(now, pair, &receive), Err(error));
            }
        }
    }
    assert!(two.said(0).is_empty(), "nothing leaves");
    two.hear();
    assert!(two.done[0].is_empty());
    // Nothing was claimed: both can go at once.
    two.adapter(0).deregister(foreign).unwrap();
    two.adapter(0).deregister(mine.key).unwrap();
}

#[test]
fn memory_in_use_is_not_deregistered_by_anybody() {
    let mut two = open(Mapping::Message);
    let (area, buffer) = two.lend(1, vec![0; 500]);
    let (now, pair) = (two.wire.now, two.pairs[1]);
    let work = ReceiveWork { id: 900, into: &[buffer] };
    two.adapter(1).post_receive(now, pair, &work).unwrap();
    let busy = Err(Error::Busy(Object::MemoryKey));
    assert_eq!(two.adapter(1).deregister(buffer.key), busy);
    two.settle();
    two.send(0, &noise(3, 500));
    let frames = two.said(0);
    assert_eq!(two.adapter(1).deregister(buffer.key), busy);
    two.hand_in(1, &frames);
    assert_eq!(two.adapter(1).deregister(buffer.key), Ok(area));
    // Its name means nothing any more, and its memory is not written again.
    let again = two.adapter(1).post_receive(now, pair, &work);
    assert_eq!(again, Err(PostError::UnknownKey));
    two.hand_in(1, &frames);
    assert_eq!(two.bytes(1, area), noise(3, 500));
    assert!(window(&frames[0]) < u16::MAX);
}

/// RFC 4987: openings of strangers come all the time, more of them in one round trip than
/// may be kept, while somebody connects whose round trip is long.
#[test]
fn a_flood_keeps_nobody_out_while_it_lasts() {
    for timestamps in [true, false] {
        let tcp = TcpConfig { timestamps, ..TcpConfig::default() };
        let config = Config { half_open: 8, tcp, ..Config::default() };
        let mut two = Two::new(&config, Mapping::Message, Faults::default(), 1);
        let there = two.offer(Mapping::Message);
        let mut n = 0u32;
        let flood = |two: &mut Two, opening: &[u8], n: &mut u32| {
            for _ in 0..200 {
                *n += 1;
                let forged = forge(opening, |frame| {
                    frame[TCP..TCP + 2].copy_from_slice(&(1_024 + *n as u16).to_be_bytes());
                    frame[29] = 100 + (*n % 100) as u8;
                    set_seq(frame, n.wrapping_mul(0x9e37_79b9));
                });
                two.hand_in(1, &[forged]);
            }
            two.said(1)
        };
        let here = two.connect(Mapping::Message);
        let opening = two.said(0).remove(0);
        flood(&mut two, &opening, &mut n);
        two.hand_in(1, std::slice::from_ref(&opening));
        let answer = two.said(1);
        assert_eq!(answer.len(), 1, "a flood takes no answer away");
        // A round trip with many times more strangers than may be kept.
        for _ in 0..10 {
            flood(&mut two, &opening, &mut n);
        }
        two.hand_in(0, &answer);
        let proof = two.said(0);
        for _ in 0..10 {
            flood(&mut two, &opening, &mut n);
        }
        two.hand_in(1, &proof);
        let is_there = |event: &Event| matches!(event, Event::Accepted { queue_pair, .. } if *queue_pair == there);
        assert!(two.events[1].iter().any(is_there), "timestamps {timestamps}");
        let stats = *two.adapter(1).stats();
        // One stranger made room for who is proved.
        assert_eq!((stats.cookies_accepted, stats.half_open_dropped), (1, 1));
        assert!(stats.cookies_sent > 4_000);
        two.pairs = [here, there];
        still_works(&mut two);
        two.check_contract();
    }
}

/// Who is proved by a cookie takes the place of the one that was asked for first, and not of
/// whose answer has just left: that one's number is no cookie, and it would wait for long.
#[test]
fn who_was_just_answered_makes_no_room_for_others() {
    let config = Config { half_open: 4, ..plain() };
    let mut two = Two::new(&config, Mapping::Message, Faults::default(), 1);
    let (first, second) = (two.offer(Mapping::Message), two.offer(Mapping::Message));
    two.connect(Mapping::Message);
    let opening = two.said(0).remove(0);
    let from = |port: u16, kind: u8, numbers: (u32, u32)| {
        forge(&opening, |frame| {
            if kind != SYN {
                frame.truncate(TCP + 20);
                frame[TCP + 12] = 5 << 4;
            }
            frame[TCP..TCP + 2].copy_from_slice(&port.to_be_bytes());
            frame[TCP + 13] = kind;
            set_seq(frame, numbers.0);
            set_ack(frame, numbers.1);
        })
    };
    for port in 1..=4 {
        two.hand_in(1, &[from(port, SYN, (7, 0))]);
        two.wire.now += core::time::Duration::from_millis(10);
    }
    // The first goes, and leaves its place to who is honest.
    two.hand_in(1, &[from(1, RST, (8, 0)), opening.clone()]);
    let answer = two.said(1).pop().unwrap();
    two.hand_in(0, &[answer]);
    let proof = two.said(0);
    two.hand_in(1, &[from(5, SYN, (7, 0))]);
    let cookie = two.said(1).pop().unwrap();
    two.hand_in(1, &[from(5, ACK, (8, seq(&cookie).wrapping_add(1)))]);
    let stats = *two.adapter(1).stats();
    assert_eq!((stats.cookies_accepted, stats.half_open_dropped, stats.accepted), (1, 1, 2));
    two.hand_in(1, &proof);
    let accepted = |id| move |event: &Event| matches!(event, Event::Accepted { queue_pair, .. } if *queue_pair == id);
    assert!(two.events[1].iter().any(accepted(first)));
    assert!(two.events[1].iter().any(accepted(second)), "the honest one was pushed out");
}

/// A client that has proved itself waits for a queue pair; where none is offered it is told.
#[test]
fn who_waits_in_vain_is_told() {
    let mut two = open(Mapping::Message);
    let here = two.connect(Mapping::Message);
    two.until("the connection is open at its side", |two| {
        let opened = |event: &Event| matches!(event, Event::Connected { queue_pair, .. } if *queue_pair == here);
        two.events[0].iter().any(opened)
    });
    let is_over = |event: &Event| matches!(event, Event::Closed { queue_pair, reason: CloseReason::Reset, .. } if *queue_pair == here);
    two.until("it is told", |two| two.events[0].iter().any(is_over));
    assert!(two.wire.now > Instant::from_millis(60_000), "it waited for about a minute");
    still_works(&mut two);
}

/// Nothing is kept of one whom nobody could answer.
#[test]
fn an_opening_from_where_no_way_leads_is_counted_and_not_answered() {
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    two.offer(Mapping::Message);
    two.connect(Mapping::Message);
    let opening = two.said(0).remove(0);
    let from_afar = forge(&opening, |frame| frame[26..30].copy_from_slice(&[192, 0, 2, 1]));
    let before = two.adapter(1).refusals().of(Refusal::WrongAddress);
    two.hand_in(1, &[from_afar]);
    assert_eq!(two.adapter(1).refusals().of(Refusal::WrongAddress), before + 1);
    assert_eq!(two.said(1), Vec::<Vec<u8>>::new());
    two.hand_in(1, &[opening]);
    assert_eq!(two.said(1).len(), 1, "one that can be answered is");
}

/// Numbers that nobody was given prove nothing, and draw no resets while there are such.
#[test]
fn nobody_is_let_in_by_a_number_that_was_not_given_out() {
    let config = Config { half_open: 1, ..plain() };
    let mut two = Two::new(&config, Mapping::Message, Faults::default(), 1);
    let there = two.offer(Mapping::Message);
    two.connect(Mapping::Message);
    let opening = two.said(0).remove(0);
    for port in 1_024..1_034u16 {
        let forged = forge(&opening, |frame| {
            frame[TCP..TCP + 2].copy_from_slice(&port.to_be_bytes());
        });
        two.hand_in(1, &[forged]);
    }
    let answers = two.said(1);
    assert_eq!(answers.len(), 10);
    for (n, off) in (0..2_000u32).zip((1..).map(|n: u32| n.wrapping_mul(0x9e37_79b9))) {
        let wrong = forge(&opening, |frame| {
            frame.truncate(TCP + 20);
            frame[TCP + 12] = 5 << 4;
            frame[TCP..TCP + 2].copy_from_slice(&1_033u16.to_be_bytes());
            frame[TCP + 13] = ACK;
            set_seq(frame, seq(&opening).wrapping_add(1));
            set_ack(frame, seq(&answers[9]).wrapping_add(1).wrapping_add(off.max(1) + n));
        });
        two.hand_in(1, &[wrong]);
    }
    assert_eq!(two.said(1), Vec::<Vec<u8>>::new());
    assert_eq!(two.adapter(1).stats().cookies_accepted, 0);
    let is_there =
        |event: &Event| matches!(event, Event::Accepted { queue_pair, .. } if *queue_pair == there);
    assert!(!two.events[1].iter().any(is_there));
}
