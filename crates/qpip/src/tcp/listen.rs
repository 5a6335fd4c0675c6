//! [`HalfOpen`]: a connection that was asked for, but has not proved yet that
//! it hears us. It owns no queue pair, and there is a bounded number of them.

use core::hash::{Hash, Hasher};
use core::net::SocketAddr;

use landfall_placement::{Duration, Ecn, Instant, Random, Serial32};
use landfall_tables::HashSecret;
use siphasher::sip::SipHasher13;

use super::accurate_ecn::AccurateEcn;
use super::config::TcpConfig;
use super::ecn::{Ace, EcnFeedback};
use super::segment;
use super::segment::{Draft, Segment};
use super::{Ends, OwnOffer};
use crate::queue::Hold;
use crate::wire::FastOpenCookie;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::{ImmediateOption, LEN_MAX, Options};

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
    /// Both send timestamps.
    pub(crate) stamps: Option<FirstStamps>,
    pub(crate) ecn: EcnFeedback,
    /// Both take words with the ends of messages.
    pub(crate) immediates: bool,
}

/// Timestamps at the opening of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstStamps {
    /// Where our clock for this host starts.
    pub(crate) clock_offset: u32,
    /// The last of theirs.
    pub(crate) theirs: u32,
}

/// The numbers that our side of a connection starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnNumbers {
    /// That of our opening.
    pub(crate) first: u32,
    /// Where our timestamps for this host start.
    pub(crate) clock_offset: u32,
}

impl FirstStamps {
    /// The option of a segment that is sent now: our timestamp, and the echo of theirs.
    pub(crate) fn option(self, now: Instant) -> (u32, u32) {
        (segment::timestamp_clock(self.clock_offset, now), self.theirs)
    }
}

impl Terms {
    /// What follows from what we would have and what they say in their opening.
    pub(crate) fn agree(
        config: &TcpConfig,
        own: OwnNumbers,
        remote: SocketAddr,
        segment: &Segment,
    ) -> Self {
        let options = &segment.options;
        let scales = config.scale().zip(options.window_scale);
        let stamps = options.timestamp.filter(|_| config.timestamps);
        let (ace, accurate) = (Ace::of(segment), config.accurate_ecn);
        let ecn = if segment.has(Flags::ACK) {
            EcnFeedback::of_answer(ace, accurate)
        } else {
            EcnFeedback::of_question(ace, accurate)
        };
        Self {
            local_first: own.first,
            remote_first: segment.seq,
            local_scale: scales.map_or(0, |(ours, _)| ours),
            remote_scale: scales.map_or(0, |(_, theirs)| theirs),
            // A segment of nothing says nothing.
            remote_mss: options
                .mss
                .filter(|mss| *mss > 0)
                .unwrap_or_else(|| Self::usual_mss(remote))
                .max(64),
            sack: config.sack && options.sack_permitted,
            stamps: stamps
                .map(|(theirs, _)| FirstStamps { clock_offset: own.clock_offset, theirs }),
            ecn: if config.ecn { ecn } else { EcnFeedback::None },
            immediates: config.immediates && options.immediate.is_some(),
        }
    }

    /// RFC 9293, 3.7.1: the largest segment of who doesn't say how long it may be.
    pub(crate) const fn usual_mss(remote: SocketAddr) -> u16 {
        if remote.is_ipv4() { 536 } else { 1_220 }
    }

    /// The options of an answer: what was asked for and agreed to.
    pub(crate) fn answer(&self, now: Instant, mss: u16, scaled: bool) -> Options {
        Options {
            mss: Some(mss),
            window_scale: scaled.then_some(self.local_scale),
            sack_permitted: self.sack,
            timestamp: self.stamps.map(|stamps| stamps.option(now)),
            immediate: self.immediates.then_some(ImmediateOption::Plain),
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
    asked_at: Instant,
    /// When it was first answered; nothing where that was not kept.
    answered_at: Option<Instant>,
    tries: u8,
    deadline: Instant,
    is_answer_due: bool,
    /// With what mark their opening came last.
    opening_ecn: Ecn,
    /// It came more than once.
    was_asked_again: bool,
    /// An opening or an answer left ECN out: nothing is sent as capable then (RFC 9768, 3.1.5).
    pub(crate) left_ecn_out: bool,
    /// We speak accurate ECN.
    speaks_accurate: bool,
    /// They asked for a cookie (RFC 7413).
    pub(crate) fast_open: Option<FastOpenCookie>,
    /// What they said of words since our answer. It is not said again once anything of us came
    /// behind that, and a segment that is not acceptable here brings them such an answer.
    pub(super) greeting: Option<ImmediateOption>,
}

/// What a segment to a half-open connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeStep {
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
    /// It is not acceptable, and is answered with where we are (RFC 9293, 3.10.7.4): who
    /// really opened anew resets then.
    Unacceptable,
    /// It asks for another kind of ECN than before: it is answered with a reset, and forgotten
    /// (RFC 9768, 3.1.5).
    Contradiction,
    /// It is ignored.
    Nothing,
}

const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// An answer is repeated no more often, for about a minute: who asked asks again, and
/// strangers who do not fill the table.
const MOST_ANSWERS: u8 = 5;

impl HalfOpen {
    pub(crate) fn new(
        now: Instant,
        config: &TcpConfig,
        secret: &Secret,
        ends: Ends,
        segment: &Segment,
        own: OwnOffer,
    ) -> Self {
        let Ends { local, remote } = ends;
        let numbers = OwnNumbers {
            first: secret.first_number(now, local, remote),
            clock_offset: secret.clock_offset(local, remote),
        };
        let terms = Terms::agree(config, numbers, remote, segment);
        let is_scaled = config.scale().is_some() && segment.options.window_scale.is_some();
        Self {
            local,
            remote,
            terms,
            is_scaled,
            offered: own.window,
            mss: own.mss,
            asked_at: now,
            answered_at: None,
            tries: 0,
            deadline: now + FIRST_TIMEOUT,
            is_answer_due: true,
            opening_ecn: segment.ecn,
            was_asked_again: false,
            left_ecn_out: false,
            speaks_accurate: config.ecn && config.accurate_ecn,
            fast_open: None,
            greeting: None,
        }
    }

