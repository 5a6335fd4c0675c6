//! [`Links`]: what the adapter is on each path. Which way leads to an address, which
//! station has it, and the packets that leave without a queue pair.
//!
//! A link knows the queue pairs that wait for it by name only; who they are is in the
//! table of queue pairs.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::{Index, IndexMut};

use landfall_placement::{
    Ecn, Instant, PathId, PathLimits, PathState, Peer, Random, Ticket, Transmit,
};

use super::config::Config;
use super::context::Context;
use super::demux::Ends;
use super::error::{Error, Object};
use super::fragments::RemainingFragments;
use super::host::{LEAST_MTU, LinkHost};
use super::interface::Interface;
use super::vlan;
use crate::ip::answer::{self, Host, Limiter};
use crate::ip::neighbours::{self, NeighbourMessage, Neighbours, Question};
use crate::ip::path_mtu::{self, PathMtus, PathSize};
use crate::ip::size_search::ProbeOutcome;
use crate::tcp::Draft;
use crate::wire::icmp::{Report, Trouble};
use crate::wire::{self, Envelope, Mac, Tcp, checksum, ethernet, protocol, tcp};
use crate::work::QueuePairId;

/// All links, and what is known of the ways through them.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) links: Vec<Link>,
    path_mtus: PathMtus,
    /// Counts packets that leave in fragments.
    fragment_id: u32,
    /// What strangers may draw: errors of ICMP, and resets.
    limiter: Limiter,
}

/// Where a segment came from; an answer to it goes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The link, by its place among all.
    pub(super) link: usize,
    /// The station that sent it.
    pub(super) station: Mac,
    pub(super) ends: Ends,
}

/// What the IP header of a connection's packets says beside the addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// The code point of differentiated services (RFC 2474).
    pub(super) dscp: u8,
    /// The label of a flow (RFC 6437); zero for none.
    pub(super) flow_label: u32,
}

/// A link came up or went down.
#[derive(Debug)]
pub(super) struct LinkChange {
    pub(super) link: usize,
    /// What had begun to leave in pieces for another size does not go on.
    pub(super) abandoned: Option<RemainingFragments>,
}

impl Index<usize> for Links {
    type Output = Link;

    #[inline]
    fn index(&self, link: usize) -> &Link {
        &self.links[link]
    }
}

impl IndexMut<usize> for Links {
    #[inline]
    fn index_mut(&mut self, link: usize) -> &mut Link {
        &mut self.links[link]
    }
}

impl Links {
    pub(super) fn new(config: &Config, random: &mut Random) -> Self {
        let mtus = path_mtu::Config { capacity: config.path_mtus, ..path_mtu::Config::default() };
        Self {
            links: Vec::new(),
            path_mtus: PathMtus::new(mtus),
            fragment_id: random.next_u32(),
            limiter: Limiter::new(config.answers_per_second, config.answers_per_second),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.links.iter()
    }

    pub(super) const fn len(&self) -> usize {
        self.links.len()
    }

    #[inline]
    pub(super) fn get(&self, link: usize) -> Option<&Link> {
        self.links.get(link)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, link: usize) -> Option<&mut Link> {
        self.links.get_mut(link)
    }

    /// The link of a path, by its place among all.
    #[inline]
    pub(super) fn of(&self, path: PathId) -> Option<usize> {
        self.links.iter().position(|link| link.path == path)
    }

    fn of_or_new(&mut self, path: PathId, config: &Config) -> Option<usize> {
        if let Some(index) = self.of(path) {
            return Some(index);
        }
        if self.links.len() >= config.interfaces {
            return None;
        }
        self.links.push(Link::new(path, config));
        Some(self.links.len() - 1)
    }

    /// Puts a station on a path. Returns its link.
    pub(super) fn add_interface(
        &mut self,
        path: PathId,
        mut interface: Interface,
        context: &mut Context,
    ) -> Result<usize, Error> {
        let config = &context.config;
        if !interface.is_valid() {
            return Err(Error::BadInterface);
        }
        if interface.vlan.is_some() && config.delegates {
            return Err(Error::VlanOnCard);
        }
        for own in &interface.addresses {
            let has_it = |link: &Link| link.path != path && link.has(own.ip);
            if self.links.iter().any(has_it) {
                return Err(Error::Taken(SocketAddr::new(own.ip, 0)));
            }
        }
        let full = Error::Full(Object::Interface);
        let index = self.of_or_new(path, config).ok_or(full)?;
        let mut known = Neighbours::new(neighbours::Config {
            capacity: config.neighbours,
            ..neighbours::Config::default()
        });
        for (address, station) in &interface.neighbours {
            if !known.add_static(*address, *station) {
                return Err(full);
            }
        }
        let link = &mut self.links[index];
        link.neighbours = known;
        link.vlan = interface.vlan;
        link.host.change().set_interface(&mut interface, &mut context.random);
        link.interface = Some(interface);
        link.refresh_limits();
        Ok(index)
    }

    /// A path came up or went down. Nothing where there are as many links as may be.
    pub(super) fn change_path(
        &mut self,
        path: PathId,
        state: PathState,
        config: &Config,
    ) -> Option<LinkChange> {
        let index = self.of_or_new(path, config)?;
        let link = &mut self.links[index];
        link.set_limits(match state {
            PathState::Up(limits) => Some(limits),
            PathState::Down => None,
        });
        link.host.change().handle_link();
        Some(LinkChange { link: index, abandoned: link.leaving.take() })
    }

    /// Is this address ours, on any link?
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.links.iter().any(|link| link.has(address))
    }

