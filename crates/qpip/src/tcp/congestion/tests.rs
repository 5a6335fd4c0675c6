use super::*;
use proptest::prelude::*;

const MSS: u32 = 1_000;
const RTT: Duration = Duration::from_millis(100);

/// A path that delivers every window within one round trip and acknowledges it
/// in pieces.
struct Play {
    controller: Controller,
    now: Instant,
    acknowledged: u64,
    rtt: Duration,
}

impl Play {
    fn new(algorithm: CongestionControl) -> Self {
        let controller = Controller::new(algorithm, MSS);
        Self { controller, now: Instant::ZERO, acknowledged: 0, rtt: RTT }
    }

    /// One full window is acknowledged, `piece` bytes at a time.
    fn round(&mut self, piece: u64) {
        let window = self.controller.window();
        let next = self.acknowledged + window;
        let pieces = window.div_ceil(piece);
        while self.acknowledged < next {
            self.now += self.rtt / u32::try_from(pieces).unwrap();
            let bytes = piece.min(next - self.acknowledged);
            self.acknowledged += bytes;
            self.controller.on_ack(&Progress {
                now: self.now,
                bytes,
                acknowledged: self.acknowledged,
                next: self.acknowledged + self.controller.window(),
                rtt: Some(self.rtt),
                smoothed: self.rtt,
                in_flight: window,
                is_window_limited: true,
            });
        }
    }

    fn lose(&mut self) {
        let window = self.controller.window();
        self.controller.on_congestion(window);
    }
}

fn idle_ack(window: u64, in_flight: u64) -> Progress {
    Progress {
        now: Instant::ZERO,
        bytes: window,
        acknowledged: window,
        next: 2 * window,
        rtt: Some(RTT),
        smoothed: RTT,
        in_flight,
        is_window_limited: false,
    }
}

#[test]
fn a_controller_is_small() {
    assert!(size_of::<Controller>() <= 64, "{}", size_of::<Controller>());
}

#[test]
fn the_initial_window_is_that_of_rfc_6928() {
    // Section 2: min(10 * MSS, max(2 * MSS, 14600)).
    for (mss, window) in [(536, 5_360), (1_460, 14_600), (8_960, 17_920), (4_000, 14_600)] {
        assert_eq!(Controller::new(CongestionControl::NewReno, mss).window(), window);
    }
}

#[test]
fn slow_start_grows_by_what_was_acknowledged_however_it_comes() {
    // RFC 5681, section 3.1, with the byte counting of RFC 3465.
    for algorithm in [CongestionControl::NewReno, CongestionControl::Cubic] {
        for piece in [1_000, 10_000, 64_000] {
            let mut play = Play::new(algorithm);
            play.round(piece);
            assert_eq!(play.controller.window(), 20_000);
            play.round(piece);
            assert_eq!(play.controller.window(), 40_000);
        }
    }
}

#[test]
fn new_reno_grows_by_a_segment_per_round_trip_however_acknowledgements_come() {
    // RFC 5681, section 3.1, equation 3.
    for piece in [1_000, 7_000, 64_000] {
        let mut play = Play::new(CongestionControl::NewReno);
        for _ in 0..3 {
            play.round(1_000);
        }
        play.lose();
        assert_eq!(play.controller.window(), 40_000);
        for round in 1..=10 {
            play.round(piece);
            let window = play.controller.window();
            assert!(window.abs_diff(40_000 + round * 1_000) <= 1_000, "{window}");
        }
    }
}

#[test]
fn new_reno_halves_and_cubic_keeps_seven_tenths_but_two_segments_at_least() {
    // RFC 5681, equation 4; RFC 9438, section 4.6.
    for (algorithm, window) in
        [(CongestionControl::NewReno, 5_000), (CongestionControl::Cubic, 7_000)]
    {
        let mut controller = Controller::new(algorithm, MSS);
        controller.on_congestion(10_000);
        assert_eq!(controller.window(), window);
        assert_eq!(controller.slow_start_threshold(), window);
        assert!(!controller.is_slow_start());
        controller.on_congestion(1);
        assert_eq!(controller.window(), 2_000);
    }
}

