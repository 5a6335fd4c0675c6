//! [`HalfOpen`]: a connection that was asked for, but has not proved yet that
//! it hears us. It owns no queue pair, and there is a bounded number of them.

use core::net::SocketAddr;

use landfall_placement::{Duration, Ecn, Instant, Serial32};

use super::config::TcpConfig;
use super::identity::Secret;
use super::segment::{Draft, Segment};
use super::timestamps;
use crate::queue::Hold;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::Options;

/// What the two sides agreed on when they opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The numbers of our and their opening.
    pub(crate) local_first: u32,
    pub(crate) remote_first: u32,
    /// By how much our and their windows are shifted.
    pub(crate) local_scale: u8,
    pub(crate) remote_scale: u8,
    /// The largest segment that they want.
    pub(crate) remote_mss: u16,
    pub(crate) sack: bool,
    /// Both send timestamps: the start of our clock, and the last of theirs.
    pub(crate) stamps: Option<(u32, u32)>,
    pub(crate) ecn: bool,
}

impl Terms {
    /// What follows from what we would have and what they say in their opening.
    pub(crate) fn agree(
        config: &TcpConfig,
        local_first: u32,
        clock_offset: u32,
        segment: &Segment,
    ) -> Self {
        let options = &segment.options;
        let scales = config.scale().zip(options.window_scale);
        let stamps = options.timestamp.filter(|_| config.timestamps);
        // An answer has ECE alone, a question both (RFC 3168, 6.1.1).
        let asks = if segment.has(Flags::ACK) {
            segment.has(Flags::ECE) && !segment.has(Flags::CWR)
        } else {
            segment.has(Flags::ECE | Flags::CWR)
        };
        Self {
            local_first,
            remote_first: segment.seq,
            local_scale: scales.map_or(0, |(ours, _)| ours),
            remote_scale: scales.map_or(0, |(_, theirs)| theirs),
            // RFC 9293, 3.7.1: without the option, 536.
            remote_mss: options.mss.unwrap_or(536).max(64),
            sack: config.sack && options.sack_permitted,
            stamps: stamps.map(|(value, _)| (clock_offset, value)),
            ecn: config.ecn && asks,
        }
    }

    /// The options of an answer: what was asked for and agreed to.
    pub(crate) fn answer(&self, now: Instant, mss: u16, scaled: bool) -> Options {
        Options {
            mss: Some(mss),
            window_scale: scaled.then_some(self.local_scale),
            sack_permitted: self.sack,
            timestamp: self.stamps.map(|(offset, value)| (timestamps::clock(offset, now), value)),
            ..Options::default()
        }
    }
}

/// A connection that was asked for and answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) terms: Terms,
    is_scaled: bool,
    /// The window that the answer offers.
    pub(crate) offered: u16,
    /// The largest segment that we want.
    mss: u16,
    answered_at: Instant,
    tries: u8,
    deadline: Instant,
    is_answer_due: bool,
}

/// What a segment to a half-open connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It proves that they hear us: the connection is open, and goes on with
    /// this segment.
    Open,
    /// The answer is due again.
    Again,
    /// They are gone.
    Gone,
    /// It acknowledges what was never sent: it is to be answered with a reset
    /// (RFC 9293, 3.10.7.4), and changes nothing.
    Foreign,
    /// It is ignored.
    Nothing,
}

const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

impl HalfOpen {
    pub(crate) fn new(
        now: Instant,
        config: &TcpConfig,
        secret: &Secret,
        (local, remote): (SocketAddr, SocketAddr),
        segment: &Segment,
        (offered, mss): (u16, u16),
    ) -> Self {
        let first = secret.first_number(now, local, remote);
        let terms = Terms::agree(config, first, secret.clock_offset(local, remote), segment);
        let is_scaled = config.scale().is_some() && segment.options.window_scale.is_some();
        Self {
            local,
            remote,
            terms,
            is_scaled,
            offered,
            mss,
            answered_at: now,
            tries: 0,
            deadline: now + FIRST_TIMEOUT,
            is_answer_due: true,
        }
    }

    /// The answer, where it is due.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Draft> {
        if !core::mem::take(&mut self.is_answer_due) {
            return None;
        }
        if self.tries == 0 {
            self.answered_at = now;
        }
        let ecn = if self.terms.ecn { Flags::ECE } else { Flags::NONE };
        Some(Draft {
            seq: self.terms.local_first,
            ack: self.terms.remote_first.wrapping_add(1),
            flags: Flags::SYN | Flags::ACK | ecn,
            window: self.offered,
            options: self.terms.answer(now, self.mss, self.is_scaled),
            payload: 0,
            cut: None,
            is_message: false,
            hold: Hold::default(),
            ecn: Ecn::NotCapable,
        })
    }

    /// A segment of this connection came; its checksum is right, or will be
    /// looked at before anything of it counts.
    pub(crate) fn handle(&mut self, segment: &Segment) -> Heard {
        let expected = Serial32(self.terms.remote_first).plus(1);
        let is_in_window =
            Serial32(segment.seq).is_within(expected, u32::from(self.offered).max(1));
        if segment.has(Flags::RST) {
            return if segment.seq == expected.0 { Heard::Gone } else { Heard::Nothing };
        }
        if segment.has(Flags::SYN) {
            let is_same = segment.seq == self.terms.remote_first;
            self.is_answer_due |= is_same;
            return if is_same { Heard::Again } else { Heard::Nothing };
        }
        if !segment.has(Flags::ACK) {
            return Heard::Nothing;
        }
        if segment.ack != self.terms.local_first.wrapping_add(1) {
            return Heard::Foreign;
        }
        if is_in_window { Heard::Open } else { Heard::Nothing }
    }

    /// How long the answer took to be acknowledged, if it was sent once.
    pub(crate) fn round_trip(&self, now: Instant) -> Option<Duration> {
        (self.tries == 0).then(|| now.since(self.answered_at))
    }

    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The answer is due again; or, where it was sent often enough, they are
    /// given up.
    pub(crate) fn handle_timeout(&mut self, now: Instant, config: &TcpConfig) -> bool {
        if self.deadline > now {
            return true;
        }
        self.tries += 1;
        self.deadline = now + FIRST_TIMEOUT * (1 << self.tries.min(6));
        self.is_answer_due = true;
        self.tries <= config.opening_retries
    }
}
