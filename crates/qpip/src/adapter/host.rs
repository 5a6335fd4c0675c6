//! [`LinkHost`]: what a host does on a link by itself, beside neighbours: it finds addresses and
//! routers, defends what it has, and says which groups it listens to.
//!
//! Its parts are in [`ip`](crate::ip), and know neither links nor queue pairs: here what they
//! say becomes frames, and what they find becomes the addresses of the interface.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{Duration, Instant, Random};

use super::config::Config;
use super::context::Context;
use super::event::Event;
use super::interface::Interface;
use super::links::{LEAST_MTU, Links};
use crate::ip::answer::{self, Host};
use crate::ip::autoconf::{Autoconf, AutoconfStep};
use crate::ip::conflicts::{ClaimStep, Claims};
use crate::ip::dhcp::{Dhcp, DhcpStep, Said};
use crate::ip::groups::{Groups, Report};
use crate::ip::neighbours::Found;
use crate::offload::OwnAddress;
use crate::wire::group::{self, Generation, RecordKind};
use crate::wire::{dhcp, ethernet, ndp};

/// A question for a server leaves so much later where its station is not known yet.
const STATION_WAIT: Duration = Duration::from_secs(1);

/// What a host does on a link by itself.
#[derive(Debug)]
pub(super) struct LinkHost {
    pub(super) groups: Groups,
    pub(super) claims: Claims,
    pub(super) dhcp: Option<Dhcp>,
    pub(super) autoconf: Option<Autoconf>,
    /// What was configured, of which some may not be sure yet.
    addresses: Vec<OwnAddress>,
    gateways: Vec<IpAddr>,
    /// Configured addresses are asked for before they are used; nobody had these.
    detects_conflicts: bool,
    sure: Vec<IpAddr>,
    /// The most that a packet may have, where somebody says so.
    pub(super) mtu: Option<u32>,
    /// The link came up, or its interface is new, and nothing was done about it.
    is_new: bool,
    /// Addresses came or went since that was looked at last.
    pub(super) has_changed: bool,
}

impl LinkHost {
    pub(super) const fn new(config: &Config) -> Self {
        Self {
            groups: Groups::new(config.groups),
            claims: Claims::new(),
            dhcp: None,
            autoconf: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            detects_conflicts: false,
            sure: Vec::new(),
            mtu: None,
            is_new: false,
            has_changed: false,
        }
    }

    /// The link has another interface. Addresses that are not sure yet are taken out of it.
    pub(super) fn set_interface(&mut self, interface: &mut Interface, random: &mut Random) {
        self.addresses.clone_from(&interface.addresses);
        self.gateways.clone_from(&interface.gateways);
        self.detects_conflicts = interface.detects_conflicts;
        self.sure.clear();
        (self.claims, self.mtu) = (Claims::new(), None);
        let (mac, name) = (interface.mac, interface.host_name.clone());
        self.dhcp = interface.dhcp.then(|| Dhcp::new(mac, name));
        self.autoconf = interface.discovers_routers.then(|| Autoconf::new(mac, random));
        if self.detects_conflicts {
            interface.addresses.clear();
        } else {
            self.addresses.iter().for_each(|own| self.claims.hold(own.ip));
        }
        self.is_new = true;
    }

    pub(super) const fn handle_link(&mut self) {
        self.is_new = true;
    }

    fn is_idle(&self) -> bool {
        let finds_out = self.dhcp.is_some() || self.autoconf.is_some();
        !finds_out && !self.detects_conflicts && self.groups.is_empty()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        if self.is_new && !self.is_idle() {
            return Some(Instant::ZERO);
        }
        let dhcp = self.dhcp.as_ref().and_then(Dhcp::poll_timeout);
        let autoconf = self.autoconf.as_ref().and_then(Autoconf::poll_timeout);
        let timers = [self.groups.poll_timeout(), self.claims.poll_timeout(), dhcp, autoconf];
        timers.into_iter().flatten().min()
    }

