//! How often something may happen: this many times at once, and then at a rate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use landfall::stp::Peer;

/// What may still be done now, and how it grows again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: f64,
    since: Instant,
    most: f64,
    per_second: f64,
}

impl Allowance {
    pub(crate) fn new(most: u32, per_second: u32, now: Instant) -> Self {
        let most = f64::from(most);
        Self { left: most, since: now, most, per_second: f64::from(per_second) }
    }

    fn grow(&mut self, now: Instant) {
        let grown = now.saturating_duration_since(self.since).as_secs_f64() * self.per_second;
        self.left = (self.left + grown).min(self.most);
        self.since = self.since.max(now);
    }

    pub(crate) fn has_one(&mut self, now: Instant) -> bool {
        self.grow(now);
        self.left >= 1.0
    }

    /// It happened, allowed or not: what was too much is waited for, too.
    pub(crate) fn spend(&mut self, now: Instant) {
        self.grow(now);
        self.left -= 1.0;
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.grow(now);
        self.left >= self.most
    }
}

/// Who guesses: an address of IPv4, or the network of 64 bits that one of IPv6 lies in, since
/// anyone who has one address of that has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source(Option<IpAddr>);

impl Source {
    pub(crate) fn of(peer: Peer) -> Self {
        let Peer::Socket(address) = peer else { return Self(None) };
        Self(Some(match address.ip().to_canonical() {
            v4 @ IpAddr::V4(_) => v4,
            IpAddr::V6(v6) => IpAddr::from((u128::from(v6) >> 64 << 64).to_be_bytes()),
        }))
    }
}

/// Wrong codes of one source at once.
const BURST: u32 = 32;
/// Wrong codes of one source, after that.
pub(crate) const GUESSES_PER_SECOND: u32 = 8;
/// This many sources are remembered.
const MOST_SOURCES: usize = 4096;

/// The wrong codes of late, by source.
#[derive(Debug, Default)]
pub(crate) struct Guesses(HashMap<Source, Allowance>);

impl Guesses {
    /// Is a proof of this source heard now?
    pub(crate) fn may_try(&mut self, source: Source, now: Instant) -> bool {
        self.0.get_mut(&source).is_none_or(|allowance| allowance.has_one(now))
    }

    pub(crate) fn wrong(&mut self, source: Source, now: Instant) {
        if self.0.len() >= MOST_SOURCES && !self.0.contains_key(&source) {
            self.0.retain(|_, allowance| !allowance.is_full(now));
            let most_left = self.0.iter().max_by(|(_, a), (_, b)| a.left.total_cmp(&b.left));
            if self.0.len() >= MOST_SOURCES
                && let Some(source) = most_left.map(|(source, _)| *source)
            {
                self.0.remove(&source);
            }
        }
        let fresh = || Allowance::new(BURST, GUESSES_PER_SECOND, now);
        self.0.entry(source).or_insert_with(fresh).spend(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn source(address: &str) -> Source {
        Source::of(Peer::Socket(address.parse().unwrap()))
    }

    #[test]
    fn wrong_codes_of_one_source_do_not_count_for_another() {
        let now = Instant::now();
        let (one, other) = (source("192.0.2.1:9"), source("192.0.2.2:9"));
        let mut guesses = Guesses::default();
        for _ in 0..BURST {
            assert!(guesses.may_try(one, now));
            guesses.wrong(one, now);
        }
        assert!(!guesses.may_try(one, now));
        assert!(guesses.may_try(other, now));
        // Another port is no other source, and neither is the same address within IPv6.
        assert!(!guesses.may_try(source("192.0.2.1:10"), now));
        assert!(!guesses.may_try(source("[::ffff:192.0.2.1]:9"), now));
        // A tenth of the time that a guess takes is not enough.
        assert!(!guesses.may_try(one, now + Duration::from_millis(12)));
        assert!(guesses.may_try(one, now + Duration::from_secs(1)));
    }

    #[test]
    fn guesses_at_a_time_are_paid_for_later() {
        let now = Instant::now();
        let one = source("192.0.2.1:9");
        let mut guesses = Guesses::default();
        for _ in 0..BURST + 10 * GUESSES_PER_SECOND {
            guesses.wrong(one, now);
        }
        assert!(!guesses.may_try(one, now + Duration::from_secs(9)));
        assert!(guesses.may_try(one, now + Duration::from_secs(11)));
    }

    #[test]
    fn a_network_of_64_bits_is_one_source() {
        assert_eq!(source("[2001:db8::1]:9"), source("[2001:db8::ffff:1]:1"));
        assert_ne!(source("[2001:db8::1]:9"), source("[2001:db8:0:1::1]:9"));
    }

    #[test]
    fn the_sources_that_are_remembered_are_bounded() {
        let now = Instant::now();
        let worst = source("192.0.2.1:9");
        let mut guesses = Guesses::default();
        for _ in 0..BURST {
            guesses.wrong(worst, now);
        }
        for nth in 0..2 * MOST_SOURCES as u32 {
            guesses.wrong(Source(Some(IpAddr::from(nth.to_be_bytes()))), now);
        }
        assert!(guesses.0.len() <= MOST_SOURCES);
        assert!(!guesses.may_try(worst, now), "who guessed most is remembered longest");
    }
}
