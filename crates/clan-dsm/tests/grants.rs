//! Cookies for one peer alone: host 0 has memory, host 1 is given the key, and host 2, which has a
//! link as well, has got hold of it.

use std::time::Duration;

use clan_dsm::{
    Access, Action, Config, DmaRequest, Ended, Error, Event, OperationId, Reason, Rights, WindowId,
};
use landfall_placement::{Area, Refusal, WordFunction, WordWidth};
use proptest::prelude::*;

use crate::net::{Exposed, Net, cases, config, ethernet, faulty, host_id, noise, sim};

const OWNER: usize = 0;
const FRIEND: usize = 1;
const THIEF: usize = 2;
const LEN: usize = 4_096;

/// Memory of the owner that the friend alone may touch.
fn for_friend(net: &mut Net) -> Exposed {
    let area = net.lend(OWNER, &noise(1, LEN));
    let aperture = net.nic(OWNER).expose(area).unwrap();
    let cookie = net.nic(OWNER).cookie_for(aperture, Rights::ReadWrite, host_id(FRIEND)).unwrap();
    Exposed { area, aperture, cookie }
}

/// What came of everything that a host can do with a window.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    read: Result<(), Ended>,
    word: Result<u64, Ended>,
    dma_read: Result<(), Ended>,
    /// How often it was told that writes are refused, and why.
    exceptions: Vec<Reason>,
}

fn ended<T>(net: &mut Net, host: usize, what: &str, is_it: impl Fn(&Event) -> Option<T>) -> T {
    net.wait_for(host, what, is_it)
}

fn change(net: &mut Net, host: usize, window: WindowId) -> OperationId {
    let (now, function) = (net.now(), WordFunction::Add(1));
    net.nic(host).change(now, window, 0, WordWidth::Eight, function).unwrap()
}

/// Every way to touch memory of another host.
fn touch_in_every_way(net: &mut Net, host: usize, window: WindowId) -> Outcome {
    net.clear();
    let bytes = noise(host as u64 + 50, 600);
    let (from, into, into_too) =
        (net.lend(host, &bytes), net.lend(host, &[0; 64]), net.lend(host, &[0; 64]));
    let endpoint = net.nic(host).open_endpoint(None).unwrap();
    let now = net.now();
    let nic = net.nic(host);
    nic.write(now, window, 8, &bytes[..24]).unwrap();
    nic.write(now, window, 43, &bytes[..3]).unwrap();
    nic.write_word(now, window, 64, 7).unwrap();
    nic.write_from(now, window, 1_001, from).unwrap();
    let writes = [
        DmaRequest::Write { from, window, offset: 2_048 },
        DmaRequest::Word { window, offset: 4_000, value: 9 },
    ];
    nic.dma(now, endpoint, &writes).unwrap();
    let read = nic.read(now, window, 0, into).unwrap();
    let word = change(net, host, window);
    let read = ended(net, host, "the read", |event| match event {
        Event::Read { read: r, result } if *r == read => Some(*result),
        _ => None,
    });
    let word = ended(net, host, "the word", |event| match event {
        Event::Word { operation, result } if *operation == word => Some(*result),
        _ => None,
    });
    let now = net.now();
    let chain = [DmaRequest::Read { window, offset: 0, into: into_too }];
    let dma = net.nic(host).dma(now, endpoint, &chain).unwrap();
    let dma_read = ended(net, host, "the DMA read", |event| match event {
        Event::Dma { dma: d, result, .. } if *d == dma => Some(*result),
        _ => None,
    });
    net.flush(host, OWNER);
    let exceptions = net.log(host).into_iter().filter_map(|event| match event {
        Event::Exception { window: Some(w), reason, .. } if w == window => Some(reason),
        _ => None,
    });
    let exceptions = exceptions.collect();
    if dma_read.is_err() {
        assert_eq!(net.bytes(host, into), [0; 64], "nothing was read");
        assert_eq!(net.bytes(host, into_too), [0; 64], "nothing was read");
    }
    net.nic(host).close_endpoint(now, endpoint).unwrap();
    Outcome { read, word, dma_read, exceptions }
}

