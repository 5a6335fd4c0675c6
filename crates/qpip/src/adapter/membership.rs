//! Groups of a queue pair for datagrams: it joins and leaves them, and chooses how far what it
//! sends to groups goes.

use core::net::IpAddr;

use landfall_placement::{Instant, PathId};

use super::Adapter;
use super::error::{Error, Object};
use super::links::Links;
use super::queue_pairs::QueuePairs;
use super::routes::Route;
use super::udp::Datagrams;
use crate::work::QueuePairId;

impl Adapter {
    /// A queue pair for datagrams listens to a group, on this path or, without one, where what
    /// it sends to the group leaves. It has to be bound to the group or to all addresses of that
    /// version of IP, to receive what comes for its port.
    ///
    /// Routers and switches of the link are told (IGMP, MLD). What queue pairs of this adapter
    /// send to the group they do not hear.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`]; [`Error::NoGroup`]; [`Error::NoRoute`] where
    /// no interface is of that version; [`Error::Full`], also where it has joined already.
    pub fn join(
        &mut self,
        now: Instant,
        id: QueuePairId,
        group: IpAddr,
        on: Option<PathId>,
    ) -> Result<(), Error> {
        let Self { context, links, pairs, .. } = self;
        let datagrams = datagrams_of(pairs, id)?;
        if !group.is_multicast() {
            return Err(Error::NoGroup(group));
        }
        let on = on.map(|path| links.of(path).ok_or(Error::NoRoute(group))).transpose()?;
        let route = links.route_to_group(on.or(datagrams.groups.link), None, group);
        let link = route.ok_or(Error::NoRoute(group))?.link;
        let joined = (link, group);
        let has_room = datagrams.groups.joined.len() < context.config.groups;
        if !has_room || datagrams.groups.joined.contains(&joined) {
            return Err(Error::Full(Object::Group));
        }
        if !links[link].host.change().groups.join(now, group) {
            return Err(Error::Full(Object::Group));
        }
        datagrams.groups.joined.push(joined);
        Ok(())
    }

    /// A queue pair listens to a group no longer, on any path.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`]; [`Error::NoGroup`] where it did not listen.
    pub fn leave(&mut self, now: Instant, id: QueuePairId, group: IpAddr) -> Result<(), Error> {
        let datagrams = datagrams_of(&mut self.pairs, id)?;
        if !datagrams.groups.joined.iter().any(|(_, known)| *known == group) {
            return Err(Error::NoGroup(group));
        }
        self.leave_groups(now, id, |known| known == group);
        Ok(())
    }

    /// How many routers may forward what a queue pair sends to groups (1, none, unless chosen),
    /// and the path that it leaves on; without one, that of its address, or the first that is of
    /// that version of IP.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`]; [`Error::Full`] for a path without an
    /// interface.
    pub fn set_group_sending(
        &mut self,
        id: QueuePairId,
        hops: u8,
        on: Option<PathId>,
    ) -> Result<(), Error> {
        let no_interface = Error::Full(Object::Interface);
        let link = on.map(|path| self.links.of(path).ok_or(no_interface)).transpose()?;
        let datagrams = datagrams_of(&mut self.pairs, id)?;
        (datagrams.groups.hops, datagrams.groups.link) = (hops, link);
        Ok(())
    }

    /// Leaves those of its groups that are meant.
    pub(super) fn leave_groups(
        &mut self,
        now: Instant,
        id: QueuePairId,
        is_meant: impl Fn(IpAddr) -> bool,
    ) {
        let Self { links, pairs, .. } = self;
        // Queue pairs for connections have no groups.
        let Ok(datagrams) = datagrams_of(pairs, id) else { return };
        datagrams.groups.joined.retain(|(link, group)| {
            if is_meant(*group) {
                links[*link].host.change().groups.leave(now, *group);
            }
            !is_meant(*group)
        });
    }
}

fn datagrams_of(pairs: &mut QueuePairs, id: QueuePairId) -> Result<&mut Datagrams, Error> {
    pairs.known_mut(id)?.datagrams_mut().ok_or(Error::WrongService)
}

impl Datagrams {
    /// The way of what this queue pair sends to an address.
    pub(super) fn route(&self, links: &Links, to: IpAddr) -> Option<Route> {
        let local = self.local.map(|local| local.ip());
        let from = local.filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
        if to.is_multicast() {
            links.route_to_group(self.groups.link, from, to)
        } else {
            links.route(from, to)
        }
    }
}
