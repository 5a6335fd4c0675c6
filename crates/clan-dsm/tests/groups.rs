//! Groups: memory that several hosts have, each its own, and that one call writes.

use std::time::Duration;

use crate::world::{Host, Log, add_host, run_until};
use clan_dsm::{Config, Cookie, Error, Event, GroupWrite, HostId, Nic, Reason};
use landfall_placement::{Area, Engine as _, PathId, Peer};
use landfall_simnet::{EngineConfig, Handle, LinkConfig, Sim};

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

    /// Until the founder was told of at least so many such events.
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
        nic.admit(window, host(member)).unwrap();
    }
    assert_eq!(nic.admit(window, host(2)), Err(Error::Taken));
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
    nic.dismiss(window, host(3)).unwrap();
    nic.unmap(window).unwrap();
    assert_eq!(nic.admit(window, host(3)), Err(Error::Unknown));
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
    assert_eq!(nic.admit(single, host(2)), Err(Error::Forbidden));
}
