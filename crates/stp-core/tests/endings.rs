//! Reads; what is refused, limited, ended early by either side; and messages
//! that overtake each other.

use std::time::Duration;

use crate::world::{Pair, is_received, is_sent, noise, place, read, run_for};
use landfall_placement::{Area, Engine as _};
use landfall_simnet::{LinkConfig, Loss, Probability, Sim, check};
use stp_core::{Config, Ended, Error, Event, wire::Reason};

fn ethernet() -> LinkConfig {
    LinkConfig::ethernet(10_000_000_000).delay(Duration::from_micros(5)).mtu(1_500)
}

fn terrible() -> LinkConfig {
    ethernet()
        .loss(Loss::Uniform(Probability::percent(20)))
        .duplication(Probability::percent(20))
        .reordering(Probability::percent(20), Duration::from_micros(300))
        .corruption(Probability::percent(5))
}

fn patient() -> Config {
    Config { give_up_after: 200, ..Config::default() }.with_checksum()
}

fn read_asked(pair: &Pair) -> Option<stp_core::ReadId> {
    pair.b_log.borrow().iter().rev().find_map(|event| match event {
        Event::ReadRequested { read, .. } => Some(*read),
        _ => None,
    })
}

#[test]
fn a_read_is_answered_by_a_transfer_into_the_readers_memory() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let memory = place(&mut pair.sim, pair.a, 5, &vec![0; 200_000]);
        let (now, id) = (pair.now(), pair.from_a);
        pair.alice().read(now, id, memory, 77).unwrap();
        pair.run_until("the question", |_, b| {
            b.iter().any(|e| matches!(e, Event::ReadRequested { len: 200_000, opaque: 77, .. }))
        });
        let asked = read_asked(&pair).unwrap();
        let bytes = noise(1, 150_000);
        let source = place(&mut pair.sim, pair.b, 0, &bytes);
        let now = pair.now();
        pair.bob().answer_read(now, asked, source, 88).unwrap();
        assert_eq!(pair.bob().answer_read(now, asked, source, 88), Err(Error::Unknown));
        pair.run_until("the answer", |a, b| a.iter().any(is_received) && b.iter().any(is_sent));
        let log = pair.a_log.borrow().clone();
        let received = log.iter().find(|e| is_received(e)).unwrap();
        let Event::Received { memory: area, len, opaque, .. } = *received else { unreachable!() };
        assert_eq!((area, len, opaque), (memory, 150_000, 88));
        assert!(read(&pair.sim, pair.a, Area { len, ..area }) == bytes);
        run_for(&mut pair.sim, Duration::from_secs(30));
        assert_eq!(pair.count_b(|e| matches!(e, Event::ReadRequested { .. })), 1, "asked once");
    });
}

#[test]
fn a_read_may_be_refused() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let memory = place(&mut pair.sim, pair.a, 0, &[0; 100]);
        let (now, id) = (pair.now(), pair.from_a);
        pair.alice().read(now, id, memory, 0).unwrap();
        pair.run_until("the question", |_, b| {
            b.iter().any(|e| matches!(e, Event::ReadRequested { .. }))
        });
        let asked = read_asked(&pair).unwrap();
        let now = pair.now();
        pair.bob().refuse_read(now, asked, Reason::Refused).unwrap();
        pair.run_until("the refusal", |a, _| {
            a.iter().any(|e| {
                matches!(e, Event::ReceiveEnded { memory: Some(m), why: Ended::There(_), .. } if *m == memory)
            })
        });
    });
}

