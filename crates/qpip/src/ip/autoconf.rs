//! Addresses and routers of IPv6 that a host finds out by itself: a link-local address,
//! routers (RFC 4861, section 6.3), and an address of each prefix that they tell of
//! (RFC 4862, section 5.5), with identifiers that stay the same and tell nothing (RFC 7217).
//!
//! Whether somebody else has an address is found out by others: this says which to claim
//! ([`AutoconfStep::Claim`]), and is told.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::Ipv6Addr;

use landfall_placement::{Duration, Instant, Random};
use siphasher::sip::SipHasher13;

use crate::offload::OwnAddress;
use crate::wire::router::{Advertisement, Prefix};
use crate::wire::{Mac, ipv6};

/// The times of RFC 4861, section 10.
const SOLICITATIONS: u8 = 3;
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
const SOLICITATION_DELAY: u64 = 1_000;
/// An advertisement that nobody has proved shortens a life to no less (RFC 4862, 5.5.3).
const TWO_HOURS: u32 = 7_200;
/// How often another identifier is tried where somebody has the address (RFC 7217, 6).
const IDENTIFIERS: u8 = 3;
/// As many routers, and prefixes, are remembered.
const MOST: usize = 8;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoconfStep {
    /// Ask routers to say what they have to say.
    Solicit,
    /// Find out whether somebody else has this address, and use it if not.
    Claim(Ipv6Addr),
    /// What is used has changed: see [`Autoconf::addresses`] and its kin.
    Changed,
    /// This address must not be used any more.
    Drop(Ipv6Addr),
}

#[derive(Clone, Copy, Debug)]
struct PrefixAddress {
    prefix: Ipv6Addr,
    is_on_link: bool,
    address: Ipv6Addr,
    /// How many identifiers somebody else had.
    tried: u8,
    is_ours: bool,
    preferred: Instant,
    valid: Instant,
}

/// What an interface found out.
#[derive(Debug)]
pub struct Autoconf {
    station: Mac,
    secret: (u64, u64),
    own: Vec<PrefixAddress>,
    routers: Vec<(Ipv6Addr, Instant)>,
    mtu: Option<u32>,
    left: u8,
    due: Option<Instant>,
    steps: VecDeque<AutoconfStep>,
    /// How many of the addresses were preferred when that was said last.
    preferred: usize,
    /// Lives that were over by then are no reason to look again.
    seen: Instant,
}

fn after(now: Instant, seconds: u32) -> Instant {
    if seconds == u32::MAX {
        Instant::FAR_FUTURE
    } else {
        now + Duration::from_secs(seconds.into())
    }
}

impl Autoconf {
    /// Of a station, with what its identifiers are made of; it starts with
    /// [`restart`](Self::restart).
    #[must_use]
    pub fn new(station: Mac, random: &mut Random) -> Self {
        Self {
            station,
            secret: (random.next_u64(), random.next_u64()),
            own: Vec::new(),
            routers: Vec::new(),
            mtu: None,
            left: 0,
            due: None,
            steps: VecDeque::new(),
            preferred: 0,
            seen: Instant::ZERO,
        }
    }

    /// The link came up, and may be another one.
    pub fn restart(&mut self) {
        for own in self.own.drain(..) {
            self.steps.push_back(AutoconfStep::Drop(own.address));
        }
        self.routers.clear();
        (self.mtu, self.left, self.due) = (None, 0, None);
        self.steps.push_back(AutoconfStep::Changed);
        let forever = Instant::FAR_FUTURE;
        self.add(LINK_LOCAL, true, forever, forever);
    }

    fn add(&mut self, prefix: Ipv6Addr, is_on_link: bool, preferred: Instant, valid: Instant) {
        let address = self.address_of(prefix, 0);
        let (tried, is_ours) = (0, false);
        self.own.push(PrefixAddress {
            prefix,
            is_on_link,
            address,
            tried,
            is_ours,
            preferred,
            valid,
        });
        self.steps.push_back(AutoconfStep::Claim(address));
    }