#[test]
fn a_key_of_another_host_opens_nothing_in_any_way() {
    let mut net = Net::linked(sim(1), 3, &config(), ethernet());
    let there = for_friend(&mut net);
    let all = 0..LEN as u64;
    let touched =
        net.nic(OWNER).watch(there.aperture, all, Access::Both, Action::Event, false).unwrap();
    // The whole cookie: it was read from the friend's memory, say.
    let stolen = net.nic(THIEF).map(&there.cookie).unwrap();
    let before = net.bytes(OWNER, there.area);
    let outcome = touch_in_every_way(&mut net, THIEF, stolen);
    let refused = Ended::There(Reason::BadKey);
    let Outcome { read, word, dma_read, exceptions } = outcome;
    assert_eq!((read, word, dma_read), (Err(refused), Err(refused), Err(refused)));
    assert!(exceptions.len() >= 5, "{exceptions:?}");
    assert!(exceptions.iter().all(|reason| *reason == Reason::BadKey), "as for an unknown key");
    assert!(net.refusals(OWNER).of(Refusal::WrongKey) >= 5, "{}", net.refusals(OWNER));
    assert_eq!(net.bytes(OWNER, there.area), before);
    assert_eq!(net.nic(OWNER).firings(touched), Ok(0));
    // The friend may, in the same ways.
    let window = net.nic(FRIEND).map(&there.cookie).unwrap();
    let outcome = touch_in_every_way(&mut net, FRIEND, window);
    let Outcome { read, word, dma_read, exceptions } = outcome;
    assert!(read.is_ok() && word.is_ok() && dma_read.is_ok() && exceptions.is_empty());
    assert_ne!(net.bytes(OWNER, there.area), before);
    assert!(net.nic(OWNER).firings(touched).unwrap() > 0);
    assert!(net.is_intact_around(OWNER, there.area));
}

/// A tripwire on what one writes elsewhere says that it has left, not that it was allowed; the
/// exception says that it was not.
#[test]
fn a_tripwire_of_the_thief_tells_of_no_more_than_of_a_wrong_key() {
    let mut net = Net::linked(sim(2), 3, &config(), ethernet());
    let there = for_friend(&mut net);
    let stolen = net.nic(THIEF).map(&there.cookie).unwrap();
    let wrong = {
        let cookie = there.cookie;
        let key = clan_dsm::Key::from_bits(cookie.key().bits() ^ 1);
        let (host, slot) = (cookie.host(), cookie.slot());
        clan_dsm::Cookie::new(host, slot, cookie.rights(), key, cookie.len())
    };
    let wrong = net.nic(THIEF).map(&wrong).unwrap();
    let told = [stolen, wrong].map(|window| {
        let wire =
            net.nic(THIEF).watch_window(window, 0..8, Access::Write, Action::Event, false).unwrap();
        net.clear();
        let now = net.now();
        net.nic(THIEF).write_word(now, window, 0, 1).unwrap();
        net.flush(THIEF, OWNER);
        let firings = net.nic(THIEF).firings(wire);
        net.nic(THIEF).remove_tripwire(wire).unwrap();
        let reasons: Vec<Reason> = net.log(THIEF).iter().filter_map(reason).collect();
        (firings, reasons)
    });
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].1, [Reason::BadKey]);
}

const fn reason(event: &Event) -> Option<Reason> {
    match event {
        Event::Exception { reason, .. } => Some(*reason),
        _ => None,
    }
}

