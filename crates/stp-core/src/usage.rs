//! How much of what is granted over a link its sender uses, and how much it may have of a
//! window that others need too.
//!
//! The window of a receiver is for all senders. What one of them is granted and does not send
//! is missing to the others, so each may have as much outstanding as it has shown to use:
//! little at first, more with what arrives, up to its fair share. Two things are found out
//! within a few round trips, and say that there is less to have:
//!
//! - *silence*: nothing came for a whole time-out. What is outstanding counts against nobody
//!   else from then on, and the sender begins anew when it is back.
//! - *slowness*: less than half of what was outstanding came while the whole window was used
//!   twice, or within four time-outs. It may have twice of what it sent in that time.
//!
//! So what slow senders hold is in proportion to their rate, and anyone who stops holds its share
//! until the silence is noticed. Those that sent nothing lately, and those that are slow, have
//! a bounded part of the window together, however many there are.
//!
//! Nothing of this is on the wire: a grant stays valid, whenever it is used.

use landfall_placement::{Duration, Instant};

/// What a sender may have outstanding at least, in a window that many share: this part of it.
pub(crate) const PARTS_SHARED: u64 = 128;
/// What it may have before anything came, in the same way; a few STUs are always allowed.
const PARTS_FIRST: u64 = 512;
const STUS_FIRST: u64 = 4;
/// But no more than this part of a small window.
const PARTS_FIRST_LEAST: u64 = 8;

/// After how many time-outs half of what is outstanding must have come.
const ROUNDS_UNTIL_JUDGED: u32 = 4;
/// Or after how many times the whole window: others would have used it so often.
const WINDOWS_UNTIL_JUDGED: u64 = 2;

/// Below this part of the window there is enough for everybody.
const PARTS_FREE: u64 = 4;

/// What is known of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SenderUsage {
    /// Nothing came from it lately.
    #[default]
    New,
    /// It uses little of what it is granted.
    Slow,
    /// It uses what it is granted.
    InUse,
}

/// What a link may have of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// All that may be granted, over all links.
    pub(crate) window: u64,
    /// The bytes of an STU over this one.
    pub(crate) stu: u64,
    /// How much it has beside others that are ranked as it is.
    pub(crate) weight: u16,
    pub(crate) rank: Rank,
}

/// How the window is shared with others that use what they are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Order decides: as much as it has shown to use.
    First,
    /// In equal parts, by weight.
    Equal,
    /// What others leave.
    Last,
}

/// What a link has of the window, or all links together have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Granted and not arrived, but for what is not used.
    pub(crate) bytes: u64,
    /// How much of it those have from whom nothing came lately.
    pub(crate) new: u64,
    /// How much of it those have that are slow.
    pub(crate) slow: u64,
    /// What those that use their grants may have at most, times their weights.
    pub(crate) claim: u64,
}

impl Share {
    /// One link's share has changed.
    pub(crate) const fn replace(&mut self, old: Self, new: Self) {
        self.bytes = self.bytes - old.bytes + new.bytes;
        self.new = self.new - old.new + new.new;
        self.slow = self.slow - old.slow + new.slow;
        self.claim = self.claim - old.claim + new.claim;
    }

    /// How much more may be granted to one of this standing, whatever it has itself.
    pub(crate) fn room(&self, window: u64, standing: SenderUsage) -> u64 {
        let all = window.saturating_sub(self.bytes);
        match standing {
            SenderUsage::New => all.min((window / 2).saturating_sub(self.new)),
            SenderUsage::Slow => all.min((window / 4).saturating_sub(self.slow)),
            SenderUsage::InUse => all,
        }
    }

    /// Have others of the same standing what is meant for them?
    pub(crate) const fn is_used_up_by_alike(&self, standing: SenderUsage) -> bool {
        match standing {
            SenderUsage::New => self.new > 0,
            SenderUsage::Slow => self.slow > 0,
            SenderUsage::InUse => false,
        }
    }
}

/// What a link's usage is measured by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// How long an answer takes at most, usually.
    pub(crate) time_out: Duration,
    /// The shortest time-out there is, and the shortest round trip of the link.
    pub(crate) floor: Duration,
    pub(crate) shortest: Duration,
    /// What has arrived over all links so far.
    pub(crate) arrived: u64,
    pub(crate) window: u64,
}

/// How much of what was granted over a link is used.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) standing: SenderUsage,
    /// What it may have outstanding where others need the window, too.
    allowance: u64,
    /// When it was looked at last: what was outstanding then, what had arrived over all links.
    since: Instant,
    outstanding: u64,
    arrived_over_all: u64,
    /// What has arrived since.
    arrived: u64,
    /// What is granted here and counts against nobody else: its sender does not use it.
    unused: u64,
    /// What of it is in the sum over all links.
    pub(crate) share: Share,
}

impl Usage {
    pub(crate) const fn unused(&self) -> u64 {
        self.unused
    }

