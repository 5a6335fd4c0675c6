//! Links: who is at the other end, and what the engine calls it.
//!
//! Where a way is encrypted the engine calls its other end by the number of an association, not
//! by its address. People know the address.

use std::sync::Arc;

use clan_dsm::{HostId, LinkId};
use landfall_placement::{Instant, PathId, Peer};
use landfall_seal::PeerIdentity;

use super::NodeState;
use crate::clan::Error;
use crate::clan::network::builder::refused;
use crate::clan::network::neighbour::Neighbour;
use crate::security::{self, Wanted};

/// Further advice about a peer with another key than expected.
const PIN: &str = "`Node::link_pinned`. If another had the number of its host before, open this \
                   node anew";

impl NodeState {
    /// The link with a peer, if there is one.
    pub(crate) fn link_with(&mut self, peer: Peer) -> Option<Arc<Neighbour>> {
        let path = self.paths.to(peer)?;
        let link = self.link_over(path, peer)?;
        self.links.get_mut(link).cloned()
    }

    fn link_over(&self, path: PathId, peer: Peer) -> Option<LinkId> {
        let plain = self.engine.link_with(path, peer);
        if plain.is_some() || !self.engine.is_sealed() {
            return plain;
        }
        let leads_there = |known: &&Arc<Neighbour>| {
            let way = self.engine.way_of(known.link).filter(|(on, _)| *on == path);
            way.is_some_and(|(_, name)| self.engine.remote(path, name) == Some(peer))
        };
        // One that is up rather than one that both ends have called for at the same time.
        let mut links = self.links.iter().filter(leads_there);
        let first = links.next()?;
        let up = links.find(|known| known.is_up()).filter(|_| !first.is_up());
        Some(up.unwrap_or(first).link)
    }

    /// Opens the way to a peer, over a path or the first that leads to such peers.
    pub(crate) fn open_link(
        &mut self,
        now: Instant,
        path: Option<PathId>,
        (peer, wanted): (Peer, &Wanted),
    ) -> Result<Arc<Neighbour>, Error> {
        let path = path.or_else(|| self.paths.to(peer)).ok_or(Error::NoRoute)?;
        if self.link_over(path, peer).is_some() {
            return Err(Error::Engine(clan_dsm::Error::Taken));
        }
        let is_own = self.paths.get(path).is_some_and(|path| path.is_at(peer));
        let expected = wanted.as_expected(is_own);
        let name = self.engine.associate_with(now, path, peer, expected);
        let name = name.ok_or(Error::NoRoom("encrypted peer"))?;
        if wanted.pinned.is_some() && name == peer {
            return Err(Error::NotEncrypted { peer });
        }
        let opened = self.engine.open_link(now, path, name).inspect_err(|_| {
            if name != peer {
                self.engine.forget(name);
            }
        });
        let link = opened.map_err(|error| refused(error, "link"))?;
        let neighbour = Neighbour::opening(link, peer, name);
        self.links.insert(link, Arc::clone(&neighbour));
        Ok(neighbour)
    }

    /// What handles know of a link, no matter who opened it.
    pub(super) fn neighbour_of(&mut self, link: LinkId) -> Arc<Neighbour> {
        if let Some(known) = self.links.get_mut(link) {
            return Arc::clone(known);
        }
        let (path, name) = self.engine.way_of(link).unwrap_or_default();
        let remote = self.engine.remote(path, name).unwrap_or(name);
        let new = Neighbour::opening(link, remote, name);
        self.links.insert(link, Arc::clone(&new));
        new
    }

    /// Has this host proven who it is? Then its number is its key's.
    pub(crate) fn check_proven(&mut self, host: HostId) -> Result<(), Error> {
        let neighbour = self.neighbour(host).ok_or(Error::NoRoute)?;
        let identity = neighbour.is_sealed().then(|| self.engine.identity(neighbour.name));
        match identity.flatten() {
            Some(PeerIdentity::PublicKey(_)) => Ok(()),
            #[cfg(feature = "certificates")]
            Some(PeerIdentity::Certificate(_)) => Ok(()),
            _ => Err(Error::NotProven { peer: neighbour.peer() }),
        }
    }

    /// Where the other end of a link is now.
    pub(crate) fn peer_at(&self, link: LinkId) -> Option<Peer> {
        let (path, name) = self.engine.way_of(link)?;
        Some(self.engine.remote(path, name).unwrap_or(name))
    }

    /// Links without keys end at once.
    pub(super) fn end_unkeyed(&mut self, now: Instant) {
        while let Some(name) = self.engine.poll_failed() {
            let Some(why) = self.engine.failure(name) else { continue };
            let Some(neighbour) = self.links.iter().find(|known| known.name == name) else {
                continue;
            };
            let advice = security::advice(why, self.security.place().as_deref(), PIN);
            neighbour.note_no_keys(why, advice);
            // What the engine has ended already it will tell of.
            let _ = self.engine.close_link(now, neighbour.link);
        }
    }

    /// Nothing more comes over it.
    pub(super) fn retire(&mut self, neighbour: &Neighbour) {
        if neighbour.is_sealed() {
            self.engine.retire(neighbour.name);
        }
    }

    /// Another says to be the host of this link. It is the same one, started anew, if it comes
    /// from the same address and has proven to be the same.
    pub(super) fn contested(&mut self, now: Instant, link: LinkId, path: PathId, name: Peer) {
        let Some((old_path, old_name)) = self.engine.way_of(link) else { return };
        let is_same = old_path == path
            && self.engine.remote(path, old_name) == self.engine.remote(path, name)
            && self.engine.identity(old_name) == self.engine.identity(name);
        if is_same && old_name != name {
            // It may be over by now.
            let _ = self.engine.replace_link(now, link);
        }
    }
}
