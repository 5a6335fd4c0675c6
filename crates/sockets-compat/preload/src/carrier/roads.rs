//! Streams between carriers: over the Scheduled Transfer Protocol, or over queue pairs.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use landfall::qpip::{Adapter, Link};
use landfall_socket_rules::Way;
use sockets_compat::{
    Address, QpHost, QpListener, QpOptions, QpStream, StpHost, StpOptions, StpStream,
    StpStreamListener,
};

use super::config::Config;
use super::of_host;

/// The port of STP at which carriers hear each other: protocol 118 is STP's own.
const STP_PORT: u16 = 118;
/// The port of TCP within the tunnel.
const QP_PORT: u16 = 118;

/// Where streams come from.
pub(super) enum Roads {
    Stp { host: StpHost, listener: StpStreamListener, udp: u16 },
    Qpip { host: QpHost, listener: QpListener },
}

impl Roads {
    pub(super) fn open(config: &Config) -> io::Result<Self> {
        let listen = SocketAddr::new(of_host(config.listen.ip()), config.listen.port());
        if config.over == Way::Qpip {
            let host = queue_pairs(listen, config)?;
            let listener = host.listen(SocketAddr::new(listen.ip(), QP_PORT))?;
            return Ok(Self::Qpip { host, listener });
        }
        let mut options = StpOptions::default();
        // Those that were closed a moment ago count, too.
        options.connections = config.most.saturating_mul(4).max(64);
        let host = StpHost::bind_udp(listen, options)?;
        let listener = host.listen_streams(STP_PORT)?;
        Ok(Self::Stp { host, listener, udp: config.port })
    }

    pub(super) fn connect(&self, host: IpAddr) -> io::Result<Road> {
        let to = of_host(host);
        match self {
            Self::Stp { host, udp, .. } => {
                let carrier = sockets_compat::Carrier::Udp(*udp);
                let there = Address::Stp { host: to, port: STP_PORT, carrier };
                host.connect_stream(there).map(Road::Stp)
            }
            Self::Qpip { host, .. } => host.connect(SocketAddr::new(to, QP_PORT)).map(Road::Qpip),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Road> {
        match self {
            Self::Stp { listener, .. } => listener.accept().map(|(stream, _)| Road::Stp(stream)),
            Self::Qpip { listener, .. } => listener.accept().map(|(stream, _)| Road::Qpip(stream)),
        }
    }
}

/// An adapter of a tunnel in which each host has the address that it has outside.
fn queue_pairs(listen: SocketAddr, config: &Config) -> io::Result<QpHost> {
    let link = Link::tunnel(listen, config.peers.iter().copied());
    // All that can be reached is at the other end of the tunnel.
    let address = format!("{}/0", listen.ip());
    let adapter = Adapter::builder().link(link).address(address).mac(station_of(listen)).open();
    QpHost::new(adapter.map_err(io::Error::other)?, QpOptions::default())
}

/// One that takes the place of another is the same station: others need not find out first.
fn station_of(listen: SocketAddr) -> [u8; 6] {
    const IS_GROUP: u8 = 1;
    const IS_LOCAL: u8 = 2;
    let [first, rest @ ..] = *blake3::hash(listen.to_string().as_bytes()).as_bytes();
    let mut station = [first & !IS_GROUP | IS_LOCAL; 6];
    station[1..].copy_from_slice(&rest[..5]);
    station
}

/// A stream to another carrier.
pub(super) enum Road {
    Stp(StpStream),
    Qpip(QpStream),
}

macro_rules! either {
    ($road:expr, $stream:ident => $does:expr) => {
        match $road {
            Road::Stp($stream) => $does,
            Road::Qpip($stream) => $does,
        }
    };
}

impl Road {
    pub(super) fn hears_within(&self, limit: Duration) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(Some(limit)))
    }

    pub(super) fn writes_within(&self, limit: Duration) -> io::Result<()> {
        either!(self, stream => stream.set_write_timeout(Some(limit)))
    }

    pub(super) fn shut(&self, how: Shutdown) {
        let _ = either!(self, stream => stream.shutdown(how));
    }
}

impl Read for &Road {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => (&mut &*stream).read(into))
    }
}

impl Write for &Road {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => (&mut &*stream).write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, stream => (&mut &*stream).flush())
    }
}
