//! What links do to frames.

use std::time::Duration;

use crate::common::{Inbox, number, numbered, run_dry, silent};
use landfall_placement::{Ecn, Instant, Random};
use landfall_simnet::queue::{Backlog, Verdict};
use landfall_simnet::sim::Fate;
use landfall_simnet::{
    DropReason, Error, Frame, Handle, Limits, LinkConfig, LinkId, Loss, Outbox, Outcome, PortId,
    Probability, QueuePolicy, Sim, TailDrop,
};
use proptest::prelude::*;

const PORT: PortId = PortId(0);

/// Two nodes with a link; the second keeps what it gets.
fn pair(sim: &mut Sim, config: LinkConfig) -> (landfall_simnet::NodeId, Handle<Inbox>, LinkId) {
    let a = sim.add("a", silent).unwrap();
    let b = sim.add("b", Inbox::default()).unwrap();
    let link = sim.connect(a, b, config).unwrap();
    (a.id(), b, link)
}

#[test]
fn a_frame_arrives_after_its_sending_time_and_the_delay() {
    let mut sim = Sim::from_number(1);
    let config = LinkConfig::new().rate(8_000_000).delay(Duration::from_micros(500));
    let (a, b, _) = pair(&mut sim, config);
    for n in 0..3 {
        sim.send(a, PORT, numbered(n, 1_000)).unwrap();
    }
    assert_eq!(sim.run_until(Instant::FAR_FUTURE), Ok(Outcome::Idle));
    let times: Vec<_> = sim.node(b).unwrap().frames.iter().map(|(at, ..)| *at).collect();
    // 1,000 bytes at 8 Mbit/s leave in 1 ms, one after the other.
    assert_eq!(times, [1_500, 2_500, 3_500].map(Instant::from_micros));
}

#[test]
fn a_full_queue_drops_the_tail_and_its_height_is_known() {
    let mut sim = Sim::from_number(1);
    let config = LinkConfig::new().rate(8_000_000).queue_frames(3);
    let (a, b, link) = pair(&mut sim, config);
    for n in 0..10 {
        sim.send(a, PORT, numbered(n, 100)).unwrap();
    }
    run_dry(&mut sim);
    assert_eq!(sim.node(b).unwrap().numbers(), [0, 1, 2, 3], "one leaves, three wait");
    let stats = sim.stats(link.there());
    assert_eq!(stats.dropped(DropReason::Queue), 6);
    assert_eq!((stats.queue_high_frames, stats.queue_high_bytes), (3, 300));
    assert_eq!(sim.stats(link.back()).sent, 0, "the other direction is its own");
}

#[test]
fn a_queue_can_be_limited_by_bytes() {
    let mut sim = Sim::from_number(1);
    let (a, b, _) = pair(&mut sim, LinkConfig::new().rate(8_000_000).queue_bytes(250));
    for (n, len) in [(0, 1_000), (1, 200), (2, 100), (3, 50)] {
        sim.send(a, PORT, numbered(n, len)).unwrap();
    }
    run_dry(&mut sim);
    assert_eq!(sim.node(b).unwrap().numbers(), [0, 1, 3], "what fits may still join");
}

#[test]
fn longer_frames_than_the_mtu_are_dropped_and_counted() {
    let mut sim = Sim::from_number(1);
    let (a, b, link) = pair(&mut sim, LinkConfig::new().mtu(100));
    sim.send(a, PORT, numbered(1, 101)).unwrap();
    sim.send(a, PORT, numbered(2, 100)).unwrap();
    run_dry(&mut sim);
    assert_eq!(sim.node(b).unwrap().numbers(), [2]);
    assert_eq!(sim.stats(link.there()).dropped(DropReason::TooLong), 1);
}

