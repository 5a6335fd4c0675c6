//! Whom a connection is opened to: [`ToPeers`].

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use landfall_placement::Peer;
use stp_core::wire::carrier::UDP_PORT;

use super::error::Error;

/// What [`Endpoint::connect`](super::Endpoint::connect) takes: a [`Peer`], an address of UDP, or
/// the name of a host, with a port of UDP or without (then it is 8181). Of a name all addresses
/// are tried, one after another.
///
/// A name is looked up on the calling thread, as [`ToSocketAddrs`] does it. Tasks that must not
/// wait for that look it up themselves.
///
/// ```
/// use landfall::stp::{Peer, ToPeers};
///
/// let peers = "127.0.0.1:9".to_peers()?;
/// assert_eq!(peers, [Peer::Socket("127.0.0.1:9".parse()?)]);
/// assert_eq!("127.0.0.1".to_peers()?, [Peer::Socket("127.0.0.1:8181".parse()?)]);
/// assert!(matches!("localhost".to_peers()?[0], Peer::Socket(address) if address.port() == 8181));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ToPeers {
    /// All that it may mean, the best first.
    ///
    /// # Errors
    /// [`Error::Name`]: there is no such host.
    fn to_peers(&self) -> Result<Vec<Peer>, Error>;

    /// The host's name, if that is what it has: what a certificate has to be for.
    fn name(&self) -> Option<&str> {
        None
    }
}

impl ToPeers for Peer {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        Ok(vec![*self])
    }
}

impl ToPeers for SocketAddr {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        Ok(vec![Peer::Socket(*self)])
    }
}

impl ToPeers for SocketAddrV4 {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        SocketAddr::V4(*self).to_peers()
    }
}

impl ToPeers for SocketAddrV6 {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        SocketAddr::V6(*self).to_peers()
    }
}

impl ToPeers for (IpAddr, u16) {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        SocketAddr::from(*self).to_peers()
    }
}

impl ToPeers for (&str, u16) {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        look_up(self.0, *self)
    }

    fn name(&self) -> Option<&str> {
        host_name(self.0)
    }
}

impl ToPeers for str {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        let is_address = self.parse::<IpAddr>().is_ok();
        if is_address || !self.contains(':') {
            return look_up(self, (self, UDP_PORT));
        }
        look_up(self, self)
    }

    fn name(&self) -> Option<&str> {
        host_name(self.rsplit_once(':').map_or(self, |(host, _)| host))
    }
}

impl ToPeers for String {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        self.as_str().to_peers()
    }

    fn name(&self) -> Option<&str> {
        self.as_str().name()
    }
}

impl ToPeers for [SocketAddr] {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        Ok(self.iter().copied().map(Peer::Socket).collect())
    }
}

impl<T: ToPeers + ?Sized> ToPeers for &T {
    fn to_peers(&self) -> Result<Vec<Peer>, Error> {
        (**self).to_peers()
    }

    fn name(&self) -> Option<&str> {
        (**self).name()
    }
}

/// A host that is not said by its address.
fn host_name(host: &str) -> Option<&str> {
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    // What is left of an IPv6 address without its last group is no name either.
    (!is_address && !host.contains(':')).then_some(host)
}

fn look_up(name: &str, what: impl ToSocketAddrs) -> Result<Vec<Peer>, Error> {
    let failed = |source| Error::Name { name: name.to_owned(), source };
    let found: Vec<_> = what.to_socket_addrs().map_err(failed)?.map(Peer::Socket).collect();
    if found.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
    }
    Ok(found)
}
