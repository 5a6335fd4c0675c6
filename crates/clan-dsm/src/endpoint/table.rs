//! [`EndpointTable`]: the endpoints of a host whose messages another carrier than an adapter
//! brings, as processes of one host that share memory.
//!
//! Each call gives the message that has to be sent, if it sends one; what comes is handed in, and
//! answered by [`poll_answer`](EndpointTable::poll_answer). Messages between two hosts have to
//! arrive in order, each once, or the host is [lost](EndpointTable::handle_host_gone).

use alloc::vec::Vec;

use landfall_placement::Seed;
use landfall_tables::HashSecret;

use super::{
    Body, ConnectRequest, EndpointState, Endpoints, Notice, OutOfBand, Outgoing, Port, PortAddress,
};
use crate::address::{EndpointId, HostId};
use crate::error::{Ended, Error, Reason};

/// All endpoints of a host.
///
/// ```
/// use clan_dsm::{EndpointTable, HostId, Notice, Port, PortAddress};
///
/// let host = |number| HostId::new(number).unwrap();
/// let (mut here, mut there) = (EndpointTable::new(8, 8, [1; 32]), EndpointTable::new(8, 8, [2; 32]));
/// let (one, two) = (here.open(None)?, there.open(Some(Port(7)))?);
/// let to = PortAddress { host: host(2), port: Port(7) };
/// let outgoing = here.send_to(one, to, [5; 40])?;
/// assert_eq!(outgoing.host, host(2));
/// // The carrier brings it there.
/// let mut told = Vec::new();
/// there.handle_message(host(1), &outgoing.message, &mut told);
/// assert_eq!(told, [two]);
/// assert!(matches!(there.poll_notice(two), Some(Notice::Message { body: [5, ..], .. })));
/// # Ok::<(), clan_dsm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EndpointTable(Endpoints);

impl EndpointTable {
    /// No endpoints yet, at most this many, each with room for this many messages. The seed is
    /// another one at each start.
    #[must_use]
    pub fn new(most: usize, messages: usize, seed: Seed) -> Self {
        let word =
            |at: usize| seed[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self(Endpoints::new(most, messages, HashSecret::new(word(0), word(8)), word(16)))
    }

    /// Opens an endpoint, at a port that is given or at a free one.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::NoRoom`].
    pub fn open(&mut self, port: Option<Port>) -> Result<EndpointId, Error> {
        self.0.open(port)
    }

    /// Closes an endpoint. A connection that it has breaks off.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn close(&mut self, id: EndpointId) -> Result<(), Error> {
        self.0.close(id)
    }

    /// The port of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn port(&self, id: EndpointId) -> Result<Port, Error> {
        self.0.port(id)
    }

    /// The state of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn state(&self, id: EndpointId) -> Result<EndpointState, Error> {
        self.0.state(id)
    }

    /// Who is at the other end of a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`].
    pub fn peer(&self, id: EndpointId) -> Result<PortAddress, Error> {
        self.0.peer(id)
    }

    /// From now on the endpoint hears of those who want a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], and [`Error::Taken`] while it has a connection.
    pub fn listen(&mut self, id: EndpointId) -> Result<(), Error> {
        self.0.listen(id)
    }

    /// Asks a listener for a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Busy`], [`Error::Taken`].
    pub fn connect(
        &mut self,
        id: EndpointId,
        to: PortAddress,
        body: Body,
    ) -> Result<Outgoing, Error> {
        self.0.connect(id, to, body)
    }

    /// Takes a connection that was asked for, with this endpoint.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(
        &mut self,
        id: EndpointId,
        request: &ConnectRequest,
        body: Body,
    ) -> Result<Outgoing, Error> {
        self.0.accept(id, request, body)
    }

    /// Lets somebody who asked for a connection know that there will be none.
    #[must_use]
    pub fn refuse(&self, request: &ConnectRequest, reason: Reason, body: Body) -> Outgoing {
        self.0.refuse(request, reason, body)
    }

    /// Sends a message on the connection of an endpoint.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`].
    pub fn send(&mut self, id: EndpointId, body: Body) -> Result<Outgoing, Error> {
        self.0.send(id, body)
    }

    /// Sends a message to any endpoint, whatever connections there are.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn send_to(
        &mut self,
        id: EndpointId,
        to: PortAddress,
        body: Body,
    ) -> Result<Outgoing, Error> {
        self.0.send_to(id, to, body)
    }

    /// Says that this side will send nothing more on a connection.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn disconnect(&mut self, id: EndpointId, body: Body) -> Result<Outgoing, Error> {
        self.0.disconnect(id, body)
    }

    /// Breaks a connection off, or gives up asking for one.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`].
    pub fn abort(&mut self, id: EndpointId) -> Result<(), Error> {
        self.0.abort(id)
    }

    /// Do notices wait at an endpoint?
    #[must_use]
    pub fn has_notices(&self, id: EndpointId) -> bool {
        self.0.has_notices(id)
    }

    /// The next notice of an endpoint.
    pub fn poll_notice(&mut self, id: EndpointId) -> Option<Notice> {
        self.0.poll_notice(id)
    }

    /// A message came from this host; adds the endpoints that have something new.
    pub fn handle_message(
        &mut self,
        host: HostId,
        message: &OutOfBand,
        told: &mut Vec<EndpointId>,
    ) {
        // That answers of the host were lost is told to those who wait for one.
        let _ = self.0.handle_message(host, message, &mut |id| told.push(id));
    }

    /// A host is lost: all connections with it are over; adds the endpoints that had one.
    pub fn handle_host_gone(&mut self, host: HostId, why: Ended, told: &mut Vec<EndpointId>) {
        self.0.handle_host_gone(host, why, &mut |id| told.push(id));
    }

    /// The next host that has answers to get, and had none before.
    pub fn poll_host(&mut self) -> Option<HostId> {
        self.0.poll_host()
    }

    /// The next answer for this host.
    pub fn poll_answer(&mut self, host: HostId) -> Option<OutOfBand> {
        self.0.poll_answer(host)
    }
}
