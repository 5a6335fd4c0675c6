//! [`SizeSearch`]: how a longer packet than a path is known to carry is looked for, where no
//! router says how long it may be (RFC 4821, 7; RFC 8899, 5.3).
//!
//! One packet at a time is longer than what is known to arrive. The longest that the link
//! carries is tried first: mostly nothing was wrong with the size. Then the interval between
//! what arrives and what does not is halved until it is narrow. What a probe is made of, and
//! how it is known whether it arrived, is the transport's knowledge.

use landfall_placement::{Duration, Instant};

/// Sizes that differ by less are the same, and the search is over.
pub const STEP: u32 = 8;
/// So often a probe of one size is lost before that size counts as too long (RFC 8899, 5.1.2:
/// `MAX_PROBES`).
pub const MOST_LOST: u8 = 3;
/// When the next probe leaves after one that was lost.
pub const PAUSE: Duration = Duration::from_secs(1);
/// A probe of which nobody tells what became of it is forgotten: its connection may be over.
pub const FORGOTTEN: Duration = Duration::from_secs(30);
/// When a path whose size was found is searched again: it may carry more by then (RFC 8899,
/// 5.1.1: `PMTU_RAISE_TIMER`).
pub const RAISE: Duration = Duration::from_secs(600);

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It is there.
    Arrived,
    /// It was lost, and nothing else beside it.
    Lost,
    /// More was lost, or nobody knows: that says nothing of its size (RFC 4821, 7.6.4).
    Unknown,
}

/// A search for the size of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeSearch {
    /// Longer packets are not tried.
    ceiling: u32,
    /// The size of the last probe, and how often it was lost.
    size: u32,
    lost: u8,
    /// The longest was tried, and did not arrive.
    bisects: bool,
    /// No probe leaves before.
    next_at: Instant,
}

impl SizeSearch {
    /// A search on a path that leaves through a link that carries this much.
    #[must_use]
    pub const fn new(now: Instant, link: u32) -> Self {
        Self { ceiling: link, size: 0, lost: 0, bisects: false, next_at: now }
    }

    /// The size to probe now, of at most `most`, where the path is known to carry this much.
    #[must_use]
    pub fn next(&self, now: Instant, carries: u32, most: u32) -> Option<u32> {
        let top = self.ceiling.min(most);
        if now < self.next_at || top < carries.saturating_add(STEP) {
            return None;
        }
        let is_repeated = self.lost > 0 && (carries + 1..=top).contains(&self.size);
        Some(match self.bisects {
            _ if is_repeated => self.size,
            true => carries + (top - carries).div_ceil(2),
            false => top,
        })
    }

    /// A probe of this size leaves. The next one waits for what becomes of it.
    pub fn handle_sent(&mut self, now: Instant, size: u32) {
        if size != self.size {
            (self.size, self.lost) = (size, 0);
        }
        self.next_at = now + FORGOTTEN;
    }

    /// What became of a probe of this size, on a path that was known to carry `carries`, through
    /// a link that carries `link`. Returns what the path is known to carry now.
    pub fn conclude(
        &mut self,
        now: Instant,
        carries: u32,
        size: u32,
        outcome: ProbeOutcome,
        link: u32,
    ) -> u32 {
        let mut carries = carries;
        match outcome {
            ProbeOutcome::Arrived => {
                carries = carries.max(size);
                (self.lost, self.next_at) = (0, now);
            }
            ProbeOutcome::Lost
                if size == self.size && (carries + 1..=self.ceiling).contains(&size) =>
            {
                self.lost += 1;
                self.next_at = now + PAUSE;
                if self.lost >= MOST_LOST {
                    (self.ceiling, self.lost, self.bisects) = (size - 1, 0, true);
                }
            }
            // It says nothing, or of a size that is not asked about any more.
            ProbeOutcome::Lost | ProbeOutcome::Unknown => self.next_at = now + PAUSE,
        }
        self.finish(now, carries, link);
        carries
    }

    /// A router says that a probe was too long, and how long packets may be there. That is
    /// tried next.
    pub fn limit(&mut self, now: Instant, carries: u32, mtu: u32, link: u32) {
        if (carries..self.ceiling).contains(&mtu) {
            *self = Self { ceiling: mtu, ..Self::new(now, link) };
            self.finish(now, carries, link);
        }
    }

    /// The path is known to carry no more, for now.
    pub fn rest(&mut self, now: Instant, link: u32) {
        *self = Self::new(now + RAISE, link);
    }