    fn start(&mut self, now: Instant, random: &mut Random) {
        self.groups.restart(now);
        self.sure.clear();
        if self.detects_conflicts {
            for at in 0..self.addresses.len() {
                self.claim(now, random, self.addresses[at].ip);
            }
        }
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.restart(now, random);
        }
        if let Some(autoconf) = &mut self.autoconf {
            autoconf.restart();
        }
    }

    /// Begins to ask whether somebody has an address. Who has it answers to all that listen to
    /// what ends so (RFC 4862, 5.4.2).
    fn claim(&mut self, now: Instant, random: &mut Random, address: IpAddr) {
        self.claims.claim(now, random, address);
        if let IpAddr::V6(address) = address {
            // At the bound of groups switches may keep from us what is said about it.
            self.groups.join(now, ndp::solicited_node(address).into());
        }
    }

    fn forget(&mut self, now: Instant, address: IpAddr) {
        self.claims.forget(address);
        if let IpAddr::V6(address) = address {
            self.groups.leave(now, ndp::solicited_node(address).into());
        }
    }

    /// Somebody has an address, or nobody has.
    fn judge(&mut self, now: Instant, random: &mut Random, address: IpAddr, is_free: bool) {
        if !is_free {
            self.forget(now, address);
        }
        self.sure.retain(|sure| *sure != address);
        match address {
            IpAddr::V4(address) => {
                if let Some(dhcp) = &mut self.dhcp
                    && !dhcp.handle_checked(now, address, is_free)
                    && !is_free
                {
                    dhcp.handle_lost(now, address);
                }
            }
            IpAddr::V6(address) => {
                if let Some(autoconf) = &mut self.autoconf {
                    autoconf.handle_claimed(now, random, address, is_free);
                }
            }
        }
        if is_free && self.addresses.iter().any(|own| own.ip == address) {
            self.sure.push(address);
        }
    }

    /// The addresses that are used now, and those of them that nothing new is sent from.
    fn found(&self, now: Instant) -> (Vec<OwnAddress>, Vec<IpAddr>, Vec<IpAddr>) {
        let is_sure = |own: &&OwnAddress| !self.detects_conflicts || self.sure.contains(&own.ip);
        let mut addresses: Vec<OwnAddress> =
            self.addresses.iter().filter(is_sure).copied().collect();
        let (mut gateways, mut deprecated) = (self.gateways.clone(), Vec::new());
        if let Some(lease) = self.dhcp.as_ref().and_then(Dhcp::lease) {
            addresses.push(OwnAddress::new(lease.address.into(), lease.prefix_len));
            gateways.extend(lease.router.map(IpAddr::V4));
        }
        if let Some(autoconf) = &self.autoconf {
            for (own, is_deprecated) in autoconf.addresses(now) {
                addresses.push(own);
                deprecated.extend(is_deprecated.then_some(own.ip));
            }
            gateways.extend(autoconf.routers().map(IpAddr::V6));
        }
        (addresses, gateways, deprecated)
    }

    fn found_mtu(&self) -> Option<u32> {
        let lease = self.dhcp.as_ref().and_then(Dhcp::lease);
        let given = lease.and_then(|lease| lease.mtu).map(u32::from);
        let told = self.autoconf.as_ref().and_then(Autoconf::mtu);
        [given, told].into_iter().flatten().filter(|mtu| *mtu >= LEAST_MTU).min()
    }
}

impl Links {
    /// Does what a link's host has to do by now.
    pub(super) fn run_host(&mut self, now: Instant, context: &mut Context, link: usize) {
        let host = &mut self[link].host;
        if core::mem::take(&mut host.is_new) {
            host.start(now, &mut context.random);
            self.use_found(now, context, link);
        }
        loop {
            let (host, random) = (&mut self[link].host, &mut context.random);
            if let Some(step) = host.claims.poll_step(now, random) {
                self.step_claim(now, context, link, step);
            } else if let Some(step) =
                host.dhcp.as_mut().and_then(|dhcp| dhcp.poll_step(now, random))
            {
                self.step_dhcp(now, context, link, &step);
            } else if let Some(step) =
                host.autoconf.as_mut().and_then(|autoconf| autoconf.poll_step(now))
            {
                self.step_autoconf(now, context, link, step);
            } else if let Some(report) = host.groups.poll_report(now, random) {
                self.report_groups(context, link, &report);
            } else {
                break;
            }
        }
    }

    /// A server of DHCP has answered.
    pub(super) fn handle_lease(
        &mut self,
        now: Instant,
        context: &mut Context,
        link: usize,
        reply: &dhcp::Reply,
    ) {
        if let Some(client) = &mut self[link].host.dhcp {
            client.handle_reply(now, &mut context.random, reply);
        }
    }

    fn step_claim(&mut self, now: Instant, context: &mut Context, link: usize, step: ClaimStep) {
        let path = self[link].path;
        let Some(mac) = self[link].station().map(|own| own.mac) else { return };
        match step {
            ClaimStep::Probe(address) => {
                self.queue_control(context, link, |into| answer::probe(mac, address, into));
            }
            ClaimStep::Announce(address) => {
                let us = Host { mac, address };
                self.queue_control(context, link, |into| answer::announcement(us, into));
            }
            ClaimStep::Claimed(address) => {
                self[link].host.judge(now, &mut context.random, address, true);
                self.use_found(now, context, link);
            }
            ClaimStep::Contested(address, station) => {
                context.events.push(Event::AddressConflict { path, address, station });
            }
            ClaimStep::Lost(address, station) => {
                context.events.push(Event::AddressConflict { path, address, station });
                self[link].host.judge(now, &mut context.random, address, false);
                self.use_found(now, context, link);
            }
        }
    }

