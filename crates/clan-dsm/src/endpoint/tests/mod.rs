//! Endpoints of several hosts that talk to each other over plain queues.
//!
//! Single rules, each shown once.

use alloc::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

mod world;

/// How many notices wait at an endpoint of these tests.
const MESSAGES: usize = 3;
/// How many endpoints a host of these tests has.
const LIMIT: usize = 5;

/// Hosts, and what is on the way between each two of them.
struct Net {
    hosts: Vec<Endpoints>,
    on_the_way: Vec<Vec<VecDeque<OutOfBand>>>,
    told: Vec<Vec<EndpointId>>,
    overruns: Vec<u32>,
}

fn host(index: usize) -> HostId {
    HostId::new(index as u16).unwrap()
}

fn address(index: usize, port: u32) -> PortAddress {
    PortAddress { host: host(index), port: Port(port) }
}

fn body(n: u32) -> Body {
    let mut body = [0; 40];
    body[..4].copy_from_slice(&n.to_be_bytes());
    body
}

impl Net {
    fn new(hosts: usize) -> Self {
        let first =
            |n: usize| Endpoints::new(LIMIT, MESSAGES, HashSecret::new(1, 2), (n as u64) << 32);
        Self {
            hosts: (0..hosts).map(first).collect(),
            on_the_way: (0..hosts).map(|_| (0..hosts).map(|_| VecDeque::new()).collect()).collect(),
            told: (0..hosts).map(|_| Vec::new()).collect(),
            overruns: std::vec![0; hosts],
        }
    }

    /// Puts on the way what a user asked for.
    fn send(&mut self, from: usize, outgoing: Outgoing) {
        let to = usize::from(outgoing.host.number());
        self.on_the_way[from][to].push_back(outgoing.message);
    }

    /// One message arrives, if one is on the way.
    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(message) = self.on_the_way[from][to].pop_front() else { return false };
        let told = &mut self.told[to];
        let mut tell = |id| told.push(id);
        let lost = self.hosts[to].handle_message(host(from), &message, &mut tell);
        self.overruns[to] += lost.unwrap_or(0);
        true
    }

    /// Answers leave.
    fn answer(&mut self, from: usize) -> bool {
        let mut any = false;
        while let Some(to) = self.hosts[from].poll_host() {
            while let Some(message) = self.hosts[from].poll_answer(to) {
                self.send(from, Outgoing { host: to, message });
                any = true;
            }
        }
        any
    }

    /// Until nothing is on the way any more.
    fn settle(&mut self) {
        let all = 0..self.hosts.len();
        let mut any = true;
        while core::mem::take(&mut any) {
            for from in all.clone() {
                any |= self.answer(from);
                for to in all.clone() {
                    any |= self.deliver(from, to);
                }
            }
        }
    }

    /// What waits at an endpoint.
    fn notices(&mut self, at: usize, id: EndpointId) -> Vec<Notice> {
        core::iter::from_fn(|| self.hosts[at].poll_notice(id)).collect()
    }
}

/// A listener at host 1, port 9, and an endpoint of host 0 that asks it.
fn asked() -> (Net, EndpointId, EndpointId) {
    let mut net = Net::new(3);
    let listener = net.hosts[1].open(Some(Port(9))).unwrap();
    net.hosts[1].listen(listener).unwrap();
    let caller = net.hosts[0].open(None).unwrap();
    let ask = net.hosts[0].connect(caller, address(1, 9), body(1)).unwrap();
    net.send(0, ask);
    net.settle();
    (net, caller, listener)
}

fn request(net: &mut Net, listener: EndpointId) -> ConnectRequest {
    match net.hosts[1].poll_notice(listener) {
        Some(Notice::Request(request)) => request,
        other => panic!("a request was expected: {other:?}"),
    }
}

fn connected() -> (Net, EndpointId, EndpointId) {
    let (mut net, caller, listener) = asked();
    let request = request(&mut net, listener);
    let callee = net.hosts[1].open(None).unwrap();
    let yes = net.hosts[1].accept(callee, &request, body(2)).unwrap();
    net.send(1, yes);
    net.settle();
    let accepted = net.hosts[0].poll_notice(caller);
    let by = address(1, FIRST_FREE_PORT);
    assert_eq!(accepted, Some(Notice::Accepted { by, body: body(2) }));
    (net, caller, callee)
}

const fn ended(why: Ended) -> Notice {
    Notice::Ended { why, body: [0; 40] }
}

