//! What a window becomes by single calls, in figures that follow from the rules.

use landfall_congestion::{Arrived, Config, Phase, Window};
use landfall_placement::{Duration, Instant};

const UNIT: u64 = 1_024;

/// A unit of 1,024 bytes; a window of a hundred of them.
const CONFIG: Config = Config { initial_window: 102_400, ..Config::new(1_024) };

const fn at(micros: u64) -> Instant {
    Instant::from_micros(1_000_000 + micros)
}

/// Bytes that were sent and arrive then, too few of them under way to let a window grow.
fn arrived(bytes: u64, sent: Instant, timed: bool) -> Arrived {
    Arrived { bytes, sent, timed, marked: false, under_way: 0 }
}

/// A window of this many bytes that knows of a round trip of 10 ms, at the beginning of a round.
fn measured(bytes: u64) -> Window {
    let mut window = Window::new(&Config { initial_window: bytes, ..CONFIG });
    window.handle_arrived(&CONFIG, at(0), &arrived(1, at(0) - Duration::from_millis(10), true));
    assert_eq!((window.bytes(), window.phase()), (bytes, Phase::SlowStart));
    window
}

#[test]
fn pauses_spread_a_window_over_half_a_round_trip_first_and_four_fifths_later() {
    let mut window = measured(10_240);
    // The shortest round trip counts, and not the smoothed one of 10.125 ms.
    let later = arrived(1, at(0), true);
    window.handle_arrived(&CONFIG, at(11_000), &later);
    assert_eq!(window.pause(&CONFIG, 1_024), Duration::from_micros(500));
    window.handle_lost(&CONFIG, at(30_000), at(20_000), UNIT);
    assert_eq!((window.bytes(), window.phase()), (5_120, Phase::Avoidance));
    assert_eq!(window.pause(&CONFIG, 1_024), Duration::from_micros(1_600));
    // A window of one unit has its full share of courtesy, and no duty yet.
    for n in 0..4 {
        window.handle_lost(&CONFIG, at(40_000 + n * 10_000), at(30_000 + n * 10_000), UNIT);
    }
    assert_eq!((window.bytes(), window.phase()), (1_024, Phase::Avoidance));
    assert_eq!(window.pause(&CONFIG, 1_024), Duration::from_millis(8));
}

#[test]
fn a_pause_beyond_64_bits_on_the_way_is_exact() {
    let window = measured(10_240);
    assert_eq!(window.pause(&CONFIG, 10_240 << 30), Duration::from_millis(5 << 30));
}

#[test]
fn a_loss_leaves_what_the_path_holds_between_half_and_seven_tenths() {
    for (bytes, left) in [(32_000, 51_200), (64_000, 65_024), (96_000, 71_680)] {
        let mut window = measured(102_400);
        window.handle_arrived(
            &CONFIG,
            at(5_000),
            &arrived(bytes, at(0) - Duration::from_millis(5), false),
        );
        window.handle_arrived(&CONFIG, at(10_000), &arrived(UNIT, at(0), true));
        window.handle_lost(&CONFIG, at(11_000), at(1_000), UNIT);
        assert_eq!(window.bytes(), left, "{bytes} and {UNIT} bytes in a round trip");
    }
}

#[test]
fn what_the_path_holds_fades_by_an_eighth_in_each_round() {
    let mut window = measured(102_400);
    window.handle_arrived(
        &CONFIG,
        at(5_000),
        &arrived(64_000, at(0) - Duration::from_millis(5), false),
    );
    window.handle_arrived(&CONFIG, at(10_000), &arrived(UNIT, at(0), true));
    window.handle_arrived(&CONFIG, at(20_000), &arrived(UNIT, at(10_000), true));
    window.handle_lost(&CONFIG, at(21_000), at(11_000), UNIT);
    // 1,016 steps of 64 bytes, less 127.
    assert_eq!(window.bytes(), 889 * 64);
}

#[test]
fn a_round_takes_a_shortest_round_trip_whatever_the_caller_says() {
    let mut window = measured(102_400);
    window.handle_arrived(&CONFIG, at(1_000), &arrived(64_000, at(500), false));
    window.handle_arrived(&CONFIG, at(10_000), &arrived(UNIT, at(0), true));
    window.handle_lost(&CONFIG, at(11_000), at(1_000), UNIT);
    assert_eq!(window.bytes(), 65_024, "and not ten times as much, of a round of 1 ms");
}

