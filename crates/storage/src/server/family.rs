//! Clients that come in over queue pairs and over STP.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sockets_compat::{
    Accepted, Address, Blocking, Carrier as StpCarrier, Listener, QpHost, StpHost, ToAddress,
};

use super::{BlockServer, StreamServer};
use crate::stream::Stream;
use crate::uri::Carrier;

/// A listener of the family looks so often whether its server has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Where clients come in: `ADDRESS:PORT`, `qp://ADDRESS:PORT` or `stp://ADDRESS:PORT[/udp/PORT]`.
///
/// ```
/// use landfall_storage::server::ListenAddress;
///
/// let at: ListenAddress = "qp://10.9.0.2:10809".parse()?;
/// assert_eq!(at, ListenAddress::Qp("10.9.0.2:10809".parse().unwrap()));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Over the kernel's TCP.
    Tcp(SocketAddr),
    /// Over queue pairs.
    Qp(SocketAddr),
    /// Over STP, by UDP.
    Stp {
        /// The address of this end.
        ip: IpAddr,
        /// STP's own port.
        port: u16,
        /// The port of UDP that carries it.
        udp: u16,
    },
}

impl ListenAddress {
    /// The address without its port.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        match self {
            Self::Tcp(at) | Self::Qp(at) => at.ip(),
            Self::Stp { ip, .. } => *ip,
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("stp://") {
            return match text.parse() {
                Ok(Address::Stp { host: ip, port, carrier: StpCarrier::Udp(udp) }) => {
                    Ok(Self::Stp { ip, port, udp })
                }
                Ok(_) => Err(format!("`{text}` is not served: leave /ip out, and it is UDP")),
                Err(error) => Err(error.to_string()),
            };
        }
        let (socket, make): (_, fn(SocketAddr) -> Self) = match text.split_once("://") {
            Some(("qp", socket)) => (socket, Self::Qp),
            Some(("tcp", socket)) => (socket, Self::Tcp),
            None => (text, Self::Tcp),
            Some(_) => {
                return Err(format!("`{text}`: 127.0.0.1:80, qp:// or stp://10.9.0.2:80 would do"));
            }
        };
        let wrong = |_| format!("`{socket}` is no address with a port, as 127.0.0.1:80 is");
        socket.parse().map(make).map_err(wrong)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => at.fmt(f),
            Self::Qp(at) => write!(f, "qp://{at}"),
            Self::Stp { ip, port, .. } => write!(f, "stp://{}", SocketAddr::new(*ip, *port)),
        }
    }
}

/// Opens what carries clients, where an address asks for it.
pub trait Hosts {
    /// What may go wrong.
    type Error: From<io::Error>;

    /// The adapter of queue pairs with this address.
    ///
    /// # Errors
    /// It cannot be opened.
    fn queue_pairs(&mut self, at: SocketAddr) -> Result<QpHost, Self::Error>;

    /// An endpoint of STP at this port of UDP.
    ///
    /// # Errors
    /// It cannot be opened.
    fn stp(&mut self, at: SocketAddr) -> Result<StpHost, Self::Error>;
}

/// Lets clients of a server come in at an address. Gives it as clients write it, with the port, which may
/// have been 0.
///
/// # Errors
/// Those of what carries them.
pub fn listen_at<H: Hosts>(
    server: &dyn BlockServer,
    address: &ListenAddress,
    hosts: &mut H,
) -> Result<Carrier, H::Error> {
    Ok(match *address {
        ListenAddress::Tcp(at) => {
            let local = server.streams().listen(at)?;
            Carrier::Tcp { host: local.ip().to_string(), port: local.port() }
        }
        ListenAddress::Qp(at) => {
            let local = server.streams().listen_qp(&hosts.queue_pairs(at)?, at)?;
            let port = local.port().unwrap_or(at.port());
            Carrier::Qp { host: at.ip().to_string(), port }
        }
        ListenAddress::Stp { ip, port, udp } => {
            let local = server.listen_stp(&hosts.stp(SocketAddr::new(ip, udp))?, port)?;
            let (port, udp) = match local {
                Address::Stp { port, carrier: StpCarrier::Udp(udp), .. } => (port, udp),
                _ => (port, udp),
            };
            Carrier::Stp { host: ip.to_string(), port, udp }
        }
    })
}

impl StreamServer {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_in_over_tcp_queue_pairs_and_stp() {
        let at: SocketAddr = "10.9.0.2:7".parse().unwrap();
        assert_eq!("10.9.0.2:7".parse(), Ok(ListenAddress::Tcp(at)));
        assert_eq!("tcp://10.9.0.2:7".parse(), Ok(ListenAddress::Tcp(at)));
        assert_eq!("qp://10.9.0.2:7".parse(), Ok(ListenAddress::Qp(at)));
        let stp = |udp| ListenAddress::Stp { ip: at.ip(), port: 7, udp };
        assert_eq!("stp://10.9.0.2:7".parse(), Ok(stp(8181)));
        assert_eq!("stp://10.9.0.2:7/udp/4000".parse(), Ok(stp(4000)));
        for wrong in ["10.9.0.2", "stp://10.9.0.2", "clan://10.9.0.2:7", "stp://x:7"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }
}