#[test]
fn a_connection_carries_40_bytes_each_way_while_it_is_made() {
    let (mut net, caller, listener) = asked();
    let request = request(&mut net, listener);
    assert_eq!((request.body, request.from), (body(1), address(0, FIRST_FREE_PORT)));
    assert_eq!(net.hosts[0].state(caller), Ok(EndpointState::Connecting));
    let (net, caller, callee) = connected();
    assert_eq!(net.hosts[0].peer(caller), Ok(address(1, FIRST_FREE_PORT)));
    assert_eq!(net.hosts[1].peer(callee), Ok(address(0, FIRST_FREE_PORT)));
}

#[test]
fn each_side_disconnects_for_itself_and_both_make_it_complete() {
    for first in [0, 1] {
        let (mut net, caller, callee) = connected();
        let ids = [caller, callee];
        let second = 1 - first;
        let bye = net.hosts[first].disconnect(ids[first], body(3)).unwrap();
        net.send(first, bye);
        net.settle();
        assert_eq!(net.hosts[first].state(ids[first]), Ok(EndpointState::ClosedHere));
        assert_eq!(net.hosts[first].send(ids[first], body(4)), Err(Error::NotOpen));
        assert_eq!(net.hosts[second].state(ids[second]), Ok(EndpointState::ClosedThere));
        // The other half still carries messages.
        let last_word = net.hosts[second].send(ids[second], body(5)).unwrap();
        net.send(second, last_word);
        let bye = net.hosts[second].disconnect(ids[second], body(6)).unwrap();
        net.send(second, bye);
        net.settle();
        let disconnected = |n| Notice::Disconnected { body: body(n) };
        assert_eq!(net.notices(second, ids[second]), [disconnected(3), Notice::Closed]);
        let from = address(second, FIRST_FREE_PORT);
        let message = Notice::Message { from, body: body(5) };
        assert_eq!(net.notices(first, ids[first]), [message, disconnected(6), Notice::Closed]);
        assert_eq!(net.hosts[first].state(ids[first]), Ok(EndpointState::Idle));
    }
}

#[test]
fn both_may_disconnect_at_once() {
    let (mut net, caller, callee) = connected();
    for (at, id) in [(0, caller), (1, callee)] {
        let bye = net.hosts[at].disconnect(id, body(3)).unwrap();
        net.send(at, bye);
    }
    net.settle();
    for (at, id) in [(0, caller), (1, callee)] {
        let expected = [Notice::Disconnected { body: body(3) }, Notice::Closed];
        assert_eq!(net.notices(at, id), expected);
    }
}

#[test]
fn an_endpoint_closed_while_connected_ends_the_connection() {
    let (mut net, caller, callee) = connected();
    net.hosts[1].close(callee).unwrap();
    net.settle();
    assert_eq!(net.notices(0, caller), [ended(Ended::There(Reason::NoEndpoint))]);
    let (mut net, caller, callee) = connected();
    net.hosts[0].abort(caller).unwrap();
    net.settle();
    assert_eq!(net.notices(0, caller), [ended(Ended::Here)]);
    assert_eq!(net.notices(1, callee), [ended(Ended::There(Reason::Refused))]);
}

#[test]
fn a_lost_link_ends_what_went_over_it_and_nothing_else() {
    let (mut net, caller, callee) = connected();
    let other = net.hosts[0].open(None).unwrap();
    // To a host that does not answer.
    let to = PortAddress { host: host(7), port: Port(1) };
    net.hosts[0].connect(other, to, body(0)).unwrap();
    let mut told = Vec::new();
    net.hosts[0].handle_host_gone(host(1), Ended::Silent, &mut |id| told.push(id));
    assert_eq!(told, [caller]);
    assert_eq!(net.notices(0, caller), [ended(Ended::Silent)]);
    assert_eq!(net.hosts[0].state(other), Ok(EndpointState::Connecting));
    // The other side has not noticed, and hears of it with its next message.
    let message = net.hosts[1].send(callee, body(1)).unwrap();
    net.send(1, message);
    net.settle();
    assert_eq!(net.notices(1, callee), [ended(Ended::There(Reason::Refused))]);
    assert_eq!(net.notices(0, caller), []);
}

