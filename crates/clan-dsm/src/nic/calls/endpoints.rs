//! Endpoints, their connections and out-of-band messages.

use landfall_placement::Instant;

use crate::address::HostId;
use crate::endpoint::{
    Body, ConnectRequest, EndpointState, Notice, OutOfBand, Outgoing, Port, PortAddress,
};
use crate::error::{Error, Reason};
use crate::events::Source;
use crate::ids::{EndpointId, LinkId};
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
        self.say(link, &message)
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
        self.say(link, &message)
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
        self.say(link, &message)
    }

    /// Sends a message on the connection of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::NoLink`], [`Error::Busy`].
    pub fn send(&mut self, endpoint: EndpointId, body: Body) -> Result<(), Error> {
        let link = self.link_with_room(self.endpoints.peer(endpoint)?.host)?;
        let message = self.endpoints.send(endpoint, body)?;
        self.say(link, &message)
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
        self.say(link, &message)
    }

    /// Says that this side will send nothing more on a connection.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn disconnect(&mut self, endpoint: EndpointId, body: Body) -> Result<(), Error> {
        let link = self.link_with_room(self.endpoints.peer(endpoint)?.host)?;
        let message = self.endpoints.disconnect(endpoint, body)?;
        self.say(link, &message)
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
    fn say(&mut self, link: LinkId, outgoing: &Outgoing) -> Result<(), Error> {
        let line = self.lines.get_mut(link).ok_or(Error::NoLink)?;
        let command = Command::OutOfBand(outgoing.message.to_bytes());
        let (address, parameters) = command.encode(outgoing.host);
        line.writes.command(address, &parameters, false)?;
        self.links.wake(link);
        Ok(())
    }
}
