//! Asks the kernel for routes and neighbours (`rtnetlink(7)`).
//!
//! Layouts: `linux/netlink.h`, `rtnetlink.h`, `neighbour.h`. Everything is in the machine's
//! byte order and padded to four bytes. The kernel answers within the call that asks, so
//! nothing here waits.

use std::io::{self, Read};
use std::net::IpAddr;

use landfall_inet::Mac;
use socket2::{Domain, Protocol, Socket, Type};

/// The headers of a message, of what it is about, and of an attribute.
const MESSAGE: usize = 16;
const SUBJECT: usize = 12;
const ATTRIBUTE: usize = 4;
/// Attributes of routes that libc has under other names, or not.
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// An answer with all attributes is far below this.
const ANSWER: usize = 4096;

/// How packets get to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Over this interface.
    pub(super) interface: u32,
    /// By way of this neighbour; to the address itself where there is none.
    pub(super) gateway: Option<IpAddr>,
}

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) station: Mac,
    /// It answered lately, or need not be asked.
    pub(super) is_confirmed: bool,
}

/// A conversation with the kernel about the namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The route for packets between these addresses; none where the kernel has none, or
    /// only one that is no plain way to a single host. `interface`: where the addresses mean
    /// something on one link only.
    pub(super) fn route(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        interface: Option<u32>,
    ) -> Option<Route> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let mut request = Request::new(libc::RTM_GETROUTE, [family(to), bits, bits]);
        request.address(RTA_DST, to);
        request.address(RTA_SRC, from);
        if let Some(interface) = interface {
            request.attribute(RTA_OIF, &interface.to_ne_bytes());
        }
        let answer = self.ask(request, libc::RTM_NEWROUTE)?;
        if answer.subject()?[7] != libc::RTN_UNICAST {
            return None;
        }
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).ok();
        Some(Route {
            interface: answer.attribute(RTA_OIF).and_then(word)?,
            gateway: answer.attribute(RTA_GATEWAY).and_then(address),
        })
    }

    /// The neighbour that has this address; none where the kernel knows no station of it.
    pub(super) fn neighbour(&mut self, interface: u32, to: IpAddr) -> Option<Neighbour> {
        const CONFIRMED: u16 = libc::NUD_REACHABLE | libc::NUD_PERMANENT | libc::NUD_NOARP;
        const KNOWN: u16 = CONFIRMED | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE;
        let mut request = Request::new(libc::RTM_GETNEIGH, [family(to), 0, 0]);
        request.bytes[MESSAGE + 4..][..4].copy_from_slice(&interface.to_ne_bytes());
        request.address(NDA_DST, to);
        let answer = self.ask(request, libc::RTM_NEWNEIGH)?;
        let subject = answer.subject()?;
        let state = u16::from_ne_bytes([subject[8], subject[9]]);
        let station = answer.attribute(NDA_LLADDR).and_then(|bytes| bytes.try_into().ok())?;
        (state & KNOWN != 0).then_some(Neighbour { station, is_confirmed: state & CONFIRMED != 0 })
    }

    /// The answer of this kind; none for an error.
    fn ask(&mut self, request: Request, kind: u16) -> Option<Answer> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        self.socket.send(&bytes).ok()?;
        loop {
            let mut room = [0; ANSWER];
            let len = (&self.socket).read(&mut room).ok()?;
            let bytes = room[..len].to_vec();
            // What was asked before and not waited for is passed over.
            match Answer::read(bytes, self.sequence) {
                Some((found, answer)) => return (found == kind).then_some(answer),
                None => continue,
            }
        }
    }
}

const fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok(),
        _ => <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok(),
    }
}

/// A message under construction.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// What it is about begins with these bytes.
    fn new(kind: u16, subject: [u8; 3]) -> Self {
        let mut bytes = vec![0; MESSAGE + SUBJECT];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        bytes[MESSAGE..MESSAGE + 3].copy_from_slice(&subject);
        Self { bytes }
    }

    /// All values are whole words.
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// What the kernel said.
struct Answer {
    bytes: Vec<u8>,
}

impl Answer {
    /// The kind of a message with this number, and what it says.
    fn read(mut bytes: Vec<u8>, sequence: u32) -> Option<(u16, Self)> {
        let header: [u8; MESSAGE] = *bytes.first_chunk()?;
        let [a, b, c, d, e, f, _, _, h, i, j, k, ..] = header;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        if u32::from_ne_bytes([h, i, j, k]) != sequence || len < MESSAGE {
            return None;
        }
        bytes.truncate(len);
        Some((u16::from_ne_bytes([e, f]), Self { bytes }))
    }

    fn subject(&self) -> Option<&[u8; SUBJECT]> {
        self.bytes.get(MESSAGE..)?.first_chunk()
    }

    fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        let mut rest = self.bytes.get(MESSAGE + SUBJECT..)?;
        while let Some(&[a, b, c, d]) = rest.first_chunk::<ATTRIBUTE>() {
            let len = usize::from(u16::from_ne_bytes([a, b]));
            let value = rest.get(ATTRIBUTE..len)?;
            if u16::from_ne_bytes([c, d]) == wanted {
                return Some(value);
            }
            rest = rest.get(len.next_multiple_of(4)..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_no_plain_route_to_itself() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.route(here, here, None), None, "it is local");
        assert_eq!(netlink.neighbour(u32::MAX >> 1, here), None, "no such interface");
        // An error is an answer too: the next question gets its own.
        assert_eq!(netlink.route(here, here, None), None);
    }

    /// An answer of these attributes.
    fn answer(attributes: &[u8]) -> Answer {
        let mut bytes = vec![0; MESSAGE + SUBJECT];
        bytes.extend(attributes);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        Answer::read(bytes, 0).unwrap().1
    }

    #[test]
    fn attributes_are_found_behind_others_and_cut_ones_are_not() {
        let mut attributes = Vec::new();
        for (kind, value) in [(3u16, &[1u8, 2][..]), (RTA_OIF, &[7, 0, 0, 0])] {
            attributes.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
            attributes.extend(kind.to_ne_bytes());
            attributes.extend(value);
            attributes.resize(attributes.len().next_multiple_of(4), 0);
        }
        assert_eq!(answer(&attributes).attribute(RTA_OIF), Some(&[7, 0, 0, 0][..]));
        assert_eq!(answer(&attributes).attribute(3), Some(&[1, 2][..]));
        assert_eq!(answer(&attributes).attribute(9), None);
        for cut in 0..attributes.len() {
            assert_eq!(answer(&attributes[..cut]).attribute(RTA_OIF), None, "{cut}");
        }
        for len in 0..ATTRIBUTE as u16 {
            let [a, b] = len.to_ne_bytes();
            assert_eq!(answer(&[a, b, 9, 0, 0, 0]).attribute(RTA_OIF), None, "no end is found");
        }
    }
}
