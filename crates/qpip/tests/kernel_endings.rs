//! The Linux kernel's TCP as the peer: how connections begin and end, and
//! windows that close and open. As an ordinary user each test skips with one
//! line.

use crate::station;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use landfall_testbed::require_namespaces;
use landfall_transport::Driver;
use qpip::CloseReason;

use crate::station::conversation::{Echo, Saying, Script};
use crate::station::exchange::{OPENINGS, PORT, open};
use crate::station::kernel::{self, Kernel, Received};
use crate::station::net::{Cable, Tap};
use crate::station::{Shape, Station};

/// How many connections are opened and closed.
const MANY: usize = 2_000;
/// How many of them at a time.
const AT_ONCE: usize = 50;
/// How many threads of the kernel's side ask.
const TASKS: usize = 5;

#[test]
fn thousands_of_connections_from_the_kernel_open_and_close() {
    require_namespaces!();
    let cable = Cable::new();
    be_asked(&mut cable.station(), &cable.kernel, MANY);
}

#[test]
fn hundreds_of_connections_over_a_tap_interface_open_and_close() {
    require_namespaces!();
    let tap = Tap::new();
    let mut station = tap.station(|config| config);
    be_asked(&mut station, &tap.kernel, MANY / 5);
    ask(&mut station, &tap.kernel, MANY / 5);
}

/// This many connections from the kernel, a question and an answer on each.
fn be_asked<D: Driver>(station: &mut Station<D>, kernel: &Kernel, many: usize) {
    station.shape = Shape::SMALL;
    for is_ipv4 in [true, false] {
        let at = station.at(is_ipv4, PORT);
        let listener = station.listen(at);
        let mut offered = 0;
        let asking = (0..TASKS).map(|task| {
            kernel.task(move || {
                (0..many / 2 / TASKS)
                    .try_for_each(|number| kernel::ask(kernel::connect(at)?, task << 32 | number))
            })
        });
        let asking: Vec<_> = asking.collect();
        station.until("all have been answered", |station| {
            while offered < many / 2 && station.conversations() < AT_ONCE {
                station.offer(listener, Echo::default());
                offered += 1;
            }
            asking.iter().all(kernel::Task::is_over)
        });
        asking.into_iter().for_each(|task| task.join(station));
        station.until("all are over", |station| station.conversations() == 0);
        station.adapter.stop_listening(listener).unwrap();
    }
    assert_eq!(station.adapter.stats().accepted, many as u64);
}

#[test]
fn thousands_of_connections_to_the_kernel_open_and_close() {
    require_namespaces!();
    let cable = Cable::new();
    ask(&mut cable.station(), &cable.kernel, MANY);
}

/// This many connections to the kernel, a question and an answer on each.
fn ask<D: Driver>(station: &mut Station<D>, kernel: &Kernel, many: usize) {
    station.shape = Shape::SMALL;
    for is_ipv4 in [true, false] {
        let (listener, at) = kernel.listen(is_ipv4);
        let answering = kernel.task(move || {
            (0..many / 2).try_for_each(|number| {
                // Half of them are closed by this side first, or at once with the other.
                kernel::answer(kernel::accept(&listener)?, number % 2 == 0)
            })
        });
        let mut asked = Vec::new();
        station.until("all have been answered", |station| {
            while asked.len() < many / 2 && station.conversations() < AT_ONCE {
                asked.push(station.connect(at, Saying::new(asked.len() as u64, 8)));
            }
            answering.is_over()
        });
        answering.join(station);
        station.until("all are over", |station| station.conversations() == 0);
        for (number, pair) in asked.into_iter().enumerate() {
            let report = station.report(pair);
            assert_eq!(report.closed, Some(CloseReason::Finished));
            assert_eq!((report.sent, report.received), (8, 8));
            assert_eq!(report.hash, station::conversation::hash_of(number as u64, 8));
        }
    }
}

/// One side has nothing more to say, and hears all that the other still says.
#[test]
fn a_half_that_is_closed_leaves_the_other_half_open() {
    require_namespaces!();
    const MUCH: u64 = 2 << 20;
    let cable = Cable::new();
    let mut station = cable.station();
    for opening in OPENINGS {
        // The station ends first.
        let (pair, mut stream) = open(&mut station, &cable.kernel, opening, Saying::nothing());
        let later = cable.kernel.task(move || {
            let heard = kernel::hear(&mut stream)?;
            kernel::say(&mut stream, 5, MUCH)?;
            Ok(heard)
        });
        assert_eq!(later.join(&mut station), Received::of(0, 0));
        let report = station.finish(pair);
        assert_eq!(report.hash, Received::of(5, MUCH).hash);
        assert_eq!(report.closed, Some(CloseReason::Finished));

        // The kernel ends first.
        let script = Script::default();
        let (pair, mut stream) = open(&mut station, &cable.kernel, opening, script.clone());
        stream.shutdown(Shutdown::Write).unwrap();
        station.until("the end is heard", |_| script.0.borrow().heard_end);
        assert_eq!(station.report(pair).closed, None);
        let message = vec![7; MUCH as usize];
        script.say_and_end(&message);
        let heard = cable.kernel.task(move || kernel::hear(&mut stream)).join(&mut station);
        assert_eq!((heard.len, heard.hash), (MUCH, blake3::hash(&message)));
        let report = station.finish(pair);
        assert_eq!((report.sent, report.closed), (MUCH, Some(CloseReason::Finished)));
    }
}

