//! Links to other hosts.

use landfall_placement::{Instant, PathId, Peer};

use super::Stats;
use crate::address::HostId;
use crate::error::{Error, Reason};
use crate::ids::{BarrierId, LinkId};
use crate::nic::Nic;

impl Nic {
    /// Opens the way to whoever is there. [`Event::LinkUp`](crate::Event::LinkUp)
    /// tells who it is. Links that others open come without a call.
    ///
    /// # Errors
    /// [`Error::PathDown`], [`Error::Taken`], [`Error::NoRoom`], [`Error::Busy`].
    pub fn open_link(&mut self, now: Instant, path: PathId, peer: Peer) -> Result<LinkId, Error> {
        if !self.paths.iter().any(|(known, _)| *known == path) {
            return Err(Error::PathDown);
        }
        if self.links.find(path, peer).is_some() {
            return Err(Error::Taken);
        }
        let link = self.links.connect(now, path, peer)?;
        if !self.new_line(link) {
            let _ = self.links.close(now, link, Reason::NoRoom);
            return Err(Error::Busy);
        }
        Ok(link)
    }

    /// Ends a link and all that goes over it. A native link begins anew.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn close_link(&mut self, now: Instant, link: LinkId) -> Result<(), Error> {
        match &mut self.native {
            Some(native) => native.close(link)?,
            None => self.links.close(now, link, Reason::Refused)?,
        }
        self.settle(now);
        Ok(())
    }

    /// The link to a host, while it is up. Of several, writes go over this one.
    #[must_use]
    pub fn link_to(&self, host: HostId) -> Option<LinkId> {
        self.links.to_host(host)
    }

    /// The link with that peer over that path, from when it is opened until it is over.
    #[must_use]
    pub fn link_with(&self, path: PathId, peer: Peer) -> Option<LinkId> {
        self.links.find(path, peer)
    }

    /// Where the other end of a link is.
    #[must_use]
    pub fn peer_at(&self, link: LinkId) -> Option<Peer> {
        self.links.peer_at(link)
    }

    /// Who is at the other end of a link, once it has been up.
    #[must_use]
    pub fn host_of(&self, link: LinkId) -> Option<HostId> {
        self.links.host_of(link)
    }

    /// All links, and whether each is up.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, bool)> + '_ {
        self.lines.iter().map(|line| (line.id, self.links.is_up(line.id)))
    }

    /// Asks the other side to send nothing but answers from now on, or again.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn hold(&mut self, link: LinkId, is_held: bool) -> Result<(), Error> {
        self.lines.get(link).ok_or(Error::Unknown)?;
        match &mut self.native {
            Some(native) => native.hold(is_held),
            None => self.links.set_xoff(link, is_held),
        }
        Ok(())
    }

    /// [`Event::Barrier`](crate::Event::Barrier) will tell that all that was
    /// asked for before this call is in place at the other side: what the program
    /// wrote, and all chains of DMA requests that were in a queue.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], which a native link never is for this, since
    /// nothing is acknowledged there; [`Error::Busy`].
    pub fn barrier(&mut self, now: Instant, link: LinkId) -> Result<BarrierId, Error> {
        let line = self.lines.get_mut(link).ok_or(Error::Unknown)?;
        if line.why.is_some() || line.host.is_none() || self.native.is_some() {
            return Err(Error::NotOpen);
        }
        if !line.writes.has_room(1, 0) || !self.events.promise() {
            return Err(Error::Busy);
        }
        let number = self.barriers_asked;
        self.barriers_asked += 1;
        let barrier = BarrierId::new((number as u32, (number >> 32) as u32));
        line.barriers.begin(barrier);
        if line.writes.is_empty() {
            line.barriers.loaded_up_to(barrier, false);
        } else {
            // There is room.
            let _ = line.writes.mark(barrier);
        }
        self.links.ask(now, link);
        self.reach_barriers(link);
        self.settle(now);
        Ok(barrier)
    }

    /// How much this adapter did.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }
}
