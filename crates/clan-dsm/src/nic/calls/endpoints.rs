//! Endpoints, their connections and out-of-band messages; links to other hosts.

use landfall_placement::{Instant, PathId, Peer};

use super::Stats;
use crate::address::{BarrierId, EndpointId, HostId, LinkId};
use crate::endpoint::{
    Body, ConnectRequest, EndpointState, Notice, OutOfBand, Outgoing, Port, PortAddress,
};
use crate::error::{Error, Reason};
use crate::events::Source;
use crate::nic::Nic;
use crate::wire::Command;

impl Nic {
    /// Opens an endpoint, at a port that is given or at a free one.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::NoRoom`].
    pub fn open_endpoint(&mut self, port: Option<Port>) -> Result<EndpointId, Error> {
        let endpoint = self.endpoints.open(port)?;
        self.events.register(Source::OutOfBand(endpoint));
        self.events.register(Source::Dma(endpoint));
        Ok(endpoint)
    }

    /// Closes an endpoint. A connection that it has breaks off, and what waits in
    /// its DMA queue is given up.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn close_endpoint(&mut self, now: Instant, endpoint: EndpointId) -> Result<(), Error> {
        self.endpoints.close(endpoint)?;
        self.dma.cancel(endpoint);
        self.events.unregister(Source::OutOfBand(endpoint));
        self.events.unregister(Source::Dma(endpoint));
        self.settle(now);
        Ok(())
    }

    /// The port of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn port(&self, endpoint: EndpointId) -> Result<Port, Error> {
        self.endpoints.port(endpoint)
    }

    /// The state of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn endpoint_state(&self, endpoint: EndpointId) -> Result<EndpointState, Error> {
        self.endpoints.state(endpoint)
    }

    /// Who is at the other end of a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`].
    pub fn peer_of(&self, endpoint: EndpointId) -> Result<PortAddress, Error> {
        self.endpoints.peer(endpoint)
    }

    /// From now on the endpoint hears of those who want a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], and [`Error::Taken`] while it has a connection.
    pub fn listen(&mut self, endpoint: EndpointId) -> Result<(), Error> {
        self.endpoints.listen(endpoint)
    }

    /// Asks a listener for a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoLink`], [`Error::Busy`], [`Error::Taken`].
    pub fn connect(
        &mut self,
        endpoint: EndpointId,
        to: PortAddress,
        body: Body,
    ) -> Result<(), Error> {
        let link = self.link_with_room(to.host)?;
        let message = self.endpoints.connect(endpoint, to, body)?;
        self.send_out_of_band(link, &message)
    }

    /// Takes a connection that was asked for, with this endpoint.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(
        &mut self,
        endpoint: EndpointId,
        request: &ConnectRequest,
        body: Body,
    ) -> Result<(), Error> {
        let link = self.link_with_room(request.from.host)?;
        let message = self.endpoints.accept(endpoint, request, body)?;
        self.send_out_of_band(link, &message)
    }

    /// Lets somebody who asked for a connection know that there will be none.
    ///
    /// # Errors
    /// [`Error::NoLink`], [`Error::Busy`].
    pub fn refuse(
        &mut self,
        request: &ConnectRequest,
        reason: Reason,
        body: Body,
    ) -> Result<(), Error> {
        let link = self.link_with_room(request.from.host)?;
        let message = self.endpoints.refuse(request, reason, body);
        self.send_out_of_band(link, &message)
    }

    /// Sends a message on the connection of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::NoLink`], [`Error::Busy`].
    pub fn send(&mut self, endpoint: EndpointId, body: Body) -> Result<(), Error> {
        let link = self.link_with_room(self.endpoints.peer(endpoint)?.host)?;
        let message = self.endpoints.send(endpoint, body)?;
        self.send_out_of_band(link, &message)
    }

    /// Sends a message to any endpoint, whatever connections there are.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoLink`], [`Error::Busy`].
    pub fn send_to(
        &mut self,
        endpoint: EndpointId,
        to: PortAddress,
        body: Body,
    ) -> Result<(), Error> {
        let link = self.link_with_room(to.host)?;
        let message = self.endpoints.send_to(endpoint, to, body)?;
        self.send_out_of_band(link, &message)
    }

    /// Says that this side will send nothing more on a connection.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn disconnect(&mut self, endpoint: EndpointId, body: Body) -> Result<(), Error> {
        let link = self.link_with_room(self.endpoints.peer(endpoint)?.host)?;
        let message = self.endpoints.disconnect(endpoint, body)?;
        self.send_out_of_band(link, &message)
    }

    /// Breaks a connection off, or gives up asking for one.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`].
    pub fn abort(&mut self, now: Instant, endpoint: EndpointId) -> Result<(), Error> {
        self.endpoints.abort(endpoint)?;
        self.settle(now);
        Ok(())
    }

    /// Do notices wait at an endpoint?
    #[must_use]
    pub fn has_notices(&self, endpoint: EndpointId) -> bool {
        self.endpoints.has_notices(endpoint)
    }

    /// The next notice of an endpoint.
    pub fn poll_notice(&mut self, endpoint: EndpointId) -> Option<Notice> {
        self.endpoints.poll_notice(endpoint)
    }

    fn link_with_room(&self, host: HostId) -> Result<LinkId, Error> {
        let link = self.links.to_host(host).ok_or(Error::NoLink)?;
        let line = self.lines.get(link).filter(|line| line.host == Some(host));
        let line = line.ok_or(Error::NoLink)?;
        if line.writes.has_room(1, OutOfBand::LEN) { Ok(link) } else { Err(Error::Busy) }
    }

    /// A message goes behind what was written.
    fn send_out_of_band(&mut self, link: LinkId, outgoing: &Outgoing) -> Result<(), Error> {
        let line = self.lines.get_mut(link).ok_or(Error::NoLink)?;
        let command = Command::OutOfBand(outgoing.message.to_bytes());
        let (address, parameters) = command.encode(outgoing.host);
        line.writes.command(address, &parameters, false)?;
        self.links.wake(link);
        Ok(())
    }
}

impl Nic {
    /// Opens the way to anyone who is there. [`Event::LinkUp`](crate::Event::LinkUp)
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
        if !self.new_link_state(link) {
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

    /// Ends a link whose other end was started anew, as is known of it: then it calls from
    /// elsewhere, and need not wait until the old link is found to be dead.
    /// [`Event::Contested`](crate::Event::Contested) tells of it.
    ///
    /// # Errors
    /// [`Error::NotOpen`]: it is not up.
    pub fn replace_link(&mut self, now: Instant, link: LinkId) -> Result<(), Error> {
        self.links.replace_link(link)?;
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
        self.links.way_of(link).map(|(_, peer)| peer)
    }

    /// Over which path a link goes, and where its other end is.
    #[must_use]
    pub fn way_of(&self, link: LinkId) -> Option<(PathId, Peer)> {
        self.links.way_of(link)
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
        let barrier = BarrierId::new(number as u32, (number >> 32) as u32);
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