#[test]
fn refusals_say_why() {
    let (mut net, caller, listener) = asked();
    let request = request(&mut net, listener);
    let no = net.hosts[1].refuse(&request, Reason::Forbidden, body(8));
    net.send(1, no);
    net.settle();
    let why = Ended::There(Reason::Forbidden);
    assert_eq!(net.notices(0, caller), [Notice::Ended { why, body: body(8) }]);
    // Nobody there; somebody who does not listen; a listener that goes away.
    let deaf = net.hosts[1].open(Some(Port(5))).unwrap();
    for (port, reason) in [(4, Reason::NoEndpoint), (5, Reason::Refused), (9, Reason::NoEndpoint)] {
        let ask = net.hosts[0].connect(caller, address(1, port), body(0)).unwrap();
        net.send(0, ask);
        net.settle();
        if port == 9 {
            assert_eq!(net.notices(0, caller), []);
            net.hosts[1].close(listener).unwrap();
            net.settle();
        }
        assert_eq!(net.notices(0, caller), [ended(Ended::There(reason))]);
    }
    assert_eq!(net.notices(1, deaf), []);
}

#[test]
fn a_request_that_nobody_waits_for_any_more_leads_to_nothing() {
    let (mut net, caller, listener) = asked();
    let request = request(&mut net, listener);
    net.hosts[0].abort(caller).unwrap();
    assert_eq!(net.notices(0, caller), [ended(Ended::Here)]);
    // The caller asks again, and the first request is accepted.
    let ask = net.hosts[0].connect(caller, address(1, 9), body(2)).unwrap();
    net.send(0, ask);
    let callee = net.hosts[1].open(None).unwrap();
    let yes = net.hosts[1].accept(callee, &request, body(3)).unwrap();
    net.send(1, yes);
    net.settle();
    assert_eq!(net.hosts[0].state(caller), Ok(EndpointState::Connecting));
    assert_eq!(net.notices(1, callee), [ended(Ended::There(Reason::Refused))]);
}