    fn step_dhcp(&mut self, now: Instant, context: &mut Context, link: usize, step: &DhcpStep) {
        match *step {
            DhcpStep::Send(said, to) => self.send_dhcp(now, context, link, (&said, to)),
            DhcpStep::Check(address) => {
                self[link].host.claim(now, &mut context.random, address.into());
            }
            DhcpStep::Use(_) => self.use_found(now, context, link),
            DhcpStep::Drop(address) => {
                self[link].host.forget(now, address.into());
                self.use_found(now, context, link);
            }
        }
    }

    /// Says something to a server that is asked for more time, or to all.
    fn send_dhcp(
        &mut self,
        now: Instant,
        context: &mut Context,
        link: usize,
        (said, server): (&Said, Option<Ipv4Addr>),
    ) {
        let Some(mac) = self[link].station().map(|own| own.mac) else { return };
        let mut to = (ethernet::BROADCAST, Ipv4Addr::BROADCAST);
        if let Some(server) = server {
            let way = self.route(said.has.map(IpAddr::V4), server.into());
            let next_hop = way.map_or(server.into(), |route| route.next_hop);
            match self[link].neighbours.lookup(now, next_hop) {
                Found::Station(station) => to = (station, server),
                Found::Waiting => {
                    if let Some(dhcp) = &mut self[link].host.dhcp {
                        dhcp.retry_at(now + STATION_WAIT);
                    }
                    return;
                }
                // It is as if it were lost: it is asked again, and others are at last.
                Found::Unreachable => return,
            }
        }
        let from = (mac, said.has.unwrap_or(Ipv4Addr::UNSPECIFIED));
        let Some(client) = self[link].host.dhcp.take() else { return };
        let message = client.message(said);
        self.queue_control(context, link, |into| {
            let ports = (dhcp::CLIENT_PORT, dhcp::SERVER_PORT);
            answer::datagram(from, to, ports, into, |into| message.write(into))
        });
        self[link].host.dhcp = Some(client);
    }

    fn step_autoconf(
        &mut self,
        now: Instant,
        context: &mut Context,
        link: usize,
        step: AutoconfStep,
    ) {
        match step {
            AutoconfStep::Solicit => {
                let Some(own) = self[link].station() else { return };
                let us = Host { mac: own.mac, address: reporter(own, false) };
                self.queue_control(context, link, |into| answer::router_solicitation(us, into));
            }
            AutoconfStep::Claim(address) => {
                self[link].host.claim(now, &mut context.random, address.into());
            }
            AutoconfStep::Changed => self.use_found(now, context, link),
            AutoconfStep::Drop(address) => {
                self[link].host.forget(now, address.into());
                self.use_found(now, context, link);
            }
        }
    }

    /// What was found out becomes what the interface has, and the user is told.
    fn use_found(&mut self, now: Instant, context: &mut Context, link: usize) {
        let path = self[link].path;
        let (addresses, gateways, deprecated) = self[link].host.found(now);
        let mtu = self[link].host.found_mtu();
        if core::mem::replace(&mut self[link].host.mtu, mtu) != mtu {
            self[link].refresh_limits();
        }
        let Some(interface) = &mut self[link].interface else { return };
        (interface.gateways, interface.deprecated) = (gateways, deprecated);
        let before = core::mem::replace(&mut interface.addresses, addresses);
        let after = interface.addresses.clone();
        for own in before.iter().filter(|own| !after.contains(own)) {
            context.events.push(Event::AddressLost { path, address: own.ip });
        }
        for own in after.iter().filter(|own| !before.contains(own)) {
            context.events.push(Event::AddressReady { path, address: own.ip });
        }
        self[link].host.has_changed |= before != after;
    }

    fn report_groups(&mut self, context: &mut Context, link: usize, report: &Report) {
        // A link that went down reports nothing: it does so when it comes up.
        let Some(own) = self[link].station() else { return };
        let Some(first) = report.records.first() else { return };
        let us = (own.mac, reporter(own, first.group.is_ipv4()));
        if report.generation == Generation::Third {
            self.queue_control(context, link, |into| {
                group::write_report(us, &report.records, into)
            });
        } else {
            let said = (first.group, first.kind == RecordKind::Leaves);
            // The first routers are not told who leaves (RFC 1112).
            if report.generation == Generation::Second || !said.1 {
                let generation = report.generation;
                self.queue_control(context, link, |into| {
                    group::write_old_report(us, said, generation, into)
                });
            }
        }
    }
}

/// The address that a host reports groups and asks routers from: where it has none yet, from
/// none (RFC 3376, 4.2.13; RFC 3590).
fn reporter(own: &Interface, is_v4: bool) -> IpAddr {
    let mut all = own.addresses.iter().map(|own| own.ip);
    if is_v4 {
        all.find(IpAddr::is_ipv4).unwrap_or(Ipv4Addr::UNSPECIFIED.into())
    } else {
        let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        all.find(is_local).unwrap_or(Ipv6Addr::UNSPECIFIED.into())
    }
}