#[test]
fn what_is_taken_from_one_host_stays_the_others() {
    let mut net = Net::linked(sim(3), 3, &config(), ethernet());
    let there = for_friend(&mut net);
    let other = {
        let nic = net.nic(OWNER);
        nic.cookie_for(there.aperture, Rights::ReadWrite, host_id(THIEF)).unwrap()
    };
    let (one, two) = (net.nic(FRIEND).map(&there.cookie), net.nic(THIEF).map(&other));
    let (one, two) = (one.unwrap(), two.unwrap());
    net.nic(OWNER).revoke_from(there.aperture, host_id(FRIEND)).unwrap();
    let before = net.bytes(OWNER, there.area);
    let taken = touch_in_every_way(&mut net, FRIEND, one);
    assert_eq!(taken.word, Err(Ended::There(Reason::BadKey)));
    assert_eq!(net.bytes(OWNER, there.area), before);
    let kept = touch_in_every_way(&mut net, THIEF, two);
    assert!(kept.word.is_ok() && kept.exceptions.is_empty(), "{kept:?}");
    // Given anew it is another key, and the old one opens nothing.
    let nic = net.nic(OWNER);
    let again = nic.cookie_for(there.aperture, Rights::ReadWrite, host_id(FRIEND)).unwrap();
    assert_ne!(again, there.cookie);
    let again = net.nic(FRIEND).map(&again).unwrap();
    assert!(touch_in_every_way(&mut net, FRIEND, again).exceptions.is_empty());
    assert!(touch_in_every_way(&mut net, FRIEND, one).word.is_err());
}

#[test]
fn keys_for_one_host_have_a_bound_of_their_own() {
    let mut net = Net::linked(sim(4), 2, &Config { grants: 1, ..config() }, ethernet());
    let there = for_friend(&mut net);
    let nic = net.nic(OWNER);
    let more = nic.cookie_for(there.aperture, Rights::Read, host_id(FRIEND));
    assert_eq!(more, Err(Error::NoRoom));
    assert_eq!(
        nic.cookie_for(there.aperture, Rights::ReadWrite, host_id(FRIEND)),
        Ok(there.cookie)
    );
    nic.revoke(there.aperture).unwrap();
    assert_eq!(nic.revoke_from(there.aperture, host_id(FRIEND)), Err(Error::Unknown));
}

proptest! {
    #![proptest_config(cases(24))]

    /// Friend and thief write and read without end over a network with every fault, with one key,
    /// which is taken from the friend meanwhile. No byte is the thief's, and none is written once
    /// it was taken and what was placed has landed.
    #[test]
    fn invariant_3_no_byte_of_a_thief_lands_whatever_the_network_does(
        seed: u64,
        pieces in prop::collection::vec((any::<bool>(), 0usize..3_000, 1usize..1_000), 1..40),
        taken_after in 0usize..40,
    ) {
        let mut net = Net::linked(sim(seed), 3, &config(), faulty());
        let there = for_friend(&mut net);
        let windows = [FRIEND, THIEF].map(|host| net.nic(host).map(&there.cookie).unwrap());
        let mut expected = net.bytes(OWNER, there.area);
        for (n, (is_thief, at, len)) in pieces.into_iter().enumerate() {
            let host = if is_thief { THIEF } else { FRIEND };
            if n == taken_after {
                net.flush(FRIEND, OWNER);
                net.nic(OWNER).revoke_from(there.aperture, host_id(FRIEND)).unwrap();
            }
            let bytes = noise(seed ^ n as u64, len);
            let now = net.now();
            net.nic(host).write(now, windows[host - 1], at as u64, &bytes).unwrap();
            let into: Area = net.lend(host, &[0; 8]);
            let read = net.nic(host).read(now, windows[host - 1], 0, into).unwrap();
            net.clear();
            let read = ended(&mut net, host, "the read", |event| match event {
                Event::Read { read: r, result } if *r == read => Some(*result),
                _ => None,
            });
            let may = !is_thief && n < taken_after;
            prop_assert_eq!(read.is_ok(), may, "{:?}", read);
            if may {
                expected[at..at + len].copy_from_slice(&bytes);
            }
        }
        net.run_for(Duration::from_secs(5));
        prop_assert_eq!(net.bytes(OWNER, there.area), expected);
        prop_assert!(net.is_intact_around(OWNER, there.area));
    }
}