#[test]
fn a_message_to_a_full_queue_comes_back_to_its_sender() {
    let mut net = Net::new(2);
    let sender = net.hosts[0].open(Some(Port(1))).unwrap();
    let receiver = net.hosts[1].open(Some(Port(2))).unwrap();
    for n in 0..10 {
        let message = net.hosts[0].send_to(sender, address(1, 2), body(n)).unwrap();
        assert_eq!(message.message.number, n);
        net.send(0, message);
    }
    net.settle();
    let came = net.notices(1, receiver);
    assert_eq!(came.len(), MESSAGES);
    let (to, reason) = (address(1, 2), Reason::NoRoom);
    let mut missing: Vec<u32> = (0..10).collect();
    missing.retain(|n| !came.contains(&Notice::Message { from: address(0, 1), body: body(*n) }));
    let mut told = 0;
    for notice in net.notices(0, sender) {
        told += match notice {
            Notice::Undelivered { to: whom, number, count, reason: why } => {
                assert_eq!((whom, why), (to, reason));
                assert!((number..number + count).all(|n| missing.contains(&n)));
                u64::from(count)
            }
            Notice::MoreUndelivered { count } => count,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(told, missing.len() as u64);
}

/// What is owed to a host that does not take it is bounded; what did not fit is
/// counted, and those who wait for an answer hear that none will come.
#[test]
fn answers_that_find_no_room_are_counted_and_told() {
    let mut net = Net::new(2);
    let caller = net.hosts[0].open(Some(Port(1))).unwrap();
    let ask = net.hosts[0].connect(caller, address(1, 77), body(0)).unwrap();
    // Others of the same host have filled what host 1 may owe it.
    for n in 0..ANSWERS as u32 + 50 {
        let stray = OutOfBand { to_session: u64::from(n) + 1, ..ask.message };
        let stray = OutOfBand { kind: OutOfBandKind::Message, ..stray };
        net.send(0, Outgoing { host: host(1), message: stray });
    }
    net.send(0, ask);
    while net.deliver(0, 1) {}
    let answers: Vec<_> = core::iter::from_fn(|| net.hosts[1].poll_answer(host(0))).collect();
    assert_eq!(answers.len(), ANSWERS + 1);
    let overrun = answers.last().unwrap();
    assert_eq!((overrun.kind, overrun.number), (OutOfBandKind::Overrun, 51));
    net.send(1, Outgoing { host: host(0), message: *overrun });
    net.settle();
    assert_eq!(net.overruns[0], 51);
    assert_eq!(net.notices(0, caller), [ended(Ended::There(Reason::NoRoom))]);
}

#[test]
fn endpoints_are_used_again_under_another_name() {
    let mut net = Net::new(2);
    let sender = net.hosts[0].open(Some(Port(1))).unwrap();
    let first = net.hosts[1].open(Some(Port(2))).unwrap();
    assert_eq!(net.hosts[1].open(Some(Port(2))), Err(Error::Taken));
    for n in 0..2 {
        let message = net.hosts[0].send_to(sender, address(1, 2), body(n)).unwrap();
        net.send(0, message);
    }
    net.settle();
    net.hosts[1].close(first).unwrap();
    assert_eq!(net.hosts[1].close(first), Err(Error::Unknown));
    let memory = net.hosts[1].spare[0].capacity();
    let second = net.hosts[1].open(Some(Port(2))).unwrap();
    assert!(net.hosts[1].spare.is_empty() && memory > 0, "the queue's memory serves again");
    assert_eq!(second.index(), first.index());
    assert_ne!(second, first);
    assert_eq!(net.notices(1, second), [], "what an earlier endpoint left is gone");
    assert_eq!(net.notices(1, first), []);
    assert_eq!(net.hosts[1].listen(first), Err(Error::Unknown));
}

/// A message of an endpoint comes back after the endpoint is gone: the one that
/// has its port now hears nothing of it.
#[test]
fn invariant_7_exceptions_for_an_earlier_endpoint_are_not_told_to_the_next() {
    let mut net = Net::new(2);
    let first = net.hosts[0].open(Some(Port(1))).unwrap();
    let message = net.hosts[0].send_to(first, address(1, 2), body(0)).unwrap();
    net.send(0, message);
    net.hosts[0].close(first).unwrap();
    let second = net.hosts[0].open(Some(Port(1))).unwrap();
    net.settle();
    assert_eq!(net.notices(0, second), []);
}

#[test]
fn the_bound_on_endpoints_is_an_error_and_closing_makes_room() {
    let mut net = Net::new(1);
    let all: Vec<_> = (0..LIMIT).map(|_| net.hosts[0].open(None).unwrap()).collect();
    assert_eq!(net.hosts[0].open(None), Err(Error::NoRoom));
    net.hosts[0].close(all[2]).unwrap();
    assert!(net.hosts[0].open(None).is_ok());
}

/// Connections that are begun and broken off while a link takes nothing do not
/// pile up.
#[test]
fn ends_of_connections_that_wait_to_be_told_are_bounded() {
    let mut net = Net::new(2);
    let from = address(1, 1);
    let endpoint = net.hosts[0].open(None).unwrap();
    let request = |session| ConnectRequest { from, body: body(0), session, listener: Port(9) };
    for n in 1..=LIMIT as u64 {
        net.hosts[0].accept(endpoint, &request(n), body(0)).unwrap();
        net.hosts[0].abort(endpoint).unwrap();
        assert_eq!(net.notices(0, endpoint), [ended(Ended::Here)]);
    }
    assert_eq!(net.hosts[0].accept(endpoint, &request(99), body(0)), Err(Error::Busy));
    assert!(net.hosts[0].poll_answer(host(1)).is_some());
    assert!(net.hosts[0].accept(endpoint, &request(99), body(0)).is_ok());
}

proptest! {
    /// Any message from anybody: no panic, nothing grows, and a connection that
    /// it does not name goes on.
    #[test]
    fn invariant_8_no_out_of_band_message_panics(
        messages in prop::collection::vec(
            (0usize..3, 1u8..=8, 0u8..=8, 0u32..4, 0u64..4, 0u64..4, any::<u32>()), 0..200),
    ) {
        let (mut net, caller, callee) = connected();
        for (from, kind, reason, port, from_session, to_session, number) in messages {
            let mut bytes = [0; OutOfBand::LEN];
            (bytes[8], bytes[9]) = (kind, reason);
            let message = OutOfBand {
                from: Port(port + FIRST_FREE_PORT),
                to: Port(if port == 3 { 9 } else { FIRST_FREE_PORT }),
                number,
                from_session,
                to_session,
                body: body(number),
                ..OutOfBand::from_bytes(&bytes).unwrap()
            };
            net.hosts[1].handle_message(host(from), &message, &mut |_| {});
        }
        prop_assert_eq!(net.hosts[1].state(callee), Ok(EndpointState::Connected));
        prop_assert!(net.notices(1, callee).len() <= MESSAGES + 4);
        net.settle();
        prop_assert_eq!(net.hosts[0].state(caller), Ok(EndpointState::Connected));
    }
}
