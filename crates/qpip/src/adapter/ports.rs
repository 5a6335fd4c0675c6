//! Which addresses and ports a queue pair gets that asks for some: its own, or any
//! that is free.

use core::net::{IpAddr, SocketAddr};

use landfall_inet::flow::Share;
use landfall_placement::Random;

use super::demux::{Ends, plain};
use super::error::Error;
use super::interface::is_remote;
use super::links::Links;
use super::listeners::Listeners;
use super::queue_pairs::QueuePairs;
use super::routes::Route;

/// Ports for those who do not care which (RFC 6335).
const FIRST_EPHEMERAL: u16 = 49_152;
const EPHEMERAL: u16 = u16::MAX - FIRST_EPHEMERAL + 1;

/// By what a port is chosen, where any will do.
#[derive(Debug)]
pub(super) struct PortChooser<'a> {
    pub(super) random: &'a mut Random,
    /// It is in this share.
    pub(super) share: Share,
}

/// The two ends of a new connection, and the way between them.
pub(super) fn choose_ends(
    chooser: PortChooser<'_>,
    links: &Links,
    pairs: &QueuePairs,
    listeners: &Listeners,
    local: Option<SocketAddr>,
    remote: SocketAddr,
) -> Result<(Ends, Route), Error> {
    let PortChooser { random, share } = chooser;
    let remote = plain(remote);
    if remote.port() == 0 || !is_remote(remote.ip()) {
        return Err(Error::BadAddress(remote));
    }
    let from = local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
    if let Some(from) = from.filter(|from| !links.has(*from)) {
        return Err(Error::NotOurs(from));
    }
    let route = links.route(from, remote.ip()).ok_or(Error::NoRoute(remote.ip()))?;
    let is_ours = |local: SocketAddr| share.has_connection(local, remote);
    let is_free = |local: SocketAddr| {
        let ends = Ends { local, remote };
        pairs.is_free(ends) && listeners.is_free(ends)
    };
    let local = match local.map_or(0, |local| local.port()) {
        0 => free_port(random, route.source, |local| is_ours(local) && is_free(local))?,
        port => {
            let local = SocketAddr::new(route.source, port);
            if !is_ours(local) {
                return Err(Error::OfOtherShare(local));
            }
            if !is_free(local) {
                return Err(Error::Taken(local));
            }
            local
        }
    };
    Ok((Ends { local, remote }, route))
}

/// The port that a queue pair for datagrams is bound to.
pub(super) fn choose_port(
    chooser: PortChooser<'_>,
    links: &Links,
    pairs: &QueuePairs,
    local: SocketAddr,
) -> Result<SocketAddr, Error> {
    let PortChooser { random, share } = chooser;
    if local.ip().is_multicast() && local.port() == 0 {
        return Err(Error::BadAddress(local));
    }
    check_local(links, local)?;
    let is_free = |local: SocketAddr| pairs.bound_at(local).is_none();
    if local.port() == 0 {
        let is_ours = |local: SocketAddr| share.has_port(local.port());
        return free_port(random, local.ip(), |local| is_ours(local) && is_free(local));
    }
    let local = plain(local);
    if !share.has_port(local.port()) {
        return Err(Error::OfOtherShare(local));
    }
    if !is_free(local) {
        return Err(Error::Taken(local));
    }
    Ok(local)
}

/// Is it one of our addresses, or all of them?
pub(super) fn check_local(links: &Links, local: SocketAddr) -> Result<(), Error> {
    // What is sent to a group may be all that is received.
    let is_any = local.ip().is_unspecified() || local.ip().is_multicast();
    if !is_any && !links.has(local.ip()) {
        return Err(Error::NotOurs(local.ip()));
    }
    Ok(())
}

/// Any port of this address that is free (RFC 6056, algorithm 1).
fn free_port(
    random: &mut Random,
    address: IpAddr,
    is_free: impl Fn(SocketAddr) -> bool,
) -> Result<SocketAddr, Error> {
    let start = random.below(u64::from(EPHEMERAL)) as u16;
    (0..EPHEMERAL)
        .map(|n| FIRST_EPHEMERAL + (start + n) % EPHEMERAL)
        .map(|port| SocketAddr::new(address, port))
        .find(|local| is_free(*local))
        .ok_or(Error::NoPort)
}