    /// How many bytes of IP a packet to this address may have through this link.
    #[inline]
    pub(super) fn path_mtu(&self, now: Instant, to: IpAddr, link: usize) -> u32 {
        self.path_mtus.get(now, to, self.links[link].mtu())
    }

    /// The same for a connection whose packets have at most `most` bytes, and which probes.
    #[inline]
    pub(super) fn use_path(
        &mut self,
        now: Instant,
        to: IpAddr,
        link: usize,
        most: u32,
    ) -> PathSize {
        self.path_mtus.use_size(now, to, self.links[link].mtu(), most)
    }

    /// A packet that probes the path leaves, `size` bytes long with its IP header.
    pub(super) fn handle_mtu_probe(&mut self, now: Instant, to: IpAddr, size: u32) {
        self.path_mtus.handle_probe_sent(now, to, size);
    }

    /// What became of it.
    pub(super) fn handle_mtu_outcome(
        &mut self,
        now: Instant,
        to: IpAddr,
        link: usize,
        size: u32,
        outcome: ProbeOutcome,
    ) {
        let mtu = self.links[link].mtu();
        // While the link is down nothing is said about its size.
        if mtu > 0 {
            self.path_mtus.handle_probe_outcome(now, to, mtu, size, outcome);
        }
    }

    /// Is a report about a packet that probed the path? Then it says where to search.
    pub(super) fn limit_search(&mut self, now: Instant, report: &Report<'_>) -> bool {
        // Only these say how long packets may be.
        let Trouble::TooBig { mtu } = report.trouble else { return false };
        let (from, to) = (report.about.source, report.about.destination);
        let link = self.links.iter().find(|link| link.has(from));
        link.is_some_and(|link| {
            let sent_len = report.about.total_len;
            self.path_mtus.limit_search(now, to, link.mtu(), sent_len, mtu)
        })
    }

    /// The path of a packet that we sent carries less than we thought. Nothing where
    /// the report is none of that, or tells nothing new.
    pub(super) fn lower_mtu(&mut self, now: Instant, report: &Report<'_>) -> Option<u32> {
        let Trouble::TooBig { mtu } = report.trouble else { return None };
        let (from, to) = (report.about.source, report.about.destination);
        let link = self.links.iter().find(|link| link.has(from))?.mtu().max(LEAST_MTU);
        self.path_mtus.lower(now, to, link, report.about.total_len, mtu)
    }

    /// Long packets from one of our addresses get lost again and again, and nobody says why.
    /// Returns whether shorter ones are sent from now on.
    pub(super) fn suspect_black_hole(&mut self, now: Instant, from: IpAddr, to: IpAddr) -> bool {
        let link = self.links.iter().find(|link| link.has(from));
        link.is_some_and(|link| self.path_mtus.suspect_black_hole(now, to, link.mtu()))
    }

    /// The name of a packet that leaves in fragments, where this one does.
    #[inline]
    pub(super) const fn fragment_id(&mut self, is_cut: bool) -> u32 {
        self.fragment_id = self.fragment_id.wrapping_add(is_cut as u32);
        self.fragment_id
    }

    /// May a stranger draw one more answer? It counts as given.
    pub(super) fn may_answer(&mut self, now: Instant) -> bool {
        self.limiter.allow(now)
    }

    /// The next packet that belongs to no queue pair.
    pub(super) fn next_control(&mut self, link: usize, head: &mut [u8]) -> Option<Transmit> {
        while let Some(control) = self.links[link].control.pop_front() {
            if let Some(transmit) = control.transmit(head) {
                return Some(transmit);
            }
        }
        None
    }

