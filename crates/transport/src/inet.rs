//! What sockets of the internet family have in common, whatever protocol they carry:
//! addresses as the kernel wants them, control messages (segment sizes of UDP, congestion
//! marks), what error numbers mean, and options.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use landfall_placement::Ecn;

use crate::capability::{Capabilities, Feature};

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

/// Room for the control messages of one call: the segment size and the traffic
/// class, and as much again, so that none is ever cut off.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control([u8; Self::LEN]);

/// What the kernel said about a receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The length of each unit, if there are several (UDP_GRO).
    pub(crate) unit_len: Option<usize>,
    pub(crate) ecn: Ecn,
    /// Of a report from the error queue: nobody receives at the address that it is about.
    pub(crate) is_unreachable: bool,
}

/// Does a `sock_extended_err` say that a port is closed, and did that come from the network?
fn is_port_unreachable(report: &[u8]) -> bool {
    let [a, b, c, d, origin, ..] = *report else { return false };
    let number = u32::from_ne_bytes([a, b, c, d]);
    let from_network = matches!(origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
    from_network && number == libc::ECONNREFUSED as u32
}

impl Control {
    pub(crate) const LEN: usize = 128;

    pub(crate) const fn empty() -> Self {
        Self([0; Self::LEN])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Writes what a send needs and gives the length of it; zero for nothing.
    pub(crate) fn for_send(&mut self, unit_len: Option<u16>, ecn: Ecn, ipv6: bool) -> usize {
        let mut len = 0;
        if let Some(unit_len) = unit_len {
            len += self.append(len, libc::SOL_UDP, libc::UDP_SEGMENT, &unit_len.to_ne_bytes());
        }
        if ecn != Ecn::NotCapable {
            let class = libc::c_int::from(ecn as u8).to_ne_bytes();
            let (level, kind) = if ipv6 {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            } else {
                (libc::IPPROTO_IP, libc::IP_TOS)
            };
            len += self.append(len, level, kind, &class);
        }
        len
    }

    fn append(&mut self, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
        // A header is a length, a level and a type; data follows aligned to a word.
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let word = size_of::<usize>();
        let space = HEADER + data.len().next_multiple_of(word);
        let into = &mut self.0[at..at + space];
        into.fill(0);
        into[..word].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        into[word..word + 4].copy_from_slice(&level.to_ne_bytes());
        into[word + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        into[HEADER..HEADER + data.len()].copy_from_slice(data);
        space
    }

    /// Reads what the kernel said in the first `len` bytes.
    pub(crate) fn received(&self, len: usize) -> Received {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let word = size_of::<usize>();
        let mut received = Received::default();
        let mut rest = &self.0[..len.min(Self::LEN)];
        while let Some((header, _)) = rest.split_at_checked(HEADER) {
            let int = |at: usize| {
                let bytes = header[at..at + 4].try_into().unwrap_or_default();
                i32::from_ne_bytes(bytes)
            };
            let total = usize::from_ne_bytes(header[..word].try_into().unwrap_or_default());
            let Some(data) = rest.get(HEADER..total) else { break };
            match (int(word), int(word + 4), data) {
                (libc::SOL_UDP, libc::UDP_GRO, [a, b, c, d, ..]) => {
                    let size = i32::from_ne_bytes([*a, *b, *c, *d]);
                    received.unit_len = usize::try_from(size).ok().filter(|size| *size > 0);
                }
                (libc::IPPROTO_IP, libc::IP_TOS, [class, ..])
                | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, [class, ..]) => {
                    received.ecn = Ecn::from_bits(*class);
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR, report)
                | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, report) => {
                    received.is_unreachable = is_port_unreachable(report);
                }
                _ => {}
            }
            rest = rest.get(total.next_multiple_of(word)..).unwrap_or_default();
        }
        received
    }
}

/// Why nothing was sent, and so what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// The socket buffer or the device's queue is full: later there will be room.
    NoRoom,
    /// The device on the route, or this kernel, cannot cut a batch: send one by one.
    CannotSegment,
    /// These units are lost, as if the network had lost them.
    Lost,
}

impl SendFault {
    /// What the error of a call that was to send `units` at once means. None: the socket is
    /// broken for good.
    pub(crate) fn of(error: &io::Error, units: usize) -> Option<Self> {
        match error.raw_os_error()? {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Some(Self::NoRoom),
            // EIO: the device cannot sum or cut. EINVAL, ENOPROTOOPT: the kernel.
            libc::EIO | libc::EINVAL | libc::ENOPROTOOPT if units > 1 => Some(Self::CannotSegment),
            number if is_news(number) || is_refusal(number) => Some(Self::Lost),
            _ => None,
        }
    }
}

/// There was nothing to receive, or only news of something sent earlier.
pub(crate) fn nothing_came(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error().is_some_and(is_news)
}

/// The network reports what became of something sent earlier, or of this: lost.
const fn is_news(number: i32) -> bool {
    matches!(
        number,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EPROTO
            | libc::ENOPROTOOPT
            // The path's MTU has become smaller.
            | libc::EMSGSIZE
    )
}

