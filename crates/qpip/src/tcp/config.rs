//! [`TcpConfig`]: what can be chosen about TCP.

use landfall_placement::{ConfigError, Duration};

use crate::tcp::congestion::CongestionControl;

/// How messages lie in the segments of a connection.
///
/// None of them adds a header: what differs is where segments are cut, and
/// whether the end of a message is read from the PSH bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// Each message is exactly one segment, as in the paper: longer than the
    /// link's packets, it leaves in IP fragments, and one that is lost takes
    /// the whole message with it. For networks that lose next to nothing, and
    /// other sides that reassemble. Both ends must be queue pairs.
    Segment,
    /// A message is one segment where it fits, else several of which the last
    /// has PSH, also when they are sent again or cut by a device. Both ends must
    /// be queue pairs, with nothing in between that ends TCP connections or
    /// joins segments across PSH.
    #[default]
    Message,
    /// A stream of bytes, as sockets have it. The other end may be anything.
    /// Requests are filled one after another; a completion says which part of
    /// a request was filled.
    Stream,
}

/// Whether new data leaves at the rate of the congestion control, as much as that carries in a
/// millisecond at once, and not in bursts of up to a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// A window may leave at once.
    Never,
    /// Where a round trip takes 4 ms at least. There a window may be more than what the queues
    /// on the way hold, a receiver that merges segments acknowledges dozens of them at once, and
    /// a timer for each millisecond costs little. (Up to twice the first window leaves at once.)
    #[default]
    OnLongPaths,
    /// On each path, once its round trip is known.
    Always,
}

/// Keep-alive (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long after the last segment the other side is probed.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// After this many without an answer the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// What can be chosen about TCP, within what the protocol allows ([`validate`](Self::validate)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// How the sender yields to others.
    pub congestion: CongestionControl,
    /// Ask for explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Ask for accurate ECN (RFC 9768), and take the classic where the other side does not
    /// speak it; needs [`ecn`](Self::ecn). Marks are counted then: DCTCP is told how many there
    /// were, and the others hear of each round trip that had some.
    pub accurate_ecn: bool,
    /// Ask for timestamps (RFC 7323).
    pub timestamps: bool,
    /// Ask for selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// The largest window that can be offered; it decides the window scale
    /// (RFC 7323): up to 2^30. Zero: windows are not scaled.
    pub most_window: u32,
    /// How long an acknowledgement may wait for data to go with it, at most
    /// 500 ms (RFC 9293, 3.8.6.3).
    pub acknowledge_after: Duration,
    /// The retransmission time-out is never shorter: 1 ms to 60 s.
    pub least_timeout: Duration,
    /// Nothing acknowledged for so long, and the connection is given up
    /// (RFC 9293, 3.8.3, R2).
    pub give_up_after: Duration,
    /// How often an opening is repeated before it is given up: after one second, two,
    /// four, and so on up to 64. As by default it is given up after three minutes
    /// (RFC 1122, 4.2.3.5). The answer to an opening is repeated five times at most.
    pub opening_retries: u8,
    /// Whether and how the other side is asked whether it is still there.
    pub keep_alive: Option<KeepAlive>,
    /// How long a connection that we have closed waits for the other side to
    /// close too, where no request to receive is posted. Who receives may wait for as
    /// long as it likes.
    pub finish_within: Duration,
    /// How long TIME-WAIT lasts (twice the lifetime of a segment).
    pub time_wait: Duration,
    /// The most bytes under way: 65,535 to 2^30.
    pub most_under_way: u32,
    /// The code point for differentiated services (RFC 2474) of what is sent, below 64.
    pub dscp: u8,
    /// Packets of IPv6 have a label that is the same for all of a connection and differs
    /// between connections (RFC 6437), so that routers spread them over several links.
    pub flow_label: bool,
    /// A short segment waits while an earlier one is not acknowledged (Nagle's algorithm,
    /// RFC 9293, 3.7.4). Off: a message that was posted leaves.
    pub corks: bool,
    /// Where new data leaves at a rate, and not in bursts.
    pub pacing: Pacing,
    /// TCP Fast Open (RFC 7413). Who asks for a connection sends what is posted with the
    /// opening, as much as one segment holds, to a server that it has talked to; a listener
    /// whose next queue pair has chosen it takes such data before the handshake is over, and
    /// answers. **An opening that is doubled on its way brings its data twice**, to two
    /// connections: for requests that may be carried out twice.
    pub fast_open: bool,
    /// Ask for immediate data: words of 32 bits that arrive with the ends of messages
    /// ([`SendWork::immediate`](crate::SendWork::immediate)). Both sides have to be queue
    /// pairs of messages that ask; it takes eight bytes of each segment. A listener agrees as
    /// its adapter's configuration says.
    pub immediates: bool,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            congestion: CongestionControl::Cubic,
            ecn: false,
            accurate_ecn: false,
            timestamps: true,
            sack: true,
            most_window: 8 << 20,
            acknowledge_after: Duration::from_millis(20),
            least_timeout: Duration::from_millis(200),
            give_up_after: Duration::from_secs(300),
            opening_retries: 7,
            keep_alive: None,
            finish_within: Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
            most_under_way: 64 << 20,
            dscp: 0,
            flow_label: true,
            corks: false,
            pacing: Pacing::OnLongPaths,
            fast_open: false,
            immediates: false,
        }
    }
}

impl TcpConfig {
    /// Is every value within what the protocol allows?
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let millis = Duration::from_millis;
        ConfigError::check("most_window", self.most_window, 0..=1 << 30)?;
        ConfigError::check("acknowledge_after", self.acknowledge_after, millis(0)..=millis(500))?;
        ConfigError::check("least_timeout", self.least_timeout, millis(1)..=millis(60_000))?;
        ConfigError::check("most_under_way", self.most_under_way, 65_535..=1 << 30)?;
        // DCTCP is about marks, and there are none without.
        let needs_marks = matches!(self.congestion, CongestionControl::Dctcp);
        let least = u8::from(needs_marks || self.accurate_ecn);
        ConfigError::check("ecn", u8::from(self.ecn), least..=1)?;
        ConfigError::check("dscp", self.dscp, 0..=63)
    }

    /// By how much our windows are shifted, so that the largest can be said in
    /// 16 bits (RFC 7323, 2.3). None: they are not.
    pub(crate) fn scale(&self) -> Option<u8> {
        let over = self.most_window >> 16;
        (self.most_window > 0)
            .then(|| over.checked_ilog2().map_or(0, |bits| bits as u8 + 1).min(14))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a field, and how it is set to a value out of its range.
    type Wrong = (&'static str, fn(&mut TcpConfig));

    #[test]
    fn each_value_out_of_range_is_refused_by_name() {
        let wrong: [Wrong; 9] = [
            ("most_window", |config| config.most_window = (1 << 30) + 1),
            ("acknowledge_after", |config| config.acknowledge_after = Duration::from_millis(501)),
            ("least_timeout", |config| config.least_timeout = Duration::ZERO),
            ("least_timeout", |config| config.least_timeout = Duration::from_secs(61)),
            ("most_under_way", |config| config.most_under_way = 65_534),
            ("most_under_way", |config| config.most_under_way = u32::MAX),
            ("dscp", |config| config.dscp = 64),
            ("ecn", |config| config.congestion = CongestionControl::Dctcp),
            ("ecn", |config| config.accurate_ecn = true),
        ];
        assert_eq!(TcpConfig::default().validate(), Ok(()));
        for (field, set) in wrong {
            let mut config = TcpConfig::default();
            set(&mut config);
            assert_eq!(config.validate().unwrap_err().field, field);
        }
    }
}
