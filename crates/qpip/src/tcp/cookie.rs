//! [`Cookies`]: openings that are answered without keeping anything (RFC 4987, 3.6).
//!
//! Where the table of half-open connections is full, strangers fill it. Anyone who asks
//! then is answered all the same, with a number of which only this adapter can know
//! that it drew it: so a flood keeps nobody out while it lasts, and pushes nobody out
//! who was there before. All that has to be remembered of the opening comes back with
//! the proof: the largest segment and the window that was offered in the number, the
//! other options in the timestamp.
//! Who sends no timestamps gets no window scale and no selective acknowledgements.

use core::hash::{Hash, Hasher};

use landfall_placement::{Duration, Ecn, Instant, Random};
use landfall_tables::HashSecret;
use siphasher::sip::SipHasher13;

use super::config::TcpConfig;
use super::ecn::EcnFeedback;
use super::listen::{FirstStamps, OwnNumbers, Terms};
use super::segment::{Draft, Segment, timestamp_clock};
use super::{Ends, OwnOffer};
use crate::queue::Hold;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::Options;

/// A number is good for this span and the next.
const SPAN: Duration = Duration::from_secs(64);
/// The largest segments that a number can name: what is asked for is rounded down.
const SEGMENTS: [u16; 8] = [64, 536, 1_220, 1_360, 1_440, 1_460, 4_312, 8_900];
const SEGMENT_BITS: u32 = 3;
/// The bits of a number that say what is agreed on: the segment size, and above it which
/// power of two the window was, for what was offered is honoured.
const LOW_BITS: u32 = SEGMENT_BITS + 4;
/// The low bits of a timestamp that hold options.
const STAMP_BITS: u32 = 6;
const NO_SCALE: u32 = 15;

/// What answers and proofs share.
#[derive(Clone)]
pub(crate) struct Cookies {
    key: HashSecret,
    /// When one was given out last: long after that no proof counts.
    given_at: Option<Instant>,
}

/// The key is not printed.
impl core::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cookies").field("given_at", &self.given_at).finish_non_exhaustive()
    }
}

