//! ARP, ICMP and neighbour discovery: who asks for us is answered, who answers
//! us is heard, and errors about what we sent reach whom they concern.

use core::net::{IpAddr, SocketAddr};

use landfall_placement::{Instant, Placement, Refusal};

use super::{Arrival, Outcome};
use crate::adapter::Adapter;
use crate::adapter::interface::{LEAST_MTU, is_remote};
use crate::adapter::queue_pair::QueuePair;
use crate::ip::answer::{self, Host};
use crate::ip::neighbours::NeighbourMessage;
use crate::tcp::tcb::CloseReason;
use crate::wire::arp::{Arp, Operation};
use crate::wire::icmp::{Echo, Report, Trouble};
use crate::wire::ndp::Neighbour;
use crate::wire::{Mac, icmp4, icmp6, ndp, protocol};
use crate::work::QueuePairId;

impl Adapter {
    /// RFC 826, with what RFC 5227 says of probes.
    pub(super) fn take_arp(&mut self, now: Instant, link: usize, arp: &Arp) -> Placement {
        let Some(own) = self.links[link].station() else { return Placement::Consumed };
        let (mac, target, sender) = (own.mac, IpAddr::V4(arp.target), IpAddr::V4(arp.sender));
        let is_ours = own.has(target);
        let is_asking = arp.operation == Operation::Request;
        // Who says that our address is its own is not believed.
        if is_remote(sender) && !own.has(sender) {
            let word = match (is_ours, is_asking) {
                (true, true) => NeighbourMessage::Question,
                (true, false) => NeighbourMessage::ARP_REPLY,
                (false, _) => NeighbourMessage::ARP_GOSSIP,
            };
            self.learn(now, link, sender, Some(arp.sender_mac), word);
        }
        if is_ours && is_asking {
            self.queue_control(link, |into| answer::arp_reply(mac, arp, into));
        }
        Placement::Consumed
    }

    fn learn(
        &mut self,
        now: Instant,
        link: usize,
        address: IpAddr,
        station: Option<Mac>,
        word: NeighbourMessage,
    ) {
        if self.links[link].neighbours.learn(now, address, station, word) {
            self.ask_neighbours(now, link);
        }
    }

    pub(super) fn take_icmp4(&mut self, now: Instant, arrival: &Arrival<'_>) -> Outcome {
        let message = arrival.ip.payload(arrival.head)?;
        match icmp4::read(message)? {
            icmp4::Message::EchoRequest(echo) => self.answer_echo(now, arrival, &echo),
            icmp4::Message::EchoReply(_) => {}
            icmp4::Message::Report(report) => self.take_report(now, &report),
        }
        Ok(Placement::Consumed)
    }

    pub(super) fn take_icmp6(&mut self, now: Instant, arrival: &Arrival<'_>) -> Outcome {
        let message = arrival.ip.payload(arrival.head)?;
        let pseudo = arrival.ip.pseudo(arrival.ip.payload_len);
        match icmp6::read(message, pseudo)? {
            icmp6::Message::EchoRequest(echo) => self.answer_echo(now, arrival, &echo),
            icmp6::Message::EchoReply(_) => {}
            icmp6::Message::Report(report) => self.take_report(now, &report),
            icmp6::Message::Discovery => {
                let neighbour = ndp::read(&arrival.ip, message)?;
                self.take_discovery(now, arrival, neighbour)?;
            }
        }
        Ok(Placement::Consumed)
    }

    fn answer_echo(&mut self, now: Instant, arrival: &Arrival<'_>, echo: &Echo<'_>) {
        let Some(own) = self.links[arrival.link].station() else { return };
        let us = Host { mac: own.mac, address: arrival.ip.destination };
        let them = Host { mac: arrival.station(), address: arrival.ip.source };
        if !own.has(us.address) || !self.limiter.allow(now) {
            return;
        }
        if self.queue_control(arrival.link, |into| answer::echo_reply(us, them, echo, into)) {
            self.stats.echoes += 1;
        }
    }

