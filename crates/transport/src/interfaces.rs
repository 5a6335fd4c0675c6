//! The addresses of network interfaces (`getifaddrs(3)`), and their MTU.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use crate::packet::mtu_of;

/// The addresses of an interface that is up, IPv4 first; none where there is no such
/// interface.
///
/// # Errors
/// The kernel does not say.
pub fn addresses_of(interface: &str) -> io::Result<Vec<IpAddr>> {
    let is_its = |entry: Entry| (entry.name == interface).then_some(entry.address).flatten();
    let mut found: Vec<IpAddr> = entries()?.into_iter().filter_map(is_its).collect();
    found.sort_by_key(IpAddr::is_ipv6);
    Ok(found)
}

/// The name of the interface that has this address. None where none that is up has it.
///
/// # Errors
/// The kernel does not say.
pub fn interface_at(address: IpAddr) -> io::Result<Option<String>> {
    let is_its = |entry: &Entry| entry.address == Some(address);
    Ok(entries()?.into_iter().find(is_its).map(|entry| entry.name))
}

/// The addresses of all interfaces that are up.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn own_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(entries()?.into_iter().filter_map(|entry| entry.address).collect())
}

/// Has an interface of this host this address? Not where the kernel does not say.
#[must_use]
pub fn is_of_this_host(address: IpAddr) -> bool {
    address.is_loopback() || own_addresses().is_ok_and(|own| own.contains(&address))
}

/// The MTU of the interface that has this address, or the largest of all interfaces where
/// the address is unspecified. None where no interface that is up has it. The socket is any
/// of the network namespace.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn mtu_at(fd: RawFd, address: IpAddr) -> io::Result<Option<u32>> {
    // All of 127.0.0.0/8 is the loopback interface's, which has one address of it.
    let is_meant = |own: IpAddr| own == address || own.is_loopback() && address.is_loopback();
    let mut largest = None;
    for entry in entries()? {
        if address.is_unspecified() || entry.address.is_some_and(is_meant) {
            // An interface may have gone since the list was made.
            largest = largest.max(mtu_of(fd, &entry.name).ok());
        }
    }
    Ok(largest)
}

/// An interface that is up, once for each of its addresses.
struct Entry {
    name: String,
    /// None where it is not an internet address.
    address: Option<IpAddr>,
}

fn entries() -> io::Result<Vec<Entry>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is a place for the answer.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: entries of a list that is freed below; each pointer is null or valid till then.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: every entry has a name that ends in a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: null, or a socket address of the family that it says.
        let address = unsafe { address_at(entry.ifa_addr) };
        found.push(Entry { name, address });
    }
    // SAFETY: the list that `getifaddrs` gave, freed once; nothing borrows from it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// Null, or a socket address that is as long as its family says.
unsafe fn address_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or valid, as the caller says.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is so long; it may be unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is so long; it may be unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn loopback_is_where_it_always_is() {
        let found = addresses_of("lo").unwrap();
        assert!(found.first().is_none_or(IpAddr::is_loopback), "{found:?}");
        assert!(addresses_of("no such interface").unwrap().is_empty());
    }

    #[test]
    fn an_address_leads_to_its_interface() {
        let loopback = interface_at(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(loopback.is_none_or(|name| name == "lo"));
        assert_eq!(interface_at("192.0.2.77".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn an_address_has_the_mtu_of_its_interface() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mtu = |address: &str| mtu_at(socket.as_raw_fd(), address.parse().unwrap()).unwrap();
        let loopback = mtu("127.0.0.1").unwrap();
        assert_eq!(loopback, mtu_of(socket.as_raw_fd(), "lo").unwrap());
        assert_eq!(mtu("127.9.8.7"), Some(loopback), "the whole network is local");
        assert!(mtu("0.0.0.0").unwrap() >= loopback, "the largest of all");
        assert_eq!(mtu("192.0.2.77"), None, "nobody has an address of the documentation");
    }
}
