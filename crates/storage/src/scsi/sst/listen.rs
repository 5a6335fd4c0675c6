//! [`Server::listen_sst`]: initiators that come in over STP.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;

use landfall::stp::{Connection, Endpoint, Peer, blocking};
use landfall_placement::Duration;
use sockets_compat::{Address, Carrier};

use super::Inbox;
use super::target::{Replies, serve};
use crate::scsi::{Common, Server};

/// A listener looks so often whether its server has ended.
const LOOK: Duration = Duration::from_millis(200);

impl Server {
    /// Lets initiators come in over STP at a port of this endpoint, with data as Transfers: they are
    /// [`Initiator`](super::Initiator)s.
    ///
    /// # Errors
    /// The port is taken, or no thread can be started; or initiators have to prove themselves by CHAP,
    /// which is of iSCSI alone.
    pub fn listen_sst(&self, endpoint: &Endpoint, port: u16) -> io::Result<()> {
        if self.common.chap.is_some() {
            let what = "CHAP is of iSCSI: over STP anyone would come in without it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let listener = blocking::Endpoint::from(endpoint.clone()).listen(port);
        let (listener, common) = (listener.map_err(io::Error::other)?, Arc::clone(&self.common));
        named().spawn(move || {
            while !common.is_ending.load(Ordering::Acquire) {
                match listener.accept_within(LOOK) {
                    Ok(Some(connection)) => admit(connection.as_async().clone(), &common),
                    Ok(None) => {}
                    Err(error) => {
                        return common.say(&format!("no more initiators come in here: {error}"));
                    }
                }
            }
        })?;
        Ok(())
    }
}

/// Where initiators reach an endpoint.
pub(in crate::scsi) fn address(endpoint: &Endpoint, port: u16) -> io::Result<Address> {
    match endpoint.local() {
        Some(Peer::Socket(at)) => {
            Ok(Address::Stp { host: at.ip(), port, carrier: Carrier::Udp(at.port()) })
        }
        Some(Peer::Ip(host)) => Ok(Address::Stp { host, port, carrier: Carrier::Ip }),
        _ => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

fn named() -> thread::Builder {
    thread::Builder::new().name("landfall-scsi".into())
}

fn admit(connection: Connection, common: &Arc<Common>) {
    let inbox: Arc<Replies> = Inbox::new();
    let mut direct = common.direct.lock().unwrap_or_else(PoisonError::into_inner);
    direct.retain(|other| other.strong_count() > 0);
    if direct.len() >= common.most_clients {
        return common.say("an initiator over STP was turned away, for there are too many");
    }
    direct.push(Arc::downgrade(&inbox));
    drop(direct);
    let of_client = Arc::clone(common);
    let spawned = named().spawn(move || {
        if let Err(error) = serve(connection, &of_client, &inbox) {
            of_client.say(&format!("an initiator over STP is gone: {error}"));
        }
    });
    if let Err(error) = spawned {
        common.say(&format!("cannot serve: {error}"));
    }
}

/// Initiators see the end of their connections.
pub(in crate::scsi) fn end_all(common: &Common) {
    let mut direct = common.direct.lock().unwrap_or_else(PoisonError::into_inner);
    for inbox in direct.drain(..).filter_map(|inbox| Weak::upgrade(&inbox)) {
        inbox.end();
    }
}