    /// A connection whose opening was answered without keeping anything, and is proved.
    pub(crate) fn proved(now: Instant, ends: Ends, terms: Terms, own: OwnOffer) -> Self {
        Self {
            local: ends.local,
            remote: ends.remote,
            terms,
            is_scaled: terms.local_scale > 0 || terms.remote_scale > 0,
            offered: own.window,
            mss: own.mss,
            asked_at: now,
            answered_at: None,
            tries: 0,
            deadline: now + FIRST_TIMEOUT,
            is_answer_due: false,
            opening_ecn: Ecn::NotCapable,
            was_asked_again: false,
            left_ecn_out: false,
            speaks_accurate: false,
            fast_open: None,
            greeting: None,
        }
    }

    pub(crate) const fn ends(&self) -> Ends {
        Ends { local: self.local, remote: self.remote }
    }

    /// The answer, where it is due.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Draft> {
        if !core::mem::take(&mut self.is_answer_due) {
            return None;
        }
        if self.tries == 0 {
            self.answered_at = Some(now);
        }
        let ace = self.terms.ecn.answer(self.opening_ecn, self.tries);
        let is_accurate = self.terms.ecn == EcnFeedback::Accurate;
        self.left_ecn_out |= is_accurate && ace == Ace::default();
        let (ecn, has_ae) = ace.flags();
        // RFC 9768, 3.2.3.2.2: the second answer leaves the option out.
        let tells = is_accurate && self.tries == 0 && !self.was_asked_again;
        let options = Options {
            fast_open: self.fast_open,
            ..self.terms.answer(now, self.mss, self.is_scaled)
        };
        let accurate = AccurateEcn::new(true).take_option(LEN_MAX.saturating_sub(options.len()));
        Some(Draft {
            seq: self.terms.local_first,
            ack: self.terms.remote_first.wrapping_add(1),
            flags: Flags::SYN | Flags::ACK | ecn,
            has_ae,
            window: self.offered,
            options: Options { accurate: accurate.filter(|_| tells), ..options },
            payload: 0,
            cut: None,
            is_message: false,
            probes_path: false,
            hold: Hold::default(),
            ecn: Ecn::NotCapable,
        })
    }

    /// A segment of this connection came; its checksum is right, or will be
    /// looked at before anything of it counts.
    pub(crate) fn handle(&mut self, segment: &Segment) -> HandshakeStep {
        let expected = Serial32(self.terms.remote_first).plus(1);
        let is_in_window =
            Serial32(segment.seq).is_within(expected, u32::from(self.offered).max(1));
        if segment.has(Flags::RST) {
            return if segment.seq == expected.0 {
                HandshakeStep::Gone
            } else {
                HandshakeStep::Nothing
            };
        }
        if segment.has(Flags::SYN) {
            let is_same = segment.seq == self.terms.remote_first;
            if is_same && self.is_other_feedback(segment) {
                return HandshakeStep::Contradiction;
            }
            self.is_answer_due |= is_same;
            return if is_same { HandshakeStep::Again } else { HandshakeStep::Unacceptable };
        }
        if !is_in_window {
            return HandshakeStep::Unacceptable;
        }
        if !segment.has(Flags::ACK) {
            return HandshakeStep::Nothing;
        }
        if segment.ack != self.terms.local_first.wrapping_add(1) {
            return HandshakeStep::Foreign;
        }
        HandshakeStep::Open
    }

