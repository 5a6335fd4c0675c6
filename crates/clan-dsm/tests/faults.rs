//! Networks that lose, repeat, mix up and damage frames.
//!
//! Groups: memory that several hosts have, each its own, and that one call writes.

use std::ops::ControlFlow;
use std::time::Duration;

use clan_dsm::{
    Access, Action, Config, Cookie, DmaRequest, Error, Event, GroupWrite, HostId, Nic, Reason,
};
use landfall_placement::{Area, Engine as _, PathId, Peer, Random, WordFunction, WordWidth};
use landfall_simnet::{EngineConfig, Handle, LinkConfig, Loss, Probability, Sim, check};

use crate::world::{Host, Log, Pair, add_host, noise, run_until};

fn bad_wire() -> LinkConfig {
    LinkConfig::ethernet(1_000_000_000)
        .delay(Duration::from_micros(50))
        .loss(Loss::Uniform(Probability::percent(5)))
        .duplication(Probability::percent(5))
        .reordering(Probability::percent(10), Duration::from_micros(200))
        .corruption(Probability::percent(3))
}

fn bad(sim: &mut Sim) -> Pair {
    let sim = std::mem::replace(sim, Sim::from_number(0));
    Pair::new(sim, Config::default().with_checksum(), bad_wire())
}

#[test]
fn writes_of_all_kinds_arrive_whatever_happens_to_frames() {
    check(1..=20, |sim| {
        let mut pair = bad(sim);
        let (area, aperture, window) = pair.window(1 << 18);
        let trip = pair
            .nic(1)
            .watch(aperture, 0..1 << 18, Access::Write, Action::Count(0), false)
            .unwrap();
        let endpoint = pair.nic(0).open_endpoint(None).unwrap();
        let mut wanted = vec![0; 1 << 18];
        let mut random = Random::from_number(5);
        for n in 0..60 {
            let len = 1 + random.below(if n % 3 == 0 { 3000 } else { 40 }) as usize;
            // The chains and the program's writes are in no order: each has its half.
            let half = if n % 3 == 0 { 1 << 17 } else { 0 };
            let at = half + random.below((1 << 17) - 3000) as usize;
            let bytes = noise(n, len);
            wanted[at..at + len].copy_from_slice(&bytes);
            let now = pair.now();
            if n % 3 == 0 {
                let from = pair.lend(0, &bytes);
                let chain = [DmaRequest::Write { from, window, offset: at as u64 }];
                pair.nic(0).dma(now, endpoint, &chain).unwrap();
            } else {
                pair.nic(0).write(now, window, at as u64, &bytes).unwrap();
            }
            if n % 5 == 0 {
                pair.run_for(Duration::from_micros(300));
            }
        }
        pair.flush();
        assert!(pair.bytes(1, area) == wanted, "not what was written");
        assert!(pair.nic(1).firings(trip).unwrap() > 60);
        *sim = pair.sim;
    });
}