    /// RFC 7217, 5: an identifier of the prefix, the station and how many were taken.
    fn address_of(&self, prefix: Ipv6Addr, tried: u8) -> Ipv6Addr {
        let mut tried = tried;
        loop {
            let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
            hasher.write(&prefix.octets()[..8]);
            hasher.write(&self.station);
            hasher.write_u8(tried);
            let identifier = hasher.finish();
            // RFC 5453: those of the routers, and of anycast.
            let is_reserved = identifier == 0 || identifier >> 8 == 0x00fd_ffff_ffff_ffff;
            if !is_reserved {
                let bits = prefix.to_bits() >> 64 << 64 | u128::from(identifier);
                return Ipv6Addr::from_bits(bits);
            }
            tried = tried.wrapping_add(1);
        }
    }

    /// A router says something; `source` is its address.
    pub fn handle_advertisement(&mut self, now: Instant, source: Ipv6Addr, said: &Advertisement) {
        // Who has spoken need not be asked.
        (self.left, self.due) = (0, None);
        self.routers.retain(|(router, _)| *router != source);
        if said.lifetime > 0 && self.routers.len() < MOST {
            self.routers.push((source, after(now, said.lifetime.into())));
        }
        self.mtu = said.mtu.filter(|mtu| *mtu >= ipv6::MTU_MIN).or(self.mtu);
        for prefix in said.prefixes() {
            self.handle_prefix(now, prefix);
        }
        self.steps.push_back(AutoconfStep::Changed);
    }

    fn handle_prefix(&mut self, now: Instant, said: &Prefix) {
        let prefix = Ipv6Addr::from_bits(said.prefix.to_bits() >> 64 << 64);
        let is_usable = said.is_autonomous
            && said.len == 64
            && said.preferred <= said.valid
            && !prefix.is_unicast_link_local()
            && !prefix.is_multicast()
            && !prefix.is_unspecified();
        if !is_usable {
            return;
        }
        let times = (after(now, said.preferred), after(now, said.valid));
        if let Some(own) = self.own.iter_mut().find(|own| own.prefix == prefix) {
            let left = own.valid.since(now);
            let two_hours = Duration::from_secs(TWO_HOURS.into());
            own.preferred = times.0;
            own.is_on_link |= said.is_on_link;
            if said.valid > TWO_HOURS || times.1 > own.valid {
                own.valid = times.1;
            } else if left > two_hours {
                own.valid = now + two_hours;
            }
        } else if said.valid > 0 && self.own.len() < MOST {
            self.add(prefix, said.is_on_link, times.0, times.1);
        }
    }

    /// Nobody else has an address that was to be claimed, or somebody has. False where none was.
    pub fn handle_claimed(
        &mut self,
        now: Instant,
        random: &mut Random,
        address: Ipv6Addr,
        is_free: bool,
    ) -> bool {
        // It was no address of a prefix.
        let Some(at) = self.own.iter().position(|own| own.address == address) else { return false };
        let own = &mut self.own[at];
        if is_free {
            own.is_ours = true;
            self.steps.push_back(AutoconfStep::Changed);
            if own.prefix == LINK_LOCAL {
                let delay = Duration::from_millis(random.below(SOLICITATION_DELAY));
                (self.left, self.due) = (SOLICITATIONS, Some(now + delay));
            }
            return true;
        }
        let was_ours = core::mem::take(&mut own.is_ours);
        own.tried += 1;
        let (prefix, tried) = (own.prefix, own.tried);
        if tried >= IDENTIFIERS {
            self.own.remove(at);
        } else {
            let next = self.address_of(prefix, tried);
            self.own[at].address = next;
            self.steps.push_back(AutoconfStep::Claim(next));
        }
        if was_ours {
            self.steps.push_back(AutoconfStep::Changed);
        }
        true
    }

