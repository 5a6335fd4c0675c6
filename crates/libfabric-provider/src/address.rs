//! Addresses: those of C, those of Rust, and those of this host.

use std::ffi::{CStr, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6};

use crate::abi::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

/// A socket address of C.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

/// What an endpoint is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) address: SocketAddr,
    /// Where it is reached on its second rail. An address of IPv4 has eight bytes in C that mean
    /// nothing, and programs hand on; one of IPv6 has none.
    pub(crate) second: Option<SocketAddrV4>,
}

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Self {
        Self { address, second: None }
    }
}

/// How the eight bytes begin where they mean something: programs may leave anything there.
const SECOND: [u8; 2] = *b"L2";

const fn pack_second(second: SocketAddrV4) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (second.ip().octets(), second.port().to_be_bytes());
    [SECOND[0], SECOND[1], high, low, a, b, c, d]
}

fn unpack_second(bytes: [u8; 8]) -> Option<SocketAddrV4> {
    let [first, second, high, low, a, b, c, d] = bytes;
    let (ip, port) = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    let is_one = [first, second] == SECOND && port != 0;
    (is_one && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast())
        .then(|| SocketAddrV4::new(ip, port))
}

/// How long it is.
pub(crate) const fn len_of(address: &SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    }
}

/// What libfabric calls its format.
pub(crate) const fn format_of(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => FI_SOCKADDR_IN,
        SocketAddr::V6(_) => FI_SOCKADDR_IN6,
    }
}

/// As C has it.
pub(crate) fn to_raw(address: &SocketAddr) -> RawAddress {
    named_to_raw(&Name::from(*address))
}

fn named_to_raw(name: &Name) -> RawAddress {
    match &name.address {
        SocketAddr::V4(address) => {
            let v4 = sockaddr_in {
                sin_family: AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: name.second.map_or([0; 8], pack_second),
            };
            // All bytes are there, whichever of the two it is.
            let mut raw = RawAddress { v6: no_address() };
            raw.v4 = v4;
            raw
        }
        SocketAddr::V6(address) => RawAddress {
            v6: sockaddr_in6 {
                sin6_family: AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            },
        },
    }
}

const fn no_address() -> sockaddr_in6 {
    sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    }
}

/// Writes a name to where a program wants it: as much of it as there is room for.
///
/// # Safety
/// `room` bytes may be written at `into`.
pub(crate) unsafe fn write(name: &Name, into: *mut c_void, room: usize) {
    let raw = named_to_raw(name);
    let len = room.min(len_of(&name.address));
    // SAFETY: the caller says so, and the value has at least as many bytes.
    unsafe { std::ptr::copy_nonoverlapping((&raw const raw).cast::<u8>(), into.cast(), len) };
}

/// Reads an address; nothing where it is of a family that there is no path for.
///
/// # Safety
/// At `from` is a socket address, as long as its family says.
pub(crate) unsafe fn read(from: *const c_void) -> Option<SocketAddr> {
    // SAFETY: the caller says so.
    unsafe { read_name(from) }.map(|name| name.address)
}

/// The same, with all that it may say.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn read_name(from: *const c_void) -> Option<Name> {
    if from.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family; it need not be aligned.
    let family = unsafe { from.cast::<u16>().read_unaligned() };
    match i32::from(family) {
        AF_INET => {
            // SAFETY: the family says what it is.
            let v4 = unsafe { from.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            let address = SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into();
            Some(Name { address, second: unpack_second(v4.sin_zero) })
        }
        AF_INET6 => {
            // SAFETY: the family says what it is.
            let v6 = unsafe { from.cast::<sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            let v6 = SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id);
            Some(Name::from(SocketAddr::from(v6)))
        }
        _ => None,
    }
}

/// How far in an array the next address is.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn stride(from: *const c_void) -> usize {
    // SAFETY: as the caller says.
    unsafe { read(from) }.map_or(size_of::<sockaddr_in>(), |address| len_of(&address))
}

/// An address of this host, and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
    pub(crate) scope: u32,
    pub(crate) prefix: u32,
}