#[test]
fn a_window_that_was_not_used_is_not_what_is_reduced() {
    // RFC 5681, section 3.1: FlightSize and not cwnd.
    let mut controller = Controller::new(CongestionControl::NewReno, MSS);
    controller.on_congestion(4_800);
    assert_eq!(controller.window(), 2_400);
}

#[test]
fn a_window_that_was_not_used_does_not_grow() {
    for algorithm in [CongestionControl::NewReno, CongestionControl::Cubic] {
        let mut controller = Controller::new(algorithm, MSS);
        controller.on_ack(&idle_ack(10_000, 4_000));
        assert_eq!(controller.window(), 10_000, "in slow start");
        controller.on_congestion(10_000);
        let window = controller.window();
        for _ in 0..20 {
            controller.on_ack(&idle_ack(10_000, window));
        }
        assert_eq!(controller.window(), window, "in congestion avoidance");
    }
}

#[test]
fn a_time_out_leaves_one_segment_and_lowers_the_threshold_once() {
    // RFC 5681, section 3.1, end.
    for (algorithm, threshold) in
        [(CongestionControl::NewReno, 5_000), (CongestionControl::Cubic, 7_000)]
    {
        let mut play = Play::new(algorithm);
        play.controller.on_timeout(10_000, false);
        play.controller.on_timeout(10_000, true);
        assert_eq!(play.controller.window(), 1_000);
        assert_eq!(play.controller.slow_start_threshold(), threshold);
        // Slow start up to the threshold, not beyond by more than a segment.
        for window in [2_000, 4_000] {
            play.round(1_000);
            assert_eq!(play.controller.window(), window);
        }
        play.round(4_000);
        let window = play.controller.window();
        assert!((threshold..=threshold + 1_500).contains(&window), "{window}");
    }
}

#[test]
fn a_saved_window_is_restored_with_its_threshold_and_its_function() {
    // RFC 4015 and RFC 9438, section 4.9.
    for algorithm in [CongestionControl::NewReno, CongestionControl::Cubic] {
        let mut play = Play::new(algorithm);
        play.round(1_000);
        let saved = play.controller.save();
        play.lose();
        play.controller.restore(&saved);
        assert_eq!(play.controller.window(), 20_000);
        assert!(play.controller.is_slow_start());

        play.lose();
        for _ in 0..5 {
            play.round(1_000);
        }
        let before = play.controller;
        let saved = before.save();
        play.controller.on_timeout(before.window(), false);
        play.controller.on_timeout(before.window(), true);
        play.controller.restore(&saved);
        assert_eq!(play.controller.window(), before.window());
        assert_eq!(play.controller.slow_start_threshold(), before.slow_start_threshold());
        let mut undisturbed = Play { controller: before, ..play };
        for _ in 0..50 {
            play.round(1_000);
            undisturbed.round(1_000);
        }
        let (one, other) = (play.controller.window(), undisturbed.controller.window());
        assert!(one.abs_diff(other) <= 2_000, "the function goes on: {one} {other}");
    }
}

#[test]
fn a_window_that_grew_meanwhile_is_not_restored_to_less() {
    let mut controller = Controller::new(CongestionControl::NewReno, MSS);
    let saved = controller.save();
    controller.set_mss(20_000);
    controller.restore(&saved);
    assert_eq!(controller.window(), 20_000);
}

#[test]
fn a_rate_is_two_windows_in_a_round_trip_or_six_in_five() {
    let mut controller = Controller::new(CongestionControl::NewReno, MSS);
    let rate = controller.pacing_rate(RTT);
    assert_eq!(rate.time(10_000), RTT / 2);
    assert_eq!(rate.bytes(RTT), 20_000);
    controller.on_congestion(10_000);
    assert_eq!(controller.pacing_rate(RTT).bytes(RTT), 6_000);
    // Neither nothing nor all there is divides by nothing.
    let rate = controller.pacing_rate(Duration::ZERO);
    assert_eq!(rate.time(0), Duration::ZERO);
    assert_eq!(rate.bytes(Duration::MAX), u64::MAX);
}

