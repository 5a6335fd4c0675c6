//! The invariants of the architecture about what is refused, bounded, or over:
//! 3, 5, 7 and 8, with whole adapters on a network.

use std::time::Duration;

use crate::net::{Net, address, cases, config, ethernet, host_id, noise, sim};
use clan_dsm::wire::frame::HEADER_LEN;
use clan_dsm::{
    Access, Action, Config, Cookie, DmaRequest, Ended, EndpointId, Error, Event, Key, Nic, Notice,
    Port, Reason, Rights, WindowId,
};
use landfall_placement::crc32c as crc;
use landfall_placement::{Area, Engine, Landing, Random, Refusal, Ticket, WordFunction, WordWidth};
use landfall_simnet::Probability;
use landfall_simnet::sim::Fate;
use proptest::prelude::*;

/// Cookies of every wrong kind, for every kind of access: the memory stays, one
/// counter moves, and the one who tried is told why.
#[test]
fn invariant_3_what_a_cookie_does_not_allow_changes_one_counter_and_nothing_else() {
    let good = |net: &mut Net| {
        let there = net.expose(1, 256, Rights::ReadWrite);
        let mine = net.nic(1).cookie(there.aperture, Rights::Write).unwrap();
        (there, mine)
    };
    type Forge = fn(&Cookie) -> Cookie;
    let forgeries: [(Forge, Refusal, Reason); 4] = [
        (
            |c| {
                Cookie::new(
                    c.host(),
                    c.slot(),
                    c.rights(),
                    Key::from_bits(c.key().bits() ^ 1),
                    c.len(),
                )
            },
            Refusal::WrongKey,
            Reason::BadKey,
        ),
        (
            |c| Cookie::new(c.host(), c.slot() ^ 0x40, c.rights(), c.key(), c.len()),
            Refusal::WrongKey,
            Reason::BadKey,
        ),
        (
            |c| Cookie::new(c.host(), c.slot(), c.rights(), c.key(), 1 << 30),
            Refusal::OutOfBounds,
            Reason::OutOfBounds,
        ),
        (
            |c| Cookie::new(c.host(), c.slot(), c.rights(), c.key(), (1 << 35) - 8),
            Refusal::OutOfBounds,
            Reason::OutOfBounds,
        ),
    ];
    for (number, (forge, refusal, reason)) in forgeries.into_iter().enumerate() {
        for by_dma in [false, true] {
            let mut net = Net::linked(sim(number as u64), 2, &config(), ethernet());
            let (there, mine) = good(&mut net);
            net.memory(1).keep_journal(1000);
            let forged = forge(&mine);
            let window = net.nic(0).map(&forged).unwrap();
            let (before, all) = (net.refusals(1).of(refusal), net.refusals(1).total());
            let now = net.now();
            // From inside to outside, just outside, and at the very end.
            let at = if forged.len() > 256 { forged.len() - 8 } else { 0 };
            if by_dma {
                let endpoint = net.nic(0).open_endpoint(None).unwrap();
                let from = net.lend(0, &[7; 8]);
                let chain = [DmaRequest::Write { from, window, offset: at }];
                net.nic(0).dma(now, endpoint, &chain).unwrap();
            } else {
                net.nic(0).write(now, window, at, &[7; 8]).unwrap();
            }
            let told = net.wait_for(0, "the exception", |event| match event {
                Event::Exception { host, reason, .. } => Some((*host, *reason)),
                _ => None,
            });
            assert_eq!(told, (host_id(1), reason));
            net.flush(0, 1);
            assert_eq!(net.node(1).memory().journal().count(), 0, "forgery {number}");
            assert_eq!(net.bytes(1, there.area), [0; 256]);
            assert_eq!(net.refusals(1).of(refusal), before + 1, "forgery {number}");
            assert_eq!(net.refusals(1).total(), all + 1, "forgery {number}");
        }
    }
}