#[test]
fn the_flag_is_never_before_its_data() {
    check(1..=20, |sim| {
        let mut pair = bad(sim);
        let (area, _, window) = pair.window(4096);
        let host = pair.hosts[1];
        for n in 1..=200_u64 {
            let now = pair.now();
            // Far apart, so that they are packets of their own.
            pair.nic(0).write_word(now, window, 0, n).unwrap();
            pair.nic(0).write_word(now, window, 2048, n).unwrap();
            let end = now + Duration::from_micros(20 * (n % 7));
            pair.sim
                .run_until_with(end, |sim| {
                    let memory = sim.node(host).unwrap().memory();
                    let word = |at| {
                        let bytes = memory.read(area.span(at, 8)).unwrap();
                        u64::from_le_bytes(bytes.try_into().unwrap())
                    };
                    assert!(word(0) >= word(2048), "{} {}", word(0), word(2048));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        pair.flush();
        assert_eq!(pair.bytes(1, area)[2048..2056], 200_u64.to_le_bytes());
        *sim = pair.sim;
    });
}

#[test]
fn operations_take_effect_exactly_once() {
    check(1..=20, |sim| {
        let mut pair = bad(sim);
        let (area, _, window) = pair.window(64);
        for n in 0..100_u64 {
            let now = pair.now();
            let add = WordFunction::Add(1);
            pair.nic(0).change(now, window, 0, WordWidth::Eight, add).unwrap();
            pair.nic(0).write_word(now, window, 8, n).unwrap();
        }
        pair.run_until("all answers", |a, _| {
            a.iter().filter(|e| matches!(e, Event::Word { result: Ok(_), .. })).count() == 100
        });
        assert_eq!(pair.bytes(1, area)[..8], 100_u64.to_le_bytes());
        let answers: Vec<u64> = pair.logs[0]
            .borrow()
            .iter()
            .filter_map(|e| match e {
                Event::Word { result: Ok(old), .. } => Some(*old),
                _ => None,
            })
            .collect();
        assert_eq!(answers, (0..100).collect::<Vec<_>>());
        *sim = pair.sim;
    });
}

#[test]
fn reads_are_whole_whatever_happens_to_frames() {
    check(1..=10, |sim| {
        let mut pair = bad(sim);
        let (_, _, window) = pair.window(30_000);
        let data = noise(1, 30_000);
        let (from, into) = (pair.lend(0, &data), pair.lend(0, &[0; 29_990]));
        let now = pair.now();
        pair.nic(0).write_from(now, window, 0, from).unwrap();
        let read = pair.nic(0).read(now, window, 10, into).unwrap();
        pair.run_until("the read", |a, _| a.contains(&Event::Read { read, result: Ok(()) }));
        assert_eq!(pair.bytes(0, into), data[10..]);
        *sim = pair.sim;
    });
}

#[test]
fn invariant_6_two_runs_are_the_same() {
    let run = || {
        let sim = Sim::from_number(99);
        let configs = [Config::default(), Config::default()];
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let mut pair =
            Pair::with(sim, configs, how, bad_wire().corruption(Probability::percent(0)));
        pair.sim.capture_all(landfall_simnet::Encapsulation::User(0));
        let (_, aperture, window) = pair.window(10_000);
        pair.nic(1).watch(aperture, 0..10_000, Access::Both, Action::Event, false).unwrap();
        for n in 0..50 {
            let now = pair.now();
            pair.nic(0).write(now, window, n * 190, &noise(n, 100)).unwrap();
            pair.run_for(Duration::from_micros(30));
        }
        pair.flush();
        let log = format!("{:?}", pair.logs);
        (pair.sim.captured().to_vec(), log)
    };
    let (first, second) = (run(), run());
    assert!(first.0 == second.0, "the same bytes");
    assert_eq!(first.1, second.1);
}

/// Host 1, the founder, with links to hosts 2 and 3.
struct Star {
    sim: Sim,
    hosts: Vec<(Handle<Host>, Log)>,
}

fn host(number: u16) -> HostId {
    HostId::new(number).unwrap()
}

impl Star {
    fn new(seed: u64) -> Self {
        let mut sim = Sim::from_number(seed);
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let hosts: Vec<_> =
            (1..=3).map(|n| add_host(&mut sim, n, Config::default(), how)).collect();
        let mut star = Self { sim, hosts };
        for n in [1, 2] {
            let (founder, member) = (star.hosts[0].0.id(), star.hosts[n].0.id());
            star.sim.connect(founder, member, LinkConfig::ethernet(1_000_000_000)).unwrap();
            let (now, peer) = (star.sim.now(), Peer::Node(member.0));
            star.nic(0).open_link(now, PathId(n as u16 - 1), peer).unwrap();
        }
        star.wait_for("both links", 2, |event| matches!(event, Event::LinkUp { .. }));
        star
    }

    fn nic(&mut self, nth: usize) -> &mut Nic {
        self.sim.node_mut(self.hosts[nth].0).unwrap().engine_mut()
    }

    fn lend(&mut self, nth: usize, bytes: Vec<u8>) -> Area {
        let len = bytes.len() as u64;
        let memory = self.sim.node_mut(self.hosts[nth].0).unwrap().memory_mut();
        Area::new(memory.lend(bytes).unwrap(), 0, len)
    }

    /// Memory that a host joins with, for what this sender writes, or any.
    fn join(&mut self, nth: usize, group: &Cookie, sender: Option<HostId>) -> Area {
        let area = self.lend(nth, vec![0; 1024]);
        let nic = self.nic(nth);
        let aperture = nic.expose(area).unwrap();
        match sender {
            Some(sender) => nic.join_group_of(sender, group, aperture).unwrap(),
            None => nic.join_group(group, aperture).unwrap(),
        }
        area
    }

    fn bytes(&self, nth: usize, area: Area, at: u64, len: u32) -> &[u8] {
        let node = self.sim.node(self.hosts[nth].0).unwrap();
        node.memory().read(area.span(at, len)).unwrap()
    }

    /// Until the founder was told of at least this many such events.
    fn wait_for(&mut self, what: &str, count: usize, is_one: impl Fn(&Event) -> bool) {
        let log = self.hosts[0].1.clone();
        let is_done = || log.borrow().iter().filter(|event| is_one(event)).count() >= count;
        run_until(&mut self.sim, Duration::from_secs(5), what, is_done);
    }
}

#[test]
fn a_group_is_written_at_once() {
    let mut star = Star::new(6);
    let cookie = star.nic(0).found_group(host(0xf00), 3, 1024).unwrap();
    let areas = [1, 2].map(|nth| star.join(nth, &cookie, None));
    let now = star.sim.now();
    let nic = star.nic(0);
    let window = nic.map_group(&cookie, &[host(2), host(3)]).unwrap();
    nic.write(now, window, 100, b"to all of you").unwrap();
    assert_eq!(nic.read(now, window, 0, areas[0]), Err(Error::Forbidden));
    star.sim.run_until(now + Duration::from_secs(1)).unwrap();
    for (nth, area) in [1, 2].into_iter().zip(areas) {
        assert_eq!(star.bytes(nth, area, 100, 13), b"to all of you");
        assert_eq!(star.nic(nth).refusals().total(), 0);
    }
}

#[test]
fn a_publication_goes_to_each_member_that_can_take_it() {
    let mut star = Star::new(7);
    let body = star.lend(0, vec![9; 500]);
    let cookie = star.nic(0).found_group(host(1), 0, 1024).unwrap();
    // The third takes it from nobody but the second.
    let takes = star.join(1, &cookie, Some(host(1)));
    let refuses = star.join(2, &cookie, Some(host(2)));
    let now = star.sim.now();
    let nic = star.nic(0);
    let window = nic.map_group(&cookie, &[]).unwrap();
    for member in 2..5 {
        nic.add_member(window, host(member)).unwrap();
    }
    assert_eq!(nic.add_member(window, host(2)), Err(Error::Taken));
    let long = GroupWrite::Memory { offset: 64, from: body };
    let writes = [long, GroupWrite::Bytes { offset: 3, bytes: b"to all" }];
    let mut told = Vec::new();
    nic.publish(now, window, &writes, &mut |host, result| told.push((host, result))).unwrap();
    assert!(matches!(told[..2], [(_, Ok(Some(_))), (_, Ok(Some(_)))]), "{told:?}");
    assert_eq!(told[2..], [(host(4), Err(Error::NoLink))]);

    star.wait_for("the end of both", 2, |e| matches!(e, Event::Written { result: Ok(()), .. }));
    assert_eq!(star.bytes(1, takes, 64, 500), [9; 500]);
    assert_eq!(star.bytes(1, takes, 3, 6), b"to all");
    assert!(star.bytes(2, refuses, 0, 1024).iter().all(|byte| *byte == 0));
    // The founder hears who refused what it wrote through which window, and why.
    star.wait_for("its refusal", 1, |e| {
        matches!(e, Event::Exception { window: Some(of), host: by, reason: Reason::Forbidden, .. }
            if (*of, *by) == (window, host(3)))
    });
    let nic = star.nic(0);
    nic.remove_member(window, host(3)).unwrap();
    nic.unmap(window).unwrap();
    assert_eq!(nic.add_member(window, host(3)), Err(Error::Unknown));
}

#[test]
fn what_nobody_can_take_is_told_at_once() {
    let mut star = Star::new(8);
    let body = star.lend(0, vec![9; 500]);
    let cookie = star.nic(0).found_group(host(1), 0, 1024).unwrap();
    let now = star.sim.now();
    let nic = star.nic(0);
    let group = nic.map_group(&cookie, &[host(2), host(3)]).unwrap();
    let single = nic.map(&cookie).unwrap();
    let mut publish = |window, writes: &[GroupWrite<'_>]| {
        let told = &mut |host: HostId, _: Result<_, _>| panic!("{host} was told");
        nic.publish(now, window, writes, told)
    };
    let bytes = |offset, bytes| GroupWrite::Bytes { offset, bytes };
    let memory = |offset, from| GroupWrite::Memory { offset, from };
    assert_eq!(publish(single, &[bytes(0, &[1])]), Err(Error::Forbidden), "that is no group");
    assert_eq!(publish(group, &[bytes(0, &[1]), memory(525, body)]), Err(Error::OutOfBounds));
    assert_eq!(publish(group, &[bytes(u64::MAX, &[1; 2])]), Err(Error::OutOfBounds));
    assert_eq!(publish(group, &[memory(0, Area { len: 0, ..body })]), Err(Error::BadMemory));
    assert_eq!(publish(group, &[bytes(0, &[0; 1024]); 100]), Err(Error::TooLong));
    assert_eq!(nic.add_member(single, host(2)), Err(Error::Forbidden));
}
