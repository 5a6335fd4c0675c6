//! Source routes: one byte for each switch on the way, which names the port to leave by.
//! The card has them in a table in SRAM, by the address of the destination; in the paper
//! "a static table that maps IPv6 addresses to switch routes".
//!
//! What Myrinet has beside that is not here: a packet type behind the route, and a
//! checksum at the end.

use core::net::IpAddr;

use landfall_inet::{ethernet, ipv4, ipv6};

use crate::machine::{Route, Store};

/// What tells a byte of a route from the first of a station's address, as long as those
/// are not of such stations.
const ROUTE: u8 = 0x80;
/// The port that it names.
const PORT: u8 = 0x3f;

/// The byte by which a switch sends a frame out of this port: one of its first 64.
#[must_use]
pub const fn hop(port: u8) -> u8 {
    ROUTE | (port & PORT)
}

/// The port that a byte names; nothing where it is not one of a route.
#[cfg(feature = "std")]
pub(super) const fn port_of(byte: u8) -> Option<u8> {
    if byte & !PORT == ROUTE { Some(byte & PORT) } else { None }
}

/// An address, and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    to: IpAddr,
    route: Route,
}

/// The ways that are known.
#[derive(Debug)]
pub(super) struct Routes<'s> {
    known: Store<'s, Option<Known>>,
    /// Is there one? Who was told no way has no switches.
    is_switched: bool,
}

impl<'s> Routes<'s> {
    pub(super) const fn new(known: Store<'s, Option<Known>>) -> Self {
        Self { known, is_switched: false }
    }

    /// Replaces what was known of an address. False where there is no room for one more.
    pub(super) fn set(&mut self, to: IpAddr, route: Route) -> bool {
        let is_its = |place: &Option<Known>| place.is_some_and(|known| known.to == to);
        let place = self.known.iter().position(is_its);
        let place = place.or_else(|| self.known.iter().position(Option::is_none));
        let Some(place) = place.and_then(|place| self.known.get_mut(place)) else { return false };
        *place = Some(Known { to, route });
        self.is_switched = true;
        true
    }

    /// The way of a frame with these headers.
    #[inline]
    pub(super) fn of(&self, head: &[u8]) -> Option<Route> {
        if !self.is_switched {
            return Some(Route::DIRECT);
        }
        let to = destination(head)?;
        let known = self.known.iter().flatten().find(|known| known.to == to);
        known.map(|known| known.route)
    }
}

/// Where an Ethernet frame goes that carries IP.
fn destination(head: &[u8]) -> Option<IpAddr> {
    let (ethernet, packet) = ethernet::read(head).ok()?;
    match ethernet.ethertype.get() {
        ethernet::IPV4 => Some(ipv4::Header::view(packet.first_chunk()?).destination().into()),
        ethernet::IPV6 => Some(ipv6::Header::view(packet.first_chunk()?).destination().into()),
        _ => None,
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use core::net::Ipv6Addr;

    use super::*;

    fn to_v4(last: u8) -> Vec<u8> {
        let mut head = vec![0; 34];
        head[12] = 8;
        head[30..].copy_from_slice(&[10, 0, 0, last]);
        head
    }

    #[test]
    fn frames_go_the_way_of_their_destination_and_no_other() {
        let mut routes = Routes::new(Store::filled_with(2, || None));
        assert_eq!(routes.of(&to_v4(1)), Some(Route::DIRECT), "there are no switches");
        let way = |port| Route::new([hop(port)]).unwrap();
        let v6: IpAddr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9).into();
        assert!(routes.set([10, 0, 0, 1].into(), way(3)) && routes.set(v6, way(4)));
        assert!(!routes.set([10, 0, 0, 7].into(), way(5)), "there is no room");
        assert!(routes.set([10, 0, 0, 1].into(), way(6)), "it is there already");
        assert_eq!(routes.of(&to_v4(1)), Some(way(6)));
        assert_eq!(routes.of(&to_v4(7)), None);
        let mut head = vec![0; 54];
        head[12..14].copy_from_slice(&[0x86, 0xdd]);
        head[38..40].copy_from_slice(&[0xfd, 0]);
        head[53] = 9;
        assert_eq!(routes.of(&head), Some(way(4)));
        assert_eq!((routes.of(&head[..50]), routes.of(&[0; 60])), (None, None), "no address");
    }

    #[test]
    fn a_hop_names_a_port_and_is_no_other_byte() {
        assert!((0..64).all(|port| port_of(hop(port)) == Some(port)));
        assert!((0..0x80).chain(0xc0..=0xff).all(|byte| port_of(byte).is_none()));
    }
}
