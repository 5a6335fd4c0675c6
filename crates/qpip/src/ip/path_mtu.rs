//! How much a way carries in one piece (RFC 1191, RFC 8201): a bounded cache of
//! what routers said.
//!
//! It only ever makes packets smaller than the own link allows, and forgets that
//! after a while, which is how a larger way is found again. Whether a message of
//! a router is to be believed, that is, whether it is about a packet that was
//! sent, the transport decides before (RFC 5927).
//!
//! Where no router says anything and long packets get lost, a size between is
//! [searched](super::size_search) for by probes of the transport.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use landfall_placement::{Duration, Instant};

use super::size_search::{ProbeOutcome, SizeSearch};
use crate::wire::ipv6;

/// How the cache behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most destinations.
    pub capacity: usize,
    /// For how long a router is believed.
    pub lifetime: Duration,
    /// Packets of IPv4 are never made smaller than this; at least 68. Who forges
    /// messages could else cost us a header for every few bytes.
    pub ipv4_min: u32,
}

impl Default for Config {
    /// Ten minutes (RFC 1191, section 6.3), and the floor that Linux has.
    fn default() -> Self {
        Self { capacity: 1024, lifetime: Duration::from_secs(600), ipv4_min: 552 }
    }
}

/// The least that IPv4 allows a link to carry.
const IPV4_MTU_MIN: u32 = 68;

/// Each way of IPv6 carries this much, and nearly each of IPv4 (RFC 8899, 5.1.2: `BASE_PLPMTU`).
pub(crate) const BASE_MTU: u32 = ipv6::MTU_MIN;

/// RFC 1191, table 7-1: what links usually carry. For routers that do not say.
const PLATEAUS: [u32; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

#[derive(Clone, Debug)]
struct Entry {
    destination: IpAddr,
    mtu: u32,
    until: Instant,
    /// Where nobody said that size, and a longer one is looked for.
    search: Option<Box<SizeSearch>>,
}

/// How long packets to a destination may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSize {
    /// All of them.
    pub mtu: u32,
    /// The next one, to find out whether it arrives; it is longer.
    pub probe: Option<u32>,
}

/// The cache.
#[derive(Debug)]
pub struct PathMtus {
    config: Config,
    /// In the order of their destinations.
    entries: Vec<Entry>,
    evicted: u64,
}

