//! The addresses of network interfaces (`getifaddrs(3)`).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of an interface that is up, IPv4 first; none where there is no such
/// interface.
///
/// # Errors
/// The kernel does not say.
pub fn addresses_of(interface: &str) -> io::Result<Vec<IpAddr>> {
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
        // SAFETY: every entry has a name that ends in a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if is_up && name.to_bytes() == interface.as_bytes() {
            // SAFETY: null, or a socket address of the family that it says.
            found.extend(unsafe { address_at(entry.ifa_addr) });
        }
    }
    // SAFETY: the list that `getifaddrs` gave, freed once; nothing borrows from it any more.
    unsafe { libc::freeifaddrs(list) };
    found.sort_by_key(IpAddr::is_ipv6);
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
    use super::*;

    #[test]
    fn loopback_is_where_it_always_is() {
        let found = addresses_of("lo").unwrap();
        assert!(found.first().is_none_or(IpAddr::is_loopback), "{found:?}");
        assert!(addresses_of("no such interface").unwrap().is_empty());
    }
}