/// What the cookie itself says is not allowed, the caller hears at once.
#[test]
fn invariant_3_what_a_window_cannot_do_is_an_error_of_the_caller() {
    let mut net = Net::linked(sim(1), 2, &config(), ethernet());
    let there = net.expose(1, 256, Rights::Read);
    let window = net.nic(0).map(&there.cookie).unwrap();
    let into = net.lend(0, &[0; 16]);
    let now = net.now();
    let nic = net.nic(0);
    assert_eq!(nic.write(now, window, 0, &[1]), Err(Error::Forbidden));
    assert_eq!(nic.write_from(now, window, 0, into), Err(Error::Forbidden));
    let add = WordFunction::Add(1);
    assert_eq!(nic.change(now, window, 0, WordWidth::Eight, add), Err(Error::Forbidden));
    assert_eq!(nic.read(now, window, 250, into), Err(Error::OutOfBounds));
    assert_eq!(nic.read(now, window, u64::MAX, into), Err(Error::OutOfBounds));
    let endless = Area::new(into.region, u64::MAX, 2);
    assert_eq!(nic.read(now, window, 0, endless), Err(Error::BadMemory));
    assert!(nic.read(now, window, 240, into).is_ok());
}

/// Bits flipped in every frame: nothing is taken in, and nothing is told that did
/// not happen.
#[test]
fn invariant_3_damaged_frames_are_as_if_they_were_lost() {
    for seed in 0..20 {
        let mut net = Net::linked(sim(seed), 2, &config(), ethernet());
        let (there, window) = net.window(0, 1, 4096);
        net.memory(1).keep_journal(1000);
        let wires = net.wires.clone();
        for wire in &wires {
            let broken = ethernet().corruption(Probability::ALWAYS);
            net.sim.configure(wire.there(), broken).unwrap();
        }
        let bytes = noise(seed, 3000);
        let now = net.now();
        net.nic(0).write(now, window, 1, &bytes).unwrap();
        net.run_for(Duration::from_millis(200));
        assert_eq!(net.node(1).memory().journal().count(), 0);
        for wire in &wires {
            net.sim.configure(wire.there(), ethernet()).unwrap();
        }
        net.flush(0, 1);
        assert_eq!(net.bytes(1, there.area)[1..3001], bytes);
    }
}