    /// Queues a packet that belongs to no queue pair. What finds no room is as
    /// if it were lost: anyone who needs an answer asks again.
    pub(super) fn queue_control(
        &mut self,
        context: &mut Context,
        link: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let known = &mut self.links[link];
        let has_room = known.control.len() < context.config.control_queue;
        let head = known.limits.map_or(0, |limits| usize::from(limits.head));
        let control = if has_room { Control::new(head, write) } else { None };
        let Some(control) = control else {
            context.stats.control_dropped += 1;
            return false;
        };
        context.stats.control_queued += 1;
        known.control.push_back(control);
        true
    }

    /// Sends a segment without payload to a station, beside the turns of queue pairs.
    pub(super) fn queue_segment(
        &mut self,
        context: &mut Context,
        to: &Origin,
        marks: Marks,
        draft: &Draft,
    ) {
        debug_assert_eq!(draft.payload, 0, "a payload leaves in the turn of its queue pair");
        // A link that went down sends nothing: the segment is as if it were lost.
        let Some(own) = self.links[to.link].station() else { return };
        let Ends { local, remote } = to.ends;
        let mut envelope =
            Envelope::new((own.mac, local.ip()), (to.station, remote.ip()), protocol::TCP);
        envelope.traffic_class = marks.dscp << 2 | Ecn::NotCapable as u8;
        envelope.flow_label = marks.flow_label;
        let header = draft.header(local, remote);
        self.queue_control(context, to.link, |into| write_sealed(&envelope, &header, into));
    }

    /// When the next neighbour is to be asked again, or is forgotten, or something is to be said.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        // Every turn of a driver asks: adapters that flatten this cost more than the rest of it.
        let mut next = Instant::FAR_FUTURE;
        for link in self.links.iter().filter(|link| link.station().is_some()) {
            next = next.min(link.neighbours.poll_timeout().unwrap_or(next));
            next = next.min(link.host.next_timer().unwrap_or(next));
        }
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// Somebody said that an address has this station. Returns those who waited for it.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        context: &mut Context,
        link: usize,
        said: &NeighbourClaim,
    ) -> Vec<QueuePairId> {
        let known = &mut self.links[link].neighbours;
        if known.learn(now, said.address, said.station, said.message) {
            return self.ask_neighbours(now, context, link);
        }
        Vec::new()
    }

    /// Asks for the neighbours that are due. Returns those who waited for the ones that
    /// have answered, or never will: they look again.
    pub(super) fn ask_neighbours(
        &mut self,
        now: Instant,
        context: &mut Context,
        link: usize,
    ) -> Vec<QueuePairId> {
        while let Some(question) = self.links[link].neighbours.poll_solicit(now) {
            self.ask(context, link, question);
        }
        let known = &mut self.links[link];
        let changes = known.neighbours.changes();
        if core::mem::replace(&mut known.changes_seen, changes) == changes {
            return Vec::new();
        }
        core::mem::take(&mut known.parked)
    }

    fn ask(&mut self, context: &mut Context, link: usize, question: Question) {
        let Question { address, station } = question;
        // A link that went down asks nobody.
        let Some(own) = self.links[link].station() else { return };
        let mac = own.mac;
        if let Some(source) = own.source_for(address) {
            let us = Host { mac, address: source };
            self.queue_control(context, link, |into| answer::question(us, address, station, into));
        }
    }
}

/// What was said about the station of an address, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeighbourClaim {
    pub(super) address: IpAddr,
    pub(super) station: Option<Mac>,
    pub(super) message: NeighbourMessage,
}

/// Writes a segment without payload, with its checksum.
fn write_sealed(envelope: &Envelope, header: &Tcp, into: &mut [u8]) -> Option<usize> {
    let len = header.header_len();
    let at = envelope.write(into, len as u32)?;
    let segment = into.get_mut(at..at + len)?;
    header.write(segment, envelope.pseudo(len as u32))?;
    let sum = checksum::checksum(segment);
    let slot = usize::from(tcp::SUM_OFFSET);
    segment[slot..slot + 2].copy_from_slice(&sum.to_be_bytes());
    Some(at + len)
}

