//! ARP, ICMP and neighbour discovery: who asks for us is answered, and who answers
//! us is heard. An error about what we sent reaches whom it concerns.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::{Instant, Refusal};

use super::arrival::Arrival;
use crate::adapter::context::Context;
use crate::adapter::event::Event;
use crate::adapter::interface::is_remote;
use crate::adapter::links::{Links, NeighbourClaim};
use crate::adapter::queue_pair::QueuePair;
use crate::adapter::queue_pairs::QueuePairs;
use crate::ip::answer::{self, Arrived, Host, Host6};
use crate::ip::neighbours::NeighbourMessage;
use crate::ip::reassembly::MissingPieces;
use crate::tcp::Ends;
use crate::tcp::tcb::CloseReason;
use crate::wire::arp::{Arp, Operation};
use crate::wire::icmp::{Echo, Report, Trouble};
use crate::wire::ndp::Neighbour;
use crate::wire::{Problem, Stop, ethernet, group, icmp4, icmp6, ndp, protocol, router};
use crate::work::QueuePairId;

/// What a message of ICMP leaves to be done.
#[derive(Debug)]
pub(in crate::adapter) enum IcmpStep {
    /// Nothing.
    Done,
    /// A neighbour has answered: these waited for it.
    Wake(Vec<QueuePairId>),
    /// A connection was told of an error. It may be over, or has to send again.
    Told { id: QueuePairId, sends_again: bool },
}

/// RFC 826, with what RFC 5227 says of probes. Returns those who waited for what it says.
pub(in crate::adapter) fn handle_arp(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    link: usize,
    arp: &Arp,
) -> Vec<QueuePairId> {
    let mut woken = Vec::new();
    let Some(own) = links[link].station() else {
        debug_assert!(false, "a frame is read only where there is a station");
        return woken;
    };
    let (mac, target, sender) = (own.mac, IpAddr::V4(arp.target), IpAddr::V4(arp.sender));
    let (is_ours, is_senders) = (own.has(target), own.has(sender));
    let is_asking = arp.operation == Operation::Request;
    if arp.sender_mac != mac {
        let is_probe = arp.sender.is_unspecified();
        let wanted = if is_probe { target } else { sender };
        let mut host = links[link].host.change();
        host.claims.handle_claim(now, wanted, arp.sender_mac, is_probe);
    }
    // Who says that our address is its own is not believed.
    if is_remote(sender) && !is_senders {
        let message = match (is_ours, is_asking) {
            (true, true) => NeighbourMessage::Question,
            (true, false) => NeighbourMessage::ARP_REPLY,
            (false, _) => NeighbourMessage::ARP_UNSOLICITED,
        };
        let said = NeighbourClaim { address: sender, station: Some(arp.sender_mac), message };
        woken = links.learn(now, context, link, &said);
    }
    if is_ours && is_asking {
        links.queue_control(context, link, |into| answer::arp_reply(mac, arp, into));
    }
    woken
}

pub(in crate::adapter) fn handle_icmp4(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    pairs: &mut QueuePairs,
    arrival: &Arrival<'_>,
) -> Result<IcmpStep, Stop> {
    let message = arrival.ip.payload(arrival.head)?;
    match icmp4::read(message)? {
        icmp4::Message::EchoRequest(echo) => answer_echo(now, context, links, arrival, &echo),
        icmp4::Message::EchoReply(_) => {}
        icmp4::Message::Report(report) => {
            return Ok(handle_report(now, context, links, pairs, &report));
        }
    }
    Ok(IcmpStep::Done)
}