    /// RFC 4861, 7.2.3 to 7.2.5.
    fn take_discovery(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        neighbour: Neighbour,
    ) -> Result<(), Refusal> {
        let link = arrival.link;
        let own = self.links[link].station().ok_or(Refusal::WrongAddress)?;
        match neighbour {
            Neighbour::Solicitation(asked) => {
                if !own.has(IpAddr::V6(asked.target)) {
                    return Err(Refusal::WrongAddress);
                }
                let IpAddr::V6(source) = arrival.ip.source else { return Ok(()) };
                let mac = own.mac;
                let station = asked.station.unwrap_or(arrival.station());
                if is_remote(arrival.ip.source) {
                    self.learn(
                        now,
                        link,
                        arrival.ip.source,
                        Some(station),
                        NeighbourMessage::Question,
                    );
                }
                let them = (station, source);
                self.queue_control(link, |into| {
                    answer::advertisement(mac, asked.target, them, into)
                });
            }
            Neighbour::Advertisement(told) => {
                let address = IpAddr::V6(told.target);
                if own.has(address) {
                    return Err(Refusal::Forbidden);
                }
                let (is_solicited, is_override) = (told.is_solicited, told.is_override);
                let word = NeighbourMessage::Answer { is_solicited, is_override };
                self.learn(now, link, address, told.station, word);
            }
        }
        Ok(())
    }

    /// An error about something that we are said to have sent. Anybody can write
    /// that; it is believed where it names what is really under way (RFC 5927).
    fn take_report(&mut self, now: Instant, report: &Report<'_>) {
        let about = &report.about;
        let (ours, theirs) = about.ports();
        let local = SocketAddr::new(about.source, ours);
        let remote = SocketAddr::new(about.destination, theirs);
        let is_true = match about.protocol {
            protocol::TCP => match self.connection_of((local, remote)) {
                Some(id) => self.tell_connection(now, id, report),
                None => false,
            },
            protocol::UDP => {
                let any = SocketAddr::new(crate::adapter::demux::any_of(local.ip()), ours);
                let is_bound = self.bound_at(local).or_else(|| self.bound_at(any)).is_some();
                is_bound && self.is_ours(local.ip()) && self.lower_mtu(now, report).is_some()
            }
            _ => false,
        };
        if is_true {
            self.stats.icmp_believed += 1;
        } else {
            self.stats.icmp_ignored += 1;
        }
    }

    /// The path of a packet that we sent carries less than we thought.
    fn lower_mtu(&mut self, now: Instant, report: &Report<'_>) -> Option<u32> {
        let Trouble::TooBig { mtu } = report.trouble else { return None };
        let (from, to) = (report.about.source, report.about.destination);
        let link = self.links.iter().find(|link| link.has(from))?.mtu().max(LEAST_MTU);
        self.path_mtus.lower(now, to, link, report.about.total_len, mtu)
    }

    fn tell_connection(&mut self, now: Instant, id: QueuePairId, report: &Report<'_>) -> bool {
        let pair = self.pairs.named_mut(id.index, id.generation);
        let Some((connection, _)) = pair.and_then(QueuePair::connection_mut) else { return false };
        // RFC 5927, 4.1: a segment that is under way.
        if !connection.tcb.is_under_way(report.about.seq()) {
            return false;
        }
        let is_open = connection.tcb.is_synchronized();
        match report.trouble {
            Trouble::TooBig { .. } => {
                if self.lower_mtu(now, report).is_none() {
                    return false;
                }
                let number = report.about.seq();
                let pair = self.pairs.named_mut(id.index, id.generation);
                if let Some((connection, _)) = pair.and_then(QueuePair::connection_mut) {
                    connection.tcb.handle_shorter_path(now, number);
                }
                self.mark_ready(id);
            }
            // RFC 5927, 5.2: an open connection survives even hard errors; and
            // soft ones may pass (RFC 1122, 4.2.3.9).
            _ if is_open => {}
            Trouble::PortUnreachable | Trouble::ProtocolUnreachable => {
                self.give_up(now, id, CloseReason::Refused);
            }
            Trouble::Prohibited { .. } => self.give_up(now, id, CloseReason::Unreachable),
            Trouble::NoRoute { .. }
            | Trouble::TimeExceeded { .. }
            | Trouble::ParameterProblem { .. } => {}
        }
        self.settle(id);
        true
    }
}