    /// What the link has of the window now.
    pub(crate) fn share_of(&self, granted: u64, weight: u16) -> Share {
        let bytes = granted.saturating_sub(self.unused);
        let mut share = Share { bytes, ..Share::default() };
        match self.standing {
            SenderUsage::New => share.new = bytes,
            SenderUsage::Slow => share.slow = bytes,
            SenderUsage::InUse if bytes > 0 => share.claim = self.claim(weight),
            SenderUsage::InUse => {}
        }
        share
    }

    const fn claim(&self, weight: u16) -> u64 {
        self.allowance.saturating_mul(weight as u64)
    }

    /// How many bytes may be outstanding, and count, where all links have `all`.
    pub(crate) fn limit(&self, all: &Share, claim: &Claim) -> u64 {
        let Claim { window, stu, weight, rank } = *claim;
        let others = all.bytes.saturating_sub(self.share.bytes);
        let is_busy = others > window / PARTS_FREE;
        match self.standing {
            _ if !is_busy => window,
            SenderUsage::New => {
                let least = (window / PARTS_FIRST_LEAST).min(STUS_FIRST * stu);
                least.max(window / PARTS_FIRST).max(stu)
            }
            SenderUsage::Slow => self.allowance.max(stu),
            SenderUsage::InUse => {
                let (own, of_others) = (self.claim(weight), all.claim - self.share.claim);
                let part = match rank {
                    Rank::First => window,
                    Rank::Equal => {
                        let claims = of_others.saturating_add(own).max(1);
                        (u128::from(window) * u128::from(own) / u128::from(claims)) as u64
                    }
                    Rank::Last => window.saturating_sub(of_others),
                };
                let least = self.allowance.min(window / PARTS_SHARED);
                self.allowance.min(part).max(least).max(stu)
            }
        }
    }

    /// Bytes are granted; `granted` were before that, and `idle_since` nothing came.
    pub(crate) fn note_granted(
        &mut self,
        now: Instant,
        granted: u64,
        bytes: u64,
        idle_since: Instant,
        measure: &Measure,
    ) {
        if granted == 0 && idle_since + measure.time_out.saturating_mul(ROUNDS_UNTIL_JUDGED) < now {
            self.begin_anew();
        }
        if granted == 0 && self.is_due(now, measure) {
            self.start(now, 0, measure);
        }
        if self.since == now {
            self.outstanding += bytes;
        }
    }

    fn begin_anew(&mut self) {
        (self.standing, self.allowance) = (SenderUsage::New, 0);
    }

    fn start(&mut self, now: Instant, outstanding: u64, measure: &Measure) {
        (self.since, self.outstanding, self.arrived) = (now, outstanding, 0);
        self.arrived_over_all = measure.arrived;
    }

    /// Granted bytes have arrived.
    #[inline]
    pub(crate) fn note_arrived(&mut self, bytes: u64, window: u64) {
        self.arrived += bytes;
        if self.standing == SenderUsage::New {
            self.standing = SenderUsage::InUse;
            self.allowance = bytes.max(window / PARTS_FIRST);
        }
        self.allowance = self.allowance.saturating_add(bytes).min(window);
        if self.standing == SenderUsage::Slow && self.allowance >= window / PARTS_SHARED {
            self.standing = SenderUsage::InUse;
        }
    }

    /// Granted bytes are not expected any more: first those that do not count. Gives how many
    /// of them did not.
    #[inline]
    pub(crate) fn note_returned(&mut self, bytes: u64) -> u64 {
        let uncounted = self.unused.min(bytes);
        self.unused -= uncounted;
        uncounted
    }

    /// Bytes came here from another link that counted against nobody there: others have been
    /// granted their room.
    pub(crate) const fn note_uncounted(&mut self, bytes: u64) {
        self.unused += bytes;
    }

    /// Is it time to look how much was used?
    fn is_due(&self, now: Instant, measure: &Measure) -> bool {
        let passed = now.since(self.since);
        let least = (measure.floor.saturating_mul(ROUNDS_UNTIL_JUDGED)).max(measure.shortest * 2);
        let used_by_all = measure.arrived.saturating_sub(self.arrived_over_all);
        passed >= measure.time_out.saturating_mul(ROUNDS_UNTIL_JUDGED)
            || (passed >= least && used_by_all >= measure.window * WINDOWS_UNTIL_JUDGED)
    }

    /// Looks whether its sender uses what it is granted. Returns how much more is not used.
    pub(crate) fn judge(&mut self, now: Instant, granted: u64, measure: &Measure) -> u64 {
        if !self.is_due(now, measure) {
            return 0;
        }
        let expected = self.outstanding.min(granted + self.arrived);
        let slow = expected.saturating_sub(self.arrived.saturating_mul(2)).min(granted);
        let more = slow.saturating_sub(self.unused);
        self.unused += more;
        if slow > 0 && self.standing == SenderUsage::InUse || self.standing == SenderUsage::Slow {
            self.allowance = self.allowance.min(self.arrived.saturating_mul(2));
            if self.allowance < measure.window / PARTS_SHARED {
                self.standing = SenderUsage::Slow;
            }
        }
        self.start(now, granted, measure);
        more
    }