impl Cookies {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self { key: HashSecret::new(random.next_u64(), random.next_u64()), given_at: None }
    }

    /// May a proof come of what was given out?
    pub(crate) fn is_in_use(&self, now: Instant) -> bool {
        self.given_at.is_some_and(|at| now.since(at) < SPAN * 2)
    }

    fn span(now: Instant) -> u64 {
        now.as_nanos() / SPAN.as_nanos() as u64
    }

    /// The number of an answer: 25 bits that nobody else can draw, and what they are for.
    fn number(&self, ends: Ends, first: u32, span: u64, low: u32) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.key.k0(), self.key.k1());
        (ends, first, span, low).hash(&mut hasher);
        (hasher.finish() as u32) << LOW_BITS | low
    }

    /// The answer to an opening, of which nothing is kept. `clock` is where our
    /// timestamps for this host start.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        config: &TcpConfig,
        ends: Ends,
        clock: u32,
        segment: &Segment,
        own: OwnOffer,
    ) -> Draft {
        self.given_at = Some(now);
        let wanted = segment.options.mss.unwrap_or_else(|| Terms::usual_mss(ends.remote));
        let size = SEGMENTS.partition_point(|size| *size <= wanted).saturating_sub(1);
        let exponent = own.window.checked_ilog2().unwrap_or(0);
        let low = size as u32 | exponent << SEGMENT_BITS;
        let seq = self.number(ends, segment.seq, Self::span(now), low);
        let numbers = OwnNumbers { first: seq, clock_offset: clock };
        let terms = Terms::agree(config, numbers, ends.remote, segment);
        let terms = Terms { immediates: false, ..terms };
        let scales = config.scale().zip(segment.options.window_scale);
        let options = match terms.stamps {
            None => Options { mss: Some(own.mss), ..Options::default() },
            Some(FirstStamps { theirs, .. }) => {
                let scale = scales.map_or(NO_SCALE, |(_, theirs)| u32::from(theirs));
                let classic = u32::from(terms.ecn == EcnFeedback::Classic);
                let bits = scale | u32::from(terms.sack) << 4 | classic << 5;
                let value = with_low_bits(timestamp_clock(clock, now), bits);
                Options {
                    timestamp: Some((value, theirs)),
                    ..terms.answer(now, own.mss, scales.is_some())
                }
            }
        };
        // Accurate ECN comes back with the proof by itself.
        let agrees = terms.stamps.is_some() || terms.ecn == EcnFeedback::Accurate;
        let ecn = if agrees { terms.ecn } else { EcnFeedback::None };
        let (ecn, has_ae) = ecn.answer(segment.ecn, 0).flags();
        Draft {
            seq,
            ack: segment.seq.wrapping_add(1),
            flags: Flags::SYN | Flags::ACK | ecn,
            has_ae,
            window: window_of(exponent),
            options,
            payload: 0,
            cut: None,
            is_message: false,
            probes_path: false,
            hold: Hold::default(),
            ecn: Ecn::NotCapable,
        }
    }

    /// What was agreed on with who proves by this segment that it heard such an answer,
    /// and the window that was offered; nothing where the number is none of ours, or an old one.
    pub(crate) fn check(
        &self,
        now: Instant,
        config: &TcpConfig,
        ends: Ends,
        clock: u32,
        segment: &Segment,
    ) -> Option<(Terms, u16)> {
        let is_plain =
            segment.has(Flags::ACK) && !segment.flags.intersects(Flags::SYN | Flags::RST);
        if !is_plain || !self.is_in_use(now) {
            return None;
        }
        let (local_first, remote_first) =
            (segment.ack.wrapping_sub(1), segment.seq.wrapping_sub(1));
        let low = local_first & ((1 << LOW_BITS) - 1);
        let (size, exponent) = (low & ((1 << SEGMENT_BITS) - 1), low >> SEGMENT_BITS);
        let span = Self::span(now);
        let mut spans = [Some(span), span.checked_sub(1)].into_iter().flatten();
        spans.find(|span| self.number(ends, remote_first, *span, low) == local_first)?;
        let stamps = segment.options.timestamp.filter(|_| config.timestamps);
        let bits = stamps.map_or(NO_SCALE, |(_, echo)| echo & ((1 << STAMP_BITS) - 1));
        let theirs = Some(bits & 15).filter(|scale| *scale != NO_SCALE);
        let scales = config.scale().zip(theirs);
        let terms = Terms {
            local_first,
            remote_first,
            local_scale: scales.map_or(0, |(ours, _)| ours),
            remote_scale: scales.map_or(0, |(_, theirs)| theirs.min(14) as u8),
            remote_mss: SEGMENTS[size as usize],
            sack: config.sack && bits >> 4 & 1 == 1,
            stamps: stamps.map(|(theirs, _)| FirstStamps { clock_offset: clock, theirs }),
            ecn: EcnFeedback::of_proof(config, bits >> 5 & 1 == 1, segment),
            // Nothing remembers it.
            immediates: false,
        };
        Some((terms, window_of(exponent)))
    }
}

/// The window that a number names: a power of two, or nothing.
const fn window_of(exponent: u32) -> u16 {
    if exponent == 0 { 0 } else { 1 << exponent }
}