#[test]
fn a_message_that_is_too_long_is_refused_or_limited() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let bytes = noise(1, 50_000);
        // Refused: the sender learns why, and the memory is given back.
        let small = pair.post(0, 40_000);
        pair.send(0, &bytes);
        pair.run_until("the refusal", |a, b| {
            a.iter().any(|e| {
                matches!(
                    e,
                    Event::SendEnded { why: Ended::There(Reason::TooLong | Reason::Gone), .. }
                )
            }) && b
                .iter()
                .any(|e| matches!(e, Event::ReceiveEnded { memory: Some(m), why: Ended::DoesNotFit, .. } if *m == small))
        });
        // Limited: its start is taken, and both sides know how much.
        let now = pair.now();
        let area = place(&mut pair.sim, pair.b, 3, &vec![0; 40_000]);
        let id = pair.from_b;
        pair.bob().post(now, id, area, true).unwrap();
        pair.send(9, &bytes);
        pair.run_until("a part of it", |a, b| {
            a.iter().any(|e| matches!(e, Event::Sent { len: 40_000, .. }))
                && b.iter()
                    .any(|e| matches!(e, Event::Received { len: 40_000, offered: 50_000, .. }))
        });
        assert!(read(&pair.sim, pair.b, area) == bytes[..40_000]);
    });
}

/// The limit is said before there is memory, and again as often as its sender asks.
#[test]
fn an_offer_is_limited_before_there_is_memory_for_it() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let bytes = noise(1, 50_000);
        pair.send(9, &bytes);
        let offered = |event: &Event| match event {
            Event::Offered { receive, .. } => Some(*receive),
            _ => None,
        };
        pair.run_until("the offer", |_, b| b.iter().any(|e| offered(e).is_some()));
        let offer = pair.b_log.borrow().iter().find_map(offered).unwrap();
        assert_eq!(pair.bob().limit(offer, 0), Err(Error::TooShort));
        pair.bob().limit(offer, 40_000).unwrap();
        assert_eq!(pair.bob().limit(offer, 30_000), Err(Error::Taken));
        run_for(&mut pair.sim, Duration::from_secs(20));
        let now = pair.now();
        let area = place(&mut pair.sim, pair.b, 3, &vec![0; 40_000]);
        pair.bob().accept(now, offer, area, false).unwrap();
        assert_eq!(pair.bob().limit(offer, 30_000), Err(Error::NotOpen));
        pair.run_until("a part of it", |a, b| {
            a.iter().any(|e| matches!(e, Event::Sent { len: 40_000, .. }))
                && b.iter()
                    .any(|e| matches!(e, Event::Received { len: 40_000, offered: 50_000, .. }))
        });
        assert!(read(&pair.sim, pair.b, area) == bytes[..40_000]);
    });
}

#[test]
fn what_nobody_has_memory_for_waits_for_the_user() {
    let mut pair = Pair::new(Sim::from_number(1), Config::default(), &[ethernet()]);
    pair.send(0, &noise(1, 5_000));
    pair.send(0, &noise(2, 5_000));
    pair.run_until("two offers", |_, b| {
        b.iter().filter(|e| matches!(e, Event::Offered { len: 5_000, .. })).count() == 2
    });
    // However long it takes.
    run_for(&mut pair.sim, Duration::from_secs(60));
    let offers: Vec<_> = pair
        .b_log
        .borrow()
        .iter()
        .filter_map(|event| match event {
            Event::Offered { receive, .. } => Some(*receive),
            _ => None,
        })
        .collect();
    let area = place(&mut pair.sim, pair.b, 0, &[0; 5_000]);
    let now = pair.now();
    pair.bob().accept(now, offers[1], area, false).unwrap();
    assert_eq!(pair.bob().accept(now, offers[1], area, false), Err(Error::NotOpen));
    pair.bob().refuse(offers[0], Reason::Refused).unwrap();
    pair.run_until("both ends", |a, b| {
        a.iter().any(is_sent)
            && b.iter().any(is_received)
            && a.iter()
                .any(|e| matches!(e, Event::SendEnded { why: Ended::There(Reason::Refused), .. }))
    });
    assert_eq!(read(&pair.sim, pair.b, area), noise(2, 5_000));
}

