//! The bridge between an adapter and the bus of its host: what it needs between bursts, and the
//! lock that the CLAN paper found (section 5.2).

use landfall_placement::{Duration, Instant, Span};

use super::dma::Bus;

/// What a bridge is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCosts {
    /// After each burst that it writes to the host, for so long it writes nothing.
    pub recovery: Duration,
    /// The adapter joins payloads that follow one another in memory, and are there in time, to
    /// bursts of up to this many bytes; 0: each is a burst.
    pub joins: u32,
    /// How it locks; none: never.
    pub lock: Option<Lock>,
}

impl BridgeCosts {
    /// A bridge that is in nobody's way.
    pub const NONE: Self = Self { recovery: Duration::ZERO, joins: 0, lock: None };
}

/// A bridge that finds its FIFO full of what programs write *locks*: each word is a burst until
/// the FIFO is empty, or was fed nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Bytes that the FIFO holds.
    pub fifo: u32,
    /// Bytes of a word.
    pub word: u32,
    /// What a program writes comes in payloads of this many bytes at most. Longer ones come when
    /// the bridge is free, and lock nothing.
    pub longest: u32,
    /// The adapter notices, and feeds it nothing for so long; zero: it does not notice.
    pub back_off: Duration,
    /// It recovers when it was fed nothing for so long.
    pub recovers: Duration,
}

/// What a bridge makes of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    Taken,
    /// Not now. What it has taken is written so much later than was said.
    Refused(Duration),
}

/// A burst, and what it has room for.
#[derive(Clone, Copy, Debug)]
struct Burst {
    place: Span,
    len: u64,
    until: Instant,
}

/// The bridge of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostBridge {
    costs: BridgeCosts,
    /// All that it took is written, and it may write again.
    free_at: Instant,
    /// The adapter feeds it nothing before.
    feeds_at: Instant,
    is_locked: bool,
    locks: u64,
    last: Option<Burst>,
}

impl HostBridge {
    pub(super) fn new(costs: BridgeCosts) -> Self {
        Self { costs, ..Self::default() }
    }

    pub(super) fn reset(&mut self) {
        *self = Self { locks: self.locks, ..Self::new(self.costs) };
    }

    /// How often it locked.
    pub(super) const fn locks(&self) -> u64 {
        self.locks
    }

    /// Does it take payloads while it writes others?
    pub(super) const fn has_fifo(&self) -> bool {
        self.costs.lock.is_some() || self.costs.joins > 0
    }

    /// The next payload waits until then.
    pub(super) fn takes_at(&self) -> Instant {
        if self.has_fifo() { self.feeds_at } else { self.free_at }
    }

    /// What is there at `from` is written from then on.
    pub(super) fn begins(&self, from: Instant) -> Instant {
        from.max(self.free_at)
    }

    /// How long a payload of `bytes` keeps it, in nanoseconds, in one burst.
    fn time_of(&self, bytes: u64, bus: &Bus) -> u64 {
        (bus.time_of(bytes) + self.costs.recovery).as_nanos() as u64
    }

    /// The same word by word.
    fn time_singly(&self, lock: &Lock, bytes: u64, bus: &Bus) -> u64 {
        let word = u64::from(lock.word.max(1));
        bytes.div_ceil(word).saturating_mul(self.time_of(word, bus))
    }

    /// A payload comes. Where programs fill its FIFO it locks.
    pub(super) fn feed(&mut self, now: Instant, bytes: u64, bus: &Bus) -> Fed {
        let Some(lock) = self.costs.lock else { return Fed::Taken };
        let left = self.free_at.since(now).as_nanos() as u64;
        if left == 0 {
            self.is_locked = false;
            return Fed::Taken;
        }
        if bytes > u64::from(lock.longest) {
            self.feeds_at = self.free_at;
            return Fed::Refused(Duration::ZERO);
        }
        let is_locked = self.is_locked;
        let each =
            if is_locked { self.time_singly(&lock, bytes, bus) } else { self.time_of(bytes, bus) };
        let held = part(left, bytes, each);
        let room = u64::from(lock.fifo).saturating_sub(bytes);
        if held <= room {
            return Fed::Taken;
        }
        let mut later = 0;
        if is_locked {
            let wait = left.saturating_sub(part(each, room, bytes)).max(1);
            self.feeds_at = now + Duration::from_nanos(wait);
        } else {
            self.locks += 1;
            // An adapter that does not notice goes on feeding it, so that it stays locked.
            self.is_locked = lock.back_off.is_zero() || lock.back_off < lock.recovers;
            self.feeds_at = now + lock.back_off.max(Duration::from_nanos(1));
            let word = u64::from(lock.word.max(1));
            let mut words = held / word;
            if !self.is_locked {
                words =
                    words.min(part(lock.recovers.as_nanos() as u64, 1, self.time_of(word, bus)));
            }
            let in_bursts = part(each, words * word, bytes);
            later = self.time_singly(&lock, words * word, bus).saturating_sub(in_bursts);
            self.free_at += Duration::from_nanos(later);
        }
        Fed::Refused(Duration::from_nanos(later))
    }

    /// A payload for this place is there at `from`: does it go on where the last one ended, in the
    /// same burst?
    pub(super) fn joins(&self, from: Instant, place: &Span) -> bool {
        self.last.is_some_and(|last| {
            let is_next = last.place.region == place.region
                && last.place.offset.checked_add(last.place.len.into()) == Some(place.offset);
            let len = last.len + u64::from(place.len);
            is_next && len <= u64::from(self.costs.joins) && from <= last.until
        })
    }

    /// A payload has crossed the bus at `until`, in one burst with the last one or by itself:
    /// returns when it is there, which is later while the bridge is locked.
    pub(super) fn wrote(
        &mut self,
        until: Instant,
        place: &Span,
        is_joined: bool,
        bus: &Bus,
    ) -> Instant {
        let bytes = u64::from(place.len);
        let longer = self.costs.lock.filter(|_| self.is_locked).map_or(0, |lock| {
            self.time_singly(&lock, bytes, bus).saturating_sub(self.time_of(bytes, bus))
        });
        let until = until + Duration::from_nanos(longer);
        let before = self.last.filter(|_| is_joined).map_or(0, |last| last.len);
        self.last = Some(Burst { place: *place, len: before + bytes, until });
        self.free_at = until + self.costs.recovery;
        until
    }
}

/// This part of an amount.
fn part(amount: u64, part: u64, of: u64) -> u64 {
    let all = u128::from(amount) * u128::from(part);
    u64::try_from(all.checked_div(of.into()).unwrap_or(0)).unwrap_or(u64::MAX)
}