#[test]
fn dctcp_keeps_more_the_fewer_are_marked() {
    // RFC 8257, section 3.3: of each window a tenth is marked.
    let mut play = Play::new(CongestionControl::Dctcp);
    for _ in 0..3 {
        play.round(1_000);
    }
    let (mut controller, mut upto) = (play.controller, 0);
    for _ in 0..100 {
        let next = upto + 20_000;
        for nth in 0..10 {
            upto += 2_000;
            controller.count_marks(2_000, if nth == 0 { 2_000 } else { 0 }, upto, next);
        }
    }
    let before = controller.window();
    controller.on_mark(before);
    let kept = controller.window() as f64 / before as f64;
    assert!((0.94..0.96).contains(&kept), "{kept}");
    assert_eq!(controller.slow_start_threshold(), controller.window());
    // A loss is a loss.
    let before = controller.window();
    controller.on_congestion(before);
    assert_eq!(controller.window(), (before / 2).max(2_000));
    // Others know marks as losses.
    for (algorithm, window) in
        [(CongestionControl::NewReno, 5_000), (CongestionControl::Cubic, 7_000)]
    {
        let mut controller = Controller::new(algorithm, MSS);
        controller.on_mark(10_000);
        assert_eq!(controller.window(), window);
    }
}

#[test]
fn after_a_pause_it_begins_again_with_the_initial_window() {
    // RFC 5681, section 4.1.
    let timeout = Duration::from_millis(300);
    let mut play = Play::new(CongestionControl::NewReno);
    for _ in 0..4 {
        play.round(1_000);
    }
    let window = play.controller.window();
    play.controller.on_idle(play.now, timeout, timeout);
    assert_eq!(play.controller.window(), window);
    play.controller.on_idle(play.now, timeout * 2, timeout);
    assert_eq!(play.controller.window(), 10_000);
}

#[test]
fn cubic_does_not_count_time_in_which_the_window_was_not_used() {
    // RFC 9438, section 5.8.
    let mut play = Play::new(CongestionControl::Cubic);
    for _ in 0..5 {
        play.round(1_000);
    }
    play.lose();
    play.round(1_000);
    let window = play.controller.window();
    play.now += Duration::from_secs(60);
    play.controller.on_idle(play.now, Duration::from_secs(60), Duration::from_secs(120));
    play.round(1_000);
    let grown = play.controller.window() - window;
    assert!(grown < window / 10, "{grown}");
}

#[test]
fn cubic_does_not_count_acknowledgements_of_a_slow_application() {
    // RFC 9438, section 5.8.
    let mut play = Play::new(CongestionControl::Cubic);
    for _ in 0..5 {
        play.round(1_000);
    }
    play.lose();
    play.round(1_000);
    let window = play.controller.window();
    for _ in 0..60 {
        play.now += Duration::from_secs(1);
        play.controller.on_ack(&Progress { now: play.now, ..idle_ack(1_000, 1_000) });
    }
    assert_eq!(play.controller.window(), window);
    play.round(1_000);
    let grown = play.controller.window() - window;
    assert!(grown < window / 10, "{grown}");
}

#[test]
fn cubic_returns_to_the_plateau_and_then_probes_beyond() {
    // RFC 9438, sections 4.4 and 4.5: concave, flat at W_max, convex. A long
    // path, so that the Reno-friendly region stays below.
    let mut play = Play::new(CongestionControl::Cubic);
    for _ in 0..7 {
        play.round(1_000);
    }
    let plateau = play.controller.window();
    play.lose();
    let start = play.now;
    let mut windows = std::vec::Vec::new();
    // K = cbrt(1280 * 0.3 / 0.4) = 9.9 s.
    while play.now.since(start) < Duration::from_secs(19) {
        play.round(10_000);
        windows.push(play.controller.window());
    }
    let near =
        |at: u64, goal: u64| windows[usize::try_from(at).unwrap()].abs_diff(goal) < goal / 50;
    assert!(near(98, plateau), "{} {plateau}", windows[98]);
    assert!(windows.is_sorted());
    let growth = |at: usize| windows[at + 10] - windows[at];
    assert!(growth(0) > 4 * growth(90), "concave");
    assert!(growth(170) > 4 * growth(90), "convex");
}