pub(in crate::adapter) fn handle_icmp6(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    pairs: &mut QueuePairs,
    arrival: &Arrival<'_>,
) -> Result<IcmpStep, Stop> {
    let message = arrival.ip.payload(arrival.head)?;
    let pseudo = arrival.ip.pseudo(arrival.ip.payload_len);
    match icmp6::read(message, pseudo)? {
        icmp6::Message::EchoRequest(echo) => answer_echo(now, context, links, arrival, &echo),
        icmp6::Message::EchoReply(_) => {}
        icmp6::Message::Report(report) => {
            return Ok(handle_report(now, context, links, pairs, &report));
        }
        icmp6::Message::Group => {
            // What routers say stays on the link, and has a hop limit of 1 (RFC 3810, 5).
            if arrival.ip.hop_limit != 1 {
                return Err(Refusal::Forbidden.into());
            }
            handle_groups(now, context, links, arrival, group::read_mld(message)?);
        }
        icmp6::Message::Router => {
            let woken = handle_router(now, context, links, arrival, message)?;
            return Ok(IcmpStep::Wake(woken));
        }
        icmp6::Message::Discovery => {
            let neighbour = ndp::read(&arrival.ip, message)?;
            let woken = handle_discovery(now, context, links, arrival, neighbour)?;
            return Ok(IcmpStep::Wake(woken));
        }
    }
    Ok(IcmpStep::Done)
}

pub(in crate::adapter) fn handle_igmp(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
) -> Result<IcmpStep, Stop> {
    let message = group::read_igmp(arrival.ip.payload(arrival.head)?)?;
    handle_groups(now, context, links, arrival, message);
    Ok(IcmpStep::Done)
}

/// A router asks who listens to what, or another host says that it does.
fn handle_groups(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
    message: group::Message,
) {
    let mut host = links[arrival.link].host.change();
    let groups = &mut host.groups;
    match message {
        group::Message::Query(query) => {
            let is_v4 = arrival.ip.source.is_ipv4();
            groups.handle_query(now, &mut context.random, is_v4, &query);
        }
        group::Message::Report(other) => groups.handle_report(now, other),
        group::Message::Other => {}
    }
}

fn answer_echo(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
    echo: &Echo<'_>,
) {
    let Some(own) = links[arrival.link].station() else {
        debug_assert!(false, "a frame is read only where there is a station");
        return;
    };
    let us = Host { mac: own.mac, address: arrival.ip.destination };
    let them = Host { mac: arrival.station(), address: arrival.ip.source };
    // Echoes to a group, and those beyond the limit, are not answered.
    if !own.has(us.address) || !links.may_answer(now) {
        return;
    }
    let write = |into: &mut [u8]| answer::echo_reply(us, them, echo, into);
    if links.queue_control(context, arrival.link, write) {
        context.stats.echoes += 1;
    }
}

/// RFC 4861, 6.3.4. Returns those who waited for the router.
fn handle_router(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
    message: &[u8],
) -> Result<Vec<QueuePairId>, Refusal> {
    let said = router::Advertisement::read(&arrival.ip, message)?;
    // Without this, addresses and routers are configured.
    let mut host = links[arrival.link].host.change();
    let (Some(autoconf), IpAddr::V6(source)) = (&mut host.autoconf, arrival.ip.source) else {
        return Err(Refusal::Unsupported);
    };
    autoconf.handle_advertisement(now, source, &said);
    drop(host);
    let Some(station) = said.station else { return Ok(Vec::new()) };
    let (address, message) = (arrival.ip.source, NeighbourMessage::Question);
    let claim = NeighbourClaim { address, station: Some(station), message };
    Ok(links.learn(now, context, arrival.link, &claim))
}