/// At each bound of the configuration the call is refused, by name; what was taken
/// before goes on, and when something is over there is room again.
#[test]
fn invariant_5_at_each_bound_there_is_an_error() {
    let small = Config {
        apertures: 3,
        windows: 3,
        tripwires: 4,
        tripsets: 2,
        endpoints: 3,
        dma_requests: 4,
        reads: 3,
        operations: 3,
        writes: 3,
        write_buffer: 4096,
        ..config()
    };
    let mut net = Net::linked(sim(1), 2, &small, ethernet());
    let (there, window) = net.window(0, 1, 4096);
    let into = net.lend(0, &[0; 64]);
    let now = net.now();
    let bounded =
        |nic: &mut Nic, most: usize, call: &mut dyn FnMut(&mut Nic) -> Result<(), Error>| {
            for n in 0..100_000 {
                match call(nic) {
                    Ok(()) => assert!(n < most, "nothing says that it is enough"),
                    Err(error) => return (n, error),
                }
            }
            panic!("no bound")
        };
    let nic = net.nic(0);
    let found = bounded(nic, 4, &mut |nic| nic.expose(into).map(drop));
    assert_eq!(found, (3, Error::NoRoom));
    let found = bounded(nic, 4, &mut |nic| nic.map(&there.cookie).map(drop));
    assert_eq!(found, (2, Error::NoRoom), "one is mapped already");
    let found = bounded(nic, 4, &mut |nic| nic.open_endpoint(None).map(drop));
    assert_eq!(found, (3, Error::NoRoom));
    let found = bounded(nic, 4, &mut |nic| nic.new_tripset().map(drop));
    assert_eq!(found, (2, Error::NoRoom));
    let found = bounded(nic, 5, &mut |nic| {
        nic.watch_window(window, 0..8, Access::Write, Action::State, false).map(drop)
    });
    assert_eq!(found, (4, Error::NoRoom));
    let found = bounded(nic, 4, &mut |nic| nic.read(now, window, 0, into).map(drop));
    assert_eq!(found, (3, Error::Busy));
    let add = WordFunction::Add(1);
    let found =
        bounded(nic, 4, &mut |nic| nic.change(now, window, 0, WordWidth::Eight, add).map(drop));
    assert_eq!(found, (3, Error::Busy));
    let found = bounded(nic, 4, &mut |nic| nic.write_from(now, window, 64, into).map(drop));
    assert_eq!(found, (3, Error::Busy));
    let found = bounded(nic, 5000, &mut |nic| nic.write(now, window, 128, &[1; 100]));
    assert_eq!(found.1, Error::Busy);
    assert!(nic.room(window) < 100 + 64);
    // All of it takes place, and then there is room again.
    net.flush(0, 1);
    net.run_for(Duration::from_millis(50));
    let ends = net
        .log(0)
        .iter()
        .filter(|event| {
            matches!(
                event,
                Event::Read { result: Ok(()), .. }
                    | Event::Word { result: Ok(_), .. }
                    | Event::Written { result: Ok(()), .. }
            )
        })
        .count();
    assert_eq!(ends, 9);
    let now = net.now();
    assert!(net.nic(0).read(now, window, 0, into).is_ok());
    assert!(net.nic(0).write(now, window, 0, &[1; 1000]).is_ok());
}

/// Nobody reads the events: as many as are allowed are kept, the rest is counted in
/// its place, and what ends is told nevertheless.
#[test]
fn invariant_5_events_that_nobody_takes_are_counted_and_ends_are_kept() {
    let few = Config { events: 4, ..config() };
    let mut net = Net::quiet(sim(1), &[few.clone(), few], ethernet());
    net.link(0, 1);
    assert!(matches!(net.nic(1).poll_event(), Some(Event::LinkUp { .. })));
    let (there, window) = net.window(0, 1, 4096);
    let mut tripwires = Vec::new();
    for n in 0..10 {
        let word = 8 * n..8 * n + 8;
        let tripwire = net.nic(1).watch(there.aperture, word, Access::Write, Action::Event, false);
        tripwires.push(tripwire.unwrap());
    }
    let back = net.expose(0, 64, Rights::ReadWrite);
    let window_back = net.nic(1).map(&back.cookie).unwrap();
    let now = net.now();
    for n in 0..10 {
        net.nic(0).write_word(now, window, 8 * n, n + 1).unwrap();
    }
    net.run_for(Duration::from_millis(10));
    let into = net.lend(1, &[0; 64]);
    let now = net.now();
    let read = net.nic(1).read(now, window_back, 0, into).unwrap();
    net.run_for(Duration::from_millis(10));
    let told: Vec<Event> = std::iter::from_fn(|| net.nic(1).poll_event()).collect();
    let fired = |n: usize| Event::Tripwire { tripwire: tripwires[n] };
    let expected = [
        fired(0),
        fired(1),
        fired(2),
        fired(3),
        Event::Overflow { lost: 6 },
        Event::Read { read, result: Ok(()) },
    ];
    assert_eq!(told, expected);
    for tripwire in tripwires {
        assert!(net.nic(1).take_fired(tripwire).unwrap(), "what was behind the events is there");
    }
}

