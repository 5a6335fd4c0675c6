//! Keys for one peer alone: they open an aperture over the links of that host and over no other.
//!
//! Who is at the other end of a link only the engine knows, so these keys are in no table of
//! an adapter. It is told that there are some: then it hands on what it has no key for, and all
//! behind that, until the host has dealt with it.

use alloc::vec::Vec;

use crate::address::{HostId, Key};
use crate::cookie::Rights;
use crate::error::Error;
use crate::offload::same;

/// One key: which aperture it opens, for whom, and what for.
#[derive(Clone, Copy, Debug)]
struct Grant {
    slot: u16,
    host: HostId,
    rights: Rights,
    key: Key,
}

impl Grant {
    const fn order(&self) -> (u16, u16, u8) {
        (self.slot, self.host.number(), self.rights as u8)
    }
}

/// The keys for one peer alone, in the order of their apertures and hosts.
#[derive(Debug)]
pub(crate) struct Grants {
    all: Vec<Grant>,
    most: usize,
}

impl Grants {
    pub(crate) const fn new(most: usize) -> Self {
        Self { all: Vec::new(), most }
    }

    /// The key of this aperture for a host and these rights. `make` makes one where there is none.
    pub(crate) fn key(
        &mut self,
        slot: u16,
        host: HostId,
        rights: Rights,
        make: impl FnOnce() -> Key,
    ) -> Result<Key, Error> {
        let wanted = Grant { slot, host, rights, key: Key::default() };
        match self.all.binary_search_by_key(&wanted.order(), Grant::order) {
            Ok(at) => Ok(self.all[at].key),
            Err(_) if self.all.len() >= self.most => Err(Error::NoRoom),
            Err(at) => {
                let key = make();
                self.all.insert(at, Grant { key, ..wanted });
                Ok(key)
            }
        }
    }

    /// Nobody has a key to this aperture any more.
    pub(crate) fn revoke(&mut self, slot: u16) {
        self.all.retain(|grant| grant.slot != slot);
    }

    /// This host has no key to this aperture any more.
    pub(crate) fn revoke_from(&mut self, slot: u16, host: HostId) {
        self.all.retain(|grant| (grant.slot, grant.host) != (slot, host));
    }

    /// Are there keys to this aperture?
    pub(crate) fn has_any(&self, slot: u16) -> bool {
        let at = self.all.partition_point(|grant| grant.slot < slot);
        self.all.get(at).is_some_and(|grant| grant.slot == slot)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What this host has keys to. Who is not known has none.
    #[inline]
    pub(crate) fn of(&self, host: Option<HostId>) -> Granted<'_> {
        Granted { all: &self.all, host }
    }
}

/// The keys of one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted<'t> {
    all: &'t [Grant],
    host: Option<HostId>,
}

impl Granted<'_> {
    /// No keys.
    pub(crate) const NONE: Self = Self { all: &[], host: None };

    /// The rights that this key gives the host. What is looked at depends on the aperture and the
    /// host, never on the key.
    #[inline(never)]
    pub(crate) fn rights(self, slot: u16, key: Key) -> Option<Rights> {
        let host = self.host?;
        let first = self
            .all
            .partition_point(|grant| (grant.slot, grant.host.number()) < (slot, host.number()));
        let of_host =
            self.all[first..].iter().take_while(|grant| (grant.slot, grant.host) == (slot, host));
        let granted =
            of_host.fold(0, |granted, grant| granted | (grant.rights as u8 * same(grant.key, key)));
        Rights::from_bits(granted)
    }
}

#[cfg(test)]
mod tests {
    //! What `Memory` says of any key from any host is what the naive model says.

    use std::vec::Vec;

    use landfall_placement::{Area, Random, Refusal, RegionId};
    use proptest::prelude::*;

    use crate::address::{Address, ApertureId, HostId};
    use crate::config::Config;
    use crate::cookie::{Cookie, Rights};
    use crate::error::Error;
    use crate::memory::Memory;
    use crate::model::naive::NaiveHost;

    const LEN: u64 = 64;
    const MOST: usize = 12;

    fn memory() -> Memory {
        let config = Config { apertures: 3, grants: MOST, ..Config::default() };
        Memory::new(host(0), &config, &mut Random::from_number(7))
    }

    fn area() -> Area {
        Area::new(RegionId::new(3, 1), 64, LEN)
    }

    fn host(number: u16) -> HostId {
        HostId::new(number).unwrap()
    }

    #[test]
    fn a_key_for_one_host_opens_nothing_for_another() {
        let mut memory = memory();
        let id = memory.expose(area()).unwrap();
        let (one, two) = (host(1), host(2));
        let cookie = memory.cookie_for(id, Rights::Write, one).unwrap();
        assert_eq!(memory.cookie_for(id, Rights::Write, one), Ok(cookie), "each time the same");
        let check = |memory: &Memory, from, needed| {
            memory.check(from, &cookie.address(0), 1, needed).map(|found| found.slot)
        };
        assert_eq!(check(&memory, Some(one), Rights::Write), Ok(cookie.slot()));
        assert_eq!(check(&memory, Some(one), Rights::Read), Err(Refusal::Forbidden));
        for other in [None, Some(two), Some(host(0))] {
            assert_eq!(check(&memory, other, Rights::Write), Err(Refusal::WrongKey));
        }
        for bit in 0..56 {
            let key = crate::Key::from_bits(cookie.key().bits() ^ 1 << bit);
            let forged = Address { key, ..cookie.address(0) };
            let checked = memory.check(Some(one), &forged, 1, Rights::Write);
            assert_eq!(checked, Err(Refusal::WrongKey), "bit {bit}");
        }
        // Taken from one, it stays the other's; and a new one is another.
        let others = memory.cookie_for(id, Rights::Write, two).unwrap();
        memory.revoke_from(id, one).unwrap();
        assert_eq!(check(&memory, Some(one), Rights::Write), Err(Refusal::WrongKey));
        assert!(memory.check(Some(two), &others.address(0), 1, Rights::Write).is_ok());
        assert_ne!(memory.cookie_for(id, Rights::Write, one).unwrap().key(), cookie.key());
        assert_eq!(check(&memory, Some(one), Rights::Write), Err(Refusal::WrongKey));
    }