#[test]
fn overtaken_frames_arrive_late_but_arrive() {
    let mut sim = Sim::from_number(1);
    let config = LinkConfig::new()
        .delay(Duration::from_micros(10))
        .reordering(Probability::percent(20), Duration::from_micros(100));
    let (a, b, link) = pair(&mut sim, config);
    for n in 0..1_000 {
        sim.send(a, PORT, numbered(n, 64)).unwrap();
        sim.run_until(Instant::from_micros(u64::from(n))).unwrap();
    }
    run_dry(&mut sim);
    let mut numbers = sim.node(b).unwrap().numbers();
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..1_000));
    assert!((100..300).contains(&sim.stats(link.there()).reordered));
}

#[test]
fn damaged_frames_differ_in_one_bit() {
    let mut sim = Sim::from_number(1);
    let (a, b, link) = pair(&mut sim, LinkConfig::new().corruption(Probability::percent(50)));
    for _ in 0..100 {
        sim.send(a, PORT, Frame::raw([0; 50])).unwrap();
    }
    run_dry(&mut sim);
    let ones = |frame: &Frame| frame.bytes.iter().map(|b| b.count_ones()).sum::<u32>();
    let flipped: Vec<u32> = sim.node(b).unwrap().frames.iter().map(|f| ones(&f.2)).collect();
    assert!(flipped.iter().all(|n| *n <= 1));
    assert_eq!(u64::from(flipped.iter().sum::<u32>()), sim.stats(link.there()).corrupted);
    assert!((30..70).contains(&sim.stats(link.there()).corrupted));
}

#[test]
fn a_link_that_goes_down_loses_what_is_on_it() {
    let mut sim = Sim::from_number(1);
    let config = LinkConfig::new().rate(8_000_000).delay(Duration::from_micros(1_500));
    let (a, b, link) = pair(&mut sim, config);
    // They leave at 1, 2, 3 ms and arrive at 2.5, 3.5, 4.5 ms.
    for n in 0..3 {
        sim.send(a, PORT, numbered(n, 1_000)).unwrap();
    }
    sim.schedule_link(Instant::from_micros(2_600), link, false).unwrap();
    sim.schedule_link(Instant::from_millis(10), link, true).unwrap();
    sim.run_until(Instant::from_millis(5)).unwrap();
    sim.send(a, PORT, numbered(3, 100)).unwrap();
    sim.run_until(Instant::from_millis(20)).unwrap();
    sim.send(a, PORT, numbered(4, 100)).unwrap();
    run_dry(&mut sim);
    assert_eq!(sim.node(b).unwrap().numbers(), [0, 4]);
    let stats = sim.stats(link.there());
    assert_eq!((stats.dropped(DropReason::Down), stats.under_way), (3, 0));
    assert_eq!(sim.frames_under_way(), 0);
}

#[test]
fn an_interceptor_takes_and_changes_frames() {
    let mut sim = Sim::from_number(1);
    let (a, b, link) = pair(&mut sim, LinkConfig::new());
    sim.intercept(link.there(), |_, frame| {
        frame.bytes.truncate(4);
        if number(frame) == 1 { Fate::Drop } else { Fate::Pass }
    })
    .unwrap();
    for n in 0..3 {
        sim.send(a, PORT, numbered(n, 50)).unwrap();
    }
    run_dry(&mut sim);
    let inbox = sim.node(b).unwrap();
    assert_eq!(inbox.numbers(), [0, 2]);
    assert!(inbox.frames.iter().all(|(.., frame)| frame.len() == 4));
}

#[derive(Debug)]
struct MarkWhenBusy;

impl QueuePolicy for MarkWhenBusy {
    fn admit(&mut self, _: Instant, _: &mut Frame, backlog: Backlog, _: &mut Random) -> Verdict {
        if backlog.frames > 0 { Verdict::Mark } else { Verdict::Pass }
    }

    fn has_room(&self, _: Backlog) -> bool {
        true
    }
}