    /// The addresses that are ours, and whether nothing new is sent from them.
    pub fn addresses(&self, now: Instant) -> impl Iterator<Item = (OwnAddress, bool)> + '_ {
        let ours = self.own.iter().filter(|own| own.is_ours);
        ours.map(move |own| {
            let prefix_len = if own.is_on_link { 64 } else { 128 };
            (OwnAddress::new(own.address.into(), prefix_len), own.preferred <= now)
        })
    }

    /// Who forwards to everybody else.
    pub fn routers(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.routers.iter().map(|(router, _)| *router)
    }

    /// How many bytes of IP the link carries, where a router says so.
    #[must_use]
    pub const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// What is to be done next.
    pub fn poll_step(&mut self, now: Instant) -> Option<AutoconfStep> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        if self.due.is_some_and(|due| due <= now) {
            self.left = self.left.saturating_sub(1);
            self.due = (self.left > 0).then(|| now + SOLICITATION_INTERVAL);
            return Some(AutoconfStep::Solicit);
        }
        self.seen = now;
        let routers = self.routers.len();
        self.routers.retain(|(_, until)| *until > now);
        let mut has_changed = self.routers.len() < routers;
        for own in self.own.extract_if(.., |own| own.valid <= now) {
            self.steps.push_back(AutoconfStep::Drop(own.address));
            has_changed = true;
        }
        let preferred = self.own.iter().filter(|own| own.preferred > now).count();
        has_changed |= core::mem::replace(&mut self.preferred, preferred) != preferred;
        if has_changed {
            self.steps.push_back(AutoconfStep::Changed);
        }
        self.steps.pop_front()
    }

    /// When to call [`Autoconf::poll_step`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.steps.is_empty() {
            return Some(Instant::ZERO);
        }
        let lives = self.own.iter().flat_map(|own| [own.preferred, own.valid]);
        let routers = self.routers.iter().map(|(_, until)| *until);
        let lives = lives.chain(routers);
        let lives = lives.filter(|at| *at < Instant::FAR_FUTURE && *at > self.seen);
        lives.chain(self.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, preferred: u32, valid: u32) -> Prefix {
        let prefix = text.parse().unwrap();
        Prefix { prefix, len: 64, is_on_link: true, is_autonomous: true, valid, preferred }
    }

    fn router() -> Ipv6Addr {
        "fe80::ff".parse().unwrap()
    }

    struct Host {
        autoconf: Autoconf,
        random: Random,
        now: Instant,
        solicited: usize,
        dropped: Vec<Ipv6Addr>,
        /// How many of the addresses that are claimed somebody has.
        taken: usize,
    }

    impl Host {
        fn new(taken: usize) -> Self {
            let mut random = Random::from_number(7);
            let mut autoconf = Autoconf::new([2, 0, 0, 0, 0, 1], &mut random);
            let now = Instant::from_millis(1);
            autoconf.restart();
            Self { autoconf, random, now, solicited: 0, dropped: Vec::new(), taken }
        }

        fn run(&mut self, seconds: u64) {
            let end = self.now + Duration::from_secs(seconds);
            for _ in 0..1_000 {
                while let Some(step) = self.autoconf.poll_step(self.now) {
                    match step {
                        AutoconfStep::Solicit => self.solicited += 1,
                        AutoconfStep::Drop(address) => self.dropped.push(address),
                        AutoconfStep::Claim(address) => {
                            let is_free = self.taken == 0;
                            self.taken -= usize::from(!is_free);
                            let random = &mut self.random;
                            assert!(
                                self.autoconf.handle_claimed(self.now, random, address, is_free)
                            );
                        }
                        AutoconfStep::Changed => {}
                    }
                }
                match self.autoconf.poll_timeout() {
                    Some(at) if at <= end => self.now = at.max(self.now),
                    _ => {
                        self.now = end;
                        return;
                    }
                }
            }
            panic!("it wakes without an end");
        }

        fn hear(&mut self, lifetime: u16, prefixes: &[Prefix]) {
            let said = Advertisement::new(lifetime, prefixes);
            self.autoconf.handle_advertisement(self.now, router(), &said);
            self.run(0);
        }

        fn addresses(&self) -> Vec<(OwnAddress, bool)> {
            self.autoconf.addresses(self.now).collect()
        }
    }

    #[test]
    fn a_link_local_address_comes_by_itself_and_routers_are_asked_three_times() {
        let mut host = Host::new(0);
        host.run(60);
        assert_eq!(host.solicited, 3);
        let [(own, false)] = host.addresses()[..] else { panic!() };
        let core::net::IpAddr::V6(address) = own.ip else { panic!() };
        assert!(address.is_unicast_link_local() && own.prefix_len == 64);
        // The same of the same seed, another of another, and nothing of the station in it.
        assert_eq!(Host::new(0).autoconf.address_of(LINK_LOCAL, 0), address);
        let other = Autoconf::new([2, 0, 0, 0, 0, 1], &mut Random::from_number(8));
        assert_ne!(other.address_of(LINK_LOCAL, 0), address);
    }

    #[test]
    fn a_prefix_makes_an_address_and_a_router_a_gateway_for_their_time() {
        let mut host = Host::new(0);
        host.run(1);
        host.hear(100, &[prefix("2001:db8::", 50, 80)]);
        assert_eq!(host.autoconf.routers().collect::<Vec<_>>(), [router()]);
        assert_eq!(host.addresses().len(), 2);
        host.run(49);
        assert!(!host.addresses()[1].1);
        host.run(2);
        assert!(host.addresses()[1].1, "nothing new is sent from it");
        let own = host.addresses()[1].0.ip;
        host.run(30);
        assert_eq!(host.addresses().len(), 1);
        assert_eq!(
            host.dropped.iter().map(|ip| (*ip).into()).collect::<Vec<core::net::IpAddr>>(),
            [own]
        );
        assert_eq!(host.autoconf.routers().count(), 1);
        host.run(30);
        assert_eq!(host.autoconf.routers().count(), 0);
        host.hear(100, &[]);
        host.hear(0, &[]);
        assert_eq!(host.autoconf.routers().count(), 0, "it says that it is none any more");
        assert!(host.solicited <= 1, "who has spoken is not asked");
    }

    #[test]
    fn a_life_is_shortened_to_two_hours_at_least() {
        let mut host = Host::new(0);
        host.run(1);
        let day = 86_400;
        host.hear(100, &[prefix("2001:db8::", day, day)]);
        let left = |host: &Host| host.autoconf.own[1].valid.since(host.now).as_secs();
        assert_eq!(left(&host), u64::from(day));
        host.hear(100, &[prefix("2001:db8::", 0, 0)]);
        assert_eq!(left(&host), 7_200);
        assert!(host.addresses()[1].1, "that it is not used for what is new is believed");
        host.run(3_600);
        host.hear(100, &[prefix("2001:db8::", 10, 10)]);
        assert_eq!(left(&host), 3_600);
        host.hear(100, &[prefix("2001:db8::", 4_000, 4_000)]);
        assert_eq!(left(&host), 4_000, "longer is always believed");
        host.hear(100, &[prefix("2001:db8::", 7_201, 7_201)]);
        assert_eq!(left(&host), 7_201);
        host.hear(100, &[prefix("2001:db8::", u32::MAX, u32::MAX)]);
        host.run(1_000_000);
        assert_eq!(host.addresses().len(), 2, "for ever");
    }

    #[test]
    fn prefixes_that_cannot_be_used_are_passed_over_and_all_is_bounded() {
        let mut host = Host::new(0);
        host.run(1);
        let good = prefix("2001:db8::", 10, 10);
        host.hear(
            10,
            &[
                Prefix { is_autonomous: false, ..good },
                Prefix { len: 63, ..good },
                prefix("2001:db8::", 11, 10),
                prefix("2001:db8::", 0, 0),
                prefix("fe80::", 10, 10),
                prefix("ff02::", 10, 10),
                prefix("::", 10, 10),
            ],
        );
        assert_eq!(host.addresses().len(), 1);
        for n in 0..100u16 {
            let said = Advertisement::new(1_000, &[prefix("2001:db8::", 1_000, 1_000)]);
            let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n);
            host.autoconf.handle_advertisement(host.now, from, &said);
            let text = std::format!("2001:db8:{n:x}::");
            host.hear(0, &[prefix(&text, 1_000, 1_000)]);
        }
        assert_eq!((host.addresses().len(), host.autoconf.routers().count()), (MOST, MOST));
    }

    #[test]
    fn another_identifier_is_tried_where_somebody_has_the_address() {
        for (taken, ours) in [(1, 1), (2, 1), (3, 0)] {
            let mut host = Host::new(taken);
            host.run(60);
            assert_eq!(host.addresses().len(), ours, "{taken}");
            assert_eq!(host.solicited, ours * 3, "without an address nobody is asked");
        }
    }

    #[test]
    fn a_link_that_comes_up_again_begins_anew() {
        let mut host = Host::new(0);
        host.run(1);
        host.hear(100, &[prefix("2001:db8::", 50, 80)]);
        host.autoconf.restart();
        host.run(20);
        assert_eq!((host.dropped.len(), host.addresses().len()), (2, 1));
        assert_eq!(host.autoconf.routers().count(), 0);
    }
}