impl PathMtus {
    /// An empty cache. All its memory is allocated here.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, entries: Vec::with_capacity(config.capacity), evicted: 0 }
    }

    /// How much the way to `destination` carries, if it is less than the own
    /// link, which carries `link` bytes.
    #[must_use]
    #[inline]
    pub fn get(&self, now: Instant, destination: IpAddr, link: u32) -> u32 {
        match self.position(destination) {
            Ok(at) if now < self.entries[at].until => self.entries[at].mtu.min(link),
            _ => link,
        }
    }

    /// The same for a transport that probes, with packets of at most `most` bytes. What it uses
    /// is not forgotten meanwhile.
    #[inline]
    pub fn use_size(
        &mut self,
        now: Instant,
        destination: IpAddr,
        link: u32,
        most: u32,
    ) -> PathSize {
        if self.entries.is_empty() {
            return PathSize { mtu: link, probe: None };
        }
        self.used_size(now, destination, link, most)
    }

    fn used_size(&mut self, now: Instant, destination: IpAddr, link: u32, most: u32) -> PathSize {
        let mtu = self.get(now, destination, link);
        let Ok(at) = self.position(destination) else { return PathSize { mtu, probe: None } };
        let Entry { until, search, .. } = &mut self.entries[at];
        let search = search.as_ref().filter(|_| now < *until);
        let probe = search.and_then(|search| search.next(now, mtu, most.min(link)));
        if search.is_some() {
            *until = now + self.config.lifetime;
        }
        PathSize { mtu, probe }
    }

    /// A probe of this size leaves.
    pub fn handle_probe_sent(&mut self, now: Instant, destination: IpAddr, size: u32) {
        if let Ok(at) = self.position(destination)
            && let Some(search) = &mut self.entries[at].search
        {
            search.handle_sent(now, size);
        }
    }

    /// This became of a probe of this size, which left through a link that carries `link` bytes.
    pub fn handle_probe_outcome(
        &mut self,
        now: Instant,
        destination: IpAddr,
        link: u32,
        size: u32,
        outcome: ProbeOutcome,
    ) {
        let carries = self.get(now, destination, link);
        // The entry made room for others.
        let Ok(at) = self.position(destination) else { return };
        // A router has said its size since, and nothing is searched for.
        let Some(search) = &mut self.entries[at].search else { return };
        let carries = search.conclude(now, carries, size, outcome, link);
        self.entries[at].mtu = carries;
        if carries >= link {
            self.entries.remove(at);
        }
    }

    /// A router says that a packet of `sent_len` bytes was too long for a link of `mtu` bytes.
    /// Returns whether that was a probe: then it says where to search, and nothing else.
    pub fn limit_search(
        &mut self,
        now: Instant,
        destination: IpAddr,
        link: u32,
        sent_len: u32,
        mtu: u32,
    ) -> bool {
        let carries = self.get(now, destination, link);
        if sent_len <= carries || mtu < carries || mtu >= sent_len {
            return false;
        }
        // Nothing is known of it but its link.
        let Ok(at) = self.position(destination) else { return false };
        let search = self.entries[at].search.as_mut();
        search.map(|search| search.limit(now, carries, mtu, link)).is_some()
    }

    /// A router says that a packet of `sent_len` bytes was too long for a link of
    /// `mtu` bytes; 0: it does not say how many.
    ///
    /// Returns what the way carries from now on, or `None` if nothing changed: the
    /// message is older than what is known, or is invalid.
    pub fn lower(
        &mut self,
        now: Instant,
        destination: IpAddr,
        link: u32,
        sent_len: u32,
        mtu: u32,
    ) -> Option<u32> {
        let current = self.get(now, destination, link);
        let mtu = match destination {
            // RFC 8201, section 4: such a message must be discarded.
            IpAddr::V6(_) if mtu < ipv6::MTU_MIN => return None,
            IpAddr::V6(_) => mtu,
            IpAddr::V4(_) => {
                let said = if mtu == 0 { plateau_below(sent_len) } else { mtu };
                said.max(self.config.ipv4_min.max(IPV4_MTU_MIN))
            }
        };
        // A packet that fits was not too long (RFC 1191, section 6.3 has routers
        // that report nonsense; forgers do, too).
        if mtu >= current || mtu >= sent_len {
            return None;
        }
        let known = self.position(destination).ok();
        let mut search = known.and_then(|at| self.entries[at].search.take());
        if let Some(search) = &mut search {
            search.rest(now, link);
        }
        let until = now + self.config.lifetime;
        self.insert(now, Entry { destination, mtu, until, search })?;
        Some(mtu)
    }

    /// Long packets to `destination` get lost again and again, and no router says why: one on the
    /// way may be kept from telling (RFC 1122, 4.2.3.5; RFC 4821, 7.7). From now on the way is
    /// taken to carry what nearly each way does, until a probe of a longer packet arrives, or
    /// nobody has used it for as long as a router is believed. Where that was so already it did
    /// not help, and is taken back.
    ///
    /// Returns whether shorter packets are to be sent from now on.
    pub fn suspect_black_hole(&mut self, now: Instant, destination: IpAddr, link: u32) -> bool {
        if self.get(now, destination, link) > BASE_MTU {
            let until = now + self.config.lifetime;
            let search = Some(Box::new(SizeSearch::new(now, link)));
            let entry = Entry { destination, mtu: BASE_MTU, until, search };
            return self.insert(now, entry).is_some();
        }
        if let Ok(at) = self.position(destination)
            && self.entries[at].mtu == BASE_MTU
        {
            self.entries.remove(at);
        }
        false
    }

    fn insert(&mut self, now: Instant, entry: Entry) -> Option<()> {
        match self.position(entry.destination) {
            Ok(at) => self.entries[at] = entry,
            Err(mut at) => {
                if self.entries.len() >= self.config.capacity {
                    self.evict(now)?;
                    at = self.position(entry.destination).unwrap_or_else(|at| at);
                }
                self.entries.insert(at, entry);
            }
        }
        Some(())
    }

    /// Makes room: what has expired goes, else what would expire first.
    fn evict(&mut self, now: Instant) -> Option<()> {
        let full = self.entries.len();
        self.entries.retain(|entry| now < entry.until);
        if self.entries.len() == full {
            let entries = self.entries.iter().enumerate();
            let (oldest, _) = entries.min_by_key(|(_, entry)| entry.until)?;
            self.entries.remove(oldest);
            self.evicted += 1;
        }
        Some(())
    }

    fn position(&self, destination: IpAddr) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&destination, |entry| entry.destination)
    }

    /// How many destinations have an entry.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// No router said anything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How often an entry that still held had to make room for another.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// What to try after a packet of this length was too long.
