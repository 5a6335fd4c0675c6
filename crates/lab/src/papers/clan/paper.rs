//! The numbers of the paper: those that its text and its table state. Its plots have
//! no others that could be read.

use serde::Serialize;

/// Section 5.2: "the round-trip time for a single DWORD", between two applications.
pub(super) const WORD: Word = Word { round_trip_us: 3.7, one_way_us: 1.9 };

/// A word there and back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Word {
    pub(super) round_trip_us: f64,
    pub(super) one_way_us: f64,
}

/// Figure 7: "Peak bandwidth is 910 Mbit/s".
pub(super) const FIGURE_7: Bandwidth =
    Bandwidth { peak_mbit_per_s: 910.0, half_of_peak_bytes: None, set_up_us: None };

/// Figure 10, curve (b): "a link with a bandwidth of 900 Mbps and a setup time of 6 µs",
/// and "half the maximum available bandwidth is achieved with messages of about 750
/// bytes". Nothing is said of curve (a).
pub(super) const FIGURE_10: Bandwidth =
    Bandwidth { peak_mbit_per_s: 900.0, half_of_peak_bytes: Some(750.0), set_up_us: Some(6.0) };

/// What is said of a curve of bandwidth against size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bandwidth {
    pub(super) peak_mbit_per_s: f64,
    pub(super) half_of_peak_bytes: Option<f64>,
    pub(super) set_up_us: Option<f64>,
}

/// Section 5.3.1 and Figures 8 and 9.
pub(super) const SERVER: Server = Server {
    idle_round_trip_us: 16.8,
    busy_round_trip_us: 7.9,
    poll_us: 15,
    requests_per_s: 340_000,
    overhead_us: 2.9,
};

/// The event-driven server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Server {
    /// It slept when the request came.
    pub(super) idle_round_trip_us: f64,
    /// Requests come one behind the other, one at a time.
    pub(super) busy_round_trip_us: f64,
    /// How long it polls before it sleeps.
    pub(super) poll_us: u32,
    /// What Figure 9's curve tends towards.
    pub(super) requests_per_s: u32,
    /// What a message costs the server then.
    pub(super) overhead_us: f64,
}

/// A line of Table 1: TCP over IP, a message sent and returned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ip {
    pub(super) name: &'static str,
    pub(super) round_trip_us: f64,
    /// With messages of a kilobyte; from and to where it is a range.
    pub(super) mbit_per_s: (f64, f64),
}

pub(super) const TABLE_1: [Ip; 3] = [
    Ip { name: "CLAN IP", round_trip_us: 100.0, mbit_per_s: (225.0, 225.0) },
    Ip { name: "100 Mbit Ethernet", round_trip_us: 160.0, mbit_per_s: (23.0, 23.0) },
    Ip { name: "Gigabit Ethernet", round_trip_us: 260.0, mbit_per_s: (23.0, 28.0) },
];
