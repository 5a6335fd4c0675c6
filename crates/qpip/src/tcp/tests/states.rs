//! Opening, closing and what strangers try (RFC 9293, 3.10.7; RFC 5961).

use landfall_placement::{Duration, Ecn, Refusal};

use super::pair::{Pair, Wire};
use crate::tcp::config::{KeepAlive, Mapping, TcpConfig};
use crate::tcp::congestion::CongestionControl;
use crate::tcp::segment::Segment;
use crate::tcp::tcb::{CloseReason, ConnectionEvent};
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::Options;

fn open_with(config: TcpConfig, wire: Wire) -> Pair {
    let mut pair = Pair::new(5, config, Mapping::Message, wire);
    pair.run_until("open", |pair| pair.sides[1].tcb.is_some() && pair.is_quiet());
    pair
}

fn open() -> Pair {
    open_with(TcpConfig::default(), Wire::CLEAN)
}

fn reason(pair: &Pair, side: usize) -> Option<CloseReason> {
    pair.sides[side].news.iter().find_map(|news| match news {
        ConnectionEvent::Closed(reason, _) => Some(*reason),
        _ => None,
    })
}

/// A segment that would be next from side 0 to side 1.
fn forged(pair: &Pair, flags: Flags) -> Segment {
    let victim = pair.sides[1].tcb.as_ref().unwrap();
    Segment {
        seq: victim.receiver.next_number(),
        ack: victim.sender.next_number(),
        flags,
        has_ae: false,
        window: 1_000,
        options: Options {
            timestamp: victim.stamps.as_ref().map(|stamps| (stamps.recent(), 0)),
            ..Options::default()
        },
        payload: 0,
        coalesced: None,
        joined: None,
        ecn: Ecn::NotCapable,
    }
}

#[test]
fn both_may_open_at_once() {
    for seed in 0..20 {
        let wire = Wire { loss: if seed == 0 { 0 } else { 200_000 }, ..Wire::CLEAN };
        let mut pair = Pair::new(seed, TcpConfig::default(), Mapping::Message, wire);
        pair.connect_other();
        pair.run_until("both are open", |pair| {
            (0..2).all(|side| {
                pair.sides[side].news.iter().any(|n| matches!(n, ConnectionEvent::Connected))
            })
        });
        pair.sides[1].post_receive(0, 100);
        pair.sides[0].post_send(0, &[1; 50]);
        pair.run_until("a message", |pair| pair.sides[0].done.len() == 1);
        assert_eq!(pair.sides[1].received, [1; 50]);
    }
}

#[test]
fn both_may_close_at_once() {
    let mut pair = open();
    for side in &mut pair.sides {
        side.tcb.as_mut().unwrap().shutdown();
    }
    pair.run_until("closed", |pair| (0..2).all(|side| reason(pair, side).is_some()));
    for side in 0..2 {
        assert_eq!(reason(&pair, side), Some(CloseReason::Finished));
        let waits =
            pair.sides[side].news.iter().any(|n| matches!(n, ConnectionEvent::Closed(_, Some(_))));
        assert!(waits, "both wait, since neither knows that the other is done");
    }
}

/// TIME-WAIT begins with an acknowledgement: the other side need not ask.
#[test]
fn the_last_end_is_acknowledged_at_once() {
    let mut pair = open();
    pair.sides[0].tcb.as_mut().unwrap().shutdown();
    pair.run_until("the end is heard", |pair| {
        pair.sides[1].news.iter().any(|news| matches!(news, ConnectionEvent::PeerFinished))
    });
    pair.sides[1].tcb.as_mut().unwrap().shutdown();
    pair.run_until("closed", |pair| (0..2).all(|side| reason(pair, side).is_some()));
    for side in &pair.sides {
        assert_eq!(side.tcb.as_ref().unwrap().sender().repetitions(), (0, 0));
    }
}

/// The end overtakes what is in front of it, which is lost.
#[test]
fn an_end_that_came_too_early_counts_once_the_rest_is_there() {
    let mut pair = open();
    pair.sides[1].post_receive(0, 100);
    pair.drop_next(0, 1);
    pair.sides[0].post_send(0, &[1; 50]);
    assert!(pair.step());
    pair.sides[0].tcb.as_mut().unwrap().shutdown();
    pair.run_until("both ends are heard", |pair| {
        let news = &pair.sides[1].news;
        let is_told = news.iter().any(|news| matches!(news, ConnectionEvent::PeerFinished));
        is_told && pair.sides[1].received == [1; 50]
    });
    pair.sides[1].tcb.as_mut().unwrap().shutdown();
    pair.run_until("closed", |pair| (0..2).all(|side| reason(pair, side).is_some()));
    assert_eq!(reason(&pair, 0), Some(CloseReason::Finished));
}