/// Either side ends a Transfer at any moment: both learn of it, once, and the
/// next one goes well.
#[test]
fn either_side_may_end_a_transfer_early() {
    for by_sender in [true, false] {
        for micros in [0, 5, 30, 100, 400, 1_000, 3_000, 20_000] {
            check(1..=6, |sim| {
                let sim = std::mem::replace(sim, Sim::from_number(0));
                let mut pair = Pair::new(sim, patient(), &[terrible()]);
                let bytes = noise(1, 300_000);
                let area = pair.post(0, bytes.len());
                let source = place(&mut pair.sim, pair.a, 0, &bytes);
                let (now, id) = (pair.now(), pair.from_a);
                let send = pair.alice().send(now, id, source, 0).unwrap();
                run_for(&mut pair.sim, Duration::from_micros(micros));
                let now = pair.now();
                if by_sender {
                    let _ = pair.alice().cancel_send(now, send);
                } else {
                    let receiver = pair.from_b;
                    let _ = pair.bob().withdraw(now, receiver, area);
                }
                let over = |e: &Event| matches!(e, Event::Sent { .. } | Event::SendEnded { .. });
                run_for(&mut pair.sim, Duration::from_nanos(1));
                let was_unposted = pair.count_b(|e| matches!(e, Event::Unposted { .. })) == 1;
                if was_unposted {
                    // It has not begun: it is offered, and taken after all.
                    pair.post(0, bytes.len());
                }
                pair.run_until("its end at the sender", |a, _| a.iter().any(over));
                run_for(&mut pair.sim, Duration::from_secs(60));
                assert_eq!(pair.count_a(over), 1);
                // What was sent whole was received whole.
                let whole = (pair.count_a(is_sent), pair.count_b(is_received));
                assert_eq!(whole.0, whole.1, "{:?} {:?}", pair.a_log.borrow(), pair.b_log.borrow());
                if whole.1 == 1 && !was_unposted {
                    assert!(read(&pair.sim, pair.b, area) == bytes);
                }
                assert_eq!((pair.alice().granted_bytes(), pair.bob().granted_bytes()), (0, 0));
                let given_back = pair
                    .count_b(|e| matches!(e, Event::ReceiveEnded { .. } | Event::Unposted { .. }))
                    + whole.1;
                assert!(given_back <= 1 + usize::from(was_unposted));
                let (sent, received) = whole;
                if given_back > usize::from(was_unposted) {
                    pair.post(0, bytes.len());
                }
                pair.send(0, &bytes);
                pair.run_until("the next", |a, b| {
                    a.iter().filter(|e| is_sent(e)).count() == sent + 1
                        && b.iter().filter(|e| is_received(e)).count() == received + 1
                });
            });
        }
    }
}

/// A known trap of receiver-driven protocols: a grant that overtakes what it
/// belongs to, or a negative answer that comes late, must not stall for good.
#[test]
fn messages_that_overtake_each_other_stall_nothing() {
    let jumbled = ethernet()
        .reordering(Probability::percent(70), Duration::from_millis(30))
        .duplication(Probability::percent(30));
    check(1..=40, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair =
            Pair::new(sim, Config { give_up_after: 60, ..Config::default() }, &[jumbled]);
        let bytes = noise(4, 30_000);
        // Some fit, some are too long, some are limited, in turn.
        for n in 0..12 {
            let len = if n % 3 == 0 { 30_000 } else { 20_000 };
            let area = place(&mut pair.sim, pair.b, n, &vec![0; len]);
            let (now, id) = (pair.now(), pair.from_b);
            pair.bob().post(now, id, area, n % 3 == 1).unwrap();
        }
        for n in 0..12 {
            pair.send(n, &bytes);
        }
        let over = |e: &Event| matches!(e, Event::Sent { .. } | Event::SendEnded { .. });
        let there = |e: &Event| matches!(e, Event::Received { .. } | Event::ReceiveEnded { .. });
        pair.run_until("twelve ends", |a, b| {
            a.iter().filter(|e| over(e)).count() == 12
                && b.iter().filter(|e| there(e)).count() == 12
        });
        assert_eq!((pair.count_a(is_sent), pair.count_b(is_received)), (8, 8));
    });
}

