//! A client beside a naive server that may be silent, slow, or wrong.

use std::vec::Vec;

use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OFFERED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);

struct Net {
    client: Dhcp,
    random: Random,
    now: Instant,
    /// All steps so far that were not sending.
    done: Vec<DhcpStep>,
    /// What was said, when, and to whom.
    said: Vec<(u64, Question, Option<Ipv4Addr>)>,
    lease: u32,
}

impl Net {
    fn new(seed: u64, lease: u32) -> Self {
        let (mut random, now) = (Random::from_number(seed), Instant::from_millis(500));
        let mut client = Dhcp::new(MAC, String::from("host"));
        client.restart(now, &mut random);
        Self { client, random, now, done: Vec::new(), said: Vec::new(), lease }
    }

    fn reply(&self, kind: Kind) -> Reply {
        Reply {
            kind,
            xid: self.client.xid,
            station: MAC,
            yours: OFFERED,
            server: Some(SERVER),
            prefix_len: Some(24),
            router: Some(SERVER),
            mtu: Some(1_400),
            lease: Some(self.lease),
            renewal: None,
            rebinding: None,
        }
    }

    fn hear(&mut self, reply: &Reply) {
        self.client.handle_reply(self.now, &mut self.random, reply);
    }

    /// Steps up to this moment; what is said is answered as the server likes.
    fn run(&mut self, seconds: u64, mut answer: impl FnMut(&mut Self, &Question)) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            while let Some(step) = self.client.poll_step(self.now, &mut self.random) {
                match step {
                    DhcpStep::Send(said, to) => {
                        self.said.push((self.now.as_nanos() / 1_000_000_000, said, to));
                        answer(self, &said);
                    }
                    step => self.done.push(step),
                }
            }
            match self.client.poll_timeout() {
                Some(at) if at <= end => self.now = at.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    fn serve(&mut self, said: &Question) {
        match said.kind {
            Kind::Discover => self.hear(&self.reply(Kind::Offer)),
            Kind::Request => self.hear(&self.reply(Kind::Ack)),
            _ => {}
        }
    }

    /// Has the address, which nobody else has.
    fn bound(seed: u64, lease: u32) -> Self {
        let mut net = Self::new(seed, lease);
        net.run(2, Self::serve);
        assert_eq!(std::mem::take(&mut net.done), [DhcpStep::Check(OFFERED)]);
        assert!(net.client.handle_checked(net.now, OFFERED, true));
        net.run(0, Self::serve);
        assert!(matches!(net.done[..], [DhcpStep::Use(Lease { address: OFFERED, .. })]));
        net.done.clear();
        net.said.clear();
        net
    }

    fn kinds(&self) -> Vec<Kind> {
        self.said.iter().map(|(_, said, _)| said.kind).collect()
    }
}

#[test]
fn an_address_is_asked_for_looked_at_and_used() {
    let mut net = Net::new(1, 1_000);
    net.run(2, Net::serve);
    assert_eq!(net.kinds(), [Kind::Discover, Kind::Request]);
    let (_, request, to) = net.said[1];
    assert_eq!((request.wants, request.server, to), (Some(OFFERED), Some(SERVER), None));
    assert_eq!(request.has, None);
    assert!(!net.client.handle_checked(net.now, SERVER, true), "nobody asked for that");
    assert!(net.client.handle_checked(net.now, OFFERED, true));
    net.run(0, Net::serve);
    let DhcpStep::Use(lease) = net.done[1] else { panic!("{:?}", net.done) };
    assert_eq!((lease.prefix_len, lease.router, lease.mtu), (24, Some(SERVER), Some(1_400)));
    let [renewal, rebinding, end] = lease.times.unwrap();
    assert_eq!((end.since(renewal).as_secs(), end.since(rebinding).as_secs()), (500, 125));
}

#[test]
fn questions_are_repeated_ever_more_slowly_until_somebody_answers() {
    let mut net = Net::new(2, 1_000);
    net.run(300, |_, _| {});
    assert!(net.kinds().iter().all(|kind| *kind == Kind::Discover));
    let at: Vec<u64> = net.said.iter().map(|(at, ..)| *at).collect();
    let pauses: Vec<u64> = at.windows(2).map(|two| two[1] - two[0]).collect();
    for (pause, want) in pauses.iter().zip([4, 8, 16, 32, 64, 64, 64]) {
        assert!(pause.abs_diff(want) <= 2, "{pauses:?}");
    }
    net.run(70, Net::serve);
    assert_eq!(net.done, [DhcpStep::Check(OFFERED)]);
}

#[test]
fn an_offer_that_nobody_confirms_is_forgotten() {
    let mut net = Net::new(3, 1_000);
    net.run(100, |net, said| {
        if said.kind == Kind::Discover {
            net.hear(&net.reply(Kind::Offer));
        }
    });
    let kinds = net.kinds();
    assert_eq!(
        kinds[..6],
        [
            Kind::Discover,
            Kind::Request,
            Kind::Request,
            Kind::Request,
            Kind::Request,
            Kind::Discover
        ]
    );
}

#[test]
fn losses_and_duplicates_only_cost_time() {
    for seed in 0..200 {
        let mut net = Net::new(seed, 1_000);
        let mut chance = Random::from_number(seed);
        net.run(3_000, |net, said| {
            let kind = if said.kind == Kind::Discover { Kind::Offer } else { Kind::Ack };
            for _ in 0..chance.below(3) {
                net.hear(&net.reply(kind));
                // Of another server, of another question, to another station.
                let reply = net.reply(kind);
                net.hear(&Reply { xid: !reply.xid, ..reply });
                net.hear(&Reply { station: [9; 6], ..reply });
            }
            if let State::Checking(lease) = net.client.state {
                net.client.handle_checked(net.now, lease.address, true);
            }
        });
        let lease = net.client.lease().map(|lease| (lease.address, lease.prefix_len));
        assert_eq!(lease, Some((OFFERED, 24)), "seed {seed}: {:?}", net.client.state);
    }
}

#[test]
fn a_lease_is_renewed_with_its_server_then_with_any_and_then_it_is_over() {
    let mut net = Net::bound(4, 1_000);
    net.run(480, |_, _| {});
    assert!(net.said.is_empty());
    net.run(1_000, |net, said| {
        if said.kind == Kind::Request {
            assert_eq!((said.has, said.wants, said.server), (Some(OFFERED), None, None));
            assert!(net.client.lease().is_some());
        }
    });
    let to_server: Vec<bool> = net.said.iter().map(|(_, _, to)| to.is_some()).collect();
    let first = to_server.iter().take_while(|to| **to).count();
    assert!(first >= 3 && to_server[first..].iter().all(|to| !to), "{to_server:?}");
    assert_eq!(net.done, [DhcpStep::Drop(OFFERED)]);
    assert_eq!(net.kinds().last(), Some(&Kind::Discover), "it begins anew");
}

#[test]
fn who_renews_keeps_the_address() {
    let mut net = Net::bound(5, 1_000);
    net.run(10_000, Net::serve);
    assert!(net.said.len() >= 19 && net.said.iter().all(|(_, _, to)| *to == Some(SERVER)));
    assert!(net.done.iter().all(|step| matches!(step, DhcpStep::Use(_))));
    let mut forever = Net::bound(6, u32::MAX);
    forever.run(1_000_000, |_, _| {});
    assert!(forever.said.is_empty() && forever.done.is_empty());
}

#[test]
fn another_address_takes_the_place_of_the_first() {
    let mut net = Net::bound(7, 1_000);
    let other = Ipv4Addr::new(192, 0, 2, 60);
    net.run(600, |net, _| {
        let reply = net.reply(Kind::Ack);
        net.hear(&Reply { yours: other, ..reply });
    });
    assert_eq!(net.done, [DhcpStep::Drop(OFFERED), DhcpStep::Check(other)]);
}

#[test]
fn a_refusal_ends_a_lease_and_begins_anew() {
    let mut net = Net::bound(8, 1_000);
    net.run(500, |net, said| match said.kind {
        Kind::Request if net.client.lease().is_some() => net.hear(&net.reply(Kind::Nak)),
        _ => {}
    });
    assert_eq!(net.done, [DhcpStep::Drop(OFFERED)]);
    assert_eq!(net.kinds(), [Kind::Request, Kind::Discover]);
    // Another server's refusal is none of ours.
    let mut net = Net::bound(9, 1_000);
    net.run(500, |net, _| {
        let reply = net.reply(Kind::Nak);
        net.hear(&Reply { server: Some(OFFERED), ..reply });
    });
    assert!(net.done.is_empty());
}

#[test]
fn an_address_that_another_has_is_declined_and_asked_for_later() {
    let mut net = Net::new(10, 1_000);
    net.run(2, Net::serve);
    assert!(net.client.handle_checked(net.now, OFFERED, false));
    net.said.clear();
    net.run(9, |_, _| {});
    let (_, said, to) = net.said[0];
    assert_eq!(
        (said.kind, said.wants, said.server, to),
        (Kind::Decline, Some(OFFERED), Some(SERVER), None)
    );
    assert_eq!(net.said.len(), 1);
    net.run(2, |_, _| {});
    assert_eq!(net.kinds(), [Kind::Decline, Kind::Discover]);
    // The same later, while it is used.
    let mut net = Net::bound(11, 1_000);
    net.client.handle_lost(net.now, OFFERED);
    net.run(1, |_, _| {});
    assert_eq!(
        (net.done.clone(), net.kinds()),
        ([DhcpStep::Drop(OFFERED)].into(), [Kind::Decline].into())
    );
}

#[test]
fn what_a_server_may_not_say_is_passed_over() {
    let refuse = |change: &dyn Fn(&mut Reply), kind: Kind| {
        let mut net = Net::new(12, 1_000);
        net.run(3, |net, said| {
            let of = if said.kind == Kind::Discover { Kind::Offer } else { Kind::Ack };
            let mut reply = net.reply(of);
            if of == kind {
                change(&mut reply);
            }
            net.hear(&reply);
        });
        assert!(net.done.is_empty(), "{:?}", net.done);
    };
    refuse(&|reply| reply.server = None, Kind::Offer);
    refuse(&|reply| reply.yours = Ipv4Addr::UNSPECIFIED, Kind::Offer);
    refuse(&|reply| reply.yours = Ipv4Addr::BROADCAST, Kind::Ack);
    refuse(&|reply| reply.lease = None, Kind::Ack);
    refuse(&|reply| reply.lease = Some(0), Kind::Ack);
    refuse(&|reply| reply.server = Some(OFFERED), Kind::Ack);
    refuse(&|reply| reply.kind = Kind::Discover, Kind::Offer);
    // Times that contradict each other are ours, not the server's.
    let mut net = Net::new(13, 800);
    net.run(3, |net, said| {
        let kind = if said.kind == Kind::Discover { Kind::Offer } else { Kind::Ack };
        let reply = net.reply(kind);
        net.hear(&Reply { renewal: Some(900), rebinding: Some(1_000), ..reply });
    });
    let State::Checking(lease) = net.client.state else { panic!("{:?}", net.client.state) };
    let [renewal, rebinding, end] = lease.times.unwrap();
    assert_eq!((end.since(renewal).as_secs(), end.since(rebinding).as_secs()), (400, 100));
}

#[test]
fn a_link_that_comes_up_again_may_be_another_one() {
    let mut net = Net::bound(14, 1_000);
    let mut random = Random::from_number(1);
    net.client.restart(net.now, &mut random);
    net.run(2, |_, _| {});
    assert_eq!(
        (net.done.clone(), net.kinds()),
        ([DhcpStep::Drop(OFFERED)].into(), [Kind::Discover].into())
    );
}