/// A path, the interface on it, and what waits there.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) path: PathId,
    /// Nothing while the path is down. With a tag, what is left of them.
    pub(super) limits: Option<PathLimits>,
    /// The same, of the path.
    path_limits: Option<PathLimits>,
    /// The VLAN whose tag all frames here have.
    pub(super) vlan: Option<u16>,
    pub(super) interface: Option<Interface>,
    /// Who has which address on this link.
    pub(super) neighbours: Neighbours,
    /// What it says by itself.
    pub(super) host: LinkHost,
    /// What they had changed when those who wait were woken last.
    pub(super) changes_seen: u64,
    /// Whole packets that wait to be sent.
    pub(super) control: VecDeque<Control>,
    /// Queue pairs that may have something to send, each in its turn.
    pub(super) ready: VecDeque<QueuePairId>,
    /// Queue pairs that wait until a neighbour has answered.
    pub(super) parked: Vec<QueuePairId>,
    /// The packet of which some fragments have left.
    pub(super) leaving: Option<RemainingFragments>,
    /// The queue pair that something came for last: likely the next one, too.
    pub(super) last_pair: Option<QueuePairId>,
}

impl Link {
    pub(super) fn new(path: PathId, config: &Config) -> Self {
        Self {
            path,
            host: LinkHost::new(config),
            limits: None,
            path_limits: None,
            vlan: None,
            interface: None,
            neighbours: Neighbours::new(neighbours::Config {
                capacity: 0,
                ..neighbours::Config::default()
            }),
            changes_seen: 0,
            control: VecDeque::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            leaving: None,
            last_pair: None,
        }
    }

    /// Somebody says how much a packet may have here.
    pub(super) fn refresh_limits(&mut self) {
        self.set_limits(self.path_limits);
    }

    fn set_limits(&mut self, mut limits: Option<PathLimits>) {
        self.path_limits = limits;
        if let (Some(limits), Some(mtu)) = (&mut limits, self.host.mtu) {
            let tag = if self.vlan.is_some() { wire::vlan::LEN } else { 0 };
            let unit = mtu.saturating_add((ethernet::LEN + tag) as u32);
            limits.unit = limits.unit.min(unit);
        }
        let is_tagged = self.vlan.is_some();
        self.limits = limits.map(|limits| if is_tagged { vlan::limits(limits) } else { limits });
        if self.mtu() < LEAST_MTU {
            self.limits = None;
        }
        if self.limits.is_none() {
            self.control.clear();
        }
    }

    /// How many bytes of IP the link carries in one packet; zero while it is down.
    #[inline]
    pub(super) fn mtu(&self) -> u32 {
        let most = self.limits.map_or(0, |limits| limits.unit);
        most.saturating_sub(ethernet::LEN as u32)
    }

    /// The station of ours, where packets of both versions of IP can leave.
    pub(super) fn station(&self) -> Option<&Interface> {
        self.interface.as_ref().filter(|_| self.limits.is_some())
    }

    /// Is this address ours?
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.has(address))
    }
}

// `Control`: whole packets without memory of any user: ARP, neighbour
// discovery, ICMP, resets and what else belongs to no queue pair.

/// The longest such packet, where the driver has room for it as a head: one of DHCP.
const CONTROL_MAX: usize = 380;

/// The ticket of whatever holds no memory.
pub(super) const NO_TICKET: Ticket = Ticket::from_raw(u64::MAX);

/// A packet that is complete.
#[derive(Clone, Debug)]
pub(super) struct Control {
    len: u16,
    bytes: [u8; CONTROL_MAX],
}

impl Control {
    /// What `write` writes, if it found room; it gives the length.
    fn new(room: usize, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Self> {
        let mut bytes = [0; CONTROL_MAX];
        let len = write(&mut bytes[..room.min(CONTROL_MAX)])?;
        Some(Self { len: len.min(CONTROL_MAX) as u16, bytes })
    }

    /// The packet as a unit, if `head` has room for it.
    fn transmit(&self, head: &mut [u8]) -> Option<Transmit> {
        let len = usize::from(self.len);
        head.get_mut(..len)?.copy_from_slice(&self.bytes[..len]);
        Some(bare(self.len))
    }
}

/// A unit without payload whose checksums are right already.
const fn bare(head_len: u16) -> Transmit {
    Transmit {
        to: Peer::Unaddressed,
        head_len,
        segment: None,
        checksum: None,
        sum_only: 0,
        ecn: Ecn::NotCapable,
        ticket: NO_TICKET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_not_sent() {
        let control = Control::new(256, |bytes| {
            bytes[..3].copy_from_slice(b"abc");
            Some(3)
        });
        let control = control.unwrap();
        assert!(control.transmit(&mut [0; 2]).is_none());
        let mut head = [0; 8];
        assert_eq!(control.transmit(&mut head).unwrap().head_len, 3);
        assert_eq!(&head[..4], b"abc\0");
        assert!(Control::new(256, |_| None).is_none());
    }
}
