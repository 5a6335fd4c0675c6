//! What the kernel has learned of the way to a peer: how long a packet may be.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

/// Asks the kernel about ways.
///
/// It tells only sockets that have a peer, and a path may have many. This is
/// another socket, of a kind that anybody may open, which is connected to the
/// peer in question along the same way. It is opened with the path, because it
/// has to be in the same network namespace.
#[derive(Debug)]
pub(super) struct Ways {
    socket: Socket,
    ipv6: bool,
}

impl Ways {
    /// Takes the ways that this socket takes.
    pub(super) fn new(like: &Socket, ipv6: bool) -> io::Result<Self> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(device) = like.device()? {
            socket.bind_device(Some(&device))?;
        }
        Ok(Self { socket, ipv6 })
    }

    /// The longest packet that may go to a peer.
    pub(super) fn mtu(&self, peer: IpAddr) -> io::Result<u32> {
        // The discard port; nothing is sent.
        self.socket.connect(&SocketAddr::new(peer, 9).into())?;
        mtu_of(self.socket.as_raw_fd(), self.ipv6)
    }
}

fn mtu_of(fd: RawFd, ipv6: bool) -> io::Result<u32> {
    let (level, name) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: there is room for an int, which `len` says.
    let done = unsafe { libc::getsockopt(fd, level, name, (&raw mut mtu).cast(), &raw mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(mtu).map_err(io::Error::other)
}
