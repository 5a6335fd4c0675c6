//! Ways between the two sides: addresses, interfaces, and endpoints on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Builder, Config, PathId, Peer, Transport, UDP_PORT};
use landfall_transport::interfaces;

use super::wire::{Address, MOST_PIECE, SERVICE};
use landfall_lab::machine::receive_buffer;

/// An address of this machine, as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// With a port, or without.
    Address(IpAddr, Option<u16>),
    Interface(String, Option<u16>),
}

impl Local {
    /// `192.0.2.1`, `192.0.2.1:8181`, `fd00::1`, `[fd00::1]:8181`, `eth1`, `eth1:8181`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(address.ip(), Some(address.port())));
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse() {
            return Ok(Self::Address(ip, None));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => match port.parse() {
                Ok(port) => (name, Some(port)),
                Err(_) => return Err(format!("{text:?} has no port that is a number")),
            },
            None => (text, None),
        };
        // As the kernel has it: IFNAMSIZ, less the zero at the end.
        if name.is_empty() || name.len() > 15 || name.contains(['/', '[', ']', ' ']) {
            return Err(format!("{text:?} is no address and no name of an interface"));
        }
        Ok(Self::Interface(name.into(), port))
    }

    /// Its addresses with ports; of an interface the first that a peer can reach.
    fn resolve(&self, port: u16) -> Result<SocketAddr> {
        match self {
            Self::Address(ip, own) => Ok(SocketAddr::new(*ip, own.unwrap_or(port))),
            Self::Interface(name, own) => {
                let all = interfaces::addresses_of(name)
                    .with_context(|| format!("cannot read the addresses of {name}"))?;
                let usable = |ip: &&IpAddr| match ip {
                    IpAddr::V4(_) => true,
                    IpAddr::V6(ip) => !ip.is_unicast_link_local(),
                };
                let Some(ip) = all.iter().find(usable) else {
                    bail!("there is no interface {name} that is up and has an address");
                };
                Ok(SocketAddr::new(*ip, own.unwrap_or(port)))
            }
        }
    }
}

/// `HOST` or `HOST:PORT`, in brackets where it is an address of IPv6.
pub(crate) fn resolve_host(text: &str) -> Result<SocketAddr> {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, UDP_PORT));
    }
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let found: io::Result<Vec<_>> = if has_port {
        text.to_socket_addrs().map(Iterator::collect)
    } else {
        (text, UDP_PORT).to_socket_addrs().map(Iterator::collect)
    };
    let found = found.with_context(|| format!("cannot find the host {text:?}"))?;
    found.into_iter().next().with_context(|| format!("the host {text:?} has no address"))
}

/// What the user chose about the network.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) locals: Vec<Local>,
    /// How long the other side may be silent.
    pub(crate) patience: Duration,
}

/// The sender's endpoint, on its local addresses or any.
pub(crate) fn open_sender(choice: &Choice, to: SocketAddr) -> Result<Endpoint> {
    let locals = if choice.locals.is_empty() {
        vec![Local::Address(any_like(to), None)]
    } else {
        choice.locals.clone()
    };
    let addresses: Vec<SocketAddr> =
        locals.iter().map(|local| local.resolve(0)).collect::<Result<_>>()?;
    open(&addresses, choice, to.ip().is_loopback())
}

/// The receiver's endpoint; the network of its peers is not known yet.
pub(crate) fn open_receiver(choice: &Choice) -> Result<Endpoint> {
    let locals = if choice.locals.is_empty() {
        vec![Local::Address(Ipv4Addr::UNSPECIFIED.into(), None)]
    } else {
        choice.locals.clone()
    };
    let addresses: Vec<SocketAddr> =
        locals.iter().map(|local| local.resolve(UDP_PORT)).collect::<Result<_>>()?;
    let is_own = addresses.iter().all(|address| address.ip().is_loopback());
    open(&addresses, choice, is_own)
}

/// A queued datagram takes more kernel memory than it has bytes.
const BUFFER_PER_WINDOW: u32 = 3;

/// This many connections may wait to be greeted, and this many may not have proven yet that they
/// hear this side. The oldest of those makes room.
const BACKLOG: usize = 128;
/// Far more than all that wait, are greeted and are served: one that was sent away and does
/// not answer that is remembered until its `--patience` is over.
const CONNECTIONS: usize = 8192;

fn open(addresses: &[SocketAddr], choice: &Choice, is_own: bool) -> Result<Endpoint> {
    // What a transfer says is encrypted before an endpoint sees it, with keys of its code.
    let builder = Builder::default().plaintext();
    let mut builder = builder.config(config(choice, is_own)).backlog(BACKLOG);
    for address in addresses {
        builder = builder.path(Transport::udp(*address));
    }
    Ok(Endpoint::from(builder.bind()?))
}

fn config(choice: &Choice, is_own: bool) -> Config {
    let usual = if is_own { Config::default() } else { Config::shared_network() };
    // The engine gives up after 512 times as long.
    let retry_after = (choice.patience / 512).max(Duration::from_millis(5));
    Config {
        window: window(),
        retry_after,
        retry_floor: retry_after,
        keep_alive: usual.keep_alive.map(|after| after.max(retry_after)),
        connections: CONNECTIONS,
        half_open: BACKLOG,
        links: CONNECTIONS,
        ..usual
    }
}