#[test]
fn progress_is_told_and_frees_buffers() {
    let config = Config { progress: true, block_stus: 4, blocks_ahead: 2, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(1), config, &[ethernet()]);
    let bytes = noise(1, 1 << 20);
    pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
    for log in [&pair.a_log, &pair.b_log] {
        let told: Vec<u64> = log
            .borrow()
            .iter()
            .filter_map(|event| match event {
                Event::SendProgress { len, .. } | Event::ReceiveProgress { len, .. } => Some(*len),
                _ => None,
            })
            .collect();
        assert!(told.len() > 10, "{told:?}");
        assert!(told.is_sorted() && *told.last().unwrap() < 1 << 20, "{told:?}");
    }
    // 12 STUs in a Block of 16 KiB: 11 of 12 notifications are saved. The paper has 64: 98.4 %.
    assert_eq!(pair.bob().stats().interrupts_saved_per_mille(), 916);
}

#[test]
fn progress_is_told_of_what_is_watched_and_of_nothing_else() {
    let config = Config { block_stus: 4, blocks_ahead: 2, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(1), config, &[ethernet()]);
    let bytes = noise(1, 1 << 20);
    let begin = |pair: &mut Pair, before| {
        let area = place(&mut pair.sim, pair.a, before, &bytes);
        let (now, id) = (pair.now(), pair.from_a);
        pair.alice().send(now, id, area, before as u32).unwrap()
    };
    let sends = [0, 1, 2].map(|before| begin(&mut pair, before));
    assert_eq!(pair.alice().watch_send(sends[1], true), Ok(0));
    // Who looks no more is told no more.
    assert_eq!(pair.alice().watch_send(sends[2], true), Ok(0));
    assert_eq!(pair.alice().watch_send(sends[2], false), Ok(0));
    let is_offered = |event: &Event| matches!(event, Event::Offered { .. });
    pair.run_until("offers", |_, b| b.iter().filter(|event| is_offered(event)).count() == 3);
    let offers: Vec<_> = pair
        .b_log
        .borrow()
        .iter()
        .filter_map(|event| match event {
            Event::Offered { receive, opaque, .. } => Some((*receive, *opaque)),
            _ => None,
        })
        .collect();
    for (receive, opaque) in &offers {
        let area = place(&mut pair.sim, pair.b, *opaque as usize, &vec![0; bytes.len()]);
        let now = pair.now();
        pair.bob().accept(now, *receive, area, false).unwrap();
        if *opaque == 0 {
            assert_eq!(pair.bob().watch_receive(*receive, true), Ok(0));
        }
    }
    pair.run_until("three", |a, b| {
        let sent = a.iter().filter(|event| is_sent(event)).count();
        (sent, b.iter().filter(|event| is_received(event)).count()) == (3, 3)
    });
    let watched = offers.iter().find(|(_, opaque)| *opaque == 0).unwrap().0;
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for event in pair.a_log.borrow().iter().chain(pair.b_log.borrow().iter()) {
        match event {
            Event::SendProgress { send, len, .. } => {
                assert_eq!(*send, sends[1]);
                sent.push(*len);
            }
            Event::ReceiveProgress { receive, len, .. } => {
                assert_eq!(*receive, watched);
                received.push(*len);
            }
            _ => {}
        }
    }
    for told in [sent, received] {
        assert!(told.len() > 10 && told.is_sorted() && *told.last().unwrap() < 1 << 20, "{told:?}");
    }
    // What is over has no progress.
    assert!(pair.alice().watch_send(sends[1], true).is_err());
    assert!(pair.bob().watch_receive(watched, true).is_err());
}

#[test]
fn sixty_four_stus_in_a_block_save_the_papers_interrupts() {
    let config = Config { max_stu: 10, block_stus: 6, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(1), config, &[ethernet()]);
    let bytes = noise(1, 1 << 20);
    pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    let stats = *pair.bob().stats();
    assert_eq!((stats.stus_received, stats.block_notifications), (1024, 16));
    assert_eq!(stats.interrupts_saved_per_mille(), 984, "98.4 % fewer, as in the paper");
    assert_eq!(pair.bob().refusals().total(), 0);
}
