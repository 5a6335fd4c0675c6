//! [`Route`]: which way leads to an address, and from which address of ours.

use core::net::IpAddr;

use super::interface::is_remote;
use super::links::{Link, Links};
use crate::offload::OwnAddress;
use crate::tcp::Mapping;
use crate::wire::{ipv4, ipv6, tcp};

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The link, by its place among all.
    pub(super) link: usize,
    /// The address of ours to send from.
    pub(super) source: IpAddr,
    /// The neighbour to send to.
    pub(super) next_hop: IpAddr,
}

impl Links {
    /// The way to an address, from any of ours or from the one that is given.
    pub(super) fn route(&self, from: Option<IpAddr>, to: IpAddr) -> Option<Route> {
        route(&self.links, from, to)
    }

    /// The largest segment that we want from there: what the link carries, or,
    /// where each message is one segment, what IP carries at all.
    pub(super) fn largest_segment(&self, route: &Route, mapping: Mapping) -> u16 {
        let ip = if route.source.is_ipv4() { ipv4::LEN } else { ipv6::LEN } as u32;
        let headers = ip + tcp::LEN as u32;
        let mtu = match mapping {
            Mapping::Segment => 65_535,
            Mapping::Message | Mapping::Stream => self[route.link].mtu(),
        };
        // RFC 9293, 3.7.1: options are not subtracted.
        u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX).max(536)
    }

    /// The way to a group: on the link that is given, on that of an address of ours, or on the
    /// first that is of its version.
    pub(super) fn route_to_group(
        &self,
        on: Option<usize>,
        from: Option<IpAddr>,
        group: IpAddr,
    ) -> Option<Route> {
        let known = self.links.iter().enumerate();
        let mut known = known.filter(|(index, _)| on.is_none_or(|on| on == *index));
        known.find_map(|(link, known)| {
            let own = known.interface.as_ref()?;
            if let Some(source) = from {
                return own.has(source).then_some(Route { link, source, next_hop: group });
            }
            let source = own.source_for_group(group)?;
            Some(Route { link, source, next_hop: group })
        })
    }
}

/// The way to an address, from any of ours or from the one that is given.
fn route(links: &[Link], from: Option<IpAddr>, to: IpAddr) -> Option<Route> {
    let interfaces = || {
        let known = links.iter().enumerate();
        known
            .filter_map(|(index, link)| Some((index, link.interface.as_ref()?)))
            .filter(|(_, interface)| from.is_none_or(|from| interface.has(from)))
    };
    if !is_remote(to) || links.iter().any(|link| link.has(to)) {
        return None;
    }
    let near = interfaces()
        .filter_map(|(link, interface)| {
            let OwnAddress { ip: near, prefix_len: prefix } = interface.on_link(to)?;
            let is_alone = interface.deprecated.is_empty();
            let source = if is_alone { near } else { interface.best_source(to)? };
            Some((prefix, Route { link, source: from.unwrap_or(source), next_hop: to }))
        })
        .max_by_key(|(prefix, _)| *prefix);
    if let Some((_, route)) = near {
        return Some(route);
    }
    interfaces().find_map(|(link, interface)| {
        let next_hop = interface.gateway(to)?;
        let source = from.or_else(|| interface.source_through(next_hop, to))?;
        Some(Route { link, source, next_hop })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::config::Config;
    use crate::adapter::interface::Interface;
    use landfall_placement::PathId;

    fn link(path: u16, addresses: &[(&str, u8)], gateways: &[&str]) -> Link {
        let mut link = Link::new(PathId(path), &Config::default());
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        link.interface = Some(Interface {
            mac: [2, 0, 0, 0, 0, path as u8],
            addresses: addresses
                .iter()
                .map(|(text, prefix)| OwnAddress::new(parse(text), *prefix))
                .collect(),
            gateways: gateways.iter().map(|text| parse(text)).collect(),
            ..Interface::default()
        });
        link
    }

    #[test]
    fn the_longest_prefix_leads_there_and_a_gateway_to_all_else() {
        let links = [
            link(0, &[("10.0.0.1", 8), ("fe80::1", 64), ("2001:db8::1", 64)], &["10.9.9.9"]),
            link(1, &[("10.1.0.1", 16)], &["10.1.0.254", "2001:db8::ff"]),
        ];
        let to = |text: &str| {
            let found = route(&links, None, text.parse().unwrap())?;
            Some((found.link, std::format!("{} via {}", found.source, found.next_hop)))
        };
        assert_eq!(to("10.1.2.3"), Some((1, "10.1.0.1 via 10.1.2.3".into())));
        assert_eq!(to("10.2.2.3"), Some((0, "10.0.0.1 via 10.2.2.3".into())));
        assert_eq!(to("192.0.2.1"), Some((0, "10.0.0.1 via 10.9.9.9".into())));
        assert_eq!(to("fe80::7"), Some((0, "fe80::1 via fe80::7".into())));
        assert_eq!(to("2001:db8::7"), Some((0, "2001:db8::1 via 2001:db8::7".into())));
        assert_eq!(to("10.0.0.1"), None, "that is us");
        assert_eq!(to("224.0.0.1"), None, "that is no host");
        let from = Some("10.1.0.1".parse().unwrap());
        let found = route(&links, from, "192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!((found.link, found.next_hop), (1, "10.1.0.254".parse().unwrap()));
    }

    #[test]
    fn a_prefix_of_no_bits_has_everybody_on_the_link() {
        let links = [link(0, &[("10.0.0.1", 0)], &[])];
        let found = route(&links, None, "192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(found.next_hop, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert!(route(&links, None, "2001:db8::1".parse().unwrap()).is_none());
    }
}