#[test]
fn loss_is_borne_up_to_its_bound_while_no_queue_stands() {
    let config = Config { loss_tolerance: 20_000, ..CONFIG };
    for (took, is_borne) in [(10_000, true), (40_000, false)] {
        let mut window = Window::new(&config);
        let mut now = at(0);
        for (n, took) in [10_000, took, took].into_iter().enumerate() {
            let units = if n == 0 { 96 } else { 1 };
            let sent = now;
            now += Duration::from_micros(took);
            window.handle_arrived(&config, now, &arrived(units * UNIT, sent, true));
        }
        // Two of a hundred are 20,000 in a million.
        window.handle_lost(&config, now, now, UNIT);
        window.handle_lost(&config, now, now, UNIT);
        assert_eq!(window.bytes() == 102_400, is_borne, "round trips of {took} µs");
        window.handle_lost(&config, now, now, UNIT);
        assert!(window.bytes() < 102_400, "three are more");
    }
}

#[test]
fn the_share_of_what_was_lost_is_exact() {
    let mut window = Window::new(&CONFIG);
    window.handle_arrived(&CONFIG, at(0), &arrived(3 * UNIT, at(0), false));
    window.handle_lost(&CONFIG, at(0), at(0), UNIT);
    assert_eq!(window.loss(), 250_000);
}

#[test]
fn what_was_sent_at_the_moment_of_a_decrease_tells_something_new() {
    let mut window = measured(10_240);
    window.handle_lost(&CONFIG, at(20_000), at(10_000), UNIT);
    window.handle_lost(&CONFIG, at(30_000), at(19_999), UNIT);
    assert_eq!(window.bytes(), 5_120, "sent before");
    window.handle_lost(&CONFIG, at(30_000), at(20_000), UNIT);
    assert_eq!(window.bytes(), 2_560);
}

#[test]
fn growth_is_for_what_was_sent_after_the_decrease_unmarked_and_with_the_window_in_use() {
    let grown = |sent, under_way, marked| {
        let mut window = measured(10_240);
        window.handle_lost(&CONFIG, at(20_000), at(10_000), UNIT);
        let arrived = Arrived { bytes: 5_120, sent, timed: false, marked, under_way };
        window.handle_arrived(&CONFIG, at(20_001), &arrived);
        window.bytes()
    };
    assert_eq!(grown(at(20_000), 2_560, false), 5_120 + UNIT, "a unit for each window");
    assert_eq!(grown(at(19_999), 2_560, false), 5_120, "sent before the decrease");
    assert_eq!(grown(at(20_000), 2_496, false), 5_120, "less than half of it is in use");
    assert_eq!(grown(at(20_000), 2_560, true), 3_584, "a mark leaves seven tenths");
}

#[test]
fn arrivals_in_avoidance_add_up_to_a_unit_for_each_window() {
    let mut window = measured(10_240);
    window.handle_lost(&CONFIG, at(20_000), at(10_000), UNIT);
    let mut arrive = |bytes| {
        let arrived =
            Arrived { bytes, sent: at(20_000), timed: false, marked: false, under_way: 5_120 };
        window.handle_arrived(&CONFIG, at(20_001), &arrived);
        window.bytes()
    };
    assert_eq!(arrive(5_119), 5_120);
    assert_eq!(arrive(1), 6_144);
    // What is beyond a window counts for the next one.
    assert_eq!(arrive(6_144 + 3_000), 7_168);
    assert_eq!(arrive(7_168 - 3_000 - 1), 7_168);
    assert_eq!(arrive(1), 8_192);
}

#[test]
fn slow_start_stops_at_half_of_what_was_silent_and_at_two_units_at_least() {
    for (bytes, threshold) in [(65_536, 32_768), (2_048, 2_048)] {
        let mut window = measured(bytes);
        window.handle_timeout(&CONFIG, at(20_000));
        assert_eq!((window.bytes(), window.phase()), (1_024, Phase::SlowStart));
        let arrived = Arrived {
            bytes: 100_000,
            sent: at(20_000),
            timed: false,
            marked: false,
            under_way: 1_024,
        };
        window.handle_arrived(&CONFIG, at(20_001), &arrived);
        assert_eq!((window.bytes(), window.phase()), (threshold, Phase::Avoidance));
    }
}

#[test]
fn a_silence_is_a_probe_first_and_a_timeout_then() {
    let mut window = measured(10_240);
    assert!(window.handle_silence(&CONFIG, at(30_000), 1));
    assert_eq!((window.bytes(), window.rtt().backoff()), (10_240, 0));
    assert!(!window.handle_silence(&CONFIG, at(90_000), 2));
    assert_eq!((window.bytes(), window.rtt().backoff()), (1_024, 1));
}

#[test]
fn only_the_moment_of_the_decrease_is_taken_back_and_once() {
    let mut window = measured(10_240);
    window.handle_lost(&CONFIG, at(20_000), at(10_000), UNIT);
    window.handle_spurious(&CONFIG, at(19_999));
    assert_eq!(window.bytes(), 5_120, "another moment");
    window.handle_spurious(&CONFIG, at(20_000));
    assert_eq!(window.bytes(), 10_240);
    // Sent before that decrease, so it is none of its own.
    window.handle_lost(&CONFIG, at(20_000), at(20_000), UNIT);
    window.handle_lost(&CONFIG, at(30_000), at(20_000), UNIT);
    assert_eq!(window.bytes(), 2_560);
    window.handle_spurious(&CONFIG, at(20_000));
    assert_eq!(window.bytes(), 2_560, "it was made smaller since");
}