/// RFC 4861, 7.2.3 to 7.2.5. Returns those who waited for what it says.
fn handle_discovery(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
    neighbour: Neighbour,
) -> Result<Vec<QueuePairId>, Refusal> {
    let link = arrival.link;
    let own = links[link].station().ok_or(Refusal::WrongAddress)?;
    if arrival.station() != own.mac {
        let (target, is_probe) = match neighbour {
            Neighbour::Solicitation(asked) => (asked.target, true),
            Neighbour::Advertisement(told) => (told.target, false),
        };
        // Who asks from an address wants to talk to who has the other (RFC 4862, 5.4.3).
        if !is_probe || arrival.ip.source.is_unspecified() {
            let mut host = links[link].host.change();
            host.claims.handle_claim(now, target.into(), arrival.station(), is_probe);
        }
    }
    let own = links[link].station().ok_or(Refusal::WrongAddress)?;
    match neighbour {
        Neighbour::Solicitation(asked) => {
            if !own.has(IpAddr::V6(asked.target)) {
                return Err(Refusal::WrongAddress);
            }
            // Only IPv6 carries neighbour discovery.
            let IpAddr::V6(source) = arrival.ip.source else { return Ok(Vec::new()) };
            let mac = own.mac;
            let station = asked.station.unwrap_or(arrival.station());
            let mut woken = Vec::new();
            if is_remote(arrival.ip.source) {
                let (address, message) = (arrival.ip.source, NeighbourMessage::Question);
                let said = NeighbourClaim { address, station: Some(station), message };
                woken = links.learn(now, context, link, &said);
            }
            let them = Host6 { mac: station, address: source };
            links.queue_control(context, link, |into| {
                answer::advertisement(mac, asked.target, them, into)
            });
            Ok(woken)
        }
        Neighbour::Advertisement(told) => {
            let address = IpAddr::V6(told.target);
            if own.has(address) {
                return Err(Refusal::Forbidden);
            }
            let (is_solicited, is_override) = (told.is_solicited, told.is_override);
            let message = NeighbourMessage::Answer { is_solicited, is_override };
            let said = NeighbourClaim { address, station: told.station, message };
            Ok(links.learn(now, context, link, &said))
        }
    }
}

/// An error about something that we are said to have sent. Anybody can write
/// that; it is believed where it names what is really under way (RFC 5927).
fn handle_report(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    pairs: &mut QueuePairs,
    report: &Report<'_>,
) -> IcmpStep {
    let about = &report.about;
    let (ours, theirs) = about.ports();
    let local = SocketAddr::new(about.source, ours);
    let remote = SocketAddr::new(about.destination, theirs);
    let step = match about.protocol {
        protocol::TCP => pairs
            .connection_of(Ends { local, remote })
            .and_then(|id| pairs.named_mut(id))
            .and_then(|pair| notify_connection(now, context, links, pair, report)),
        protocol::UDP => {
            let sender = pairs.receiver_at(local).filter(|_| links.has(local.ip()));
            sender.and_then(|id| notify_datagrams(now, context, links, pairs, id, remote, report))
        }
        _ => None,
    };
    if step.is_some() {
        context.stats.icmp_believed += 1;
    } else {
        context.stats.icmp_ignored += 1;
    }
    step.unwrap_or(IcmpStep::Done)
}

/// Tells a queue pair that a datagram did not arrive. Nothing where it has sent none there.
fn notify_datagrams(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    pairs: &mut QueuePairs,
    id: QueuePairId,
    remote: SocketAddr,
    report: &Report<'_>,
) -> Option<IcmpStep> {
    if let Trouble::TooBig { .. } = report.trouble {
        return links.lower_mtu(now, report).map(|_| IcmpStep::Done);
    }
    let datagrams = pairs.named_mut(id).and_then(QueuePair::datagrams_mut)?;
    if context.events.is_full() || !datagrams.outbound.take_sent_to(remote) {
        return None;
    }
    let trouble = report.trouble;
    context.events.push(Event::Undelivered { queue_pair: id, remote, trouble });
    Some(IcmpStep::Done)
}