/// The end was lost often, and is not due again for a minute. Meanwhile the other side asks
/// whether our window is open: that does not put the next try off.
#[test]
fn a_lost_end_is_sent_again_though_the_other_side_asks_for_a_window() {
    for sack in [false, true] {
        let mut pair = open_with(TcpConfig { sack, ..TcpConfig::default() }, Wire::CLEAN);
        pair.drop_next(0, 9);
        pair.sides[0].tcb.as_mut().unwrap().shutdown();
        pair.run_until("it was lost nine times", |pair| pair.sides[0].segments_sent == 11);
        let due = pair.sides[0].tcb.as_ref().unwrap().sender().deadline();
        assert!(due > pair.now + Duration::from_secs(50));
        pair.sides[1].post_send(0, &[1; 50]);
        pair.run_until("the end is heard", |pair| {
            pair.sides[1].news.iter().any(|news| matches!(news, ConnectionEvent::PeerFinished))
        });
        assert!(pair.now <= due + Duration::from_millis(1), "{}, and it was due {due}", pair.now);
    }
}

#[test]
fn one_direction_may_end_long_before_the_other() {
    let mut pair = open();
    pair.sides[0].tcb.as_mut().unwrap().shutdown();
    pair.run_until("the end is heard", |pair| {
        pair.sides[1].news.iter().any(|news| matches!(news, ConnectionEvent::PeerFinished))
    });
    for id in 0..20 {
        pair.sides[0].post_receive(id, 4_000);
        pair.sides[1].post_send(id, &[id as u8; 3_000]);
    }
    pair.run_until("what the other still has to say", |pair| pair.sides[1].done.len() == 20);
    assert_eq!(pair.sides[0].received.len(), 60_000);
}

#[test]
fn a_reset_counts_only_with_the_very_next_number() {
    let mut pair = open();
    pair.sides[1].post_receive(0, 60_000);
    pair.run_until("quiet", |pair| pair.is_quiet());
    for ahead in [1, 500, 0x8000_0000, u32::MAX] {
        let mut reset = forged(&pair, Flags::RST);
        reset.seq = reset.seq.wrapping_add(ahead);
        assert!(pair.hand_in(1, &reset).is_err());
        assert_eq!(reason(&pair, 1), None, "{ahead} ahead");
    }
    let reset = forged(&pair, Flags::RST);
    let _ = pair.hand_in(1, &reset);
    assert_eq!(reason(&pair, 1), Some(CloseReason::Reset));
}

#[test]
fn an_opening_amid_a_connection_is_challenged_and_not_believed() {
    let mut pair = open();
    pair.sides[1].post_receive(0, 60_000);
    pair.run_until("quiet", |pair| pair.is_quiet());
    let before = pair.sides[1].segments_sent;
    for _ in 0..1_000 {
        let opening = forged(&pair, Flags::SYN);
        assert_eq!(pair.hand_in(1, &opening).err(), Some(Refusal::Unexpected));
        pair.step();
    }
    let challenges = pair.sides[1].segments_sent - before;
    assert!((1..=10).contains(&challenges), "{challenges}: they are limited (RFC 5961, 7)");
    assert_eq!(reason(&pair, 1), None);
}

#[test]
fn acknowledgements_of_what_was_never_sent_change_nothing() {
    let mut pair = open();
    for ahead in [1, 1_000, 0x7000_0000] {
        let mut forged = forged(&pair, Flags::ACK);
        forged.ack = forged.ack.wrapping_add(ahead);
        assert_eq!(pair.hand_in(1, &forged).err(), Some(Refusal::OutOfBounds));
    }
}

#[test]
fn segments_from_the_past_are_refused() {
    let mut pair = open();
    let mut old = forged(&pair, Flags::ACK);
    let (value, echo) = old.options.timestamp.unwrap();
    old.options.timestamp = Some((value.wrapping_sub(10), echo));
    assert_eq!(pair.hand_in(1, &old).err(), Some(Refusal::Duplicate));
}

/// A driver places several units before it tells of the first. What is taken between
/// would make the first look old, and its bytes lie in place: they count.
#[test]
fn what_has_a_place_is_not_refused_for_a_later_timestamp() {
    let mut pair = open();
    pair.sides[1].post_receive(0, 60_000);
    pair.run_until("a window", |pair| pair.told_edge(1) > Some(1_000));
    let data = Segment { payload: 50, ..forged(&pair, Flags::ACK | Flags::PSH) };
    let claim = pair.place(1, &data);
    assert!(!claim.is_empty());
    let mut later = forged(&pair, Flags::ACK);
    let (value, echo) = later.options.timestamp.unwrap();
    later.options.timestamp = Some((value.wrapping_add(10), echo));
    assert!(pair.hand_in(1, &later).is_ok());
    assert!(pair.land(1, &data, claim).is_ok());
    assert_eq!(pair.sides[1].received.len(), 50);
}