impl Local {
    pub(crate) fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => SocketAddrV4::new(ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope).into(),
        }
    }

    /// The network that it is in, as the name of a fabric.
    pub(crate) fn network(&self) -> String {
        let prefix = self.prefix;
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                format!("{}/{prefix}", Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                format!("{}/{prefix}", Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        }
    }

    /// The better to be reached by, the less.
    fn rank(&self) -> u8 {
        let is_local = match self.ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        u8::from(self.ip.is_loopback()) * 4 + u8::from(is_local) * 2 + u8::from(self.ip.is_ipv6())
    }
}

/// The addresses of interfaces that are up, those first that other hosts reach.
pub(crate) fn locals() -> Vec<Local> {
    let mut list = std::ptr::null_mut();
    // SAFETY: a place for the list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is not freed yet.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        // SAFETY: the kernel's addresses are as long as their family says, or not there.
        let address = unsafe { read(entry.ifa_addr.cast::<sockaddr>().cast()) };
        if let (true, Some(address)) = (is_up, address) {
            // SAFETY: the entry has a name, which ends in zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            // SAFETY: as for the address.
            let mask = unsafe { read(entry.ifa_netmask.cast()) };
            found.push(Local {
                interface: name.to_string_lossy().into_owned(),
                ip: address.ip(),
                scope: if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 },
                prefix: mask.map_or(0, |mask| ones(mask.ip())),
            });
        }
    }
    // SAFETY: the list of above, of which nothing is used any more.
    unsafe { libc::freeifaddrs(list) };
    found.sort_by_key(Local::rank);
    found
}

fn ones(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    }
}

/// All that a name and a service mean.
pub(crate) fn resolve(node: Option<&str>, service: Option<&str>, numeric: bool) -> Vec<SocketAddr> {
    let port = match service.map(str::parse) {
        None => 0,
        Some(Ok(port)) => port,
        Some(Err(_)) => return Vec::new(),
    };
    let Some(node) = node else {
        return vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
    };
    if numeric {
        return node.parse().map(|ip: IpAddr| vec![(ip, port).into()]).unwrap_or_default();
    }
    (node, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// As users read it.
pub(crate) fn to_text(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(_) => format!("fi_sockaddr_in://{address}"),
        SocketAddr::V6(_) => format!("fi_sockaddr_in6://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_c() {
        for text in ["192.0.2.7:65535", "127.0.0.1:0", "[2001:db8::1]:8181", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = to_raw(&address);
            // SAFETY: a value of this kind.
            let back = unsafe { read((&raw const raw).cast()) };
            assert_eq!(back, Some(address), "{text}");
        }
    }

    #[test]
    fn a_name_may_say_where_the_second_rail_is() {
        let name = Name {
            address: "192.0.2.7:8181".parse().unwrap(),
            second: Some("198.51.100.7:4711".parse().unwrap()),
        };
        let mut room = [0_u8; 16];
        // SAFETY: as many bytes as are said.
        unsafe { write(&name, room.as_mut_ptr().cast(), room.len()) };
        // SAFETY: what was written just now.
        assert_eq!(unsafe { read_name(room.as_ptr().cast()) }, Some(name));
        // What else may be there means nothing.
        for byte in [0, 0x4c, 0xff] {
            room[8..].fill(byte);
            // SAFETY: as above.
            let read = unsafe { read_name(room.as_ptr().cast()) };
            assert_eq!(read, Some(name.address.into()));
        }
    }

    #[test]
    fn other_families_are_refused() {
        let raw = RawAddress { v6: no_address() };
        // SAFETY: it has a family, if none that is known.
        assert_eq!(unsafe { read((&raw const raw).cast()) }, None);
        // SAFETY: no address at all.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
    }

    #[test]
    fn this_host_has_addresses() {
        let locals = locals();
        assert!(locals.iter().any(|local| local.ip.is_loopback()), "{locals:?}");
        assert!(locals.is_sorted_by_key(Local::rank));
        let network = Local {
            interface: String::new(),
            ip: "192.0.2.130".parse().unwrap(),
            scope: 0,
            prefix: 25,
        };
        assert_eq!(network.network(), "192.0.2.128/25");
    }

    #[test]
    fn services_are_numbers() {
        assert!(resolve(None, Some("http"), false).is_empty());
        assert_eq!(resolve(Some("127.0.0.1"), Some("7"), true), ["127.0.0.1:7".parse().unwrap()]);
        assert!(resolve(Some("localhost"), None, true).is_empty());
    }
}
