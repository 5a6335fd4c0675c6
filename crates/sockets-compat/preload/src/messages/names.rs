//! Names of ends: as C has them, and as they go through a pair.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, socklen_t};

use crate::kernel::Errno;

/// The name that a program gave.
///
/// # Safety
///
/// `address` is null, or has so many bytes.
pub(crate) unsafe fn given_name(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<SocketAddr, Errno> {
    if address.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let has = |wanted: usize| len as usize >= wanted;
    if !has(size_of::<libc::sa_family_t>()) {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: as promised, and looked at no further than its length.
    unsafe {
        match c_int_of((*address).sa_family) {
            libc::AF_INET if has(size_of::<libc::sockaddr_in>()) => {
                let name = address.cast::<libc::sockaddr_in>().read_unaligned();
                let host = name.sin_addr.s_addr.to_ne_bytes();
                Ok(SocketAddrV4::new(host.into(), u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 if has(size_of::<libc::sockaddr_in6>()) => {
                let name = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let (host, port) = (name.sin6_addr.s6_addr, u16::from_be(name.sin6_port));
                let (flow, scope) = (name.sin6_flowinfo, name.sin6_scope_id);
                Ok(SocketAddrV6::new(host.into(), port, flow, scope).into())
            }
            libc::AF_INET | libc::AF_INET6 => Err(Errno(libc::EINVAL)),
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }
}

const fn c_int_of(family: libc::sa_family_t) -> libc::c_int {
    family as libc::c_int
}

/// Writes a name where a program wants it, as far as there is room; its length is told.
///
/// # Safety
///
/// Both are null, or the program's, with room for what `len` says.
pub(crate) unsafe fn tell_name(name: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    if address.is_null() || len.is_null() {
        return;
    }
    // SAFETY: numbers only.
    let mut all: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let used = match name {
        SocketAddr::V4(name) => {
            // SAFETY: there is room for any name.
            let place = unsafe { &mut *(&raw mut all).cast::<libc::sockaddr_in>() };
            place.sin_family = libc::AF_INET as libc::sa_family_t;
            place.sin_port = name.port().to_be();
            place.sin_addr.s_addr = u32::from_ne_bytes(name.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(name) => {
            // SAFETY: as above.
            let place = unsafe { &mut *(&raw mut all).cast::<libc::sockaddr_in6>() };
            place.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            place.sin6_port = name.port().to_be();
            place.sin6_addr.s6_addr = name.ip().octets();
            place.sin6_scope_id = name.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    // SAFETY: as promised.
    unsafe {
        let room = used.min(*len as usize);
        std::ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), address.cast(), room);
        *len = used as socklen_t;
    }
}

/// One name as it goes through a pair: version, host, port.
const ONE: usize = 1 + 16 + 2;
/// The names of both ends.
pub(super) const BOTH: usize = 2 * ONE;

pub(super) fn write(here: SocketAddr, there: SocketAddr) -> [u8; BOTH] {
    let mut bytes = [0; BOTH];
    for (place, name) in bytes.chunks_exact_mut(ONE).zip([here, there]) {
        place[0] = if name.is_ipv4() { 4 } else { 6 };
        let host = match name.ip() {
            IpAddr::V4(host) => host.to_ipv6_mapped(),
            IpAddr::V6(host) => host,
        };
        place[1..17].copy_from_slice(&host.octets());
        place[17..].copy_from_slice(&name.port().to_be_bytes());
    }
    bytes
}

pub(super) fn read(bytes: &[u8; BOTH]) -> Option<(SocketAddr, SocketAddr)> {
    let mut names = bytes.chunks_exact(ONE).map(|bytes| {
        let host = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[1..17]).ok()?);
        let host = match bytes[0] {
            4 => IpAddr::V4(host.to_ipv4_mapped()?),
            6 => IpAddr::V6(host),
            _ => return None,
        };
        Some(SocketAddr::new(host, u16::from_be_bytes([bytes[17], bytes[18]])))
    });
    Some((names.next()??, names.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_went() {
        let four: SocketAddr = "10.1.2.3:118".parse().unwrap();
        let six: SocketAddr = "[fe80::7]:65535".parse().unwrap();
        assert_eq!(read(&write(four, six)), Some((four, six)));
        assert_eq!(read(&[0; BOTH]), None);
    }
}
