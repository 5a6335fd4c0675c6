//! [`Messaging`]: endpoints, connections and messages of 40 bytes, out of band: one program text,
//! between processes of a host and over networks.
//!
//! Memory needs no connection. Endpoints are there to exchange cookies, and to learn that the
//! other side is gone; with the [event queue](super::events) they are what
//! [servers](super::server) of thousands of clients are made of.
//!
//! ```
//! use std::time::Instant;
//!
//! use landfall::clan::messaging::{Endpoint, Messaging};
//! use landfall::clan::network::{Notice, Port, PortAddress};
//! use landfall::clan::Error;
//!
//! /// Answers the first message that comes to a port with its own bytes.
//! fn echo<N: Messaging>(node: &N, port: Port, deadline: Option<Instant>) -> Result<(), Error> {
//!     let endpoint = node.endpoint(Some(port))?;
//!     while let Some(notice) = endpoint.wait_next(deadline)? {
//!         if let Notice::Message { from, body } = notice {
//!             return endpoint.send_to(from, body);
//!         }
//!     }
//!     Err(Error::TimedOut)
//! }
//! ```
//!
//! What does not live here: the states of a connection ([`clan_dsm::EndpointTable`]), and what
//! carries the messages.

use std::fmt::Debug;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use clan_dsm::{Body, ConnectRequest, EndpointState, HostId, Notice, Port, PortAddress, Reason};
use landfall_transport::driver::Interest;

use super::{Error, EventQueue, Eventful};

/// A fabric whose nodes have endpoints.
pub trait Messaging: Eventful<Events: MessageEvents<Endpoint = Self::Endpoint>> {
    /// An endpoint.
    type Endpoint: Endpoint;

    /// Opens an endpoint, at a port of your choice or at any.
    ///
    /// # Errors
    /// The port is taken, there is no room for one more, or the node has ended.
    fn endpoint(&self, port: Option<Port>) -> Result<Self::Endpoint, Error>;

    /// Which host this node is, in the addresses of its endpoints.
    fn host_id(&self) -> HostId;

    /// Publishes what was written, for those who write to many peers and call
    /// [`Fabric::relax`](super::Fabric::relax) afterwards: where that sends everything, nothing
    /// is done here.
    ///
    /// # Errors
    /// The peer is gone.
    fn publish(remote: &mut Self::Remote) -> Result<(), Error>;
}

/// An event queue that tells of endpoints, too.
pub trait MessageEvents: EventQueue {
    /// What is registered.
    type Endpoint;

    /// From now on notices at the endpoint are an event in this queue, with this token.
    ///
    /// # Errors
    /// The endpoint is of another node, or closed.
    fn register_endpoint(&self, endpoint: &Self::Endpoint, token: u64) -> Result<(), Error>;

    /// From now on no event of it comes. Closing the endpoint does the same.
    ///
    /// # Errors
    /// The node does not run any more.
    fn unregister_endpoint(&self, endpoint: &Self::Endpoint) -> Result<(), Error>;

    /// Sleeps until there is an event, one of the other descriptors is ready, or the deadline is
    /// over.
    ///
    /// # Errors
    /// The node does not run any more.
    fn select(&mut self, others: &[Interest], deadline: Option<Instant>) -> Result<(), Error>;
}