/// The latest moment of a clock that has these low bits.
const fn with_low_bits(clock: u32, bits: u32) -> u32 {
    let mask = (1 << STAMP_BITS) - 1;
    let value = clock & !mask | bits;
    // A clock that is ahead of its time would make what is sent next look old.
    if clock & mask < bits { value.wrapping_sub(mask + 1) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        Ends { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 1_234).into() }
    }

    fn segment(flags: Flags, seq: u32, ack: u32, options: Options) -> Segment {
        let (window, payload) = (1_000, 0);
        let (coalesced, joined) = (None, None);
        let (has_ae, ecn) = (false, Ecn::NotCapable);
        Segment { seq, ack, flags, has_ae, window, options, payload, coalesced, joined, ecn }
    }

    const OWN: OwnOffer = OwnOffer { window: 4_000, mss: 1_460 };

    fn opening() -> Segment {
        let options = Options {
            mss: Some(1_400),
            window_scale: Some(9),
            sack_permitted: true,
            timestamp: Some((77, 0)),
            ..Options::default()
        };
        segment(Flags::SYN, 1_000, 0, options)
    }

    fn proof(answer: &Draft) -> Segment {
        let stamp = answer.options.timestamp.map(|(value, _)| (78, value));
        let options = Options { timestamp: stamp, ..Options::default() };
        segment(Flags::ACK, answer.ack, answer.seq.wrapping_add(1), options)
    }

    #[test]
    fn what_was_agreed_on_comes_back_with_the_proof() {
        let mut cookies = Cookies::new(&mut Random::from_number(1));
        let config = TcpConfig::default();
        let now = Instant::from_millis(100_000);
        let answer = cookies.answer(now, &config, ends(), 5, &opening(), OWN);
        let later = now + Duration::from_secs(1);
        let proved = cookies.check(later, &config, ends(), 5, &proof(&answer));
        let (terms, offered) = proved.unwrap();
        assert_eq!((answer.window, offered), (2_048, 2_048), "what was offered is honoured");
        assert_eq!((terms.local_first, terms.remote_first), (answer.seq, 1_000));
        assert_eq!((terms.remote_mss, terms.remote_scale), (1_360, 9));
        assert_eq!(
            (terms.sack, terms.ecn, terms.stamps),
            (true, EcnFeedback::None, Some(FirstStamps { clock_offset: 5, theirs: 78 }))
        );
        assert_eq!(Some(terms.local_scale), answer.options.window_scale);
    }

    /// RFC 9768, 5.1: the low bits of its first counter tell.
    #[test]
    fn an_answer_without_memory_agrees_on_accurate_ecn_by_the_proof() {
        let mut cookies = Cookies::new(&mut Random::from_number(1));
        let config = TcpConfig { ecn: true, accurate_ecn: true, ..TcpConfig::default() };
        let now = Instant::from_millis(100_000);
        let asks = Flags::SYN | Flags::ECE | Flags::CWR;
        let mut agreed = |question: Segment, proof_flags: Flags, has_ae: bool| {
            let answer = cookies.answer(now, &config, ends(), 5, &question, OWN);
            let flags = Flags::ACK | proof_flags;
            let proof = Segment { flags, has_ae, ..proof(&answer) };
            let terms = cookies.check(now, &config, ends(), 5, &proof).unwrap().0;
            (answer.flags.without(Flags::SYN | Flags::ACK), answer.has_ae, terms.ecn)
        };
        let accurate = Segment { flags: asks, has_ae: true, ..opening() };
        let said = agreed(accurate, Flags::CWR, false);
        assert_eq!(said, (Flags::CWR, false, EcnFeedback::Accurate));
        let marked = Segment { ecn: Ecn::CongestionExperienced, ..accurate };
        let said = agreed(marked, Flags::CWR, true);
        assert_eq!(said, (Flags::CWR, true, EcnFeedback::Accurate));
        let said = agreed(Segment { flags: asks, ..opening() }, Flags::NONE, false);
        assert_eq!(said, (Flags::ECE, false, EcnFeedback::Classic));
        assert_eq!(agreed(opening(), Flags::NONE, false), (Flags::NONE, false, EcnFeedback::None));
    }

    #[test]
    fn without_timestamps_there_is_less() {
        let mut cookies = Cookies::new(&mut Random::from_number(1));
        let config = TcpConfig::default();
        let now = Instant::from_millis(100_000);
        let mut plain = opening();
        plain.options.timestamp = None;
        let answer = cookies.answer(now, &config, ends(), 5, &plain, OWN);
        assert_eq!(answer.options, Options { mss: Some(1_460), ..Options::default() });
        let (terms, _) = cookies.check(now, &config, ends(), 5, &proof(&answer)).unwrap();
        assert_eq!((terms.sack, terms.stamps, terms.local_scale), (false, None, 0));
    }

    #[test]
    fn another_number_another_end_and_another_time_prove_nothing() {
        let mut cookies = Cookies::new(&mut Random::from_number(1));
        let config = TcpConfig::default();
        let now = Instant::from_millis(100_000);
        let answer = cookies.answer(now, &config, ends(), 5, &opening(), OWN);
        let good = proof(&answer);
        let check = |at, ends, segment: &Segment| cookies.check(at, &config, ends, 5, segment);
        for off in [1, 8, 1 << 31, u32::MAX] {
            let wrong = Segment { ack: good.ack.wrapping_add(off), ..good };
            assert!(check(now, ends(), &wrong).is_none());
            let wrong = Segment { seq: good.seq.wrapping_add(off), ..good };
            assert!(check(now, ends(), &wrong).is_none());
        }
        let mut others = ends();
        others.remote.set_port(1_235);
        assert!(check(now, others, &good).is_none());
        assert!(check(now + SPAN * 2, ends(), &good).is_none());
        assert!(check(now, ends(), &Segment { flags: Flags::SYN | Flags::ACK, ..good }).is_none());
        assert!(check(now, ends(), &good).is_some());
    }

    #[test]
    fn a_clock_with_other_low_bits_is_never_ahead() {
        for clock in [0, 1, 63, 64, 100, u32::MAX] {
            for bits in 0..64 {
                let value = with_low_bits(clock, bits);
                assert_eq!(value & 63, bits);
                assert!(clock.wrapping_sub(value) < 64);
            }
        }
    }
}
