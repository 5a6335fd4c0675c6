//! Whatever a window is told, it stays within its bounds and does not panic.

use landfall_congestion::{Arrived, Config, Phase, Window};
use landfall_placement::{Duration, Instant};
use proptest::prelude::*;

/// One call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Arrived { after: u64, ago: u64, bytes: u64, under_way: u64, timed: bool, marked: bool },
    Lost { after: u64, ago: u64, bytes: u64 },
    Timeout { after: u64 },
    Silence { after: u64, nth: u8 },
    Start { after: u64 },
}

/// Numbers that are ordinary, zero, or as large as can be.
fn number(ordinary: u64) -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..ordinary, 1 => Just(0), 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn call() -> impl Strategy<Value = Call> {
    let time = || number(50_000_000);
    let arrived =
        (time(), time(), number(100_000), number(1_000_000), any::<bool>(), any::<bool>());
    let arrived = arrived.prop_map(|(after, ago, bytes, under_way, timed, marked)| Call::Arrived {
        after,
        ago,
        bytes,
        under_way,
        timed,
        marked,
    });
    prop_oneof![
        12 => arrived,
        3 => (time(), time(), number(100_000)).prop_map(|(after, ago, bytes)| Call::Lost { after, ago, bytes }),
        1 => time().prop_map(|after| Call::Timeout { after }),
        1 => (time(), any::<u8>()).prop_map(|(after, nth)| Call::Silence { after, nth }),
        1 => time().prop_map(|after| Call::Start { after }),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let windows = (number(100_000), number(100_000), number(10_000_000));
    let times = [number(1_000_000_000), number(1_000_000_000), number(1_000_000_000)];
    (any::<u32>(), windows, times, number(1_000_000), (any::<u8>(), any::<u32>())).prop_map(
        |(unit, windows, times, floor, (probes, loss_tolerance))| {
            let (initial_window, min_window, max_window) = windows;
            let [initial_timeout, min_timeout, max_timeout] = times.map(Duration::from_nanos);
            let delay_floor = Duration::from_nanos(floor);
            Config {
                unit,
                initial_window,
                min_window,
                max_window,
                delay_floor,
                initial_timeout,
                min_timeout,
                max_timeout,
                probes,
                loss_tolerance,
            }
        },
    )
}

/// Any configuration, or one that makes sense.
fn any_config() -> impl Strategy<Value = Config> {
    prop_oneof![
        config(),
        Just(Config::new(1_500)),
        Just(Config { min_window: 100, ..Config::new(1_500) })
    ]
}

/// Makes a call; gives the window before it.
fn apply(window: &mut Window, config: &Config, now: &mut Instant, call: Call) -> Window {
    let before = *window;
    let mut pass = |after: u64| {
        *now += Duration::from_nanos(after);
        *now
    };
    match call {
        Call::Arrived { after, ago, bytes, under_way, timed, marked } => {
            let now = pass(after);
            let sent = now - Duration::from_nanos(ago);
            let arrived = Arrived { bytes, sent, timed, marked, under_way };
            window.handle_arrived(config, now, &arrived);
        }
        Call::Lost { after, ago, bytes } => {
            let now = pass(after);
            window.handle_lost(config, now, now - Duration::from_nanos(ago), bytes);
        }
        Call::Silence { after, nth } => {
            let before = window.bytes();
            let is_probe = window.handle_silence(config, pass(after), nth);
            assert!(!is_probe || window.bytes() == before, "a probe costs no window");
        }
        Call::Timeout { after } => window.handle_timeout(config, pass(after)),
        Call::Start { after } => window.handle_start(config, pass(after)),
    }
    before
}

proptest! {
    #[test]
    fn invariant_8_no_calls_make_a_window_panic_or_leave_its_bounds(
        config in any_config(),
        calls in prop::collection::vec(call(), 0..300),
    ) {
        let mut window = Window::new(&config);
        let mut now = Instant::ZERO;
        for call in calls {
            let before = apply(&mut window, &config, &mut now, call);
            let least = config.min_window.max(1);
            let bytes = window.bytes();
            prop_assert!(least <= bytes && bytes <= config.max_window.max(least), "{call:?}: {window:?}");
            match call {
                Call::Arrived { bytes: arrived, marked, .. } => {
                    // Never more than what arrived in slow start, never more
                    // than half of the window at once behind it.
                    let most = before.bytes().saturating_add(arrived.max(before.bytes() / 2).max(1));
                    prop_assert!(bytes <= most, "{call:?}: {before:?}, then {window:?}");
                    prop_assert!(!marked || bytes <= before.bytes(), "{call:?}: a mark is no reason to grow");
                }
                Call::Lost { .. }
                | Call::Timeout { .. }
                | Call::Silence { .. }
                | Call::Start { .. } => {
                    prop_assert!(bytes <= before.bytes(), "{call:?}: {before:?}, then {window:?}");
                }
            }
            let timeout = window.timeout(&config);
            prop_assert!(timeout >= config.min_timeout);
            prop_assert!(timeout <= config.max_timeout.max(config.min_timeout));
            prop_assert!(window.loss() <= 1_000_000);
            let _ = window.pause(&config, u64::MAX); // It does not panic.
            prop_assert!(window.room(&config, 0) >= u64::from(config.unit));
            prop_assert_eq!(window.room(&config, u64::MAX), 0);
        }
    }

    #[test]
    fn invariant_6_the_same_calls_make_the_same_window(
        config in any_config(),
        calls in prop::collection::vec(call(), 0..100),
    ) {
        let run = || {
            let (mut window, mut now) = (Window::new(&config), Instant::ZERO);
            for call in &calls {
                apply(&mut window, &config, &mut now, *call);
            }
            window
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn there_is_one_decrease_for_all_that_was_sent_together(losses in 1u32..100, marks in 0u32..100) {
        let config = Config { initial_window: 1_000_000, ..Config::new(1_000) };
        let mut window = Window::new(&config);
        let (sent, now) = (Instant::from_millis(10), Instant::from_millis(20));
        for _ in 0..losses {
            window.handle_lost(&config, now, sent, 1_000);
        }
        for _ in 0..marks {
            let arrived = Arrived { bytes: 1_000, sent, timed: true, marked: true, under_way: 500_000 };
            window.handle_arrived(&config, now, &arrived);
        }
        prop_assert_eq!(window.bytes(), 500_000);
    }
}

const CONFIG: Config = Config::new(1_000);

/// What was sent at `sent` arrives 10 ms later, a full window of it.
fn arrive(window: &mut Window, sent: Instant, under_way: u64) -> Instant {
    let now = sent + Duration::from_millis(10);
    let mut left = under_way;
    while left >= 1_000 {
        let arrived = Arrived { bytes: 1_000, sent, timed: true, marked: false, under_way: left };
        window.handle_arrived(&CONFIG, now, &arrived);
        left -= 1_000;
    }
    now
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut window = Window::new(&CONFIG);
    let mut now = Instant::from_millis(1);
    for _ in 0..50 {
        now = arrive(&mut window, now, 2_000);
    }
    assert_eq!(window.bytes(), CONFIG.initial_window);
}

#[test]
fn an_idle_window_starts_again_and_remembers() {
    let mut window = Window::new(&CONFIG);
    let mut now = Instant::from_millis(1);
    for _ in 0..5 {
        let full = window.bytes();
        now = arrive(&mut window, now, full);
    }
    let grown = window.bytes();
    assert!(grown > 10 * CONFIG.initial_window, "{grown}");
    window.handle_start(&CONFIG, now + Duration::from_millis(5));
    assert_eq!(window.bytes(), grown, "a short rest is none");
    window.handle_start(&CONFIG, now + Duration::from_secs(2));
    assert_eq!((window.bytes(), window.phase()), (CONFIG.initial_window, Phase::SlowStart));
}

#[test]
fn a_window_below_a_unit_is_kept_by_pausing() {
    let config = Config { min_window: 100, ..CONFIG };
    let mut window = Window::new(&config);
    let mut now = arrive(&mut window, Instant::from_millis(1), 10_000);
    let spread = window.pause(&config, 1_000);
    assert!(spread < Duration::from_millis(1), "20 units in 10 ms, and faster: {spread:?}");
    for _ in 0..20 {
        now += Duration::from_millis(10);
        window.handle_lost(&config, now, now, 1_000);
    }
    assert_eq!(window.bytes(), 100);
    assert_eq!(window.room(&config, 0), 1_000, "one unit always may leave");
    let pause = window.pause(&config, 1_000);
    assert!(pause.abs_diff(Duration::from_millis(100)) < Duration::from_millis(1), "{pause:?}");
    let arrived = Arrived { bytes: 1_000, sent: now, timed: true, marked: false, under_way: 1_000 };
    window.handle_arrived(&config, now + Duration::from_millis(10), &arrived);
    assert_eq!(window.bytes(), 150, "half of it more, and not a whole unit");
}

#[test]
fn silence_is_remembered_once_and_backs_off() {
    let mut window = Window::new(&Config { initial_window: 64_000, ..CONFIG });
    let now = arrive(&mut window, Instant::from_millis(1), 64_000);
    let (full, once) = (window.bytes(), window.timeout(&CONFIG));
    for n in 1..=3 {
        window.handle_timeout(&CONFIG, now + once * n);
    }
    assert_eq!(window.bytes(), 1_000);
    assert_eq!(window.timeout(&CONFIG), once * 8);
    let mut now = now + once * 20;
    for _ in 0..100 {
        if window.phase() != Phase::SlowStart {
            break;
        }
        let full = window.bytes();
        now = arrive(&mut window, now, full);
    }
    assert_eq!((window.bytes(), window.phase()), (full / 2, Phase::Avoidance));
}
