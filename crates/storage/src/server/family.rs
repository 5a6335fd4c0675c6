//! Clients that come in over queue pairs and over STP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sockets_compat::{Accepted, Address, Blocking, Listener, QpHost, StpHost, ToAddress};

use super::Server;
use crate::stream::Stream;

/// A listener of the family looks so often whether its server has ended.
const LOOK: Duration = Duration::from_millis(200);

impl Server {
    /// Lets clients come in at a port of this adapter: other queue pairs, and any TCP that
    /// reaches it. Gives the address.
    ///
    /// # Errors
    /// Those of [`QpHost::listen`].
    pub fn listen_qp(&self, host: &QpHost, address: impl ToAddress) -> io::Result<Address> {
        self.accept_from(host.listen(address)?)
    }

    /// Lets clients come in at a port of STP of this endpoint; at 0 it is one that is free. Gives
    /// the address.
    ///
    /// # Errors
    /// Those of [`StpHost::listen_streams`].
    pub fn listen_stp(&self, host: &StpHost, port: u16) -> io::Result<Address> {
        self.accept_from(host.listen_streams(port)?)
    }

    fn accept_from<S>(&self, listener: Listener<S>) -> io::Result<Address>
    where
        S: Accepted<Mode = Blocking> + Stream,
        Listener<S>: Send,
    {
        let local = listener.local_addr()?;
        listener.set_accept_timeout(Some(LOOK))?;
        let accept = move || {
            let (stream, from) = listener.accept()?;
            Ok((Arc::new(stream) as Arc<dyn Stream>, from.to_string()))
        };
        self.accept(accept, || {})?;
        Ok(local)
    }
}