#[test]
fn a_policy_marks_what_can_be_marked_and_drops_the_rest() {
    let mut sim = Sim::from_number(1);
    let (a, b, link) = pair(&mut sim, LinkConfig::new().rate(8_000_000));
    sim.set_queue_policy(link.there(), MarkWhenBusy).unwrap();
    for n in 0..4 {
        let ecn = if n == 2 { Ecn::NotCapable } else { Ecn::Capable0 };
        sim.send(a, PORT, Frame { ecn, ..numbered(n, 100) }).unwrap();
    }
    run_dry(&mut sim);
    let inbox = sim.node(b).unwrap();
    assert_eq!(inbox.numbers(), [0, 1, 3]);
    let marks: Vec<_> = inbox.frames.iter().map(|(.., frame)| frame.ecn).collect();
    assert_eq!(marks, [Ecn::Capable0, Ecn::Capable0, Ecn::CongestionExperienced]);
    assert_eq!(sim.stats(link.there()).marked, 1);
}

#[test]
fn invariant_5_at_each_bound_there_is_an_error() {
    let limits = Limits { nodes: 2, links: 1, frames: 3, scheduled: 1, events_per_instant: 100 };
    let mut sim = Sim::with_limits([0; 32], limits);
    let (a, b, link) = pair(&mut sim, LinkConfig::new().delay(Duration::from_micros(1)));
    assert_eq!(sim.add("c", silent).unwrap_err(), Error::TooManyNodes { limit: 2 });
    assert_eq!(sim.connect(a, b, LinkConfig::new()).unwrap_err(), Error::TooManyLinks { limit: 1 });
    sim.schedule_link(Instant::from_millis(1), link, true).unwrap();
    assert_eq!(
        sim.schedule_link(Instant::from_millis(1), link, true),
        Err(Error::TooManyScheduled { limit: 1 })
    );
    for n in 0..4 {
        sim.send(a, PORT, numbered(n, 10)).unwrap();
    }
    let full = Err(Error::TooManyFrames { limit: 3 });
    assert_eq!(sim.run_until(Instant::FAR_FUTURE), full);
    assert_eq!(sim.run_until(Instant::FAR_FUTURE), full, "the error stays");
    assert_eq!(sim.stats(link.there()).dropped(DropReason::NoRoom), 1);
}

#[test]
fn nodes_that_answer_each_other_in_no_time_are_stopped() {
    let mut sim = Sim::from_number(1);
    let echo = |_: Instant, port, frame, out: &mut Outbox<'_>| out.send(port, frame);
    let (a, b) = (sim.add("a", echo).unwrap(), sim.add("b", echo).unwrap());
    sim.connect(a, b, LinkConfig::new()).unwrap();
    sim.send(a, PORT, Frame::raw([1])).unwrap();
    assert_eq!(sim.run_until(Instant::from_millis(1)), Err(Error::Stuck { at: Instant::ZERO }));
}

#[test]
fn handles_and_links_of_another_simulation_are_refused() {
    let (mut sim, mut other) = (Sim::from_number(1), Sim::from_number(1));
    let (a, b, link) = pair(&mut other, LinkConfig::new());
    assert_eq!(sim.node(b).err(), Some(Error::NoSuchNode(b.id())));
    assert_eq!(sim.node_mut(b).err(), Some(Error::NoSuchNode(b.id())));
    assert_eq!(sim.send(a, PORT, Frame::raw([])), Err(Error::NoSuchNode(a)));
    assert_eq!(sim.set_link(link, false), Err(Error::NoSuchLink(link.there())));
    let wrong = sim.add("a", Inbox::default()).unwrap();
    let right = sim.add("b", silent).unwrap();
    assert_eq!(wrong.id(), a);
    assert_eq!(sim.connect(wrong, b, LinkConfig::new()).err(), None, "names are numbers");
    assert_eq!(sim.node(b).err(), Some(Error::NoSuchNode(right.id())), "of another type");
    sim.send(right, PortId(9), Frame::raw([])).unwrap();
    assert_eq!(sim.misdirected(), 1);
}