/// This unit cannot be sent: too long, forbidden, or to an impossible address.
const fn is_refusal(number: i32) -> bool {
    matches!(
        number,
        libc::EACCES
            | libc::EPERM
            | libc::EINVAL
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::EDESTADDRREQ
            | libc::EIO
    )
}

/// As large as allowed: with CAP_NET_ADMIN as asked, else up to the system's limit.
pub(crate) fn grow_buffers(fd: RawFd, size: usize) {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(fd, libc::SOL_SOCKET, force, size).is_err() {
            // Smaller buffers cost speed, not correctness.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, size);
        }
    }
}

/// Asks for the congestion marks of what arrives, by these versions of IP.
pub(crate) fn enable_ecn(fd: RawFd, (ipv4, ipv6): (bool, bool), found: &mut Capabilities) {
    let options = [
        (ipv4, libc::IPPROTO_IP, libc::IP_RECVTOS),
        (ipv6, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    ];
    let mut wanted = options.into_iter().filter(|(wanted, ..)| *wanted);
    match wanted.try_for_each(|(_, level, name)| set_option(fd, level, name, 1)) {
        Ok(()) => found.add(Feature::Ecn),
        Err(error) => {
            found.lack(Feature::Ecn, format!("the kernel does not report the IP header: {error}"));
        }
    }
}

pub(crate) fn set_option(fd: RawFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is an int that lives through the call, `len` is its size.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

    #[test]
    fn what_is_written_can_be_read() {
        let mut control = Control::empty();
        assert_eq!(control.for_send(None, Ecn::NotCapable, false), 0);
        let len = control.for_send(None, Ecn::CongestionExperienced, false);
        assert_eq!(control.received(len).ecn, Ecn::CongestionExperienced);
        let len = control.append(0, libc::SOL_UDP, libc::UDP_GRO, &1064i32.to_ne_bytes());
        let more = control.append(len, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &2i32.to_ne_bytes());
        let received = control.received(len + more);
        assert_eq!((received.unit_len, received.ecn), (Some(1064), Ecn::Capable0));
    }

    /// One that was made here, such as of a datagram that is too long, is none.
    #[test]
    fn only_the_network_says_that_a_port_is_closed() {
        let report = |number: i32, origin: u8| {
            let mut control = Control::empty();
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.to_ne_bytes());
            bytes[4] = origin;
            let len = control.append(0, libc::IPPROTO_IP, libc::IP_RECVERR, &bytes);
            control.received(len).is_unreachable
        };
        assert!(report(libc::ECONNREFUSED, libc::SO_EE_ORIGIN_ICMP));
        assert!(report(libc::ECONNREFUSED, libc::SO_EE_ORIGIN_ICMP6));
        assert!(!report(libc::ECONNREFUSED, libc::SO_EE_ORIGIN_LOCAL));
        assert!(!report(libc::EHOSTUNREACH, libc::SO_EE_ORIGIN_ICMP));
        assert!(!report(libc::EMSGSIZE, libc::SO_EE_ORIGIN_LOCAL));
    }

    #[test]
    fn cut_and_senseless_messages_are_passed_over() {
        let mut control = Control::empty();
        let len = control.append(0, libc::SOL_UDP, libc::UDP_GRO, &1064i32.to_ne_bytes());
        for cut in 0..len - 4 {
            assert_eq!(control.received(cut).unit_len, None, "{cut}");
        }
        control.0[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(control.received(len).unit_len, None);
        control.0[..8].copy_from_slice(&0usize.to_ne_bytes());
        assert_eq!(control.received(len).unit_len, None);
    }

    fn fault(number: i32, units: usize) -> Option<SendFault> {
        SendFault::of(&io::Error::from_raw_os_error(number), units)
    }

    #[test]
    fn a_batch_that_cannot_be_cut_is_not_lost() {
        assert_eq!(fault(libc::EIO, 2), Some(SendFault::CannotSegment));
        assert_eq!(fault(libc::EIO, 1), Some(SendFault::Lost));
        assert_eq!(fault(libc::EINVAL, 64), Some(SendFault::CannotSegment));
    }

    #[test]
    fn a_full_queue_is_waited_for_and_a_bad_descriptor_is_the_end() {
        assert_eq!(fault(libc::ENOBUFS, 9), Some(SendFault::NoRoom));
        assert_eq!(fault(libc::EBADF, 1), None);
        assert_eq!(SendFault::of(&io::Error::other("strange"), 1), None);
    }

    #[test]
    fn a_report_about_an_earlier_unit_ends_no_receiving() {
        let error = io::Error::from_raw_os_error;
        assert!(nothing_came(&error(libc::EAGAIN)) && nothing_came(&error(libc::ECONNREFUSED)));
        assert!(nothing_came(&error(libc::EMSGSIZE)), "a router has a smaller MTU");
        assert!(!nothing_came(&error(libc::EBADF)));
    }
}
