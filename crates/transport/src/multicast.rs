//! [`MulticastSocket`]: short datagrams to all hosts of a network that listen to a group.
//!
//! Two sockets: one is bound to the port of the group, which processes of a host share; the other
//! has a port of its own, from which this process speaks, and where answers for it alone come.
//! The kernel joins the group, with IGMP or MLD.
//!
//! What does not live here: what is said.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::driver::Interest;

/// A group of a network, to listen and to speak to.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// use landfall_transport::multicast::MulticastSocket;
///
/// let group = "239.255.76.1:8199".parse()?;
/// let socket = MulticastSocket::open(group, Some(Ipv4Addr::LOCALHOST))?;
/// socket.send(b"is anybody there?", group)?;
/// let mut bytes = [0; 64];
/// // What is said is heard by this host, too; it takes a moment.
/// let len = loop {
///     if let Some((len, _)) = socket.receive(&mut bytes)? {
///         break len;
///     }
///     std::thread::yield_now();
/// };
/// assert_eq!(&bytes[..len], b"is anybody there?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MulticastSocket {
    group: SocketAddr,
    /// At the port of the group.
    listening: UdpSocket,
    /// At a port of its own.
    speaking: UdpSocket,
}

impl MulticastSocket {
    /// Joins a group of IPv4 on the interface that has this address, or on the one that the
    /// kernel chooses; one of IPv6 on the interface that its scope names.
    ///
    /// # Errors
    /// The address is none of a group, no interface has that address, or the kernel refuses.
    pub fn open(group: SocketAddr, interface: Option<Ipv4Addr>) -> io::Result<Self> {
        if !group.ip().is_multicast() {
            let text = format!("{group} is no group: take one of 239.0.0.0/8 or ff00::/8");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let domain = Domain::for_address(group);
        let shared = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        // Processes of one host hear the same group; it is no port of one of them.
        shared.set_reuse_address(true)?;
        let speaking = match group {
            SocketAddr::V4(group) => {
                let interface = interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
                shared.bind(&SocketAddr::from(group).into())?;
                shared.join_multicast_v4(group.ip(), &interface)?;
                let speaking = UdpSocket::bind((interface, 0))?;
                let options = SockRef::from(&speaking);
                options.set_multicast_if_v4(&interface)?;
                options.set_multicast_loop_v4(true)?;
                speaking
            }
            SocketAddr::V6(group) => {
                shared.set_only_v6(true)?;
                shared.bind(&SocketAddr::from(group).into())?;
                shared.join_multicast_v6(group.ip(), group.scope_id())?;
                let speaking = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
                let options = SockRef::from(&speaking);
                options.set_multicast_if_v6(group.scope_id())?;
                options.set_multicast_loop_v6(true)?;
                speaking
            }
        };
        shared.set_nonblocking(true)?;
        speaking.set_nonblocking(true)?;
        Ok(Self { group, listening: shared.into(), speaking })
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> SocketAddr {
        self.group
    }

    /// Sends a datagram, to the group or to one host. One that finds no room is lost.
    ///
    /// # Errors
    /// There is no way there, or it is too long.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        match self.speaking.send_to(bytes, to) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next datagram that has come, to the group or to this process alone: its length, of
    /// which no more than there is room for was kept, and who sent it.
    ///
    /// # Errors
    /// The kernel reports one that is none of a datagram that was sent from here.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        for socket in [&self.listening, &self.speaking] {
            match socket.recv_from(into) {
                Ok(heard) => return Ok(Some(heard)),
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// What a thread waits for that wants to hear.
    pub fn interests(&self) -> impl Iterator<Item = Interest> + use<> {
        let fds = [self.listening.as_raw_fd(), self.speaking.as_raw_fd()];
        fds.into_iter().map(|fd| Interest { fd, readable: true, writable: false })
    }
}

/// Nothing has come; or nobody listens where something was sent, which is told here.
fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionRefused | HostUnreachable)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const GROUP: &str = "239.255.76.2:8198";

    fn open() -> MulticastSocket {
        MulticastSocket::open(GROUP.parse().unwrap(), Some(Ipv4Addr::LOCALHOST)).unwrap()
    }

    fn next(socket: &MulticastSocket) -> (Vec<u8>, SocketAddr) {
        let (mut bytes, deadline) = ([0; 16], Instant::now() + Duration::from_secs(10));
        loop {
            if let Some((len, from)) = socket.receive(&mut bytes).unwrap() {
                return (bytes[..len].to_vec(), from);
            }
            assert!(Instant::now() < deadline, "nothing came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_that_joined_a_group_hear_it_and_answer_one() {
        let [one, two, three] = [open(), open(), open()];
        one.send(b"who?", one.group()).unwrap();
        for socket in [&one, &two, &three] {
            assert_eq!(next(socket).0, b"who?");
        }
        two.send(b"who?", two.group()).unwrap();
        let (_, asker) = next(&three);
        three.send(b"me", asker).unwrap();
        assert_eq!(next(&two).0, b"who?", "its own question");
        assert_eq!(next(&two).0, b"me");
        assert_eq!(next(&one).0, b"who?");
        assert_eq!(one.receive(&mut [0; 16]).unwrap(), None, "the answer is for who asked");
    }

    #[test]
    fn what_is_no_group_is_refused() {
        let error = MulticastSocket::open("127.0.0.1:8198".parse().unwrap(), None).unwrap_err();
        assert!(error.to_string().contains("239.0.0.0/8"), "{error}");
    }
}