    /// Keeps what a segment, whose checksum is right, says of words, if it is an answer to ours.
    pub(crate) fn hear_of_words(&mut self, segment: &Segment) {
        let is_answer = segment.has(Flags::ACK) && !segment.has(Flags::SYN);
        if is_answer && segment.ack == self.terms.local_first.wrapping_add(1) {
            self.greeting = self.greeting.or(segment.options.immediate);
        }
    }

    /// RFC 9768, 3.1.5: an opening that comes again may ask for nothing, and may be marked; one
    /// that asks for the other kind of ECN contradicts the first.
    fn is_other_feedback(&mut self, segment: &Segment) -> bool {
        let asks = EcnFeedback::of_question(Ace::of(segment), self.speaks_accurate);
        let is_accurate = self.terms.ecn == EcnFeedback::Accurate;
        if is_accurate {
            self.opening_ecn = segment.ecn;
            self.was_asked_again = true;
            self.left_ecn_out |= asks == EcnFeedback::None;
        }
        self.speaks_accurate
            && asks != EcnFeedback::None
            && self.terms.ecn != EcnFeedback::None
            && asks != self.terms.ecn
    }

    /// The answer to what is not acceptable.
    pub(crate) fn challenge_ack(&self, now: Instant) -> Draft {
        let timestamp = self.terms.stamps.map(|stamps| stamps.option(now));
        Draft {
            seq: self.terms.local_first.wrapping_add(1),
            ack: self.terms.remote_first.wrapping_add(1),
            flags: Flags::ACK,
            has_ae: false,
            window: self.offered >> self.terms.local_scale,
            options: Options { timestamp, ..Options::default() },
            payload: 0,
            cut: None,
            is_message: false,
            probes_path: false,
            hold: Hold::default(),
            ecn: Ecn::NotCapable,
        }
    }

    /// When it was asked for, or proved where nothing was kept before.
    pub(crate) const fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// How long the answer took to be acknowledged, if it was sent once.
    pub(crate) fn round_trip(&self, now: Instant) -> Option<Duration> {
        self.answered_at.filter(|_| self.tries == 0).map(|at| now.since(at))
    }

    /// Was the answer sent more than once?
    pub(crate) const fn was_repeated(&self) -> bool {
        self.tries > 0
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
        self.tries <= config.opening_retries.min(MOST_ANSWERS)
    }
}

// Initial sequence numbers and timestamp offsets that strangers cannot guess (RFC 6528).

/// A keyed hash over the two ends of a connection. The key comes from the seed.
#[derive(Clone)]
pub(crate) struct Secret(HashSecret);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self(HashSecret::new(random.next_u64(), random.next_u64()))
    }

    /// A hash for something else, that no other of them tells anything of.
    pub(super) fn hasher(&self, what: &str) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(self.0.k0(), self.0.k1());
        what.hash(&mut hasher);
        hasher
    }

    /// The hash of these two ends.
    #[inline]
    pub(crate) fn hash(&self, local: SocketAddr, remote: SocketAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0.k0(), self.0.k1());
        (local.port(), remote.port()).hash(&mut hasher);
        match (local.ip(), remote.ip()) {
            (core::net::IpAddr::V4(a), core::net::IpAddr::V4(b)) => {
                hasher.write_u32(a.to_bits());
                hasher.write_u32(b.to_bits());
            }
            (a, b) => (a, b).hash(&mut hasher),
        }
        hasher.finish()
    }

    /// The number of an opening: a clock of 4 µs, so that a later connection of
    /// the same two ends starts behind an earlier one, plus the hash.
    pub(crate) fn first_number(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> u32 {
        let clock = (now.as_nanos() / 4_000) as u32;
        clock.wrapping_add(self.hash(local, remote) as u32)
    }

    /// Where our timestamps for this other side start: the same for each
    /// connection between the two addresses, as RFC 7323, 7.1 suggests.
    pub(crate) fn clock_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        let without_ports = |mut end: SocketAddr| {
            end.set_port(0);
            end
        };
        (self.hash(without_ports(local), without_ports(remote)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_by_ends_time_and_seed() {
        let secret = |seed| Secret::new(&mut Random::from_number(seed));
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let number = |seed, micros, port| {
            secret(seed).first_number(Instant::from_micros(micros), end(80), end(port))
        };
        assert_eq!(number(1, 0, 5), number(1, 0, 5));
        assert_ne!(number(1, 0, 5), number(2, 0, 5));
        assert_ne!(number(1, 0, 5), number(1, 0, 6));
        assert_eq!(number(1, 400, 5), number(1, 0, 5).wrapping_add(100));
    }

    #[test]
    fn clocks_do_not_go_back_between_connections_of_two_hosts() {
        let secret = Secret::new(&mut Random::from_number(1));
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        assert_eq!(secret.clock_offset(end(1), end(2)), secret.clock_offset(end(3), end(4)));
    }
}
