//! What the host of a link has to say becomes frames here, and what it finds becomes the
//! addresses of the interface. Its state is in `host`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{Duration, Instant};

use super::context::Context;
use super::event::Event;
use super::host::HostStep;
use super::interface::Interface;
use super::links::Links;
use crate::ip::answer::{self, Host};
use crate::ip::autoconf::AutoconfStep;
use crate::ip::conflicts::ClaimStep;
use crate::ip::dhcp::{DhcpStep, Question};
use crate::ip::groups::Report;
use crate::ip::neighbours::Found;
use crate::wire::group::{self, Generation, RecordKind};
use crate::wire::{Envelope, dhcp, ethernet, protocol};

/// How much later a question for a server leaves whose station is not known yet.
const STATION_WAIT: Duration = Duration::from_secs(1);

impl Links {
    /// Does what a link's host has to do by now.
    pub(super) fn run_host(&mut self, now: Instant, context: &mut Context, link: usize) {
        if self[link].host.is_new {
            let mut host = self[link].host.change();
            host.is_new = false;
            host.start(now, &mut context.random);
            drop(host);
            self.use_found(now, context, link);
        }
        loop {
            let step = self[link].host.change().poll_step(now, &mut context.random);
            let Some(step) = step else { break };
            match step {
                HostStep::Claim(step) => self.step_claim(now, context, link, step),
                HostStep::Dhcp(step) => self.step_dhcp(now, context, link, &step),
                HostStep::Autoconf(step) => self.step_autoconf(now, context, link, step),
                HostStep::Report(report) => self.report_groups(context, link, &report),
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
        if let Some(client) = &mut self[link].host.change().dhcp {
            client.handle_reply(now, &mut context.random, reply);
        }
    }

    fn step_claim(&mut self, now: Instant, context: &mut Context, link: usize, step: ClaimStep) {
        let path = self[link].path;
        // A link that went down says nothing: all begins anew when it comes up.
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
                self[link].host.change().judge(now, &mut context.random, address, true);
                self.use_found(now, context, link);
            }
            ClaimStep::Contested(address, station) => {
                context.events.push(Event::AddressConflict { path, address, station });
            }
            ClaimStep::Lost(address, station) => {
                context.events.push(Event::AddressConflict { path, address, station });
                self[link].host.change().judge(now, &mut context.random, address, false);
                self.use_found(now, context, link);
            }
        }
    }

    fn step_dhcp(&mut self, now: Instant, context: &mut Context, link: usize, step: &DhcpStep) {
        match *step {
            DhcpStep::Send(said, to) => self.send_dhcp(now, context, link, &said, to),
            DhcpStep::Check(address) => {
                self[link].host.change().claim(now, &mut context.random, address.into());
            }
            DhcpStep::Use(_) => self.use_found(now, context, link),
            DhcpStep::Drop(address) => {
                self[link].host.change().forget(now, address.into());
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
        said: &Question,
        server: Option<Ipv4Addr>,
    ) {
        // A link that went down says nothing: all begins anew when it comes up.
        let Some(mac) = self[link].station().map(|own| own.mac) else { return };
        let mut to = (ethernet::BROADCAST, Ipv4Addr::BROADCAST);
        if let Some(server) = server {
            let way = self.route(said.has.map(IpAddr::V4), server.into());
            let next_hop = way.map_or(server.into(), |route| route.next_hop);
            match self[link].neighbours.lookup(now, next_hop) {
                Found::Station(station) => to = (station, server),
                Found::Waiting => {
                    if let Some(dhcp) = &mut self[link].host.change().dhcp {
                        dhcp.retry_at(now + STATION_WAIT);
                    }
                    return;
                }
                // It is as if it were lost: it is asked again, and others are at last.
                Found::Unreachable => return,
            }
        }
        let from = (mac, IpAddr::V4(said.has.unwrap_or(Ipv4Addr::UNSPECIFIED)));
        let envelope = Envelope::new(from, (to.0, IpAddr::V4(to.1)), protocol::UDP);
        // Its interface has no client any more.
        let Some(client) = self[link].host.change().dhcp.take() else { return };
        let message = client.message(said);
        self.queue_control(context, link, |into| {
            let ports = [dhcp::CLIENT_PORT, dhcp::SERVER_PORT];
            answer::datagram(&envelope, ports, into, |into| message.write(into))
        });
        self[link].host.change().dhcp = Some(client);
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
                // A link that went down asks nobody.
                let Some(own) = self[link].station() else { return };
                let us = Host { mac: own.mac, address: reporter(own, false) };
                self.queue_control(context, link, |into| answer::router_solicitation(us, into));
            }
            AutoconfStep::Claim(address) => {
                self[link].host.change().claim(now, &mut context.random, address.into());
            }
            AutoconfStep::Changed => self.use_found(now, context, link),
            AutoconfStep::Drop(address) => {
                self[link].host.change().forget(now, address.into());
                self.use_found(now, context, link);
            }
        }
    }

    /// What was found out becomes what the interface has, and the user is told.
    fn use_found(&mut self, now: Instant, context: &mut Context, link: usize) {
        let path = self[link].path;
        let (addresses, gateways, deprecated) = self[link].host.found(now);
        let mtu = self[link].host.found_mtu();
        if core::mem::replace(&mut self[link].host.change().mtu, mtu) != mtu {
            self[link].refresh_limits();
        }
        // What has no interface has no addresses.
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
        self[link].host.change().has_changed |= before != after;
    }

    fn report_groups(&mut self, context: &mut Context, link: usize, report: &Report) {
        // A link that went down reports nothing: it does so when it comes up.
        let Some(own) = self[link].station() else { return };
        // A report without groups says nothing.
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
