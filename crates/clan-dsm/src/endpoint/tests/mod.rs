//! Endpoints of several hosts that talk to each other over plain queues.

mod rules;
mod world;

use super::*;
use alloc::collections::VecDeque;
use proptest::prelude::*;
use std::vec::Vec;

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
        let first = |n: usize| Endpoints::new(LIMIT, MESSAGES, (1, 2), (n as u64) << 32);
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
