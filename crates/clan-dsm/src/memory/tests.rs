//! Keys open what they were made for, for as long as it exists, and nothing else.

use std::vec::Vec;

use landfall_placement::{Area, Random, Refusal, RegionId};
use proptest::prelude::*;

use super::{LONGEST, Memory};
use crate::address::{Address, HostId, Key, Kind, WHOLE};
use crate::config::Config;
use crate::cookie::Cookie;
use crate::cookie::Rights;
use crate::error::Error;

fn memory(apertures: usize) -> Memory {
    let config = Config { apertures, groups: 2, ..Config::default() };
    Memory::new(HostId::new(5).unwrap(), &config, &mut Random::from_number(7))
}

fn area(len: u64) -> Area {
    Area::new(RegionId::new(3, 1), 64, len)
}

#[test]
fn a_cookie_opens_its_aperture_and_says_what_for() {
    let mut memory = memory(4);
    let id = memory.expose(area(100)).unwrap();
    for given in Rights::ALL {
        let cookie = memory.cookie(id, given).unwrap();
        assert_eq!((cookie.host().number(), cookie.len()), (5, 100));
        for needed in Rights::ALL {
            let checked = memory.check(&cookie.address(2), 3, needed);
            if given.allow(needed) {
                let spot = checked.unwrap();
                assert_eq!((spot.slot, spot.at), (cookie.slot(), 16));
                assert_eq!(spot.span, area(100).span(16, 24));
            } else {
                assert_eq!(checked, Err(Refusal::Forbidden));
            }
        }
        let bare = Address { key: Key::default(), ..cookie.address(2) };
        assert_eq!(memory.check(&bare, 1, Rights::Read), Err(Refusal::WrongKey));
    }
}

#[test]
fn rights_that_nobody_was_given_have_no_key() {
    let (mut memory, mut other) = (memory(4), memory(4));
    let id = memory.expose(area(64)).unwrap();
    let same = other.expose(area(64)).unwrap();
    // The other adapter has the same secret: this is what would be the key.
    let would_be = other.cookie(same, Rights::Write).unwrap();
    assert_eq!(memory.check(&would_be.address(0), 1, Rights::Write), Err(Refusal::WrongKey));
    assert_eq!(memory.cookie(id, Rights::Write), Ok(would_be));
    assert!(memory.check(&would_be.address(0), 1, Rights::Write).is_ok());
}

/// Each bit of a key counts, and a slot without an aperture looks like any wrong key.
#[test]
fn a_forged_key_opens_nothing_and_tells_nothing() {
    let mut memory = memory(4);
    let id = memory.expose(area(64)).unwrap();
    let cookie = memory.cookie(id, Rights::ReadWrite).unwrap();
    for bit in 0..56 {
        let key = Key::from_bits(cookie.key().bits() ^ 1 << bit);
        let forged = Address { key, ..cookie.address(0) };
        assert_eq!(memory.check(&forged, 1, Rights::Read), Err(Refusal::WrongKey), "bit {bit}");
    }
    for slot in (0..=u16::MAX).filter(|slot| *slot != cookie.slot()) {
        let elsewhere = Address { slot, ..cookie.address(0) };
        assert_eq!(memory.check(&elsewhere, 1, Rights::Read), Err(Refusal::WrongKey));
    }
}

#[test]
fn bounds_hold_at_every_edge() {
    for len in (1..=24).chain([LONGEST - 9, LONGEST - 8, LONGEST - 1, LONGEST]) {
        let mut memory = memory(1);
        let id = memory.expose(area(len)).unwrap();
        let cookie = memory.cookie(id, Rights::Write).unwrap();
        let last = (len / 8).min(u64::from(u32::MAX)) as u32;
        for word in [0, 1, last.saturating_sub(1), last, u32::MAX - 1, u32::MAX] {
            for words in [0, 1, 2, 3, last, u32::MAX / 8, u32::MAX / 8 + 1, u32::MAX] {
                let end = (u64::from(word) + u64::from(words)) * 8;
                let fits = words > 0 && end <= len && words <= u32::MAX / 8;
                let checked = memory.check(&cookie.address(word), words, Rights::Write);
                assert_eq!(checked.is_ok(), fits, "{words} words at {word} of {len} bytes");
            }
            for (from, count) in (0..8).flat_map(|from| (1..=8 - from).map(move |n| (from, n))) {
                let mask = Address::mask_of(from, count).unwrap();
                let address = Address { mask, ..cookie.address(word) };
                let end = u64::from(word) * 8 + u64::from(from + count);
                let checked = memory.check(&address, 1, Rights::Write);
                assert_eq!(checked.is_ok(), end <= len);
                if let Ok(spot) = checked {
                    assert_eq!(spot.at + u64::from(spot.span.len), end);
                    assert_eq!(spot.span.len, count);
                }
                let two = memory.check(&address, 2, Rights::Write);
                assert!(mask == WHOLE || two == Err(Refusal::Malformed));
            }
        }
    }
}