/// One end of connections and of messages. Clones are the same endpoint; when the last is gone it
/// is closed, and a connection that it has breaks off.
pub trait Endpoint: Clone + Debug + Send + Sync + 'static {
    /// Its port.
    fn port(&self) -> Port;

    /// How its connection stands.
    ///
    /// # Errors
    /// The node does not run any more.
    fn state(&self) -> Result<EndpointState, Error>;

    /// From now on it hears of those who want a connection.
    ///
    /// # Errors
    /// It has, or wants, a connection.
    fn listen(&self) -> Result<(), Error>;

    /// Asks a listener for a connection. The answer is a [`Notice`].
    ///
    /// # Errors
    /// [`Error::NoRoute`]: that host is not reached; [`Error::Busy`]; [`Error::Closed`] where
    /// it has a connection.
    fn connect(&self, to: PortAddress, body: Body) -> Result<(), Error>;

    /// Takes a connection that a listener was asked for, with this endpoint: a new one, or one
    /// whose connection is over.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    fn accept(&self, request: &ConnectRequest, body: Body) -> Result<(), Error>;

    /// Lets somebody who asked for a connection know that there will be none.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    fn refuse(&self, request: &ConnectRequest, reason: Reason, body: Body) -> Result<(), Error>;

    /// Sends a message on the connection.
    ///
    /// # Errors
    /// [`Error::Closed`] without one, [`Error::Busy`].
    fn send(&self, body: Body) -> Result<(), Error>;

    /// Sends a message to any endpoint, whatever connections there are.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    fn send_to(&self, to: PortAddress, body: Body) -> Result<(), Error>;

    /// Says that this side will send nothing more. Once both sides have said so, the connection
    /// is complete, and the endpoint can have another one.
    ///
    /// # Errors
    /// [`Error::Closed`] without a connection, [`Error::Busy`].
    fn disconnect(&self, body: Body) -> Result<(), Error>;

    /// Breaks the connection off, or gives up asking for one.
    ///
    /// # Errors
    /// There is none.
    fn abort(&self) -> Result<(), Error>;

    /// The next notice, if there is one.
    fn try_next(&self) -> Option<Notice>;

    /// Waits on this thread; nothing if none came before the deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    fn wait_next(&self, deadline: Option<Instant>) -> Result<Option<Notice>, Error>;

    /// The next notice, for a task. One task waits at a time: the last to ask is woken.
    ///
    /// # Errors
    /// The node does not run any more.
    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Notice, Error>>;

    /// Waits for the next notice, on any executor.
    ///
    /// # Errors
    /// The node does not run any more.
    fn next(&self) -> impl Future<Output = Result<Notice, Error>> + Send {
        poll_fn(|context| self.poll_next(context))
    }
}

/// What every endpoint has under its own name: `$endpoint` does as it does.
macro_rules! as_endpoint {
    ($endpoint:ty) => {
        impl $crate::clan::messaging::Endpoint for $endpoint {
            fn port(&self) -> clan_dsm::Port {
                Self::port(self)
            }

            fn state(&self) -> Result<clan_dsm::EndpointState, Error> {
                Self::state(self)
            }

            fn listen(&self) -> Result<(), Error> {
                Self::listen(self)
            }

            fn connect(&self, to: PortAddress, body: Body) -> Result<(), Error> {
                Self::connect(self, to, body)
            }

            fn accept(&self, request: &ConnectRequest, body: Body) -> Result<(), Error> {
                Self::accept(self, request, body)
            }

            fn refuse(
                &self,
                request: &ConnectRequest,
                reason: Reason,
                body: Body,
            ) -> Result<(), Error> {
                Self::refuse(self, request, reason, body)
            }

            fn send(&self, body: Body) -> Result<(), Error> {
                Self::send(self, body)
            }

            fn send_to(&self, to: PortAddress, body: Body) -> Result<(), Error> {
                Self::send_to(self, to, body)
            }

            fn disconnect(&self, body: Body) -> Result<(), Error> {
                Self::disconnect(self, body)
            }

            fn abort(&self) -> Result<(), Error> {
                Self::abort(self)
            }

            fn try_next(&self) -> Option<Notice> {
                Self::try_next(self)
            }

            fn wait_next(&self, deadline: Option<Instant>) -> Result<Option<Notice>, Error> {
                Self::wait_next(self, deadline)
            }

            fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Notice, Error>> {
                Self::poll_next(self, context)
            }
        }
    };
}
pub(crate) use as_endpoint;
