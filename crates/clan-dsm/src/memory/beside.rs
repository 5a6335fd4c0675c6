//! Memory that several adapters of one host have: the first gives names and makes cookies, and
//! the others take them over, so that a cookie is good at whichever of them a link is.

use landfall_placement::Area;

use super::{Memory, check_area};
use crate::address::{ApertureId, HostId};
use crate::cookie::{Cookie, Rights};
use crate::error::Error;
use crate::offload::Aperture;

impl Memory {
    /// Makes an aperture of this memory under the name that another adapter has given.
    pub(crate) fn expose_as(&mut self, id: ApertureId, memory: Area) -> Result<(), Error> {
        check_area(memory)?;
        let slot = u16::try_from(id.index).map_err(|_| Error::NoRoom)?;
        let at = usize::from(slot);
        if at >= self.most {
            return Err(Error::NoRoom);
        }
        while self.slots.len() <= at {
            self.free.push(self.slots.len() as u16);
            self.slots.push(Aperture::default());
            self.generations.push(0);
        }
        // A slot that has seen its last aperture is not free, and nobody gives it a name.
        let free = self.free.iter().rposition(|free| *free == slot).ok_or(Error::Taken)?;
        self.free.swap_remove(free);
        self.slots[at] = Aperture { memory, ..Aperture::default() };
        self.generations[at] = id.generation;
        Ok(())
    }

    /// A cookie that another adapter has made of the same aperture is good here too: for anyone
    /// who has it, or over the links of one host alone.
    pub(crate) fn admit(
        &mut self,
        id: ApertureId,
        cookie: &Cookie,
        host: Option<HostId>,
    ) -> Result<(), Error> {
        let slot = self.slot_of(id)?;
        if let Some(host) = host {
            let key = self.grants.key(slot, host, cookie.rights(), || cookie.key())?;
            return if key == cookie.key() { Ok(()) } else { Err(Error::Taken) };
        }
        let aperture = &mut self.slots[usize::from(slot)];
        aperture.issued |= 1 << cookie.rights() as u8;
        for (other, place) in Rights::ALL.into_iter().zip(&mut aperture.keys) {
            if other == cookie.rights() {
                *place = cookie.key();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use landfall_placement::{Random, RegionId};
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;

    const LEN: u64 = 64;
    const MOST: usize = 5;

    fn memory(seed: u64) -> Memory {
        let config = Config { apertures: MOST, grants: 8, ..Config::default() };
        Memory::new(host(0), &config, &mut Random::from_number(seed))
    }

    fn host(nth: u16) -> HostId {
        HostId::new(nth + 1).unwrap()
    }

    fn area() -> Area {
        Area::new(RegionId::default(), 0, LEN)
    }

    /// What is done to both.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Expose,
        Revoke(usize),
        Cookie(usize, Rights),
        CookieFor(usize, Rights, u16),
        RevokeFrom(usize, u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let rights = || prop::sample::select(&Rights::ALL[..]);
        let which = || 0..MOST + 1;
        prop_oneof![
            3 => Just(Step::Expose),
            2 => which().prop_map(Step::Revoke),
            4 => (which(), rights()).prop_map(|(at, rights)| Step::Cookie(at, rights)),
            4 => (which(), rights(), 1..4u16).prop_map(|(at, rights, to)| Step::CookieFor(at, rights, to)),
            2 => (which(), 1..4u16).prop_map(|(at, from)| Step::RevokeFrom(at, from)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        /// Every cookie that was ever made is worth the same at both, for every host.
        #[test]
        fn a_cookie_is_worth_the_same_at_both(steps in prop::collection::vec(step(), 1..60)) {
            let (mut first, mut other) = (memory(1), memory(2));
            let (mut names, mut cookies): (Vec<ApertureId>, Vec<Cookie>) = Default::default();
            for step in steps {
                let name = |at: usize| names.get(at).copied();
                match step {
                    Step::Expose => if let Ok(id) = first.expose(area()) {
                        prop_assert_eq!(other.expose_as(id, area()), Ok(()));
                        names.push(id);
                    },
                    Step::Revoke(at) if at < names.len() => {
                        let id = names.remove(at);
                        prop_assert_eq!(other.revoke(id), first.revoke(id));
                    }
                    Step::Cookie(at, rights) => if let Some(id) = name(at) {
                        let cookie = first.cookie(id, rights).unwrap();
                        prop_assert_eq!(other.admit(id, &cookie, None), Ok(()));
                        cookies.push(cookie);
                    },
                    Step::CookieFor(at, rights, to) => if let Some(id) = name(at)
                        && let Ok(cookie) = first.cookie_for(id, rights, host(to))
                    {
                        prop_assert_eq!(other.admit(id, &cookie, Some(host(to))), Ok(()));
                        cookies.push(cookie);
                    },
                    Step::RevokeFrom(at, from) => if let Some(id) = name(at) {
                        prop_assert_eq!(other.revoke_from(id, host(from)), first.revoke_from(id, host(from)));
                    },
                    Step::Revoke(_) => {}
                }
                for cookie in &cookies {
                    let address = cookie.address(0);
                    for from in [None, Some(host(1)), Some(host(2)), Some(host(3))] {
                        let said = |memory: &Memory| memory.check(from, &address, 1, cookie.rights());
                        prop_assert_eq!(said(&first), said(&other));
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_that_is_in_use_is_not_given_again() {
        let (mut first, mut other) = (memory(1), memory(2));
        let ids: Vec<_> = (0..3).map(|_| first.expose(area()).unwrap()).collect();
        // Not in the order of their slots.
        for id in [ids[2], ids[0]] {
            assert_eq!(other.expose_as(id, area()), Ok(()));
            assert_eq!(other.expose_as(id, area()), Err(Error::Taken));
        }
        // Its own come to what is free, and no name of its slots is taken twice.
        let own = other.expose(area()).unwrap();
        assert_eq!(own.index, ids[1].index);
        assert_eq!(other.expose_as(ids[1], area()), Err(Error::Taken));
        let beyond = ApertureId::new(MOST as u32, 0);
        assert_eq!(other.expose_as(beyond, area()), Err(Error::NoRoom));
        assert_eq!(
            other.expose_as(ids[2], Area::new(RegionId::default(), 4, 8)),
            Err(Error::Unaligned)
        );
        let mut unknown = first.cookie(ids[1], Rights::Read).unwrap();
        assert_eq!(other.revoke(own).map(drop), Ok(()));
        assert_eq!(other.admit(ids[1], &unknown, None), Err(Error::Unknown));
        unknown = first.cookie_for(ids[0], Rights::Read, host(1)).unwrap();
        assert_eq!(other.admit(ids[0], &unknown, Some(host(1))), Ok(()));
        let again = {
            first.revoke_from(ids[0], host(1)).unwrap();
            first.cookie_for(ids[0], Rights::Read, host(1)).unwrap()
        };
        assert_eq!(
            other.admit(ids[0], &again, Some(host(1))),
            Err(Error::Taken),
            "not revoked here"
        );
    }
}