#[test]
fn a_reset_by_the_kernel_flushes_and_says_so() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    for opening in OPENINGS {
        let program = Saying::new(1, u64::MAX);
        let (pair, mut stream) = open(&mut station, &cable.kernel, opening, program);
        let breaking = cable.kernel.task(move || {
            stream.read_exact(&mut [0; 100_000])?;
            kernel::reset(stream)
        });
        breaking.join(&mut station);
        let report = station.finish(pair);
        assert_eq!(report.closed, Some(CloseReason::Reset));
        assert!(report.failed_sends > 0, "what was under way is told to have failed");
    }
}

#[test]
fn a_reset_by_the_station_is_what_the_kernel_hears() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    for opening in OPENINGS {
        let script = Script::default();
        let (pair, mut stream) = open(&mut station, &cable.kernel, opening, script.clone());
        script.0.borrow_mut().reset = true;
        let reading = cable.kernel.task(move || stream.read(&mut [0; 10]));
        let error = reading.try_join(&mut station).expect_err("nothing was ever said");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(station.finish(pair).closed, Some(CloseReason::Aborted));
    }
}

/// Nobody listens: both sides say so at once.
#[test]
fn a_port_without_a_listener_refuses() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    for is_ipv4 in [true, false] {
        let nobody = SocketAddr::new(cable.kernel.address(is_ipv4), 9);
        let pair = station.connect(nobody, Saying::nothing());
        assert_eq!(station.finish(pair).closed, Some(CloseReason::Refused));
        let at = station.at(is_ipv4, 9);
        let asking = cable.kernel.task(move || kernel::connect(at));
        let error = asking.try_join(&mut station).expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

/// More than both sides hold, so that the one who says it has to stop.
const TOO_MUCH: u64 = 24 << 20;

#[test]
fn a_kernel_that_stops_reading_stops_the_station_and_goes_on() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    // The kernel offers little while nobody reads: several requests fit.
    station.shape = Shape { receives: 1, sends: 32, bytes: 8 << 10 };
    for opening in OPENINGS {
        let program = Saying::new(3, TOO_MUCH);
        let (pair, mut stream) = open(&mut station, &cable.kernel, opening, program);
        let sent = stands_still(&mut station, |station| station.report(pair).sent);
        assert!(sent < TOO_MUCH, "the window was never full");
        let heard = cable.kernel.task(move || kernel::hear(&mut stream)).join(&mut station);
        assert_eq!(heard, Received::of(3, TOO_MUCH));
        assert_eq!(station.finish(pair).closed, Some(CloseReason::Finished));
    }
}

#[test]
fn a_station_that_posts_no_receives_stops_the_kernel_and_goes_on() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    for opening in OPENINGS {
        let (pair, mut stream) = open(&mut station, &cable.kernel, opening, Saying::nothing());
        station.set_reading(pair, false);
        let saying = cable.kernel.task(move || kernel::say(&mut stream, 4, TOO_MUCH));
        let received = stands_still(&mut station, |station| station.report(pair).received);
        assert!(received < TOO_MUCH, "{received}");
        // Long enough for the kernel to ask, and to be told that nothing has changed.
        station.turn_for(Duration::from_millis(700));
        assert_eq!(station.report(pair).received, received);
        assert!(!saying.is_over());
        station.set_reading(pair, true);
        saying.join(&mut station);
        let report = station.finish(pair);
        assert_eq!((report.received, report.hash), (TOO_MUCH, Received::of(4, TOO_MUCH).hash));
    }
}

/// Turns until a number that has grown does not any more.
fn stands_still<D: Driver>(station: &mut Station<D>, number: impl Fn(&Station<D>) -> u64) -> u64 {
    let mut last = 0;
    station.until("it stands still", |station| {
        station.turn_for(Duration::from_millis(300));
        let now = number(station);
        let stands = now == last && now > 0;
        last = now;
        stands
    });
    last
}

/// Receives of an odd size. With one at a time the last bytes of each come only
/// when the kernel's patience with a window of less than a segment is over: a
/// fifth of a second, so there are few of these.
#[test]
fn small_receives_lose_nothing_however_many_are_posted() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    for (receives, bytes) in [(1, 40_000), (2, 1 << 20), (5, 1 << 20)] {
        station.shape = Shape { receives, sends: 1, bytes: 10_007 };
        for opening in OPENINGS {
            let (pair, mut stream) = open(&mut station, &cable.kernel, opening, Saying::nothing());
            let saying = cable.kernel.task(move || {
                kernel::say_in(&mut stream, 6, bytes, 777)?;
                stream.shutdown(Shutdown::Write)
            });
            saying.join(&mut station);
            let report = station.finish(pair);
            assert_eq!((report.received, report.hash), (bytes, Received::of(6, bytes).hash));
            assert_eq!(report.closed, Some(CloseReason::Finished));
        }
    }
}