/// One sample of 10 ms makes a time-out of 30 ms (RFC 6298, 2.2).
#[test]
fn a_window_starts_again_after_a_timeout_and_a_round_trip_of_rest() {
    let config = Config { initial_window: 4_096, ..CONFIG };
    let mut window = measured(65_536);
    window.handle_start(&config, at(40_000));
    assert_eq!(window.bytes(), 65_536, "a rest of 40 ms is none");
    window.handle_start(&config, at(40_001));
    assert_eq!(window.bytes(), 4_096);
    let mut window = Window::new(&CONFIG);
    window.handle_start(&config, at(40_001));
    assert_eq!(window.bytes(), 102_400, "nothing was measured: it has not begun");
}

/// RFC 7661, 4.4.3: what a window had grown to counts by three quarters.
#[test]
fn slow_start_after_a_rest_goes_up_to_three_quarters_of_what_the_window_was() {
    let mut window = measured(10_240);
    window.handle_lost(&CONFIG, at(1_000), at(0), UNIT);
    let full = |window: &Window, sent| {
        let bytes = window.bytes();
        Arrived { bytes, sent, timed: false, marked: false, under_way: bytes }
    };
    for _ in 0..5 {
        let arrived = full(&window, at(1_000));
        window.handle_arrived(&CONFIG, at(1_001), &arrived);
    }
    assert_eq!(window.bytes(), 10_240, "from 5 units to 10");
    window.handle_start(&Config { initial_window: 2_048, ..CONFIG }, at(60_000_000));
    assert_eq!((window.bytes(), window.phase()), (2_048, Phase::SlowStart));
    // It doubles, so that two rounds are enough.
    for _ in 0..2 {
        let arrived = full(&window, at(60_000_000));
        window.handle_arrived(&CONFIG, at(60_000_001), &arrived);
    }
    assert_eq!((window.bytes(), window.phase()), (7_680, Phase::Avoidance));
}

/// A window of this many units behind slow start, on a path whose round trips all take as long.
struct Quiet {
    window: Window,
    now: Instant,
    round_trip: Duration,
}

impl Quiet {
    fn new(units: u64, round_trip: Duration) -> Self {
        let mut window = Window::new(&Config { initial_window: 2 * units * UNIT, ..CONFIG });
        let now = at(0);
        window.handle_arrived(&CONFIG, now, &arrived(1, now - round_trip, true));
        window.handle_lost(&CONFIG, now, now, UNIT);
        assert_eq!((window.bytes(), window.phase()), (units * UNIT, Phase::Avoidance));
        Self { window, now, round_trip }
    }

    /// A round in which as much arrives as the window allows, or next to nothing; gives the
    /// units that it grew by.
    fn round(&mut self, is_used: bool) -> u64 {
        let (before, sent) = (self.window.bytes(), self.now);
        self.now += self.round_trip;
        let (bytes, under_way) = if is_used { (before, before) } else { (1, 1) };
        let arrived = Arrived { bytes, sent, timed: true, marked: false, under_way };
        self.window.handle_arrived(&CONFIG, self.now, &arrived);
        (self.window.bytes() - before) / UNIT
    }
}

/// Growth by five, six and seven quarters is one unit, one and two: two come three rounds after
/// patience ends. (With 200 units patience itself grows, from 50 rounds to 67.)
#[test]
fn growth_accelerates_after_32_quiet_rounds_more_of_large_windows_and_a_second_of_long_paths() {
    let cases = [(40, 10, 35), (200, 1, 70), (40, 100, 13), (40, 500, 11)];
    for (units, millis, expected) in cases {
        let mut path = Quiet::new(units, Duration::from_millis(millis));
        let quiet = (0..200).take_while(|_| path.round(true) == 1).count();
        assert_eq!(quiet, expected, "{units} units, {millis} ms");
    }
}

/// By a unit more in each round for each 1,024 of them.
#[test]
fn the_larger_a_window_the_faster_its_growth_accelerates() {
    let mut path = Quiet::new(1_024, Duration::from_millis(200));
    let growth: Vec<u64> = (0..13).map(|_| path.round(true)).collect();
    assert_eq!(growth, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5]);
}

#[test]
fn a_window_grows_by_no_more_than_a_unit_and_an_eighth_in_a_round() {
    let mut path = Quiet::new(16, Duration::from_millis(10));
    for _ in 0..200 {
        assert_eq!(path.round(false), 0);
    }
    assert_eq!(path.round(true), 3);
}