#[test]
fn a_host_can_wait_for_room() {
    struct Patient {
        left: u32,
    }
    impl Patient {
        fn go_on(&mut self, out: &mut Outbox<'_>) {
            while self.left > 0 && out.has_room(PORT) {
                self.left -= 1;
                out.send(PORT, numbered(self.left, 100));
            }
            if self.left > 0 {
                out.call_when_room(PORT);
            }
        }
    }
    impl landfall_simnet::Node for Patient {
        fn handle_frame(&mut self, _: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>) {}
        fn handle_room(&mut self, _: Instant, _: PortId, out: &mut Outbox<'_>) {
            self.go_on(out);
        }
        fn handle_link(
            &mut self,
            _: Instant,
            _: PortId,
            _: landfall_simnet::LinkState,
            out: &mut Outbox<'_>,
        ) {
            self.go_on(out);
        }
    }
    let mut sim = Sim::from_number(1);
    let a = sim.add("a", Patient { left: 100 }).unwrap();
    let b = sim.add("b", Inbox::default()).unwrap();
    let link = sim.connect(a, b, LinkConfig::new().rate(1_000_000).queue_frames(2)).unwrap();
    run_dry(&mut sim);
    assert_eq!(sim.node(b).unwrap().frames.len(), 100);
    assert_eq!(sim.stats(link.there()).dropped_total(), 0);
    assert_eq!(sim.stats(link.there()).queue_high_frames, 2);
}

/// A link with any mixture of faults.
fn any_link() -> impl Strategy<Value = LinkConfig> {
    let ppm = || (0u32..400_000).prop_map(Probability::per_million);
    let loss = prop_oneof![
        Just(Loss::None),
        ppm().prop_map(Loss::Uniform),
        (ppm(), 1u32..20).prop_map(|(share, length)| Loss::bursts(share, length)),
    ];
    let rate = prop_oneof![Just(None), (1_000u64..10_000_000_000).prop_map(Some)];
    let any =
        (loss, ppm(), ppm(), ppm(), rate, 0u64..100_000, 20u32..2_000, 0u32..50, any::<bool>());
    any.prop_map(
        |(loss, duplication, reordering, corruption, rate, delay, mtu, frames, heads_first)| {
            LinkConfig {
                rate,
                heads_first,
                queue: TailDrop::frames(frames),
                ..LinkConfig::new()
                    .loss(loss)
                    .duplication(duplication)
                    .reordering(reordering, Duration::from_micros(30))
                    .corruption(corruption)
                    .delay(Duration::from_nanos(delay))
                    .mtu(mtu)
            }
        },
    )
}

proptest! {
    #[test]
    fn no_frame_gets_lost_from_the_books(
        config in any_link(),
        seed in any::<u64>(),
        lens in prop::collection::vec(4usize..2_500, 1..200),
        cut in prop::option::of(0u64..2_000),
    ) {
        let mut sim = Sim::from_number(seed);
        let (a, b, link) = pair(&mut sim, config);
        if let Some(at) = cut {
            sim.schedule_link(Instant::from_micros(at), link, false).unwrap();
            sim.schedule_link(Instant::from_micros(at + 100), link, true).unwrap();
        }
        for (n, len) in lens.iter().enumerate() {
            sim.send(a, PORT, numbered(n as u32, *len)).unwrap();
            sim.run_until(Instant::from_micros(10 * n as u64)).unwrap();
            let stats = sim.stats(link.there());
            prop_assert_eq!(
                stats.sent + stats.duplicated,
                stats.delivered + stats.dropped_total() + stats.under_way
            );
        }
        run_dry(&mut sim);
        let stats = sim.stats(link.there());
        prop_assert_eq!(stats.under_way, 0);
        prop_assert_eq!(sim.frames_under_way(), 0);
        prop_assert_eq!(stats.sent, lens.len() as u64);
        let arrived = &sim.node(b).unwrap().frames;
        prop_assert_eq!(stats.delivered, arrived.len() as u64);
        let bytes: usize = arrived.iter().map(|(.., frame)| frame.len()).sum();
        prop_assert_eq!(stats.delivered_bytes, bytes as u64);
    }
}

#[test]
fn a_link_without_rate_never_delivers_and_never_ends_time() {
    let mut sim = Sim::from_number(1);
    let (a, b, link) = pair(&mut sim, LinkConfig::new().rate(0));
    sim.send(a, PORT, numbered(1, 100)).unwrap();
    assert_eq!(sim.run_until(Instant::FAR_FUTURE), Ok(Outcome::Idle));
    assert_eq!(sim.now(), Instant::ZERO);
    assert_eq!(sim.stats(link.there()).under_way, 1);
    assert!(sim.node(b).unwrap().frames.is_empty());
}