/// Names, cookies and tickets of what is over: errors or nothing, and no effect on
/// what has their place now.
#[test]
fn invariant_7_names_of_what_is_over_mean_nothing() {
    let mut net = Net::linked(sim(1), 2, &config(), ethernet());
    let (old, window) = net.window(0, 1, 256);
    let tripwire =
        net.nic(1).watch(old.aperture, 0..8, Access::Write, Action::Event, false).unwrap();
    let endpoint = net.nic(0).open_endpoint(Some(Port(5))).unwrap();
    let set = net.nic(0).new_tripset().unwrap();
    let now = net.now();
    net.nic(1).revoke(old.aperture).unwrap();
    net.nic(0).close_endpoint(now, endpoint).unwrap();
    net.nic(0).remove_tripset(set).unwrap();
    // Others have their places now.
    let new = net.expose(1, 256, Rights::ReadWrite);
    let next = net.nic(0).open_endpoint(Some(Port(5))).unwrap();
    assert_eq!(new.aperture.index(), old.aperture.index());
    assert_eq!(next.index(), endpoint.index());
    net.nic(0).write(now, window, 0, &[9; 64]).unwrap();
    let reason = net.wait_for(0, "the exception", |event| match event {
        Event::Exception { window: w, reason, .. } => Some((*w, *reason)),
        _ => None,
    });
    assert_eq!(reason, (Some(window), Reason::BadKey));
    assert_eq!(net.bytes(1, new.area), [0; 256]);
    assert_eq!(net.bytes(1, old.area), [0; 256]);
    let nic = net.nic(1);
    assert_eq!(nic.revoke(old.aperture), Err(Error::Unknown));
    assert_eq!(nic.cookie(old.aperture, Rights::Read), Err(Error::Unknown));
    assert_eq!(nic.area(old.aperture), None);
    assert_eq!(nic.take_fired(tripwire), Err(Error::Unknown));
    assert_eq!(nic.enable_tripwire(tripwire), Err(Error::Unknown));
    let nic = net.nic(0);
    nic.unmap(window).unwrap();
    assert_eq!(nic.write(now, window, 0, &[9]), Err(Error::Unknown));
    assert_eq!(nic.send_to(endpoint, address(1, Port(1)), [0; 40]), Err(Error::Unknown));
    let word = DmaRequest::Word { window, offset: 0, value: 1 };
    assert_eq!(nic.dma(now, endpoint, &[word]), Err(Error::Unknown));
    assert_eq!(nic.close_endpoint(now, endpoint), Err(Error::Unknown));
    assert_eq!(nic.poll_tripset(set), Err(Error::Unknown));
    assert_eq!(nic.poll_notice(endpoint), None);
    assert_eq!(net.refusals(1).of(Refusal::WrongKey), 1);
}

/// Tickets that belong to nothing, timers that are over: nothing changes, in no
/// order.
#[test]
fn invariant_7_tickets_that_belong_to_nothing_change_nothing() {
    let mut net = Net::linked(sim(1), 2, &config(), ethernet());
    let (there, window) = net.window(0, 1, 4096);
    let mut random = Random::from_number(4);
    for round in 0..50 {
        let bytes = noise(round, 500);
        let now = net.now();
        net.nic(0).write(now, window, 8 * round, &bytes).unwrap();
        for host in [0, 1] {
            for _ in 0..20 {
                let ticket = Ticket::new(random.next_u32(), random.next_u32());
                let landing = match random.below(4) {
                    0 => Landing::Verified,
                    1 => Landing::Old(random.next_u64()),
                    2 => Landing::Unchecked,
                    _ => Landing::Failed,
                };
                let nic = net.nic(host);
                nic.handle_placed(now, ticket, landing);
                nic.handle_sent(now, ticket);
                nic.handle_timeout(now);
            }
        }
        net.flush(0, 1);
        let at = 8 * round as usize;
        assert_eq!(net.bytes(1, there.area)[at..at + 500], bytes);
    }
    assert_eq!(
        net.log(0).iter().filter(|event| matches!(event, Event::LinkDown { .. })).count(),
        0
    );
}