    /// Nothing came for a whole time-out: nothing of what is granted is used. Returns how much
    /// more that is.
    pub(crate) fn handle_silence(&mut self, now: Instant, granted: u64, measure: &Measure) -> u64 {
        let more = granted.saturating_sub(self.unused);
        self.unused = granted;
        self.begin_anew();
        self.start(now, granted, measure);
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const WINDOW: u64 = 1 << 20;
    const STU: u64 = 1_024;
    const ROUND: Duration = Duration::from_millis(10);

    fn measure(arrived: u64) -> Measure {
        let floor = Duration::from_millis(5);
        Measure { time_out: ROUND, floor, shortest: Duration::ZERO, arrived, window: WINDOW }
    }

    /// A link, and what others have beside it.
    struct Link {
        usage: Usage,
        granted: u64,
        now: Instant,
        all: u64,
        others: Share,
    }

    impl Link {
        fn beside(others: u64) -> Self {
            let others = Share { bytes: others, claim: others, ..Share::default() };
            let now = Instant::from_millis(1_000);
            Self { usage: Usage::default(), granted: 0, now, all: 0, others }
        }

        fn limit(&self) -> u64 {
            let mut all = self.others;
            all.replace(Share::default(), self.usage.share);
            let claim = Claim { window: WINDOW, stu: STU, weight: 1, rank: Rank::Equal };
            self.usage.limit(&all, &claim)
        }

        fn count(&mut self) {
            self.usage.share = self.usage.share_of(self.granted, 1);
        }

        /// Is granted all that it may have.
        fn grant(&mut self) -> u64 {
            let bytes = self.limit().saturating_sub(self.usage.share.bytes);
            let measure = measure(self.all);
            self.usage.note_granted(self.now, self.granted, bytes, self.now, &measure);
            self.granted += bytes;
            self.count();
            bytes
        }

        fn arrive(&mut self, bytes: u64, of_others: u64) {
            self.all += bytes + of_others;
            self.granted -= bytes;
            self.usage.note_arrived(bytes, WINDOW);
            self.usage.note_returned(bytes);
            self.count();
        }

        fn judge(&mut self) -> u64 {
            let unused = self.usage.judge(self.now, self.granted, &measure(self.all));
            self.count();
            unused
        }
    }

    #[test]
    fn who_uses_grants_has_more_and_more_up_to_its_share() {
        let mut link = Link::beside(WINDOW / 2);
        let first = link.grant();
        assert_eq!(first, STUS_FIRST * STU);
        let mut limits = Vec::new();
        for _ in 0..12 {
            link.now += Duration::from_millis(1);
            link.arrive(link.granted, 0);
            limits.push(link.limit());
            link.grant();
            assert_eq!(link.judge(), 0);
        }
        assert!(limits.is_sorted() && limits[0] == 2 * first, "{limits:?}");
        // The others claim half of the window, and it all of it.
        assert_eq!(*limits.last().unwrap(), WINDOW * 2 / 3);
        // Alone it may have everything.
        link.others = Share::default();
        assert_eq!(link.limit(), WINDOW);
    }

    #[test]
    fn who_is_silent_has_nothing_and_begins_anew() {
        let mut link = Link::beside(WINDOW / 2);
        let first = link.grant();
        link.arrive(first, 0);
        let second = link.grant();
        link.now += ROUND;
        let unused = link.usage.handle_silence(link.now, link.granted, &measure(link.all));
        link.count();
        assert_eq!((unused, link.usage.share), (second, Share::default()));
        assert_eq!(link.limit(), first);
        // What it was granted is still good, and counts for nobody until it is there.
        link.arrive(second / 2, 0);
        assert_eq!((link.usage.unused(), link.usage.share.bytes), (second / 2, 0));
    }

    #[test]
    fn who_is_slow_has_what_it_sends_in_two_rounds_of_the_others() {
        let mut link = Link::beside(WINDOW / 2);
        for _ in 0..6 {
            let granted = link.grant();
            link.arrive(granted, 0);
        }
        let granted = link.grant();
        assert!(granted > 60 * STU, "{granted}");
        // It sends little of that, and others use the window twice meanwhile.
        let mut told = 0;
        for nth in 1..=3 {
            link.now += Duration::from_millis(19);
            link.arrive(STU, WINDOW * 2);
            assert_eq!(link.judge(), 0, "the shortest time has not passed");
            link.now += Duration::from_millis(2);
            told = link.judge();
            assert!(nth == 1 || told > 0 || link.usage.unused() > 0);
        }
        assert_eq!(told, 0, "it is told once");
        assert_eq!(link.usage.unused(), granted - 4 * STU);
        assert_eq!((link.usage.standing, link.limit()), (SenderUsage::Slow, 2 * STU));
    }

    #[test]
    fn who_was_idle_is_as_new() {
        let mut link = Link::beside(WINDOW / 2);
        let first = link.grant();
        link.arrive(first, 0);
        assert_eq!(link.usage.standing, SenderUsage::InUse);
        let idle_since = link.now;
        link.now += ROUND * ROUNDS_UNTIL_JUDGED + Duration::from_millis(1);
        link.usage.note_granted(link.now, 0, STU, idle_since, &measure(link.all));
        assert_eq!(link.usage.standing, SenderUsage::New);
    }
}