#[test]
fn memory_that_cannot_be_an_aperture_is_refused() {
    let mut memory = memory(1);
    let region = RegionId::new(0, 0);
    assert_eq!(memory.expose(Area::new(region, 0, 0)), Err(Error::BadMemory));
    assert_eq!(memory.expose(Area::new(region, u64::MAX - 7, 16)), Err(Error::BadMemory));
    assert_eq!(memory.expose(Area::new(region, 0, LONGEST + 1)), Err(Error::BadMemory));
    assert_eq!(memory.expose(Area::new(region, 4, 16)), Err(Error::Unaligned));
    memory.expose(area(1)).unwrap();
    assert_eq!(memory.expose(area(1)), Err(Error::NoRoom));
}

#[test]
fn a_group_reaches_every_member_that_joined() {
    let (mut founder, mut member) = (memory(4), memory(4));
    let group = HostId::new(9).unwrap();
    let cookie = founder.group_cookie(group, 3, 64).unwrap();
    assert_ne!(cookie.key(), founder.group_cookie(group, 3, 64).unwrap().key());
    assert_eq!(founder.group_cookie(group, 3, 0), Err(Error::BadMemory));
    let published = |word| Address { kind: Kind::Multicast, ..cookie.address(word) };

    let (small, large) = (member.expose(area(63)).unwrap(), member.expose(area(640)).unwrap());
    assert_eq!(member.check(&published(0), 1, Rights::Write), Err(Refusal::UnknownId));
    assert_eq!(member.join(&cookie, small, None), Err(Error::OutOfBounds));
    member.join(&cookie, large, None).unwrap();
    assert_eq!(member.join(&cookie, large, None), Err(Error::Taken));
    let spot = member.check(&published(7), 1, Rights::Write).unwrap();
    assert_eq!((spot.slot, spot.at), (1, 56));
    assert_eq!(
        member.check(&published(7), 2, Rights::Write),
        Err(Refusal::OutOfBounds),
        "the group's"
    );
    assert_eq!(member.check(&published(0), 1, Rights::Read), Err(Refusal::Forbidden));
    let forged = Address { key: Key::from_bits(1), ..published(0) };
    assert_eq!(member.check(&forged, 1, Rights::Write), Err(Refusal::WrongKey));
    // A group's cookie is not a key to the aperture itself.
    assert_eq!(member.check(&cookie.address(0), 1, Rights::Write), Err(Refusal::WrongKey));

    let second = founder.group_cookie(group, 4, 8).unwrap();
    let third = founder.group_cookie(group, 5, 8).unwrap();
    member.join(&second, small, None).unwrap();
    assert_eq!(member.join(&third, small, None), Err(Error::NoRoom));
    member.revoke(small).unwrap();
    member.join(&third, large, None).unwrap();
    member.leave(&cookie).unwrap();
    assert_eq!(member.leave(&cookie), Err(Error::Unknown));
    assert_eq!(member.check(&published(7), 1, Rights::Write), Err(Refusal::UnknownId));
}

#[derive(Clone, Debug)]
enum Step {
    Expose(u64),
    Cookie(usize, Rights),
    Revoke(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1u64..100).prop_map(Step::Expose),
        (0usize..8, prop::sample::select(&Rights::ALL[..])).prop_map(|(n, r)| Step::Cookie(n, r)),
        (0usize..8).prop_map(Step::Revoke),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// Invariant 7 (stale is harmless) and 3 (check, then accept).
    #[test]
    fn invariant_7_a_revoked_key_opens_nothing_ever_again(steps in steps()) {
        let mut memory = memory(3);
        let mut alive = Vec::new();
        let mut cookies: Vec<(Cookie, u64)> = Vec::new();
        let mut lives = 0;
        for step in steps {
            match step {
                Step::Expose(len) => match memory.expose(area(len)) {
                    Ok(id) => {
                        lives += 1;
                        alive.push((id, lives));
                    }
                    Err(error) => prop_assert_eq!((error, alive.len()), (Error::NoRoom, 3)),
                },
                Step::Cookie(n, rights) if n < alive.len() => {
                    let cookie = memory.cookie(alive[n].0, rights).unwrap();
                    cookies.push((cookie, alive[n].1));
                }
                Step::Revoke(n) if n < alive.len() => {
                    let (id, _) = alive.remove(n);
                    prop_assert!(memory.revoke(id).is_ok());
                    prop_assert_eq!(memory.revoke(id), Err(Error::Unknown));
                    prop_assert_eq!(memory.cookie(id, Rights::Read), Err(Error::Unknown));
                }
                _ => {}
            }
            for (cookie, life) in &cookies {
                let is_alive = alive.iter().any(|(_, other)| other == life);
                let checked = memory.check_bytes(&cookie.address(0), 0, 1, cookie.rights());
                prop_assert_eq!(checked.is_ok(), is_alive);
                prop_assert!(is_alive || checked == Err(Refusal::WrongKey));
            }
        }
    }
}