/// A host that is killed and started again: its cookies of before are worth
/// nothing, and the others are told that all of theirs is over.
#[test]
fn invariant_7_cookies_of_an_earlier_life_open_nothing() {
    let mut net = Net::linked(sim(1), 2, &config(), ethernet());
    let (old, window) = net.window(0, 1, 256);
    net.restart(1);
    let new = net.expose(1, 256, Rights::ReadWrite);
    assert_eq!(new.aperture.index(), old.aperture.index());
    let link = net.nic(0).link_to(host_id(1)).unwrap();
    let now = net.now();
    net.nic(0).write(now, window, 0, &[7; 64]).unwrap();
    let (down, why) = net.wait_for(0, "the end of the link", |event| match event {
        Event::LinkDown { link, why } => Some((*link, *why)),
        _ => None,
    });
    assert_eq!(down, link);
    assert!(matches!(why, Ended::Restarted | Ended::Silent | Ended::LinkGone), "{why:?}");
    let now = net.now();
    assert_eq!(net.nic(0).write(now, window, 0, &[7; 64]), Err(Error::NoLink));
    net.link(0, 1);
    let now = net.now();
    net.nic(0).write(now, window, 0, &[7; 64]).unwrap();
    net.wait_for(0, "the exception", |event| match event {
        Event::Exception { reason: Reason::BadKey, .. } => Some(()),
        _ => None,
    });
    assert_eq!(net.bytes(1, new.area), [0; 256]);
}

/// Somebody on the way changes frames as he likes, and makes their checks right
/// again: header, table, payload, length.
fn meddle(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        // Mostly in header and table, where it matters.
        let most = if random.chance(800_000) { bytes.len().min(96) } else { bytes.len() };
        if most > 0 {
            bytes[random.below(most as u64) as usize] = random.next_u32() as u8;
        }
    }
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend((0..random.below(200)).map(|n| n as u8)),
        _ => {}
    }
    if bytes.len() >= HEADER_LEN {
        let kind = bytes[2] & 0xf;
        let table = HEADER_LEN + 18 * usize::from(bytes[31]);
        let body = usize::from(u16::from_be_bytes([bytes[32], bytes[33]]));
        let covered = if kind == 0 { table } else { table + body };
        let covered = covered.min(bytes.len());
        let sum = crc::extend(crc::crc32c(&bytes[..34]), &bytes[HEADER_LEN..covered]);
        bytes[34..38].copy_from_slice(&sum.to_be_bytes());
    }
}

/// What the random calls of a host are about.
#[derive(Default)]
struct Names {
    windows: Vec<WindowId>,
    endpoints: Vec<EndpointId>,
    areas: Vec<Area>,
}

fn pick<T: Copy>(list: &[T], n: u64) -> T {
    list[n as usize % list.len()]
}