    fn finish(&mut self, now: Instant, carries: u32, link: u32) {
        if self.ceiling < carries.saturating_add(STEP) {
            self.rest(now, link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::path_mtu::BASE_MTU;
    use proptest::prelude::*;

    /// Probes until the search rests. Returns what was found, the probes that were lost, and
    /// when that was.
    fn search(path: u32, link: u32, most: u32, losses: &[bool]) -> (u32, usize, Instant) {
        let mut now = Instant::from_millis(5);
        let (mut carries, mut search) = (BASE_MTU, SizeSearch::new(now, link));
        let (mut lost, mut losses) = (0, losses.iter().copied());
        let end = now + RAISE;
        while now < end {
            let Some(size) = search.next(now, carries, most) else {
                now += PAUSE;
                continue;
            };
            assert!(size > carries && size <= link.min(most), "{size}");
            search.handle_sent(now, size);
            assert_eq!(search.next(now, carries, most), None, "one at a time");
            now += Duration::from_millis(30);
            let arrives = size <= path && !losses.next().unwrap_or(false);
            lost += usize::from(!arrives);
            let outcome = if arrives { ProbeOutcome::Arrived } else { ProbeOutcome::Lost };
            carries = search.conclude(now, carries, size, outcome, link);
        }
        (carries, lost, now)
    }

    #[test]
    fn a_size_is_found_within_a_step_and_few_probes_are_lost() {
        for link in [1_500, 4_352, 9_000, 65_000] {
            let halvings = (link - BASE_MTU).ilog2() as usize + 1;
            for path in (BASE_MTU..=link).step_by(37).chain([link]) {
                let (found, lost, _) = search(path, link, u32::MAX, &[]);
                assert!(found <= path && path - found < STEP, "{path} of {link}: {found}");
                assert!(lost <= usize::from(MOST_LOST) * (halvings + 1), "{path}: {lost}");
                assert!(path < link || (found, lost) == (link, 0), "{link}: {found}, {lost}");
            }
        }
    }

    #[test]
    fn what_rests_begins_with_the_longest_again() {
        let now = Instant::from_millis(5);
        let mut search = SizeSearch::new(now, 1_290);
        for _ in 0..2 {
            search.handle_sent(now, 1_290);
            search.conclude(now, BASE_MTU, 1_290, ProbeOutcome::Lost, 1_290);
        }
        search.handle_sent(now, 1_290);
        search.conclude(now, BASE_MTU, 1_290, ProbeOutcome::Lost, 1_290);
        assert_eq!(search.next(now + PAUSE, BASE_MTU, 9_000), Some(1_285));
        search.handle_sent(now, 1_285);
        let carries = search.conclude(now, BASE_MTU, 1_285, ProbeOutcome::Arrived, 1_290);
        let almost = now + RAISE - Duration::from_nanos(1);
        assert_eq!((carries, search.next(almost, carries, 9_000)), (1_285, None));
        // The link carries more by then.
        search.rest(now, 1_500);
        assert_eq!(search.next(now + RAISE, carries, 9_000), Some(1_500));
    }

    #[test]
    fn what_nobody_tells_of_is_tried_again_later() {
        let now = Instant::from_millis(5);
        let mut search = SizeSearch::new(now, 1_500);
        search.handle_sent(now, 1_500);
        assert_eq!(search.next(now + FORGOTTEN, BASE_MTU, 9_000), Some(1_500));
        for _ in 0..20 {
            search.conclude(now, BASE_MTU, 1_500, ProbeOutcome::Unknown, 1_500);
            assert_eq!(search.next(now, BASE_MTU, 9_000), None);
            assert_eq!(search.next(now + PAUSE, BASE_MTU, 9_000), Some(1_500));
        }
    }

    #[test]
    fn a_router_that_speaks_shortens_the_search() {
        let now = Instant::from_millis(5);
        let mut search = SizeSearch::new(now, 1_500);
        search.handle_sent(now, 1_500);
        for nonsense in [0, 1_279, 1_500, 9_000] {
            search.limit(now, BASE_MTU, nonsense, 1_500);
            assert_eq!(search.next(now, BASE_MTU, 9_000), None, "{nonsense}");
        }
        search.limit(now, BASE_MTU, 1_400, 1_500);
        assert_eq!(search.next(now, BASE_MTU, 9_000), Some(1_400));
        // The loss of the first says nothing any more.
        search.conclude(now, BASE_MTU, 1_500, ProbeOutcome::Lost, 1_500);
        assert_eq!(search.next(now + PAUSE, BASE_MTU, 9_000), Some(1_400));
    }

    proptest! {
        /// Also where other probes are lost, what is found arrives, and searches end.
        #[test]
        fn what_is_found_arrives_whatever_is_lost_besides(
            link in 1_280..9_000_u32,
            path in 1_280..9_000_u32,
            most in 1_280..9_000_u32,
            losses in prop::collection::vec(prop::bool::weighted(0.2), 0..60),
        ) {
            let (found, lost, _) = search(path, link, most, &losses);
            prop_assert!(found == BASE_MTU || found <= path.min(link).min(most));
            prop_assert!(lost <= usize::from(MOST_LOST) * 15 + losses.len(), "{}", lost);
            if losses.iter().all(|is_lost| !is_lost) {
                prop_assert!(path.min(link).min(most) - found < STEP);
            }
        }
    }
}