/// The same of acknowledgements: RFC 5961, 5.2 refuses what is older than a window.
#[test]
fn what_has_a_place_is_not_refused_for_a_newer_acknowledgement() {
    let config = TcpConfig { timestamps: false, ..TcpConfig::default() };
    let mut pair = open_with(config, Wire::CLEAN);
    pair.sides[1].post_receive(0, 60_000);
    pair.run_until("a window", |pair| pair.told_edge(1) > Some(1_000));
    let data = Segment { payload: 50, ..forged(&pair, Flags::ACK | Flags::PSH) };
    let claim = pair.place(1, &data);
    assert!(!claim.is_empty());
    for id in 0..20 {
        pair.sides[0].post_receive(id, 100);
        pair.sides[1].post_send(id, &[7; 100]);
        pair.run_until("a message back", |pair| pair.sides[1].done.len() > id as usize);
    }
    let refused = pair.place(1, &data);
    assert!(refused.is_empty(), "it is too old to be given a place now");
    assert!(pair.land(1, &data, claim).is_ok());
    assert_eq!(pair.sides[1].received.len(), 50);
}

#[test]
fn an_opening_that_nobody_answers_is_given_up() {
    let wire = Wire { loss: 1_000_000, ..Wire::CLEAN };
    let mut pair = Pair::new(1, TcpConfig::default(), Mapping::Message, wire);
    pair.sides[0].post_send(7, &[1; 10]);
    pair.run_until("given up", |pair| reason(pair, 0).is_some());
    assert_eq!(reason(&pair, 0), Some(CloseReason::TimedOut));
    assert_eq!(pair.sides[0].done.len(), 1, "what was posted comes back");
    assert_eq!(pair.sides[0].segments_sent, 8, "once, and seven repetitions");
}

#[test]
fn who_answers_no_more_is_given_up() {
    let config = TcpConfig { give_up_after: Duration::from_secs(20), ..TcpConfig::default() };
    let mut pair = open_with(config, Wire::CLEAN);
    pair.sides[1].post_receive(0, 60_000);
    pair.run_until("quiet", |pair| pair.is_quiet());
    pair.drop_next(0, u32::MAX);
    pair.sides[0].post_send(7, &[1; 10]);
    pair.run_until("given up", |pair| reason(pair, 0).is_some());
    assert_eq!(reason(&pair, 0), Some(CloseReason::TimedOut));
}

#[test]
fn keep_alive_finds_out_who_is_gone_and_lets_who_is_there_be() {
    let alive =
        KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(1), probes: 3 };
    let config = TcpConfig { keep_alive: Some(alive), ..TcpConfig::default() };
    let mut pair = open_with(config, Wire::CLEAN);
    let until = pair.now + Duration::from_secs(100);
    pair.run_until("an idle while", |pair| pair.now >= until);
    assert_eq!((reason(&pair, 0), reason(&pair, 1)), (None, None));
    pair.drop_next(0, u32::MAX);
    pair.drop_next(1, u32::MAX);
    pair.run_until("both notice", |pair| (0..2).all(|side| reason(pair, side).is_some()));
    assert_eq!(reason(&pair, 0), Some(CloseReason::TimedOut));
}

#[test]
fn marks_slow_the_sender_down_and_lose_nothing() {
    // RFC 3168 and 8257.
    for congestion in [CongestionControl::Cubic, CongestionControl::Dctcp] {
        let config = TcpConfig { ecn: true, congestion, ..TcpConfig::default() };
        check_marks(open_with(config, Wire::CLEAN));
    }
}

fn check_marks(mut pair: Pair) {
    let send = |pair: &mut Pair, count: usize| {
        let (mut posted, mut received) = (0, 0);
        let before = pair.sides[0].done.len();
        pair.run_until("messages", |pair| {
            if posted < count && pair.sides[0].post_send(0, &[3; 10_000]) {
                posted += 1;
            }
            if pair.sides[1].queues.receive.len() < 32 {
                pair.sides[1].post_receive(received, 10_000);
                received += 1;
            }
            pair.sides[0].done.len() == before + count
        });
        pair.sides[0].tcb.as_ref().unwrap().sender().congestion_window()
    };
    let free = send(&mut pair, 100);
    pair.is_congested = true;
    let marked = send(&mut pair, 100);
    assert!(marked < free / 2, "{marked} after marks, {free} before");
    let sender = pair.sides[0].tcb.as_ref().unwrap().sender();
    assert_eq!(sender.repetitions().1, 0, "no time-out");
}

#[test]
fn an_idle_connection_is_small() {
    let tcb = size_of::<crate::tcp::Tcb>();
    let parts = [
        ("sender", size_of::<crate::tcp::sender::Sender>()),
        ("flight", size_of::<crate::tcp::flight::Flight>()),
        ("rack", size_of::<crate::tcp::rack::Rack>()),
        ("controller", size_of::<crate::tcp::congestion::Controller>()),
        ("recovery", size_of::<crate::tcp::sender::Recovery>()),
        ("receiver", size_of::<crate::tcp::receiver::Receiver>()),
        ("terms", size_of::<crate::tcp::listen::Terms>()),
    ];
    let queues = size_of::<crate::queue::Queues>();
    assert!(tcb + queues <= 1200, "{tcb} + {queues} bytes: {parts:?}");
}