fn plateau_below(sent_len: u32) -> u32 {
    PLATEAUS.into_iter().find(|plateau| *plateau < sent_len).unwrap_or(IPV4_MTU_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    const NOW: Instant = Instant::from_millis(5);
    const LINK: u32 = 1500;

    fn v4(n: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))
    }

    fn v6(n: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n))
    }

    #[test]
    fn a_router_is_believed_for_ten_minutes() {
        let mut mtus = PathMtus::new(Config::default());
        assert_eq!(mtus.get(NOW, v4(1), LINK), LINK);
        assert_eq!(mtus.lower(NOW, v4(1), LINK, 1500, 1400), Some(1400));
        assert_eq!(mtus.get(NOW, v4(1), LINK), 1400);
        assert_eq!(mtus.get(NOW, v4(2), LINK), LINK, "the others are not concerned");
        assert_eq!(mtus.get(NOW, v4(1), 1300), 1300, "never more than the link");
        let end = NOW + Duration::from_secs(600);
        assert_eq!(mtus.get(end - Duration::from_nanos(1), v4(1), LINK), 1400);
        assert_eq!(mtus.get(end, v4(1), LINK), LINK);
    }

    #[test]
    fn a_way_is_never_made_larger() {
        let mut mtus = PathMtus::new(Config::default());
        assert_eq!(mtus.lower(NOW, v4(1), LINK, 1500, 1400), Some(1400));
        for mtu in [1400, 1401, 1500, 9000, u32::MAX] {
            assert_eq!(mtus.lower(NOW, v4(1), LINK, 1500, mtu), None, "{mtu}");
        }
        assert_eq!(mtus.lower(NOW, v4(1), LINK, 1400, 1300), Some(1300));
        assert_eq!(mtus.lower(NOW, v4(1), LINK, 1000, 1200), None, "it would have fitted");
    }

    #[test]
    fn there_is_a_floor() {
        let mut mtus = PathMtus::new(Config::default());
        assert_eq!(mtus.lower(NOW, v4(1), LINK, 1500, 68), Some(552));
        assert_eq!(mtus.lower(NOW, v4(1), LINK, 552, 1), None);
        assert_eq!(mtus.lower(NOW, v6(1), LINK, 1500, 1279), None, "RFC 8201, section 4");
        assert_eq!(mtus.lower(NOW, v6(1), LINK, 1500, 1280), Some(1280));
        let mut lowest = PathMtus::new(Config { ipv4_min: 0, ..Config::default() });
        assert_eq!(lowest.lower(NOW, v4(1), LINK, 1500, 1), Some(68));
    }

    #[test]
    fn a_router_that_does_not_say_is_helped_by_the_table() {
        let mut mtus = PathMtus::new(Config::default());
        for (sent, expected) in [(9000, 8166), (8166, 4352), (1500, 1492), (1492, 1006)] {
            assert_eq!(mtus.lower(NOW, v4(1), 9000, sent, 0), Some(expected), "{sent}");
        }
        assert_eq!(mtus.lower(NOW, v4(1), 9000, 1006, 0), Some(552), "the floor");
    }

    #[test]
    fn a_black_hole_is_passed_by_what_nearly_each_way_carries() {
        let mut mtus = PathMtus::new(Config::default());
        for destination in [v4(1), v6(1)] {
            assert!(mtus.suspect_black_hole(NOW, destination, 9000));
            assert_eq!(mtus.get(NOW, destination, 9000), BASE_MTU);
            let end = NOW + Duration::from_secs(600);
            assert_eq!(mtus.get(end, destination, 9000), 9000, "tried again");
            assert!(!mtus.suspect_black_hole(NOW, destination, 9000), "it did not help");
            assert_eq!(mtus.get(NOW, destination, 9000), 9000);
        }
        assert!(!mtus.suspect_black_hole(NOW, v4(2), BASE_MTU), "the link carries no more");
        assert_eq!(mtus.lower(NOW, v4(3), LINK, 1500, 1000), Some(1000));
        assert!(!mtus.suspect_black_hole(NOW, v4(3), LINK));
        assert_eq!(mtus.get(NOW, v4(3), LINK), 1000, "what a router said stays");
    }

    #[test]
    fn what_was_found_is_kept_while_it_is_used() {
        let (lifetime, arrived) = (Config::default().lifetime, ProbeOutcome::Arrived);
        let mut mtus = PathMtus::new(Config::default());
        assert!(mtus.suspect_black_hole(NOW, v6(1), LINK));
        assert_eq!(mtus.use_size(NOW, v6(1), LINK, 1_400).probe, Some(1_400), "their MSS");
        mtus.handle_probe_sent(NOW, v6(1), 1_400);
        assert_eq!(mtus.use_size(NOW, v6(1), LINK, 9_000).probe, None, "one at a time");
        assert!(!mtus.limit_search(NOW, v6(1), LINK, 1_280, 1_280), "that was no probe");
        assert!(mtus.limit_search(NOW, v6(1), LINK, 1_400, 1_360));
        assert_eq!(mtus.get(NOW, v6(1), LINK), BASE_MTU, "routers raise nothing");
        mtus.handle_probe_outcome(NOW, v6(1), LINK, 1_360, arrived);
        let mut now = NOW;
        for _ in 0..5 {
            now += lifetime - Duration::from_nanos(1);
            assert_eq!(mtus.use_size(now, v6(1), LINK, 1_360).mtu, 1_360);
        }
        assert_eq!(mtus.use_size(now, v6(1), LINK, LINK).probe, Some(LINK));
        // A router is believed, and nothing is searched for meanwhile.
        assert_eq!(mtus.lower(now, v6(1), LINK, 1_360, 1_300), Some(1_300));
        let size = mtus.use_size(now, v6(1), LINK, LINK);
        assert_eq!(size, PathSize { mtu: 1_300, probe: None });
        assert_eq!(mtus.get(now + lifetime, v6(1), LINK), LINK, "nobody used it");
        // What the link carries needs no entry.
        assert!(mtus.suspect_black_hole(now, v6(1), LINK));
        mtus.handle_probe_outcome(now, v6(1), LINK, LINK, arrived);
        assert!(mtus.is_empty());
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut mtus = PathMtus::new(Config { capacity: 2, ..Config::default() });
        for n in 1..=3 {
            let now = Instant::from_millis(n.into());
            assert_eq!(mtus.lower(now, v4(n), LINK, 1500, 1400), Some(1400));
        }
        assert_eq!((mtus.len(), mtus.evicted()), (2, 1));
        assert_eq!(mtus.get(NOW, v4(1), LINK), LINK);
        assert_eq!(mtus.get(NOW, v4(3), LINK), 1400);
        let later = NOW + Duration::from_secs(1000);
        assert_eq!(mtus.lower(later, v6(9), LINK, 1500, 1300), Some(1300));
        assert_eq!((mtus.len(), mtus.evicted()), (1, 1), "the expired ones are no loss");
        let mut none = PathMtus::new(Config { capacity: 0, ..Config::default() });
        assert_eq!(none.lower(NOW, v4(1), LINK, 1500, 1400), None);
    }

    proptest! {
        #[test]
        fn whatever_routers_say_the_bounds_hold(
            said in prop::collection::vec((0..6u8, any::<bool>(), 0..3000u32, 0..3000u32), 0..60),
        ) {
            let mut mtus = PathMtus::new(Config { capacity: 4, ..Config::default() });
            for (n, is_v6, sent, mtu) in said {
                let to = if is_v6 { v6(n.into()) } else { v4(n) };
                let before = mtus.get(NOW, to, LINK);
                let lowered = mtus.lower(NOW, to, LINK, sent, mtu);
                let after = mtus.get(NOW, to, LINK);
                prop_assert_eq!(after, lowered.unwrap_or(before));
                prop_assert!(lowered.is_none_or(|mtu| mtu < before && mtu < sent));
                let floor = if is_v6 { 1280 } else { 552 };
                prop_assert!(after >= floor);
                prop_assert!(mtus.len() <= 4);
            }
        }
    }
}
