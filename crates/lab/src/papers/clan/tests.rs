//! What the tables are made of, held to the paper's own numbers; and each part of the
//! measurement, for a moment.

use landfall_testbed::rivals::Endpoints;

use super::sweep::{Curve, Point, unevenness};
use super::{Scale, paper, server};
use crate::style::Progress;

const SIZES: [u64; 8] = [8, 64, 256, 512, 1024, 4096, 65_536, 1 << 30];

/// A link of this bandwidth, on which each message costs this much beforehand.
fn link(mbit_per_s: f64, set_up_us: f64) -> Curve {
    let ns = |bytes: u64| set_up_us * 1e3 + bytes as f64 * 8e3 / mbit_per_s;
    let points = SIZES.iter().map(|&bytes| Point::new(bytes, ns(bytes))).collect();
    Curve::new("a link", false, points).unwrap()
}

fn near(value: f64, expected: f64, within: f64) -> bool {
    (value - expected).abs() <= within * expected
}

#[test]
fn the_link_that_the_paper_describes_has_the_paper_s_half_of_the_peak() {
    let said = paper::FIGURE_10;
    let (mbit_per_s, set_up_us) = (said.peak_mbit_per_s, said.set_up_us.unwrap());
    let curve = link(mbit_per_s, set_up_us);
    assert!(near(curve.peak_mbit_per_s, mbit_per_s, 1e-3), "{curve:?}");
    assert!(near(curve.set_up_us, set_up_us, 1e-3), "{curve:?}");
    // 6 µs at 900 Mbit/s are 675 bytes; "about 750", says the paper.
    let half = curve.half_of_peak_bytes.unwrap();
    assert!(near(half, 675.0, 0.01), "{half}");
    assert!(near(half, said.half_of_peak_bytes.unwrap(), 0.11), "{half}");
}

#[test]
fn a_curve_that_begins_above_half_of_its_peak_has_no_such_length() {
    let curve = link(900.0, 0.001);
    assert_eq!(curve.half_of_peak_bytes, None);
    assert!(Curve::new("nothing", false, Vec::new()).is_none());
}

#[test]
fn a_curve_that_falls_again_keeps_its_peak() {
    // As the paper's programmed I/O did.
    let points = [(256, 10_000.0), (1024, 15_000.0), (4096, 100_000.0)];
    let points = points.into_iter().map(|(bytes, ns)| Point::new(bytes, ns)).collect();
    let curve = Curve::new("falls", false, points).unwrap();
    assert!(near(curve.peak_mbit_per_s, 1024.0 * 8.0 / 15.0, 1e-9), "{curve:?}");
    assert!((256.0..=1024.0).contains(&curve.half_of_peak_bytes.unwrap()), "{curve:?}");
}

#[test]
fn the_paper_s_numbers_fit_together() {
    let paper::Server { requests_per_s, overhead_us, .. } = paper::SERVER;
    assert!(near(1e6 / f64::from(requests_per_s), overhead_us, 0.02));
    assert!(near(paper::WORD.round_trip_us / 2.0, paper::WORD.one_way_us, 0.03));
    const { assert!(paper::SERVER.busy_round_trip_us < paper::SERVER.idle_round_trip_us) };
}

#[test]
fn flat_is_said_of_the_farthest_from_the_middle() {
    assert_eq!(unevenness([10.0, 10.0, 10.0]), Some(0.0));
    assert_eq!(unevenness([10.0, 9.0, 12.0]), Some(0.2));
    assert_eq!(unevenness([10.0, 5.0, 12.0]), Some(0.5));
    assert_eq!(unevenness([]), None);
}

#[test]
fn every_server_answers_and_is_overloaded() {
    let endpoints = Endpoints::loopback().unwrap();
    let scale = Scale { endpoints: &[1, 20], ..Scale::QUICK };
    let (servers, absent) = server::measure(&endpoints, scale, &Progress::on_stderr());
    assert!(absent.is_empty(), "{absent:?}");
    assert_eq!(servers.len(), 5);
    for server in &servers {
        assert_eq!(server.points.len(), 2, "{server:?}");
        assert_eq!((server.overload_endpoints, server.overload.len()), (20, 4), "{server:?}");
        for point in &server.points {
            let figures = [point.busy_us, point.idle_us, point.requests_per_s];
            assert!(figures.into_iter().all(|figure| figure > 0.0), "{server:?}");
        }
        for overload in &server.overload {
            let sum = overload.served_per_s + overload.turned_away_per_s;
            assert!(near(sum, overload.offered_per_s, 1e-6), "{server:?}");
        }
    }
}