/// What may be granted: as much as the socket's buffer holds, and whole transfers where it
/// holds one, for a guess ends where a transfer does.
fn window() -> u64 {
    const PLENTY: u64 = 4 << 20;
    let (room, transfer) = (u64::from(receive_buffer() / BUFFER_PER_WINDOW), MOST_PIECE as u64);
    let whole = if room < transfer { room } else { room / transfer * transfer };
    whole.min(PLENTY)
}

fn any_like(to: SocketAddr) -> IpAddr {
    if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Connects over the first local address from where the receiver answers.
pub(crate) fn connect(endpoint: &Endpoint, to: SocketAddr) -> Result<Connection> {
    let mut why = None;
    for path in endpoint.as_async().paths() {
        match endpoint.wait(endpoint.as_async().connect_over(path, to, SERVICE, 0)) {
            Ok(connection) => return Ok(Connection::from(connection)),
            Err(error) => why = Some(error),
        }
    }
    let why = why.map_or_else(|| "there is no way".to_owned(), |why| why.to_string());
    bail!(
        "nobody answers at {to} ({why}). Is `landfall receive` running there, and does a \
         firewall let UDP port {} through?",
        to.port()
    )
}

/// Where this endpoint can be reached.
pub(crate) fn addresses_of(endpoint: &Endpoint) -> Vec<SocketAddr> {
    let endpoint = endpoint.as_async();
    let address = |path| match endpoint.local_of(path) {
        Some(Peer::Socket(address)) => Some(address),
        _ => None,
    };
    endpoint.paths().into_iter().filter_map(address).collect()
}

/// Adds the ways beside the first: each local address in turn with each of the receiver's.
pub(crate) fn stripe(
    endpoint: &Endpoint,
    connection: &Connection,
    to: SocketAddr,
    ways: &[Address],
) {
    let paths = endpoint.as_async().paths();
    let known = connection.links();
    for (path, peer) in pairs(&paths, to, ways) {
        let is_known = known.iter().any(|link| link.path == path && link.peer == peer);
        if !is_known && let Err(error) = connection.add_link(path, peer) {
            eprintln!("landfall: no way to {peer} beside the first: {error}");
        }
    }
}

fn pairs(paths: &[PathId], to: SocketAddr, ways: &[Address]) -> Vec<(PathId, Peer)> {
    // A receiver on all addresses is reached at the one that is known.
    let named = |way: &Address| {
        let ip = if way.ip().is_unspecified() { to.ip() } else { way.ip() };
        SocketAddr::new(ip, way.port())
    };
    let mut there: Vec<_> =
        ways.iter().map(named).filter(|way| way.is_ipv4() == to.is_ipv4()).collect();
    if there.is_empty() {
        there.push(to);
    }
    let pair = |nth: usize| (paths[nth % paths.len()], Peer::Socket(there[nth % there.len()]));
    (0..paths.len().max(there.len())).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_interfaces_are_told_apart() {
        let v4 = IpAddr::from([192, 0, 2, 1]);
        let v6: IpAddr = "fd00::1".parse().unwrap();
        for (text, local) in [
            ("192.0.2.1", Local::Address(v4, None)),
            ("192.0.2.1:99", Local::Address(v4, Some(99))),
            ("fd00::1", Local::Address(v6, None)),
            ("[fd00::1]", Local::Address(v6, None)),
            ("[fd00::1]:99", Local::Address(v6, Some(99))),
            ("eth1", Local::Interface("eth1".into(), None)),
            ("eth1:99", Local::Interface("eth1".into(), Some(99))),
        ] {
            assert_eq!(Local::parse(text).as_ref(), Ok(&local), "{text}");
        }
        for text in ["", "eth1:x", "a/b", "an-interface-with-a-long-name", "192.0.2.1:99999"] {
            assert!(Local::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interface_has_the_addresses_that_the_kernel_says() {
        let found = Local::parse("lo:7").unwrap().resolve(8).unwrap();
        assert!(found.ip().is_loopback() && found.port() == 7);
        assert!(Local::parse("nosuchif0").unwrap().resolve(8).is_err());
    }

    #[test]
    fn hosts_have_the_usual_port_unless_they_say_another() {
        for (text, port) in
            [("127.0.0.1", UDP_PORT), ("127.0.0.1:9", 9), ("[::1]:9", 9), ("::1", UDP_PORT)]
        {
            assert_eq!(resolve_host(text).unwrap().port(), port, "{text}");
        }
        assert!(resolve_host("no such host").is_err());
    }

    #[test]
    fn every_way_is_used_and_each_address_in_turn() {
        let paths = [PathId(0), PathId(1)];
        let to: SocketAddr = "192.0.2.9:7".parse().unwrap();
        let peer = |text: &str| Peer::Socket(text.parse().unwrap());
        let any = "0.0.0.0:7".parse().unwrap();
        let both = [(paths[0], Peer::Socket(to)), (paths[1], Peer::Socket(to))];
        assert_eq!(pairs(&paths, to, &[any]), both);
        let two = ["192.0.2.9:7".parse().unwrap(), "198.51.100.9:7".parse().unwrap()];
        let crossed = [(paths[0], Peer::Socket(to)), (paths[1], peer("198.51.100.9:7"))];
        assert_eq!(pairs(&paths, to, &two), crossed);
        let from_one = [(paths[0], Peer::Socket(to)), (paths[0], peer("198.51.100.9:7"))];
        assert_eq!(pairs(&paths[..1], to, &two), from_one);
    }
}