/// Tells a connection of an error. Nothing where it does not believe that.
fn notify_connection(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    pair: &mut QueuePair,
    report: &Report<'_>,
) -> Option<IcmpStep> {
    let id = pair.id;
    let (connection, _) = pair.connection_mut()?;
    let number = report.about.seq();
    // RFC 5927, 4.1: a segment that is under way.
    if !connection.tcb.is_under_way(number) {
        return None;
    }
    let mut sends_again = false;
    match report.trouble {
        // A packet that probed the path is found lost as any other is.
        Trouble::TooBig { .. } if links.limit_search(now, report) => {}
        Trouble::TooBig { .. } => {
            links.lower_mtu(now, report)?;
            connection.tcb.handle_shorter_path(now, number);
            sends_again = true;
        }
        // RFC 5927, 5.2: an open connection survives even hard errors; and
        // soft ones may pass (RFC 1122, 4.2.3.9).
        _ if connection.tcb.is_synchronized() => {}
        Trouble::PortUnreachable | Trouble::ProtocolUnreachable => {
            pair.abort(now, context, links, CloseReason::Refused);
        }
        Trouble::Prohibited { .. } => pair.abort(now, context, links, CloseReason::Unreachable),
        Trouble::NoRoute { .. }
        | Trouble::TimeExceeded { .. }
        | Trouble::ParameterProblem { .. } => {}
    }
    Some(IcmpStep::Told { id, sends_again })
}

/// Nobody is bound to the port of a datagram: its sender is told, if that is allowed.
pub(in crate::adapter) fn refuse_port(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
) -> Refusal {
    if links.may_answer(now) {
        let about = arrival.arrived();
        links.queue_control(context, arrival.link, |into| answer::port_unreachable(&about, into));
    }
    Refusal::WrongAddress
}

/// Not all pieces of a packet came in time, though its first did: its sender is told, if that is
/// allowed (RFC 1122, 3.3.2; RFC 8200, 4.5).
pub(in crate::adapter) fn tell_missing(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    missing: &MissingPieces,
) {
    let MissingPieces { ip, first } = missing;
    // An address that is not ours any more says nothing.
    let is_ours = links[first.link].has(ip.destination);
    if is_ours && context.answers_for_all() && links.may_answer(now) {
        let about = Arrived { ethernet: &first.ethernet, ip, head: &first.head };
        links.queue_control(context, first.link, |into| answer::fragments_missing(&about, into));
    }
}

/// Nobody speaks the protocol of a packet: its sender is told, if that is allowed.
pub(in crate::adapter) fn refuse_protocol(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    arrival: &Arrival<'_>,
) -> Refusal {
    if context.answers_for_all() && links.may_answer(now) {
        let about = arrival.arrived();
        links.queue_control(context, arrival.link, |into| {
            answer::protocol_unreachable(&about, into)
        });
    }
    Refusal::Unsupported
}

/// A frame with a header of IPv6 that has something wrong.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) struct Problematic<'a> {
    pub(in crate::adapter) head: &'a [u8],
    /// Its stations, where a tag stood behind them.
    pub(in crate::adapter) stations: Option<ethernet::Header>,
    pub(in crate::adapter) problem: &'a Problem,
}

/// A header of IPv6 has something that its sender is to be told of.
pub(in crate::adapter) fn send_icmp_error(
    now: Instant,
    context: &mut Context,
    links: &mut Links,
    link: usize,
    about: &Problematic<'_>,
) {
    let Problematic { head, stations, problem } = *about;
    let Some(own) = links[link].station() else {
        debug_assert!(false, "a frame is read only where there is a station");
        return;
    };
    let destination = IpAddr::V6(problem.destination);
    let source = if own.has(destination) {
        Some(destination)
    } else {
        own.source_for(IpAddr::V6(problem.source))
    };
    let mac = own.mac;
    // Without an IPv6 address of ours no error can be sent.
    let (Some(address), Some(header)) = (source, head.first_chunk::<{ ethernet::LEN }>()) else {
        return;
    };
    let header: ethernet::Header = stations.unwrap_or(zerocopy::transmute!(*header));
    let is_ours = header.destination == mac || header.is_to_group();
    if is_ours && context.answers_for_all() && links.may_answer(now) {
        let us = Host { mac, address };
        links.queue_control(context, link, |into| {
            answer::parameter_problem(us, &header, problem, head, into)
        });
    }
}