    /// An adapter is told of no such key, but that there are some.
    #[test]
    fn an_adapter_is_told_of_no_key_for_one_host() {
        let mut memory = memory();
        let id = memory.expose(area()).unwrap();
        let cookie = memory.cookie_for(id, Rights::ReadWrite, host(1)).unwrap();
        let (_, told) = memory.entry(cookie.slot());
        assert!(Rights::ALL.iter().all(|rights| told.key(*rights).is_none()), "{told:?}");
        assert!(told.has_host_keys());
        memory.revoke_from(id, host(1)).unwrap();
        let (_, told) = memory.entry(cookie.slot());
        assert!(!told.has_host_keys());
        // The host's own table has no such mark: it could be taken for rights.
        memory.cookie_for(id, Rights::Write, host(1)).unwrap();
        let bare = Address { key: crate::Key::default(), ..cookie.address(0) };
        assert_eq!(memory.check(None, &bare, 1, Rights::Read), Err(Refusal::WrongKey));
    }

    #[test]
    fn keys_for_one_host_are_bounded() {
        let mut memory = memory();
        let id = memory.expose(area()).unwrap();
        for number in 0..MOST as u16 {
            memory.cookie_for(id, Rights::Read, host(number)).unwrap();
        }
        assert_eq!(memory.cookie_for(id, Rights::Write, host(0)), Err(Error::NoRoom));
        memory.revoke_from(id, host(3)).unwrap();
        memory.cookie_for(id, Rights::Write, host(0)).unwrap();
        memory.revoke(id).unwrap();
        assert_eq!(memory.cookie_for(id, Rights::Read, host(0)), Err(Error::Unknown));
        assert_eq!(memory.revoke_from(id, host(0)), Err(Error::Unknown));
        assert!(memory.grants_are_none());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Expose,
        Cookie(usize, Rights),
        CookieFor(usize, Rights, u16),
        RevokeFrom(usize, u16),
        Revoke(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (which, rights) = (0usize..3, prop::sample::select(&Rights::ALL[..]));
        let step = prop_oneof![
            1 => Just(Step::Expose),
            1 => (which.clone(), rights.clone()).prop_map(|(n, r)| Step::Cookie(n, r)),
            4 => (which.clone(), rights, 1u16..4).prop_map(|(n, r, h)| Step::CookieFor(n, r, h)),
            2 => (which.clone(), 1u16..4).prop_map(|(n, h)| Step::RevokeFrom(n, h)),
            1 => which.prop_map(Step::Revoke),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// Invariants 3 (check, then accept) and 7 (stale is harmless).
        #[test]
        fn invariant_7_keys_open_for_whom_the_naive_model_says(steps in steps()) {
            let (mut memory, mut naive) = (memory(), NaiveHost::default());
            let (mut alive, mut cookies) = (Vec::<ApertureId>::new(), Vec::<Cookie>::new());
            for step in steps {
                match step {
                    Step::Expose => if let Ok(id) = memory.expose(area()) {
                        naive.expose(id.index() as u16, LEN as usize);
                        alive.push(id);
                    },
                    Step::Cookie(n, rights) if n < alive.len() => {
                        let cookie = memory.cookie(alive[n], rights).unwrap();
                        naive.give(cookie.slot(), cookie.key(), rights);
                        cookies.push(cookie);
                    }
                    Step::CookieFor(n, rights, to) if n < alive.len() => {
                        match memory.cookie_for(alive[n], rights, host(to)) {
                            Ok(cookie) => {
                                naive.give_to(host(to), cookie.slot(), cookie.key(), rights);
                                cookies.push(cookie);
                            }
                            Err(error) => prop_assert_eq!(error, Error::NoRoom),
                        }
                    }
                    Step::RevokeFrom(n, from) if n < alive.len() => {
                        memory.revoke_from(alive[n], host(from)).unwrap();
                        naive.revoke_from(host(from), alive[n].index() as u16);
                    }
                    Step::Revoke(n) if n < alive.len() => {
                        let id = alive.remove(n);
                        memory.revoke(id).unwrap();
                        naive.revoke(id.index() as u16);
                    }
                    _ => {}
                }
                for cookie in &cookies {
                    for from in [None, Some(host(1)), Some(host(2)), Some(host(3))] {
                        let at = cookie.address(1);
                        let may = naive.clone().write(from, &at, [0; 8]);
                        prop_assert_eq!(memory.check(from, &at, 1, Rights::Write).is_ok(), may);
                        let may = naive.clone().read(from, &at, 8).is_some();
                        prop_assert_eq!(memory.check(from, &at, 1, Rights::Read).is_ok(), may);
                    }
                }
            }
        }
    }
}
