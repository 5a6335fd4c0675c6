//! Socket addresses as the kernel wants them, and back.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either family.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(crate) const LEN: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// No address, to be overwritten by the kernel.
    pub(crate) const fn unspecified() -> Self {
        // The larger member first, so that no byte is left uninitialised.
        let v6 = libc::sockaddr_in6 {
            sin6_family: libc::AF_UNSPEC as libc::sa_family_t,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        };
        Self { v6 }
    }

    /// The address for a socket of family IPv6 (`mapped`) or of its own family,
    /// and how long it is.
    pub(crate) fn new(address: SocketAddr, mapped: bool) -> (Self, libc::socklen_t) {
        match address {
            SocketAddr::V4(v4) if mapped => {
                let v6 = SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0);
                Self::new(v6.into(), false)
            }
            SocketAddr::V4(address) => {
                let mut raw = Self::unspecified();
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(address) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                (Self { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address that the kernel filled in; IPv4 in IPv6 clothes is IPv4.
    pub(crate) fn to_socket(self) -> Option<SocketAddr> {
        // SAFETY: every byte of the union is initialised from `unspecified` on,
        // and both members are plain numbers that begin with the family.
        let (family, v4, v6) = unsafe { (self.v6.sin6_family, self.v4, self.v6) };
        match i32::from(family) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(match ip.to_ipv4_mapped() {
                    Some(v4) => SocketAddrV4::new(v4, port).into(),
                    None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
                })
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_socket().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["127.0.0.1:7000", "[::1]:7001", "[fe80::1%3]:7002"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(address, false).0.to_socket(), Some(address));
        }
        let v4: SocketAddr = "10.1.2.3:99".parse().unwrap();
        let (mapped, len) = RawAddress::new(v4, true);
        assert_eq!(len as usize, size_of::<libc::sockaddr_in6>());
        assert_eq!(mapped.to_socket(), Some(v4));
        assert_eq!(RawAddress::unspecified().to_socket(), None);
    }
}