#[test]
fn a_pause_stops_the_transmitter_behind_the_frame_it_sends() {
    // Pauses its port for as many microseconds as a frame says.
    let obedient = |_: Instant, port, frame: Frame, out: &mut Outbox<'_>| {
        out.pause(port, Duration::from_micros(u64::from(number(&frame))));
    };
    let mut sim = Sim::from_number(1);
    let a = sim.add("a", obedient).unwrap();
    let b = sim.add("b", Inbox::default()).unwrap();
    // 100 bytes take 100 µs there, and no time back.
    let slow = LinkConfig::new().rate(8_000_000);
    sim.connect_each(a, b, slow, LinkConfig::new()).unwrap();
    for n in 0..4 {
        sim.send(a, PORT, numbered(n, 100)).unwrap();
    }
    for (at, pause) in [(150, 1_000), (250, 300), (900, 500), (1_000, 0)] {
        sim.run_until(Instant::from_micros(at)).unwrap();
        sim.send(b, PORT, numbered(pause, 4)).unwrap();
    }
    run_dry(&mut sim);
    let times: Vec<_> = sim.node(b).unwrap().frames.iter().map(|(at, ..)| *at).collect();
    // The shorter pause replaces the longer one; the last ends its forerunner.
    assert_eq!(times, [100, 200, 650, 750].map(Instant::from_micros));
    assert_eq!(sim.now(), Instant::from_micros(1_400), "the last pause ran out in between");
}

#[test]
fn who_cuts_through_has_a_frame_when_its_first_bit_arrives() {
    let mut sim = Sim::from_number(1);
    let config = LinkConfig::new().rate(8_000_000).delay(Duration::from_micros(5)).heads_first();
    let (a, b, link) = pair(&mut sim, config);
    for n in 0..3 {
        sim.send(a, PORT, numbered(n, 100)).unwrap();
    }
    run_dry(&mut sim);
    let times: Vec<_> = sim.node(b).unwrap().frames.iter().map(|(at, ..)| *at).collect();
    // 100 bytes keep the transmitter busy for 100 µs.
    assert_eq!(times, [5, 105, 205].map(Instant::from_micros));
    assert_eq!((sim.stats(link.there()).delivered, sim.frames_under_way()), (3, 0));
}

#[test]
fn who_is_held_starts_no_frame_until_it_may() {
    // Holds anyone who sent a 1, and lets the other port go on.
    let keeper = |_: Instant, _, frame: Frame, out: &mut Outbox<'_>| match number(&frame) {
        1 => out.hold_peer(PortId(0)),
        2 => out.let_peer_go(PortId(0)),
        _ => {}
    };
    let mut sim = Sim::from_number(1);
    let a = sim.add("a", silent).unwrap();
    let b = sim.add("b", keeper).unwrap();
    let c = sim.add("c", silent).unwrap();
    let slow = LinkConfig::new().rate(8_000_000).heads_first().queue_frames(2);
    let link = sim.connect(a, b, slow).unwrap();
    sim.connect(c, b, LinkConfig::new()).unwrap();
    for n in [1, 8, 8, 8] {
        sim.send(a, PORT, numbered(n, 100)).unwrap();
    }
    run_dry(&mut sim);
    assert_eq!(sim.now(), Instant::from_micros(100), "nobody goes on by himself");
    assert_eq!(sim.stats(link.there()).delivered, 1, "the first holds those behind it");
    assert_eq!(sim.stats(link.there()).dropped(DropReason::Queue), 1, "two wait");
    for n in [2, 2] {
        sim.send(c, PORT, numbered(n, 4)).unwrap();
    }
    run_dry(&mut sim);
    assert_eq!((sim.stats(link.there()).delivered, sim.now()), (3, Instant::from_micros(300)));
}