#[test]
fn cubic_is_as_fast_as_reno_on_a_short_path() {
    // RFC 9438, section 4.3: from 0.7 of the window back to all of it in
    // 0.3 * W / 0.53 round trips, where the cubic function alone takes seconds.
    let mut play = Play::new(CongestionControl::Cubic);
    play.rtt = Duration::from_millis(1);
    play.round(1_000);
    play.lose();
    let start = play.controller.window();
    assert_eq!(start, 14_000);
    for _ in 0..13 {
        play.round(1_000);
    }
    let window = play.controller.window();
    assert!((19_000..23_000).contains(&window), "{window}");
    // And a segment per round trip above it.
    for _ in 0..10 {
        play.round(1_000);
    }
    let grown = play.controller.window() - window;
    assert!((8_000..=12_000).contains(&grown), "{grown}");
}

#[test]
fn hystart_leaves_slow_start_when_the_delay_has_grown_for_five_rounds() {
    // RFC 9406, section 4.2.
    let mut play = Play::new(CongestionControl::Cubic);
    for _ in 0..3 {
        play.round(1_000);
    }
    assert_eq!(play.controller.window(), 80_000);
    play.rtt = RTT + Duration::from_millis(20);
    let mut rounds = 0;
    while play.controller.is_slow_start() {
        play.round(1_000);
        rounds += 1;
        assert!(rounds < 10, "it ends");
    }
    // Not doubled five times: a quarter of slow start's growth.
    assert!((5..=7).contains(&rounds), "{rounds}");
    let window = play.controller.window();
    assert!(window < 80_000 * 4, "{window}");
}

#[test]
fn hystart_resumes_slow_start_when_the_delay_falls_again() {
    let mut play = Play::new(CongestionControl::Cubic);
    for _ in 0..3 {
        play.round(1_000);
    }
    play.rtt = RTT + Duration::from_millis(20);
    play.round(1_000);
    play.rtt = RTT;
    play.round(1_000);
    let window = play.controller.window();
    play.round(1_000);
    assert_eq!(play.controller.window(), 2 * window);
}

#[test]
fn a_smaller_segment_size_shrinks_the_window_with_it() {
    let mut controller = Controller::new(CongestionControl::Cubic, 1_460);
    controller.set_mss(1_200);
    assert_eq!(controller.window(), 12_000);
    controller.set_mss(9_000);
    assert_eq!(controller.window(), 12_000);
    controller.on_timeout(0, false);
    assert_eq!(controller.window(), 9_000);
}

proptest! {
    /// Invariant 8: no sequence of calls panics; the window keeps its bounds.
    #[test]
    fn any_sequence_keeps_the_window_in_its_bounds(
        algorithm in 0_usize..3, mss in 0_u32..100_000,
        steps in prop::collection::vec((0_u8..10, any::<u64>(), any::<u64>(), any::<bool>()), 0..200),
    ) {
        let algorithm = [
            CongestionControl::Cubic, CongestionControl::NewReno, CongestionControl::Dctcp,
        ][algorithm];
        let mut controller = Controller::new(algorithm, mss);
        let mut now = Instant::ZERO;
        let mut saved = controller.save();
        for (what, one, other, flag) in steps {
            now += Duration::from_micros(one >> 40);
            match what {
                0 => controller.on_congestion(one),
                1 if flag => saved = controller.save(),
                1 => controller.limit(u32::try_from(one >> 34).unwrap()),
                2 => controller.on_timeout(one >> 34, flag),
                3 => controller.restore(&saved),
                8 => controller.on_mark(one >> 34),
                9 => {
                    let bytes = other >> 36;
                    let marked = if flag { bytes } else { 0 };
                    controller.count_marks(bytes, marked, one, one.saturating_add(other));
                },
                4 => controller.on_idle(now, Duration::from_nanos(one), Duration::from_millis(1)),
                5 => controller.set_mss(u32::try_from(other >> 47).unwrap()),
                _ => controller.on_ack(&Progress {
                    now,
                    bytes: other >> 36,
                    acknowledged: one,
                    next: one.saturating_add(other),
                    rtt: flag.then(|| Duration::from_nanos(other)),
                    smoothed: Duration::from_nanos(one),
                    in_flight: one >> 33,
                    is_window_limited: flag,
                }),
            }
            prop_assert!(controller.window() >= 1);
            prop_assert!(controller.window() <= u64::from(LARGEST_WINDOW));
        }
    }
}
