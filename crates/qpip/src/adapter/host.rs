//! [`LinkHost`]: what a host does on a link by itself, beside neighbours: it finds addresses and
//! routers, defends what it has, and says which groups it listens to.
//!
//! Its parts are in [`ip`](crate::ip), and know neither links nor queue pairs. What they say
//! becomes frames in `hosting`. They are read by anyone and changed through
//! [`LinkHost::change`], which asks all of them anew when the next is due: a driver asks for
//! that time with each batch, and they change with hardly any.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::{Deref, DerefMut};

use landfall_placement::{Instant, Random};

use super::config::Config;
use super::interface::Interface;
use crate::ip::autoconf::{Autoconf, AutoconfStep};
use crate::ip::conflicts::{ClaimStep, Claims};
use crate::ip::dhcp::{Dhcp, DhcpStep};
use crate::ip::groups::{Groups, Report};
use crate::offload::OwnAddress;
use crate::wire::{ipv6, ndp};

/// What IPv6 needs, and less than which IPv4 has on no Ethernet.
pub(super) const LEAST_MTU: u32 = 576;
const _: () = assert!(LEAST_MTU < ipv6::MTU_MIN);

/// What a host does on a link by itself, and when it has to do something next.
#[derive(Debug)]
pub(super) struct LinkHost {
    parts: HostParts,
    due: Option<Instant>,
}

impl LinkHost {
    pub(super) const fn new(config: &Config) -> Self {
        Self { parts: HostParts::new(config), due: None }
    }

    /// Lets its parts be changed: where this goes, it is found out when the next is due.
    pub(super) const fn change(&mut self) -> ChangedHost<'_> {
        ChangedHost(self)
    }

    /// When the next part has something to do.
    pub(super) const fn next_timer(&self) -> Option<Instant> {
        self.due
    }
}

impl Deref for LinkHost {
    type Target = HostParts;

    fn deref(&self) -> &HostParts {
        &self.parts
    }
}

/// A host whose parts may be changed.
pub(super) struct ChangedHost<'a>(&'a mut LinkHost);

impl Deref for ChangedHost<'_> {
    type Target = HostParts;

    fn deref(&self) -> &HostParts {
        &self.0.parts
    }
}

impl DerefMut for ChangedHost<'_> {
    fn deref_mut(&mut self) -> &mut HostParts {
        &mut self.0.parts
    }
}

impl Drop for ChangedHost<'_> {
    fn drop(&mut self) {
        self.0.due = self.0.parts.next_timer();
    }
}

/// What a host has to do.
pub(super) enum HostStep {
    Claim(ClaimStep),
    Dhcp(DhcpStep),
    Autoconf(AutoconfStep),
    Report(Report),
}

/// The parts of a link's host.
#[derive(Debug)]
pub(super) struct HostParts {
    pub(super) groups: Groups,
    pub(super) claims: Claims,
    pub(super) dhcp: Option<Dhcp>,
    pub(super) autoconf: Option<Autoconf>,
    /// What was configured, of which some may not be sure yet.
    addresses: Vec<OwnAddress>,
    gateways: Vec<IpAddr>,
    /// Configured addresses are asked for before they are used; nobody had these.
    detects_conflicts: bool,
    /// All are told of them.
    announces: bool,
    sure: Vec<IpAddr>,
    /// The most that a packet may have, where somebody says so.
    pub(super) mtu: Option<u32>,
    /// The link came up, or its interface is new, and nothing was done about it.
    pub(super) is_new: bool,
    /// Addresses came or went since that was looked at last.
    pub(super) has_changed: bool,
}

impl HostParts {
    const fn new(config: &Config) -> Self {
        Self {
            groups: Groups::new(config.groups),
            claims: Claims::new(),
            dhcp: None,
            autoconf: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            detects_conflicts: false,
            announces: false,
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
        self.announces = interface.announces;
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
        !finds_out && !self.detects_conflicts && !self.announces && self.groups.is_empty()
    }

    fn next_timer(&self) -> Option<Instant> {
        if self.is_new && !self.is_idle() {
            return Some(Instant::ZERO);
        }
        let dhcp = self.dhcp.as_ref().and_then(Dhcp::poll_timeout);
        let autoconf = self.autoconf.as_ref().and_then(Autoconf::poll_timeout);
        let timers = [self.groups.poll_timeout(), self.claims.poll_timeout(), dhcp, autoconf];
        timers.into_iter().flatten().min()
    }

    /// The next thing that is to be done by now.
    pub(super) fn poll_step(&mut self, now: Instant, random: &mut Random) -> Option<HostStep> {
        if let Some(step) = self.claims.poll_step(now, random) {
            return Some(HostStep::Claim(step));
        }
        if let Some(step) = self.dhcp.as_mut().and_then(|dhcp| dhcp.poll_step(now, random)) {
            return Some(HostStep::Dhcp(step));
        }
        if let Some(step) = self.autoconf.as_mut().and_then(|autoconf| autoconf.poll_step(now)) {
            return Some(HostStep::Autoconf(step));
        }
        self.groups.poll_report(now, random).map(HostStep::Report)
    }

    pub(super) fn start(&mut self, now: Instant, random: &mut Random) {
        self.groups.restart(now);
        self.sure.clear();
        if self.detects_conflicts {
            for at in 0..self.addresses.len() {
                self.claim(now, random, self.addresses[at].ip);
            }
        } else if self.announces {
            self.addresses.iter().for_each(|own| self.claims.announce(own.ip));
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
    pub(super) fn claim(&mut self, now: Instant, random: &mut Random, address: IpAddr) {
        self.claims.claim(now, random, address);
        if let IpAddr::V6(address) = address {
            // At the bound of groups switches may keep from us what is said about it.
            self.groups.join(now, ndp::solicited_node(address).into());
        }
    }

    pub(super) fn forget(&mut self, now: Instant, address: IpAddr) {
        self.claims.forget(address);
        if let IpAddr::V6(address) = address {
            self.groups.leave(now, ndp::solicited_node(address).into());
        }
    }

    /// Somebody has an address, or nobody has.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        random: &mut Random,
        address: IpAddr,
        is_free: bool,
    ) {
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
    pub(super) fn found(&self, now: Instant) -> (Vec<OwnAddress>, Vec<IpAddr>, Vec<IpAddr>) {
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

    pub(super) fn found_mtu(&self) -> Option<u32> {
        let lease = self.dhcp.as_ref().and_then(Dhcp::lease);
        let given = lease.and_then(|lease| lease.mtu).map(u32::from);
        let told = self.autoconf.as_ref().and_then(Autoconf::mtu);
        [given, told].into_iter().flatten().filter(|mtu| *mtu >= LEAST_MTU).min()
    }
}