/// One call with arguments that may make sense or not.
fn call(net: &mut Net, host: usize, names: &Names, [what, a, b]: [u64; 3]) -> Result<(), Error> {
    let (window, endpoint) = (pick(&names.windows, a), pick(&names.endpoints, b));
    let area = pick(&names.areas, a ^ b);
    let now = net.now();
    let (at, len) = (b % 5_000, a as usize % 300);
    let to = address(b as usize % 3, Port(a as u32 % 4));
    let nic = net.nic(host);
    match what {
        0 => nic.write(now, window, at, &vec![b as u8; len]),
        1 => nic.write_from(now, window, at, area).map(drop),
        2 => nic.read(now, window, at, area).map(drop),
        3 => {
            let add = WordFunction::Add(a);
            nic.change(now, window, at / 8 * 8, WordWidth::Eight, add).map(drop)
        }
        4 => {
            let chain = [
                DmaRequest::Write { from: area, window, offset: at },
                DmaRequest::Read { window, offset: at, into: area },
                DmaRequest::Word { window, offset: at / 8 * 8, value: a },
            ];
            nic.dma(now, endpoint, &chain[..1 + a as usize % 3]).map(drop)
        }
        5 => nic.send_to(endpoint, to, [1; 40]),
        6 => nic.connect(endpoint, to, [2; 40]),
        7 => nic.send(endpoint, [3; 40]),
        8 => nic.disconnect(endpoint, [4; 40]),
        9 => nic.abort(now, endpoint),
        10 => nic.listen(endpoint),
        11 => match nic.poll_notice(endpoint) {
            Some(Notice::Request(request)) => {
                nic.accept(pick(&names.endpoints, a), &request, [5; 40])
            }
            _ => Ok(()),
        },
        12 => nic.cancel_dma(now, endpoint),
        13 => {
            let link = nic.link_to(host_id(b as usize % 3)).ok_or(Error::NoLink)?;
            nic.hold(link, a % 3 == 0)?;
            nic.barrier(now, link).map(drop)
        }
        _ => {
            net.run_for(Duration::from_micros(a % 500));
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(cases(24))]

    /// Any calls, while somebody on the way changes every tenth frame and makes its
    /// checks right again: nobody panics, no driver is led outside of what was lent
    /// (that would end the run), and memory that nobody was given stays as it is.
    #[test]
    fn invariant_8_no_calls_and_no_frames_panic(
        seed: u64,
        calls in prop::collection::vec((0usize..3, [0u64..16, 0..100_000, 0..100_000]), 1..150),
    ) {
        let mut net = Net::linked(sim(seed), 3, &Config::default(), ethernet());
        let mut all: Vec<Names> = Vec::new();
        for host in 0..3 {
            let mut names = Names::default();
            for to in (0..3).filter(|to| *to != host) {
                let (_, window) = net.window(host, to, 4096);
                names.windows.push(window);
            }
            for port in 0..3 {
                names.endpoints.push(net.nic(host).open_endpoint(Some(Port(port))).unwrap());
            }
            names.areas = (0..3).map(|n| net.lend(host, &vec![1; 100 + 900 * n])).collect();
            all.push(names);
        }
        let secrets: Vec<Area> = (0..3).map(|host| net.lend(host, &[0x5e; 500])).collect();
        for wire in net.wires.clone() {
            let mut random = Random::from_number(seed);
            net.sim.intercept(wire.there(), move |_, frame| {
                if random.chance(100_000) {
                    meddle(&mut frame.bytes, &mut random);
                }
                Fate::Pass
            }).unwrap();
        }
        for (host, call_of) in calls {
            // Whether it is taken or refused: it is said.
            let _ = call(&mut net, host, &all[host], call_of);
        }
        net.run_for(Duration::from_secs(2));
        for (host, secret) in secrets.into_iter().enumerate() {
            prop_assert_eq!(net.bytes(host, secret), [0x5e; 500]);
            prop_assert!(net.is_intact_around(host, secret));
        }
    }

    /// Bytes that nobody sent, from anybody: refused by name, one counter each, or
    /// taken note of, and never more.
    #[test]
    fn invariant_8_no_bytes_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..40),
        seed: u64,
    ) {
        let mut net = Net::linked(sim(seed), 2, &config(), ethernet());
        let (there, window) = net.window(0, 1, 4096);
        let mut random = Random::from_number(seed);
        for mut bytes in frames {
            if random.chance(500_000) && bytes.len() >= HEADER_LEN {
                bytes[..2].copy_from_slice(b"CL");
                bytes[2] = 0x10 | (bytes[2] % 5);
                meddle(&mut bytes, &mut random);
            }
            net.inject(0, 1, bytes);
        }
        net.run_for(Duration::from_millis(1));
        prop_assert_eq!(net.bytes(1, there.area), vec![0; 4096]);
        let now = net.now();
        net.nic(0).write(now, window, 9, &[7; 100]).unwrap();
        net.flush(0, 1);
        prop_assert_eq!(&net.bytes(1, there.area)[9..109], &[7; 100]);
    }
}
